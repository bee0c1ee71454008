"""The covariance between rows that a Gaussian process predicts: ``predict(X, return_cov=True)``."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import rff_stream as rs
from rff_stream.choice.map import CandidateFeatures
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.trend.map import TrendFeatures

pytest.importorskip("finufft")

KERNEL = rs.Gaussian(length_scale=1.0)


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    X = rng.uniform(-2, 2, (150, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(150)
    return X, y, rng.uniform(-2, 2, (20, 1))


def process(**choices: Any) -> rs.GaussianProcessRegressor:
    given: dict[str, Any] = {"n_components": 512, "noise": 0.01, "dtype": "float64"} | choices
    return rs.GaussianProcessRegressor(KERNEL, random_state=0, progress=False, **given)


@pytest.mark.parametrize("name", ["fourier", "nystroem", "grid"])
def test_it_is_that_of_scikit_learn(rows: Any, name: str) -> None:
    """With a landmark a row, and with a grid that resolves the kernel, columns have no error."""
    X, y, new = rows
    exact = GaussianProcessRegressor(RBF(1.0), alpha=0.01, optimizer=None).fit(X, y)
    covariance = exact.predict(new, return_cov=True)[1]
    grid = rs.Grid(modes=(48,), box={"x0": (-2, 2)}, padding=2.5)
    model = process(features=grid if name == "grid" else name, fit_intercept=False).fit(X, y)
    mean, found = model.predict(new, return_cov=True, noise=False)
    assert found.shape == (20, 20)
    # Its level is estimated here, 1 there; random columns have an error of 1/√R.
    near = 2 / np.sqrt(512) if name == "fourier" else 1e-4
    np.testing.assert_array_equal(mean, model.predict(new))
    unit = found / model.signal_variance_
    assert np.abs(unit - covariance).max() < near * np.abs(covariance).max() + 1e-6
    np.testing.assert_allclose(found, found.T, rtol=1e-12, atol=1e-15)


def test_its_diagonal_is_the_deviation_in_every_container(rows: Any) -> None:
    X, y, new = rows
    model = process().fit(xr.Dataset({"x": ("row", X[:, 0]), "y": ("row", y)}), "y")
    frame = pd.DataFrame({"other": 0.0, "x": new[:, 0]})
    containers = [
        frame,
        new,
        da.from_array(new, chunks=(7, 1)),
        xr.Dataset({"x": (("i", "j"), new.reshape(4, 5))}),
    ]
    first = model.predict(new, return_cov=True, noise=False)[1]
    for noise in (False, True):
        _, std = model.predict(frame, return_std=True, noise=noise)
        for each in containers:
            _, found = model.predict(each, return_cov=True, noise=noise)
            np.testing.assert_allclose(np.diag(found), std**2, rtol=1e-9)
            assert np.allclose(found - np.diag(np.diag(found)), first - np.diag(np.diag(first)))


def test_draws_have_it(rows: Any) -> None:
    """20,000 draws: an entry has a standard error of at most √(2/20,000) of the deviations."""
    X, y, new = rows
    model = process(features="nystroem").fit(X, y)
    mean, found = model.predict(new, return_cov=True, noise=False)
    drawn = model.sample_y(new, 20_000) - mean[:, None]
    std = np.sqrt(np.diag(found))
    error = np.abs(drawn @ drawn.T / 20_000 - found) / np.outer(std, std)
    assert error.max() < 5 * np.sqrt(2 / 20_000)


@pytest.mark.filterwarnings("ignore:.*10 nearest neighbours")  # of too few columns
def test_draws_have_what_the_columns_cannot_follow() -> None:
    """As wide as the stated deviation, and the same functions wherever they are asked."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (1000, 1))
    y = np.sin(x[:, 0]) + 0.3 * np.sin(40 * x[:, 0]) + 0.1 * rng.normal(size=1000)
    model = rs.GaussianProcessRegressor(
        length_scale=2.0, n_components=32, random_state=0, progress=False
    ).fit(x, y)
    assert model.misfit_variance_ > 0.02
    new = rng.uniform(-2, 2, (30, 1))
    mean, std = model.predict(new, return_std=True, noise=False)
    drawn = model.sample_y(new, 5000)
    np.testing.assert_allclose(drawn.std(axis=1), std, rtol=5 / np.sqrt(2 * 5000))
    assert (np.abs(drawn.mean(axis=1) - mean) < 5 * std / np.sqrt(5000)).all()
    np.testing.assert_allclose(model.sample_y(new[::-2], 5000), drawn[::-2], atol=1e-12)


def two_maps(X: Any) -> CandidateFeatures:
    """Cells of two length-scales, which are worth more together."""
    cells = (
        rs.LocalFeatures.sample(rs.Gaussian(s), X, n_cells=2, n_trees=2, n_components=24, rng=0)
        for s in (0.2, 1.0)
    )
    return CandidateFeatures(tuple(cells))


def beside_a_line(X: Any) -> TrendFeatures:
    """The same for what a line leaves that is uncertain itself."""
    trend = LinearTrend(np.zeros(1), np.ones((1, 1)), np.full((1, 1), 0.3), np.full(1, 0.5))
    return TrendFeatures(two_maps(X), trend)


@pytest.mark.parametrize(
    "kind",
    ["auto", *(pytest.param(k, marks=pytest.mark.slow) for k in ("cells", "two maps", "a line"))],
)
def test_variances_of_any_map_are_those_of_its_covariance_and_of_its_draws(
    rows: Any, kind: str
) -> None:
    """4,000 draws: a standard deviation has a relative standard error of 1/√8,000."""
    X, y, new = rows
    features = {
        "auto": "auto",
        "cells": rs.Cells(16, 2, 2),
        "two maps": two_maps(X),
        "a line": beside_a_line(X),
    }[kind]
    model = rs.GaussianProcessRegressor(features=features, random_state=0, progress=False)
    model.fit(X, y + 0.08 * np.sin(12 * X[:, 0]))
    if kind == "two maps":
        assert np.count_nonzero(model.choice_.weights) == 2
    for noise in (True, False):
        _, std = model.predict(new, return_std=True, noise=noise)
        mean, found = model.predict(new, return_cov=True, noise=noise)
        np.testing.assert_allclose(np.sqrt(np.diag(found)), std, rtol=1e-3)
    assert np.linalg.eigvalsh(found)[0] > -1e-5 * found.max()
    drawn = model.sample_y(new, 4000)
    np.testing.assert_allclose(drawn.std(axis=1), std, rtol=5 / np.sqrt(8000))
    assert (np.abs(drawn.mean(axis=1) - mean) < 5 * std / np.sqrt(4000)).all()
    np.testing.assert_allclose(model.sample_y(new[::-2], 4000), drawn[::-2], atol=1e-9)


@pytest.mark.parametrize("count", [1, 5])
def test_draws_of_labelled_rows_have_their_dimensions(rows: Any, count: int) -> None:
    X, y, new = rows
    names = ["a", "b"]
    table = xr.Dataset({n: ("row", v, {"units": "K"}) for n, v in zip(names, (y, -y), strict=True)})
    table["x"] = ("row", X[:, 0])
    field = xr.Dataset({"x": (("i", "j"), new.reshape(4, 5))}, coords={"i": [3, 5, 7, 9]})
    for targets in (names, "a"):
        model = process().fit(table, targets, inputs=["x"])
        plain = model.sample_y(pd.DataFrame({"x": new[:, 0]}), count)
        for each in (field, field.chunk(i=1)):
            found = model.sample_y(each, count)
            one = found["b"] if targets == names else found
            assert one.dims == ("i", "j", "draw")
            assert (one.name, one.attrs["units"]) == ("b" if targets == names else "a", "K")
            assert (one.chunks is not None) == (each is not field)
            assert one.i.values.tolist() == [3, 5, 7, 9]
            expected = plain[:, 1] if targets == names else plain
            np.testing.assert_allclose(one.values.reshape(20, count), expected, atol=1e-9)


def test_several_targets_stand_last_as_in_scikit_learn(rows: Any) -> None:
    X, y, new = rows
    both = process().fit(X, np.column_stack([y, 2 * y]))
    _, found = both.predict(new, return_cov=True, noise=True)
    assert found.shape == (20, 20, 2)
    np.testing.assert_allclose(found[..., 1], 4 * found[..., 0], rtol=1e-6)
    one = process().fit(X, y).predict(new, return_cov=True, noise=True)[1]
    np.testing.assert_allclose(found[..., 0], one, rtol=1e-6)


@pytest.mark.parametrize("features", ["whole", "auto", "grid"])
def test_a_missing_row_has_none(rows: Any, features: str) -> None:
    X, y, new = rows
    model = process(features=features, missing_rows="drop").fit(X, y)
    new = new.copy()
    new[3] = np.nan
    mean, found = model.predict(new, return_cov=True, noise=False)
    there = np.isfinite(new[:, 0])
    assert np.isnan(mean[3])
    assert np.isnan(found[3]).all()
    assert np.isnan(found[:, 3]).all()
    assert np.isfinite(found[np.ix_(there, there)]).all()


def test_what_cannot_be_had_is_refused(rows: Any) -> None:
    X, y, new = rows
    model = process().fit(X, y)
    with pytest.raises(RuntimeError, match="At most one of return_std or return_cov"):
        model.predict(new, return_std=True, return_cov=True)
    model.set_params(memory=4096)
    with pytest.raises(rs.errors.PlanError, match=r"20 rows needs .*KiB.*sample_y"):
        model.predict(new, return_cov=True, noise=False)


# ---------------------------------------------------------- what is observed, or the function


@pytest.mark.parametrize("features", ["whole", "local", "grid"])
def test_intervals_of_95_percent_cover_new_observations_unless_the_function_is_asked_for(
    features: str,
) -> None:
    """Of 4,000 new rows 95 % are inside up to 5 binomial errors and what 1,000 rows leave unknown.

    The noise is estimated to 1/√2,000 = 2.2 %, and a width that is 3 times that off changes the
    cover by 1.6 %. Intervals of f alone contain less than half of the observations.
    """
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (5000, 2))
    f = np.sin(2 * x[:, 0]) + np.cos(x[:, 1])
    y = f + 0.3 * rng.standard_normal(5000)
    model = process(features=rs.Grid(modes=(8, 8)) if features == "grid" else features)
    if features == "local":
        model.set_params(features=rs.Cells(32, 2, 4))
    model.fit(x[:1000], y[:1000])
    error = 5 * np.sqrt(0.05 * 0.95 / 4000) + 0.016
    mean, std = model.predict(x[1000:], return_std=True)
    low, high = model.predict_interval(x[1000:])
    for inside in (abs(y[1000:] - mean) < 1.96 * std, (low < y[1000:]) & (y[1000:] < high)):
        assert inside.mean() == pytest.approx(0.95, abs=error)
    _, own = model.predict(x[1000:], return_std=True, noise=False)
    low, high = model.predict_interval(x[1000:], noise=False)
    np.testing.assert_allclose((high - low) / 2, 1.959964 * own, rtol=1e-6)
    assert np.mean((low < y[1000:]) & (y[1000:] < high)) < 0.5
    assert np.mean((low < f[1000:]) & (f[1000:] < high)) > 0.8
    np.testing.assert_array_equal(model.predict(x[1000:], return_std=True, noise=True)[1], std)


def test_an_observation_is_one_of_weight_1(rows: Any) -> None:
    """Rows of weight 4 have a quarter of the noise; what is stated is that of weight 1."""
    X, _, new = rows
    noise = np.random.default_rng(1).standard_normal(len(X))
    w = np.where(np.arange(len(X)) % 2, 4.0, 1.0)
    model = process().fit(X, np.sin(X[:, 0]) + 0.3 * noise / np.sqrt(w), w)
    _, std = model.predict(new, return_std=True)
    _, own = model.predict(new, return_std=True, noise=False)
    left = model.noise_variance_ - model.misfit_variance_
    np.testing.assert_allclose(std**2 - own**2, left, rtol=1e-6)
    # a variance of n rows has a relative standard error of √(2/n)
    assert model.noise_variance_ == pytest.approx(0.09, rel=5 * np.sqrt(2 / len(X)))


@pytest.mark.parametrize(
    ("n", "features"),
    [
        (60, "auto"),
        (250, "auto"),
        (250, "local"),
        (250, rs.Candidates(("whole", "local"))),
        (250, rs.Grid(modes=(8, 8))),
        (250, "whole"),
    ],
)
def test_f_is_known_as_well_in_any_unit_of_weights(n: int, features: Any, rng: Any) -> None:
    """Its deviation grew with the root of the unit, as if a row of weight 1 were a typical one."""
    X, w = rng.uniform(-2, 2, (n, 2)), np.exp(rng.normal(0, 1, n))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 + 0.2 / np.sqrt(w) * rng.standard_normal(n)
    options: Any = {"random_state": 0, "progress": False, "features": features}
    fits = [
        rs.GaussianProcessRegressor(**options).fit(X, y, sample_weight=unit * w)
        for unit in (1.0, 1024.0, 1 / 1024)
    ]
    of_f = [fit.predict(X, return_std=True, noise=False)[1] for fit in fits]
    of_y = [fit.predict(X, return_std=True)[1] for fit in fits]
    for at, unit in ((1, 1024.0), (2, 1 / 1024)):
        np.testing.assert_allclose(of_f[at], of_f[0], rtol=0.02)
        if features != "whole":  # misfit, which no weight makes smaller, is in the noise there
            noise = np.sqrt((of_y[at] ** 2 - of_f[at] ** 2) / unit)
            np.testing.assert_allclose(noise, np.sqrt(of_y[0] ** 2 - of_f[0] ** 2), rtol=0.02)


def test_a_coverage_that_is_none_is_refused(rows: Any) -> None:
    X, y, new = rows
    model = process().fit(X, y)
    for noise in (False, True):
        with pytest.raises(ValueError, match=r"coverage=1\.5 but it must be a probability"):
            model.predict_interval(new, 1.5, noise=noise)
