"""Loss and gradient at several steps along one direction, and a Hessian, in one pass.

Features are mapped again in every pass and never kept: R cosines a row are cheaper than
reading them from disk, and take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from rff_stream._array import Array, Float64, digest, nested_arrays
from rff_stream.contracts import Packed, Sink
from rff_stream.features.base import BATCH_ROWS, FeatureMap
from rff_stream.losses.classification import RowLoss, value_and_slope
from rff_stream.losses.descent import FIRST_STEPS, STEPS, Descent, Metric, Point, Probe, minimise
from rff_stream.losses.penalised import Penalised, PenalisedClasses
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import Accumulator
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import codes_of, weigh_classes
from rff_stream.statistics.moment_statistics import pack_moments, unpack_moments

LINE, LONG = tuple(2.0 ** (k / 2) for k in range(2, -20, -1)), 0.5
"""Steps that one pass compares, and the step from which it counts as long."""

FALL, LEAST_FALL = 4.0, 1.1
"""By how much the width falls after a long step; the root of it, from a wider one, where no step is
lower although the gradient is not 0."""

ROUNDED = 10.0
"""Decrement, in units of the tolerance, below which a descent that rounding stops counts as
finished."""

SumOfRows = Callable[["LossStatistic"], "LossSums"]

LEAST_TOL = 1e-3
"""Tolerance from which float32 products are accurate enough for the direction: the loss is then
exact to 10⁻⁷."""

TWO_STEPS = (1.0, 2.0)
"""A shorter step was never the best one on letter and MNIST, and costs a quarter of a pass."""

FEW_FEATURES = 256
"""Largest R for which the extra cost of float64 is negligible."""


@dataclass(frozen=True, slots=True, eq=False)
class LossSums:
    """Σ w ℓ and Σ w [z, 1] ℓ′ᵀ at S points, and perhaps Σ w ℓ″ [z, 1][z, 1]ᵀ: they add."""

    values: Float64  # (S,)
    cross: Float64  # (S, R + 1, K)
    curvatures: tuple[Moments, ...]
    """Of rows weighted by w ℓ″ at the first point, one for each score or pair of scores; empty
    where no Hessian was asked for."""

    def __add__(self, other: Self) -> Self:
        pairs = zip(self.curvatures, other.curvatures, strict=True)
        both = tuple(mine + theirs for mine, theirs in pairs)
        return type(self)(self.values + other.values, self.cross + other.cross, both)

    def __sizeof__(self) -> int:
        own = sum(each.__sizeof__() for each in self.curvatures)
        return int(self.cross.nbytes) + own + 128


@dataclass(frozen=True, slots=True, eq=False)
class LossStatistic:
    """What a leaf adds up: scores f + t·g for every step t, with one projection."""

    features: FeatureMap
    loss: RowLoss
    labels: tuple[Any, ...] | None
    """Of the classes, in the order of their numbers; None: rows have targets."""
    coef: Float64  # (R, 2K): of f, then of the direction g
    intercept: Float64  # (2K,)
    steps: tuple[float, ...]
    class_weight: Mapping[Any, float] | None = None  # label -> float, or None
    row: AugmentedRow | None = None  # of the Hessian's moments, where they are wanted
    sums: Literal["float32", "float64"] = "float64"  # their precision
    products: Literal["float32", "float64"] = "float64"
    """Precision of the scores and of each batch's part of the gradient."""
    target: int | None = None
    """Which target of a row is looked at; None: all."""

    @property
    def n_curvatures(self) -> int:
        """Second derivatives of a row's loss: one for each score, or for each pair of them."""
        one = np.zeros((1, len(self.intercept) // 2))
        return int(self.loss.curvatures(one, np.zeros(1, np.int64)).shape[1])

    def start(self) -> Sink:
        return weigh_classes(_LossSink(self), self.class_weight)

    def question(self, token: str) -> str:
        """sha256 of all that the sums depend on; ``token`` stands for data and choices."""
        weights: Any = sorted((str(k), v) for k, v in (self.class_weight or {}).items())
        plain = {
            "token": token,
            "map": self.features.fingerprint,
            "loss": repr(self.loss),
            "labels": [str(label) for label in self.labels or ()],
            "steps": list(self.steps),
            "class_weight": weights,
            "row": None if self.row is None else self.row.fingerprint,
            "sums": self.sums,
        }
        if self.products == "float32":
            plain["products"] = self.products
        if self.target is not None:
            plain["target"] = self.target
        return digest(plain, {"coef": self.coef, "intercept": self.intercept})

    def pack(self, value: LossSums) -> Packed:
        arrays: dict[str, Array] = {"values": value.values, "cross": value.cross}
        for i, curvature in enumerate(value.curvatures):
            moments = pack_moments(curvature).arrays
            arrays |= {f"curvature/{i}/{name}": each for name, each in moments.items()}
        return Packed(None, arrays)

    def unpack(self, packed: Packed) -> LossSums:
        row, count = self.row, 0 if self.row is None else self.n_curvatures
        parts = (
            Packed(None, nested_arrays(packed.arrays, f"curvature/{i}/")) for i in range(count)
        )
        curvatures = tuple(unpack_moments(part, row) for part in parts if row is not None)
        arrays: Any = packed.arrays
        return LossSums(arrays["values"], arrays["cross"], curvatures)


class _LossSink:
    def __init__(self, statistic: LossStatistic) -> None:
        self._of = of = statistic
        r, both = of.coef.shape
        self._k = both // 2
        self._values = np.zeros(len(of.steps))
        self._cross = np.zeros((r + 1, len(of.steps) * self._k))
        self._z = np.ones((BATCH_ROWS, r + 1), of.products)
        self._linear = np.vstack([of.coef, of.intercept]).astype(of.products)
        count = 0 if of.row is None else of.n_curvatures
        self._hessians = [Accumulator(of.features, of.row, sums=of.sums) for _ in range(count)]  # type: ignore[arg-type]

    def add(self, rows: Rows, places: Array) -> None:
        labels: Any = self._of.labels
        targets = rows.y if labels is None else codes_of(rows, labels)
        if self._of.target is not None:
            targets = targets[:, self._of.target, None]
        self._of.loss.check_targets(targets)
        for start in range(0, len(rows.x), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            w = None if rows.w is None else rows.w[part]
            self._take(rows.x[part], targets[part], w, places[part])

    def _take(self, x: Float64, y: Array, w: Float64 | None, places: Array) -> None:
        of, k, z = self._of, self._k, self._z[: len(x)]
        of.features(x, out=z[:, :-1])
        scores = np.asarray(z @ self._linear, np.float64)
        here, along = scores[:, :k], scores[:, k:]
        slopes = np.empty((len(x), len(of.steps) * k), of.products)
        for i, step in enumerate(of.steps):
            F = here + step * along
            value, slope = self._value_and_slope(F, y)
            self._values[i] += value.sum() if w is None else w @ value
            slopes[:, i * k : (i + 1) * k] = slope if w is None else slope * w[:, None]
        self._cross += z.T @ slopes
        if self._hessians:
            curvatures = of.loss.curvatures(here + of.steps[0] * along, y)
            for hessian, curvature in zip(self._hessians, curvatures.T, strict=True):
                weights = curvature if w is None else w * curvature
                keep = weights > 0
                none = np.empty((int(keep.sum()), 0))
                hessian.add(x[keep], none, weights[keep], places[keep])

    def _value_and_slope(self, F: Float64, y: Array) -> tuple[Float64, Float64]:
        loss = self._of.loss
        if self._of.products == "float32":
            return value_and_slope(loss, F, y)
        return loss.value(F, y), loss.slope(F, y)

    def result(self) -> LossSums:
        r1 = len(self._cross)
        cross = self._cross.reshape(r1, len(self._of.steps), self._k).transpose(1, 0, 2)
        curvatures = tuple(hessian.result() for hessian in self._hessians)
        return LossSums(self._values.copy(), cross.copy(), curvatures)


def descents(
    sums: SumOfRows,
    statistic: LossStatistic,
    problem: Penalised,
    start: tuple[Float64, Float64] | None = None,
    *,
    tol: float,
    max_passes: int,
) -> Iterator[Descent]:
    """Descents of a penalised loss, one pass each, from zeros or, by one pass more, coefficients.

    Directions are Newton's where the statistic has a ``row``. ``tol`` is the √(expected decrease of
    the objective per unit of weight) to stop at. From 10⁻³ on, and for more than 256 features,
    products are of float32: half of the time.
    """
    newton = statistic.row is not None
    few = problem.system.n_features <= FEW_FEATURES
    steps: tuple[float, ...] = STEPS
    if statistic.labels is not None and tol >= LEAST_TOL and not few:
        statistic = replace(statistic, products="float32")
        steps = STEPS if newton else TWO_STEPS
    probe = _probe(sums, statistic, problem)
    metric: Metric | None
    if start is not None:
        theta = problem.theta(*start)
        ((_, first),) = probe(theta, np.zeros_like(theta), (0.0,))
        metric = first.metric
    else:
        assert isinstance(problem, PenalisedClasses)
        first, metric = problem.at_constant(), problem.at_start()
    if not newton:
        assert isinstance(problem, PenalisedClasses)
        metric = problem.above()
    assert metric is not None
    yield from minimise(
        probe,
        first,
        metric,
        tol=tol * float(np.sqrt(problem.system.weight)),
        max_passes=max_passes - (start is not None),
        first_steps=FIRST_STEPS if start is None and not newton else steps,
        later_steps=steps,
    )


def minimise_nonsmooth(
    sums: SumOfRows,
    statistic: LossStatistic,
    problem: Penalised,
    start: tuple[Float64, Float64],
    *,
    unit: float,
    tol: float,
    max_passes: int,
) -> Iterator[Descent]:
    """Descents of a loss with corners: Newton's steps while their rounding falls to nothing.

    As in :func:`descents`; the statistic has a ``row``, ``unit`` is about the loss of a row by the
    best constant, and ``tol`` the √(gain left) to stop at in units of √``unit``: the rounding ends
    at tol²/2 of the unit.

    Notes
    -----
    One pass sums the Hessian, the next one, which costs little, only values and gradients at 22
    steps. Where a step was long enough the width falls by 4: 10 to 17 Hessians for tol=1e-2.
    Where none is lower too few rows are inside of it to curve, as for the quantile .01 of 1,500
    rows: it is widened, and falls more slowly.
    """
    loss, weight = problem.loss, problem.system.weight
    last, width, fall = unit * tol**2 / 2, unit / 4, FALL
    theta, passes = problem.theta(*start), 0
    history: tuple[float, ...] = ()
    look = replace(statistic, row=None)
    while True:
        rounded = loss.with_width(width)
        own = replace(problem, loss=rounded)
        whole = _probe(sums, replace(statistic, loss=rounded), own)
        ((_, point),) = whole(theta, np.zeros_like(theta), (0.0,))
        assert point.metric is not None
        direction = -point.metric(point.gradient)
        decrement = float(np.sqrt(max(-float(np.vdot(point.gradient, direction)), 0.0)))
        passes, history = passes + 1, (*history, point.value)
        done = bool(width <= last and decrement <= tol * np.sqrt(unit * weight))
        yield Descent(point, decrement, passes, done, history)
        if done or passes >= max_passes:
            return
        looked = _probe(sums, replace(look, loss=rounded), own)(theta, direction, LINE)
        line = [each for _, each in looked]
        passes += 1
        best = int(np.argmin([each.value for each in line]))
        lower = line[best].value < point.value
        near = bool(decrement <= ROUNDED * tol * np.sqrt(unit * weight))
        if not lower and width <= last and (near or fall < LEAST_FALL):
            yield Descent(point, decrement, passes, near, history)  # no step is lower
            return
        if lower:
            theta = line[best].theta
        if not lower and not near:  # too few rows are inside of the width to curve
            width, fall = min(width * fall**3, unit / 4), np.sqrt(fall)
        elif not lower or LINE[best] >= LONG:
            width = max(width / fall, last)


def minimisers(
    sums: SumOfRows,
    statistic: LossStatistic,
    problem: Penalised,
    start: tuple[Float64, Float64],
    *,
    unit: float,
    tol: float,
    max_passes: int,
) -> Iterator[Descent]:
    """:func:`descents` from a start, or :func:`minimise_nonsmooth` where the loss has some."""
    if problem.loss.nonsmooth:
        yield from minimise_nonsmooth(
            sums, statistic, problem, start, unit=unit, tol=tol, max_passes=max_passes
        )
    else:
        own = tol * float(np.sqrt(unit))
        yield from descents(sums, statistic, problem, start, tol=own, max_passes=max_passes)


def _probe(sums: SumOfRows, statistic: LossStatistic, problem: Penalised) -> Probe:
    """One pass: the points θ + t·direction."""

    def probe(
        theta: Float64, direction: Float64, steps: tuple[float, ...]
    ) -> list[tuple[float, Point]]:
        here, there = problem.linear(theta), problem.linear(direction)
        at_steps = replace(
            statistic,
            coef=np.hstack([here[0], there[0]]),
            intercept=np.concatenate([here[1], there[1]]),
            steps=steps,
        )
        answer = sums(at_steps)
        metric = problem.newton(answer.curvatures) if answer.curvatures else None
        return [
            (t, problem.point(theta + t * direction, float(value), cross, metric))
            for t, value, cross in zip(steps, answer.values, answer.cross, strict=True)
        ]

    return probe
