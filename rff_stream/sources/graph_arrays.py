"""The Zarr arrays inside xarray's lazy arrays and inside dask graphs, and a hash of all data.

xarray wraps an array on disk in layers (indexing, decoding, caching), each holding the
next as ``.array``. The innermost is replaced by the same array on the checked store. The hash
is cheap, and changes when the data change: it is compared before and after a pass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rff_stream.errors import DataError
from rff_stream.sources.container_types import is_from
from rff_stream.text_formatting import list_names


def layers(data: Any) -> Iterator[Any]:
    """xarray's layers from the outside in; last, what is in the innermost."""
    while data is not None:
        yield data
        name = held_name(data)
        data = None if name is None else getattr(data, name)


HELD = ("_data", "_array", "array")
"""Private names under which xarray's layers hold the next one; the last two also for Zarr."""


def held_name(layer: Any) -> str | None:
    """The attribute in which a layer of xarray holds the next; None for what holds none.

    Raises DataError: xarray keeps its arrays under other names than those known here: a chunk that
    is absent would be read as zeros, silently.
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


def recheck(data: Any, masked: Sequence[Any], missing_chunks: str) -> Any:
    """The same lazy values, read through the checked store; others as they are."""
    import zarr

    from rff_stream.sources.zarr_chunks import CheckedArray, CheckedStore, on_checked_store

    *around, array = layers(data)
    if not isinstance(array, zarr.Array):
        return data
    if not isinstance(array.store_path.store, CheckedStore):
        array = on_checked_store(array, masked, missing_chunks)
    found: Any = array
    for layer in reversed(around):
        own = copy.copy(layer)
        setattr(own, str(held_name(layer)), found)
        found = own
    return CheckedArray(found, array)


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
    if is_from(stored, "rff_stream.sources.zarr_chunks"):
        stored.list_chunks()
    return DataNode(key, stored)


def masked_by(data: Any) -> list[Any]:
    """Fill values that xarray's decoding layers turn to missing."""
    found: list[Any] = []
    for layer in layers(data):
        keywords = getattr(getattr(layer, "func", None), "keywords", {})
        found += keywords.get("encoded_fill_values", ())
    return found


def of_graph(graph: Mapping[Any, Any] | None) -> list[Any]:
    """States of the stored arrays among the values of a graph."""
    values: Iterator[Any] = (getattr(task, "value", None) for task in (graph or {}).values())
    traced = (value for value in values if is_from(value, "rff_stream.sources.zarr_chunks"))
    return [value.identity() for value in traced]
