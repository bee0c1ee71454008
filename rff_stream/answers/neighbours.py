"""Is a fit worse than the mean of the nearest rows? Then its kernel is too smooth."""

from __future__ import annotations

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.copies import group_copies

NEIGHBOURS = 10

FEWEST = 200
"""Rows from which neighbours are near."""

BLOCK = 256
"""Rows whose distances to all others are held."""

SURE = 2.5
"""Standard errors by which the fit must be worse; it has seen the rows, neighbours leave them out,
so that chance is on its side."""

MUCH = 1.1
"""Ratio of mean squared errors from which it matters."""

LEAST = 0.01
"""Share of the variance below which an error is small whatever neighbours do."""


def worse_than_neighbours(
    x: Array, y: Float64, fitted: Float64, w: Float64
) -> tuple[float, float] | None:
    """Mean squared errors of a fit and of its 10 nearest neighbours, where the fit is worse.

    Parameters
    ----------
    x : (m, d) array
        Inputs of rows that the fit has seen, over their scales.
    y, fitted : (m, T) float64
    w : (m,) float64

    Returns
    -------
    (error, error of neighbours), sums over targets, or None
        None where the fit is about as good or better, y is constant, or fewer than 200 rows differ.
    """
    number = group_copies(x)
    if number is None:
        return None
    first = np.flatnonzero(number == np.arange(len(x)))
    if len(first) < FEWEST or (y == y[:1]).all():
        return None
    x, y, fitted, w = x[first], y[first], fitted[first], w[first] / w[first].sum()
    own = ((y - fitted) ** 2).sum(axis=1)
    theirs = ((y - y[nearest(x, NEIGHBOURS)].mean(axis=1)) ** 2).sum(axis=1)
    error, rival, gain = float(w @ own), float(w @ theirs), own - theirs
    spread = float(np.sqrt(w**2 @ (gain - w @ gain) ** 2))
    total = float((w @ (y - w @ y) ** 2).sum())
    matters = error > MUCH * rival and error > LEAST * total
    return (error, rival) if matters and error - rival > SURE * spread else None


def nearest(x: Array, count: int) -> Array:
    """Places (m, count) of the nearest other rows of each of x (m, d)."""
    squares, found = (x**2).sum(axis=1), np.empty((len(x), count), np.intp)
    for start in range(0, len(x), BLOCK):
        rows = slice(start, start + BLOCK)
        distances = squares - 2 * x[rows] @ x.T
        distances[np.arange(len(distances)), np.arange(len(x))[rows]] = np.inf
        found[rows] = np.argpartition(distances, count, axis=1)[:, :count]
    return found
