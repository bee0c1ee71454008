"""Columns of categories or text: the levels that they have, and an input of 0 and 1 for each.

The inputs of a column are "sky=rain", "sky=sun". A level is part of a column's name, as a field
of a time is. So a model knows its levels by its columns, and finds them in any other table,
whatever that one holds besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array
from rff_stream.sources.container_types import KindError
from rff_stream.sources.rows import as_text
from rff_stream.sources.variables import Variable

MAX_LEVELS = 64
"""With more inputs of 0 and 1 a kernel carries little information: all rows are equally far
apart."""

SCAN_ROWS = 65_536
"""Rows of a stored column that are read at once."""


@dataclass(frozen=True, slots=True)
class Indicators:
    """Values (…) -> (…, levels): 1 at a value's own level, 0 elsewhere; NaN where it is missing.

    A level that is not listed is 0 everywhere. Of numbers, 3 and 3.0 are the same level.
    """

    levels: tuple[str, ...]

    def __call__(self, values: Array) -> Array:
        texts, absent = level_texts(values)
        levels = np.array(self.levels)
        if are_numbers(values):
            names, place = np.unique(texts, return_inverse=True)
            texts = np.array([without_point(name) for name in names])[place.reshape(texts.shape)]
            levels = np.array([without_point(level) for level in self.levels])
        found: Array = (texts[..., None] == levels).astype(np.float64)
        found[absent] = np.nan
        return found


def are_numbers(values: Array) -> bool:
    """Whether levels are numbers: one file may hold them as integers, another as floats."""
    if values.dtype.kind != "O":
        return values.dtype.kind in "iuf"
    known = next((v for v in values.ravel() if v is not None and v == v), None)
    return isinstance(known, int | float | np.number) and not isinstance(known, bool)


def without_point(level: str) -> str:
    """The text of a whole number as that of an integer: "3.0" is "3"."""
    try:
        value = float(level)
    except ValueError:
        return level
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else level


def level_texts(values: Array) -> tuple[Array, Array]:
    """Values as text, and which of them are missing (None, NaN)."""
    absent = np.zeros(values.shape, bool)
    if values.dtype.kind not in "SU":
        there = [v is not None and v == v for v in values.ravel().tolist()]
        absent = ~np.array(there, bool).reshape(values.shape)
    return as_text(values), absent


def holds_levels(variable: Variable) -> bool:
    """Whether a column has a type of categories: its levels are inputs without being named."""
    return variable.holds is not None and variable.holds.kind == "categories"


def is_text(variable: Variable) -> bool:
    """Whether a column holds text: its levels are inputs where the column is named."""
    strings = variable.holds is not None and variable.holds.kind == "strings"
    if strings or variable.dtype.kind in "SUT":
        return True
    in_memory = variable.dtype.kind == "O" and variable.kind == "memory"
    values = variable.data.ravel() if in_memory else ()
    return isinstance(next((v for v in values if v is not None and v == v), None), str)


def levels_of(variable: Variable) -> tuple[str, ...]:
    """The levels that occur in a column, sorted: read once, slab by slab.

    Raises KindError: there are more than ``MAX_LEVELS``, or objects that are no text.
    """
    if variable.levels is not None or variable.kind == "graph":
        return known_levels(variable)
    levels: set[str] = set()
    for lo in range(0, variable.shape[0], SCAN_ROWS):
        hi = min(lo + SCAN_ROWS, variable.shape[0])
        rest = tuple(slice(0, size) for size in variable.shape[1:])
        values = np.asarray(variable.data[(slice(lo, hi), *rest)])
        check_texts(variable, values)
        texts, absent = level_texts(values)
        levels |= set(np.unique(texts[~absent]).tolist())
        if len(levels) > MAX_LEVELS:
            raise too_many(variable.name)
    return tuple(sorted(levels))


def known_levels(variable: Variable) -> tuple[str, ...]:
    """The levels of a column whose values are computed: those that its type names."""
    if not variable.levels:
        raise KindError(
            f"The levels of {variable.name!r} are not known before it is computed. Name them with "
            f"inputs=['{variable.name}=…', …], or let Dask find them: "
            f"X.categorize(columns=[{variable.name!r}])."
        )
    if len(variable.levels) > MAX_LEVELS:
        raise too_many(variable.name)
    return variable.levels


def check_texts(variable: Variable, values: Array) -> None:
    """Values of a column that is no category are text."""
    if holds_levels(variable) or values.dtype.kind in "SUT":
        return
    other = next((v for v in values.ravel() if not isinstance(v, str) and v is not None), "")
    if other == other and not isinstance(other, str):
        raise KindError(
            f"{variable.name!r} holds {other!r}, a {type(other).__name__}, beside text. Levels are "
            f"text or categories. Convert the column, or leave it out with inputs=[…]."
        )


def too_many(name: str) -> KindError:
    """The error of a column with too many levels, with what to do instead."""
    return KindError(
        f"{name!r} holds more than {MAX_LEVELS} levels. Each becomes an input of 0 and 1, and "
        f"among so many a kernel finds every row equally far from every other. Name the levels "
        f"that matter with inputs=['{name}=…', …], encode the column by its target, such as with "
        f"make_column_transformer((TargetEncoder(), [{name!r}]), remainder='passthrough') of "
        f"scikit-learn in a pipeline, or leave it out."
    )


def level_names(name: str, levels: Sequence[str]) -> tuple[str, ...]:
    """Names of the inputs of a column: "sky=rain", "sky=sun"."""
    return tuple(f"{name}={level}" for level in levels)


def split_level(name: str, names: Sequence[str]) -> tuple[str, str] | None:
    """The column and the level of "sky=rain"; None where no column has such a name."""
    places = (i for i, letter in enumerate(name) if letter == "=")
    pairs = ((name[:i], name[i + 1 :]) for i in places)
    return next((pair for pair in pairs if pair[0] in names), None)


def column_of_level(name: str) -> str:
    """The column of the input "sky=rain"; empty for "u[level=500]" and other columns."""
    column, equals, _ = name.partition("=")
    inside = name.endswith("]") and "[" in column and "]" not in column
    return column if equals and not inside else ""
