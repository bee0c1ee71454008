"""Predictions where no data support them are told, with the share of rows and the input."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.model.extrapolation import SeenInputs, count_outside, words_of

TOLD = r"of the rows lie outside the range of the fit: input"

CHOICES: dict[str, dict[str, Any]] = {
    "whole": {"n_components": 64},
    "local": {"features": rs.Cells(n_components=16, n_trees=2, n_cells=2)},
}


def rows(rng: Any, n: int = 600) -> tuple[Any, Any]:
    X = rng.uniform(0, 1, (n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1]


@pytest.mark.parametrize("choice", list(CHOICES))
def test_a_score_on_unseen_seasons_is_not_silent(choice: str, rng: Any, tmp_path: Any) -> None:
    X, y = rows(rng)
    fit = rs.GaussianProcessRegressor(
        length_scale=0.5, random_state=0, progress=False, **CHOICES[choice]
    ).fit(X, y)
    later = X + np.array([2.0, 0.0])
    with pytest.warns(rs.NumericalWarning, match=f"^100.00% {TOLD} x0 goes from 2"):
        fit.score(later, y)
    with pytest.warns(rs.NumericalWarning, match=TOLD):
        _, std = fit.predict(later, return_std=True, noise=False)
    if choice == "local":
        signal = fit.signal_variance_**0.5
        np.testing.assert_allclose(std, signal, rtol=0.3)
    fit.save(tmp_path / "small.zarr")
    with pytest.warns(rs.NumericalWarning, match=TOLD):
        rs.load(tmp_path / "small.zarr").predict(later)
    half = np.concatenate([X[:300], later[:300]])
    with pytest.warns(rs.NumericalWarning, match=f"^50.00% {TOLD}"):
        fit.predict(half)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit.predict(rng.uniform(0, 1, (2000, 2)))
        fit.score(X, y)
        fit.predict(X[:1])


def test_a_streamed_score_counts_rows_outside_by_group_too(rng: Any) -> None:
    xr = pytest.importorskip("xarray")
    X, y = rows(rng)
    fit = rs.KernelRidge(length_scale=0.5, n_components=64, random_state=0, progress=False)
    names = {"a": ("row", X[:, 0]), "b": ("row", X[:, 1]), "y": ("row", y)}
    data = xr.Dataset({**names, "half": ("row", np.arange(600) // 300)})
    fit.fit(data, "y", inputs=["a", "b"])
    moved = data.assign(a=data["a"] + 2).chunk(row=100)
    with pytest.warns(rs.NumericalWarning, match=f"^100.00% {TOLD} a goes"):
        fit.score(moved, "y")
    with pytest.warns(rs.NumericalWarning, match=TOLD):
        fit.residuals(moved, "y", by="half")


@pytest.mark.filterwarnings("ignore:.*one input alone")  # length-scales that are too long
def test_classes_are_told_too_and_chance_is_not(rng: Any) -> None:
    X, y = rows(rng, 200)
    fit = rs.KernelClassifier(length_scale=0.5, n_components=64, random_state=0, progress=False)
    fit.fit(X, y > 1)
    with pytest.warns(rs.NumericalWarning, match=TOLD):
        fit.predict(X + 3)
    heavy = rs.KernelRidge(length_scale=1.0, n_components=64, random_state=0, progress=False)
    X = rng.standard_t(2, (4000, 5))
    heavy.fit(X[:2000], X[:2000, 0].clip(-1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heavy.predict(X[2000:])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Frequencies beyond:rff_stream.errors.NumericalWarning")
@pytest.mark.parametrize("choice", [*CHOICES, "grid"])
def test_the_range_is_that_of_all_rows_not_of_a_sample(
    choice: str, rng: Any, tmp_path: Any
) -> None:
    X, y = rows(rng)
    X[17], X[400] = [-5.0, 0.5], [0.5, 7.0]
    grid = rs.Grid(box={"x0": (-6, 2), "x1": (-1, 8)})
    asked: dict[str, Any] = CHOICES.get(choice, {"features": grid})
    fit = rs.GaussianProcessRegressor(
        length_scale=0.5, random_state=0, progress=False, sample_rows=20, **asked
    )
    ends = np.stack([X.min(axis=0), X.max(axis=0)])
    fit.partial_fit(X[:300], y[:300], batch="a")
    fit.partial_fit(X[300:], y[300:], batch="b")
    np.testing.assert_array_equal(fit._require_fit().input_range, ends)
    fit.save(tmp_path / "all.zarr")
    again = rs.load(tmp_path / "all.zarr")
    np.testing.assert_array_equal(again._require_fit().input_range, ends)
    fit.save(tmp_path / "short.zarr", moments=False)
    short = rs.load(tmp_path / "short.zarr")
    np.testing.assert_array_equal(short._require_fit().input_range, ends)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit.predict(X[400:402])


@pytest.mark.parametrize("chunks", [100, None])
def test_lazy_predictions_tell_once_when_they_are_computed(chunks: int | None, rng: Any) -> None:
    xr = pytest.importorskip("xarray")
    X, y = rows(rng)
    data = xr.Dataset({"a": ("row", X[:, 0]), "b": ("row", X[:, 1]), "y": ("row", y)})
    fit = rs.KernelRidge(length_scale=0.5, n_components=64, random_state=0, progress=False)
    fit.fit(data, "y", inputs=["a", "b"])
    moved = data.assign(b=data["b"] + 4)
    if chunks is None:
        with pytest.warns(rs.NumericalWarning, match=f"^100.00% {TOLD} b goes") as told:
            fit.predict(moved)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lazy = fit.predict(moved.chunk(row=chunks))
            fit.predict(data.chunk(row=chunks)).compute()
        with pytest.warns(rs.NumericalWarning, match=f"^100.00% {TOLD} b goes") as told:
            lazy.compute(scheduler="synchronous")
    assert len(told) == 1


def test_what_predictions_do_outside_is_said_in_right_words(rng: Any) -> None:
    """The warning said that cells return to the mean of the data: 84 where y had gone up to 16."""
    X, y = rows(rng)
    fit = rs.KernelRidge(random_state=0, progress=False, length_scale=1.0, **CHOICES["local"])
    fit.fit(X, y)
    with pytest.warns(rs.NumericalWarning, match="approach a constant") as told:
        far = fit.predict([[1e3, 0.5], [1e4, 0.5]])
    assert "mean of the data" not in str(told[0].message)
    np.testing.assert_allclose(far[0], far[1], rtol=1e-3)


def test_new_rows_of_the_same_kind_are_not_told_of_in_small_tables() -> None:
    """200 tables of 340 heavy-tailed rows, 170 new ones each: many were told of."""
    told = 0
    for seed in range(200):
        X = np.exp(1.5 * np.random.default_rng(seed).normal(size=(510, 13)))
        reach = np.array([X[:340].min(axis=0), X[:340].max(axis=0)])
        names = tuple(f"x{j}" for j in range(13))
        seen = SeenInputs(reach, names, 340, np.zeros(13, int), np.zeros(13, bool))
        told += len([*words_of(count_outside(X[340:], seen), seen)])
    assert told <= 6  # at most 1 % a table: seven have a probability of .005


@pytest.mark.filterwarnings("ignore:.*held-out blocks")
def test_a_level_that_chance_leaves_out_of_a_fit_is_not_told_of() -> None:
    """Of 40 levels, some are in one row alone; a fit without that row does not know it."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    level = np.minimum(rng.geometric(0.12, 900), 40).astype(str)
    table = pd.DataFrame({"a": rng.normal(size=900), "city": level})
    fit = rs.KernelRidge(length_scale=1.0, n_components=64, random_state=0, progress=False)
    fit.fit(table[:600], rng.normal(size=600))
    assert not set(level[600:]) <= set(level[:600])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit.predict(table[600:])
    with pytest.warns(rs.NumericalWarning, match="of city that no row of the fit has"):
        fit.predict(table[600:].assign(city="elsewhere"))
