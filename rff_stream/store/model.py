"""Fitted models as Zarr v3 groups: saved with one commit, loaded only when every byte verifies."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.store.batch_reading import (
    ANSWERS,
    answer_name,
    check_answered,
    find_answer,
    read_root,
    read_whole,
    sum_by_group,
)
from rff_stream.store.batch_writing import FIT, NewBatch, Root, write_store
from rff_stream.store.block_sums import (
    SUMS,
    kept_sums,
    lasting_blocks,
    names_of_blocks,
    sorted_batches,
    sum_of_batches,
)
from rff_stream.store.commit_log import Batch, Log, Replaced, ever
from rff_stream.store.files import Files
from rff_stream.store.local import local_path, open_files
from rff_stream.store.moment_store import MomentStore
from rff_stream.store.moments_codec import Label
from rff_stream.store.zarr_files import group_metadata


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Where a model lives, and what was read there."""

    path: str  # absolute where it is local: another working directory changes nothing
    storage_options: Mapping[str, Any] | None = field(repr=False)  # secrets
    origin: str  # sha256 of the first entry of its log: no other model has it
    last: int  # number of the newest entry that was read
    head: str  # sha256 of that entry

    @classmethod
    def of(
        cls, log: Log, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None
    ) -> Self:
        """The place of what a log was read from."""
        place = local_path(path) or os.fspath(path)
        return cls(place, storage_options, log.origin, log.last, log.head)

    def at(self, store: MomentStore) -> Self:
        """The same place, when all that a store has was read."""
        return replace(self, last=store.log.last, head=store.log.head)

    def open(self) -> MomentStore:
        """The store that is there now.

        Raises Replaced: it is another model, or has another history.
        """
        store = MomentStore.open(self.path, storage_options=self.storage_options)
        store.log.check_has(0, self.origin)
        store.log.check_has(self.last, self.head)
        return store


@dataclass(frozen=True, slots=True)
class StoredModel:
    """What a store gives back."""

    header: Mapping[str, Any]  # plain values, as they were saved
    arrays: Mapping[str, Array]  # such as ``map/frequencies``; read-only
    answers: Mapping[str, Array]
    """Answers that were solved from the moments; {} if batches were added or removed since:
    solve again."""
    moments: dict[Label, Moments] | None
    """Per group, summed over all batches; None where the model was saved without."""
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Labels by id of every batch that was ever committed."""
    seen: int | None = None
    """Rows that were read for the batches that count, if all of them record it."""
    saved_at: ModelPlace | None = None
    """Path and identity of the store; None if only some of its batches were chosen."""
    answer: str = ""
    """Name of the answer from the batches that count; other batches give another name."""


def save_model(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
    answers: Mapping[str, Array],
    moments: Mapping[Any, Moments] | None,
    *,
    batches: Sequence[NewBatch] = (),
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """A Zarr v3 group at ``path`` that :func:`load_model` gives back bit for bit.

    The header holds plain JSON values with finite floats; arrays of float64, float32, int64 or
    uint64 have names such as ``map/frequencies``, answers (what was solved from the moments) such
    as ``coef``. Without moments only what prediction needs is kept, and batches cannot be added
    later. Moments in several ``batches`` are given in place of one. ``overwrite`` replaces a model
    on a local path at one instant; the old one is kept until then.

    Raises ModelError: the path is taken, cannot be written, or a value cannot be kept: it names
    which.
    """
    row, order = None, 2
    if moments is not None:
        batches = [NewBatch(FIT, moments, {})]
    if batches:
        row, order = _meaning(batches[0].groups)
        batches = [batch.checked(row, order) for batch in batches]
    pilot = tuple(batch.id for batch in batches)
    own = answers if len(batches) < 2 else {}  # the first commit is of the first batch alone
    root = Root(header, arrays, own, row, order, pilot)
    write_store(path, root, *batches, overwrite=overwrite, storage_options=storage_options)
    if answers and len(batches) > 1:
        store = MomentStore.open(path, storage_options=storage_options)
        place = ModelPlace.of(store.log, path, storage_options)
        save_answer(place, store.log, store.batches(), {"fitted": header["fitted"]}, answers)


def save_answer(
    saved_at: ModelPlace,
    log: Log,
    batches: Collection[Batch],
    header: Mapping[str, Any],
    answers: Mapping[str, Array],
) -> None:
    """Keep what was solved from exactly these batches of a model, with its own parameters.

    :func:`load_model` gives it back while they are the batches that count, with ``header`` in
    place of what the model's own says under the same keys.
    """
    log.refresh()  # refuses another model in its place
    if find_answer(log, batches, None) is not None:
        return
    inside = f"{ANSWERS}/{answer_name(log, batches)}"
    place = f"{saved_at.path.rstrip('/')}/{inside}"
    try:
        save_model(place, header, {}, answers, None, storage_options=saved_at.storage_options)
    except ModelError:  # another driver may have been faster
        if find_answer(log, batches, None) is None:
            raise
    try:
        log.refresh()
    except Replaced:  # in a model that took the place it would tell of commits that are lost
        log.files.remove(inside)
        raise


def keep_sums(saved_at: ModelPlace, store: MomentStore) -> None:
    """Keep the sums of blocks of batches that will hardly change, in place of former ones."""
    log, there = store.log, kept_sums(store.log)
    blocks = lasting_blocks(log, store.batches())
    if blocks and not there:
        log.files.create(f"{SUMS}/zarr.json", group_metadata({}, SUMS))  # another may be faster
    for name in blocks.keys() - there:
        ids = {batch.id for batch in blocks[name]}
        groups = sum_by_group(groups for _, groups in store.each(ids))
        place = f"{saved_at.path.rstrip('/')}/{SUMS}/{name}"
        try:
            save_model(place, {}, {}, {}, groups, storage_options=saved_at.storage_options)
        except ModelError:  # another driver may have been faster
            if name not in kept_sums(log):
                raise
    if blocks.keys() - there:
        for name in there - names_of_blocks(log, store.batches()).keys():
            log.files.remove(f"{SUMS}/{name}")


def load_model(
    path: str | os.PathLike[str],
    *,
    max_bytes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StoredModel:
    """The model at ``path``, every byte of it verified.

    One that declares more than ``max_bytes`` is refused before memory is taken; by default the
    memory of the machine or its container, and at most 64 GiB.

    Raises ModelError: there is no model, it is of a newer format, or a file is missing, extra, a
    link or changed: it names the file.
    """
    files = open_files(path, storage_options)
    log, stored = read_whole(files, lambda files: _load(files, max_bytes))
    return replace(stored, saved_at=ModelPlace.of(log, path, storage_options))


def _load(files: Files, max_bytes: int | None) -> tuple[Log, StoredModel]:
    log = Log.open(files)
    check_answered(log)
    root = read_root(log, max_bytes)
    live = log.state.live
    unchanged = {batch.data for batch in live.values()} == {log.first.data} - {None}
    moments = None
    if root.row is not None:
        moments = sum_of_batches(log, sorted_batches(log), root, max_bytes)
    header, answers = root.header, root.answers
    if not unchanged:
        found = find_answer(log, live.values(), max_bytes)
        answers = {} if found is None else found.answers
        header = header if found is None else {**header, **found.header}
    said = [batch.labels.get("seen") for batch in live.values()]
    seen = [n for n in said if type(n) is int]
    looked = sum(seen) if said and len(seen) == len(said) else None
    return log, StoredModel(
        header,
        root.arrays,
        answers,
        moments,
        ever(log.state),
        looked,
        answer=answer_name(log, live.values()),
    )


def _meaning(moments: Mapping[Any, Moments]) -> tuple[AugmentedRow, int]:
    """Row and order of the first of some groups."""
    for first in moments.values():
        return first.row, first.order
    raise ModelError("moments={} has no groups. Pass None to save a model without moments.")
