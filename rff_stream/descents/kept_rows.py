"""Rows whose features fit in memory: descents of a loss without another read or another cosine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.contracts import Sink
from rff_stream.features.base import FeatureMap
from rff_stream.losses.classification import Loss, value_and_slope
from rff_stream.losses.descent import Descent, Metric, Point, minimise
from rff_stream.losses.penalised import PenalisedClasses
from rff_stream.moments.accumulate import rank_update
from rff_stream.moments.copies import Observations
from rff_stream.moments.row_sample import RowSample
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import codes_of, weigh_classes
from rff_stream.systems.normal_equations import System, mirror_lower

BLOCK_ROWS = 4096
"""Rows of one product: they determine the order of the sums for any number of threads."""

EVERY = 2**62
"""Size of a sample that keeps all rows."""

GUIDES = 2
"""Smallest number of rows per feature in the G that guides the steps."""

LOOKS, FLAT, LONGEST = 4, 0.2, 8.0
"""Number of lengths that are tried along a line; share of the initial slope at which the search
ends; largest ratio of successive lengths."""


@dataclass(frozen=True, slots=True)
class AllRowsStatistic:
    """All rows [x, number of the class, w], as a sample of every one: no leaf changes its order."""

    n_inputs: int  # d
    labels: tuple[Any, ...]  # of the classes, in the order of their numbers
    class_weight: Mapping[Any, float]  # label -> float: 0 leaves the rows of a class out

    def start(self) -> Sink:
        return weigh_classes(_AllRowsSink(self), self.class_weight)


class _AllRowsSink:
    def __init__(self, of: AllRowsStatistic) -> None:
        self._of, self._sample = of, RowSample.empty(EVERY, of.n_inputs + 2)

    def add(self, rows: Rows, places: Array) -> None:
        codes = codes_of(rows, self._of.labels)[:, None]
        self._sample = self._sample.with_rows(places, rows.x, codes, rows.w)

    def result(self) -> RowSample:
        return self._sample


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoredPoint(Point):
    """A point with what its rows said: another α there needs no product with them."""

    loss: float  # Σwℓ
    cross: Float64  # Σ w [z, 1] ℓ′ᵀ (R + 1, K)
    scores: Array  # F (n, K)


class KeptFeatures:
    """Features of labelled rows in memory, with class numbers and weights.

    Parameters
    ----------
    z : (n, R) array
        float32 or float64: the dtype of products, too.
    codes : (n,) int
    w : (n,) float64
    n_classes : int
    each : callable
        ``map``, or that of a pool of threads: blocks of rows are summed in their order.
    """

    def __init__(
        self,
        z: Array,
        codes: Array,
        w: Float64,
        n_classes: int,
        each: Callable[..., Iterable[Any]] = map,
    ) -> None:
        self._z, self.codes, self.w, self._each = z, codes, w, each
        self.class_weights: Float64 = np.bincount(codes, w, n_classes).astype(np.float64)
        self._blocks = _blocks(len(z))

    @classmethod
    def of(
        cls,
        features: FeatureMap,
        rows: tuple[Float64, Array, Float64],
        n_classes: int,
        dtype: str,
        each: Callable[..., Iterable[Any]] = map,
    ) -> Self:
        """The features of rows x (n, d) with class numbers and weights, each mapped once."""
        x, codes, w = rows
        z = np.empty((len(x), features.n_components), dtype)

        def write(block: slice) -> None:
            features(x[block], out=z[block])

        list(each(write, _blocks(len(z))))
        return cls(z, codes, w, n_classes, each)

    @property
    def dtype(self) -> Any:
        """Of the features and their products: what guides their steps needs no more digits."""
        return self._z.dtype

    def weigh(self, w: Float64) -> Self:
        """The same rows with other weights (n,); one of 0 leaves a row out."""
        return type(self)(self._z, self.codes, w, len(self.class_weights), self._each)

    def part(self, rows: slice) -> Self:
        """Some rows that follow each other, without a copy."""
        z, codes, w = self._z[rows], self.codes[rows], self.w[rows]
        return type(self)(z, codes, w, len(self.class_weights), self._each)

    def penalise(
        self, prior: Array, loss: Loss, alpha: float, guide: System | None = None
    ) -> PenalisedClasses:
        """The objective over these rows. G guides steps: of a guide, of some rows, or none."""
        root, weight = np.sqrt(prior), float(self.w.sum())
        mean = self.cross(self.w[:, None])[:-1, 0] / weight
        nothing = np.empty((len(mean), 0))
        system = System(
            nothing, nothing, nothing[0], root, mean, nothing[0], weight,
            n=len(self.w), observations=Observations(len(self.w), 0.0), fit_intercept=True,
            targets=(),
        )  # fmt: skip
        found = PenalisedClasses(system, loss, alpha, self.class_weights)
        if guide is not None and guide.n_features == len(mean):
            system = replace(system, matrix=guide.matrix * (weight / guide.weight))
        elif found.stiff:
            system = replace(system, matrix=self._scatter(mean, root, weight))
        return replace(found, system=system)

    def _scatter(self, mean: Float64, root: Float64, weight: float) -> Array:
        """G of every k-th row about a mean, as if they weighed as much as all."""
        n, r = self._z.shape
        step = max(1, n // max(GUIDES * r, BLOCK_ROWS))
        z, w = self._z[::step], self.w[::step]
        matrix = np.zeros((r, r), z.dtype)
        for block in _blocks(len(z)):
            rows = z[block] - mean.astype(z.dtype)
            rows *= root.astype(z.dtype)
            rows *= np.sqrt(w[block] * (weight / w.sum()))[:, None]
            rank_update(rows, matrix, beta=1.0)
        mirror_lower(matrix.T)
        return matrix

    def scores(self, coef: Float64, intercept: Float64) -> Array:
        """F (n, K) in the dtype of the features."""
        linear, constant = coef.astype(self._z.dtype), intercept.astype(self._z.dtype)
        found = np.empty((len(self._z), len(constant)), self._z.dtype)

        def write(block: slice) -> None:
            np.matmul(self._z[block], linear, out=found[block])
            found[block] += constant

        list(self._each(write, self._blocks))
        return found

    def cross(self, slope: Array) -> Float64:
        """Σ [z, 1] sᵀ (R + 1, K) of slopes (n, K) that are weighted."""
        slope = slope.astype(self._z.dtype, copy=False)
        total = np.zeros((self._z.shape[1] + 1, slope.shape[1]))
        parts = self._each(lambda block: self._z[block].T @ slope[block], self._blocks)
        for part in parts:
            total[:-1] += part
        total[-1] = slope.sum(axis=0, dtype=np.float64)
        return total

    def losses(self, loss: Loss, linear: tuple[Float64, Float64]) -> Float64:
        """ℓ (n,) at raw coefficients and intercepts."""
        return loss.value(np.asarray(self.scores(*linear), np.float64), self.codes)

    def value_and_slope(self, loss: Loss, F: Array) -> tuple[float, Array]:
        """Σwℓ, and the weighted slopes (n, K)."""
        value, slope = value_and_slope(loss, F, self.codes)
        slope *= self.w[:, None]
        return float(self.w @ value), slope

    def mean_curvature(self, loss: Loss, F: Array) -> float:
        """Mean of ∂²ℓ/∂f² over rows and scores; the bound of an abrupt loss: a step may meet it."""
        if loss.abrupt:
            return loss.bound
        curvatures = loss.curvatures(F, self.codes).mean(axis=1)
        return max(float(self.w @ curvatures / self.w.sum()), 1e-6 * loss.bound)


def descents_of_kept(
    kept: KeptFeatures,
    problem: PenalisedClasses,
    start: tuple[Float64, Float64] | ScoredPoint | None = None,
    *,
    tol: float,
    max_passes: int,
    metric: Metric | None = None,
) -> Iterator[Descent]:
    """Descents of a penalised loss over features in memory, two products each.

    From raw coefficients, from the last point (a :class:`ScoredPoint`) of the same rows' descent
    under another α, or from the best constant. ``tol`` is as in
    :func:`~rff_stream.descents.statistic.descents`; the metric, where absent, is ``problem.bound``
    of the mean curvature at the start.
    """
    line = _Line(kept, problem)
    if isinstance(start, ScoredPoint):
        first = line.point(start.theta, start.loss, start.cross, start.scores)
    else:
        first = line.begin(problem.constant() if start is None else problem.theta(*start))
    if metric is None:
        metric = problem.bound(kept.mean_curvature(problem.loss, first.scores), kept.dtype)
    yield from minimise(
        line.follow,
        first,
        metric,
        tol=tol * float(np.sqrt(problem.system.weight)),
        max_passes=max_passes,
        first_steps=(1.0,),
        later_steps=(1.0,),
    )


def _blocks(n: int) -> list[slice]:
    """Rows of each product."""
    return [slice(at, min(at + BLOCK_ROWS, n)) for at in range(0, n, BLOCK_ROWS)]


class _Line:
    """The search along lines from points whose scores are known: no product for each length."""

    def __init__(self, kept: KeptFeatures, problem: PenalisedClasses) -> None:
        self._kept, self._problem = kept, problem
        self._known: list[ScoredPoint] = []  # the last point, a new one

    def begin(self, theta: Float64) -> ScoredPoint:
        """The first point."""
        F = self._kept.scores(*self._problem.linear(theta))
        value, slopes = self._kept.value_and_slope(self._problem.loss, F)
        return self.point(theta, value, self._kept.cross(slopes), F)

    def point(self, theta: Float64, loss: float, cross: Float64, scores: Array) -> ScoredPoint:
        """The point of sums over rows; a line may start from it."""
        of = self._problem.point(theta, loss, cross, None)
        found = ScoredPoint(theta, of.value, of.gradient, loss=loss, cross=cross, scores=scores)
        self._known = [*self._known[-1:], found]
        return found

    def follow(
        self, theta: Float64, direction: Float64, steps: tuple[float, ...]
    ) -> list[tuple[float, Point]]:
        """The length and the point at which a line is lowest, about; a first length is given."""
        kept, problem = self._kept, self._problem
        (here,) = (each for each in self._known if each.theta is theta)
        self._known, scores = [here], here.scores
        along = kept.scores(*problem.linear(direction))
        tilt = problem.alpha * float(np.vdot(theta[:-1], direction[:-1]))
        bend = problem.alpha * float(np.vdot(direction[:-1], direction[:-1]))
        first = float(np.vdot(here.gradient, direction))
        below, above, best = [(0.0, first)], None, None  # lengths and slopes on either side
        t = steps[0]
        for _ in range(LOOKS):
            F = scores + along.dtype.type(t) * along
            value, slopes = kept.value_and_slope(problem.loss, F)
            height = value + t * tilt + t * t / 2 * bend
            if best is None or height < best[0]:
                best = height, t, F, value, slopes
            slope = float(np.vdot(slopes, along)) + tilt + t * bend
            if not np.isfinite(slope) or abs(slope) <= FLAT * abs(first):
                break
            if slope > 0:
                above = t, slope
            else:
                below.append((t, slope))
            (low, falls), (other, theirs) = below[-1], above or below[-2]
            if falls == theirs:
                break
            t = low - falls * (other - low) / (theirs - falls)
            if above is None and not low < t <= LONGEST * low:
                t = LONGEST * low  # convex: the lowest point lies beyond
        assert best is not None
        _, t, F, value, slopes = best
        return [(t, self.point(theta + t * direction, value, kept.cross(slopes), F))]
