"""Rows that stand twice are one row of weight 2, in every estimator.

Exactly where the map does not depend on the order of pilot rows. Else (cells, landmarks, rows that
are held out in turn) as closely as another ``random_state`` agrees.
"""

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rff_stream as rs
from rff_stream.errors import NumericalWarning
from rff_stream.moments.copies import (
    Observations,
    different_share,
    group_copies,
    mean_copies,
    merge_copies,
    share_counted,
)
from rff_stream.statistics.groups import Slabs

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}
SHORT: dict[str, Any] = {"n_components": 128, "length_scale": 0.7} | QUIET
PLACES = np.random.default_rng(9).uniform(-2, 2, (200, 2))
EXACT = 1e-5
"""Of the spread: rounding of sums whose order differs, at penalties down to 1e-10."""

pytestmark = pytest.mark.filterwarnings("ignore:Each row occurs")


def rows_of(n: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(3 * x[:, 0]) + 0.5 * x[:, 1] + 0.3 * rng.normal(size=n)


def ways(x: Any, y: Any) -> list[tuple[Any, Any, Any]]:
    """The same rows twice, side by side or one set after the other, and with weights of 2."""
    return [
        (np.repeat(x, 2, axis=0), np.repeat(y, 2), None),
        (np.tile(x, (2, 1)), np.tile(y, 2), None),
        (x, y, np.full(len(x), 2.0)),
    ]


REGRESSORS: dict[str, tuple[Any, int]] = {
    "bare": (lambda: rs.KernelRidge(**QUIET), 150),
    "one map": (lambda: rs.KernelRidge(n_components=64, **QUIET), 1000),
    "more columns": (lambda: rs.KernelRidge(n_components=512, **QUIET), 1000),
    "a given penalty": (lambda: rs.KernelRidge(n_components=64, alpha=1.0, **QUIET), 1000),
    "gcv": (lambda: rs.KernelRidge(n_components=64, alpha="gcv", **QUIET), 1000),
    "process": (lambda: rs.GaussianProcessRegressor(n_components=64, **QUIET), 1000),
    "bare process": (lambda: rs.GaussianProcessRegressor(**QUIET), 150),
    "huber": (lambda: rs.KernelRegressor("huber", **SHORT), 150),
}
DRAWN: dict[str, dict[str, Any]] = {
    "cells": {"features": "local", "length_scale": 0.7},
    "landmarks": {"features": "nystroem", "n_components": 128},
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_rows_twice_are_rows_of_weight_two(name):
    make, n = REGRESSORS[name]
    x, y = rows_of(n)
    found = [make().fit(*data).predict(PLACES) for data in ways(x, y)]
    for each in found[:2]:
        assert np.abs(each - found[2]).max() < EXACT * y.std()


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_rows_twice_are_rows_of_weight_two_in_another_order(name):
    """Copies are met in another order than rows of weight 2, and maps are drawn in that order."""

    def predict(seed, data):
        model = rs.KernelRidge(**DRAWN[name] | {"random_state": seed, "progress": False})
        return model.fit(*data).predict(PLACES)

    def distance(a, b):
        return np.sqrt(np.mean((a - b) ** 2))

    x, y = rows_of(600)
    twice, after, heavy = (predict(0, data) for data in ways(x, y))
    others = [heavy, *(predict(seed, (x, y, np.full(600, 2.0))) for seed in (1, 2, 3))]
    chance = max(distance(a, b) for a in others for b in others)
    for each in (twice, after):
        assert distance(each, heavy) < 1.5 * chance


@pytest.mark.slow
@pytest.mark.parametrize("choices", [{}, {"n_components": 64}], ids=["bare", "one map"])
def test_classes_of_rows_twice_are_those_of_weight_two(choices):
    x, y = rows_of(200)
    found = [
        rs.KernelClassifier(**choices, **QUIET).fit(*data).predict_proba(PLACES)
        for data in ways(x, y > 0)
    ]
    for each in found[:2]:
        np.testing.assert_allclose(each, found[2], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("choices", [{}, {"n_components": 256}], ids=["bare", "one map"])
def test_deviations_with_copies(choices):
    """Those of f are equal; a new row is one of the table, so its noise is that of such a row."""
    x, y = rows_of(300)
    models = [rs.GaussianProcessRegressor(**choices, **QUIET).fit(*data) for data in ways(x, y)]
    once = rs.GaussianProcessRegressor(**choices, **QUIET).fit(x, y)
    for twice in models[:2]:
        assert twice.noise_variance_ == pytest.approx(once.noise_variance_, rel=1e-3)
        assert 2 * twice.noise_variance_ == pytest.approx(models[2].noise_variance_, rel=1e-3)
        assert twice.signal_variance_ == pytest.approx(models[2].signal_variance_, rel=1e-3)
        std = [m.predict(PLACES, return_std=True)[1] for m in (twice, once)]
        np.testing.assert_allclose(*std, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_deviations_where_the_row_sample_misses_copies(seed):
    """2,000 of 6,000 rows, 1,500 of which differ: 95 % covered .90 and .91.

    A row's weight was read from how often the sample held it, and its noise from that weight.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (5500, 3))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] + 0.3 * rng.normal(size=5500)
    model = rs.GaussianProcessRegressor(**QUIET)
    with pytest.warns(NumericalWarning, match="Copies are counted as one row"):
        model.fit(np.tile(x[:1500], (4, 1)), np.tile(y[:1500], 4))
    mean, std = model.predict(x[1500:], return_std=True)
    assert 0.935 < np.mean(abs(mean - y[1500:]) < 1.96 * std) < 0.97  # standard error .0034
    assert (std > 0.3 * 0.93).mean() > 0.95


@pytest.mark.slow
def test_copies_stay_what_they_are_in_a_store(tmp_path):
    x, y = rows_of(150)
    for i, choices in enumerate([{}, SHORT, {"features": "grid"}]):
        model = rs.GaussianProcessRegressor(**QUIET | choices).fit(*ways(x, y)[0])
        model.save(tmp_path / f"{i}.zarr", moments=True)
        again = rs.load(tmp_path / f"{i}.zarr")
        for mine, theirs in zip(
            *(m.predict(PLACES, return_std=True) for m in (model, again)), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)
        assert again.noise_variance_ == model.noise_variance_


def test_equal_rows_of_levels_are_other_observations(rng):
    """Two inputs of few levels, and a target of two: equal rows say how often it is 1."""
    x = rng.integers(0, 5, (4000, 2)).astype(float)
    p = 0.1 + 0.8 * (x[:, 0] % 2)
    y = (rng.uniform(size=4000) < p).astype(float)
    assert group_copies(np.column_stack([x, y])) is None
    assert merge_copies(x, y[:, None], np.ones(4000))[0] is x
    model = rs.GaussianProcessRegressor(**SHORT).fit(x, y)
    truth = 0.1 + 0.8 * (np.arange(5) % 2)
    at = np.column_stack([np.repeat(np.arange(5.0), 5), np.tile(np.arange(5.0), 5)])
    assert np.abs(model.predict(at) - np.repeat(truth, 5)).max() < 0.12
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.1)


def on_a_lattice(rng: Any) -> tuple[Any, Any, Any]:
    """600 rows of five rounded inputs and a rounded target, and places of them with 150 again."""
    x = np.round(rng.normal(size=(600, 5)), 1)
    y = np.round(np.sin(2 * x[:, 0]) + x[:, 1] + 0.7 * rng.normal(size=600))
    again = rng.permutation(np.append(np.arange(600), rng.choice(600, 150, replace=False)))
    return x, y, again


def test_rounded_rows_that_were_written_twice_are_copies(rng):
    """No input has many values, but nearly equal rows are as rare as chance makes them."""
    x, y, again = on_a_lattice(rng)
    rows = np.column_stack([x, y])[again]
    assert max(len(np.unique(each)) for each in rows.T) < 100
    assert different_share(rows, with_target=True) == pytest.approx(0.8)
    assert len(merge_copies(x[again], y[again, None], np.ones(750))[0]) == 600
    assert group_copies(rows[:, :-1]) is None  # inputs alone: levels that come again
    assert merge_copies(x[again], y[again, None] > 0, np.ones(750))[0].shape == (750, 5)
    coarse = np.round(rows / 2)  # values coincide, and then rows do: 11 to 13 levels
    assert group_copies(coarse, with_target=True) is None


@pytest.mark.slow
def test_rounded_rows_that_were_written_twice_have_their_noise(rng):
    """It was 6e-12, as if each copy were another observation, and the error .46 for .15."""
    x, y, again = on_a_lattice(rng)
    truth = np.sin(2 * x[:, 0]) + x[:, 1]
    model = rs.GaussianProcessRegressor(**QUIET).fit(x[again], y[again])
    assert model.noise_variance_ == pytest.approx(0.7**2 + 1 / 12, rel=0.3)
    assert np.sqrt(np.mean((model.predict(x) - truth) ** 2)) < 0.25


@pytest.mark.parametrize("times", [1, 2, 5])
def test_observations_are_counted_from_a_part_of_the_rows(rng, times):
    """Of 20,000 different rows a sample of 2,000 tells to .3 how often each stands."""
    x = np.repeat(rng.normal(size=(20_000, 1)), times, axis=0)
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 8, rng=0)
    found = Observations.of(rs.collect(features, x, x[:, 0], sample_weight=np.full(len(x), 0.5)))
    assert found.n * found.copies == pytest.approx(len(x))
    assert found.copies == pytest.approx(times, rel=0.3)
    assert found.log_weight / found.n == pytest.approx(np.log(times / 2), abs=0.3)
    if times == 1:
        assert found.n == len(x)


@pytest.mark.parametrize("times", [2, 3, 5])
def test_the_number_of_copies_is_estimated_without_bias(times: int) -> None:
    """Rows that the sample holds twice were all taken for rows of many copies: 2.35 for 2.

    Of 1,000 of c · 3,000 rows about 1000 · (c − 1) · p/2 pairs tell: .11 of c − 1 for one sample.
    """
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = np.tile(rng.normal(size=(3000, 2)), (times, 1))
        some = rng.permutation(len(x))[:1000]
        found.append(mean_copies(x[some], len(x)))
    error = np.sqrt(2 * 3 * times / ((times - 1) * 1000)) * (times - 1) / np.sqrt(20)
    assert abs(np.mean(found) - times) < 4 * error


@pytest.mark.parametrize(("n", "times"), [(800, 2), (3000, 3)])
def test_the_deviation_of_the_mean_does_not_depend_on_copies(n: int, times: int) -> None:
    """What the columns cannot follow was found from copies, as if each were a row of its own."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, 2))
        y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=n)
        once = rs.GaussianProcessRegressor(n_components=128, **QUIET).fit(x, y)
        again = rs.GaussianProcessRegressor(features=once.features_, **QUIET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)
            again.fit(np.tile(x, (times, 1)), np.tile(y, times))
        std, other = (m.predict(x, return_std=True, noise=False)[1] for m in (once, again))
        np.testing.assert_allclose(other, std, rtol=1e-6 if n < 1000 else 0.05)


def test_the_lowest_density_does_not_depend_on_copies():
    """Far from all rows a density is as low as their number says: that of different rows."""
    x, _ = rows_of(400)
    far = np.array([[9.0, 9.0]])
    found = [
        rs.KernelDensity(0.5, n_components=64, **QUIET).fit(*data).score_samples(far)[0]
        for data in ((x,), (np.tile(x, (3, 1)),), (x, None, np.full(400, 3.0)))
    ]
    assert found == pytest.approx(found[:1] * 3, abs=1e-3)


def test_rows_that_stand_unequally_often_are_observations_of_their_own(rng):
    """Coarse values coincide: a few rows a hundred times. The noise was then too large."""
    x = np.concatenate([rng.normal(size=(1000, 2)), np.repeat(rng.normal(size=(10, 2)), 100, 0)])
    x = np.round(200 * x) / 200
    y = np.sin(x[:, 0])
    assert 0.5 < len(np.unique(x[:, 0])) / 1010 < 0.8
    assert different_share(np.column_stack([x, y])) == 1.0
    assert different_share(np.repeat(x[:1000], 2, axis=0)) == 0.5
    assert different_share(np.tile(x[:1000], (3, 1))) == pytest.approx(1 / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said of copies, as none is counted as one
        rs.KernelRidge(**SHORT).fit(x, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices",
    [
        {"n_components": 256},
        {"features": "local"},
        {"features": rs.Grid(columns=350)},
        {"classes": True},
    ],
    ids=["one map", "cells", "grid", "classes"],
)
def test_copies_share_a_fold(choices, rng):
    """``alpha="cv"``, a map that can interpolate, and copies in any order.

    Apart, they gave a penalty of 1 % (cells, grid; errors of .27 in place of .15), 4 % (one map)
    and .004 % (classes) of that of weight 2.
    """
    x, y = rows_of(300)
    fixed: dict[str, Any] = {"alpha": "cv", "length_scale": 0.3} | QUIET
    if "classes" in choices:
        make, y = partial(rs.KernelClassifier, n_components=256, **fixed), y > 0
    else:
        make = partial(rs.KernelRidge, **choices, **fixed)
    order = rng.permutation(600)
    beside, _, heavy = ways(x, y)
    mixed = np.tile(x, (2, 1))[order], np.tile(y, 2)[order], None
    expected = np.asarray(make().fit(*heavy).alpha_)
    found = [np.asarray(make().fit(*data).alpha_) for data in (beside, mixed)]
    for each in found:
        assert (abs(np.log10(each / expected)) < 1.05).all()  # steps of the penalties: up to 10
        np.testing.assert_allclose(each, found[0], rtol=1e-6)


@pytest.mark.slow
def test_folds_of_copies_are_those_of_the_fit_in_later_rows(tmp_path):
    """A stored model with folds of slabs, and later rows that were in it."""
    x, y = rows_of(600)
    make = partial(rs.KernelRidge, alpha="cv", n_components=64, length_scale=0.7, **QUIET)
    whole = make().fit(np.tile(x, (3, 1)), np.tile(y, 3))
    model = make().fit(np.tile(x, (2, 1)), np.tile(y, 2))
    model.save(tmp_path / "model.zarr", moments=True)
    again = rs.load(tmp_path / "model.zarr")
    for each in (model, again):
        each.update(x, y, batch="third")
        np.testing.assert_allclose(each.alpha_, whole.alpha_)
        assert np.abs(each.predict(PLACES) - whole.predict(PLACES)).max() < EXACT * y.std()


def test_slabs_are_runs_of_rows_in_the_order_of_inputs(rng):
    x = rng.normal(size=(1000, 3))
    slabs = Slabs.of_rows(x, folds=5, runs=16)
    found = slabs.of(x)
    assert found.min() == 0 and found.max() == 79
    counts = np.bincount(found, minlength=80)
    assert counts.min() >= 12 and counts.max() <= 13
    order = rng.permutation(1000)
    assert (slabs.of(x[order]) == found[order]).all()
    assert (Slabs.from_numbers(slabs.numbers, 3).of(x) == found).all()
    assert (slabs.of(x[:1]) == found[:1]).all()
    few = Slabs.of_rows(np.repeat(x[:7], 9, axis=0), folds=5)  # seven different rows
    assert set(few.of(x[:7]) % 5) == set(range(5))


def test_rows_that_stand_once_have_folds_of_runs():
    x, y = rows_of(300)
    model = rs.KernelRidge(alpha="cv", n_components=32, length_scale=0.7, **QUIET).fit(x, y)
    assert set(model._fitted.scales) == {"length_scale"}


@pytest.mark.slow
@pytest.mark.parametrize("compared", ["mmd", "drift"])
def test_copies_look_like_no_drift(compared):
    """Two samples of one law, each written three times: copies are in other runs of rows.

    Of 40 p-values at most 7 are below .05 with probability .9993, without copies; before, 29 were.
    """
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 32, rng=0)
    day, p_values = np.repeat([0, 1], 900), []
    for seed in range(40):
        x = np.random.default_rng(seed).normal(size=(2, 300, 2))
        rows = np.tile(x, (1, 3, 1)).reshape(1800, 2)
        groups = rs.collect(features, rows, by=day, order=1, n_groups=2, progress=False)
        found = (
            rs.mmd(groups[0], groups[1], n_permutations=199)
            if compared == "mmd"
            else rs.drift(groups, n_permutations=199)[0]
        )
        p_values.append(found.p_value)
    assert sum(p < 0.05 for p in p_values) <= 7
    moved = rs.collect(features, np.where(day[:, None] == 1, rows + 1, rows), by=day, order=1,
                       n_groups=2, progress=False)  # fmt: skip
    assert rs.mmd(moved[0], moved[1]).p_value < 0.01


@pytest.mark.parametrize("shuffled", [False, True])
def test_copies_that_stand_unequally_often_are_one_row_each(shuffled):
    """2 or 50 times: the process took the noise for the function, and covered 32 % in place of 95.

    RMSE were 1.48, .28 and .34 beside .21 of each row once.
    """
    for seed in (3, 5, 6):
        rng = np.random.default_rng(seed)
        X, y = rows_of_a_wave(rng, 400)
        new, truth = rows_of_a_wave(rng, 2000)
        places = np.repeat(np.arange(400), np.where(np.arange(400) % 2, 2, 50))
        places = rng.permutation(places) if shuffled else places
        assert different_share(np.column_stack([X, y])[places]) == 400 / 10_400
        model = rs.GaussianProcessRegressor(random_state=0, progress=False)
        once = model.fit(X, y).predict(new)
        with pytest.warns(NumericalWarning, match="Copies are counted as one row"):
            mean, std = model.fit(X[places], y[places]).predict(new, return_std=True)
        errors = [np.sqrt(np.mean((each - truth) ** 2)) for each in (once, mean)]
        assert errors[1] < 1.2 * errors[0]
        assert 0.92 < np.mean(abs(truth - mean) < 1.96 * std) < 0.99
        assert model.noise_variance_**0.5 == pytest.approx(0.2, rel=0.15)


def rows_of_a_wave(rng, n):
    """Two inputs and a function of both, noise .2."""
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 0] + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("n", [1000, 100_000])
def test_the_share_of_new_rows_that_were_counted(share: float, n: int) -> None:
    """Of all known rows, or of a thousand of them, and a thousand new ones."""
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(2, n, 3))
    count = round(share * n)
    new[:count] = rows[rng.permutation(n)[:count]].astype(np.float32)
    known = rows[rng.permutation(n)[:1000]]
    found, of = share_counted(known, n, rng.permutation(new)[:1000], 1)
    if share == 0:
        assert (found, of) == (0.0, 0)
    else:
        assert abs(found - share) < 4 * share / np.sqrt(1000 * share * 1000 / n)  # Poisson


@pytest.mark.parametrize("n_states", [300, 100_000, 500_000])
def test_states_that_occur_again_are_no_rows_that_come_again(n_states: int) -> None:
    """Targets that are functions of few states: twelve equal rows were said to be all of them."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=n_states)
        known, new = (
            np.column_stack([state, values[state]])
            for state in rng.integers(0, n_states, (2, 1000))
        )
        assert share_counted(known, 800_000, new, 1)[0] < 0.5


def test_labels_and_rounded_targets_tell_of_no_rows_that_come_again() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(500, 2)), rng.integers(0, 9, 500)])
    assert share_counted(rows, 500, rows, 1) == share_counted(rows, 500, rows, 0) == (0.0, 0)
