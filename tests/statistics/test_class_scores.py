"""Metrics as sums: equal to scikit-learn's on all rows, and the same from any parts."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

import rff_stream as rs
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.scores import ClassScores, ClassScoreStatistic

D = 2
QUIET: dict[str, Any] = {"n_components": 32, "random_state": 0, "progress": False}


def blobs(rng, n, n_classes):
    y = rng.integers(0, n_classes, n)
    return y[:, None] * np.array([1.0, -0.5]) + rng.normal(size=(n, D)), y


@pytest.fixture
def fitted(rng):
    X, y = blobs(rng, 600, 3)
    names = np.array(["a", "b", "c"])[y]
    return rs.KernelClassifier(**QUIET).fit(X, names), X, names


def test_metrics_are_those_of_scikit_learn(fitted, rng):
    model, X, y = fitted
    w = rng.uniform(0.5, 2, len(X))
    found, p = model.scores(X, y, w), model.predict_proba(X)
    assert found.accuracy() == pytest.approx(accuracy_score(y, model.predict(X), sample_weight=w))
    assert found.log_loss() == pytest.approx(log_loss(y, p, sample_weight=w))
    for i, label in enumerate(model.classes_):
        exact = roc_auc_score(y == label, p[:, i], sample_weight=w)
        assert abs(found.auroc()[label] - exact) <= found.auroc_error()[label] + 1e-12
        assert found.auroc_error()[label] < 5e-3
    assert found.n == 600 and found.weight == pytest.approx(w.sum())


def test_brier_score_of_two_classes_counts_both(rng):
    X, y = blobs(rng, 300, 2)
    model = rs.KernelClassifier(**QUIET).fit(X, y)
    half = brier_score_loss(y, model.predict_proba(X)[:, 1])
    assert model.scores(X, y).brier() == pytest.approx(2 * half)


def test_metrics_of_parts_add(fitted):
    model, X, y = fitted
    whole = model.scores(X, y)
    halves = model.scores(X[:200], y[:200]) + model.scores(X[200:], y[200:])
    lazy = model.scores(da.from_array(X, chunks=(70, D)), da.from_array(y, chunks=70))
    for other in (halves, lazy):
        np.testing.assert_allclose(other.confusion, whole.confusion)
        np.testing.assert_allclose(other.odds, whole.odds)
        np.testing.assert_allclose(other.confidence, whole.confidence)
        assert other.log_loss() == pytest.approx(whole.log_loss())


def test_metrics_by_group_are_those_of_its_rows(fitted):
    model, X, y = fitted
    month = np.arange(len(X)) % 12
    found = model.scores(X, y, by=month)
    assert list(found) == list(range(12))
    own = model.scores(X[month == 3], y[month == 3])
    np.testing.assert_allclose(found[3].confusion, own.confusion)
    assert sum(group.n for group in found.values()) == len(X)
    assert set(found[3].recall()) == {"a", "b", "c"}


def test_rows_of_a_class_not_known_are_wrong_and_named(fitted):
    model, X, y = fitted
    odd = y.copy()
    odd[:60] = "z"
    found = model.scores(X, odd)
    assert found.unseen == {"z": 60.0}
    right = np.mean(model.predict(X)[60:] == y[60:]) * 540 / 600
    assert found.accuracy() == pytest.approx(right)
    with pytest.raises(rs.errors.DataError, match="class 'z', which the model has not seen"):
        found.log_loss()


def test_labels_of_another_kind_are_refused(fitted):
    """Every row was wrong: an accuracy of 0 in silence."""
    model, X, y = fitted
    numbers = np.unique(y, return_inverse=True)[1]
    other = rs.KernelClassifier(n_components=16, random_state=0, progress=False).fit(X, numbers)
    for each, labels in ((model, numbers), (other, numbers.astype(str))):
        for score in (each.score, each.scores):
            with pytest.raises(ValueError, match=r"Text and numbers are different labels"):
                score(X, labels)
    assert other.score(X, numbers.astype(float)) == other.score(X, numbers) > 0


def test_calibration_of_probabilities_that_are_right(rng):
    """Labels drawn from the probabilities that are scored."""
    p = rng.dirichlet(np.ones(3), size=20_000)
    codes = (p.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
    places = np.arange(20_000)
    sink = ClassScoreStatistic(lambda x: p[x[:, 0].astype(int)], (0, 1, 2)).start()
    sink.add(
        Rows(places[:, None].astype(float), np.empty((20_000, 0)), None, None, 0, codes), places
    )
    found: ClassScores = sink.result()
    assert found.calibration_error() < 0.02
    shown = found.calibration()
    assert shown[:, 2].sum() == 20_000
    np.testing.assert_allclose(shown[:, 0], shown[:, 1], atol=0.1)


def test_one_sided_data_have_no_auroc(fitted):
    model, X, y = fitted
    found = model.scores(X[y == "a"], y[y == "a"])
    assert np.isnan(found.auroc()["a"]) and list(found.recall()) == ["a"]


def test_residuals_by_group_are_those_of_its_rows(rng):
    X = rng.normal(size=(300, D))
    y, month = X[:, 0] + 0.1 * rng.normal(size=300), np.arange(300) % 4
    model = rs.KernelRidge(alpha=0.1, **QUIET).fit(X, y)
    found = model.residuals(X, y, by=month)
    for group, own in found.items():
        rows = month == group
        exact = np.sqrt(np.mean((model.predict(X[rows]) - y[rows]) ** 2))
        assert own.n == 75 and own.rmse()[0] == pytest.approx(exact)
