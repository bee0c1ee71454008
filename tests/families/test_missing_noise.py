"""The noise of rows without an input: a factor for each set of inputs that is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import rff_stream as rs
from rff_stream.families.missing_noise import MissingFactors, MissingInputs
from rff_stream.families.noise_of_rows import NoisyProcess
from rff_stream.families.protocol import LeftOut
from rff_stream.sources import Columns

QUIET: Any = {"missing_rows": "indicate", "random_state": 0, "progress": False}
MAPS: dict[str, Any] = {
    "whole": {"n_components": 96, "length_scale": 1.5, "kernel": "gaussian"},
    "cells": {"features": rs.Cells(48, 2, 2), "length_scale": 2.0, "kernel": "gaussian"},
    "found": {},
}
EFFECT = {"a": -2.0, "b": 0.0, "c": 2.0}


def no_mean() -> np.ndarray:
    """Factors of what is missing do not ask for means."""
    raise AssertionError


def table(rng: np.random.Generator, n: int, *, lost: str, share: float = 0.15) -> pd.DataFrame:
    """y = sin x + u + an effect of c + noise; some values of one column are lost."""
    rows = pd.DataFrame({"x": rng.normal(size=n), "u": rng.normal(size=n)})
    rows["c"] = np.array(list(EFFECT))[rng.integers(0, 3, n)]
    rows["y"] = np.sin(rows.x) + rows.u + rows.c.map(EFFECT) + 0.2 * rng.normal(size=n)
    rows.loc[rng.random(n) < share, lost] = None
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["u", "c"])
@pytest.mark.parametrize("kind", MAPS)
def test_rows_with_and_without_a_value_are_covered_alike(rng, tmp_path, kind, lost):
    rows, new = (table(rng, 3000, lost=lost) for _ in range(2))
    model = rs.GaussianProcessRegressor(**MAPS[kind], **QUIET).fit(rows, "y")
    mean, std = model.predict(new, return_std=True)
    lower, upper = model.predict_interval(new)
    y, gone = new["y"].to_numpy(), new[lost].isna().to_numpy()
    for some in (gone, ~gone):  # four standard errors: of the new rows, and of 300 that calibrate
        error = 4 * np.sqrt(0.95 * 0.05 * (1 / some.sum() + 1 / (2000 * some.mean())))
        for inside in (abs(y - mean) < 1.96 * std, (lower < y) & (y < upper)):
            assert abs(inside[some].mean() - 0.95) < error
    assert std[gone].mean() > 3 * std[~gone].mean()
    few = new.iloc[:50]
    covariance = model.predict(few, return_cov=True)[1]
    of_few = model.predict(few, return_std=True)[1]
    np.testing.assert_allclose(covariance.diagonal(), of_few**2, rtol=1e-6)
    plain = model.predict(few, return_std=True, noise=False)[1]
    assert (plain < of_few).all()
    model.save(tmp_path / "m.zarr")  # without sums, so without the rows that told the factors
    again = rs.load(tmp_path / "m.zarr")
    own, kept = (each.predict(few, return_std=True)[1] for each in (model, again))
    np.testing.assert_array_equal(kept, own)
    model.save(tmp_path / "n.zarr", moments=True)
    more = rs.load(tmp_path / "n.zarr").set_params(progress=False).update(new)
    assert isinstance(more._fitted.answer, NoisyProcess)


def test_a_level_that_was_never_seen_is_as_uncertain_as_a_priori(rng):
    effect, n = 2 * rng.normal(size=100), 4000

    def rows(n: int) -> tuple[pd.DataFrame, np.ndarray]:
        level = rng.integers(0, 100, n)
        found = pd.DataFrame({"x": rng.normal(size=n), "flat": [f"A{i}" for i in level]})
        found["y"] = np.sin(found.x) + effect[level] + 0.3 * rng.normal(size=n)
        gone = rng.random(n) < 0.15
        found.loc[gone, "flat"] = None
        return found, gone

    model = rs.GaussianProcessRegressor(n_components=64, length_scale=1.5, **QUIET)
    model.fit(rows(n)[0], "y")
    new, gone = rows(1000)
    std = model.predict(new, return_std=True)[1]
    assert 0.27 < std[~gone].mean() < 0.36 and 1.6 < std[gone].mean() < 2.4
    assert model.predict(new.assign(flat="none of them"), return_std=True)[1].min() > 1.6


@pytest.mark.parametrize("seed", range(4))
def test_where_a_missing_value_tells_nothing_the_noise_stays(seed):
    rng = np.random.default_rng(seed)
    rows = table(rng, 1500, lost="u").assign(z=rng.normal(size=1500))
    rows.loc[rng.random(1500) < 0.3, "z"] = np.nan
    rows["y"] = np.sin(rows.x) + 0.2 * rng.normal(size=1500)
    model = rs.GaussianProcessRegressor(n_components=64, length_scale=2.0, **QUIET)
    model.fit(rows[["x", "z", "y"]], "y")
    assert not isinstance(getattr(model._fitted.answer, "factors", None), MissingFactors)


def test_factors_are_those_of_their_rows(rng):
    """Two inputs that can be missing: of four sets three have rows enough, one takes the rest."""
    columns = Columns(
        inputs=("u", "v", "w", "u=missing", "v=missing", "w=missing"), targets=("y",),
        units=("",) * 7, weight="", indicated=("u", "v", "w"),
    )  # fmt: skip
    inputs = MissingInputs.of(columns)
    assert inputs.marks == (3, 4, 5) and not inputs.levels and not inputs.codes
    n = 40_000
    flags = (rng.random((n, 3)) < [0.2, 0.1, 0.0005]).astype(float)
    variance = 1.0 + 3 * flags[:, 0] + 8 * flags[:, 1]
    weights = rng.uniform(0.5, 2, n)
    residual = rng.normal(size=n) * np.sqrt(0.5 + variance / weights)
    left = LeftOut(residual[:, None], np.full((n, 1), 0.5), np.ones((n, 1)))
    rows = np.column_stack([np.zeros((n, 3)), flags, residual, weights])
    found = MissingFactors.found(inputs, rows, left)
    assert found is not None and len(found.sets) == 4 and not found.sets[:, 2].any()
    known = 1 + 3 * found.sets[:, 0] + 8 * found.sets[:, 1]
    counts = [(flags.astype(bool) == own).all(axis=1).sum() for own in found.sets]
    error = 4 * 2 * 0.951 / np.sqrt(counts) * (1 + 0.5 * 2 / known)  # of v + κ·n, relative
    assert (abs(found.factors[:-1, 0] / known - 1) < error).all()
    own = found(rows[:, :6], no_mean)[:, 0]
    np.testing.assert_array_equal(own, found.factors[_set_of(found, flags), 0])
    again = MissingFactors.restored(columns, found.arrays)
    assert again is not None
    few = rows[:99, :6]
    np.testing.assert_array_equal(again(few, no_mean), found(few, no_mean))


def _set_of(found: MissingFactors, flags: np.ndarray) -> np.ndarray:
    """The place of each row's set; the last for one that has no factor of its own."""
    places = {tuple(own): place for place, own in enumerate(found.sets.tolist())}
    return np.array([places.get(tuple(row), len(places)) for row in flags.astype(bool).tolist()])
