"""What fits of a loss to a sample of rows in memory share: columns, folds and penalties."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.penalty_selection import Selection
from rff_stream.descents.statistic import LossStatistic
from rff_stream.features.base import BATCH_ROWS, FeatureMap, RowwiseMap
from rff_stream.features.column_sweep import linear_form, sweep_of
from rff_stream.sources.protocol import Rows

Coefficients = tuple[Float64, Float64]
"""Raw coefficients (R, K) and intercepts (K,)."""

ALPHAS = np.geomspace(10.0, 1e-10, 23)
"""From 1 over the variance of nearly equal scores to that of scores of ±10⁵: coefficients are large
where a length-scale is long beside the function. Most searches end long before, as held-out losses
rise."""

FEW_ROWS = 2000
"""With fewer rows, four folds are held out in turn; with more, only one."""

FEW_OF_CLASS = 100
"""The same limit for the rows of a class."""

FEWEST_OF_CLASS = 16
"""If a class has fewer rows, they are distributed evenly over the quarters; by chance one
quarter would have none in 4 % of cases."""

TOL = 3e-3
"""Sufficient to compare penalties, because each fit starts from the previous one."""

NUGGET = 1e-12
"""Value added to the Gram matrix of few rows, relative to its diagonal."""

MOST_COMPONENTS = 2048
"""Largest number of leading features in the search, if leading columns are a map: with 1,024 the
best α of letter is three times that of 4,096, with 2,048 it is the same."""

FEW_COMPONENTS = 512
"""The same for a loss with a Hessian in every pass, which costs R² per row."""


def leading_size(features: FeatureMap) -> int:
    """Features that are looked at."""
    r = features.n_components
    return r if features.nesting == "none" else min(r, MOST_COMPONENTS)


def leading_features(features: FeatureMap, size: int, x: Array, dtype: str | None = None) -> Array:
    """The leading features (m, size) of rows, all R of few rows at a time."""
    z = np.empty((len(x), size), dtype or features.dtype)
    for start in range(0, len(z), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        z[part] = features(x[part])[:, :size]
    return z


def own_columns(z: Array, prior: Array) -> tuple[Float64, Float64]:
    """Columns (m, m) of m < R rows with the same products, and β (R, m) of a unit of each.

    With B = Z diag(s)^½ and LLᵀ = BBᵀ a function Bγ in the span of the rows is LLᵀ(BBᵀ)⁻¹Bγ: γ =
    BᵀL⁻ᵀc has the size of c.
    """
    rows = z.astype(np.float64) * np.sqrt(prior)
    gram = rows @ rows.T
    gram.flat[:: len(gram) + 1] += NUGGET * float(np.trace(gram)) / len(gram)
    lower = linalg.cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
    basis = linalg.solve_triangular(lower, rows, lower=True, check_finite=False).T
    return lower, np.sqrt(prior)[:, None] * basis


class IdentityMap(RowwiseMap):
    """Rows that are features already: a copy. It has no spec and stays in this module."""

    dtype, nesting = np.float32, "none"

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def n_inputs(self) -> int:
        return self._size

    @property
    def n_components(self) -> int:
        return self._size

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        Z = np.empty(X.shape) if out is None else out
        Z[:] = X
        return Z


def predicted(features: FeatureMap, linear: Coefficients, x: Array) -> Float64:
    """μ + z(x)ᵀβ (m, T)."""
    coef, intercept = linear
    return linear_form(sweep_of(features, np.dtype(np.float64)), x, coef) + intercept


def turns_of(place: Array, codes: Array) -> list[tuple[Array, Array]]:
    """(fitted, held out) rows: a quarter is held out, or each quarter of few.

    Rows are few where those of a class are, too: ten held-out rows tell little of it. The fewest
    rows of a class are dealt out to the quarters.

    Parameters
    ----------
    place : (n,) int array
        Places that follow each other are in different quarters, rows of the same place together.
    codes : (n,) int array
        Class numbers; 0 where there are no classes.
    """
    place, width = place.copy(), place.max() + 1
    counts = np.bincount(np.unique(codes * width + place) // width)  # without copies
    for code in np.flatnonzero((counts > 0) & (counts < FEWEST_OF_CLASS)):
        at = codes == code
        place[at] = np.unique(place[at], return_inverse=True)[1] + code
    few = counts.sum() < FEW_ROWS or counts[counts > 0].min() < FEW_OF_CLASS
    return [
        (place % 4 != turn, place % 4 == turn)
        for turn in range(4 if few else 1)
        if (place % 4 == turn).any() and (place % 4 != turn).any()
    ]


def selection_of(
    criterion: str, alphas: Float64, scores: Float64, size: int, errors: Float64 | None = None
) -> Selection:
    """The held-out losses (turns, α) as a selection; within ``errors`` (α,) of several turns."""
    simplest = errors is not None and len(scores) > 1
    return Selection(
        criterion=criterion,
        targets=("loss",),
        folds=tuple(map(str, range(len(scores)))),
        sizes=(size,),
        alphas=alphas[::-1].copy(),
        scores=scores[:, None, ::-1, None],  # α increases
        scale=np.ones(1),
        df=np.full((1, len(alphas)), np.nan),
        eta=np.zeros(1),
        rule="one_standard_error" if simplest else "best",
        error_of_difference=None if errors is None else errors[None, ::-1],
    )


def sums_over(rows: Rows) -> Any:
    """A statistic -> its sum over rows in memory."""

    def sums(statistic: LossStatistic) -> Any:
        sink = statistic.start()
        sink.add(rows, np.arange(len(rows.x)))
        return sink.result()

    return sums
