"""A line of the inputs in the log-odds, found on pilot rows and judged by rows of the sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import rff_stream as rs
from rff_stream.answers.calibration import calibrate, probabilities
from rff_stream.answers.odds_line import FOLDS, OddsLine, calibrate_beside_line, folds_of
from rff_stream.hashes import hash_values
from rff_stream.moments.class_moments import one_hot


def classes_of_a_line(rng: Any, n: int, d: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    X, B = rng.normal(size=(n, d)), rng.normal(size=(d, n_classes)) * 2 / np.sqrt(d)
    return X, (X @ B + rng.gumbel(size=(n, n_classes))).argmax(axis=1)


def line_of(X: np.ndarray, y: np.ndarray) -> OddsLine:
    names = [str(label) for label in np.unique(y)]
    return OddsLine.of(X, one_hot(y, len(names)), np.ones(len(y)), names)


def losses(p: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(p[np.arange(len(y)), y]).mean())


@pytest.mark.parametrize("n_classes", [2, 4])
def test_slopes_are_those_of_logistic_regression(rng: Any, n_classes: int) -> None:
    """Of 20,000 rows no penalty matters: λ moves a slope by less than its standard error."""
    X, y = classes_of_a_line(rng, 20_000, 3, n_classes)
    found = line_of(X * [1, 10, 1e3] + [0, 0, 1e5], y).slopes[0]
    expected = LogisticRegression(C=1e6, tol=1e-8).fit(X, y).coef_.T
    if n_classes == 2:
        found, expected = found[:, 1:] - found[:, :1], expected
    found = found * np.array([[1], [10], [1e3]])
    assert np.abs(found - expected).max() < 4 * np.sqrt(n_classes**2 / 20_000)


def test_a_fold_is_judged_by_a_line_that_did_not_see_it(rng: Any) -> None:
    """Another class of a row of a fold changes every line but the one without it."""
    X, y = classes_of_a_line(rng, 3000, 4, 2)
    fold = folds_of(X)
    for k in range(FOLDS):
        other = y.copy()
        other[np.flatnonzero(fold == k)[0]] ^= 1
        before, after = line_of(X, y), line_of(X, other)
        same = [np.array_equal(a, b) for a, b in zip(before.slopes, after.slopes, strict=True)]
        assert same == [place == 1 + k for place in range(1 + FOLDS)]
        own = X[fold == k]
        np.testing.assert_array_equal(before.held_out(own), after.held_out(own))


def test_equal_rows_are_in_one_fold() -> None:
    x = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])
    found = hash_values(x)
    assert found[0] == found[1] != found[2]


def test_rows_in_float32_are_in_the_same_folds(rng: Any) -> None:
    x = rng.normal(size=(1000, 3)) * [1, 1e-30, 1e60] + [0, 0, 1e60]
    with np.errstate(over="ignore"):
        few_digits = x.astype(np.float32).astype(np.float64)
    found = folds_of(x)
    np.testing.assert_array_equal(found, folds_of(few_digits))
    assert np.bincount(found).min() > 250


def test_names_tell_which_class_a_slope_is_of(rng: Any) -> None:
    X, y = classes_of_a_line(rng, 3000, 2, 3)
    line = line_of(X, y)
    more = line.over(["-1", "2", "0", "1"])
    np.testing.assert_array_equal(more.slopes[..., 1:], line.slopes[..., [2, 0, 1]])
    assert not more.slopes[..., 0].any()


def test_a_line_is_stored(rng: Any) -> None:
    line = line_of(*classes_of_a_line(rng, 3000, 2, 3))
    again = OddsLine.from_stored({"length_scale": np.ones(2), **line.stored})
    assert again is not None and again.classes == line.classes and again.n_rows == 3000
    np.testing.assert_array_equal(again.slopes, line.slopes)
    np.testing.assert_array_equal(again.origin, line.origin)
    assert OddsLine.from_stored({"length_scale": np.ones(2)}) is None


def test_there_is_no_line_without_rows_or_inputs(rng: Any) -> None:
    """Of two rows, of one class, or where no input varies: the deviation of 0.1 rounds to 1e-17."""
    X, y = classes_of_a_line(rng, 3000, 4, 2)
    same = np.full_like(X, 0.1)
    for x, codes in ((X[:2], np.array([0, 1])), (X, np.zeros(len(y), int)), (same, y)):
        line = line_of(x, codes)
        assert not line.slopes.any()
        plain = calibrate(X[: len(x), :1], codes, np.ones(len(x)))
        if len(np.unique(codes)) > 1:
            found = calibrate_beside_line(X[: len(x), :1], x, line, codes, np.ones(len(x)))
            assert found.line is None and found.slope == plain.slope


def test_inputs_that_do_not_vary_or_repeat_have_no_slope(rng: Any) -> None:
    X, y = classes_of_a_line(rng, 3000, 4, 2)
    X[:, 1] = 0.1
    line = OddsLine.of(X, one_hot(y, 2), np.ones(len(y)), ["0", "1"], {2: 24.0})
    assert line.slopes[:, [0, 3]].all() and not line.slopes[:, [1, 2]].any()


def test_the_order_of_rows_does_not_matter(rng: Any) -> None:
    X, y = classes_of_a_line(rng, 3000, 4, 3)
    order = rng.permutation(3000)
    np.testing.assert_allclose(line_of(X, y).slopes, line_of(X[order], y[order]).slopes, rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_that_miss_a_line_get_it(rng: Any, n_classes: int) -> None:
    """The share of the line is found, and scores that are the odds need none."""
    X, y = classes_of_a_line(rng, 12_000, 3, n_classes)
    shape = (2, n_classes) if n_classes > 2 else (2, 1)
    wave = np.sin(3 * X[:, :2]) @ rng.normal(size=shape) * 2  # what a map knows
    line = line_of(X, y)
    B = line.slopes[0]
    odds = X @ (B if n_classes > 2 else B[:, 1:] - B[:, :1]) + wave
    truth = probabilities(odds)
    y = (truth.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
    w, rows = np.ones(2000), slice(2000)
    found = calibrate_beside_line(wave[rows], X[rows], line, y[rows], w)
    assert found.line is not None
    wrong = probabilities(found(wave, X)) - truth
    assert np.sqrt((wrong**2).mean()) < 0.05
    exact = calibrate_beside_line(odds[rows], X[rows], line, y[rows], w)
    assert np.sqrt(((probabilities(exact(odds, X)) - truth) ** 2).mean()) < 0.05


def test_a_line_of_noise_costs_next_to_nothing() -> None:
    """a, b and c of 500 rows: log-loss is larger by χ²/1,000, of three degrees of freedom."""
    excess = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1500, 5)), rng.integers(0, 2, 1500)
        line = OddsLine.of(X, one_hot(y, 2), np.ones(len(y)), ["0", "1"])
        if line.slopes.any():
            found = calibrate_beside_line(
                rng.normal(size=(500, 1)), X[:500], line, y[:500], np.ones(500)
            )
            p = probabilities(found(rng.normal(size=(1000, 1)), rng.normal(size=(1000, 5))))
            excess.append(-np.log(p).mean() - np.log(2))
    assert 0 < np.mean(excess) < (3 + 4 * np.sqrt(6 / len(excess))) / 1000


@pytest.fixture(scope="module")
def many_rows() -> tuple[np.ndarray, np.ndarray]:
    return classes_of_a_line(np.random.default_rng(0), 6000, 20, 3)


def model(**changed: Any) -> Any:
    choices = {"features": rs.Cells(64, 2), "length_scale": 10.0, "sample_rows": 500}
    return rs.KernelClassifier(random_state=0, progress=False, **{**choices, **changed})


def test_many_rows_have_a_line_that_their_sample_could_not_tell(many_rows: Any) -> None:
    """500 of 4,000 rows, 40 numbers: nearly the log-loss of logistic regression on all rows."""
    X, y = many_rows
    fit = model().fit(X[:4000], y[:4000])
    logistic = LogisticRegression().fit(X[:4000], y[:4000])
    ours, best = (losses(each.predict_proba(X[4000:]), y[4000:]) for each in (fit, logistic))
    assert ours < 1.02 * best
    assert fit._fitted.answer.log_odds.calibration.line.shape == (20, 3)


def test_a_line_lives_with_its_model(many_rows: Any, tmp_path: Any) -> None:
    """In a store, with more rows and without them, and with a class that comes first."""
    X, y = many_rows
    fit = model().fit(X[:4000], y[:4000])
    p = fit.predict_proba(X[4000:])
    fit.save(tmp_path / "model.zarr", moments=True)
    again = rs.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.predict_proba(X[4000:]), p)
    again.update(X[4000:5000], y[4000:5000], batch="more")
    assert again._fitted.answer.log_odds.calibration.line.all()
    q = again.forget("more").predict_proba(X[4000:])
    np.testing.assert_allclose(q, p, rtol=1e-6, atol=1e-6)


def test_a_class_that_comes_later_has_a_slope(many_rows: Any) -> None:
    """The sample finds the line again, although the rows of the map did not hold the class."""
    X, y = many_rows
    first = np.flatnonzero(y[:4000] > 0)
    fit = model().fit(X[first], y[first])
    with pytest.warns(UserWarning, match="Label 0 is new in this batch"):
        fit.update(X[:4000][y[:4000] == 0], np.zeros((y[:4000] == 0).sum(), int), batch="new")
    assert fit._fitted.answer.log_odds.calibration.line.all()
    whole = model().fit(X[:4000], y[:4000])
    ours, best = (losses(each.predict_proba(X[4000:]), y[4000:]) for each in (fit, whole))
    assert ours < 1.1 * best


def test_a_period_is_kept(rng: Any) -> None:
    hours, v = rng.uniform(0, 24, 1000), rng.normal(size=1000)
    y = 2 * np.sin(2 * np.pi * hours / 24) + v + rng.logistic(size=1000) > 0
    fit = model(features=rs.Cells(64, 2, encode={"x0": rs.features.Periodic(24.0)}))
    fit.fit(np.column_stack([hours, v]), y)
    p = fit.predict_proba(np.column_stack([np.arange(-2, 3) * 24.0 + 5, np.zeros(5)]))
    np.testing.assert_allclose(p, p[:1].repeat(5, axis=0), atol=1e-6)
