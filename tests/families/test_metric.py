"""A metric that is given: a matrix in front of cells and of one map, as if rows were xA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import rff_stream as rs
from rff_stream.cells.map import LocalFeatures
from rff_stream.families.windows_of_pilot import MOST_VALUES, searched_rows
from rff_stream.features import Periodic, Projection, Then
from rff_stream.length_scales.budget import SearchBudget, seconds_of_look
from rff_stream.length_scales.candidates import Candidate
from rff_stream.length_scales.holes import folds_of
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_search import MapSearch, search_map
from rff_stream.length_scales.metric_search import FOLDS
from rff_stream.length_scales.shared_slopes import shared_directions, slope_metric
from rff_stream.length_scales.window_evidence import (
    START_ALPHA,
    MetricFit,
    RowWindow,
    WindowEvidence,
    coefficients,
)
from rff_stream.length_scales.windows import input_scale

QUIET: dict[str, Any] = {"progress": False, "random_state": 0, "dtype": "float64"}
A = np.array([[1.0, 0.5], [-1.0, 0.5], [0.0, 2.0]])
MAPS: dict[str, dict[str, Any]] = {
    "cells": {"features": rs.Cells(32, n_trees=2, n_cells=4)},
    "whole": {"n_components": 64},
    "landmarks": {"n_components": 64, "features": "nystroem"},
}


@pytest.fixture
def X(rng):
    return np.array([0.0, 100.0, 0.0]) + rng.uniform(-1, 1, (400, 3))


@pytest.fixture
def y(X, rng):
    return np.sin(X[:, 0] - X[:, 1] + 100) + 0.1 * rng.standard_normal(len(X))


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("estimator", [rs.KernelRidge, rs.GaussianProcessRegressor])
def test_it_is_a_fit_of_the_combinations(name, estimator, X, y):
    asked = {"kernel": "gaussian", "length_scale": [1.0, 2.0]} | MAPS[name] | QUIET
    model = estimator(metric=A, **asked).fit(X, y)
    plain = estimator(**asked).fit((X - X.mean(axis=0)) @ A, y)
    found = model.predict(X[:50])
    # α is found to a relative 1e-6 or so, from sums that differ by rounding
    np.testing.assert_allclose(found, plain.predict((X - X.mean(axis=0))[:50] @ A), atol=1e-5)
    wanted = 1 / np.sqrt(((A / [1.0, 2.0]) ** 2).sum(axis=1))
    np.testing.assert_allclose(model.length_scale_, wanted)


@pytest.mark.parametrize("name", MAPS)
def test_what_a_metric_leaves_out_does_not_matter(name, X, y):
    one = np.array([[1.0], [-1.0], [0.0]])
    asked = {"kernel": "gaussian", "length_scale": 1.0} | MAPS[name] | QUIET
    model = rs.KernelRidge(metric=one, **asked).fit(X, y)
    assert np.isinf(model.length_scale_[2])
    moved = X[:50] + np.where(X[:50] > [0, 100, 0], -0.1, 0.1) * [0, 0, 1]  # within the range
    moved[:, :2] += 0.05
    np.testing.assert_allclose(model.predict(moved), model.predict(X[:50]), atol=1e-9)
    assert model.importance_["x2"] < 1e-20
    assert model.importance_["x0"] == pytest.approx(model.importance_["x1"], rel=0.1)


@pytest.mark.filterwarnings("ignore:.*held-out blocks:rff_stream.NumericalWarning")
@pytest.mark.parametrize("name", MAPS)
def test_it_is_part_of_the_map_and_is_stored(name, X, y, tmp_path):
    asked = {"kernel": "gaussian", "length_scale": 1.0} | MAPS[name] | QUIET
    model = rs.KernelRidge(metric=A, **asked).fit(X, y)
    other = rs.KernelRidge(metric=2 * A, **asked).fit(X, y)
    assert model.features_.fingerprint != other.features_.fingerprint
    encoding = getattr(model.features_, "encoding", None) or model.features_.first
    np.testing.assert_array_equal(encoding.matrix, A)
    model.save(tmp_path / "m.zarr", moments=True)
    again = rs.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.predict(X[:20]), model.predict(X[:20]))
    np.testing.assert_array_equal(again.get_params()["metric"], A)
    assert again.features_.fingerprint == model.features_.fingerprint
    again.update(X[:100] + 0.01, y[:100], batch="more")
    assert again.n_rows_ == 500 and again.features_.fingerprint == model.features_.fingerprint


@pytest.mark.slow
def test_length_scales_are_searched_for_in_the_combinations(X, y):
    model = rs.KernelRidge(metric=A, features=rs.Cells(32, n_trees=2, n_cells=4), **QUIET)
    model.fit(X, y)
    assert not any("metric" in name for name in model.choice_.names)
    assert isinstance(model.features_, LocalFeatures)
    # y changes along the first combination alone, the other one is hardly looked at
    scale = np.asarray(model.features_.kernel.length_scale)
    assert scale.shape == (2,) and scale[1] > 3 * scale[0]
    whole = rs.KernelRidge(metric=A, n_components=64, length_scale="ard", **QUIET).fit(X, y)
    assert isinstance(whole.features_, Then) and whole.score(X, y) > 0.9


@pytest.mark.filterwarnings("ignore:.*one input alone:rff_stream.NumericalWarning")
def test_it_stands_behind_an_encoding(X, y):
    cells = rs.Cells(32, n_trees=1, n_cells=2, encode={"x0": Periodic(2.0), "x2": Periodic(4.0)})
    model = rs.KernelRidge("gaussian", 1.0, features=cells, metric=np.eye(4)[:, :3], **QUIET)
    encoding = model.fit(X, y).features_.encoding
    assert isinstance(encoding, Then) and isinstance(encoding.second, Projection)
    assert encoding.n_components == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": np.eye(2)}, r"metric has 2 rows but there are 3 inputs"),
        ({"metric": np.ones(3)}, r"metric has shape \(3,\).*matrix of finite numbers"),
        ({"metric": np.full((3, 2), np.nan)}, "not finite"),
        ({"metric": A, "features": "grid"}, "features='grid', and a metric goes in front"),
        ({"metric": A, "features": rs.Candidates()}, "in front of cells, or of a map that"),
        (
            {"metric": A, "features": rs.FourierFeatures.sample(rs.Gaussian(1.0), 3, 8, rng=0)},
            r"Projection\(matrix, origin\).then\(map\)",
        ),
        ({"metric": A, "length_scale": [1.0, 2.0, 3.0]}, "length_scale has 3 values but there are"),
        ({"metric": "foo"}, "must be 'auto', 'full', a matrix or None"),
    ],
)
@pytest.mark.parametrize("n_components", [None, 64])
def test_a_matrix_that_does_not_fit_is_refused(changes, words, n_components, X, y):
    model = rs.KernelRidge(n_components=n_components, **QUIET | changes)
    with pytest.raises(ValueError, match=words):
        model.fit(X, y)
    assert not hasattr(model, "features_")


@pytest.mark.slow
@pytest.mark.parametrize("features", ["whole", "nystroem"])
def test_one_map_learns_a_metric(features, rng):
    X = rng.uniform(-1, 1, (450, 4))
    y = np.sin(6 * (X[:, 0] - X[:, 1])) + 0.1 * rng.standard_normal(450)
    asked: dict[str, Any] = {"n_components": 128, "features": features} | QUIET
    model = rs.KernelRidge(metric="full", **asked).fit(X[:300], y[:300])
    plain = rs.KernelRidge(length_scale="ard", **asked).fit(X[:300], y[:300])
    assert isinstance(model.features_.first, Projection)
    assert model.score(X[300:], y[300:]) > max(0.95, plain.score(X[300:], y[300:]))
    found = rs.inspect.gradient_outer_product(model).directions()
    truth = np.array([1, -1, 0, 0]) / np.sqrt(2)
    assert abs(found.vectors[:, 0] @ truth) > 0.99
    assert model.length_scale_.shape == (4,)


@pytest.mark.parametrize("length_scale", ["median", "evidence"])
def test_one_length_scale_keeps_the_scales_of_combinations(length_scale, X, y):
    """Columns of xA are in one unit: they are not divided by their standard deviations."""
    asked: dict[str, Any] = {"n_components": 64, "length_scale": length_scale} | QUIET
    one, ten = (rs.KernelRidge(metric=c * A, **asked).fit(X, y) for c in (1.0, 10.0))
    assert len({np.asarray(m.features_.second.scale).tobytes() for m in (one, ten)}) == 2
    for model, c in ((one, 1.0), (ten, 10.0)):
        scale = model.features_.second.scale
        np.testing.assert_allclose(scale, scale[0])
        np.testing.assert_allclose(scale / c, one.features_.second.scale, rtol=0.05)


@pytest.mark.filterwarnings("ignore:.*held-out blocks:rff_stream.NumericalWarning")
def test_a_constant_target_has_no_metric(X):
    asked: dict[str, Any] = {"n_components": 64, "metric": "full"} | QUIET
    with pytest.warns(rs.NumericalWarning, match="is constant"):
        model = rs.KernelRidge(**asked).fit(X, np.ones(len(X)))
    np.testing.assert_allclose(model.predict(X[:5]), 1)


def wide_rows(n, d, rng):
    """y of two orthogonal combinations of many inputs, the truth (d, 2)."""
    truth = np.linalg.qr(rng.standard_normal((d, 2)))[0]
    X = rng.standard_normal((n, d))
    u, v = (X @ truth).T
    return X, np.sin(u) + v * np.abs(v) / 2 + 0.1 * rng.standard_normal(n), truth


@pytest.mark.slow
def test_of_many_inputs_a_few_directions_are_found(rng):
    """A matrix of 60² entries was not tried: there was no metric for more than 48 inputs."""
    X, y, truth = wide_rows(1100, 60, rng)
    asked: dict[str, Any] = {"progress": False, "random_state": 0, "search_seconds": 3.0}
    model = rs.GaussianProcessRegressor(kernel="gaussian", **asked)
    model.fit(X[:700], y[:700])
    encoding = getattr(model.features_, "encoding", None) or model.features_.maps[0].encoding
    assert encoding.n_components < 60
    assert "of 60 directions" in model.choice_.taken
    assert model.score(X[700:], y[700:]) > 0.85  # .6 without a metric
    leading = rs.inspect.gradient_outer_product(model).directions().vectors[:, :1]
    assert np.degrees(subspace_angles(truth, leading).max()) < 20


@pytest.mark.slow
def test_directions_that_do_nothing_are_dropped(rng):
    X = rng.uniform(-1, 1, (1200, 6))
    y = np.sin(4 * (X[:, 0] - X[:, 1])) + 0.2 * rng.standard_normal(1200)
    asked: dict[str, Any] = {"progress": False, "random_state": 0, "kernel": "gaussian"}
    model = rs.GaussianProcessRegressor(**asked).fit(X[:800], y[:800])
    assert model.features_.encoding.n_components < 6
    assert "of 6 directions" in model.choice_.taken
    assert model.score(X[800:], y[800:]) > 0.9


def test_shared_slopes_of_a_line_are_the_line(rng):
    """Of a fit whose slope is the same everywhere M = bbᵀ; noise alone has as much of each sign."""
    x = rng.standard_normal((900, 5)) * [1, 10, 1, 1, 1]
    line = np.array([1.0, 0.2, 0, 0, -1.0])
    y = (x @ line)[:, None] + 0.1 * rng.standard_normal((900, 1))
    fit = MetricFit(rs.Gaussian(), np.diag([0.02, 0.002, 0.02, 0.02, 0.02]), 1e-5, 0.0)
    rows = RowWindow(x, y, np.ones(900))
    unit = input_scale(rows)
    found = shared_directions(rows, fit, 5, unit, rng)
    assert found.leading.shape[1] == 1
    np.testing.assert_allclose(np.abs(found.leading[:, 0]), np.abs(line), atol=0.05)
    one = found.of_metric(np.eye(5))
    assert one.shape == (5, 1)
    # A = I along the unit vector v of x/σ has the length of vσ
    v = found.leading[:, 0] * found.unit / np.linalg.norm(found.leading[:, 0] * found.unit)
    length = np.linalg.norm(v * found.unit)
    np.testing.assert_allclose(np.abs(one[:, 0]), np.abs(v) * length / found.unit)
    noise = RowWindow(x, rng.standard_normal((900, 1)), np.ones(900))
    assert shared_directions(noise, fit, 5, unit, rng).leading.shape[1] <= 3
    values = np.linalg.eigvalsh(found.whole.T * found.unit @ (found.unit[:, None] * found.whole))
    np.testing.assert_allclose(values[:4], found.floor, rtol=1e-6)


def test_a_metric_of_slopes_is_that_of_differences(rng):
    """M^½ of the mean of ∇f∇fᵀ of the dense fit over its rows, for inputs over their scales."""
    x, w = rng.standard_normal((60, 3)) * [1.0, 10.0, 0.1], rng.uniform(0.5, 2, 60)
    y = np.column_stack([np.sin(x[:, 0] + x[:, 1] / 10), 5 * x[:, 2]])
    rows, A = RowWindow(x, y, w), np.diag([1.0, 0.1, 10.0]) + 0.05
    fit, step = MetricFit(rs.Gaussian(), A, 0.1, 0.0), 1e-5
    weights, unit = coefficients(rows, fit), input_scale(rows)

    def function(at):
        return rs.Gaussian()(at @ A, x @ A) @ weights

    slopes = [(function(x + h) - function(x - h)) / 2 for h in step * np.diag(unit)]
    S = np.stack(slopes, axis=-1).reshape(-1, 3) / step  # by x over its scale
    values, vectors = np.linalg.eigh(S.T @ S)
    expected = (vectors * np.sqrt(values)) @ vectors.T
    found = slope_metric(rows, fit, unit)
    own = found * unit[:, None]
    np.testing.assert_allclose(own / own[0, 0], expected / expected[0, 0], rtol=1e-6, atol=1e-6)
    apart = [np.median(np.linalg.norm((x[:30] - x[30:]) @ each, axis=1)) for each in (found, A)]
    assert apart[0] == pytest.approx(apart[1])  # rows are as far apart as they were


@pytest.mark.slow
def test_slopes_give_classes_their_combination(rng):
    """Evidence takes classes for Gaussian numbers; of letters its metrics were no better."""
    X = rng.standard_normal((800, 6))
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0][:, :2]
    u, v = (X @ turn).T
    kinds = np.digitize(u * np.abs(v) + 0.1 * rng.standard_normal(800), [-0.3, 0.3])
    asked: dict[str, Any] = {"progress": False, "random_state": 0}
    model, plain = (
        rs.KernelClassifier("squared", kernel="gaussian", metric=each, **asked).fit(
            X[:500], kinds[:500]
        )
        for each in ("auto", None)
    )
    assert "metric" in model.choice_.taken
    assert model.score(X[500:], kinds[500:]) > plain.score(X[500:], kinds[500:]) + 0.05
    shares = np.array(list(model.importance_.values()))
    np.testing.assert_allclose(shares, (turn**2).sum(axis=1) / 2, atol=0.15)


def test_a_metric_that_was_asked_for_is_learnt_where_no_radial_kernel_is_near(rng):
    """Of jumps the Laplacian alone was near, so there was no metric to take."""
    errors, shape = rng.standard_normal((400, 1)), CellShape(2, 2)
    rows = RowWindow(rng.standard_normal((400, 2)), errors, np.ones(400))
    kernels = [rs.Gaussian(), rs.Laplacian()]
    search = MapSearch(rows, [rows], True, kernels, shape, rng, only_metric=True)
    for kernel, factor in zip(kernels, (2.0, 1.0), strict=True):
        own = factor * errors
        search.candidates.append(Candidate("", kernel, np.eye(2), 0.1, shape, own, 0.0))
    assert [each.kernel for each in search._near_best()] == [rs.Gaussian()]
    search.only_metric = False
    assert search._near_best() == []


def takes_a_metric(seed):
    """Whether the bare call does so for 400 rows of 5 inputs that tell nothing of y."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((400, 5)), rng.standard_normal(400)
    model = rs.GaussianProcessRegressor(progress=False, random_state=seed).fit(X, y)
    return any("metric" in name for name in model.choice_.taken_names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 6])
def test_noise_alone_gives_no_metric(seed):
    """Left-out errors that are smaller by 1e-5, of all rows alike, said that there is one."""
    assert not takes_a_metric(seed)


@pytest.mark.long
def test_noise_alone_gives_no_metric_at_the_level():
    """At most 5 % of 200: it was 16 %."""
    assert sum(map(takes_a_metric, range(200))) <= 10


def test_a_metric_is_not_taken_for_being_earlier(rng):
    """Length-scales of the least error came later, and the difference was within one error."""
    errors, shape = rng.standard_normal((400, 1)), CellShape(2, 2)
    rows = RowWindow(rng.standard_normal((400, 2)), errors, np.ones(400))
    search = MapSearch(rows, [rows], True, [rs.Gaussian()], shape, rng)
    turned = np.array([[1.0, 1.0], [1.0, -1.0]])
    for name, matrix, own in (
        ("scales", np.eye(2), 2 * errors),
        ("metric", turned, 1.001 * errors[::-1]),
        ("other scales", np.eye(2), errors),
    ):
        found = Candidate(name, rs.Gaussian(), matrix, 0.1, shape, own, 0.0)
        search.candidates.append(found)
    assert search.best.name == "other scales"


def test_of_simpler_candidates_the_best_is_taken(rng):
    """A metric's lead was chance, so the first kernel was taken: it was behind the second."""
    errors, shape = rng.standard_normal((400, 1)), CellShape(2, 2)
    rows = RowWindow(rng.standard_normal((400, 2)), errors, np.ones(400))
    search = MapSearch(rows, [rows], True, [rs.Gaussian()], shape, rng)
    turned = np.array([[1.0, 1.0], [1.0, -1.0]])
    for name, matrix, own in (
        ("scales", np.eye(2), 1.002 * errors[::-1]),
        ("better scales", 2 * np.eye(2), 1.001 * errors[::-1]),
        ("metric", turned, errors),
    ):
        found = Candidate(name, rs.Gaussian(), matrix, 0.1, shape, own, 0.0)
        search.candidates.append(found)
    assert search.best.name == "better scales"


@pytest.mark.parametrize(("d", "taken"), [(2, "few columns"), (60, "many")])
def test_cells_of_many_inputs_are_compared_by_their_errors_alone(d, taken, rng):
    errors = rng.standard_normal((400, 1))
    rows, matrix = RowWindow(rng.standard_normal((400, d)), errors, np.ones(400)), np.eye(d)
    search = MapSearch(rows, [rows], True, [rs.Gaussian()], CellShape(2, 2), rng)
    for name, columns, own in (("few columns", 256, 1.001 * errors[::-1]), ("many", 512, errors)):
        search.candidates.append(
            Candidate(name, rs.Gaussian(), matrix, 0.1, CellShape(2, columns), own, 0.0)
        )
    assert search.best.name == taken


@pytest.mark.parametrize(("first", "turns"), [(0.99, 2), (1.01, 2), (1.1, 1)])
def test_a_second_turn_follows_wherever_the_first_is_near(first, turns, rng):
    """A first turn that gained little or nothing ended the search: protein .524, .492 after two."""
    errors, shares = rng.standard_normal((400, 1)), iter([first, 0.8])

    class Judged(MapSearch):
        def _judge(self, name, fit, started, shape=None, *, is_learnt=False):
            own = next(shares) * errors[::-1]
            self.candidates.append(
                Candidate(name, fit.kernel, fit.matrix, fit.alpha, self.shape, own, 0.0)
            )

    rows = RowWindow(rng.standard_normal((60, 2)), rng.standard_normal((60, 1)), np.ones(60))
    search = Judged(rows, [rows], False, [rs.Gaussian()], CellShape(2, 2), rng)
    start = Candidate("start", rs.Gaussian(), np.eye(2), 0.1, CellShape(2, 2), errors, 0.0)
    assert search._learn_metric(start) == (turns == 2)
    assert len(search.candidates) == turns


def test_numbers_of_a_metric_are_those_of_its_products(rng):
    """AAᵀ of rank k is the same for A and AQ: dk numbers less those of a rotation of k axes."""
    shape, none = CellShape(1, 1), np.zeros((1, 1))

    def count(matrix):
        return Candidate("one", rs.Gaussian(), matrix, 0.1, shape, none, 0.0).n_numbers

    assert count(np.eye(5)) == 5
    A = rng.standard_normal((5, 5))
    assert count(A) == 15  # a symmetric matrix
    assert count(A[:, :1]) == 5 and count(A[:, :2]) == 9


def test_one_length_scale_is_taken_where_many_save_what_chance_saves(rng):
    """60 length-scales found on 150 rows have left-out errors that are too small: 210/90."""
    X, shape, unit = rng.standard_normal((150, 60)), CellShape(150, 150), rng.uniform(0.1, 9, 60)
    rows = RowWindow(X * unit, rng.standard_normal((150, 1)), np.ones(150))
    search = MapSearch(rows, [rows], True, [rs.Gaussian()], shape, rng, unit=unit, regions=[rows])
    for name, matrix in (("one", np.eye(60) / 8), ("each", np.diag(rng.uniform(0.01, 0.2, 60)))):
        search._judge(name, MetricFit(rs.Gaussian(), matrix / unit[:, None], 0.1, np.nan), 0.0)
    one, each = search.candidates
    assert (one.n_free, each.n_free) == (1, 60)
    for share, taken in ((0.45, "one"), (0.42, "each")):  # on both sides of 90·151/(210·149)
        search.candidates = [one, replace(each, errors=one.errors * np.sqrt(share))]
        assert search.best.name == taken


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("kernel", [rs.Laplacian(), rs.Matern(nu=1.5)], ids=["laplacian", "matern"])
def test_evidence_chooses_among_radial_kernels_of_classes_alone(kernel, classes, rng):
    X = rng.uniform(size=(80, 2))
    rows = RowWindow(X, np.sign(X[:, :1] - 0.3), np.ones(80))
    search = MapSearch(rows, [rows], True, [rs.Gaussian()], CellShape(80, 80), rng)
    search.compares_scales, search._most_evidence = classes, 1e6
    found = search._fit_kernel([rows], kernel, MetricFit(rs.Gaussian(), np.eye(2), 0.1, np.nan))
    assert (found is not None) == (classes and kernel == rs.Laplacian())
    if found is not None:  # one factor of the first length-scales
        np.testing.assert_allclose(found.matrix, found.matrix[0, 0] * np.eye(2))


def test_a_metric_is_not_taken_for_errors_of_two_rows(rng):
    """Two rows alone are √2 standard errors, and Student's t of one degree of freedom is 1.84."""
    X, shape = rng.standard_normal((90, 3)), CellShape(90, 90)
    rows = RowWindow(X, rng.standard_normal((90, 1)), np.ones(90))
    search = MapSearch(rows, [rows], True, [rs.Gaussian()], shape, rng, judges=np.ones(90, bool))
    for tell, taken in ((2, "plain"), (3, "metric")):
        errors = np.full((90, 1), 0.01)
        metric = Candidate("metric", rs.Gaussian(), np.ones((3, 3)), 0.1, shape, errors, 0.0, True)
        missed = errors.copy()
        missed[:tell] = 1.0
        search.candidates = [metric, replace(metric, name="plain", matrix=np.eye(3), errors=missed)]
        assert search.best.name == taken


@pytest.mark.slow
@pytest.mark.parametrize("features", ["whole", "local"])
def test_classes_and_other_losses_learn_a_metric(features, rng):
    X = rng.uniform(-1, 1, (700, 4))
    wave = np.sin(6 * (X[:, 0] - X[:, 1]))
    kinds = np.array(["a", "b", "c"])[np.digitize(wave, [-0.5, 0.5])]
    cells = rs.Cells(64, n_trees=2, n_cells=4) if features == "local" else features
    asked: dict[str, Any] = {"n_components": 128, "metric": "full"} | QUIET
    sorter = rs.KernelClassifier(features=cells, **asked).fit(X[:500], kinds[:500])
    assert sorter.score(X[500:], kinds[500:]) > 0.9
    assert sorter.importance_["x0"] + sorter.importance_["x1"] > 0.95
    given = rs.KernelClassifier(features=cells, length_scale=0.3, **asked | {
        "metric": np.array([[1.0], [-1.0], [0.0], [0.0]])
    }).fit(X[:500], kinds[:500])  # fmt: skip
    assert given.score(X[500:], kinds[500:]) > 0.9
    if features == "whole":
        y = wave + 0.1 * rng.standard_t(2, 700)
        robust = rs.KernelRegressor("huber", **asked).fit(X[:500], y[:500])
        assert np.mean((robust.predict(X[500:]) - wave[500:]) ** 2) < 0.02


@pytest.mark.parametrize("kernel", [rs.Gaussian(), rs.Matern(nu=1.5)])
def test_distances_of_many_columns_are_computed_once(kernel, rng):
    """One length-scale multiplies them: the same evidence and slope as of the rows themselves."""
    x, w = rng.standard_normal((40, 60)), rng.uniform(0.5, 2, 40)
    y = x[:, :1] + 0.1 * rng.standard_normal((40, 1))
    kept = WindowEvidence([RowWindow(x, y, w)], np.eye(60))
    for factor in (0.02, 0.3):
        value, slopes, to_alpha = kept._evaluate(kernel, kept._rows, 0.1, factor)
        rows = [factor * each for each in kept._rows]
        wanted, by_rows, by_alpha = kept._evaluate(kernel, rows, 0.1)
        assert value == pytest.approx(wanted) and to_alpha == pytest.approx(by_alpha)
        assert float(slopes[0]) == pytest.approx(float((rows[0] * by_rows[0]).sum()))
    assert kept.at(kernel, 5.0) == kept._evaluate(kernel, kept._rows, START_ALPHA, 0.2)[0]


def of_many(x, y, **choices):
    rows = RowWindow(x, y, np.ones(len(x)))
    kernels, rng = [rs.Matern(nu=1.5)], np.random.default_rng(1)
    search = MapSearch(rows, [rows], True, kernels, CellShape(256, 256), rng, **choices)
    return search_map(search), search


@pytest.mark.slow
def test_of_many_inputs_a_few_that_matter_are_found(rng):
    """A length-scale for each of 1,000 inputs, found on a few rows, saw nothing (R² .5)."""
    x = rng.standard_normal((900, 80))
    signal = np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + x[:, 4:5]
    found, search = of_many(
        x, signal + 0.1 * rng.standard_normal((900, 1)), budget=SearchBudget(1.0)
    )
    assert found.left_out_error < 0.4
    weight = np.abs(found.matrix).max(axis=1)
    assert set(np.argsort(-weight)[:4].tolist()) == {0, 1, 2, 4}
    # The rows that judge took no part: what the search sees are others
    judged = np.concatenate([each.x for each in search.regions])[search.judges]
    assert len(judged) + len(search.rows.x) == 900 and 150 < len(judged) < 300
    assert found.n_rows == len(judged)


@pytest.mark.slow
def test_many_inputs_in_one_unit_stay_in_it(rng):
    """Pixels at the edge hardly vary: over their deviations they were as loud as all others."""
    x = rng.standard_normal((700, 90)) * np.repeat([1.0, 0.01], [30, 60])
    y = np.sin(x[:, :30].sum(axis=1, keepdims=True) / 8) + 0.05 * rng.standard_normal((700, 1))
    found, search = of_many(x, y, metric=False, budget=SearchBudget(2.0))
    assert np.ptp(found.matrix.diagonal()) == 0
    assert np.ptp(search.unit) == 0
    scaled, search = of_many(x / x.std(axis=0), y, metric=False, budget=SearchBudget(2.0))
    assert np.ptp(search.unit) > 0
    assert found.left_out_error < scaled.left_out_error


@pytest.mark.slow
def test_classes_of_many_inputs_have_a_metric(rng):
    """Length-scales of 784 pixels took the whole budget, so no metric was tried."""
    X = rng.standard_normal((3000, 60)) * np.repeat([1.0, 0.01], [20, 40])
    kinds = np.digitize(X[:, :20].sum(axis=1) + 2 * X[:, 0] ** 2, [0.0, 4.0])
    rows = RowWindow(X, np.eye(3)[kinds], np.ones(3000))
    search = MapSearch(
        rows, [rows], True, [rs.Matern(nu=1.5)], CellShape(256, 256), rng, n_rows=16_000,
        compares_scales=True, budget=SearchBudget(5.0),
    )  # fmt: skip
    found = search_map(search)
    assert "metric, turn" in found.taken and found.matrix.shape[1] < 60
    first = next(each for each in found.trials if "first" in each.name)
    assert found.left_out_error < 0.8 * first.error


def test_the_power_of_slopes_is_that_of_their_outer_product(rng):
    """Of two slopes, 1 and .3, and as wide at the rows as the metric before."""
    x, fit = rng.standard_normal((300, 60)), MetricFit(rs.Gaussian(), np.eye(60) / 40, 1e-4, 0.0)
    lines = np.linalg.qr(rng.standard_normal((60, 2)))[0]
    rows = RowWindow(x, (x @ lines) * [1, 0.3], np.ones(300))
    found = [slope_metric(rows, fit, np.ones(60), power) for power in (0.5, 0.25)]
    values = [np.linalg.svd(each)[1] for each in found]
    for each, size in zip(found, values, strict=True):
        along = np.linalg.svd(each)[0][:, :2]
        assert np.linalg.norm(lines.T @ along, 2) > 0.99
        u = x @ each
        apart = [np.median(np.linalg.norm(v[:150] - v[150:], axis=1)) for v in (u, x / 40)]
        assert apart[0] == pytest.approx(apart[1])
        assert each.shape[1] == len(size)
    shares = [size[1] / size[0] for size in values]
    assert shares[0] == pytest.approx(0.3, rel=0.05) and shares[0] == pytest.approx(shares[1] ** 2)


def test_of_many_inputs_fewer_rows_are_searched(rng):
    x, y, w = rng.standard_normal((700, 30)), rng.standard_normal((700, 1)), np.arange(1.0, 701)
    assert searched_rows(x, y, w, rng).x is x
    few = searched_rows(np.repeat(x, 300, axis=1), y, w, rng)  # 9,000 inputs
    assert len(few.x) == MOST_VALUES // 9000
    places = few.w.astype(int) - 1
    assert (np.diff(places) > 0).all()
    np.testing.assert_array_equal(few.y, y[places])


@pytest.mark.slow
def test_noise_of_many_inputs_gives_no_directions(rng):
    x, y = rng.standard_normal((600, 100)), rng.standard_normal((600, 1))
    found, _ = of_many(x, y, budget=SearchBudget(2.0))
    assert found.left_out_error == pytest.approx(1, abs=0.1)
    assert "directions" not in found.taken


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
def test_noise_of_few_rows_gives_no_directions(seed, classes):
    """58 numbers that saw 80 rows told them apart: half of these searches took a direction."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((80, 58)), rng.standard_normal(80)
    estimator = rs.KernelClassifier if classes else rs.GaussianProcessRegressor
    model = estimator(progress=False, random_state=seed).fit(X, y > 0 if classes else y)
    assert not any("directions" in name for name in model.choice_.taken_names)


@pytest.mark.slow
def test_directions_of_few_rows_are_judged_by_those_of_other_rows(rng):
    """The error is that of a hand-made cross-validation, as many rows fewer as its start has."""
    X, y, _ = wide_rows(500, 60, rng)
    x, unit = X - X.mean(axis=0), X.std(axis=0)
    search = MapSearch(
        RowWindow(x, (y - y.mean())[:, None], np.ones(500)), [], True, [rs.Gaussian()],
        CellShape(500, 600), rng,
    )  # fmt: skip
    search.unit, search.regions = unit, [search.rows]
    start = MetricFit(rs.Gaussian(), np.diag(1 / (8 * unit)), 0.05, 0.0)
    search._judge("start", start, 0.0)
    search._learn_directions(search.candidates[0])
    first, learnt = search.candidates
    assert learnt.is_learnt and learnt.fold_fits is not None
    at, whole, mine = np.arange(500), np.empty(500), np.empty(500)
    for i, own in enumerate(learnt.fold_fits.fits):
        inner, outer = at % FOLDS == i, at % FOLDS != i
        for errors, fit in ((mine, own), (whole, first.fit)):
            errors[inner] = dense_errors(fit, x[outer], y[outer], x[inner], y[inner])
    factor = first.error / np.sqrt((whole**2).mean())
    np.testing.assert_allclose(learnt.errors[:, 0], factor * mine, rtol=1e-8, atol=1e-10)


def test_directions_without_a_fold_do_not_depend_on_its_targets(rng):
    """Those of the other folds do."""
    X, y, _ = wide_rows(300, 60, rng)
    start = MetricFit(rs.Gaussian(), np.diag(1 / (8 * X.std(axis=0))), 0.05, 0.0)
    other = np.where(np.arange(300) % FOLDS == 0, -y, y)
    found = []
    for targets in (y, other):
        rows, shape = RowWindow(X, targets[:, None], np.ones(300)), CellShape(300, 400)
        search = MapSearch(rows, [], True, [rs.Gaussian()], shape, np.random.default_rng(0))
        search.unit, search.regions = X.std(axis=0), [rows]
        search._judge("start", start, 0.0)
        folds = folds_of(rows, FOLDS)
        found.append(search._fit_folds(search.candidates[0], [start], folds).fits)
    same = [np.array_equal(a.matrix, b.matrix) for a, b in zip(*found, strict=True)]
    assert same == [True, False, False, False, False]


def dense_errors(fit, x, y, at, truth):
    """y − m − k'K⁻¹(y − m), m the generalised least-squares mean."""
    K = fit.kernel(x @ fit.matrix, x @ fit.matrix) + fit.alpha * np.eye(len(x))
    inverse = np.linalg.inv(K)
    mean = inverse.sum(axis=0) @ y / inverse.sum()
    near = fit.kernel(at @ fit.matrix, x @ fit.matrix)
    return truth - mean - near @ inverse @ (y - mean)


@pytest.mark.slow
def test_copies_of_a_row_judge_together(rng):
    """Else a row that the search saw would judge what it found."""
    x = np.repeat(rng.standard_normal((450, 60)), 2, axis=0)
    found, search = of_many(
        x, x[:, :1] + 0.1 * rng.standard_normal((900, 1)), budget=SearchBudget(0.5)
    )
    judged = np.concatenate([each.x for each in search.regions])[search.judges]
    seen = {tuple(row) for row in search.rows.x.tolist()}
    assert len(judged) and not seen & {tuple(row) for row in judged.tolist()}
    assert found.n_rows == len(judged)


@pytest.mark.slow
@pytest.mark.parametrize("d", [60, 400])
def test_a_search_of_many_inputs_ends_within_its_budget(d, rng):
    """Products with 1,000 columns were not counted: 59 CPU s where 10 were foreseen."""
    x = rng.standard_normal((300, d))
    y = x[:, :1] + 0.1 * rng.standard_normal((300, 1))
    budget = SearchBudget(1.0)
    of_many(x, y, budget=budget)
    # A step of a climb under way has at most 20 looks at the rows that do not judge
    assert budget.spent <= budget.limit + 21 * seconds_of_look(250, d, radial=True)
