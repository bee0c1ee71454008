"""Many levels as the means of their levels, in front of the map that the data choose."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rff_stream as rs
from rff_stream.errors import NumericalWarning
from rff_stream.families.level_intercepts import MixedModel
from rff_stream.features import ByColumns
from rff_stream.features.base import map_from_spec
from rff_stream.level_means.map import LevelFeatures
from rff_stream.level_means.means import FOLDS, LevelMeans, _folds, can_fold

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}
OWN = np.random.default_rng(1).normal(size=400)


def table(n: int, seed: int, first: int = 0, stop: int = 100) -> pd.DataFrame:
    """What two inputs do depends on the level; noise of .1."""
    rng = np.random.default_rng(seed)
    x, level = rng.normal(size=(n, 2)), rng.integers(first, stop, n)
    own = OWN[level]
    y = own * np.sin(2 * x[:, 0]) + own * x[:, 1] + own + 0.1 * rng.normal(size=n)
    place = [f"p{each}" for each in level]
    return pd.DataFrame({"a": x[:, 0], "place": place, "b": x[:, 1], "y": y})


def rmse(model: Any, frame: pd.DataFrame) -> float:
    return float(np.sqrt(np.mean((np.asarray(model.predict(frame)) - frame.y) ** 2)))


@pytest.fixture(scope="module")
def model() -> Any:
    return rs.GaussianProcessRegressor(**QUIET).fit(table(1500, 0), "y")


def test_what_inputs_do_may_depend_on_the_level(model: Any, tmp_path: Path) -> None:
    """With intercepts beside a function of a and b the error is .8 of the spread of y."""
    new = table(1000, 5)
    assert isinstance(model.features_, LevelFeatures)
    assert model.columns_.inputs == ("a", "place=*", "b")
    error = rmse(model, new)
    assert error < 0.4 * new.y.std()
    whole = rs.GaussianProcessRegressor(features="whole", **QUIET).fit(table(1500, 0), "y")
    assert rmse(whole, new) > 0.7 * new.y.std()
    mean, std = model.predict(new, return_std=True)
    assert np.mean(abs(mean - new.y) < 1.96 * std) > 0.92  # 15 rows of a level: errors have tails
    model.save(tmp_path / "m.zarr", moments=True)
    again = rs.load(tmp_path / "m.zarr")
    for found, expected in zip(again.predict(new, return_std=True), (mean, std), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert again.update(table(200, 6), "y", batch="later").n_rows_ == 1700
    plain, arrays = model.features_.spec()
    assert map_from_spec(plain, arrays).fingerprint == model.features_.fingerprint


def test_a_level_without_a_mean_is_as_unsure_as_levels_differ(model: Any) -> None:
    inside = []
    for k in range(3):  # of other levels each
        new = table(600, 7 + k, 100 + 100 * k, 200 + 100 * k)
        mean, std = model.predict(new, return_std=True)
        inside.append(np.mean(abs(mean - new.y) < 1.96 * std))
    # y is a product of normal numbers, with heavy tails; with the variance of f alone .1 to .2
    assert np.mean(inside) > 0.8


def test_levels_have_no_slope_and_their_share(model: Any) -> None:
    assert [*model.importance_] == ["a", "place=*", "b"] and model.importance_["place=*"] > 0.2
    assert rs.inspect.gradient_outer_product(model).inputs == ("a", "b")
    assert rs.inspect.relevance(model).inputs == ("a", "b")
    step, frame = 1e-5, table(20, 8)
    x = model._fitted.sampled_rows[:20, :3]
    slopes = model._fitted.answer.slopes()(x)[:, :, 0]
    assert (slopes[:, 1] == 0).all()
    mean = model._fitted.answer.mean()
    for place in (0, 2):
        ends = [mean(x + sign * step * np.eye(3)[place])[:, 0] for sign in (1, -1)]
        expected = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(slopes[:, place], expected, rtol=1e-3, atol=1e-3)
    assert model.predict(frame[:4], return_cov=True)[1].shape == (4, 4)
    assert model.sample_y(frame[:4], n_samples=3).shape == (4, 3)


def test_a_map_that_is_given_keeps_its_means(model: Any) -> None:
    given = rs.GaussianProcessRegressor(features=model.features_, **QUIET).fit(table(1500, 0), "y")
    new = table(50, 9)
    np.testing.assert_allclose(given.predict(new), model.predict(new), rtol=1e-6, atol=1e-6)


def test_rows_in_memory_that_come_later_are_as_in_one_fit() -> None:
    first, more, new = table(500, 0), table(700, 1, 80, 120), table(300, 2, 0, 120)
    grown = rs.KernelRidge(**QUIET).fit(first, "y").partial_fit(more, "y")
    whole = rs.KernelRidge(**QUIET).fit(pd.concat([first, more]), "y")
    np.testing.assert_allclose(grown.predict(new), whole.predict(new), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_intercepts_are_taken_where_they_predict_as_well() -> None:
    rng = np.random.default_rng(0)
    level, x = rng.integers(0, 100, 3000), rng.normal(size=(3000, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "place": [f"p{each}" for each in level]})
    frame["y"] = np.sin(3 * x[:, 0]) + OWN[level] + 0.1 * rng.normal(size=3000)
    found = rs.GaussianProcessRegressor(**QUIET).fit(frame[:2000], "y")
    assert isinstance(found.features_, ByColumns) and rmse(found, frame[2000:]) < 0.115


def dense(codes: Any, y: Any, w: Any, some: Any) -> dict[float, float]:
    """The mean of each level by some rows, drawn to 0; variances are those of all rows."""
    every = sorted(set(codes))
    groups = [codes == each for each in every]
    n, size = len(y), np.array([w[own].sum() for own in groups])
    means = np.array([np.average(y[own], weights=w[own]) for own in groups])
    within = sum((w[o] * (y[o] - m) ** 2).sum() for o, m in zip(groups, means, strict=True))
    within /= n - len(every)
    between = (size * (means - np.average(y, weights=w)) ** 2).sum() / (len(every) - 1)
    typical = (size.sum() - (size**2).sum() / size.sum()) / (len(every) - 1)
    ratio = max((between - within) / typical, 0.0) / within
    found = {}
    for each, own in zip(every, groups, strict=True):
        own = own & some
        found[each] = ratio * (w[own] * y[own]).sum() / (1 + ratio * w[own].sum())
    return found


def test_means_are_drawn_to_0_and_leave_out_the_fold_of_a_row() -> None:
    """Of a column alone there is nothing else to take from the targets."""
    rng = np.random.default_rng(0)
    codes = rng.integers(10, 22, 300).astype(float)
    y, w = OWN[codes.astype(int)] + 0.5 * rng.normal(size=300), rng.uniform(0.5, 2, 300)
    means = LevelMeans.of(codes[:, None], y[:, None], w, [0])
    scaled = (y - np.average(y, weights=w)) / y.std()
    expected = dense(codes, scaled, w, np.ones(300, bool))
    sign = np.sign(means(np.array([[12.0]]))[0, 0] / expected[12.0])
    asked = np.array([*expected, 99.0, np.nan])[:, None]
    found = sign * means(asked)[:, 0]
    np.testing.assert_allclose(found[:-2], [*expected.values()], rtol=1e-9)
    assert found[-2] == 0 and np.isnan(found[-1])
    fold = _folds(codes[:, None], y[:, None])
    assert set(fold) == set(range(FOLDS))
    of_fit = sign * means.of_fit(codes[:, None], y[:, None])[:, 0]
    for k in range(FOLDS):
        own = dense(codes, scaled, w, fold != k)
        np.testing.assert_allclose(of_fit[fold == k], [own[c] for c in codes[fold == k]], rtol=1e-9)


def test_equal_inputs_and_few_targets_have_no_folds() -> None:
    rng = np.random.default_rng(0)
    level, few = (rng.integers(0, k, (400, 1)).astype(float) for k in (200, 4))
    number = rng.normal(size=(400, 1))
    assert not can_fold(level, few, [0])  # most levels are met once or twice
    assert not can_fold(level, number, [0], classes=True)
    assert can_fold(level, number, [0])
    assert not can_fold(np.arange(400.0)[:, None], few, [0], classes=True)
    assert can_fold(np.hstack([level, number]), few, [0], classes=True)


BESIDE = ["nothing", "a constant", "three numbers", "a number of the level"]
SLOW = pytest.param(1500, "one number", marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("n", "beside"), [*((1500, each) for each in BESIDE), (450, BESIDE[0]), SLOW]
)
def test_classes_of_levels_alone_are_those_of_intercepts(n: int, beside: str) -> None:
    """Probabilities were the shares of the classes: rows of one level were copies of each other."""
    rng = np.random.default_rng(0)
    own, level = 2 * rng.normal(size=150), rng.integers(0, 150, n + 1500)
    y = rng.uniform(size=n + 1500) < 1 / (1 + np.exp(-own[level]))
    frame = pd.DataFrame({"l": [f"v{each}" for each in level]})
    if beside != "nothing":
        values = {
            "a constant": 5.0,
            "three numbers": rng.integers(0, 3, len(level)),
            "a number of the level": rng.normal(size=150)[level],
        }
        frame["a"] = values.get(beside, rng.normal(size=len(level)))
    told = pytest.warns(NumericalWarning, match="left out of the map: a=5")
    with told if beside == "a constant" else contextlib.nullcontext():
        model = rs.KernelClassifier(**QUIET).fit(frame[:n], y[:n])
    size, k = (np.bincount(level[:n], w, 150) for w in (np.ones(n), y[:n]))
    shrunk = ((k + y[:n].mean()) / (size + 1))[level[n:]]
    expected = -np.log(np.where(y[n:], shrunk, 1 - shrunk)).mean()
    assert log_loss(model, frame[n:], y[n:]) < 1.03 * expected
    if beside == "a constant":
        with pytest.warns(NumericalWarning, match="^a vary in these rows"):
            model.predict(frame[n:].assign(a=np.arange(1500.0)))


def test_targets_of_few_values_are_told_by_levels_alone() -> None:
    rng = np.random.default_rng(1)
    own, level = rng.normal(size=150), rng.integers(0, 150, 3000)
    y = np.round(2 * own[level] + rng.normal(size=3000))
    frame = pd.DataFrame({"l": [f"v{each}" for each in level]})
    model = rs.KernelRidge(**QUIET).fit(frame[:1500], y[:1500])
    assert isinstance(model.features_, ByColumns)
    assert rmse(model, frame[1500:].assign(y=y[1500:])) < 1.1 * np.sqrt(1 + 1 / 12 + 1 / 10)


def test_levels_that_differ_by_no_more_than_noise_are_all_alike() -> None:
    x = np.arange(100.0)[:, None]
    means = LevelMeans.of(x, np.random.default_rng(0).normal(size=(100, 1)), np.ones(100), [0])
    assert (means(x) == 0).all()  # each level has one row


def test_left_out_rows_of_a_mixed_model_are_those_of_dense_fits() -> None:
    rng = np.random.default_rng(0)
    codes, Z, w = rng.integers(0, 8, 60), rng.normal(size=(60, 3)), rng.uniform(0.5, 2, 60)
    y = (Z.sum(axis=1) + 2 * rng.normal(size=8)[codes] + 0.5 * rng.normal(size=60))[:, None]
    model = MixedModel.of(Z, codes, y, w)
    assert model.ratio > 0
    K = (Z @ Z.T + 1e3) / model.alpha + model.ratio * (codes[:, None] == codes)
    centred, found = model.y[:, 0], model.left_out()[:, 0]
    for row in range(0, 60, 7):
        others = np.arange(60) != row
        inner = K[np.ix_(others, others)] + np.diag(1 / w[others])
        predicted = K[row, others] @ np.linalg.solve(inner, centred[others])
        assert found[row] == pytest.approx(centred[row] - predicted, rel=1e-6)


def labelled(n: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Three classes; what two inputs say of them depends on the level."""
    frame = table(n, seed)
    level = np.array([int(each[1:]) for each in frame.place])
    score = np.where(OWN[level] > 0, 2.0, -2.0) * (1 + frame.a + np.sin(2 * frame.b))
    noise = 0.1 * np.random.default_rng(seed + 50).normal(size=n)
    labels = np.array(["low", "middle", "high"])[np.digitize(score + noise, [-1.0, 1.0])]
    return frame.drop(columns="y"), labels


def log_loss(model: Any, frame: Any, labels: Any) -> float:
    places = np.searchsorted(model.classes_, labels)
    return -float(
        np.log(np.asarray(model.predict_proba(frame))[np.arange(len(frame)), places]).mean()
    )


@pytest.mark.slow
def test_classes_have_means_too(tmp_path: Path) -> None:
    rows, new = labelled(1500, 0), labelled(1000, 5)
    model = rs.KernelClassifier(**QUIET).fit(*rows)
    assert isinstance(model.features_, LevelFeatures) and model.features_.means.by_inputs
    whole = rs.KernelClassifier(features="whole", **QUIET).fit(*rows)
    assert log_loss(model, *new) < 0.8 * log_loss(whole, *new)
    assert [*model.importance_] == ["a", "place=*", "b"]
    model.save(tmp_path / "m.zarr", moments=True)
    again = rs.load(tmp_path / "m.zarr")
    odds = model.predict_proba(new[0])
    np.testing.assert_array_equal(again.predict_proba(new[0]), odds)
    more = labelled(300, 6)
    again.update(*more, batch="later")
    assert again.n_rows_ == 1800
    again.forget("later")
    np.testing.assert_allclose(again.predict_proba(new[0]), odds, atol=1e-6)
    given = rs.KernelClassifier(features=model.features_, **QUIET).fit(*rows)
    np.testing.assert_allclose(given.predict_proba(new[0]), odds, atol=0.02)
    by_code = new[0].assign(place=new[0].place.where(new[0].index % 2 == 0, "nowhere"))
    assert np.isfinite(model.predict_proba(by_code)).all()


@pytest.mark.slow
def test_classes_have_intercepts_where_these_predict_as_well() -> None:
    rows, new = table(1500, 0), table(1000, 5)
    model, whole = (
        rs.KernelClassifier(**choices, **QUIET).fit(rows.drop(columns="y"), rows.y > 0)
        for choices in ({}, {"features": "whole"})
    )
    losses = [log_loss(each, new.drop(columns="y"), new.y > 0) for each in (model, whole)]
    assert losses[0] < 1.03 * losses[1]
