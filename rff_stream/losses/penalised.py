"""Σ w ℓ(f, c) + (α/2)‖γ‖² over linear scores f = z̃γ + m, in the space of the one pass.

z̃ = (z − z̄)√s: the penalty is on γ alone, m is free. Second moments of the one pass bound
every Hessian, by κG + α; a pass that sums weighted second moments gives the Hessian itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from rff_stream._array import Array, Float64
from rff_stream.losses.classification import Loss, RowLoss
from rff_stream.losses.descent import Metric, Point
from rff_stream.moments import Moments
from rff_stream.moments.class_moments import ClassMoments
from rff_stream.systems.normal_equations import System, ridge_system, scatter_about

RAREST = 1e-12
"""Initial share of a class that has no rows (in a fold)."""

SAFE_SINGLE = 8 * float(np.finfo(np.float32).eps)
"""α relative to the size of κG from which a factor in float32 guides the steps as well as
float64."""

STIFF = 5e4
"""Largest κΣw/α for which the steps of one score need no G: they need about ten more products
with the rows, each of which costs far less than the R² per row of G."""

LARGEST = 0.05
"""Assumed share of the largest eigenvalue in the trace of G, if G was not summed."""

JITTERS = (0.0, 1e-7, 1e-6, 1e-5, 1e-4)
"""Shares of the mean diagonal that are added if rounding requires it: the factor only guides the
steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Penalised:
    """The objective of one loss and penalty over the rows that moments describe."""

    system: System  # G of the rows; C and scatter of their targets are not looked at
    loss: RowLoss
    alpha: float
    """Penalty on the scale of ``1/C`` of ``sklearn.linear_model.LogisticRegression`` and of
    ``sklearn.svm`` for features times √s."""

    def bound(self, kappa: float, dtype: Any = np.float64) -> Metric:
        """(κG + αI)⁻¹ and 1/(κΣw); in float32, where asked, if α is well above its rounding.

        Where G was not summed a multiple of I stands for it.
        """
        matrix, weight = self.system.matrix, kappa * self.system.weight
        if not matrix.size:
            size = LARGEST * weight + self.alpha
            return lambda g: np.concatenate([g[:-1] / size, g[-1:] / weight])
        single = dtype == np.float32 and self.alpha > SAFE_SINGLE * kappa * linalg.norm(matrix)
        solve = _inverse(matrix * kappa, self.alpha, np.float32 if single else np.float64)

        def metric(gradient: Float64) -> Float64:
            return np.concatenate([solve(gradient[:-1]), gradient[-1:] / weight])

        return metric

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
        return _inverse(self.curvature(moments), self.alpha, np.float64, bordered=True)

    def curvature(self, moments: Moments) -> Float64:
        """Σ w φφᵀ (R + 1, R + 1) of φ = [z̃, 1], from moments of rows weighted by w."""
        r = self.system.n_features
        whole = np.zeros((r + 1, r + 1))
        if moments.n:
            system = self.system
            matrix, _, _ = scatter_about(moments, system.feature_mean, np.empty(0))
            matrix *= system.root_prior
            np.multiply(matrix, system.root_prior[:, None], out=whole[:r, :r])
            means = moments.feature_mean() - system.feature_mean
            whole[-1, :r], whole[-1, r] = moments.weight * means * system.root_prior, moments.weight
            whole[:r, r] = whole[-1, :r]
        return whole

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

    @property
    def guided(self) -> bool:
        """Whether G was summed."""
        return self.system.matrix.size > 0

    @property
    def stiff(self) -> bool:
        """Whether G pays as a guide of steps: several scores share it, or α is small beside it."""
        several = self.loss.n_classes > 2
        return several or self.loss.bound * self.system.weight > STIFF * self.alpha

    def at_constant(self) -> Point:
        """Objective and gradient at γ = 0 and the loss's own constant: no rows are needed."""
        F, codes = scores_at_constant(self.loss, self.class_weights)
        slope = self.loss.slope(F, codes)  # (C, K): all rows of a class are alike
        gradient = np.vstack([self.system.rhs @ slope, self.class_weights @ slope])
        value = float(self.class_weights @ self.loss.value(F, codes))
        return Point(self.constant(), value, gradient)

    def constant(self) -> Float64:
        """θ (R + 1, K) where descent starts: γ = 0 and the loss's own constant."""
        F, _ = scores_at_constant(self.loss, self.class_weights)
        return np.vstack([np.zeros((self.system.n_features, F.shape[1])), F[0]])

    def above(self) -> Metric:
        """The inverse of κG + αI, above every Hessian."""
        return self.bound(self.loss.bound)

    def curvature_at_start(self) -> float:
        """Mean of ∂²ℓ/∂f² over rows and scores at :meth:`at_constant`; always > 0."""
        here = self.loss.curvatures(*scores_at_constant(self.loss, self.class_weights))
        mean = float(self.class_weights @ here.mean(axis=1) / self.class_weights.sum())
        return max(mean, 1e-6 * self.loss.bound)

    def at_start(self) -> Metric:
        """The inverse Hessian at :meth:`at_constant` where all rows curve alike, or above it."""
        here = self.loss.curvatures(*scores_at_constant(self.loss, self.class_weights))
        return self.bound(float(here.max())) if here.shape[1] == 1 else self.above()


def scores_at_constant(loss: Loss, class_weights: Float64) -> tuple[Float64, Array]:
    """The best constant scores, for one row of each class (C, K), and the classes' numbers."""
    share = class_weights / class_weights.sum()
    constant = loss.start(np.maximum(share, RAREST))
    return np.tile(constant, (len(share), 1)), np.arange(len(share))


def loss_at_constant(loss: Loss, class_weights: Float64) -> float:
    """The mean loss of the best constant scores."""
    return float(class_weights @ loss.value(*scores_at_constant(loss, class_weights))) / float(
        class_weights.sum()
    )


def penalise(classes: ClassMoments, loss: Loss, alpha: float) -> PenalisedClasses:
    """The objective over the rows of class moments; one R×R float64 is held."""
    return PenalisedClasses(ridge_system(classes.moments), loss, alpha, classes.weights)


def _inverse(matrix: Array, alpha: float, dtype: Any, *, bordered: bool = False) -> Metric:
    """g ↦ (matrix + αI)⁻¹g of a symmetric matrix; no α for a last row, of the intercept."""
    whole, last = matrix.astype(dtype), len(matrix) - bordered
    scale, diagonal = float(np.trace(matrix[:last, :last])) / last, whole.diagonal().copy()
    potrf, potrs = lapack.get_lapack_funcs(("potrf", "potrs"), (whole,))
    for share in JITTERS:
        shifted = diagonal + (alpha + share * scale)
        if bordered:
            shifted[-1] = max(diagonal[-1], 1e-12 * scale)
        np.fill_diagonal(whole, shifted)
        factor, info = potrf(whole.T, lower=1, clean=0)
        if info == 0:
            break

    def solve(gradient: Float64) -> Float64:
        found, _ = potrs(factor, gradient.astype(dtype, copy=False), lower=1)
        return np.asarray(found, np.float64)

    return solve
