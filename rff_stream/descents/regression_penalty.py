"""Scale, penalty and start of a loss of regression, on a sample of rows in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.penalty_selection import Selection
from rff_stream.answers.ridge import ridge
from rff_stream.descents.sample_fits import (
    ALPHAS,
    FEW_COMPONENTS,
    TOL,
    Coefficients,
    IdentityMap,
    leading_features,
    leading_size,
    own_columns,
    predicted,
    selection_of,
    sums_over,
    turns_of,
)
from rff_stream.descents.statistic import LossStatistic, minimisers
from rff_stream.errors import DataError
from rff_stream.features.base import FeatureMap
from rff_stream.hashes import hash_rows
from rff_stream.losses.penalised import Penalised
from rff_stream.losses.regression import RegressionLoss, weighted_quantile
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import accumulate
from rff_stream.moments.class_moments import class_row
from rff_stream.moments.copies import group_copies
from rff_stream.pilot import weight_unit
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import select
from rff_stream.systems.normal_equations import ridge_system

TYPICAL = 10.0
"""The unit of tolerances is a mean loss, of at most so many medians: rows that are far from all
others must not end the fit of these. A mean of squared normal errors is 2.2 medians."""


FLAT = 1.05
"""A held-out loss within this factor of the least may fall again for a smaller penalty: columns of
a long length-scale first tell a trend, and a wave only where they may be large."""


@dataclass(frozen=True, slots=True, eq=False)
class ChosenLoss:
    """A loss and its penalty, as rows in memory chose them."""

    loss: RegressionLoss  # with its scale
    alpha: float
    selection: Selection | None  # None where α was given
    scores: Float64  # (n, 1): of held-out rows at this α; NaN for rows that every fit has seen


def choose_regression(
    features: FeatureMap, row: AugmentedRow, rows: Rows, loss: RegressionLoss, alpha: float | None
) -> ChosenLoss:
    """The loss with its scale, and the α of least held-out loss, on a sample of rows in memory.

    Rows have one target; ``row`` is without it. What the loss leaves open (``scale``,
    ``dispersion``) is found on held-out rows, twice: first beside the misses of the best constant,
    then beside those of the fit. Where α is given, there is no selection. A row of weight 2 is as
    two copies of it.
    """
    place = _hashed_places(rows.x, rows.y)
    turns = turns_of(place, np.zeros(len(rows.x), int))
    if alpha is None and not turns:
        raise DataError(
            f"Found {len(rows.x)} sample(s) of which {place.max() + 1} differ, but a penalty is "
            "chosen on held-out rows, so there must be two that differ. Give alpha, or more rows."
        )
    columns = _SampleColumns.of(features, row, rows)
    rows, size = columns.rows, columns.row.n_features
    assert rows.w is not None
    heavy = weight_unit(np.bincount(place, rows.w).astype(np.float64))
    constant = loss.constant(rows.y, rows.w)
    free = loss
    loss = free.of_residuals(np.tile(constant, (len(rows.y), 1)), rows.y, rows.w)
    if alpha is not None and not turns:
        return ChosenLoss(loss, alpha, None, np.full(rows.y.shape, np.nan))
    found: Selection | None = None
    starts: Sequence[Coefficients | None] = [None] * len(turns)
    for _ in range(1 if loss is free else 2):
        spread = 1.0 if loss.log_link else _spread(rows.y, rows.w)
        unit = unit_of(loss, rows) / spread * heavy
        grid = ALPHAS * unit if alpha is None else np.array([alpha])
        scores = np.full((len(turns), len(grid)), np.nan)
        fits = np.full((len(grid), *rows.y.shape), np.nan)
        walked: list[Sequence[Coefficients]] = []
        paths = (
            _regression_path(columns.row, select(rows, train), loss, grid, start)
            for (train, _), start in zip(turns, starts, strict=True)
        )
        for i, linears in enumerate(zip(*paths, strict=True)):
            walked.append(linears)
            for losses, (_, held), linear in zip(scores, turns, linears, strict=True):
                fits[i, held] = F = predicted(IdentityMap(size), linear, rows.x[held])
                w = rows.w[held]
                losses[i] = w @ loss.with_width(0.0).value(F, rows.y[held]) / w.sum()
            mean = scores.mean(axis=0)
            if i > 1 and mean[i] > mean[i - 1] > mean[i - 2] and mean[i] > FLAT * np.nanmin(mean):
                break
        best = 0
        if alpha is None:
            found = selection_of("held-out loss on the row sample", grid, scores, size)
            best = int(np.argmin(np.abs(grid - found.best.alpha)))
        starts = walked[best]
        known = np.isfinite(fits[best]).all(axis=1)
        loss = free.of_residuals(fits[best][known], rows.y[known], rows.w[known])
    return ChosenLoss(loss, float(grid[best]), found, fits[best])


def unit_of(loss: RegressionLoss, rows: Rows) -> float:
    """A typical loss of the best constant: the unit of tolerances. 1 where all losses are 0.

    Rows have one target.
    """
    w = _weights(rows)
    constant = loss.constant(rows.y, w)
    unit = _typical(loss.values(np.tile(constant, (len(rows.y), 1)), rows.y), w)
    rounding = 0.0
    if loss.log_link:  # its terms cancel
        rounding = 8 * float(np.finfo(float).eps * rows.y.max() * (1 + np.abs(constant).max()))
    return unit if unit > rounding else 1.0


def regression_starts(
    features: FeatureMap,
    moments: Moments,
    losses: Sequence[RegressionLoss],
    alphas: Float64,
    rows: Rows,
) -> list[Coefficients]:
    """Where descent over all rows starts for each target, with its loss and its α.

    Least squares, if its loss at the sampled ``rows`` is smaller than that of the best constant. It
    is not where a row is very far from all others: then the fit to the sample. Under a logarithm
    the best constant.
    """
    row, found = class_row(moments.row, ()), []
    if not losses[0].log_link:
        least = ridge(moments, alphas, floor="raise_silently")
    for t, (loss, alpha) in enumerate(zip(losses, alphas.tolist(), strict=True)):
        own = of_target(rows, t)
        if loss.log_link:
            found.append(_constant(loss, own, moments.row.n_features))
            continue
        start = least.coef[:, t, None], least.intercept[t, None]
        if not _beats_constant(features, loss, own, start):
            start = fit_of_sample(features, row, own, loss, alpha)
        found.append(start)
    return found


def fit_of_sample(
    features: FeatureMap, row: AugmentedRow, rows: Rows, loss: RegressionLoss, alpha: float
) -> Coefficients:
    """(β, μ) of all columns of the map at this α, from rows in memory with one target."""
    columns = _SampleColumns.of(features, row, rows)
    (linear,) = _regression_path(columns.row, columns.rows, loss, np.array([alpha]))
    return columns.linear(linear, features.n_components)


def of_target(rows: Rows, target: int) -> Rows:
    """Rows with one of their targets."""
    return replace(rows, y=rows.y[:, target, None])


@dataclass(frozen=True, slots=True, eq=False)
class _SampleColumns:
    """A sample of rows as columns: leading ones of a map, or of few rows their own."""

    rows: Rows  # x are columns
    row: AugmentedRow
    basis: Float64 | None  # β (R, m) of a unit of each column of few rows

    @classmethod
    def of(cls, features: FeatureMap, row: AugmentedRow, rows: Rows) -> Self:
        size = leading_size(features)
        if features.nesting != "none":
            size = min(size, FEW_COMPONENTS)
        row, z, basis = row.leading(size), leading_features(features, size, rows.x), None
        _, first, number = np.unique(rows.x, axis=0, return_index=True, return_inverse=True)
        if len(first) < size:
            size = len(first)
            few, basis = own_columns(z[first], row.prior)
            z = few[number.reshape(-1)]
            origin = np.zeros(size)
            row = replace(row, prior=np.ones(size), feature_origin=origin, nesting="none")
        return cls(replace(rows, x=z), row, basis)

    def linear(self, found: Coefficients, n_components: int) -> Coefficients:
        """Of all columns of the map."""
        coef, intercept = found
        if self.basis is not None:
            coef = self.basis @ coef
        whole = np.zeros((n_components, len(intercept)))
        whole[: len(coef)] = coef
        return whole, intercept


def _weights(rows: Rows) -> Float64:
    return np.ones(len(rows.x)) if rows.w is None else rows.w


def _constant(loss: RegressionLoss, rows: Rows, n_components: int) -> Coefficients:
    """The best constant of one target."""
    return np.zeros((n_components, 1)), loss.constant(rows.y, _weights(rows))


def _beats_constant(
    features: FeatureMap, loss: RegressionLoss, rows: Rows, found: Coefficients
) -> bool:
    """Whether its loss over rows is less than that of the best constant."""
    w = _weights(rows)
    constant = np.tile(loss.constant(rows.y, w), (len(rows.y), 1))
    both = predicted(features, found, rows.x), constant
    own, theirs = (float(w @ loss.value(F, rows.y)) for F in both)
    return own < theirs


def _regression_path(
    row: AugmentedRow,
    train: Rows,
    loss: RegressionLoss,
    alphas: Float64,
    start: Coefficients | None = None,
) -> Iterator[Coefficients]:
    """(β, μ) for each α, largest first; each fit starts from the one before.

    Rows x are columns already. The first fit starts from least squares, or from the best constant
    where that is better, if nothing is given.
    """
    features = IdentityMap(row.n_features)
    named = class_row(row, range(train.y.shape[1]))
    moments = accumulate(features, train.x, train.y, train.w, row=named, sums="float64")
    problem = Penalised(ridge_system(moments), loss, float(alphas[0]))
    nothing = np.empty((features.n_components, 0))
    statistic = LossStatistic(features, loss, None, nothing, np.empty(0), (), None, row)
    if start is None:
        start = _constant(loss, train, row.n_features)
        if not loss.log_link:
            least = float(alphas[0])
            found = ridge(moments, least, floor="raise_silently")
            near = found.coef, found.intercept
            start = near if _beats_constant(features, loss, train, near) else start
    unit = unit_of(loss, train)
    for alpha in alphas:
        at = replace(problem, alpha=float(alpha))
        for state in minimisers(
            sums_over(train), statistic, at, start, unit=unit, tol=TOL, max_passes=40
        ):
            theta = state.point.theta
        start = problem.linear(theta)
        yield start


def _hashed_places(x: Array, y: Array) -> Array:
    """Places (n,) of rows in an order that depends on their values alone: copies share a place."""
    none = np.zeros(len(x), np.uint64)
    alike, whole = (
        np.unique(hash_rows(none, *of), return_inverse=True)[1] for of in ((x,), (x, y))
    )
    levels = group_copies(x) is None and alike.max() < whole.max()
    return np.asarray(whole if levels else alike)


def _typical(values: Float64, w: Float64) -> float:
    """The mean of values ≥ 0 (n, 1), of at most so many medians where the median is not 0."""
    mean, middle = float(w @ values[:, 0] / w.sum()), float(weighted_quantile(values, w, 0.5)[0])
    return min(mean, TYPICAL * middle) if middle > 0 else mean


def _spread(y: Float64, w: Float64) -> float:
    """A typical squared difference of one target from its median; 1 where it is constant."""
    found = _typical((y - weighted_quantile(y, w, 0.5)) ** 2, w)
    return found if found > (np.finfo(float).eps * float(np.abs(y).max())) ** 2 else 1.0
