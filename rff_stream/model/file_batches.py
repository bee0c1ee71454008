"""Files as batches: which of them are new, and the sums of each."""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """A file whose content is not counted under its name."""

    file: DataFile
    digest: str
    id: str
    """Of its batch: name and content, so that a name may come again with other content."""
    counted: tuple[str, ...] = ()
    """Ids of the files of this name that count."""
    replaces: tuple[str, ...] = ()
    """Ids of files that count one of their contents, which no file has any more."""
    is_copy: bool = False
    """Whether its rows count under another name, so that they are not counted again."""

    @property
    def ledger(self) -> Ledger:
        """What is known of it when it was counted."""
        said = {"name": self.file.name, "digest": self.digest, "stamp": self.file.stamp}
        before = {"replaces": list(self.replaces)} if self.replaces else {}
        return Ledger(files={self.id: said | before})


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What a look at some files found."""

    new: tuple[NewFile, ...] = ()
    known: tuple[str, ...] = ()  # names of files that need not be read
    waiting: tuple[str, ...] = ()  # names of files that are not complete


@dataclass(frozen=True, slots=True)
class CountedFiles:
    """Files that a model knows; by id, as in :attr:`Ledger.files`.

    A content counts once, under whatever names files have it. A file counts no more when other
    content stands under its name and no file has the old one.
    """

    files: Mapping[str, Mapping[str, Any]]
    forgotten: Collection[str] = ()
    """Ids of those that count no more. One that was forgotten by name is not counted again while
    its content is the same, and one that was replaced is when its content comes back."""
    together: Collection[str] = ()
    """Ids of those whose rows are in one sum with others, which cannot be taken apart."""

    def new_among(
        self, files: Sequence[DataFile], options: Mapping[str, Any] | None, *, replaces: bool
    ) -> FoundFiles:
        """Files with a new content; a listing decides, and digests where it does not.

        A file that had no rows is replaced without being asked for.

        Raises DataError: a file that counts has changed, and it is not to be replaced, or its rows
        cannot be taken out.
        """
        found, waiting = self._contents(files, options)
        here = {digest for _, digest in found}
        by_name: dict[str, dict[str, str]] = {}  # digests by id
        counted: dict[str, list[str]] = {}  # ids by digest
        for id, each in self.files.items():
            if id not in self.forgotten:
                by_name.setdefault(each["name"], {})[id] = each["digest"]
                counted.setdefault(each["digest"], []).append(id)
        new: list[NewFile] = []
        known: list[str] = []
        changed: dict[str, bool] = {}  # whether its rows can be taken out
        for file, digest in found:
            own = by_name.get(file.name, {})
            gone = [id for each in {*own.values()} - here for id in counted[each]]
            same = digest in own.values()
            if same or (not gone and (digest in counted or self._stays_out(digest))):
                known.append(file.name)
                continue
            with_rows = [id for id in gone if "empty" not in self.files[id]]
            apart = tuple(id for id in gone if id not in self.together)
            id, is_copy = self._id_of(file, digest), digest in counted
            new.append(NewFile(file, digest, id, tuple(own), apart, is_copy))
            counted.setdefault(digest, [])
            if with_rows:
                changed[file.name] = not any(id in self.together for id in with_rows)
        if changed and not replaces:
            raise DataError(
                f"{list_names(list(changed))} changed after it was counted. The model still counts "
                "the old content, and nothing new was counted. Count the new content in its place "
                "with replace=True, or put the old file back."
            )
        fixed = [name for name, can_go in changed.items() if not can_go]
        if fixed:
            raise DataError(
                f"{list_names(fixed)} changed after it was counted, and its rows are in one sum "
                "with those of other files (of a fit, of a model that is not saved, or compacted), "
                "which cannot be taken apart. Nothing new was counted. Put the old file back, or "
                "fit all files again."
            )
        return FoundFiles(tuple(new), tuple(known), tuple(waiting))

    def id_of(self, file: DataFile, options: Mapping[str, Any] | None) -> str | None:
        """The id under which the content of a file counts; None where it does not."""
        contents, _ = self._contents([file], options)
        same = [
            ("empty" in each, each["name"] != file.name, id)
            for _, digest in contents
            for id, each in self.files.items()
            if each["digest"] == digest and id not in self.forgotten
        ]
        return min(same)[-1] if same else None

    def _contents(
        self, files: Sequence[DataFile], options: Mapping[str, Any] | None
    ) -> tuple[list[tuple[DataFile, str]], list[str]]:
        """Complete files with their digests, as their stamps or bytes tell them; and the others."""
        stamped = {(each["name"], each["stamp"]): each["digest"] for each in self.files.values()}
        found, waiting = [], []
        for file in files:
            digest = stamped.get((file.name, file.stamp))
            if digest is None and not is_complete(file, options):
                waiting.append(file.name)
            else:
                found.append((file, digest or content_of_file(file, options)))
        return found, waiting

    def _stays_out(self, digest: str) -> bool:
        """Whether a content that does not count was ever forgotten by name, not replaced."""
        out = {id for id in self.forgotten if self.files[id]["digest"] == digest}
        replaced = (each.get("replaces", ()) for each in self.files.values())
        return bool(out.difference(*replaced))

    def _id_of(self, file: DataFile, digest: str) -> str:
        """An id that no batch has had: of a content that comes again, with a number."""
        id = f"{file.name}@{digest[:12]}"
        numbered = (f"{id}+{k}" for k in itertools.count(1))
        return next(each for each in itertools.chain([id], numbered) if each not in self.files)


def read_file(
    recipe: Recipe, fitted: Fitted, row: AugmentedRow, data: Selection, new: NewFile
) -> CountedBatch:
    """The sums of one file, with the columns and conditions of the fit."""
    by = fitted.labels_by
    with naming(new.file):
        opened = recipe.open_more(fitted, replace(data, X=new.file.path, by=by))
        if new.is_copy or opened.source.n_rows == 0:
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
            f"{list_names(found.waiting)} is not complete: it is empty, or its end is missing. A "
            "fit reads whole files. Wait until it is written, or take it away."
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
        together = _counted_in(live[id])
        if name != id and together > 1:
            raise ModelError(
                f"{name!r} was counted together with {together - 1:,} others in the batch {id!r}, "
                "and a sum cannot be taken apart. Forget the whole batch, or fit again."
            )
        found += [id] if id not in found else []
    return found


def _counted_in(labels: Mapping[str, Any]) -> int:
    """How many named batches, files and other rows are in one batch, as far as its labels tell.

    Rows that were counted without a name are under their content, which may be that of a file.
    """
    batches: dict[str, str] = labels.get("batches", {})
    named = sum(name != content for name, content in batches.items())
    places = len(labels.get("files", {})) + len(labels.get("records", ()))
    return named + max(places, len(batches) - named)
