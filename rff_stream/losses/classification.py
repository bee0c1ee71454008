"""Losses of classification: value, slope and curvature at scores, row by row.

Scores F are (m, K): K = 1 for two classes, C otherwise. Each loss says how far its curvature
can be from that of least squares, which one pass has already summed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self

import numpy as np
from scipy.special import expit, logsumexp, softmax

from rff_stream._array import Array, Float64
from rff_stream.losses.regression import NEAR, round_corner, rounded_curvature, rounded_slope
from rff_stream.moments.class_moments import one_hot


class RowLoss(Protocol):
    """A loss ℓ(f, y) of scores f and the targets y of a row, or the number of its class."""

    @property
    def separable(self) -> bool:
        """Whether scores do not curve together: each then has a Hessian of its own."""

    @property
    def nonsmooth(self) -> bool:
        """Whether the loss has corners, which :meth:`with_width` rounds."""

    def check_targets(self, y: Array) -> None:
        """Refuse targets that the loss is not for."""

    def value(self, F: Float64, y: Array) -> Float64:
        """ℓ (m,) at scores (m, K)."""

    def slope(self, F: Float64, y: Array) -> Float64:
        """∂ℓ/∂f (m, K)."""

    def curvatures(self, F: Float64, y: Array) -> Float64:
        """∂²ℓ/∂f_k² (m, K)."""

    def with_width(self, width: float) -> Self:
        """The same with its corners rounded over this width."""


class Loss(RowLoss, Protocol):
    """A convex loss ℓ(f, c) of scores f and the class number c."""

    @property
    def n_classes(self) -> int:
        """C."""

    @property
    def bound(self) -> float:
        """κ: the curvature is at most κI, so κG + α is above every Hessian."""

    @property
    def abrupt(self) -> bool:
        """Whether a row curves by the bound or not at all: the next step may meet its curve."""

    def start(self, share: Float64) -> Float64:
        """Constant scores (K,) to start from, for classes of these shares (C,)."""


class _Classes:
    """A loss of classes: any number of a class is fine."""

    __slots__ = ()

    def check_targets(self, y: Array) -> None:
        """Nothing to refuse."""


class _Smooth(_Classes):
    """A loss without corners."""

    __slots__ = ()
    abrupt: ClassVar[bool] = False
    nonsmooth: ClassVar[bool] = False
    separable: ClassVar[bool] = True

    def with_width(self, width: float) -> Self:
        """Itself."""
        return self


@dataclass(frozen=True, slots=True)
class Logistic(_Smooth):
    """log(1 + exp(−sf)) with s = ±1: two classes, one score, the log-odds of the second."""

    n_classes: int = 2

    @property
    def bound(self) -> float:
        """p(1 − p) ≤ ¼."""
        return 0.25

    def start(self, share: Float64) -> Float64:
        """The log-odds of the shares."""
        return np.log(share[1:] / share[:1])

    def value(self, F: Float64, codes: Array) -> Float64:
        """log(1 + exp(−sf)) (m,)."""
        return np.asarray(np.logaddexp(0.0, -_signs(codes) * F[:, 0]))

    def slope(self, F: Float64, codes: Array) -> Float64:
        """p − y (m, 1)."""
        signs = _signs(codes)
        return np.asarray((-signs * expit(-signs * F[:, 0]))[:, None])

    def curvatures(self, F: Float64, codes: Array) -> Float64:
        """p(1 − p) (m, 1)."""
        return np.asarray(expit(F) * expit(-F))


@dataclass(frozen=True, slots=True)
class Multinomial(_Smooth):
    """−log softmax(f)_c of C classes and as many scores."""

    n_classes: int
    separable: ClassVar[bool] = False

    @property
    def bound(self) -> float:
        """diag(p) − ppᵀ ≼ ½(I − 11ᵀ/C) ≼ ½I (Böhning 1992)."""
        return 0.5

    def start(self, share: Float64) -> Float64:
        """Centred logarithms of the shares."""
        logs = np.log(share)
        return np.asarray(logs - logs.mean())

    def value(self, F: Float64, codes: Array) -> Float64:
        """−log softmax(f)_c (m,)."""
        return np.asarray(logsumexp(F, axis=1) - F[np.arange(len(F)), codes])

    def slope(self, F: Float64, codes: Array) -> Float64:
        """p − y (m, C)."""
        found = softmax(F, axis=1)
        found[np.arange(len(F)), codes] -= 1.0
        return np.asarray(found)

    def curvatures(self, F: Float64, codes: Array) -> Float64:
        """p(1 − p) (m, C): the diagonal of diag(p) − ppᵀ."""
        p = softmax(F, axis=1)
        return np.asarray(p * (1 - p))


@dataclass(frozen=True, slots=True)
class MultinomialPairs(Multinomial):
    """The same, whose curvatures are those of pairs of classes: p_k p_l for k < l."""

    def curvatures(self, F: Float64, codes: Array) -> Float64:
        """p_k p_l (m, C(C − 1)/2): all of diag(p) − ppᵀ, for its rows sum to 0."""
        p = softmax(F, axis=1)
        first, second = np.triu_indices(self.n_classes, 1)
        return np.asarray(p[:, first] * p[:, second])


@dataclass(frozen=True, slots=True)
class SquaredHinge(_Smooth):
    """Σ max(0, 1 − sf)²: one score for two classes, else one against the others for each."""

    n_classes: int
    abrupt: ClassVar[bool] = True

    @property
    def bound(self) -> float:
        """2 where the margin is not kept, 0 elsewhere."""
        return 2.0

    def start(self, share: Float64) -> Float64:
        """The mean of ±1."""
        means = 2 * share - 1
        return np.asarray(means[1:] if len(means) == 2 else means)

    def value(self, F: Float64, codes: Array) -> Float64:
        """Σ max(0, 1 − sf)² (m,)."""
        return np.asarray((self._missed(F, codes) ** 2).sum(axis=1))

    def slope(self, F: Float64, codes: Array) -> Float64:
        """−2s max(0, 1 − sf) (m, K)."""
        return -2 * _sides(codes, self.n_classes) * self._missed(F, codes)

    def curvatures(self, F: Float64, codes: Array) -> Float64:
        """2 where a score misses its margin (m, K): scores do not curve together."""
        return np.where(self._missed(F, codes) > 0, 2.0, 0.0)

    def _missed(self, F: Float64, codes: Array) -> Float64:
        return np.maximum(1 - _sides(codes, self.n_classes) * F, 0.0)


@dataclass(frozen=True, slots=True)
class Hinge(_Classes):
    """Σ max(0, 1 − sf): the support vector machine. Rows beyond their margin do not matter."""

    n_classes: int  # one score for two, else one against the others for each
    width: float = 0.0  # over which its corner is rounded; the fit chooses it
    abrupt: ClassVar[bool] = False
    nonsmooth: ClassVar[bool] = True
    separable: ClassVar[bool] = True

    @property
    def bound(self) -> float:
        """1/4h at the rounded corner, less elsewhere."""
        return 1 / max(4 * self.width, np.finfo(np.float64).tiny)

    def start(self, share: Float64) -> Float64:
        """The mean of ±1."""
        return SquaredHinge(self.n_classes).start(share)

    def with_width(self, width: float) -> Self:
        """The same with its corner rounded over this width."""
        return replace(self, width=width)

    def value(self, F: Float64, codes: Array) -> Float64:
        """Σ max(0, 1 − sf) (m,)."""
        return np.asarray(round_corner(self._short(F, codes), self.width).sum(axis=1))

    def slope(self, F: Float64, codes: Array) -> Float64:
        """−s on rows that miss the margin (m, K)."""
        sides = _sides(codes, self.n_classes)
        return -sides * rounded_slope(self._short(F, codes), self.width)

    def curvatures(self, F: Float64, codes: Array) -> Float64:
        """Large next to the margin (m, K)."""
        return rounded_curvature(self._short(F, codes), self.width)

    def supports(self, F: Float64, codes: Array) -> Array:
        """Whether a row is on or short of its margin (m, K): only these rows hold the fit."""
        return np.asarray(self._short(F, codes) > -NEAR * self.width)

    def _short(self, F: Float64, codes: Array) -> Float64:
        """1 − sf (m, K)."""
        return 1 - _sides(codes, self.n_classes) * F


def value_and_slope(loss: RowLoss, F: Float64, y: Array) -> tuple[Float64, Float64]:
    """ℓ (m,) and ∂ℓ/∂f (m, K), with one exponential for each score where the loss has some."""
    if not isinstance(loss, Multinomial):
        return loss.value(F, y), loss.slope(F, y)
    rows, highest = np.arange(len(F)), F.max(axis=1)
    slope = np.exp(F - highest[:, None])
    total = slope.sum(axis=1)
    value = np.log(total) + highest - F[rows, y]
    slope /= total[:, None]
    slope[rows, y] -= 1.0
    return value, slope


LOSSES = ("logistic", "squared_hinge", "hinge")


def loss_for(name: str, n_classes: int) -> Loss:
    """The loss of a name for C classes."""
    if name == "squared_hinge":
        return SquaredHinge(n_classes)
    if name == "hinge":
        return Hinge(n_classes)
    return Logistic() if n_classes == 2 else Multinomial(n_classes)


def _signs(codes: Array) -> Float64:
    return 2.0 * codes - 1.0


def _sides(codes: Array, n_classes: int) -> Float64:
    """±1 (m, K)."""
    return _signs(codes)[:, None] if n_classes == 2 else 2 * one_hot(codes, n_classes) - 1
