"""Conjugate gradients on the equations of a grid, with a preconditioner that keeps steps few.

The block of A with the largest D is factored exactly, and the diagonal of A is used for the
rest. Where the data have gaps, the difficult part of A is inside this block; outside it A is
almost diagonal. The steps of conjugate gradients are those of Lanczos, and their tridiagonal
matrices give log-determinants (Gardner et al. 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.grid_system import GridSystem

__all__ = ["BLOCK", "Preconditioner", "conjugate_gradients"]

BLOCK = 2000
"""Real columns of the preconditioner's exact block: 0.1 CPU s to factor, and 32 MB."""

MOST_STEPS = 1000
TOLERANCE = 1e-8
"""Of ‖r‖/‖rhs‖ where a solution is wanted."""


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """P ≈ A: its block of the largest weights exactly, its diagonal elsewhere.

    Real coordinates of the block are [√2 Re u, √2 Im u] of one of each pair of conjugates, and
    Re u of j = 0.
    """

    system: GridSystem
    alpha: float
    size: int = BLOCK

    @cached_property
    def chosen(self) -> Array:
        """Modes j (k, d) in the half space, the zero first."""
        grid = self.system.features
        order = np.argsort(-self.system.weights.reshape(-1), kind="stable")
        index = np.stack(np.meshgrid(*grid.indices(), indexing="ij"), axis=-1)
        modes = index.reshape(-1, grid.n_inputs)[order]
        keep = modes[:, -1] > 0
        for axis in range(grid.n_inputs - 2, -1, -1):
            keep |= (modes[:, axis + 1 :] == 0).all(axis=1) & (modes[:, axis] > 0)
        most = max(1, min(self.size // 2, int(keep.sum())))
        return np.concatenate([np.zeros((1, grid.n_inputs), int), modes[keep][:most]])

    @cached_property
    def places(self) -> Any:
        """Where the chosen modes stand in the half shape."""
        sides = [2 * m + 1 for m in self.system.features.modes]
        return tuple(self.chosen[:, a] % sides[a] for a in range(len(sides)))

    @cached_property
    def mirrored(self) -> tuple[Array, Any]:
        """Chosen modes whose conjugate stands in the half shape too, and where."""
        sides = [2 * m + 1 for m in self.system.features.modes]
        at = np.flatnonzero((self.chosen[:, -1] == 0) & (self.chosen != 0).any(axis=1))
        return at, tuple(-self.chosen[at, a] % sides[a] for a in range(len(sides)))

    @cached_property
    def factor(self) -> Float64:
        """Lower Cholesky factor of the block in real coordinates."""
        system, modes = self.system, self.chosen
        density, weights = system.moments.density, system.weights[self.places]
        plus, minus = (self._at(density, modes[:, None] + sign * modes[None]) for sign in (1, -1))
        block = np.block(
            [
                [(minus + plus).real, (plus - minus).imag],
                [(minus + plus).imag, (minus - plus).real],
            ]
        )
        scale = np.concatenate([weights, weights])
        block *= scale[:, None] * scale
        if system.n_trend:
            coupling = system.coupling[(slice(None), *self.places)]
            half = system.whiten(coupling)
            half = np.concatenate([half.real, half.imag], axis=1)
            block -= 2 * half.T @ half
        block[0] /= np.sqrt(2)
        block[:, 0] /= np.sqrt(2)
        zero = len(modes)
        block[zero], block[:, zero] = 0, 0
        block[np.diag_indices(len(block))] += self.alpha
        return np.asarray(linalg.cholesky(block, lower=True, overwrite_a=True, check_finite=False))

    @cached_property
    def diagonal(self) -> Float64:
        """Diagonal of A."""
        return self.system.diagonal(self.alpha)

    def solve(self, u: Array) -> Array:
        """P⁻¹ u of coefficients (s, half shape)."""
        block = linalg.cho_solve((self.factor, True), self._block(u).T, check_finite=False).T
        return self._put(u / self.diagonal, block)

    def root(self, u: Array) -> Array:
        """P^½ u, with the Cholesky factor as root."""
        return self._put(u * np.sqrt(self.diagonal), self._block(u) @ self.factor.T)

    def inverse_root(self, u: Array, *, transposed: bool = False) -> Array:
        """P^{−½} u, or its transpose."""
        kind = 1 if transposed else 0
        block = linalg.solve_triangular(self.factor, self._block(u).T, lower=True, trans=kind).T
        return self._put(u / np.sqrt(self.diagonal), block)

    @cached_property
    def inverse_diagonal(self) -> Float64:
        """Diagonal of P⁻¹ (half shape)."""
        found = 1 / self.diagonal
        inverse, _ = linalg.lapack.dpotri(self.factor, lower=1)
        values, k = np.diag(inverse), len(self.chosen)
        picked = (values[:k] + values[k:]) / 2
        picked[0] = values[0]
        found[self.places] = picked
        at, where = self.mirrored
        found[where] = picked[at]
        return found

    @cached_property
    def log_determinant(self) -> float:
        """log |P| over all real coordinates."""
        rest = self.system.features.multiplicity * np.log(self.diagonal)
        inside = rest[self.places].sum() + rest[self.mirrored[1]].sum()
        zero = np.log(self.alpha)  # a coordinate that does not exist, with α on the diagonal
        block = 2 * np.log(np.diag(self.factor)).sum() - zero
        return float(rest.sum() - inside + block)

    def _block(self, u: Array) -> Float64:
        picked = u[(slice(None), *self.places)]
        found = np.sqrt(2) * np.concatenate([picked.real, picked.imag], axis=1)
        found[:, 0] /= np.sqrt(2)
        return np.asarray(found)

    def _put(self, u: Array, block: Float64) -> Array:
        block = block / np.sqrt(2)
        block[:, 0] *= np.sqrt(2)
        k = len(self.chosen)
        picked = block[:, :k] + 1j * block[:, k:]
        picked[:, 0] = block[:, 0]
        u[(slice(None), *self.places)] = picked
        at, where = self.mirrored
        u[(slice(None), *where)] = picked[:, at].conj()
        return u

    @staticmethod
    def _at(density: Array, differences: Array) -> Array:
        """T at differences (…, d), by T_{−k} = T_k* where the last index is negative."""
        flip = differences[..., -1] < 0
        turned = np.where(flip[..., None], -differences, differences)
        sides = density.shape
        index = tuple(turned[..., a] % sides[a] for a in range(differences.shape[-1]))
        values = density[index]
        return np.asarray(np.where(flip, values.conj(), values))


@dataclass(frozen=True, eq=False)
class _Solution:
    """Solutions of A x = r for several r at a time, and what their steps say about A."""

    x: Array  # (s, half shape)
    steps: int
    residual: Float64  # ‖r‖/‖rhs‖ (s,)
    tridiagonals: tuple[tuple[Float64, Float64], ...]  # Lanczos, of P^-½ A P^-½


def conjugate_gradients(
    preconditioner: Preconditioner,
    right: Array,
    *,
    tolerance: Float64 | float = TOLERANCE,
    most: int = MOST_STEPS,
) -> _Solution:
    """A⁻¹ r of right sides (s, half shape), by conjugate gradients with a preconditioner.

    ``tolerance`` is of ‖r‖/‖rhs‖, for all or for each; a right side that has reached its own
    takes no further work.
    """
    system, alpha = preconditioner.system, preconditioner.alpha
    extra = (1,) * system.features.n_inputs
    x, r = np.zeros_like(right), right.copy()
    size = np.sqrt(system.dot(right, right))
    target = tolerance * np.where(size > 0, size, 1.0)
    p = preconditioner.solve(r.copy())
    rz = system.dot(r, p)
    lanczos: list[list[tuple[float, float]]] = [[] for _ in right]
    steps, going = 0, np.flatnonzero(size > 0)
    while len(going) and steps < most:
        q = system.product(p[going], alpha)
        step = rz[going] / system.dot(p[going], q)
        wide = step.reshape(-1, *extra)
        x[going] += wide * p[going]
        r[going] -= wide * q
        z = preconditioner.solve(r[going])
        new = system.dot(r[going], z)
        ratio = new / rz[going]
        p[going] = z + ratio.reshape(-1, *extra) * p[going]
        rz[going], steps = new, steps + 1
        for s, pair in zip(going, zip(step, ratio, strict=True), strict=True):
            lanczos[s].append(pair)
        size_now = np.sqrt(system.dot(r[going], r[going]))
        going = going[size_now > target[going]]
    residual = np.sqrt(system.dot(r, r)) / np.where(size > 0, size, 1.0)
    return _Solution(x, steps, residual, tuple(map(_tridiagonal, lanczos)))


def _tridiagonal(pairs: list[tuple[float, float]]) -> tuple[Float64, Float64]:
    """Diagonal and off-diagonal of Lanczos' matrix, from the steps (Saad 2003, 6.7.3)."""
    step, ratio = np.array(pairs).reshape(-1, 2).T
    diagonal = 1 / step
    diagonal[1:] += ratio[:-1] / step[:-1]
    return diagonal, np.sqrt(ratio[:-1]) / step[:-1]
