"""Few rows of classes are calibrated by maps that were searched without them, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import rff_stream as rs
from rff_stream.answers.calibration import Calibration, mean_calibration
from rff_stream.answers.odds_line import FOLDS, folds_of
from rff_stream.cells import classes
from rff_stream.cells.fold_scores import FoldScores


def fitted(X: np.ndarray, y: np.ndarray, **choices: Any) -> rs.KernelClassifier:
    return rs.KernelClassifier(random_state=0, progress=False, **choices).fit(X, y)


def scores_in(model: rs.KernelClassifier) -> FoldScores | None:
    return FoldScores.from_stored(model._require_fit().scales)


def waves(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 3))
    return X, (np.sin(3 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(int)


def test_scores_are_found_by_the_values_of_rows(rng: np.random.Generator) -> None:
    x, scores = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    held = FoldScores.of(np.r_[x, x[:5]], np.r_[scores, scores[:5]], ["a", "b"])
    again = FoldScores.from_stored({"length_scale": np.ones(3)} | held.stored)
    assert again is not None
    order = rng.permutation(50)
    np.testing.assert_array_equal(again.at(x[order], ["a", "b"]), scores[order])
    assert again.at(np.r_[x, x[:1] + 1], ["a", "b"]) is None
    assert again.at(x, ["b", "a"]) is None
    assert FoldScores.from_stored({"length_scale": np.ones(3)}) is None


def test_a_fold_is_scored_by_a_map_that_did_not_see_it(rng: np.random.Generator) -> None:
    """Another class of a row of a fold changes the scores of all rows but those of the fold."""
    X, y = waves(rng, 150)
    before, fold = scores_in(fitted(X, y)), folds_of(X)
    assert before is not None and before.scores.shape == (150, 2)
    for k in range(FOLDS):
        other = y.copy()
        other[np.flatnonzero(fold == k)[0]] ^= 1
        after = scores_in(fitted(X, other))
        assert after is not None
        names, own = before.classes, X[fold == k]
        np.testing.assert_allclose(before.at(own, names), after.at(own, names), atol=1e-12)
        rest = X[fold != k]
        assert np.mean(np.abs(before.at(rest, names) - after.at(rest, names)) > 1e-6) > 0.5


def test_the_mean_of_log_odds(rng: np.random.Generator) -> None:
    f, x = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))
    a = Calibration(2.0, np.arange(3.0))
    b = Calibration(1.0, np.ones(3), rng.normal(size=(2, 3)))
    np.testing.assert_allclose(mean_calibration([a, b])(f, x), (a(f, x) + b(f, x)) / 2)
    assert mean_calibration([a, a]).line is None


def test_few_rows_are_less_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iris, four fifths of 150 rows: scores of single left-out rows alone are too sure."""
    X, y = load_iris(return_X_y=True)
    losses = np.zeros((5, 2))
    for split, found in enumerate(losses):
        order = np.random.default_rng(split).permutation(len(X))
        new, known = np.split(order, [len(X) // 5])
        for place, most in enumerate((classes.ONE_SET, 0)):
            with monkeypatch.context() as patch:
                patch.setattr(classes, "ONE_SET", most)
                p = fitted(X[known], y[known]).predict_proba(X[new])
            found[place] = -np.log(p[np.arange(len(new)), y[new]]).mean()
    both, alone = losses.mean(axis=0)
    assert both < 0.85 * alone


def test_batches_precision_and_units_of_weights_change_no_fold(rng: np.random.Generator) -> None:
    X, y = waves(rng, 240)
    whole, new = fitted(X, y), rng.normal(size=(100, 3))
    batches = rs.KernelClassifier(random_state=0, progress=False)
    batches.partial_fit(X[:120], y[:120], classes=[0, 1]).partial_fit(X[120:], y[120:])
    few_digits = fitted(X.astype(np.float32), y)
    weighted = rs.KernelClassifier(random_state=0, progress=False)
    weighted.fit(X, y, sample_weight=np.full(240, 1000.0))
    scores, of_weighted = scores_in(whole), scores_in(weighted)
    assert scores is not None and of_weighted is not None
    np.testing.assert_allclose(of_weighted.scores, scores.scores, atol=1e-6)
    for other, tolerance in ((batches, 1e-9), (few_digits, 1e-4)):
        np.testing.assert_allclose(
            other.predict_proba(new), whole.predict_proba(new), rtol=0, atol=tolerance
        )


def test_no_search_without_folds_where_there_is_nothing_to_search(rng: np.random.Generator) -> None:
    X, y = waves(rng, 120)
    assert scores_in(fitted(X, y, length_scale=1.0)) is None
    assert scores_in(fitted(X, y, search_seconds=0)) is None
    once_other = np.ones_like(X)
    once_other[5] = 2.0  # a fold sees no input vary
    assert scores_in(fitted(once_other, y)) is None
    once = np.where(np.arange(120) == 7, 2, y)  # a class of one row
    assert scores_in(fitted(X, once)) is None
    assert scores_in(fitted(*waves(rng, 900))) is None


def test_a_model_is_loaded_with_its_scores(rng: np.random.Generator, tmp_path: Any) -> None:
    X, y = waves(rng, 120)
    model, new = fitted(X, y), rng.normal(size=(50, 3))
    model.save(tmp_path / "m.zarr", moments=True)
    again = rs.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    again.update(X[:40] + 0.01, y[:40])  # rows that no fold has seen
    assert np.isfinite(again.predict_proba(new)).all()
