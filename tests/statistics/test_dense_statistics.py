"""HSIC, kernel CCA and densities against dense matrices, however their rows came together.

Each case draws a size, weights, missing rows, a cut into batches, and batches that are forgotten.
What is left is one set of rows, and the answer is that of its kernel matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reference
import rff_stream as rs
from rff_stream.answers.dependence import hsic
from rff_stream.features import by_columns

ONE = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 12, rng=0, dtype="float64")
TWO = rs.FourierFeatures.sample(rs.Gaussian(1.5), 2, 16, rng=1, dtype="float64")
BOTH = by_columns({"a": ONE, ("b", "c"): TWO}, ["a", "b", "c"])
BANDWIDTH = 0.6
PLACES = np.random.default_rng(1).normal(size=(40, 2))

SEEDS = range(24)


def drawn(seed: int, d: int) -> tuple[Any, Any, Any, Any]:
    """Moments of what is left, by way of weights, gaps, batches and removals; its rows."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, 160))
    x = rng.normal(size=(n, d))
    x[:, -1] += 0.5 * x[:, 0] ** 2
    kind = seed % 4
    w = (
        None
        if kind < 2
        else rng.integers(1, 4, n).astype(float)
        if kind == 2
        else rng.random(n) + 0.1
    )
    given = x.copy()
    gaps = rng.choice(n, n // 10, replace=False)
    given[gaps, rng.integers(0, d, len(gaps))] = np.nan
    there = np.isfinite(given).all(axis=1)
    batch = rng.integers(0, 5, n)
    kept = np.flatnonzero(there & (batch != 4))
    ways = ("at once", "merged", "forgotten", "by groups")
    return x, w, given, (batch, kept, ways[seed % 3 if seed % 2 else 3])


def moments_of(features: Any, seed: int, order: int) -> tuple[Any, Any, Any]:
    """The moments, and the rows and weights (m,) that they are of."""
    x, w, given, (batch, kept, way) = drawn(seed, features.n_inputs)
    choices: Any = {"order": order, "missing_rows": "drop", "progress": False}
    row = rs.collect(features, given, sample_weight=w, **choices).row

    def part(rows: Any) -> Any:
        return rs.collect(
            features, given[rows], sample_weight=None if w is None else w[rows], row=row, **choices
        )

    if way == "at once":
        found = part(batch != 4)
    elif way == "merged" or (way == "forgotten" and order == 1):  # runs that were joined stay so
        found = sum((part(batch == k) for k in range(1, 4)), start=part(batch == 0))
    elif way == "forgotten":
        found = sum((part(batch == k) for k in range(1, 5)), start=part(batch == 0))
        found = found - part(batch == 4)
    else:
        by = rs.collect(features, given, sample_weight=w, by=batch, row=row, **choices)
        found = sum((by[k] for k in range(1, 4)), start=by[0])
    weights = np.ones(len(kept)) if w is None else w[kept]
    return found, x[kept], weights


def scatter(a: Any, b: Any, w: Any) -> Any:
    """Weighted covariance of columns."""
    w = w / w.sum()
    return (a - w @ a).T @ ((b - w @ b) * w[:, None])


def columns_of(x: Any) -> tuple[Any, Any]:
    """φ = Z S^½ of both groups of columns: φφᵀ is the kernel matrix."""
    return tuple(f(part) * np.sqrt(f.prior()) for f, part in ((ONE, x[:, :1]), (TWO, x[:, 1:])))  # type: ignore[return-value]


@pytest.mark.parametrize("seed", SEEDS)
def test_hsic_is_dense(seed: int) -> None:
    found, x, w = moments_of(BOTH, seed, 2)
    a, b = columns_of(x)
    expected = (scatter(a, b, w) ** 2).sum()
    assert found.n == len(x)
    assert hsic(found, ONE.n_components).statistic == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_density_is_that_of_its_kernel(seed: int) -> None:
    kernel = rs.Gaussian(BANDWIDTH)
    features = rs.FourierFeatures.sample(kernel, 2, 512, rng=seed, dtype="float64")
    found, x, w = moments_of(features, seed, 1)
    answer = rs.from_moments.density(found, features, kernel)(features(PLACES))
    z = features(PLACES) * features.prior()
    peak = (2 * np.pi * BANDWIDTH**2) ** -1.0
    expected = peak * z @ (w @ features(x) / w.sum())
    sure = ~answer.below_error & (answer.density > 1.001 * answer.density.min())
    assert sure.sum() > 5
    np.testing.assert_allclose(answer.density[sure], expected[sure], rtol=1e-9)
    exact = reference.parzen(PLACES, x, BANDWIDTH, w)
    assert (abs(answer.density - exact)[sure] < 5 * answer.se[sure]).all()
