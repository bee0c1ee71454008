"""Sums and scores that keep no Z: the same numbers as from Z, in any portions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rff_stream.errors import DataError
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.features import FourierFeatures
from rff_stream.features.column_sweep import ColumnSweep, column_sums, linear_form, sweep_of
from rff_stream.kernels import Gaussian
from rff_stream.model.collect import collect
from rff_stream.moments import N_PARTS
from rff_stream.moments.accumulate import Accumulator, accumulate, plain_row, resolve_sums
from rff_stream.predictors import LinearPredictor

DTYPES: list[Any] = ["float32", "float64"]
SIZES = [(1, 2), (300, 34), (700, 1500), (513, 1025)]


def map_of(n_components: int, dtype: Any = "float32", d: int = 3) -> FourierFeatures:
    paired = n_components % 2 == 0
    origin = np.full(d, 0.5)
    return FourierFeatures.sample(
        Gaussian(0.7), d, n_components, paired=paired, origin=origin, rng=0, dtype=dtype
    )


def plain_sweep(features: FourierFeatures, dtype: Any) -> ColumnSweep:
    return ColumnSweep(features, np.dtype(dtype))


def fast_sweep(features: FourierFeatures, dtype: Any) -> ColumnSweep:
    return sweep_of(features, np.dtype(dtype))


@pytest.mark.parametrize("sweep", [plain_sweep, fast_sweep])
@pytest.mark.parametrize(("n", "n_components"), SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_those_of_z(sweep: Any, n: int, n_components: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    x, w = rng.normal(size=(n, 3)), rng.uniform(0.5, 2, n)
    features = map_of(n_components)
    Z = features(x).astype(np.float64)
    # portions are summed in dtype, and an angle near ±20 is known to 20·2⁻²⁴ in the features
    unit = 2.0**-24 * (100 + (256 if dtype == "float32" else 0))
    for weights in (None, w):
        found = column_sums(sweep(features, dtype), x, weights, n_components)
        expected = (np.ones(n) if weights is None else weights) @ Z
        assert np.abs(found - expected).max() < unit * n * 2


@pytest.mark.parametrize("sweep", [plain_sweep, fast_sweep])
@pytest.mark.parametrize(("n", "n_components"), SIZES)
def test_scores_are_those_of_z(sweep: Any, n: int, n_components: int) -> None:
    rng = np.random.default_rng(n)
    x, coef = rng.normal(size=(n, 3)), rng.normal(size=n_components)
    x[0, 1] = np.nan
    features = map_of(n_components)
    found = linear_form(sweep(features, "float64"), x, coef[:, None])[:, 0]
    expected = features(x).astype(np.float64) @ coef
    assert np.isnan(found[0])
    assert np.abs(found[1:] - expected[1:]).max(initial=0) < 1e-5 * np.abs(coef).sum()


@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("n_components", [64, 1000])
def test_a_prediction_has_the_same_bits_wherever_its_row_stands(
    n_components: int, n_targets: int, rng: np.random.Generator
) -> None:
    features = map_of(n_components)
    coef = rng.normal(size=(n_components, n_targets))
    predict = LinearPredictor(features, coef, np.zeros(n_targets))
    x = rng.normal(size=(400, 3))
    with single_threaded_blas():
        whole = predict(x)
        for start, stop in [(0, 1), (1, 4), (7, 150), (143, 145), (399, 400)]:
            assert (predict(x[start:stop]) == whole[start:stop]).all()
    exact = features(x).astype(np.float64) @ coef
    assert np.abs(whole - exact).max() < 1e-6 * np.linalg.norm(coef, axis=0).max()


def test_what_overflows_the_features_is_refused(rng: np.random.Generator) -> None:
    x = rng.normal(size=(300, 3))
    x[7, 1] = 1e38
    with pytest.raises(DataError, match=r"Column 1 of X holds 1e\+38"):
        accumulate(map_of(32), x, order=1)


def test_means_keep_exact_sums_for_fewer_rows() -> None:
    assert resolve_sums("auto", 20_000, order=1) == "float64"
    assert resolve_sums("auto", 20_001, order=1) == "float32"
    assert resolve_sums("auto", 20_001, order=2) == "float64"


def test_rounds_deal_every_part_to_every_contiguous_group() -> None:
    features = map_of(4)
    n, rounds = 6400, 10
    x = np.zeros((n, 3))
    places = np.arange(n)

    def counts(lo: int, hi: int) -> Any:
        sink = Accumulator(features, plain_row(features), order=1, n_places=n, rounds=rounds)
        sink.add(x[lo:hi], np.empty((hi - lo, 0)), None, places[lo:hi])
        parts = sink.result().parts
        assert parts is not None
        return parts[:, 4]

    for group in range(rounds):
        assert (counts(group * 640, (group + 1) * 640) == 20).all()
    assert (counts(0, n) == 200).all()


def test_folds_have_all_parts(rng: np.random.Generator) -> None:
    features = map_of(8)
    found = collect(features, rng.normal(size=(5000, 3)), order=1, folds=7, progress=False)
    for moments in found.values():
        assert moments.parts is not None
        assert (moments.parts[:, 8] > 0).all()
        assert len(moments.parts) == N_PARTS
