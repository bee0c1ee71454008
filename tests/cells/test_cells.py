"""Local features: trees, moments of their cells and the answers, against dense references."""

from __future__ import annotations

import functools
import json
import operator
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_local as reference
import rff_stream as rs
from rff_stream._array import Array
from rff_stream.cells import calibration as cell_calibration
from rff_stream.cells.calibration import local_posterior, numbers_found
from rff_stream.cells.evidence import (
    TOLERANCE,
    cell_evidence,
    cell_gcv,
    cross_validate_cells,
    local_evidence,
)
from rff_stream.cells.map import LocalFeatures
from rff_stream.cells.moments import (
    CellAccumulator,
    CellMoments,
    cell_row,
    precision_at_rest,
    waiting_rows,
)
from rff_stream.cells.posterior import LocalPosterior
from rff_stream.cells.spectrum import (
    TreeFactors,
    TreeSpectrum,
    factored_tree,
    local_spectrum,
    tree_eta,
    tree_spectrum,
)
from rff_stream.cells.variance_form import MOST_MOVED, ROWS_A_COLUMN
from rff_stream.errors import DataError, ModelError, NumericalWarning
from rff_stream.families.protocol import Totals
from rff_stream.features import Projection, map_from_spec
from rff_stream.features.dense_triangle import inverse_factor, invert_positive, lift_small_values
from rff_stream.features.packed_triangle import (
    add_outer,
    add_products,
    multiply_rows,
    pack_triangle,
    places,
    triangle_size,
)
from rff_stream.features.random_trees import Partition
from rff_stream.kernels.linear import Linear
from rff_stream.length_scales.metric_search import SEEN
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate import SumsDtype, resolve_sums

KERNELS = [
    rs.Gaussian((0.8, 1.1, 2.0)),
    rs.Matern(1.0, nu=1.5),
    rs.Laplacian(2.0),
    rs.Cauchy(1.5),
    rs.RationalQuadratic(1.0),
    rs.Gaussian(1.0) + rs.Matern(3.0, nu=0.5),
]


def accumulate_cells(
    features: LocalFeatures,
    X: Array,
    y: Array,
    weights: Array | None = None,
    *,
    row: AugmentedRow | None = None,
    sums: SumsDtype = "auto",
    sample_rows: int = 0,
) -> CellMoments:
    """Moments of the cells of rows in memory."""
    y = np.asarray(y)
    y = y[:, None] if y.ndim == 1 else y
    row = plain_cell_row(features, y.shape[1]) if row is None else row
    sink = CellAccumulator(features, row, sums=resolve_sums(sums, len(X)), sample_rows=sample_rows)
    w = None if weights is None else np.asarray(weights, np.float64)
    sink.add(np.asarray(X), y, w, np.arange(len(X)))
    return sink.result()


def plain_cell_row(features: LocalFeatures, n_targets: int) -> AugmentedRow:
    """The row of a local map with zero origins and names x0, x1, …, y0, y1, …."""
    return cell_row(
        features,
        target_origin=np.zeros(n_targets),
        target_scale=np.ones(n_targets),
        inputs=tuple(f"x{i}" for i in range(features.n_inputs)),
        targets=tuple(f"y{i}" for i in range(n_targets)),
    )


def rows(rng, n=240, d=3, targets=1):
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, :1]) + X[:, 1:2] * np.arange(1, targets + 1) + 5
    return X, y + 0.1 * rng.normal(size=(n, targets)), rng.uniform(0.5, 2.0, n)


def local_map(rng, X, kernel=KERNELS[0], **changes):
    sizes = {"n_cells": 4, "n_trees": 2, "n_components": 12, "dtype": "float64"} | changes
    return LocalFeatures.sample(kernel, X, rng=rng, **sizes)


# triangles


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 2, 7, 12, 65])
def test_packed_triangles_multiply_and_solve_like_full_ones(rng, width, dtype):
    wide = rng.normal(size=(40, width + 3)).astype(dtype)
    A = wide[:, :width]  # rows lie apart
    triangle = np.full(triangle_size(width), np.nan, dtype)
    add_products(A, triangle, 0.0)
    add_products(A, triangle, 1.0)
    exact = 2 * A.T.astype(float) @ A.astype(float)
    bound = 40 * np.finfo(dtype).eps * 2 * np.outer(abs(A).max(0), abs(A).max(0)) * 2
    assert (abs(triangle[places(width)] - exact) <= bound).all()

    whole = np.tril(rng.normal(size=(width, width))).astype(dtype)
    before = A.astype(float)
    multiply_rows(pack_triangle(np.asfortranarray(whole)), A)
    rounding = 2 * width * np.finfo(dtype).eps * (abs(before) @ abs(whole.T))
    assert (abs(A - before @ whole.T.astype(float)) <= rounding + 1e-30).all()
    assert (pack_triangle(whole)[places(width)] == whole + np.tril(whole, -1).T).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_of_two_vectors_is_added_in_place(rng, dtype):
    wide = rng.normal(size=(40, 12)).astype(dtype)
    column, line = rng.normal(size=40).astype(dtype), rng.normal(size=9).astype(dtype)
    expected = wide[:, :9] + np.outer(column, line)
    add_outer(column, line, wide[:, :9])  # rows lie apart
    assert abs(wide[:, :9] - expected).max() <= 4 * np.finfo(dtype).eps * abs(expected).max()


@pytest.mark.parametrize("width", [1, 2, 31, 33, 64, 97])
def test_a_factor_is_inverted_in_its_place(rng, width):
    A = rng.normal(size=(width, 2 * width))
    matrix = A @ A.T
    factor = np.linalg.cholesky(matrix)
    found = inverse_factor(matrix)
    bound = 8 * width * np.finfo(float).eps * np.linalg.cond(factor) ** 2
    assert abs(np.tril(found) @ factor - np.eye(width)).max() <= bound
    assert inverse_factor(-np.eye(width)) is None


def test_far_rows_make_no_subnormal_numbers(rng):
    """Products of small kernels fell below 1e-308, where a processor takes 40 times as long."""
    x = rng.uniform(size=(200, 3))
    matrix = np.exp(-700 * np.linalg.norm(x[:, None] - x, axis=2)) + 0.1 * np.eye(200)
    small = matrix < 1e-100
    assert small.any()
    factor, inverse = inverse_factor(matrix.copy()), matrix.copy(order="F")
    assert invert_positive(inverse) == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-12)
    for found in (factor, inverse):
        below = np.abs(found[np.tril_indices(200)])
        assert below[below > 0].min() > np.finfo(float).tiny
    np.testing.assert_allclose(
        np.tril(factor) @ np.linalg.cholesky(matrix), np.eye(200), atol=1e-12
    )
    signs = np.where(small, -1e-200, matrix)  # of both signs: stays as it is
    lift_small_values(signs)
    assert signs.min() == -1e-200


# trees


def test_rows_go_where_plain_floats_send_them(rng):
    X = rng.normal(size=(500, 3)) * [1e-3, 1.0, 1e5] + [0, 7, -3e6]
    trees = Partition.plant(X, n_cells=16, n_trees=3, length_scale=[1e-3, 2.0, 1e5], rng=rng)
    expected = [
        [reference.cell_of(x, trees.origin, w, t) for x in X]
        for w, t in zip(trees.directions, trees.thresholds, strict=True)
    ]
    assert (trees.route(X) == expected).all()
    counts = np.array([np.bincount(cells, minlength=16) for cells in trees.route(X)])
    assert counts.min() >= 0.4**4 * 500 - 4 and counts.max() <= 0.6**4 * 500 + 4


def test_a_row_s_cell_depends_on_nothing_but_the_row(rng):
    X = rng.normal(size=(9000, 2))  # more than one block
    trees = Partition.plant(X[:300], n_cells=8, n_trees=2, rng=rng)
    order = rng.permutation(len(X))
    assert (trees.route(X)[:, order] == trees.route(np.asfortranarray(X[order]))).all()
    assert (trees.route(X[17:18])[:, 0] == trees.route(X)[:, 17]).all()
    again = pickle.loads(pickle.dumps(trees))
    assert again.fingerprint == trees.fingerprint
    assert (again.route(X) == trees.route(X)).all()


def test_rows_that_are_equal_stay_together(rng):
    X = np.repeat(rng.normal(size=(3, 2)), 50, axis=0)
    cells = Partition.plant(X, n_cells=8, n_trees=2, rng=rng).route(X)
    assert all(len(np.unique(cells[:, i * 50 : i * 50 + 50], axis=1).T) == 1 for i in range(3))
    assert (Partition.plant(X[:50], n_cells=4, n_trees=1, rng=rng).route(X[:50]) == 0).all()


def test_the_number_of_cells_is_a_power_of_two(rng):
    with pytest.raises(ValueError, match=r"n_cells=6 but a tree has 1, 2, 4, 8.*n_cells=4 or.*=8"):
        Partition.plant(np.ones((5, 1)), n_cells=6, n_trees=1)
    with pytest.raises(ValueError, match="at least 1 tree"):
        Partition.plant(np.ones((5, 1)), n_cells=4, n_trees=0)
    with pytest.raises(ValueError, match="planted on rows"):
        Partition.plant(np.ones(5), n_cells=4, n_trees=1)


def test_long_sides_in_units_of_the_length_scale_are_cut_more_often(rng):
    X = rng.uniform(size=(4000, 2))
    trees = Partition.plant(X, n_cells=2, n_trees=40, length_scale=[0.01, 1.0], rng=rng)
    across = abs(trees.directions[:, 0] * [0.01, 1.0])  # in units of the length-scale
    assert np.median(across[:, 0] / across[:, 1]) > 50


# the map


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_columns_are_those_of_a_dense_cholesky_factor(rng, kernel):
    X, _, _ = rows(rng)
    features = local_map(rng, X, kernel, nugget=1e-6)
    Z = features.columns(1, 2, X[:50])
    U = features.landmark_rows(1, 2)
    expected = reference.columns(kernel, U, X[:50], 1e-6 * kernel.variance)
    assert abs(Z - expected).max() < 1e-8
    single = LocalFeatures(
        features.partition, features.pool, features.landmarks, kernel, 1e-6, "float32"
    )
    assert abs(single.columns(1, 2, X[:50]) - expected).max() < 2e-3  # eps32 / √nugget, R terms


def test_landmarks_are_rows_of_the_cell_and_thin_cells_are_filled(rng):
    X, _, _ = rows(rng, n=60)
    features = local_map(rng, X, n_cells=8, n_components=20)
    for tree, cells in enumerate(features.route(X)):
        for cell in range(8):
            own, U = X[cells == cell], features.landmark_rows(tree, cell)
            assert len(U) == 20
            inside = [(u == own).all(axis=1).any() for u in U]
            assert sum(inside) >= min(20, len(own))
            assert (own.min(0) - 1e-12 <= U).all() and (own.max(0) + 1e-12 >= U).all()


def test_a_cell_without_rows_borrows_landmarks(rng):
    X = np.repeat(rng.normal(size=(3, 2)), 5, axis=0)  # 3 different rows for 8 cells
    features = LocalFeatures.sample(
        rs.Gaussian(1.0), X, n_cells=8, n_trees=1, n_components=4, rng=rng
    )
    assert np.isfinite(features.columns(0, 7, X)).all()


def test_a_map_survives_its_spec_and_pickle(rng):
    X, _, _ = rows(rng)
    features = local_map(rng, X, KERNELS[1], dtype="float32")
    features.inverse_factor(0, 0)
    for other in (map_from_spec(*features.spec()), pickle.loads(pickle.dumps(features))):
        assert isinstance(other, LocalFeatures)
        assert other.fingerprint == features.fingerprint
        assert (other.columns(1, 3, X[:9]) == features.columns(1, 3, X[:9])).all()
    assert len(pickle.dumps(features)) < 2 * sum(
        array.nbytes for array in features.spec()[1].values()
    )
    plain, arrays = features.spec()
    with pytest.raises(ModelError, match="spec of a local map cannot be read: KeyError"):
        LocalFeatures.from_spec({k: v for k, v in plain.items() if k != "nugget"}, arrays)
    with pytest.raises(ModelError, match="spec of a partition cannot be read"):
        Partition.from_spec({"partition": "grid"}, arrays)


def test_the_map_says_what_it_cannot_take(rng):
    X, _, _ = rows(rng)
    features = local_map(rng, X)
    with pytest.raises(ValueError, match="X has 2 columns but the map was made for 3 inputs"):
        features.route(X[:, :2])
    with pytest.raises(DataError, match="a map takes numbers"):
        features.route(X.astype(str))
    with pytest.raises(ValueError, match="n_components=13 but each cell has 1 to 12"):
        features.leading(13)
    with pytest.raises(ValueError, match="n_components=0"):
        local_map(rng, X, n_components=0)
    with pytest.raises(ValueError, match="nugget=0"):
        local_map(rng, X, nugget=0.0)
    with pytest.raises(ValueError, match="Give places in the pool"):
        LocalFeatures(
            features.partition, X[:3], features.landmarks, features.kernel, 1e-6, "float64"
        )
    assert "2 trees of 4 cells with 12 columns each, float64" in repr(features)


# moments


def dense_moments(features, X, y, w, row):
    """Σ w a aᵀ of every cell, row by row."""
    P = row.width
    sums = np.zeros((features.n_trees * features.n_cells, P, P))
    for tree, cells in enumerate(features.route(X)):
        for i, cell in enumerate(cells):
            U = features.landmark_rows(tree, cell)
            nugget = features.nugget * features.kernel.variance
            z = reference.columns(features.kernel, U, X[i : i + 1], nugget)[0]
            a = np.concatenate([z, [1.0], y[i] - row.target_origin])
            sums[tree * features.n_cells + cell] += w[i] * np.outer(a, a)
    return sums


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("sums", ["float64", "float32"])
def test_moments_of_cells_are_dense_sums(rng, sums, dtype):
    X, y, w = rows(rng, n=150, targets=2)
    features = local_map(rng, X, dtype=dtype, nugget=1e-4)
    moments = accumulate_cells(features, X, y, w, sums=sums, sample_rows=20)
    expected = dense_moments(features, X, y, w, moments.row)[moments.cells]
    exact = sums == dtype == "float64"
    assert abs(moments.matrices() - expected).max() < (1e-8 if exact else 2e-2)
    r = moments.row.n_features
    assert abs(moments.matrices()[:, r:, r:] - expected[:, r:, r:]).max() < 1e-9  # always exact
    counts = [np.bincount(cells, minlength=4) for cells in features.route(X)]
    assert (moments.counts == np.concatenate(counts)[moments.cells]).all()
    assert moments.n == 150 and moments.counts.sum() == 2 * 150
    assert moments.weight == pytest.approx(w.sum())
    assert moments.target_mean() == pytest.approx(np.average(y, axis=0, weights=w))
    assert moments.squared_weight == pytest.approx(w @ w)
    assert moments.log_weight == pytest.approx(np.log(w).sum())
    assert len(moments.sample.keys) == 20


def same(a: CellMoments, b: CellMoments, *, rounding: float = 0.0) -> bool:
    close = np.allclose(a.sums, b.sums, rtol=rounding, atol=rounding * abs(b.sums).max(initial=0))
    counts = (a.cells == b.cells).all() and (a.counts == b.counts).all()
    return bool(close and counts and a.n == b.n and (a.sample.keys == b.sample.keys).all())


def test_portions_of_rows_change_no_bit(rng, monkeypatch):
    monkeypatch.setattr("rff_stream.cells.moments.FEWEST_WAITING", 64)
    monkeypatch.setattr("rff_stream.cells.moments.ROWS_A_CELL", 1)
    X, y, w = rows(rng, n=300)
    features = local_map(rng, X)
    whole = accumulate_cells(features, X, y, w, sums="float32", sample_rows=9)
    sink = CellAccumulator(features, plain_cell_row(features, 1), sums="float32", sample_rows=9)
    for lo in (0, 1, 63, 64, 200):
        hi = {0: 1, 1: 63, 63: 64, 64: 200, 200: 300}[lo]
        sink.add(np.asfortranarray(X[lo:hi]), y[lo:hi], w[lo:hi], np.arange(lo, hi))
    assert same(sink.result(), whole)
    assert (sink.result().sums == whole.sums).all()


def test_sums_with_room_for_other_cells_are_written_into(rng):
    X = np.sort(rng.uniform(-1, 1, (400, 1)), axis=0)
    features, y = local_map(rng, X, rs.Gaussian(0.3), n_cells=8), X**2
    row = plain_cell_row(features, 1)
    parts = []
    for part in (slice(60, 260), slice(0, 100), slice(250, 400), slice(30, 60)):
        sink = CellAccumulator(features, row, sample_rows=20)
        sink.add(X[part], y[part], None, np.arange(400)[part])
        parts.append(sink.result())
    room, expected = parts[0].room, sum(parts[1:], start=parts[0] + CellMoments.zero(row, 2, 8, 20))
    copy = pickle.loads(pickle.dumps(parts[0]))
    assert copy.room is None and same(copy, parts[0])
    total = parts[0]
    for part in parts[1:]:
        total += part
        copy += part
    assert np.shares_memory(total.sums, room) and len(total.cells) > 10
    for found in (total, copy):
        assert same(found, expected) and (found.sums == expected.sums).all()
        assert (found.powers == expected.powers).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_moments_of_cells_are_a_group(seed, parts):
    rng = np.random.default_rng(seed)
    X, y, w = rows(rng, n=80)
    features = local_map(rng, X, n_components=5)
    label = rng.integers(0, parts + 1, 80)
    label[0], label[-1] = 0, parts
    whole = accumulate_cells(features, X, y, w, sums="float64", sample_rows=200)
    row = whole.row
    sinks = [CellAccumulator(features, row, sample_rows=200) for _ in range(parts + 1)]
    at = np.arange(80)
    for k, sink in enumerate(sinks):
        sink.add(X[label == k], y[label == k], w[label == k], at[label == k])
    each = [sink.result() for sink in sinks]
    zero = CellMoments.zero(row, 2, 4, 200)
    total, written = zero, zero
    for part in each:
        total = total + part
        written += part
    assert (written.sums == total.sums).all() and same(written, total)
    assert same(total, whole, rounding=1e-12)
    assert same(each[0] + zero, each[0])
    rest = total - each[0]
    expected = each[1]
    for part in each[2:]:
        expected = expected + part
    assert same(rest, expected, rounding=1e-9)
    none = total - total
    assert none.n == 0 and len(none.cells) == 0  # a cell without rows is gone, not almost 0
    assert same(
        accumulate_cells(features, X, y, 3 * w, sums="float64"),
        accumulate_cells(features, X, y, w, sums="float64").scale(3.0),
        rounding=1e-12,
    )


def test_fewer_columns_and_targets_need_no_second_read(rng):
    X, y, w = rows(rng, targets=3)
    features = local_map(rng, X)
    moments = accumulate_cells(features, X, y, w, sample_rows=30)
    small = accumulate_cells(features.leading(5), X, y, w)
    assert abs(moments.leading(5).matrices() - small.matrices()).max() < 1e-8
    some = moments.with_targets([2, 0])
    expected = accumulate_cells(features, X, y[:, [2, 0]], w, sample_rows=30)
    assert abs(some.matrices() - expected.matrices()).max() < 1e-9
    assert some.row.targets == ("y2", "y0")
    assert (some.sample.rows[:, 3] == moments.sample.rows[:, 5]).all()


def test_moments_that_mean_different_things_do_not_add(rng):
    X, y, _ = rows(rng)
    one = accumulate_cells(local_map(rng, X), X, y)
    other = accumulate_cells(local_map(rng, X), X, y)
    with pytest.raises(ModelError, match=r"differ in feature map .* cannot be added"):
        _ = one + other
    with pytest.raises(TypeError, match="cannot be added to int"):
        _ = one + 1
    with pytest.raises(ValueError, match="factor=-1"):
        one.scale(-1)
    with pytest.raises(ValueError, match="n_components=99"):
        one.leading(99)
    with pytest.raises(ValueError, match="have targets 0 to 0"):
        one.with_targets([1])
    with pytest.raises(ValueError, match="Make the row for this map"):
        CellAccumulator(local_map(rng, X, n_components=3), one.row)
    with pytest.raises(ValueError, match="Rows have 2 inputs"):
        CellAccumulator(local_map(rng, X), one.row).add(X[:, :2], y, None, np.arange(len(X)))
    with pytest.raises(ValueError, match="hold 0 rows"):
        CellMoments.zero(one.row, 2, 4).target_mean()
    assert "8 cells of 2 trees, 12 columns each" in repr(one)
    assert one.__sizeof__() > one.sums.nbytes


# answers


def fits_of(features, tree, X, y, w, alpha, intercept):
    """A dense fit of every cell of one tree, and which rows are in it."""
    cells = features.route(X)[tree]
    for cell in np.unique(cells):
        own = np.flatnonzero(cells == cell)
        U = features.landmark_rows(tree, cell)
        Z = reference.columns(features.kernel, U, X[own], features.nugget)
        yield cell, own, reference.CellFit(Z, y[own], w[own], alpha, intercept)


@pytest.mark.parametrize("intercept", [True, False])
def test_answers_are_those_of_dense_fits_cell_by_cell(rng, intercept):
    X, y, w = rows(rng, targets=2)
    features = local_map(rng, X, nugget=1e-6)
    row = plain_cell_row(features, 2)
    moments = accumulate_cells(features, X, y, w, row=row)
    spectrum = local_spectrum(features, moments, fit_intercept=intercept)
    alpha = np.array([0.03, 0.5])
    found = local_evidence(spectrum, alpha=alpha)
    posterior = local_posterior(found)
    new = rng.normal(size=(40, 3)) * 0.7
    left = posterior.left_out_trees(np.column_stack([X, y, w]))
    for tree, cells in enumerate(features.route(new)):
        each = posterior._of_trees(new)[tree]
        mean, variance = each.mean, each.variance
        for t in range(2):
            fits = list(fits_of(features, tree, X, y[:, t], w, alpha[t], intercept))
            noise = found.noise_variance[tree, t]
            evidence = sum(fit.log_evidence(noise) for _, _, fit in fits)
            assert found.log_evidence[tree, t] == pytest.approx(evidence, abs=1e-6)
            for cell, own, fit in fits:
                at = cells == cell
                U = features.landmark_rows(tree, cell)
                Z = reference.columns(features.kernel, U, new[at], features.nugget)
                assert abs(mean[at, t] - fit.mean(Z)).max(initial=0) < 1e-8
                missing = np.maximum(1 - (Z**2).sum(1), 0) / alpha[t]
                expected = noise * (missing + fit.spread(Z))
                assert abs(variance[at, t] - expected).max(initial=0) < 1e-8 * noise / alpha[t]
                U = features.landmark_rows(tree, cell)
                marks = np.flatnonzero((X[own][:, None] == U).all(axis=2).any(axis=1))
                assert len(marks)
                for i in [*range(0, len(own), 9), *marks[:2]]:
                    others = U[(X[own[i]] != U).any(axis=1)]  # a new row is no landmark
                    Z = reference.columns(features.kernel, others, X[own], features.nugget)
                    rest = reference.CellFit(Z, y[own, t], w[own], alpha[t], intercept).without(i)
                    missing = max(1 - Z[i] @ Z[i], 0) / alpha[t]
                    expected = noise * (missing + rest.spread(Z[i : i + 1])[0])
                    at = left[tree]
                    assert at.mean[own[i], t] == pytest.approx(rest.mean(Z[i : i + 1])[0], abs=1e-7)
                    assert at.variance[own[i], t] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_factor_of_each_cell_gives_the_answers_of_its_decomposition(rng, intercept):
    X, y, w = rows(rng, n=900, targets=2)
    features = local_map(rng, X, n_cells=32, n_components=7)
    moments = accumulate_cells(features, X, y, w, sample_rows=300)
    spectrum = local_spectrum(features, moments, fit_intercept=intercept)
    one = local_evidence(spectrum, alpha=0.03)
    other = cell_evidence(features, moments, fit_intercept=intercept, alpha=0.03)
    assert isinstance(one.solved.trees[0], TreeSpectrum)
    assert isinstance(other.solved.trees[0], TreeFactors)
    for name in ("alpha", "noise_variance", "signal_variance", "log_evidence"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-9)
    np.testing.assert_allclose(other.solved.df(other.alpha), one.solved.df(one.alpha), rtol=1e-9)
    sample, new = moments.sample.rows, rng.normal(size=(50, 3))
    told = [local_posterior(each, sample) for each in (one, other)]
    for which in (
        lambda each: each.mean(new),
        lambda each: each.std(new, noise=True),
        lambda each: each.leave_one_out(sample),
        lambda each: np.sqrt(each.left_out_variances(sample)[1]),
        lambda each: LocalPosterior.from_arrays(features, each.arrays(), ("a", "b")).std(new),
    ):
        np.testing.assert_allclose(which(told[1]), which(told[0]), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("sums", ["float32", "float64"])
@pytest.mark.parametrize("alpha", [None, 1e-15])
def test_where_rounding_limits_the_penalty_few_cells_are_decomposed(rng, monkeypatch, sums, alpha):
    X = rng.uniform(size=(6000, 3))
    y = X @ np.ones((3, 1))  # the smaller the penalty, the higher the evidence
    features = local_map(rng, X, n_cells=64, n_components=30, kernel=rs.Gaussian(3.0))
    moments = accumulate_cells(features, X, y, sums=sums)
    held = [np.arange(64) + 64 * tree for tree in range(features.n_trees)]
    whole = [tree_spectrum(features, moments, tree, True, own) for tree, own in enumerate(held)]
    eta = [tree_eta(moments, True, own, 0.0) for own in held]
    np.testing.assert_allclose(eta, [each.eta for each in whole], rtol=1e-6)
    decomposed = []

    def counted(matrix, of=np.linalg.eigh):
        decomposed.append(len(matrix))
        return of(matrix)

    monkeypatch.setattr(np.linalg, "eigh", counted)
    found = cell_evidence(features, moments, alpha=alpha)
    if sums == "float32":
        np.testing.assert_allclose(found.alpha[:, 0], eta, rtol=TOLERANCE)
        assert len(decomposed) < 64, "the sample, 16 of each tree, and cells that raise its η"
    else:
        assert (found.alpha[:, 0] >= eta).all()


def test_deviations_hardly_show_that_factors_are_kept_in_float32(rng, monkeypatch):
    X, y, w = rows(rng, n=2000)
    features = local_map(rng, X, n_cells=32, n_components=30, dtype="float32")
    moments, new = accumulate_cells(features, X, y, w), rng.normal(size=(200, 3))
    found = [local_posterior(cell_evidence(features, moments))]
    monkeypatch.setattr("rff_stream.cells.evidence.MOST_RATIO", 0.0)
    found.append(local_posterior(cell_evidence(features, moments)))
    kinds = [each.solved.trees[1].inverse_factor.dtype for each in found]
    assert kinds == [np.float32, np.float64]
    monkeypatch.setattr("rff_stream.cells.spectrum.LEAST_VARIANCE", np.inf)
    rounded, exact = (each.std(new) for each in found)
    assert 0 < abs(rounded / exact - 1).max() < 6e-5
    rounded, exact = (each.mean(new) for each in found)  # trees are weighed by deviations
    assert abs(rounded - exact).max() < 6e-5 * abs(exact).max()
    old = found[1].arrays()
    del old["coef"]  # as it was stored before
    read = LocalPosterior.from_arrays(features, old, ("y",))
    np.testing.assert_allclose(read.mean(new), found[1].mean(new), rtol=1e-10, atol=1e-10)


def test_products_in_float32_hardly_move_predictions(rng, monkeypatch):
    X, y, w = rows(rng, n=4000)
    features = local_map(rng, X, n_cells=32, n_components=60, dtype="float32")
    evidence = cell_evidence(features, accumulate_cells(features, X, y, w))
    told = local_posterior(evidence)
    places, alpha, new = range(32), told.alpha[0], rng.normal(size=(700, 3))
    kinds = {told.solved.trees[0].precision(place, alpha) for place in places}
    assert np.dtype(np.float32) in kinds
    mean, variance, _ = told.mean_and_variances(new).T
    monkeypatch.setattr("rff_stream.cells.spectrum.LEAST_VARIANCE", np.inf)
    assert told.solved.trees[0].precision(0, alpha) == np.float64
    exact, plain, _ = told.mean_and_variances(new).T
    moved = abs(variance - plain).max()
    assert 0 < moved < 1e-5 * evidence.signal_variance.max()
    assert abs(mean - exact).max() < 1e-5 * abs(exact).max()


def test_steps_from_a_few_cells_find_the_evidence_of_all(rng):
    X, y, w = rows(rng, n=2000)
    features = local_map(rng, X, n_cells=64, n_components=9)
    moments = accumulate_cells(features, X, y, w)
    best = local_evidence(local_spectrum(features, moments))
    found = cell_evidence(features, moments)
    assert isinstance(found.solved.trees[0], TreeFactors)
    assert abs(np.log(found.alpha / best.alpha)).max() < 2 * TOLERANCE
    assert (best.log_evidence - found.log_evidence).max() < 0.05


def test_as_many_cells_are_factored_as_tell_the_penalty(rng, monkeypatch):
    """Its standard error in them is the tolerance; then all are factored once."""
    X, y, w = rows(rng, n=4000)
    features = local_map(rng, X, n_cells=64, n_components=9)
    moments, counts = accumulate_cells(features, X, y, w), []
    best = local_evidence(local_spectrum(features, moments))

    def counted(*given):
        counts.append(len(given[-1]))
        return factored_tree(*given)

    monkeypatch.setattr("rff_stream.cells.evidence.factored_tree", counted)
    monkeypatch.setattr("rff_stream.cells.evidence.TOLERANCE", 0.25)
    found = cell_evidence(features, moments)
    assert counts.count(64) == 2 and min(counts) < 32  # once in each of two trees
    assert abs(np.log(found.alpha / best.alpha)).max() < 4 * 0.25
    assert found.solved.observations.n == moments.n


@pytest.mark.parametrize("times", [30.0, 3.0])
def test_a_penalty_near_rounding_is_that_of_all_eigenvalues(rng, monkeypatch, times):
    X, y, w = rows(rng, n=2000)
    features = local_map(rng, X, n_cells=64, n_components=9)
    moments = accumulate_cells(features, X, y, w)
    best = cell_evidence(features, moments)
    eta = property(lambda spectrum: float(best.alpha.min()) / times)
    monkeypatch.setattr(TreeSpectrum, "eta", eta)
    found = cell_evidence(features, moments)
    assert isinstance(found.solved.trees[0], TreeFactors)
    assert abs(np.log(found.alpha / best.alpha)).max() < 2 * TOLERANCE


def test_without_noise_the_eigenvalues_of_every_cell_tell_the_penalty(rng):
    """The penalty is then the rounding of the sums, which a few cells do not tell."""
    X = rng.uniform(-1, 1, (2000, 1))
    features = local_map(rng, X, kernel=rs.Gaussian(0.5), n_cells=32, n_components=12)
    moments = accumulate_cells(features, X, np.sin(X))
    found, spectrum = cell_evidence(features, moments), local_spectrum(features, moments)
    etas = np.array([[tree.eta] for tree in spectrum.trees])
    assert isinstance(found.solved.trees[0], TreeFactors)
    assert (found.alpha >= etas * (1 - 1e-12)).all()
    given = cell_evidence(features, moments, alpha=etas.min() / 2)
    np.testing.assert_allclose(given.alpha, etas, rtol=1e-12)
    told = [local_posterior(each) for each in (found, local_evidence(spectrum, alpha=etas.max()))]
    for each in told:
        assert abs(each.mean(X) - np.sin(X)).max() < 1e-6


def test_sums_at_rest_in_float32_are_as_wrong_as_their_bound_says(rng):
    """Counts and targets stay exact, as Q is what is left of Σwy² where there is little noise."""
    X, y, w = rows(rng, n=6000, targets=2)
    features = local_map(rng, X, n_cells=4, n_components=9, dtype="float32")
    row = plain_cell_row(features, 2)

    def summed(at_rest, parts):
        values = []
        for part in np.array_split(np.arange(len(X)), parts):
            sink = CellAccumulator(features, row, sums="float32", at_rest=at_rest)
            sink.add(X[part], y[part], w[part], part)
            values.append(sink.result())
        return functools.reduce(operator.iadd, values)

    exact, few, many = summed("float64", 8), summed("float32", 8), summed("float32", 40)
    assert (exact.sums.dtype, few.sums.dtype, many.sums.dtype) == ("f8", "f4", "f8")
    assert (few.roundings, many.roundings) == (7, 0)
    assert (few.borders == exact.borders).all() and (few.counts == exact.counts).all()
    assert (few.matrices()[:, 9:, 9:] == exact.borders).all()
    diagonal = np.einsum("kii->ki", exact.matrices())
    most = np.sqrt(diagonal[:, :, None] * diagonal[:, None])  # of Σ w|aᵢaⱼ|, by Cauchy
    wrong = abs(few.matrices() - exact.matrices())
    assert 0 < (wrong / most).max() <= (few.roundings + 1) * 2.0**-24
    one, other = (
        local_posterior(local_evidence(local_spectrum(features, each), alpha=0.1))
        for each in (few, exact)
    )
    assert abs(one.mean(X) - other.mean(X)).max() < 1e-3 * other.std(X).min()
    np.testing.assert_allclose(one.std(X), other.std(X), rtol=1e-5)


def test_the_rows_of_a_cell_tell_how_sums_are_kept():
    waiting = waiting_rows(64, 5)
    assert precision_at_rest("float32", 16 * waiting, 64, 5) == "float32"
    assert precision_at_rest("float32", 16 * waiting + 1, 64, 5) == "float64"
    assert precision_at_rest("float64", 1000, 64, 5) == "float64"


def test_generalised_cross_validation_is_that_of_dense_fits(rng):
    X, y, w = rows(rng, n=200, targets=2)
    features = local_map(rng, X, n_components=7, dtype="float64")
    spectrum = local_spectrum(features, accumulate_cells(features, X, y, w, sums="float64"))
    alphas, n = np.array([1e-2, 1.0, 30.0]), len(X)
    scores = cell_gcv(spectrum, alphas)
    for tree, cells in enumerate(features.route(X)):
        for alpha, found in zip(alphas, scores[tree], strict=True):
            df, scatter = 0.0, 0.0
            for cell in np.unique(cells):
                own = cells == cell
                root = np.sqrt(w[own])[:, None]
                z = features.columns(tree, cell, X[own])
                A = root * np.column_stack([z, np.ones(len(z))])
                penalty = np.diag([alpha] * 7 + [0.0])
                hat = A @ np.linalg.solve(A.T @ A + penalty, A.T)
                residual = root * y[own] - hat @ (root * y[own])
                df, scatter = df + np.trace(hat), scatter + (residual**2).sum(axis=0)
            expected = scatter / w.sum() / (1 - df / n) ** 2
            np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_evidence_finds_the_alpha_of_highest_log_p(rng):
    X, y, w = rows(rng)
    features = local_map(rng, X)
    spectrum = local_spectrum(features, accumulate_cells(features, X, y, w))
    found = local_evidence(spectrum)
    # at least most of the noise of 0.1²; at most that and a quarter of what few columns leave out
    assert found.noise_variance.min() > 0.05**2
    assert found.noise_variance.max() < 0.1**2 + y.var() / 4
    for factor in (0.7, 1.4):
        for tree in range(2):
            other = local_evidence(spectrum, alpha=found.alpha[tree] * factor)
            assert other.log_evidence[tree] < found.log_evidence[tree]
    df = spectrum.df(found.alpha)
    assert df.shape == (2, 1) and (df > 4).all() and (df < 4 * 13).all()


def test_trees_are_weighed_and_calibrated_on_left_out_rows(rng):
    X, y, _ = rows(rng, n=600)
    features = local_map(rng, X)
    moments = accumulate_cells(features, X, y, sample_rows=500)
    found = local_evidence(local_spectrum(features, moments))
    plain, posterior = local_posterior(found), local_posterior(found, moments.sample.rows)
    assert plain.power == 1.0 and plain.inflation == 1.0
    sample = moments.sample.rows
    errors = posterior.leave_one_out(sample)
    mean, (_, of_f, noise) = posterior.left_out(sample)[0], posterior.left_out_variances(sample)
    spread = np.sqrt(of_f + noise)
    assert np.mean(abs(errors) <= 1.96 * spread) == pytest.approx(0.95, abs=0.01)
    assert abs(errors - (sample[:, 3:4] - mean)).max() == 0
    new = rng.normal(size=(400, 3))
    truth = np.sin(2 * new[:, :1]) + new[:, 1:2] + 5
    trees = [tree.mean for tree in posterior._of_trees(new)]
    single = np.mean([(tree - truth) ** 2 for tree in trees])
    assert np.mean((posterior.mean(new) - truth) ** 2) < single
    assert (posterior.std(new, noise=True) > posterior.std(new)).all()
    again = pickle.loads(pickle.dumps(posterior))
    assert (again.mean(new) == posterior.mean(new)).all()


def test_inputs_that_do_nothing_leave_intervals_as_they_are():
    """Each of 500 length-scales counted as found from 50 rows: deviations were 5 times as large."""
    rng = np.random.default_rng(100)
    X = rng.normal(size=(1050, 500))
    y = X[:, :3].sum(axis=1) + 0.3 * rng.normal(size=1050)
    model = rs.GaussianProcessRegressor(random_state=0, progress=False).fit(X[:50], y[:50])
    mean, std = model.predict(X[50:], return_std=True)
    assert 0.6 < np.sqrt(np.mean(((y[50:] - mean) / std) ** 2)) < 1.2  # .18
    assert model.choice_.n_free < 20


@pytest.mark.parametrize("weight", [1.0, 7.0])
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_function_does_not_follow_one_very_large_target(tmp_path, seed, weight):
    """Its RMSE was 25 times that of the mean, without a warning: α was 1e-12."""
    rng = np.random.default_rng(seed)
    X, new = rng.uniform(-2, 2, (400, 3)), rng.uniform(-2, 2, (500, 3))
    y, truth = (np.sin(2 * each[:, 0]) + each[:, 1] / 2 for each in (X, new))
    y = y + 0.1 * rng.normal(size=400)
    y[0] = -9999.0
    model = rs.GaussianProcessRegressor(random_state=seed, progress=False)
    with pytest.warns(NumericalWarning, match="Least squares follows such rows"):
        model.fit(X, y, np.full(400, weight))
    assert model.choice_.least_alpha >= 0.05 * weight  # of what left-out errors say
    assert model.alpha_ >= model.choice_.least_alpha * (1 - 1e-12)
    error, of_mean = (np.sqrt(np.mean((p - truth) ** 2)) for p in (model.predict(new), y.mean()))
    assert error < 1.1 * of_mean  # 423 to 655 for 25
    model.save(tmp_path / "model", moments=True)
    loaded = rs.load(tmp_path / "model")
    assert loaded.choice_.least_alpha == model.choice_.least_alpha
    with pytest.warns(NumericalWarning, match="Least squares follows such rows"):
        loaded.update(X[:50] + 0.01, y[50:100], batch="later")
    assert loaded.alpha_ >= model.choice_.least_alpha * (1 - 1e-12)


@pytest.mark.parametrize("seed", [1, 2])
def test_inputs_that_depend_on_others_leave_intervals_as_they_are(seed):
    """Of 80 combinations of three inputs 159 or 314 numbers counted: intervals covered 99.9 %."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1300, 3))
    y = x[:, 0] + np.sin(2 * x[:, 1]) + 0.2 * rng.normal(size=1300)
    for mixed in np.tile(np.eye(3), (1, 20)), rng.normal(size=(3, 80)):
        model = rs.GaussianProcessRegressor(random_state=0, progress=False)
        mean, std = model.fit(x[:300] @ mixed, y[:300]).predict(x[300:] @ mixed, return_std=True)
        assert model.choice_.n_free <= 6
        assert 0.85 < np.sqrt(np.mean(((y[300:] - mean) / std) ** 2)) < 1.15  # .57 to .77


def test_variances_grow_by_what_numbers_found_on_the_same_rows_save(rng):
    X = rng.normal(size=(200, 2))
    y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(200, 1))
    features = LocalFeatures.sample(
        rs.Gaussian((1.0, 2.0)), X, n_cells=1, n_trees=1, n_components=64, rng=1
    )
    moments = accumulate_cells(features, X, y, sample_rows=200)
    evidence = cell_evidence(features, moments)
    for sample in moments.sample.rows, moments.sample.rows[:50]:  # fewer calibrate nothing
        plain, found = (local_posterior(evidence, sample, optimism=each) for each in (0.0, 0.1))
        np.testing.assert_allclose(found.inflation**2, 1.2 * plain.inflation**2, rtol=1e-12)
    turned = replace(features, encoding=Projection(np.eye(2) + 0.5, np.zeros(2)))
    plain_record = {"taken": "one", "n_rows": 200, "trials": []}
    searched, one = (
        {"choice": np.frombuffer(json.dumps(plain_record | more).encode(), np.uint8).astype(int)}
        for more in ({}, {"n_free": 1})
    )  # older stores do not say it
    asked = [(features, {}), (features, searched), (turned, searched), (features, one)]
    counts = [numbers_found(Totals(each, {}, moments, scales=of), 100) for each, of in asked]
    assert counts == [0, 2, 3, 1]
    # Of many directions an eighth of the rows gave the slopes, and no more numbers
    wide = replace(features, encoding=Projection(np.eye(80)[:, :60], np.zeros(80)))
    assert numbers_found(Totals(wide, {}, moments, scales=searched), 100) == 100 / SEEN


def test_a_row_that_is_its_own_landmark_has_an_error_of_its_size(rng):
    """Columns rounded to float32 made sums that say a leverage ≥ 1, and an error of 1e9."""
    X = np.concatenate([rng.normal(size=(2000, 3)) * 0.01, rng.normal(size=(40, 3)) * 3])
    y = np.sin(X[:, :1]) + 0.01 * rng.normal(size=(len(X), 1))
    features = LocalFeatures.sample(
        rs.Gaussian(0.3), X, n_cells=8, n_trees=2, n_components=128, rng=1
    )
    moments = accumulate_cells(features, X, y, sample_rows=2040)
    evidence = local_evidence(local_spectrum(features, moments), alpha=1e-9)
    posterior = local_posterior(evidence, moments.sample.rows)
    rows, w = moments.sample.rows, np.ones((len(moments.sample.rows), 1))
    for tree, cells in enumerate(features.route(rows[:, :3])):
        found = posterior._of_rows(tree, cells, rows[:, :3], w)
        spread, least = found.spread, found.rest
        assert (least > 0).all() and (least <= 1).all()
        exact = spread < 0.5
        assert (least[exact] <= (1 - spread)[exact] + 1e-3).all()


def test_variances_follow_the_cells_where_data_vary_more_in_one_place(rng):
    """Noise of .1 on one side and .6 on the other: intervals cover on both."""
    X = rng.uniform(-1, 1, (6000, 1))
    level = np.where(X < 0, 0.1, 0.6)
    y = np.sin(6 * X) + level * rng.normal(size=X.shape)
    features = LocalFeatures.sample(
        rs.Gaussian(0.3), X, n_cells=16, n_trees=2, n_components=12, rng=0, dtype="float64"
    )
    moments = accumulate_cells(features, X[:4000], y[:4000], sample_rows=1000)
    found = local_evidence(local_spectrum(features, moments))
    posterior = local_posterior(found, moments.sample.rows)
    assert np.median(abs(np.array(posterior.cell_scale) - 1)) > 0.5
    inside = abs(y[4000:] - posterior.mean(X[4000:])) < 1.96 * posterior.std(X[4000:], noise=True)
    sides = [inside[(X[4000:] < 0) == left].mean() for left in (True, False)]
    assert sides == pytest.approx([0.95, 0.95], abs=0.025)  # 1,000 rows each: ±.014 at 95 %
    again = LocalPosterior.from_arrays(features, posterior.arrays(), ("y0",))
    assert (again.std(X[:50]) == posterior.std(X[:50])).all()

    even = accumulate_cells(features, X, np.sin(6 * X) + 0.3 * rng.normal(size=X.shape))
    plain = local_evidence(local_spectrum(features, even))
    scales = np.array(local_posterior(plain, moments.sample.rows).cell_scale)
    assert abs(scales - 1).max() < 0.25  # noise of 375 rows: ±.073


def test_a_factor_from_rows_beside_others_is_not_applied_in_a_gap(rng):
    X = rng.uniform(-1, 1, (3000, 1))
    y = np.sin(6 * X) + 0.1 * rng.normal(size=X.shape)
    features = LocalFeatures.sample(rs.Gaussian(0.3), X, n_cells=4, n_trees=2, rng=0)
    moments = accumulate_cells(features, X, y, sample_rows=500)
    found = local_evidence(local_spectrum(features, moments))
    posterior = local_posterior(found, moments.sample.rows)
    narrow = replace(posterior, inflation=np.array([0.5]), of_function=np.array([0.5]))
    far, raw = np.full((1, 1), 9.0), np.sqrt(posterior.moments(np.full((1, 1), 9.0))[1])
    assert narrow.std(far) == pytest.approx(raw)
    # the noise of a row is that of rows beside others, wherever it is
    total = narrow.std(far, noise=True) ** 2 - raw**2
    whole = replace(narrow, inflation=np.ones(1))
    assert total == pytest.approx(0.25 * (whole.std(far, noise=True) ** 2 - raw**2))
    variance = narrow.moments(X)[1]
    trees = np.array([tree.variance for tree in narrow._of_trees(X)])
    beside = trees.max(axis=0) <= narrow.near
    assert 0.5 < beside.mean() < 0.9
    assert (narrow.std(X) / np.sqrt(variance))[beside] == pytest.approx(0.5)
    wide = replace(posterior, of_function=np.array([1.5]))
    assert wide.std(far) == pytest.approx(1.5 * raw)
    told = replace(narrow, gap_factor=1.2)
    assert told.std(far) == pytest.approx(1.2 * raw)
    again = LocalPosterior.from_arrays(features, told.arrays(), ("y",))
    assert (again.std(X, noise=True) == told.std(X, noise=True)).all()


@pytest.mark.parametrize("gap_factor", [0.8, 1.0, 1.3])
def test_the_factor_is_the_least_that_covers_a_row(rng, gap_factor):
    wanted, variance, noise = rng.uniform(0, 4, (3, 500, 1))
    far = rng.choice([0.0, 0.3, 1.0], (500, 1))
    c = cell_calibration._needed_factor(wanted, variance, noise, far, gap_factor)
    total = c**2 * noise + (c + np.maximum(gap_factor - c, 0) * far) ** 2 * variance
    covered = (gap_factor * far) ** 2 * variance >= wanted
    assert (c[covered] == 0).all() and covered.any()
    assert total[~covered] == pytest.approx(wanted[~covered])


def test_far_from_the_data_the_variance_is_the_prior_s(rng):
    X, y, _ = rows(rng)
    features = local_map(rng, X)
    found = local_evidence(local_spectrum(features, accumulate_cells(features, X, y)))
    far = local_posterior(found).std(np.full((1, 3), 500.0))
    assert far**2 == pytest.approx(found.signal_variance.mean(), rel=0.3)
    assert far**2 > 0.99 * found.signal_variance.min()


def test_cross_validation_by_folds_is_that_of_separate_fits(rng):
    X, y, w = rows(rng)
    features = local_map(rng, X, nugget=1e-6)
    row, fold = plain_cell_row(features, 1), np.arange(len(X)) % 3
    parts = [
        accumulate_cells(features, X[fold == k], y[fold == k], w[fold == k], row=row)
        for k in range(3)
    ]
    alphas = np.array([0.1, 3.0])
    losses = cross_validate_cells(features, parts, alphas)
    for k in range(3):
        train = fold != k
        for tree in range(2):
            for a, alpha in enumerate(alphas):
                loss, cells = 0.0, features.route(X)[tree]
                for cell, _, fit in fits_of(
                    features, tree, X[train], y[train, 0], w[train], alpha, True
                ):
                    held = (cells == cell) & ~train
                    U = features.landmark_rows(tree, cell)
                    Z = reference.columns(features.kernel, U, X[held], features.nugget)
                    loss += (w[held] * (y[held, 0] - fit.mean(Z)) ** 2).sum()
                assert losses[k, tree, a, 0] == pytest.approx(loss, rel=1e-7)
    with pytest.raises(ValueError, match="at least 2"):
        cross_validate_cells(features, parts[:1], alphas)


def test_one_cell_is_the_nystroem_map(rng):
    X, y, _ = rows(rng)
    features = local_map(rng, X, n_cells=1, n_trees=1, n_components=40)
    U = features.landmark_rows(0, 0)
    nystroem = rs.NystroemFeatures.sample(features.kernel, U, 40, dtype="float64")
    model = rs.KernelRidge(features=nystroem, alpha=0.2).fit(X, y[:, 0])
    spectrum = local_spectrum(features, accumulate_cells(features, X, y))
    posterior = local_posterior(local_evidence(spectrum, alpha=0.2))
    new = rng.normal(size=(30, 3))
    assert abs(posterior.mean(new)[:, 0] - model.predict(new)).max() < 1e-6  # the nugget, 1e-10


def test_with_a_landmark_at_every_row_it_is_the_exact_process_of_the_cell(rng):
    X, y, _ = rows(rng, n=60)
    features = local_map(rng, X, n_cells=2, n_trees=1, n_components=60)
    alpha, posterior = 0.1, None
    spectrum = local_spectrum(features, accumulate_cells(features, X, y), fit_intercept=False)
    posterior = local_posterior(local_evidence(spectrum, alpha=alpha))
    new = rng.normal(size=(20, 3))
    for cell in range(2):
        own, at = features.route(X)[0] == cell, features.route(new)[0] == cell
        K = features.kernel(X[own], X[own]) + alpha * np.eye(own.sum())
        cross = features.kernel(new[at], X[own])
        exact = cross @ np.linalg.solve(K, y[own])
        assert abs(posterior.mean(new[at]) - exact).max() < 1e-6
        signal = posterior.noise_variance[0] / alpha
        variance = signal * (1 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T)))
        assert abs(posterior.moments(new[at])[1][:, 0] - variance).max() < 1e-6 * signal


def test_more_cells_than_rows_are_refused_with_the_remedy(rng):
    X, y, _ = rows(rng, n=3)
    features = local_map(rng, X, n_components=2)
    spectrum = local_spectrum(features, accumulate_cells(features, X, y))
    with pytest.raises(ValueError, match=r"3 rows in 3 cells.*Use fewer cells"):
        local_evidence(spectrum)
    with pytest.raises(ValueError, match="hold 0 rows"):
        local_spectrum(features, CellMoments.zero(plain_cell_row(features, 1), 2, 4))


# one product instead of two


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kernel", [KERNELS[1], KERNELS[3], Linear() + rs.Matern(1.0)])
def test_one_product_tells_what_two_tell(rng, kernel, intercept):
    X, y, w = rows(rng, n=900, targets=2)
    features = local_map(rng, X, kernel, n_cells=32, n_components=11, nugget=1e-6)
    moments = accumulate_cells(features, X, y, w)
    told = local_posterior(cell_evidence(features, moments, fit_intercept=intercept, alpha=0.03))
    new = np.vstack([rng.normal(size=(200, 3)), 50 * rng.normal(size=(3, 3))])
    dense = told.for_rows(10**6)
    two, one = told._of_trees(new), dense._of_trees(new)
    assert len(dense.forms) >= 48 and all(form is not None for form in dense.forms.values())
    assert {form.factor.dtype for form in dense.forms.values()} == {np.dtype(np.float64)}
    largest = np.diag(kernel(new, new))[:, None]
    for a, b in zip(one, two, strict=True):
        signal = b.noise / 0.03
        # Differences of numbers as large as k(x, x), by W and by L⁻¹, which enlarges by 1e3.
        assert (abs(a.variance - b.variance) < 1e-11 * largest * signal).all()
        assert (abs(a.mean - b.mean) < 1e-9 * np.sqrt(largest) * abs(y).max()).all()
        assert (a.scale == b.scale).all()


def test_one_product_in_float32_moves_predictions_as_little_as_its_bound_says(rng):
    X, y, _ = rows(rng, n=4000)
    features = local_map(rng, X, KERNELS[1], n_cells=32, n_components=60, dtype="float32")
    told = local_posterior(cell_evidence(features, accumulate_cells(features, X, y)))
    dense, new = told.for_rows(10**6), 0.8 * rng.normal(size=(700, 3))
    one = dense._of_trees(new)
    kinds = {form.factor.dtype for form in dense.forms.values()}
    assert kinds == {np.dtype(np.float32)}
    for tree, found in enumerate(one):
        cells = told.solved.trees[tree]
        exact = replace(cells, inverse_factor=cells.inverse_factor.astype(np.float64))
        trees = list(told.solved.trees)
        trees[tree] = exact
        wide = replace(told, solved=replace(told.solved, trees=tuple(trees)))._of_trees(new)[tree]
        assert 0 < abs(found.variance / wide.variance - 1).max() < MOST_MOVED
        moved = abs(found.mean - wide.mean) / np.sqrt(wide.variance)
        assert 0 < moved.max() < MOST_MOVED


def test_a_cell_whose_variances_rounding_would_decide_is_told_by_two_products(rng):
    X, _, _ = rows(rng, n=1000)
    y = X[:, :1] + 0.5 * X[:, 1:2]  # no noise
    features = local_map(rng, X, n_cells=32, n_components=40)
    told = local_posterior(cell_evidence(features, accumulate_cells(features, X, y), alpha=1e-13))
    dense = told.for_rows(10**6)
    assert (dense.std(X) == told.std(X)).all()
    assert None in dense.forms.values()


def test_rows_in_all_decide_and_not_those_of_a_call(rng):
    X, y, _ = rows(rng, n=900)
    features = local_map(rng, X, n_cells=32, n_components=10)
    told = local_posterior(cell_evidence(features, accumulate_cells(features, X, y)))
    few = ROWS_A_COLUMN * 10 * 32
    told.for_rows(int(few) - 1).std(X[:9])
    assert not told.forms
    before = set(features._factors)
    every = told.for_rows(int(few)).mean_and_variances(X)
    assert told.forms and before >= set(features._factors)  # one factor in place of the other
    assert not pickle.loads(pickle.dumps(told)).forms
    parts = [told.for_rows(10**6).mean_and_variances(part) for part in np.array_split(X, 7)]
    np.testing.assert_allclose(np.vstack(parts), every, rtol=1e-9)
