"""Values in grid shape -> the container that the user gave."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray

    from rff_stream.sources.grid import Wrap

__all__ = ["labelled_wrap"]


def labelled_wrap(data: xarray.Dataset, dims: Sequence[str]) -> Wrap:
    """Wraps in a DataArray with the coordinates of the sample dimensions."""
    coords = data.coords.to_dataset().drop_encoding()
    other = [name for name, coord in coords.variables.items() if not set(coord.dims) <= {*dims}]
    return partial(labelled, coords.drop_vars(other), tuple(dims))


def labelled(
    coords: xarray.Dataset,
    dims: tuple[str, ...],
    values: Any,
    names: tuple[str, ...],
    units: tuple[str, ...],
) -> Any:
    """A DataArray; a Dataset where there are several values a row."""
    if values.ndim == len(dims):
        return one(coords, dims, values, names[0], units[0])
    columns = (values[..., i] for i in range(len(names)))
    arrays = {
        name: one(coords, dims, column, name, unit)
        for name, column, unit in zip(names, columns, units, strict=True)
    }
    if len(arrays) == 1:
        return arrays[names[0]]
    return coords.assign(arrays)


def one(coords: xarray.Dataset, dims: Sequence[str], values: Any, name: str, unit: str) -> Any:
    """One DataArray with its name and units."""
    import xarray

    attrs = {"units": unit} if unit else {}
    return xarray.DataArray(values, coords.coords, dims, name, attrs)
