"""Dense universal kriging, as obvious as it gets: what sums on a frequency grid must equal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rff_stream._array import Array, Float64


@dataclass(frozen=True)
class Kriging:
    """y = Hθ + f + ε, f ~ N(0, K σ_f²), ε ~ N(0, σₙ² W⁻¹), α = σₙ²/σ_f², θ flat."""

    K: Float64  # (n, n)
    H: Float64  # (n, p)
    y: Float64  # (n,)
    w: Float64  # (n,)
    alpha: float

    @cached_property
    def inverse(self) -> Float64:
        return np.linalg.inv(self.K / self.alpha + np.diag(1 / self.w))

    @property
    def theta(self) -> Float64:
        HV = self.H.T @ self.inverse
        return np.linalg.solve(HV @ self.H, HV @ self.y)

    @property
    def noise_variance(self) -> float:
        residual = self.y - self.H @ self.theta
        freedom = len(self.y) - self.H.shape[1]
        return float(residual @ self.inverse @ residual) / freedom

    def mean(self, k: Array, h: Array) -> Float64:
        """At places with kernel rows k (m, n) to the data and trend h (m, p)."""
        return h @ self.theta + k / self.alpha @ self.inverse @ (self.y - self.H @ self.theta)

    def variance(self, prior: Array, k: Array, h: Array) -> Float64:
        """Of f, with prior variances (m,) of the kernel."""
        V, k = self.inverse, k / self.alpha
        rest = h - k @ V @ self.H
        spread = rest @ np.linalg.inv(self.H.T @ V @ self.H) @ rest.T
        return self.noise_variance * np.diag(np.diag(prior / self.alpha) - k @ V @ k.T + spread)

    def log_evidence(self) -> float:
        freedom = len(self.y) - self.H.shape[1]
        logs = -np.linalg.slogdet(self.inverse)[1]
        border = np.linalg.slogdet(self.H.T @ self.inverse @ self.H)[1]
        scale = freedom * (np.log(2 * np.pi * self.noise_variance) + 1)
        return float(-0.5 * (scale + logs + border))
