"""Noise that depends on the inputs and on the mean, learnt from left-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.families.noise_by_inputs import (
    FOLDS,
    PENALTIES,
    InputFactors,
    _factors,
    _folds_of,
    _Residuals,
    with_noise_by_inputs,
)
from rff_stream.families.noise_of_rows import NoisyProcess
from rff_stream.families.protocol import LeftOut

QUIET: Any = {"random_state": 0, "progress": False}
MAPS: dict[str, Any] = {
    "whole": {"n_components": 96, "length_scale": 0.5, "kernel": "gaussian"},
    "cells": {"features": rs.Cells(48, 2, 2), "length_scale": 1.0, "kernel": "gaussian"},
    "grid": {"features": rs.Grid(modes=(6, 6)), "length_scale": 0.5, "kernel": "gaussian"},
    "found": {},
}


def halves(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """y = sin 6u + v with noise .05 where u < .5, and .5 where it is not."""
    x = rng.uniform(size=(n, 2))
    noise = np.where(x[:, 0] < 0.5, 0.05, 0.5) * rng.normal(size=n)
    return x, np.sin(6 * x[:, 0]) + x[:, 1] + noise


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAPS)
def test_quiet_and_noisy_rows_are_covered_alike(rng: Any, tmp_path: Any, kind: str) -> None:
    """With one noise 100 % of the quiet rows were covered, and 86 to 94 % of the noisy ones."""
    x, y = halves(rng, 3000)
    new, truth = halves(rng, 8000)
    model = rs.GaussianProcessRegressor(**MAPS[kind], **QUIET).fit(x, y)
    mean, std = model.predict(new, return_std=True)
    lower, upper = model.predict_interval(new)
    quiet, noisy = new[:, 0] < 0.4, new[:, 0] > 0.6  # curves are straight between knots
    inside = abs(truth - mean) < 1.96 * std
    assert 0.93 < inside.mean() < 0.99  # a quantile of 2,000 rows has a standard error of .005
    assert 0.92 < inside[noisy].mean() < 0.98
    assert inside[quiet].mean() > 0.92  # their variance of f is that of a mean noise
    assert abs(((lower < truth) & (truth < upper)).mean() - 0.95) < 0.02
    is_even = not isinstance(model._fitted.answer, NoisyProcess)
    if kind == "found" and is_even:
        return  # small cells have noises of their own
    assert (upper - lower)[quiet].mean() < 0.3 * (upper - lower)[noisy].mean()
    assert 4 < std[noisy].mean() / std[quiet].mean() < 14
    np.testing.assert_allclose(model.predict(new, return_std=True)[0], model.predict(new))
    few = new[:40]
    own = model.predict(few, return_std=True)[1]
    covariance = model.predict(few, return_cov=True)[1]
    np.testing.assert_allclose(covariance.diagonal(), own**2, rtol=1e-6)
    plain = model.predict(few, return_std=True, noise=False)[1]
    without = covariance - model.predict(few, return_cov=True, noise=False)[1]
    np.testing.assert_allclose(np.diag(without), own**2 - plain**2, rtol=1e-6, atol=1e-9)
    assert abs(without - np.diag(np.diag(without))).max() < 1e-9
    if kind != "grid":  # its standard deviations need the moments
        model.save(tmp_path / "m.zarr")
        kept = rs.load(tmp_path / "m.zarr").predict(few, return_std=True)[1]
        np.testing.assert_array_equal(kept, own)
    model.save(tmp_path / "n.zarr", moments=True)
    more = rs.load(tmp_path / "n.zarr").set_params(progress=False)
    more.partial_fit(*halves(rng, 500), batch="later")
    assert isinstance(more._fitted.answer, NoisyProcess)


def test_noise_in_proportion_to_the_mean_is_found(rng: Any) -> None:
    def rows(n: int) -> tuple[Any, Any]:
        x = rng.uniform(-1, 1, (n, 4))
        f = np.exp(x.sum(axis=1))
        return x, f * (1 + 0.2 * rng.normal(size=n))

    model = rs.GaussianProcessRegressor(n_components=256, length_scale="ard", **QUIET)
    new, truth = rows(6000)
    mean, std = model.fit(*rows(2000)).predict(new, return_std=True)
    low, _, high = np.array_split(np.argsort(mean), 3)
    for some in (low, high):
        assert (abs(truth - mean) < 1.96 * std)[some].mean() > 0.9  # of the high .88 with one
    assert std[low].mean() < std[high].mean() / 3


def test_a_noise_that_is_given_and_rows_that_are_copies_have_one_noise(rng: Any) -> None:
    x, y = halves(rng, 600)
    asked: Any = {"n_components": 64, "length_scale": 0.5, **QUIET}
    given = rs.GaussianProcessRegressor(noise=0.1, **asked).fit(x, y)
    assert not isinstance(given._fitted.answer, NoisyProcess)
    assert isinstance(rs.GaussianProcessRegressor(**asked).fit(x, y)._fitted.answer, NoisyProcess)
    with pytest.warns(rs.NumericalWarning, match="occurs 3 times"):
        copies = rs.GaussianProcessRegressor(**asked).fit(np.repeat(x, 3, axis=0), np.repeat(y, 3))
    assert not isinstance(copies._fitted.answer, NoisyProcess)


@pytest.mark.slow
def test_a_noise_that_changes_many_times_along_an_input_is_found(rng: Any) -> None:
    """With curves of seven values 1.000 of the quiet rows were covered, and .91 of the loud ones;
    widths were the same."""

    def rows(n: int) -> tuple[Any, Any, Any]:
        t = rng.uniform(0, 10, (n, 1))
        loud = t[:, 0] % 2 > 1
        return t, np.sin(t[:, 0]) + np.where(loud, 0.55, 0.05) * rng.normal(size=n), loud

    x, y, _ = rows(3000)
    new, truth, loud = rows(4000)
    model = rs.GaussianProcessRegressor(**QUIET).fit(x, y)
    mean, std = model.predict(new, return_std=True)
    lower, upper = model.predict_interval(new)
    for inside in (abs(truth - mean) < 1.96 * std, (lower < truth) & (truth < upper)):
        assert 0.93 < inside[~loud].mean() < 0.99 and 0.92 < inside[loud].mean() < 0.98
    assert (upper - lower)[~loud].mean() < 0.5 * (upper - lower)[loud].mean()


@pytest.mark.slow
def test_functions_are_less_known_where_rows_are_noisy() -> None:
    """95 % intervals of f covered .84 and .76 of the loudest tenth."""
    inside = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(7000, 3))
        f = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
        scale = 0.3 * np.exp(x @ [0.5, 0.4, -0.3])
        y = f + scale * rng.normal(size=7000)
        model = rs.GaussianProcessRegressor(random_state=seed, progress=False)
        mean, std = model.fit(x[:3000], y[:3000]).predict(x[3000:], return_std=True, noise=False)
        loud = np.argsort(scale[3000:])[-400:]
        inside.append((abs(f[3000:] - mean) < 1.96 * std)[loud].mean())
        rows = x[3000:][loud[:40]]
        drawn = model.sample_y(rows, 400).std(axis=-1)  # a standard error of .035
        np.testing.assert_allclose(drawn, std[loud[:40]], rtol=0.18)
    assert np.mean(inside) > 0.87


def test_intervals_are_those_of_rows_as_they_were_fitted(rng: Any) -> None:
    """With weights of 1e-6 they had next to no noise, and so one width for all rows."""
    x, y = halves(rng, 800)
    bounds = []
    for weight in (1.0, 1e-6, 50.0):
        model = rs.GaussianProcessRegressor(**MAPS["cells"], **QUIET)
        model.fit(x, y, sample_weight=np.full(800, weight))
        assert isinstance(model._require_fit().answer, NoisyProcess)
        bounds.append(np.column_stack(model.predict_interval(x[:50])))
    for other in bounds[1:]:
        np.testing.assert_allclose(other, bounds[0], rtol=1e-5)


def test_a_grid_of_many_modes_is_not_asked_for_its_left_out_deviations(
    rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 of them took as long as its fit."""
    x, y = halves(rng, 600)
    asked: Any = {"length_scale": 0.5, "kernel": "gaussian", **QUIET}
    grid = rs.Grid(modes=(4, 4))
    for features in (grid, rs.Candidates((grid, rs.Cells(48, 2, 2)))):
        found = []
        for is_small in (True, False):
            monkeypatch.setattr("rff_stream.grid.family.is_small", lambda _, small=is_small: small)
            model = rs.GaussianProcessRegressor(features=features, **asked).fit(x, y)
            found.append(isinstance(model._fitted.answer, NoisyProcess))
        assert found == [True, False]


def left_out(
    rng: Any, n: int, logs: Any, *, d: int = 3, targets: int = 1, w: Any = 1.0
) -> tuple[Any, LeftOut]:
    """A sample [x, y, w] and residuals of variance .02 + e^g .1/w, as a fit says them for g = 0."""
    x = rng.normal(size=(n, d))
    w = np.broadcast_to(w, n)
    noise = np.full((n, targets), 0.1)
    variance = np.full((n, targets), 0.02)
    scale = np.sqrt(variance + np.exp(logs(x))[:, None] * noise / w[:, None])
    residual = scale * rng.normal(size=(n, targets))
    return np.column_stack([x, x[:, :1] + residual, w]), LeftOut(residual, variance, noise)


def found_in(sample: Any, left: LeftOut) -> InputFactors | None:
    """Factors where the fit of all rows is that without each of them."""
    count = left.residual.shape[1]
    return _factors(sample, left, sample[:, -count - 1 : -1] - left.residual)


@pytest.mark.parametrize(("n", "d"), [(300, 1), pytest.param(2000, 3, marks=pytest.mark.slow)])
def test_the_mean_of_other_rows_tells_nothing_of_noise(n: int, d: int) -> None:
    """It is (nȳ − yᵢ)/(n − 1) of a constant: 95 % intervals of pure noise covered .08 to .41."""
    inside = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(n + 500, d)), 5 + rng.normal(size=n + 500)
        model = rs.GaussianProcessRegressor(**QUIET).fit(x[:n], y[:n])
        mean, std = model.predict(x[n:], return_std=True)
        inside.append(np.mean(abs(y[n:] - mean) < 1.96 * std))
    assert min(inside) > 0.9 and 0.92 < np.mean(inside) < 0.98


def test_one_noise_stays_one_noise() -> None:
    """A level of .1 %, 200 draws: more than two by chance are one in a thousand."""
    found = [
        found_in(*left_out(np.random.default_rng(seed), 300, lambda x: 0 * x[:, 0]))
        for seed in range(200)
    ]
    assert sum(each is not None for each in found) <= 2


def test_weights_are_no_change_of_the_noise(rng: Any) -> None:
    w = np.where(rng.random(1000) < 0.5, 1.0, 25.0)
    assert found_in(*left_out(rng, 1000, lambda x: 0 * x[:, 0], w=w)) is None


def test_curves_are_the_same_in_any_order_of_rows_and_in_any_units(rng: Any) -> None:
    """Folds were drawn by place: deviations of 200 rows were .5 to 1.9 times those of y in twos."""
    x, y = halves(rng, 300)
    stds = []
    for order, unit in ((np.arange(300), 1.0), (rng.permutation(300), 8.0)):
        model = rs.GaussianProcessRegressor(rs.Gaussian(), length_scale=[0.3, 2.0], **QUIET)
        model.fit(2 * x[order], unit * y[order])
        stds.append(model.predict(2 * x, return_std=True)[1] / unit)
    assert isinstance(model._fitted.answer, NoisyProcess)
    np.testing.assert_allclose(stds[1], stds[0], rtol=1e-3)


def test_curves_are_those_of_the_noise(rng: Any) -> None:
    found = found_in(*left_out(rng, 2000, lambda x: 1.5 * np.clip(x[:, 1], -2, 2)))
    assert found is not None
    x = np.zeros((41, 3))
    x[:, 1] = np.linspace(-1.5, 1.5, 41)
    logs = np.log(found(x, lambda: np.zeros((41, 1)))[:, 0])
    # seven values from 2000 rows: a logarithm of a variance of some 300 rows has √(2/300) = .08
    assert np.abs(logs - 1.5 * x[:, 1]).max() < 0.7
    assert np.corrcoef(logs, x[:, 1])[0, 1] > 0.97
    edge, beyond = np.full((1, 3), 100.0), np.full((1, 3), 1e6)
    np.testing.assert_array_equal(*(found(e, lambda: np.zeros((1, 1))) for e in (edge, beyond)))


def test_each_target_has_its_own_curves(rng: Any) -> None:
    sample, left = left_out(rng, 1500, lambda x: 2 * np.tanh(x[:, 0]), targets=1)
    even, of_even = left_out(rng, 1500, lambda x: 0 * x[:, 0], targets=1)
    both = LeftOut(
        np.hstack([left.residual, of_even.residual]),
        np.hstack([left.variance, of_even.variance]),
        np.hstack([left.noise, of_even.noise]),
    )
    found = found_in(np.column_stack([sample[:, :4], even[:, 3:]]), both)
    assert found is not None
    again = InputFactors.restored(found.arrays)
    assert again is not None
    factors = again(sample[:, :3], lambda: sample[:, 3:4] + np.zeros((1, 2)))
    assert factors[:, 1].tolist() == [1.0] * 1500
    assert factors[:, 0].std() > 0.5
    alone = found_in(sample, left)
    assert alone is not None
    np.testing.assert_array_equal(alone.values[0], found.values[0])


def test_a_search_ends_where_the_penalised_likelihood_has_no_slope(rng: Any) -> None:
    sample, left = left_out(rng, 400, lambda x: np.sin(x[:, 0]), d=1)
    small = np.minimum(left.residual[:, 0] ** 2, 0.1)  # below the bound
    columns = np.column_stack([np.ones(400), np.abs(sample[:, 0]), sample[:, 0] > 0])
    fold = np.arange(400) % FOLDS
    rows = _Residuals(small, left.variance[:, 0], left.noise[:, 0], columns, columns, fold)

    def loss(c: Any) -> float:
        q = rows.of_f + rows.noise * np.exp(columns @ c)
        return float((np.log(q) + small / q).sum() / 2 + PENALTIES[0] * (c[1:] ** 2).sum() / 2)

    found = np.zeros(3)
    for _ in range(4):
        found = rows._climb(np.ones(400, bool), PENALTIES[0], found)
    near = [loss(found + 1e-4 * step) for step in (*np.eye(3), *-np.eye(3))]
    assert loss(found) < min(near) + 1e-9
    assert sorted(np.bincount(_folds_of(columns))) == [400 // FOLDS] * FOLDS


def test_few_rows_and_many_targets_are_not_looked_at(rng: Any) -> None:
    class Unasked:
        def left_out(self, sample: Any) -> LeftOut:
            return LeftOut(*np.ones((3, len(sample), 17)))

    process: Any = Unasked()
    assert with_noise_by_inputs(process, np.empty((199, 5)), 199) is process
    assert with_noise_by_inputs(process, np.empty((300, 20)), 300) is process
