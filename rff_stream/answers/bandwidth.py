"""Bandwidths of a density: rules of thumb, and least-squares cross-validation.

CV(h) = ∫p̂² − 2 Σᵢ wᵢ p̂₋ᵢ(xᵢ)/Σw estimates ∫(p̂ − p)² up to a constant. By Parseval both
terms are integrals of the empirical characteristic function |φ(ω)|² = C² + S², which a mean
feature vector holds at its frequencies: so every h is scored after the one read. In many
dimensions importance weights degenerate, and rows in memory are scored exactly.

A bandwidth here is a factor of the inputs' scales.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from rff_stream._array import Array, Float64
from rff_stream.features.fourier import FourierFeatures
from rff_stream.kernels import Kernel
from rff_stream.kernels.base import log_integral
from rff_stream.moments import Moments
from rff_stream.moments.copies import HeldOut

MOST_INPUTS = 4
"""Largest d for which bandwidths are scored by importance weights."""

N_SCALES = 6
"""Number of bandwidths in the mixture of spectral measures: then no weight is above 6."""

Z_TINY = 1e-300  # so that rows that are all copies of one divide 0 by this, not by 0


def scott_factor(n: float, d: int) -> float:
    """n^(−1/(d + 4)): of standard deviations (Scott 1992, eq. 6.44)."""
    return float(n ** (-1 / (d + 4)))


def silverman_factor(n: float, d: int) -> float:
    """(n(d + 2)/4)^(−1/(d + 4)): of standard deviations (Silverman 1986, eq. 4.14)."""
    return float((n * (d + 2) / 4) ** (-1 / (d + 4)))


def effective_size(x: Array, w: Float64, n_rows: int) -> float:
    """Kish's n = (Σw)²/Σw² of all rows, copies as one row, from some of them (m, d), (m,)."""
    held = HeldOut.of(x, w, w, n_rows).weight
    share = float(w.sum()) ** 2 / (len(w) * float((held * w).sum()))
    return max(n_rows * share, 1.0)


def _share_of_pairs(moments: Moments) -> float:
    """1/n: share of all pairs of rows, by weight, that are one row or copies of one."""
    rows, d = moments.sample.rows, len(moments.row.inputs)
    w = rows[:, -1]
    held = HeldOut.of(rows[:, :d], w, w, moments.n, moments.sample.keys)
    if held.number is None:
        return moments.squared_weight / moments.weight**2
    return float(held.weight @ w / w.sum()) / moments.weight


class MultiScale:
    """Frequencies of several bandwidths at once, and the weights that make any one of them.

    An equal mixture p₀ of the spectral measures of ``N_SCALES`` bandwidths between the
    smallest and the largest of increasing ``factors`` (F,), in units of the map's ``scale``: the
    weights p_h(ω)/p₀(ω) of any h between stay below 6 (balance heuristic, Veach & Guibas 1995).
    """

    def __init__(self, kernel: Kernel, factors: Array, d: int) -> None:
        self.kernel, self.factors, self.d = kernel, np.asarray(factors, np.float64), d
        self._scales = np.geomspace(self.factors[0], self.factors[-1], N_SCALES)

    def features(
        self, scale: Array, n_components: int, origin: Array, seed: int, dtype: str
    ) -> FourierFeatures:
        """A map of R = ``n_components`` columns, each scale with frequencies of its own.

        They fill the measure evenly where the kernel knows its quantiles, or are orthogonal blocks.
        """
        kernel = self.kernel.with_length_scale(None)
        unit = FourierFeatures.sample(
            kernel, self.d, n_components, paired=n_components % 2 == 0,
            frequencies="sobol" if kernel.uniforms(1) else None,
            origin=origin, rng=np.random.default_rng(seed), dtype=dtype,  # type: ignore[arg-type]
        )  # fmt: skip
        omega = unit.frequencies / self._scales[self._turns(len(unit.frequencies)), None]
        return FourierFeatures(
            omega, unit.phases, unit.origin, np.asarray(scale, np.float64), unit.variance,
            unit.dtype, unit.kernel,
        )  # fmt: skip

    def importance(self, features: FourierFeatures, factor: float) -> Float64:
        """p_h(ω)/p₀(ω) of each column (R,)."""
        weights = np.exp(self._log_density(features, factor) - self._log_mixture(features))
        return np.repeat(weights, 2 if features.paired else 1)

    def scores(self, features: FourierFeatures, moments: Moments) -> Float64:
        """CV (F,) of every factor, in units of 1/(map's scale)ᵈ."""
        z = moments.feature_mean()  # phases: E 2z̄² over b is |φ(ω)|² too
        power = z[0::2] ** 2 + z[1::2] ** 2 if features.paired else 2 * z**2
        share = _share_of_pairs(moments)
        held_out = (power - share) / max(1 - share, Z_TINY)
        mixture = self._log_mixture(features)
        found = []
        for factor in self.factors:
            peak = self._at(factor).log_spectral_density(np.zeros((1, self.d)))
            log_ratio = self._log_density(features, factor) - peak  # K̂(ω)
            terms = power * np.exp(2 * log_ratio - mixture)
            terms -= 2 * held_out * np.exp(log_ratio - mixture)
            found.append(terms.mean() / (2 * math.pi) ** self.d)
        return np.array(found)

    def _at(self, factor: float) -> Kernel:
        return self.kernel.with_length_scale(float(factor))

    def _log_density(self, features: FourierFeatures, factor: float) -> Float64:
        return self._at(factor).log_spectral_density(features.frequencies)

    def _log_mixture(self, features: FourierFeatures) -> Float64:
        every = np.stack([self._log_density(features, scale) for scale in self._scales])
        drawn = np.bincount(self._turns(every.shape[1]), minlength=N_SCALES)
        return np.asarray(logsumexp(every, axis=0, b=drawn[:, None] / drawn.sum()))

    def _turns(self, count: int) -> Array:
        """Which scale each frequency is drawn at: the first, the next, … one after the other."""
        return np.arange(count) * N_SCALES // count


def exact_scores(x: Float64, w: Float64, kernel: Kernel, factors: Sequence[float]) -> Float64:
    """CV (F,) of rows x (m, d) with every factor as length-scale, relative to the first's 1/∫κ.

    m² kernel values for each factor.
    """
    d, weight = x.shape[1], w / w.sum()
    share = float(weight @ weight)
    unit = log_integral(kernel.with_length_scale(float(factors[0])), d)
    found = []
    for factor in factors:
        at = kernel.with_length_scale(float(factor))
        wide = at.self_convolution(d)
        square = weight @ wide(x, x) @ weight * math.exp(unit - log_integral(wide, d))
        mean = (weight @ at(x, x) @ weight / at.variance - share) / max(1 - share, Z_TINY)
        scale = math.exp(unit - log_integral(at, d) + math.log(at.variance))
        found.append(square - 2 * mean * scale)
    return np.array(found)


def best_factor(factors: Array, scores: Array) -> tuple[float, bool]:
    """The largest factor at a local minimum, and whether there is one inside the range.

    The largest: smaller minima come from rows that repeat (Hall & Marron 1991).
    """
    scores = np.asarray(scores)
    inner = (scores[1:-1] < scores[:-2]) & (scores[1:-1] <= scores[2:])
    places = np.flatnonzero(inner) + 1
    if len(places):
        return float(factors[places[-1]]), True
    return float(factors[int(np.argmin(scores))]), False
