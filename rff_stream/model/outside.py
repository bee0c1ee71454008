"""Rows that lie outside of what a fit has seen: their share, and a warning that names the input."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import NumericalWarning
from rff_stream.model.fitted import Fitted

__all__ = ["count_outside", "warn_where_outside"]

MARGIN = 0.1
"""Share of an input's range by which a row may lie beyond it: the range is that of a sample."""

FEWEST_SHARE, TIMES_CHANCE = 0.01, 3.0
"""Share of rows outside that is told; and over the one that chance gives beyond m sampled rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """Rows beyond the range of each input; they add.

    Parameters
    ----------
    beyond : (d,) float64
        Rows beyond the range of each.
    reach : (2, d) float64
        Least and greatest value of each input.
    any : int
        Rows beyond the range of some input.
    n : int
        Rows.
    """

    beyond: Float64
    reach: Float64
    any: int
    n: int

    def __add__(self, other: Self) -> Self:
        low = np.fmin(self.reach[0], other.reach[0])
        high = np.fmax(self.reach[1], other.reach[1])
        return type(self)(
            self.beyond + other.beyond,
            np.stack([low, high]),
            self.any + other.any,
            self.n + other.n,
        )


def count_outside(x: Array, seen: Float64) -> Outside:
    """Rows x (n, d) beyond the range (2, d) that was seen, by more than a tenth of it."""
    width = MARGIN * (seen[1] - seen[0])
    if not len(x):
        return Outside(np.zeros(x.shape[1]), np.full((2, x.shape[1]), np.nan), 0, 0)
    reach = np.array([np.fmin.reduce(x), np.fmax.reduce(x)])
    if not ((reach[0] < seen[0] - width) | (reach[1] > seen[1] + width)).any():
        return Outside(np.zeros(x.shape[1]), reach, 0, len(x))
    outside = (x < seen[0] - width) | (x > seen[1] + width)
    return Outside(
        outside.sum(axis=0).astype(np.float64), reach, int(outside.any(axis=1).sum()), len(x)
    )


def warn_where_outside(fitted: Fitted, found: Outside | None) -> None:
    """Warn of the share of rows outside and name the input with most, unless chance explains it.

    The range is that of the row sample of the fit. Of m sampled rows, one more row of their kind
    is beyond the range of an input with probability 2/(m + 1) at most.
    """
    seen = fitted.input_range
    if found is None or seen is None or not found.n:
        return
    sample = fitted.row_sample
    chance = 0.0 if sample is None else 2 / (len(sample) + 1)
    worst = int(found.beyond.argmax())
    if found.beyond[worst] / found.n <= max(FEWEST_SHARE, TIMES_CHANCE * chance):
        return
    (low, high), (least, most) = seen[:, worst], found.reach[:, worst]
    warnings.warn(
        f"{found.any / found.n:.2%} of the rows lie outside of what the fit has seen: input "
        f"{fitted.columns.inputs[worst]} goes from {least:.6g} to {most:.6g} here, and went from "
        f"{low:.6g} to {high:.6g} in the fit. No data support predictions there: those of cells "
        "and grids return to the mean of the data, those of one map of the whole space may be any "
        "number, with a standard deviation that is too small. Leave these rows out, or fit rows "
        "like them.",
        NumericalWarning,
        stacklevel=3,
    )


def outside_in(fitted: Fitted, rows: Any) -> Outside | None:
    """The same for rows (n, d) in memory; None where the range is not known."""
    seen = fitted.input_range
    return None if seen is None else count_outside(np.asarray(rows), seen)
