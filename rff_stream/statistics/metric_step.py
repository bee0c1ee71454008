"""The directions along which a function changes, found by the residuals of all rows.

A fit f(x) = g(xB) has the directions B (d, k) that its pilot saw. If the truth is g(x(B + Δ)), then

    r = y − f(x) ≈ Σⱼₖ Δⱼₖ xⱼ ∂g/∂uₖ + ε,    φ = x ⊗ ∂g/∂u,    (H + λI) vec Δ = b

with H = Σ w φφᵀ and b = Σ w φr: sums over rows. That is one step of Gauss and Newton. What f itself
already saw of Δ is in its slopes, so B are leading eigenvectors of M = mean ∇f∇fᵀ. The error of the
directions falls as 1/√n, whatever rows the pilot had. Inputs are over their standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.contracts import Sink
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.added_fields import AddedFields

NUMBERS = 1 << 20
"""Entries of φ that are in memory at once: 8 MB."""


@dataclass(frozen=True, eq=False)
class MetricStep(AddedFields):
    """H and b of a fit, and the metric that follows; values of one fit add, subtract and scale.

    Parameters
    ----------
    inputs, targets : tuple of str
    origin, unit : (d,) float64
        Inputs are (x − origin)/unit.
    start : (d, k) float64
        B: orthogonal; the metric of the fit along these directions, or without a metric each
        column as long as the root mean squared slope along it.
    normal : (dk, dk) float64
        H, over the variances of the targets.
    right : (dk,) float64
        b.
    square : float
        Σ w r², over the variances of the targets.
    weight : float
        Σ w.
    n : int
        Rows.
    """

    sums: ClassVar[tuple[str, ...]] = ("normal", "right", "square", "weight")

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    origin: Float64
    unit: Float64
    start: Float64
    normal: Float64
    right: Float64
    square: float
    weight: float
    n: int

    def __sizeof__(self) -> int:
        return int(self.normal.nbytes) + 1024

    @property
    def n_directions(self) -> int:
        """k: how many directions matter; d − k are left out."""
        return int(self.start.shape[1])

    @property
    def noise_variance(self) -> float:
        """Mean squared residual, over the variances of the targets."""
        return self.square / (self.weight * len(self.targets)) if self.weight else np.nan

    @cached_property
    def directions(self) -> Float64:
        """B + Δ (d, k), of inputs over their standard deviations.

        A priori each entry of Δ has the size of B, so rows that tell nothing move nothing.
        """
        moved = linalg.cho_solve(self._factor, self.right) if self.weight else 0 * self.right
        return self.start + moved.reshape(self.start.shape)

    @property
    def matrix(self) -> Float64:
        """(d, k), in units of 1/input: the ``metric`` of the next fit."""
        return self.directions / self.unit[:, None]

    @property
    def moved(self) -> float:
        """Largest principal angle between B and B + Δ, in degrees."""
        return float(np.degrees(linalg.subspace_angles(self.start, self.directions).max()))

    @cached_property
    def standard_errors(self) -> Float64:
        """Of each direction (k,), in degrees: how far noise may have turned it out of their span.

        By the noise of rows alone: what the map cannot represent of the function is not in it.
        Rows are taken for independent: where each stands c times, they are too small by √c.
        """
        d, k = self.start.shape
        across = linalg.null_space(self.directions.T)  # (d, d − k)
        variance = linalg.cho_solve(self._factor, np.eye(d * k)).reshape(d, k, d, k)
        own = np.einsum("jo,jklk,lo->k", across, variance, across)
        length = (self.directions**2).sum(axis=0)
        return np.asarray(np.degrees(np.sqrt(self.noise_variance * own / length)))

    @cached_property
    def _factor(self) -> Any:
        size = (self.start**2).sum() / len(self.targets)
        ridge = max(self.noise_variance, np.finfo(float).tiny) / size
        diagonal = np.abs(self.normal.diagonal()).max(initial=0.0)
        ridge = max(ridge, diagonal * len(self.normal) * np.finfo(float).eps)
        return linalg.cho_factor(self.normal + ridge * np.eye(len(self.normal)), lower=True)

    def matched(self, other: Self) -> Self:
        rule = (
            "cannot be added unless they are steps of one fit. Add sums of the rows of one model."
        )
        self.require_alike(other, "Steps", rule, same=np.array_equal(self.start, other.start))
        return other


@dataclass(frozen=True, slots=True, eq=False)
class MetricStepStatistic:
    """Adds up :class:`MetricStep` of a function whose slopes are known."""

    mean: Callable[[Array], Float64]  # (m, d) -> (m, T), picklable
    slopes: Callable[[Array], Float64]  # (m, d) -> (m, d, T), picklable
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    origin: Float64  # (d,)
    unit: Float64  # (d,)
    deviation: Float64  # (T,), of the targets
    directions: Float64  # B (d, k)

    def start(self) -> Sink:
        return _StepSink(self)


class _StepSink:
    def __init__(self, statistic: MetricStepStatistic) -> None:
        self._of = statistic
        self._back = np.linalg.pinv(statistic.directions).T  # (d, k): slopes by x to those by u
        size = statistic.directions.size
        self._normal, self._right = np.zeros((size, size)), np.zeros(size)
        self._square, self._weight, self._n = 0.0, 0.0, 0

    def add(self, rows: Rows, places: Array) -> None:
        count = max(NUMBERS // len(self._right), 1)
        for start in range(0, len(rows.x), count):
            part = slice(start, start + count)
            x = np.asarray(rows.x[part], np.float64)
            w = np.ones(len(x)) if rows.w is None else rows.w[part]
            self._take(x, np.asarray(rows.y[part], np.float64), w)

    def _take(self, x: Float64, y: Float64, w: Float64) -> None:
        of, root = self._of, np.sqrt(w)[:, None]
        residuals = root * (y - of.mean(x)) / of.deviation
        slopes = of.slopes(x) * of.unit[:, None] / of.deviation
        moved = root * (x - of.origin) / of.unit
        for residual, own in zip(residuals.T, np.moveaxis(slopes, 2, 0), strict=True):
            columns = moved[:, :, None] * (own @ self._back)[:, None, :]
            columns = columns.reshape(len(x), -1)
            self._normal += columns.T @ columns
            self._right += columns.T @ residual
            self._square += float(residual @ residual)
        self._weight += float(w.sum())
        self._n += len(x)

    def result(self) -> MetricStep:
        of = self._of
        return MetricStep(
            of.inputs, of.targets, of.origin, of.unit, of.directions, self._normal, self._right,
            self._square, self._weight, self._n,
        )  # fmt: skip
