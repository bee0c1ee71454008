"""Gaussian processes from moments on a grid of frequencies: the kernel is chosen after the read.

With weights D (prior standard deviations of the coefficients, from the kernel's spectral
density), the Toeplitz matrix T and a trend t(x)θ that is not penalised:

    A u = D (b − C θ̂),   A = D (T − Cᴴ B⁻¹ C) D + αI,   α = σₙ²/σ_f²
    f(x) = t(x) θ + Σ_j D_j u_j e^{ij·θ(x)},   θ = B⁻¹ (tᵀWy − C D u)

Products with T are real fast Fourier transforms; A is solved by conjugate gradients. A
preconditioner keeps the number of steps small: the block of A with the largest D is factored
exactly, and its diagonal is used for the rest. Where the data have gaps, the difficult
part of A is inside this block; outside it A is almost diagonal.

References
----------
Greengard, Rachh & Barnett 2023 (the grid and its errors). Gardner et al. 2018 (log-determinants
from the same conjugate gradients, with a preconditioner). Pleiss et al. 2020 (draws by Lanczos).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.fft
from scipy import linalg
from scipy.optimize import minimize

from rff_stream._array import Array, Float64
from rff_stream.features.grid import GridFeatures
from rff_stream.kernels import Kernel, length_scale_vector
from rff_stream.moments.grid import GridMoments, import_finufft

__all__ = [
    "GridEvidence",
    "GridPosterior",
    "GridSystem",
    "Scales",
    "choose_grid_kernel",
    "draw_posterior",
    "evaluate",
    "grid_evidence",
    "leaf_errors",
    "posterior_variance",
    "solve_grid",
]

Trend = Literal["none", "constant", "linear"]
Scales = Literal["each", "one", "given"]

BLOCK = 2000
"""Real columns of the preconditioner's exact block: 0.1 CPU s to factor, and 32 MB."""

MOST_STEPS = 1000
TOLERANCE = 1e-8
"""Of ‖r‖/‖rhs‖ where a solution is wanted."""

MIDDLE_EVALUATIONS, LAST_EVALUATIONS = 12, 6
"""Of the evidence on finer grids: each search starts where the coarser one ended."""

STEP = 1e-3
"""Of log ℓ, for slopes of the spectral density by central differences."""

PROBES = 8
PROBE_TOLERANCE = 1e-2
"""Of the solves of random vectors; their error is far below the spread between them."""

EVIDENCE_TOLERANCE = 1e-6
"""Of the solve of y: the quadratic form in log p needs more digits than the predictions."""


@dataclass(frozen=True, eq=False)
class GridSystem:
    """The penalised least squares problem of a kernel, from moments on a grid.

    Parameters
    ----------
    moments : GridMoments
        At least one row.
    kernel : Kernel
        With a spectral density.
    trend : {"constant", "linear", "none"}
        Columns that are not penalised.
    """

    moments: GridMoments
    kernel: Kernel
    trend: Trend = "constant"

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
        """D (b − Cᴴ B⁻¹ tᵀWy) of each target (T, half shape)."""
        found = self.weights * self.moments.projections
        if self.n_trend:
            found = found - np.tensordot(self.project(self._trend_y()).T, self.coupling, 1)
        return np.asarray(found)

    @cached_property
    def scatter(self) -> Float64:
        """ỹᵀWỹ (T,) about the trend."""
        p, first = self.n_trend, 1 + self.features.n_inputs
        total = np.diag(self.moments.border)[first:]
        if not p:
            return total
        return np.asarray(total - (self._trend_y() * self.project(self._trend_y())).sum(axis=0))

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
class Preconditioner:
    """P ≈ A: its block of the largest weights exactly, its diagonal elsewhere.

    Real coordinates of the block are [√2 Re u, √2 Im u] of one of each pair of conjugates, and
    Re u of j = 0.
    """

    system: GridSystem
    alpha: float
    size: int = BLOCK

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
            [
                [(minus + plus).real, (plus - minus).imag],
                [(minus + plus).imag, (minus - plus).real],
            ]
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
        return np.asarray(linalg.cholesky(block, lower=True, overwrite_a=True, check_finite=False))

    @cached_property
    def diagonal(self) -> Float64:
        """Diagonal of A."""
        return self.system.diagonal(self.alpha)

    def solve(self, u: Array) -> Array:
        """P⁻¹ u of coefficients (s, half shape)."""
        block = linalg.cho_solve((self.factor, True), self._block(u).T, check_finite=False).T
        return self._put(u / self.diagonal, block)

    def root(self, u: Array) -> Array:
        """P^½ u, with the Cholesky factor as root."""
        return self._put(u * np.sqrt(self.diagonal), self._block(u) @ self.factor.T)

    def inverse_root(self, u: Array, *, transposed: bool = False) -> Array:
        """P^{−½} u, or its transpose."""
        kind = 1 if transposed else 0
        block = linalg.solve_triangular(self.factor, self._block(u).T, lower=True, trans=kind).T
        return self._put(u / np.sqrt(self.diagonal), block)

    @cached_property
    def inverse_diagonal(self) -> Float64:
        """Diagonal of P⁻¹ (half shape)."""
        found = 1 / self.diagonal
        inverse, _ = linalg.lapack.dpotri(self.factor, lower=1)
        values, k = np.diag(inverse), len(self.chosen)
        picked = (values[:k] + values[k:]) / 2
        picked[0] = values[0]
        found[self.places] = picked
        at, where = self.mirrored
        found[where] = picked[at]
        return found

    @cached_property
    def log_determinant(self) -> float:
        """log |P| over all real coordinates."""
        rest = self.system.features.multiplicity * np.log(self.diagonal)
        inside = rest[self.places].sum() + rest[self.mirrored[1]].sum()
        zero = np.log(self.alpha)  # a coordinate that does not exist, with α on the diagonal
        block = 2 * np.log(np.diag(self.factor)).sum() - zero
        return float(rest.sum() - inside + block)

    def _block(self, u: Array) -> Float64:
        picked = u[(slice(None), *self.places)]
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


@dataclass(frozen=True, eq=False)
class _Solution:
    """Solutions of A x = r for several r at a time, and what their steps say about A."""

    x: Array  # (s, half shape)
    steps: int
    residual: Float64  # ‖r‖/‖rhs‖ (s,)
    tridiagonals: tuple[tuple[Float64, Float64], ...]  # Lanczos, of P^-½ A P^-½


def conjugate_gradients(
    preconditioner: Preconditioner,
    right: Array,
    *,
    tolerance: Float64 | float = TOLERANCE,
    most: int = MOST_STEPS,
) -> _Solution:
    """A⁻¹ r of right sides (s, half shape), by conjugate gradients with a preconditioner.

    ``tolerance`` is of ‖r‖/‖rhs‖, for all or for each; a right side that has reached its own
    takes no further work.
    """
    system, alpha = preconditioner.system, preconditioner.alpha
    extra = (1,) * system.features.n_inputs
    x, r = np.zeros_like(right), right.copy()
    size = np.sqrt(system.dot(right, right))
    target = tolerance * np.where(size > 0, size, 1.0)
    p = preconditioner.solve(r.copy())
    rz = system.dot(r, p)
    lanczos: list[list[tuple[float, float]]] = [[] for _ in right]
    steps, going = 0, np.flatnonzero(size > 0)
    while len(going) and steps < most:
        q = system.product(p[going], alpha)
        step = rz[going] / system.dot(p[going], q)
        wide = step.reshape(-1, *extra)
        x[going] += wide * p[going]
        r[going] -= wide * q
        z = preconditioner.solve(r[going])
        new = system.dot(r[going], z)
        ratio = new / rz[going]
        p[going] = z + ratio.reshape(-1, *extra) * p[going]
        rz[going], steps = new, steps + 1
        for s, pair in zip(going, zip(step, ratio, strict=True), strict=True):
            lanczos[s].append(pair)
        size_now = np.sqrt(system.dot(r[going], r[going]))
        going = going[size_now > target[going]]
    residual = np.sqrt(system.dot(r, r)) / np.where(size > 0, size, 1.0)
    return _Solution(x, steps, residual, tuple(map(_tridiagonal, lanczos)))


def _tridiagonal(pairs: list[tuple[float, float]]) -> tuple[Float64, Float64]:
    """Diagonal and off-diagonal of Lanczos' matrix, from the steps (Saad 2003, 6.7.3)."""
    step, ratio = np.array(pairs).reshape(-1, 2).T
    diagonal = 1 / step
    diagonal[1:] += ratio[:-1] / step[:-1]
    return diagonal, np.sqrt(ratio[:-1]) / step[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class GridPosterior:
    """A Gaussian process on a grid of frequencies, given the data.

    Parameters
    ----------
    features : GridFeatures
    coef : (T, half shape) complex128
        D u: amplitudes of e^{ij·θ}, in units of y.
    trend : (p, T) float64
        θ, for the columns [1, (x − c)/L].
    target_origin : (T,) float64
    alpha, noise_variance, signal_variance : (T,) float64
    steps : int
        Of conjugate gradients.
    residual : (T,) float64
        ‖r‖/‖rhs‖ that was reached.
    unresolved : float
        Share of the kernel's variance at frequencies beyond the grid.
    """

    features: GridFeatures
    coef: Array
    trend: Float64
    target_origin: Float64
    alpha: Float64
    noise_variance: Float64
    signal_variance: Float64
    steps: int
    residual: Float64
    unresolved: float

    def mean(self, X: Array) -> Float64:
        """Posterior mean (n, T) at rows (n, d), by one type-2 transform."""
        angles = self.features.angles(X)
        values = evaluate(self.features, self.coef, angles)
        columns = np.column_stack([np.ones(len(X)), (angles / (2 * np.pi)).T])
        return np.asarray(
            values.T + columns[:, : len(self.trend)] @ self.trend + self.target_origin
        )


def leaf_errors(moments: GridMoments, posterior: GridPosterior) -> Float64:
    """Σ w (y − f)² (T,) of rows that are known by their sums alone: a quadratic form.

    Σ w f² = cᴴTc + 2 θᵀCc + θᵀBθ of coefficients c and trend θ, by one product with T.
    """
    first, p = 1 + moments.features.n_inputs, len(posterior.trend)
    shift = posterior.target_origin - moments.row.target_origin
    grid = moments.features
    coef, theta = posterior.coef, np.zeros((first, len(shift)))
    theta[:p] = posterior.trend
    theta[0] += shift
    along = inner_product(grid, moments.trends[:, None], coef[None])  # (1 + d, T)
    border = moments.border
    square = inner_product(grid, coef, toeplitz_product(grid, toeplitz_spectrum(moments), coef))
    square = square + (theta * (2 * along + border[:first, :first] @ theta)).sum(axis=0)
    cross = inner_product(grid, moments.projections, coef) + (border[first:, :first] * theta.T).sum(
        axis=1
    )
    return np.asarray(np.maximum(np.diag(border)[first:] - 2 * cross + square, 0))


def evaluate(features: GridFeatures, coef: Array, angles: Float64) -> Float64:
    """Σ_j c_j e^{ij·θ} (s, n) of coefficients (s, half shape): type-2 transforms."""
    finufft = import_finufft()
    sides = tuple(2 * m + 1 for m in features.modes)
    full = full_spectrum(features, coef)
    plan = finufft.Plan(2, sides, n_trans=len(coef), eps=1e-10, isign=1, nthreads=1, modeord=1)
    plan.setpts(*angles)
    return np.asarray(plan.execute(full).real.reshape(len(coef), -1))


def full_spectrum(features: GridFeatures, coef: Array) -> Array:
    """All coefficients (s, 2m+1, …) of those in half shape."""
    m = features.modes[-1]
    lower = coef[..., :0:-1].conj()
    for axis in range(1, features.n_inputs):
        lower = np.roll(np.flip(lower, axis), 1, axis)
    full = np.concatenate([coef, lower], axis=-1)
    assert full.shape[-1] == 2 * m + 1
    return np.ascontiguousarray(full)


def solve_grid(
    system: GridSystem,
    alpha: Float64 | float,
    *,
    block: int = BLOCK,
    tolerance: float = TOLERANCE,
) -> GridPosterior:
    """The penalised fit at a given α, one solve for each target.

    Parameters
    ----------
    system : GridSystem
    alpha : float or (T,) array
        α > 0.
    block : int
        Real columns of the preconditioner's exact block.
    tolerance : float
        Of the residual, relative to the right side.

    Returns
    -------
    GridPosterior

    Notes
    -----
    A step costs two real transforms of about Π 4m numbers; ``block``³/3 flops before.
    """
    targets = system.moments.row.n_targets
    alphas = np.broadcast_to(np.asarray(alpha, np.float64), (targets,))
    if not (np.isfinite(alphas).all() and (alphas > 0).all()):
        raise ValueError(f"alpha={alpha!r} but a fit on a grid has a finite alpha > 0.")
    solutions = np.zeros_like(system.right_sides)
    steps, residual = 0, np.zeros(targets)
    for value in np.unique(alphas):
        at = np.flatnonzero(alphas == value)
        preconditioner = Preconditioner(system, float(value), block)
        found = conjugate_gradients(preconditioner, system.right_sides[at], tolerance=tolerance)
        solutions[at], residual[at] = found.x, found.residual
        steps = max(steps, found.steps)
    objective = system.scatter - system.dot(system.right_sides, solutions)
    noise = np.maximum(objective, 0) / max(1, system.moments.n - system.n_trend)
    return GridPosterior(
        features=system.features,
        coef=system.weights * solutions,
        trend=system.trend_coefficients(solutions),
        target_origin=system.moments.row.target_origin,
        alpha=np.array(alphas),
        noise_variance=noise,
        signal_variance=noise / alphas,
        steps=steps,
        residual=residual,
        unresolved=system.unresolved,
    )


@dataclass(frozen=True, slots=True, eq=False)
class GridEvidence:
    """log p(y) of a kernel and α, with its Monte-Carlo error and its slopes.

    Parameters
    ----------
    log_evidence : (T,) float64
        Natural logarithm, σₙ² at its maximum.
    error : float
        Standard error of the estimated log-determinant, halved.
    noise_variance : (T,) float64
    df : float
        Effective degrees of freedom, estimated.
    slope_alpha : (T,) float64
        ∂ log p/∂ log α.
    influence : (T, half shape) float64
        ∂ log p/∂ log D_j: slopes by any parameter of the kernel follow by the chain rule.
    steps : int
        Of conjugate gradients.
    """

    log_evidence: Float64
    error: float
    noise_variance: Float64
    df: float
    slope_alpha: Float64
    influence: Float64
    steps: int


def grid_evidence(
    system: GridSystem,
    alpha: float,
    *,
    probes: int = PROBES,
    seed: int = 0,
    block: int = BLOCK,
    tolerance: tuple[float, float] = (EVIDENCE_TOLERANCE, PROBE_TOLERANCE),
) -> GridEvidence:
    """log p(y | kernel, α) with σₙ² at its maximum, by stochastic Lanczos quadrature.

    log p = −½[(n−p)(log 2πσₙ² + 1) + log|A/α| + log|B| − Σ log w],  σₙ² = Q/(n − p)

    Parameters
    ----------
    system : GridSystem
    alpha : float
        Shared by all targets.
    probes : int
        Random vectors for the log-determinant and its slopes; the same for one seed, so that
        the estimate is a smooth function of α and of the kernel.
    block : int
        Of the preconditioner.
    tolerance : (float, float)
        Of the solve of y and of those of random vectors.

    Returns
    -------
    GridEvidence
    """
    grid, moments = system.features, system.moments
    preconditioner = Preconditioner(system, alpha, block)
    noise = system.noise((probes,), np.random.default_rng(seed))
    vectors = preconditioner.root(noise.copy())
    right = np.concatenate([system.right_sides, vectors])
    targets = moments.row.n_targets
    found = conjugate_gradients(
        preconditioner, right, tolerance=np.repeat(tolerance, [targets, probes])
    )
    u, solved = found.x[:targets], found.x[targets:]
    freedom = moments.n - system.n_trend
    objective = np.maximum(
        system.scatter - system.dot(system.right_sides, u), 1e-15 * system.scatter
    )
    norms = system.dot(noise, noise)
    logs = norms * np.array([_log_quadrature(*t) for t in found.tridiagonals[targets:]])
    log_det = (
        preconditioner.log_determinant + float(logs.mean()) - grid.n_components * np.log(alpha)
    )
    border = np.linalg.slogdet(system.border)[1] if system.n_trend else 0.0
    value = -0.5 * (
        freedom * (np.log(2 * np.pi * objective / freedom) + 1)
        + log_det
        + border
        - moments.log_weight
    )
    # (A⁻¹)_jj = (P⁻¹)_jj + E [(x − v) v*]_jj of v = P⁻¹z, x = A⁻¹z, z ~ N(0, P).
    v = preconditioner.solve(vectors.copy())
    change = ((solved - v).real * v.real + (solved - v).imag * v.imag).mean(axis=0)
    share = 1 - alpha * (preconditioner.inverse_diagonal + change)
    df = float((grid.multiplicity * share).sum())
    power = np.abs(u) ** 2
    gain = freedom * alpha / objective
    square = system.dot(u, u)
    bent = gain.reshape(-1, *(1,) * grid.n_inputs)
    return GridEvidence(
        log_evidence=value,
        error=0.5 * float(logs.std(ddof=1) / np.sqrt(probes)) if probes > 1 else np.inf,
        noise_variance=objective / freedom,
        df=df + system.n_trend,
        slope_alpha=0.5 * (df - gain * square),
        influence=grid.multiplicity * (bent * power - share),
        steps=found.steps,
    )


def _log_quadrature(diagonal: Float64, off: Float64) -> float:
    """e₁ᵀ log(T) e₁ of Lanczos' tridiagonal matrix."""
    values, vectors = linalg.eigh_tridiagonal(diagonal, off)
    return float((vectors[0] ** 2) @ np.log(np.maximum(values, 1e-300)))


@dataclass(frozen=True, slots=True, eq=False)
class GridChoice:
    """The kernel and α of highest evidence, found after the read.

    Parameters
    ----------
    kernel : Kernel
        With its length-scales in units of the inputs.
    alpha : float
    evidence : GridEvidence
        There.
    tried : tuple of (Kernel, float)
        The best of each family, and its log evidence summed over targets on the finest grid that
        it was compared on.
    evaluations : int
        Of the evidence, over all families.
    """

    kernel: Kernel
    alpha: float
    evidence: GridEvidence
    tried: tuple[tuple[Kernel, float], ...]
    evaluations: int


def choose_grid_kernel(
    moments: GridMoments,
    kernels: Sequence[Kernel],
    *,
    scales: Scales = "each",
    trend: Trend = "constant",
    start: Array | None = None,
    alpha: float | None = None,
    evaluations: int = 30,
    probes: int = 2,
    block: int = BLOCK,
) -> GridChoice:
    """Kernel family, length-scales and α of highest evidence, from the same sums.

    Parameters
    ----------
    moments : GridMoments
    kernels : sequence of Kernel
        Families to compare; their length-scales are replaced.
    scales : {"each", "one", "given"}
        A length-scale for each input; one common factor of ``start``; or those of the kernels,
        so that α alone is chosen.
    trend : {"constant", "linear", "none"}
    start : (d,) array, optional
        First length-scales, in units of the inputs; a twelfth of the period by default.
    alpha : float, optional
        α, where it is given and stays.
    evaluations : int
        Limit for each family, on the coarsest grid.
    probes, block
        Of :func:`grid_evidence`.

    Returns
    -------
    GridChoice

    Notes
    -----
    L-BFGS on log ℓ and log α with the slopes of :func:`grid_evidence`: on the leading modes
    first, where the preconditioner is exact and an evaluation costs a tenth of a second, then
    from there on more, and at last on all of them. Families that fall behind the best by more
    than the errors of both are left. A length-scale is at least that of the finest mode of its
    grid, and at most half of the period.
    """
    grid = moments.features
    tried = {i: _first(moments, family, scales, start, alpha) for i, family in enumerate(kernels)}
    reached: dict[int, tuple[Kernel, float]] = {}
    total = 0
    levels, values = _levels(grid), dict[int, tuple[float, float]]()
    for number, modes in enumerate(levels):
        last = number == len(levels) - 1
        part = moments if modes == grid.modes else moments.leading(modes)
        most = evaluations if number == 0 else (LAST_EVALUATIONS if last else MIDDLE_EVALUATIONS)
        for i, family in enumerate(kernels):
            if i not in tried:
                continue
            search = _Search(part, family, scales, alpha, trend, probes, block)
            tried[i], used = search.best(tried[i], most)
            there = search.evidence(tried[i])
            values[i] = float(there.log_evidence.sum()), there.error
            total += used + 1
            reached[i] = search.at(tried[i])[0], values[i][0]
        best = max(tried, key=lambda i: values[i][0])
        for i in list(tried):
            gap, error = values[best][0] - values[i][0], values[best][1] + values[i][1]
            if number > 0 and gap > 4 * error:
                del tried[i]
    search = _Search(moments, kernels[best], scales, alpha, trend, 2 * probes, block)
    kernel, chosen = search.at(tried[best])
    there = search.evidence(tried[best])
    return GridChoice(kernel, chosen, there, tuple(reached.values()), total + 1)


def _levels(grid: GridFeatures) -> list[tuple[int, ...]]:
    """Modes of the grids that a search goes through: as many as the exact block, some, all."""
    shares = [(BLOCK / grid.n_components) ** (1 / grid.n_inputs), 0.36]
    levels = [tuple(max(4, int(share * m)) for m in grid.modes) for share in shares if share < 0.7]
    return [*sorted({level for level in levels if min(level) > 1}), grid.modes]


def _first(
    moments: GridMoments,
    family: Kernel,
    scales: Scales,
    start: Array | None,
    alpha: float | None,
) -> tuple[Float64, float]:
    """Length-scales (d,) and α that a search begins at."""
    grid = moments.features
    if scales == "given":
        begin = length_scale_vector(family, grid.n_inputs)
    else:
        begin = grid.period / 12 if start is None else np.asarray(start, np.float64)
    return begin, 0.01 * max(moments.weight, 1.0) ** 0.5 if alpha is None else alpha


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """−log p and its slopes, as a function of log ℓ (about a start) and log α."""

    moments: GridMoments
    family: Kernel
    scales: Scales
    alpha: float | None
    trend: Trend
    probes: int
    block: int

    def best(
        self, start: tuple[Float64, float], evaluations: int
    ) -> tuple[tuple[Float64, float], int]:
        """Length-scales and α of highest evidence near a start, and evaluations of it."""
        grid = self.moments.features
        lowest = 0.5 * grid.period / (2 * np.pi * np.array(grid.modes))
        highest = 0.5 * grid.period
        about, alpha = start
        if self.scales != "given":
            about = np.clip(about, 1.5 * lowest, 0.8 * highest)
        ends = np.log(np.stack([lowest / about, highest / about]))
        bounds: list[Any] = []
        if self.scales == "each":
            bounds += ends.T.tolist()
        elif self.scales == "one":
            bounds.append([ends[0].max(), ends[1].min()])
        if self.alpha is None:
            bounds.append(np.log([1e-8, max(self.moments.weight, 1.0)]).tolist())
        if not bounds:
            return (about, alpha), 0
        first = np.zeros(len(bounds))
        if self.alpha is None:
            first[-1] = np.log(alpha)
        found = minimize(
            lambda theta: self(theta, about),
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxfun": evaluations, "ftol": 1e-7},
        )
        return self.point(found.x, about), int(found.nfev)

    def point(self, theta: Float64, about: Float64) -> tuple[Float64, float]:
        """Length-scales (d,) and α of a point of the search."""
        alpha = float(np.exp(theta[-1])) if self.alpha is None else self.alpha
        return about * np.exp(self._moved(theta, len(about))), alpha

    def _moved(self, theta: Float64, d: int) -> Float64:
        """log of the factor of each length-scale."""
        if self.scales == "each":
            return theta[:d]
        return np.full(d, theta[0]) if self.scales == "one" else np.zeros(d)

    def at(self, point: tuple[Float64, float]) -> tuple[Kernel, float]:
        """The kernel and α there."""
        if self.scales == "given":
            return self.family, point[1]
        found: Kernel = self.family.with_length_scale(tuple(point[0].tolist()))
        return found, point[1]

    def evidence(self, point: tuple[Float64, float]) -> GridEvidence:
        """The evidence there."""
        kernel, alpha = self.at(point)
        system = GridSystem(self.moments, kernel, self.trend)
        return grid_evidence(system, alpha, probes=self.probes, block=self.block)

    def __call__(self, theta: Float64, about: Float64) -> tuple[float, Float64]:
        found = self.evidence(self.point(theta, about))
        influence = found.influence.sum(axis=0)
        slopes = np.empty(len(theta))
        moving = len(theta)
        if self.alpha is None:
            slopes[-1] = found.slope_alpha.sum()
            moving -= 1
        for axis in range(moving):
            step = np.zeros(len(theta))
            step[axis] = STEP
            ends = (self._log_weights(theta + sign * step, about) for sign in (1, -1))
            slopes[axis] = (influence * (next(ends) - next(ends)) / (2 * STEP)).sum()
        return -float(found.log_evidence.sum()), -slopes

    def _log_weights(self, theta: Float64, about: Float64) -> Float64:
        """log D but for a constant."""
        grid = self.moments.features
        omega = grid.frequencies.reshape(-1, grid.n_inputs)
        kernel, _ = self.at(self.point(theta, about))
        return np.asarray(0.5 * kernel.log_spectral_density(omega)).reshape(grid.half_shape)


def posterior_variance(
    system: GridSystem,
    alpha: float,
    noise_variance: float,
    X: Array,
    *,
    block: int = BLOCK,
    tolerance: float = 1e-5,
    together: int = 16,
) -> Float64:
    """Posterior variance (n,) of the function at a few rows (n, d): one solve for each.

    var f(x) = σₙ² [φᴴ A⁻¹ φ + (t − …)ᵀ B⁻¹ (t − …)], with φ = D e^{−ij·θ(x)} less its part that
    the trend explains, plus what the grid does not resolve.

    Parameters
    ----------
    system : GridSystem
    alpha, noise_variance : float
    X : (n, d) array
    block, tolerance
        Of the solves.
    together : int
        Rows solved at a time.

    Returns
    -------
    (n,) float64
        In units of y².
    """
    grid = system.features
    angles = grid.angles(X)
    preconditioner = Preconditioner(system, alpha, block)
    index = np.stack(np.meshgrid(*grid.indices(), indexing="ij"), axis=-1)
    columns = np.column_stack([np.ones(len(X)), (angles / (2 * np.pi)).T])[:, : system.n_trend]
    found = np.empty(len(X))
    for lo in range(0, len(X), together):
        part = slice(lo, lo + together)
        phase = np.tensordot(angles[:, part].T, index, ((1,), (-1,)))
        phi = system.weights * np.exp(-1j * phase)
        trend = columns[part].T  # (p, m)
        if system.n_trend:
            phi = phi - np.tensordot(system.project(trend).T, system.coupling, 1)
        solved = conjugate_gradients(preconditioner, phi, tolerance=tolerance).x
        found[part] = system.dot(phi, solved)
        if system.n_trend:
            found[part] += (trend * system.project(trend)).sum(axis=0)
    return noise_variance * (found + system.unresolved * system.kernel.variance / alpha)


def draw_posterior(
    system: GridSystem,
    alpha: float,
    noise_variance: float,
    *,
    draws: int,
    rng: np.random.Generator,
    block: int = BLOCK,
    most: int = 80,
) -> Array:
    """Random deviations from the posterior mean, as coefficients D u (draws, half shape).

    σₙ A^{−½} ε by Lanczos on the preconditioned matrix, with full reorthogonalisation. The
    trend of each follows by :meth:`GridSystem.trend_deviation`. For maps: all points of a draw
    cost one transform.

    Parameters
    ----------
    system : GridSystem
    alpha, noise_variance : float
    draws : int
    rng : Generator
    block : int
        Of the preconditioner.
    most : int
        Steps of Lanczos; they stop where the draw changes by less than 1e-4.

    Returns
    -------
    (draws, half shape) complex128
    """
    preconditioner = Preconditioner(system, alpha, block)
    roots = [_inverse_root(preconditioner, system.noise((1,), rng), most) for _ in range(draws)]
    return np.asarray(np.sqrt(noise_variance) * np.concatenate(roots))


def _inverse_root(preconditioner: Preconditioner, start: Array, most: int) -> Array:
    """P^{−½ᵀ} (P^{−½} A P^{−½ᵀ})^{−½} ε of one ε (1, half shape)."""
    system = preconditioner.system
    size = float(np.sqrt(system.dot(start, start)[0]))
    basis = [start / size]
    diagonal: list[float] = []
    off: list[float] = []
    before, weights = np.zeros(0), np.zeros(0)
    while True:
        turned = preconditioner.inverse_root(basis[-1].copy(), transposed=True)
        w = preconditioner.inverse_root(system.product(turned, preconditioner.alpha))
        diagonal.append(float(system.dot(basis[-1], w)[0]))
        for each in basis:
            w = w - float(system.dot(each, w)[0]) * each
        norm = float(np.sqrt(system.dot(w, w)[0]))
        values, vectors = linalg.eigh_tridiagonal(np.array(diagonal), np.array(off))
        weights = vectors @ (vectors[0] / np.sqrt(np.maximum(values, 1e-300)))
        change = np.linalg.norm(weights[: len(before)] - before) + abs(weights[-1])
        if len(basis) == most or norm < 1e-10 or change < 1e-4 * np.linalg.norm(weights):
            break
        before = weights
        off.append(norm)
        basis.append(w / norm)
    total = sum(a * b for a, b in zip(weights, basis, strict=True)) * size
    return preconditioner.inverse_root(np.asarray(total), transposed=True)
