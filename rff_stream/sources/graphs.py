"""Dask arrays as one optimised graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rff_stream.sources.chain import layers, rechecked
from rff_stream.sources.variable import is_from

__all__ = ["one_graph"]


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
    return {key: checked(key, task, missing_chunks) for key, task in merged.items()}


def checked(key: Any, task: Any, missing_chunks: str) -> Any:
    """A task; if it is a stored array, one whose absent chunks are errors."""
    from dask.task_spec import DataNode

    value = task.value if isinstance(task, DataNode) else task
    if not (is_from(value, "zarr") or is_from(value, "xarray")):
        return task
    return DataNode(key, rechecked(value, masked_by(value), missing_chunks))


def masked_by(data: Any) -> list[Any]:
    """Fill values that xarray's decoding layers turn to missing."""
    found: list[Any] = []
    for layer in layers(data):
        keywords = getattr(getattr(layer, "func", None), "keywords", {})
        found += keywords.get("encoded_fill_values", ())
    return found
