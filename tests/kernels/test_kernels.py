"""Kernels: exact values against other code, and each sampler against its own formula."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import Matern as SklearnMatern
from sklearn.metrics.pairwise import laplacian_kernel

import reference
from rff_stream.errors import ModelError
from rff_stream.kernels import (
    ArcCosine,
    Cauchy,
    Chi2,
    Constant,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RadialKernel,
    RationalQuadratic,
    kernel_from_spec,
    kernel_named,
    length_scale_vector,
)

ARD = (0.5, 2.0, 1.3)
SMOOTHNESS = [0.05, 0.5, 0.8, 1.5, 2.5, 3.7, 20.0, 20.5, 60.0]
KERNELS = [
    Gaussian(),
    Laplacian(),
    Cauchy(),
    Matern(),
    *(Matern(nu=nu) for nu in (0.3, 3.7, 25.0)),
    RationalQuadratic(),
    RationalQuadratic(mixture=0.3),
    0.25 * Gaussian() + 0.75 * Matern(0.2, nu=2.5),
    Gaussian() * Laplacian(),
    (0.5 * Gaussian() * Cauchy(2.0)) + 0.5 * Laplacian(),
]
EPS = 2.0**-52


def name_of(kernel: Kernel) -> str:
    own = getattr(kernel, "nu", getattr(kernel, "mixture", ""))
    parts = "-".join(name_of(part) for part in getattr(kernel, "parts", ()))
    return f"{type(kernel).__name__}{own}{parts}"


@pytest.fixture
def rows(rng):
    return rng.standard_normal((12, 3)), rng.standard_normal((9, 3))


every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=name_of)
every_scale = pytest.mark.parametrize("length_scale", [1.0, 0.3, ARD])


# exact values: relative rounding of a few operations


@every_scale
def test_gaussian_is_that_of_scikit_learn(rows, length_scale):
    expected = RBF(length_scale)(*rows)
    np.testing.assert_allclose(Gaussian(length_scale)(*rows), expected, rtol=1e-12)
    np.testing.assert_allclose(reference.gaussian(*rows, length_scale), expected, rtol=1e-12)


def test_laplacian_is_that_of_scikit_learn(rows):
    expected = laplacian_kernel(*rows, gamma=1 / 0.7)
    np.testing.assert_allclose(Laplacian(0.7)(*rows), expected, rtol=1e-12)


@every_scale
@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_matern_is_that_of_scikit_learn(rows, nu, length_scale):
    expected = SklearnMatern(length_scale, nu=nu)(*rows)
    # tᵛ Kᵥ(t) there loses about ν digits of the last place, as ν ln t and t do here.
    np.testing.assert_allclose(Matern(length_scale, nu=nu)(*rows), expected, rtol=1e-11, atol=1e-14)


@every_scale
@pytest.mark.parametrize("kernel", [Laplacian, Cauchy])
def test_values_are_those_of_the_dense_formula(rows, kernel, length_scale):
    formula = {Laplacian: reference.laplacian, Cauchy: reference.cauchy}[kernel]
    expected = 3.0 * formula(*rows, np.asarray(length_scale))
    np.testing.assert_allclose(kernel(length_scale, 3.0)(*rows), expected, rtol=1e-12)


@pytest.mark.parametrize("nu", [20.5, 50.0, 171.0, 200.0])
def test_a_very_smooth_matern_is_its_formula_where_that_is_finite(nu):
    x = np.linspace(0.8, 6, 40)[:, None]
    expected = reference.matern(x, np.zeros((1, 1)), nu=nu)
    assert np.isfinite(expected).all()
    # ν ln t, ln Γ(ν) and t, each of about 1,000, cancel: 1,000 ε, and a few for K.
    np.testing.assert_allclose(Matern(nu=nu)(x, np.zeros((1, 1))), expected, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("nu", [1e3, 1e6])
def test_a_very_smooth_matern_nears_the_gaussian(nu):
    x = np.linspace(0, 5, 30)[:, None]
    # E exp(−r²/2w) with Var w = 1/ν: the second-order term is at most 1/ν.
    np.testing.assert_allclose(
        Matern(nu=nu)(x, x), reference.gaussian(x, x), atol=1 / nu, rtol=1e-12
    )


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_matern_is_finite_and_decreasing_at_any_distance(nu):
    x = np.concatenate([[0.0], np.logspace(-300, 3, 200)])[:, None]
    values = Matern(nu=nu)(x, x[:1])[:, 0]
    assert values[0] == 1.0
    assert np.isfinite(values).all()
    # t over 300 decades: ν ln t and ln Γ(ν) cancel, each up to 700 ν.
    assert (np.diff(values) <= 4 * EPS * 700 * (1 + nu)).all()


# laws


RADIAL = [
    *(each for each in KERNELS if isinstance(each, RadialKernel)),
    *(Matern(nu=nu, variance=2.0) for nu in (0.5, 2.5)),
]


@pytest.mark.parametrize("kernel", RADIAL, ids=name_of)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_in_place_are_the_same_bits(kernel, dtype, rng):
    squared = rng.exponential(size=(5, 7)).astype(dtype)
    squared[0, 0] = 0.0
    expected = kernel.of_squared_distance(squared.copy())  # of Bessel functions: in float64
    kernel.write_value(squared, np.full_like(squared, np.nan))
    assert squared.dtype == dtype
    assert (squared == expected.astype(dtype)).all()


@every_kernel
def test_values_are_symmetric_and_largest_at_zero(rows, kernel):
    x, _ = rows
    value = kernel.with_length_scale(0.8)(x, x)
    assert np.array_equal(value, value.T)
    assert np.array_equal(np.diag(value), np.ones(len(x)))
    assert value.max() == 1.0


@every_kernel
def test_a_kernel_matrix_has_no_negative_eigenvalue(rng, kernel):
    x = rng.standard_normal((60, 3))
    assert np.linalg.eigvalsh(kernel(x, x)).min() > -60 * 60 * EPS


@every_kernel
@pytest.mark.parametrize("scale", [0.5, ARD])
def test_length_scale_divides_the_inputs(rows, kernel, scale):
    x, y = rows
    expected = kernel(x / np.asarray(scale), y / np.asarray(scale))
    np.testing.assert_allclose(kernel.with_length_scale(scale)(x, y), expected, rtol=1e-13)


@every_kernel
def test_a_large_offset_costs_only_the_rounding_of_the_inputs(rows, kernel):
    x, y = rows[0] + 1e9, rows[1] + 1e9
    # δ is exact between the shifted values and loses 2⁻²² of a unit from the shift itself.
    np.testing.assert_allclose(kernel(x, y), kernel(x - 1e9, y - 1e9), atol=1e-6)


@every_kernel
def test_float32_rows_are_read_in_float64(rows, kernel):
    x, y = (a.astype(np.float32) for a in rows)
    assert np.array_equal(kernel(x, y), kernel(x.astype(np.float64), y.astype(np.float64)))


@every_kernel
def test_no_rows_give_no_values(kernel):
    assert kernel(np.empty((0, 3)), np.ones((2, 3))).shape == (0, 2)
    assert kernel(np.ones((2, 3)), np.empty((0, 3))).shape == (2, 0)


# spectral measure


@every_kernel
@pytest.mark.parametrize("scale", [None, 0.4, ARD])
def test_frequencies_have_the_kernel_as_their_transform(rng, kernel, scale):
    """E cos(ωᵀδ) = κ(δ), where the variance of cos(ωᵀδ) is (1 + κ(2δ))/2 − κ(δ)²."""
    kernel, n = kernel.with_length_scale(scale), 100_000
    origin = np.zeros((1, 3))
    direction = rng.standard_normal((5, 3))
    delta = np.array([[0.1], [0.5], [1.0], [2.0], [4.0]]) * direction * np.asarray(scale or 1.0)
    found = np.cos(kernel.sample_frequencies(n, 3, rng) @ delta.T).mean(axis=0)
    near, far = kernel(delta, origin)[:, 0], kernel(2 * delta, origin)[:, 0]
    # 180 comparisons: 4.5 standard errors, at most .0143, fail once in 800 seeds. A frequency
    # scale off by 3 % moves the Gaussian's κ by up to .022 there.
    error = np.sqrt(((1 + far) / 2 - near**2) / n)
    assert (np.abs(found - near) < 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("nu", [0.005, 0.02])
def test_frequencies_are_finite_however_rough_the_kernel(rng, nu):
    assert np.isfinite(Matern(nu=nu).sample_frequencies(20_000, 2, rng)).all()


def test_only_rotation_invariant_kernels_say_so():
    found = {type(kernel).__name__: kernel.isotropic for kernel in KERNELS[:10]}
    rotating = {"Gaussian": True, "Matern": True, "RationalQuadratic": True}
    assert found == rotating | {"Laplacian": False, "Cauchy": False, "Sum": True}
    assert not (Gaussian() * Laplacian()).isotropic
    assert not (Gaussian((1.0, 2.0)) + Gaussian()).isotropic


# the gradient by length-scales

GRADIENTS = [
    *KERNELS,
    *(Matern(0.8, 2.0, nu=nu) for nu in (0.5, 2.5, 0.8, 1.0)),
    Polynomial(ARD, 0.5, degree=3),
    Polynomial(degree=1) * Gaussian(),
    ArcCosine(0.7),
    Linear(0.7),
    Chi2(ARD, 2.0),
    Gaussian(0.5) + 2 * Polynomial(2.0),
    Gaussian() + Constant(3.0),
]


@pytest.mark.parametrize("kernel", GRADIENTS, ids=name_of)
@pytest.mark.parametrize("scale", [None, 0.6, ARD])
def test_the_gradient_is_that_of_the_values(rows, kernel, scale):
    x, y = map(np.abs, rows)
    y[0] = x[0]  # where a rough kernel has a kink
    kernel = kernel if scale is None else kernel.with_length_scale(scale)
    found = kernel.length_scale_gradient(x, y)
    assert found.shape == (3, 12, 9)
    own = np.ones(3) if kernel.length_scale is None else np.asarray(kernel.length_scale)
    for j in range(3):
        step = 1e-4 * (np.arange(3) == j)
        sides = [kernel.with_length_scale(own * np.exp(s * step))(x, y) for s in (1, -1)]
        # central differences: h²/6 of the third derivative, and 1e-16/h of rounding
        np.testing.assert_allclose(
            found[j], (sides[0] - sides[1]) / 2e-4, rtol=2e-6, atol=2e-7 * np.abs(sides[0]).max()
        )
    found = kernel.length_scale_gradient(x, x)
    lower = np.random.default_rng(0).normal(size=found.shape[1:])
    weights = np.tril(lower) + np.tril(lower, -1).T
    np.testing.assert_allclose(
        kernel.weighted_gradient(x, lower, kernel(x, x)),
        (found * weights).sum(axis=(1, 2)),
        rtol=1e-12,
        atol=1e-13 * np.abs(found).sum(),
    )


@pytest.mark.parametrize("nu", [0.05, 0.5, 0.8, 2.5, 20.5])
def test_the_gradient_is_finite_at_any_distance(nu):
    x = np.concatenate([[0.0], np.logspace(-300, 3, 200)])[:, None]
    found = Matern(nu=nu).length_scale_gradient(x, x[:1])
    assert np.isfinite(found).all()
    assert found[0, 0, 0] == 0
    assert (found >= -1e-9).all()


# values: specs, names, fields


@every_kernel
@pytest.mark.parametrize("scale", [None, 0.1, ARD])
def test_a_spec_gives_its_kernel_back(kernel, scale):
    kernel = kernel.with_length_scale(scale)
    assert kernel_from_spec(json.loads(json.dumps(kernel.spec()))) == kernel


def test_the_spec_of_a_matern():
    expected = {"kernel": "matern", "nu": 2.5, "length_scale": [1.0, 2.0], "variance": 3.0}
    assert Matern([1, 2], 3, 2.5).spec() == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "kernel None but this version has .*gaussian, laplacian, linear, matern"),
        ({"kernel": "cosine"}, "kernel 'cosine'"),
        ({"kernel": "gaussian", "length_scale": 1.0}, "has fields .* but needs .*'variance'"),
        (Gaussian().spec() | {"nu": 1.5}, "has fields .*'nu'"),
    ],
)
def test_a_spec_that_is_not_one_is_refused(spec, message):
    with pytest.raises(ModelError, match=message):
        kernel_from_spec(spec)


def test_names():
    found = [kernel_named(name) for name in ("gaussian", "rbf", "laplacian", "cauchy", "matern")]
    assert found == [Gaussian(), Gaussian(), Laplacian(), Cauchy(), Matern(nu=1.5)]
    message = "'polly' .* 'cauchy', .*'gaussian', .*'linear', 'matern', .*'rbf'. Use one of these"
    with pytest.raises(ValueError, match=message):
        kernel_named("polly")


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_any_sequence_is_an_ard_length_scale(values):
    kernel = Gaussian(np.array(values))
    assert kernel == Gaussian(values) == Gaussian().with_length_scale(tuple(values))
    assert hash(kernel) == hash(Gaussian(tuple(values)))
    assert np.array_equal(length_scale_vector(kernel, len(values)), values)


def test_one_length_scale_serves_all_inputs():
    assert np.array_equal(length_scale_vector(Gaussian(2), 3), [2, 2, 2])
    assert np.array_equal(length_scale_vector(Gaussian(), 2), [1, 1])
    assert Gaussian(np.float32(2)).length_scale == 2.0
    assert type(Gaussian(np.float32(2)).length_scale) is float


def test_every_kernel_keeps_the_contract():
    assert all(isinstance(kernel, Kernel) for kernel in KERNELS)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "median", [1.0, 0.0], None])
@pytest.mark.parametrize("field", ["length_scale", "variance", "nu"])
def test_a_parameter_is_finite_and_positive(field, value):
    if field == "length_scale" and value is None:
        return
    with pytest.raises(ValueError, match=rf"{field}.*"):
        Matern(**{field: value})


@pytest.mark.parametrize("value", [[], [[1.0]]])
def test_a_length_scale_is_a_number_or_a_row_of_them(value):
    with pytest.raises(ValueError, match=r"length_scale has shape .* one per input"):
        Gaussian(value)


def test_an_infinite_nu_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"nu=inf is the Gaussian kernel. Use Gaussian"):
        Matern(nu=math.inf)


@every_kernel
def test_the_length_of_an_ard_length_scale_is_checked(rng, kernel):
    kernel, x = kernel.with_length_scale((1.0, 2.0)), rng.standard_normal((4, 3))
    message = "length_scale has 2 values but the inputs have 3 columns. Give one"
    with pytest.raises(ValueError, match=message):
        kernel(x, x)
    with pytest.raises(ValueError, match=message):
        kernel.sample_frequencies(5, 3, rng)


@every_kernel
@pytest.mark.parametrize("other", [np.ones((2, 4)), np.ones(3)])
def test_rows_of_unequal_length_are_refused(kernel, other):
    with pytest.raises(ValueError, match=r"X has shape \(2, 3\) and Y .* rows of equal length"):
        kernel(np.ones((2, 3)), other)
