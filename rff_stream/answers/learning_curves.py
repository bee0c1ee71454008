"""Learning curves over rows, and errors by group: from the moments of groups alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.evidence import evidence
from rff_stream.moments import Moments
from rff_stream.systems.normal_equations import scatter_about
from rff_stream.systems.spectrum import spectrum


@dataclass(frozen=True, slots=True, eq=False)
class GroupErrors:
    """Residuals of a linear model of features on one group of rows."""

    bias: Float64  # (T,): weighted mean of y − ŷ, in units of y
    rmse: Float64  # (T,): √ of the weighted mean of (y − ŷ)²
    n: int  # rows


@dataclass(frozen=True, slots=True, eq=False)
class RowCurve:
    """Errors of fits on more and more rows."""

    n_rows: Array  # (K,): rows of each fit, increasing
    fitted_rmse: Float64  # (K, T): on the rows of the fit, in units of y
    held_out_rmse: Float64  # (K, T): on rows that none of the fits saw
    alpha: Float64  # (K, T): penalty that evidence chose
    targets: tuple[str, ...]


def group_errors(moments: Moments, coef: Array, intercept: Array) -> GroupErrors:
    """Mean and root mean square of y − μ − zβ over rows, from their moments alone.

    Parameters
    ----------
    moments : Moments
        Order 2, with targets; R²T flops.
    coef, intercept : (R, T) and (T,) arrays
        β and μ of the raw map.

    Returns
    -------
    GroupErrors
    """
    coef = np.asarray(coef, np.float64).reshape(moments.row.n_features, -1)
    level = np.atleast_1d(np.asarray(intercept, np.float64))
    bias = moments.target_mean() - level - moments.feature_mean() @ coef
    matrix, cross, squares = scatter_about(moments, np.zeros(len(coef)), level)
    quadratic = np.einsum("rt,rt->t", coef, matrix @ coef - 2 * cross)
    mean_square = np.maximum(quadratic + squares, 0.0) / moments.weight
    return GroupErrors(bias, np.sqrt(np.maximum(mean_square, bias**2)), moments.n)


def row_curve(
    groups: Sequence[Moments], held_out: Moments, *, fit_intercept: bool = True
) -> RowCurve:
    """Fits on the first group, the first two, …, each with α by evidence; scored on held-out rows.

    Parameters
    ----------
    groups : sequence of Moments
        Of one map: runs of rows from ``collect(folds=…)``, or batches in the order of time.
    held_out : Moments
        Moments of rows that are in none of the groups.
    fit_intercept : bool

    Returns
    -------
    RowCurve

    Raises
    ------
    ValueError
        If there are no groups.

    Notes
    -----
    One decomposition for each group; the rows are not read again.
    """
    if not groups:
        raise ValueError("groups is empty, and a curve needs at least one group of rows.")
    total, rows, fitted, held, alphas = None, [], [], [], []
    for part in groups:
        total = part if total is None else total + part
        found = spectrum(total, fit_intercept=fit_intercept)
        model = evidence(found).ridge()
        rows.append(total.n)
        alphas.append(model.alpha)
        fitted.append(group_errors(total, model.coef, model.intercept).rmse)
        held.append(group_errors(held_out, model.coef, model.intercept).rmse)
    return RowCurve(
        np.array(rows), np.array(fitted), np.array(held), np.array(alphas),
        held_out.row.target_names,
    )  # fmt: skip
