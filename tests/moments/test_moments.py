"""Moments are an abelian group; every view of them equals what a dense sum over rows gives."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import reference
from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError
from rff_stream.features import FourierFeatures
from rff_stream.hashes import hash_places
from rff_stream.kernels import Gaussian
from rff_stream.moments import N_PARTS, AugmentedRow, Moments, pack, packed_size, total, unpack
from rff_stream.moments.accumulate import accumulate
from rff_stream.moments.moments import rows_in_pairs
from rff_stream.moments.row_sample import RowSample
from rff_stream.store.batch_reading import SumInPlace

R, T, D = 4, 3, 3


def row_of(**changes: Any) -> AugmentedRow:
    fields: dict[str, Any] = {
        "map_fingerprint": "f" * 64,
        "prior": np.full(R, 2 / R),
        "nesting": "average",
        "feature_origin": np.zeros(R),
        "target_origin": np.zeros(T),
        "target_scale": np.ones(T),
        "inputs": ("a", "b", "c"),
        "targets": ("s", "t", "u"),
        "units": ("m", "m", "K", "W", "", "J"),
    }
    return AugmentedRow(**(fields | changes))


ROW = row_of()
whole = st.integers(-1000, 1000).map(float)


@st.composite
def states(draw: st.DrawFn, order: int = 2, start: int = 0) -> Moments:
    """Whole numbers: their sums are exact in float64, so laws hold without a tolerance."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    parts = None
    sums = rng.integers(-1000, 1000, packed_size(ROW.width)).astype(float)
    if order == 1:
        parts = rng.integers(-1000, 1000, (N_PARTS, ROW.width)).astype(float)
        sums = parts.sum(axis=0)
    n = draw(st.integers(0, 40))
    keys = hash_places(np.arange(start, start + n))
    sample = RowSample.of(1000, keys, rng.normal(size=(n, D + T + 1)))
    return Moments(ROW, order, sums, n, float(draw(whole)), float(draw(whole)), parts, sample)


def same(a: Moments, b: Moments) -> bool:
    parts = (a.parts is None) == (b.parts is None)
    if parts and a.parts is not None and b.parts is not None:
        parts = np.array_equal(a.parts, b.parts)
    return (
        parts
        and np.array_equal(a.sums, b.sums)
        and (a.n, a.order, a.squared_weight, a.log_weight)
        == (b.n, b.order, b.squared_weight, b.log_weight)
        and np.array_equal(a.sample.keys, b.sample.keys)
        and np.array_equal(a.sample.rows, b.sample.rows)
        and a.row.fingerprint == b.row.fingerprint
    )


# ------------------------------------------------------------------------------------- the group


@pytest.mark.parametrize("order", [1, 2])
@given(data=st.data())
def test_moments_form_an_abelian_group(order: int, data: st.DataObject) -> None:
    a, b, c = (data.draw(states(order, 100 * i)) for i in range(3))
    zero = Moments.zero(ROW, order)
    assert same((a + b) + c, a + (b + c))
    assert same(a + b, b + a)
    assert same(a + zero, a)
    assert same(zero + a, a)
    assert same((a + b) - b, a)
    assert np.array_equal((a - b).sums, (a + -b).sums)
    assert same(total([a, b, c]), a + b + c)


@pytest.mark.parametrize("order", [1, 2])
@given(data=st.data(), power=st.integers(-20, 20))
def test_scaling_multiplies_weights_and_counts_the_same_rows(
    order: int, data: st.DataObject, power: int
) -> None:
    a, b = (data.draw(states(order, 100 * i)) for i in range(2))
    c = 2.0**power
    scaled = a.scale(c)
    assert np.array_equal(scaled.sums, c * a.sums)
    assert (scaled.n, scaled.squared_weight) == (a.n, c * c * a.squared_weight)
    assert scaled.log_weight == a.log_weight + a.n * float(np.log(c))
    assert np.array_equal(scaled.sample.rows[:, -1], c * a.sample.rows[:, -1])
    assert np.array_equal((a + b).scale(c).sums, (a.scale(c) + b.scale(c)).sums)
    assert np.array_equal(a.scale(c).scale(1 / c).sums, a.sums)


@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan, np.inf])
def test_weights_are_scaled_by_finite_positive_numbers_only(factor: float) -> None:
    with pytest.raises(ValueError, match="factor="):
        Moments.zero(ROW).scale(factor)


def test_the_count_is_exact_where_a_float_is_not() -> None:
    big = replace(Moments.zero(ROW), n=2**53)
    one = replace(Moments.zero(ROW), n=1)
    assert (big + one + one - big).n == 2
    assert isinstance((big + one).n, int)


def test_addition_changes_neither_summand() -> None:
    rng = np.random.default_rng(0)
    a, b = (collected(rng.normal(size=(50, D)), rng.normal(size=(50, T))) for _ in range(2))
    before = copy.deepcopy((a, b))
    _ = a + b, a - b, a.scale(3.0), -a, a.leading(2), a.with_targets([1])
    running = SumInPlace()
    for each in (a, b, a):
        running.add(each)
    assert running.value is not None and same(running.value, a + b + a)
    assert same(a, before[0])
    assert same(b, before[1])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"map_fingerprint": "e" * 64}, "feature map"),
        ({"inputs": ("a", "b", "d")}, "names of inputs.*'c'.*'d'"),
        ({"inputs": ("a", "c", "b")}, "names of inputs"),
        ({"targets": ("t", "s", "u")}, "names of targets"),
        ({"units": ("m", "m", "degC", "W", "", "J")}, "units.*'K'.*'degC'"),
        ({"target_origin": np.array([0.0, 1.0, 0.0])}, r"target origin.*\[0.0, 0.0, 0.0\].*1.0"),
        ({"target_scale": np.array([1.0, 2.0, 1.0])}, "target scale"),
        ({"feature_origin": np.full(R, 0.5)}, "feature origin"),
        ({"prior": np.full(R, 1.0)}, "prior"),
        ({"prior": np.ones(6), "feature_origin": np.zeros(6)}, "number of features"),
    ],
)
def test_a_merge_that_makes_no_sense_names_what_differs(
    changes: dict[str, Any], named: str
) -> None:
    a, b = Moments.zero(ROW), Moments.zero(row_of(**changes))
    with pytest.raises(ModelError, match=named):
        a + b
    with pytest.raises(ModelError, match=named):
        a - b


def test_orders_do_not_merge() -> None:
    with pytest.raises(ModelError, match="order 2 and 1"):
        Moments.zero(ROW, 2) + Moments.zero(ROW, 1)


@pytest.mark.parametrize("other", [0, None, np.zeros(3), "moments"])
def test_only_moments_are_added_to_moments(other: Any) -> None:
    with pytest.raises(TypeError, match="Moments cannot be added to"):
        Moments.zero(ROW) + other


# ------------------------------------------------------------------------------ against dense sums


FEATURES = FourierFeatures.sample(Gaussian(1.0), D, 12, rng=0, dtype="float64")


def collected(x: Array, y: Array, w: Array | None = None, **options: Any) -> Moments:
    return accumulate(FEATURES, x, y, w, row=origins_row(FEATURES), **options)


def origins_row(features: FourierFeatures) -> AugmentedRow:
    """Origins that are not 0 and scales that are not 1: nothing must depend on them."""
    rng = np.random.default_rng(5)
    return AugmentedRow(
        map_fingerprint=features.fingerprint,
        prior=features.prior(),
        nesting=features.nesting,
        feature_origin=rng.uniform(-0.5, 0.5, features.n_components),
        target_origin=np.array([10.0, -3.0, 0.0]),
        target_scale=np.array([4.0, 0.25, 1.0]),
        inputs=("a", "b", "c"),
        targets=("s", "t", "u"),
        units=("m", "m", "K", "W", "J", ""),
    )


@pytest.fixture
def xyw(rng: np.random.Generator) -> tuple[Float64, Float64, Float64]:
    return rng.normal(size=(700, D)), rng.normal(10, 3, size=(700, T)), rng.uniform(0.1, 3, 700)


Rows = tuple[Float64, Float64, Float64]


@pytest.mark.parametrize("order", [1, 2])
def test_means_and_weights_are_those_of_the_rows(xyw: Rows, order: int) -> None:
    x, y, w = xyw
    found = collected(x, y, w, order=order)
    Z = FEATURES(x)
    assert found.n == 700
    assert found.weight == pytest.approx(w.sum(), rel=1e-13)
    assert found.squared_weight == pytest.approx((w**2).sum(), rel=1e-13)
    assert found.log_weight == pytest.approx(np.log(w).sum(), rel=1e-12)
    assert np.allclose(found.feature_mean(), np.average(Z, axis=0, weights=w), atol=1e-13)
    assert np.allclose(found.target_mean(), np.average(y, axis=0, weights=w), rtol=1e-13)


def test_leading_equals_the_moments_of_the_smaller_map(xyw: Rows) -> None:
    x, y, w = xyw
    for order, r in itertools.product([1, 2], [2, 6, 12]):
        small = FourierFeatures.sample(Gaussian(1.0), D, r, rng=0, dtype="float64")
        assert np.array_equal(small(x), FEATURES(x)[:, :r]), "the map nests"
        full = collected(x, y, w, order=order, sample_rows=9).leading(r)
        row = replace(
            origins_row(FEATURES), feature_origin=full.row.feature_origin, prior=small.prior()
        )
        expected = accumulate(small, x, y, w, row=row, order=order, sample_rows=9)
        assert np.allclose(full.row.prior, small.prior(), rtol=1e-15)
        assert np.allclose(full.sums, expected.sums, rtol=1e-12, atol=1e-12 * 700)
        assert (full.n, full.squared_weight) == (expected.n, expected.squared_weight)
        assert np.array_equal(full.sample.rows, expected.sample.rows)


def test_leading_twice_is_leading_once(xyw: Rows) -> None:
    x, y, w = xyw
    found = collected(x, y, w)
    once, twice = found.leading(2), found.leading(6).leading(2)
    assert np.array_equal(once.sums, twice.sums)
    assert np.allclose(once.row.prior, twice.row.prior, rtol=1e-15)
    assert once.row.map_fingerprint == twice.row.map_fingerprint


@pytest.mark.parametrize("r", [0, -1, 13])
def test_leading_refuses_what_is_not_there(xyw: Rows, r: int) -> None:
    with pytest.raises(ValueError, match="1 to 12"):
        collected(*xyw).leading(r)


def test_leading_refuses_maps_that_do_not_nest() -> None:
    binned = Moments.zero(row_of(nesting="none"))
    assert binned.leading(R).n == 0
    with pytest.raises(ValueError, match="not a map by themselves"):
        binned.leading(2)


def test_the_prior_of_a_prefix_map_is_a_prefix() -> None:
    row = row_of(nesting="prefix", prior=np.array([4.0, 3.0, 2.0, 1.0]))
    assert row.leading(2).prior.tolist() == [4.0, 3.0]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("chosen", [[0], [2], [0, 2], [2, 0], [2, 1, 0], []])
def test_with_targets_equals_moments_of_those_targets(
    xyw: Rows, order: int, chosen: list[int]
) -> None:
    x, y, w = xyw
    some = collected(x, y, w, order=order, sample_rows=20).with_targets(chosen)
    row = origins_row(FEATURES)
    expected = accumulate(
        FEATURES,
        x,
        y[:, chosen],
        w,
        order=order,
        row=replace(
            row,
            target_origin=row.target_origin[chosen],
            target_scale=row.target_scale[chosen],
            targets=tuple(row.targets[i] for i in chosen),
            units=row.units[:D] + tuple(row.units[D + i] for i in chosen),
        ),
        sample_rows=20,
    )
    assert some.row.fingerprint == expected.row.fingerprint
    assert np.allclose(some.sums, expected.sums, rtol=1e-12, atol=1e-10)
    assert np.allclose(some.target_mean(), expected.target_mean())
    columns = [*range(D), *(D + i for i in chosen), D + T]
    whole_sample = collected(x, y, w, sample_rows=20).sample
    assert np.array_equal(some.sample.rows, whole_sample.rows[:, columns])


@pytest.mark.parametrize("chosen", [[3], [-1], [0, 0]])
def test_with_targets_refuses_positions_that_are_not_there(xyw: Rows, chosen: list[int]) -> None:
    with pytest.raises(ValueError, match="targets"):
        collected(*xyw).with_targets(chosen)


def test_the_matrix_is_the_dense_sum(xyw: Rows) -> None:
    x, y, w = xyw
    row = origins_row(FEATURES)
    a = reference.augmented(FEATURES(x), y, row.feature_origin, row.target_origin)
    found = collected(x, y, w).matrix()
    assert np.array_equal(found, found.T)
    assert (np.abs(found - reference.second_moments(a, w)) <= reference.rounding_bound(a, w)).all()


def test_a_matrix_of_first_moments_is_refused(xyw: Rows) -> None:
    with pytest.raises(ValueError, match=r"order=1.*order=2"):
        collected(*xyw, order=1).matrix()


@pytest.mark.parametrize("order", [1, 2])
def test_a_mean_of_nothing_is_refused(order: int) -> None:
    empty = Moments.zero(ROW, order)
    for mean in (empty.feature_mean, empty.target_mean):
        with pytest.raises(ValueError, match="0 rows"):
            mean()


def test_the_sub_sums_of_first_moments_add_up(xyw: Rows) -> None:
    x, y, w = xyw
    found = collected(x, y, w, order=1)
    assert found.parts is not None
    assert found.parts.shape == (N_PARTS, FEATURES.n_components + 1 + T)
    assert np.array_equal(found.parts.sum(axis=0), found.sums)
    # contiguous runs: part i holds the rows at places [i·n/32, (i + 1)·n/32)
    edges = -(-np.arange(N_PARTS + 1) * 700 // N_PARTS)
    expected = np.add.reduceat(w, edges[:-1])
    assert np.allclose(found.parts[:, FEATURES.n_components], expected, rtol=1e-12)


# ------------------------------------------------------------------------------ rest and transport


@given(hnp.arrays(np.float64, st.integers(1, 12).map(lambda p: (p, p)), elements=whole))
def test_packing_keeps_one_triangle(matrix: Float64) -> None:
    symmetric = np.triu(matrix) + np.triu(matrix, 1).T
    packed = pack(matrix)
    assert len(packed) == packed_size(len(matrix))
    assert np.array_equal(unpack(packed, len(matrix)), symmetric)
    assert packed.tolist() == matrix[np.triu_indices(len(matrix))].tolist()


@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 99))
def test_rows_of_halves_come_back_in_pairs(count: int, border: int, seed: int) -> None:
    """From the upper triangle alone: what is below is NaN."""
    width = 2 * count + border
    matrix = np.random.default_rng(seed).normal(size=(width, width))
    symmetric = np.triu(matrix) + np.triu(matrix, 1).T
    order = np.r_[np.arange(2 * count).reshape(2, count).T.ravel(), 2 * count : width]
    pairs = symmetric[np.ix_(order, order)]
    upper = np.where(np.tri(width, k=-1) > 0, np.nan, symmetric)
    rows = [row[i:].tolist() for i, row in enumerate(rows_in_pairs(upper, count))]
    assert rows == [pairs[i, i:].tolist() for i in range(2 * count)]


@pytest.mark.parametrize("order", [1, 2])
def test_moments_survive_a_pickle(xyw: Rows, order: int) -> None:
    found = collected(*xyw, order=order, sample_rows=30)
    for protocol in (2, 5):
        again = pickle.loads(pickle.dumps(found, protocol))
        assert same(again, found)
        assert again.row.fingerprint == found.row.fingerprint
        assert same(again + found, found + found)


@pytest.mark.parametrize(("order", "r"), [(2, 256), (1, 4096), (2, 2)])
def test_dask_is_told_the_true_size(rng: np.random.Generator, order: int, r: int) -> None:
    features = FourierFeatures.sample(Gaussian(), D, r, rng=0)
    x = rng.normal(size=(100, D))
    found = accumulate(features, x, x, order=order, sample_rows=50)
    actual = len(pickle.dumps(found, 5))
    assert actual <= sizeof(found) * 1.3 + 2000
    assert sizeof(found) <= actual * 1.5 + 2000
    assert found.__sizeof__() >= found.sums.nbytes


def test_the_repr_says_what_they_are(xyw: Rows) -> None:
    text = repr(collected(*xyw))
    assert "order 2" in text
    assert "700 rows" in text
    assert "R=12" in text
    assert "T=3" in text


def test_equal_specs_have_equal_fingerprints_and_any_change_shows() -> None:
    assert row_of().fingerprint == ROW.fingerprint
    changed = [
        row_of(nesting="prefix"),
        row_of(prior=np.full(R, 0.4)),
        row_of(feature_origin=np.full(R, -0.0)),
        row_of(target_origin=np.array([0.0, 1e-300, 0.0])),
        row_of(inputs=("a", "b", "c ")),
        row_of(units=()),
        row_of(targets=("s,t", "u", "")),
        row_of(units=("m", "m", "K", "W", "", "j")),
    ]
    assert len({ROW.fingerprint, *(row.fingerprint for row in changed)}) == len(changed) + 1
