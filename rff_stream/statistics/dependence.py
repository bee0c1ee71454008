"""Whether what a target depends on has changed: residuals of a fit against inputs and slopes.

With residuals r = y − f(x) of a fit f(x) = g(xB) and z the inputs over their standard deviations,

    s = r · z ⊗ (1, ∂g/∂u),    m = Σ w s/Σ w,    S = Σ w ssᵀ/Σ w − mmᵀ

If y still depends on x as it did, m is the same for two samples but for chance. A new effect of an
input moves the entries with 1, and a turn of the directions those with ∂g/∂u: they are the slopes
of the squared error by the directions. Two samples differ by T² (Hotelling 1931), each with its own
S, so that days may have noise of their own.

Copies of a row are one row of their summed weight: with c of each, Σ w² is c times as large, and
the rows are n/c. A row sample tells c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy import linalg, stats

from rff_stream._array import Array, Float64
from rff_stream.contracts import Sink
from rff_stream.moments.copies import copies_of
from rff_stream.moments.row_sample import RowSample
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.added_fields import AddedFields
from rff_stream.statistics.metric_step import MetricStepStatistic

NUMBERS = 1 << 20
"""Entries of s that are in memory at once: 8 MB."""

SAMPLE_ROWS = 2000
"""Rows that are kept to see how often each stands."""

ROWS_OF_EACH = 5
"""Rows that a sample must have for each entry of s: with fewer, S is hardly known."""


@dataclass(frozen=True, slots=True)
class DependenceChange:
    """Whether a target depends on its inputs in two samples alike."""

    p_value: float  # probability of a difference as large when nothing changed
    statistic: float  # T², p (the entries of s) on average when nothing changed
    inputs: dict[str, float]
    """The p-value of each input's entries alone, not corrected for their number."""
    n_a: int  # rows; copies count once
    n_b: int


@dataclass(frozen=True, eq=False)
class DependenceScores(AddedFields):
    """Σ w s and Σ w ssᵀ of rows about one fit; values add, subtract and scale.

    Parameters
    ----------
    inputs, targets : tuple of str
    directions : (d, k) float64
        Of the fit, of inputs over their standard deviations.
    total : (T, d, k + 1) float64
    squares : (T, p, p) float64
        p = d(k + 1).
    weight, squared_weight : float
        Σ w and Σ w².
    n : int
        Rows.
    sample : RowSample
        Some rows [x, y, w].
    """

    sums: ClassVar[tuple[str, ...]] = ("total", "squares", "weight", "squared_weight")

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    directions: Float64
    total: Float64
    squares: Float64
    weight: float
    squared_weight: float
    n: int
    sample: RowSample

    def __sizeof__(self) -> int:
        return int(self.squares.nbytes) + self.sample.nbytes + 1024

    def scale(self, factor: float) -> Self:
        """Every weight times ``factor`` > 0; n unchanged."""
        found = AddedFields.scale(self, factor)
        squared = self.squared_weight * factor**2
        return replace(found, squared_weight=squared, sample=self.sample.scale(factor))

    def _plus(self, other: Self, sign: int) -> Self:
        found = AddedFields._plus(self, other, sign)
        kept = self.sample + other.sample if sign > 0 else self.sample - other.sample
        return replace(found, sample=kept)

    @property
    def copies(self) -> float:
        """How often a row stands on average, as far as the sample tells."""
        return copies_of(self)

    def change(self, other: Self, target: str | None = None) -> DependenceChange:
        """How far another sample is from this one.

        Raises
        ------
        ModelError
            For scores of another fit.
        ValueError
            If a sample has fewer than five rows for each entry of s, or no target has this name.
        """
        other = self.matched(other)
        place = self.target_index(target)
        d, size = len(self.inputs), self.total[place].size
        different = [round(each.n / each.copies) for each in (self, other)]
        fewest = min(different)
        if fewest < ROWS_OF_EACH * size:
            raise ValueError(
                f"A sample has {fewest} rows, and {size} numbers are compared: {d} inputs, by "
                f"themselves and along {size // d - 1} directions. Give at least "
                f"{ROWS_OF_EACH * size} rows, or fewer directions (n_directions)."
            )
        apart, variance = np.zeros(size), np.zeros((size, size))
        parts = []
        for sign, each, n in zip((1, -1), (self, other), different, strict=True):
            mean = each.total[place].ravel() / each.weight
            own = each.squares[place] / each.weight - np.outer(mean, mean)
            own *= each.copies * each.squared_weight / each.weight**2
            apart += sign * mean
            variance += own
            parts.append((own, n))
        blocks = np.arange(size).reshape(d, -1)
        inputs = {
            name: _chance(apart[own], variance[np.ix_(own, own)],
                          [(part[np.ix_(own, own)], n) for part, n in parts])[1]
            for name, own in zip(self.inputs, blocks, strict=True)
        }  # fmt: skip
        statistic, p_value = _chance(apart, variance, parts)
        return DependenceChange(p_value, statistic, inputs, *different)

    def matched(self, other: Self) -> Self:
        rule = "cannot be compared unless they are about one fit. Take those of one model."
        same = np.array_equal(self.directions, other.directions)
        self.require_alike(other, "Scores", rule, same=same)
        return other


def _chance(
    apart: Float64, variance: Float64, parts: list[tuple[Float64, int]]
) -> tuple[float, float]:
    """T² and its p-value; the degrees are those of Krishnamoorthy and Yu (2004)."""
    scale = np.sqrt(np.maximum(variance.diagonal(), 0))
    kept = scale > 0
    if not kept.any():
        return 0.0, 1.0
    scale, size = scale[kept], int(kept.sum())
    V = variance[np.ix_(kept, kept)] / np.outer(scale, scale)
    inverse = linalg.pinvh(V)
    moved = apart[kept] / scale
    statistic = float(moved @ inverse @ moved)
    rest = 0.0
    for part, n in parts:
        share = part[np.ix_(kept, kept)] / np.outer(scale, scale) @ inverse
        rest += (np.trace(share @ share) + np.trace(share) ** 2) / (n - 1)
    degrees = (size + size**2) / rest
    ratio = statistic * (degrees - size + 1) / (degrees * size)
    return statistic, float(stats.f.sf(ratio, size, degrees - size + 1))


@dataclass(frozen=True, slots=True, eq=False)
class DependenceStatistic:
    """Adds up :class:`DependenceScores` of a fit whose slopes are known."""

    of: MetricStepStatistic

    def start(self) -> Sink:
        return _ScoreSink(self.of)


class _ScoreSink:
    def __init__(self, of: MetricStepStatistic) -> None:
        self._of = of
        d, k = of.directions.shape
        self._back = np.linalg.pinv(of.directions).T  # (d, k): slopes by x to those by u
        self._total = np.zeros((len(of.targets), d, k + 1))
        self._squares = np.zeros((len(of.targets), d * (k + 1), d * (k + 1)))
        self._weight, self._squared, self._n = 0.0, 0.0, 0
        self._sample = RowSample.empty(SAMPLE_ROWS, d + len(of.targets) + 1)

    def add(self, rows: Rows, places: Array) -> None:
        self._sample = self._sample.with_rows(places, rows.x, rows.y, rows.w)
        count = max(NUMBERS // self._squares.shape[1], 1)
        for start in range(0, len(rows.x), count):
            part = slice(start, start + count)
            x = np.asarray(rows.x[part], np.float64)
            w = np.ones(len(x)) if rows.w is None else rows.w[part]
            self._take(x, np.asarray(rows.y[part], np.float64), w)

    def _take(self, x: Float64, y: Float64, w: Float64) -> None:
        of = self._of
        residuals = (y - of.mean(x)) / of.deviation
        slopes = of.slopes(x) * of.unit[:, None] / of.deviation
        z = (x - of.origin) / of.unit
        along = np.ones((len(x), of.directions.shape[1] + 1))
        for place, residual in enumerate(residuals.T):
            along[:, 1:] = slopes[:, :, place] @ self._back
            scores = (residual[:, None] * z)[:, :, None] * along[:, None, :]
            self._total[place] += np.tensordot(w, scores, 1)
            flat = scores.reshape(len(x), -1) * np.sqrt(w)[:, None]
            self._squares[place] += flat.T @ flat
        self._weight += float(w.sum())
        self._squared += float(w @ w)
        self._n += len(x)

    def result(self) -> DependenceScores:
        of = self._of
        return DependenceScores(
            of.inputs, of.targets, of.directions, self._total, self._squares, self._weight,
            self._squared, self._n, self._sample,
        )  # fmt: skip
