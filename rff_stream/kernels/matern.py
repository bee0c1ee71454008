"""The Matérn kernel: from exp(−‖δ‖/ℓ) to the Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import gammaincinv, gammaln, kve, ndtri

from rff_stream._array import Float64
from rff_stream.kernels.base import LengthScale, RadialKernel, length_scale_vector, positive

SMALLEST_MIXING = 1e-30
"""For very small ν the chi-square underflows. This floor keeps ω finite; above 1e15 the phase
ωᵀδ is random for every δ that differs from 0."""

LARGEST_BESSEL = 20.0
"""For larger ν, tᵛ Kᵥ(t) overflows, and the mixture of Gaussians is summed instead."""

TINY = 1e-150
"""A smaller distance is 0."""


@dataclass(frozen=True, slots=True)
class Matern(RadialKernel):
    """κ(δ) = 2^{1−ν}/Γ(ν) tᵛ Kᵥ(t), t = √(2ν) ‖δ‖/ℓ; spectral measure: multivariate t, 2ν dof.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    nu : float
        ν > 0, the smoothness: functions have ⌈ν⌉ − 1 derivatives. 0.5 is exp(−‖δ‖/ℓ), 1.5
        the usual choice; above about 10 a Gaussian is as good and cheaper.

    Raises
    ------
    ValueError
        If ν is infinite: that is the Gaussian kernel.

    Notes
    -----
    The spectral measure is that of z/√w with z ~ N(0, ℓ⁻² I) and w ~ χ²(2ν)/2ν: a
    multivariate t of scale 1/ℓ. So κ is a mixture of Gaussians, E exp(−‖δ‖²/2wℓ²).

    References
    ----------
    Rasmussen & Williams 2006, eq. 4.14 (κ), 4.15 (its spectral density), 4.16 and
    4.17 (half-integer ν).

    Examples
    --------
    >>> import numpy as np
    >>> round(float(Matern(1.0, nu=0.5)(np.array([[0.0]]), np.array([[1.0]]))[0, 0]), 12)  # exp(−1)
    0.367879441171
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    nu: float = 1.5

    def __post_init__(self) -> None:
        RadialKernel.__post_init__(self)
        if self.nu == math.inf:
            raise ValueError("nu=inf is the Gaussian kernel. Use Gaussian(length_scale).")
        object.__setattr__(self, "nu", positive("nu", self.nu))

    def unit_radial(self, squared: Float64) -> Float64:
        """Closed forms for ν = 1/2, 3/2, 5/2 (Rasmussen & Williams 2006, eq. 4.17)."""
        nu = self.nu
        if nu in (0.5, 1.5, 2.5):
            values = np.array(squared)
            self.write_radial(values, np.empty_like(values))
            return values
        distance = np.sqrt(squared)
        t = math.sqrt(2 * nu) * distance
        return _bessel(t, nu) if nu <= LARGEST_BESSEL else _mixture(distance, nu)

    def write_radial(self, squared: Float64, spare: Float64) -> None:
        nu = self.nu
        if nu not in (0.5, 1.5, 2.5):
            return RadialKernel.write_radial(self, squared, spare)
        t = np.sqrt(squared, out=squared)
        t *= -math.sqrt(2 * nu)  # −t: one sweep less
        if nu == 0.5:
            np.exp(t, out=squared)
            return None
        np.exp(t, out=spare)
        if nu == 1.5:
            np.subtract(1, t, out=t)
        else:
            t[...] = 1 - t + t**2 / 3
        t *= spare
        return None

    def unit_decay(self, squared: Float64) -> Float64:
        """2^{1−ν}/Γ(ν) t^{ν+1} Kᵥ₋₁(t); closed for ν = 1/2, 3/2, 5/2."""
        t, nu = np.sqrt(2 * self.nu * squared), self.nu
        if nu == 0.5:
            return np.asarray(t * np.exp(-t))
        if nu == 1.5:
            return np.asarray(t**2 * np.exp(-t))
        if nu == 2.5:
            return np.asarray(t**2 * (1 + t) / 3 * np.exp(-t))
        if nu > LARGEST_BESSEL:
            return RadialKernel.unit_decay(self, squared)
        log = (1 - nu) * math.log(2) - gammaln(nu)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            decay = np.exp(log + (nu + 1) * np.log(t) + np.log(kve(abs(nu - 1), t)) - t)
        return np.asarray(
            np.nan_to_num(decay, nan=0.0, posinf=0.0)
        )  # t is too small for K: the limit is 0

    def write_unit(self, squared: Float64, value: Float64, slope: Float64) -> None:
        """With one exponential for both, for ν = 1/2, 3/2, 5/2."""
        nu = self.nu
        if nu not in (0.5, 1.5, 2.5):
            return RadialKernel.write_unit(self, squared, value, slope)
        t = np.sqrt(np.multiply(squared, 2 * nu, out=squared), out=squared)
        np.exp(np.negative(t, out=slope), out=slope)  # e⁻ᵗ
        if nu == 0.5:
            value[...] = slope
            np.divide(slope, np.maximum(t, TINY, out=t), out=slope)
            slope *= -0.5
            slope[t == TINY] = 0
            return None
        np.add(t, 1, out=value)
        if nu == 2.5:
            t *= t
            t /= 3
            t += value
            t *= slope  # κ
            slope *= value
            value[...] = t
        else:
            value *= slope
        slope *= -1.5 if nu == 1.5 else -5 / 6
        return None

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ multivariate t with 2ν degrees of freedom."""
        return self._mix(rng.standard_normal((n, d)), rng)

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d); ℓ divides the normals first, so that maps of sums keep their bits."""
        return self._mix(rng.standard_normal((n, d)) / length_scale_vector(self, d), rng)

    def _mix(self, normal: Float64, rng: Generator) -> Float64:
        mixing = rng.chisquare(2 * self.nu, (len(normal), 1)) / (2 * self.nu)
        return normal / np.sqrt(np.maximum(mixing, SMALLEST_MIXING))

    def uniforms(self, d: int) -> int:
        return d + 1

    def unit_quantiles(self, u: Float64, d: int) -> Float64:
        """ω (n, d) at quantiles u (n, d + 1): of d normals, then of the chi-square."""
        mixing = gammaincinv(self.nu, u[:, d:]) / self.nu
        return np.asarray(ndtri(u[:, :d]) / np.sqrt(np.maximum(mixing, SMALLEST_MIXING)))

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        """Multivariate t with 2ν degrees of freedom."""
        nu, half = self.nu, frequencies.shape[1] / 2
        constant = gammaln(nu + half) - gammaln(nu) - half * math.log(2 * math.pi * nu)
        power = (frequencies**2).sum(axis=1)
        return np.asarray(constant - (nu + half) * np.log1p(power / (2 * nu)))

    def unit_second_moment(self, d: int) -> float:
        return d * self.nu / (self.nu - 1) if self.nu > 1 else math.inf

    def self_convolution(self, d: int) -> Matern:
        nu = 2 * self.nu + d / 2
        return Matern(tuple(length_scale_vector(self, d) * math.sqrt(nu / self.nu)), nu=nu)


def _bessel(t: Float64, nu: float) -> Float64:
    """2^{1−ν}/Γ(ν) tᵛ Kᵥ(t), by logarithms; 1 where t is too small for Kᵥ (1 − κ < ε)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bessel = kve(nu, t)  # eᵗ Kᵥ(t)
        log = (1 - nu) * math.log(2) - gammaln(nu) + nu * np.log(t) + np.log(bessel) - t
    return np.where(np.isposinf(bessel), 1.0, np.minimum(np.exp(log), 1.0))


def _mixture(distance: Float64, nu: float) -> Float64:
    """E exp(−‖δ‖²/2w), w ~ Gamma(ν, 1/ν), for large ν, where tᵛ Kᵥ(t) overflows.

    The trapezoidal rule in log w, 41 nodes over ±10 standard deviations: its error decays
    like exp(−2π²/h²) with the step h = 1/2, so only rounding is left.
    """
    log_w = np.linspace(-10, 10, 41) / math.sqrt(nu)
    weights = np.exp(nu * (log_w - np.expm1(log_w)))
    squared = distance**2
    value, total = np.zeros_like(squared), 0.0
    for weight, w in zip(weights, np.exp(log_w), strict=True):
        value += weight * np.exp(squared * (-0.5 / w))
        total += weight  # in the same order: so κ(0) is 1 exactly
    return value / total
