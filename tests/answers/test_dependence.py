"""HSIC and kernel CCA from moments: dense matrices, level and power of the p-values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal, stats

import rff_stream as rs
from rff_stream.answers.dependence import hsic
from rff_stream.features import by_columns
from rff_stream.moments.accumulate import accumulate

ONE = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 20, rng=0, dtype="float64")
TWO = rs.FourierFeatures.sample(rs.Gaussian(1.5), 2, 30, rng=1, dtype="float64")
BOTH = by_columns({"a": ONE, ("b", "c"): TWO}, ["a", "b", "c"])
PAIR = by_columns({"a": ONE, "b": ONE}, ["a", "b"])


def runs_of(features, x, n_runs):
    parts = np.array_split(np.arange(len(x)), n_runs)
    return {i: accumulate(features, x[part]) for i, part in enumerate(parts)}


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def test_hsic_is_the_trace_of_centred_kernel_matrices(rng):
    x = rng.normal(size=(80, 3))
    x[:, 1] += x[:, 0] ** 2
    a, b = ONE(x[:, :1]), TWO(x[:, 1:])
    K, L = (z @ np.diag(f.prior()) @ z.T for z, f in ((a, ONE), (b, TWO)))
    expected = np.trace(centred(K) @ centred(L)) / len(x) ** 2
    found = hsic(rs.collect(BOTH, x, progress=False), 20)
    assert found.statistic == pytest.approx(expected, rel=1e-9)
    by_runs = hsic(runs_of(BOTH, x, 16), 20)
    assert by_runs.statistic == pytest.approx(expected, rel=1e-9)
    assert found.expected == pytest.approx(
        np.trace(centred(K)) * np.trace(centred(L)) / len(x) ** 3, rel=1e-9
    )
    assert found.n == 80


def test_weights_are_rows(rng):
    x, w = rng.normal(size=(60, 3)), np.arange(60) % 3 + 1.0
    weighted, again = (
        hsic(accumulate(BOTH, *each), 20)
        for each in ((x, None, w), (np.repeat(x, w.astype(int), axis=0),))
    )
    assert weighted.statistic == pytest.approx(again.statistic, rel=1e-9)
    assert weighted.p_value >= again.p_value  # equal rows are no more evidence


def autoregression(rng, n, memory):
    noise = rng.standard_normal(n + 200)
    return signal.lfilter([1.0], [1.0, -memory], noise)[200:] * np.sqrt(1 - memory**2)


def p_values(draw, n_tests, statistic):
    return np.array([statistic(draw(np.random.default_rng(seed))) for seed in range(n_tests)])


def share_below(p, level=0.05):
    return float((p <= level).mean())


# 99.9 % of binomial shares of 400 tests at level .05 lie between .0175 and .09.
LEVEL = (0.0175, 0.09)


@pytest.mark.slow
def test_level_of_independent_rows():
    def p(x):
        return hsic(accumulate(PAIR, x), 20).p_value

    found = p_values(lambda rng: rng.normal(size=(200, 2)), 400, p)
    assert LEVEL[0] < share_below(found) < LEVEL[1]
    # uniform: 99.9 % of Kolmogorov's statistic of 400 are below .097
    assert stats.kstest(found, "uniform").statistic < 0.097


def test_power_for_dependence_without_correlation():
    """y on a noisy circle with x: uncorrelated, and seen in 150 rows."""
    fine = rs.FourierFeatures.sample(rs.Gaussian(0.4), 1, 20, rng=0, dtype="float64")
    pair = by_columns({"a": fine, "b": fine}, ["a", "b"])

    def draw(rng):
        angle = rng.uniform(0, 2 * np.pi, 150)
        return np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(150, 2))

    assert share_below(p_values(draw, 100, lambda x: hsic(accumulate(pair, x), 20).p_value)) > 0.9


@pytest.mark.slow
def test_series_need_runs_of_rows():
    """Two independent series with a long memory: rows as units see dependence, runs do not."""

    def draw(rng):
        return np.column_stack([autoregression(rng, 1000, 0.9) for _ in range(2)])

    rows = p_values(draw, 60, lambda x: hsic(accumulate(PAIR, x), 20).p_value)
    runs = p_values(draw, 150, lambda x: hsic(runs_of(PAIR, x, 16), 20, n_signs=999).p_value)
    assert share_below(rows) > 0.3
    # 99.9 % of binomial shares of 150 are below .12; runs of 62 rows forget 20 of them
    assert share_below(runs) < 0.12

    def together(rng):
        x = draw(rng)
        x[:, 1] = 0.4 * x[:, 0] ** 2 + x[:, 1]
        return x

    runs = p_values(together, 30, lambda x: hsic(runs_of(PAIR, x, 16), 20, n_signs=999).p_value)
    assert share_below(runs) > 0.9


def test_out_of_core_and_by_folds(rng):
    import dask.array as da

    x = rng.normal(size=(1000, 2))
    x[:, 1] += np.cos(2 * x[:, 0])
    folds = rs.collect(PAIR, da.from_array(x, chunks=(100, 2)), folds=16, progress=False)
    whole = hsic(accumulate(PAIR, x), 20)
    found = hsic(folds, 20, n_signs=999)
    assert found.statistic == pytest.approx(whole.statistic, rel=1e-6)
    assert found.p_value == 1 / 1000


def test_refusals(rng):
    x = rng.normal(size=(50, 2))
    with pytest.raises(ValueError, match="split=40 but the map has 40 columns"):
        hsic(accumulate(PAIR, x), 40)
    with pytest.raises(ValueError, match="4 runs of rows were given"):
        hsic(runs_of(PAIR, x, 4), 20)
    constant = hsic(accumulate(PAIR, np.ones((20, 2))), 20)
    assert constant.p_value > 0.01 or constant.statistic < 1e-20


def test_what_has_no_covariance_is_refused_by_name(rng):
    x = rng.normal(size=(200, 3))
    with pytest.raises(ValueError, match=r"order 1, which is means alone.*Collect with order=2"):
        hsic(rs.collect(BOTH, x, order=1, progress=False), 20)
