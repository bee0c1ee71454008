"""A long fit that goes on where it was stopped: its map and its sums are in a checkpoint."""

from __future__ import annotations

from os import PathLike
from typing import Any

from rff_stream._array import Array
from rff_stream.estimators.growing import GrowingEstimator
from rff_stream.estimators.persistence import MAP, STATE, map_of, plain_value, selection_of
from rff_stream.execution import Reading, no_rows
from rff_stream.execution.checkpoints import facts_of
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.planning import Plan
from rff_stream.sources import Source
from rff_stream.store import Checkpoint

__all__ = ["drawn", "read_all", "resumable", "resumed"]

AFTERWARDS = (
    "alpha", "contamination", "cv", "fit_intercept", "loss", "max_passes", "memory", "noise",
    "progress", "refine", "ridge", "threshold", "tol", "warm_start",
)  # fmt: skip
"""Parameters that are asked after the pass: another value goes on from the same sums."""


def read_all(
    model: GrowingEstimator,
    reading: Reading,
    checkpoint: str | PathLike[str] | None,
    *,
    grouped: bool,
) -> tuple[dict[Any, Moments], int]:
    """Moments of all rows by group, and how many were looked at; sets the plan and the map.

    With a checkpoint the map and finished sums are kept there, or taken from there.
    """
    source = reading.source
    model.plan_ = model._plan(reading)
    kept = None if checkpoint is None else resumable(model, source, model.plan_, checkpoint)
    row = None if kept is None else resumed(model, kept)
    if row is None:
        row = model._mapped(reading)
    if kept is not None:
        begin(model, kept, row, model.plan_)
    groups, seen = model._groups_of(reading, row, model.plan_, grouped=grouped, checkpoint=kept)
    if not any(moments.n for moments in groups.values()):
        raise no_rows(source)
    return groups, seen


def resumable(
    model: GrowingEstimator, source: Source, found: Plan, path: str | PathLike[str]
) -> Checkpoint:
    """The checkpoint of this very fit, there or to be; refuses that of another."""
    parameters = model.get_params(deep=False).items()
    chosen = {name: plain_value(v) for name, v in parameters if name not in AFTERWARDS}
    facts = facts_of(source, found, model=type(model).__name__, **chosen, **selection_of(model))
    folds = getattr(model, "_n_folds", None)
    facts["folds"] = 0 if folds is None else folds(len(source.columns.targets))
    return Checkpoint(path, facts)


def resumed(model: GrowingEstimator, kept: Checkpoint) -> AugmentedRow | None:
    """Give the model the map that an earlier run drew; None where there was none."""
    store = kept.store
    if store is None:
        return None
    model.features_ = map_of(store.header, store.arrays)
    state = {k.removeprefix(STATE): v for k, v in store.arrays.items() if k.startswith(STATE)}
    model._take_state(state)
    return store.row


def begin(model: GrowingEstimator, kept: Checkpoint, row: AugmentedRow, found: Plan) -> None:
    """Say what the checkpoint will keep, the map included."""
    kept.begin(row, found.order, *drawn(model))
    model._pass = kept.token


def drawn(model: GrowingEstimator) -> tuple[dict[str, Any], dict[str, Array]]:
    """What a model has before its pass, its map above all, as a header and arrays of a store."""
    plain, arrays = model.features_.spec()
    named = {MAP + name: values for name, values in arrays.items()}
    named |= {STATE + name: values for name, values in model._state().items()}
    return {"map": dict(plain)}, named
