"""Spectral densities: what a kernel integrates to, in logarithms.

κ(δ) = variance · ∫ p(ω) cos(ωᵀδ) dω, so ∫κ = variance · (2π)ᵈ p(0), and the Fourier
transform of the normalised kernel K = κ/∫κ is p(ω)/p(0). Logarithms, because (2π)ᵈ
overflows for d of a few hundred.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, kve, logsumexp

from rff_stream._array import Array, Float64
from rff_stream.kernels.base import Kernel, LengthScale, length_scale_vector
from rff_stream.kernels.basic import Cauchy, Gaussian, Laplacian
from rff_stream.kernels.composed import Sum
from rff_stream.kernels.mixtures import Matern, RationalQuadratic

__all__ = ["log_integral", "log_integral_squared", "log_spectral_density", "self_convolution"]

LOG_2PI = math.log(2 * math.pi)


def log_spectral_density(kernel: Kernel, omega: Array) -> Float64:
    """log p(ω) (m,) of frequencies ω (m, d), in rad per unit of input.

    Raises
    ------
    ValueError
        For a kernel whose spectral density is not known. A kernel of one's own has it
        as a method ``log_spectral_density(omega)``.
    """
    own = getattr(kernel, "log_spectral_density", None)
    if own is not None:
        return np.asarray(own(omega), np.float64)
    for kind, unit in _DENSITIES.items():
        if isinstance(kernel, kind):
            scale = length_scale_vector(kernel, omega.shape[1])
            return np.asarray(unit(kernel, omega * scale) + np.log(scale).sum())
    raise ValueError(
        f"{kernel!r} has no spectral density that is known, and a density needs the kernel's "
        "integral (2π)ᵈ p(0). Use Gaussian, Laplacian, Cauchy, Matern, RationalQuadratic or a sum "
        "of them, or give the kernel a method log_spectral_density(omega)."
    )


def log_integral(kernel: Kernel, d: int) -> float:
    """log ∫κ over d inputs, in logarithms of (unit of input)ᵈ.

    Raises
    ------
    ValueError
        For a kernel without a known or finite integral: no density can be made of it.

    Examples
    --------
    >>> round(math.exp(log_integral(Gaussian(2.0), 1)), 6)  # 2·√(2π)
    5.013257
    """
    found = d * LOG_2PI + float(log_spectral_density(kernel, np.zeros((1, d)))[0])
    if not math.isfinite(found):
        raise ValueError(
            f"{kernel!r} has log ∫κ = {found} in {d} dimensions, and only a kernel with a finite "
            "integral makes a density. Use a Gaussian or a Matern kernel."
        )
    return math.log(kernel.variance) + found


def log_integral_squared(kernel: Kernel, d: int) -> float:
    """log ∫κ² = log (κ∗κ)(0)."""
    return 2 * log_integral(kernel, d) - log_integral(self_convolution(kernel, d), d)


def self_convolution(kernel: Kernel, d: int) -> Kernel:
    """The kernel of variance 1 that K∗K is proportional to: its spectral density is ∝ p².

    Raises
    ------
    ValueError
        For a kernel of another kind than Gaussian, Laplacian, Cauchy and Matern.
    """
    scale = length_scale_vector(kernel, d)
    if isinstance(kernel, Gaussian):
        return Gaussian(tuple(math.sqrt(2) * scale))
    if isinstance(kernel, Cauchy):
        return Cauchy(tuple(2 * scale))
    if isinstance(kernel, Laplacian):
        return _SmoothLaplacian(tuple(scale.tolist()))
    if isinstance(kernel, Matern):
        nu = 2 * kernel.nu + d / 2
        return Matern(tuple(scale * math.sqrt(nu / kernel.nu)), nu=nu)
    raise ValueError(
        f"{kernel!r} has no convolution with itself that is known. Use Gaussian, Laplacian, "
        "Cauchy or Matern."
    )


@dataclass(frozen=True, slots=True)
class _SmoothLaplacian:
    """κ(δ) = Πⱼ (1 + |δⱼ|/ℓⱼ) exp(−|δⱼ|/ℓⱼ): a Laplacian convolved with itself."""

    length_scale: LengthScale
    variance: float = 1.0
    isotropic: bool = False

    def __call__(self, X: Array, Y: Array) -> Float64:
        found = np.ones((len(X), len(Y)))
        for x, y, scale in zip(X.T, Y.T, length_scale_vector(self, X.shape[1]), strict=True):
            t = np.abs(x[:, None] - y) / scale
            found *= (1 + t) * np.exp(-t)
        return found

    def log_spectral_density(self, omega: Array) -> Float64:
        """log Πⱼ (2ℓⱼ/π)/(1 + ℓⱼ²ωⱼ²)²."""
        scale = length_scale_vector(self, omega.shape[1])
        return np.asarray((np.log(2 * scale / np.pi) - 2 * np.log1p((omega * scale) ** 2)).sum(1))

    def sample_frequencies(self, n: int, d: int, rng: Any) -> Float64:
        raise NotImplementedError("This kernel is only ever evaluated.")

    def with_length_scale(self, length_scale: Any) -> _SmoothLaplacian:
        return _SmoothLaplacian(length_scale)

    def spec(self) -> dict[str, Any]:
        return {"kernel": "smooth_laplacian", "length_scale": self.length_scale}


def _gaussian(kernel: Any, omega: Array) -> Float64:
    return np.asarray(-0.5 * ((omega**2).sum(axis=1) + omega.shape[1] * LOG_2PI))


def _laplacian(kernel: Any, omega: Array) -> Float64:
    return np.asarray(-(np.log1p(omega**2) + math.log(math.pi)).sum(axis=1))


def _cauchy(kernel: Any, omega: Array) -> Float64:
    return np.asarray(-(np.abs(omega) + math.log(2)).sum(axis=1))


def _matern(kernel: Matern, omega: Array) -> Float64:
    """Multivariate t with 2ν degrees of freedom."""
    nu, half = kernel.nu, omega.shape[1] / 2
    constant = gammaln(nu + half) - gammaln(nu) - half * math.log(2 * math.pi * nu)
    return np.asarray(constant - (nu + half) * np.log1p((omega**2).sum(axis=1) / (2 * nu)))


def _rational_quadratic(kernel: RationalQuadratic, omega: Array) -> Float64:
    """∫ N(ω; 0, τ) Gamma(τ; a, 1/a) dτ; infinite at 0 where a ≤ d/2."""
    a, half = kernel.mixture, omega.shape[1] / 2
    order, r = a - half, np.sqrt((omega**2).sum(axis=1))
    constant = a * math.log(a) - gammaln(a) - half * LOG_2PI
    at_zero = gammaln(order) - order * math.log(a) if order > 0 else math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        bessel = np.log(kve(order, math.sqrt(2 * a) * r)) - math.sqrt(2 * a) * r
        found = math.log(2) + order * np.log(r / math.sqrt(2 * a)) + bessel
    return np.asarray(constant + np.where(r > 0, found, at_zero))


def _sum(kernel: Sum, omega: Array) -> Float64:
    """A mixture with the variances as weights."""
    every = [log_spectral_density(part, omega) for part in kernel.parts]
    share = [part.variance / kernel.variance for part in kernel.parts]
    return np.asarray(logsumexp(every, axis=0, b=np.array(share)[:, None]))


_DENSITIES: dict[type[Any], Callable[[Any, Array], Float64]] = {
    Gaussian: _gaussian,
    Laplacian: _laplacian,
    Cauchy: _cauchy,
    Matern: _matern,
    RationalQuadratic: _rational_quadratic,
    Sum: _sum,
}
"""log p(ω) at ℓ = 1."""
