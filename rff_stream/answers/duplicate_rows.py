"""Rows that stand more than once: their copies are held out together.

A fit counts every row. With a copy of a held-out row among the others, the model that
interpolates looks best; and so it does where one unit of a heavy row is left out.

A fit that is worse than the mean of the nearest other rows has a kernel that is too smooth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import warn

FEWEST = 20
"""Smallest number of different rows for which equal inputs are copies. With fewer, inputs are
levels, and new rows have them again."""

SHARE = 0.5
"""Smallest share of the different rows that one input alone distinguishes: rows on a lattice of
levels are repeated without being copies."""

TWICE = 1.5
"""Mean number of copies of a row at which a warning is given."""

MANY, FEW = 100, 10.0
"""A warning is given if this many rows have at most this effective sample size."""

NEIGHBOURS = 10

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


def group_copies(x: Array) -> Array | None:
    """A number (m,) for each row of x (m, d), the same for the same inputs; None for levels.

    Rows without copies are numbered by their place, copies by that of the first of them.
    """
    if len(x) < FEWEST or not x.shape[1]:
        return None
    exact = np.ascontiguousarray(x) + 0  # −0 becomes 0: equal inputs are equal bytes
    whole = exact.view(np.dtype((np.void, exact.itemsize * x.shape[1]))).ravel()
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    if len(first) < FEWEST:
        return None
    if len(first) < len(x) and max(len(np.unique(each)) for each in x.T) < SHARE * len(first):
        return None
    return np.asarray(first[inverse])


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """What is held out with each of m sampled rows."""

    weight: Float64  # (m,), in all data: its own, and that of its copies
    number: Array | None
    """(m,) int: equal for copies of one row; None if the sample has no copies."""
    share: Float64  # (m,), the weight of each row, by which copies are averaged

    @classmethod
    def of(
        cls, x: Array, weights: Float64, units: Float64, n_rows: int, keys: Array | None = None
    ) -> Self:
        """For sampled rows x (m, d) with their weights (m,), of so many rows.

        ``units`` (m,) is held out where inputs are levels, such as one unit of each weight;
        ``keys`` as in :func:`drawn_together`.

        Notes
        -----
        A sample misses copies. With μ others of a row in all data on average, a row that the
        sample (a share p of all) holds c times has (1 − p)cμ/(pμ + 1) more: a gamma prior of
        shape 1, Poisson counts.
        """
        number = group_copies(x)
        if number is None:
            return cls(units, None, weights)
        if (np.bincount(number) <= 1).all():
            return cls(weights, None, weights)
        first, times = drawn_together(len(x), keys)
        counts = np.bincount(number[first], minlength=len(x))[number[first]]
        seen = min(1.0, len(x) / max(n_rows, 1))
        others = float(np.average(counts - 1, weights=times)) / seen
        unseen = (1 - seen) * others / (seen * others + 1)  # of each that is seen
        together = np.bincount(number, weights, len(x))[number]
        return cls(np.asarray(together * (1 + unseen)), number, weights)

    def mean(self, values: Float64) -> Float64:
        """Values (m, k) of rows as the means of their copies."""
        if self.number is None:
            return values
        total, weight = np.zeros_like(values), np.zeros(len(values))
        np.add.at(total, self.number, self.share[:, None] * values)
        np.add.at(weight, self.number, self.share)
        return np.asarray(total[self.number] / weight[self.number, None])

    def with_absent(self, count: int) -> Self:
        """The same with so many rows more, which no fit has met."""
        none, m = np.zeros(count), len(self.weight)
        number = None if self.number is None else np.append(self.number, m + np.arange(count))
        return type(self)(np.append(self.weight, none), number, np.append(self.share, none + 1))


def warn_of_few(n_rows: int, weight: float, squared_weight: float) -> None:
    """Warn where the weights of many rows leave few effective ones: Kish's (Σw)²/Σw²."""
    effective = weight**2 / squared_weight if squared_weight > 0 else float(n_rows)
    if n_rows >= MANY and effective < FEW:
        warn(
            f"The effective sample size (Σw)²/Σw² of {n_rows:,} weighted rows is {effective:.2g}: "
            "a few rows determine penalties, errors and classes. Look at the largest weights; "
            "log(w), or a limit on w, may be better."
        )


def drawn_together(m: int, keys: Array | None) -> tuple[Array, Array]:
    """Places (m',) of the first rows of each key, and how many of the m rows have it.

    Copies of a row that stand at its place in other batches have its key (``RowSample.keys``): a
    sample holds all of them or none. Copies at other places are drawn independently.
    """
    if keys is None:
        return np.arange(m), np.ones(m)
    _, first, times = np.unique(keys, return_index=True, return_counts=True)
    return first, times


def distinct_rows(sample: Float64, n_rows: int, keys: Array | None = None) -> Float64:
    """Rows [x, y, w] (m, ·) of a sample without copies, each with the weight of all of them.

    Those of other rows of the data, so many in all, are estimated as in :class:`HeldOut`.
    """
    w = sample[:, -1]
    held = HeldOut.of(sample[:, :-1], w, w, n_rows, keys)
    if held.number is None:
        return sample
    first = held.number == np.arange(len(sample))
    return np.asarray(np.column_stack([sample[first, :-1], held.weight[first]]))


def mean_copies(x: Float64, n_rows: int, keys: Array | None = None) -> float:
    """How often a row stands in all data on average: rows divided by different rows.

    By Good & Turing: of rows that the sample (a share p of all) holds once, each has 2f₂/f₁ ·
    (1 − p)/p copies that were not sampled, where f₁ rows were met once and f₂ twice. A row that it
    holds c > 1 times has (c − 1)/p others. So a few rows that stand very often count once each.
    Copies of one key are counted as they are (:func:`drawn_together`).
    """
    number = group_copies(x)
    if number is None:
        return 1.0
    first, times = drawn_together(len(x), keys)
    number = number[first]
    counts = np.bincount(number, minlength=len(x))[number]
    seen = min(1.0, len(x) / max(n_rows, 1))
    once, twice = int((counts == 1).sum()), int((counts == 2).sum()) // 2
    unseen = 2 * twice / max(once, 1) * (1 - seen) / seen
    each = times * np.where(counts == 1, 1 + unseen, 1 + (counts - 1) / seen)
    return float(1 / np.average(1 / each, weights=times))


def warn_of_copies(sample: Float64, n_rows: int, keys: Array | None = None) -> None:
    """Warn where rows [x, y, w] of a sample stand several times, with the same target."""
    if not len(sample):
        return
    times = mean_copies(sample[:, :-1], n_rows, keys)
    if times > TWICE:
        warn(
            f"Each row occurs {times:.2g} times on average, with the same inputs and targets. Each "
            "copy counts as another row, so penalties, noise and standard deviations are too "
            "small. Give each row once, or weights that sum to 1 over its copies."
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


def nearest(x: Array, count: int) -> Array:
    """Places (m, count) of the nearest other rows of each of x (m, d)."""
    squares, found = (x**2).sum(axis=1), np.empty((len(x), count), np.intp)
    for start in range(0, len(x), BLOCK):
        rows = slice(start, start + BLOCK)
        distances = squares - 2 * x[rows] @ x.T
        distances[np.arange(len(distances)), np.arange(len(x))[rows]] = np.inf
        found[rows] = np.argpartition(distances, count, axis=1)[:, :count]
    return found
