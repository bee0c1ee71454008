"""The hot loop equals a dense sum over rows, whatever way the rows arrive."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from rff_stream._array import Array, Float64
from rff_stream.features import FourierFeatures
from rff_stream.kernels import Gaussian, Laplacian
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import (
    FLUSH_ROWS,
    Accumulator,
    accumulate,
    plain_row,
    rank_update,
    resolve_sums,
)

FLOAT32_SUMS = 2.3e-7
"""‖δG‖/n with the triangle added into float64 every 4,096 rows: the figure of the design."""


def map_of(r: int = 32, d: int = 3, dtype: Any = "float32", **choices: Any) -> FourierFeatures:
    return FourierFeatures.sample(Gaussian(1.5), d, r, rng=0, dtype=dtype, **choices)


def centred(
    features: FourierFeatures, x: Array, y: Array, scale: float | Array = 1.0
) -> AugmentedRow:
    """z₀ and y₀ near the means, as a pilot finds them."""
    row = plain_row(features, y.shape[1])
    return replace(
        row,
        feature_origin=features(x[:100]).mean(axis=0, dtype=np.float64),
        target_origin=y[:100].mean(axis=0),
        target_scale=np.ones(y.shape[1]) * scale,
    )


def same_bits(a: Moments, b: Moments) -> bool:
    parts = a.parts is None or b.parts is None or np.array_equal(a.parts, b.parts)
    return (
        parts
        and np.array_equal(a.sums, b.sums)
        and (a.n, a.squared_weight, a.log_weight) == (b.n, b.squared_weight, b.log_weight)
        and np.array_equal(a.sample.rows, b.sample.rows)
    )


@pytest.fixture
def xyw(rng: np.random.Generator) -> tuple[Float64, Float64, Float64]:
    n = 5003  # neither 512 nor 4096 nor 128 divides it
    return rng.normal(size=(n, 3)), rng.normal(100, 2, size=(n, 2)), rng.uniform(0.2, 4, n)


Rows = tuple[Float64, Float64, Float64]

# -------------------------------------------------------------------------------- equal to dense


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float64_sums_equal_the_dense_sum(
    xyw: Rows, dtype: str, paired: bool, weighted: bool
) -> None:
    x, y, w = xyw
    features = map_of(dtype=dtype, paired=paired)
    row = centred(features, x, y)
    found = accumulate(features, x, y, w if weighted else None, row=row, sums="float64")
    a = reference.augmented(features(x), y, row.feature_origin, row.target_origin)
    weights = w if weighted else None
    expected, bound = reference.second_moments(a, weights), reference.rounding_bound(a, weights)
    assert (np.abs(found.matrix() - expected) <= bound).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_float32_sums_stay_within_their_known_rounding(
    rng: np.random.Generator, weighted: bool
) -> None:
    n = 40_000
    x, w = rng.normal(size=(n, 3)), rng.uniform(0.2, 4, n) if weighted else np.ones(n)
    y = rng.normal(size=(n, 1))
    features = map_of(128)
    row = centred(features, x, y)
    found = accumulate(features, x, y, w if weighted else None, row=row, sums="float32").matrix()
    a = reference.augmented(features(x), y, row.feature_origin, row.target_origin)
    exact = (a * w[:, None]).T @ a
    r = features.n_components
    error = np.linalg.norm((found - exact)[:r, :r], 2)
    assert error <= 2 * FLOAT32_SUMS * w.sum()  # 2: AVX2 and other kernels
    assert np.abs((found - exact)[:r, r:]).max() <= 2 * FLOAT32_SUMS * w.sum() * np.abs(y).max()


def test_what_is_known_from_float64_values_is_exact_with_float32_sums(xyw: Rows) -> None:
    """Σw, Σwy, Σwyyᵀ, Σw², Σlog w do not see the precision of the triangle."""
    x, y, w = xyw
    features = map_of()
    row = centred(features, x, y, scale=np.array([2.0, 0.5]))
    low, high = (accumulate(features, x, y, w, row=row, sums=s) for s in ("float32", "float64"))
    r = features.n_components
    assert np.array_equal(low.matrix()[r:, r:], high.matrix()[r:, r:])
    assert (low.n, low.squared_weight, low.log_weight) == (
        high.n,
        high.squared_weight,
        high.log_weight,
    )
    assert low.weight == pytest.approx(w.sum(), rel=1e-14)


def test_a_large_offset_of_y_costs_no_digits(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(3000, 3)), 1e8 + rng.normal(size=(3000, 1))
    features = map_of()
    for sums in ("float32", "float64"):
        found = accumulate(features, x, y, row=centred(features, x, y), sums=sums).matrix()
        variance = found[-1, -1] / 3000 - (found[-2, -1] / 3000) ** 2
        assert variance == pytest.approx(y.var(), rel=1e-7)


@pytest.mark.parametrize("scale", [2.0**-40, 1.0, 2.0**30])
def test_a_target_scale_that_is_a_power_of_two_changes_no_bit(xyw: Rows, scale: float) -> None:
    x, y, w = xyw
    features = map_of()
    for sums in ("float32", "float64"):
        row = centred(features, x, y)
        plain = accumulate(features, x, y, w, row=row, sums=sums)
        scaled = accumulate(
            features, x, y, w, row=replace(row, target_scale=np.full(2, scale)), sums=sums
        )
        assert np.array_equal(plain.sums, scaled.sums)


def test_tiny_and_huge_targets_survive_float32(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2000, 3))
    unit = np.sin(x[:, :2])
    features = map_of()
    expected = accumulate(features, x, unit, row=centred(features, x, unit), sums="float32")
    factors = np.array([2.0**-100, 2.0**100])  # y² leaves float32 on both sides
    y = unit * factors
    row = centred(features, x, y, scale=factors)
    found = accumulate(features, x, y, row=row, sums="float32")
    r = features.n_components
    assert np.array_equal(found.matrix()[:r, r + 1 :], expected.matrix()[:r, r + 1 :] * factors)


@pytest.mark.parametrize("sums", ["float32", "float64"])
def test_the_answer_does_not_depend_on_the_origins(xyw: Rows, sums: Any) -> None:
    """About any origins the scatter is the same: about z̄ and ȳ of the rows."""
    x, y, w = xyw
    features = map_of()
    zero, near = plain_row(features, 2), centred(features, x, y)
    scatters = []
    for row in (zero, near):
        found = accumulate(features, x, y, w, row=row, sums=sums)
        mean = np.concatenate([found.feature_mean(), found.target_mean()])
        r = features.n_components
        kept = np.r_[:r, r + 1 : r + 3]
        origin = np.concatenate([row.feature_origin, row.target_origin])
        matrix = found.matrix()[np.ix_(kept, kept)]
        scatters.append(matrix - found.weight * np.outer(mean - origin, mean - origin))
    size = np.abs(reference.augmented(features(x), y, 0, 0)).max(axis=0)[kept]
    unit = FLOAT32_SUMS if sums == "float32" else 8 * 2.0**-52
    assert (np.abs(scatters[0] - scatters[1]) <= 4 * unit * w.sum() * np.outer(size, size)).all()


def test_weights_are_repeated_rows(rng: np.random.Generator) -> None:
    x, y, times = rng.normal(size=(900, 3)), rng.normal(size=(900, 2)), rng.integers(1, 5, 900)
    features = map_of()
    row = centred(features, x, y)
    for order in (1, 2):
        weighted = accumulate(features, x, y, times.astype(float), row=row, order=order)
        repeated = accumulate(
            features, np.repeat(x, times, 0), np.repeat(y, times, 0), row=row, order=order
        )
        assert np.allclose(weighted.sums, repeated.sums, rtol=1e-12, atol=1e-10)
        assert weighted.weight == repeated.weight == times.sum()
        assert weighted.squared_weight == (times**2).sum()
        assert (weighted.n, repeated.n) == (900, times.sum())


def test_equal_weights_of_1_change_no_bit(xyw: Rows) -> None:
    x, y, _ = xyw
    features = map_of()
    precisions: list[Any] = ["float32", "float64"]
    for order, sums in itertools.product((1, 2), precisions):
        plain = accumulate(features, x, y, order=order, sums=sums, sample_rows=10)
        ones = accumulate(features, x, y, np.ones(len(x)), order=order, sums=sums, sample_rows=10)
        assert same_bits(plain, ones)


def test_many_targets(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(1500, 3)), rng.normal(size=(1500, 300))
    features = map_of(16)
    row = centred(features, x, y)
    a = reference.augmented(features(x), y, row.feature_origin, row.target_origin)
    precisions: list[tuple[Any, float]] = [("float64", 2.0**-52), ("float32", 2.0**-23)]
    for sums, eps in precisions:
        found = accumulate(features, x, y, row=row, sums=sums).matrix()
        assert (np.abs(found - a.T @ a) <= reference.rounding_bound(a, eps=eps)).all()


@pytest.mark.parametrize("t", [0, 1])
@pytest.mark.parametrize("r", [1, 2, 17, 64])
def test_few_and_odd_widths(rng: np.random.Generator, r: int, t: int) -> None:
    x, y = rng.normal(size=(700, 3)), rng.normal(size=(700, t))
    features = FourierFeatures.sample(Laplacian(1.0), 3, r, paired=False, rng=1)
    found = accumulate(features, x, y, sums="float64").matrix()
    a = reference.augmented(features(x), y, 0, 0)
    assert found.shape == (r + 1 + t, r + 1 + t)
    assert (np.abs(found - a.T @ a) <= reference.rounding_bound(a)).all()


@pytest.mark.parametrize("n", [0, 1, 127, 128, 511, 512, 513, FLUSH_ROWS, FLUSH_ROWS + 1])
@pytest.mark.parametrize("sums", ["float32", "float64"])
def test_every_length_around_a_batch(rng: np.random.Generator, n: int, sums: Any) -> None:
    x, y = rng.normal(size=(n, 3)), rng.normal(size=(n, 1))
    features = map_of(8)
    found = accumulate(features, x, y, sums=sums)
    a = reference.augmented(features(x), y, 0, 0)
    eps = 2.0**-52 if sums == "float64" else 2.0**-23
    bound = reference.rounding_bound(np.maximum(np.abs(a), 1), eps=eps) if n else 0.0
    bound = 2 * bound  # aᵀa is rounded, too
    assert found.n == n
    assert (np.abs(found.matrix() - a.T @ a) <= bound).all()


# ----------------------------------------------------------------------------------- first moments


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sums", ["float32", "float64"])
def test_first_moments_are_the_border_of_second_moments(
    xyw: Rows, sums: Any, weighted: bool
) -> None:
    x, y, w = xyw
    features = map_of()
    weights = w if weighted else None
    row = centred(features, x, y)
    first, second = (
        accumulate(features, x, y, weights, row=row, order=order, sums=sums) for order in (1, 2)
    )
    r = features.n_components
    border = second.matrix()[r]
    total = weights.sum() if weights is not None else len(x)
    unit = 2 * FLOAT32_SUMS if sums == "float32" else 8 * 2.0**-52
    largest = np.abs(reference.augmented(features(x), y, 0, row.target_origin)).max(axis=0)
    assert (np.abs(first.sums - border) <= unit * total * largest).all()
    assert first.weight == pytest.approx(second.weight, rel=1e-14)
    # Order 1 ends a batch at each part, so Σ log w is added up in other portions.
    assert first.n == second.n
    assert first.log_weight == pytest.approx(second.log_weight, rel=8 * 2.0**-52, abs=1e-12)


@pytest.mark.parametrize("n_places", [1, 31, 32, 33, 5003])
def test_first_moments_cut_places_into_32_runs(xyw: Rows, n_places: int) -> None:
    x, y, _ = (part[:n_places] for part in xyw)
    features = map_of(4)
    found = accumulate(features, x, y, order=1)
    assert found.parts is not None
    counts = found.parts[:, 4]
    expected = np.bincount(np.arange(n_places) * 32 // n_places, minlength=32)
    assert counts.tolist() == expected.tolist()


# ---------------------------------------------------------------------------- arrival and layout


def taken(
    features: FourierFeatures,
    rows: Rows,
    cuts: list[int],
    *,
    order: int,
    sums: Any,
    weighted: bool = True,
) -> Moments:
    x, y, w = rows
    sink = Accumulator(
        features, plain_row(features, 2), order=order, sums=sums, sample_rows=7, n_places=len(x)
    )
    for a, b in itertools.pairwise([0, *sorted(cuts), len(x)]):
        sink.add(x[a:b], y[a:b], w[a:b] if weighted else None, np.arange(a, b))
    return sink.result()


@pytest.mark.slow
@given(
    cuts=st.lists(st.integers(0, 2500), max_size=8),
    order=st.sampled_from([1, 2]),
    sums=st.sampled_from(["float32", "float64"]),
    weighted=st.booleans(),
)
def test_portions_change_no_bit(cuts: list[int], order: int, sums: str, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2500, 3)), rng.normal(size=(2500, 2)), np.full(2500, 0.75)
    features = map_of(8)
    choices: dict[str, Any] = {"order": order, "sums": sums, "weighted": weighted}
    whole, pieces = (taken(features, rows, some, **choices) for some in ([], cuts))
    assert same_bits(whole, pieces)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("layout", ["F", "strided", "reversed", "big-endian", "read-only", "list"])
def test_the_layout_in_memory_changes_no_bit(xyw: Rows, layout: str, order: int) -> None:
    x, y, w = (part[:1200] for part in xyw)

    def changed(values: Array) -> Any:
        if layout == "list":
            return values.tolist()
        if layout == "read-only":
            values = values.copy()
            values.flags.writeable = False
            return values
        if layout == "big-endian":
            return values.astype(">f8")
        if layout == "reversed":
            return values[::-1].copy()[::-1]
        if layout == "strided":
            return np.repeat(values, 2, axis=-1)[..., ::2]
        return np.asfortranarray(values)

    features = map_of()
    expected = accumulate(features, x, y, w, order=order, sample_rows=50)
    found = accumulate(
        features, changed(x), changed(y), np.asarray(changed(w)), order=order, sample_rows=50
    )
    assert same_bits(found, expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "int64", "float16", "float32"])
def test_narrow_numbers_are_widened_before_any_product(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (600, 3)).astype(dtype)
    y = (rng.integers(0, 2, (600, 1)) * (1 if dtype == "bool" else 100)).astype(dtype)
    features = map_of()
    exact = accumulate(features, x.astype(float), y.astype(float), sample_rows=5)
    assert same_bits(accumulate(features, x, y, sample_rows=5), exact)


def test_asking_for_the_result_early_does_not_lose_rows(xyw: Rows) -> None:
    x, y, w = xyw
    features = map_of()
    sink = Accumulator(features, plain_row(features, 2), n_places=len(x), sample_rows=9)
    sink.add(x[:700], y[:700], w[:700], np.arange(700))
    early = sink.result()
    sums = early.sums.copy()
    sink.add(x[700:], y[700:], w[700:], np.arange(700, len(x)))
    late = sink.result()
    assert np.array_equal(early.sums, sums), "a result is a value"
    assert (early.n, late.n) == (700, len(x))
    expected = accumulate(features, x, y, w, sums="float64", sample_rows=9)
    assert np.allclose(late.sums, expected.sums, rtol=1e-11, atol=1e-9)
    assert np.array_equal(late.sample.rows, expected.sample.rows)


# ---------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("x", "y", "w", "named"),
    [
        ((100, 3), (200,), None, "y"),
        ((100, 3), (50, 2), None, "y"),
        ((100, 3), (100, 2, 2), None, "y"),
        ((100, 1), (100,), None, "X|inputs"),
        ((100, 4), (100,), None, "X|inputs"),
        ((100,), (100,), None, "X"),
        ((100, 3), (100,), (1,), "weights"),
        ((100, 3), (100,), (99,), "weights"),
        ((100, 3), (100,), (150,), "weights"),
        ((100, 3), (100,), (100, 1), "weights"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_name(x: Any, y: Any, w: Any, named: str) -> None:
    weights = None if w is None else np.ones(w)
    with pytest.raises(ValueError, match=named):
        accumulate(map_of(), np.ones(x), np.ones(y), weights)


def test_a_row_for_another_number_of_targets_is_refused() -> None:
    features = map_of()
    with pytest.raises(ValueError, match="targets"):
        accumulate(features, np.ones((9, 3)), np.ones((9, 1)), row=plain_row(features, 3))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_weights_that_are_no_weights_are_refused(weight: float) -> None:
    w = np.ones(700)
    w[600] = weight
    with pytest.raises(ValueError, match="weights"):
        accumulate(map_of(), np.ones((700, 3)), np.ones(700), w)


def test_unknown_orders_and_precisions_are_refused() -> None:
    features = map_of()
    wrong: Any = "float16"
    with pytest.raises(ValueError, match="order=3"):
        accumulate(features, np.ones((5, 3)), order=3)
    with pytest.raises(ValueError, match="sums='float16'"):
        accumulate(features, np.ones((5, 3)), sums=wrong)


def test_auto_is_float64_up_to_200_000_rows() -> None:
    assert resolve_sums("auto", 200_000) == "float64"
    assert resolve_sums("auto", 200_001) == "float32"
    assert resolve_sums("float64", 10**9) == "float64"


# ------------------------------------------------------------------------------------------ threads


def test_a_rank_update_takes_rows_of_any_order() -> None:
    """BLAS refused rows in the order of columns, and the sum stayed 0."""
    rows, matrix = np.asfortranarray(np.arange(12.0).reshape(4, 3)), np.zeros((3, 3))
    rank_update(rows, matrix, beta=0.0)
    np.testing.assert_array_equal(matrix, np.triu(rows.T @ rows))


def test_a_rank_update_lets_other_threads_run() -> None:
    """One BLAS call of a third of a second: a held GIL lets the main thread wake once at most."""
    rows = np.ones((30_000, 1024), np.float32)
    matrix = np.zeros((1024, 1024), np.float32)
    started, ended = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        rank_update(rows, matrix, beta=0.0)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(10)
    wakes = 0
    while not ended.is_set():
        wakes += 1
        time.sleep(0.001)
    thread.join()
    assert matrix[0, 0] == 30_000
    assert wakes > 5


def test_threads_do_not_share_scratch(xyw: Rows) -> None:
    x, y, w = xyw
    features = map_of(64)
    expected = accumulate(features, x, y, w, sums="float32")
    found: dict[int, Moments] = {}

    def work(i: int) -> None:
        found[i] = accumulate(features, x, y, w, sums="float32")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same_bits(found[i], expected) for i in range(4))
