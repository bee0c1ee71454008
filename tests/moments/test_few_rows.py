"""Answers of few rows from n × n, beside those of the sums of R × R, which are made on demand."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.answers.dual import RowSpace, ridge_of_rows
from rff_stream.answers.evidence import evidence, evidence_at
from rff_stream.answers.principal_components import components
from rff_stream.answers.ridge import ridge, ridge_at
from rff_stream.descents import held_out_penalty, sample_fits
from rff_stream.descents.kept_rows import KeptFeatures, descents_of_kept
from rff_stream.errors import ModelError
from rff_stream.losses.classification import Logistic, loss_for
from rff_stream.moments import Moments
from rff_stream.moments.accumulate import accumulate, plain_row
from rff_stream.moments.few_rows import FewRows, FewRowsSink

R, D = 400, 3
QUIET: Any = {"random_state": 0, "progress": False}
FEATURES = rs.FourierFeatures.sample(rs.Gaussian(1.5), D, R, rng=0)


def rows_of(n: int, weighted: bool) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, D))
    y = np.stack([np.sin(2 * x[:, 0]), 100 + x[:, 1] ** 2], axis=1)
    return x, y + 0.1 * rng.normal(size=y.shape), rng.uniform(0.5, 2, n) if weighted else None


def both(n: int, weighted: bool = True, cut: int = 7) -> tuple[FewRows, Moments]:
    """The same rows kept, in two portions, and added up."""
    x, y, w = rows_of(n, weighted)
    row = plain_row(FEATURES, 2)
    sink = FewRowsSink(FEATURES, row, 50, nullcontext)
    for part in (slice(0, cut), slice(cut, n)):
        sink.add(x[part], y[part], None if w is None else w[part], np.arange(n)[part])
    return sink.result(), accumulate(FEATURES, x, y, w, row=row, sums="float64", sample_rows=50)


@pytest.mark.parametrize("weighted", [True, False])
def test_sums_on_demand_are_those_of_a_pass_bit_for_bit(weighted):
    few, whole = both(120, weighted)
    assert (few.n, few.order, few.__sizeof__()) == (whole.n, whole.order, whole.__sizeof__())
    assert few.squared_weight == pytest.approx(whole.squared_weight, rel=1e-14)
    assert few.log_weight == pytest.approx(whole.log_weight, rel=1e-12, abs=1e-12)
    np.testing.assert_array_equal(few.sample.rows, whole.sample.rows)
    assert (few.sums == whole.sums).all() and few.sums is few.sums


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m + m,
        lambda m: m.scale(2.0),
        lambda m: m - m.scale(0.5),
        lambda m: m.leading(R // 2),
        lambda m: m.with_targets([1]),
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
    ],
    ids=["plus", "scale", "minus", "leading", "targets", "copy", "pickle"],
)
def test_every_operation_gives_sums_and_no_rows(change):
    few, whole = both(60)
    found, expected = change(few), change(whole)
    assert few.kept is not None and found.kept is None
    np.testing.assert_array_equal(found.sums, expected.sums)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("n", "weighted"), [(2, True), (20, False), (200, True)])
def test_a_penalty_gives_the_same_model_from_either_system(n, weighted, fit_intercept):
    few, whole = both(n, weighted, cut=1)
    z = FEATURES(np.random.default_rng(0).normal(size=(40, D)))
    alpha = [0.01, 3.0]
    mine = ridge_of_rows(few, alpha, fit_intercept=fit_intercept)
    theirs = ridge(whole, alpha, fit_intercept=fit_intercept)
    # The sums are rounded to 1e-16 of n, which a penalty of .01 raises by n/α.
    np.testing.assert_allclose(mine.predict(z), theirs.predict(z), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mine.df, theirs.df, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mine.alpha, theirs.alpha)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("n", "weighted"), [(5, False), (30, True), (200, True)])
def test_evidence_is_the_same_from_either_system(n, weighted, fit_intercept):
    few, whole = both(n, weighted, cut=1)
    mine = evidence(few, fit_intercept=fit_intercept)
    theirs = evidence(whole, fit_intercept=fit_intercept)
    assert isinstance(mine.spectrum, RowSpace)
    largest = theirs.spectrum.eigenvalues[-1]
    clear = theirs.alpha > 1e-6 * largest  # below, both are at the level of rounding
    np.testing.assert_allclose(mine.alpha[clear], theirs.alpha[clear], rtol=1e-5)
    np.testing.assert_allclose(mine.log_evidence[clear], theirs.log_evidence[clear], rtol=1e-8)
    alpha = 1e-3 * largest
    at, other = (evidence_at(each.spectrum, alpha) for each in (mine, theirs))
    for name in ("log_evidence", "noise_variance", "df"):
        np.testing.assert_allclose(getattr(at, name), getattr(other, name), rtol=1e-8)
    z = FEATURES(np.random.default_rng(0).normal(size=(40, D)))
    fitted = [ridge_at(each.spectrum, alpha).predict(z) for each in (mine, theirs)]
    np.testing.assert_allclose(*fitted, rtol=1e-9)
    spread = [each.posterior().variance(z) for each in (at, other)]
    np.testing.assert_allclose(*spread, rtol=1e-8)
    means = [each.posterior().mean(z) for each in (at, other)]
    np.testing.assert_allclose(*means, rtol=1e-9)
    np.testing.assert_allclose(ridge_at(mine.spectrum, alpha).predict(z), means[0], rtol=1e-9)


@pytest.mark.parametrize(("n", "weighted"), [(5, False), (200, True)])
def test_components_are_the_same_from_either_system(n, weighted):
    few, whole = both(n, weighted, cut=1)
    mine, theirs = components(few, 3), components(whole, 3)
    for name in ("rotation", "feature_mean", "variance", "total_variance", "weight"):
        np.testing.assert_allclose(
            getattr(mine, name), getattr(theirs, name), rtol=1e-7, atol=1e-10
        )


def test_rows_that_are_all_the_same_are_their_mean():
    model = rs.GaussianProcessRegressor(n_components=512, progress=False, random_state=0)
    y = np.random.default_rng(0).normal(size=30)
    with pytest.warns(rs.NumericalWarning):
        model.fit(np.ones((30, 2)), y)
    np.testing.assert_allclose(model.predict(np.ones((3, 2))), y.mean())


def test_no_penalty_and_one_at_rounding_are_left_to_all_columns():
    few, _ = both(50)
    least = ridge_of_rows(few, 0.0)
    np.testing.assert_array_equal(least.alpha, 0.0)
    np.testing.assert_allclose(least.df, 50, rtol=1e-12)  # rank 49, and the intercept
    with pytest.warns(rs.NumericalWarning, match="below η"):
        found = ridge_of_rows(few, 1e-18)
    assert found.alpha[0] > 1e-18


def test_targets_without_squares_are_refused():
    x, y, w = rows_of(30, True)
    sink = FewRowsSink(FEATURES, plain_row(FEATURES, 2), 0, nullcontext)
    sink.add(x, 1e200 * y, w, np.arange(30))
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(ModelError, match="not finite"),
    ):
        evidence(sink.result())


@pytest.mark.parametrize("alpha", ["evidence", 0.1])
def test_a_fit_of_few_rows_makes_no_sums_until_they_are_asked_for(alpha, monkeypatch):
    x, y, w = rows_of(100, True)
    choices: Any = {"n_components": R, "alpha": alpha, **QUIET}
    model = rs.KernelRidge(**choices).fit(x, y, w)
    monkeypatch.setattr("rff_stream.families.maps.FEW_ROWS", 0.0)
    whole = rs.KernelRidge(**choices).fit(x, y, w)
    assert model.moments_.kept is not None and whole.moments_.kept is None
    np.testing.assert_allclose(model.predict(x), whole.predict(x), rtol=1e-7)
    np.testing.assert_allclose(model.alpha_, whole.alpha_, rtol=1e-5)
    np.testing.assert_array_equal(model.moments_.sums, whole.moments_.sums)


def test_few_rows_are_stored_loaded_and_updated_as_sums(tmp_path):
    x, y, _ = rows_of(100, False)
    model = rs.KernelRidge(n_components=R, **QUIET).fit(x[:60], y[:60])
    model.save(tmp_path / "m.zarr", moments=True)
    again = rs.load(tmp_path / "m.zarr")
    for each in (model, again):
        each.update(x[60:], y[60:], batch="more")
    assert again.n_rows_ == model.n_rows_ == 100
    np.testing.assert_array_equal(again.moments_.sums, model.moments_.sums)
    np.testing.assert_allclose(again.predict(x), model.predict(x), rtol=1e-9)


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 5, 8]])
@pytest.mark.parametrize("alpha", ["sample", 0.1])
def test_classes_of_few_rows_make_no_sums_until_they_are_asked_for(alpha, labels, monkeypatch):
    x, y, w = rows_of(150, True)
    label = np.array(labels)[np.digitize(y[:, 0], [0.0, 0.6][: len(labels) - 1])]
    choices: Any = {"n_components": R, "alpha": alpha, "class_weight": {labels[0]: 2.0}, **QUIET}
    model = rs.KernelClassifier(**choices).fit(x, label, w)
    monkeypatch.setattr("rff_stream.families.maps.FEW_ROWS", 0.0)
    whole = rs.KernelClassifier(**choices).fit(x, label, w)
    assert model.moments_.kept is not None
    assert whole.moments_.kept is None
    assert model.alpha_ == pytest.approx(whole.alpha_, rel=1e-5)
    np.testing.assert_allclose(model.predict_proba(x), whole.predict_proba(x), atol=1e-6)
    np.testing.assert_array_equal(model.moments_.sums, whole.moments_.sums)


def test_a_penalty_for_few_rows_is_that_of_all_columns():
    """Columns of their own, as many as rows, hold the same functions at the same size."""
    x, y, w = rows_of(90, True)
    z = FEATURES(x)
    own, basis = sample_fits.own_columns(z, FEATURES.prior())
    kernel = (z * FEATURES.prior()).astype(float) @ z.T
    np.testing.assert_allclose(own @ own.T, kernel, atol=1e-6)
    unit = np.random.default_rng(0).normal(size=(90, 2))
    np.testing.assert_allclose(z @ (basis @ unit), own @ unit, atol=1e-5)
    codes = (y[:, 0] > 0).astype(int)
    values = []
    for columns, prior in ((own, np.ones(90)), (z.astype(float), FEATURES.prior())):
        kept = KeptFeatures(columns, codes, w, 2)
        problem = kept.penalise(prior, Logistic(), 0.05)
        *_, last = descents_of_kept(kept, problem, tol=1e-6, max_passes=200)
        assert last.converged
        values.append(last.point.value)
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize(("n_rows", "n_turns"), [(900, 1), (900, 4), (30, 2)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_that_are_cut_off_are_rows_of_weight_0(n_classes, n_rows, n_turns, rng):
    """Held-out rows stand beside the fitted ones; the next α starts without a product."""
    codes, w = np.arange(n_rows) % n_classes, rng.uniform(0.5, 2.0, n_rows)
    z = rng.normal(size=(n_rows, 6)) + codes[:, None]
    place = rng.permutation(n_rows) % 4 // (2 if n_turns == 2 else 1)
    turns = [(place != turn, place == turn) for turn in range(n_turns)]
    order, spans = held_out_penalty._spans(turns)
    for (train, held), (fitted, out) in zip(turns, spans, strict=True):
        assert set(order[fitted]) == set(np.flatnonzero(train))
        assert (order[out] == np.flatnonzero(held)).all()
    loss, prior = loss_for("logistic", n_classes), np.full(6, 0.5)
    whole, rows = (
        KeptFeatures(z[i], codes[i], w[i], n_classes) for i in (np.arange(n_rows), order)
    )
    problem = whole.penalise(prior, loss, 0.1)
    assert problem.guided == (n_classes == 3)
    parts = [(rows.part(fitted), rows.part(out)) for fitted, out in spans]
    cut = held_out_penalty._smooth_turns(rows.part(slice(n_rows)), prior, problem, parts)
    every = [whole.weigh(w * train) for train, _ in turns]
    share = held_out_penalty._share(w, turns)
    first = share * problem.curvature_at_start()
    solve, curvature, fits, linears = problem.bound(first), first, [None] * n_turns, []
    for alpha in (0.1, 0.08):
        fits, at = cut.fit(alpha, fits), replace(problem, alpha=alpha)
        if linears and problem.guided:
            bends = zip(every, linears, strict=True)
            curvature = share * np.mean([e.mean_curvature(loss, e.scores(*f)) for e, f in bends])
        linears = [
            problem.linear(list(descents_of_kept(
                each, held_out_penalty._over(at, each), start, tol=sample_fits.TOL,
                max_passes=held_out_penalty.PASSES * (1 if problem.guided else 2),
                metric=lambda g, size=first / curvature: size * solve(g),
            ))[-1].point.theta)
            for each, start in zip(every, linears or [None] * n_turns, strict=True)
        ]  # fmt: skip
        for fit, linear in zip(fits, linears, strict=True):
            for ours, theirs in zip(fit.linear, linear, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
        losses = zip(cut.losses(fits), linears, turns, strict=True)
        for ours, linear, (_, held) in losses:
            np.testing.assert_allclose(ours, whole.losses(loss, linear)[held], rtol=1e-7)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_squared_hinge_that_fits_its_rows_is_calibrated_by_bounded_steps(n_classes):
    """Rows that hold their own score were moved by 1e15 of a step: signs of scores were chance."""
    x = np.random.default_rng(0).normal(size=(300, 4))
    label = np.digitize(x[:, 0] + x[:, 1] ** 2, [0.5, 1.5][: n_classes - 1])
    model = rs.KernelClassifier("squared_hinge", n_components=R, **QUIET).fit(x, label)
    assert model.score(x, label) > 0.9
    assert np.abs(model.decision_function(x)).max() < 100
