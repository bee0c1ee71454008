"""Principal components in feature space: eigenvectors of the centred second moments.

One eigenbasis serves both: G/Σw = UΛUᵀ, the kernel matrix K̃ = Z̃SZ̃ᵀ has the same eigenvalues, and
rows have the coordinates z̃S^½U.

Few points of feature space are the features of a row. A pre-image is the row nearest to one:

    x* = argmin ‖S^½z(x) − p‖²,  p = S^½z̄ + Ut,  t the coordinates kept

Between the coordinates and x*, noise in the directions that were left out is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.dual import leading_of_rows
from rff_stream.features.base import FeatureMap
from rff_stream.features.functionals import derivative
from rff_stream.moments import Moments
from rff_stream.stored_fields import NOT_STORED, stored
from rff_stream.systems.normal_equations import scatter_about
from rff_stream.systems.spectrum import span_of_few_rows

LENGTHS = 2.0 ** np.arange(3, -8, -1)
"""Step lengths that are compared along each direction, relative to the first guess."""


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """The leading components of centred feature rows."""

    rotation: Float64 = field(metadata=stored(write=np.ascontiguousarray))
    """(R, q), S^½U: coordinates of a row are (z − z̄) rotation."""
    feature_mean: Float64  # (R,): z̄
    variance: Float64  # (q,): of the rows along each component, in units of κ(0), decreasing
    total_variance: float = field(metadata=NOT_STORED)  # of all R components
    weight: float = field(metadata=NOT_STORED)  # Σw

    @property
    def variance_ratio(self) -> Float64:
        """Share of the variance (q,); zeros where there is none."""
        total = self.total_variance
        return self.variance / total if total > 0 else np.zeros_like(self.variance)

    def __call__(self, Z: Array) -> Float64:
        """Coordinates (n, q) of feature rows (n, R)."""
        return np.asarray((Z - self.feature_mean) @ self.rotation)


def components(moments: Moments, n_components: int) -> Components:
    """The components of largest variance, each with its largest weight positive.

    Parameters
    ----------
    moments : Moments
        Order 2.
    n_components : int
        q, from 1 to R.

    Returns
    -------
    Components

    Raises
    ------
    ValueError
        For order 1, no rows, or q out of range.

    Notes
    -----
    One partial eigen-decomposition of R×R, or of the rank of few rows (n ≤ 0.6 R). Signs are set
    by the largest entry of each eigenvector, so that two fits agree. A variance below the rounding
    of the sums is 0.

    References
    ----------
    Schölkopf, Smola & Müller 1998. Lopez-Paz et al. 2014 (random features).
    """
    row, r = moments.row, moments.row.n_features
    if moments.order != 2:
        raise ValueError("order=1 moments hold a mean and no ZᵀZ. Collect them with order=2.")
    if not 1 <= n_components <= r:
        raise ValueError(
            f"n_components={n_components} but the map has {r} columns: there are 1 to {r} "
            "components. Ask for fewer, or raise n_map_components; a Nyström map has at most one "
            "column for each different row. Where inputs are far from 0 and the kernel is one of "
            "products, take their mean off or set dtype='float64'."
        )
    root, few = np.sqrt(row.prior), leading_of_rows(moments, n_components)
    if few is not None:
        eigenvalues, vectors, trace, system = few
        mean, weight = system.feature_mean, system.weight
        found, total = (eigenvalues / weight, vectors), trace / weight
    else:
        mean, weight = moments.feature_mean(), moments.weight
        found, total = _leading(moments, n_components)
    values, vectors = (each[..., ::-1][..., :n_components] for each in found)
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.where(vectors[largest, np.arange(n_components)] < 0, -1.0, 1.0)
    floor = r * np.finfo(np.float64).eps * max(float(values[0]), 0.0)
    variance = np.where(values > floor, values, 0.0)
    return Components(root[:, None] * vectors, mean, variance, total, weight)


def _leading(moments: Moments, n_components: int) -> tuple[tuple[Float64, Float64], float]:
    """λ and U of the largest, increasing, of G/Σw, and its trace."""
    row, r = moments.row, moments.row.n_features
    root = np.sqrt(row.prior)
    matrix, _, _ = scatter_about(moments, moments.feature_mean(), moments.target_mean())
    matrix *= root
    matrix *= root[:, None]
    matrix /= moments.weight
    total = float(np.trace(matrix))
    found = span_of_few_rows(matrix.copy(), moments.n) if moments.n < r else None
    if found is None or len(found[0]) < n_components:
        found = linalg.eigh(matrix, subset_by_index=(r - n_components, r - 1), check_finite=False)
    return found, total


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
        A map that :func:`~rff_stream.features.derivative` accepts.
    components : Components
    coordinates : (n, q) float64
        As :class:`Components` gives them.
    start : (n, d) array
        Where the search starts: at the noisy row itself, or at a row with similar coordinates.
    tol : float
        Stop when the squared distance falls by less than this, in units of the variance of all
        components.
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
        step = _gauss_newton_step(slopes, prior, at, rest)
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


def _gauss_newton_step(
    slopes: Sequence[FeatureMap], prior: Float64, at: Float64, rest: Float64
) -> Float64:
    """Steps (n, d) of rows at which S^½z(x) is short of its goal by ``rest``, times S^½ (n, R)."""
    J = np.stack([each(at).astype(np.float64) for each in slopes], axis=2)  # (n, R, d)
    pull = np.einsum("nrd,nr->nd", J, rest)
    metric = np.einsum("nrd,r,nre->nde", J, prior, J, optimize=True)
    size = np.einsum("ndd->n", metric)[:, None, None]
    metric += np.eye(at.shape[1]) * (1e-9 * size + np.finfo(np.float64).tiny)
    return np.asarray(np.linalg.solve(metric, pull[:, :, None])[:, :, 0])
