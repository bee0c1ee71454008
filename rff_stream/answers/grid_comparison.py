"""Evidence over families and length-scales from the same sums: the picture of a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.grid_evidence import choose_grid_kernel
from rff_stream.kernels import Kernel
from rff_stream.moments.grid import GridMoments
from rff_stream.systems.grid import Trend


@dataclass(frozen=True, slots=True, eq=False)
class KernelComparison:
    """log p(y) of K families at L length-scales, each with its best α."""

    kernels: tuple[Kernel, ...]  # K families
    length_scales: Float64  # (L,): in units of the inputs, or factors of their ratios
    log_evidence: Float64  # (K, L): summed over targets
    error: Float64  # (K, L): its Monte-Carlo standard error
    alpha: Float64  # (K, L)

    @property
    def best(self) -> tuple[int, int]:
        """Family and length-scale of highest evidence, by position."""
        k, at = np.unravel_index(int(self.log_evidence.argmax()), self.log_evidence.shape)
        return int(k), int(at)


def compare_kernels(
    moments: GridMoments,
    kernels: Sequence[Kernel],
    length_scales: Array | Sequence[float],
    *,
    ratios: Array | Sequence[float] | None = None,
    trend: Trend = "constant",
    probes: int = 4,
) -> KernelComparison:
    """The evidence of every family at every length-scale, from one read.

    Parameters
    ----------
    moments : GridMoments
        For example ``model.moments_``.
    kernels : sequence of Kernel
        K families; their length-scales are replaced.
    length_scales : (L,) array
    ratios : (d,) array, optional
        Length-scales of the inputs over the one that is compared; all 1 by default.
    trend : {"constant", "linear", "none"}
    probes : int
        Of :func:`~rff_stream.answers.grid_evidence.grid_evidence`.

    Returns
    -------
    KernelComparison

    Notes
    -----
    α is found at each, from that of the length-scale before: some five evaluations of the evidence.
    Fewer modes are enough for a picture: ``moments.leading((40, 40))``.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (2000, 1)); y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=2000)
    >>> model = rs.KernelRidge("gaussian", features=rs.Grid(modes=(64,)), random_state=0)
    >>> sums = model.set_params(progress=False).fit(X, y).moments_
    >>> found = compare_kernels(sums, [rs.Matern(nu=0.5), rs.Gaussian()], [0.3, 1.0, 3.0])
    >>> found.log_evidence.shape, found.best[0]
    ((2, 3), 1)
    """
    scales = np.asarray(length_scales, np.float64)
    along = np.ones(moments.features.n_inputs) if ratios is None else np.asarray(ratios, float)
    shape = len(kernels), len(scales)
    values, errors, alphas = np.empty(shape), np.empty(shape), np.empty(shape)
    for k, family in enumerate(kernels):
        near: float | None = None
        for at, scale in enumerate(scales):
            kernel = family.with_length_scale(tuple((scale * along).tolist()))
            found = choose_grid_kernel(
                moments, [kernel], scales="given", trend=trend, near_alpha=near, probes=probes // 2
            )
            near = found.alpha
            values[k, at] = found.evidence.total
            errors[k, at], alphas[k, at] = found.evidence.error, found.alpha
    return KernelComparison(tuple(kernels), scales, values, errors, alphas)
