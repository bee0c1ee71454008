"""What users of scikit-learn type: linear kernels, priors, kernel_, fit_inverse_transform."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn import decomposition, gaussian_process
from sklearn.datasets import make_circles
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.kernel_ridge import KernelRidge

import rff_stream as rs

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2, 2, (80, 2))
    return X, np.sin(X[:, 0]) + X[:, 1]


def test_a_linear_kernel_is_that_of_scikit_learn(rows: Any) -> None:
    X, y = rows
    theirs = KernelRidge(alpha=0.5).fit(X, y)
    choices: dict[str, Any] = {"dtype": "float64", "sums": "float64", "fit_intercept": False}
    ours = rs.KernelRidge("linear", alpha=0.5, **choices).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-8)
    assert ours.features_.n_components == 2  # the rank


@pytest.mark.parametrize("kernel", [None, ConstantKernel(2.0) * RBF(0.7)], ids=["none", "given"])
def test_before_a_fit_a_process_is_its_prior(rows: Any, kernel: Any) -> None:
    X, _ = rows
    theirs = gaussian_process.GaussianProcessRegressor(kernel)
    ours = rs.GaussianProcessRegressor("auto" if kernel is None else kernel)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    for asked in ("return_std", "return_cov"):
        for found, expected in zip(
            ours.predict(X, **{asked: True}), theirs.predict(X, **{asked: True}), strict=True
        ):
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_functions_before_a_fit_are_drawn_from_the_prior(rows: Any) -> None:
    X = rows[0][:4]
    model = rs.GaussianProcessRegressor(length_scale=0.8)
    draws = model.sample_y(X, 4000, random_state=0)
    assert draws.shape == (4, 4000)
    # the covariance of n draws has a standard error below √(2/n)·variance: 5 of them
    assert np.abs(np.cov(draws) - rs.Gaussian(0.8)(X, X)).max() < 5 * (2 / 4000) ** 0.5
    np.testing.assert_array_equal(draws, model.sample_y(X, 4000, random_state=0))


def test_the_noise_of_a_prior_is_that_which_was_given(rows: Any) -> None:
    X, _ = rows
    model = rs.GaussianProcessRegressor(rs.Gaussian(0.5, variance=2.0), noise=0.1)
    np.testing.assert_allclose(model.predict(X, return_std=True)[1], (2 * 1.1) ** 0.5)
    np.testing.assert_allclose(model.predict(X, return_std=True, noise=False)[1], 2**0.5)


def test_a_prior_of_rows_that_are_not_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"X is a Array and the model is not fitted.*in memory"):
        rs.GaussianProcessRegressor().predict(da.ones((4, 2)))


@pytest.mark.parametrize("choice", [{}, {"n_components": 64}, {"features": "nystroem"}])
def test_the_kernel_of_a_fit_has_its_length_scales(rows: Any, choice: dict[str, Any]) -> None:
    X, y = rows
    model = rs.GaussianProcessRegressor(
        ["gaussian", rs.Matern(nu=2.5)], "ard", metric=None, random_state=0, **choice
    ).fit(X, y)
    np.testing.assert_allclose(model.kernel_.length_scale, model.length_scale_)
    assert isinstance(model.kernel_, (rs.Gaussian, rs.Matern))


def test_the_prior_covariance_is_that_of_kernel_and_signal(rows: Any) -> None:
    X, y = rows
    model = rs.GaussianProcessRegressor(
        "rbf", 1.0, features="nystroem", noise=0.01, dtype="float64", fit_intercept=False
    ).fit(X, y)
    K = model.signal_variance_ * model.kernel_(X, X)
    mean = K @ np.linalg.solve(K + model.noise_variance_ * np.eye(80), y)
    np.testing.assert_allclose(model.predict(X), mean, atol=1e-6)
    assert model.log_marginal_likelihood() == model.log_marginal_likelihood_


def test_a_map_without_a_kernel_has_no_kernel_(rows: Any) -> None:
    X, y = rows
    features = rs.HermiteFeatures.sample(rs.Gaussian(1.0), 2, 32)
    model = rs.GaussianProcessRegressor(features=features).fit(X, y)
    assert not hasattr(model, "kernel_")


def test_pre_images_by_regression_are_those_of_scikit_learn() -> None:
    X, _ = make_circles(200, factor=0.3, noise=0.02, random_state=0)
    theirs = decomposition.KernelPCA(
        3, kernel="rbf", gamma=2.0, fit_inverse_transform=True, alpha=0.1
    ).fit(X)
    ours = rs.KernelPCA(
        3, rs.Gaussian(0.5), features="nystroem", dtype="float64", fit_inverse_transform=True,
        alpha=0.1,
    ).fit(X)  # fmt: skip
    expected = theirs.inverse_transform(theirs.transform(X))
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), expected, atol=1e-6)
    again = ours.set_params(alpha=10.0).fit(X)
    assert np.abs(again.inverse_transform(again.transform(X)) - expected).max() > 1e-3


def test_pre_images_by_regression_find_a_scale_of_their_own() -> None:
    X, _ = make_circles(400, factor=0.3, noise=0.02, random_state=0)
    model = rs.KernelPCA(6, gamma=2.0, fit_inverse_transform=True, alpha=1e-3, random_state=0)
    back = model.fit(X).inverse_transform(model.transform(X))
    assert np.sqrt(np.mean((back - X) ** 2)) < 0.1  # of rows with standard deviation .5
    with pytest.raises(ValueError, match=r"alpha=0 but it must be a finite number > 0"):
        model.set_params(alpha=0).fit(X).inverse_transform(model.transform(X))


def test_what_was_asked_for_in_words_of_scikit_learn_is_kept(rows: Any, tmp_path: Any) -> None:
    X, y = rows
    model = rs.KernelPCA(3, gamma=0.5, fit_inverse_transform=True, alpha=0.1).fit(X)
    coordinates = model.transform(X)
    model.save(tmp_path / "bare.zarr")
    with pytest.raises(rs.errors.ModelError, match=r"no row sample.*save with moments=True"):
        rs.load(tmp_path / "bare.zarr").inverse_transform(coordinates)
    model.save(tmp_path / "model.zarr", moments=True)
    again = rs.load(tmp_path / "model.zarr").inverse_transform(coordinates)
    np.testing.assert_array_equal(again, model.inverse_transform(coordinates))
    process = rs.GaussianProcessRegressor(gamma=0.5, n_components=64, noise=0.1).fit(X, y)
    process.save(tmp_path / "process.zarr")
    stored = rs.load(tmp_path / "process.zarr")
    assert (stored.kernel_, stored.gamma) == (process.kernel_, 0.5)
    assert stored.log_marginal_likelihood() == process.log_marginal_likelihood()
