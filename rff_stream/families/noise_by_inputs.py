"""Noise that depends on the inputs and on the predicted mean, learnt from left-out rows.

One noise for all rows is too large where rows are quiet and too small where they are not: 95 % of
all new values are inside their intervals, but 100 % here and 85 % there. The variance of the noise
of a row is that of all times

    s(x) = exp(c + Σⱼ gⱼ(xⱼ) + h(f(x)))

with a piecewise linear g for each input and h for the mean f, between quantiles of the row sample;
beyond them they are flat. c and the values at the knots maximise the likelihood of left-out
residuals r, whose variance is v(x) + s(x) σₙ²/w, less a penalty: iteratively reweighted least
squares, with r² bounded (Smyth 1989, generalized linear models with varying dispersion). They are
kept only if folds that they have not seen are surely more likely with them. Curves of the mean are
told by means without each row and judged by those with it, too: where f is nearly constant the mean
of the other rows is (nȳ − yᵢ)/(n − 1), which tells the residual itself, and a fit that takes noise
for f tells it with the row. Where s > 1, rows
around are noisy, too, and the variance of f is v + (s − 1) min(v, σₙ²)/2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import COVERAGE, NORMAL
from rff_stream.families.noise_of_rows import NoisyProcess
from rff_stream.families.protocol import LeftOut, Process

FEWEST_ROWS, MOST_TARGETS, MOST_INPUTS = 200, 16, 30
"""Rows that tell a variance that changes. Targets that it is looked for in: .01 to .1 CPU s each.
Inputs that it may depend on; of more, it depends on the mean alone."""

MOST_COPIES = 0.1
"""Share of the sampled rows that may be copies of others."""

KNOTS, MOST_KNOTS, MOST_VALUES, FOLDS = 7, 41, 84, 5
"""Values of each curve. Of few inputs curves of more values compete, for a noise that changes many
times along an input: so many at most, and of all curves together. Folds say which curves pay."""

PENALTIES = (1.0, 10.0)
"""Of half the sum of squares of the values, which are logarithms of variances. Of thirteen tables
five take the second."""

SURE = 3.0
"""Standard errors by which log p of unseen rows must rise: a level of .1 %."""

BOUNDED, STEPS, FARTHEST, STEP = 9.0, 8, 10.0, 2.0
"""Squares of residuals, in units of their variance, above which a row pulls no more; steps of the
search, the largest logarithm of a factor, and how far one step may change it."""

NOISE_IN_F = 0.5
"""Share of the variance of f that is noise of the rows around: a fit of least error has about as
much of it as of what smoothing misses, and no more than a share of the noise of one row."""

CLOSE, RIDGE = 1e-3, 1e-9
"""Change of logarithms at which a search ends, and what keeps matrices positive."""


STORED = "level", "knots", "values", "weight", "unseen"
"""Fields in a store, after "noise_"."""


@dataclass(frozen=True, slots=True, eq=False)
class InputFactors:
    """The factor s(x) of the variance of the noise of each target."""

    level: Float64  # (T,): c
    knots: Float64  # (T, J, K): of each input, or of none (J = 1), and of the mean
    values: Float64  # (T, J, K)
    weight: Float64  # (1,): the median of those that the rows around have
    unseen: Float64
    """(T,): by how much residuals over deviations of rows that the curves have not seen are larger
    than those of the rows that told them."""

    @property
    def width(self) -> int:
        """T."""
        return len(self.level)

    @property
    def arrays(self) -> dict[str, Array]:
        """What a store keeps."""
        return {f"noise_{name}": getattr(self, name) for name in STORED}

    @classmethod
    def restored(cls, arrays: Any) -> InputFactors | None:
        """From what a store kept; None where it kept none."""
        if "noise_level" not in arrays:
            return None
        return cls(*(np.asarray(arrays[f"noise_{name}"]) for name in STORED))

    def of_function(self, x: Array, factors: Float64, of_f: Float64, noise: Float64) -> Float64:
        """The variance (n, T) of f, which is larger where rows around are noisy."""
        return of_f + _more_of_f(factors, of_f, noise / self.weight)

    def __call__(self, x: Array, mean: Callable[[], Float64]) -> Float64:
        """Factors (n, T) of rows (n, d) of these means (n, T)."""
        means = mean()
        found = np.repeat(self.level[None], len(x), axis=0)
        for t in range(self.width):
            columns = [*x.T[: self.knots.shape[1] - 1], means[:, t]]
            for column, knots, values in zip(columns, self.knots[t], self.values[t], strict=True):
                if values.any():
                    found[:, t] += np.interp(column, knots, values)
        return np.exp(np.clip(found, -FARTHEST, FARTHEST))


@dataclass(frozen=True, slots=True, eq=False)
class _Curves:
    """What residuals of one target say."""

    loss: float  # −log p of unseen rows
    values: Float64  # (1 + p,): c, and those at the knots
    unseen: float  # as in :class:`InputFactors`


@dataclass(slots=True, eq=False)
class _Residuals:
    """Left-out residuals of one target, and what a fit says of them."""

    squares: Float64  # (m,): r²
    of_f: Float64  # (m,): v
    noise: Float64  # (m,): σₙ²/w
    columns: Float64  # (m, 1 + p): 1, and hat functions
    of_fit: Float64  # (m, 1 + p): the same with means of the fit of all rows
    fold: Array  # (m,)

    def curves(self) -> _Curves | None:
        """With 95 % of unseen residuals inside; None where they do not pay.

        Of the penalties by the likelihood of unseen rows, with bounded squares.
        """
        best: tuple[float, Float64, Float64] | None = None
        sets = np.stack([self.columns, self.of_fit])
        for penalty in PENALTIES:
            every = np.ones(len(self.fold), bool)
            whole = self._climb(every, penalty, np.zeros(self.columns.shape[1]))
            logs = np.empty((2, len(self.fold)))
            for k in range(FOLDS):
                own = self._climb(self.fold != k, penalty, whole)
                logs[:, self.fold == k] = sets[:, self.fold == k] @ own
            of_f, noise = self._variances(logs)  # (2, m)
            factor = self._covering(of_f[1], noise[1])
            if factor <= 0:
                continue  # the variance of f is all there is
            variances = of_f + factor * noise
            value = float(self._losses(variances, BOUNDED).mean(axis=1).max())
            if best is None or value < best[0]:
                best = value, variances, whole + np.log(factor) * (np.arange(len(whole)) == 0)
        if best is None:
            return None
        loss, variances, found = best
        gain = self._losses(self.of_f + self.noise) - self._losses(variances)
        if (gain.mean(axis=1) <= SURE * gain.std(axis=1) / np.sqrt(len(self.fold))).any():
            return None
        seen = np.add(*self._variances(self.columns @ found))
        ratio = np.quantile(self.squares / np.stack([variances[1], seen]), COVERAGE, axis=1)
        return _Curves(loss, found, float(np.sqrt(ratio[0] / ratio[1])))

    def _variances(self, logs: Float64) -> tuple[Float64, Float64]:
        """Of f and of the noise, where these are the logarithms of its factors at the rows."""
        factors = np.exp(np.clip(logs, -FARTHEST, FARTHEST))
        return self.of_f + _more_of_f(factors, self.of_f, self.noise), self.noise * factors

    def _covering(self, of_f: Float64, noise: Float64) -> float:
        """The factor of a noise (m,) beside these variances of f by which 95 % are inside.

        Rows count by the square of the share that noise has in their variance: where f is hardly
        known all are inside, whatever the noise.
        """
        enough = (self.squares / NORMAL**2 - of_f) / noise  # a factor as large
        share = noise / (of_f + noise)
        return float(np.quantile(enough, COVERAGE, weights=share**2, method="inverted_cdf"))

    def _losses(self, variance: Float64, bound: float = np.inf) -> Float64:
        """−log p of each row, less a constant."""
        return np.asarray(np.log(variance) + np.minimum(self.squares / variance, bound)) / 2

    def _climb(self, some: Array, penalty: float, start: Float64) -> Float64:
        """c and values (1 + p,) of the highest penalised likelihood of some rows."""
        columns, squares = self.columns[some], self.squares[some]
        of_f, noise = self.of_f[some], self.noise[some]
        found, penalties = start, np.full(len(start), penalty)
        penalties[0] = 0.0
        for _ in range(STEPS):
            factors = np.exp(np.clip(columns @ found, -FARTHEST, FARTHEST))
            own = noise * factors
            variance = of_f + _more_of_f(factors, of_f, noise) + own
            growing = NOISE_IN_F * np.minimum(of_f, noise) * factors * (factors > 1)
            share = (own + growing) / variance
            slope = columns.T @ (share * (np.minimum(squares / variance, BOUNDED) - 1) / 2)
            curvature = (columns * (share**2 / 2)[:, None]).T @ columns
            curvature[np.diag_indices_from(curvature)] += penalties + RIDGE
            step = np.linalg.solve(curvature, slope - penalties * found)
            change = float(abs(columns @ step).max())
            found = found + step * min(1.0, STEP / max(change, CLOSE))
            if change < CLOSE:
                break
        return found


def _more_of_f(factors: Float64, of_f: Float64, noise: Float64) -> Float64:
    """What is added to a variance of f where these are the factors of this noise."""
    return np.asarray(NOISE_IN_F * np.maximum(factors - 1, 0) * np.minimum(of_f, noise))


def with_noise_by_inputs(process: Process, sample: Float64, n_sampled: int) -> Process:
    """The process with noise that depends on the row, where left-out rows [x, y, w] surely say so.

    They are those of so many sampled rows that are no copies.
    """
    if len(sample) < max(FEWEST_ROWS, (1 - MOST_COPIES) * n_sampled):
        return process
    left = process.left_out(sample)
    n_targets = left.residual.shape[1]
    if n_targets > MOST_TARGETS:
        return process
    means = process.mean()(sample[:, : -n_targets - 1])
    factors = _factors(sample, left, means)
    return process if factors is None else NoisyProcess(process, factors)


def _factors(sample: Float64, left: LeftOut, means: Float64) -> InputFactors | None:
    """Curves of each target, flat where they do not pay; None where no target has any.

    ``means`` (m, T) are those of the fit of all rows.
    """
    n_targets = left.residual.shape[1]
    d, w = sample.shape[1] - n_targets - 1, sample[:, -1]
    inputs = sample[:, :d].T if d <= MOST_INPUTS else ()
    most = min(MOST_KNOTS, MOST_VALUES // (len(inputs) + 1))
    counts = (KNOTS, most) if most > 2 * KNOTS else (KNOTS,)
    level, unseen, fold = np.zeros(n_targets), np.ones(n_targets), _folds_of(sample[:, :-1])
    knots = np.zeros((n_targets, len(inputs) + 1, counts[-1]))
    values = np.zeros_like(knots)
    for t in range(n_targets):
        noise = left.noise[:, t] / w
        if not (noise > 0).all():
            continue
        without = sample[:, d + t] - left.residual[:, t]
        best: tuple[_Curves, list[Float64]] | None = None
        for count, of_mean in itertools.product(counts, (True, False)):
            columns = [*inputs, without] if of_mean else [*inputs]
            fitted = [*inputs, means[:, t]] if of_mean else columns
            own = [np.unique(np.quantile(each, np.linspace(0, 1, count))) for each in columns]
            if not own:
                continue
            rows = _Residuals(
                left.residual[:, t] ** 2,
                left.variance[:, t],
                noise,
                _all_hats(columns, own),
                _all_hats(fitted, own),
                fold,
            )
            found = rows.curves()
            if found is not None and (best is None or found.loss < best[0].loss):
                best = found, own
        if best is None:
            continue
        curves, own = best
        level[t], unseen[t], place = curves.values[0], curves.unseen, 1
        for j, at in enumerate(own):
            part = curves.values[place : place + len(at)]
            place += len(at)
            space = (0, counts[-1] - len(at))
            knots[t, j], values[t, j] = (np.pad(each, space, "edge") for each in (at, part))
    if not level.any():
        return None
    return InputFactors(level, knots, values, np.array([np.median(w)]), unseen)


def _folds_of(rows: Float64) -> Array:
    """The fold (m,) of rows [x, y]: the same in any order of rows and in any units."""
    fold = np.random.default_rng(0).permutation(len(rows)) % FOLDS
    return np.asarray(fold[np.argsort(np.lexsort(rows.T[::-1]))])


def _all_hats(columns: Sequence[Float64], knots: Sequence[Float64]) -> Float64:
    """1, and the hat functions (m, 1 + p) of each column (m,)."""
    hats = [_hats(each, at) for each, at in zip(columns, knots, strict=True)]
    return np.hstack([np.ones((len(columns[0]), 1)), *hats])


def _hats(column: Float64, knots: Float64) -> Float64:
    """Hat functions (m, K) of a column (m,): 1 at a knot and 0 at the others."""
    return np.column_stack([np.interp(column, knots, each) for each in np.eye(len(knots))])
