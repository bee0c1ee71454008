"""What a new user met first: each of these words was wrong, or missing."""

from __future__ import annotations

import logging
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import Ridge

import rff_stream as rs
from growing import table
from rff_stream.cli import arguments
from rff_stream.errors import ClusterError, DataError, ModelError
from rff_stream.moments.copies import mean_copies

SMALL: dict[str, Any] = {"n_components": 16, "random_state": 0, "progress": False}


@pytest.mark.parametrize("stored", [False, True])
def test_rows_with_nan_are_named_alike_in_a_frame_and_in_a_file(tmp_path, stored):
    rows = table(0).drop(columns="day")
    rows.loc[7, "u"] = np.nan
    rows.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"'u' holds 1 NaN in rows 0:60, the first at row 7"):
        rs.KernelRidge(**SMALL).fit(tmp_path / "rows.parquet" if stored else rows, "t")


def test_no_model_is_said_to_be_no_model(tmp_path):
    with pytest.raises(ModelError, match=r"nope\.zarr is not a model.*nothing is there"):
        rs.load(tmp_path / "nope.zarr")
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(ModelError, match="nothing is there"):
        rs.load(tmp_path / "empty.zarr")
    table(0).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ModelError, match=r"rows\.parquet is not a model: it is a file"):
        rs.load(tmp_path / "rows.parquet")


@pytest.mark.parametrize("stored", [False, True])
def test_strings_as_target_say_who_takes_them(tmp_path, stored):
    rows = table(0).assign(t=["wet", "dry"] * 30)
    rows.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match=r"KernelClassifier.*--classify logistic"):
        rs.KernelRidge(**SMALL).fit(tmp_path / "rows.parquet" if stored else rows, "t")


def test_a_missing_category_is_a_missing_value_not_a_new_one():
    rows = table(0).drop(columns="day").assign(sky=pd.Categorical(["sun", "rain"] * 30))
    model = rs.KernelRidge(missing_rows="drop", **SMALL).fit(rows, "t")
    absent = rows.assign(sky=pd.Categorical([None, *["rain", "sun"] * 29, "sun"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.predict(absent)
    assert np.isnan(found[0]) and np.isfinite(found[1:]).all()


def test_all_components_that_are_not_zero():
    x = np.random.default_rng(0).normal(size=(30, 2))
    choices: dict[str, Any] = {"length_scale": 1.0, "dtype": "float64", "progress": False}
    features = rs.NystroemFeatures.sample(rs.Gaussian(1.0), x, 30, rng=0, dtype="float64")
    model = rs.KernelPCA(None, features=features, **choices).fit(x)
    theirs = KernelPCA(None, kernel="rbf", gamma=0.5).fit(x)
    shared = theirs.eigenvalues_ > 1e-8
    assert 1 < model.transform(x).shape[1] <= 29
    np.testing.assert_allclose(
        model.eigenvalues_[: shared.sum()], theirs.eigenvalues_[shared], rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize(
    ("copies", "most"), [("even", 1.35), ("of few rows", 1.35), ("all twice", 2.4)]
)
def test_copies_are_counted_as_they_are(copies, most):
    """A few rows that stand very often were said to be all rows, several times."""
    rng, n = np.random.default_rng(0), 100_000
    different = {"even": n * 100 // 113, "of few rows": n * 100 // 113, "all twice": n // 2}[copies]
    more = {
        "even": rng.integers(0, different, n - different),
        "of few rows": np.repeat(np.arange(10), (n - different) // 10),
        "all twice": np.arange(different),
    }[copies]
    rows = rng.normal(size=(different, 3))[np.r_[np.arange(different), more]]
    found = mean_copies(rows[rng.choice(len(rows), 2000, replace=False)], len(rows))
    assert len(rows) / different / 1.2 < found < most


def test_a_scheduler_that_does_not_answer_is_named_while_it_is_waited_for(monkeypatch, caplog):
    """It was silent for 30 seconds."""
    address = "tcp://127.0.0.1:1"

    def client(_: str) -> None:
        while "still waiting" not in caplog.text:
            time.sleep(0.01)
        raise OSError("timed out")

    monkeypatch.setattr(arguments, "PATIENCE", 0.1)
    monkeypatch.setattr("distributed.Client", client)
    with (
        caplog.at_level(logging.WARNING, "rff_stream"),
        pytest.raises(ClusterError, match="No Dask scheduler answered"),
        arguments.cluster(address),
    ):
        pass
    assert f"still waiting for the Dask scheduler at {address}" in caplog.text


@pytest.mark.parametrize("name", ["precomputed", "poly", "sigmoid", "cosine"])
def test_names_of_scikit_learn_that_mean_something_else_say_what_to_give(name):
    with pytest.raises(ValueError, match=f"kernel='{name}' (means|is) "):
        rs.KernelRidge(name, **SMALL).fit(table(0).drop(columns="day"), "t")


def test_a_linear_kernel_as_it_is_said_is_ridge_regression():
    rows = table(0)[["u", "v", "t"]]
    kernel = rs.kernels.Polynomial(1.0, degree=1)
    choices: dict[str, Any] = {"features": "polynomial", "dtype": "float64", "progress": False}
    model = rs.KernelRidge(kernel, alpha=0.3, **choices).fit(rows, "t")
    theirs = Ridge(alpha=0.3).fit(rows[["u", "v"]], rows["t"])
    np.testing.assert_allclose(
        model.predict(rows), theirs.predict(rows[["u", "v"]]), rtol=0, atol=1e-9
    )


@pytest.mark.slow
def test_rows_are_drawn_from_a_density():
    x = np.random.default_rng(0).normal([1.0, -2.0], [1.0, 3.0], size=(4000, 2))
    model = rs.KernelDensity(random_state=0, progress=False).fit(x)
    drawn = model.sample(20_000, random_state=1)
    np.testing.assert_array_equal(drawn, model.sample(20_000, random_state=1))
    variance = x.var(axis=0) + np.asarray(model.bandwidth_) ** 2
    error = 4 * np.sqrt(variance / 2000)  # of the mean of 2,000 sampled rows
    assert (np.abs(drawn.mean(axis=0) - x.mean(axis=0)) < error).all()
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=4 * np.sqrt(2 / 2000))
    with pytest.raises(ValueError, match="is not the Gaussian"):
        rs.KernelDensity(kernel="laplacian", progress=False).fit(x).sample()
    with pytest.raises(ValueError, match=r"no row sample .*rows are drawn"):
        rs.KernelDensity(sample_rows=0, progress=False).fit(x).sample()
