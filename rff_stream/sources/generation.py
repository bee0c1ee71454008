"""Has it changed? A hash of the data's identity, cheap enough to look at twice."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rff_stream._array import Array, digest
from rff_stream.sources.variable import Variable, is_from

__all__ = ["generation_of", "of_graph"]

SAMPLED = 4096
"""Values of an array in memory that enter the hash."""


def generation_of(variables: Sequence[Variable], graph: Mapping[Any, Any] | None) -> str:
    """One hash of all variables, and of the stored arrays that the graph reads."""
    named = [[variable.name, list(variable.dims), identity(variable)] for variable in variables]
    return digest([named, of_graph(graph)])


def identity(variable: Variable) -> Any:
    """What tells one state of a variable from another."""
    if variable.kind == "graph":
        return str(variable.data.name)
    if variable.kind == "memory":
        return of_memory(variable.data)
    if is_from(variable.data, "rff_stream"):
        return of_stored(variable.data.array)
    return of_file(variable.file)


def of_memory(values: Array) -> str:
    """Shape, dtype and a strided sample of the values."""
    sample = np.asarray(values.flat[:: max(1, values.size // SAMPLED)])
    kind = [values.dtype.str, list(values.shape)]
    if sample.dtype.kind in "biufc":
        return digest(kind, {"sample": sample})
    return digest([kind, sample.astype(str).tolist()])


def of_graph(graph: Mapping[Any, Any] | None) -> list[Any]:
    """States of the stored arrays among the values of a graph."""
    values: Iterator[Any] = (getattr(task, "value", None) for task in (graph or {}).values())
    traced = (value for value in values if is_from(value, "rff_stream.sources.chain"))
    return [of_stored(value.array) for value in traced]


def of_stored(array: Any) -> list[str]:
    """Metadata of a Zarr array as they are now; on a local disk also its files' stamps."""
    import zarr

    from rff_stream.sources.checked import local_root

    store = array.store_path.store
    version = array.metadata.zarr_format
    now = zarr.open_array(store, path=array.path, mode="r", zarr_format=version)
    root = local_root(store._store)
    files = "" if root is None else stamps(root / array.path)
    return [store.name, array.path, str(now.metadata.to_dict()), files]


def stamps(folder: Path) -> str:
    """sha256 of path, size and time of every file in a folder, in order."""
    found = hashlib.sha256()
    for line in sorted(stamp_lines(str(folder), "")):
        found.update(line.encode())
    return found.hexdigest()


def stamp_lines(folder: str, prefix: str) -> Iterator[str]:
    """One line a file: "c/0/1 1024 1700000000000000000"."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.is_dir():
                yield from stamp_lines(entry.path, f"{name}/")
            else:
                status = entry.stat()
                yield f"{name} {status.st_size} {status.st_mtime_ns}\n"


def of_file(path: str) -> list[Any]:
    """Path, size and time of a file; the path alone where it is none."""
    if not os.path.isfile(path):
        return [path]
    status = os.stat(path)
    return [path, status.st_size, status.st_mtime_ns]
