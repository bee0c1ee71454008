"""A cheap hash that changes when the data change: compared before and after a pass."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rff_stream._array import Array, digest
from rff_stream.errors import DataError
from rff_stream.sources.values import as_text, is_from, is_sparse
from rff_stream.sources.variable import Variable

SAMPLED = 4096
"""Values of an array in memory that enter the hash."""


def generation_of(variables: Sequence[Variable], graph: Mapping[Any, Any] | None) -> str:
    """One hash of all variables, and of the stored arrays that the graph reads."""
    named = [[variable.name, list(variable.dims), identity(variable)] for variable in variables]
    return digest([named, of_graph(graph)])


def content_of(variables: Sequence[Variable], graph: Mapping[Any, Any] | None) -> str:
    """As :func:`generation_of`, of every value in memory: what the name of a batch stands for."""
    named = [[variable.name, list(variable.dims), whole(variable)] for variable in variables]
    return digest([named, of_graph(graph)])


def whole(variable: Variable) -> Any:
    """As :func:`identity`, of every value in memory."""
    if variable.kind == "memory":
        return of_memory(variable.data, most=variable.data.size)
    return identity(variable)


def identity(variable: Variable) -> Any:
    """What tells one state of a variable from another."""
    if variable.kind == "graph":
        return str(variable.data.name)
    if variable.kind == "memory":
        return of_memory(variable.data)
    if is_from(variable.data, "rff_stream"):
        return variable.data.identity()
    return of_file(variable.file)


def of_memory(values: Array, most: int = SAMPLED) -> str:
    """Shape, dtype and a strided sample of about so many values."""
    if is_sparse(values):
        stored = values.data, values.indices  # type: ignore[attr-defined]
        return digest([list(values.shape), *(of_memory(np.asarray(each), most) for each in stored)])
    sample = np.asarray(values.flat[:: max(1, values.size // max(1, most))])
    kind = [values.dtype.str, list(values.shape)]
    if sample.dtype.kind in "biufc":
        return digest(kind, {"sample": sample})
    return digest([kind, as_text(sample).tolist()])


def of_graph(graph: Mapping[Any, Any] | None) -> list[Any]:
    """States of the stored arrays among the values of a graph."""
    values: Iterator[Any] = (getattr(task, "value", None) for task in (graph or {}).values())
    traced = (value for value in values if is_from(value, "rff_stream.sources.trace"))
    return [of_stored(value.array) for value in traced]


def of_stored(array: Any) -> list[str]:
    """Metadata of a Zarr array as they are now, and the stamps of its files."""
    import zarr

    store = array.store_path.store
    version = array.metadata.zarr_format
    try:
        now = zarr.open_array(store, path=array.path, mode="r", zarr_format=version)
    except (FileNotFoundError, ValueError) as cause:
        raise DataError(
            f"{store.name}: array {array.path!r} is no longer there, or cannot be opened: {cause}. "
            f"Data that exist when a run begins must exist until its end. Check what is mounted "
            f"there, and whether a process deletes files; then run again."
        ) from cause
    found = hashlib.sha256()
    for name, stamp in sorted(stamps_of(store._store, array.path).items()):
        found.update(f"{name} {stamp}\n".encode())
    return [store.name, array.path, str(now.metadata.to_dict()), found.hexdigest()]


def stamps_of(store: Any, path: str) -> dict[str, str]:
    """What tells one state of every file of an array from another, without reading it.

    Names are relative to the array. On a local disk size and time; on an object store what
    its listing says (etag, or size and time); elsewhere the size alone, or not even that.
    """
    from zarr.core.sync import sync
    from zarr.storage import FsspecStore

    from rff_stream.sources.zarr_chunks import local_root

    root = local_root(store)
    if root is not None:
        return dict(local_stamps(str(root / path), ""))
    if isinstance(store, FsspecStore):
        return sync(remote_stamps(store, path))
    return sync(sizes_of(store, path))


def names_of_chunks(store: Any, path: str) -> Iterable[str]:
    """Names of the files of an array, relative to it; no file is looked at."""
    from zarr.core.sync import sync

    from rff_stream.sources.zarr_chunks import METADATA, local_root

    root = local_root(store)
    if root is None:
        names: Iterable[str] = sync(names_in(store, path))
    else:
        names = (name for name, _ in local_entries(str(root / path), ""))
    return (name for name in names if name.rpartition("/")[2] not in METADATA)


async def names_in(store: Any, path: str) -> list[str]:
    """Names of all keys of an array, relative to it."""
    prefix = f"{path}/" if path else ""
    return [name.removeprefix(prefix) async for name in store.list_prefix(prefix)]


def local_entries(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every file in a folder with its name in it: "c/0/1"."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if is_folder(entry):
                yield from local_entries(entry.path, f"{name}/")
            else:
                yield name, entry


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether this is a folder, or a link to one; a link that leads nowhere is named."""
    try:
        entry.stat() if entry.is_symlink() else None
        return entry.is_dir()
    except OSError as cause:
        raise DataError(
            f"{entry.path} is a link that cannot be followed: {cause.strerror}. Every chunk must "
            f"be a file that is there. Write it again from its source."
        ) from cause


def local_stamps(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    """("c/0/1", "1024 1700000000000000000") of every file in a folder."""
    for name, entry in local_entries(folder, prefix):
        status = entry.stat()
        yield name, f"{status.st_size} {status.st_mtime_ns}"


async def remote_stamps(store: Any, path: str) -> dict[str, str]:
    """Etag, or size and time, of every object of an array."""
    folder = f"{store.path}/{path}".rstrip("/") + "/"
    found = await store.fs._find(folder, detail=True)
    return {
        name.removeprefix(folder.lstrip("/")).removeprefix(folder): str(
            info.get("ETag") or [info.get("size"), str(info.get("LastModified"))]
        )
        for name, info in found.items()
    }


async def sizes_of(store: Any, path: str) -> dict[str, str]:
    """Bytes of every value of an array; names alone where a store would read to tell."""
    from zarr.abc.store import Store

    prefix, cheap = f"{path}/" if path else "", type(store).getsize is not Store.getsize
    try:
        names = [name async for name in store.list_prefix(prefix)]
    except NotImplementedError as cause:  # a store of VirtualiZarr
        raise DataError(
            f"A {type(store).__name__} does not list its chunks, so a change of the data could not "
            f"be seen. Write its references to a file or to icechunk, and give that path."
        ) from cause
    return {
        name.removeprefix(prefix): str(await store.getsize(name)) if cheap else "" for name in names
    }


def of_file(path: str) -> list[Any]:
    """Path, size and time of a file; the path alone where it is none."""
    if not os.path.isfile(path):
        return [path]
    status = os.stat(path)
    return [path, status.st_size, status.st_mtime_ns]
