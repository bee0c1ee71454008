"""Files as batches: which of them are new, and the sums of each."""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rff_stream.arguments import Rule, is_string
from rff_stream.errors import DataError, ModelError
from rff_stream.model.fitted import CountedBatch, Fitted, Ledger
from rff_stream.model.recipe import PassRequest, PassResult, Recipe, unread
from rff_stream.moments import AugmentedRow
from rff_stream.process_memory import available_memory
from rff_stream.sources import HoldOut, Selection
from rff_stream.sources.container_types import is_names
from rff_stream.sources.data_files import (
    DataFile,
    content_of_file,
    files_at,
    is_complete,
    naming,
    stamp_of,
)
from rff_stream.store import Checkpoint
from rff_stream.text_formatting import format_bytes, list_names

logger = logging.getLogger("rff_stream")

APART = 0.25
"""Share of the memory that the sums of the files of a fit may take, each kept apart until the model
is saved; with more files they are one batch."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file whose content was not counted."""

    file: DataFile
    digest: str
    replaces: tuple[str, ...] = ()
    """Ids of the batches that count an earlier content of it."""

    @property
    def id(self) -> str:
        """Of its batch: name and content, so that a name may come again with other content."""
        return f"{self.file.name}@{self.digest[:12]}"

    @property
    def ledger(self) -> Ledger:
        """What is known of it when it was counted."""
        said = {"name": self.file.name, "digest": self.digest, "stamp": self.file.stamp}
        return Ledger(files={self.id: said})


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What a look at some files found."""

    new: tuple[NewFile, ...] = ()
    known: tuple[str, ...] = ()  # names of files that need not be read
    waiting: tuple[str, ...] = ()  # names of files that are not complete


@dataclass(frozen=True, slots=True)
class CountedFiles:
    """Files that a model knows; by id, as in :attr:`Ledger.files`."""

    files: Mapping[str, Mapping[str, str]]
    forgotten: Collection[str] = ()
    """Ids of those that count no more: they are not counted again while their content is the
    same."""
    holders: Mapping[str, str] = field(default_factory=dict)
    """By id, the batch of the store that counts it."""

    def new_among(
        self, files: Sequence[DataFile], options: Mapping[str, Any] | None, *, replaces: bool
    ) -> FoundFiles:
        """Files with a new content; a listing decides, and digests where it does not.

        A file that had no rows is replaced without being asked for.

        Raises DataError: a file that counts has changed, and it is not to be replaced.
        """
        stamps = {(each["name"], each["stamp"]) for each in self.files.values()}
        contents = {each["digest"] for each in self.files.values()}
        counted: dict[str, list[str]] = {}
        with_rows: set[str] = set()
        for id, each in self.files.items():
            if id not in self.forgotten:
                with_rows.update(() if "empty" in each else (each["name"],))
                counted.setdefault(each["name"], []).append(self.holders.get(id, id))
        new, known, waiting, changed = [], [], [], []
        for file in files:
            if (file.name, file.stamp) in stamps:
                known.append(file.name)
            elif not is_complete(file, options):
                waiting.append(file.name)
            elif (content := content_of_file(file, options)) in contents:
                known.append(file.name)
            else:
                contents.add(content)
                before = tuple(counted.get(file.name, ()))
                new.append(NewFile(file, content, before))
                changed += [file.name] if file.name in with_rows else []
        if changed and not replaces:
            raise DataError(
                f"{list_names(changed)} changed after it was counted. The model still counts the "
                "old content, and nothing new was counted. Count the new content in its place "
                "with replace=True, or put the old file back."
            )
        return FoundFiles(tuple(new), tuple(known), tuple(waiting))


def read_file(
    recipe: Recipe, fitted: Fitted, row: AugmentedRow, data: Selection, new: NewFile
) -> CountedBatch:
    """The sums of one file, with the columns and conditions of the fit."""
    by = fitted.labels_by
    with naming(new.file):
        opened = recipe.open_more(fitted, replace(data, X=new.file.path, by=by))
        if opened.source.n_rows == 0:
            groups: dict[Any, Any] = {None: fitted.family.zero(fitted.features, row, recipe.order)}
            said = {**new.ledger.files[new.id], "empty": "yes"}
            return CountedBatch(new.id, groups, 0, Ledger(files={new.id: said}))
        groups, seen = recipe.read_more(fitted, opened, row, grouped=by is not None)
        if stamp_of(new.file, data.storage_options) != new.file.stamp:
            raise DataError(
                "the file changed while it was read, so its sums are dropped. A file that is being "
                "written has another name until it is complete; run again when it is."
            )
    return CountedBatch(new.id, groups, seen, new.ledger)


def files_of(data: Selection) -> list[DataFile] | None:
    """The files that rows are given as; None where they are not, or values stand beside them."""
    beside = (data.y, data.sample_weight, data.by)
    if not all(each is None or isinstance(each, str) or is_names(each) for each in beside):
        return None
    return files_at(data.X, data.storage_options)


def first_files(
    files: Sequence[DataFile] | None, options: Mapping[str, Any] | None
) -> list[NewFile]:
    """The files of a fit, those of the same content once; none where rows are no files.

    Raises DataError: one is not complete.
    """
    if files is None:
        return []
    found = CountedFiles({}).new_among(files, options, replaces=False)
    if found.waiting:
        raise DataError(
            f"{list_names(found.waiting)} is not complete: its end is missing. A fit reads whole "
            "files. Wait until it is written, or take it away."
        )
    return list(found.new)


def are_apart(request: PassRequest, data: Selection, count: int, memory: int | None) -> bool:
    """Whether the sums of so many files are kept each for itself.

    They fit in memory, and no rows are held out by their place, which counts through all files.
    """
    if any(isinstance(each, HoldOut) and each.by is None for each in data.where):
        return False
    need = count * request.plan.state_bytes
    allowed = APART * (available_memory() if memory is None else memory)
    if need > allowed:
        logger.warning(
            "the sums of %s files need %s, more than %s: they are one batch, and none of them can "
            "be forgotten. Fit some of the files, and update with the others.",
            f"{count:,}", format_bytes(need), format_bytes(int(allowed)),
        )  # fmt: skip
    return need <= allowed


def read_files(
    recipe: Recipe, request: PassRequest, data: Selection, files: Sequence[NewFile]
) -> tuple[PassResult, tuple[CountedBatch, ...]]:
    """A map for all files, and the sums of each, which a checkpoint keeps when they are done."""
    kept = request.checkpoint
    drawn, request = recipe.begin(request)
    empty = unread(request.opened, drawn, data)
    later = replace(data, where=(), inputs=None, y=None, sample_weight=None)
    done = {} if kept is None else restored(recipe, kept)
    batches: list[CountedBatch] = []
    for i, new in enumerate(files):
        if i in done:
            added = CountedBatch(new.id, *done[i], new.ledger)
        else:
            added = read_file(recipe, empty, drawn.row, later, new)
            if kept is not None:
                kept.save((0, i), recipe.packed(added.groups), added.seen)
        batches.append(added)
    seen = sum(each.seen for each in batches)
    return PassResult(request, drawn, total_of(recipe, batches), seen), tuple(batches)


def restored(recipe: Recipe, kept: Checkpoint) -> dict[int, tuple[dict[Any, Any], int]]:
    """Sums of files, and the rows looked at for them, that an earlier run finished; by place."""
    return {
        i: (recipe.unpacked(groups, {}), seen) for (_, i), (groups, seen) in kept.nodes().items()
    }


def total_of(recipe: Recipe, batches: Iterable[CountedBatch]) -> dict[Any, Any]:
    """Sums by label of batches, each of which stays as it is."""
    groups: dict[Any, Any] = {}
    for each in batches:
        groups = recipe.merge(groups, copy.deepcopy(each.groups))
    return groups


def forget_here(recipe: Recipe, fitted: Fitted, names: Sequence[str]) -> Fitted:
    """A model in memory without some of its batches, not solved yet."""
    if not fitted.batches:
        raise ModelError(
            "The sums of this model are kept together, so no batch can be taken out. Save it with "
            "moments=True and load it: what update adds then is kept apart."
        )
    known = {each.id: each for each in fitted.batches}
    gone = set(chosen_ids(names, {id: each.ledger.labels() for id, each in known.items()}))
    left = tuple(each for each in fitted.batches if each.id not in gone)
    missing = sum(each.seen - each.rows for each in left)
    found = fitted.with_groups(total_of(recipe, left))
    return replace(found, batches=left, n_missing=missing, forgotten=fitted.forgotten | gone)


NAME = Rule("text", is_string, remedy="Give the name of a batch or of a file.")


def chosen_ids(names: Sequence[str], live: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Ids of batches that are meant by an id, by the name of a file, or by a name they were given.

    Raises ModelError: none is, or the name is of rows that were counted together with others.
    """
    meant: dict[str, list[str]] = {}
    for id, labels in live.items():
        files = [each["name"] for each in labels.get("files", {}).values()]
        for name in (id, *files, *labels.get("batches", ())):
            meant.setdefault(name, []).append(id)
    found = []
    for name in names:
        NAME.check("batch", name)
        if name not in meant:
            shown = list_names(sorted(live)) if len(live) < 6 else f"{len(live):,} batches"
            raise ModelError(
                f"There is no batch {name!r}, so it cannot be forgotten. The model counts {shown}. "
                "Look at them with rff-stream batches MODEL."
            )
        id = meant[name][0]
        named = [key for key, content in live[id].get("batches", {}).items() if key != content]
        own = (*live[id].get("files", {}), *named)
        if name != id and len(own) > 1:
            raise ModelError(
                f"{name!r} was counted together with {len(own) - 1:,} others in the batch {id!r}, "
                "and a sum cannot be taken apart. Forget the whole batch, or fit again."
            )
        found += [id] if id not in found else []
    return found
