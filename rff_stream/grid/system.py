"""The penalised equations of a kernel, from moments on a grid of frequencies.

With weights D (prior standard deviations of the coefficients, from the kernel's spectral
density), the Toeplitz matrix T and a trend t(x)θ that is not penalised:

    A u = D (b − C θ̂),   A = D (T − Cᴴ B⁻¹ C) D + αI,   α = σₙ²/σ_f²
    f(x) = t(x) θ + Σ_j D_j u_j e^{ij·θ(x)},   θ = B⁻¹ (tᵀWy − C D u)

Products with T are real fast Fourier transforms (Greengard, Rachh & Barnett 2023).

The modes of the largest D form a block E of A = [[E, F], [Fᴴ, G]], which is factored. Conjugate
gradients solve with what is left, the Schur complement S = G − Fᴴ E⁻¹ F of the other modes, and
the diagonal of G is the preconditioner. Where the data have gaps, the difficult part of A is
inside the block; outside it S is almost diagonal (deflation: Nicolaides 1987; Tang et al. 2009,
A-DEF2). Steps of conjugate gradients are those of Lanczos, whose tridiagonal matrices give log |S|
(Gardner et al. 2018) and functions drawn from the posterior (Pleiss et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import scipy.fft
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridAccumulator, GridMoments, grid_row
from rff_stream.kernels import Kernel, length_scale_vector
from rff_stream.systems.normal_equations import CONSTANT

Trend = Literal["none", "constant", "linear"]

BLOCK = 2000
"""Real columns of the block that is eliminated exactly: its factor takes 0.1 CPU s and 32 MB."""

SMALL_COLUMNS, SMALL_ROWS = 3000, 30
"""Columns of the small grid on which steps are estimated, and the largest number of rows for
each."""

MOST_STEPS = 1000  # the 29 cases of `expected_steps` needed 2 to 816
TOLERANCE = 1e-8
"""Tolerance of ‖r‖/‖rhs‖ of a solution."""


@dataclass(frozen=True, eq=False)
class GridSystem:
    """The penalised least squares problem of a kernel, from moments on a grid."""

    moments: GridMoments  # at least one row
    kernel: Kernel  # with a spectral density
    trend: Trend = "constant"  # {"constant", "linear", "none"}: columns that are not penalised

    @property
    def features(self) -> GridFeatures:
        """The grid of frequencies."""
        return self.moments.features

    @property
    def n_trend(self) -> int:
        """Columns p of the trend."""
        return {"none": 0, "constant": 1, "linear": 1 + self.features.n_inputs}[self.trend]

    @cached_property
    def weights(self) -> Float64:
        """D (half shape): D² = κ(0) p(2πj/L) Π 2π/L, at σ_f² = 1."""
        grid = self.features
        omega = grid.frequencies.reshape(-1, grid.n_inputs)
        density = self.kernel.spectral_density(omega).reshape(grid.half_shape)
        cell = np.prod(2 * np.pi / grid.period)
        return np.asarray(np.sqrt(self.kernel.variance * density * cell))

    @cached_property
    def unresolved(self) -> float:
        """Share of the kernel's variance at frequencies beyond the grid."""
        kept = float((self.features.multiplicity * self.weights**2).sum())
        return max(0.0, 1 - kept / self.kernel.variance)

    @cached_property
    def border(self) -> Float64:
        """B of the trend (p, p)."""
        p = self.n_trend
        return self.moments.border[:p, :p]

    @cached_property
    def border_factor(self) -> Float64:
        """Lower Cholesky factor of B (p, p)."""
        small = 1e-14 * np.trace(self.border) * np.eye(self.n_trend)
        return np.asarray(linalg.cholesky(self.border + small, lower=True))

    @cached_property
    def coupling(self) -> Array:
        """D C (p, half shape)."""
        return self.moments.trends[: self.n_trend] * self.weights

    @cached_property
    def right_sides(self) -> Array:
        """D (b − Cᴴ B⁻¹ tᵀWy) of each target (T, half shape); 0 where it is constant."""
        found = self.weights * self.moments.projections
        if self.n_trend:
            found = found - np.tensordot(self.project(self._trend_y()).T, self.coupling, 1)
        varies = (self.scatter > 0).reshape(-1, *(1,) * self.features.n_inputs)
        return np.asarray(np.where(varies, found, 0.0))

    @cached_property
    def scatter(self) -> Float64:
        """ỹᵀWỹ (T,) about the trend; exactly 0 where that, or the mean, leaves rounding only."""
        p, first = self.n_trend, 1 + self.features.n_inputs
        total = np.diag(self.moments.border)[first:]
        if not p:
            return total
        found = total - (self._trend_y() * self.project(self._trend_y())).sum(axis=0)
        about_mean = total - self._trend_y()[0] ** 2 / self.moments.weight
        varies = np.minimum(found, about_mean) > CONSTANT * total
        return np.asarray(np.where(varies, found, 0.0))

    @cached_property
    def spectrum(self) -> Float64:
        """As in :func:`toeplitz_spectrum`."""
        return toeplitz_spectrum(self.moments)

    def diagonal(self, alpha: float) -> Float64:
        """Diagonal of A."""
        found = self.weights**2 * self.moments.weight
        if self.n_trend:
            half = self.whiten(self.coupling.reshape(self.n_trend, -1))
            found = found - (np.abs(half) ** 2).sum(axis=0).reshape(found.shape)
        return np.asarray(np.maximum(found, 0) + alpha)

    def product(self, u: Array, alpha: float) -> Array:
        """A u of coefficients (…, half shape)."""
        found = toeplitz_product(self.features, self.spectrum, self.weights * u)
        found *= self.weights
        if self.n_trend:
            found -= np.tensordot(self.project(self.along_trend(u)).T, self.coupling, 1)
        found += alpha * u
        return np.asarray(found)

    def along_trend(self, u: Array) -> Float64:
        """C D u (p, …): the weighted sums of the trend times the function of u."""
        grid = self.features
        flat = (grid.multiplicity * u).reshape(*u.shape[: -grid.n_inputs], -1)
        return (self.coupling.reshape(self.n_trend, -1).conj() @ flat.T).real

    def dot(self, u: Array, v: Array) -> Float64:
        """As in :func:`inner_product`."""
        return inner_product(self.features, u, v)

    def trend_coefficients(self, u: Array) -> Float64:
        """θ (p, T) of coefficients u (T, half shape)."""
        if not self.n_trend:
            return np.zeros((0, len(u)))
        return self.project(self._trend_y() - self.along_trend(u))

    def trend_deviation(self, u: Array, noise_variance: float, rng: np.random.Generator) -> Float64:
        """θ (p, draws) that goes with draws of A^{−½}-coefficients u: −B⁻¹CDu and its own noise."""
        if not self.n_trend:
            return np.zeros((0, len(u)))
        own = rng.standard_normal((self.n_trend, len(u))) * np.sqrt(noise_variance)
        free = linalg.solve_triangular(self.border_factor, own, lower=True, trans=1)
        return np.asarray(free - self.project(self.along_trend(u)))

    def noise(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        """Standard normal coefficients (…, half shape) of a real function."""
        grid = self.features
        real = rng.standard_normal((*shape, *(2 * m + 1 for m in grid.modes)))
        axes = tuple(range(-grid.n_inputs, 0))
        return np.asarray(scipy.fft.rfftn(real, axes=axes, norm="ortho"))

    def _trend_y(self) -> Float64:
        p, first = self.n_trend, 1 + self.features.n_inputs
        return self.moments.border[:p, first:]

    def project(self, right: Float64) -> Float64:
        """B⁻¹ of columns (p, …): coefficients of the trend."""
        return np.asarray(linalg.cho_solve((self.border_factor, True), right))

    def whiten(self, values: Array) -> Array:
        """B^{−½} of columns (p, m)."""
        return np.asarray(linalg.solve_triangular(self.border_factor, values, lower=True))


def inner_product(grid: GridFeatures, u: Array, v: Array) -> Float64:
    """Real inner products over all frequencies of coefficients (…, half shape)."""
    axes = tuple(range(-grid.n_inputs, 0))
    return np.asarray((grid.multiplicity * (u.real * v.real + u.imag * v.imag)).sum(axis=axes))


def toeplitz_spectrum(moments: GridMoments) -> Float64:
    """T on the padded grid of places: a product with it is a product with T."""
    grid = moments.features
    padded = np.zeros((*grid.padded_shape[:-1], grid.padded_shape[-1] // 2 + 1), np.complex128)
    padded[_places(grid, 2)] = moments.density
    values = scipy.fft.irfftn(padded, grid.padded_shape) * np.prod(grid.padded_shape)
    return np.asarray(values, np.float64)


def toeplitz_product(grid: GridFeatures, spectrum: Float64, c: Array) -> Array:
    """T c of coefficients (…, half shape): two real transforms of about Π 4m numbers."""
    axes = tuple(range(-grid.n_inputs, 0))
    padded = np.zeros(
        (*c.shape[: -grid.n_inputs], *grid.padded_shape[:-1], grid.padded_shape[-1] // 2 + 1),
        np.complex128,
    )
    places = (..., *_places(grid, 1))
    padded[places] = c
    values = scipy.fft.irfftn(padded, grid.padded_shape, axes=axes, overwrite_x=True)
    values *= spectrum
    return np.asarray(scipy.fft.rfftn(values, axes=axes, overwrite_x=True)[places])


def _places(grid: GridFeatures, factor: int) -> Any:
    """Where frequencies up to factor·m stand in a padded transform."""
    full = [
        np.fft.ifftshift(np.arange(-factor * m, factor * m + 1)) % size
        for m, size in zip(grid.modes[:-1], grid.padded_shape[:-1], strict=True)
    ]
    return np.ix_(*full, np.arange(factor * grid.modes[-1] + 1))


@dataclass(frozen=True, eq=False)
class Elimination:
    """A at a penalty, with the block of its largest modes factored.

    Real coordinates of the block are [√2 Re u, √2 Im u] of one of each pair of conjugates, and
    Re u of j = 0. Coefficients are (s, half shape) everywhere.
    """

    system: GridSystem
    alpha: float
    size: int = BLOCK  # real columns of the block

    @cached_property
    def chosen(self) -> Array:
        """Modes j (k, d) in the half space, the zero first."""
        grid = self.system.features
        order = np.argsort(-self.system.weights.reshape(-1), kind="stable")
        index = np.stack(np.meshgrid(*grid.indices(), indexing="ij"), axis=-1)
        modes = index.reshape(-1, grid.n_inputs)[order]
        keep = modes[:, -1] > 0
        for axis in range(grid.n_inputs - 2, -1, -1):
            keep |= (modes[:, axis + 1 :] == 0).all(axis=1) & (modes[:, axis] > 0)
        most = max(1, min(self.size // 2, int(keep.sum())))
        return np.concatenate([np.zeros((1, grid.n_inputs), int), modes[keep][:most]])

    @cached_property
    def places(self) -> Any:
        """Where the chosen modes stand in the half shape."""
        sides = [2 * m + 1 for m in self.system.features.modes]
        return tuple(self.chosen[:, a] % sides[a] for a in range(len(sides)))

    @cached_property
    def mirrored(self) -> tuple[Array, Any]:
        """Chosen modes whose conjugate stands in the half shape too, and where."""
        sides = [2 * m + 1 for m in self.system.features.modes]
        at = np.flatnonzero((self.chosen[:, -1] == 0) & (self.chosen != 0).any(axis=1))
        return at, tuple(-self.chosen[at, a] % sides[a] for a in range(len(sides)))

    @cached_property
    def factor(self) -> Float64:
        """Lower Cholesky factor of the block in real coordinates."""
        system, modes = self.system, self.chosen
        density, weights = system.moments.density, system.weights[self.places]
        plus, minus = (self._at(density, modes[:, None] + sign * modes[None]) for sign in (1, -1))
        block = np.block(
            [[(minus + plus).real, (plus - minus).imag], [(minus + plus).imag, (minus - plus).real]]
        )
        scale = np.concatenate([weights, weights])
        block *= scale[:, None] * scale
        if system.n_trend:
            coupling = system.coupling[(slice(None), *self.places)]
            half = system.whiten(coupling)
            half = np.concatenate([half.real, half.imag], axis=1)
            block -= 2 * half.T @ half
        block[0] /= np.sqrt(2)
        block[:, 0] /= np.sqrt(2)
        zero = len(modes)
        block[zero], block[:, zero] = 0, 0
        block[np.diag_indices(len(block))] += self.alpha
        try:
            factor = linalg.cholesky(block, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError as error:
            raise ValueError(
                f"alpha={self.alpha:.3g} is below the rounding in sums of weight "
                f"{system.moments.weight:.3g} on this grid: its equations are not positive "
                "definite. Give a larger alpha, or leave it to be found."
            ) from error
        return np.asarray(factor)

    @cached_property
    def diagonal(self) -> Float64:
        """Diagonal of A."""
        return self.system.diagonal(self.alpha)

    def rest(self, u: Array) -> Array:
        """u without its block; in place."""
        u[(slice(None), *self.places)] = 0
        u[(slice(None), *self.mirrored[1])] = 0
        return u

    def inside(self, u: Array) -> Array:
        """E⁻¹ of the block of u; zero elsewhere."""
        if not np.any(u):
            return np.zeros_like(u)
        block = linalg.cho_solve((self.factor, True), self._block(u).T, check_finite=False).T
        return self._put(np.zeros_like(u), block)

    def draw_inside(self, noise: Array) -> Array:
        """E^{−½} of the block of standard normal noise; zero elsewhere."""
        block = linalg.solve_triangular(self.factor, self._block(noise).T, lower=True, trans=1).T
        return self._put(np.zeros_like(noise), block)

    def extend(self, u: Array) -> Array:
        """u − E⁻¹Fu of coefficients outside the block: A gives zero inside."""
        return np.asarray(u - self.inside(self.system.product(u, self.alpha)))

    def schur(self, u: Array) -> Array:
        """S u of coefficients outside the block: two products with A."""
        return self.rest(self.system.product(self.extend(u), self.alpha))

    @cached_property
    def inverse_diagonal(self) -> Float64:
        """Diagonal of E⁻¹, and of G's inverse diagonal elsewhere (half shape)."""
        found = 1 / self.diagonal
        inverse, _ = linalg.lapack.dtrtri(self.factor, lower=1)
        values, k = (inverse**2).sum(axis=0), len(self.chosen)
        picked = (values[:k] + values[k:]) / 2
        picked[0] = values[0]
        found[self.places] = picked
        at, where = self.mirrored
        found[where] = picked[at]
        return found

    @cached_property
    def log_determinant(self) -> float:
        """log |E| and log of G's diagonal, over all real coordinates."""
        rest = self.system.features.multiplicity * np.log(self.diagonal)
        inside = rest[self.places].sum() + rest[self.mirrored[1]].sum()
        zero = np.log(self.alpha)  # a coordinate that does not exist, with α on the diagonal
        block = 2 * np.log(np.diag(self.factor)).sum() - zero
        return float(rest.sum() - inside + block)

    @property
    def is_whole(self) -> bool:
        """Whether all modes are in the block."""
        return is_small(self.system.features, self.size)

    def variance_inside(self, picked: Array) -> Float64:
        """φᴴE⁻¹φ (n,) of values (n, k) of φ at the chosen modes."""
        block = self._coordinates(picked).T
        root = linalg.solve_triangular(self.factor, block, lower=True, check_finite=False)
        return np.asarray((root**2).sum(axis=0))

    def _block(self, u: Array) -> Float64:
        return self._coordinates(u[(slice(None), *self.places)])

    @staticmethod
    def _coordinates(picked: Array) -> Float64:
        found = np.sqrt(2) * np.concatenate([picked.real, picked.imag], axis=1)
        found[:, 0] /= np.sqrt(2)
        return np.asarray(found)

    def _put(self, u: Array, block: Float64) -> Array:
        block = block / np.sqrt(2)
        block[:, 0] *= np.sqrt(2)
        k = len(self.chosen)
        picked = block[:, :k] + 1j * block[:, k:]
        picked[:, 0] = block[:, 0]
        u[(slice(None), *self.places)] = picked
        at, where = self.mirrored
        u[(slice(None), *where)] = picked[:, at].conj()
        return u

    @staticmethod
    def _at(density: Array, differences: Array) -> Array:
        """T at differences (…, d), by T_{−k} = T_k* where the last index is negative."""
        flip = differences[..., -1] < 0
        turned = np.where(flip[..., None], -differences, differences)
        sides = density.shape
        index = tuple(turned[..., a] % sides[a] for a in range(differences.shape[-1]))
        values = density[index]
        return np.asarray(np.where(flip, values.conj(), values))


def is_small(grid: GridFeatures, size: int = BLOCK) -> bool:
    """Whether all modes of a grid fit in a block of so many real columns, beside the zero mode."""
    return grid.n_components <= 2 * (size // 2) + 1


@dataclass(frozen=True, eq=False)
class Solution:
    """Solutions of A x = r for several r at a time, and what their steps say about S."""

    x: Array  # (s, half shape)
    steps: int
    residual: Float64  # ‖r‖/‖rhs‖ (s,)
    tridiagonals: tuple[tuple[Float64, Float64], ...]  # Lanczos, of d^-½ S d^-½


def conjugate_gradients(
    elimination: Elimination,
    right: Array,
    *,
    tolerance: Float64 | float = TOLERANCE,
    most: int = MOST_STEPS,
) -> Solution:
    """A⁻¹ r of right sides (s, half shape): the block exactly, the other modes step by step.

    ``tolerance`` is of ‖r‖/‖rhs‖, for all or for each; a right side that has reached its own
    takes no further work. A step costs two products with T and a solve with the block.
    """
    system, alpha = elimination.system, elimination.alpha
    extra, diagonal = (1,) * system.features.n_inputs, elimination.diagonal
    size = np.sqrt(system.dot(right, right))
    target = tolerance * np.where(size > 0, size, 1.0)
    start = elimination.inside(right)
    x, r = np.zeros_like(right), right - system.product(start, alpha)
    elimination.rest(r)
    p = r / diagonal
    rz = system.dot(r, p)
    lanczos: list[list[tuple[float, float]]] = [[] for _ in right]
    steps, going = 0, np.flatnonzero(np.sqrt(system.dot(r, r)) > target)
    while len(going) and steps < most:
        q = elimination.schur(p[going])
        step = rz[going] / system.dot(p[going], q)
        wide = step.reshape(-1, *extra)
        x[going] += wide * p[going]
        r[going] -= wide * q
        z = r[going] / diagonal
        new = system.dot(r[going], z)
        ratio = new / rz[going]
        p[going] = z + ratio.reshape(-1, *extra) * p[going]
        rz[going], steps = new, steps + 1
        for s, pair in zip(going, zip(step, ratio, strict=True), strict=True):
            lanczos[s].append(pair)
        size_now = np.sqrt(system.dot(r[going], r[going]))
        going = going[size_now > target[going]]
    residual = np.sqrt(system.dot(r, r)) / np.where(size > 0, size, 1.0)
    if steps:
        start = start + elimination.extend(x)
    return Solution(start, steps, residual, tuple(map(_tridiagonal, lanczos)))


def _tridiagonal(pairs: list[tuple[float, float]]) -> tuple[Float64, Float64]:
    """Diagonal and off-diagonal of Lanczos' matrix, from the steps (Saad 2003, 6.7.3)."""
    step, ratio = np.array(pairs).reshape(-1, 2).T
    diagonal = 1 / step
    diagonal[1:] += ratio[:-1] / step[:-1]
    return diagonal, np.sqrt(ratio[:-1]) / step[:-1]


@lru_cache(maxsize=64)
def expected_steps(
    modes: tuple[int, ...], kernel: Kernel, alpha: float, n_rows: int, tolerance: float = TOLERANCE
) -> int:
    """Steps of conjugate gradients to expect, before a row is read; 0 where all is eliminated.

    The same equations in small are solved: a grid of some 3,000 columns with as many rows a column,
    strewn evenly over a box, the same share of columns eliminated, and length-scales (here in units
    of the extents) so much longer that its modes have the same D²n/α. Large gaps and clusters of
    rows change steps: in 29 cases of 2 to 816 steps it was within a factor of 3, but for soundings
    along the tracks of ships, 120 where there were 488. A few tenths of a CPU second, and none when
    it is asked for again.
    """
    d, columns = len(modes), float(np.prod([2.0 * m + 1 for m in modes]))
    if columns <= BLOCK or n_rows < 1:
        return 0
    share = min(1.0, SMALL_COLUMNS / columns)
    small = tuple(max(2, round(m * share ** (1 / d))) for m in modes)
    stretched = np.divide(modes, small) * length_scale_vector(kernel, d)
    size = float(np.prod([2.0 * m + 1 for m in small]))
    wanted = n_rows * size / columns
    n = max(int(min(wanted, SMALL_ROWS * size)), 8)
    features = GridFeatures.over(np.zeros(d), np.ones(d), modes=small)
    rng = np.random.default_rng(0)
    sums = GridAccumulator(features, grid_row(features, tuple("xyz"[:d]), ("y",)))
    y, w = rng.standard_normal((n, 1)), np.full(n, wanted / n)
    sums.add(rng.uniform(size=(n, d)), y, w, np.arange(n))
    system = GridSystem(sums.result(), kernel.with_length_scale(tuple(stretched.tolist())))
    elimination = Elimination(system, alpha, max(2, int(BLOCK * size / columns)))
    signal = system.product(system.noise((1,), rng), 0.0)  # of a function drawn from the prior
    right = signal + np.sqrt(alpha) * system.right_sides
    return conjugate_gradients(elimination, right, tolerance=tolerance).steps


def inverse_root(elimination: Elimination, noise: Array, most: int) -> Array:
    """Coefficients (1, half shape) of covariance A⁻¹, from standard normal ones.

    E^{−½} ε inside the block, and :func:`inverse_root_of_rest`, which does not depend on it.
    """
    return elimination.draw_inside(noise) + inverse_root_of_rest(elimination, noise, most)


def inverse_root_of_rest(elimination: Elimination, noise: Array, most: int) -> Array:
    """Coefficients (1, half shape) whose covariance is A⁻¹ less E⁻¹.

    S^{−½} ε outside the block by at most so many steps of Lanczos with full reorthogonalisation,
    extended so that the block follows it; they stop where the result changes by less than 1e-4.
    """
    start = elimination.rest(noise.copy())
    size = float(np.sqrt(elimination.system.dot(start, start)[0]))
    if not size:
        return start
    dot, root = elimination.system.dot, np.sqrt(elimination.diagonal)
    basis = [start / size]
    diagonal: list[float] = []
    off: list[float] = []
    before, weights = np.zeros(0), np.zeros(0)
    while True:
        w = elimination.schur(basis[-1] / root) / root
        diagonal.append(float(dot(basis[-1], w)[0]))
        for each in basis:
            w = w - float(dot(each, w)[0]) * each
        norm = float(np.sqrt(dot(w, w)[0]))
        values, vectors = linalg.eigh_tridiagonal(np.array(diagonal), np.array(off))
        weights = vectors @ (vectors[0] / np.sqrt(np.maximum(values, 1e-300)))
        change = np.linalg.norm(weights[: len(before)] - before) + abs(weights[-1])
        if len(basis) == most or norm < 1e-10 or change < 1e-4 * np.linalg.norm(weights):
            break
        before = weights
        off.append(norm)
        basis.append(w / norm)
    total = sum(a * b for a, b in zip(weights, basis, strict=True)) * size
    return elimination.extend(np.asarray(total) / root)
