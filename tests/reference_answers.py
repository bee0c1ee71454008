"""Dense, obvious answers from an explicit Z: nothing here uses the code under test."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.moments import AugmentedRow, Moments, pack
from rff_stream.moments.row_sample import RowSample


def fourier(x: Array, n_components: int, seed: int = 0) -> Float64:
    """Interleaved cos and sin of a Gaussian kernel of length-scale 1, (n, R)."""
    omega = np.random.default_rng(seed).standard_normal((n_components // 2, x.shape[1]))
    z = np.empty((len(x), n_components))
    z[:, 0::2], z[:, 1::2] = np.cos(x @ omega.T), np.sin(x @ omega.T)
    return z


def moments_of(
    z: Float64,
    y: Float64,
    w: Float64 | None = None,
    *,
    prior: Float64 | None = None,
    origins: tuple[Float64, Float64] | None = None,
    dtype: type = np.float64,
) -> Moments:
    """Moments of explicit feature rows, summed by one matrix product in ``dtype``."""
    y = y.reshape(len(z), -1)
    w = np.ones(len(z)) if w is None else w
    n_features, n_targets = z.shape[1], y.shape[1]
    if origins is None:
        origins = z[:50].mean(axis=0), y[:50].mean(axis=0)
    row = AugmentedRow(
        map_fingerprint="explicit",
        prior=np.full(n_features, 2 / n_features) if prior is None else prior,
        nesting="average",
        feature_origin=origins[0],
        target_origin=origins[1],
        target_scale=np.ones(n_targets),
        inputs=("x",),
        targets=tuple(f"y{i}" for i in range(n_targets)),
    )
    a = np.hstack([z - origins[0], np.ones((len(z), 1)), y - origins[1]])
    rows = (a * np.sqrt(w)[:, None]).astype(dtype)
    sums = pack(np.asarray(rows.T @ rows, dtype=np.float64))
    sample = RowSample.empty(0, n_targets + 2)
    return Moments(row, 2, sums, len(z), float(w @ w), float(np.log(w).sum()), None, sample)


def ridge(
    z: Float64, y: Float64, w: Float64, s: Float64, alpha: float, *, fit_intercept: bool
) -> tuple[Float64, Float64]:
    """β and μ of the penalised normal equations, with the intercept as one more column."""
    design = np.hstack([z, np.ones((len(z), 1))]) if fit_intercept else z
    penalty = np.diag(np.r_[alpha / s, 0.0] if fit_intercept else alpha / s)
    solution = np.linalg.solve(
        design.T @ (w[:, None] * design) + penalty, design.T @ (w[:, None] * y)
    )
    if not fit_intercept:
        return solution, np.zeros(y.shape[1])
    return solution[:-1], solution[-1]


class Kriging:
    """Universal kriging on K = σ_f² Z diag(s) Zᵀ with noise σₙ²/w and a flat mean: dense."""

    def __init__(
        self,
        z: Float64,
        y: Float64,
        w: Float64,
        s: Float64,
        noise: float,
        signal: float,
        *,
        fit_intercept: bool = True,
    ) -> None:
        self.z, self.s, self.noise, self.signal = z, s, noise, signal
        covariance = signal * (z * s) @ z.T + noise * np.diag(1 / w)
        self.inverse = np.linalg.inv(covariance)
        self.log_det = np.linalg.slogdet(covariance)[1]
        self.y = y
        self.ones = np.ones(len(z)) * float(fit_intercept)
        self.fit_intercept = fit_intercept
        self.precision = float(self.ones @ self.inverse @ self.ones)  # 1ᵀK⁻¹1
        self.mean = (self.ones @ self.inverse @ y) / self.precision if fit_intercept else 0.0

    def log_evidence(self) -> float:
        """log ∫ p(y | μ) dμ."""
        r = self.y - self.mean * self.ones
        n = len(r) - int(self.fit_intercept)
        value = n * np.log(2 * np.pi) + self.log_det + r @ self.inverse @ r
        return -0.5 * float(value + (np.log(self.precision) if self.fit_intercept else 0.0))

    def predict(self, z: Float64) -> tuple[Float64, Float64]:
        """Mean and variance of f at new feature rows."""
        cross = self.signal * (z * self.s) @ self.z.T  # (m, n)
        mean = self.mean + cross @ self.inverse @ (self.y - self.mean * self.ones)
        own = self.signal * ((z * self.s) * z).sum(axis=1)
        variance = own - np.einsum("ij,jk,ik->i", cross, self.inverse, cross)
        if self.fit_intercept:
            rest = 1 - cross @ self.inverse @ self.ones
            variance += rest**2 / self.precision
        return mean, variance


def smallest_eigenvalue(z: Float64, s: Float64) -> float:
    """λ_min of S^½ Z̃ᵀZ̃ S^½."""
    centred = (z - z.mean(axis=0)) * np.sqrt(s)
    return float(linalg.eigvalsh(centred.T @ centred)[0])
