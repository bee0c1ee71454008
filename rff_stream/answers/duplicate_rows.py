"""Warnings of rows that stand more than once, and of fits that are worse than neighbours.

A fit that is worse than the mean of the nearest other rows has a kernel that is too smooth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import warn
from rff_stream.moments.copies import different_share, group_copies, mean_copies

TWICE = 1.5
"""Mean number of copies of a row at which a warning is given."""

MANY, FEW = 100, 10.0
"""A warning is given if this many rows have at most this effective sample size."""

NEIGHBOURS = 10
"""Their mean has a tenth of the variance of the noise: what differs from it is the fit."""

FEWEST_NEAR = 200
"""Smallest number of rows for which nearest neighbours are near enough."""

BLOCK = 256
"""Rows whose distances to all others are in memory at once."""

SURE = 2.5
"""Number of standard errors by which the fit must be worse than neighbours. The fit used these
rows, while neighbours leave them out, so the fit has an advantage."""

MUCH = 1.1
"""Ratio of mean squared errors at which the difference matters."""

LEAST = 0.01
"""An error below this share of the variance is small, whatever the neighbours have."""


def warn_of_few(n_rows: int, weight: float, squared_weight: float) -> None:
    """Warn where the weights of many rows leave few effective ones: Kish's (Σw)²/Σw²."""
    effective = weight**2 / squared_weight if squared_weight > 0 else float(n_rows)
    if n_rows >= MANY and effective < FEW:
        warn(
            f"The effective sample size (Σw)²/Σw² of {n_rows:,} weighted rows is {effective:.2g}: "
            "a few rows determine penalties, errors and classes. Look at the largest weights; "
            "log(w), or a limit on w, may be better."
        )


def warn_of_copies(sample: Float64, n_rows: int, keys: Array | None = None) -> None:
    """Warn where rows [x, y, w] of a sample stand several times and are counted as one."""
    rows = sample[:, :-1]
    if not len(rows) or different_share(rows, with_target=True) == 1.0:
        return
    times = mean_copies(rows, n_rows, keys, with_target=True)
    if times > TWICE:
        warn(
            f"Each row occurs {times:.2g} times on average, with the same inputs and targets. "
            "Copies are counted as one row of their summed weight, in the penalty, the noise and "
            "standard deviations, too. If they are observations of their own, add an input that "
            "tells them apart; else give each row once."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Other rows near each of m' rows: the 10 nearest or, of levels, those of the same inputs."""

    rows: Array  # (m',): their places among m rows; of copies the first
    near: Array  # (m', 10): places among the m'; for levels (m',), the number of each
    who: str  # in words

    @classmethod
    def of(cls, x: Array) -> Self | None:
        """Those of inputs x (m, d) over their scales; None where fewer than 200 rows have some.

        A row of a level has some where six rows or more share the level.
        """
        number = group_copies(x)
        if number is None:
            _, level, count = np.unique(x, axis=0, return_inverse=True, return_counts=True)
            level = level.ravel()
            rows = np.flatnonzero(count[level] > NEIGHBOURS // 2)
            found = cls(rows, level[rows], "other rows with the same inputs")
            return found if len(rows) >= FEWEST_NEAR else None
        rows = np.flatnonzero(number == np.arange(len(x)))
        if len(rows) < FEWEST_NEAR:
            return None
        return cls(rows, nearest(x[rows], NEIGHBOURS), f"their {NEIGHBOURS} nearest neighbours")

    def errors(self, y: Float64, fitted: Float64, w: Float64) -> tuple[float, float] | None:
        """Mean squared errors of a fit and of the neighbours' mean, where the fit is worse.

        Of rows (m, T) that the fit has seen, sums over targets. None where the fit is about as
        good or better, or y is constant.
        """
        y, fitted, w = y[self.rows], fitted[self.rows], w[self.rows] / w[self.rows].sum()
        if (y == y[:1]).all():
            return None
        own = ((y - fitted) ** 2).sum(axis=1)
        theirs = ((y - self._mean(y, w)) ** 2).sum(axis=1)
        error, rival, gain = float(w @ own), float(w @ theirs), own - theirs
        spread = float(np.sqrt(w**2 @ (gain - w @ gain) ** 2))
        total = float((w @ (y - w @ y) ** 2).sum())
        matters = error > MUCH * rival and error > LEAST * total
        return (error, rival) if matters and error - rival > SURE * spread else None

    def _mean(self, y: Float64, w: Float64) -> Float64:
        """The mean y (m', T) of the neighbours; of levels without the row itself."""
        if self.near.ndim == 2:
            return np.asarray(y[self.near].mean(axis=1))
        own = w[:, None] * np.column_stack([np.ones(len(y)), y])
        sums = np.zeros((int(self.near.max()) + 1, own.shape[1]))
        np.add.at(sums, self.near, own)
        others = sums[self.near] - own
        return np.asarray(others[:, 1:] / np.maximum(others[:, :1], np.finfo(float).tiny))


def nearest(x: Array, count: int, among: Array | None = None) -> Array:
    """Places (m, count) of the nearest other rows of each of x (m, d), of all or among some."""
    # Of 2,000 rows, CPU s here / by scipy.spatial.cKDTree: .07/.03 with 9 inputs, .09/.20 with
    # 90, .14/.83 with 400.
    some = np.arange(len(x)) if among is None else among
    others, found = x[some], np.empty((len(x), count), np.intp)
    squares, place = (others**2).sum(axis=1), np.full(len(x), -1)
    place[some] = np.arange(len(some))
    for start in range(0, len(x), BLOCK):
        rows = slice(start, start + BLOCK)
        distances = squares - 2 * x[rows] @ others.T
        itself = np.flatnonzero(place[rows] >= 0)
        distances[itself, place[rows][itself]] = np.inf
        found[rows] = some[np.argpartition(distances, count, axis=1)[:, :count]]
    return found
