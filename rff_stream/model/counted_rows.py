"""What rows that were counted are known by: by their place in growing data, else by a hash."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, digest
from rff_stream.errors import ModelError
from rff_stream.execution import Reading
from rff_stream.execution.leaves import Leaf
from rff_stream.label_forms import text_of
from rff_stream.model.fitted import UNREAD, CountedBatch, Ledger
from rff_stream.model.input_rows import Opened
from rff_stream.model.recipe import PassRequest, PassResult, Recipe
from rff_stream.sources import Selection, Source
from rff_stream.sources.container_types import is_sparse
from rff_stream.sources.growth import record_of, whole_content
from rff_stream.sources.variables import can_grow
from rff_stream.statistics.content_hash import Content, ContentStatistic
from rff_stream.statistics.groups import ByGroup

FORMER = re.compile("[0-9a-f]{64}")
"""Hash of rows in memory as earlier versions took it."""


@dataclass(frozen=True, slots=True, eq=False)
class RowIdentity:
    """What rows are known by: a hash of their values in memory, else of where they come from."""

    content: str
    former: Callable[[], tuple[str, ...]]
    """What earlier versions called the same content."""

    @classmethod
    def of(cls, opened: Opened, data: Selection, ledger: Ledger) -> Self:
        """Of all rows; what a ledger knows tells which earlier names matter."""
        if opened.in_memory:
            return cls(content_of_rows(opened), partial(former_content, ledger, data))
        return cls(
            content_of_source(opened.source), partial(former_content_of_source, opened.source)
        )

    def is_counted(self, ledger: Ledger, batch: str | None) -> bool:
        """Whether a ledger holds them, under their name or, where they have none, under any."""
        if batch is None:
            return any(ledger.holds(each) for each in (self.content, *self.former()))
        return ledger.knows(batch, self.content, self.former)

    def under(self, batch: str | None) -> Ledger:
        """The rows under their name or their hash."""
        return Ledger(batches={batch or self.content: self.content})


def ledger_of(recipe: Recipe, request: PassRequest, data: Selection) -> Ledger:
    """What a fit counts; nothing where the answer needs every row again, so that none is added.

    Rows of no growing source are known all together, by their content, under their name if they
    have one.
    """
    source, batch = request.opened.source, request.batch
    if batch is True and data.labels_by is None:
        raise ValueError(
            f"batch=True makes every label of a column a batch, but by={data.by!r}. Name the "
            "column: by=…."
        )
    found = Ledger()
    if can_grow(source):
        size = source.shape[0]
        found = Ledger((record_of(source, source.dims[0], 0, size),)) if size else found
        if batch is None:
            return found
    if not grows(recipe):
        return found
    if batch is True:
        own = {batch_of_label(data.by, x): each for x, each in contents_by_label(request).items()}
        return found + Ledger(batches=own)
    opened = request.opened
    if batch is None and data.labels_by is None and data.by is not None:
        opened = recipe.open(replace(data, by=None))  # later rows do not come with this array
    return found + RowIdentity.of(opened, data, found).under(batch)


def with_labels(
    ledger: Ledger, request: PassRequest, data: Selection, labels: Iterable[Any]
) -> Ledger:
    """The ledger of a fit with the labels that it met: by the content of their rows in memory.

    Of other rows it is only known that some of each label were counted.
    """
    by = data.labels_by
    if by is None or not ledger.batches or request.batch is True:
        return ledger
    if request.opened.in_memory:
        known = {content: content for content in contents_by_label(request).values()}
    else:
        known = dict.fromkeys((batch_of_label(by, label) for label in labels), UNREAD)
    return ledger + Ledger(batches=known)


def batches_of_labels(ledger: Ledger, by: Any, done: PassResult) -> tuple[CountedBatch, ...]:
    """Every label of a pass as a batch, the first with what else is known of all rows.

    Rows that were read and do not count are of no label: they are counted with the first.
    """
    lost = done.seen - sum(part.n for part in done.groups.values())
    found: list[CountedBatch] = []
    for label, part in done.groups.items():
        name = batch_of_label(by, label)
        of_all = Ledger() if found else replace(ledger, batches={})
        own = of_all + Ledger(batches={name: ledger.batches.get(name, UNREAD)})  # may be new
        found.append(CountedBatch(name, {label: part}, part.n + (0 if found else lost), own))
    return tuple(found)


def batch_of_label(by: Any, label: Any) -> str:
    """The batch that the rows of a label are."""
    return f"{by if isinstance(by, str) else list(by)}={text_of(label)}"


def contents_by_label(request: PassRequest, *, as_before: bool = False) -> dict[Any, str]:
    """Hash of the rows of every label."""
    statistic = ByGroup(ContentStatistic(request.opened.class_labels, as_before))
    found = request.sums(statistic, "looking for what is new").value
    return {label: str(content) for label, content in found.by_label.items()}


def grows(recipe: Recipe) -> bool:
    """Whether rows can be added to the sums."""
    try:
        recipe.require_mergeable()
    except ModelError:
        return False
    return True


def content_of_rows(opened: Opened) -> str:
    """Hash of rows as they are counted: inputs, targets, classes and weights that are used."""
    statistic, source = ContentStatistic(opened.class_labels), opened.source
    box = tuple((0, size) for size in source.shape)
    if source.is_lazy:
        found: Content = (
            Reading(source, progress=False).sum_leaves(statistic, [Leaf(box, 0)], "").value
        )
        return str(found)
    sink = statistic.start()
    for rows in source.reader.read(box, *source.arguments(box)):
        sink.add(rows, np.empty(0))
    return str(sink.result())


def content_of_source(source: Source) -> str:
    """Hash of all that a source holds and of what it is read as: of stored data by their files."""
    columns = source.columns
    names = [columns.inputs, columns.targets, columns.units, columns.weight]
    if can_grow(source):
        return digest([names, record_of(source, source.dims[0], 0, source.shape[0])])
    return digest([names, whole_content(source)])


def former_content_of_source(source: Source) -> tuple[str, ...]:
    """What earlier versions called the same content."""
    if not can_grow(source):
        return (whole_content(source),)
    whole = source.dims[0], 0, source.shape[0]
    return digest(record_of(source, *whole, as_before=True)), source.generation()


def former_content(ledger: Ledger, data: Selection) -> tuple[str, ...]:
    """The hash that earlier versions took of rows in memory; none where this model knows none.

    Raises ModelError: rows of these bytes were counted, but that hash does not tell what a mask
    hides.
    """
    if not any(FORMER.fullmatch(content) for content in ledger.batches.values()):
        return ()
    given = data.X, data.y, data.sample_weight
    arrays = [part for each in given for part in _hashable(each)]
    absent = [each is None for each in arrays]
    found = digest(absent, {str(i): a for i, a in enumerate(arrays) if a is not None})
    if ledger.holds(found) and any(isinstance(each, np.ma.MaskedArray) for each in given):
        raise ModelError(
            "Rows of the same values were counted by an earlier version of rff_stream, whose "
            "record does not tell which of them were masked. Rows count once, and it cannot be "
            "said whether these are new. If they are, name them: batch=…."
        )
    return (found,)


def _hashable(values: Any) -> tuple[Array | None, ...]:
    """Values as arrays whose bytes are their content: objects as text, sparse ones in parts."""
    if values is None:
        return (None,)
    if is_sparse(values):
        rows = values.tocsr().sorted_indices()
        return np.array(rows.shape), rows.data, rows.indices, rows.indptr
    plain = np.asarray(values)
    return (plain.astype(str) if plain.dtype.kind == "O" else plain,)
