"""Integrals of kernels over all of space, in logarithms: what makes a density of a kernel.

κ(δ) = variance · ∫ p(ω) cos(ωᵀδ) dω, so ∫κ = variance · (2π)ᵈ p(0), and the Fourier
transform of the normalised kernel K = κ/∫κ is p(ω)/p(0). Logarithms, because (2π)ᵈ
overflows for d of a few hundred.
"""

from __future__ import annotations

import math

import numpy as np

from rff_stream.kernels.base import Kernel


def log_integral(kernel: Kernel, d: int) -> float:
    """log ∫κ over d inputs, in logarithms of (unit of input)ᵈ.

    Raises
    ------
    ValueError
        For a kernel without a known or finite integral: no density can be made of it.

    Examples
    --------
    >>> from rff_stream.kernels import Gaussian
    >>> round(math.exp(log_integral(Gaussian(2.0), 1)), 6)  # 2·√(2π)
    5.013257
    """
    peak = float(kernel.log_spectral_density(np.zeros((1, d)))[0])
    integral = d * math.log(2 * math.pi) + peak
    if not math.isfinite(integral):
        raise ValueError(
            f"{kernel!r} has log ∫κ = {integral} in {d} dimensions, and only a kernel with a "
            "finite integral makes a density. Use a Gaussian or a Matern kernel."
        )
    return math.log(kernel.variance) + integral


def log_integral_squared(kernel: Kernel, d: int) -> float:
    """log ∫κ² = log (κ∗κ)(0)."""
    return 2 * log_integral(kernel, d) - log_integral(kernel.self_convolution(d), d)
