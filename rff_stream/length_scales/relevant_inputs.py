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
from rff_stream.length_scales.budget import PRODUCT_SECONDS

WAVES, PAIR_WAVES = 12, 4
"""Cosines of each input by itself, and of each of two inputs together."""

COLUMNS_OF_PAIRS = 1024
"""Columns of which pairs are looked at, and that a fit of single inputs has; their time grows with
the square. Of more than 256 inputs there are fewer cosines of each, and of more than this no pairs.
"""

WAVE_SECONDS = 20e-9
"""Of one cosine of one value, with its rank."""

CHANCE = 0.01
"""Probability that anything is found in pure noise."""

VALUES = 400_000
"""Values of x whose cosines are in memory together: twelve of each."""

ROWS_OF_MANY, VALUES_OF_MANY, LEAST_ROWS = 3000, 3_000_000, 300
"""Rows that are looked at where these are more values, and at most how many values; the smallest
number of rows. The first rows are taken."""

SHARE = 0.95
"""The strongest inputs are kept until they have this share of everything that was found."""


def relevant_inputs(x: Array, y: Float64, w: Float64) -> Array:
    """Whether each input (d,) matters, by cosines of its ranks and of pairs of ranks.

    Of rows x (n, d) in random order, y (n, T) centred and of unit variance. No input does where
    nothing stands out of noise. 16 n d²/2 flops: 0.1 CPU s for 6,000 rows of 32 inputs.
    """
    d = x.shape[1]
    most = max(VALUES // d, min(ROWS_OF_MANY, VALUES_OF_MANY // d), LEAST_ROWS)
    x, y, w = x[:most], y[:most], w[:most]
    share = (w / w.mean())[:, None]
    of_pairs = min(PAIR_WAVES, COLUMNS_OF_PAIRS // d) if d > 1 else 0
    single, first = _strength_of_single(x, y, w, of_pairs)
    strong = np.argsort(-single, kind="stable")[: COLUMNS_OF_PAIRS // WAVES]
    strong = np.sort(strong[single[strong] > 0])
    rest = y - _explained_share(_waves(x[:, strong]), y, share)
    strength = single
    if of_pairs:
        pairs = _strength_of_pairs(first, rest * share, w)
        strength = single + pairs.sum(axis=1)
    order = np.argsort(-strength)
    before = np.cumsum(strength[order]) - strength[order]
    kept = np.zeros(d, bool)
    kept[order] = (before < SHARE * strength.sum()) & (strength[order] > 0)
    return kept


def inputs_of_sizes(x: Array, errors: Float64, w: Float64) -> Array:
    """Whether the size of the errors (n, T) of a fit depends on each input (d,).

    So does that of an input the fit does not use and whose part of y has no mean along it, nor
    along pairs of inputs: errors of cos(a)·b·c do not depend on b, and their sizes do. Sizes have
    normal scores in place of values, for tails tell nothing. It finds noise of unequal size, too.
    """
    n = len(x)
    sizes = special.ndtri((stats.rankdata(np.abs(errors), axis=0) - 0.5) / n)
    single, _ = _strength_of_single(x, sizes, w, 0)
    return single > 0


def _strength_of_single(x: Array, y: Float64, w: Float64, of_pairs: int) -> tuple[Float64, Float64]:
    """The strength (d,) of each input, and its first cosines (n, d, of_pairs)."""
    (n, d), share = x.shape, (w / w.mean())[:, None]
    sums, first = [], []
    for part in np.array_split(np.arange(d), -(-n * d // VALUES)):
        waves = _waves(x[:, part])
        sums.append(np.einsum("njk,nt->jkt", waves, y * share, optimize=True))
        first.append(waves[:, :, :of_pairs].copy())
    return _strength(np.concatenate(sums), n, d, w), np.concatenate(first, axis=1)


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


def seconds_of_relevance(n_rows: int, d: int, n_targets: int) -> float:
    """What it takes in CPU, with the sizes of errors."""
    columns = min(d * PAIR_WAVES, COLUMNS_OF_PAIRS) if d <= COLUMNS_OF_PAIRS else 0
    values = 2 * n_rows * d * WAVES
    return WAVE_SECONDS * values + PRODUCT_SECONDS * n_targets * (n_rows * columns**2 + values)
