"""Strict JSON: every value has one text, so a text can be compared, hashed and refused."""

from __future__ import annotations

import json
import math
from typing import Any

from rff_stream.errors import ModelError

MAX_JSON = 64 * 2**20
"""Bytes of the largest JSON file that is written or read."""

MAX_DEPTH = 32
"""Levels of nesting."""


def canonical(value: Any, name: str) -> bytes:
    """The one text of a plain value: sorted keys, no spaces, ASCII; ``name`` is it in messages.

    Raises
    ------
    ModelError
        Names the part that JSON cannot hold: NaN, ±inf, other types, keys that are not text.
    """
    check_plain(value, name)
    data = dump(value)
    if len(data) > MAX_JSON:
        raise ModelError(
            f"{name} takes {len(data):,} bytes as JSON; a store keeps at most {MAX_JSON:,}. "
            "Put long lists of numbers into arrays."
        )
    return data


def dump(value: Any) -> bytes:
    """The text of :func:`canonical`, of a value that was checked before."""
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii")


def parse(data: bytes, place: str) -> dict[str, Any]:
    """The value of a canonical JSON object; refuses every other text, naming its place."""
    found = parse_loosely(data, place)
    try:
        if data.count(b"{") + data.count(b"[") > MAX_DEPTH:  # else it is not that deep
            check_plain(found, place)
        same = dump(found) == data
    except ValueError as error:
        raise ModelError(f"{place} holds what rff_stream does not write: {error}") from error
    if not same:
        raise ModelError(
            f"{place} is JSON, but not in the form that rff_stream writes: it was changed. "
            "Restore it from a copy."
        )
    return found


def parse_loosely(data: bytes, place: str) -> dict[str, Any]:
    """The value of any JSON object: for telling what a file is before it is trusted."""
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{place} is not JSON ({type(error).__name__}, {len(data):,} bytes). "
            "A model has JSON there; restore it from a copy."
        ) from error
    if not isinstance(found, dict):
        raise ModelError(f"{place} holds a JSON {type(found).__name__}, but a model has an object.")
    return found


def check_plain(value: Any, name: str, depth: int = MAX_DEPTH) -> None:
    """Refuse what JSON cannot give back, by name: ``header['alpha']``."""
    if depth == 0:
        raise ModelError(f"{name} is nested deeper than {MAX_DEPTH} levels. Flatten it.")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ModelError(f"{name} has the key {key!r}, but keys of JSON are text.")
            check_plain(inner, f"{name}[{key!r}]", depth - 1)
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            check_plain(inner, f"{name}[{i}]", depth - 1)
    elif not (value is None or isinstance(value, str | int | float)):
        raise ModelError(
            f"{name} is a {_kind(value)}, which JSON does not know. Use dict, list, str, int, "
            "float, bool or None there; put arrays into arrays."
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise ModelError(f"{name} is {value}, which JSON does not know. Put it into arrays.")


def _kind(value: Any) -> str:
    found = type(value)
    return f"{found.__module__}.{found.__name__}".removeprefix("builtins.")
