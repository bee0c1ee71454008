"""``gamma=`` beside length-scales, and functions of two rows as kernels: scikit-learn's meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import decomposition
from sklearn.base import clone
from sklearn.gaussian_process.kernels import PairwiseKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import pairwise_kernels

import rff_stream as rs
from rff_stream.kernels import Chi2, Laplacian, PairFunction, Polynomial

EXACT: dict[str, Any] = {
    "features": "nystroem",
    "n_components": 60,
    "dtype": "float64",
    "random_state": 0,
}


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(0, 2, (60, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def overlap(x: np.ndarray, other: np.ndarray) -> float:
    """The kernel of histograms, of two rows."""
    return float(np.minimum(x, other).sum())


@pytest.mark.parametrize("kernel", [rs.Gaussian(), Laplacian(), Chi2()])
def test_values_at_gamma_are_those_of_scikit_learn(rows: Any, kernel: Any) -> None:
    X, _ = rows
    name = {"gaussian": "rbf"}.get(kernel.short_name(), kernel.short_name())
    theirs = pairwise_kernels(X, metric=name, gamma=0.3)
    np.testing.assert_allclose(kernel.with_gamma(0.3)(X, X), theirs, rtol=1e-12)


def test_a_polynomial_at_gamma_is_that_of_scikit_learn(rows: Any) -> None:
    X, _ = rows
    theirs = pairwise_kernels(X, metric="poly", gamma=0.3, degree=3, coef0=2.0)
    ours = Polynomial(degree=3, offset=2.0).with_gamma(0.3)(X, X)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_kernel_ridge_at_gamma_is_that_of_scikit_learn(rows: Any, kernel: str) -> None:
    X, y = rows
    theirs = KernelRidge(kernel=kernel, gamma=0.3, alpha=0.1).fit(X, y)
    ours = rs.KernelRidge(kernel, gamma=0.3, alpha=0.1, fit_intercept=False, **EXACT).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-9)


def test_components_at_gamma_are_those_of_scikit_learn(rows: Any) -> None:
    X, _ = rows
    theirs = decomposition.KernelPCA(2, kernel="rbf", gamma=0.3).fit(X)
    map_of = {name: EXACT[name] for name in ("features", "dtype", "random_state")}
    ours = rs.KernelPCA(2, "rbf", gamma=0.3, n_map_components=60, **map_of).fit(X)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        rs.KernelRidge,
        rs.GaussianProcessRegressor,
        rs.KernelRegressor,
        rs.KernelClassifier,
        rs.KernelPCA,
        rs.KernelFeatures,
    ],
)
def test_gamma_of_the_default_kernel_is_that_of_the_gaussian(rows: Any, make: Any) -> None:
    X, y = rows
    model = make(gamma=2.0, random_state=0).fit(X, y > 1 if make is rs.KernelClassifier else y)
    np.testing.assert_array_equal(model.length_scale_, 0.5)
    assert clone(model).gamma == 2.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"length_scale": 1.0}, r"gamma=2\.0 and length_scale=1\.0 were both given.*one of the"),
        ({"kernel": rs.Gaussian(0.5)}, r"gamma=2\.0 but the kernel Gaussian\(length_scale=0\.5"),
        ({"kernel": "cauchy"}, r"gamma=2\.0 but Cauchy.* has no gamma in scikit-learn\. Give len"),
        ({"gamma": -1.0}, r"gamma=-1\.0 "),
        ({"kernel": overlap}, r"gamma=2\.0 but the kernel PairFunction.* has a length-scale"),
    ],
)
@pytest.mark.parametrize("make", [rs.KernelRidge, rs.KernelPCA, rs.KernelFeatures])
def test_gamma_that_says_nothing_is_refused(
    rows: Any, make: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**({"gamma": 2.0} | given)).fit(*rows)


def test_gamma_beside_what_searches_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"gamma=2\.0 and length_scale='ard' were both given"):
        rs.KernelRidge(length_scale="ard", gamma=2.0).fit(*rows)
    with pytest.raises(ValueError, match=r"gamma=2\.0 but 2 kernels were given"):
        rs.KernelRidge([rs.Gaussian(), Laplacian()], gamma=2.0).fit(*rows)


@pytest.mark.slow
def test_a_function_of_two_rows_is_a_kernel_as_in_scikit_learn(rows: Any) -> None:
    X, y = rows
    theirs = KernelRidge(kernel=overlap, alpha=0.1).fit(X, y)
    ours = rs.KernelRidge(overlap, alpha=0.1, dtype="float64", fit_intercept=False).fit(X, y)
    assert isinstance(ours.features_, rs.NystroemFeatures)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-9)
    columns = rs.KernelFeatures(overlap, 60, dtype="float64").fit_transform(X)
    np.testing.assert_allclose(columns @ columns.T, pairwise_kernels(X, metric=overlap), atol=1e-9)
    assert rs.KernelPCA(kernel=overlap).fit(X).transform(X).shape == (60, 2)


def test_a_kernel_of_values_alone_has_nystroem_features_where_no_map_is_asked_for(
    rows: Any,
) -> None:
    X, y = rows
    for kernel in ("arc_cosine", "chi2", PairwiseKernel(metric="chi2")):
        assert isinstance(rs.KernelRidge(kernel).fit(X, y).features_, rs.NystroemFeatures)
    with pytest.raises(ValueError, match="features='nystroem'"):
        rs.KernelRidge("chi2", features="fourier").fit(X, y)


def test_a_function_that_gives_a_row_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"'difference' gave 3 values for two rows.*is one number"):
        PairFunction("difference", lambda x, other: x - other)(rows[0], rows[0])


def test_a_function_that_gives_no_number_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"The function 'word' gave 'a' for two rows.*one number"):
        PairFunction("word", lambda x, other: "a")(rows[0], rows[0])


@pytest.mark.parametrize(
    "function",
    [lambda: 1.0, lambda x: 1.0, lambda x, other, third: 1.0],
    ids=["no row", "one row", "three rows"],
)
def test_a_function_of_fewer_or_more_rows_than_two_is_refused(rows: Any, function: Any) -> None:
    with pytest.raises(TypeError, match=r"has the parameters \(.*a kernel takes two rows"):
        rs.KernelRidge(function).fit(*rows)


def test_a_function_is_not_stored_and_said_to_be_missing(rows: Any, tmp_path: Any) -> None:
    X, y = rows
    rs.KernelRidge(overlap, alpha=0.1).fit(X, y).save(tmp_path / "model.zarr")
    with pytest.raises(rs.errors.ModelError, match=r"Python functions are not stored"):
        rs.load(tmp_path / "model.zarr").predict(X)
