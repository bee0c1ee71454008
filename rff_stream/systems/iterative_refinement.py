"""Exact coefficients from rounded sums: a few steps of preconditioned conjugate gradients.

Moments in float32 sums know G to about 2·10⁻⁷ n. Their factor at max(α, η) is still an
excellent preconditioner of the exact system, whose products cost n·R work each, not n·R².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Float64
from rff_stream.errors import warn
from rff_stream.systems.spectrum import Spectrum

ENOUGH = 1e-4
"""Error over the size of the fitted function: four digits, which no noise lets anybody see."""

EXACT = float(np.finfo(np.float64).eps)
"""Error below which a step, which is a pass, changes nothing."""

Product = Callable[[Float64], Float64]
"""Z̃ᵀWZ̃ v (R, T) of directions v (R, T), from rows: one pass."""


@dataclass(frozen=True, slots=True, eq=False)
class Refined:
    """Coefficients, and how near they are to those of the exact system."""

    coef: Float64  # (R, T): β
    error: Float64
    """(T,), error of the fitted values over their size, root mean squares with the penalty, as the
    last residual and the preconditioner tell it: √(rᵀP⁻¹r · max(α, η)/α) / √(cᵀγ)."""
    steps: int  # conjugate-gradient steps that were made

    def warn_if_short(self, targets: tuple[str, ...]) -> None:
        """Say which error was reached where it is above 1e-4, and how many steps more may do."""
        short = np.flatnonzero(~(self.error <= ENOUGH))
        if len(short):
            names = ", ".join(targets[t] for t in short)
            more = f"refine={2 * self.steps}, " if self.steps < len(self.coef) else ""
            warn(
                f"refine={self.steps} left an error of {self.error[short].max():.2g} of the fitted "
                f"function of {names}; {ENOUGH:g} is enough. Use {more}"
                'sums="float64", or a larger alpha.'
            )


def refine(
    spectrum: Spectrum,
    alpha: Float64,
    coef: Float64,
    gradient: Float64,
    product: Product,
    steps: int,
) -> Refined:
    """Coefficients β (R, T) after ``steps`` conjugate-gradient steps on the exact system.

    Fewer are made if the errors are below the rounding of float64 before, and at most R.

    Solves (S^½Z̃ᵀWZ̃S^½ + αI) γ = S^½Z̃ᵀWỹ, β = S^½γ, from ``coef`` with its exact ``gradient``
    Z̃ᵀW(ỹ − Z̃β), preconditioned by the same system as the moments know it, at max(α, η); α may be
    below η. Each step is one pass, and takes the error down by about √(κ) of α/max(α, η).

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

    scale = np.maximum(alpha, spectrum.eta) / np.maximum(alpha, np.finfo(np.float64).tiny)
    given = basis @ spectrum.rhs  # c: cᵀγ is the size of the function squared

    def error(size: Float64, gamma: Float64) -> Float64:
        fitted, left = _dot(given, gamma), np.sqrt(size * scale)
        return np.divide(left, np.sqrt(np.abs(fitted)), out=np.zeros_like(left), where=fitted != 0)

    gamma = coef / root
    residual = root * gradient - alpha * gamma
    z = precondition(residual)
    direction, size, made = z, _dot(residual, z), 0
    while made < min(steps, len(coef)) and (error(size, gamma) > EXACT).any():
        applied = root * product(root * direction) + alpha * direction
        step = _ratio(size, _dot(direction, applied))
        gamma = gamma + step * direction
        residual = residual - step * applied
        z = precondition(residual)
        before, size = size, _dot(residual, z)
        direction = z + _ratio(size, before) * direction
        made += 1
    return Refined(np.asarray(root * gamma), error(size, gamma), made)


def _dot(a: Float64, b: Float64) -> Float64:
    """Inner products (T,) of columns."""
    return np.asarray(np.einsum("rt,rt->t", a, b))


def _ratio(a: Float64, b: Float64) -> Float64:
    """a/b, and 0 where a target has converged exactly."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)
