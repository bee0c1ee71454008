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


@pytest.mark.parametrize("n", [300, 900])
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
