"""Densities from one mean vector: p̂(x) = z(x)ᵀ diag(s) z̄ / ∫κ, with the errors of both.

A Parzen estimate whose cost does not grow with n. It carries two errors: that of R random
frequencies in place of the kernel, known from their own spread, and that of n rows in place
of their distribution, known from the sub-sums. What is below its own error is flagged. It is
never negative, and never below what n different rows can tell from nothing, 1/(n + 1) of a density
spread over the data's volume: that floor does not depend on R or on the bandwidth, so that an
estimate with larger errors has no better score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError
from rff_stream.features.base import FeatureMap
from rff_stream.features.fourier import FourierFeatures
from rff_stream.kernels import Kernel
from rff_stream.kernels.base import log_integral
from rff_stream.moments import Moments
from rff_stream.moments.copies import mean_copies
from rff_stream.moments.runs import FEWEST_READINGS, held_sub_sums

MASS_POINTS = 2048
"""Number of points at which the mass of an estimate is evaluated."""

FEWEST_BLOCKS = 8
"""Number of orthogonal blocks from which their spread estimates the error. With fewer, the
spread of single frequencies is used."""

ERROR_ROWS = 256
"""Sampled rows at which errors are compared."""

EVEN_BLOCKS, MUCH_LESS = 16, 0.25
"""Parts of a map whose spread estimates the error where it is so much less, squared, than that of
single frequencies: these fill their measure evenly, as Sobol points do, in each part, too. Of
independent ones it is so small by chance in one of a thousand maps (χ² of 15 degrees)."""


class DensityEstimate(NamedTuple):
    """Densities of n rows and what they know of their own error, in 1/(unit of input)ᵈ."""

    density: Float64  # (n,), p̂, and not below the floor of the data
    se_features: Float64  # (n,), standard error of R random frequencies; NaN where the map has none
    se_data: Float64
    """(n,): Standard error from the rows, which may be dependent; NaN without two sub-sums."""
    se: Float64  # (n,), their root sum of squares
    below_error: Array
    """(n,) bool: Whether p̂ is below its own error: then it cannot be distinguished from 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Density:
    """q(x) = z(x)ᵀ coef ≈ E κ(x − X), and p̂ = q/∫κ."""

    coef: Float64  # (R,), diag(s) z̄, times importance weights where there are some
    deviations: Float64  # (R, K), D, so that Σₖ (zᵀDₖ)² is the variance of q over data like these
    block: int  # columns of one independent draw; 0 where the columns are not random
    log_integral: float  # log ∫κ
    log_lowest: float
    """Log of the floor, in 1/(unit of input)ᵈ; −∞ if the spread of the data is not known."""
    log_mass: float  # log ∫p̂ where the rows are, which a score divides by

    def __call__(self, Z: Array) -> DensityEstimate:
        """Densities with their errors at feature rows Z (n, R)."""
        q, features, data, error = self.relative(Z)
        scale, lowest = math.exp(-self.log_integral), math.exp(self.log_lowest)
        return DensityEstimate(
            np.maximum(q * scale, lowest), features * scale, data * scale, error * scale, q < error
        )

    def log_density(self, Z: Array) -> Float64:
        """log of the density (n,); −∞ where it is not above 0 and the floor is not known."""
        q = (np.asarray(Z, np.float64) * self.coef).sum(axis=1)
        with np.errstate(divide="ignore"):
            return np.asarray(
                np.maximum(np.log(np.maximum(q, 0)) - self.log_integral, self.log_lowest)
            )

    def columns(self, Z: Array) -> Float64:
        """The fields of the estimate as columns (n, 5); NaN for rows of NaN."""
        found = self(Z)
        below = np.where(np.isnan(found.density), np.nan, found.below_error)
        return np.stack([*found[:4], below], axis=1)

    def relative(self, Z: Array) -> tuple[Float64, Float64, Float64, Float64]:
        """q, its error over frequencies, over data, and both (n,): in units of 1/∫κ."""
        terms = np.asarray(Z, np.float64) * self.coef
        q = terms.sum(axis=1)
        features, data = self._feature_error(terms), self._data_error(Z)
        both = np.hypot(np.nan_to_num(features), np.nan_to_num(data))
        return q, features, data, np.where(np.isnan(q), np.nan, both)

    def _feature_error(self, terms: Float64) -> Float64:
        """From the spread of what independent draws contribute to q."""
        if not self.block:
            return np.full(len(terms), np.nan)
        r, count = terms.shape[1], terms.shape[1] // self.block
        if count < 2:
            return np.full(len(terms), np.abs(self.coef).sum())  # columns lie in [−1, 1]
        whole = terms[:, : count * self.block]
        shares = sum(whole[:, i :: self.block] for i in range(self.block))
        return np.asarray(np.sqrt(r / self.block * np.var(shares, axis=1, ddof=1)))

    def _data_error(self, Z: Array) -> Float64:
        if not self.deviations.shape[1]:
            return np.full(len(Z), np.nan)
        spread = np.asarray(Z, np.float64) @ self.deviations
        return np.asarray(np.sqrt((spread**2).sum(axis=1)))


def density(
    moments: Moments, features: FeatureMap, kernel: Kernel, *, importance: Array | None = None
) -> Density:
    """The density of the rows of these moments.

    Parameters
    ----------
    moments : Moments
        Collected with ``features``. Order 1 has the sub-sums that ``se_data`` needs.
    features : FeatureMap
    kernel : Kernel
        The kernel of the map; its length-scale is the bandwidth.
    importance : (R,) array, optional
        Weights p(ω)/p₀(ω) of columns whose frequencies were drawn from another measure p₀.

    Returns
    -------
    Density

    Raises
    ------
    ModelError
        If the moments are of another map.
    ValueError
        If there are no rows, or the integral of the kernel is not known.
    """
    require_map(moments, features)
    weights = 1.0 if importance is None else np.asarray(importance, np.float64)
    scale = moments.row.prior * weights
    found = Density(
        coef=scale * moments.feature_mean(),
        deviations=np.ascontiguousarray(scale[:, None] * sub_sum_deviations(moments)),
        block=independent_columns(features),
        log_integral=log_integral(kernel, features.n_inputs),
        log_lowest=log_lowest(moments),
        log_mass=0.0,
    )
    found = replace(found, block=block_of(found, features, moments.sample.rows[:ERROR_ROWS]))
    return replace(found, log_mass=log_mass(found, features, moments))


def block_of(found: Density, features: FeatureMap, sample: Float64) -> int:
    """Columns whose spread says the error: those of a draw, or a sixteenth of an even map."""
    own = found.block
    parts = features.n_components // (own * EVEN_BLOCKS) * own if own else 0
    if parts <= own or not len(sample):
        return own
    terms = features(sample[:, : features.n_inputs]).astype(np.float64) * found.coef
    of_parts, of_draws = (
        float((replace(found, block=each)._feature_error(terms) ** 2).mean())
        for each in (parts, own)
    )
    return parts if of_parts < MUCH_LESS * of_draws else own


def log_mass(found: Density, features: FeatureMap, moments: Moments) -> float:
    """log ∫p̂ over where the rows are: what the errors of the frequencies add or take away.

    Importance sampling from the sample's rows, moved by half a standard deviation: 2,048 points,
    the same ones for every estimate of the same rows. 0 without a sample.
    """
    sample, d = moments.sample.rows, len(moments.row.inputs)
    if len(sample) < 2:
        return 0.0
    x, share = sample[:, :d] - sample[0, :d], sample[:, -1] / sample[:, -1].sum()
    width = 0.5 * np.sqrt(share @ (x - share @ x) ** 2)
    if not (width > 0).all():
        return 0.0
    rng, unit = np.random.default_rng(0), x / width
    places = unit[rng.choice(len(x), MASS_POINTS, p=share)] + rng.standard_normal((MASS_POINTS, d))
    log_kernel = -0.5 * cdist(places, unit, "sqeuclidean") - np.log(width).sum()
    log_drawn = logsumexp(log_kernel, axis=1, b=share) - 0.5 * d * math.log(2 * math.pi)
    log_found = found.log_density(features(places * width + sample[0, :d]))
    return float(logsumexp(log_found - log_drawn) - math.log(MASS_POINTS))


def log_lowest(moments: Moments) -> float:
    """log 1/((n + 1) V) of n different rows.

    V is the volume (2πe)^{d/2} ∏σ of a normal law with the sample's σ.

    By the rule of succession the next of n + 1 rows is like none before with probability
    1/(n + 1). −∞ without a sample of rows, or where an input does not vary in it.
    """
    sample, d = moments.sample.rows, len(moments.row.inputs)
    if len(sample) < 2:
        return -math.inf
    x, w = sample[:, :d] - sample[0, :d], sample[:, -1]
    variance = np.average((x - np.average(x, axis=0, weights=w)) ** 2, axis=0, weights=w)
    if not (variance > 0).all():
        return -math.inf
    log_volume = 0.5 * (d * math.log(2 * math.pi * math.e) + float(np.log(variance).sum()))
    different = moments.n / mean_copies(sample[:, :d], moments.n, moments.sample.keys)
    return -math.log(different + 1) - log_volume


def components_needed(found: Density, Z: Array) -> float:
    """R at which half of these rows have densities of at least twice their feature error.

    Of feature rows Z (m, R) where the data are, such as the row sample. R itself where it is
    enough; infinite where the density there is not above 0.
    """
    q, error, _, _ = found.relative(Z)
    typical = float(np.median(q))
    if not typical > 0:
        return math.inf
    noise = 2 * float(np.median(np.nan_to_num(error))) / typical
    return len(found.coef) * max(1.0, noise**2)


def require_map(moments: Moments, features: FeatureMap) -> None:
    """Refuse moments that another map gave."""
    mine, theirs = features.fingerprint, moments.row.map_fingerprint
    if mine != theirs:
        raise ModelError(
            f"The moments are of feature map {theirs[:12]} but the map given is {mine[:12]}. "
            "An answer needs the map that the moments were collected with."
        )


def sub_sum_deviations(moments: Moments) -> Float64:
    """D (R, K): Σₖ DₖDₖᵀ is the covariance of z̄ over data like these; K = 0 if not known.

    The linearised ratio Σₖ(mₖ − wₖz̄)/Σw of K sub-sums, times √(K/(K − 1)). Sub-sums are
    whole readings from 6 of them on, else runs of rows: what depends on its neighbours, or on
    its day, stays together, so the error is that of dependent rows.
    """
    r = moments.row.n_features
    found = held_sub_sums(moments.parts, moments.runs, r)
    if found is None:
        return np.empty((r, 0))
    held = found.by_reading() if found.n_readings >= FEWEST_READINGS else found.sums
    if len(held) < 2:
        return np.empty((r, 0))
    mean = moments.feature_mean() - moments.row.feature_origin
    excess = (held[:, :r] - held[:, [r]] * mean) / moments.weight
    return np.asarray(excess.T * math.sqrt(len(held) / (len(held) - 1)))


def independent_columns(features: FeatureMap) -> int:
    """Columns of one independent draw of a Fourier map: a frequency, or an orthogonal block.

    With less than 8 blocks their spread says little, and that of single frequencies, which
    is larger than the error of orthogonal ones, stands in.
    """
    if not isinstance(features, FourierFeatures):
        return 0
    own, d = (2 if features.paired else 1), features.n_inputs
    first = features.frequencies[:d] / np.linalg.norm(features.frequencies[:d], axis=1)[:, None]
    orthogonal = len(first) > 1 and np.allclose(first @ first.T, np.eye(len(first)), atol=1e-9)
    blocks = features.n_components // (own * d)
    return own * d if orthogonal and blocks >= FEWEST_BLOCKS else own
