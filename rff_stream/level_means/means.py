"""The mean of each level of a column: a number in the place of the level.

A level's mean is that of the targets less what the other inputs say of them, drawn to 0 by its
number of rows. Rows of a fit have the mean of rows in other folds: with their own target in it the
mean would tell them the target.

References
----------
Micci-Barreca 2001 (means of levels as inputs). Searle, Casella & McCulloch 1992, chapter 3 (the
variances between and within levels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.features import FourierFeatures
from rff_stream.hashes import hash_values
from rff_stream.kernels import Gaussian

FOLDS = 5
"""Folds of rows, as scikit-learn's TargetEncoder has them by default."""

DIFFERENT = 0.5
"""Share of the rows with targets, or inputs in their level, of their own from which rows of a fit
have folds. Of equal inputs and a few targets the fold would tell the target, and of inputs that
only differ by level it would be the level."""

MOST_LEVELS = 4096
"""Most levels of a column that have a mean: the most frequent ones."""

COLUMNS, ROWS_A_COLUMN = 128, 8
"""R of the map by which other inputs are taken from the targets, and rows that a column needs."""

ROUNDS = 3
"""Turns of a fit of the levels, and one of the other inputs, each to what the other leaves. Levels
are first: what is the same in all rows of a level is theirs."""

RIDGE = 1e-3
"""Penalty of that fit, a share of the rows."""

EXACT, TINY = 1e-9, np.finfo(float).tiny
"""Least variance within levels, of that between them: rounding."""


def _folds(x: Array, y: Array) -> Array:
    """The fold (n,) of each row by its values: the same for a pilot row when it is read again."""
    return (hash_values(np.column_stack([x, y])) % np.uint64(FOLDS)).astype(np.int64)


def can_fold(x: Float64, y: Float64, places: Sequence[int], *, classes: bool = False) -> bool:
    """Whether rows x (n, d) with targets (n, T) have folds that do not tell their targets."""
    n_levels = max(len(np.unique(x[:, place])) for place in places)
    return (not classes and _differ(y, 0)) or _differ(x, n_levels)


def _differ(values: Array, n_levels: int) -> bool:
    """Whether most rows (n, k) have values of their own, beyond those that levels alone give."""
    own = len(np.unique(hash_values(values)))
    return own > n_levels and own - n_levels >= DIFFERENT * (len(values) - n_levels)


@dataclass(frozen=True, slots=True, eq=False)
class LevelMeans:
    """Rows (n, d) with a number in the place of each level; 0 where a level is not known."""

    places: Array  # (J,) int64: inputs that are numbers of levels
    codes: Float64  # (L,): levels of all of them, increasing in each
    starts: Array  # (J + 1,) int64: where those of an input begin
    values: Float64  # (L, 1 + FOLDS): of all rows, and of those outside each fold
    by_inputs: int = 0  # 1 where inputs alone say the fold of a row

    @classmethod
    def of(
        cls, x: Float64, y: Float64, w: Float64, places: Sequence[int], *, classes: bool = False
    ) -> Self:
        """Those of rows x (n, d) with targets (n, T).

        Of several targets the means are along the direction in which levels differ most. One-hot
        ``classes`` would be told by folds that they have a say in.
        """
        spread = y.std(axis=0)
        left = (y - np.average(y, axis=0, weights=w)) / np.where(spread > 0, spread, 1.0)
        others = _Others.of(np.delete(x, places, axis=1), w)
        columns = [_Levels.of(x[:, place], w) for place in places]
        fold = _folds(x, y[:, :0] if classes else y)
        fits = [*(each.fitted for each in columns), others.fitted]
        parts = [np.zeros_like(left) for _ in fits]
        for _ in range(ROUNDS):
            for i, fit in enumerate(fits):
                parts[i] = fit(left - sum(parts) + parts[i])
        values = []
        for each, part in zip(columns, parts, strict=False):
            rest = left - sum(parts) + part
            means = each.means(rest)
            along = np.linalg.svd(np.sqrt(each.size)[:, None] * means, full_matrices=False)[2][0]
            apart = [each.means(rest, fold != k) @ along for k in range(FOLDS)]
            values.append(np.stack([means @ along, *apart], axis=1))
        starts = np.cumsum([0, *(len(each.codes) for each in columns)])
        codes = np.concatenate([each.codes for each in columns])
        return cls(np.array(places), codes, starts, np.concatenate(values), int(classes))

    @property
    def known(self) -> Mapping[int, Float64]:
        """The levels (L_j,) of each input that have a mean."""
        pairs = zip(self.starts[:-1], self.starts[1:], strict=True)
        return {
            int(place): self.codes[lo:hi]
            for place, (lo, hi) in zip(self.places, pairs, strict=True)
        }

    def __call__(self, x: Array) -> Float64:
        """Rows (n, d) to predict, with the means of all rows."""
        return self._encoded(x, np.zeros(len(x), np.int64))

    def of_fit(self, x: Array, y: Array) -> Float64:
        """Rows (n, d) with their targets (n, T), each with the means outside its fold."""
        return self._encoded(x, 1 + _folds(x, y[:, :0] if self.by_inputs else y))

    def _encoded(self, x: Array, column: Array) -> Float64:
        found = np.array(x, np.float64)
        for place, codes, lo in zip(
            self.places, self.known.values(), self.starts[:-1], strict=True
        ):
            own = found[:, place]
            at = np.minimum(np.searchsorted(codes, own), max(len(codes) - 1, 0))
            means = np.where(codes[at] == own, self.values[lo + at, column], 0.0)
            found[:, place] = np.where(np.isnan(own), np.nan, means)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Others:
    """A ridge regression on Fourier features of the other inputs."""

    Z: Float64  # (n, R), less their means
    w: Float64  # (n,)
    factor: Any  # of ZᵀWZ with the penalty

    @classmethod
    def of(cls, x: Float64, w: Float64) -> _Others:
        spread = x.std(axis=0)
        u = ((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))[:, spread > 0]
        size = min(COLUMNS, len(x) // ROWS_A_COLUMN) // 2 * 2
        Z = u
        if size and u.shape[1]:
            kernel = Gaussian(float(np.sqrt(u.shape[1])))
            Z = np.column_stack([u, FourierFeatures.sample(kernel, u.shape[1], size, rng=0)(u)])
        Z = Z - np.average(Z, axis=0, weights=w) if Z.size else Z
        gram = (Z * w[:, None]).T @ Z
        gram.flat[:: len(gram) + 1] += RIDGE * w.sum()
        return cls(Z, w, linalg.cho_factor(gram) if Z.size else None)

    def fitted(self, y: Float64) -> Float64:
        """Values (n, T) at the rows."""
        if self.factor is None:
            return np.zeros_like(y)
        return np.asarray(self.Z @ linalg.cho_solve(self.factor, self.Z.T @ (self.w[:, None] * y)))


@dataclass(frozen=True, slots=True, eq=False)
class _Levels:
    """The levels of a column of rows."""

    codes: Float64  # (L,)
    row: Array  # (n,): the level of each row; L where it has no mean
    w: Float64  # (n,)

    @classmethod
    def of(cls, x: Array, w: Float64) -> _Levels:
        codes, row, counts = np.unique(x, return_inverse=True, return_counts=True)
        kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_LEVELS])
        place = np.full(len(codes), len(kept))
        place[kept] = np.arange(len(kept))
        return cls(codes[kept], place[row], w)

    @property
    def size(self) -> Float64:
        """Weights (L,) of the rows of each level."""
        return np.bincount(self.row, self.w, len(self.codes) + 1)[:-1].astype(np.float64)

    def fitted(self, y: Float64) -> Float64:
        """The mean (n, T) of each row's level; 0 of one that has none."""
        return np.vstack([self.means(y), np.zeros((1, y.shape[1]))])[self.row]

    def means(self, y: Float64, some: Array | None = None) -> Float64:
        """Means (L, T) of some rows' targets, each drawn to 0 by nτ²/(nτ² + σ²)."""
        ratio = self._ratio(y)
        w = self.w if some is None else self.w * some
        sums = [np.bincount(self.row, w * each, len(self.codes) + 1)[:-1] for each in y.T]
        size = np.bincount(self.row, w, len(self.codes) + 1)[:-1, None]
        return np.asarray(ratio * np.stack(sums, axis=1) / (1 + ratio * size))

    def _ratio(self, y: Float64) -> Float64:
        """τ²/σ² (T,) by the analysis of variance; 0 where levels differ by no more than noise."""
        known = self.row < len(self.codes)
        row, w, y = self.row[known], self.w[known], y[known]
        size, groups = self.size, len(self.codes)
        if len(y) == groups or groups < 2:
            return np.zeros(y.shape[1])
        means = np.stack([np.bincount(row, w * each) / size for each in y.T], axis=1)
        middle = np.average(y, axis=0, weights=w)
        within = (w[:, None] * (y - means[row]) ** 2).sum(axis=0) / (len(y) - groups)
        between = (size[:, None] * (means - middle) ** 2).sum(axis=0) / (groups - 1)
        typical = (size.sum() - (size**2).sum() / size.sum()) / (groups - 1)
        variance = np.maximum((between - within) / typical, 0.0)
        return np.asarray(variance / np.maximum(within, EXACT * between + TINY))
