"""Evidence and posteriors from moments: equal to dense universal kriging, and honest."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import reference_answers as reference
import rff_stream as rs
from rff_stream.answers.calibration import conformal_quantile
from rff_stream.answers.dual import dual
from rff_stream.answers.evidence import evidence, evidence_at, log_evidence
from rff_stream.answers.posterior import posterior
from rff_stream.answers.ridge import ridge
from rff_stream.errors import ModelError, NumericalWarning
from rff_stream.systems.spectrum import spectrum

N, R = 500, 60
RNG = np.random.default_rng(23)
X = RNG.standard_normal((N, 4))
Z = reference.fourier(X, R)
Y = np.c_[np.sin(X[:, 0]) + 7, X[:, 1] * X[:, 2]] + RNG.standard_normal((N, 2)) * [0.1, 0.7]
W = RNG.uniform(0.2, 3.0, N)
S = np.full(R, 2 / R)
NEW = reference.fourier(RNG.standard_normal((9, 4)) * 1.5, R)


def process_of(found):
    """The posterior, where R = 60 is too few for the variance and that is not the point."""
    return posterior_of(found.spectrum, found.alpha, found.noise_variance)


def posterior_of(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        return posterior(*arguments)


def few(n_rows: int, n_components: int):
    """More features than rows."""
    return reference.fourier(X[:n_rows], n_components), Y[:n_rows], W[:n_rows]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("shape", [(N, R), (90, 160)], ids=["n > R", "n < R"])
@pytest.mark.parametrize("alpha", [1e-6 * N, 0.2, 30.0])
def test_log_evidence_and_posterior_equal_dense_kriging(fit_intercept, shape, alpha):
    """1e-8, relative to log p ~ n and to the signal; α ≥ 1e-6 n bounds the condition."""
    z, y, w = few(*shape)
    s = np.full(shape[1], 2 / shape[1])
    found = spectrum(reference.moments_of(z, y, w), fit_intercept=fit_intercept)
    noise = np.array([0.3, 0.6])
    value = log_evidence(found, alpha, noise)
    new = reference.fourier(X[-9:] * 1.5, shape[1])
    for t in range(2):
        dense = reference.Kriging(
            z, y[:, t], w, s, noise[t], noise[t] / alpha, fit_intercept=fit_intercept
        )
        expected = dense.log_evidence()
        assert abs(value[t] - expected) < 1e-8 * (N + abs(expected))
        process = posterior_of(found, np.full(2, alpha), noise)
        mean, variance = dense.predict(new)
        assert np.allclose(process.mean(new)[:, t], mean, rtol=1e-8, atol=1e-7)
        assert np.allclose(process.variance(new)[:, t], variance, rtol=1e-7, atol=1e-8)
        noisy = process.std(new, noise=True, weights=W[:9])[:, t]
        assert np.allclose(noisy, np.sqrt(variance + noise[t] / W[:9]), rtol=1e-7)


def test_the_found_variances_are_the_maximum_in_both_directions():
    moments = reference.moments_of(Z, Y, W)
    found = evidence(moments)
    assert np.allclose(found.signal_variance, found.noise_variance / found.alpha)
    for factor in (0.99, 1.01):
        other_alpha = log_evidence(found.spectrum, found.alpha * factor, found.noise_variance)
        other_noise = log_evidence(found.spectrum, found.alpha, found.noise_variance * factor)
        assert (other_alpha < found.log_evidence).all()
        assert (other_noise < found.log_evidence).all()
        both = evidence_at(found.spectrum, found.alpha * factor)
        assert (both.log_evidence < found.log_evidence).all()


def test_the_maximum_is_that_of_a_fine_grid():
    found = evidence(reference.moments_of(Z, Y, W))
    grid = np.geomspace(1e-6, 1e5, 2000)
    values = np.array([evidence_at(found.spectrum, alpha).log_evidence for alpha in grid])
    assert (found.log_evidence >= values.max(axis=0)).all()
    assert np.allclose(np.log(found.alpha), np.log(grid[values.argmax(axis=0)]), atol=0.02)


def test_variances_of_data_drawn_from_the_model_are_found():
    """σₙ² within 4 standard errors √(2/n); σ_f² within a factor 2 (R = 60 coefficients)."""
    rng = np.random.default_rng(0)
    noise, signal, n = 0.04, 2.5, 4000
    z = reference.fourier(rng.standard_normal((n, 4)) * 2, R)
    beta = np.sqrt(signal * 2 / R) * rng.standard_normal((R, 1))
    w = rng.uniform(0.5, 2, n)
    y = 3 + z @ beta + np.sqrt(noise / w)[:, None] * rng.standard_normal((n, 1))
    found = evidence(reference.moments_of(z, y, w))
    assert abs(found.noise_variance[0] / noise - 1) < 4 * np.sqrt(2 / n)
    assert 0.5 < found.signal_variance[0] / signal < 2


def test_a_shared_alpha_maximises_the_sum():
    moments = reference.moments_of(Z, Y, W)
    shared, own = evidence(moments, shared=True), evidence(moments)
    assert shared.alpha[0] == shared.alpha[1]
    assert own.alpha.min() < shared.alpha[0] < own.alpha.max()
    for factor in (0.98, 1.02):
        other = evidence_at(shared.spectrum, shared.alpha * factor)
        assert other.log_evidence.sum() < shared.log_evidence.sum()


def test_wide_targets_equal_targets_one_by_one():
    y = np.c_[Y, Y[:, ::-1] ** 2, RNG.standard_normal((N, 3))]
    moments = reference.moments_of(Z, y, W)
    together = evidence(moments)
    for t in range(7):
        alone = evidence(moments.with_targets([t]))
        assert np.isclose(together.alpha[t], alone.alpha[0], rtol=1e-6)
        assert np.isclose(together.log_evidence[t], alone.log_evidence[0], rtol=1e-9)


def test_the_mean_is_the_ridge_regression():
    moments = reference.moments_of(Z, Y, W)
    found = evidence(moments)
    expected = ridge(moments, found.alpha).predict(NEW)
    assert np.allclose(process_of(found).mean(NEW), expected, rtol=1e-9)


def test_without_intercept_it_approaches_the_exact_gaussian_process():
    """Monte-Carlo error of the kernel shrinks like 1/√R: 16 times the features, a quarter."""
    rng = np.random.default_rng(2)
    x, new = rng.uniform(-2, 2, (150, 1)), rng.uniform(-2, 2, (20, 1))
    y = np.sin(2 * x) + 0.1 * rng.standard_normal(x.shape)
    exact = GaussianProcessRegressor(RBF(1.0), alpha=0.01, optimizer=None).fit(x, y)
    mean, std = exact.predict(new, return_std=True)
    errors = []
    for size in (64, 1024):
        z, at = reference.fourier(x, size), reference.fourier(new, size)
        found = spectrum(reference.moments_of(z, y), fit_intercept=False)
        process = posterior(found, np.array([0.01]), np.array([0.01]))
        error = np.abs(process.mean(at)[:, 0] - mean.ravel()).max()
        errors.append(max(error, np.abs(process.std(at)[:, 0] - std.ravel()).max()))
    assert errors[1] < 0.02
    assert errors[1] < errors[0] / 2


def test_functions_have_the_posterior_mean_and_covariance():
    process = process_of(evidence(reference.moments_of(Z, Y, W)))
    draws = process.functions(6000, np.random.default_rng(1))
    values = draws(NEW)  # (S, 9, 2)
    std = process.std(NEW)
    assert (np.abs(values.mean(axis=0) - process.mean(NEW)) < 5 * std / np.sqrt(6000)).all()
    assert np.allclose(values.std(axis=0), std, rtol=5 / np.sqrt(2 * 6000))
    assert np.allclose(values[:, 3:4], draws(NEW[3:4]), rtol=1e-12)


def test_log_density_is_that_of_the_normal_distribution():
    process = process_of(evidence(reference.moments_of(Z, Y, W)))
    y = RNG.standard_normal((9, 2))
    expected = stats.norm.logpdf(y, process.mean(NEW), process.std(NEW, noise=True))
    assert np.allclose(process.log_density(NEW, y), expected)


def test_leave_one_out_equals_refits_without_the_row():
    process = posterior_of(
        spectrum(reference.moments_of(Z, Y, W)), np.array([0.3, 2.0]), np.array([0.1, 0.1])
    )
    found = process.leave_one_out(Z, Y, W)
    for i in (0, 17, 311):
        keep = np.arange(N) != i
        for t, alpha in enumerate((0.3, 2.0)):
            coef, mu = reference.ridge(Z[keep], Y[keep], W[keep], S, alpha, fit_intercept=True)
            assert np.isclose(found[i, t], Y[i, t] - Z[i] @ coef[:, t] - mu[t], rtol=1e-7)


@pytest.mark.slow
@given(factor=st.floats(1e-2, 1e2), shift=st.floats(-1e3, 1e3), size=st.floats(1e-2, 1e2))
@settings(max_examples=20, deadline=None)
def test_laws_units_of_y_and_of_weights(factor, shift, size):
    """y → a + b·y: variances by b², log p by −(n − 1) log b; w → c·w: α and σₙ² by c."""
    base = evidence(reference.moments_of(Z, Y, W))
    other = evidence(reference.moments_of(Z, shift + size * Y, W))
    assert np.allclose(other.alpha, base.alpha, rtol=1e-5)
    assert np.allclose(other.noise_variance, size**2 * base.noise_variance, rtol=1e-6)
    expected = base.log_evidence - (N - 1) * np.log(size)
    assert np.allclose(other.log_evidence, expected, rtol=1e-8, atol=1e-5)
    scaled = evidence(reference.moments_of(Z, Y, W).scale(factor))
    assert np.allclose(scaled.alpha, factor * base.alpha, rtol=1e-5)
    assert np.allclose(scaled.noise_variance, factor * base.noise_variance, rtol=1e-6)
    assert np.allclose(scaled.log_evidence, base.log_evidence, rtol=1e-8, atol=1e-5)


def test_float32_sums_choose_an_alpha_that_predicts_as_well():
    """Issue 3: RMSE within 5 % of that of float64 sums, here on rows with a noise of 1 %."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (20_000, 1))
    z, y = reference.fourier(x, 128), np.sin(3 * x) + 0.01 * rng.standard_normal(x.shape)
    origins = (z.mean(axis=0), y.mean(axis=0))
    errors = {}
    for dtype in (np.float32, np.float64):
        moments = reference.moments_of(z, y, origins=origins, dtype=dtype)
        if dtype is np.float32:
            with pytest.warns(NumericalWarning, match=r"η=.* is the rounding error in the sums"):
                found = evidence(moments)
        else:
            found = evidence(moments)
        assert found.alpha[0] >= found.eta
        assert np.isfinite(found.log_evidence).all()
        errors[dtype] = np.sqrt(np.mean((process_of(found).mean(z) - y) ** 2))
    assert errors[np.float32] < 1.05 * errors[np.float64]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_free_targets_give_finite_variances(dtype):
    y = Z @ RNG.standard_normal((R, 1))
    found = evidence(reference.moments_of(Z, y, dtype=dtype))
    assert np.isfinite(found.log_evidence).all()
    assert 0 <= found.noise_variance[0] < 1e-5 * y.var()


def test_a_target_of_pure_noise_gets_no_signal():
    y = np.random.default_rng(8).standard_normal((N, 1))
    found = evidence(reference.moments_of(Z, y))
    assert found.df[0] < 12
    assert abs(found.noise_variance[0] / y.var() - 1) < 0.1


def test_a_constant_target_is_named_and_gives_no_nan():
    moments = reference.moments_of(Z, np.c_[Y, np.full(N, 0.1)])
    with pytest.warns(NumericalWarning, match="Target y2 is constant"):
        found = evidence(moments)
    assert found.noise_variance[2] == found.signal_variance[2] == 0
    process = process_of(found)
    assert np.allclose(process.mean(NEW)[:, 2], 0.1, rtol=1e-14)
    assert (process.std(NEW)[:, 2] == 0).all()
    assert not np.isnan(process.log_density(NEW, np.full((9, 3), 0.1))).any()
    with pytest.warns(NumericalWarning):
        shared = evidence(moments, shared=True)
    expected = evidence(reference.moments_of(Z, Y), shared=True)
    assert np.allclose(shared.alpha, expected.alpha[0], rtol=1e-6)


def test_constant_columns_duplicates_and_wide_inputs_are_finite():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 200))
    z = np.c_[reference.fourier(x, 400), np.ones(300), np.zeros(300)]
    found = evidence(reference.moments_of(np.c_[z, z[:, :1]], x[:, :1]))
    assert np.isfinite([found.alpha, found.noise_variance, found.log_evidence]).all()
    flat = evidence(reference.moments_of(np.ones((50, 4)), Y[:50]))
    assert np.isfinite([flat.alpha, flat.noise_variance, flat.log_evidence]).all()
    assert np.allclose(flat.noise_variance, Y[:50].var(axis=0, ddof=1))


def test_starved_variance_is_said():
    rng = np.random.default_rng(4)
    z, y = reference.fourier(rng.standard_normal((800, 5)), 32), rng.standard_normal((800, 1))
    with pytest.warns(NumericalWarning, match=r"too few features for the variance, and far from"):
        evidence_at(reference.moments_of(z, y), 1e-3).posterior()


def test_too_few_rows_and_zero_alpha_are_refused():
    with pytest.raises(ValueError, match=r"1 sample\(s\)\. Variances need at least 2"):
        evidence(reference.moments_of(Z[:1], Y[:1]))
    with pytest.raises(ValueError, match="alpha=0"):
        evidence_at(reference.moments_of(Z, Y), 0.0)
    singular = reference.moments_of(np.c_[Z, Z], Y)
    with pytest.raises(ModelError, match="below η"):
        evidence_at(singular, 1e-30, floor="refuse")


def test_conformal_intervals_cover_what_they_promise():
    """Coverage of a new row, over 4,000 repeats: binomial error .003."""
    rng = np.random.default_rng(6)
    draws = np.abs(rng.standard_t(3, (4000, 40)))
    inside = [
        abs(rng.standard_t(3)) <= conformal_quantile(residuals, 0.9)[0] for residuals in draws
    ]
    assert 0.9 - 0.015 < np.mean(inside) < 0.9 + 1 / 41 + 0.015


def test_conformal_quantile_is_the_finite_sample_rank():
    residuals = np.c_[np.arange(1, 20), -np.arange(19, 0, -1)]
    assert np.array_equal(conformal_quantile(residuals, 0.95), [19, 19])
    assert np.array_equal(conformal_quantile(residuals, 0.9), [18, 18])
    assert np.isinf(conformal_quantile(residuals[:10], 0.95)).all()
    assert np.array_equal(conformal_quantile(residuals, 0.9, chosen=1), [19, 19])
    assert np.array_equal(conformal_quantile(residuals, 0.95, chosen=1), [19, 19])  # the largest
    with pytest.raises(ValueError, match="coverage="):
        conformal_quantile(residuals, 1.0)
    with pytest.raises(ValueError, match="NaN"):
        conformal_quantile([1.0, np.nan])


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weights", [None, W[:80]], ids=["plain", "weighted"])
def test_dual_equals_primal(fit_intercept, weights):
    z = reference.fourier(X[:80], 200)
    prior = np.geomspace(0.5, 2, 200) / 100
    moments = reference.moments_of(z, Y[:80], weights, prior=prior)
    for alpha in (1e-4, 0.5, np.array([0.1, 3.0])):
        primal = ridge(moments, alpha, fit_intercept=fit_intercept)
        other = dual(z, Y[:80], alpha, prior, weights, fit_intercept=fit_intercept)
        new = reference.fourier(X[80:100], 200)
        assert np.allclose(other.predict(new), primal.predict(new), rtol=1e-8, atol=1e-8)
        assert np.allclose(other.df, primal.df, rtol=1e-7)
        assert np.array_equal(other.alpha, primal.alpha)


def test_dual_keeps_a_constant_target_and_has_the_least_norm_of_primal():
    z, prior = reference.fourier(X[:30], 100), np.full(100, 0.02)
    found = dual(z, np.full(30, 2.5), 0.1, prior)
    assert np.allclose(found.predict(z), 2.5, rtol=1e-14)
    found, primal = (
        dual(z, Y[:30], 0.0, prior),
        ridge(reference.moments_of(z, Y[:30], prior=prior), 0),
    )
    np.testing.assert_allclose(found.coef, primal.coef, atol=1e-8 * abs(primal.coef).max())
    np.testing.assert_allclose(found.predict(z), Y[:30], atol=1e-8)


def test_dual_is_about_the_mean_of_its_targets():
    """A target of mean 1e8 was taken for a constant, one with NaN for zeros."""
    z, prior = reference.fourier(X[:50], 80), np.full(80, 0.02)
    plain, moved = (dual(z, Y[:50] + origin, 0.01, prior) for origin in (0.0, 1e8))
    np.testing.assert_allclose(moved.coef, plain.coef, rtol=1e-5, atol=1e-5 * abs(plain.coef).max())
    missing = Y[:50].copy()
    missing[3] = np.nan
    assert np.isnan(dual(z, missing, 0.01, prior).coef).any()


@pytest.mark.filterwarnings("ignore:.*10 nearest neighbours")  # of too few columns
@pytest.mark.parametrize("rough", [False, True])
def test_what_the_columns_cannot_follow_is_in_the_variance_of_f(rough):
    """A length-scale that is far too long: residuals of neighbours agree, and are no noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (1200, 1))
    f = np.sin(x[:, 0]) + (0.3 * np.sin(40 * x[:, 0]) if rough else 0.0)
    y = f + 0.3 * rng.normal(size=len(x))
    model = rs.GaussianProcessRegressor(
        features="orthogonal", length_scale=2.0, n_components=32, random_state=0, progress=False
    ).fit(x[:1000], y[:1000])
    assert model.misfit_variance_ == (pytest.approx(0.045, rel=0.4) if rough else 0)
    mean, std = model.predict(x[1000:], return_std=True, noise=False)
    assert not rough or np.mean(np.abs(f[1000:] - mean) < 1.96 * std) > 0.9
    _, cov = model.predict(x[1000:], return_cov=True, noise=False)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    _, with_noise = model.predict(x[1000:], return_std=True)
    assert np.mean(np.abs(y[1000:] - mean) < 1.96 * with_noise) > 0.92
