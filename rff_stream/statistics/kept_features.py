"""Rows whose features fit in memory: descents of a loss without another read or another cosine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import FeatureMap
from rff_stream.losses.classification import Loss, value_and_slope
from rff_stream.losses.descent import Descent, Metric, Point, minimise
from rff_stream.losses.penalised import PenalisedClasses
from rff_stream.moments.rank_update import rank_update
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import codes_of, labels_of
from rff_stream.statistics.protocol import Sink
from rff_stream.systems.system import System, mirror_lower

BLOCK_ROWS = 4096
"""Rows of one product: the order of the sums, whatever the number of threads."""

GUIDES = 2
"""Rows for each feature, at least, of which G guides the steps."""

LOOKS, FLAT, LONGEST = 4, 0.2, 8.0
"""Lengths that are looked at along a line; the share of its first slope that ends the search; and
times the last length that the next one is at most."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """Labelled rows (n, d) with their weights and places; adding puts them together.

    Parameters
    ----------
    x : (n, d) float64
    w : (n,) float64
    label : (n,) array
    places : (n,) int64
        In the whole data.
    """

    x: Float64
    w: Float64
    label: Array
    places: Array

    def __add__(self, other: Self) -> Self:
        if not len(self.x) or not len(other.x):
            return self if len(self.x) else other
        pairs = (
            (self.x, other.x), (self.w, other.w), (self.label, other.label),
            (self.places, other.places),
        )  # fmt: skip
        return type(self)(*(np.concatenate(pair) for pair in pairs))

    def __sizeof__(self) -> int:
        return int(self.x.nbytes + self.w.nbytes + self.label.nbytes + self.places.nbytes) + 64

    def in_order(self) -> Rows:
        """The rows by their places."""
        order = np.argsort(self.places, kind="stable")
        nothing = np.empty((len(order), 0))
        return Rows(self.x[order], nothing, self.w[order], None, 0, self.label[order])


@dataclass(frozen=True, slots=True)
class RowsStatistic:
    """All rows themselves, for data whose features fit in memory.

    Parameters
    ----------
    n_inputs : int
        d.
    """

    n_inputs: int

    def start(self) -> Sink:
        return _RowsSink(self.n_inputs)


class _RowsSink:
    def __init__(self, n_inputs: int) -> None:
        none = np.empty(0)
        self._parts = [KeptRows(np.empty((0, n_inputs)), none, none, np.empty(0, np.int64))]

    def add(self, rows: Rows, places: Array) -> None:
        w = np.ones(len(rows.x)) if rows.w is None else rows.w.copy()
        self._parts.append(KeptRows(rows.x.copy(), w, labels_of(rows).copy(), places.copy()))

    def result(self) -> KeptRows:
        filled = [part for part in self._parts if len(part.x)] or self._parts
        return KeptRows(
            np.concatenate([part.x for part in filled]),
            np.concatenate([part.w for part in filled]),
            np.concatenate([part.label for part in filled]),
            np.concatenate([part.places for part in filled]),
        )


class KeptFeatures:
    """Features of labelled rows in memory, with class numbers and weights.

    Parameters
    ----------
    z : (n, R) array
        float32 or float64: the dtype of products, too.
    codes : (n,) int
    w : (n,) float64
        Positive.
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
        rows: Rows,
        labels: tuple[Any, ...],
        class_weight: Mapping[Any, float] | None,
        dtype: str,
        each: Callable[..., Iterable[Any]] = map,
    ) -> Self:
        """The features of rows, each mapped once; a class of weight 0 is left out."""
        given = class_weight or {}
        own = np.array([float(given.get(label, 1.0)) for label in labels])
        codes = codes_of(rows, labels)
        w = own[codes] if rows.w is None else rows.w * own[codes]
        keep = w > 0
        z = np.empty((int(keep.sum()), features.n_components), dtype)
        x = rows.x if keep.all() else rows.x[keep]

        def write(block: slice) -> None:
            features(x[block], out=z[block])

        list(each(write, _blocks(len(z))))
        return cls(z, codes[keep], w[keep], len(labels), each)

    @property
    def dtype(self) -> Any:
        """Of the features and their products: what guides their steps needs no more digits."""
        return self._z.dtype

    def take(self, chosen: Array) -> Self:
        """Some of the rows (n,)."""
        parts = self._z[chosen], self.codes[chosen], self.w[chosen]
        return type(self)(*parts, len(self.class_weights), self._each)

    def penalise(
        self, prior: Array, loss: Loss, alpha: float, guide: System | None = None
    ) -> PenalisedClasses:
        """The objective over these rows. G is of some of them, or of ``guide``: it guides steps."""
        root, weight = np.sqrt(prior), float(self.w.sum())
        mean = self.cross(self.w[:, None])[:-1, 0] / weight
        if guide is None or guide.n_features != len(mean):
            matrix = self._scatter(mean, root, weight)
        else:
            matrix = guide.matrix * (weight / guide.weight)
        nothing = np.empty((len(mean), 0))
        system = System(
            matrix, nothing, nothing[0], root, mean, nothing[0], weight,
            log_weight=0.0, n=len(self.w), fit_intercept=True, targets=(),
        )  # fmt: skip
        return PenalisedClasses(system, loss, alpha, self.class_weights)

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
        """Mean of ∂²ℓ/∂f² over rows and scores."""
        curvatures = loss.curvatures(F, self.codes).mean(axis=1)
        return max(float(self.w @ curvatures / self.w.sum()), 1e-6 * loss.bound)


def descents_of_kept(
    kept: KeptFeatures,
    problem: PenalisedClasses,
    start: tuple[Float64, Float64] | None = None,
    *,
    tol: float,
    max_passes: int,
    metric: Metric | None = None,
) -> Iterator[Descent]:
    """Descents of a penalised loss over features in memory, two products each.

    Parameters
    ----------
    kept : KeptFeatures
    problem : PenalisedClasses
    start : (coef, intercept), optional
        Raw coefficients; the best constant where absent.
    tol : float
        As in :func:`~rff_stream.statistics.loss.descents`.
    max_passes : int
    metric : Metric, optional
        By default that of least squares, scaled by the mean curvature at the start.
    """
    line = _Line(kept, problem)
    theta = problem.constant() if start is None else problem.theta(*start)
    first = line.begin(theta)
    if metric is None:
        metric = problem.bound(line.curvature, kept.dtype)
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
        self._known: list[tuple[Point, Array]] = []  # with their scores: the last point, a new one

    def begin(self, theta: Float64) -> Point:
        """The first point."""
        F = self._kept.scores(*self._problem.linear(theta))
        value, slopes = self._kept.value_and_slope(self._problem.loss, F)
        point = self._problem.point(theta, value, self._kept.cross(slopes), None)
        self._known = [(point, F)]
        return point

    @property
    def curvature(self) -> float:
        """Mean curvature at the first point."""
        return self._kept.mean_curvature(self._problem.loss, self._known[0][1])

    def follow(
        self, theta: Float64, direction: Float64, steps: tuple[float, ...]
    ) -> list[tuple[float, Point]]:
        """The length and the point at which a line is lowest, about; a first length is given."""
        kept, problem = self._kept, self._problem
        ((here, scores),) = (each for each in self._known if each[0].theta is theta)
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
        point = problem.point(theta + t * direction, value, kept.cross(slopes), None)
        self._known = [(here, scores), (point, F)]
        return [(t, point)]
