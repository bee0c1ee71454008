"""KernelPCA: the components of scikit-learn on the same kernel matrix."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from sklearn.decomposition import KernelPCA

import rff_stream as rs
from rff_stream.answers.principal_components import components
from rff_stream.errors import NumericalWarning

R = 128
QUIET: dict[str, Any] = {"n_map_components": R, "random_state": 0, "progress": False}


@pytest.fixture
def X(rng):
    return rng.normal(size=(500, 3)) * [1.0, 2.0, 0.5]


def kernel(model, X):
    Z = model.features_(X).astype(float)
    return (Z * model.features_.prior()) @ Z.T


def test_components_are_those_of_scikit_learn(X):
    model = rs.KernelPCA(5, **QUIET).fit(X)
    exact = KernelPCA(5, kernel="precomputed", eigen_solver="dense")
    expected, found = exact.fit_transform(kernel(model, X)), model.transform(X)
    signs = np.sign(np.sum(expected * found, axis=0))
    np.testing.assert_allclose(found, signs * expected, atol=1e-8)
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, rtol=1e-8)


def test_explained_variance_is_that_of_the_coordinates(X):
    model = rs.KernelPCA(R, **QUIET).fit(X)
    found = model.transform(X)
    np.testing.assert_allclose(model.explained_variance_, found.var(axis=0), atol=1e-9)
    assert model.explained_variance_ratio_.sum() == pytest.approx(1)
    assert (np.diff(model.explained_variance_) <= 0).all()


def test_weights_are_rows(X):
    w = np.arange(len(X)) % 3
    choices = QUIET | {"length_scale": 1.0}
    weighted = rs.KernelPCA(3, **choices).fit(X, None, w)
    again = rs.KernelPCA(3, **choices | {"features": weighted.features_})
    again.set_params(length_scale="median").fit(np.repeat(X, w, axis=0))
    np.testing.assert_allclose(weighted.transform(X), again.transform(X), atol=1e-8)


def test_lazy_labelled_and_saved(X, tmp_path):
    model = rs.KernelPCA(2, **QUIET).fit(X)
    lazy = model.transform(da.from_array(X, chunks=(100, 3)))
    np.testing.assert_allclose(lazy.compute(), model.transform(X))
    grid = xr.Dataset({name: ("t", X[:, i]) for i, name in enumerate("abc")})
    labelled = rs.KernelPCA(2, **QUIET).fit(grid).transform(grid)
    assert list(labelled) == ["kernelpca0", "kernelpca1"] and labelled.sizes == {"t": 500}
    model.save(tmp_path / "pca.zarr")
    np.testing.assert_array_equal(rs.load(tmp_path / "pca.zarr").transform(X), model.transform(X))


def test_what_cannot_be_is_refused(X):
    with pytest.raises(ValueError, match="n_components=200 but the map has 128 columns"):
        rs.KernelPCA(200, **QUIET).fit(X)
    with pytest.raises(ValueError, match="length_scale='ard'"):
        rs.KernelPCA(2, length_scale="ard", **QUIET).fit(X)
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 3, 64, rng=0)
    means = rs.collect(features, X, order=1, progress=False)
    with pytest.raises(ValueError, match="order=1 moments hold a mean"):
        components(means, 2)


def test_features_that_are_constant_have_no_components():
    with pytest.warns(NumericalWarning, match="constant in the 20 pilot rows"):
        model = rs.KernelPCA(2, **QUIET).fit(np.ones((20, 2)))
    assert model.explained_variance_.tolist() == [0, 0]
    assert model.explained_variance_ratio_.tolist() == [0, 0]


def test_a_map_without_slopes_says_how_rows_are_found(rng):
    X = rng.normal(size=(200, 3))
    own = {"features": "nystroem", "progress": False, "random_state": 0}
    with pytest.raises(ValueError, match="Fit with fit_inverse_transform=True"):
        rs.KernelPCA(2, "rbf", 1.0, 50, **own).fit(X).inverse_transform(np.zeros((1, 2)))
    found = rs.KernelPCA(2, "rbf", 1.0, 50, fit_inverse_transform=True, **own).fit(X)
    assert found.inverse_transform(np.zeros((1, 2))).shape == (1, 3)
    with pytest.raises(ValueError, match="at most one column for each different row"):
        rs.KernelPCA(3, "rbf", 1.0, 50, **own).fit(np.repeat(X[:2], 20, axis=0))
