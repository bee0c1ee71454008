"""The Zarr arrays inside what others opened: xarray's lazy arrays, dask's graphs.

xarray wraps an array on disk in layers (indexing, decoding, caching), each holding the
next as ``.array``. The innermost is replaced by the same array on the checked store; a
read that fails is traced to the chunk that cannot be decoded.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.variable import is_from

__all__ = ["Traced", "rechecked", "stored_array"]


def layers(data: Any) -> Iterator[Any]:
    """xarray's layers from the outside in; last, what is in the innermost."""
    while data is not None:
        yield data
        data = next_layer(data)


def next_layer(data: Any) -> Any:
    """What a layer of xarray holds; None at the end."""
    if not is_from(data, "xarray"):
        return None
    names = ("_array",) if is_wrapper(data) else ("_data", "array")
    return next((getattr(data, name) for name in names if hasattr(data, name)), None)


def is_wrapper(data: Any) -> bool:
    """Whether this is xarray's holder of a zarr.Array."""
    return type(data).__name__ == "ZarrArrayWrapper"


def stored_array(data: Any) -> Any:
    """The zarr.Array that holds the values; None where there is none."""
    return next((layer for layer in layers(data) if is_from(layer, "zarr.core.array")), None)


def rechecked(data: Any, masked: Sequence[Any], missing_chunks: str) -> Any:
    """The same lazy values, read through the checked store; others as they are."""
    array = stored_array(data)
    if array is None:
        return data
    if not is_from(array.store_path.store, "rff_stream"):
        array = on_checked_store(array, masked, missing_chunks)
    return Traced(replaced(data, array), array)


def replaced(data: Any, array: Any) -> Any:
    """Copies of the layers around another zarr.Array."""
    if is_from(data, "zarr.core.array"):
        return array
    found = copy.copy(data)
    names = ("_array",) if is_wrapper(data) else ("_data", "array")
    name = next(name for name in names if hasattr(data, name))
    setattr(found, name, replaced(getattr(data, name), array))
    return found


def on_checked_store(array: Any, masked: Sequence[Any], missing_chunks: str) -> Any:
    """The zarr.Array on the checked store: its metadata are read again."""
    import zarr

    from rff_stream.sources.checked import CheckedStore
    from rff_stream.sources.zarrs import array_rule, check_codecs

    store = CheckedStore(array.store_path.store)
    check_codecs(array, store.name)
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
        for name in self.fetched(key):
            place = self.place_of(name)
            try:
                self.array[self.region(place)]
            except Exception as cause:
                return f"chunk {name}", cause
        return None

    def fetched(self, key: Any) -> list[str]:
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
        numbers = [int(number) for number in re.findall(r"\d+", name)]
        return tuple(numbers[len(numbers) - self.array.ndim :])

    def region(self, place: Sequence[int]) -> tuple[slice, ...]:
        """The part of the array that a chunk (or shard) holds."""
        sizes = self.array.shards or self.array.chunks
        return tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, sizes, strict=True))
