"""Ridge regression on random features, from moments alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from rff_stream._array import Array, Float64
from rff_stream.moments import Moments
from rff_stream.systems.normal_equations import System, mirror_lower, ridge_system
from rff_stream.systems.spectrum import (
    Decomposition,
    Floor,
    alpha_of_targets,
    decompose,
    raised_to_floor,
    rounding_floor,
)

MANY_ALPHAS = 8
"""Number of distinct α above which one eigen-decomposition is cheaper than a factor for each."""

VERY_FEW_ROWS = 0.25
"""Largest n/R for which one decomposition of the rank of the rows is cheaper than three factors
of R×R."""


@dataclass(frozen=True, slots=True, eq=False)
class Ridge:
    """A linear model of raw feature columns: y ≈ intercept + Z coef."""

    coef: Float64  # (R, T), β, in units of y
    intercept: Float64  # (T,), μ, in units of y; zeros where none was fitted
    alpha: Float64  # (T,), the penalty used, in units of w; at least η, or 0
    df: Float64  # (T,), effective degrees of freedom, 1 + tr G(G + αI)⁻¹; no 1 without an intercept
    eta: float | None
    """η, the rounding error in the sums; None if a test showed η ≤ α without computing η."""

    def predict(self, Z: Array) -> Float64:
        """Predicted y (n, T) of feature rows Z (n, R)."""
        return np.asarray(Z @ self.coef + self.intercept)


def ridge(
    moments: Moments,
    alpha: Array | float = 1.0,
    *,
    fit_intercept: bool = True,
    floor: Floor = "raise_alpha",
) -> Ridge:
    """Ridge regression of every target on the feature columns, from moments alone.

    Minimises Σ w (y − μ − zβ)² + α βᵀ diag(1/s) β, so that ``alpha`` is on the scale of
    ``sklearn.kernel_ridge.KernelRidge`` with K = Z diag(s) Zᵀ.

    Parameters
    ----------
    moments : Moments
        Order 2, at least one row and one target.
    alpha : float or (T,) array
        Penalty α ≥ 0, in units of w. 0 is least squares, and of all its solutions that of least
        βᵀ diag(1/s) β, the limit α → 0: directions in which G is rounding are left out.
    fit_intercept : bool
        Whether to fit an unpenalised μ; the same moments are enough for both.
    floor : {"raise_alpha", "raise_silently", "refuse"}
        What to do with α below η, the rounding error in the sums. Use "refuse" if a model with
        another α than the given one is of no use.

    Returns
    -------
    Ridge

    Raises
    ------
    ValueError
        If alpha is negative, not finite or has a wrong shape; if moments have no rows or targets.
    ModelError
        If α < η and floor="refuse", or if the sums are not finite.

    Notes
    -----
    R³ flops for one α (a test of the floor, a factor, its inverse for df), in place in one
    R×R float64.
    α ≥ η ⟺ λ_min(G) ≥ −α/3 ⟺ G + (α/3)I has a Cholesky factor, so eigenvalues are computed
    only if that fails, if α is near the rounding error of float64, for more than 8 distinct
    α, or for few rows (n ≤ R/4), when the work depends on the rank.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).uniform(-2, 2, (600, 1))
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(0.7), 1, 64, rng=0)
    >>> found = ridge(rs.collect(features, x, np.sin(3 * x[:, 0])), alpha=1e-3)
    >>> bool(abs(found.predict(features(x))[:, 0] - np.sin(3 * x[:, 0])).max() < 0.05)
    True
    """
    return ridge_of(ridge_system(moments, fit_intercept=fit_intercept), alpha, floor=floor)


def ridge_of(system: System, alpha: Array | float, *, floor: Floor = "raise_alpha") -> Ridge:
    """The ridge regression of a system, whose matrix it overwrites. As :func:`ridge`.

    Where the system is the row space's (:func:`~rff_stream.answers.dual.dual`), ``coef``
    holds its unknowns.
    """
    given = alpha_of_targets(alpha, system.n_targets)
    few = system.n <= VERY_FEW_ROWS * system.n_features
    if few or len(np.unique(given)) > MANY_ALPHAS or not given.all():
        return ridge_at(decompose(system), given, floor=floor)
    if not _clear_of_floor(system, float(given.min())):
        return _ridge_near_floor(system, given, floor)
    return _ridge_by_factor(system, given, None)


def ridge_at(
    spectrum: Decomposition, alpha: Array | float, *, floor: Floor = "raise_alpha"
) -> Ridge:
    """The ridge regression at α from a decomposition; 2R²T flops. As :func:`ridge` otherwise."""
    system, eta = spectrum.system, spectrum.eta
    used = alpha_of_targets(alpha, system.n_targets)
    some = used > 0
    if some.any():
        used[some] = raised_to_floor(used[some], eta, floor)
    if some.all():
        coef, df = spectrum.coef(used), spectrum.df(used)
    else:
        coef, df = spectrum.directions().least_norm(used)
    return Ridge(coef, system.intercept(coef), used, df, eta)


def _ridge_near_floor(system: System, given: Float64, floor: Floor) -> Ridge:
    """Where the test failed: eigenvalues, then the factor at α raised to η."""
    eigenvalues = linalg.eigvalsh(system.matrix, check_finite=False)
    eta = rounding_floor(eigenvalues)
    return _ridge_by_factor(system, raised_to_floor(given, eta, floor), eta)


def _ridge_by_factor(system: System, alpha: Float64, eta: float | None) -> Ridge:
    """One factor for each distinct α; ``system.matrix`` keeps only one triangle."""
    coef, df = np.empty_like(system.rhs), np.empty(system.n_targets)
    diagonal = system.matrix.diagonal().copy()
    for value in np.unique(alpha):
        chosen = alpha == value
        factor = _factor(system.matrix, diagonal + value)
        if factor is None:
            raise np.linalg.LinAlgError(
                f"G + αI is not positive definite at alpha={value:.3g}. "
                "The penalty must exceed the rounding in the sums. Use a larger alpha."
            )
        gamma, _ = lapack.dpotrs(factor, system.rhs[:, chosen], lower=1)
        coef[:, chosen] = gamma * system.root_prior[:, None]
        df[chosen] = _df_of_factor(factor, value) + float(system.fit_intercept)
    return Ridge(coef, system.intercept(coef), alpha, df, eta)


def _clear_of_floor(system: System, alpha: float) -> bool:
    """Whether α ≥ η without doubt: well above float64 rounding, and G + (α/3)I factors."""
    diagonal = system.matrix.diagonal().copy()
    rounding = system.n_features * np.finfo(np.float64).eps * diagonal.sum()
    if alpha <= rounding:
        return False
    clear = _factor(system.matrix, diagonal + alpha / 3) is not None
    mirror_lower(system.matrix)
    np.fill_diagonal(system.matrix, diagonal)
    return clear


def _factor(matrix: Float64, diagonal: Float64) -> Float64 | None:
    """Lower factor L (R, R) of G with another diagonal, or None where there is none.

    L takes the place of G's upper triangle (the lower one of its transpose, which LAPACK
    sees); the triangle below the diagonal is kept, and read again by the next call.
    """
    mirror_lower(matrix)
    np.fill_diagonal(matrix, diagonal)
    factor, info = lapack.dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    return factor if info == 0 else None


def _df_of_factor(factor: Float64, alpha: float) -> float:
    """Trace of G(G + αI)⁻¹ = R − α‖L⁻¹‖², overwriting L; R³/3 flops."""
    inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    squared = sum(float(inverse[i:, i] @ inverse[i:, i]) for i in range(len(inverse)))
    return len(inverse) - alpha * squared
