"""Missing inputs that are information: a value in their place, and an input that says where.

With ``missing_rows="indicate"`` an input u of numbers has its median where it is missing. If some
of the values that are looked at first are missing, an input "u=missing" is 1 where u is missing and
0 elsewhere. A missing category or text is none of the levels. Medians and names are part of the
columns of a fit, so later rows are filled alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import DataError
from rff_stream.sources.container_types import plain_array
from rff_stream.sources.levels import EVERY, code_of
from rff_stream.sources.named_variables import NamedVariable, Picks, column_names
from rff_stream.sources.protocol import Columns
from rff_stream.sources.variables import Variable

ENDING = "=missing"
"""The name of an input that says where another one is missing ends so."""

SLABS, SLAB_ROWS = 16, 1024
"""Parts of a stored array that are looked at, and rows of each: where 1 in 1,000 is missing at
random, none of 16,384 is with a probability of 10⁻⁷."""

NO_LEVEL = float(code_of("\0missing"))
"""The number of the level of missing text, in a column of many levels."""


def without_indicators(columns: Columns) -> Columns:
    """The columns of a fit that data hold: without those that say what is missing, the last."""
    added = {f"{name}{ENDING}" for name in columns.indicated}
    inputs = tuple(name for name in columns.inputs if name not in added)
    units = (*columns.units[: len(inputs)], *columns.units[len(columns.inputs) :])
    return replace(columns, inputs=inputs, units=units)


def with_indicators(
    several: Sequence[NamedVariable],
    dims: Sequence[str],
    fitted: Columns | None,
    look: Callable[[Variable, Sequence[str]], Array],
) -> tuple[list[NamedVariable], dict[str, float], tuple[str, ...]]:
    """Inputs with a value for what is missing, and behind them those that say where it is.

    With the values by name, and the names of those that are indicated; of later rows both are as
    in the fit. ``look`` gives values of a variable, spread along the sample dimensions ``dims``.
    """
    filled, added, fills, indicated = [], [], dict[str, float](), list[str]()
    known = None if fitted is None else dict(fitted.fills)
    for each in several:
        names = column_names(each, dims)
        if fitted is not None and known is not None:
            own = [known.get(name, np.nan) for name in names]
            lost = [name in fitted.indicated for name in names]
        elif each.levels:
            own = [NO_LEVEL if each.levels == (EVERY,) else 0.0] * len(names)
            lost = [False] * len(names)
        else:
            own, lost = medians(numbers_of(each, dims, look(each.variable, dims)))
        filled.append(replace(each, fills=tuple(own)))
        fills |= dict(zip(names, own, strict=True))
        places = [place for place, gone in enumerate(lost) if gone]
        if places:
            added.append(where_missing(each, dims, names, places))
            indicated += [names[place] for place in places]
    check_names(filled, indicated, dims)
    return [*filled, *added], fills, tuple(indicated)


def check_names(
    inputs: Sequence[NamedVariable], indicated: Sequence[str], dims: Sequence[str]
) -> None:
    """No input has the name of one that says where another is missing.

    Raises DataError: naming it.
    """
    own = {name for each in inputs for name in column_names(each, dims)}
    for name in indicated:
        if (added := f"{name}{ENDING}") in own:
            raise DataError(
                f"{added!r} is an input already, and missing_rows='indicate' adds one of this "
                f"name, since {name!r} has missing values. Every input has a name of its own. "
                f"Rename the column {added!r}, or leave it out with inputs=[…]."
            )


def where_missing(
    found: NamedVariable, dims: Sequence[str], names: Sequence[str], places: Sequence[int]
) -> NamedVariable:
    """The inputs that say where some columns of an input, by place, are missing."""
    picks = picks_of(found, dims)
    columns = tuple(f"{names[place]}{ENDING}" for place in places)
    own = tuple(picks[place] for place in places)
    return replace(found, name=columns[0], columns=columns, picks=own, indicates=True)


def picks_of(found: NamedVariable, dims: Sequence[str]) -> Picks:
    """Places along the extra dimensions, one tuple a column."""
    variable = found.variable
    extra = [size for dim, size in zip(variable.dims, variable.shape, strict=True)
             if dim not in dims]  # fmt: skip
    return tuple(product(*map(range, extra))) if found.picks is None else found.picks


def numbers_of(found: NamedVariable, dims: Sequence[str], values: Array) -> Float64:
    """Values of an input as numbers (rows, columns)."""
    own = [axis for axis, dim in enumerate(found.variable.dims) if dim in dims]
    extra = [axis for axis in range(values.ndim) if axis not in own]
    shape = tuple(values.shape[axis] for axis in extra)
    numbers = np.asarray(found.numbers()(values), np.float64).transpose([*own, *extra])
    picks = picks_of(found, dims)
    places = [int(np.ravel_multi_index(pick, shape)) if shape else 0 for pick in picks]
    return numbers.reshape(-1, prod(shape))[:, places]


def medians(numbers: Float64) -> tuple[list[float], list[bool]]:
    """The median of each column without what is missing, and whether anything is."""
    absent = np.isnan(numbers)
    there = [column[~gone] for column, gone in zip(numbers.T, absent.T, strict=True)]
    own = [float(np.median(values)) if len(values) else 0.0 for values in there]
    return own, [bool(gone.any()) for gone in absent.T]


def spread_values(variable: Variable, dims: Sequence[str]) -> Array:
    """Values of an array: all of one in memory, else parts spread along its first sample dimension.

    A collection that is computed is computed there.
    """
    data, shape = variable.data, variable.shape
    everything = tuple(slice(0, size) for size in shape)
    axis = next((axis for axis, dim in enumerate(variable.dims) if dim in dims), None)
    if variable.kind == "memory" or axis is None:
        return dense(data[everything or ...])
    others = prod(size for place, size in enumerate(shape) if place != axis)
    rows = max(1, min(SLAB_ROWS, SLABS * SLAB_ROWS // max(others, 1)))
    if shape[axis] <= SLABS * rows:
        return dense(data[everything])
    starts = np.linspace(0, shape[axis] - rows, SLABS).astype(int).tolist()
    parts = [
        dense(data[tuple(slice(start, start + rows) if place == axis else part
                         for place, part in enumerate(everything))])
        for start in starts
    ]  # fmt: skip
    return np.concatenate(parts, axis=axis)


def dense(values: Any) -> Array:
    """Values as an array of NumPy, with NaN where a mask is; sparse ones, too."""
    values = values.compute() if hasattr(values, "compute") else values  # numpy drops its mask
    return plain_array(values.toarray() if hasattr(values, "toarray") else values)
