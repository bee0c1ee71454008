"""The penalty of a loss, chosen on pilot rows in memory: no pass over the data for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.choice import Selection
from rff_stream.answers.losses import Loss
from rff_stream.answers.penalised import penalised
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow
from rff_stream.onehot import joined
from rff_stream.onepass.classes import ClassStatistic
from rff_stream.onepass.losspass import LossStatistic, descents
from rff_stream.pilot import Pilot
from rff_stream.sources.base import Rows

__all__ = ["choose_alpha"]

ALPHAS = np.geomspace(10.0, 1e-5, 13)
"""From 1 over the variance of scores that hardly differ to that of scores of ±300."""

MOST_ROWS = 6000
FEW_ROWS = 2000
"""Fewer rows are held out in four turns, more only once."""

TOL, PASSES = 3e-3, 12
"""Enough to compare penalties: a start from the one before is near."""


def choose_alpha(
    features: FeatureMap,
    row: AugmentedRow,
    pilot: Pilot,
    loss: Loss,
    class_weight: Mapping[Any, float] | None,
) -> Selection:
    """The α of least held-out loss on pilot rows: a quarter of them, or each quarter of few.

    Parameters
    ----------
    features : FeatureMap
    row : AugmentedRow
        Without targets.
    pilot : Pilot
        y one-hot; rows are held out in turn along it.
    loss : Loss
    class_weight : mapping of class number to float, or None

    Notes
    -----
    α is the inverse prior variance of scores, so its best value hardly depends on n.
    """
    step = -(-len(pilot.x) // MOST_ROWS)
    x, codes, w = pilot.x[::step], pilot.y[::step].argmax(axis=1), pilot.w[::step]
    quarter = np.arange(len(x)) % 4
    turns = range(4 if len(x) < FEW_ROWS else 1)
    scores = []
    for turn in turns:
        train, held = quarter != turn, quarter == turn
        if held.any() and train.any():
            parts = [_rows(x[p], codes[p], w[p]) for p in (train, held)]
            scores.append(_path(features, row, parts[0], parts[1], loss, class_weight))
    table = np.array(scores)[:, None, ::-1, None]  # α increases
    return Selection(
        criterion="held-out loss on pilot rows",
        targets=("loss",),
        folds=tuple(map(str, turns)),
        sizes=(features.n_components,),
        alphas=ALPHAS[::-1].copy(),
        scores=table,
        scale=np.ones(1),
        df=np.full((1, len(ALPHAS)), np.nan),
        eta=np.zeros(1),
        rule="best",
    )


def _path(
    features: FeatureMap,
    row: AugmentedRow,
    train: Rows,
    held: Rows,
    loss: Loss,
    class_weight: Mapping[Any, float] | None,
) -> list[float]:
    """Mean held-out loss for each α, largest first; each fit starts from the one before."""
    labels = tuple(range(loss.n_classes))
    sums: Any = "float64"
    places = np.arange(len(train.x))
    sink = ClassStatistic(features, row, sums, 0, 1, labels, class_weight).start()
    sink.add(train, places)
    classes = joined(sink.result().by_label.values())
    problem = penalised(classes, loss, float(ALPHAS[0]))
    nothing = np.empty((features.n_components, 0))
    statistic = LossStatistic(features, loss, labels, nothing, np.empty(0), (), class_weight)
    found: list[float] = []
    start = None
    for alpha in ALPHAS:
        at = replace(problem, alpha=float(alpha))
        for state in descents(_sums_over(train), statistic, at, start, tol=TOL, max_passes=PASSES):
            theta = state.point.theta
        start = problem.linear(theta)
        found.append(_mean_loss(statistic, start, held))
        if len(found) > 2 and found[-1] > found[-2] > found[-3]:
            break
    return found + [np.nan] * (len(ALPHAS) - len(found))


def _mean_loss(statistic: LossStatistic, linear: tuple[Float64, Float64], rows: Rows) -> float:
    coef, intercept = linear
    asked = replace(
        statistic,
        coef=np.hstack([coef, coef]),
        intercept=np.concatenate([intercept, intercept]),
        steps=(0.0,),
    )
    assert rows.w is not None
    return float(_sums_over(rows)(asked).values[0] / rows.w.sum())


def _sums_over(rows: Rows) -> Any:
    """A statistic -> its sum over rows in memory."""

    def sums(statistic: LossStatistic) -> Any:
        sink = statistic.start()
        sink.add(rows, np.arange(len(rows.x)))
        return sink.result()

    return sums


def _rows(x: Array, codes: Array, w: Array) -> Rows:
    return Rows(x, np.empty((len(x), 0)), w, None, 0, codes)
