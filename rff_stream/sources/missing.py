"""Missing inputs that are information: a value in their place, and an input that says where.

With ``missing_rows="indicate"`` an input u of numbers has its median where it is missing. If enough
of the rows that are read first have no u, an input "u=missing", its mark, is 1 where u is missing
and 0 elsewhere. Without a mark the value is one beside the median that no row has. A missing
category or text is none of the levels. Values and names are part of the columns of a fit, so later
rows are filled alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.errors import DataError
from rff_stream.sources.levels import Indicators, LevelCodes, code_of, column_of_level
from rff_stream.sources.protocol import Columns
from rff_stream.sources.rows import Filler, IsMissing, VariableUse

ENDING = "=missing"
"""The name of an input that says where another one is missing ends so."""

FEWEST_MARKED = 64
"""Rows without an input that give it a mark. Fewer say too little of what other inputs do there,
and their noise is larger than that of rows with it: with 2 to 40 of 100 to 800 rows the error of
such rows was up to 2.4 times that with the median alone, with 60 to 80 as large, from 150 on less
where it tells of y that u is missing."""

NO_LEVEL = float(code_of("\0missing"))
"""The number of the level of missing text, in a column of many levels."""


def without_indicators(columns: Columns) -> Columns:
    """The columns of a fit that data hold: without those that say what is missing, the last."""
    added = {f"{name}{ENDING}" for name in columns.indicated}
    inputs = tuple(name for name in columns.inputs if name not in added)
    units = (*columns.units[: len(inputs)], *columns.units[len(columns.inputs) :])
    return replace(columns, inputs=inputs, units=units)


def fill_missing(source: Any, fills: Sequence[float], absent: Sequence[bool]) -> Any:
    """The source whose inputs have values where they are missing, and inputs that say where.

    Parameters
    ----------
    source : Source
        One that reads NaN where an input is missing.
    fills : sequence of float
        For each input of numbers; levels have values of their own.
    absent : sequence of bool
        Which of these inputs get another one that says where they are missing.

    Raises
    ------
    DataError
        If an input has the name of one that is added.
    """
    columns: Columns = source.columns
    uses, values, names = [], list(fills), list[str]()
    added = list[VariableUse]()
    for use in source.filler.uses:
        if use.role != "input":
            uses.append(use)
            continue
        here = range(use.at.start, use.at.stop)
        if isinstance(use.convert, Indicators | LevelCodes):
            own = NO_LEVEL if isinstance(use.convert, LevelCodes) else 0.0
            values[use.at] = [own] * len(here)
        else:
            lost = [place for place in here if absent[place]]
            names += [columns.inputs[place] for place in lost]
            added += [where_missing(use, place - here.start) for place in lost]
        uses.append(replace(use, fills=tuple(values[use.at])))
    d = len(columns.inputs)
    added = [replace(use, at=slice(d + i, d + i + 1)) for i, use in enumerate(added)]
    both = replace(
        columns,
        inputs=(*columns.inputs, *(f"{name}{ENDING}" for name in names)),
        units=(*columns.units[:d], *[""] * len(names), *columns.units[d:]),
        fills=tuple(zip(columns.inputs, values, strict=True)),
        indicated=tuple(names),
    )
    check_names(columns.inputs, names)
    filler = Filler((*uses, *added), len(both.inputs), len(columns.targets))
    return source.read_as(both, filler)


def between_values(x: Float64, middle: float) -> float:
    """A number beside the middle of x (m,) that is none of its values; the middle of one value."""
    values = np.unique(x)
    after = min(int(np.searchsorted(values, middle, side="right")), len(values) - 1)
    return float(values[max(after - 1, 0)] / 2 + values[after] / 2)


def unmarked(columns: Columns) -> tuple[tuple[int, float], ...]:
    """Places of inputs of numbers without a mark, and the value where each is missing."""
    return tuple(
        (columns.inputs.index(name), fill)
        for name, fill in columns.fills
        if name not in columns.indicated and not column_of_level(name)
    )


def fill_alike(source: Any, fitted: Columns) -> Any:
    """The source of later rows whose missing inputs are filled as in the fit."""
    fills = dict(fitted.fills)
    names = source.columns.inputs
    return fill_missing(
        source, [fills[name] for name in names], [name in fitted.indicated for name in names]
    )


def where_missing(use: VariableUse, place: int) -> VariableUse:
    """What says where a column, by its place among those of a use, is missing."""
    column = place if use.pick is None else use.pick[place]
    return replace(use, convert=IsMissing(use.convert), pick=(column,), fills=None)


def check_names(inputs: Sequence[str], indicated: Sequence[str]) -> None:
    """No input has the name of one that says where another is missing.

    Raises DataError: naming it.
    """
    for name in indicated:
        if (added := f"{name}{ENDING}") in inputs:
            raise DataError(
                f"{added!r} is an input already, and missing_rows='indicate' adds one of this "
                f"name, since {name!r} has missing values. Every input has a name of its own. "
                f"Rename the column {added!r}, or leave it out with inputs=[…]."
            )
