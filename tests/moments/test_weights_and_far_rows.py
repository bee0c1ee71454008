"""Copies of rows and far targets: said, and intervals hold all the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import r2_score

import rff_stream as rs
from rff_stream.errors import NumericalWarning
from rff_stream.moments.copies import distinct_rows, group_copies

QUIET: Any = {"random_state": 0, "progress": False}


def rows(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(2 * x[:, 0]) * x[:, 1] + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_copies_are_numbered_by_the_first_of_them(dtype: Any, rng: np.random.Generator) -> None:
    """Of inputs in any order of columns; 0 and −0 are the same input."""
    x = np.asfortranarray(rng.integers(-2, 3, (300, 3))).astype(dtype)
    x[:, 2] = np.arange(300) % 150
    x[150:, 0] = x[:150, 0]
    x[::2][x[::2] == 0] *= -1
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    assert len(first) < 300
    np.testing.assert_array_equal(group_copies(x), first[inverse.ravel()])


def test_copies_are_one_row_with_their_weight(rng: np.random.Generator) -> None:
    x, y = rows(rng, 50)
    sample = np.column_stack([x, y, np.ones(50)])
    assert distinct_rows(sample, 50) is sample
    found = distinct_rows(np.repeat(sample, 3, axis=0), 150)
    np.testing.assert_array_equal(found[:, :-1], sample[:, :-1])
    np.testing.assert_allclose(found[:, -1], 3)
    other = sample.copy()
    other[:, 2] += 1.0  # measured again: no copy
    twice = np.concatenate([sample, other])
    assert distinct_rows(twice, 100) is twice


@pytest.mark.slow
def test_intervals_hold_where_rows_are_copies_and_it_is_said() -> None:
    """Over 8 seeds: .78 of .90 where copies of a row stayed in the fit without it."""
    inside = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, y = rows(rng, 100)
        x_new, y_new = rows(rng, 500)
        model = rs.GaussianProcessRegressor(n_components=128, random_state=seed, progress=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NumericalWarning)
            model.fit(np.repeat(x, 20, axis=0), np.repeat(y, 20))
        assert any("Each row occurs 20 times" in str(each.message) for each in caught)
        low, high = model.predict_interval(x_new, 0.9)
        inside.append(np.mean((low <= y_new) & (y_new <= high)))
    assert 0.87 < np.mean(inside) < 0.97  # standard error .01


def test_intervals_are_no_wider_where_values_of_some_rows_coincide(
    rng: np.random.Generator,
) -> None:
    """Each sampled row was left out with as many as it stands for: 100 times as wide on a table."""
    x = np.round(rng.normal(size=(4000, 2)), 3)
    y = np.round(np.sin(8 * x[:, 0]) + 0.2 * rng.normal(size=4000), 1)
    often = rng.integers(1000, 1040, 1000)  # settings that a quarter of the rows have
    x[:1000], y[:1000] = x[often], y[often]
    model = rs.GaussianProcessRegressor(
        "gaussian", 0.2, n_components=512, random_state=0, progress=False
    ).fit(x, y)
    low, high = model.predict_interval(x[2000:])
    std = model.predict(x[2000:], return_std=True)[1]
    ratio = np.mean(high - low) / (2 * 1.96 * std.mean())
    assert 0.8 < ratio < 1.25  # it was 1.5


def test_copies_at_the_same_places_of_two_batches_are_counted_as_they_are(
    rng: np.random.Generator,
) -> None:
    """They were said to be 21: a sample holds both or none, and it was taken for luck."""
    x, y = rows(rng, 20_000)
    model = rs.GaussianProcessRegressor(n_components=32, length_scale=1.0, **QUIET)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NumericalWarning)
        model.fit(x, y, batch="a").update(x, y, batch="b")
    assert any("Each row occurs 2 times" in str(each.message) for each in caught)
    sample = model._require_fit().total.sample
    assert (np.diff(sample.keys[::2]) > 0).all()
    found = distinct_rows(sample.rows, model.n_rows_, sample.keys)
    assert len(found) == len(sample.keys) // 2
    np.testing.assert_allclose(found[:, -1], 2)


def test_a_score_is_that_of_scikit_learn_wherever_the_targets_lie(rng: np.random.Generator) -> None:
    """It was 0 where the mean target of the fit was far from those of the score."""
    x, y = rows(rng, 300)
    model = rs.KernelRidge(n_components=32, length_scale=1.0, alpha=1.0, **QUIET)
    model.fit(x, y + 1e12)
    for values in (y, y + 1e9, y + 1e12):
        weights = rng.uniform(size=300)
        found = model.score(x, values, weights)
        asked = r2_score(values, model.predict(x), sample_weight=weights)
        assert found == pytest.approx(asked, rel=1e-9, abs=1e-4)
    assert model.score(x, np.full(300, 0.1)) == 0.0


@pytest.mark.parametrize("model", [rs.KernelRidge, rs.GaussianProcessRegressor])
def test_far_targets_are_said(model: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2000, 2))
    f = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    with pytest.warns(NumericalWarning, match="1 % of the sampled rows cause .* of the squared"):
        model(n_components=64, **QUIET).fit(x, f + 0.1 * rng.standard_cauchy(2000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for noise in (rng.standard_t(3, 2000), rng.exponential(size=2000), np.zeros(2000)):
            model(n_components=64, **QUIET).fit(x, f + 0.3 * noise)


SCALED: dict[str, Callable[[], Any]] = {
    "process": lambda: rs.GaussianProcessRegressor(n_components=64, **QUIET),
    "ridge, cv": lambda: rs.KernelRidge(n_components=64, alpha="cv", **QUIET),
    "cells": lambda: rs.GaussianProcessRegressor(
        features=rs.Cells(32, 1), length_scale="median", **QUIET
    ),
    "grid": lambda: rs.GaussianProcessRegressor(features="grid", **QUIET),
    "huber": lambda: rs.KernelRegressor("huber", n_components=64, **QUIET),
    "squared": lambda: rs.KernelClassifier(n_components=64, **QUIET),
    "logistic": lambda: rs.KernelClassifier("logistic", n_components=64, **QUIET),
    "squared hinge": lambda: rs.KernelClassifier("squared_hinge", n_components=64, **QUIET),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SCALED))
def test_the_unit_of_weights_changes_nothing(name: str) -> None:
    """Ends of searches were numbers for weights of 1: a grid lost all for weights of 1e-6 (error
    .61 for .03), cells most of it (.17), losses took penalties of rows that weigh 1.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.normal(size=200)
    y = y > 0.5 if name.startswith(("squared", "logistic")) else y

    def values(weight: float) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)
            model = SCALED[name]().fit(x, y, np.full(200, weight))
        return (model.predict_proba if y.dtype == bool else model.predict)(x[:50])

    plain = values(1.0)
    once = name == "cells" or y.dtype == bool  # a weight of 1e6 is a million rows of a class
    for weight in (1e-8,) if once else (1e-8, 1e6):
        np.testing.assert_allclose(values(weight), plain, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("model", [rs.KernelRidge, rs.GaussianProcessRegressor])
def test_equal_weights_find_the_same_map(model: Any) -> None:
    """Searches began at powers of the square root of ten: a weight of 2 found another optimum, with
    errors of .056 for .061."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=600)
    plain = model(**QUIET).fit(x, y).predict(x[:50])
    for weight in (2.0, 0.3, 1e30):
        found = model(**QUIET).fit(x, y, np.full(600, weight)).predict(x[:50])
        np.testing.assert_allclose(found, plain, atol=1e-6)


def test_a_target_that_changes_faster_than_the_map_is_told() -> None:
    """A cycle of a day over 83 days has more of them than 128 columns follow; neighbours do."""
    hours = np.arange(2000.0)[:, None]
    y = np.sin(2 * np.pi * hours[:, 0] / 24)
    model = rs.GaussianProcessRegressor(n_components=128, **QUIET)
    with pytest.warns(NumericalWarning, match="y: on 2,000 sampled rows .* nearest neighbours is"):
        assert model.fit(hours, y).score(hours, y) < 0.1
    clear = rs.GaussianProcessRegressor(length_scale=4.0, n_components=128, **QUIET)
    assert clear.fit(hours[:240], y[:240]).score(hours[:240], y[:240]) > 0.99  # and nothing is said


def test_noise_that_one_input_tells_is_no_noise() -> None:
    """Large columns beside text: a median length-scale in 14 inputs took sin(2b) for noise, with
    standard deviations of the mean of .42 for an error of .66."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 14))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * np.sin(3 * x[:, 2]) + 0.1 * rng.normal(size=1500)
    choices: dict[str, Any] = {"n_components": 256, **QUIET}
    with pytest.warns(NumericalWarning, match="y: one input alone, x0, explains"):
        rs.GaussianProcessRegressor(**choices).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NumericalWarning)
        rs.GaussianProcessRegressor(**choices).fit(x[:, :2], y - x[:, 1] * np.sin(3 * x[:, 2]))
        rs.KernelRidge(**choices).fit(x, rng.normal(size=1500))


@pytest.mark.parametrize("model", [rs.KernelDensity, rs.NoveltyDetector])
def test_two_far_clumps_are_told_without_a_target_too(model: Any) -> None:
    """A bandwidth of 1.3e5 for clumps of width 1: log densities were wrong by 11, in silence."""
    rng = np.random.default_rng(0)
    x = np.r_[rng.normal(size=(200, 1)), 1e6 + rng.normal(size=(200, 1))]
    with pytest.warns(NumericalWarning, match="x0 has no rows: 100% of its range"):
        model(n_components=64, **QUIET).fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NumericalWarning)
        model(n_components=64, **QUIET).fit(x[:200])


@pytest.mark.slow
def test_an_input_of_one_value_takes_one_mode_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 1))
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=300)
    both = np.column_stack([x, np.full(300, 7.0)])
    model = rs.GaussianProcessRegressor(features="grid", **QUIET)
    alone, found = model.fit(x, y).predict(x), model.fit(both, y).predict(both)
    assert model.features_.modes[1] == 1
    np.testing.assert_allclose(found, alone, atol=0.01)
