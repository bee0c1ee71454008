"""Logistic regression on a map, beside the scores of cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import rff_stream as rs
from rff_stream.answers.odds_line import FOLDS, folds_of, shares_beside
from rff_stream.cells import classes as cell_classes
from rff_stream.cells import odds_map
from rff_stream.cells.odds_map import FEWEST_COLUMNS, ROWS_A_COLUMN, TOL, OddsMap, OddsPart, _Path
from rff_stream.descents.kept_rows import KeptFeatures
from rff_stream.features import Projection
from rff_stream.kernels import ArcCosine
from rff_stream.losses.classification import loss_for
from rff_stream.moments.class_moments import one_hot

KERNEL = rs.Gaussian(0.7)


def rings(rng: Any, n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes that hardly overlap."""
    X = rng.uniform(-2, 2, (n, 2))
    radius = np.hypot(*X.T) + 0.05 * rng.normal(size=n)
    return X, np.minimum(radius.astype(int), n_classes - 1)


def map_of(X: np.ndarray, y: np.ndarray, w: np.ndarray | None = None, **changes: Any) -> Any:
    names = [str(label) for label in range(y.max() + 1)]
    chosen = {"kernel": KERNEL, "encoding": None} | changes
    weights = np.ones(len(y)) if w is None else w
    return OddsMap.of(x=X, y=one_hot(y, len(names)), w=weights, classes=names, **chosen)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_fit_is_that_of_logistic_regression(rng: Any, n_classes: int) -> None:
    X, y = rings(rng, 2000, n_classes)
    features = rs.FourierFeatures.sample(KERNEL, 2, 64, rng=0)
    kept = KeptFeatures.of(features, (X, y, np.ones(2000)), n_classes, "float32")
    path = _Path(kept, features.prior(), loss_for("logistic", n_classes))
    root = np.sqrt(features.prior())
    Z = features(X) * root

    def objective(gamma: Any, intercept: Any, alpha: float) -> float:
        F = Z @ gamma + intercept
        F = np.hstack([np.zeros_like(F), F]) if n_classes == 2 else F
        logs = F - np.logaddexp.reduce(F, axis=1, keepdims=True)
        return float(-logs[np.arange(2000), y].sum() + alpha / 2 * (gamma**2).sum()) / 2000

    for alpha in (1.0, 0.1):
        coef, intercept = path.at(alpha)
        exact = LogisticRegression(C=1 / alpha, tol=1e-8, max_iter=4000).fit(Z, y)
        least = objective(exact.coef_.T, exact.intercept_, alpha)
        # a metric above the Hessian tells the decrement by which it ends too small
        assert least < objective(coef / root[:, None], intercept, alpha) < least + 20 * TOL**2


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_fold_is_judged_by_a_fit_that_did_not_see_it(rng: Any, n_classes: int) -> None:
    """Another class of a row of a fold changes every fit but the one without it."""
    X, y = rings(rng, 1500, n_classes)
    fold = folds_of(X)
    before = map_of(X, y)
    for k in range(FOLDS):
        other = y.copy()
        row = np.flatnonzero(fold == k)[0]
        other[row] = (other[row] + 1) % n_classes
        after = map_of(X, other)
        same = [np.array_equal(a, b) for a, b in zip(before.coef, after.coef, strict=True)]
        assert same == [place == 1 + k for place in range(1 + FOLDS)]
        own = X[fold == k]
        np.testing.assert_array_equal(before.held_out(own), after.held_out(own))


def test_rows_of_a_fold_do_not_guide_the_fit_without_it(rng: Any, monkeypatch: Any) -> None:
    """Guided by all rows, held-out odds of few rows had a log-loss of .32, and new rows of .60."""
    monkeypatch.setattr(odds_map, "PENALTIES", np.array([1e-4]))  # that all rows choose
    X, y = rings(rng, 600, 3)
    more, labels = rings(rng, 3000, 3)
    fold, other = folds_of(X), folds_of(more * 3)
    before = map_of(X, y)
    for k in range(FOLDS):
        here, there = np.flatnonzero(fold == k), np.flatnonzero(other == k)
        changed, classes = X.copy(), y.copy()
        changed[here] = 3 * more[there[: len(here)]]
        classes[here] = labels[there[: len(here)]]
        after = map_of(changed, classes)
        found, known = (
            OddsPart(each.features, each.coef[1 + k])(more) + each.intercept[1 + k]
            for each in (after, before)
        )
        # rows are summed in another order, in float32
        np.testing.assert_allclose(found, known, atol=0.01 * np.abs(known).max())


def test_the_order_of_rows_and_rows_without_weight_do_not_matter(rng: Any) -> None:
    X, y = rings(rng, 1200, 3)
    found, order = map_of(X, y), rng.permutation(1200)
    np.testing.assert_array_equal(map_of(X[order], y[order]).coef, found.coef)
    more, labels = np.vstack([X, X + 5]), np.r_[y, y[::-1]]
    again = map_of(more, labels, np.r_[np.ones(1200), np.zeros(1200)])
    np.testing.assert_array_equal(again.coef, found.coef)


def test_classes_are_told_by_their_names(rng: Any) -> None:
    found = map_of(*rings(rng, 1200, 3))
    some = found.over(["2", "0"])
    np.testing.assert_array_equal(some.coef, found.coef[..., [2, 0]])
    np.testing.assert_array_equal(some.intercept, found.intercept[..., [2, 0]])
    assert found.over(["0", "3"]) is None


@pytest.mark.parametrize("encoding", [None, Projection(np.array([[1.0], [0.5]]), np.zeros(2))])
def test_a_map_and_its_part_are_stored(rng: Any, encoding: Any) -> None:
    X, y = rings(rng, 1200, 2)
    found = map_of(X, y, encoding=encoding)
    again = OddsMap.from_stored({"length_scale": np.ones(2), **found.stored})
    assert again is not None and again.classes == found.classes and again.n_rows == 1200
    np.testing.assert_array_equal(again.held_out(X), found.held_out(X))
    part = OddsPart(found.features, found.coef[0])
    known = OddsPart.from_stored({"line": np.ones(2), **part.stored})
    assert known is not None
    np.testing.assert_array_equal(known(X), part(X))
    step, slopes = 0.01, part.slopes(X)
    for j in range(2):
        above, below = (part(X + sign * step * np.eye(2)[j]) for sign in (1, -1))
        expected = (above - below) / (2 * step)  # to (step/0.7)²/6 of its size
        np.testing.assert_allclose(slopes[:, j], expected, atol=0.01 * np.abs(slopes).max())
    assert OddsMap.from_stored({}) is None and OddsPart.from_stored({}) is None


def test_there_is_none_of_few_rows_many_classes_or_another_kernel(rng: Any) -> None:
    X, y = rings(rng, 1200, 2)
    few = FEWEST_COLUMNS * ROWS_A_COLUMN - 1
    assert map_of(X[:few], y[:few]) is None
    assert map_of(X, np.arange(1200) % 33) is None
    assert map_of(X, np.zeros(1200, int)) is None
    assert map_of(X, y, kernel=ArcCosine()) is None
    alone = np.zeros(1200, int)
    alone[np.flatnonzero(folds_of(X) == 1)[0]] = 1
    assert map_of(X, alone) is None  # a fold has all of a class


def test_shares_are_of_what_tells(rng: Any) -> None:
    y = rng.integers(0, 2, 4000)
    told, noise = (2.0 * y - 1)[:, None] + rng.normal(size=(4000, 1)), rng.normal(size=(4000, 1))
    a, c = shares_beside(told, noise, y, np.ones(4000))
    assert c < 0.1 * a
    a, c = shares_beside(noise, told, y, np.ones(4000))
    assert a < 0.1 * c
    assert shares_beside(told, np.zeros((4000, 1)), y, np.ones(4000)) == (1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_that_hardly_overlap_are_surer(
    rng: Any, n_classes: int, monkeypatch: Any, tmp_path: Any
) -> None:
    X, y = rings(rng, 6000, n_classes)
    model = rs.KernelClassifier(random_state=0, progress=False)

    def loss() -> float:
        p = model.fit(X[:3000], y[:3000]).predict_proba(X[3000:])
        return float(-np.log(p[np.arange(3000), y[3000:]]).mean())

    with_map = loss()
    assert model._fitted.answer.log_odds.beside is not None
    model.save(tmp_path / "model.zarr")
    known = rs.load(tmp_path / "model.zarr").predict_proba(X)
    np.testing.assert_array_equal(known, model.predict_proba(X))
    monkeypatch.setattr(cell_classes.OddsMap, "of", lambda *_: None)
    assert with_map < 0.9 * loss()
