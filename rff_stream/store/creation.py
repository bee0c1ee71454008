"""A new store: its root, its arrays and answers, a first batch, and the commit of all of them."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.statistics.protocol import Packed
from rff_stream.store.array_codec import check_dtype, encode, group_metadata
from rff_stream.store.atomic import Kind, exists, replacing
from rff_stream.store.batch_ids import Outdated
from rff_stream.store.canonical_json import MAX_JSON, canonical, check_plain, parse_loosely
from rff_stream.store.commit_log import Log, Replaced
from rff_stream.store.files import Files
from rff_stream.store.local import LocalFiles
from rff_stream.store.location import open_files
from rff_stream.store.log_entries import FORMAT, Entry, LogState, Manifest, is_root, sha256
from rff_stream.store.manifest import write_vouched
from rff_stream.store.moments_codec import (
    check_moments,
    encode_moments,
    row_arrays,
    row_plain,
    sorted_groups,
)
from rff_stream.store.packed_codec import encode_packed

Fields = dict[str, Any]
"""Fields of an entry of the log."""

FIT = "fit"
"""Id of the batch that a fitted model begins with."""

RESERVED = ("answers", "data", "log", "row", "c")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:/[A-Za-z_][A-Za-z0-9_]{0,63}){0,3}")


@dataclass(frozen=True, slots=True)
class NewBatch:
    """Moments that are to be committed under an id.

    Parameters
    ----------
    id : str
    groups : mapping of label to Moments
        Empty for a packed value.
    labels : mapping of plain values
    packed : Packed, optional
        A value of any statistic, in place of moments: for checkpoints.
    seen : int
        Rows that were looked at for a packed value.
    """

    id: str
    groups: Mapping[Any, Moments]
    labels: Mapping[str, Any] = field(default_factory=dict)
    packed: Packed | None = None
    seen: int = 0

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


@dataclass(frozen=True, slots=True)
class NewStore:
    """What a new store begins with."""

    header: Mapping[str, Any]
    arrays: Mapping[str, Array]
    answers: Mapping[str, Array] = field(default_factory=dict)
    row: AugmentedRow | None = None
    order: int = 2
    batch: NewBatch | None = None
    pilot: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse by name, before anything is written, what could not be read again."""
        check_plain(dict(self.header), "header")
        _check_names("arrays", self.arrays)
        _check_names("answers", self.answers)
        for name in [*self.answers, *self.arrays]:
            if name.split("/")[0] in RESERVED or (name in self.answers and "/" in name):
                raise ModelError(f"The array name {name!r} is kept for the store. Rename it.")

    def root(self) -> bytes:
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

    def contents(self, answers: str) -> Iterator[tuple[str, bytes]]:
        """Every file but the batch's, one at a time; ``answers`` is the name of their folder."""
        yield "zarr.json", self.root()
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
    new: NewStore,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """A store with one commit; all of it is there, or nothing.

    Raises
    ------
    ModelError
        Where the path is taken, cannot be written, or a value cannot be kept.
    """
    new.check()
    files = open_files(path, storage_options)
    if isinstance(files, LocalFiles):
        with replacing(files.root, overwrite, MODEL) as path:
            beside = LocalFiles(path)
            beside.place = files.place
            _fill(beside, new)
    else:
        _check_free(files, overwrite)
        _fill(files, new)


def commit_batch(
    log: Log, batch: NewBatch, build: Callable[[LogState, Fields], Fields | None]
) -> Entry | None:
    """Write the moments of a checked batch and commit them.

    Parameters
    ----------
    build : callable
        ``build(state, fields)`` gives the fields of the entry, from what is to be said of the
        batch; None where there is nothing to do: then the moments are removed again.
    """
    fields = _write_batch(log.files, batch)
    try:
        entry = log.commit(lambda state: build(state, fields))
    except (Outdated, Replaced):
        log.files.remove(f"data/{fields['data']}")
        raise
    if entry is None:
        log.files.remove(f"data/{fields['data']}")
    return entry


def _write_batch(files: Files, batch: NewBatch) -> Fields:
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


def _batch_contents(folder: str, batch: NewBatch) -> Iterator[tuple[str, bytes]]:
    if batch.packed is not None:
        yield from encode_packed(folder, batch.packed)
        return
    yield f"{folder}/zarr.json", group_metadata({"groups": list(batch.groups)}, "groups")
    yield from encode_moments(folder, list(batch.groups.values()))


def _fill(files: Files, new: NewStore) -> None:
    """Everything of a new store, then its commit."""
    fields: dict[str, Any] = {"files": {}}
    try:
        if new.batch is not None:
            fields = _write_batch(files, new.batch)
        inputs = {"header": dict(new.header), "content": fields.get("content")}
        answers = sha256(canonical(inputs, "header"))
        manifest = write_vouched(files, new.contents(answers))
    except BaseException:
        if "data" in fields:
            files.remove(f"data/{fields['data']}")
        raise
    fields["files"] = {**manifest, **fields["files"]}
    log = Log(files, new.root())

    def first(state: LogState) -> dict[str, Any]:
        if log.last >= 0:
            raise exists(files.place)
        return {**fields, "op": "create", "answers": answers if new.answers else None}

    log.commit(first)


def _is_model(path: str) -> bool:
    """Whether the root says that this is a model, whole or damaged, of any format."""
    try:
        data = LocalFiles(path).find("zarr.json", MAX_JSON)
        return data is not None and is_root(parse_loosely(data, path))
    except ModelError:
        return False


MODEL = Kind("not a model of rff_stream", _is_model)
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
