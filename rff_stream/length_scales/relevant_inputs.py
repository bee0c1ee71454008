"""Which inputs are related to y, alone or in pairs. No kernel or length-scale is needed.

    cₖ(u) = √2 cos(πku),  u the share of rows with a smaller value
    S_j = n Σₖ mean(y cₖ(u_j))²,       χ² of 12 for an input that says nothing
    S_jl = n Σₖₘ mean(r cₖ(u_j) cₘ(u_l))²,  χ² of 16; r is y without what single inputs say

Why: a search for length-scales must start where the evidence shows a signal. With thirty inputs,
a kernel with one length-scale finds only noise, for every length.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, special, stats

from rff_stream._array import Array, Float64

WAVES, PAIR_WAVES = 12, 4
"""Cosines of each input by itself, and of each of two inputs together."""

MOST_OF_PAIRS = 256
"""Inputs up to which pairs are looked at: of more there are so many that chance hides what few rows
say, and their time grows with the square."""

CHANCE = 0.01
"""Probability that anything is found in pure noise."""

VALUES, LEAST_ROWS = 400_000, 300
"""Number of values of x in the search (the first rows if there are many inputs), and the
smallest number of rows."""

SHARE = 0.95
"""The strongest inputs are kept until they have this share of everything that was found."""


def relevant_inputs(x: Array, y: Float64, w: Float64) -> Array:
    """Whether each input (d,) matters, by cosines of its ranks and of pairs of ranks.

    Of rows x (n, d) in random order, y (n, T) centred and of unit variance. No input does where
    nothing stands out of noise. 16 n d²/2 flops: 0.1 CPU s for 6,000 rows of 32 inputs.
    """
    most = max(VALUES // x.shape[1], LEAST_ROWS)
    x, y, w = x[:most], y[:most], w[:most]
    n, d = x.shape
    share = (w / w.mean())[:, None]
    waves = _waves(x)
    single = _strength(np.einsum("njk,nt->jkt", waves, y * share, optimize=True), n, d, w)
    rest = y - _explained_share(waves[:, single > 0], y, share)
    strength = single
    if 1 < d <= MOST_OF_PAIRS:
        pairs = _strength_of_pairs(waves[:, :, :PAIR_WAVES], rest * share, w)
        strength = single + pairs.sum(axis=1)
    order = np.argsort(-strength)
    before = np.cumsum(strength[order]) - strength[order]
    kept = np.zeros(d, bool)
    kept[order] = (before < SHARE * strength.sum()) & (strength[order] > 0)
    return kept


def _strength_of_pairs(waves: Float64, rest: Float64, w: Float64) -> Float64:
    """The strength (d, d) of each pair of inputs, 0 of one with itself: a product a target."""
    n, d, k = waves.shape
    columns = waves.reshape(n, d * k)
    sums = np.stack([(columns * each[:, None]).T @ columns for each in rest.T], axis=-1)
    flat = sums.reshape(d, k, d, k, -1).swapaxes(1, 2).reshape(d * d, k * k, -1)
    found = _strength(flat, n, d * (d - 1) // 2, w).reshape(d, d)
    np.fill_diagonal(found, 0.0)
    return found


def _waves(x: Array) -> Float64:
    """√2 cos(πku) (n, d, 12) of ranks; 0 for a constant input."""
    ranks = (stats.rankdata(x, axis=0) - 0.5) / len(x)
    waves = np.cos(np.pi * np.arange(1, WAVES + 1) * ranks[:, :, None])
    waves -= waves.mean(axis=0)
    size = np.sqrt((waves**2).mean(axis=0))
    return np.asarray(np.divide(waves, size, out=np.zeros_like(waves), where=size > 1e-6))


def _strength(sums: Float64, n: int, tests: int, w: Float64) -> Float64:
    """How far n Σ mean² of (tests, waves, T) is above what noise gives in the unluckiest test."""
    mass = float((w**2).sum() / w.mean() ** 2)  # n, and more for unequal weights
    score = (sums**2 / mass).sum(axis=1)  # (tests, T)
    count = sums.shape[1]
    least = special.chdtri(count, CHANCE / (tests * sums.shape[2]))
    return np.asarray(np.maximum(score - least, 0.0).sum(axis=1))


def _explained_share(waves: Float64, y: Float64, share: Float64) -> Float64:
    """What single inputs say of y (n, T): least squares with a little ridge."""
    columns = waves.reshape(len(waves), -1)
    if not columns.shape[1]:
        return np.zeros_like(y)
    weighed = columns * share
    matrix = weighed.T @ columns
    matrix[np.diag_indices_from(matrix)] += 1e-3 * len(columns)
    return np.asarray(columns @ linalg.solve(matrix, weighed.T @ y, assume_a="pos"))
