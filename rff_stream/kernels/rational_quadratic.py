"""The rational quadratic kernel: Gaussians of many length-scales at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import gammaincinv, gammaln, kve, ndtri

from rff_stream._array import Float64
from rff_stream.kernels.base import LengthScale, RadialKernel, length_scale_vector, positive


@dataclass(frozen=True, slots=True)
class RationalQuadratic(RadialKernel):
    """κ(δ) = (1 + ‖δ‖²/2aℓ²)^{−a}; spectral measure: a scale mixture of Gaussians.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    mixture : float
        a > 0 (``alpha`` in scikit-learn): length-scales from short to long at once. Large a
        is the Gaussian; small a has heavy tails, for data with structure at many scales.

    Notes
    -----
    κ = E exp(−τ‖δ‖²/2ℓ²) with τ ~ Gamma(a, 1/a), so ω given τ is N(0, τ ℓ⁻² I).

    References
    ----------
    Rasmussen & Williams 2006, eq. 4.19 and 4.20.

    Examples
    --------
    >>> import numpy as np
    >>> float(RationalQuadratic(1.0)(np.array([[0.0]]), np.array([[1.0]]))[0, 0])  # 1/(1 + ½)
    0.6666666666666666
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    mixture: float = 1.0

    def __post_init__(self) -> None:
        RadialKernel.__post_init__(self)
        object.__setattr__(self, "mixture", positive("mixture", self.mixture))

    def unit_radial(self, squared: Float64) -> Float64:
        return np.asarray(np.exp(-self.mixture * np.log1p(squared / (2 * self.mixture))))

    def unit_decay(self, squared: Float64) -> Float64:
        return squared * self.unit_radial(squared) / (1 + squared / (2 * self.mixture))

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ N(0, τ), τ ~ Gamma(a, 1/a)."""
        return self._mix(rng.standard_normal((n, d)), rng)

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d); ℓ divides the normals first, so that maps of sums keep their bits."""
        return self._mix(rng.standard_normal((n, d)) / length_scale_vector(self, d), rng)

    def _mix(self, normal: Float64, rng: Generator) -> Float64:
        return normal * np.sqrt(rng.gamma(self.mixture, 1 / self.mixture, (len(normal), 1)))

    def uniforms(self, d: int) -> int:
        return d + 1

    def unit_quantiles(self, u: Float64, d: int) -> Float64:
        """ω (n, d) at quantiles u (n, d + 1): of d normals, then of τ."""
        return np.asarray(
            ndtri(u[:, :d]) * np.sqrt(gammaincinv(self.mixture, u[:, d:]) / self.mixture)
        )

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        """∫ N(ω; 0, τ) Gamma(τ; a, 1/a) dτ; infinite at 0 where a ≤ d/2."""
        a, half = self.mixture, frequencies.shape[1] / 2
        order, r = a - half, np.sqrt((frequencies**2).sum(axis=1))
        constant = a * math.log(a) - gammaln(a) - half * math.log(2 * math.pi)
        at_zero = gammaln(order) - order * math.log(a) if order > 0 else math.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            bessel = np.log(kve(order, math.sqrt(2 * a) * r)) - math.sqrt(2 * a) * r
            apart = math.log(2) + order * np.log(r / math.sqrt(2 * a)) + bessel
        return np.asarray(constant + np.where(r > 0, apart, at_zero))

    def unit_second_moment(self, d: int) -> float:
        return d
