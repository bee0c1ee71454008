"""Evaluation of a model on test data: sums over all rows, and a sample of rows for pictures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.execution import Reading
from rff_stream.model.fitted import Data
from rff_stream.model.predict import scored_source
from rff_stream.statistics.scores import ClassScores, Residuals

DRAWN_ROWS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """What a model did on rows that are told from those it was fitted on."""

    place: str  # where the rows are, in words
    residuals: Residuals | None  # sums over all of the rows; None for a model that is no regression
    scores: ClassScores | None  # the same of a classifier
    x: Float64  # (m, d): some of the rows, spread over the data
    y: Float64  # (m, T)
    seconds: float  # of the pass; 0 where it was made before
    held_out: bool = False  # whether a condition says that the fit left these rows out


def assess(
    model: Any,
    data: Any,
    *,
    place: str = "the data given",
    target: Any = None,
    weights: Any = None,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    storage_options: Mapping[str, Any] | None = None,
    residuals: Residuals | None = None,
) -> Assessment:
    """Score a model on data in one streamed pass, and read some rows to draw.

    Parameters
    ----------
    model : fitted estimator
    data : as in fit
    place : str
        What the report calls the data.
    target, weights, dim, where, storage_options
        As in ``model.residuals``.
    residuals : Residuals, optional
        Where they are known already, the rows are not scored again.

    Returns
    -------
    Assessment
    """
    started, targets = time.monotonic(), model.columns_.targets
    held_out = any(getattr(each, "part", None) == "test" for each in where)
    choices: dict[str, Any] = {"dim": dim, "where": where, "storage_options": storage_options}
    if hasattr(model, "scores"):
        scores = model.scores(data, target, weights, **choices)
        nothing = np.empty((0, len(model.columns_.inputs)))
        seconds = time.monotonic() - started
        return Assessment(place, None, scores, nothing, nothing, seconds, held_out)
    seconds = 0.0
    if targets and residuals is None:
        residuals = model.residuals(data, target, weights, **choices)
        seconds = time.monotonic() - started
    y = (list(targets) if target is None else target) if targets else None
    rows = Data(data, y, weights, None, dim, tuple(where), None, storage_options)
    source = scored_source(model, rows)
    pilot = Reading(source, progress=False).pilot()
    step = max(1, -(-len(pilot.x) // DRAWN_ROWS))
    x = np.asarray(pilot.x[::step], np.float64)
    y_drawn = np.asarray(pilot.y[::step], np.float64)
    return Assessment(place, residuals, None, x, y_drawn, seconds, held_out)
