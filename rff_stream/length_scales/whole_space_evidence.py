"""log p(y) of a small Fourier map as a function of length-scales and α, with its gradient.

    Z = [cos φ, sin φ],  φ = (x/ℓ)Ωᵀ,  Z̃ = W^½(Z − 1z̄ᵀ),  G = sZ̃ᵀZ̃,  c = √s Z̃ᵀW^½ỹ
    A = (G + αI)⁻¹,  b = Ac,  Q = ỹᵀWỹ − cᵀb
    −2 log p = ν log 2πe + ν log σₙ² + log|G + αI| − R log α + log Σw − Σ log w

with ν = n − 1, μ flat and the common scale σₙ² = Q/ν at its maximum. By hand:

    ∂(−2 log p) = 2 tr(∂ZᵀE),  E = W^½[Z̃B − W^½ỹ(√s/σₙ²)bᵀ],  B = s(A + bbᵀ/σₙ²)
    ∂(−2 log p)/∂ log ℓⱼ = (2/ℓⱼ) Σ (XᵀH)∘Ωᵀ,  H = E_cos∘sin φ − E_sin∘cos φ
    ∂(−2 log p)/∂ log α = α(‖b‖²/σₙ² + tr A) − R

and for n < R the same from n×n:  P = (sZ̃Z̃ᵀ + αI)⁻¹,  a = PW^½ỹ,  b = √s Z̃ᵀa,  Q = αỹᵀW^½a,
    log|G + αI| − R log α = −log|P| − n log α,  E = W^½s(P − aaᵀα/σₙ²)Z̃,  tr A = tr P + (R − n)/α

(columns of 1 are orthogonal to E, so centring adds nothing). Targets share α and ℓ, each with
its own scale: their log p are summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.dense_triangle import invert_positive
from rff_stream.systems.normal_equations import mirror_lower

BLOCK_ROWS = 1024
"""Rows mapped and summed at a time: float32 sums go to float64 between blocks."""

ROUNDING = {"float32": 1e-6, "float64": 1e-13}
"""Below this α/(s Σw) the rounding errors of the sums would be fitted."""

LEAST = 1e-13
"""Below this share of ỹᵀWỹ, Q is rounding error."""

FAILED = -1e300
"""log p if rounding errors prevent a factor: lower than any other."""


@dataclass(frozen=True, slots=True, eq=False)
class MapEvidence:
    """The evidence of one fixed draw of unit frequencies on rows in memory."""

    x: Array  # (n, d): inputs of about unit size, in the dtype of the features
    y: Float64  # (n, T): none constant
    weights: Float64  # (n,): positive
    frequencies: Array  # (m, d): Ω at ℓ = 1; R = 2m
    variance: float = 1.0  # κ(0); s = 2·variance/R
    dtype: Literal["float32", "float64"] = "float32"
    """Of features and products; sums over blocks are float64."""

    @property
    def prior(self) -> float:
        """The one value s of the prior."""
        return self.variance / len(self.frequencies)

    @property
    def lowest_alpha(self) -> float:
        """α that the rounding of the sums allows."""
        return ROUNDING[self.dtype] * self.prior * float(self.weights.sum())

    def __call__(self, log_scale: Float64, log_alpha: float) -> tuple[float, Float64, float]:
        """log p, ∂/∂ log ℓ (1,) or (d,), and ∂/∂ log α, with ℓ in units of x and α in units of w.

        4nR² flops and nR cosines, 4n²R where n < R: 0.2 CPU s at n=6000, R=800 in float32, 0.35
        in float64.
        """
        solved = self._solve(log_scale, log_alpha)
        if solved is None:
            return FAILED, np.zeros_like(log_scale), 0.0
        freedom, n_targets = len(self.y) - 1, self.y.shape[1]
        value = freedom * (np.log(2 * np.pi * solved.noise) + 1).sum()
        value += n_targets * (solved.log_det + self._weight_terms())
        to_scale = self._scale_gradient(solved)
        if len(log_scale) == 1:
            to_scale = to_scale.sum(keepdims=True)
        return float(-0.5 * value), -0.5 * to_scale, -0.5 * solved.to_alpha

    def noise(self, log_scale: Float64, log_alpha: float) -> Float64:
        """σₙ² (T,) that maximises log p, in units of y²; 0 where rounding leaves no factor."""
        solved = self._solve(log_scale, log_alpha)
        return np.zeros(self.y.shape[1]) if solved is None else solved.noise

    def _solve(self, log_scale: Float64, log_alpha: float) -> _SolvedMap | None:
        omega = np.asarray(self.frequencies / np.exp(log_scale), dtype=self.dtype)
        rows, mean = self._features(omega)
        mapped = _MapRows(rows, mean, self._targets(), omega)
        few = len(rows) < rows.shape[1]
        return (self._by_rows if few else self._by_columns)(mapped, float(np.exp(log_alpha)))

    def _by_columns(self, mapped: _MapRows, alpha: float) -> _SolvedMap | None:
        """From A (R, R)."""
        rows, y, (r, t) = mapped.rows, mapped.y, (mapped.rows.shape[1], mapped.y.shape[1])
        inverse, log_det = _inverse(self._scatter(rows), alpha)
        if inverse is None:
            return None
        rhs = np.sqrt(self.prior) * self._cross(rows, y)
        b = inverse @ rhs  # (R, T)
        noise = self._noise(y, (rhs * b).sum(axis=0))
        weighed = b / noise
        inner = (self.prior * (t * inverse + weighed @ b.T)).astype(self.dtype)
        outer = (np.sqrt(self.prior) * weighed.T).astype(self.dtype)

        def change(block: slice) -> Array:
            moved: Array = rows[block] @ inner
            moved -= y[block].astype(self.dtype) @ outer
            return moved

        to_alpha = alpha * ((b * weighed).sum() + t * np.trace(inverse)) - t * r
        return _SolvedMap(mapped, log_det - r * np.log(alpha), noise, float(to_alpha), change)

    def _by_rows(self, mapped: _MapRows, alpha: float) -> _SolvedMap | None:
        """From P (n, n)."""
        rows, y, (n, t) = mapped.rows, mapped.y, mapped.y.shape
        inverse, log_det = _inverse(self._products(rows), alpha)
        if inverse is None:
            return None
        a = inverse @ y  # (n, T)
        explained = (y * (y - alpha * a)).sum(axis=0)
        noise = self._noise(y, explained)
        weighed = a / noise
        change = (self.prior * (t * inverse - alpha * weighed @ a.T)).astype(self.dtype)
        squares = (weighed * (y - alpha * a)).sum()  # ‖b‖²/σₙ²
        to_alpha = alpha * (squares + t * np.trace(inverse)) - t * n
        return _SolvedMap(
            mapped,
            log_det - n * np.log(alpha),
            noise,
            float(to_alpha),
            lambda part: change[part] @ rows,
        )

    def _noise(self, y: Float64, explained: Float64) -> Float64:
        """σₙ² = Q/ν (T,), and not below rounding."""
        scatter = (y**2).sum(axis=0)
        objective = np.maximum(scatter - explained, LEAST * scatter)
        return np.asarray(objective / (len(y) - 1))

    def _weight_terms(self) -> float:
        return float(np.log(self.weights.sum()) - np.log(self.weights).sum())

    def _root(self) -> Array:
        """√w (n, 1) in the dtype of the features."""
        return np.sqrt(self.weights)[:, None].astype(self.dtype)

    def _targets(self) -> Float64:
        """W^½ỹ (n, T)."""
        centred = self.y - np.average(self.y, axis=0, weights=self.weights)
        return np.asarray(np.sqrt(self.weights)[:, None] * centred)

    def _features(self, omega: Array) -> tuple[Array, Array]:
        """Z̃ (n, R), and z̄ (R,): all cosines, then all sines."""
        m = len(omega)
        rows = np.empty((len(self.x), 2 * m), self.dtype)
        for block in _blocks(len(rows)):
            angles = self.x[block] @ omega.T
            np.cos(angles, out=rows[block, :m])
            np.sin(angles, out=rows[block, m:])
        share = (self.weights / self.weights.sum()).astype(self.dtype)
        mean = share @ rows
        rows -= mean
        rows *= self._root()
        return rows, mean

    def _scatter(self, rows: Array) -> Float64:
        """G (R, R)."""
        total = np.zeros((rows.shape[1], rows.shape[1]))
        for block in _blocks(len(rows)):
            total += rows[block].T @ rows[block]
        return self.prior * total

    def _products(self, rows: Array) -> Float64:
        """sZ̃Z̃ᵀ (n, n)."""
        total = np.zeros((len(rows), len(rows)))
        for block in _blocks(rows.shape[1]):
            total += rows[:, block] @ rows[:, block].T
        return self.prior * total

    def _cross(self, rows: Array, y: Float64) -> Float64:
        """Z̃ᵀW^½ỹ (R, T)."""
        total = np.zeros((rows.shape[1], y.shape[1]))
        for block in _blocks(len(rows)):
            total += rows[block].T @ y[block].astype(self.dtype)
        return total

    def _scale_gradient(self, solved: _SolvedMap) -> Float64:
        """∂(−2 log p)/∂ log ℓ (d,), a block of rows at a time; ω is already over ℓ."""
        mapped = solved.mapped
        rows, omega, m = mapped.rows, mapped.omega, len(mapped.omega)
        root, total = self._root(), np.zeros(omega.T.shape)  # (n, 1), (d, m)
        for block in _blocks(len(rows)):
            change = solved.change(block)
            change *= root[block]  # E
            raw = rows[block] / root[block] + mapped.mean
            turned = change[:, :m] * raw[:, m:] - change[:, m:] * raw[:, :m]  # H
            total += self.x[block].T @ turned
        return np.asarray(2 * (total * omega.T).sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class _MapRows:
    """Rows of the map at one ℓ."""

    rows: Array  # Z̃ (n, R)
    mean: Array  # z̄ (R,)
    y: Float64  # W^½ỹ (n, T)
    omega: Array  # Ω/ℓ (m, d)


@dataclass(frozen=True, slots=True, eq=False)
class _SolvedMap:
    """What value and gradient share."""

    mapped: _MapRows
    log_det: float  # log|G + αI| − R log α
    noise: Float64  # Q/ν (T,)
    to_alpha: float  # ∂(−2 log p)/∂ log α
    change: Callable[[slice], Array]  # E of a block of rows, before its W^½


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + BLOCK_ROWS) for start in range(0, n, BLOCK_ROWS)]


def _inverse(matrix: Float64, alpha: float) -> tuple[Float64 | None, float]:
    """(G + αI)⁻¹ and log|G + αI|; None where there is no factor. Overwrites G."""
    matrix[np.diag_indices_from(matrix)] += alpha
    inverse = matrix.T  # the same values in Fortran order
    log_det = invert_positive(inverse)
    if log_det is None:
        return None, 0.0
    mirror_lower(inverse)
    return inverse, log_det
