"""The Zarr arrays inside xarray's lazy arrays and inside dask graphs.

xarray wraps an array on disk in layers (indexing, decoding, caching), each holding the
next as ``.array``. The innermost is replaced by the same array on the checked store; a
read that fails is traced to the chunk that cannot be decoded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.values import is_from, regular_edges
from rff_stream.words import list_names


def layers(data: Any) -> Iterator[Any]:
    """xarray's layers from the outside in; last, what is in the innermost."""
    while data is not None:
        yield data
        data = next_layer(data)


HELD = ("_data", "_array", "array")
"""Private names under which xarray's layers hold the next one; the last two also for Zarr."""


def next_layer(data: Any) -> Any:
    """What a layer of xarray holds; None at the end."""
    name = held_name(data)
    return None if name is None else getattr(data, name)


def held_name(layer: Any) -> str | None:
    """The attribute in which a layer of xarray holds the next; None for what holds none.

    Raises
    ------
    DataError
        xarray keeps its arrays under other names than those known here: a chunk that is absent
        would be read as zeros, silently.
    """
    if not is_from(layer, "xarray"):
        return None
    name = next((each for each in names_of(layer) if hasattr(layer, each)), None)
    if name is None and (is_layer(layer) or holds_zarr(layer)):
        import xarray

        kind = type(layer)
        raise DataError(
            f"xarray {xarray.__version__} holds an array in a {kind.__module__}.{kind.__name__} "
            f"that has none of the attributes {list_names(HELD)}. They lead to the Zarr array, "
            f"whose chunks are checked as they are read. Use an older xarray or a newer rff_stream."
        )
    return name


def names_of(layer: Any) -> tuple[str, ...]:
    """Names to look for in a layer: xarray's holder of a zarr.Array has one of its own."""
    return ("_array",) if type(layer).__name__ == "ZarrArrayWrapper" else ("_data", "array")


def is_layer(layer: Any) -> bool:
    """Whether xarray decodes or slices another array in it; ends are files and memory."""
    if is_from(layer, "xarray.core.indexing.IndexingAdapter"):
        return False
    wraps = ("xarray.core.indexing.ExplicitlyIndexed", "xarray.core.variable.Variable")
    is_end = is_from(layer, "xarray.backends")
    return type(layer).__name__ == "ZarrArrayWrapper" or (
        not is_end and any(is_from(layer, each) for each in wraps)
    )


def holds_zarr(layer: Any) -> bool:
    """Whether any attribute is a zarr.Array."""
    slots = (name for base in type(layer).__mro__ for name in getattr(base, "__slots__", ()))
    values = (getattr(layer, name, None) for name in (*slots, *getattr(layer, "__dict__", ())))
    return any(is_from(value, "zarr.core.array") for value in values)


def stored_array(data: Any) -> Any:
    """The zarr.Array that holds the values; None where there is none."""
    return next((layer for layer in layers(data) if is_from(layer, "zarr.core.array")), None)


def recheck(data: Any, masked: Sequence[Any], missing_chunks: str) -> Any:
    """The same lazy values, read through the checked store; others as they are."""
    array = stored_array(data)
    if array is None:
        return data
    if not is_from(array.store_path.store, "rff_stream"):
        array = on_checked_store(array, masked, missing_chunks)
    return Traced(replace_array(data, array), array)


def replace_array(data: Any, array: Any) -> Any:
    """Copies of the layers around another zarr.Array."""
    if is_from(data, "zarr.core.array"):
        return array
    found = copy.copy(data)
    name = held_name(data)
    assert name is not None, "recheck() found the array below this layer"
    setattr(found, name, replace_array(getattr(data, name), array))
    return found


def on_checked_store(array: Any, masked: Sequence[Any], missing_chunks: str) -> Any:
    """The zarr.Array on the checked store: its metadata are read again."""
    import zarr

    from rff_stream.sources.zarr_chunks import CheckedStore, array_rule, check_array

    store = CheckedStore(array.store_path.store)
    check_array(array, store.name)
    store.rules[array.path] = array_rule(array, masked, missing_chunks)
    version = array.metadata.zarr_format
    return zarr.open_array(store, path=array.path, mode="r", zarr_format=version)


class Traced:
    """Slices of a stored array; a slice that fails names the chunk.

    Parameters
    ----------
    data : what is sliced: a zarr.Array or xarray's layers around it
    array : zarr.Array
        On the checked store.
    """

    def __init__(self, data: Any, array: Any) -> None:
        self.data = data
        self.array = array
        self.shape = tuple(data.shape)
        self.dtype = np.dtype(data.dtype)
        self.ndim = len(self.shape)

    def __getitem__(self, key: Any) -> Array:
        try:
            return np.asarray(self.data[key])
        except DataError:
            raise
        except Exception as cause:
            raise DataError(self.message(key, cause)) from cause

    def bounds(self) -> tuple[tuple[int, ...], ...]:
        """Where the stored chunks begin and end along each dimension."""
        steps = zip(self.shape, self.array.chunks, strict=True)
        return tuple(regular_edges(size, step) for size, step in steps)

    def identity(self) -> list[Any]:
        """What tells one state of the stored array from another."""
        from rff_stream.sources.identity import of_stored

        return of_stored(self.array)

    def message(self, key: Any, cause: Exception) -> str:
        """Store, array, chunk and cause."""
        found, cause = self.broken(key) or ("a chunk", cause)
        return (
            f"{self.array.store_path.store.name}: {found} of array {self.array.path!r} could not "
            f"be decoded: {type(cause).__name__}: {cause}. Every chunk must be readable and "
            f"whole. Write it again from its source."
        )

    def broken(self, key: Any) -> tuple[str, Exception] | None:
        """The first chunk of a failed slice that fails on its own, and how."""
        for name in self.trace_chunks(key):
            place = self.place_of(name)
            try:
                self.array[self.region(place)]
            except Exception as cause:
                return f"chunk {name}", cause
        return None

    def trace_chunks(self, key: Any) -> list[str]:
        """Names of the chunks that a slice reads, seen as it is read once more."""
        store = self.array.store_path.store
        trace: set[str] = set()
        store.trace = trace
        with suppress(Exception):
            np.asarray(self.data[key])
        prefix = f"{self.array.path}/" if self.array.path else ""
        store.trace = None
        return sorted(n.removeprefix(prefix) for n in trace if n.startswith(prefix))

    def place_of(self, name: str) -> tuple[int, ...]:
        """Place of a chunk in the grid of chunks: (0, 1) of "c/0/1"."""
        from rff_stream.sources.zarr_chunks import place_of

        return place_of(name, self.array.ndim)

    def list_chunks(self) -> None:
        """Note which chunks are there, for readers that do not find one of them later.

        Only where absent chunks are no error of themselves. Cost: one listing of the array.
        """
        from rff_stream.sources.identity import names_of_chunks
        from rff_stream.sources.zarr_chunks import Listing

        store, path = self.array.store_path.store, self.array.path
        rule = store.rule_of(f"{path}/c")
        if not rule.absent or rule.there is not None:
            return
        sizes = self.array.shards or self.array.chunks
        grid = tuple(-(-n // size) for n, size in zip(self.array.shape, sizes, strict=True))
        names = names_of_chunks(store._store, path)
        there = Listing.of(grid, (self.place_of(name) for name in names))
        store.rules[path] = replace(rule, there=there)

    def region(self, place: Sequence[int]) -> tuple[slice, ...]:
        """The part of the array that a chunk (or shard) holds."""
        sizes = self.array.shards or self.array.chunks
        return tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, sizes, strict=True))


def one_graph(collections: Sequence[Any], missing_chunks: str = "auto") -> Mapping[Any, Any]:
    """The optimised tasks of all collections, with the keys of their blocks kept.

    Zarr arrays that the tasks read are put on the checked store. Frames come lowered:
    ``dask.optimize`` of a DataFrame returns other blocks under its keys (dask 2026.8).
    """
    import dask.base

    merged: dict[Any, Any] = {}
    frames = [each for each in collections if is_from(each, "dask.dataframe")]
    arrays = [each for each in collections if not is_from(each, "dask.dataframe")]
    for collection in (*frames, *dask.base.optimize(*arrays)):
        merged.update(collection.__dask_graph__())
    return {key: check_task(key, task, missing_chunks) for key, task in merged.items()}


def check_task(key: Any, task: Any, missing_chunks: str) -> Any:
    """A task; if it is a stored array, one whose absent chunks are errors."""
    from dask.task_spec import DataNode

    value = task.value if isinstance(task, DataNode) else task
    if not (is_from(value, "zarr") or is_from(value, "xarray")):
        return task
    stored = recheck(value, masked_by(value), missing_chunks)
    if isinstance(stored, Traced):
        stored.list_chunks()
    return DataNode(key, stored)


def masked_by(data: Any) -> list[Any]:
    """Fill values that xarray's decoding layers turn to missing."""
    found: list[Any] = []
    for layer in layers(data):
        keywords = getattr(getattr(layer, "func", None), "keywords", {})
        found += keywords.get("encoded_fill_values", ())
    return found
