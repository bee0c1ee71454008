"""Σ w ℓ(f, c) + (α/2)‖γ‖² over linear scores f = z̃γ + m, in the space of the one pass.

z̃ = (z − z̄)√s: the penalty is on γ alone, m is free. Second moments of the one pass bound
every Hessian, by κG + α; a pass that sums weighted second moments gives the Hessian itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from rff_stream._array import Float64
from rff_stream.losses.classification import Loss, RowLoss
from rff_stream.losses.descent import Metric, Point
from rff_stream.moments import Moments
from rff_stream.moments.class_moments import ClassMoments
from rff_stream.systems.system import System, mirror_lower, ridge_system, scatter_about

__all__ = ["Penalised", "PenalisedClasses", "penalise"]

RAREST = 1e-12
"""Share that a class without rows (of a fold) starts from."""

JITTERS = (0.0, 1e-7, 1e-6, 1e-5, 1e-4)
"""Shares of the mean diagonal that rounding may ask for: the factor only guides the steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Penalised:
    """The objective of one loss and penalty over the rows that moments describe.

    Parameters
    ----------
    system : System
        G of the rows; C and scatter of their targets are not looked at.
    loss : RowLoss
    alpha : float
        On the scale of ``1/C`` of ``sklearn.linear_model.LogisticRegression`` and of
        ``sklearn.svm`` for features times √s.
    """

    system: System
    loss: RowLoss
    alpha: float

    def bound(self, kappa: float) -> Metric:
        """(κG + αI)⁻¹ and 1/(κΣw)."""
        border = np.array([kappa * self.system.weight])
        return _inverse(kappa * self.system.matrix, self.alpha, border)

    def newton(self, curvatures: Sequence[Moments]) -> Metric:
        """The inverse Hessian from moments of rows weighted by w ℓ″, one for each score."""
        solves = [self._newton(moments) for moments in curvatures]
        if len(solves) == 1:
            return solves[0]

        def solve(gradient: Float64) -> Float64:
            columns = zip(solves, gradient.T, strict=True)
            return np.column_stack([each(column) for each, column in columns])

        return solve

    def _newton(self, moments: Moments) -> Metric:
        """The inverse Hessian of one score; where no row curves, that of least squares."""
        if not moments.n:
            return self.bound(1.0)
        matrix, border = self._scaled(moments)
        return _inverse(matrix, self.alpha, border)

    def curvature(self, moments: Moments) -> Float64:
        """Σ w φφᵀ (R + 1, R + 1) of φ = [z̃, 1], from moments of rows weighted by w."""
        r = self.system.n_features
        whole = np.zeros((r + 1, r + 1))
        if moments.n:
            whole[:r, :r], whole[-1] = self._scaled(moments)
            mirror_lower(whole)
        return whole

    def _scaled(self, moments: Moments) -> tuple[Float64, Float64]:
        """Lower triangle of Σ w z̃z̃ᵀ, and the border Σ w [z̃, 1]."""
        system = self.system
        matrix, _, _ = scatter_about(moments, system.feature_mean, np.empty(0))
        matrix *= system.root_prior
        matrix *= system.root_prior[:, None]
        means = moments.feature_mean() - system.feature_mean
        border = np.empty(system.n_features + 1)
        border[:-1], border[-1] = moments.weight * means * system.root_prior, moments.weight
        return matrix, border

    def linear(self, theta: Float64) -> tuple[Float64, Float64]:
        """Raw coefficients β (R, K) and intercepts (K,) of θ = [γ; m]."""
        coef = self.system.root_prior[:, None] * theta[:-1]
        return coef, theta[-1] - self.system.feature_mean @ coef

    def theta(self, coef: Float64, intercept: Float64) -> Float64:
        """θ = [γ; m] of raw coefficients."""
        gamma = coef / self.system.root_prior[:, None]
        return np.vstack([gamma, intercept + self.system.feature_mean @ coef])

    def point(self, theta: Float64, value: float, cross: Float64, metric: Metric | None) -> Point:
        """The point of sums over rows: Σwℓ and Σ w [z, 1] ℓ′ᵀ (R + 1, K)."""
        centred = cross[:-1] - np.outer(self.system.feature_mean, cross[-1])
        gradient = np.vstack([self.system.root_prior[:, None] * centred, cross[-1:]])
        gradient[:-1] += self.alpha * theta[:-1]
        penalty = self.alpha / 2 * float(np.vdot(theta[:-1], theta[:-1]))
        return Point(theta, value + penalty, gradient, metric)


@dataclass(frozen=True, slots=True, eq=False)
class PenalisedClasses(Penalised):
    """The objective of a loss of classes, whose value at constant scores needs no rows.

    Parameters
    ----------
    system : System
        G and C of the one-hot targets.
    loss : Loss
    alpha : float
    class_weights : (C,) float64
        Σw of each class.
    """

    loss: Loss
    class_weights: Float64

    def at_constant(self) -> Point:
        """Objective and gradient at γ = 0 and the loss's own constant: no rows are needed."""
        codes, constant = np.arange(len(self.class_weights)), self.constant()
        F = np.tile(constant, (len(codes), 1))
        slope = self.loss.slope(F, codes)  # (C, K): all rows of a class are alike
        gradient = np.vstack([self.system.rhs @ slope, self.class_weights @ slope])
        theta = np.vstack([np.zeros((self.system.n_features, len(constant))), constant])
        return Point(theta, float(self.class_weights @ self.loss.value(F, codes)), gradient)

    def constant(self) -> Float64:
        """Where descent starts (K,)."""
        share = self.class_weights / self.class_weights.sum()
        return self.loss.start(np.maximum(share, RAREST))

    def above(self) -> Metric:
        """The inverse of κG + αI, above every Hessian."""
        return self.bound(self.loss.bound)

    def curvature_at_start(self) -> float:
        """Mean of ∂²ℓ/∂f² over rows and scores at :meth:`at_constant`."""
        codes = np.arange(len(self.class_weights))
        here = self.loss.curvatures(np.tile(self.constant(), (len(codes), 1)), codes)
        return float(self.class_weights @ here.mean(axis=1) / self.class_weights.sum())

    def at_start(self) -> Metric:
        """The inverse Hessian at :meth:`at_constant` where all rows curve alike, or above it."""
        codes = np.arange(len(self.class_weights))
        here = self.loss.curvatures(np.tile(self.constant(), (len(codes), 1)), codes)
        return self.bound(float(here.max())) if here.shape[1] == 1 else self.above()


def penalise(classes: ClassMoments, loss: Loss, alpha: float) -> PenalisedClasses:
    """The objective over the rows of class moments; one R×R float64 is held."""
    return PenalisedClasses(ridge_system(classes.moments), loss, alpha, classes.weights)


def _inverse(matrix: Float64, alpha: float, border: Float64) -> Metric:
    """g ↦ H⁻¹g of [matrix + αI, b; bᵀ, c], border (R + 1,) = [b, c], or [c] where b = 0."""
    r = len(matrix)
    whole = np.zeros((r + 1, r + 1))
    whole[:r, :r], whole[-1, -len(border) :] = matrix, border
    mirror_lower(whole)
    scale, diagonal = float(np.trace(matrix)) / r, whole.diagonal().copy()
    for share in JITTERS:
        shifted = diagonal + alpha + share * scale
        shifted[-1] = max(diagonal[-1], 1e-12 * scale)
        np.fill_diagonal(whole, shifted)
        factor, info = lapack.dpotrf(whole.T, lower=1, clean=0)
        if info == 0:
            break

    def solve(gradient: Float64) -> Float64:
        found, _ = lapack.dpotrs(factor, gradient, lower=1)
        return np.asarray(found)

    return solve
