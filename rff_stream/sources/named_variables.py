"""A name that was looked up, and the columns of a row that it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from rff_stream.label_forms import text_of
from rff_stream.sources.levels import EVERY, Indicators, LevelCodes
from rff_stream.sources.rows import Accessor, Convert, Numbers, as_numbers, units_of_time
from rff_stream.sources.variables import Variable

Picks = tuple[tuple[int, ...], ...]
"""Places along the extra dimensions, one tuple a column."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedVariable:
    """A name that was looked up."""

    name: str  # as it was asked for: "t", "time.dayofyear", "u[level=500]"
    variable: Variable
    field: str = ""  # accessor of a virtual name, "" for none
    picks: Picks | None = None  # which places of the extra dimensions; None: all
    columns: tuple[str, ...] | None = None
    """Names of all columns, if they are not made from the labels of the dimensions."""
    levels: tuple[str, ...] = ()  # of categories or text: each is a column of 0 and 1

    @property
    def units(self) -> str:
        """Units of its numbers."""
        own = "" if self.field or self.levels else self.variable.units
        return self.units_of_time or own

    @property
    def long_name(self) -> str:
        """What its numbers are, in words; "" where only the name says it."""
        return "" if self.field or self.levels else self.variable.long_name

    @property
    def units_of_time(self) -> str:
        """Units of times as numbers; "" where it holds others."""
        if self.field or self.levels:
            return ""
        return units_of_time(self.variable.dtype, self.variable.calendar)

    @property
    def accessor(self) -> Convert:
        """The accessor, where there is one."""
        return Accessor(self.field) if self.field else Numbers()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype after the accessor."""
        return np.dtype(np.int64) if self.field else self.variable.dtype

    def numbers(self) -> Convert:
        """The conversion to float64."""
        if self.field:
            return self.accessor
        if self.levels:
            return LevelCodes() if self.levels == (EVERY,) else Indicators(self.levels)
        variable = self.variable
        return as_numbers(self.name, variable.dtype, variable.calendar, variable.holds)


def extra_dims(variable: Variable, dims: Sequence[str]) -> tuple[str, ...]:
    """Dimensions that become columns."""
    return tuple(dim for dim in variable.dims if dim not in dims)


def column_names(found: NamedVariable, dims: Sequence[str]) -> tuple[str, ...]:
    """Names of a variable's columns: "t", or "u[level=500]", "u[level=850]", …."""
    extra = extra_dims(found.variable, dims)
    if found.columns is not None:
        return found.columns
    if not extra or found.picks is not None:
        return (found.name,)
    texts = [labels_of(found.variable, dim) for dim in extra]
    inside = (zip(extra, place, strict=True) for place in product(*texts))
    return tuple(f"{found.name}[{','.join(f'{d}={v}' for d, v in each)}]" for each in inside)


def labels_of(variable: Variable, dim: str) -> Sequence[str]:
    """Texts of the places along a dimension: coordinate values, or their numbers."""
    values = variable.labels.get(dim)
    return [text_of(value) for value in (range(variable.size(dim)) if values is None else values)]
