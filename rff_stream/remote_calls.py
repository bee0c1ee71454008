"""Requests of a file system that end: a dead address is an error, and no wait without end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

SECONDS = 60.0
"""Limit of one request, plus a second for each MB, so that a dead address ends with an error."""


def answer_in_time(method: Callable[..., Any], *given: Any, size: int = 0, **options: Any) -> Any:
    """What a method of an fsspec file system gives within its time, for so many bytes.

    For methods of one request: a listing of many files is many. Methods of local disks have no
    limit. Raises TimeoutError: nothing came.
    """
    if inspect.iscoroutinefunction(getattr(method, "__wrapped__", None)):
        options["timeout"] = SECONDS + size / 1e6
    return method(*given, **options)


def no_answer(cause: BaseException) -> str:
    """The words of such an error; none for any other."""
    if not isinstance(cause, TimeoutError):
        return ""
    return f"no answer within {SECONDS:g} s ({type(cause).__name__})"
