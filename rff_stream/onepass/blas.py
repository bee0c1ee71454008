"""BLAS pinned to one thread while any leaf runs: the same bits, and no oversubscription."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["single_threaded_blas"]

_lock = threading.Lock()
_users = 0
_limits: Any = None


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS of this process to one thread until the last user leaves.

    ``threadpool_limits`` is process-wide: two tasks that enter and leave at different
    times would undo each other, so users are counted.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _users, _limits
    from threadpoolctl import threadpool_limits

    with _lock:
        if _users == 0:
            _limits = threadpool_limits(limits=1, user_api="blas")
        _users += 1


def _leave() -> None:
    global _users, _limits
    with _lock:
        _users -= 1
        if _users == 0 and _limits is not None:
            _limits.restore_original_limits()
            _limits = None
