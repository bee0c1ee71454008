"""A new store: its root, its arrays and answers, a first batch, and the commit of all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.moments import AugmentedRow
from rff_stream.store.append import NewBatch, write_batch
from rff_stream.store.array_codec import check_dtype, encode, group_metadata
from rff_stream.store.atomic import Kind, exists, replacing
from rff_stream.store.canonical_json import MAX_JSON, canonical, check_plain, parse_loosely
from rff_stream.store.commit_log import Log
from rff_stream.store.files import Files
from rff_stream.store.local import LocalFiles
from rff_stream.store.location import open_files
from rff_stream.store.log_entries import FORMAT, LogState, is_root, sha256
from rff_stream.store.manifest import write_vouched
from rff_stream.store.moments_codec import row_arrays, row_plain

FIT = "fit"
"""Id of the batch that a fitted model begins with."""

RESERVED = ("answers", "data", "log", "row", "c")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:/[A-Za-z_][A-Za-z0-9_]{0,63}){0,3}")


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


def _fill(files: Files, new: NewStore) -> None:
    """Everything of a new store, then its commit."""
    fields: dict[str, Any] = {"files": {}}
    try:
        if new.batch is not None:
            fields = write_batch(files, new.batch)
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
