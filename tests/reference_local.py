"""Dense and obvious local features: loops, numpy.linalg, nothing of the code under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64

Kernel = Callable[[Array, Array], Float64]


def cell_of(x: Array, origin: Array, directions: Array, thresholds: Array) -> int:
    """The cell of one row in one tree, with the plain floats of Python."""
    node, n_nodes = 0, len(thresholds)
    while node < n_nodes:
        score = 0.0
        for j in range(len(x)):
            score += (float(x[j]) - float(origin[j])) * float(directions[node][j])
        node = 2 * node + 1 + int(score > float(thresholds[node]))
    return node - n_nodes


def columns(kernel: Kernel, U: Array, X: Array, nugget: float) -> Float64:
    """L⁻¹k(U, x) (n, R) with LLᵀ = k(U, U) + εI."""
    factor = np.linalg.cholesky(kernel(U, U) + nugget * np.eye(len(U)))
    return np.linalg.solve(factor, kernel(U, X)).T


@dataclass
class CellFit:
    """Ridge with a flat mean on the columns of one cell; weights w, one target."""

    Z: Float64
    y: Float64
    w: Float64
    alpha: float
    intercept: bool = True

    @property
    def centre(self) -> tuple[Float64, float]:
        if not self.intercept:
            return np.zeros(self.Z.shape[1]), 0.0
        return np.average(self.Z, axis=0, weights=self.w), float(np.average(self.y, weights=self.w))

    @property
    def inverse(self) -> Float64:
        Z = self.Z - self.centre[0]
        return np.linalg.inv(Z.T @ (self.w[:, None] * Z) + self.alpha * np.eye(Z.shape[1]))

    def mean(self, Z: Array) -> Float64:
        z, y = self.centre
        coef = self.inverse @ ((self.Z - z).T @ (self.w * (self.y - y)))
        return y + (Z - z) @ coef

    def spread(self, Z: Array) -> Float64:
        shifted = Z - self.centre[0]
        border = 1 / self.w.sum() if self.intercept else 0.0
        return np.einsum("ij,jk,ik->i", shifted, self.inverse, shifted) + border

    def without(self, i: int) -> CellFit:
        """The fit without row i."""
        rest = np.arange(len(self.y)) != i
        return CellFit(self.Z[rest], self.y[rest], self.w[rest], self.alpha, self.intercept)

    def log_evidence(self, noise: float) -> float:
        """log p(y) of N(μ1, σ_f²ZZᵀ + σₙ²W⁻¹), μ flat (or 0): dense, n × n."""
        n, one = len(self.y), np.ones(len(self.y))
        K = noise / self.alpha * self.Z @ self.Z.T + noise * np.diag(1 / self.w)
        inverse = np.linalg.inv(K)
        _, log_det = np.linalg.slogdet(K)
        if not self.intercept:
            misfit = self.y @ inverse @ self.y
            return float(-0.5 * (n * np.log(2 * np.pi) + log_det + misfit))
        total = one @ inverse @ one
        residual = self.y - (one @ inverse @ self.y) / total
        misfit = residual @ inverse @ residual
        return float(-0.5 * ((n - 1) * np.log(2 * np.pi) + log_det + np.log(total) + misfit))
