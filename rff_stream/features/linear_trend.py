"""A line of the inputs that is taken from the targets before a map answers for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64


@dataclass(frozen=True, slots=True, eq=False)
class LinearTrend:
    """x ↦ (x − c) B, as it was found from some rows, with its variance."""

    origin: Float64  # c (d,)
    slopes: Float64  # B (d, T)
    root: Float64  # (d, d): the variance of a target of unit noise is ‖(x − c) root‖²
    noise: Float64  # (T,): variances of what the line leaves

    def __call__(self, x: Array) -> Float64:
        """Values (n, T) of rows (n, d)."""
        return np.asarray((x - self.origin) @ self.slopes, np.float64)

    def variance(self, x: Array) -> Float64:
        """Of the values (n, T): it grows with the distance from the rows that said the line."""
        return np.asarray((((x - self.origin) @ self.root) ** 2).sum(axis=1)[:, None] * self.noise)

    def covariance(self, x: Array) -> Float64:
        """Of the values (T, n, n)."""
        half = (x - self.origin) @ self.root
        return np.asarray(self.noise[:, None, None] * (half @ half.T))

    def drawn_slopes(self, n_samples: int, seed: int) -> Float64:
        """B of lines that are drawn (d, T, S)."""
        (rng,) = np.random.default_rng(seed).spawn(1)  # not that of what is drawn beside it
        drawn = rng.standard_normal((len(self.root.T), len(self.noise), n_samples))
        drawn *= np.sqrt(self.noise)[:, None]
        return np.asarray(self.slopes[:, :, None] + np.tensordot(self.root, drawn, 1))
