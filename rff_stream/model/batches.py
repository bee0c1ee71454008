"""The batches of a model: what each is told by, and whether one is unlike those before it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream.answers.drift_alarm import Look, Profile, level_of_look, look_at, profile
from rff_stream.arguments import PROBABILITY, whole
from rff_stream.errors import ModelError
from rff_stream.model.file_batches import CountedFiles, chosen_ids, files_of
from rff_stream.model.fitted import Fitted
from rff_stream.model.recipe import Recipe
from rff_stream.sources import Selection
from rff_stream.store import MomentStore

WINDOW = 100
"""Number of batches, the newest ones, that a new one is compared with."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """One batch that a model counts."""

    id: str
    name: str  # of its file, or its id
    rows: int
    number: int  # of its commit
    time: str  # when it was committed; "" in memory
    profile: Profile


@dataclass(frozen=True, slots=True, eq=False)
class BatchFacts:
    """A batch as a table shows it."""

    id: str
    name: str
    rows: int
    time: str  # when it was committed; "" in memory
    errors: tuple[float, ...]  # root mean squared residual of each target, on sampled rows
    look: Look
    """It beside all other batches."""


def known_batches(recipe: Recipe, fitted: Fitted, ids: Sequence[str] | None = None) -> list[Known]:
    """Batches, all or these, in the order in which they were counted.

    Their sums are looked at one after the other.
    """
    if fitted.saved_at is None:
        chosen = [b for b in fitted.batches if ids is None or b.id in ids]
        told = [(b.id, b.labels, b.rows, i, "", b.groups) for i, b in enumerate(chosen)]
        return [known(fitted, *each) for each in told]
    store = fitted.saved_at.open()
    plain = store.header["fitted"]
    found = [
        known(fitted, b.id, b.labels, b.rows, b.number, b.time, recipe.unpacked(groups, plain))
        for b, groups in store.each(None if ids is None else list(ids))
    ]
    return sorted(found, key=lambda each: each.number)


def known(
    fitted: Fitted, id: str, labels: Any, rows: int, number: int, time: str, groups: Any
) -> Known:
    """One batch."""
    told = profile_of(fitted, groups, rows, int(labels.get("seen", rows)))
    return Known(id, name_of(id, labels), rows, number, time, told)


def name_of(id: str, labels: Any) -> str:
    """The name of the one file of a batch, or its id."""
    names = [each["name"] for each in labels.get("files", {}).values()]
    return names[0] if len(names) == 1 else id


def profile_of(fitted: Fitted, groups: Any, rows: int, seen: int) -> Profile:
    """What a batch is told by: its sampled rows beside what the model says of them."""
    whole = functools.reduce(operator.add, groups.values())
    sample, d = whole.sample.rows, fitted.n_inputs
    x, y = sample[:, :d], sample[:, d:-1]
    targets = fitted.columns.targets
    predicted = None
    if hasattr(fitted.answer, "mean") and y.shape[1] == len(targets) and len(targets):
        predicted = np.asarray(fitted.answer.mean()(x)).reshape(len(x), -1) if len(x) else y
    residuals = None if predicted is None else y - predicted
    return profile(fitted.columns.inputs, x, predicted, residuals, targets, (rows, seen))


def drift_of(
    recipe: Recipe, fitted: Fitted, data: Selection, *, alpha: float, window: int = WINDOW
) -> Look:
    """A batch, the newest or one that is named, or rows that are not counted, beside those before.

    The number of the look is that of the batch among those that came after the fit.
    """
    PROBABILITY.check("alarm", alpha)
    whole(1, "So many batches before it are compared with it.").check("window", window)
    live, first, last = numbers_of(fitted)
    target = batch_meant(fitted, data, live)
    if target is None and data.X is None:
        raise ModelError(
            "This model keeps no batches apart, so there is none to compare. Save it with "
            "moments=True, load it, and add the new rows with update."
        )
    place = last + 1 if target is None else live[target]
    before = sorted((number, id) for id, number in live.items() if number < place)[-window:]
    ids = [id for _, id in before] + ([] if target is None else [target])
    found = {each.id: each for each in known_batches(recipe, fitted, ids)}
    reference = [(found[id].name, found[id].profile) for _, id in before]
    level = level_of_look(alpha, max(place - first, 1))
    if target is not None:
        new = found[target]
        return look_at(new.name, new.profile, new.rows, reference, level)
    opened = recipe.open_more(fitted, data)
    groups, seen = recipe.read_more(fitted, opened, fitted.row, grouped=False)
    rows = sum(part.n for part in groups.values())
    return look_at("new rows", profile_of(fitted, groups, rows, seen), rows, reference, level)


def numbers_of(fitted: Fitted) -> tuple[dict[str, int], int, int]:
    """Number of the commit of each batch, of the last one of the fit, and of the last of all."""
    if fitted.saved_at is None:
        return {batch.id: i for i, batch in enumerate(fitted.batches)}, -1, len(fitted.batches) - 1
    store = fitted.saved_at.open()
    return {b.id: b.number for b in store.batches()}, len(store.pilot) - 1, store.log.last


def batch_meant(fitted: Fitted, data: Selection, live: dict[str, int]) -> str | None:
    """The id of the batch that rows are: a name, or a file that was counted; None for new rows."""
    if data.X is None:
        return max(live, key=lambda id: live[id]) if live else None
    labels = labels_of(fitted)
    if isinstance(data.X, str):
        try:
            return chosen_ids([data.X], labels)[0]
        except ModelError:
            pass
    files = files_of(data)
    if files is None or len(files) != 1:
        return None
    own = {file: id for id, each in labels.items() for file in each.get("files", {})}
    ledger = {f: each["files"][f] for each in labels.values() for f in each.get("files", {})}
    known = CountedFiles(ledger).id_of(files[0], data.storage_options)
    return None if known is None else own[known]


def labels_of(fitted: Fitted) -> dict[str, Any]:
    """Labels of the batches that count, by id."""
    if fitted.saved_at is None:
        return {batch.id: batch.labels for batch in fitted.batches}
    store: MomentStore = fitted.saved_at.open()
    return {batch.id: batch.labels for batch in store.batches()}


def facts_of_batches(recipe: Recipe, fitted: Fitted, alpha: float) -> list[BatchFacts]:
    """Every batch, and how it differs from all others; the level is α divided by their number."""
    PROBABILITY.check("alarm", alpha)
    batches = known_batches(recipe, fitted)
    found = []
    for i, each in enumerate(batches):
        others = [(other.name, other.profile) for other in (*batches[:i], *batches[i + 1 :])]
        look = look_at(each.name, each.profile, each.rows, others, alpha / len(batches))
        errors = errors_in(each.profile)
        found.append(BatchFacts(each.id, each.name, each.rows, each.time, errors, look))
    return found


def errors_in(found: Profile) -> tuple[float, ...]:
    """Root mean squared residuals, from the mean and the spread of each target."""
    told = dict(zip(found.names, found.values, strict=True))
    means = {name: value for name, value in told.items() if name.startswith("mean of residual")}
    spreads = [told["log spread of" + name.removeprefix("mean of")] for name in means]
    return tuple(
        float(np.hypot(mean, np.exp(spread)))
        for mean, spread in zip(means.values(), spreads, strict=True)
    )
