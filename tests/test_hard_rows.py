"""Copies of rows and far targets: said, and intervals hold all the same."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.answers.copies import distinct_rows
from rff_stream.errors import NumericalWarning

QUIET: Any = {"random_state": 0, "progress": False}


def rows(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(2 * x[:, 0]) * x[:, 1] + 0.3 * rng.normal(size=n)


def test_copies_are_one_row_with_their_weight(rng: np.random.Generator) -> None:
    x, y = rows(rng, 50)
    sample = np.column_stack([x, y, np.ones(50)])
    assert distinct_rows(sample, 50) is sample
    found = distinct_rows(np.repeat(sample, 3, axis=0), 150)
    np.testing.assert_array_equal(found[:, :-1], sample[:, :-1])
    np.testing.assert_allclose(found[:, -1], 3)
    other = sample.copy()
    other[:, 2] += 1.0  # measured again: no copy
    twice = np.concatenate([sample, other])
    assert distinct_rows(twice, 100) is twice


def test_intervals_hold_where_rows_are_copies_and_it_is_said() -> None:
    """Over 8 seeds: .78 of .90 where copies of a row stayed in the fit without it."""
    inside = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, y = rows(rng, 100)
        x_new, y_new = rows(rng, 500)
        model = rs.GaussianProcessRegressor(n_components=128, random_state=seed, progress=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NumericalWarning)
            model.fit(np.repeat(x, 20, axis=0), np.repeat(y, 20))
        assert any("Rows stand 20 times" in str(each.message) for each in caught)
        low, high = model.predict_interval(x_new, 0.9)
        inside.append(np.mean((low <= y_new) & (y_new <= high)))
    assert 0.87 < np.mean(inside) < 0.97  # standard error .01


@pytest.mark.parametrize("model", [rs.KernelRidge, rs.GaussianProcessRegressor])
def test_far_targets_are_said(model: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2000, 2))
    f = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    with pytest.warns(NumericalWarning, match="1 % of the sampled rows make .* of the squared"):
        model(n_components=64, **QUIET).fit(x, f + 0.1 * rng.standard_cauchy(2000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for noise in (rng.standard_t(3, 2000), rng.exponential(size=2000), np.zeros(2000)):
            model(n_components=64, **QUIET).fit(x, f + 0.3 * noise)
