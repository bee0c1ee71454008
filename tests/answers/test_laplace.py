"""Probabilities averaged over the Laplace posterior, beside dense Hessians and integrals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.svm import LinearSVC

import reference
import rff_stream as rs
from rff_stream.answers.laplace import (
    average_log_odds,
    check_width,
    laplace_functions,
    laplace_precision,
)
from rff_stream.errors import PlanError
from rff_stream.losses.classification import Logistic, Loss, Multinomial, MultinomialPairs
from rff_stream.losses.penalised import PenalisedClasses, penalise
from rff_stream.moments.accumulate import accumulate, plain_row
from rff_stream.moments.class_moments import ClassMoments, class_row
from rff_stream.predictors import LinearPredictor

QUIET: dict[str, Any] = {"n_components": 32, "random_state": 0, "progress": False}
N, R, ALPHA = 60, 6, 0.3


def problem_of(n_classes: int, rng: Any) -> tuple[Any, PenalisedClasses, Any, Any]:
    """φ (n, R + 1) about the mean of z, the objective, some θ, and curvatures at θ."""
    x, codes = rng.normal(size=(N, 2)), np.arange(N) % n_classes
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, R, dtype="float64", rng=0)
    row = plain_row(features, 0)
    loss: Loss = Logistic() if n_classes == 2 else Multinomial(n_classes)
    moments = accumulate(
        features, x, np.eye(n_classes)[codes], row=class_row(row, range(n_classes)), sums="float64"
    )
    problem = penalise(ClassMoments(tuple(range(n_classes)), moments), loss, ALPHA)
    system = problem.system
    phi = np.ones((N, R + 1))
    phi[:, :-1] = (features(x) - system.feature_mean) * system.root_prior
    theta = rng.normal(size=(R + 1, 1 if n_classes == 2 else n_classes))
    pairs = loss if n_classes == 2 else MultinomialPairs(n_classes)
    weights = pairs.curvatures(phi @ theta, codes)
    curvatures = [accumulate(features, x, None, w, row=row, sums="float64") for w in weights.T]
    return phi, problem, theta, curvatures


@pytest.mark.parametrize("n_classes", [3, 5])
def test_the_precision_is_the_dense_hessian(rng, n_classes):
    """Up to what is added along one number more for all scores, which no probability sees."""
    phi, problem, theta, curvatures = problem_of(n_classes, rng)
    found = laplace_precision(problem, curvatures, n_classes)
    dense = reference.softmax_hessian(phi, theta, ALPHA)
    common = np.tile(np.append(np.zeros(R), 1.0), n_classes)
    np.testing.assert_allclose(dense @ common, 0, atol=1e-10)
    added = N / n_classes**2 * np.outer(common, common)
    np.testing.assert_allclose(found, dense + added, atol=1e-10 * np.abs(dense).max())


def test_two_classes_have_the_integral_over_one_score(rng):
    phi, problem, theta, curvatures = problem_of(2, rng)
    share = expit(phi @ theta)
    hessian = (phi.T * (share * (1 - share)).T) @ phi + np.diag(np.append(np.full(R, ALPHA), 0.0))
    found = laplace_precision(problem, curvatures, 1)
    np.testing.assert_allclose(found, hessian, atol=1e-10 * np.abs(hessian).max())
    deviation = np.sqrt(np.einsum("np,pq,nq->n", phi, np.linalg.inv(hessian), phi))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    exact = expit(phi @ theta + deviation[:, None] * nodes) @ weights / weights.sum()
    n_draws = 4000
    functions = laplace_functions(problem, theta, curvatures, n_draws=n_draws, rng=rng)
    z = (phi[:, :-1] / problem.system.root_prior) + problem.system.feature_mean
    drawn = expit(average_log_odds(functions(z))[:, 0])
    spread = np.sqrt(
        expit(phi @ theta + deviation[:, None] * nodes) ** 2 @ weights / weights.sum() - exact**2
    )
    assert (np.abs(drawn - exact) < 5 * spread / np.sqrt(n_draws) + 1e-12).all()


def test_averages_of_several_classes_are_means_of_probabilities(rng):
    scores = 3 * rng.normal(size=(50, 7, 4))
    mean = softmax(scores, axis=2).mean(axis=0)
    np.testing.assert_allclose(np.exp(average_log_odds(scores)), mean, rtol=1e-12)
    far = average_log_odds(1e3 * scores)
    assert np.isfinite(far).all()


def clouds(rng, n):
    """Four classes that overlap."""
    y = rng.integers(4, size=n)
    return np.array([[0, 0], [1.5, 0], [0, 1.5], [1.5, 1.5]])[y] + rng.normal(size=(n, 2)), y


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_fit_averages_over_its_posterior(rng, n_classes, tmp_path: Path):
    """As drawn from the dense Hessian at the coefficients of the same fit."""
    X, y = clouds(rng, 300)
    y = y % n_classes
    choices = {**QUIET, "alpha": 0.3, "tol": 1e-7, "max_passes": 300, "dtype": "float64"}
    plain = rs.KernelClassifier("logistic", **choices).fit(X, y)
    model = rs.KernelClassifier("logistic", laplace=1.0, **choices).fit(X, y)
    assert np.array_equal(plain.coef_, model.coef_) and model.n_passes_ == plain.n_passes_ + 1
    at = np.concatenate([X[:50], 6 * X[:10]])
    root = np.sqrt(model.features_.prior())
    centre = model.moments_.feature_mean()
    phi, there = (
        np.column_stack([(model.features_(rows) - centre) * root, np.ones(len(rows))])
        for rows in (X, at)
    )
    coef = np.asarray(model.coef_).reshape(32, -1)
    theta = np.vstack([coef / root[:, None], np.atleast_1d(model.intercept_) + centre @ coef])
    both = theta if n_classes > 2 else np.hstack([-theta / 2, theta / 2])
    # Two scores ±f/2 for two classes: penalised twice as much, their posterior is that of f.
    precision = reference.softmax_hessian(phi, both, 0.3 if n_classes > 2 else 0.6)
    common = np.tile(np.append(np.zeros(32), 1.0), n_classes)
    precision += np.outer(common, common)
    noise = rng.standard_normal((len(precision), 4000))
    drawn = np.linalg.solve(np.linalg.cholesky(precision).T, noise)
    functions = both[:, :, None] + drawn.reshape(n_classes, 33, -1).transpose(1, 0, 2)
    exact = softmax(np.einsum("np,pcs->scn", there, functions), axis=1).mean(axis=0).T
    found = model.predict_proba(at)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(found, exact, atol=0.06)  # 200 draws in pairs: 5 errors of .012
    assert np.abs(found - exact).mean() < 0.01
    sure, surer = found.max(axis=1), plain.predict_proba(at).max(axis=1)
    assert sure.mean() < surer.mean() - 0.01, "nearer to even"
    assert np.array_equal(model.predict(at), model.classes_[found.argmax(axis=1)])
    model.save(tmp_path / "M.zarr")
    again = rs.load(tmp_path / "M.zarr")
    assert np.array_equal(again.predict_proba(at), found) and again.laplace_ == 1.0


def test_the_spread_is_that_of_least_held_out_loss(rng):
    """Wide where classes overlap, narrow where they hardly do; the log-loss falls, or stays."""
    X, y = clouds(rng, 2150)
    train, test = slice(0, 150), slice(150, None)
    fits = {}
    for asked in (None, "sample"):
        choices = {**QUIET, "n_components": 64, "alpha": 0.003}
        model = rs.KernelClassifier("logistic", laplace=asked, **choices).fit(X[train], y[train])
        found = model.predict_proba(X[test])
        fits[asked] = -np.log(found[np.arange(2000), y[test]]).mean()
    assert 0.3 < model.laplace_ <= 1.0
    assert fits["sample"] < fits[None] - 0.01
    apart = 8 * np.column_stack([y == 1, y == 2]) + rng.normal(size=(2150, 2))
    near = rs.KernelClassifier("logistic", laplace="sample", **QUIET).fit(
        apart[train], y[train] % 3
    )
    assert near.laplace_ < 0.5


def test_chunks_change_nothing(rng):
    import dask.array as da

    X, y = clouds(rng, 400)
    model = rs.KernelClassifier("logistic", laplace="sample", alpha=0.3, **QUIET)
    whole = model.fit(X, y).predict_proba(X)
    lazy = model.fit(da.from_array(X, chunks=(90, 2)), da.from_array(y, chunks=90))
    np.testing.assert_allclose(lazy.predict_proba(X), whole, atol=2e-3)  # float32 features


def test_what_cannot_be_averaged_is_refused(rng):
    X, y = clouds(rng, 60)
    with pytest.raises(ValueError, match="Use loss='logistic'"):
        rs.KernelClassifier("squared", laplace=1.0, **QUIET).fit(X, y)
    for spread in (True, 0.0, -1.0, np.inf, "wide"):
        with pytest.raises(ValueError, match=r"it must be 'sample', a number > 0"):
            rs.KernelClassifier("logistic", laplace=spread, **QUIET).fit(X, y)
    with pytest.raises(PlanError, match=r"20,490 columns for R=2,048 features and 10 classes"):
        check_width(2048, 10)


def test_a_plan_counts_the_posterior_and_the_sums_of_its_pairs(rng):
    X, y = clouds(rng, 90)
    choices: Any = {"alpha": 0.3, "random_state": 0, "progress": False, "n_components": 1500}
    bare = rs.KernelClassifier("logistic", **choices).fit(X, y).plan_
    refused = rs.KernelClassifier(
        "logistic", laplace=1.0, memory=int(1.1 * bare.process_bytes), **choices
    )
    with pytest.raises(PlanError, match=r"groups=6.* Nothing was read"):
        refused.fit(X, y)
    model = refused.set_params(memory=None, n_components=200).fit(X, y)
    parts = model.plan_.memory_parts()
    assert parts["posterior"]["posterior"] == 8 * (2 * 804**2 + 6 * 201**2)
    assert model.plan_.n_groups == 6


def test_few_draws_are_near_the_fit_where_the_posterior_is_narrow(rng):
    X, y = clouds(rng, 200)
    model = rs.KernelClassifier("logistic", laplace=1e-4, alpha=0.3, **QUIET).fit(X, y)
    linear = LinearPredictor(model.features_, model.coef_, model.intercept_)
    np.testing.assert_allclose(model.predict_proba(X), softmax(linear(X), axis=1), atol=1e-5)


def calibration_error(p, y):
    """Expected calibration error: |share right − mean probability| of the class predicted."""
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((15 * sure).astype(int), 14)
    counts, misses = np.bincount(bins, minlength=15), np.bincount(bins, right - sure, 15)
    return np.abs(misses).sum() / counts.sum()


@pytest.mark.accuracy
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::rff_stream.errors.NumericalWarning")
@pytest.mark.parametrize("data", ["digits", "clouds"])
def test_calibration_beside_scikit_learn_on_the_same_features(data):
    """Log-loss and calibration error on held-out rows, means of three splits."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = clouds(rng, 2150) if data == "clouds" else load_digits(return_X_y=True)
        order = rng.permutation(len(X))
        train, test = np.split(order, [150 if data == "clouds" else 500])
        choices = {**QUIET, "n_components": 128}
        ours = {
            f"laplace={asked!r}": rs.KernelClassifier("logistic", laplace=asked, **choices)
            for asked in (None, "sample")
        }
        for name, model in ours.items():
            p = model.fit(X[train], y[train]).predict_proba(X[test])
            found.setdefault(name, []).append((log_loss(y[test], p), calibration_error(p, y[test])))
        Z = model.features_(X)
        theirs = {
            "LogisticRegression": LogisticRegression(max_iter=3000),
            "CalibratedClassifierCV": CalibratedClassifierCV(LinearSVC(), cv=5),
        }
        for name, other in theirs.items():
            p = other.fit(Z[train], y[train]).predict_proba(Z[test])
            found.setdefault(name, []).append((log_loss(y[test], p), calibration_error(p, y[test])))
    means = {name: np.mean(each, axis=0).round(4) for name, each in found.items()}
    loss, error = means["laplace='sample'"]
    assert loss <= means["laplace=None"][0] + 0.002, means
    assert loss < means["CalibratedClassifierCV"][0]
    assert loss < means["LogisticRegression"][0] + 0.01
    assert error < 0.1
