"""Windows of rows: compact ones of neighbours, and sets from everywhere."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from rff_stream._array import Array, Float64
from rff_stream.length_scales.window_evidence import RowWindow, rows_along
from rff_stream.pilot import Pilot, near_rows, smallest

TINY = float(np.finfo(float).tiny)
"""The least number that keeps a divisor from 0."""


def compact_windows(
    rows: RowWindow, matrix: Float64, *, size: int, centres: Array
) -> list[RowWindow]:
    """For each of some rows (places) the ``size`` nearest to it, in the metric of a matrix."""
    u = rows_along(rows.x - rows.x[:1], matrix)
    return [rows.part(near) for near in near_rows(u, centres, size)]


def nearest_to_median(rows: RowWindow, matrix: Float64, size: int) -> RowWindow:
    """The ``size`` rows that are nearest to the median row, in the metric of a matrix."""
    distance = (((rows.x - np.median(rows.x, axis=0)) @ matrix) ** 2).sum(axis=1)
    return rows.part(smallest(distance, size))


def scattered_windows(rows: RowWindow, *, size: int, count: int, rng: Generator) -> list[RowWindow]:
    """``count`` disjoint sets of ``size`` random rows; fewer where there are not so many."""
    order = rng.permutation(len(rows.x))
    sets = [order[i * size : (i + 1) * size] for i in range(count)]
    return [rows.part(own) for own in sets if len(own) > 1]


def deviation(values: Float64) -> Float64:
    """Standard deviation of columns; 1 for a constant one."""
    spread = values.std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def input_scale(rows: RowWindow) -> Float64:
    """Standard deviation of inputs (d,); the robust scale where a few far values make the former.

    With one value of 1,000 standard deviations a search began from length-scales at which the
    other inputs were too near, or this one too far, to see anything.
    """
    return Pilot(rows.x, rows.y, rows.w).scale
