"""From rows to a :class:`Fitted`, or from moments that were collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, Literal

import numpy as np

from rff_stream._array import Array
from rff_stream.answers.duplicate_rows import warn_of_few
from rff_stream.arguments import PATH
from rff_stream.errors import ModelError
from rff_stream.execution import Reading, no_rows
from rff_stream.execution.checkpoints import description_of
from rff_stream.execution.threads import threads_of_solve
from rff_stream.families import MapParameters
from rff_stream.features import FeatureMap
from rff_stream.features.base import MAP
from rff_stream.model.counted_rows import batches_of_labels, grows, ledger_of, with_labels
from rff_stream.model.file_batches import are_apart, files_of, first_files, read_files
from rff_stream.model.fitted import CHOSEN, CountedBatch, Fitted
from rff_stream.model.input_rows import Opened, open_counted
from rff_stream.model.recipe import PassRequest, Recipe
from rff_stream.model.serialisation import plain_selection, plain_value
from rff_stream.moments import Moments
from rff_stream.planning import Plan
from rff_stream.sources import Columns, Selection
from rff_stream.sources.data_files import files_below, open_together
from rff_stream.store import Checkpoint
from rff_stream.store.batch_writing import checked_id

Place = str | PathLike[str]

ANY_TIME = {"memory", "progress"}
"""Parameters of every estimator that no sum depends on."""


def fit(
    recipe: Recipe,
    data: Selection,
    checkpoint: Place | None = None,
    before: Fitted | None = None,
    batch: str | Literal[True] | None = None,
) -> Fitted:
    """Read the rows once, and answer from the sums as a recipe says.

    Finished sums and the map are kept at ``checkpoint``, or were by an earlier run. ``before`` is
    the fit that a warm start goes on from. All rows are counted under the name ``batch``; True:
    every label of ``by`` is one.
    """
    if batch is not None and batch is not True:
        batch = checked_id(batch, "batch")
    if checkpoint is not None:
        PATH.check("checkpoint", checkpoint)
    new = first_files(files_of(data), data.storage_options)
    together = bool(new) and files_below(data.X, data.storage_options) is not None
    if together:
        files = [each.file for each in new]  # without copies of the same content
        data = replace(data, X=open_together(files, data.y, data.storage_options, data.inputs))
    opened, parameters = open_checked(recipe, data)
    reading = Reading(opened.source, progress=recipe.params.progress)
    reading.count_partitions()
    plan = recipe.plan(reading, opened.columns, parameters)
    resumed = None
    if checkpoint is not None:
        resumed = checkpoint_of_fit(recipe, opened, data, plan, checkpoint)
    grouped = data.by is not None
    request = PassRequest(opened, reading, plan, parameters, grouped, resumed, before, batch)
    # before the read: rows that come meanwhile are not in it
    counted = ledger_of(recipe, request, data)
    new = new if grows(recipe) and batch is None else []
    batches: tuple[CountedBatch, ...] = ()
    several = len(new) > 1 and recipe.adds_files
    if several and are_apart(request, data, len(new), recipe.params.memory):
        done, batches = read_files(recipe, request, data, new)
    else:
        done = recipe.read(request)
    counted = with_labels(counted, request, data, done.groups)
    if batch is True and counted.batches:
        batches = batches_of_labels(counted, data.by, done)
    if together:
        counted = replace(counted, records=())  # rows are those of several files
    for each in new:
        counted += each.ledger
    fitted = Fitted(
        columns=opened.columns,
        features=done.drawn.features,
        scales=done.drawn.scales,
        flat=opened.flat,
        feature_names=opened.feature_names,
        ledger=counted,
        batches=batches,
        selection=data.lasting,
        token="" if resumed is None else resumed.token,
        fraction=1.0,
        plan=done.request.plan,
        declared_classes=recipe.declared_classes,
    ).with_groups(done.groups)
    if not fitted.n_rows:
        raise no_rows(opened.source)
    fitted = replace(fitted, n_missing=done.seen - fitted.n_rows)
    if recipe.chooses and done.request.may_be_drawn_again:
        kept = opened.rows_to_keep if data.by is None else None
        fitted = replace(fitted, kept=kept, scales=with_n_chosen(done.drawn.scales, fitted.n_rows))
    if data.sample_weight is not None:
        warn_of_few(fitted.n_rows, fitted.total.weight, fitted.total.squared_weight)
    with threads_of_solve(fitted.features.n_components):
        return replace(fitted, answer=recipe.answer_of_pass(fitted, done))


def refit(recipe: Recipe, fitted: Fitted, batch: CountedBatch) -> Fitted:
    """The fit of all rows that are kept, those of one more batch included: a map of their own."""
    kept = batch.kept
    assert kept is not None
    opened = open_counted(recipe.params, fitted.columns, kept.selection, recipe.target)
    recipe = recipe.for_refit(fitted, opened)
    parameters = recipe.checked_parameters(fitted.columns)
    reading = Reading(opened.source, progress=recipe.params.progress)
    plan = recipe.plan(reading, fitted.columns, parameters)
    done = recipe.read(PassRequest(opened, reading, plan, parameters))
    missing = fitted.n_missing + batch.seen - (len(kept) - fitted.n_rows)
    found = replace(
        fitted,
        features=done.drawn.features,
        scales=with_n_chosen(done.drawn.scales, len(kept)),
        plan=done.request.plan,
        n_missing=missing,
        ledger=fitted.ledger + batch.ledger,
        kept=kept,
    ).with_groups(done.groups)
    with threads_of_solve(found.features.n_components):
        return replace(found, answer=recipe.answer_of_pass(found, done))


def with_n_chosen(scales: Mapping[str, Array], n_rows: int) -> Mapping[str, Array]:
    """Scales of a map, with the number of rows that it was chosen on."""
    return {**scales, CHOSEN: np.asarray(n_rows)}


def open_checked(recipe: Recipe, data: Selection) -> tuple[Opened, MapParameters]:
    """The rows to read, and parameters that fit them."""
    recipe.check()
    opened = recipe.open(data)
    return opened, recipe.checked_parameters(opened.columns)


def checkpoint_of_fit(
    recipe: Recipe, opened: Opened, data: Selection, plan: Plan, path: Place
) -> Checkpoint:
    """The checkpoint of this fit, which may exist already; refuses that of another fit."""
    later = recipe.after_the_pass | ANY_TIME
    parameters = recipe.params.get_params(deep=False).items()
    chosen = {name: plain_value(value) for name, value in parameters if name not in later}
    chosen |= plain_selection(data)
    source = opened.source
    description = description_of(source, plan, model=type(recipe.params).__name__, **chosen)
    description["folds"] = recipe.n_folds(len(source.columns.targets))
    return Checkpoint(fspath(path), description)


def solve(recipe: Recipe, fitted: Fitted) -> Fitted:
    """The same fit with the answer from its sums.

    Raises ModelError: where the sums hold no rows.
    """
    if not fitted.n_rows:
        raise ModelError(
            "0 rows are left to answer from: the batches and groups that were chosen hold none, or "
            "all batches were forgotten. Choose others, or count new rows: rff-stream update MODEL "
            "DATA."
        )
    with threads_of_solve(fitted.features.n_components):
        return replace(fitted, answer=recipe.answer(fitted))


def fit_moments(
    recipe: Recipe, features: FeatureMap, moments: Moments | Mapping[Any, Moments], flat: bool
) -> Fitted:
    """A model from moments that were collected: nothing is read."""
    groups = moments if isinstance(moments, Mapping) else {None: moments}
    if not groups or not all(hasattr(each, "row") for each in groups.values()):
        raise TypeError(
            f"moments is {moments!r}, but a fit from moments takes Moments, or a mapping of label "
            "to Moments. Give those of rs.collect(features, X, y), or of a store."
        )
    MAP.check("features", features)
    row = next(iter(groups.values())).row
    if row.map_fingerprint != features.fingerprint:
        raise ModelError(
            f"The moments are of the map {row.map_fingerprint[:12]}…, but the one given is "
            f"{features.fingerprint[:12]}…. Give the map that they were collected with."
        )
    recipe.check()
    fitted = Fitted(
        columns=Columns(row.inputs, row.targets, row.units),
        features=features,
        scales=recipe.scales_in(features),
        flat=flat and row.n_targets <= 1,
    )
    return solve(recipe, fitted.with_groups(recipe.unpacked(groups, {})))
