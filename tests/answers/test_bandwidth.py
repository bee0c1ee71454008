"""Bandwidths: rules, and cross-validation by Parseval against its two double sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reference
import rff_stream as rs
from rff_stream.answers.bandwidth import (
    MultiScale,
    best_factor,
    effective_size,
    exact_scores,
    scott_factor,
    silverman_factor,
)
from rff_stream.answers.density import density
from rff_stream.kernels import Cauchy, Gaussian, Laplacian, Matern
from rff_stream.kernels.base import log_integral
from rff_stream.moments.accumulate import accumulate

FACTORS = np.geomspace(0.05, 1.5, 30)


def bumps(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    centre = rng.normal(0, 3, (3, d))[rng.integers(0, 3, n)]
    x = centre + rng.standard_normal((n, d))
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))


def test_rules_of_thumb() -> None:
    assert scott_factor(1000, 1) == pytest.approx(1000**-0.2)
    assert silverman_factor(1000, 1) == pytest.approx((4 / 3) ** 0.2 * 1000**-0.2)
    assert silverman_factor(1000, 2) == pytest.approx(scott_factor(1000, 2))


def test_a_weighted_size_counts_what_rows_are_worth() -> None:
    def size(*w: float) -> float:
        return effective_size(np.arange(len(w), dtype=float)[:, None], np.array(w), 1000)

    assert size(*[1.0] * 10) == pytest.approx(1000)
    assert size(1 + 1e-12, 1 + 1e-12, 1e-12, 1e-12) == pytest.approx(500)
    assert size(5.0, 15.0) == pytest.approx(1000 * 16 / 20)
    twice = np.repeat(np.arange(500.0), 2)[:, None]
    assert effective_size(twice, np.ones(1000), 1000) == pytest.approx(500)


def test_the_exact_score_is_that_of_two_double_sums(rng: np.random.Generator) -> None:
    x = bumps(rng, 200, 2)
    found = exact_scores(x, np.ones(200), Gaussian(), FACTORS.tolist())
    unit = np.exp(log_integral(Gaussian(float(FACTORS[0])), 2))
    expected = [reference.least_squares_score(x, h) for h in FACTORS]
    assert np.allclose(found / unit, expected, rtol=1e-10)


@pytest.mark.parametrize(("d", "paired"), [(1, True), (2, True), (4, True), (1, False), (2, False)])
def test_parseval_scores_are_the_exact_ones(d: int, paired: bool) -> None:
    x = bumps(np.random.default_rng(d), 500, d)
    several = MultiScale(Gaussian(), FACTORS, d)
    features = several.features(np.ones(d), 4096 + (not paired), np.zeros(d), 0, "float32")
    assert features.paired == paired
    found = several.scores(features, accumulate(features, x, order=1))
    unit = np.exp(log_integral(Gaussian(float(FACTORS[0])), d))
    expected = exact_scores(x, np.ones(500), Gaussian(), FACTORS.tolist()) / unit
    chosen, inside = best_factor(FACTORS, found)
    assert inside
    # the chosen bandwidth loses little of what the best one gains over Scott's
    score = reference.least_squares_score(x, chosen)
    scott = reference.least_squares_score(x, scott_factor(500, d))
    assert score - expected.min() < 0.2 * (scott - expected.min())


def test_weights_count_as_repeated_rows(rng: np.random.Generator) -> None:
    x, w = bumps(rng, 400, 1), np.full(400, 3.0)
    several = MultiScale(Gaussian(), FACTORS, 1)
    features = several.features(np.ones(1), 512, np.zeros(1), 0, "float64")
    once = several.scores(features, accumulate(features, x, order=1))
    thrice = several.scores(features, accumulate(features, x, weights=w, order=1))
    assert np.allclose(once, thrice, rtol=1e-9)


@pytest.mark.parametrize("kernel", [Gaussian(), Laplacian(), Cauchy(), Matern(nu=1.5)], ids=str)
@pytest.mark.parametrize("factor", [0.1, 0.4, 1.2])
def test_importance_weights_make_any_bandwidth(kernel: Any, factor: float) -> None:
    rng = np.random.default_rng(0)
    x = bumps(rng, 800, 2)
    several = MultiScale(kernel, FACTORS, 2)
    scale = np.array([2.0, 0.5])
    features = several.features(scale, 8192, np.zeros(2), 0, "float32")
    moments = accumulate(features, x * scale, order=1)
    at = kernel.with_length_scale(tuple(scale * factor))
    weights = several.importance(features, factor)
    assert weights.max() <= 6.1
    answer = density(moments, features, at, importance=weights)
    points = x[:60] * scale
    q, error, _, _ = answer.relative(features(points))
    exact = at(points, x * scale).mean(axis=1)
    assert (np.abs(q - exact) < 4.5 * error).all()
    assert np.mean(np.abs(q - exact) < 1.96 * error) > 0.7


def test_the_largest_local_minimum_is_chosen() -> None:
    factors = np.array([1.0, 2, 3, 4, 5, 6])
    assert best_factor(factors, [-9, -1, -3, -2, -4, -3]) == (5.0, True)
    assert best_factor(factors, [-9, -5, -4, -3, -2, -1]) == (1.0, False)
    assert best_factor(factors, [5, 4, 3, 2, 1, 0]) == (6.0, False)


def test_rows_that_repeat_do_not_draw_the_bandwidth_to_zero() -> None:
    rng = np.random.default_rng(3)
    x = np.round(rng.standard_normal((2000, 1)), 1)  # CV(h) → −∞ for h → 0
    several = MultiScale(Gaussian(), FACTORS, 1)
    features = several.features(np.ones(1), 2048, np.zeros(1), 0, "float32")
    scores = several.scores(features, accumulate(features, x, order=1))
    assert best_factor(FACTORS, scores)[0] > 0.1


@pytest.mark.parametrize("bandwidth", ["scott", "silverman", "cv"])
def test_rows_that_are_missing_do_not_narrow_the_bandwidth(bandwidth: str) -> None:
    rng = np.random.default_rng(0)
    X, keep = rng.normal(size=(20_000, 2)), np.arange(20_000) % 10 == 0
    gaps = np.where(keep[:, None], X, np.nan)
    choices: dict[str, Any] = {"bandwidth": bandwidth, "n_components": 512, "random_state": 0}
    alone = rs.KernelDensity(**choices, progress=False).fit(X[keep]).bandwidth_
    density = rs.KernelDensity(**choices, missing_rows="drop", progress=False)
    np.testing.assert_allclose(density.fit(gaps).bandwidth_, alone, rtol=0.05)
    weighted = rs.KernelDensity(**choices, progress=False).fit(X, sample_weight=1.0 * keep)
    np.testing.assert_allclose(weighted.bandwidth_, alone, rtol=0.05)
