"""The penalised equations of a kernel, from moments on a grid of frequencies.

With weights D (prior standard deviations of the coefficients, from the kernel's spectral
density), the Toeplitz matrix T and a trend t(x)θ that is not penalised:

    A u = D (b − C θ̂),   A = D (T − Cᴴ B⁻¹ C) D + αI,   α = σₙ²/σ_f²
    f(x) = t(x) θ + Σ_j D_j u_j e^{ij·θ(x)},   θ = B⁻¹ (tᵀWy − C D u)

Products with T are real fast Fourier transforms (Greengard, Rachh & Barnett 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.fft
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.features.grid import GridFeatures
from rff_stream.kernels import Kernel
from rff_stream.moments.grid import GridMoments
from rff_stream.systems.system import CONSTANT

Trend = Literal["none", "constant", "linear"]


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
