"""A value stores itself: its fields as plain JSON and named arrays, and back, bit for bit.

A field of a dataclass is an array of its name, a number is an array of one, and a field that is a
dataclass puts its own fields beside the others. What else there is to say of a field is its
``metadata``: ``coef: Array = field(metadata=stored("grid_coef", write=parts, read=joined))``.
A field that has its default is left out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")

NOT_STORED: Mapping[str, Any] = {"stored": None}
"""``metadata`` of a field that a store does not keep."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a store keeps a field."""

    name: str = ""  # "": that of the field
    plain: bool = False
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None


def stored(
    name: str = "",
    *,
    plain: bool = False,
    write: Callable[[Any], Any] | None = None,
    read: Callable[[Any], Any] | None = None,
) -> Mapping[str, Form]:
    """``metadata`` of a field with another name in a store, kept as plain JSON, or converted."""
    return {"stored": Form(name, plain, write, read)}


def pack_fields(value: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a store keeps of a dataclass: plain JSON, and arrays."""
    kind: Any = type(value)
    plain: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, of, default, form in _members(kind):
        own = getattr(value, name)
        if own is default or (isinstance(own, (int, float)) and own == default):
            continue
        kept = own if form.write is None else form.write(own)
        if is_dataclass(kept):
            its_plain, its_arrays = pack_fields(kept)
            plain |= its_plain
            arrays |= its_arrays
        elif form.plain:
            plain[form.name] = kept
        else:
            dtype = np.float64 if of == NDArray[np.float64] else None
            arrays[form.name] = np.array(kept, dtype, ndmin=1, copy=None)
    return plain, arrays


def unpack_fields(
    kind: Callable[..., Value],
    plain: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    **given: Any,
) -> Value:
    """The value that gave these; ``given`` are fields that were not stored, at any depth.

    Raises KeyError: for a field that is not there and has no default. A default stands for a field
    of which nothing is there; of a part that is a dataclass all or nothing was stored.
    """
    own: Any = kind
    found = {name: given[name] for name in given if name in own.__dataclass_fields__}
    for name, of, default, form in _members(own):
        if name in found or (default is not MISSING and not _is_there(of, form, plain, arrays)):
            continue
        if is_dataclass(of) and form.read is None:
            part: Any = of
            found[name] = unpack_fields(part, plain, arrays, **given)
        else:
            found[name] = _read(of, form, plain if form.plain else arrays)
    return kind(**found)


def _is_there(of: Any, form: Form, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> bool:
    """Whether a store has a field, or anything of one that is a dataclass."""
    if is_dataclass(of) and form.read is None:
        part: Any = of
        return any(_is_there(own, its, plain, arrays) for _, own, _, its in _members(part))
    return form.name in (plain if form.plain else arrays)


def _read(of: Any, form: Form, kept: Mapping[str, Any]) -> Any:
    """The value of a field."""
    value = kept[form.name]
    if of in (int, float) and not form.plain:
        value = of(value[0])
    return value if form.read is None else form.read(value)


@functools.cache
def _members(kind: Any) -> list[tuple[str, Any, Any, Form]]:
    """Name, type of what is not None, default and form of each field that a store keeps."""
    hints, found = get_type_hints(kind), []
    for each in dataclasses.fields(kind):
        form = each.metadata.get("stored", Form())
        if form is not None:
            hint = hints[each.name]
            several = get_args(hint)
            of = several[0] if several[1:] == (NoneType,) else hint
            named = dataclasses.replace(form, name=form.name or each.name)
            found.append((each.name, of, each.default, named))
    return found
