"""Landmarks: which rows a Nyström map is made of."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.random import Generator
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.kernels import ExactKernel

LandmarkMethod = Literal["uniform", "kmeans++", "leverage"]

LEVERAGE_ROWS = 2048
"""Rows that explain the others when leverage scores are estimated: one matrix of this size."""


def choose_landmarks(
    kernel: ExactKernel, X: Float64, count: int, method: LandmarkMethod, rng: Generator
) -> Float64:
    """At most ``count`` different rows of X, in the order of the choice."""
    X = X[np.sort(np.unique(X, axis=0, return_index=True)[1])]
    count = min(count, len(X))
    if method == "uniform":
        return X[rng.permutation(len(X))[:count]]
    if method == "kmeans++":
        return X[_sample_spread(kernel, X, count, rng)]
    if method == "leverage":
        scores = _leverage(kernel, X, count, rng)
        keys = rng.exponential(size=len(X)) / scores  # smallest: without replacement
        return X[np.argsort(keys)[:count]]
    raise ValueError(f"method={method!r} but it is one of 'uniform', 'kmeans++', 'leverage'.")


def prior_variance(kernel: ExactKernel, X: Float64) -> Float64:
    """k(x, x) (n,)."""
    if kernel.stationary:
        return np.full(len(X), kernel.variance)
    parts = (X[i : i + 64] for i in range(0, len(X), 64))
    return np.concatenate([np.diag(kernel(part, part)) for part in parts])


def _sample_spread(kernel: ExactKernel, X: Float64, count: int, rng: Generator) -> Array:
    """Rows drawn with their squared distance in feature space to those drawn before."""
    own = prior_variance(kernel, X)
    chosen = [int(rng.integers(len(X)))]
    nearest = np.full(len(X), np.inf)
    while len(chosen) < count:
        last = chosen[-1]
        distance = own + own[last] - 2 * kernel(X, X[last : last + 1])[:, 0]
        nearest = np.minimum(nearest, np.maximum(distance, 0))
        nearest[last] = 0
        cumulative = np.cumsum(nearest)
        if cumulative[-1] <= 0:
            break
        draw = rng.uniform(0, cumulative[-1])
        chosen.append(int(min(np.searchsorted(cumulative, draw, side="right"), len(X) - 1)))
    return np.array(chosen)


def _leverage(kernel: ExactKernel, X: Float64, count: int, rng: Generator) -> Float64:
    """Ridge leverage scores (n,), estimated from at most 2,048 uniform rows.

    λ is such that the effective dimension is half the number of landmarks (Alaoui & Mahoney
    2015); the estimate is that of Rudi et al. 2018, eq. 4, with one level.
    """
    some = X[rng.permutation(len(X))[:LEVERAGE_ROWS]]
    values = kernel(some, some)
    eigenvalues = np.maximum(linalg.eigvalsh(values), 0)
    penalty = _penalty(eigenvalues, min(count, len(some)) / 2)
    factor = linalg.cho_factor(values + penalty * np.eye(len(some)), lower=True)
    explained = np.empty(len(X))
    for start in range(0, len(X), LEVERAGE_ROWS):
        cross = kernel(some, X[start : start + LEVERAGE_ROWS])
        explained[start : start + LEVERAGE_ROWS] = (cross * linalg.cho_solve(factor, cross)).sum(0)
    own = prior_variance(kernel, X)
    return np.asarray(np.maximum(own - explained, 1e-9 * own.max()) / penalty)


def _penalty(eigenvalues: Float64, dimension: float) -> float:
    """λ with Σ e/(e + λ) = ``dimension``, by bisection of its logarithm."""
    lo, hi = 1e-12 * eigenvalues[-1], float(eigenvalues.sum())
    for _ in range(60):
        middle = np.sqrt(lo * hi)
        if (eigenvalues / (eigenvalues + middle)).sum() > dimension:
            lo = middle
        else:
            hi = middle
    return float(hi)
