"""Early stopping: errors of held-out leaves, from their moments, and whether they still change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.moments import Moments

__all__ = ["State", "has_settled", "leaf_errors", "root_ratio", "state_of"]


@dataclass(frozen=True, slots=True)
class State:
    """A model of some of the rows, and its error on leaves that it has not seen.

    Parameters
    ----------
    n_rows : int
        Rows that the model was fitted on.
    fraction : float
        Share of all rows that were read, those held out included.
    rmse, rmse_se : (T,) float64
        Error on the held-out leaves, in units of y, and its standard error: from the
        differences between leaves, never between rows, which may resemble their neighbours.
    errors : (h, T) float64
        Σ w (y − ŷ)² of each held-out leaf.
    weights : (h,) float64
        Σ w of each.
    """

    n_rows: int
    fraction: float
    rmse: Float64
    rmse_se: Float64
    errors: Float64
    weights: Float64

    @property
    def error(self) -> str:
        """RMSE ± its standard error, of every target."""
        pairs = zip(self.rmse, self.rmse_se, strict=True)
        return "RMSE " + ", ".join(f"{a:.5g} ± {b:.2g}" for a, b in pairs)

    def __str__(self) -> str:
        return f"{self.fraction:.1%} read, {self.n_rows:,} rows fitted, {self.error}"


def state_of(
    tests: Sequence[Moments], coef: Float64, intercept: Float64, n_rows: int, fraction: float
) -> State:
    """What a linear model of so many rows is worth on held-out leaves."""
    errors = np.stack([leaf_errors(test, coef, intercept) for test in tests])
    weights = np.array([test.weight for test in tests])
    rmse, se = root_ratio(errors, weights)
    return State(n_rows, fraction, rmse, se, errors, weights)


def leaf_errors(moments: Moments, coef: Array, intercept: Array) -> Float64:
    """Σ w (y − μ − zβ)² (T,) of rows that are known by their moments: a quadratic form."""
    row, matrix = moments.row, moments.matrix()
    r, t = row.n_features, row.n_targets
    shift = row.target_origin - intercept - row.feature_origin @ coef
    columns = np.concatenate([-coef, shift[None, :], np.eye(t)])  # (P, T): y − ŷ of a row
    assert len(columns) == r + 1 + t
    return np.asarray(
        np.maximum(np.einsum("pt,pq,qt->t", columns, matrix, columns, optimize=True), 0)
    )


def root_ratio(errors: Float64, weights: Float64) -> tuple[Float64, Float64]:
    """√(Σe/Σw) (T,) and its standard error by the spread of whole leaves (a ratio estimator)."""
    h, mean = len(weights), errors.sum(axis=0) / weights.sum()
    residual = errors - np.outer(weights, mean)
    variance = h / max(h - 1, 1) * (residual**2).sum(axis=0) / weights.sum() ** 2
    rmse = np.sqrt(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        return rmse, np.where(rmse > 0, np.sqrt(variance) / (2 * rmse), 0.0)


def has_settled(history: Sequence[State], until: float) -> bool:
    """Whether twice the rows made the error less than ``until`` (a share of it) smaller.

    With a fixed R the part of the error that rows can cure falls at least as 1/n, so what the
    last doubling won is what all further rows can win. The gain is taken at its upper 95 %
    limit, from the paired differences between held-out leaves.
    """
    last = history[-1]
    before = [state for state in history if 2 * state.n_rows <= 1.02 * last.n_rows]
    if not before:
        return False
    half = before[-1]
    gain, se = root_ratio_of_difference(half.errors - last.errors, last)
    return bool(((gain + 1.645 * se) <= until * last.rmse).all())


def root_ratio_of_difference(differences: Float64, last: State) -> tuple[Float64, Float64]:
    """Fall of the RMSE (T,) and its standard error: the fall of the mean square over 2·RMSE."""
    weights, h = last.weights, len(last.weights)
    mean = differences.sum(axis=0) / weights.sum()
    residual = differences - np.outer(weights, mean)
    variance = h / max(h - 1, 1) * (residual**2).sum(axis=0) / weights.sum() ** 2
    scale = np.maximum(2 * last.rmse, np.finfo(float).tiny)
    return mean / scale, np.sqrt(variance) / scale
