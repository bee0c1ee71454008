"""A new store, or a new batch in one: its files, and the commit that makes them count."""

from __future__ import annotations

import os
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rff_stream._array import Array
from rff_stream.arguments import shown
from rff_stream.contracts import Packed
from rff_stream.errors import ModelError
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.store.atomic import OutputKind, exists, replacing
from rff_stream.store.commit_log import (
    FORMAT,
    Batch,
    Entry,
    Log,
    LogState,
    RemovedBatch,
    Replaced,
    is_root,
)
from rff_stream.store.files import Contents, Files, Manifest, sha256, write_vouched
from rff_stream.store.local import LocalFiles, open_files
from rff_stream.store.moments_codec import (
    check_moments,
    encode_moments,
    encode_packed,
    row_arrays,
    row_plain,
    sorted_groups,
)
from rff_stream.store.zarr_files import (
    MAX_JSON,
    canonical,
    check_dtype,
    check_plain,
    encode,
    group_metadata,
    parse_loosely,
)

Fields = dict[str, Any]
"""Fields of an entry of the log."""

COMPACTED = "compacted:"
"""How the ids of sums begin."""

LONGEST_ID = 512  # bytes


@dataclass(frozen=True, slots=True)
class NewBatch:
    """Moments that are to be committed under an id."""

    id: str
    groups: Mapping[Any, Moments]  # label -> Moments: empty for a packed value
    labels: Mapping[str, Any] = field(default_factory=dict)
    packed: Packed | None = None  # a value of any statistic, in place of moments: for checkpoints
    seen: int = 0  # rows that were looked at for a packed value

    def checked(self, row: AugmentedRow, order: int) -> NewBatch:
        """The same with groups in the order they are stored; refuses what cannot be."""
        if self.packed is not None:
            check_plain(self.packed.plain, "a packed value")
            return self
        if not self.groups:
            raise ModelError(f"{self.id!r} has no moments. Give one Moments, or one a group.")
        groups = dict(sorted_groups(self.groups))
        for label, moments in groups.items():
            name = f"The batch {self.id!r}" + (f", group {label!r}," if len(groups) > 1 else "")
            check_moments(moments, row, order, name)
        check_plain(dict(self.labels), "labels")
        return NewBatch(self.id, groups, dict(self.labels))


class Outdated(ModelError):
    """What an append was computed for is no longer so: look again, and compute what is left."""


def checked_id(id: Any, name: str = "id") -> str:
    """An id in its one Unicode form (NFC); refuses what cannot be one, by the argument's name."""
    try:
        found = unicodedata.normalize("NFC", id)
        size = len(found.encode("utf-8"))
    except (TypeError, UnicodeEncodeError) as error:
        raise ModelError(
            f"{name}={shown(id)} is not text. Name a batch such as '2024-01-31'."
        ) from error
    if not 1 <= size <= LONGEST_ID:
        raise ModelError(
            f"{name}={shown(id)} has {size:,} bytes; an id has 1 to {LONGEST_ID}. Give such a name."
        )
    return found


def is_there(state: LogState, key: str, content: str) -> bool:
    """Whether this very content was committed under this id; refuses what it must not become."""
    found: Batch | RemovedBatch | None = state.live.get(key) or state.gone.get(key)
    if found is None:
        if key.startswith(COMPACTED):
            raise ModelError(f"The id {key!r} begins as those that compact gives. Choose another.")
        return False
    if isinstance(found, RemovedBatch) and found.op == "forget":
        raise ModelError(
            f"The batch {key!r} was forgotten on {found.time} (entry {found.number}), and an id "
            "is not used twice. To count the batch again, append it under a new id."
        )
    if found.content != content:
        raise ModelError(
            f"The batch {key!r} was committed with other content on {found.time} (entry "
            f"{found.number}). An id stands for one content: append under a new id, and forget "
            "this one if it was wrong."
        )
    return True


def not_there(state: LogState, key: str) -> ModelError:
    """The error for a batch that is not there to be summed or forgotten."""
    gone = state.gone.get(key)
    if gone is None:
        known = [repr(name) for name in sorted(state.live)]
        shown = ", ".join([*known[:5], "…"] if len(known) > 5 else known)
        return ModelError(
            f"There is no batch {key!r}. The store has {len(known):,} "
            f"batches{': ' * bool(known)}{shown}. Look at ids()."
        )
    what = "forgotten" if gone.op == "forget" else "compacted into a sum"
    rest = "" if gone.op == "forget" else ", which cannot be taken apart; sum the others anew"
    return ModelError(
        f"The batch {key!r} was {what} on {gone.time} (entry {gone.number}){rest}. "
        "It counts no more, and is forgotten at most once, before it is compacted. Look at ids()."
    )


def shared_labels(batches: Sequence[Batch]) -> dict[str, Any]:
    """Labels that all of these batches have, with one value."""
    first, *others = (batch.labels for batch in batches)
    return {
        key: value
        for key, value in first.items()
        if all(key in labels and labels[key] == value for labels in others)
    }


def commit_batch(
    log: Log, batch: NewBatch, build: Callable[[LogState, Fields], Fields | None]
) -> Entry | None:
    """Write the moments of a checked batch and commit them.

    ``build(state, fields)`` gives the fields of the entry, from what is to be said of the batch;
    None where there is nothing to do: then the moments are removed again.
    """
    with log.watched():
        fields = write_batch(log.files, batch)
    try:
        entry = log.commit(lambda state: build(state, fields))
    except (Outdated, Replaced):
        log.files.remove(f"data/{fields['data']}")
        raise
    if entry is None:
        log.files.remove(f"data/{fields['data']}")
    return entry


def write_batch(files: Files, batch: NewBatch) -> Fields:
    """Write the moments of a checked batch; returns what their commit says of them."""
    data = uuid.uuid4().hex
    folder, labels = f"data/{data}", list(batch.groups)
    manifest = write_vouched(files, _batch_contents(folder, batch))
    inside = {name.removeprefix(folder): said for name, said in manifest.items()}
    return {
        "id": batch.id,
        "groups": labels,
        "labels": dict(batch.labels),
        "rows": batch.seen + sum(int(moments.n) for moments in batch.groups.values()),
        "data": data,
        "content": _content(batch, inside),
        "files": manifest,
    }


def content_of(batch: NewBatch) -> str:
    """What the commit of a checked batch would give as its content; writes nothing."""
    files = {name: [len(data), sha256(data)] for name, data in _batch_contents("", batch)}
    return _content(batch, files)


def _content(batch: NewBatch, files: Manifest) -> str:
    """sha256 of groups, labels and files: equal for equal batches, whoever writes them."""
    plain = {"groups": list(batch.groups), "labels": dict(batch.labels), "files": files}
    return sha256(canonical(plain, "labels"))


def _batch_contents(folder: str, batch: NewBatch) -> Iterator[tuple[str, Contents]]:
    if batch.packed is not None:
        yield from encode_packed(folder, batch.packed)
        return
    yield f"{folder}/zarr.json", group_metadata({"groups": list(batch.groups)}, "groups")
    yield from encode_moments(folder, list(batch.groups.values()))


FIT = "fit"
"""Id of the batch that a fitted model begins with."""

RESERVED = ("answers", "data", "log", "row", "sums", "c")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:/[A-Za-z_][A-Za-z0-9_]{0,63}){0,3}")


@dataclass(frozen=True, slots=True)
class Root:
    """What a store begins with."""

    header: Mapping[str, Any]
    arrays: Mapping[str, Array]
    answers: Mapping[str, Array] = field(default_factory=dict)
    row: AugmentedRow | None = None
    order: int = 2
    pilot: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse by name, before anything is written, what could not be read again."""
        check_plain(dict(self.header), "header")
        _check_names("arrays", self.arrays)
        _check_names("answers", self.answers)
        for name in [*self.answers, *self.arrays]:
            if name.split("/")[0] in RESERVED or (name in self.answers and "/" in name):
                raise ModelError(f"The array name {name!r} is kept for the store. Rename it.")

    def metadata(self) -> bytes:
        """``zarr.json`` of the store."""
        row = None if self.row is None else row_plain(self.row)
        return group_metadata(
            {
                "software": "rff_stream",
                "format": FORMAT,
                "header": dict(self.header),
                "row": row,
                "order": self.order,
                "pilot": list(self.pilot),
            },
            "header",
        )

    def contents(self, answers: str) -> Iterator[tuple[str, Contents]]:
        """Every file but the batch's, one at a time; ``answers`` is the name of their folder."""
        yield "zarr.json", self.metadata()
        row = {} if self.row is None else row_arrays(self.row)
        arrays = {**self.arrays, **{f"row/{name}": values for name, values in row.items()}}
        arrays |= {f"answers/{answers}/{name}": values for name, values in self.answers.items()}
        above = {name[:i] for name in arrays for i, c in enumerate(name) if c == "/"}
        for folder in sorted({"answers", "data", "log"} | above):
            yield f"{folder}/zarr.json", group_metadata({}, folder)
        for name, values in arrays.items():
            yield from encode(name, values)


def write_store(
    path: str | os.PathLike[str],
    root: Root,
    *batches: NewBatch,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """A store with a commit for each batch, or one without any; all of it is there, or nothing.

    At a URL each commit counts when it is made, so that a first part may be there.

    Raises ModelError: where the path is taken, cannot be written, or a value cannot be kept.
    """
    root.check()
    files = open_files(path, storage_options)
    if isinstance(files, LocalFiles):
        with replacing(files.root, overwrite, MODEL) as path:
            beside = LocalFiles(path)
            beside.place = files.place
            _fill(beside, root, batches)
    else:
        _check_free(files, overwrite)
        _fill(files, root, batches)


def _fill(files: Files, root: Root, batches: Sequence[NewBatch]) -> None:
    """Everything of a new store, then its commit, then those of further batches."""
    fields: dict[str, Any] = {"files": {}}
    batch = batches[0] if batches else None
    try:
        if batch is not None:
            fields = write_batch(files, batch)
        inputs = {"header": dict(root.header), "content": fields.get("content")}
        answers = sha256(canonical(inputs, "header"))
        manifest = write_vouched(files, root.contents(answers))
    except BaseException:
        if "data" in fields:
            files.remove(f"data/{fields['data']}")
        raise
    fields["files"] = {**manifest, **fields["files"]}
    log = Log(files, root.metadata())

    def first(state: LogState) -> dict[str, Any]:
        if log.last >= 0:
            raise exists(files.place)
        return {**fields, "op": "create", "answers": answers if root.answers else None}

    log.commit(first)
    for more in batches[1:]:
        commit_batch(log, more, lambda state, fields: {"op": "add", **fields})


def is_model_at(path: str) -> bool:
    """Whether the root says that this is a model, whole or damaged, of any format."""
    try:
        data = open_files(path).find("zarr.json", MAX_JSON)
        return data is not None and is_root(parse_loosely(data, path))
    except (ModelError, OSError):
        return False


MODEL = OutputKind("not a model of rff_stream", is_model_at)
"""What a store replaces, where it is told to."""


def _check_free(files: Files, overwrite: bool) -> None:
    """Refuse a URL where something is: nothing in an object store can be exchanged whole."""
    if files.find("zarr.json", MAX_JSON) is None:
        files.require_exclusive_puts()
        return
    if overwrite:
        raise ModelError(
            f"{files.place} exists. An object store cannot exchange a model at one instant, so "
            "overwrite=True is for local paths. Save under a new name, then remove the old one."
        )
    raise exists(files.place)


def _check_names(what: str, arrays: Mapping[str, Array]) -> None:
    """Refuse names that are no plain path, or that differ on some file systems only."""
    seen: dict[str, str] = {}
    for name, values in arrays.items():
        if NAME.fullmatch(name) is None:
            raise ModelError(
                f"The name {name!r} in {what} is not a path of at most 4 words of letters, digits "
                "and _, such as 'map/frequencies'. Rename it."
            )
        check_dtype(f"{what}[{name!r}]", values)
        other = seen.setdefault(name.lower(), name)
        if other != name or any(inner.startswith(f"{name}/") for inner in arrays):
            raise ModelError(f"The name {name!r} in {what} collides with another. Rename it.")
