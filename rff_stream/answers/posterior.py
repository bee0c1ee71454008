"""The Gaussian process given the data: means, standard deviations, densities, functions.

    f(z) | y ~ N(ȳ + (z − z̄)ᵀβ, σₙ²[(z − z̄)ᵀS^½(G + αI)⁻¹S^½(z − z̄) + 1/Σw])

Row by row from feature rows Z, in float64; the data are not read again.

Under any other Gaussian prior β ~ N(0, σ_f² Σ), with Σ = LLᵀ, β = Lγ and G = Lᵀ Z̃ᵀWZ̃ L, a spectrum
serves evidence, posterior and ridge as that of the map's own prior, Σ = diag(s), does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.random import Generator
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.duplicate_rows import nearest
from rff_stream.errors import warn
from rff_stream.moments import Moments
from rff_stream.moments.copies import group_copies
from rff_stream.stored_fields import stored
from rff_stream.systems.normal_equations import ridge_system
from rff_stream.systems.spectrum import Spectrum

BLOCK_ROWS = 1024
"""Rows that are rotated at once."""

NEAREST, FEWEST_NEIGHBOURS, SURE = 3, 100, 2.0
"""Number of neighbours whose residuals are compared; smallest number of rows for this; number of
standard errors of which the misfit must be larger, if these are larger than the variance of f."""

STARVED = 0.8
"""Share of R above which the map has too few features for the variance."""

ROUNDING = 1e-10
"""Eigenvalues of Σ may be negative by this share of the largest one."""


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """S functions drawn from a posterior; they do not depend on the rows of a call."""

    coef: Float64  # (S, R, T)
    intercept: Float64  # (S, T)

    def __call__(self, Z: Array) -> Float64:
        """Values (S, n, T) at feature rows Z (n, R)."""
        return np.asarray(Z @ self.coef + self.intercept[:, None])


def _inverse(weight: float) -> float:
    """What of a weight, which may be infinite, is stored."""
    return 1 / weight if weight else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """A Gaussian process in feature space, given the data.

    Parameters
    ----------
    coef, intercept : (R, T), (T,) float64
        Its mean: intercept + Z coef, in units of y.
    alpha, noise_variance : (T,) float64
        σₙ²/σ_f² and σₙ² (of a row of weight 1).
    rotation, eigenvalues : (R, R), (R,) float64
        S^½U and λ of G = UΛUᵀ.
    feature_mean : (R,) float64
        z̄.
    weight : float
        Σw; infinite without an intercept, which then adds no variance.
    misfit : (T,) float64 or None
        Variance of the part of f that the columns cannot represent, a part of
        ``noise_variance``; None is 0.
    copies : float
        How often a row of the fit stands on average; a new row, of which no weight is said, weighs
        as much as so many.
    """

    coef: Float64
    intercept: Float64
    alpha: Float64
    noise_variance: Float64
    rotation: Float64
    eigenvalues: Float64
    feature_mean: Float64
    weight: float = field(metadata=stored("inverse_weight", write=_inverse, read=_inverse))
    misfit: Float64 | None = field(default=None, metadata=stored("misfit_variance"))
    copies: float = 1.0

    def __repr__(self) -> str:
        r, t = self.coef.shape
        return f"<{type(self).__name__} of {t} targets: {r} columns>"

    def mean(self, Z: Array) -> Float64:
        """E f (n, T) at feature rows Z (n, R)."""
        return np.asarray(Z @ self.coef + self.intercept)

    def variance(self, Z: Array, *, noise: bool = False, weights: Array | None = None) -> Float64:
        """Var f (n, T), or Var y with noise; 2R² flops a row.

        σₙ²[(z − z̄)ᵀS^½(G + αI)⁻¹S^½(z − z̄) + 1/Σw] plus the misfit, or σₙ²/w, which has it.
        """
        spread = self._quadratic_form(Z) * self.noise_variance
        if noise:
            return spread + self._noise(len(spread), weights)
        return spread if self.misfit is None else spread + self.misfit

    def variances(self, Z: Array) -> Float64:
        """Variances (n, 2T) of f, and of the noise that a new y has beside."""
        of_f = self.variance(Z)
        misfit = 0.0 if self.misfit is None else self.misfit
        noise = np.broadcast_to(np.maximum(self.row_noise - misfit, 0.0), of_f.shape)
        return np.hstack([of_f, noise])

    def std(self, Z: Array, *, noise: bool = False, weights: Array | None = None) -> Float64:
        """Standard deviation (n, T) of f, or of y with noise, in units of y."""
        return np.sqrt(self.variance(Z, noise=noise, weights=weights))

    def covariance(self, Z: Array) -> Float64:
        """Cov(f(z), f(z')) (T, n, n) of all pairs of rows Z (n, R); n·R² + n²·R·T flops."""
        rotated = (Z - self.feature_mean) @ self.rotation
        scale = np.sqrt(self.noise_variance / (self.eigenvalues[:, None] + self.alpha))  # (R, T)
        found = np.empty((len(scale.T), len(Z), len(Z)))
        for each, column, own in zip(
            found, scale.T, self.noise_variance / self.weight, strict=True
        ):
            half = rotated * column
            np.matmul(half, half.T, out=each)
            each += own
        return found

    def log_density(self, Z: Array, y: Array, weights: Array | None = None) -> Float64:
        """log p(y | data) (n, T) of each row by itself, noise included.

        +∞ or −∞ for a target without noise and signal.
        """
        variance = self.variance(Z, noise=True, weights=weights)
        residual = np.asarray(y).reshape(variance.shape) - self.mean(Z)
        with np.errstate(divide="ignore", invalid="ignore"):
            misfit = np.where(residual == 0, 0.0, residual**2 / variance)
            return np.asarray(-0.5 * (np.log(2 * np.pi * variance) + misfit))

    def functions(self, size: int, rng: Generator) -> Functions:
        """``size`` functions drawn from the posterior: coefficients, not values.

        β + S^½U(Λ + α)^{−½}σₙξ, and the uncertainty of ȳ in the intercept. 2R²·size·T flops.
        """
        count, (r, t) = size, self.coef.shape
        scale = np.sqrt(self.noise_variance / (self.eigenvalues[:, None] + self.alpha))
        coef = self.coef + self.rotation @ (scale * rng.standard_normal((count, r, t)))
        centre = np.sqrt(self.noise_variance / self.weight) * rng.standard_normal((count, t))
        shift = np.einsum("r,srt->st", self.feature_mean, coef - self.coef)
        return Functions(coef, self.intercept - shift + centre)

    def of_functionals(self) -> Self:
        """The process as seen by functionals that make 0 of a constant, such as slopes.

        Its mean and spread at rows Lz are those of Lf: ȳ and z̄ have no part in them.
        """
        nothing = np.zeros_like
        return replace(
            self,
            intercept=nothing(self.intercept),
            feature_mean=nothing(self.feature_mean),
            weight=np.inf,
            misfit=None,
        )

    def find_misfit(self, Z: Array, x: Array, y: Array, w: Array) -> Float64:
        """Variance (T,) of the part of f that the columns cannot represent, from residuals.

        The rows are training rows, with inputs x divided by length-scales or scales. If the model
        is right, leave-one-out residuals r have E rᵢrⱼ = −σₙ²cᵢⱼ/((1 − hᵢ)(1 − hⱼ)), with c the
        form of :meth:`variance` for two rows. The excess of this product over the three nearest
        neighbours is not noise. The misfit is its mean, if above 0, plus one standard error, so
        that intervals have their coverage; at most the noise of a typical row. If the standard
        error is above the mean variance of f (many rows, of which few are sampled), only an excess
        of 2 standard errors counts; otherwise sampling errors would make wide intervals.

        2mR² flops. Neighbours in a sample are further away than those among all rows, so this is a
        lower bound of the misfit.
        """
        t, number = len(self.alpha), group_copies(x)
        if number is None:
            return np.zeros(t)
        first = np.flatnonzero(number == np.arange(len(x)))
        if len(first) < FEWEST_NEIGHBOURS:
            return np.zeros(t)
        Z, x, y, w = Z[first], x[first], np.asarray(y)[first], w[first] * self.copies
        rotated, found = (Z - self.feature_mean) @ self.rotation, np.zeros(t)
        typical = float(np.exp(np.log(w).mean()))
        residual, near = y - self.mean(Z), nearest(x, NEAREST)
        for k in range(t):
            inverse = 1 / (self.eigenvalues + self.alpha[k])
            left = np.maximum(1 - w * (rotated**2 @ inverse + 1 / self.weight), 1e-6)
            r, excess = residual[:, k] / left, np.zeros(len(x))
            variance = float(self.noise_variance[k]) * float(np.mean((1 - left) / w))
            for j in near.T:
                common = (rotated * rotated[j]) @ inverse + 1 / self.weight
                excess += r * r[j] + self.noise_variance[k] * common / (left * left[j])
            excess /= NEAREST
            mean, error = float(excess.mean()), float(excess.std() / np.sqrt(len(x)))
            least = SURE * error if error > variance else 0.0
            most = float(self.noise_variance[k]) / typical
            found[k] = min(mean + error, most) if mean > least else 0.0
        return found

    def leave_one_out(self, Z: Array, y: Array, weights: Array | None = None) -> Float64:
        """Residuals (n, T) of training rows under the fit without each of them: r/(1 − h).

        Exact: h = w Var f/σₙ² is the row's leverage. Do not use it for rows
        that were not in the fit: their plain residual needs no correction.
        """
        leverage = self._quadratic_form(Z) / self._inverse_weight(len(Z), weights)
        residual = np.asarray(y).reshape(leverage.shape) - self.mean(Z)
        return np.asarray(residual / np.maximum(1 - leverage, np.finfo(np.float64).eps))

    def _quadratic_form(self, Z: Array) -> Float64:
        """(z − z̄)ᵀS^½(G + αI)⁻¹S^½(z − z̄) + 1/Σw (n, T), blocks of rows at a time."""
        inverse = 1 / (self.eigenvalues[:, None] + self.alpha)  # (R, T)
        blocks = [Z[i : i + BLOCK_ROWS] for i in range(0, len(Z), BLOCK_ROWS)]
        rotated = (((block - self.feature_mean) @ self.rotation) ** 2 for block in blocks)
        spreads = [block @ inverse for block in rotated] or [np.empty((0, len(self.alpha)))]
        return np.concatenate(spreads) + 1 / self.weight

    def _noise(self, n: int, weights: Array | None) -> Float64:
        if weights is None:
            return np.tile(self.row_noise, (n, 1))
        return self.noise_variance * self._inverse_weight(n, weights)

    @property
    def row_noise(self) -> Float64:
        """Variance (T,) of the noise of a new row."""
        return self.noise_variance / self.copies

    @staticmethod
    def _inverse_weight(n: int, weights: Array | None) -> Float64:
        """1/w (n, 1)."""
        return np.ones((n, 1)) if weights is None else 1 / np.asarray(weights, float)[:, None]


def posterior(spectrum: Spectrum, alpha: Float64, noise_variance: Float64) -> Posterior:
    """The Gaussian process given the data, with known variances.

    Parameters
    ----------
    spectrum : Spectrum
        Of the moments.
    alpha : (T,) float64
        σₙ²/σ_f² ≥ η.
    noise_variance : (T,) float64
        σₙ² of a row of weight 1, in units of y².

    Warns
    -----
    NumericalWarning
        If df > 0.8 R: there are too few columns for the variance.
    """
    spectrum = spectrum.complete()
    system, coef = spectrum.system, spectrum.coef(alpha)
    _warn_starved(spectrum.df(alpha), system.n_features)
    return Posterior(
        coef=coef,
        intercept=system.intercept(coef),
        alpha=alpha,
        noise_variance=noise_variance,
        rotation=spectrum.rotation,
        eigenvalues=spectrum.eigenvalues,
        feature_mean=system.feature_mean,
        weight=system.weight if system.fit_intercept else np.inf,
        copies=system.observations.copies,
    )


def _warn_starved(df: Float64, n_features: int) -> None:
    if (df > STARVED * n_features).any():
        warn(
            f"The fit uses {df.max():.0f} degrees of freedom of R={n_features} features, above "
            f"{STARVED} R: too few features for the variance, and far from the data standard "
            "deviations are too small. Use more components, or features='local'."
        )


def spectrum_under_prior(
    moments: Moments, covariance: Float64, *, fit_intercept: bool = True
) -> Spectrum:
    """The spectrum of moments where the coefficients have the prior covariance Σ.

    Parameters
    ----------
    moments : Moments
        Order 2, with targets.
    covariance : (R, R) float64
        Σ of raw coefficients, up to the signal variance σ_f². Positive semi-definite. If it
        is singular, the coefficients are in its range.
    fit_intercept : bool
        Whether to add a flat μ.

    Returns
    -------
    Spectrum
        :func:`rff_stream.from_moments.evidence` takes it in place of moments.

    Raises
    ------
    ValueError
        If Σ has another shape, is not symmetric, or has a negative eigenvalue.

    Notes
    -----
    Two decompositions and 4R³ flops. A = σₙ⁻² ZᵀWZ + Σ⁻¹ of Rasmussen & Williams is never
    computed, so Σ may be singular.

    References
    ----------
    Rasmussen & Williams 2006, section 2.1.1.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from rff_stream.from_moments import evidence
    >>> x = np.linspace(0, 6, 200)[:, None]
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 32, rng=0)
    >>> y = np.sin(x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=200)
    >>> moments = rs.collect(features, x, y)
    >>> same = evidence(spectrum_under_prior(moments, np.diag(features.prior())))
    >>> bool(abs(same.log_evidence - evidence(moments).log_evidence)[0] < 1e-3)
    True
    """
    r = moments.row.n_features
    if covariance.shape != (r, r) or not np.allclose(covariance, covariance.T):
        raise ValueError(
            f"covariance has shape {covariance.shape} but it must be a symmetric matrix of {r} by "
            f"{r}, with one row for each feature column."
        )
    values, vectors = linalg.eigh(covariance)
    if values[0] < -ROUNDING * max(values[-1], 0.0) or not values[-1] > 0:
        raise ValueError(
            f"covariance has eigenvalues from {values[0]:.3g} to {values[-1]:.3g} but a covariance "
            "has none below 0 and one above. Check how it was made."
        )
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    bare = replace(moments, row=replace(moments.row, prior=np.ones(r)))
    system = ridge_system(bare, fit_intercept=fit_intercept)
    matrix = factor.T @ system.matrix @ factor
    eigenvalues, rotation = linalg.eigh((matrix + matrix.T) / 2)
    rhs = rotation.T @ (factor.T @ system.rhs)
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    kept = replace(system, matrix=np.empty((0, 0)), root_prior=scale)
    return Spectrum(eigenvalues, kept, factor @ rotation, rhs)
