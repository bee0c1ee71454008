"""Zarr paths, URLs, groups and stores, opened through the checked store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zarr
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, StorePath, ZipStore

from rff_stream.errors import DataError
from rff_stream.sources import arrays, labelled
from rff_stream.sources.kinds import missing_extra
from rff_stream.sources.protocol import Source
from rff_stream.sources.request import Request
from rff_stream.sources.tables import open_table
from rff_stream.sources.zarr_chunks import (
    PICKLED,
    CheckedStore,
    ChunkRule,
    array_rule,
    check_array,
    store_name,
)
from rff_stream.words import list_names, redact_url

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group or array is: a store, a path in it, and a name for messages."""

    store: Store
    path: str
    name: str


def open_container(X: Any, y: Any, request: Request) -> Source:
    """A source of the rows of a Zarr group: labelled where xarray wrote it."""
    place = place_of(X, request.storage_options)
    before = ChunkRule(absent=request.missing_chunks == "fill")  # a fill value is known
    store = CheckedStore(place.store, place.name, default=before)
    group = open_node(store, place)
    if isinstance(group, zarr.Array):
        return open_one(group, y, request)
    members = arrays_of(group, place)
    for array in members.values():
        check_array(array, place.name)
    if all(is_labelled(array) for array in members.values()):
        data = as_xarray(store, place, group)
        set_rules(store, members, request, data.variables)
        return labelled.open_container(data, y, request)
    set_rules(store, members, request)
    return open_table(members, y, request, place.name)


def open_one(array: Any, y: Any, request: Request) -> Source:
    """A source of one array, of rows and columns."""
    store = array.store_path.store
    check_array(array, store.name)
    set_rules(store, {array.path: array}, request)
    return arrays.open_container(array, y, request)


def place_of(X: Any, storage_options: Mapping[str, Any] | None) -> Place:
    """Store and path of what the user gave."""
    if isinstance(X, (zarr.Group, zarr.Array)):
        store = X.store_path.store
        return Place(bare(store), X.path, name_in(store, X.path))
    if isinstance(X, StorePath):
        return Place(bare(X.store), X.path, name_in(X.store, X.path))
    if isinstance(X, Store):
        return Place(bare(X), "", store_name(bare(X)))
    return path_place(os.fspath(X), storage_options)


def bare(store: Store) -> Store:
    """The store under a checked one."""
    return store._store if isinstance(store, CheckedStore) else store


def name_in(store: Store, path: str) -> str:
    """A group in a store, for messages."""
    name = store_name(bare(store))
    return f"{name}/{path}" if path else name


def path_place(path: str, storage_options: Mapping[str, Any] | None) -> Place:
    """Store of a local path or a URL."""
    if "://" in path and not path.startswith("file://"):
        options = None if storage_options is None else dict(storage_options)
        try:
            remote = FsspecStore.from_url(path, storage_options=options, read_only=True)
        except ImportError as cause:
            raise missing_extra(path, cause) from cause
        return Place(remote, "", redact_url(path))
    local = Path(path.removeprefix("file://"))
    if not local.exists():
        raise DataError(
            f"{local} does not exist. X is an array, a table, or the path of a Zarr group. "
            f"Look at the path; it counts from {Path.cwd()}."
        )
    if local.is_dir():  # absolute: workers have other working directories
        return Place(LocalStore(local.absolute(), read_only=True), "", str(local))
    if local.suffix == ".zip":
        return Place(ZipStore(local.absolute(), mode="r"), "", str(local))
    raise DataError(
        f"{local} is a file, but a path is that of a Zarr group (a directory or .zip). Open "
        f"other formats without reading them, such as xarray.open_dataset({str(local)!r})."
    )


def open_node(store: CheckedStore, place: Place) -> Any:
    """The group or array at a place."""
    causes = []
    for consolidated in (False, None):
        try:
            group = zarr.open_group(store, path=place.path, mode="r", use_consolidated=consolidated)
            if consolidated is None or next(iter(group.keys()), None) is not None:
                return group
        except DataError:
            raise
        except Exception as cause:
            causes.append(cause)
    try:
        return zarr.open_array(store, path=place.path, mode="r")
    except DataError:
        raise
    except Exception as cause:
        first = causes[0] if causes else cause
        raise DataError(
            f"{place.name} cannot be opened as Zarr: {type(first).__name__}: {first}. A path "
            f"leads to a group or array with whole metadata. Look at its zarr.json (or .zgroup)."
        ) from cause


def arrays_of(group: zarr.Group, place: Place) -> dict[str, Any]:
    """The arrays of a group by name."""
    try:
        members = dict(group.members())
    except DataError:
        raise
    except Exception as cause:
        if "pickle" in str(cause):
            raise DataError(f"{place.name}: {PICKLED} ({cause})") from cause
        raise DataError(
            f"{place.name} has metadata that cannot be read: {type(cause).__name__}: {cause}. "
            f"Every array needs a whole zarr.json (or .zarray). Write it again."
        ) from cause
    arrays = {name: each for name, each in members.items() if isinstance(each, zarr.Array)}
    if not arrays:
        groups = list_names(sorted(set(members))) or "nothing"
        raise DataError(
            f"{place.name} is a group without arrays: it holds {groups}. X is a group whose "
            f"arrays are the columns. Give the path of such a group."
        )
    return arrays


def is_labelled(array: Any) -> bool:
    """Whether the array has names of dimensions, as xarray writes them."""
    names = getattr(array.metadata, "dimension_names", None)
    return names is not None or "_ARRAY_DIMENSIONS" in array.attrs or array.ndim == 0


def set_rules(
    store: CheckedStore, arrays: Mapping[str, Any], request: Request, variables: Any = ()
) -> None:
    """What absent chunks mean, for every array; ``variables`` know which values are missing."""
    for name, array in arrays.items():
        masked = labelled.masked_values(variables[name]) if name in variables else []
        store.rules[array.path] = array_rule(array, masked, request.missing_chunks)


def as_xarray(store: CheckedStore, place: Place, group: zarr.Group) -> xarray.Dataset:
    """The group as xarray decodes it, without dask, its chunks checked."""
    import xarray

    consolidated = group.metadata.consolidated_metadata is not None
    try:
        data: xarray.Dataset = xarray.open_zarr(
            store, group=place.path or None, chunks=None, consolidated=consolidated,
            decode_coords="all", decode_timedelta=xarray.coders.CFTimedeltaCoder(),
        )  # fmt: skip
    except DataError:
        raise
    except Exception as cause:
        raise DataError(
            f"{place.name} cannot be opened by xarray: {type(cause).__name__}: {cause}. "
            f"Names of dimensions and CF attributes must fit together; correct them."
        ) from cause
    # By name: the order of a directory is another one in a copy on another disk.
    named = {str(name): variable.variable for name, variable in data.data_vars.items()}
    return xarray.Dataset(dict(sorted(named.items())), data.coords, data.attrs)
