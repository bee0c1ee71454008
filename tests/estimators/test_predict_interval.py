"""Intervals of a new y: by residuals at rows like those of the fit, wider where less is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import rff_stream as rs
from rff_stream.answers.calibration import conformal_quantile

QUIET: Any = {"random_state": 0, "progress": False}
MAPS: dict[str, Any] = {
    "whole": {"n_components": 200, "length_scale": 1.0, "kernel": "gaussian"},
    "cells": {"features": rs.Cells(64, 2, 4), "length_scale": 1.0, "kernel": "gaussian"},
    "grid": {"features": rs.Grid(modes=(24,)), "length_scale": 1.0, "kernel": "gaussian"},
    "found": {},
}


def series(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    t = np.sort(rng.uniform(0, 10, n))[:, None]
    return t, np.sin(2 * t[:, 0]) + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize("kind", ["whole", "cells", "found"])
def test_the_variance_of_f_adds_what_it_is_more_than_at_most_rows(rng: Any, kind: str) -> None:
    t, y = series(rng, 1500)
    model = rs.GaussianProcessRegressor(**MAPS[kind], **QUIET).fit(t[:1200], y[:1200])
    process: Any = model._require_fit().answer
    rows = model._require_fit().sampled_rows
    left = process.left_out(rows)
    q = conformal_quantile(left.residual, 0.9, chosen=1)[0]
    known = np.quantile(left.variance, 0.95)
    new = np.vstack([t[::7], [[12.0]]])
    v = process.variances()(new)[:, 0]
    half = np.sqrt(q**2 + norm.ppf(0.95) ** 2 * np.maximum(v - known, 0))
    mean = model.predict(new[:-1])
    lower, upper = model.predict_interval(new[:-1], 0.9)
    np.testing.assert_allclose(upper - mean, half[:-1], rtol=1e-6)
    np.testing.assert_allclose(mean - lower, half[:-1], rtol=1e-6)
    assert np.isclose(half, q, rtol=1e-9).mean() > 0.7 and half[-1] > 2 * q


def test_rows_after_a_series_are_inside_as_often_as_its_own() -> None:
    """They were inside .48 to .55 of 95 % intervals, whose widths were those of the fit."""
    inside = []
    for seed in range(4):
        t, y = series(np.random.default_rng(seed), 1000)
        fit = t[:, 0] < 9.5
        model = rs.GaussianProcessRegressor(**QUIET).fit(t[fit], y[fit])
        lower, upper = model.predict_interval(t[~fit])
        inside.append(np.mean((lower < y[~fit]) & (y[~fit] < upper)))
    assert np.mean(inside) > 0.85


def test_a_grid_of_many_modes_keeps_one_width(rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    t, y = series(rng, 600)
    model = rs.GaussianProcessRegressor(**MAPS["grid"], **QUIET).fit(t, y)
    monkeypatch.setattr("rff_stream.grid.family.is_small", lambda _: False)
    lower, upper = model.predict_interval(t)
    np.testing.assert_allclose(upper - lower, upper[0] - lower[0], rtol=1e-12)
