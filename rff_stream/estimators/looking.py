"""Looking while it runs: models of a part of the rows, their error and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import PlanError
from rff_stream.estimators.local import is_local
from rff_stream.execution import Reading, leaves_of
from rff_stream.execution.leaf import Leaf, Tally
from rff_stream.execution.progress import Progress
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.tree_sum import TreeSum
from rff_stream.sources import Source
from rff_stream.statistics.groups import ByFold, Groups
from rff_stream.statistics.moments import MomentStatistic
from rff_stream.statistics.protocol import Statistic

if TYPE_CHECKING:
    from rff_stream.estimators.streamed import StreamedRegressor

__all__ = ["STEP", "State", "has_settled", "leaf_errors", "states"]

STEP = 1.4
"""Rows grow by this factor between two looks of ``fit(until=…)``: a solve for each."""

MOST_HELD, FEWEST_HELD = 24, 6
"""Leaves that are kept apart to measure the error on; few are too few for a standard error."""

HELD_SHARE = 0.1


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


def states(model: StreamedRegressor, source: Source, every: float) -> Iterator[State]:
    """Fit the model on more and more leaves of the seeded order; see ``stream``."""
    if is_local(model._chosen):
        raise ValueError(
            "features='local' is read to the end: its error on leaves held out is not told from "
            "sums. Use fit without until, or a map of the whole space."
        )
    if not (every > 0 and every != 1):
        raise ValueError(
            f"every={every!r}, but it is the share of a step in (0, 1), or a factor above 1."
        )
    reading = Reading(source, progress=model.progress)
    model.plan_ = model._plan(reading)
    leaves = leaves_of(source, model.plan_.layout)
    held = held_out(len(leaves))
    row = model._mapped(reading)
    model.n_features_in_ = len(source.columns.inputs)
    rows = rows_in(leaves)
    with Progress("looking", rows, shown=model.progress) as bar:
        yield from looks(model, reading, row, (leaves[:held], leaves[held:]), every, bar)


def looks(
    model: StreamedRegressor,
    reading: Reading,
    row: AugmentedRow,
    parts: tuple[Sequence[Leaf], Sequence[Leaf]],
    every: float,
    bar: Progress,
) -> Iterator[State]:
    """States after each step through the second part of the leaves; the first is held out."""
    held, train = parts
    with bar.shared():
        each = [sum_of(model, reading, row, [leaf], apart=True).value for leaf in held]
    tests, so_far = [moments for moments in each if moments.n], TreeSum[Tally]()
    read, rows = rows_in(held), rows_in([*held, *train])
    for step, (start, stop) in enumerate(ends(len(train), every)):
        with bar.shared():
            so_far.add(step, sum_of(model, reading, row, train[start:stop]))
        read += rows_in(train[start:stop])
        current = so_far.total()
        assert current is not None
        value = current.value
        groups = dict(value.by_label) if isinstance(value, Groups) else {None: value}
        if not tests or not any(moments.n for moments in groups.values()):
            continue
        model._adopt(groups)
        model.n_missing_ = current.seen - model.n_rows_
        model.fraction_seen_ = read / rows
        state = state_of(model, tests, read / rows)
        bar.say(state.error)
        yield state


def held_out(n_leaves: int) -> int:
    """How many leaves are kept apart; refuses data of too few."""
    held = min(MOST_HELD, max(FEWEST_HELD, round(HELD_SHARE * n_leaves)))
    if n_leaves < 2 * FEWEST_HELD:
        raise PlanError(
            f"The data are read in {n_leaves} leaves, but at least {2 * FEWEST_HELD} are needed to "
            "tell how sure the error of a part of them is. Use fit: they are few."
        )
    return held


def ends(count: int, every: float) -> list[tuple[int, int]]:
    """Leaves start:stop of each step: ``every`` as a share of all, or a factor above 1."""
    if every > 1:
        sizes = [math.ceil(count * every**-k) for k in range(64) if count * every**-k > 1]
        stops = sorted({*sizes, count})
    else:
        stops = sorted(
            {min(count, math.ceil(count * every * k)) for k in range(1, 1 + math.ceil(1 / every))}
        )
    return list(zip([0, *stops[:-1]], stops, strict=True))


def sum_of(
    model: StreamedRegressor,
    reading: Reading,
    row: AugmentedRow,
    leaves: Sequence[Leaf],
    *,
    apart: bool = False,
) -> Tally:
    """Moments of some leaves; those kept apart in float64, for their errors are small."""
    places = reading.source.n_rows
    if places is None:
        raise PlanError(
            "The data have blocks of unknown length, so no share of them can be told. Use fit, "
            "or compute the lengths first: compute_chunk_sizes()."
        )
    statistic: Statistic = MomentStatistic(
        model.features_,
        row,
        2,
        "float64" if apart else model.plan_.sums,
        model.sample_rows,
        places,
    )
    folds = 0 if apart else model._n_folds(row.n_targets)
    if folds:
        statistic = ByFold(statistic, folds, places)
    return reading.add_up(statistic, leaves, words="looking")


def rows_in(leaves: Sequence[Leaf]) -> int:
    """Rows of some leaves, missing ones included."""
    return sum(math.prod(hi - lo for lo, hi in leaf.box) for leaf in leaves)


def state_of(model: StreamedRegressor, tests: Sequence[Moments], fraction: float) -> State:
    """What the model is worth on the held-out leaves."""
    linear = model._predictor()
    errors = np.stack([leaf_errors(test, linear.coef, linear.intercept) for test in tests])
    weights = np.array([test.weight for test in tests])
    rmse, se = root_ratio(errors, weights)
    return State(model.n_rows_, fraction, rmse, se, errors, weights)


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
