"""Spectral densities and integrals of kernels, against quadrature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rff_stream.kernels import (
    ArcCosine,
    Cauchy,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    RationalQuadratic,
)
from rff_stream.kernels.base import log_integral

SCALE = 0.7
LINE = np.linspace(-400, 400, 800_001)
KERNELS: list[Kernel] = [
    Gaussian(SCALE),
    Laplacian(SCALE),
    Matern(SCALE, nu=0.5),
    Matern(SCALE, nu=2.5),
    RationalQuadratic(SCALE, mixture=3.0),
    Gaussian(SCALE) + 2.0 * Laplacian(SCALE),  # type: ignore[list-item]
]
CONVOLVED: list[Kernel] = [Gaussian(SCALE), Laplacian(SCALE), Cauchy(SCALE), Matern(SCALE, nu=1.5)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def on_a_line(kernel: Any) -> np.ndarray:
    return np.asarray(kernel(np.zeros((1, 1)), LINE[:, None])[0])


@every_kernel
def test_the_integral_is_that_of_the_formula(kernel: Kernel) -> None:
    # the trapezoidal rule misses (h²/12)·(jump of κ' at 0) ≤ 2e-7, and tails below e⁻²⁰⁰ or 1e-10
    integral = np.trapezoid(on_a_line(kernel), LINE)
    assert math.exp(log_integral(kernel, 1)) == pytest.approx(integral, rel=1e-6)


@every_kernel
def test_the_spectral_density_is_the_fourier_transform_of_the_formula(kernel: Kernel) -> None:
    omega = np.array([0.0, 0.3, 1.7, 4.0])
    values = on_a_line(kernel) / kernel.variance
    expected = [np.trapezoid(values * np.cos(w * LINE), LINE) / (2 * np.pi) for w in omega]
    found = kernel.spectral_density(omega[:, None])
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_the_density_of_a_product_of_one_kind() -> None:
    omega = np.linspace(-3, 3, 7)[:, None] * [[1.0, 0.5]]
    kernel = (Gaussian(0.5) * Gaussian((1.0, 2.0), 3.0)).with_length_scale(1.5)
    scale = 1.5 / np.sqrt(4 + np.array([1.0, 0.25]))
    expected = Gaussian(scale).spectral_density(omega)
    np.testing.assert_allclose(kernel.spectral_density(omega), expected, rtol=1e-12)
    sharp = Laplacian(0.5) * Laplacian((1.0, 2.0)) * Laplacian(2.0)
    expected = Laplacian(1 / np.array([3.5, 3.0])).spectral_density(omega)
    np.testing.assert_allclose(sharp.spectral_density(omega), expected, rtol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(
    "kernel", [*KERNELS, Cauchy(SCALE), Laplacian(SCALE).self_convolution(1)], ids=repr
)
def test_the_density_is_that_of_the_draws(kernel: Kernel, d: int, rng: np.random.Generator) -> None:
    """Boxes of ω around 0 hold as much of the draws as of the density."""
    kernel, n = kernel.with_length_scale(1.0), 50_000
    draws = kernel.sample_frequencies(n, d, rng)
    axis = (np.arange(30) + 0.5) / 30
    grid = np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    for side in (0.5, 1.5):  # the measure is even in each input: one corner of 2ᵈ
        inside = (np.abs(draws) < side).all(axis=1).mean()
        mass = kernel.spectral_density(side * grid).mean() * (2 * side) ** d
        # 4.5 standard errors, and the midpoint rule: (side/30)²/24 of the curvature: ≤ 0.4 %
        assert abs(inside - mass) < 4.5 * math.sqrt(mass / n) + 4e-3 * mass


def test_heavy_tails_of_a_cauchy_kernel() -> None:
    # ∫ beyond L of ℓ²/δ² is 2ℓ²/L
    rest = 2 * SCALE**2 / LINE[-1]
    integral = np.trapezoid(on_a_line(Cauchy(SCALE)), LINE) + rest
    assert math.exp(log_integral(Cauchy(SCALE), 1)) == pytest.approx(integral, rel=1e-6)


@pytest.mark.parametrize(
    "kernel", [Gaussian((0.5, 2.0)), Matern((0.5, 2.0), nu=1.5), Laplacian((0.5, 2.0))], ids=repr
)
def test_the_integral_over_two_inputs(kernel: Kernel) -> None:
    axes = np.linspace(-12, 12, 1201), np.linspace(-48, 48, 1201)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    values = kernel(np.zeros((1, 2)), grid)[0].reshape(1201, 1201)
    integral = np.trapezoid(np.trapezoid(values, axes[1]), axes[0])
    assert math.exp(log_integral(kernel, 2)) == pytest.approx(integral, rel=2e-3)


@pytest.mark.parametrize("kernel", CONVOLVED, ids=repr)
def test_a_kernel_convolved_with_itself(kernel: Kernel) -> None:
    wide = kernel.self_convolution(1)
    line = np.linspace(-60, 60, 120_001)
    middle = len(line) // 2
    values = kernel(np.zeros((1, 1)), line[:, None])[0]
    step = line[1] - line[0]
    shifts = np.array([0, 500, 2000])  # 0, 0.5 and 2 along the line
    found = np.array([np.sum(values * np.roll(values, s)) * step for s in shifts])
    expected = wide(np.zeros((1, 1)), line[middle + shifts][:, None])[0]
    assert np.allclose(found / found[0], expected, rtol=3e-3)


@pytest.mark.parametrize("kernel", CONVOLVED, ids=repr)
def test_the_integral_of_the_square(kernel: Kernel) -> None:
    integral = np.trapezoid(on_a_line(kernel) ** 2, LINE)
    log_square = 2 * log_integral(kernel, 1) - log_integral(kernel.self_convolution(1), 1)
    assert math.exp(log_square) == pytest.approx(integral, rel=1e-5)


def test_logarithms_do_not_overflow() -> None:
    assert log_integral(Gaussian(1.0), 1000) == pytest.approx(500 * math.log(2 * math.pi))


def test_variance_multiplies_the_integral() -> None:
    assert log_integral(Gaussian(1.0, variance=3.0), 2) == pytest.approx(
        log_integral(Gaussian(1.0), 2) + math.log(3)
    )


def test_a_kernel_of_ones_own_brings_its_density() -> None:
    class Own(Gaussian):
        def log_spectral_density(self, omega: np.ndarray) -> np.ndarray:
            return np.full(len(omega), -1.0)

    assert log_integral(Own(), 1) == pytest.approx(math.log(2 * math.pi) - 1)


@pytest.mark.parametrize("kernel", [ArcCosine(), Gaussian() * Laplacian()], ids=["arc", "product"])
def test_a_kernel_without_a_known_density_is_refused(kernel: Any) -> None:
    with pytest.raises(ValueError, match=r"no spectral density.*log_spectral_density"):
        log_integral(kernel, 2)


def test_a_kernel_without_a_finite_integral_is_refused() -> None:
    with pytest.raises(ValueError, match=r"log ∫κ = inf in 4 dimensions.*Gaussian"):
        log_integral(RationalQuadratic(1.0, mixture=2.0), 4)
    assert math.isfinite(log_integral(RationalQuadratic(1.0, mixture=2.0), 3))


def test_a_kernel_without_a_known_convolution_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no convolution with itself"):
        RationalQuadratic(1.0).self_convolution(2)
