"""Rows of cells together: their covariance, and functions that are drawn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import rff_stream as rs
from reference import gaussian
from reference_local import CellFit, columns
from rff_stream.cells import joint

QUIET = {"random_state": 0, "progress": False}
N_DRAWS = 4000


def correlations(covariance: Any) -> Any:
    std = np.sqrt(covariance.diagonal())
    return covariance / np.outer(std, std)


@pytest.mark.parametrize("n", [60, 150])
def test_few_rows_have_the_covariance_of_the_exact_process(n: int, rng: Any) -> None:
    """Its scale is estimated here, and 1 there."""
    X, new = rng.uniform(-2, 2, (n, 2)), rng.uniform(-2, 2, (40, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)
    exact = GaussianProcessRegressor(RBF(1.0), alpha=0.01, optimizer=None).fit(X, y)
    model = rs.GaussianProcessRegressor(
        rs.Gaussian(1.0), features=rs.Cells(n, 1, 1), noise=0.01, fit_intercept=False,
        dtype="float64", **QUIET,
    ).fit(X, y)  # fmt: skip
    mean, found = model.predict(new, return_cov=True, noise=False)
    expected = exact.predict(new, return_cov=True)
    np.testing.assert_allclose(mean, expected[0], atol=1e-6)
    np.testing.assert_allclose(correlations(found), correlations(expected[1]), atol=1e-5)


def test_it_is_that_of_the_dense_formula_and_of_its_draws(rng: Any) -> None:
    """Two trees of four cells, weights, and targets of two noises.

    A variance of S draws has a standard error of √(2/S) of itself, and a correlation of up to
    1/√S; what landmarks cannot tell, a share of it, is followed by M Fourier columns.
    """
    X, new = rng.uniform(-2, 2, (400, 2)), rng.uniform(-2, 2, (30, 2))
    w = rng.uniform(0.5, 2, 400)
    f = np.sin(2 * X[:, 0]) * X[:, 1]
    y = np.stack([f, 5 * f], axis=1) + rng.normal(size=(400, 2)) * [0.1, 1.5]
    features = rs.LocalFeatures.sample(
        rs.Gaussian(1.0), X, n_cells=4, n_trees=2, n_components=24, rng=0, dtype="float64"
    )
    model = rs.GaussianProcessRegressor(features=features, **QUIET).fit(X, y, w)
    posterior = model.posterior_
    _, found = model.predict(new, return_cov=True, noise=False)
    expected, missing = np.zeros((2, 30, 30)), np.zeros((2, 30, 30))
    loadings = posterior.loadings(new)
    for t in range(2):
        ours, theirs = features.route(X)[t], features.route(new)[t]
        for c in np.unique(theirs):
            here = ours == c
            at = np.flatnonzero(theirs == c)
            U = features.landmark_rows(t, c)
            Z, z = (columns(gaussian, U, x, 1e-10) for x in (X[here], new[at]))
            for k, total in enumerate(expected):
                noise, alpha = posterior.noise_variance[t, k], posterior.alpha[t, k]
                fit = CellFit(Z, y[here, k], w[here], alpha)
                shifted = z - fit.centre[0]
                known = shifted @ fit.inverse @ shifted.T + 1 / fit.w.sum()
                own = noise / alpha * (gaussian(new[at], new[at]) - z @ z.T)
                side = loadings[t, at, k]
                total[np.ix_(at, at)] += np.outer(side, side) * (own + noise * known)
                missing[k][np.ix_(at, at)] += np.outer(side, side) * own
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), expected, atol=2e-6 * expected.max())

    mean = model.predict(new)
    drawn = model.sample_y(new, N_DRAWS) - mean[:, :, None]
    for k, covariance in enumerate(expected):
        variance = covariance.diagonal()
        np.testing.assert_allclose(
            (drawn[:, k] ** 2).mean(axis=1), variance, rtol=5 * np.sqrt(2 / N_DRAWS)
        )
        share = np.sqrt(np.outer(missing[k].diagonal(), missing[k].diagonal())) / np.sqrt(
            np.outer(variance, variance)
        )
        error = drawn[:, k] @ drawn[:, k].T / N_DRAWS - covariance
        error /= np.sqrt(np.outer(variance, variance))
        bound = 5 * (np.sqrt(2 / N_DRAWS) + share / np.sqrt(joint.WAVES))
        assert (abs(error) < bound).all()
    both = correlations(drawn.reshape(60, -1) @ drawn.reshape(60, -1).T / N_DRAWS)
    assert abs(both[::2, 1::2]).max() < 5 / np.sqrt(N_DRAWS)  # targets are drawn independently


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_draws_of_a_rough_kernel_are_correlated_as_it_says(seed: int) -> None:
    """Of frequencies of the kernel alone, rows far apart had correlations of up to .95 for 0.

    Their mean then varied up to 8 times as much. Eight sets of 512 waves, of which a quarter and
    more count, have errors of at most 1/√1,024 each, and 4,000 draws 1/√4,000: five of both.
    """
    rng = np.random.default_rng(2)
    X, new = np.sort(rng.uniform(0, 1, (500, 1)), axis=0), np.linspace(0, 1, 100)[:, None]
    y = np.cumsum(rng.normal(size=500)) / np.sqrt(500) + 0.02 * rng.normal(size=500)
    model = rs.GaussianProcessRegressor("laplacian", **QUIET).fit(X, y)
    mean, found = model.predict(new, return_cov=True, noise=False)
    drawn = model.sample_y(new, 4000, seed) - mean[:, None]
    error = correlations(drawn @ drawn.T / 4000) - correlations(found)
    assert abs(error).max() < 5 * np.hypot(1 / np.sqrt(1024), 1 / np.sqrt(4000))
    assert drawn.mean(axis=0).std() == pytest.approx(np.sqrt(found.mean()), rel=0.2)


def test_a_kernel_of_unknown_density_draws_by_its_own_frequencies(rng: Any) -> None:
    X = rng.uniform(-1, 1, (100, 2))
    kernel = rs.Gaussian(1.0) * rs.Matern(1.0, nu=1.5)
    model = rs.GaussianProcessRegressor(kernel, features=rs.Cells(100, 1, 1), **QUIET)
    model.fit(X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=100))
    new = rng.uniform(-1, 1, (30, 2))
    _, std = model.predict(new, return_std=True, noise=False)
    drawn = model.sample_y(new, N_DRAWS).std(axis=1)
    np.testing.assert_allclose(drawn, std, rtol=5 * np.sqrt(2 / N_DRAWS))


def test_a_function_that_is_drawn_is_one_wherever_it_is_asked(rng: Any) -> None:
    X, new = rng.normal(size=(500, 2)), rng.normal(size=(1100, 2))
    model = rs.GaussianProcessRegressor(features=rs.Cells(24, 2, 4), length_scale=1.0, **QUIET)
    model.fit(X, np.sin(2 * X[:, 0]))
    draws = model._fitted.answer.draws(3, 5)
    whole = draws(new)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(draws))(new[::-3]), whole[::-3], atol=1e-9)
    np.testing.assert_array_equal(model.sample_y(new, 3, 5), whole)
    assert abs(model.sample_y(new, 3, 6) - whole).max() > 1e-3
    _, covariance = model.predict(new[:200], return_cov=True, noise=False)
    assert np.linalg.eigvalsh(covariance)[0] > -1e-5 * covariance.max()  # rounding of float32


def test_rows_of_a_cell_without_rows_have_the_prior(rng: Any) -> None:
    X = rng.normal(size=(300, 1))
    features = rs.LocalFeatures.sample(
        rs.Gaussian(0.5), X, n_cells=2, n_trees=1, n_components=16, rng=0, dtype="float64"
    )
    empty = features.route(X)[0] == 1
    model = rs.GaussianProcessRegressor(features=features, noise=0.01, **QUIET)
    model.fit(X[~empty], np.sin(X[~empty, 0]))
    new = X[empty][:5]
    _, found = model.predict(new, return_cov=True, noise=False)
    np.testing.assert_allclose(correlations(found), gaussian(new, new, 0.5), atol=1e-12)
    drawn = model.sample_y(new, N_DRAWS)
    np.testing.assert_allclose(drawn.var(axis=1), found.diagonal(), rtol=5 * np.sqrt(2 / N_DRAWS))


@pytest.mark.slow
def test_the_mean_of_f_over_a_region_is_as_sure_as_the_covariance_says() -> None:
    """Of 160 regions that cells divide the mean square of error/deviation is about 1.

    Regions of a fit share its errors, and the model is not the truth: .5 to 1.5 would fail if
    rows of a cell were taken to be independent (20 and more) or all rows to be alike (below .2).
    """
    ratios = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        X, features = (
            rng.uniform(-1, 1, (2000, 2)),
            rs.FourierFeatures.sample(rs.Gaussian(0.3), 2, 1024, rng=seed),
        )
        coef = rng.normal(size=1024) * np.sqrt(features.prior())
        y = features(X) @ coef + 0.3 * rng.normal(size=2000)
        model = rs.GaussianProcessRegressor(
            rs.Gaussian(0.3), features=rs.Cells(64, 4, 8), **QUIET
        ).fit(X, y)
        for _ in range(10):
            region = rng.uniform(-0.6, 0.6, 2) + 0.4 * rng.uniform(-1, 1, (150, 2))
            mean, covariance = model.predict(region, return_cov=True, noise=False)
            error = float((mean - features(region) @ coef).mean())
            ratios.append(error**2 / covariance.mean())
    assert 0.5 < np.mean(ratios) < 1.5


def test_a_kernel_without_frequencies_draws_nothing(rng: Any) -> None:
    X = rng.normal(size=(200, 2))
    model = rs.GaussianProcessRegressor("polynomial", features=rs.Cells(24, 1, 1), **QUIET)
    model.fit(X, X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=200))
    with pytest.raises(ValueError, match=r"Polynomial.*no function of x − x'.*return_cov=True"):
        model.sample_y(X[:5])
    mean, covariance = model.predict(X[:5], return_cov=True)
    _, std = model.predict(X[:5], return_std=True)
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), std, rtol=1e-3)
    assert np.isfinite(mean).all()


@pytest.mark.parametrize("offset", [0.0, 1e6, 1.7e9])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_has_the_variances_and_no_negative_eigenvalue_far_from_0(
    offset: float, seed: int
) -> None:
    """Seconds since 1970 gave variances of −16 times the right ones, and rows about 0 of .55."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(0, 10, 600)
    X = np.column_stack([offset + u, rng.normal(size=600)])
    y = np.sin(u) + X[:, 1] + 0.2 * rng.normal(size=600)
    model = rs.GaussianProcessRegressor(random_state=seed, progress=False).fit(X, y)
    new = X[:40] + np.array([0.03, 0])
    for noise in (False, True):
        _, found = model.predict(new, return_cov=True, noise=noise)
        std = model.predict(new, return_std=True, noise=noise)[1]
        # rows are mapped in float32 for deviations: 6e-8 of the signal, 300 times the least here
        np.testing.assert_allclose(found.diagonal(), std**2, rtol=1e-4)
        # 1e-4 of the largest: rounding errors of 1e-10 over α
        assert np.linalg.eigvalsh(found)[0] > -1e-4 * found.diagonal().max()
