"""Loss and gradient at several steps along one direction, and a Hessian, in one pass.

Features are mapped again in every pass and never kept: R cosines a row are cheaper than
reading them from disk, and take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from rff_stream._array import Array, Float64, digest
from rff_stream.answers.descent import FIRST_STEPS, STEPS, Descent, Point, minimise
from rff_stream.answers.losses import Loss
from rff_stream.answers.penalised import Penalised
from rff_stream.features.base import BATCH_ROWS, FeatureMap
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import Accumulator
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.class_weights import codes_of, weigh_classes
from rff_stream.statistics.packing import Packed, arrays_of, pack_moments, unpack_moments
from rff_stream.statistics.protocol import Sink

__all__ = ["LossStatistic", "LossSums", "SumOfRows", "descents"]

SumOfRows = Callable[["LossStatistic"], "LossSums"]


@dataclass(frozen=True, slots=True, eq=False)
class LossSums:
    """Σ w ℓ and Σ w [z, 1] ℓ′ᵀ at S points, and perhaps Σ w ℓ″ [z, 1][z, 1]ᵀ: they add.

    Parameters
    ----------
    values : (S,) float64
    cross : (S, R + 1, K) float64
    curvature : Moments or None
        Of rows weighted by w ℓ″ at the first point.
    """

    values: Float64
    cross: Float64
    curvature: Moments | None

    def __add__(self, other: Self) -> Self:
        mine, theirs = self.curvature, other.curvature
        both = None if mine is None or theirs is None else mine + theirs
        return type(self)(self.values + other.values, self.cross + other.cross, both)

    def __sizeof__(self) -> int:
        own = 0 if self.curvature is None else self.curvature.__sizeof__()
        return int(self.cross.nbytes) + own + 128


@dataclass(frozen=True, slots=True, eq=False)
class LossStatistic:
    """What a leaf adds up: scores f + t·g for every step t, with one projection.

    Parameters
    ----------
    features : FeatureMap
    loss : Loss
    labels : tuple
        Of the classes, in the order of their numbers.
    coef, intercept : (R, 2K), (2K,) float64
        Of f, then of the direction g.
    steps : tuple of float
    class_weight : mapping of label to float, or None
    row : AugmentedRow or None
        Of the Hessian's moments, where they are wanted.
    sums : {"float32", "float64"}
        Their precision.
    """

    features: FeatureMap
    loss: Loss
    labels: tuple[Any, ...]
    coef: Float64
    intercept: Float64
    steps: tuple[float, ...]
    class_weight: Mapping[Any, float] | None = None
    row: AugmentedRow | None = None
    sums: Literal["float32", "float64"] = "float64"

    def start(self) -> Sink:
        return weigh_classes(_LossSink(self), self.class_weight)

    def question(self, token: str) -> str:
        """sha256 of all that the sums depend on; ``token`` stands for data and choices."""
        weights: Any = sorted((str(k), v) for k, v in (self.class_weight or {}).items())
        plain = {
            "token": token,
            "map": self.features.fingerprint,
            "loss": repr(self.loss),
            "labels": [str(label) for label in self.labels],
            "steps": list(self.steps),
            "class_weight": weights,
            "row": None if self.row is None else self.row.fingerprint,
            "sums": self.sums,
        }
        return digest(plain, {"coef": self.coef, "intercept": self.intercept})

    def pack(self, value: LossSums) -> Packed:
        arrays: dict[str, Array] = {"values": value.values, "cross": value.cross}
        if value.curvature is not None:
            moments = pack_moments(value.curvature).arrays
            arrays |= {f"curvature/{name}": each for name, each in moments.items()}
        return Packed(None, arrays)

    def unpack(self, packed: Packed) -> LossSums:
        curvature = None
        if self.row is not None:
            moments = Packed(None, arrays_of(packed, "curvature/"))
            curvature = unpack_moments(moments, self.row)
        arrays: Any = packed.arrays
        return LossSums(arrays["values"], arrays["cross"], curvature)


class _LossSink:
    def __init__(self, statistic: LossStatistic) -> None:
        self._of = of = statistic
        r, both = of.coef.shape
        self._k = both // 2
        self._values = np.zeros(len(of.steps))
        self._cross = np.zeros((r + 1, len(of.steps) * self._k))
        self._z = np.ones((BATCH_ROWS, r + 1))
        self._linear = np.vstack([of.coef, of.intercept])
        self._hessian = None if of.row is None else Accumulator(of.features, of.row, sums=of.sums)

    def add(self, rows: Rows, places: Array) -> None:
        codes = codes_of(rows, self._of.labels)
        for start in range(0, len(rows.x), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            w = None if rows.w is None else rows.w[part]
            self._take(rows.x[part], codes[part], w, places[part])

    def _take(self, x: Float64, codes: Array, w: Float64 | None, places: Array) -> None:
        of, k, z = self._of, self._k, self._z[: len(x)]
        of.features(x, out=z[:, :-1])
        scores = z @ self._linear
        here, along = scores[:, :k], scores[:, k:]
        slopes = np.empty((len(x), len(of.steps) * k))
        for i, step in enumerate(of.steps):
            F = here + step * along
            value, slope = of.loss.value(F, codes), of.loss.slope(F, codes)
            self._values[i] += value.sum() if w is None else w @ value
            slopes[:, i * k : (i + 1) * k] = slope if w is None else slope * w[:, None]
        self._cross += z.T @ slopes
        if self._hessian is not None:
            self._take_curvature(x, here + of.steps[0] * along, codes, w, places)

    def _take_curvature(
        self, x: Float64, F: Float64, codes: Array, w: Float64 | None, places: Array
    ) -> None:
        assert self._hessian is not None
        curvature = self._of.loss.curvature(F, codes)
        assert curvature is not None
        weights = curvature if w is None else w * curvature
        keep = weights > 0
        none = np.empty((int(keep.sum()), 0))
        self._hessian.add(x[keep], none, weights[keep], places[keep])

    def result(self) -> LossSums:
        r1 = len(self._cross)
        cross = self._cross.reshape(r1, len(self._of.steps), self._k).transpose(1, 0, 2)
        curvature = None if self._hessian is None else self._hessian.result()
        return LossSums(self._values.copy(), cross.copy(), curvature)


def descents(
    sums: SumOfRows,
    statistic: LossStatistic,
    problem: Penalised,
    start: tuple[Float64, Float64] | None = None,
    *,
    tol: float,
    max_passes: int,
) -> Iterator[Descent]:
    """Descents of a penalised loss, one pass each.

    Parameters
    ----------
    sums : callable
        A statistic -> its sum over all rows: one pass.
    statistic : LossStatistic
        With a ``row``, directions are Newton's; its coefficients are not looked at.
    problem : Penalised
    start : (coef, intercept), optional
        Raw coefficients to start from, at the cost of one pass; zeros are free.
    tol : float
        √(expected decrease of the objective per unit of weight) to stop at.
    max_passes : int
    """
    newton = statistic.row is not None

    def probe(theta: Float64, direction: Float64, steps: tuple[float, ...]) -> list[Point]:
        here, there = problem.linear(theta), problem.linear(direction)
        asked = replace(
            statistic,
            coef=np.hstack([here[0], there[0]]),
            intercept=np.concatenate([here[1], there[1]]),
            steps=steps,
        )
        answer = sums(asked)
        metric = None if answer.curvature is None else problem.newton(answer.curvature)
        return [
            problem.point(theta + t * direction, float(value), cross, metric)
            for t, value, cross in zip(steps, answer.values, answer.cross, strict=True)
        ]

    first, metric = problem.at_constant(), problem.at_start() if newton else problem.bound()
    if start is not None:
        theta = problem.theta(*start)
        first = probe(theta, np.zeros_like(theta), (0.0,))[0]
    yield from minimise(
        probe,
        first,
        metric,
        tol=tol * float(np.sqrt(problem.system.weight)),
        max_passes=max_passes - (start is not None),
        first_steps=FIRST_STEPS if start is None and not newton else STEPS,
    )
