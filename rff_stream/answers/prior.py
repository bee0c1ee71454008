"""Bayesian linear regression under any Gaussian prior of the coefficients, β ~ N(0, σ_f² Σ).

With Σ = LLᵀ and β = Lγ the prior of γ is the identity, and G = Lᵀ Z̃ᵀWZ̃ L. Its spectrum serves
evidence, posterior and ridge as that of the map's own prior does: Σ = diag(s) is that prior.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg

from rff_stream._array import Float64
from rff_stream.moments import Moments
from rff_stream.systems.spectrum import Spectrum
from rff_stream.systems.system import ridge_system

ROUNDING = 1e-10
"""Share of its largest eigenvalue down to which Σ may be negative."""


def spectrum_under_prior(
    moments: Moments, covariance: Float64, *, fit_intercept: bool = True
) -> Spectrum:
    """The spectrum of moments where the coefficients have the prior covariance Σ.

    Parameters
    ----------
    moments : Moments
        Order 2, with targets.
    covariance : (R, R) float64
        Σ of raw coefficients, up to the signal variance σ_f². Positive semi-definite: where it
        is singular, the coefficients stay in its range.
    fit_intercept : bool
        A flat μ beside them.

    Returns
    -------
    Spectrum
        :func:`~rff_stream.answers.evidence.evidence_at` and
        :func:`~rff_stream.answers.evidence.evidence` take it in place of moments;
        :func:`~rff_stream.answers.posterior.posterior` gives the process at α = σₙ²/σ_f².

    Raises
    ------
    ValueError
        When Σ has another shape, is not symmetric, or has a negative eigenvalue.

    Notes
    -----
    Two decompositions and 4R³ flops. A = σₙ⁻² ZᵀWZ + Σ⁻¹ of Rasmussen & Williams is never
    formed, so that Σ need not have an inverse.

    References
    ----------
    Rasmussen & Williams 2006, section 2.1.1.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from rff_stream.answers.evidence import evidence
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
            f"covariance has shape {covariance.shape} but it is a symmetric matrix of {r} by {r}, "
            "one line for each feature column."
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
