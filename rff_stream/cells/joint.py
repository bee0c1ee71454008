"""Rows of cells together: the covariance of f between them, and functions drawn with it.

In one tree the rows of a cell belong to one process, and rows of two cells are independent:

    C_t(x, x') = σ_f²[k(x, x') − zᵀz'] + σₙ²[(z − z̄)ᵀ(G_c + αI)⁻¹(z' − z̄) + 1/Σw],  or 0.

A single cell, which few rows are, says all of it. Of J trees each has a share ω_t of the variance,
as in :class:`~rff_stream.cells.posterior.LocalPosterior`, so that with g and s_c from there

    Cov(f(x), f(x')) = g(x) g(x') Σ_t √(ω_t(x) ω_t(x')) s_c s_c' C_t(x, x')

has the variances of f on its diagonal. It is that of f = E f + g Σ_t √ω_t s_c d_t with independent
d_t of covariance C_t, which is what a draw adds up: it jumps where a tree has a seam, by less than
a deviation. The mean of trees of one variance has no more than the mean of their covariances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from rff_stream._array import Array, Float64
from rff_stream.cells.posterior import LocalPosterior, runs_of_cells
from rff_stream.features.nystroem import self_kernel
from rff_stream.kernels import ExactKernel, Kernel
from rff_stream.side_by_side import side_by_side

BATCH = 256
"""Rows at a time: what is between them and the answer stays small."""

WAVES = 512
"""Frequencies by which a draw follows f where landmarks do not tell it: variances there are exact,
and correlations have a standard error of about 1/√512."""

FIRST_WAVES, POINTS = 32, 64
"""Frequencies of each octave, and points between landmarks, of a first look: it finds the shares of
the octaves in what landmarks leave."""

DRAWS_OF_WAVES, MOST_SETS = 32, 8
"""Draws of one set of frequencies, and most sets: many draws have errors of correlations of about
1/√(8·512) together, at the price of 8 sets."""

OWN_SHARE = 0.25
"""Share of frequencies that are the kernel's own, which rows far from all landmarks need."""


@dataclass(frozen=True, slots=True, eq=False)
class _RowsOfCell:
    """Rows (m, d) that one tree sends to one cell; R is 0 where the cell holds no rows."""

    rows: Float64  # (m, d): encoded
    coordinates: Float64  # (m, R): as long as z
    white: Float64  # (m, R): of z − z̄, in which (G_c + αI)⁻¹ is diagonal


def covariance(posterior: LocalPosterior, x: Array) -> Float64:
    """Cov(f(x), f(x')) (T, n, n) of all pairs of rows x (n, d); n²R flops in each cell."""
    loadings = posterior.loadings(x)
    rows, routes = posterior.route(x)
    found = np.zeros((len(posterior.inflation), len(x), len(x)))
    for tree, cells in enumerate(routes):
        noise, alpha = posterior.noise_variance[tree], posterior.alpha[tree]
        for cell, places in runs_of_cells(cells):
            key = (tree, cell)
            own = _rows_of_cell(posterior, key, rows[places])
            inverse, of_mean = _uncertainty(posterior, key)
            missing = _Missing.of(posterior, key, own)
            sides = np.sqrt(noise) * loadings[tree, places]
            for start in range(0, len(places), BATCH):
                some = slice(start, start + BATCH)
                left = missing(some)
                for target, side in enumerate(sides.T):
                    term = (own.white[some] * inverse[:, target]) @ own.white.T
                    term += of_mean
                    term += left / alpha[target]
                    term *= side[some, None]
                    term *= side
                    found[target, places[some, None], places] += term
    if np.any(posterior.unknown):  # loadings are large where variances are small: they round
        of_f = posterior.variances(x)[:, : len(found)].T
        before = np.diagonal(found, axis1=1, axis2=2)
        scale = np.sqrt(of_f / np.maximum(before, np.finfo(float).tiny))
        found *= scale[:, :, None] * scale[:, None]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Missing:
    """k(x, x') − zᵀz' of m rows of a cell, in float64, with the diagonal that their std has.

    It is divided by α, which may be as small as rounding errors of z in float32. So z is computed
    again with the factor in float64, and rows are relative to one of them. Where std has less on
    the diagonal, row and column are scaled; where it has more, that is added. Neither makes an
    eigenvalue negative.
    """

    kernel: ExactKernel
    near: Float64  # (m, d): rows, relative to the first where the kernel allows it
    exact: Float64  # (m, R): z in float64
    scale: Float64  # (m,): of row and column
    more: Float64  # (m,): added to the diagonal

    @classmethod
    def of(cls, posterior: LocalPosterior, key: tuple[int, int], own: _RowsOfCell) -> _Missing:
        """That of rows of a cell."""
        features, rows, exact = posterior.solved.features, own.rows, own.coordinates
        kernel = features.kernel
        if exact.shape[1]:
            exact = _kernel_values(posterior, key, rows)
            exact = exact @ np.tril(features.inverse_triangle(*key)).T
        own_kernel = self_kernel(kernel, rows)
        variance = np.maximum(own_kernel - np.vecdot(own.coordinates, own.coordinates), 0)
        left = own_kernel - np.vecdot(exact, exact)
        share = np.clip(variance / np.where(left > 0, left, np.inf), 0, 1)
        near = rows - rows[0] if kernel.stationary else rows
        more = variance - share * np.maximum(left, 0)
        return cls(kernel, near, exact, np.sqrt(share), more)

    def __call__(self, some: slice) -> Float64:
        """Some of its rows (·, m)."""
        found = self.kernel(self.near[some], self.near)
        found -= self.exact[some] @ self.exact.T
        found *= self.scale[some, None] * self.scale
        at = np.arange(len(self.near))[some]
        found[at - at[0], at] += self.more[some]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class CellDraws:
    """x ↦ values (T·S) of S functions drawn for T targets, target by target; picklable."""

    posterior: LocalPosterior
    kernel: Kernel  # of the posterior
    n_samples: int
    seed: int

    @property
    def width(self) -> int:
        """T·S."""
        return len(self.posterior.inflation) * self.n_samples

    def __call__(self, x: Array) -> Float64:
        """Values (n, T·S) of rows (n, d)."""
        posterior = self.posterior
        loadings = posterior.loadings(x)
        rows, routes = posterior.route(x)
        found = np.repeat(posterior.mean(x)[:, :, None], self.n_samples, axis=2)  # (n, T, S)
        for tree, cells in enumerate(routes):

            def add(run: tuple[int, Array], tree: int = tree) -> None:
                cell, places = run
                deviation = self._of_cell((tree, cell))
                for start in range(0, len(places), BATCH):
                    at = places[start : start + BATCH]
                    found[at] += loadings[tree, at, :, None] * deviation(rows[at])

            side_by_side(add, list(runs_of_cells(cells)))
        return found.reshape(len(x), -1)

    def _of_cell(self, key: tuple[int, int]) -> Callable[[Float64], Float64]:
        """Encoded rows (m, d) of a cell ↦ d_t (m, T, S), by numbers that are those of the cell."""
        posterior = self.posterior
        rng, (tree, _) = np.random.default_rng([self.seed, *key]), key
        noise, alpha = posterior.noise_variance[tree], posterior.alpha[tree]
        inverse, of_mean = _uncertainty(posterior, key)
        size = (len(noise), self.n_samples)
        n_sets = min(-(-self.n_samples // DRAWS_OF_WAVES), MOST_SETS)
        residuals = [_residual(posterior, self.kernel, key, rng) for _ in range(n_sets)]
        of_missing = rng.standard_normal((2 * WAVES, *size)) / np.sqrt(alpha)[:, None]
        parts = np.array_split(of_missing, n_sets, axis=2)
        constant = np.sqrt(of_mean) * rng.standard_normal(size)
        of_known = rng.standard_normal((len(inverse), *size)) * np.sqrt(inverse)[:, :, None]

        def deviation(rows: Float64) -> Float64:
            own = _rows_of_cell(posterior, key, rows)
            own_kernel = self_kernel(self.kernel, rows)
            missing = [
                np.tensordot(each.of_exact_length(own, own_kernel), part, 1)
                for each, part in zip(residuals, parts, strict=True)
            ]
            found = np.concatenate(missing, axis=2) + np.tensordot(own.white, of_known, 1)
            return np.asarray((found + constant) * np.sqrt(noise)[:, None])

        return deviation


def draws(posterior: LocalPosterior, n_samples: int, seed: int) -> CellDraws:
    """Functions drawn from the posterior: the same ones, whichever rows they are asked at.

    Raises
    ------
    ValueError
        If the kernel has no frequencies that can be drawn.
    """
    kernel = posterior.solved.features.kernel
    if not (isinstance(kernel, Kernel) and kernel.stationary):
        raise ValueError(
            f"Functions of cells are drawn by frequencies of the kernel, and {kernel!r} is no "
            "function of x − x', so it has none. Draw values at a few thousand rows from "
            "predict(X, return_cov=True), or fit with features='whole'."
        )
    return CellDraws(posterior, kernel, n_samples, seed)


@dataclass(frozen=True, slots=True, eq=False)
class _Residual:
    """x ↦ E (m, 2M) with EEᵀ ≈ k(x, x') − zᵀz': waves less what the landmarks of a cell tell.

    φ(x) − (L⁻¹φ(U))ᵀz(x) with columns φ = √(p/q)[cos ωᵀx, sin ωᵀx] of frequencies from a density q,
    p that of the kernel.
    """

    frequencies: Float64  # (M, d)
    heights: Float64  # (M,): √(p/q)
    origin: Float64  # (d,)
    at_landmarks: Float64  # (2M, R)

    def __call__(self, own: _RowsOfCell) -> Float64:
        """E of rows of the cell."""
        return self.waves(own.rows) - own.coordinates @ self.at_landmarks.T

    def waves(self, rows: Float64) -> Float64:
        """φ (m, 2M) of encoded rows."""
        angles = (rows - self.origin) @ self.frequencies.T
        return np.hstack([np.cos(angles) * self.heights, np.sin(angles) * self.heights])

    def of_exact_length(self, own: _RowsOfCell, own_kernel: Float64) -> Float64:
        """E with the diagonal of EEᵀ exact, of rows with these k(x, x) (m,)."""
        left = self(own)
        variance = np.maximum(own_kernel - np.vecdot(own.coordinates, own.coordinates), 0)
        length = np.maximum(np.sqrt(np.vecdot(left, left)), np.finfo(float).tiny)
        return np.asarray(left * (np.sqrt(variance) / length)[:, None])


def _residual(
    posterior: LocalPosterior, kernel: Kernel, key: tuple[int, int], rng: np.random.Generator
) -> _Residual:
    """The waves of a cell, at frequencies that its landmarks leave.

    Dense landmarks leave frequencies beyond their spacing alone, and of those a rough kernel draws
    few: its own frequencies would give rows far apart one residual. So frequencies are drawn at
    2ʲ times those of the kernel, each octave by its share of what a first draw leaves between
    landmarks.
    """
    features = posterior.solved.features
    landmarks = features.landmark_rows(*key)
    r, d = landmarks.shape
    octaves = 1
    if _has_density(kernel, d):
        octaves += int(np.ceil(np.log2(r) / d)) + 3  # to an eighth of the landmarks' spacing

    def sample(octave: Array, shares: Float64) -> _Residual:
        scale = 2.0 ** octave[:, None]
        frequencies = scale * kernel.sample_frequencies(len(octave), d, rng)
        heights = np.exp(0.5 * _log_weights(kernel, frequencies, shares))
        bare = _Residual(frequencies, heights, landmarks[0], np.empty((2 * len(octave), 0)))
        if not has_rows:
            return bare
        values = np.ascontiguousarray(bare.waves(landmarks).T)
        cells = posterior.solved.trees[key[0]]
        return replace(bare, at_landmarks=cells.coordinates(features, key, values))

    has_rows = posterior.solved.trees[key[0]].index[key[1]] >= 0
    shares = np.full(octaves, 1 / octaves)
    if octaves > 1:
        first = sample(np.repeat(np.arange(octaves), FIRST_WAVES), shares)
        between = (landmarks + landmarks[rng.permutation(r)])[:POINTS] / 2
        left = (first(_rows_of_cell(posterior, key, between)) ** 2).sum(axis=0)
        of_octaves = left.reshape(2, octaves, FIRST_WAVES).sum(axis=(0, 2))
        shares = (1 - OWN_SHARE) * of_octaves / of_octaves.sum()
        shares[0] += OWN_SHARE
    return sample(rng.choice(octaves, WAVES, p=shares), shares)


def _has_density(kernel: Kernel, d: int) -> bool:
    """Whether the spectral density is known, so that other frequencies than its own serve."""
    try:
        kernel.log_spectral_density(np.zeros((1, d)))
    except ValueError:
        return False
    return True


def _log_weights(kernel: Kernel, frequencies: Float64, shares: Float64) -> Float64:
    """log p/q (m,) with q the mixture of p scaled by 2ʲ, of these shares."""
    if len(shares) == 1:
        return np.zeros(len(frequencies))
    d = frequencies.shape[1]
    each = np.stack([kernel.log_spectral_density(frequencies / 2.0**j) for j in range(len(shares))])
    with np.errstate(divide="ignore"):
        log_shares = np.log(shares) - np.arange(len(shares)) * d * np.log(2)
    return np.asarray(each[0] - logsumexp(each + log_shares[:, None], axis=0))


def _uncertainty(posterior: LocalPosterior, key: tuple[int, int]) -> tuple[Float64, float]:
    """Of a cell the diagonal of (G_c + αI)⁻¹ (R, T), and 1/Σw; 0 without an intercept."""
    tree, cell = key
    cells, alpha = posterior.solved.trees[tree], posterior.alpha[tree]
    k = cells.index[cell]
    if k < 0:
        return np.empty((0, len(alpha))), 0.0
    return cells.inverse(k, alpha), float(posterior.solved.fit_intercept) / float(cells.weight[k])


def _rows_of_cell(posterior: LocalPosterior, key: tuple[int, int], rows: Float64) -> _RowsOfCell:
    """Encoded rows (m, d) of one cell."""
    tree, cell = key
    cells, features = posterior.solved.trees[tree], posterior.solved.features
    k = cells.index[cell]
    if k < 0:
        return _RowsOfCell(rows, *np.empty((2, len(rows), 0)))
    values = _kernel_values(posterior, key, rows)
    coordinates = np.array(cells.coordinates(features, key, values))
    white = cells.whitened(k, coordinates - cells.centre[k])
    return _RowsOfCell(rows, coordinates, white)


def _kernel_values(posterior: LocalPosterior, key: tuple[int, int], rows: Float64) -> Float64:
    """k(x, U_c) (m, R) of encoded rows (m, d) of one cell."""
    features, (tree, cell) = posterior.solved.features, key
    values = np.empty((len(rows), features.n_components))
    places = features.rows_of_cells(tree, np.array([cell]), rows)
    features.kernel_values(tree, cell, places, values)
    return values
