"""Ridge regression on some rows, with what each row adds to its own prediction.

    ŷ = ȳ + u b,   b = (UᵀWU/n + ρ)⁻¹ UᵀW(y − ȳ)/n,   u = (x − x̄)/s

Under the line without row i its residual is rᵢ/(1 − hᵢ), with leverage
hᵢ = wᵢ (1 + uᵢ (UᵀWU/n + ρ)⁻¹ uᵢᵀ)/n. Of a few ρ that of least such error is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64

PENALTIES = 10.0 ** np.arange(-8.0, 2.0)
"""ρ that are compared, in units of the variances of inputs."""

FAR_SHARE, FEWEST_FAR = 0.01, 5
"""Share and least number of rows that are far: those of the largest leverage. At them a line of
california_housing had 1.5 times the squared error of the mean (4 at a tenth of them), where it made
errors at new rows 7 % larger; three tables where it was taken had .03 to .3. Set on these."""

LEAST_REST_OF_LINE = 1e-12
"""Smallest 1 − h. The rounding of an h near 1 is a few 10⁻¹⁶, and the least ρ leaves about 10⁻⁸
over the largest eigenvalue. A line through all rows leaves r as small, so that r/(1 − h) holds."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearFit:
    """A line of some rows."""

    origin: Float64  # x̄ (d,)
    slopes: Float64  # (d, T), in units of x and y
    middle: Float64  # ȳ (T,)
    root: Float64
    """(d, d): rows (x − x̄) times this have squares that sum to u (UᵀWU/n + ρ)⁻¹ uᵀ/n."""
    n: float  # Σ w of the rows

    @classmethod
    def of(cls, x: Array, y: Array, w: Array) -> LinearFit:
        """The line of rows x (n, d) and y (n, T) with weights w (n,)."""
        n, origin, middle = float(w.sum()), np.average(x, 0, w), np.average(y, 0, w)
        spread = np.sqrt(np.average((x - origin) ** 2, 0, w))
        varies = (x != x[:1]).any(axis=0)  # of equal values the rounded mean is another one
        unit = np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0)
        u = (x - origin) * unit
        values, vectors = np.linalg.eigh((u * w[:, None]).T @ u / n)
        along, values = u @ vectors, np.maximum(values, 0.0)
        targets = (along * w[:, None]).T @ (y - middle) / n
        found = []
        for penalty in PENALTIES:
            inverse = 1 / (values + penalty)
            fitted = along @ (inverse[:, None] * targets)
            rest = 1 - w * (1 + along**2 @ inverse) / n
            left = (y - middle - fitted) / np.maximum(rest, LEAST_REST_OF_LINE)[:, None]
            found.append((float(w @ (left**2).sum(axis=1)), penalty))
        inverse = 1 / (values + min(found)[1])
        slopes = unit[:, None] * (vectors @ (inverse[:, None] * targets))
        return cls(origin, slopes, middle, unit[:, None] * vectors * np.sqrt(inverse / n), n)

    def residuals(self, x: Array, y: Array) -> Float64:
        """y − ȳ − (x − x̄) b (m, T)."""
        return np.asarray(y - self.middle - (x - self.origin) @ self.slopes)

    def leverage(self, x: Array, w: Array) -> Float64:
        """h (m,) of rows that the line was fitted to."""
        reach = (((x - self.origin) @ self.root) ** 2).sum(axis=1)
        return np.asarray(np.minimum(w * (1 / self.n + reach), 1 - LEAST_REST_OF_LINE))

    def serves_far_rows(self, x: Array, y: Array, w: Array) -> bool:
        """Whether it is better than the mean at the rows that pull it most, each left out of it."""
        pull = self.leverage(x, w)
        far = np.argsort(-pull, kind="stable")[: max(round(FAR_SHARE * len(x)), FEWEST_FAR)]
        missed = self.residuals(x[far], y[far]) / (1 - pull[far])[:, None]
        return bool((missed**2).mean() < ((y[far] - self.middle) ** 2).mean())
