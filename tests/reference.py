"""Dense and obvious answers: nothing here is fast, and nothing here uses the code under test."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln, kv

from rff_stream._array import Array, Float64

# moments


def augmented(Z: Array, y: Array, z0: Array | float, y0: Array | float) -> Float64:
    """Rows a = [z − z₀, 1, y − y₀] (n, P) in float64."""
    y = np.asarray(y, np.float64)
    y = y[:, None] if y.ndim == 1 else y
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


# kernels


def scaled_differences(X: Array, Y: Array, length_scale: float | Array = 1.0) -> Float64:
    """(x − x')/ℓ (n, m, d)."""
    return np.asarray((X[:, None, :] - Y[None, :, :]) / length_scale, np.float64)


def gaussian(X: Array, Y: Array, length_scale: float | Array = 1.0) -> Float64:
    """exp(−‖δ‖²/2ℓ²) (n, m)."""
    return np.asarray(np.exp(-(scaled_differences(X, Y, length_scale) ** 2).sum(-1) / 2))


def laplacian(X: Array, Y: Array, length_scale: float | Array = 1.0) -> Float64:
    """exp(−‖δ‖₁/ℓ) (n, m)."""
    return np.asarray(np.exp(-np.abs(scaled_differences(X, Y, length_scale)).sum(-1)))


def cauchy(X: Array, Y: Array, length_scale: float | Array = 1.0) -> Float64:
    """Π 1/(1 + δⱼ²/ℓⱼ²) (n, m)."""
    return np.asarray((1 / (1 + scaled_differences(X, Y, length_scale) ** 2)).prod(-1))


def matern(X: Array, Y: Array, length_scale: float | Array = 1.0, nu: float = 1.5) -> Float64:
    """2^{1−ν}/Γ(ν) tᵛ Kᵥ(t) with t = √(2ν) ‖δ‖/ℓ > 0 (n, m): Rasmussen & Williams eq. 4.14."""
    t = np.sqrt(2 * nu * (scaled_differences(X, Y, length_scale) ** 2).sum(-1))
    factor = np.exp((1 - nu) * np.log(2) - gammaln(nu) + nu * np.log(t))
    return np.asarray(factor * kv(nu, t))


VARIANCE_OFF = (1.2, 1 / 1.2)
"""Factors of a variance that a test of its law must not let pass."""


def kernel_estimate_variance(
    near: Array, far: Array, n_components: int, *, paired: bool, variance: float = 1.0
) -> Float64:
    """Variance of Z diag(s) Zᵀ for R iid columns, from κ(δ) and κ(2δ) (design, section 3)."""
    a, b = np.asarray(near) / variance, np.asarray(far) / variance
    law = 1 + b - 2 * a**2 if paired else 1 + b / 2 - a**2
    return np.asarray(variance**2 * law / n_components)


# density


def parzen(points: Array, rows: Array, bandwidth: float | Array, w: Array | None = None) -> Float64:
    """Gaussian kernel density (n,) at points (n, d) from rows (m, d)."""
    d = points.shape[1]
    peak = (2 * np.pi) ** (d / 2) * np.prod(np.broadcast_to(bandwidth, d))
    return np.asarray(np.average(gaussian(points, rows, bandwidth), axis=1, weights=w) / peak)


def least_squares_score(rows: Array, bandwidth: float) -> float:
    """∫p̂² − 2/n Σ p̂₋ᵢ(xᵢ) of a Gaussian kernel: Bowman 1984, by its two double sums."""
    n, d = rows.shape
    square = parzen(rows, rows, np.sqrt(2) * bandwidth).mean()
    own = (2 * np.pi) ** (-d / 2) * bandwidth**-d / n
    held_out = (parzen(rows, rows, bandwidth).mean() - own) * n / (n - 1)
    return float(square - 2 * held_out)


def mean_discrepancy(a: Array, b: Array, length_scale: float) -> float:
    """MMD of a Gaussian kernel: √(mean K_aa + mean K_bb − 2 mean K_ab)."""
    means = [gaussian(x, y, length_scale).mean() for x, y in ((a, a), (b, b), (a, b))]
    return float(np.sqrt(means[0] + means[1] - 2 * means[2]))


def softmax_hessian(phi: Float64, theta: Float64, alpha: float) -> Float64:
    """Hessian of −Σ log softmax(φθ) + (α/2)‖γ‖² at θ (p, C), class by class.

    Row by row: (diag p − ppᵀ) ⊗ φφᵀ. The last coefficient of each class is not penalised.
    """
    p, n_classes = theta.shape
    found = np.zeros((n_classes * p, n_classes * p))
    for row in phi:
        scores = np.exp(row @ theta - (row @ theta).max())
        share = scores / scores.sum()
        found += np.kron(np.diag(share) - np.outer(share, share), np.outer(row, row))
    penalised = np.append(np.full(p - 1, alpha), 0.0)
    return found + np.diag(np.tile(penalised, n_classes))


def slopes(function: Any, X: Array, step: float = 3e-4) -> Float64:
    """∂f/∂x_j (n, d, T) of a function (n, d) -> (n, T), by central differences of fourth order.

    They err by h⁴f⁽⁵⁾/30 + 1.5 ε/h, where ε is the round-off of f itself: of coefficients that
    nearly cancel it is 1e-9, not 1e-15. That is why the step is not a small one.
    """
    moves = step * np.eye(X.shape[1])
    near, far = (
        np.stack([function(X + k * h) - function(X - k * h) for h in moves], axis=1) for k in (1, 2)
    )
    return (8 * near - far) / (12 * step)


def gradient_outer_product(function: Any, X: Array, w: Array | None = None) -> Float64:
    """Σ w ∇f∇fᵀ (T, d, d), row by row."""
    found = slopes(function, X)
    total = np.zeros((found.shape[2], X.shape[1], X.shape[1]))
    for row, weight in zip(found, np.ones(len(X)) if w is None else w, strict=True):
        for t, gradient in enumerate(row.T):
            total[t] += weight * np.outer(gradient, gradient)
    return total
