"""Dense and obvious answers: nothing here is fast, and nothing here uses the code under test."""

from __future__ import annotations

import numpy as np

from rff_stream._array import Array, Float64

# moments


def augmented(Z: Array, y: Array, z0: Array, y0: Array) -> Float64:
    """Rows a = [z − z₀, 1, y − y₀] (n, P) in float64."""
    y = np.asarray(y, np.float64).reshape(len(Z), -1)
    return np.hstack([np.asarray(Z, np.float64) - z0, np.ones((len(Z), 1)), y - y0])


def second_moments(a: Float64, w: Array | None = None) -> Float64:
    """Σ w a aᵀ (P, P), in extended precision."""
    rows = a.astype(np.longdouble)
    weights = np.ones(len(a), np.longdouble) if w is None else np.asarray(w, np.longdouble)
    return np.asarray(np.einsum("n,ni,nj->ij", weights, rows, rows, optimize=True), np.float64)


def rounding_bound(a: Float64, w: Array | None = None, *, eps: float = 2.0**-52) -> Float64:
    """8·ε·Σw·max|aᵢ|·max|aⱼ| (P, P): what sums of n products may lose; c = 8."""
    largest = np.abs(a).max(axis=0)
    total = len(a) if w is None else float(np.sum(w))
    return np.asarray(8 * eps * total * np.outer(largest, largest))
