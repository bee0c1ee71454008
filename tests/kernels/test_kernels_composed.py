"""Sums, products, scalings, user kernels, kernels with values only, and errors with bounds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import RationalQuadratic as SklearnRationalQuadratic
from sklearn.metrics.pairwise import chi2_kernel, polynomial_kernel

import rff_stream as rs
from rff_stream.errors import DataError, ModelError
from rff_stream.features import FourierFeatures, NystroemFeatures
from rff_stream.kernels import (
    ArcCosine,
    Cauchy,
    Chi2,
    Constant,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Product,
    RationalQuadratic,
    Sum,
    UserKernel,
    approximation_error,
    kernel_from_spec,
    kernel_named,
    kernel_names,
)

SINC = UserKernel(
    "sinc",
    lambda X, Y: np.sinc((X[:, None] - Y) / np.pi).prod(axis=2),
    lambda n, d, rng: rng.uniform(-1, 1, (n, d)),
)


@pytest.fixture
def rows(rng):
    return rng.standard_normal((12, 3)), rng.standard_normal((9, 3))


# exact values


@pytest.mark.parametrize("mixture", [0.1, 1.0, 30.0])
def test_rational_quadratic_is_that_of_scikit_learn(rows, mixture):
    expected = SklearnRationalQuadratic(0.7, mixture)(*rows)
    found = RationalQuadratic(0.7, mixture=mixture)(*rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_algebra_is_that_of_values(rows):
    a, b, c = Gaussian(0.5), Matern(2.0, 3.0), Cauchy()
    np.testing.assert_allclose((a + b + c)(*rows), a(*rows) + b(*rows) + c(*rows), rtol=1e-14)
    np.testing.assert_allclose((a * b * c)(*rows), a(*rows) * b(*rows) * c(*rows), rtol=1e-14)
    np.testing.assert_allclose((2.5 * (a + b))(*rows), 2.5 * (a(*rows) + b(*rows)), rtol=1e-14)
    np.testing.assert_allclose(((a + b) * 3 * c)(*rows), 3 * (a + b)(*rows) * c(*rows), rtol=1e-14)
    assert (2 * (a + b)).variance == 8.0
    assert (2 * a * b).variance == 6.0
    assert a + b + c == a + (b + c) == Sum((a, b, c))
    assert a * b * c == a * (b * c)


def test_a_length_scale_on_top_divides_that_of_all_parts(rows):
    own = Gaussian(0.5) + Cauchy(2.0)
    x, y = rows
    scale = np.array([0.5, 2.0, 1.3])
    expected = own(x / scale, y / scale)
    np.testing.assert_allclose(own.with_length_scale(scale)(x, y), expected, rtol=1e-14)
    assert own.length_scale == 1.0  # it brings its own: "median" does not touch it
    assert (Gaussian() + Cauchy()).length_scale is None


def test_values_without_a_sampler_are_those_of_scikit_learn(rows):
    x, y = rows
    expected = polynomial_kernel(x, y, degree=3, gamma=1 / 4, coef0=2)
    np.testing.assert_allclose(Polynomial(2.0, degree=3, offset=2)(x, y), expected, rtol=1e-12)
    x, y = np.abs(x), np.abs(y)
    x[0, 0] = y[0, 0] = 0
    np.testing.assert_allclose(Chi2(0.5, 2.0)(x, y), 2 * chi2_kernel(x, y, gamma=2), rtol=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_the_mean_over_random_units(rng, order):
    """k = 2 E H(wᵀx) H(wᵀy) (wᵀx)ᵖ (wᵀy)ᵖ, w ~ N(0, I): Cho & Saul 2009, eq. 1."""
    x, y = rng.standard_normal((2, 1, 4))
    a, b = (rng.standard_normal((400_000, 4)) @ np.vstack([x, y]).T).T
    units = 2 * (a > 0) * (b > 0) * (a * b) ** order
    error = abs(units.mean() - ArcCosine(order=order)(x, y)[0, 0])
    assert error < 4.5 * units.std() / math.sqrt(len(units))


def test_arc_cosine_of_a_row_with_itself_and_with_zero():
    x = np.array([[1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_allclose(ArcCosine(order=1)(x, x), [[5, 0], [0, 0]], atol=1e-12)


def test_chi2_refuses_values_below_zero():
    with pytest.raises(DataError, match="Column 1 holds values below 0"):
        Chi2()(np.array([[1.0, -1.0]]), np.ones((2, 2)))


# a user's kernel


def test_a_user_kernel_has_its_spectral_measure(rng):
    kernel, n = SINC.with_length_scale(0.5), 100_000
    delta = rng.standard_normal((4, 3))
    found = np.cos(kernel.sample_frequencies(n, 3, rng) @ delta.T).mean(axis=0)
    near, far = (kernel(f * delta, np.zeros((1, 3)))[:, 0] for f in (1, 2))
    assert (np.abs(found - near) < 4.5 * np.sqrt(((1 + far) / 2 - near**2) / n)).all()


def test_a_user_kernel_works_in_sums_and_maps(rng):
    kernel = SINC + 2 * Gaussian()
    features = FourierFeatures.sample(kernel, 2, 4096, rng=rng)
    X = rng.standard_normal((40, 2))
    assert approximation_error(features, kernel, X).mean < 3 * 3 / math.sqrt(4096)


def test_a_stored_user_kernel_is_a_name(rows):
    again = kernel_from_spec(json.loads(json.dumps(SINC.with_length_scale(2.0).spec())))
    assert (again.name, again.length_scale) == ("sinc", 2.0)
    with pytest.raises(ModelError, match=r"functions are not stored.*pass the kernel"):
        again(*rows)
    with pytest.raises(ModelError, match="functions are not stored"):
        again.sample_frequencies(2, 3, np.random.default_rng(0))


def test_a_function_of_another_shape_is_named(rows):
    wrong = UserKernel("wrong", lambda X, Y: np.ones(3), lambda n, d, rng: np.ones(n))
    with pytest.raises(ValueError, match=r"function of UserKernel 'wrong' gave shape \(3,\)"):
        wrong(*rows)
    with pytest.raises(ValueError, match=r"sampler of UserKernel 'wrong' gave shape \(4,\)"):
        wrong.sample_frequencies(4, 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, z: x[0] + 2 * z[0], "is not symmetric"),
        (lambda x, z: np.abs(x - z).sum(), "is larger for two rows than for each and itself"),
        (lambda x, z: -((x - z) ** 2).sum(), "is larger for two rows"),
        (lambda x, z: -(x @ z), "for a row and itself"),
        (lambda x, z: 0.0, "is 0 for all pairs"),
        (lambda x, z: np.nan, "not finite"),
    ],
)
def test_a_function_that_is_no_kernel_is_refused(rows, function, words):
    """What is not symmetric gave numbers, and distances an IndexError."""
    model = rs.KernelRidge(function, n_components=3, progress=False)
    with pytest.raises(ValueError, match=rf"{words}.*positive definite"):
        model.fit(rows[0], rows[0][:, 0])


# specs and errors


@pytest.mark.parametrize(
    "kernel",
    [
        RationalQuadratic(2.0, mixture=0.3),
        Gaussian() + 2 * Matern(nu=2.5) * Laplacian(3.0),
        (Gaussian() + Cauchy()).with_length_scale((1.0, 2.0)),
        Polynomial(degree=3),
        ArcCosine(order=2),
        Linear(),
        Chi2(0.1),
    ],
)
def test_a_spec_gives_its_kernel_back(kernel):
    assert kernel_from_spec(json.loads(json.dumps(kernel.spec()))) == kernel


def plain(name, length_scale=None, variance=1.0, **own):
    return {"kernel": name, "length_scale": length_scale, "variance": variance, **own}


@pytest.mark.parametrize(
    ("spec", "kernel"),
    [
        (plain("gaussian", 0.5, 2.0), Gaussian(0.5, 2.0)),
        (plain("laplacian", [1.0, 2.0]), Laplacian((1.0, 2.0))),
        (plain("cauchy"), Cauchy()),
        (plain("matern", nu=2.5), Matern(nu=2.5)),
        (plain("rational_quadratic", mixture=0.3), RationalQuadratic(mixture=0.3)),
        (plain("polynomial", degree=3, offset=2.0), Polynomial(degree=3, offset=2.0)),
        (plain("arc_cosine", order=2), ArcCosine(order=2)),
        (plain("chi2", 0.1), Chi2(0.1)),
        (
            {"kernel": "sum", "length_scale": None, "parts": [plain("gaussian"), plain("cauchy")]},
            Gaussian() + Cauchy(),
        ),
        (
            {"kernel": "product", "length_scale": 2.0, "parts": [plain("matern", nu=1.5)] * 2},
            (Matern() * Matern()).with_length_scale(2.0),
        ),
    ],
    ids=lambda value: value["kernel"] if isinstance(value, dict) else "",
)
def test_specs_of_format_1_are_read_and_written(spec, kernel):
    """What models on disk hold, word for word: no name or field may change."""
    assert kernel_from_spec(spec) == kernel
    assert kernel.spec() == spec


@pytest.mark.parametrize("spec", [{"kernel": "sum"}, {"kernel": "user", "name": "x"}])
def test_a_spec_of_other_fields_is_refused(spec):
    with pytest.raises(ModelError, match=r"has fields .* but needs"):
        kernel_from_spec(spec)


def test_names_and_text_come_from_the_class():
    assert RationalQuadratic(2.0, mixture=0.3).text == "rational_quadratic mixture=0.3"
    assert (2 * (Gaussian() + Matern(nu=2.5)) * Cauchy(3.0)).text == (
        "(gaussian + matern nu=2.5) * cauchy"
    )
    stationary = ["cauchy", "gaussian", "laplacian", "matern", "rational_quadratic", "rbf"]
    assert kernel_names(stationary=True) == stationary
    assert set(kernel_names()) == {*stationary, "arc_cosine", "chi2", "linear", "polynomial"}


def test_a_derived_kernel_does_not_take_the_aliases_of_its_base():
    class Derived(Gaussian):
        pass

    assert kernel_named("rbf") == Gaussian() and kernel_named("derived") == Derived()


def test_two_kernels_of_one_name_are_refused_by_both_names():
    class Cauchy(Gaussian):
        pass

    with pytest.raises(ValueError, match=r"cauchy.Cauchy and .*locals.*are both the kernel 'cau"):
        kernel_named("gaussian")


def test_a_constant_adds_one_level(rng, rows):
    kernel = Gaussian(0.5) + Constant(3.0)
    np.testing.assert_array_equal(kernel(*rows), Gaussian(0.5)(*rows) + 3.0)
    assert kernel.isotropic
    features = FourierFeatures.sample(kernel, 3, 4096, rng=rng)
    assert approximation_error(features, kernel, rows[0]).mean < 3 * 4 / math.sqrt(4096)
    assert kernel.second_moment(3) == pytest.approx(0.25 * 3 / 0.25)


def test_a_sum_with_a_part_that_is_not_stationary_is_not():
    kernel = Gaussian() + Polynomial()
    assert not kernel.stationary
    assert not kernel.isotropic
    with pytest.raises(ValueError, match=r"Sum kernel has no spectral measure.*NystroemFeatures"):
        FourierFeatures.sample(kernel, 3, 64)


@pytest.mark.parametrize("method", ["kmeans++", "leverage"])
def test_landmarks_of_a_sum_know_its_diagonal(rng, method):
    """The variance is not k(x, x) where a part is no function of x − x'."""
    kernel, X = Gaussian() + Polynomial(), rng.standard_normal((80, 2))
    features = NystroemFeatures.sample(kernel, X, 60, method=method, rng=0, dtype="float64")
    Z = features(X)
    assert np.abs(Z @ Z.T - kernel(X, X)).max() < 1e-3 * kernel(X, X).max()


def test_a_part_without_a_sampler_is_named():
    with pytest.raises(TypeError, match=r"Polynomial has no sample_frequencies.*NystroemFeatures"):
        (Gaussian() + Polynomial()).sample_frequencies(3, 2, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sum((Gaussian(),)), "1 parts but a sum has two or more"),
        (lambda: Product(()), "0 parts but a product"),
        (lambda: -1 * Gaussian(), "factor=-1.0 but it must be a finite number > 0"),
        (lambda: Polynomial(degree=0), "degree=0 but it must be a whole number"),
        (lambda: ArcCosine(order=3), "order=3 but it must be 0, 1 or 2"),
        (lambda: RationalQuadratic(mixture=0), "mixture=0"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_only_kernels_and_numbers_compose():
    with pytest.raises(TypeError):
        Gaussian() + 1
    with pytest.raises(TypeError):
        Gaussian() * "2"


# quantiles and second moments


@pytest.mark.parametrize(
    "kernel", [Gaussian(2.0), Laplacian(), Cauchy(0.5), Matern(nu=1.5), RationalQuadratic(3.0)]
)
def test_quantiles_have_the_distribution_of_draws(rng, kernel):
    u = rng.uniform(size=(20_000, kernel.uniforms(2)))
    found, drawn = kernel.frequencies_at(u, 2), kernel.sample_frequencies(20_000, 2, rng)
    for statistic in (lambda a: a[:, 0], lambda a: np.log(np.linalg.norm(a, axis=1))):
        assert stats.ks_2samp(statistic(found), statistic(drawn)).pvalue > 1e-4


@pytest.mark.parametrize(
    "kernel",
    [Gaussian(2.0), Cauchy(0.5), RationalQuadratic(), Gaussian() + Cauchy(), Gaussian() * Cauchy()],
)
def test_second_moments_are_those_of_draws(rng, kernel):
    squared = (kernel.sample_frequencies(200_000, 3, rng) ** 2).sum(axis=1)
    error = 4.5 * squared.std() / math.sqrt(len(squared))
    assert abs(squared.mean() - kernel.second_moment(3)) < error
    assert Matern(nu=3.0).second_moment(2) == 3.0


# errors with their bounds


@pytest.mark.parametrize("paired", [True, False])
def test_errors_stay_below_the_bounds_of_theory(rng, paired):
    kernel, X = Gaussian(1.5, 2.0), rng.standard_normal((60, 3))
    outside, pairs = 0, 0
    for seed in range(40):
        features = FourierFeatures.sample(
            kernel, 3, 512, paired=paired, frequencies="iid", rng=seed
        )
        found = approximation_error(features, kernel, X)
        Z = features(X).astype(np.float64)
        error = np.abs((Z * features.prior()) @ Z.T - kernel(X, X))
        assert (found.mean, found.max) == pytest.approx((error.mean(), error.max()))
        outside += (error > found.hoeffding).sum()
        pairs += error.size
        assert found.max < found.uniform
    assert outside / pairs < 1 - found.confidence
    terms = 256 if paired else 512
    spread = 2.0 if paired else 4.0
    assert found.hoeffding == pytest.approx(2 * spread * math.sqrt(math.log(40) / (2 * terms)))


def test_the_uniform_bound_solves_its_equation(rng):
    kernel, X = Gaussian(), rng.standard_normal((30, 2))
    features = FourierFeatures.sample(kernel, 2, 1000, rng=0)
    bound = approximation_error(features, kernel, X, confidence=0.9).uniform
    diameter = np.linalg.norm(np.ptp(X, axis=0))
    chance = 2**8 * 2 * (diameter / bound) ** 2 * math.exp(-1000 * bound**2 / (4 * (2 + 2)))
    assert chance == pytest.approx(0.1)


def test_a_kernel_without_second_moment_has_no_uniform_bound(rng):
    features = FourierFeatures.sample(Laplacian(), 2, 100, rng=0)
    found = approximation_error(features, Laplacian(), rng.standard_normal((9, 2)))
    assert found.uniform == math.inf
    assert "relative Frobenius" in str(found)
    surer = approximation_error(features, Laplacian(), np.ones((2, 2)), confidence=0.999)
    assert "bounds at 99.9%" in str(surer)
    with pytest.raises(ValueError, match="confidence=2"):
        approximation_error(features, Laplacian(), np.ones((2, 2)), confidence=2)


def test_products_of_rows_far_from_0_that_round_are_said():
    """In Kelvin 17 of 40 columns were left, and components told .50 of the variance for .32."""
    rng = np.random.default_rng(0)
    x = 0.6 * rng.normal(size=(200, 40)) + np.sin(np.arange(200) / 9)[:, None] * np.linspace(
        0, 1, 40
    )
    near, exact = (
        rs.KernelPCA(2, "linear", random_state=0, progress=False, **choices).fit(rows)
        for rows, choices in ((x, {}), (x + 300.0, {"dtype": "float64"}))
    )
    np.testing.assert_allclose(
        exact.explained_variance_ratio_, near.explained_variance_ratio_, rtol=1e-4
    )
    message = r"Rows lie \d+ times.* has 17 columns.* have 40 .*give dtype='float64'"
    with pytest.warns(rs.NumericalWarning, match=message):
        rs.KernelPCA(2, "linear", random_state=0, progress=False).fit(x + 300.0)
    with pytest.warns(rs.NumericalWarning, match=r"kernel='polynomial' has 1 columns.* have 6 "):
        rs.KernelPCA(1, "polynomial", random_state=0, progress=False).fit(x[:, [0, 39]] + 1e3)
