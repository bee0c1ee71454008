"""xarray variables, whatever holds their values: memory, dask, or a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream._array import Array
from rff_stream.sources.chain import rechecked
from rff_stream.sources.variable import Variable, regular_bounds, variable_of

if TYPE_CHECKING:
    import xarray

__all__ = ["variable_from"]


def variable_from(
    name: str,
    variable: xarray.Variable,
    labels: Mapping[str, Array],
    missing_chunks: str,
) -> Variable:
    """A variable of the data set; values in a file stay there."""
    dims = tuple(str(dim) for dim in variable.dims)
    more: dict[str, Any] = {
        "units": str(variable.attrs.get("units", "")),
        "calendar": calendar_of(variable),
        "labels": labels,
        "file": str(variable.encoding.get("source", "")),
    }
    if variable.chunks is not None or in_memory(variable):
        return variable_of(name, dims, variable.data, **more)
    bounds, chunked = chunks_of(variable)
    handle = rechecked(bare(variable), masked_values(variable), missing_chunks)
    return Variable(name, dims, handle, "lazy", bounds, chunked, **more)


def bare(variable: xarray.Variable) -> xarray.Variable:
    """The variable without attributes: a smaller pickle."""
    found = variable.copy(deep=False)
    found.attrs, found.encoding = {}, {}
    return found


def masked_values(variable: xarray.Variable) -> list[Any]:
    """Stored values that decode to missing."""
    encoding = variable.encoding
    return [encoding[name] for name in ("_FillValue", "missing_value") if name in encoding]


def in_memory(variable: xarray.Variable) -> bool:
    """Whether the values are loaded."""
    return bool(variable._in_memory)


def calendar_of(variable: xarray.Variable) -> str:
    """Calendar of cftime objects; "" for anything else."""
    if variable.dtype.kind != "O" or variable.size == 0:
        return ""
    if "since" in str(variable.encoding.get("units", "")):
        return str(variable.encoding.get("calendar", "standard"))
    if not in_memory(variable):
        return ""
    first = np.asarray(variable[(0,) * variable.ndim].values).item()
    return str(getattr(first, "calendar", ""))


def chunks_of(variable: xarray.Variable) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Where the stored chunks of a lazily sliced variable begin, and whether it has any."""
    sizes = variable.encoding.get("chunks") or variable.encoding.get("chunksizes")
    if not sizes or len(sizes) != variable.ndim:
        return tuple((0, size) for size in variable.shape), False
    return regular_bounds(variable.shape, sizes), True
