"""Column names: u[level=500] and time.dayofyear, made and taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rff_stream.errors import DataError
from rff_stream.sources.values import TIME_FIELDS, Accessor, KindError, suggestion
from rff_stream.sources.variable import Variable

__all__ = ["base_of", "check_field", "plain_names", "texts_of"]


def base_of(name: str) -> tuple[str, dict[str, str]]:
    """ "u[level=500,member=3]" -> ("u", {"level": "500", "member": "3"})."""
    match = re.fullmatch(r"(.+)\[(.+)\]", name)
    if match is None or "=" not in match[2]:
        return name, {}
    pairs = (part.partition("=") for part in match[2].split(","))
    return match[1], {dim: value for dim, _, value in pairs}


def plain_names(names: Sequence[str]) -> bool:
    """Whether these are the names of an unnamed array: x0, x1, …."""
    return list(names) == [f"x{i}" for i in range(len(names))]


def texts_of(values: Iterable[Any]) -> list[str]:
    """Coordinate values as they stand in column names: 500, 0.25, 2000-01-01."""
    return [text_of(value) for value in values]


def text_of(value: Any) -> str:
    """One coordinate value: whole numbers without a point, times as short as they can be."""
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def check_field(name: str, stem: str, field: str, variable: Variable) -> None:
    """``time.field`` is a number; tried on one made-up time, not on the data."""
    if variable.dtype.kind != "M" and not variable.calendar:
        raise DataError(
            f"There is no {name!r}: {stem!r} has dtype {variable.dtype}, and only times have "
            f"fields. Name a variable, or a field of a time coordinate."
        )
    try:
        found = Accessor(field)(one_time(variable))
    except AttributeError:
        raise DataError(
            f"There is no {name!r}: times have no field {field!r}. {suggestion(field, TIME_FIELDS)}"
        ) from None
    if found.dtype.kind not in "biuf":
        raise KindError(
            f"{name!r} holds {found.dtype} values such as {found[0]!r}, but a column holds "
            f"numbers. {suggestion(field, TIME_FIELDS)}"
        )


def one_time(variable: Variable) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """A made-up time of the variable's kind."""
    if not variable.calendar:
        return np.array(["2000-01-01"], dtype="datetime64[ns]")
    import cftime

    return np.array([cftime.datetime(2000, 1, 1, calendar=variable.calendar)])
