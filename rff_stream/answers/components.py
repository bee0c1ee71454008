"""Principal components in feature space: eigenvectors of the centred second moments.

One eigenbasis serves both: G/Σw = UΛUᵀ, the kernel matrix K̃ = Z̃SZ̃ᵀ has the same eigenvalues, and
rows have the coordinates z̃S^½U.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.row_space import leading_of_rows
from rff_stream.moments import Moments
from rff_stream.systems.spectrum import span_of_few_rows
from rff_stream.systems.system import scatter_about


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """The leading components of centred feature rows."""

    rotation: Float64  # (R, q), S^½U: coordinates of a row are (z − z̄) rotation
    feature_mean: Float64  # (R,): z̄
    variance: Float64  # (q,): of the rows along each component, in units of κ(0), decreasing
    total_variance: float  # of all R components
    weight: float  # Σw

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
        Order 1, no rows, or q out of range.

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
            "components. Ask for fewer, or raise n_map_components."
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
