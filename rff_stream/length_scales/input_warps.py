"""Scales of single inputs along which a fitted function changes evenly.

With f the exact fit to some rows, and knots t₀ < … < t_P of input j, let D_p² be the mean over rows
with t_p ≤ x_j < t_{p+1} of (f(x, x_j = t_{p+1}) − f(x, x_j = t_p))². The new scale g rises from t_p
to t_{p+1} by D_p and a share of the mean D: it is steep where y jumps at a threshold, and nearly
flat beside it, so that one length-scale serves both. Differences, not slopes: at the values of a
category a fit may have no slope.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import cdist

from rff_stream._array import Array, Float64
from rff_stream.features.input_warp import InputWarp
from rff_stream.features.normal_scores import NormalScores
from rff_stream.kernels import ExactKernel, Laplacian, RadialKernel
from rff_stream.length_scales.budget import PAIR_SECONDS, seconds_of_look
from rff_stream.length_scales.window_evidence import (
    MetricFit,
    RowWindow,
    coefficients,
    squared_distances,
)

FIT_ROWS, MOVED_ROWS = 2000, 1000
"""Most rows of the fit, and rows where it is looked at. At most half of all rows are fitted: scales
look better than they are at the rows that gave them."""

BLOCK_ROWS = 100
"""Rows that are moved at once: their kernels stay in the cache."""

PIECES, ROWS_A_PIECE = 32, 8
"""Most pieces of a scale, and how many of the rows that are moved a piece has at least, on
average."""

EVEN = 0.1
"""Share of the mean rise that every piece has: what the fit does not see is not lost."""


def can_warp(kernel: ExactKernel) -> bool:
    """Whether its values are a function of a sum over inputs, of which one changes alone."""
    return isinstance(kernel, (RadialKernel, Laplacian))


def seconds_of_warp(n_rows: int, d: int) -> float:
    """What it takes in CPU: a fit, and kernels of rows that are moved twice along each input."""
    fitted = min(n_rows // 2, FIT_ROWS)
    moved = min(fitted, MOVED_ROWS)
    return seconds_of_look(fitted, 1, True) + 2 * d * PAIR_SECONDS * fitted * moved


def input_warp(
    rows: RowWindow,
    fitted: Array,
    raw: Float64,
    fit: MetricFit,
    before: NormalScores | None,
    rng: Generator,
) -> InputWarp | None:
    """The scales of inputs of three values or more, as functions of ``raw`` rows (n, d).

    The fit is in the units of the ``rows``, which are the raw ones on the scales ``before``, and to
    the rows at places ``fitted`` alone. None where it fails, or does not change along any input.
    """
    few = rows.part(fitted)
    weights = coefficients(few, fit)
    if not np.isfinite(weights).all():
        return None
    pieces = max(min(PIECES, min(len(few.x), MOVED_ROWS) // ROWS_A_PIECE), 2)
    knots = [_knots(column, pieces) for column in rows.x.T]
    several = [j for j, (values, _) in enumerate(knots) if len(values) > 2]
    at = [_pieces_of(knots[j][0], few.x[:MOVED_ROWS, j], rng) for j in several]
    ends = [knots[j][0] for j in several]
    squares = _squared_changes(few, weights, fit, several, ends, at)
    columns, scales = [], []
    for j, place, own in zip(several, at, squares, strict=True):
        values, first = knots[j]
        count = len(values) - 1
        mean = np.bincount(place, own, count) / np.maximum(np.bincount(place, minlength=count), 1)
        if not mean.any():
            continue
        rise = np.sqrt(mean)
        scale = np.r_[0.0, np.cumsum(rise + EVEN * rise.mean())]
        scale *= rows.x[:, j].std() / np.interp(rows.x[:, j], values, scale).std()
        columns.append(j)
        scales.append(_of_raw(j, raw[first, j], values, scale, before))
    return InputWarp.of_knots(raw.shape[1], np.array(columns), scales) if columns else None


def _squared_changes(
    few: RowWindow,
    weights: Float64,
    fit: MetricFit,
    inputs: list[int],
    knots: list[Float64],
    pieces: list[Array],
) -> list[Float64]:
    """(f(x) at the end of its piece − f(x) at the start)² (m,) along each of some inputs."""
    inverse, middle = fit.matrix.diagonal(), few.x.mean(axis=0)
    u = (few.x - middle) * inverse
    found = [np.empty(len(own)) for own in pieces]
    for lo in range(0, min(len(u), MOVED_ROWS), BLOCK_ROWS):
        some = slice(lo, min(lo + BLOCK_ROWS, MOVED_ROWS))
        part_of, value_of, apart = _sum_behind(fit.kernel, u[some], u)
        for j, values, own, changes in zip(inputs, knots, pieces, found, strict=True):
            ends = (values - middle[j]) * inverse[j]
            rest = apart - part_of(u[some, j, None] - u[:, j])
            low, high = (
                value_of(rest + part_of(end[:, None] - u[:, j])) @ weights
                for end in (ends[own[some]], ends[own[some] + 1])
            )
            changes[some] = ((high - low) ** 2).sum(axis=1)
    return found


def _sum_behind(
    kernel: ExactKernel, v: Float64, u: Float64
) -> tuple[Callable[[Float64], Float64], Callable[[Float64], Float64], Float64]:
    """What inputs add to a distance, the kernel of a distance, and distances (m, n) of rows."""
    if isinstance(kernel, RadialKernel):
        radial = kernel.of_squared_distance
        return np.square, lambda total: radial(np.maximum(total, 0)), squared_distances(v, u)
    variance = kernel.variance
    return np.abs, lambda total: variance * np.exp(-total), cdist(v, u, "cityblock")


def _knots(x: Float64, pieces: int) -> tuple[Float64, Array]:
    """Values of an input, or quantiles where they are many; and a row that has each."""
    values, first, counts = np.unique(x, return_index=True, return_counts=True)
    if len(values) <= pieces + 1:
        return values, first
    places = np.linspace(0, len(x) - 1, pieces + 1)
    own = np.unique(np.searchsorted(np.cumsum(counts), places, side="right"))
    return values[own], first[own]


def _pieces_of(knots: Float64, x: Float64, rng: Generator) -> Array:
    """The piece of each value; of one that is a knot, the piece before or the one after."""
    after = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    return np.asarray(after - ((knots[after] == x) & (after > 0) & (rng.random(len(x)) < 0.5)))


def _of_raw(
    j: int, raw: Float64, x: Float64, scale: Float64, before: NormalScores | None
) -> tuple[Float64, Float64]:
    """Knots of an input as it came and their new values.

    Given are those at some of its values, raw and on the scale before; between two of them g is
    linear on that scale, so that its knots are knots, too.
    """
    if before is None or j not in before.columns:
        return raw, scale
    place = int(np.flatnonzero(before.columns == j)[0])
    own, scores = before.knots[place], before.scores[place]
    knots = np.union1d(raw, own[(own > raw[0]) & (own < raw[-1])])
    along = np.interp(knots, own, scores)
    values = np.interp(along + (x[0] - along[0]), x, scale)
    rises = np.r_[True, np.diff(values) > 0]
    return knots[rises], values[rises]
