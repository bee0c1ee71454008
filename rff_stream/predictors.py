"""Answers as picklable functions of rows: what a worker needs to predict."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import probabilities
from rff_stream.answers.posterior import Functions
from rff_stream.contracts import RowFunction, for_rows
from rff_stream.features.base import BATCH_ROWS, MAP_ROWS, FeatureMap
from rff_stream.features.column_sweep import linear_form, sweep_of
from rff_stream.hashes import hash_places, hash_rows


@dataclass(frozen=True, slots=True, eq=False)
class LinearPredictor:
    """x ↦ μ + z(x)ᵀ β for T targets."""

    features: FeatureMap
    coef: Float64  # (R, T)
    intercept: Float64  # (T,)

    @property
    def width(self) -> int:
        """T."""
        return len(self.intercept)

    def __call__(self, x: Array) -> Float64:
        """Predictions (n, T) of rows (n, d): n·R work, in blocks that stay in cache."""
        sweep = sweep_of(self.features, np.dtype(np.float64))
        return linear_form(sweep, x, self.coef) + self.intercept


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilityPredictor:
    """x ↦ probabilities of C classes, from log-odds."""

    log_odds: RowFunction  # one value for two classes, else one for each

    @property
    def width(self) -> int:
        """C."""
        return max(self.log_odds.width, 2)

    def __call__(self, x: Array) -> Float64:
        """Probabilities (n, C) of rows (n, d)."""
        return probabilities(self.log_odds(x))


@dataclass(frozen=True, slots=True, eq=False)
class ClassPredictor:
    """x ↦ the number of the most probable class."""

    log_odds: RowFunction  # as in :class:`ProbabilityPredictor`

    @property
    def width(self) -> int:
        """1."""
        return 1

    def __call__(self, x: Array) -> Float64:
        """Class numbers (n, 1) of rows (n, d); NaN where an input is missing."""
        odds = self.log_odds(x)
        best = odds > 0 if self.log_odds.width == 1 else odds.argmax(axis=1)[:, None]
        return np.where(np.isnan(odds[:, :1]), np.nan, best)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerPredictor:
    """x ↦ what an answer says of the feature row z(x)."""

    features: FeatureMap
    answer: Callable[[Float64], Float64]
    """Feature rows (m, R) in float64 -> (m,) or (m, width); picklable."""
    width: int = 1
    batch: int = MAP_ROWS  # rows at a time: many for an answer that multiplies matrices

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d), in batches."""
        found = np.empty((len(x), self.width))
        for start in range(0, len(x), self.batch):
            rows = slice(start, start + self.batch)
            Z = self.features(x[rows]).astype(np.float64)
            found[rows] = self.answer(Z).reshape(len(Z), self.width)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class FunctionPredictor:
    """x ↦ values of S drawn functions for T targets, target by target."""

    features: FeatureMap
    functions: Functions
    rough: Float64 | None = None
    """(T,) or None: Variance of a value of its own for each row and function, by a hash of
    the row and a seed."""
    seed: int = 0

    @property
    def width(self) -> int:
        """T·S."""
        return self.functions.intercept.size

    def __call__(self, x: Array) -> Float64:
        """Values (n, T·S) of rows (n, d)."""
        found = AnswerPredictor(self.features, self._drawn, self.width, BATCH_ROWS)(x)
        if self.rough is not None:
            width = np.repeat(np.sqrt(self.rough), self.width // len(self.rough))
            found += width * self._own_values(x)
        return found

    def _drawn(self, Z: Float64) -> Float64:
        """Values (m, T·S) at feature rows (m, R)."""
        values = self.functions(Z)
        return values.transpose(1, 2, 0).reshape(values.shape[1], -1)

    def _own_values(self, x: Array) -> Float64:
        """Normal numbers (n, T·S): the same for the same row, whatever rows it is among."""
        rows = np.asarray(x, np.float64) + 0.0  # one zero
        keys = hash_rows(np.full(len(rows), self.seed), rows)[:, None]
        drawn = hash_places(keys + hash_places(np.arange(self.width)))
        return np.asarray(ndtri((drawn >> np.uint64(11)) * 2.0**-53 + 2.0**-54))


@dataclass(frozen=True, slots=True, eq=False)
class DirectPredictor:
    """x ↦ what an answer says of the row itself, which it maps as it likes."""

    answer: Callable[[Array], Float64]  # rows (m, d) -> (m, width); picklable
    width: int

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        return self.answer(x)


@dataclass(frozen=True, slots=True, eq=False)
class SideBySide:
    """x ↦ what several functions give, one after the other."""

    functions: tuple[RowFunction, ...]

    @property
    def width(self) -> int:
        """The sum of theirs."""
        return sum(each.width for each in self.functions)

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        return np.hstack([each(x) for each in self.functions])


@dataclass(frozen=True, slots=True, eq=False)
class WithStd:
    """x ↦ g(x) with standard deviations (T) in place of its last 2T columns, variances."""

    function: RowFunction
    """x ↦ …, variances (T) of f, and (T) of the noise of a new y."""
    n_targets: int  # T
    noise: bool  # the standard deviations are those of y

    @property
    def width(self) -> int:
        """T less than that of g."""
        return self.function.width - self.n_targets

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        first = self.width - self.n_targets
        rest, of_f, noise = np.split(self.function(x), [first, self.width], axis=1)
        return np.hstack([rest, np.sqrt(of_f + noise if self.noise else of_f)])

    def for_rows(self, count: int) -> WithStd:
        """The same for so many rows in all, in calls of any size."""
        return replace(self, function=for_rows(self.function, count))


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """x ↦ f(x) − h(x), f(x) + h(x) (2T), h² = a² + b² (max(v(x) − v₀, 0) + c n(x))."""

    function: RowFunction
    """x ↦ f (T), and the variances v of f and n of the noise (3T) unless b = 0."""
    least: Float64  # (T,), a
    times: Float64 | float = 0.0  # (T,), b
    known: Float64 | float = 0.0  # (T,), v₀
    noise: float = 0.0  # c

    @property
    def width(self) -> int:
        """2T."""
        return 2 * len(self.least)

    def __call__(self, x: Array) -> Float64:
        """Lower and upper edges (n, 2T) of rows (n, d)."""
        found, count = self.function(x), len(self.least)
        middle, half = found[:, :count], self.least
        if found.shape[1] > count:
            of_f, noise = np.split(found[:, count:], 2, axis=1)
            more = np.maximum(of_f - self.known, 0) + self.noise * noise
            half = np.sqrt(self.least**2 + self.times**2 * more)
        return np.hstack([middle - half, middle + half])

    def for_rows(self, count: int) -> Band:
        """The same for so many rows in all, in calls of any size."""
        return replace(self, function=for_rows(self.function, count))


@dataclass(frozen=True, slots=True, eq=False)
class StackedMean:
    """x ↦ Σ v_k f_k(x) (T) of K functions."""

    functions: tuple[RowFunction, ...]
    weights: Float64  # (K, T), v; they add to 1 for each target
    reaches: tuple[Any, ...]
    """Of functions that do not reach every row; the others take their weight where they do not."""

    @property
    def width(self) -> int:
        """T."""
        return int(self.weights.shape[1])

    def __call__(self, x: Array) -> Float64:
        """Means (n, T) of rows (n, d)."""
        return self.blend(x, self.functions)

    def blend(
        self, x: Array, functions: Sequence[Callable[[Array], Float64]], shape: tuple[int, ...] = ()
    ) -> Float64:
        """Σ v_k g_k(x) (n, …, T) of as many other functions, whose values have this ``shape``."""
        weights = weights_of_rows(x, self.weights, self.reaches)
        weights = np.expand_dims(weights, tuple(range(2, 2 + len(shape))))
        total = np.zeros((len(x), *shape, self.width))
        for own, reach, function in zip(weights, self.reaches, functions, strict=True):
            rows = None if reach is None else reach.covers(x)
            if rows is None or rows.all():
                total += own * function(x)
            elif rows.any():
                total[rows] += own[rows] * function(x[rows])
        return total


def weights_of_rows(x: Array, weights: Float64, reaches: Sequence[Any]) -> Float64:
    """v (K, n, T) of K functions at rows x (n, d): 0 where one does not reach, and they add to 1.

    Where none reaches the first one has all of it, or the first that reaches every row.
    """
    found = np.repeat(weights[:, None], len(x), axis=1)
    for k, each in enumerate(reaches):
        if each is not None:
            found[k, ~each.covers(x)] = 0.0
    lost = found.sum(axis=0) == 0
    found[reaches.index(None) if None in reaches else 0][lost] = 1.0
    return np.asarray(found / found.sum(axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class StackedVariances:
    """x ↦ (Σ v_k s_k)² (T) and c Σ v_k n_k (T): as if the errors of all K functions were one.

    Before them stands Σ v_k f_k (T) where the functions give means, too.
    """

    functions: tuple[RowFunction, ...]  # s_k² and n_k, variances of f and of the noise, after f_k
    weights: Float64  # as in :class:`StackedMean`, with the reaches
    reaches: tuple[Any, ...]
    factor: Float64  # (T,), c

    @property
    def width(self) -> int:
        """2T, or 3T."""
        return self.functions[0].width

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        mean = StackedMean(self.functions, self.weights, self.reaches)
        each = [functools.partial(_with_std, one, mean.width) for one in self.functions]
        found = mean.blend(x, each, (self.width // mean.width,))
        found[:, -2] **= 2
        found[:, -1] *= self.factor
        return found.reshape(len(x), self.width)


@dataclass(frozen=True, slots=True, eq=False)
class StackedDraws:
    """x ↦ Σ v_k f_k + Σ b√v_k (draw of k − f_k), T·S of K functions: as wide as their mean.

    Draws of two functions are independent, and b makes the variance (Σ v_k s_k)².
    """

    draws: tuple[RowFunction, ...]  # (T·S) each, target by target
    means: tuple[RowFunction, ...]  # f_k
    variances: tuple[RowFunction, ...]  # s_k² (T), and (T) of the noise
    weights: Float64  # as in :class:`StackedMean`, with the reaches
    reaches: tuple[Any, ...]

    @property
    def width(self) -> int:
        """T·S."""
        return self.draws[0].width

    def __call__(self, x: Array) -> Float64:
        """Values (n, T·S) of rows (n, d)."""
        n, n_targets = len(x), self.weights.shape[1]
        total = StackedMean(self.means, self.weights, self.reaches)(x)[:, :, None]
        loadings = stacked_loadings(x, self.variances, self.weights, self.reaches)
        for own, draws, mean in zip(loadings, self.draws, self.means, strict=True):
            there = own.any(axis=1)
            deviations = np.zeros((n, n_targets, self.width // n_targets))
            drawn = draws(x[there]).reshape(-1, *deviations.shape[1:])
            deviations[there] = own[there, :, None] * (drawn - mean(x[there])[:, :, None])
            total = total + deviations
        return np.asarray(total.reshape(n, -1))


def stacked_loadings(
    x: Array, variances: Sequence[RowFunction], weights: Float64, reaches: Sequence[Any]
) -> Float64:
    """b√v_k (K, n, T) with b = Σ v_k s_k / √(Σ v_k s_k²), of variances s_k² at rows x (n, d)."""
    found = weights_of_rows(x, weights, reaches)
    own = np.zeros_like(found)
    for k, each in enumerate(variances):
        there = found[k].any(axis=1)
        own[k, there] = _with_std(each, found.shape[2], x[there])[:, -2]
    squares = np.maximum((found * own**2).sum(axis=0), np.finfo(float).tiny)
    return np.asarray(np.sqrt(found / squares) * (found * own).sum(axis=0))


def _with_std(function: RowFunction, n_targets: int, x: Array) -> Float64:
    """Values (n, …, T) at rows (n, d): of the last two the first as a standard deviation."""
    shape = (len(x), function.width // n_targets, n_targets)
    found = np.array(function(x)).reshape(shape)
    found[:, -2] = np.sqrt(found[:, -2])
    return found
