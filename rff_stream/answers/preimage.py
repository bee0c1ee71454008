"""Rows whose features are nearest to a point of feature space: pre-images of kernel PCA.

    x* = argmin ‖S^½z(x) − p‖²,  p = S^½z̄ + Ut,  t the coordinates kept

Few points of feature space are the features of a row. Between the coordinates and x*, noise in the
directions that were left out is gone.
"""

from __future__ import annotations

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.components import Components
from rff_stream.features.base import FeatureMap
from rff_stream.features.functionals import derivative

LENGTHS = 2.0 ** np.arange(3, -8, -1)
"""Steps compared along each direction, in units of the first guess."""


def pre_images(
    features: FeatureMap,
    components: Components,
    coordinates: Float64,
    start: Array,
    *,
    tol: float = 1e-9,
    max_steps: int = 200,
) -> Float64:
    """Rows (n, d) whose features are locally nearest to these coordinates of kernel PCA.

    Parameters
    ----------
    features : FeatureMap
        One that :func:`~rff_stream.features.functionals.derivative` takes.
    components : Components
    coordinates : (n, q) float64
        As the components give them.
    start : (n, d) array
        Where to look from: the noisy row itself, or a row with near coordinates.
    tol : float
        Fall of the squared distance to stop at, in units of the variance of all components.
    max_steps : int

    Returns
    -------
    (n, d) float64

    Notes
    -----
    Gauss–Newton steps, each row with the best of eleven lengths. For the Gaussian kernel one of
    these lengths is the fixed-point step of Mika et al. A step is d + 12 maps of the rows.

    References
    ----------
    Mika et al. 1999. Kwok & Tsang 2004.
    """
    prior = features.prior()
    wanted = components.feature_mean * prior + coordinates @ components.rotation.T  # S^½p

    def distance(at: Float64, goal: Float64) -> Float64:
        z = features(at).astype(np.float64)
        return np.asarray((z**2) @ prior - 2 * np.einsum("nr,nr->n", z, goal))

    slopes = [derivative(features, j) for j in range(features.n_inputs)]
    x = np.array(start, np.float64)
    near, moving = distance(x, wanted), np.arange(len(x))
    for _ in range(max_steps):
        at, goal = x[moving], wanted[moving]
        rest = goal - prior * features(at).astype(np.float64)
        J = np.stack([each(at).astype(np.float64) for each in slopes], axis=2)  # (n, R, d)
        pull = np.einsum("nrd,nr->nd", J, rest)
        metric = np.einsum("nrd,r,nre->nde", J, prior, J, optimize=True)
        size = np.einsum("ndd->n", metric)[:, None, None]
        metric += np.eye(x.shape[1]) * (1e-9 * size + np.finfo(np.float64).tiny)
        step = np.linalg.solve(metric, pull[:, :, None])[:, :, 0]
        tried = np.stack([distance(at + length * step, goal) for length in LENGTHS])
        best = tried.argmin(axis=0)
        lower = tried[best, np.arange(len(moving))]
        fell = near[moving] - lower > tol * components.total_variance
        x[moving[fell]] = at[fell] + LENGTHS[best[fell], None] * step[fell]
        near[moving[fell]] = lower[fell]
        moving = moving[fell]
        if not len(moving):
            break
    return x
