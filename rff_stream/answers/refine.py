"""Exact coefficients from rounded sums: a few steps of preconditioned conjugate gradients.

Moments in float32 sums know G to about 2·10⁻⁷ n. Their factor at max(α, η) is still an
excellent preconditioner of the exact system, whose products cost n·R work each, not n·R².
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rff_stream._array import Float64
from rff_stream.answers.spectrum import Spectrum

__all__ = ["Product", "refined"]

Product = Callable[[Float64], Float64]
"""Z̃ᵀWZ̃ v (R, T) of directions v (R, T), from rows: one pass."""


def refined(
    spectrum: Spectrum,
    alpha: Float64,
    coef: Float64,
    gradient: Float64,
    product: Product,
    steps: int,
) -> Float64:
    """Coefficients β (R, T) after ``steps`` conjugate-gradient steps on the exact system.

    Solves (S^½Z̃ᵀWZ̃S^½ + αI) γ = S^½Z̃ᵀWỹ, β = S^½γ, preconditioned by the same system as
    the moments know it, at max(α, η).

    Parameters
    ----------
    spectrum : Spectrum
        Of the moments.
    alpha : (T,) float64
        The penalty wanted; may be below η, the rounding of the moments.
    coef : (R, T) float64
        Where to start.
    gradient : (R, T) float64
        Z̃ᵀW(ỹ − Z̃β) at ``coef``, exactly.
    product : callable
        One pass over the rows.
    steps : int
        Products to make; each takes the error down by about √(κ) of α/max(α, η).

    Returns
    -------
    (R, T) float64

    References
    ----------
    Rudi, Carratino & Rosasco 2017 (FALKON), for the preconditioner.
    """
    spectrum = spectrum.complete()
    root = spectrum.system.root_prior[:, None]
    basis = spectrum.rotation / root  # U: G = UΛUᵀ
    shifted = np.maximum(spectrum.eigenvalues[:, None], 0) + np.maximum(alpha, spectrum.eta)

    def precondition(r: Float64) -> Float64:
        return np.asarray(basis @ ((basis.T @ r) / shifted))

    gamma = coef / root
    residual = root * gradient - alpha * gamma
    z = precondition(residual)
    direction, size = z, _dot(residual, z)
    for _ in range(steps):
        applied = root * product(root * direction) + alpha * direction
        step = _ratio(size, _dot(direction, applied))
        gamma = gamma + step * direction
        residual = residual - step * applied
        z = precondition(residual)
        before, size = size, _dot(residual, z)
        direction = z + _ratio(size, before) * direction
    return np.asarray(root * gamma)


def _dot(a: Float64, b: Float64) -> Float64:
    """Inner products (T,) of columns."""
    return np.asarray(np.einsum("rt,rt->t", a, b))


def _ratio(a: Float64, b: Float64) -> Float64:
    """a/b, and 0 where a target has converged exactly."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)
