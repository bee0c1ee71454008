"""The penalty of least held-out error on a grid of frequencies, from the sums of folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.grid import grid_leaf_errors, solve_grid
from rff_stream.answers.selection import sums_of_others
from rff_stream.kernels import Kernel
from rff_stream.moments.grid import GridMoments
from rff_stream.systems.grid import GridSystem, Trend

DECADES = 12
"""Of α below Σw that are tried at most."""

FINER = (-0.5, -0.25, 0.25, 0.5)
"""Decades about the best one that are tried afterwards."""

TOLERANCE = 1e-5
"""Of the solves: errors on held-out rows need fewer digits than predictions."""


def cross_validate_grid(
    groups: Mapping[Any, GridMoments],
    kernel: Kernel,
    alphas: Array | Sequence[float],
    *,
    trend: Trend = "constant",
) -> Float64:
    """Mean squared error of each fold under the fit to the other folds: exact, no second read.

    Parameters
    ----------
    groups : mapping of label to GridMoments
        K ≥ 2 folds.
    kernel : Kernel
        With its length-scales.
    alphas : (A,) array
        Penalties > 0.
    trend : {"constant", "linear", "none"}

    Returns
    -------
    (K, A, T) float64
        Weighted in a fold, in units of y².

    Raises
    ------
    ValueError
        Fewer than two folds, a fold without rows, a penalty ≤ 0.

    Notes
    -----
    K·A solves; the error of a fold is a quadratic form of its own sums.
    """
    folds = list(groups.values())
    if len(folds) < 2 or min(fold.weight for fold in folds) <= 0:
        raise ValueError(
            f"{len(folds)} fold(s) of weights {[fold.weight for fold in folds]}, but "
            "cross-validation needs at least 2 with rows. Ask for other folds."
        )
    found = np.empty((len(folds), len(alphas), folds[0].row.n_targets))
    for k, others in sums_of_others(folds):
        system = GridSystem(others, kernel, trend)
        for a, alpha in enumerate(np.asarray(alphas, np.float64).tolist()):
            posterior = solve_grid(system, alpha, tolerance=TOLERANCE)
            found[k, a] = grid_leaf_errors(folds[k], posterior) / folds[k].weight
    return found


def penalty_by_folds(
    groups: Mapping[Any, GridMoments], kernel: Kernel, *, trend: Trend = "constant"
) -> Float64:
    """α (T,) of least held-out error for each target.

    From Σw downwards by decades until the error of every target has grown twice, since smaller
    penalties take more steps; then by quarters of a decade about each best one.
    """
    total = sum(fold.weight for fold in groups.values())
    errors: dict[float, Float64] = {}

    def add(alpha: float) -> None:
        if alpha not in errors:
            errors[alpha] = cross_validate_grid(groups, kernel, [alpha], trend=trend)[:, 0].mean(0)

    def best() -> Float64:
        alphas = np.array(list(errors))
        return np.asarray(alphas[np.stack(list(errors.values())).argmin(axis=0)])

    for decade in range(DECADES + 1):
        add(total * 10.0**-decade)
        if total * 10.0**-decade < best().min() / 50:
            break
    for alpha in np.unique(best()).tolist():
        for step in FINER:
            add(alpha * 10.0**step)
    return best()
