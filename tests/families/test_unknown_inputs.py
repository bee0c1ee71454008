"""Levels that no row of the fit has: f is as unsure there as levels differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rff_stream as rs
from rff_stream.errors import NumericalWarning

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}


def table(rng: Any, n: int, effects: Any) -> tuple[pd.DataFrame, Any]:
    """Rows of a smooth input and a level, with what the level adds."""
    level = rng.integers(0, len(effects), n)
    frame = pd.DataFrame({"x": rng.uniform(0, 1, n), "group": [f"g{each}" for each in level]})
    return frame, np.sin(5 * frame["x"]) + effects[level]


@pytest.mark.parametrize("n", [300, pytest.param(900, marks=pytest.mark.slow)])
def test_new_levels_are_inside_their_intervals(n: int) -> None:
    """Of 95 % of new levels .34 were inside: f was as sure as at a known level."""
    inside, spread = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        effects = 2 * rng.normal(size=30)
        frame, f = table(rng, n, effects)
        model = rs.GaussianProcessRegressor(**QUIET).fit(frame, f + 0.1 * rng.normal(size=n))
        known = model.predict(frame, return_std=True)[1]
        assert known.mean() < 0.2
        new = pd.DataFrame({"x": np.linspace(0, 1, 20), "group": "new"})
        with pytest.warns(NumericalWarning, match="a value of group that no row of the fit has"):
            mean, std = model.predict(new, return_std=True)
        with pytest.warns(NumericalWarning, match="a value of group that no row of the fit has"):
            low, high = model.predict_interval(new)
        others = 2 * rng.normal(size=400)  # of new levels
        y = np.sin(5 * new["x"].to_numpy())[:, None] + others
        inside += [(abs(y - mean[:, None]) < 1.96 * std[:, None]).mean()]
        inside += [((low[:, None] < y) & (y < high[:, None])).mean()]
        spread.append(std.mean() / effects.std())
    # a variance of 30 levels has a relative standard error of √(2/29) = .26, a deviation .13
    assert np.mean(inside) == pytest.approx(0.95, abs=0.03)
    assert np.mean(spread) == pytest.approx(np.sqrt(31 / 29), rel=0.15)


def test_it_is_stored_and_rows_with_known_levels_stay(rng: Any, tmp_path: Path) -> None:
    frame, f = table(rng, 200, np.array([0.0, 1.0, 3.0]))
    y = np.column_stack([f, frame["x"]]) + 0.1 * rng.normal(size=(200, 2))
    model = rs.GaussianProcessRegressor(**QUIET).fit(frame, y)
    process: Any = model._fitted.answer
    bare = process.process
    rows = model._fitted.sampled_rows[:20, :4].copy()
    np.testing.assert_array_equal(process.variances()(rows), bare.variances()(rows))
    rows[:, 1:] = 0.0
    of_f, noise = np.split(process.variances()(rows), 2, axis=1)
    np.testing.assert_array_equal(noise, bare.variances()(rows)[:, 2:])
    at = [rows + np.eye(4)[place] for place in (1, 2, 3)]
    apart = [(bare.mean()(each) - bare.mean()(rows)) ** 2 for each in at]
    # of three levels 4/2 times the mean square; of x none but what noise makes of it
    assert of_f[:, 0] == pytest.approx(2 * np.mean(apart, axis=(0, 1))[0], rel=0.2)
    assert of_f[:, 1].max() < 0.1
    covariance = process.covariance(rows, False)
    np.testing.assert_allclose(np.diagonal(covariance, axis1=1, axis2=2).T, of_f, rtol=1e-9)
    drawn = process.draws(400, 0)(rows).reshape(20, 2, 400).std(axis=2)
    np.testing.assert_allclose(drawn, np.sqrt(of_f), rtol=0.2)  # a standard error of .035
    model.save(tmp_path / "model.zarr")
    again: Any = rs.load(tmp_path / "model.zarr")._fitted.answer
    np.testing.assert_array_equal(again.variances()(rows), process.variances()(rows))


def test_rows_without_a_level_in_the_fit_are_known(rng: Any) -> None:
    """With missing_rows="indicate" none of the levels is one more of them."""
    frame, f = table(rng, 300, np.array([0.0, 1.0, 3.0]))
    frame.loc[::5, "group"] = None
    model = rs.GaussianProcessRegressor(missing_rows="indicate", **QUIET)
    model.fit(frame, np.where(frame["group"].isna(), 2.0, f))
    none = frame[frame["group"].isna()]
    assert model.predict(none, return_std=True, noise=False)[1].mean() < 0.1


@pytest.mark.parametrize("stored", [False, True])
def test_an_update_says_that_a_new_level_has_no_input(
    rng: Any, tmp_path: Path, stored: bool
) -> None:
    """The rows of the new one moved the predictions of all levels, without a word."""
    frame, f = table(rng, 120, np.array([0.0, 1.0, 3.0]))
    model = rs.KernelRidge(**QUIET).fit(frame, f, batch="one")
    if stored:
        model.save(tmp_path / "model.zarr", moments=True)
        model = rs.load(tmp_path / "model.zarr")
    more, g = table(rng, 60, np.array([0.0, 1.0, 3.0]))
    model.update(more, g, batch="two")
    more.loc[::2, "group"] = "new"
    with pytest.warns(NumericalWarning, match=r"12.50% of the rows have a value of group by now"):
        model.update(more, g, batch="three")
    model.update(more, g, batch="four")  # once is enough


@pytest.mark.parametrize("lost", [0, 24])
def test_without_an_input_that_few_rows_lack_predictions_are_as_unsure_as_it_varies(
    lost: int,
) -> None:
    """Predictions were as far as 15 deviations of y, and intervals of 95 % covered .07 to .8."""
    rng, errors, inside = np.random.default_rng(0), [], []
    for _ in range(2):
        X = rng.normal(size=(1800, 3))
        y = 2 * X[:, 0] + np.sin(2 * X[:, 2]) + 0.1 * rng.normal(size=1800)
        X[rng.permutation(800)[:lost], 0] = np.nan
        model = rs.GaussianProcessRegressor(missing_rows="indicate", **QUIET).fit(X[:800], y[:800])
        known = model.predict(X[800:], return_std=True)
        X[800:, 0] = np.nan
        mean, std = model.predict(X[800:], return_std=True)
        errors.append(np.sqrt(np.mean((mean - y[800:]) ** 2)))
        inside.append(np.mean(abs(mean - y[800:]) < 1.96 * std))
        assert np.sqrt(np.mean((known[0] - y[800:]) ** 2)) < 0.16 and np.median(known[1]) < 0.2
        assert not model.columns_.indicated
    assert max(errors) < 2.1  # of the best prediction without it 2
    assert np.mean(inside) == pytest.approx(0.95, abs=0.03)


def test_the_value_of_a_missing_number_is_one_that_no_row_has(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 5, 300), rng.normal(size=300), np.ones(300)])
    y = X[:, 0] + X[:, 1]
    model = rs.GaussianProcessRegressor(missing_rows="indicate", **QUIET).fit(X, y)
    value = dict(model.columns_.fills)["x0"]
    assert abs(value - np.median(X[:, 0])) == 0.5 and dict(model.columns_.fills)["x2"] == 1
    gone = np.array([[np.nan, 0.0, 1.0], [2.0, np.nan, 1.0], [2.0, 0.0, np.nan], [2.0, 0.0, 1.0]])
    std = model.predict(gone, return_std=True, noise=False)[1]
    assert std[0] == pytest.approx(X[:, 0].std(), rel=0.2)
    assert std[1] == pytest.approx(1.0, rel=0.2) and std[2:].max() < 0.1
    model.save(tmp_path / "model.zarr")
    again = rs.load(tmp_path / "model.zarr").predict(gone, return_std=True, noise=False)[1]
    np.testing.assert_array_equal(again, std)
