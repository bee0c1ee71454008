"""Ridge from moments: equal to dense solves, and safe on rounded or singular sums."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge as SklearnRidge

import reference_answers as reference
from rff_stream.answers.ridge import ridge, ridge_at
from rff_stream.errors import ModelError, NumericalWarning
from rff_stream.moments import Moments
from rff_stream.systems.normal_equations import ridge_system
from rff_stream.systems.spectrum import rounding_floor, spectrum

N, R = 400, 48
RNG = np.random.default_rng(7)
X = RNG.standard_normal((N, 3))
Z = reference.fourier(X, R)
Y = np.c_[np.sin(X[:, 0]) + 5, X[:, 1] ** 2 - 300, X.sum(axis=1)] + 0.1 * RNG.standard_normal(
    (N, 3)
)
W = RNG.uniform(0.2, 3.0, N)
S = np.full(R, 2 / R)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
@pytest.mark.parametrize("alpha", [1e-6 * N, 0.3, 50.0])
def test_ridge_equals_the_dense_normal_equations(fit_intercept, weights, alpha):
    """1e-8 at α ≥ 1e-6 n: the condition of G + αI is at most 1e6."""
    found = ridge(reference.moments_of(Z, Y, weights), alpha, fit_intercept=fit_intercept)
    w = np.ones(N) if weights is None else weights
    coef, intercept = reference.ridge(Z, Y, w, S, alpha, fit_intercept=fit_intercept)
    expected = Z @ coef + intercept
    assert np.abs(found.predict(Z) - expected).max() < 1e-8 * np.abs(Y).max()
    assert np.allclose(found.alpha, alpha)


def test_ridge_equals_sklearn_ridge_and_kernel_ridge():
    moments = reference.moments_of(Z, Y, W)
    sklearn = SklearnRidge(alpha=0.5 * R / 2).fit(Z, Y, sample_weight=W)
    assert np.allclose(ridge(moments, 0.5).predict(Z), sklearn.predict(Z), rtol=1e-9)
    kernel = KernelRidge(alpha=0.5, kernel="precomputed")
    kernel.fit((Z * S) @ Z.T, Y, sample_weight=W)
    free = ridge(moments, 0.5, fit_intercept=False)
    assert np.allclose(free.predict(Z), kernel.predict((Z * S) @ Z.T), rtol=1e-8, atol=1e-8)


def test_an_alpha_for_each_target_equals_separate_fits():
    moments, alphas = reference.moments_of(Z, Y, W), np.array([0.1, 3.0, 0.1])
    together = ridge(moments, alphas)
    for t, alpha in enumerate(alphas):
        alone = ridge(moments.with_targets([t]), alpha)
        assert np.allclose(together.coef[:, [t]], alone.coef, rtol=1e-10, atol=1e-12)
        assert np.isclose(together.df[t], alone.df[0])


def test_many_distinct_alphas_go_through_one_spectrum():
    y = np.repeat(Y, 4, axis=1)
    moments, alphas = reference.moments_of(Z, y), np.geomspace(0.01, 10, 12)
    together = ridge(moments, alphas)
    for t in (0, 5, 11):
        alone = ridge(moments.with_targets([t]), alphas[t])
        assert np.allclose(together.coef[:, [t]], alone.coef, rtol=1e-8, atol=1e-9)
        assert np.isclose(together.df[t], alone.df[0], rtol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_degrees_of_freedom_are_the_trace_of_the_hat_matrix(fit_intercept):
    moments, root = reference.moments_of(Z, Y[:, :1], W), np.sqrt(W)[:, None]
    design = np.hstack([Z, np.ones((N, 1))]) if fit_intercept else Z
    penalty = np.diag(np.r_[0.7 / S, 0.0] if fit_intercept else 0.7 / S)
    weighted = design * root
    hat = weighted @ np.linalg.solve(weighted.T @ weighted + penalty, weighted.T)
    found = ridge(moments, 0.7, fit_intercept=fit_intercept)
    assert np.isclose(found.df[0], np.trace(hat), rtol=1e-9)
    of_spectrum = spectrum(moments, fit_intercept=fit_intercept).df(np.array(0.7))
    assert np.isclose(of_spectrum, np.trace(hat), rtol=1e-9)


def test_residual_scatter_is_the_sum_of_squared_residuals():
    decomposed = spectrum(reference.moments_of(Z, Y, W))
    fit = ridge_at(decomposed, 0.2)
    expected = (W[:, None] * (Y - fit.predict(Z)) ** 2).sum(axis=0)
    assert np.allclose(decomposed.residual_scatter(np.full(3, 0.2)), expected, rtol=1e-9)


@given(shift=st.floats(-1e3, 1e3), factor=st.floats(1e-2, 1e2), alpha=st.floats(1e-2, 1e2))
@settings(max_examples=25, deadline=None)
def test_laws_shift_of_y_scale_of_weights_and_origin(shift, factor, alpha):
    """μ takes up a shift of y; weights c·w want α = c·α; the origin does not matter."""
    moments = reference.moments_of(Z, Y, W)
    base = ridge(moments, alpha)
    shifted = ridge(reference.moments_of(Z, Y + shift, W), alpha)
    scaled = ridge(moments.scale(factor), alpha * factor)
    raw = ridge(reference.moments_of(Z, Y, W, origins=(np.zeros(R), np.zeros(3))), alpha)
    size = 1e-9 * (np.abs(Y).max() + abs(shift))
    assert np.abs(shifted.predict(Z) - base.predict(Z) - shift).max() < size
    assert np.abs(scaled.predict(Z) - base.predict(Z)).max() < size
    assert np.abs(raw.predict(Z) - base.predict(Z)).max() < size


def negative(by: float) -> Moments:
    """Moments whose G has λ_min = −by: what float32 sums do to an eigenvalue near 0."""
    from dataclasses import replace

    from rff_stream.moments import pack

    z = np.c_[Z[:, :-1], Z[:, 0]]  # a duplicate column: λ_min = 0
    moments = reference.moments_of(z, Y)
    matrix, root = moments.matrix(), np.sqrt(S)
    null = np.zeros(R)
    null[0], null[-1] = np.sqrt(0.5), -np.sqrt(0.5)
    matrix[:R, :R] -= by * np.outer(null / root, null / root)
    return replace(moments, sums=pack(matrix))


def test_alpha_below_eta_is_raised_with_a_warning_that_gives_both():
    moments = negative(by=0.02)
    assert np.isclose(spectrum(moments).eta, 0.06, rtol=1e-9)
    with pytest.warns(NumericalWarning, match=r"alpha=0\.05 .*η=0\.06"):
        found = ridge(moments, 0.05)
    assert np.allclose(found.alpha, 0.06)
    assert np.isclose(found.eta, 0.06)
    expected = ridge_at(spectrum(moments), found.alpha)
    assert np.allclose(found.coef, expected.coef, rtol=1e-8, atol=1e-8)


def test_alpha_above_eta_is_left_alone_without_eigenvalues():
    """0.021 < α/3·3: Cholesky of G + αI would pass from 0.02 on, and proves nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ridge(negative(by=0.02), 0.0601)
    assert found.eta is None
    assert np.allclose(found.alpha, 0.0601)


def test_only_the_targets_below_eta_are_raised():
    with pytest.warns(NumericalWarning):
        found = ridge(negative(by=0.02), np.array([0.01, 1.0, 0.01]))
    assert np.allclose(found.alpha, [0.06, 1.0, 0.06])


def test_the_floor_can_refuse():
    with pytest.raises(ModelError, match=r"alpha=0\.05 is below η=0\.06"):
        ridge(negative(by=0.02), 0.05, floor="refuse")
    with pytest.raises(ValueError, match="floor='raise'"):
        ridge(negative(by=0.02), 0.05, floor="raise")


def test_float32_sums_at_a_tiny_alpha_stay_close_to_float64():
    """Without the floor, predictions off by the rounding over λ + α: orders of magnitude."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (20_000, 1))
    z, y = reference.fourier(x, 128), np.sin(3 * x) + 0.01 * rng.standard_normal(x.shape)
    with pytest.warns(NumericalWarning):
        rounded = ridge(reference.moments_of(z, y, dtype=np.float32), 1e-12)
    assert rounded.eta > 1e-6
    rmse = np.sqrt(np.mean((rounded.predict(z) - np.sin(3 * x)) ** 2))
    assert rmse < 0.01


def test_zero_alpha_is_least_squares_where_the_rank_is_full():
    z = np.random.default_rng(0).standard_normal((200, 5))
    y = z @ np.arange(5.0)[:, None] + 2
    found = ridge(reference.moments_of(z, y), 0.0)
    assert np.allclose(found.coef[:, 0], np.arange(5), atol=1e-10)
    assert np.allclose(found.df, 6)


@pytest.mark.parametrize("case", ["duplicate", "constant column", "n < R"])
def test_zero_alpha_on_a_singular_system_is_least_norm(case):
    """It was refused with LinAlgError."""
    z = {
        "duplicate": np.c_[Z, Z[:, :2]],
        "constant column": np.c_[Z, np.ones((N, 2))],
        "n < R": Z[:20],
    }[case]
    rank = {"duplicate": R, "constant column": R, "n < R": 19}[case]
    y, prior = Y[: len(z)], np.geomspace(0.5, 2, z.shape[1])
    moments = reference.moments_of(z, y, prior=prior)
    found = ridge(moments, 0.0)
    shifted = (z - z.mean(axis=0)) * np.sqrt(prior)
    least = np.sqrt(prior)[:, None] * (np.linalg.pinv(shifted, rcond=1e-8) @ (y - y.mean(axis=0)))
    # squares of singular values that differ by c lose c²ε of what the pseudo-inverse has
    np.testing.assert_allclose(found.coef, least, atol=1e-9 * abs(least).max())
    np.testing.assert_allclose(found.df, rank + 1, rtol=1e-12)
    np.testing.assert_array_equal(found.alpha, 0.0)
    some = ridge(moments, np.array([0.0, 0.3, 0.0]))
    np.testing.assert_allclose(some.coef[:, 0], found.coef[:, 0], rtol=1e-12)
    np.testing.assert_allclose(some.coef[:, 1], ridge(moments, 0.3).coef[:, 1], rtol=1e-8)
    with pytest.warns(NumericalWarning):
        assert np.abs(ridge(moments, 1e-300).predict(z) - Y[: len(z)]).max() < 100


@pytest.mark.parametrize("alpha", [1e-5, 1.0])
def test_constant_targets_duplicates_and_wide_inputs_give_finite_answers(alpha):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 200))
    z = np.c_[reference.fourier(x, 400), np.ones(300), np.zeros(300)]
    y = np.c_[np.full(300, 3.25), x[:, 0]]
    found = ridge(reference.moments_of(z, y), alpha)
    assert np.isfinite(found.coef).all()
    assert np.isfinite(found.df).all()
    assert np.abs(found.predict(z)[:, 0] - 3.25).max() < 1e-12
    assert (found.df < 300 + 1e-6).all()


@pytest.mark.parametrize("alpha", [-1.0, np.nan, np.inf, [1.0, -1.0, 1.0]])
def test_alpha_that_is_no_penalty_is_refused_by_name(alpha):
    with pytest.raises(ValueError, match="alpha="):
        ridge(reference.moments_of(Z, Y), np.asarray(alpha))


def test_bad_moments_are_refused():
    moments = reference.moments_of(Z, Y)
    with pytest.raises(ValueError, match=r"alpha has shape \(2,\)"):
        ridge(moments, np.ones(2))
    with pytest.raises(ValueError, match="0 rows"):
        ridge(Moments.zero(moments.row))
    with pytest.raises(ValueError, match="order=1"):
        ridge(Moments.zero(moments.row, order=1))
    with pytest.raises(ValueError, match="no targets"):
        ridge(reference.moments_of(Z, Y[:, :0]))
    bad = Y.copy()
    bad[3, 1] = np.inf
    with np.errstate(invalid="ignore"), pytest.raises(ModelError, match="not finite"):
        ridge(reference.moments_of(Z, bad, origins=(np.zeros(R), np.zeros(3))))


def test_the_raw_system_is_that_of_the_raw_columns():
    """fit_intercept=False adds the recorded origins back."""
    system = ridge_system(reference.moments_of(Z, Y, W), fit_intercept=False)
    expected = (Z * np.sqrt(S)).T @ (W[:, None] * (Z * np.sqrt(S)))
    assert np.allclose(system.matrix, expected, rtol=1e-12, atol=1e-12 * N)
    assert np.allclose(system.target_scatter, (W[:, None] * Y**2).sum(axis=0), rtol=1e-12)
    assert not system.feature_mean.any()
    assert not system.target_mean.any()


def test_rounding_floor_is_three_times_the_most_negative_eigenvalue():
    assert rounding_floor(np.array([-0.5, 1.0, 2.0])) == 1.5
    assert rounding_floor(np.array([0.5, 1.0, 2.0])) == 0.0
    assert rounding_floor(np.array([0.0, 1.0])) == 2 * np.finfo(float).eps
