"""Entries counted in pairs of grids: the moments of a rank-k update, at a cost that knows no R."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rff_stream.features import FourierFeatures, RandomBinningFeatures
from rff_stream.kernels import Gaussian, Laplacian
from rff_stream.moments import counted_entries as entrysums
from rff_stream.moments.accumulate import Accumulator, accumulate, plain_row
from rff_stream.moments.counted_entries import counting_bytes, entries_of, pays

F32, F64 = np.dtype("float32"), np.dtype("float64")


def binning(n_components: int, n_grids: int, d: int = 3) -> RandomBinningFeatures:
    return RandomBinningFeatures.sample(Laplacian(3.0), d, n_components, n_grids=n_grids, rng=0)


def dense(features: Any, x: Any, y: Any, w: Any, row: Any) -> np.ndarray:
    """Σ w a aᵀ of the augmented rows, written down."""
    Z = features(x).astype(np.float64) - row.feature_origin
    a = np.column_stack([Z, np.ones(len(x)), y - row.target_origin])
    return np.asarray((a * w[:, None]).T @ a)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few thousand rows fill the buffer more than once."""
    monkeypatch.setattr(entrysums, "FEWEST_COUNTED", 1024)
    monkeypatch.setattr(entrysums, "COUNTED", 5000)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_targets", [0, 2])
@pytest.mark.parametrize(("n_components", "n_grids"), [(300, 20), (287, 20), (64, 1), (40, 40)])
def test_they_are_the_moments_of_the_rows(
    n_components: int, n_grids: int, n_targets: int, weighted: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(entrysums, "WIDTH_THAT_PAYS", {"float32": 0, "float64": 0})
    rng, features, n = np.random.default_rng(0), binning(n_components, n_grids), 2500
    x, y = rng.standard_normal((n, 3)), 1e4 + 30 * rng.standard_normal((n, n_targets))
    w = rng.uniform(0.5, 2, n) if weighted else np.ones(n)
    row = replace(
        plain_row(features, n_targets),
        feature_origin=rng.uniform(-0.2, 0.2, n_components),
        target_origin=np.full(n_targets, 1e4),
        target_scale=np.full(n_targets, 32.0),
    )
    found = accumulate(features, x, y, w if weighted else None, row=row)
    exact = dense(features, x, y, w, row)
    # n products are rounded and added in float64, on either side: a walk of n steps
    size = np.sqrt(np.diag(exact))
    assert (np.abs(found.matrix() - exact) <= 8 * 2.0**-53 * n**0.5 * np.outer(size, size)).all()


@pytest.mark.slow
def test_without_weights_sums_of_z_are_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrysums, "WIDTH_THAT_PAYS", {"float32": 0, "float64": 0})
    rng, features = np.random.default_rng(0), binning(300, 20)
    x = rng.standard_normal((2500, 3))
    found = accumulate(features, x, sums="float32").matrix()[:300, :300]
    Z = features(x).astype(np.int64)
    assert np.array_equal(found, Z.T @ Z)


def test_portions_and_sums_change_nothing() -> None:
    rng, features = np.random.default_rng(0), binning(400, 20)
    x, y = rng.standard_normal((3000, 3)), rng.standard_normal((3000, 1))
    assert pays(features, F64)

    def of(cuts: list[int]) -> np.ndarray:
        sink = Accumulator(features, plain_row(features, 1))
        for lo, hi in zip([0, *cuts], [*cuts, 3000], strict=True):
            sink.add(x[lo:hi], y[lo:hi], None, np.arange(lo, hi))
        return sink.result().sums

    assert np.array_equal(of([]), of([7, 800, 2999]))
    halves = [accumulate(features, x[part], y[part]) for part in (slice(1500), slice(1500, 3000))]
    assert np.allclose((halves[0] + halves[1]).sums, of([]), rtol=1e-12, atol=1e-9)


def test_no_rows_are_a_zero() -> None:
    features = binning(400, 20)
    found = accumulate(features, np.empty((0, 3)))
    assert found.n == 0
    assert not found.sums.any()


def test_what_is_narrow_or_no_binning_is_not_counted() -> None:
    assert not pays(binning(256, 64), F64)
    assert not pays(FourierFeatures.sample(Gaussian(), 3, 4096, rng=0), F32)
    assert pays(binning(64 * 14, 64), F32)
    assert not pays(binning(64 * 13, 64), F32)


def test_the_map_tells_how_many_entries_a_row_has() -> None:
    x = np.random.default_rng(0).standard_normal((20, 3))
    for grids in (1, 7, 40):
        features = binning(400, grids)
        assert (np.count_nonzero(features(x), axis=1) <= entries_of(features)).all()
        assert RandomBinningFeatures.shape_of(400, grids) == (
            entries_of(features),
            -(-400 // grids),
        )
    dense = FourierFeatures.sample(Gaussian(), 3, 64, rng=0)
    assert entries_of(dense) == entries_of(dense | dense) / 2 == 64
    assert entries_of(binning(400, 20) | dense) == 464  # what is composed is not counted


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n_components", "n_grids", "n"),
    [(640, 64, 5000), (1024, 8, 5000), (600, 1, 700), (64, 4, 20_000), (1000, 40, 513)],
)
def test_they_hold_what_a_plan_counts(
    n_components: int, n_grids: int, n: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peak of everything allocated, the packed result (R²/2) beside it."""
    monkeypatch.undo()  # the sizes of a real pass
    features, rng = binning(n_components, n_grids), np.random.default_rng(0)
    x, y = rng.standard_normal((n, 3)), rng.standard_normal((n, 2))
    w = rng.uniform(0.5, 2, n) if weighted else None
    assert pays(features, F64)
    accumulate(features, x[:600], y[:600])  # what is loaded once
    tracemalloc.start()
    try:
        accumulate(features, x, y, w, sums="float64")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    width = n_components + 3
    rows = 512 * 3 * 8 * 5 + 64 * n  # buffers of rows, and the checks of accumulate
    assert peak <= counting_bytes(n_components, n_grids, 2) + 4 * width * (width + 1) + rows
