"""How much too small left-out errors are, by searches that did not see a fold of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.answers.odds_line import FOLDS, folds_of
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.length_scales.budget import SearchBudget
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_choice import MapChoice
from rff_stream.length_scales.unseen_folds import (
    NUMBERS_TOLD,
    OF_FOLDS,
    errors_of_searches,
    numbers_told,
)
from rff_stream.length_scales.window_evidence import RowWindow

QUIET: Any = {"random_state": 0, "progress": False}


def waves(rng: np.random.Generator, n: int) -> RowWindow:
    x = rng.normal(size=(n, 2))
    y = np.sin(2 * x) + 0.1 * rng.normal(size=(n, 2))
    return RowWindow(x, y, np.ones(n))


def chosen(scale: float, **other: Any) -> MapChoice:
    """A choice of which 50 numbers were found, and that leaves 8 of 10 seconds."""
    budget = SearchBudget(10.0)
    budget.spent = 2.0
    matrix = np.eye(2) / scale
    return MapChoice(
        rs.Gaussian(), matrix, CellShape(100, 50), "", 100, (), n_free=50, alpha=0.01,
        budget=budget, **other,
    )  # fmt: skip


def test_errors_of_a_fold_are_those_of_the_map_found_without_it(rng: Any) -> None:
    rows, fold, scales = waves(rng, 100), np.arange(100) % FOLDS, iter((0.5, 1.0, 2.0))
    line = LinearTrend(np.zeros(2), np.array([[1.0, 0.0], [0.0, -1.0]]), np.eye(2), np.ones(2))
    told, asked, budget = [], [], SearchBudget(10.0)

    def search(seen: Any, seconds: float) -> MapChoice:
        told.append(seen)
        asked.append(seconds)
        return chosen(next(scales), trend=line)

    errors = errors_of_searches(rows, fold, search, budget)
    assert np.sum(told, axis=0).tolist() == [FOLDS - 1] * 100
    assert asked == [10 / FOLDS] * FOLDS and budget.spent == 2 * FOLDS
    for k, scale in enumerate((0.5, 1.0, 2.0)):
        some = fold == k
        y = rows.y - rows.x * [1, -1]
        K = np.exp(-((rows.x[:, None] - rows.x) ** 2).sum(axis=2) / (2 * scale**2))
        system = K[np.ix_(~some, ~some)] + 0.01 * np.eye((~some).sum())
        ones, solved = (np.linalg.solve(system, v) for v in (np.ones((len(system), 1)), y[~some]))
        mean = (ones * y[~some]).sum(axis=0) / ones.sum()
        expected = y[some] - mean - K[np.ix_(some, ~some)] @ (solved - ones * mean)
        np.testing.assert_allclose(errors[some], expected, rtol=1e-8, atol=1e-10)


def test_a_search_that_finds_the_same_without_a_fold_has_no_say(rng: Any) -> None:
    rows, found = waves(rng, 100), chosen(1.0)
    np.testing.assert_array_equal(numbers_told(rows, found, lambda *_: chosen(1.0)), [0, 0])
    worse = numbers_told(rows, chosen(1.0), lambda *_: chosen(0.2))
    assert worse is not None
    fold = folds_of(rows.x)

    def squares(scale: float) -> Any:
        errors = errors_of_searches(rows, fold, lambda *_: chosen(scale), SearchBudget(np.inf))
        return np.minimum(errors**2, 20 * np.median(errors**2, axis=0)).mean(axis=0)

    np.testing.assert_allclose(1 + OF_FOLDS * worse / 100, squares(0.2) / squares(1.0))
    few = numbers_told(waves(rng, 30), chosen(1.0), lambda *_: chosen(1.0))
    assert few is not None and few.tolist() == [50, 50]  # as many as were found


def test_where_it_is_not_asked(rng: Any) -> None:
    def search(*_: Any) -> MapChoice:
        raise AssertionError("asked")

    rows = waves(rng, 100)
    assert numbers_told(waves(rng, 801), chosen(1.0), search) is None
    assert numbers_told(rows, replace(chosen(1.0), n_free=10), search) is None
    assert numbers_told(rows, replace(chosen(1.0), budget=None), search) is None
    spent = chosen(1.0)
    assert spent.budget is not None
    spent.budget.spent = 2.6
    assert numbers_told(rows, spent, search) is None
    constant = replace(rows, y=np.zeros((100, 2)))
    assert numbers_told(constant, chosen(1.0), search) is None


@pytest.mark.slow
def test_intervals_of_few_rows_of_many_alike_inputs_cover(tmp_path: Any) -> None:
    """Of .95, intervals covered .67, .67, .65, and deviations .90, .76, .87."""
    inside, wide = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(2200, 5))
        X = z @ rng.normal(size=(5, 500)) + 0.5 * rng.normal(size=(2200, 500))
        y = z[:, 0] + z[:, 1] + 0.1 * rng.normal(size=2200)
        model = rs.GaussianProcessRegressor(**QUIET).fit(X[:200], y[:200])
        mean, std = model.predict(X[200:], return_std=True)
        lower, upper = model.predict_interval(X[200:])
        wide.append(np.mean(abs(y[200:] - mean) < 1.96 * std))
        inside.append(np.mean((lower < y[200:]) & (y[200:] < upper)))
    assert np.mean(inside) > 0.88 and np.mean(wide) > 0.87
    model.save(tmp_path / "m.zarr", moments=True)
    read = rs.load(tmp_path / "m.zarr")
    assert NUMBERS_TOLD in read._require_fit().scales
    np.testing.assert_array_equal(read.predict_interval(X[200:])[0], lower)
