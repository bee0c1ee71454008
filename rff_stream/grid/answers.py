"""A Gaussian process on a grid of frequencies: its mean, its uncertainty, its error on other sums.

Its variance is solved for in the block of the largest modes; what others add is of draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridMoments, import_finufft
from rff_stream.grid.system import (
    BLOCK,
    TOLERANCE,
    Elimination,
    GridSystem,
    conjugate_gradients,
    inner_product,
    inverse_root,
    inverse_root_of_rest,
    toeplitz_product,
    toeplitz_spectrum,
)
from rff_stream.moments.copies import Observations
from rff_stream.stored_fields import NOT_STORED, stored

FEWEST_ROWS = 64
"""Smallest number of rows for which a product of axes is searched for."""

MOST_STEPS = 80
"""Largest number of Lanczos steps; they stop when the draw changes by less than 1e-4."""

ROWS_AT_ONCE = 1 << 15
"""Rows at which all draws are evaluated at once."""

ROWS_OF_BLOCK = 1024
"""Rows whose products with the block are in memory at once: 32 MB."""


def _parts(coef: Array) -> Array:
    """Real and imaginary parts, as a store keeps them."""
    return np.stack([coef.real, coef.imag])


def _joined(parts: Array) -> Array:
    """Complex numbers from their parts."""
    real, imaginary = parts
    return np.asarray(real + 1j * imaginary)


@dataclass(frozen=True, slots=True, eq=False)
class GridPosterior:
    """A Gaussian process on a grid of frequencies, given the data."""

    features: GridFeatures = field(metadata=NOT_STORED)
    coef: Array = field(metadata=stored("grid_coef", write=_parts, read=_joined))
    """(T, half shape) complex128, D u: amplitudes of e^{ij·θ}, in units of y."""
    trend: Float64  # (p, T): θ, for the columns [1, (x − c)/L]
    target_origin: Float64  # (T,)
    alpha: Float64  # (T,)
    noise_variance: Float64  # (T,)
    signal_variance: Float64  # (T,)
    steps: int = field(metadata=NOT_STORED)  # of conjugate gradients
    residual: Float64  # (T,): ‖r‖/‖rhs‖ that was reached
    unresolved: float = field(metadata=NOT_STORED)
    """Share of the kernel's variance at frequencies beyond the grid."""
    copies: float = 1.0  # how often a row of the fit stands on average

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.alpha)} targets: {self.features}>"

    @property
    def row_noise(self) -> Float64:
        """Variance (T,) of the noise of a new row."""
        return self.noise_variance / self.copies

    def mean(self, X: Array) -> Float64:
        """Posterior mean (n, T) at rows (n, d), by one type-2 transform."""
        angles = self.features.angles(X)
        values = evaluate(self.features, self.coef, angles)
        columns = np.column_stack([np.ones(len(X)), (angles / (2 * np.pi)).T])
        return np.asarray(
            values.T + columns[:, : len(self.trend)] @ self.trend + self.target_origin
        )

    def slopes(self, X: Array) -> Float64:
        """∂f/∂x_j (n, d, T): each amplitude times i and its frequency, and those of the trend."""
        grid, (d, t) = self.features, (self.features.n_inputs, len(self.alpha))
        turned = 1j * np.moveaxis(grid.frequencies, -1, 0)[:, None] * self.coef  # (d, T, half)
        values = evaluate(grid, turned.reshape(d * t, *grid.half_shape), grid.angles(X))
        found = values.reshape(d, t, len(X)).transpose(2, 0, 1)
        if len(self.trend) > 1:
            found = found + self.trend[1:] / grid.period[:, None]
        return np.asarray(found)


def grid_leaf_errors(moments: GridMoments, posterior: GridPosterior) -> Float64:
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
    """Σ_j c_j e^{ij·θ} (s, n) of coefficients (s, half shape) at angles (d, n).

    Rows that are all combinations of values of each input, as in a cube, are products of small
    Fourier matrices; others are type-2 non-uniform transforms.
    """
    product = axes_of_product(angles)
    if product is not None:
        return _evaluate_product(features, coef, *product)
    finufft = import_finufft()
    sides = tuple(2 * m + 1 for m in features.modes)
    full = full_spectrum(features, coef)
    plan = finufft.Plan(2, sides, n_trans=len(coef), eps=1e-10, isign=1, nthreads=1, modeord=1)
    plan.setpts(*angles)
    return np.asarray(plan.execute(full).real.reshape(len(coef), -1))


def axes_of_product(columns: Float64) -> tuple[list[Float64], list[int]] | None:
    """Values of each column (d, n), and the axes from slowest to fastest, of rows of a product.

    Row i holds ``values[a][…]`` of the i-th combination, the last axis of ``order`` first to
    change. None where rows are no such product, or too few for it to matter.
    """
    n = columns.shape[1]
    if n < FEWEST_ROWS:
        return None
    changed = [np.flatnonzero(column != column[0]) for column in columns[:, : n // 2 + 1]]
    strides = [int(each[0]) if len(each) else n for each in changed]
    order = sorted(range(len(columns)), key=lambda a: -strides[a])
    values: list[Float64] = [np.empty(0)] * len(columns)
    outer = n
    for a in order:
        if outer % strides[a] or (strides[a] == outer and strides[a] != n):
            return None
        values[a] = columns[a, : outer : strides[a]]
        blocks = columns[a].reshape(n // outer, outer // strides[a], strides[a])
        if not (blocks == values[a][:, None]).all():
            return None
        outer = strides[a]
    return (values, order) if outer == 1 else None


def _evaluate_product(
    features: GridFeatures, coef: Array, values: list[Float64], order: list[int]
) -> Float64:
    """The sum one axis after the other; the last one, of the half shape, in real numbers."""
    *others, last = features.indices()
    found = coef
    for axis, (j, at) in enumerate(zip(others, values[:-1], strict=True)):
        wave = np.exp(1j * at[:, None] * j)
        found = np.moveaxis(np.tensordot(found, wave, ((1 + axis,), (1,))), -1, 1 + axis)
    phase = values[-1][:, None] * last
    twice = np.where(last > 0, 2.0, 1.0)
    half = np.concatenate([twice * np.cos(phase), -twice * np.sin(phase)], axis=1)  # (n_d, 2m+2)
    real = np.concatenate([found.real, found.imag], axis=-1) @ half.T
    return np.ascontiguousarray(real.transpose(0, *(1 + a for a in order)).reshape(len(coef), -1))


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
    system: GridSystem, alpha: Float64 | float, *, block: int = BLOCK, tolerance: float = TOLERANCE
) -> GridPosterior:
    """The penalised fit at α > 0 (one, or one for each target), one solve for each target.

    ``block`` real columns are eliminated exactly, in ``block``³/3 flops; ``tolerance`` is of the
    residual, relative to the right side. A step costs four real transforms of about Π 4m numbers.
    """
    targets = system.moments.row.n_targets
    alphas = np.broadcast_to(np.asarray(alpha, np.float64), (targets,))
    if not (np.isfinite(alphas).all() and (alphas > 0).all()):
        raise ValueError(f"alpha={alpha!r} but a fit on a grid has a finite alpha > 0.")
    solutions = np.zeros_like(system.right_sides)
    steps, residual = 0, np.zeros(targets)
    for value in np.unique(alphas):
        at = np.flatnonzero(alphas == value)
        elimination = Elimination(system, float(value), block)
        found = conjugate_gradients(elimination, system.right_sides[at], tolerance=tolerance)
        solutions[at], residual[at] = found.x, found.residual
        steps = max(steps, found.steps)
    objective = system.scatter - system.dot(system.right_sides, solutions)
    counted = Observations.of(system.moments)
    noise = np.maximum(objective, 0) / max(1, counted.n - system.n_trend)
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
        copies=counted.copies,
    )


def posterior_covariance(
    system: GridSystem, alpha: float, noise_variance: float, X: Array
) -> Float64:
    """Posterior covariance (n, n) of the function at all pairs of a few rows (n, d).

    cov(f(x), f(x')) = σₙ² [φᴴ A⁻¹ φ' + (t − …)ᵀ B⁻¹ (t' − …)], with φ = D e^{−ij·θ(x)} less its
    part that the trend explains. What the grid does not resolve is added to the diagonal alone: the
    exact process has it between near rows, too. n solves, 16·n bytes a frequency.
    """
    elimination = Elimination(system, alpha, BLOCK)
    phi, trend = _functionals(system, X)
    among = trend.T @ system.project(trend)
    for i, each in enumerate(phi):
        solved = conjugate_gradients(elimination, each[None], tolerance=1e-8).x
        among[i] += system.dot(phi, solved)
    unresolved = system.unresolved * system.kernel.variance / alpha
    return np.asarray(noise_variance * ((among + among.T) / 2 + unresolved * np.eye(len(phi))))


def _functionals(system: GridSystem, X: Array) -> tuple[Array, Float64]:
    """φ (n, half shape) of rows (n, d), less what the trend explains; the trend there (p, n)."""
    grid = system.features
    angles = grid.angles(X)
    index = np.stack(np.meshgrid(*grid.indices(), indexing="ij"), axis=-1)
    trend = np.vstack([np.ones(len(X)), angles / (2 * np.pi)])[: system.n_trend]
    phi = system.weights * np.exp(-1j * np.tensordot(angles.T, index, ((1,), (-1,))))
    if system.n_trend:
        phi = phi - np.tensordot(system.project(trend).T, system.coupling, 1)
    return phi, trend


def draw_posterior(
    system: GridSystem,
    alpha: float,
    noise_variance: float,
    *,
    draws: int,
    rng: np.random.Generator,
    block: int = BLOCK,
) -> Array:
    """Random deviations from the posterior mean, as coefficients D u (draws, half shape).

    σₙ A^{−½} ε, as in :func:`~rff_stream.grid.system.inverse_root`. The trend of each
    follows by :meth:`GridSystem.trend_deviation`. For maps: all points of a draw cost one
    transform.
    """
    elimination = Elimination(system, alpha, block)
    roots = [inverse_root(elimination, system.noise((1,), rng), MOST_STEPS) for _ in range(draws)]
    return np.asarray(np.sqrt(noise_variance) * np.concatenate(roots))


@dataclass(frozen=True, slots=True, eq=False)
class Deviations:
    """Functions drawn from the posterior less its mean, S for each target."""

    features: GridFeatures
    coef: Array  # (T, S, half shape) complex128
    trend: Float64  # (T, p, S)

    def __call__(self, x: Array) -> Float64:
        """Values (T, S, n) at rows (n, d)."""
        angles = self.features.angles(x)
        targets, size = self.coef.shape[:2]
        values = evaluate(self.features, self.coef.reshape(-1, *self.coef.shape[2:]), angles)
        columns = np.column_stack([np.ones(len(x)), (angles / (2 * np.pi)).T])
        trend = np.einsum("np,tps->tsn", columns[:, : self.trend.shape[1]], self.trend)
        return np.asarray(values.reshape(targets, size, -1) + trend)


def draw_deviations(
    system: GridSystem, posterior: GridPosterior, *, draws: int, seed: int
) -> Deviations:
    """Draws of every target; targets of one α share them but for their scale."""
    rng = np.random.default_rng(seed)
    by_alpha = {}
    for alpha in np.unique(posterior.alpha).tolist():
        u = draw_posterior(system, alpha, 1.0, draws=draws, rng=rng)
        by_alpha[alpha] = system.weights * u, system.trend_deviation(u, 1.0, rng)
    scale = np.sqrt(posterior.noise_variance)
    alphas = posterior.alpha.tolist()
    return Deviations(
        posterior.features,
        np.stack([by_alpha[a][0] * s for a, s in zip(alphas, scale, strict=True)]),
        np.stack([by_alpha[a][1] * s for a, s in zip(alphas, scale, strict=True)]),
    )


def steady_variance(rough: Float64, draws: int) -> Float64:
    """Variances (n, T) from those of a few draws, with less chance in them.

    log s² of S draws has variance 2/S about log σ² − 1/S. Each is drawn to the mean over rows by
    the share of the spread that this explains (James and Stein 1961).
    """
    logs = np.log(np.maximum(rough, 1e-300)) + 1 / draws
    centre, spread = logs.mean(axis=0), logs.var(axis=0)
    own = np.maximum(1 - 2 / draws / np.maximum(spread, 1e-300), 0.0)
    return np.asarray(np.exp(centre + own * (logs - centre)))


def of_finite(function: Callable[[Array], Float64], x: Array, width: int) -> Float64:
    """Values (n, width) of a function of rows; NaN where an input is."""
    there = np.isfinite(x).all(axis=1)
    if there.all():
        return function(x)
    found = np.full((len(x), width), np.nan)
    found[there] = function(x[there])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorVariance:
    """x ↦ variance of f, for one α and σₙ² = 1: solved in the block, of draws for the rest of A⁻¹.

    A grid of at most ``BLOCK`` columns has no rest. Else the relative standard error of a deviation
    is 1/√(2S) of S draws, times the share of the rest in the variance. No row depends on others.
    """

    elimination: Elimination
    rest: Deviations | None

    @classmethod
    def of(cls, system: GridSystem, alpha: float, *, draws: int, seed: int) -> Self:
        """The factor of the block and the draws."""
        elimination, rng = Elimination(system, alpha, BLOCK), np.random.default_rng(seed)
        if elimination.is_whole:
            return cls(elimination, None)
        several = (system.noise((1,), rng) for _ in range(draws))
        u = np.concatenate([inverse_root_of_rest(elimination, e, MOST_STEPS) for e in several])
        trend = np.zeros((0, draws))
        if system.n_trend:
            trend = -system.project(system.along_trend(u))
        rest = Deviations(system.features, (system.weights * u)[None], trend[None])
        return cls(elimination, rest)

    def __call__(self, x: Array) -> Float64:
        """Variances (n,) of finite rows (n, d)."""
        system = self.elimination.system
        found = np.full(len(x), system.unresolved * system.kernel.variance / self.elimination.alpha)
        for lo in range(0, len(x), ROWS_OF_BLOCK):
            found[lo : lo + ROWS_OF_BLOCK] += self._solved(x[lo : lo + ROWS_OF_BLOCK])
        for lo in range(0, len(x) if self.rest else 0, ROWS_AT_ONCE):
            assert self.rest is not None
            values = self.rest(x[lo : lo + ROWS_AT_ONCE])[0]
            found[lo : lo + ROWS_AT_ONCE] += (values**2).mean(axis=0)
        return found

    def _solved(self, x: Array) -> Float64:
        """The part of the block and of the trend."""
        system, places = self.elimination.system, self.elimination.places
        angles = system.features.angles(x)
        trend = np.vstack([np.ones(len(x)), angles / (2 * np.pi)])[: system.n_trend]
        phi = system.weights[places] * np.exp(-1j * (angles.T @ self.elimination.chosen.T))
        if system.n_trend:
            theta = system.project(trend)
            phi = phi - theta.T @ system.coupling[(slice(None), *places)]
            own = np.asarray((trend * theta).sum(axis=0))
            return np.asarray(self.elimination.variance_inside(phi) + own)
        return self.elimination.variance_inside(phi)


@dataclass(frozen=True, slots=True, eq=False)
class GridVariances:
    """x ↦ variances of f by :class:`PosteriorVariance`, and of the noise."""

    posterior: GridPosterior
    by_alpha: Mapping[float, PosteriorVariance]

    @property
    def width(self) -> int:
        """2T."""
        return 2 * len(self.posterior.alpha)

    def __call__(self, x: Array) -> Float64:
        """Variances (n, 2T) of rows (n, d)."""
        of_f = of_finite(self._variance, x, self.width // 2)
        return np.hstack([of_f, np.broadcast_to(self.posterior.row_noise, of_f.shape)])

    def _variance(self, x: Array) -> Float64:
        each = {alpha: variance(x) for alpha, variance in self.by_alpha.items()}
        columns = [each[alpha] for alpha in self.posterior.alpha.tolist()]
        return np.asarray(np.stack(columns, axis=1) * self.posterior.noise_variance)


@dataclass(frozen=True, slots=True, eq=False)
class GridDraws:
    """x ↦ values of S functions drawn from the posterior, target by target."""

    posterior: GridPosterior
    deviations: Deviations

    @property
    def width(self) -> int:
        """T·S."""
        return int(np.prod(self.deviations.coef.shape[:2]))

    def __call__(self, x: Array) -> Float64:
        """Values (n, T·S) of rows (n, d)."""
        return of_finite(self._values, x, self.width)

    def _values(self, x: Array) -> Float64:
        values = self.posterior.mean(x).T[:, None] + self.deviations(x)
        return values.reshape(self.width, -1).T
