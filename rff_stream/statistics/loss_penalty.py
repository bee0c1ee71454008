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
from rff_stream.features.base import BATCH_ROWS, FeatureMap
from rff_stream.features.rowwise import RowwiseMap
from rff_stream.moments import AugmentedRow
from rff_stream.pilot import Pilot
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.class_weights import weigh_classes
from rff_stream.statistics.classes import ClassStatistic
from rff_stream.statistics.loss import LossStatistic, descents

__all__ = ["choose_alpha"]

ALPHAS = np.geomspace(10.0, 1e-5, 13)
"""From 1 over the variance of scores that hardly differ to that of scores of ±300."""

MOST_ROWS = 6000
FEW_ROWS = 2000
"""Fewer rows are held out in four turns, more only once."""

TOL, PASSES = 3e-3, 12
"""Enough to compare penalties: a start from the one before is near."""

MOST_COMPONENTS = 2048
"""Leading features that are looked at, where a map's leading columns are a map: with 1,024 the
best α of letter is three times that of 4,096, with 2,048 the same."""


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
    α is the inverse prior variance of scores, so its best value hardly depends on n, nor on R
    once the kernel is near. Rows are mapped once: 94 MiB for 2,048 features.
    """
    step = -(-len(pilot.x) // MOST_ROWS)
    x, codes, w = pilot.x[::step], pilot.y[::step].argmax(axis=1), pilot.w[::step]
    quarter = np.arange(len(x)) % 4
    turns = [
        (quarter != turn, quarter == turn)
        for turn in range(4 if len(x) < FEW_ROWS else 1)
        if (quarter == turn).any() and (quarter != turn).any()
    ]
    scores = np.full((len(turns), len(ALPHAS)), np.nan)
    for losses, turn in zip(scores, turns, strict=True):
        train, held = (_rows(x[part], codes[part], w[part]) for part in turn)
        path = _path(features, row, train, held, loss, class_weight)
        losses[: len(path)] = path
    return Selection(
        criterion="held-out loss on pilot rows",
        targets=("loss",),
        folds=tuple(map(str, range(len(turns)))),
        sizes=(_size(features),),
        alphas=ALPHAS[::-1].copy(),
        scores=scores[:, None, ::-1, None],  # α increases
        scale=np.ones(1),
        df=np.full((1, len(ALPHAS)), np.nan),
        eta=np.zeros(1),
        rule="best",
    )


def _size(features: FeatureMap) -> int:
    """Features that are looked at."""
    r = features.n_components
    return r if features.nesting == "none" else min(r, MOST_COMPONENTS)


class _Mapped(RowwiseMap):
    """Rows that are features already: a copy. It has no spec and stays in this module."""

    dtype, nesting = np.float64, "none"

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


def _mapped(features: FeatureMap, size: int, rows: Rows) -> Rows:
    """Rows whose columns are their leading features."""
    z = np.empty((len(rows.x), size))
    for start in range(0, len(z), BATCH_ROWS):  # all R of few rows at a time
        part = slice(start, start + BATCH_ROWS)
        z[part] = features(rows.x[part])[:, :size]
    return replace(rows, x=z)


def _path(
    features: FeatureMap,
    row: AugmentedRow,
    train: Rows,
    held: Rows,
    loss: Loss,
    class_weight: Mapping[Any, float] | None,
) -> list[float]:
    """Mean held-out loss for each α, largest first, until it has risen twice.

    Each fit starts from the one before.
    """
    size = _size(features)
    if size <= MOST_COMPONENTS:  # more are not kept but mapped in every pass
        train, held = (_mapped(features, size, rows) for rows in (train, held))
        features, row = _Mapped(size), row.leading(size)
    labels = tuple(range(loss.n_classes))
    sums: Any = "float64"
    places = np.arange(len(train.x))
    counted = ClassStatistic(features, row, sums, 0, 1, labels)
    sink = weigh_classes(counted.start(), class_weight)
    sink.add(train, places)
    classes = sink.result()
    problem = penalised(classes, loss, float(ALPHAS[0]))
    nothing = np.empty((features.n_components, 0))
    statistic = LossStatistic(features, loss, labels, nothing, np.empty(0), (), class_weight)
    losses: list[float] = []
    start = None
    for alpha in ALPHAS:
        at = replace(problem, alpha=float(alpha))
        for state in descents(_sums_over(train), statistic, at, start, tol=TOL, max_passes=PASSES):
            theta = state.point.theta
        start = problem.linear(theta)
        losses.append(_mean_loss(statistic, start, held))
        if len(losses) > 2 and losses[-1] > losses[-2] > losses[-3]:
            break
    return losses


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
