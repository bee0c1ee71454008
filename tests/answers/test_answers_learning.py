"""Errors by group and learning curves from moments, against the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.answers.learning_curves import group_errors, row_curve


def test_errors_by_group_are_those_of_the_rows(rng: np.random.Generator) -> None:
    x = rng.uniform(-2, 2, (900, 2))
    y = np.stack([np.sin(x[:, 0]) + 5, x.prod(axis=1)], axis=1) + rng.normal(size=(900, 2)) / 9
    label, weight = rng.integers(0, 3, 900), rng.uniform(0.5, 2, 900)
    model = rs.KernelRidge(n_components=64, random_state=0, dtype="float64").fit(x, y)
    groups = rs.collect(
        model.features_, x, y, by=label, sample_weight=weight, sums="float64", n_groups=3
    )
    missed = y - model.predict(x)
    for k, part in groups.items():
        found, own, w = group_errors(part, model.coef_, model.intercept_), missed[label == k], None
        w = weight[label == k]
        assert found.n == len(own)
        # Σ of 300 squares of size 25 and coefficients of size 10²: 1e-16 · 300 · 25 · 1e2
        np.testing.assert_allclose(found.bias, np.average(own, axis=0, weights=w), atol=1e-9)
        mean_square = np.average(own**2, axis=0, weights=w)
        np.testing.assert_allclose(found.rmse**2, mean_square, atol=1e-9)


def test_a_learning_curve_is_fits_on_more_and_more_rows(rng: np.random.Generator) -> None:
    x = rng.uniform(-2, 2, (1200, 1))
    y = np.sin(3 * x[:, 0]) + 0.2 * rng.normal(size=1200)
    features = rs.FourierFeatures.sample(rs.Gaussian(0.5), 1, 64, rng=0, dtype="float64")
    parts = rs.collect(features, x, y, by=np.arange(1200) // 200, n_groups=6, sums="float64")
    found = row_curve([parts[k] for k in range(5)], parts[5])
    assert found.n_rows.tolist() == [200, 400, 600, 800, 1000]
    model = rs.KernelRidge(
        length_scale=0.5, n_components=64, features=features, dtype="float64", sums="float64"
    ).fit(x[:600], y[:600])
    rmse = np.sqrt(np.mean((y[1000:] - model.predict(x[1000:])) ** 2))
    # α by evidence: a maximum is flat, so α is known to √ε and the error to ε of its own
    np.testing.assert_allclose(found.held_out_rmse[2, 0], rmse, rtol=1e-4)
    assert found.held_out_rmse[-1, 0] < found.held_out_rmse[0, 0]
    with pytest.raises(ValueError, match="groups is empty"):
        row_curve([], parts[5])
