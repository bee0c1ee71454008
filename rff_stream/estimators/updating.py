"""Counting new rows exactly once: what is new, its moments, one commit for each batch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rff_stream._array import digest
from rff_stream.errors import DataError, ModelError
from rff_stream.estimators.growing import GrowingEstimator, rows_of_batch
from rff_stream.estimators.inputs import in_memory
from rff_stream.estimators.ledger import Ledger, content_of_arrays
from rff_stream.estimators.persistence import keep_answer
from rff_stream.execution import Reading
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.sources import Source
from rff_stream.sources.growth import PartSource, can_grow, check_unchanged, growth_of, record_of
from rff_stream.statistics.content import ContentStatistic
from rff_stream.statistics.groups import ByGroup
from rff_stream.store import Batch, MomentStore, Outdated, answer_name, is_answered

__all__ = ["Added", "Update", "counted", "ingested", "updated"]

Groups = dict[Any, Moments]
ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Added:
    """One batch that was counted."""

    id: str
    groups: Groups
    seen: int
    ledger: Ledger

    @property
    def rows(self) -> int:
        """Rows that count."""
        return sum(moments.n for moments in self.groups.values())


@dataclass(frozen=True, slots=True)
class Update:
    """What an update found: batches, and what is not written yet."""

    added: tuple[Added, ...] = ()
    waiting: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What :meth:`GrowingEstimator.update` was asked for."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    batch: str | None = None
    by: str | None = None
    storage_options: Mapping[str, Any] | None = None


def updated(model: GrowingEstimator, *given: Any, **choices: Any) -> Update:
    """Count what is new and answer from all; see :meth:`GrowingEstimator.update`."""
    if not hasattr(model, "moments_"):
        raise ModelError(
            "This model has no moments, so nothing can be added to them. Fit it, or load one "
            "that was saved with moments=True."
        )
    request, store = Request(*given, **choices), model._store()
    if store is not None:
        found = ingested(model, store, request)
        batches = adopt(model, store)
        if model._home is not None and not is_answered(store.log):
            keep_answer(model, batches)
        return found
    found = looked(model, model._ledger, model.moments_.row, request)
    for added in found.added:
        merge(model, added)
    return found


def ingested(model: GrowingEstimator, store: MomentStore, request: Request) -> Update:
    """Count what is new in a store; ``model`` need not be solved.

    Whoever commits first wins; who comes second looks again at what is left.
    """
    added: list[Added] = []
    for _ in range(ATTEMPTS):
        ledger = Ledger.of(store.ever().values())
        found = looked(model, ledger, store.row, request)
        try:
            for each in found.added:
                labels = {**each.ledger.labels(), "seen": each.seen}
                if store.append(each.id, each.groups, labels, still=follows(each.ledger)):
                    added.append(each)
            return Update(tuple(added), found.waiting)
        except Outdated:
            continue
    raise ModelError(f"{store!r} changed {ATTEMPTS} times during an update. Run it again.")


def follows(mine: Ledger) -> Any:
    """Truth of "these rows come right after those that were counted"."""

    def still(ever: Mapping[str, Mapping[str, Any]]) -> bool:
        known = Ledger.of(ever.values())
        start = mine.records[0]["start"] if mine.records else None
        stop = known.records[-1]["stop"] if known.records else 0
        return start is None or start == stop

    return still


def adopt(model: GrowingEstimator, store: MomentStore) -> list[Batch]:
    """Answer from what the store holds now, unless the model does already; from which batches."""
    while True:
        batches = store.batches()
        model._home = None if model._home is None else model._home.at(store)
        answer, ledger = answer_name(store.log, batches), Ledger.of(store.ever().values())
        if answer == model._answer_name:
            model._ledger = ledger
            return batches
        groups = store.groups()
        if store.batches() == batches:  # else others committed meanwhile
            break
    model._adopt(groups)
    model._answer_name = answer
    model._ledger = ledger
    model.n_missing_ = sum(int(b.labels.get("seen", b.rows)) - b.rows for b in batches)
    return batches


def merge(model: GrowingEstimator, added: Added) -> None:
    """Add a batch to a model in memory."""
    model._adopt(model._merged(added.groups))
    model._ledger = model._ledger + added.ledger
    model.n_missing_ += added.seen - added.rows


def counted(model: GrowingEstimator, X: Any, y: Any, weight: Any, batch: str | None) -> None:
    """One more batch of rows in memory, for partial_fit."""
    store = model._store()
    ledger = model._ledger if store is None else Ledger.of(store.ever().values())
    content = content_of_arrays(*rows_of_batch(X, y, weight)) if batch else ""
    mine = Ledger(batches={batch: content}) if batch else Ledger()
    if batch and ledger.knows(batch, content):  # under its own id, or within that of the fit
        if store is not None:
            adopt(model, store)
        return
    row = model.moments_.row if store is None else store.row
    groups, seen = read(model, model._of_arrays(X, y, weight), row)
    added = Added(batch or f"batch {uuid.uuid4().hex}", groups, seen, mine)
    if store is None:
        merge(model, added)
        return
    store.append(added.id, groups, {**mine.labels(), "seen": seen})
    adopt(model, store)


def looked(model: GrowingEstimator, ledger: Ledger, row: AugmentedRow, request: Request) -> Update:
    """What is new against a ledger, with its moments."""
    if request.batch is not None and request.by is not None:
        raise ValueError("batch= and by= were both given: name all rows, or label each. Use one.")
    if in_memory(request.X) and request.by is None:
        return Update(tuple(new_arrays(model, ledger, row, request)))
    source = opened(model, request, request.by or model._labels_by)
    grown = grown_source(model, ledger, request, source)
    if grown is not None:
        return new_rows(model, ledger, row, grown)
    if request.by is not None:
        return Update(tuple(new_labels(model, ledger, row, source, request.by)))
    if request.batch is not None or not can_grow(source):
        return Update(tuple(new_batch(model, ledger, row, source, request)))
    raise ModelError(
        "It is not known which rows this model has counted: it was not fitted on growing "
        "data (a Zarr store, or xarray opened without chunks). Name the new rows: batch=…."
    )


def opened(model: GrowingEstimator, request: Request, by: Any) -> Source:
    """The rows that an update was asked for, with these labels."""
    return model._opened(
        request.X, request.y, request.sample_weight, request.storage_options, by=by
    )


def grown_source(
    model: GrowingEstimator, ledger: Ledger, request: Request, source: Source
) -> Source | None:
    """The growing data of the fit, whose rows are known by their place; None for other data.

    Raises
    ------
    DataError
        Where neither a batch nor labels are named and what was counted has changed.
    """
    if not (ledger.records and can_grow(source)):
        return None
    if request.batch is None and request.by is None:
        check_unchanged(source, ledger.records)
        return source
    try:
        if request.by not in (None, model._labels_by):
            source = opened(model, request, model._labels_by)
        check_unchanged(source, ledger.records)
    except DataError:
        return None
    return source


def new_rows(model: GrowingEstimator, ledger: Ledger, row: AugmentedRow, source: Source) -> Update:
    """Rows that growing data have after those counted."""
    growth = growth_of(source, ledger.records, model.missing_chunks)
    if growth.stop <= growth.start:
        return Update(waiting=growth.waiting)
    part = PartSource(source, growth.dim, growth.start, growth.stop)
    record = record_of(source, growth.dim, growth.start, growth.stop)
    groups, seen = read(model, part, row, grouped=model._labels_by is not None)
    id = f"{growth.dim} {growth.start}:{growth.stop}"
    return Update((Added(id, groups, seen, Ledger((record,))),), growth.waiting)


def new_batch(
    model: GrowingEstimator, ledger: Ledger, row: AugmentedRow, source: Source, request: Request
) -> Iterator[Added]:
    """All rows of a source under one name."""
    if request.batch is None:
        raise ModelError(
            f"It cannot be told which rows of a {type(request.X).__name__} are new. Open the data "
            "without chunks (a Zarr path, chunks=None), or name the rows: batch=…."
        )
    whole = (source.dims[0], 0, source.shape[0]) if can_grow(source) else None
    content = source.generation() if whole is None else digest(record_of(source, *whole))
    if not ledger.knows(request.batch, content):
        groups, seen = read(model, source, row, grouped=model._labels_by is not None)
        yield Added(request.batch, groups, seen, Ledger(batches={request.batch: content}))


def new_arrays(
    model: GrowingEstimator, ledger: Ledger, row: AugmentedRow, request: Request
) -> Iterator[Added]:
    """Rows in memory, under their name or their hash."""
    X, y, weight = request.X, request.y, request.sample_weight
    content = content_of_arrays(*rows_of_batch(X, y, weight))
    batch = request.batch or f"rows {content[:32]}"
    if not ledger.knows(batch, content):
        groups, seen = read(model, model._of_arrays(X, y, weight), row)
        yield Added(batch, groups, seen, Ledger(batches={batch: content}))


def new_labels(
    model: GrowingEstimator, ledger: Ledger, row: AugmentedRow, source: Source, by: str
) -> Iterator[Added]:
    """Every label that is not known as a batch of its own."""
    reading = Reading(source, progress=model.progress)
    plan = model._plan(reading, model.features_)
    asked = ByGroup(ContentStatistic())
    contents = reading.sums(asked, plan.layout, "looking for what is new").value.by_label
    texts = {label: str(content) for label, content in contents.items()}
    names = {label: f"{by}={label}" for label in texts}
    new = [label for label in sorted(texts) if not ledger.knows(names[label], texts[label])]
    if not new:
        return
    groups, _ = model._groups_of(reading, row, plan, grouped=True)
    for label in new:
        kept = {label if model._labels_by is not None else None: groups[label]}
        mine = Ledger(batches={names[label]: texts[label]})
        yield Added(names[label], kept, groups[label].n, mine)


def read(
    model: GrowingEstimator, source: Source, row: AugmentedRow, *, grouped: bool = False
) -> tuple[Groups, int]:
    """Moments of all rows of a source; zero where none counts."""
    reading = Reading(source, progress=model.progress)
    plan = model._plan(reading, model.features_)
    groups, seen = model._groups_of(reading, row, plan, grouped=grouped)
    return groups or {None: Moments.zero(row, plan.order)}, seen
