"""The row sample: uniform, mergeable in any order, and still both after batches are added."""

from __future__ import annotations

import itertools
import pickle
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rff_stream._array import Array, Float64, column_range
from rff_stream.features import FourierFeatures
from rff_stream.hashes import hash_places
from rff_stream.kernels import Gaussian
from rff_stream.moments import Moments
from rff_stream.moments.accumulate import accumulate
from rff_stream.moments.row_sample import RowSample

FEATURES = FourierFeatures.sample(Gaussian(), 2, 4, rng=0)


def of_places(size: int, places: Array, seed: int = 0) -> RowSample:
    """A sample whose rows hold their own place."""
    rows = np.asarray(places, np.float64)[:, None]
    return RowSample.of(size, hash_places(places, seed), rows)


def same(a: RowSample, b: RowSample) -> bool:
    return np.array_equal(a.keys, b.keys) and np.array_equal(a.rows, b.rows)


@given(data=st.data(), n=st.integers(0, 60), size=st.integers(1, 20))
def test_any_portions_in_any_order_give_the_sample_of_all(
    data: st.DataObject, n: int, size: int
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=5)))
    portions = [np.arange(a, b) for a, b in itertools.pairwise([0, *cuts, n])]
    found = RowSample.empty(size, 1)
    for portion in data.draw(st.permutations(portions)):
        found = found + of_places(size, portion)
    assert same(found, of_places(size, np.arange(n)))
    assert len(found.keys) == min(n, size)
    assert (np.diff(found.keys.astype(object)) > 0).all()


def chi_square(counts: Array) -> float:
    """p-value of equal chances for all strata."""
    return float(stats.chisquare(counts).pvalue)


def selected(draw: str) -> Array:
    """How often each of 40 runs of places is drawn: 100 seeds, 200 of 2,000 places each."""
    counts = np.zeros(40)
    for seed in range(100):
        portions = np.array_split(np.arange(2000), 7)
        kept = [of_places(200, portion, seed) for portion in portions]
        if draw == "a fifth more from one half":  # what the test must be able to see
            chance = np.where(np.arange(2000) < 1000, 0.09, 0.11)
            places = np.flatnonzero(np.random.default_rng(seed).random(2000) < chance)
        else:
            merged = kept[seed % 7]
            for i in np.random.default_rng(seed).permutation(7):
                if i != seed % 7:
                    merged = merged + kept[i]
            places = merged.rows[:, 0].astype(int)
        counts += np.bincount(places // 50, minlength=40)
    return counts


def test_every_row_has_the_same_chance() -> None:
    """20,000 draws in 40 strata: a difference of a fifth between halves gives p < 1e-6."""
    assert chi_square(selected("uniform")) > 1e-3
    assert chi_square(selected("a fifth more from one half")) < 1e-6


def test_hashes_are_uniform_and_never_collide() -> None:
    for places in (np.arange(100_000), np.arange(100_000) << 32, np.arange(100_000) * 512):
        keys = hash_places(places)
        assert len(np.unique(keys)) == len(places)
        assert stats.kstest(keys / 2.0**64, "uniform").pvalue > 1e-3


def test_a_sample_of_size_0_keeps_nothing(rng: np.random.Generator) -> None:
    empty = RowSample.empty(0, 3)
    assert len((empty + empty).keys) == 0
    moments = accumulate(FEATURES, rng.normal(size=(50, 2)), sample_rows=0)
    assert moments.sample.rows.shape == (0, 3)


def test_a_sample_knows_its_bytes_and_survives_a_pickle() -> None:
    sample = of_places(50, np.arange(100))
    assert sample.nbytes == 50 * 16
    assert same(pickle.loads(pickle.dumps(sample)), sample)


# ------------------------------------------------------------- batches: every one starts at place 0


def batch(rng: np.random.Generator, shift: float, n: int = 3000, size: int = 200) -> Moments:
    """A day of data; its rows are told from those of other days by their values."""
    x = rng.uniform(shift, shift + 1, size=(n, 2))
    return accumulate(FEATURES, x, sample_rows=size)


def shares(moments: Moments, days: int) -> Array:
    return np.bincount(moments.sample.rows[:, 0].astype(int), minlength=days)


def test_batches_share_a_sample_by_their_size(rng: np.random.Generator) -> None:
    merged = Moments.zero(batch(rng, 0, 10).row)
    sizes = [1000, 2000, 3000, 6000]
    for day, n in enumerate(sizes):
        merged = merged + batch(rng, day, n, 1200)
    assert stats.chisquare(shares(merged, 4), 1200 * np.array(sizes) / sum(sizes)).pvalue > 1e-3


def test_rows_of_batches_are_drawn_independently(rng: np.random.Generator) -> None:
    """Not the same places of every day: those are 2,000 numbers of a few hundred moments."""
    n, size = 2000, 400
    places: Float64 = np.arange(n, dtype=float)
    days = [np.column_stack([places, np.full(n, day)]) for day in range(2)]
    kept = [accumulate(FEATURES, x, sample_rows=size).sample.rows[:, 0] for x in days]
    both = len(np.intersect1d(kept[0], kept[1]))  # hypergeometric: mean 80, standard deviation 7.2
    assert abs(both - size * size / n) < 5 * 7.2


def test_batches_merge_in_any_order_to_the_same_sample(rng: np.random.Generator) -> None:
    days = [batch(rng, day) for day in range(4)]
    samples = [(a + b + c + d).sample for a, b, c, d in itertools.permutations(days)]
    assert all(same(samples[0], other) for other in samples)


def test_taking_a_batch_out_keeps_the_rows_of_the_others(rng: np.random.Generator) -> None:
    monday, tuesday = batch(rng, 0), batch(rng, 1)
    both = monday + tuesday
    left = both - tuesday
    assert shares(left, 2).tolist() == [shares(both, 2)[0], 0]
    assert same((left + tuesday).sample, both.sample)


@pytest.mark.parametrize("layout", ["C", "F", "strided", "float32", "int"])
def test_the_layout_of_rows_does_not_choose_them(rng: np.random.Generator, layout: str) -> None:
    x = np.round(rng.uniform(-99, 99, size=(900, 2)))
    layouts: dict[str, Array] = {
        "C": x,
        "F": np.asfortranarray(x),
        "strided": np.repeat(x, 2, axis=1)[:, ::2],
        "float32": x.astype(np.float32),
        "int": x.astype(np.int8),
    }
    changed = layouts[layout]
    expected = accumulate(FEATURES, x, x[:, 0], sample_rows=30)
    found = accumulate(FEATURES, changed, changed[:, 0], sample_rows=30)
    assert same(found.sample, expected.sample)


@pytest.mark.parametrize("n", [1, 1023, 1024, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_ends_of_columns_are_those_of_each_column(
    n: int, dtype: str, order: Literal["C", "F"], rng: np.random.Generator
) -> None:
    x = np.asarray(100 * rng.normal(size=(n, 3))).astype(dtype, order=order)
    if x.dtype.kind == "f" and n > 1:
        x[rng.integers(n, size=n // 3), 0] = np.nan
        x[0, 0], x[:, 1] = 0.0, np.nan
    found = column_range(x)
    for column, ends in zip(x.T, found.T, strict=True):
        known = column[~np.isnan(column)] if x.dtype.kind == "f" else column
        expected = [known.min(), known.max()] if len(known) else [np.nan, np.nan]
        np.testing.assert_array_equal(ends, np.array(expected, dtype))
    assert column_range(x[:, :0]).shape == (2, 0)
