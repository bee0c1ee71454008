"""Targets by which the map for another loss is searched for, and whether its map is taken."""

from __future__ import annotations

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.descents.search_targets import BOUND, PilotFit
from rff_stream.losses.regression import Huber, NegativeBinomial, Poisson, Quantile
from rff_stream.pilot import Pilot

BARE = {"random_state": 0, "progress": False}


def pilot_fit(y, scores, losses, held_out=None):
    """Fits with these scores (m, T), of rows that none of them has seen."""
    pilot = Pilot(np.arange(float(len(y)))[:, None], y, np.ones(len(y)))
    held = np.ones(y.shape, bool) if held_out is None else held_out
    return PilotFit(pilot, losses, scores, held)


@pytest.mark.parametrize("loss", [Poisson(), NegativeBinomial(0.5)])
def test_squared_errors_of_working_counts_have_the_slope_of_the_loss(loss, rng):
    f = rng.normal(1, 0.5, (300, 1))
    y = rng.poisson(np.exp(f)).astype(float)
    found = pilot_fit(y, f, (loss,)).working_pilot()
    of_squares = found.w * (f - found.y)[:, 0]
    slope = loss.slope(f, y)[:, 0]
    np.testing.assert_allclose(of_squares / of_squares.std(), slope / slope.std(), atol=1e-9)


def test_errors_are_cut_on_both_sides(rng):
    f, error = rng.normal(size=(2001, 1)), rng.normal(0, 0.1, (2001, 1))
    error[:5, 0] = 1e9, -1e9, 40, -3, 0.02
    for loss in (Huber(), Quantile(0.9)):
        found = pilot_fit(f + error, f, (loss,)).working_pilot()
        assert (found.w == 1).all()  # a search of equal weights is faster
        left = (found.y - f)[:, 0]
        bound = BOUND * 0.1
        np.testing.assert_allclose(left[:4], [bound, -bound, bound, -bound], rtol=0.06)
        assert left[4] == pytest.approx(0.02)


def test_a_map_is_taken_where_held_out_rows_say_so_beyond_chance(rng):
    y = rng.normal(size=(400, 2))
    held = rng.random((400, 2)) < 0.5
    losses = Huber(scale=1.0), Huber(scale=1.0)
    median = pilot_fit(y, np.zeros((400, 2)), losses, held)
    better = pilot_fit(y, np.where(held, 0.5 * y, 99.0), losses, held)  # seen rows do not count
    assert median.is_clearly_worse_than(better) and not better.is_clearly_worse_than(median)
    assert not median.is_clearly_worse_than(median)
    chance = sum(
        median.is_clearly_worse_than(pilot_fit(y, rng.normal(0, 0.01, (400, 2)), losses, held))
        for _ in range(200)
    )
    assert (
        chance < 15
    )  # of 200 pairs without a difference; 4.6 are expected, with a deviation of 2.1
    exact = pilot_fit(y, y, losses)
    assert not exact.is_clearly_worse_than(median)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["huber", "student_t", "epsilon_insensitive", "quantile"])
def test_a_bare_fit_finds_the_input_that_counts_though_targets_are_far(loss, rng):
    X = rng.uniform(-1, 1, (800, 6))
    wave, y = np.sin(6 * X[:, 0]), np.empty(800)
    y[:] = wave + 0.1 * rng.normal(size=800)
    y[::10] += 20 * rng.standard_t(2, 80)
    new = rng.uniform(-1, 1, (1000, 6))
    found = rs.KernelRegressor(loss, **BARE).fit(X, y)
    median = rs.KernelRegressor(loss, n_components=2048, **BARE).fit(X, y)
    error, plain = (
        np.sqrt(np.mean((model.predict(new) - np.sin(6 * new[:, 0])) ** 2))
        for model in (found, median)
    )
    assert error < 0.12 and error < 0.4 * plain
    assert found.importance_["x0"] > 0.9


@pytest.mark.slow
def test_a_bare_fit_of_counts_finds_the_input_that_counts(rng):
    X = rng.uniform(-1, 1, (800, 6))
    counts = rng.poisson(np.exp(1 + np.sin(6 * X[:, 0]))).astype(float)
    new = rng.uniform(-1, 1, (1000, 6))
    for loss in ("poisson", "negative_binomial"):
        found = rs.KernelRegressor(loss, **BARE).fit(X, counts)
        ratio = found.predict(new) / np.exp(1 + np.sin(6 * new[:, 0]))
        assert np.sqrt(np.mean(np.log(ratio) ** 2)) < 0.2


@pytest.mark.slow
def test_bare_fits_of_noise_and_of_constants_say_their_middle(rng):
    X = rng.uniform(-1, 1, (300, 4))
    noise = rs.KernelRegressor(**BARE).fit(X, 5 + rng.normal(size=300))
    assert np.abs(noise.predict(X) - 5).mean() < 0.3
    constant = rs.KernelRegressor(**BARE).fit(X, np.full(300, 3.0))
    np.testing.assert_allclose(constant.predict(X), 3, atol=1e-6)
