"""Slopes of a fitted function along its inputs, and how sure they are: ∂f/∂x_j = (∂z/∂x_j)ᵀβ."""

from __future__ import annotations

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.posterior import Posterior
from rff_stream.features.base import FeatureMap
from rff_stream.features.functionals import derivative


def gradient(features: FeatureMap, coef: Float64, X: Array) -> Float64:
    """Slopes ∂f/∂x_j (n, d, T) of f = μ + zᵀβ, in units of y per unit of the input.

    Parameters
    ----------
    features : FeatureMap
        One that :func:`~rff_stream.features.functionals.derivative` takes.
    coef : (R, T) float64
        β.
    X : (n, d) array

    Notes
    -----
    d maps of the rows: n·d·R cosines.
    """
    slopes = (derivative(features, j)(X).astype(np.float64) for j in range(features.n_inputs))
    return np.stack([each @ coef for each in slopes], axis=1)


def gradient_std(features: FeatureMap, posterior: Posterior, X: Array) -> Float64:
    """Standard deviations (n, d, T) of the slopes of a Gaussian process, given the data."""
    process = posterior.of_functionals()
    slopes = (derivative(features, j)(X).astype(np.float64) for j in range(features.n_inputs))
    return np.stack([process.std(each) for each in slopes], axis=1)
