"""How far a map's kernel is from the exact one, with the bounds of theory beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import lambertw

from rff_stream._array import Array, Float64
from rff_stream.kernels.base import ExactKernel, Kernel, length_scale_vector
from rff_stream.text_formatting import format_share


@dataclass(frozen=True, slots=True)
class ApproximationError:
    """Errors of Z diag(s) Zᵀ against K on the rows given, and what theory allows."""

    mean: float  # of |K̂ − K| over all pairs, in units of the kernel
    max: float
    frobenius: float  # ‖K̂ − K‖/‖K‖
    hoeffding: float
    """The error that a given pair exceeds with probability at most 1 − ``confidence``, for
    independent terms. Infinite if the map is not random (Nyström, Hermite)."""
    uniform: float
    """The same for all pairs in the box around the rows together. Infinite also if the spectral
    measure has no second moment (Laplacian, Matérn of ν ≤ 1)."""
    confidence: float

    def __str__(self) -> str:
        return (
            f"mean {self.mean:.2g}, max {self.max:.2g}, relative Frobenius {self.frobenius:.2g}; "
            f"bounds at {format_share(self.confidence)}: {self.hoeffding:.2g} a pair, "
            f"{self.uniform:.2g} everywhere"
        )


def approximation_error(
    features: Any, kernel: ExactKernel, X: Array, *, confidence: float = 0.95
) -> ApproximationError:
    """Error of a map's kernel on all pairs of rows.

    Parameters
    ----------
    features : FeatureMap
        Made for this kernel.
    kernel : ExactKernel
    X : (n, d) array
        A few thousand rows at most: n × n values are held.
    confidence : float
        Of both bounds.

    Notes
    -----
    A map of m independent terms of range r has P(|k̂ − k| ≥ ε) ≤ 2 exp(−hε²), h = 2m/r² in
    units of the variance (Hoeffding), and P(sup |k̂ − k| ≥ ε) ≤ 2⁸ (σ diam/ε)² exp(−hε²/(d+2)),
    σ² = E‖ω‖² (Rahimi & Recht 2007, claim 1; with the exponent as Sutherland & Schneider 2015,
    propositions 1 and 2, give it). Orthogonal terms are not independent; for the Gaussian
    their variance is smaller.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence} but it must be between 0 and 1. Try 0.95.")
    X = np.asarray(X, np.float64)
    Z = np.asarray(features(X), np.float64)
    exact = kernel(X, X)
    error = (Z * features.prior()) @ Z.T - exact
    hoeffding, uniform = _bounds(features, kernel, X, 1 - confidence)
    return ApproximationError(
        mean=float(np.abs(error).mean()),
        max=float(np.abs(error).max()),
        frobenius=float(np.linalg.norm(error) / np.linalg.norm(exact)),
        hoeffding=hoeffding,
        uniform=uniform,
        confidence=confidence,
    )


def _bounds(features: Any, kernel: ExactKernel, X: Float64, risk: float) -> tuple[float, float]:
    """ε of Hoeffding and of the uniform bound at a probability of failure."""
    terms = getattr(features, "independent_terms", None)
    if terms is None:
        return math.inf, math.inf
    count, spread = terms
    rate, d = 2 * count / spread**2, X.shape[1]
    hoeffding = kernel.variance * math.sqrt(math.log(2 / risk) / rate)
    widths = np.ptp(X / length_scale_vector(kernel, d), axis=0)
    unit = kernel.with_length_scale(None)
    moment = unit.second_moment(d) if isinstance(unit, Kernel) else math.inf
    moment *= float(widths @ widths)
    if not 0 < moment < math.inf:
        return hoeffding, (hoeffding if moment == 0 else math.inf)
    # t = ε² solves (2⁸ moment/t) exp(−ct) = risk: ct eᶜᵗ = 2⁸ c moment/risk.
    c = rate / (d + 2)
    t = float(lambertw(2**8 * c * moment / risk).real) / c
    return hoeffding, kernel.variance * math.sqrt(t)
