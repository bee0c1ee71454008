"""The size of a map follows from the rows that count, in any container."""

import dask.dataframe
import numpy as np
import pandas as pd
import pytest

import rff_stream as rs

INPUTS = ["a", "b", "c"]


def table(n, seed):
    """A smooth function of three inputs with noise .3, and its values without the noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    return pd.DataFrame(X, columns=INPUTS).assign(y=f + 0.3 * rng.normal(size=n)), f


@pytest.fixture(scope="module")
def rows():
    return table(400, 0)[0]


@pytest.fixture(scope="module")
def later():
    return table(500, 1)


@pytest.fixture(scope="module")
def expected(rows, later):
    model = rs.GaussianProcessRegressor(progress=False).fit(rows, "y", inputs=INPUTS)
    return model.predict(later[0][INPUTS], return_std=True)


def same(model, later, expected):
    """Whether a model predicts what is expected, but for the rows that its windows hold."""
    mean, std = map(np.asarray, model.predict(later[0][INPUTS], return_std=True))
    np.testing.assert_allclose(mean, expected[0], atol=0.02)
    np.testing.assert_allclose(std, expected[1], rtol=0.05)


def test_partitions_of_unknown_length_are_counted(rows, later, expected):
    frame = dask.dataframe.from_pandas(rows, npartitions=4)
    model = rs.GaussianProcessRegressor(progress=False).fit(frame, "y", inputs=INPUTS)
    assert model.plan_.n_rows == len(rows)
    same(model, later, expected)


def test_of_many_partitions_some_are_counted():
    frame = dask.dataframe.from_pandas(table(5000, 2)[0], npartitions=50)
    model = rs.KernelRidge(features="whole", n_components=64, alpha=1.0, progress=False)
    model.fit(frame, "y", inputs=INPUTS)
    assert model.plan_.n_rows == 5000  # of eight partitions of 100 rows


def test_chunks_of_unknown_length_are_counted(rows, later, expected):
    frame = dask.dataframe.from_pandas(rows, npartitions=3)
    X, y = frame[INPUTS].to_dask_array(), frame["y"].to_dask_array()
    model = rs.GaussianProcessRegressor(progress=False).fit(X, y)
    mean = model.predict(later[0][INPUTS].to_numpy())
    np.testing.assert_allclose(mean, expected[0], atol=0.02)


def test_classes_in_partitions_of_unknown_length(rows, later):
    labelled = rows[INPUTS].assign(y=np.where(rows["y"] > 0, "high", "low"))
    frame = dask.dataframe.from_pandas(labelled, npartitions=4)
    found = [
        np.asarray(
            rs.KernelClassifier(progress=False)
            .fit(each, "y", inputs=INPUTS)
            .predict_proba(later[0][INPUTS])
        )
        for each in (labelled, frame)
    ]
    np.testing.assert_allclose(*found, atol=0.02)


def test_rows_without_a_target_are_no_rows_of_the_map(rows, later, expected):
    lost = table(8000, 3)[0].assign(y=np.nan)
    both = pd.concat([rows, lost]).sample(frac=1, random_state=0)
    model = rs.GaussianProcessRegressor(progress=False, missing_rows="drop")
    same(model.fit(both, "y", inputs=INPUTS), later, expected)
