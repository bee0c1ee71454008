"""Feature columns as a transformer of scikit-learn, drawn when it is fitted or given as a map."""

from __future__ import annotations

import pickle
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

import rff_stream as rs
from rff_stream.features import FeatureMap, Periodic

NAMES = ["whole", "fourier", "qmc", "nystroem", "hermite", "structured"]


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2, 2, (300, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1]


@pytest.mark.parametrize("features", NAMES)
def test_products_of_columns_are_the_kernel(rows: Any, features: str) -> None:
    X, _ = rows
    kernel = rs.Gaussian((0.8, 1.5), variance=2.0)
    Z = rs.KernelFeatures(kernel, 256, features=features, random_state=0).fit_transform(X)
    assert Z.dtype == np.float32
    error = np.abs(Z @ Z.T - kernel(X, X)).mean()
    assert error < (1e-3 if features in ("nystroem", "hermite") else 2.0 / 256**0.5)


def test_the_length_scale_is_that_of_the_estimators(rows: Any) -> None:
    X, y = rows
    model = rs.KernelRidge(n_components=64, alpha=0.1, random_state=0, progress=False).fit(X, y)
    columns = rs.KernelFeatures(n_components=64, random_state=0).fit(X)
    np.testing.assert_array_equal(columns.length_scale_, model.length_scale_)
    assert columns.features_.fingerprint == model.features_.fingerprint


def test_a_linear_model_on_the_columns_is_kernel_ridge(rows: Any) -> None:
    X, y = rows
    choices: dict[str, Any] = {"n_components": 64, "random_state": 0, "dtype": "float64"}
    model = rs.KernelRidge(alpha=0.1, progress=False, sums="float64", **choices).fit(X, y)
    pipeline = make_pipeline(rs.KernelFeatures(**choices), Ridge(0.1)).fit(X, y)
    np.testing.assert_allclose(pipeline.predict(X), model.predict(X), atol=1e-8)


def test_gamma_of_rbf_sampler_is_a_length_scale(rows: Any) -> None:
    X, _ = rows
    theirs = RBFSampler(gamma=0.7, n_components=4000, random_state=0).fit_transform(X)
    ours = rs.KernelFeatures("rbf", 4000, (2 * 0.7) ** -0.5, random_state=0).fit_transform(X)
    # both are within 4.5/√2000 of the kernel, for nearly all of 45,000 pairs
    assert np.abs(theirs @ theirs.T - ours @ ours.T).max() < 9 / 2000**0.5


def test_pipelines_clones_searches_and_unions(rows: Any) -> None:
    X, y = rows
    columns = rs.KernelFeatures(n_components=32, random_state=0)
    pipeline = make_pipeline(StandardScaler(), columns, Ridge(0.01))
    search = GridSearchCV(
        pipeline,
        {"kernelfeatures__kernel": ["gaussian", rs.Matern(nu=2.5)], "ridge__alpha": [0.01, 1.0]},
        cv=3,
    ).fit(X, y)
    assert search.best_score_ > 0.5  # 32 columns: a search, not a contest
    assert len(cross_val_score(pipeline, X, y, cv=3)) == 3
    labels = make_pipeline(columns, LogisticRegression()).fit(X, np.where(y > 0, "a", "b"))
    assert set(labels.predict(X)) == {"a", "b"}
    both = FeatureUnion([("smooth", columns), ("rough", rs.KernelFeatures("laplacian", 16))])
    assert both.fit_transform(X).shape == (300, 48)
    again = pickle.loads(pickle.dumps(columns.fit(X)))
    np.testing.assert_array_equal(again.transform(X), columns.transform(X))


def test_names_and_set_output(rows: Any) -> None:
    X, _ = rows
    frame = pd.DataFrame(X, columns=["u", "v"], index=np.arange(300) + 7)
    columns = rs.KernelFeatures(n_components=4, random_state=0)
    out = columns.set_output(transform="pandas").fit_transform(frame)
    assert list(out.columns) == [
        "kernelfeatures0",
        "kernelfeatures1",
        "kernelfeatures2",
        "kernelfeatures3",
    ]
    assert out.index.equals(frame.index)
    assert list(columns.feature_names_in_) == ["u", "v"]
    place = ColumnTransformer([("place", rs.KernelFeatures(n_components=4), ["v"])])
    assert place.fit_transform(frame).shape == (300, 4)


def test_columns_choose_their_own_map(rows: Any) -> None:
    frame = pd.DataFrame(rows[0], columns=["hour", "v"])
    columns = rs.KernelFeatures(features={"hour": Periodic(24, 2)}).fit(frame)
    assert columns.transform(frame).shape == (300, 4)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "lazy"])
def test_categories_are_inputs_of_0_and_1(rows: Any, kind: str) -> None:
    """As in every estimator: by name, in any order, beside columns that are not needed."""
    X, y = rows
    table = pd.DataFrame(
        {"a": X[:, 0], "sky": pd.Categorical(np.where(X[:, 1] > 0, "sun", "rain"))}
    )
    make = {
        "pandas": lambda frame: frame,
        "polars": lambda frame: pytest.importorskip("polars").from_pandas(frame),
        "arrow": lambda frame: pytest.importorskip("pyarrow").Table.from_pandas(frame),
        "lazy": lambda frame: pytest.importorskip("polars").from_pandas(frame).lazy(),
    }[kind]
    columns = rs.KernelFeatures(n_components=32, random_state=0).fit(make(table))
    assert columns.columns_.inputs == ("a", "sky=rain", "sky=sun")
    assert columns.n_features_in_ == 3
    numbers = np.column_stack([X[:, 0], X[:, 1] <= 0, X[:, 1] > 0])
    same = rs.KernelFeatures(n_components=32, random_state=0).fit(numbers).transform(numbers)
    np.testing.assert_allclose(columns.transform(make(table)), same, atol=1e-6)
    turned = make(table.assign(more="text")[["more", "sky", "a"]])
    np.testing.assert_allclose(columns.transform(turned), same, atol=1e-6)
    if kind != "lazy":  # an array of labels beside a query has no order to follow
        pipeline = make_pipeline(rs.KernelFeatures(n_components=32, random_state=0), Ridge(0.1))
        y = X[:, 0] + (X[:, 1] > 0)
        assert pipeline.fit(make(table), y).score(make(table), y) > 0.9


def test_inputs_choose_columns_of_a_table(rows: Any) -> None:
    X, y = rows
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    chosen = rs.KernelFeatures(n_components=32, random_state=0).fit(table, inputs=["b", "a"])
    assert list(chosen.feature_names_in_) == ["b", "a"]
    plain = rs.KernelFeatures(n_components=32, random_state=0).fit(X[:, ::-1])
    np.testing.assert_array_equal(chosen.transform(table), plain.transform(X[:, ::-1]))
    with pytest.raises(rs.errors.DataError, match=r"no column 'b'; its columns are a, y"):
        chosen.transform(table[["a", "y"]])


def test_sparse_rows_give_the_columns_of_dense_ones(rows: Any) -> None:
    from scipy import sparse

    X = np.where(np.abs(rows[0]) > 1, rows[0], 0)
    columns = rs.KernelFeatures(n_components=32, random_state=0).fit(sparse.csr_array(X))
    dense = rs.KernelFeatures(n_components=32, random_state=0).fit(X)
    found = columns.transform(sparse.coo_array(X))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, dense.transform(X))


def test_lazy_in_is_lazy_out(rows: Any) -> None:
    X, _ = rows
    columns = rs.KernelFeatures(n_components=8, random_state=0).fit(X)
    expected = columns.transform(X)
    lazy = columns.transform(da.from_array(X, chunks=(100, 2)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), expected)
    data = xr.Dataset({"u": ("t", X[:, 0]), "v": ("t", X[:, 1])}).chunk(t=100)
    named = rs.KernelFeatures(n_components=8, random_state=0).fit(data)
    out = named.transform(data)
    np.testing.assert_array_equal(out["kernelfeatures3"].values, expected[:, 3])


def test_what_does_not_fit_is_refused(rows: Any) -> None:
    X, y = rows
    with pytest.raises(ValueError, match=r"length_scale='evidence' but there is no target"):
        rs.KernelFeatures(length_scale="evidence").fit(X, y)
    with pytest.raises(ValueError, match="n_components=7 but cosines and sines come in pairs"):
        rs.KernelFeatures(n_components=7, features="fourier").fit(X)
    with pytest.raises(ValueError, match="Use NystroemFeatures"):
        rs.KernelFeatures("polynomial", features="fourier").fit(X)


@pytest.mark.parametrize(
    "features",
    [
        rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 64, rng=0),
        rs.RandomBinningFeatures.sample(rs.Laplacian(1.0), 2, 64, rng=0),
        rs.HermiteFeatures.sample(rs.Gaussian(1.0), 2, 64),
    ],
    ids=lambda features: type(features).__name__,
)
def test_a_map_that_was_drawn_is_a_parameter(rows: Any, features: FeatureMap) -> None:
    X, y = rows
    step = rs.KernelFeatures(features=features)
    assert clone(step).features is features  # a frozen value is not copied
    pipeline = make_pipeline(step, Ridge(0.01))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.3
    Z = pipeline.fit(X, y)[:-1].transform(X)
    np.testing.assert_allclose(Z @ Z.T, features(X) * features.prior() @ features(X).T, atol=1e-5)
    assert len(pipeline[:-1].get_feature_names_out()) == 64
    with pytest.raises(ValueError, match="features maps 2 inputs but the data have 1"):
        step.fit(X[:, :1])


def test_rows_with_missing_values_are_refused_or_dropped_in_every_container(tmp_path):
    """Rows of files were dropped without a word, and those in memory always refused."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    x[7, 0] = np.nan
    data = xr.Dataset({"u": ("row", x[:, 0]), "v": ("row", x[:, 1])})
    data.to_zarr(tmp_path / "x.zarr", consolidated=False)
    expected = rs.KernelFeatures(n_components=8, random_state=0).fit(np.delete(x, 7, 0))
    for rows in (x, data, tmp_path / "x.zarr"):
        with pytest.raises(ValueError, match="missing"):
            rs.KernelFeatures(n_components=8).fit(rows)
        made = rs.KernelFeatures(n_components=8, random_state=0, missing_rows="drop").fit(rows)
        assert made.length_scale_ == pytest.approx(expected.length_scale_)
        found = made.transform(rows)
        found = np.asarray(found.to_array().T if isinstance(found, xr.Dataset) else found)
        assert np.isnan(found[7]).all()
        np.testing.assert_allclose(
            np.delete(found, 7, 0), expected.transform(np.delete(x, 7, 0)), rtol=1e-4, atol=1e-5
        )
