"""A map that was chosen for few rows is chosen again when they are twice as many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import rff_stream as rs
from rff_stream.errors import DataError
from rff_stream.model import input_rows, kept_rows

QUIET = {"random_state": 0, "progress": False}


def made(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(3 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=n)


def as_labels(y: np.ndarray) -> np.ndarray:
    return np.where(y > 0, "above", "below")


KINDS: dict[str, Any] = {
    "process": (lambda: rs.GaussianProcessRegressor(**QUIET), lambda y: y),
    "ridge": (lambda: rs.KernelRidge(**QUIET), lambda y: y),
    "two targets": (lambda: rs.KernelRidge(**QUIET), lambda y: np.stack([y, -2 * y], axis=1)),
    "classes": (lambda: rs.KernelClassifier(**QUIET), as_labels),
}


def answers(model: Any, x: Any) -> np.ndarray:
    found = model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x)
    return np.asarray(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "frames"), [*((kind, False) for kind in KINDS), ("process", True), ("classes", True)]
)
def test_batches_that_double_the_rows_give_the_fit_of_all(kind, frames):
    make, form = KINDS[kind]
    x, y = made()
    y = form(y)

    def rows(lo: int, hi: int) -> tuple[Any, Any]:
        if not frames:
            return x[lo:hi], y[lo:hi]
        return pd.DataFrame(x[lo:hi], columns=["a", "b"]), pd.DataFrame(y[lo:hi]).squeeze(axis=1)

    whole = make().fit(*rows(0, 200))
    model = make()
    for lo, hi in ((0, 40), (40, 90), (90, 200)):
        model.partial_fit(*rows(lo, hi))
    asked = rows(0, 20)[0]
    assert model.n_rows_ == 200
    np.testing.assert_array_equal(answers(model, asked), answers(whole, asked))
    if kind != "classes":
        updated = make().fit(*rows(0, 40)).update(*rows(40, 200))
        np.testing.assert_array_equal(answers(updated, asked), answers(whole, asked))


def test_in_between_rows_are_added_to_the_map_and_the_repr_says_so():
    x, y = made()
    model = rs.KernelRidge(**QUIET).partial_fit(x[:100], y[:100])
    features = model.features_
    assert "chosen on" not in repr(model)
    model.partial_fit(x[100:150], y[100:150])
    assert model.features_ is features
    assert "chosen on 100 of 150 rows" in repr(model)
    model.partial_fit(x[150:], y[150:])
    assert model.features_ is not features
    assert "chosen on" not in repr(model)


@pytest.mark.slow
def test_weights_and_rows_that_are_dropped_are_those_of_all_batches():
    x, y = made()
    w = np.random.default_rng(0).uniform(0.5, 2, len(y))
    y[::7] = np.nan
    there = ~np.isnan(y)
    model = rs.KernelRidge(**QUIET, missing_rows="drop")
    for rows in (slice(0, 60), slice(60, 200)):
        model.partial_fit(x[rows], y[rows], w[rows])
    whole = rs.KernelRidge(**QUIET).fit(x[there], y[there], w[there])
    assert (model.n_rows_, model.n_missing_) == (there.sum(), (~there).sum())
    np.testing.assert_array_equal(model.predict(x), whole.predict(x))


def test_a_batch_that_is_known_is_not_counted_again():
    x, y = made()
    model = rs.KernelRidge(**QUIET).partial_fit(x[:50], y[:50], batch="a")
    model.partial_fit(x[50:], y[50:], batch="b")
    for name, rows in (("a", slice(0, 50)), ("b", slice(50, 200))):
        model.partial_fit(x[rows], y[rows], batch=name)
    model.update(x[50:], y[50:])
    assert model.n_rows_ == 200


def test_a_bad_batch_changes_nothing():
    x, y = made()
    model = rs.KernelRidge(**QUIET).partial_fit(x[:50], y[:50])
    before = model.predict(x)
    bad = x[50:].copy()
    bad[3] = np.nan
    with pytest.raises((DataError, ValueError), match="NaN"):
        model.partial_fit(bad, y[50:])
    np.testing.assert_array_equal(model.predict(x), before)
    assert len(model.partial_fit(x[50:], y[50:])._fitted.kept) == 200


@pytest.mark.parametrize(
    "given", [{"n_components": 256, "length_scale": 0.7}, {"features": rs.Cells(16, 2, 2)}]
)
def test_no_rows_are_kept_of_a_map_that_was_given(given):
    x, y = made()
    model = rs.KernelRidge(**QUIET, **given).fit(x[:50], y[:50])
    features = model.features_
    assert model._fitted.kept is None
    assert model.update(x[50:], y[50:]).features_ is features


def test_rows_are_kept_as_long_as_they_are_few(monkeypatch):
    x, y = made()
    for module in (kept_rows, input_rows):
        monkeypatch.setattr(module, "MOST_BYTES", 100 * 4 * 8)  # 100 rows of x, y, w
    model = rs.KernelRidge(**QUIET).partial_fit(x[:100], y[:100])
    features = model.features_
    assert len(model._fitted.kept) == 100
    model.partial_fit(x[100:], y[100:])
    assert model.features_ is features
    assert model._fitted.kept is None


def test_a_stored_model_keeps_its_map(tmp_path):
    x, y = made()
    model = rs.KernelRidge(**QUIET).fit(x[:100], y[:100])
    model.save(tmp_path / "model", moments=True)
    loaded = rs.load(tmp_path / "model")
    fingerprint = loaded.features_.fingerprint
    loaded.update(x[100:], y[100:])
    assert loaded.n_rows_ == 200
    assert loaded.features_.fingerprint == fingerprint
    assert "chosen on 100 of 200 rows" in repr(loaded)


@pytest.mark.slow
def test_announced_classes_stay_and_new_ones_are_told_of():
    x, y = made()
    labels = as_labels(y)
    announced = rs.KernelClassifier(**QUIET)
    announced.partial_fit(x[:50], labels[:50], classes=["above", "below", "level"])
    announced.partial_fit(x[50:], labels[50:])
    assert announced.classes_.tolist() == ["above", "below", "level"]
    labels[60:90] = "level"
    other = rs.KernelClassifier(**QUIET).partial_fit(
        x[:50], labels[:50], classes=["above", "below"]
    )
    with pytest.raises(ValueError, match="'level' is not among the classes"):
        other.partial_fit(x[50:], labels[50:])
    assert other.n_rows_ == 50
    free = rs.KernelClassifier(**QUIET).partial_fit(x[:50], labels[:50])
    with pytest.warns(UserWarning, match="Label 'level' is new in this batch"):
        free.partial_fit(x[50:], labels[50:])
    assert free.classes_.tolist() == ["above", "below", "level"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "more"),
    [
        ((bool, int), 20),
        ((int, bool), 20),
        ((int, float), 20),
        ((float, int), 20),
        ((bool, int), 60),
    ],
)
def test_labels_that_are_equal_are_one_class_in_the_form_of_the_first(types, more):
    """1 for True or 1.0: one was an error about names of targets, or changed all classes.

    After 20 more rows they are added, after 60 the map is chosen again.
    """
    x, y = made(40 + more)
    first, later = ((y > 0).astype(each) for each in types)
    model = rs.KernelClassifier(**QUIET).partial_fit(x[:40], first[:40])
    model.partial_fit(x[40:], later[40:])
    whole = rs.KernelClassifier(**QUIET).partial_fit(x[:40], first[:40])
    whole.partial_fit(x[40:], first[40:])
    assert model.n_rows_ == 40 + more
    assert model.classes_.dtype == whole.classes_.dtype == first.dtype
    np.testing.assert_array_equal(model.predict_proba(x), whole.predict_proba(x))


@pytest.mark.parametrize("more", [20, 60], ids=["added", "chosen again"])
@pytest.mark.parametrize("text_first", [False, True])
def test_labels_of_another_kind_are_refused(text_first, more):
    """Numbers became text where the map was chosen again, each class twice."""
    x, y = made(40 + more)
    kinds = [(y > 0).astype(int), as_labels(y)]
    first, later = reversed(kinds) if text_first else kinds
    model = rs.KernelClassifier(**QUIET).partial_fit(x[:40], first[:40])
    with pytest.raises(DataError, match=r"of several kinds \(int, str\)"):
        model.partial_fit(x[40:], later[40:])
    assert model.n_rows_ == 40
