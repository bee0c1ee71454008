"""Losses of classification: value, slope and curvature at scores, row by row.

Scores F are (m, K): K = 1 for two classes, C otherwise. Each loss says how far its curvature
can be from that of least squares, which one pass has already summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit, logsumexp, softmax

from rff_stream._array import Array, Float64
from rff_stream.moments.classes import one_hot

__all__ = ["LOSSES", "Logistic", "Loss", "SquaredHinge", "loss_for"]


class Loss(Protocol):
    """A convex loss ℓ(f, c) of scores f and the class number c."""

    @property
    def n_classes(self) -> int:
        """C."""
        ...

    @property
    def bound(self) -> float:
        """κ: the curvature is at most κI, so κG + α is above every Hessian."""
        ...

    def start(self, share: Float64) -> Float64:
        """Constant scores (K,) to start from, for classes of these shares (C,)."""
        ...

    def value(self, F: Float64, codes: Array) -> Float64:
        """ℓ (m,) at scores (m, K) of rows of classes (m,)."""
        ...

    def slope(self, F: Float64, codes: Array) -> Float64:
        """∂ℓ/∂f (m, K)."""
        ...

    def curvature(self, F: Float64, codes: Array) -> Float64 | None:
        """∂²ℓ/∂f² (m,) where K = 1; None where a row's curvature is a matrix."""
        ...


@dataclass(frozen=True, slots=True)
class Logistic:
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

    def curvature(self, F: Float64, codes: Array) -> Float64:
        """p(1 − p) (m,)."""
        return np.asarray(expit(F[:, 0]) * expit(-F[:, 0]))


@dataclass(frozen=True, slots=True)
class Multinomial:
    """−log softmax(f)_c of C classes and as many scores."""

    n_classes: int

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

    def curvature(self, F: Float64, codes: Array) -> None:
        """A matrix for each row: not summed."""
        return


@dataclass(frozen=True, slots=True)
class SquaredHinge:
    """Σ max(0, 1 − sf)²: one score for two classes, else one against the others for each."""

    n_classes: int

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
        return -2 * self._sides(codes) * self._missed(F, codes)

    def curvature(self, F: Float64, codes: Array) -> Float64 | None:
        """2 on rows that miss the margin, for two classes."""
        return self.curvatures(F, codes)[:, 0] if self.n_classes == 2 else None

    def curvatures(self, F: Float64, codes: Array) -> Float64:
        """2 where a score misses its margin (m, K): scores do not curve together."""
        return np.where(self._missed(F, codes) > 0, 2.0, 0.0)

    def _missed(self, F: Float64, codes: Array) -> Float64:
        return np.maximum(1 - self._sides(codes) * F, 0.0)

    def _sides(self, codes: Array) -> Float64:
        """±1 (m, K)."""
        if self.n_classes == 2:
            return _signs(codes)[:, None]
        return 2 * one_hot(codes, self.n_classes) - 1


LOSSES = ("logistic", "squared_hinge")


def loss_for(name: str, n_classes: int) -> Loss:
    """The loss of a name for C classes."""
    if name == "squared_hinge":
        return SquaredHinge(n_classes)
    return Logistic() if n_classes == 2 else Multinomial(n_classes)


def _signs(codes: Array) -> Float64:
    return 2.0 * codes - 1.0
