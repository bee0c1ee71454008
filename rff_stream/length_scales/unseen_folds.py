"""Errors at rows that had no say in what a search found.

Errors of rows that are left out of a fit alone look smaller than those of new rows, where the same
rows had a say in the length-scales. So a search is made again without each fold of the rows, and
its map predicts them. Over the errors there of the map that all rows found, fitted without the
fold, too, these say how much too small left-out errors are:

    Σ (errors of searches without a fold)² / Σ (errors of the map of all rows)² = 1 + 5p/2n

of three folds, with p as many numbers as were found, by Akaike's rule. That rule holds for few
numbers of many rows: of many length-scales, and of few rows, it says too little or too much.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.odds_line import FOLDS, folds_of
from rff_stream.errors import NumericalWarning
from rff_stream.features.composed import encode_rows
from rff_stream.length_scales.budget import SearchBudget
from rff_stream.length_scales.holes import Split, errors_in_holes
from rff_stream.length_scales.map_choice import MapChoice
from rff_stream.length_scales.search import ONE_SET
from rff_stream.length_scales.window_evidence import MetricFit, RowWindow
from rff_stream.pilot import weight_unit

LEAST_SHARE, FEWEST = 0.1, 40
"""Numbers a row from which Akaike's rule is checked: it moves a deviation by 10 %. Of 50 rows and
500 inputs, where it moved one by 6 %, a search in 33 rows misses the three inputs that matter. Of
fewer rows than these it is always checked, and p is the count at the least: the ratio has a
standard error of 2/√n."""

OF_FOLDS = 1 + FOLDS / (FOLDS - 1)
"""What p/n adds to the ratio: 1 as errors that were seen are smaller by it, and more than 1 as
those of a search in fewer rows are larger by more. Akaike's 2 is that of as many rows."""

BOUNDED = 20.0
"""Squares over their median that count no more: 9 times the variance of normal errors."""

NUMBERS_TOLD = "numbers_told"
"""The name of p (T,) in a store."""

SearchOf = Callable[[Array, float], MapChoice]
"""A search in some of the rows (m,), in so many CPU seconds."""


def errors_of_searches(
    rows: RowWindow, fold: Array, search: SearchOf, budget: SearchBudget, encoding: Any = None
) -> Float64:
    """Errors (m, T) of rows, those of each fold (m,) by a map that was searched in the other rows.

    In what is left of the budget. NaN where a kernel has no Cholesky factor.
    """
    errors, seconds = np.empty_like(rows.y), (budget.limit - budget.spent) / FOLDS
    for k in range(FOLDS):
        with warnings.catch_warnings():  # the search of all rows said it
            warnings.simplefilter("ignore", NumericalWarning)
            found = search(fold != k, seconds)
        budget.spent += 0.0 if found.budget is None else found.budget.spent
        errors[fold == k] = _errors_in(found, rows, fold == k, encoding)
    return errors


def numbers_told(rows: RowWindow, found: MapChoice, search: SearchOf) -> Float64 | None:
    """p (T,) as searches without folds of these rows tell it.

    None where p is counted: it is small, rows are many, or no budget is left.
    """
    budget, n, fold = found.budget, len(rows.x), folds_of(rows.x)
    if not found.n_free or n > ONE_SET or budget is None:
        return None
    if n >= FEWEST and found.n_free <= LEAST_SHARE * n:
        return None
    if budget.limit - budget.spent < FOLDS * budget.spent:
        return None
    if not all(rows.part(fold != k).varies for k in range(FOLDS)):
        return None
    rows, seen = replace(rows, w=rows.w / weight_unit(rows.w)), np.empty_like(rows.y)
    for k in range(FOLDS):
        seen[fold == k] = _errors_in(found, rows, fold == k)
    unseen = errors_of_searches(rows, fold, search, budget)
    ratio = _mean_square(unseen) / np.maximum(_mean_square(seen), np.finfo(float).tiny)
    if not np.isfinite(ratio).all():
        return None
    return np.maximum(n * (ratio - 1) / OF_FOLDS, found.n_free if n < FEWEST else 0.0)


def _mean_square(errors: Float64) -> Float64:
    """Of errors (m, T), with far ones bounded: (T,)."""
    squares = errors**2
    return np.asarray(np.minimum(squares, BOUNDED * np.median(squares, axis=0)).mean(axis=0))


def _errors_in(found: MapChoice, rows: RowWindow, hidden: Array, encoding: Any = None) -> Float64:
    """Errors (k, T) of hidden rows (m,), by the map of a choice and the other rows."""
    before = found.normal_scores or encoding
    y = rows.y if found.trend is None else rows.y - found.trend(rows.x)
    split = Split(
        *(
            RowWindow(encode_rows(before, rows.x[some]), y[some], rows.w[some])
            for some in (~hidden, hidden)
        )
    )
    fit = MetricFit(found.unit_kernel, found.matrix, found.alpha, np.nan)
    return errors_in_holes(fit, [split])[0]
