"""Paths, URLs and Zarr groups, opened by what they hold: Zarr, icechunk, NetCDF, tables."""

from __future__ import annotations

import atexit
import json
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import zarr
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, StorePath, ZipStore

from rff_stream.errors import DataError
from rff_stream.remote_calls import answer_in_time
from rff_stream.sources import arrays, labelled
from rff_stream.sources.container_types import (
    KindError,
    file_system_of,
    is_from,
    missing_extra,
    needed_package,
    reached,
)
from rff_stream.sources.icechunk_repositories import Versions, repository_at, store_and_versions
from rff_stream.sources.protocol import Source
from rff_stream.sources.request import Selection
from rff_stream.sources.tables import open_table
from rff_stream.sources.zarr_chunks import (
    PICKLED,
    CheckedStore,
    ChunkRule,
    array_rule,
    check_array,
    store_name,
)
from rff_stream.text_formatting import cause_words, list_names, redact_url

if TYPE_CHECKING:
    import xarray


NETCDF = (".nc", ".nc4", ".cdf", ".netcdf", ".h5", ".hdf5")

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".csv.zst": "csv",
    ".tsv": "tsv",
    ".tsv.gz": "tsv",
    ".orc": "orc",
    ".json": "references",
}
"""Ends of names, and what pyarrow calls their format; "tsv" is CSV with tabs."""

FIRST_BYTES = {
    b"PAR1": "parquet",
    b"ARROW1": "ipc",
    b"CDF": "netcdf",
    b"\x89HDF": "netcdf",
    b"PK\x03\x04": "zarr",
    b"ORC": "orc",
    b"{": "references",
}

ICECHUNK = ("refs", "repo")
"""Beside its snapshots a repository has one of these."""

ZARR_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


def open_container(selection: Selection) -> Source:
    """A source of what lies at a path, at a URL, or behind an icechunk session."""
    X, options = selection.X, selection.storage_options
    if is_from(X, "zarr"):
        return open_zarr(X, None, selection)
    if is_from(X, "icechunk"):
        return open_zarr(*store_and_versions(X), selection)
    path = os.fspath(X)
    kind = format_of(path)
    if kind == "netcdf":
        return labelled.open_container(replace(selection, X=netcdf(path)))
    if kind == "icechunk":
        return open_zarr(*store_and_versions(repository_at(path)), selection)
    if kind == "references":
        return open_zarr(references(path, options), None, selection)
    if kind == "zarr":
        return open_zarr(path, None, selection)
    from rff_stream.sources import arrow_and_parquet as arrow

    return arrow.open_dataset(replace(selection, X=dataset(path, kind, options)))


def format_of(path: str) -> str:
    """What a path holds: "zarr", "references", "icechunk", "netcdf", or a format of pyarrow's."""
    ends = FORMATS | dict.fromkeys(NETCDF, "netcdf")
    by_name = next((kind for end, kind in ends.items() if path.lower().endswith(end)), "zarr")
    local = None if is_remote(path) else Path(path.removeprefix("file://"))
    if local is not None and local.is_dir():
        return format_of_folder(local)
    if local is not None and local.is_file():
        with open(local, "rb") as file:
            start = file.read(8)
        by_bytes = (kind for known, kind in FIRST_BYTES.items() if start.startswith(known))
        return next(by_bytes, by_name)
    return by_name


def format_of_folder(folder: Path) -> str:
    """What a folder holds: the metadata of a store, or files of one format."""
    if any((folder / name).exists() for name in ZARR_FILES):
        return "references" if has_reference_tables(folder / ".zmetadata") else "zarr"
    if (folder / "snapshots").is_dir() and any((folder / name).exists() for name in ICECHUNK):
        return "icechunk"
    ends = FORMATS | dict.fromkeys(NETCDF, "netcdf")
    for name in (each.name.lower() for each in folder.rglob("*") if each.is_file()):
        kind = next((kind for end, kind in ends.items() if name.endswith(end)), None)
        if kind is not None:
            return kind
    return "zarr"


def has_reference_tables(metadata: Path) -> bool:
    """Whether consolidated metadata are those of references in Parquet, as kerchunk writes them."""
    try:
        return "record_size" in json.loads(metadata.read_bytes())
    except (OSError, ValueError):
        return False


def is_remote(path: str) -> bool:
    """Whether this is the URL of another machine."""
    return "://" in path and not path.startswith("file://")


def netcdf(path: str) -> Any:
    """The lazy Dataset of a NetCDF file.

    Raises DataError: it is damaged, or what reads it is not installed.
    """
    import xarray

    if "://" not in path and not Path(path).exists():
        several = f" Several files: xarray.open_mfdataset({path!r})." if "*" in path else ""
        raise DataError(
            f"{path} does not exist. Look at the path; it counts from {Path.cwd()}.{several}"
        )
    try:
        found = xarray.open_dataset(
            path, decode_coords="all", decode_timedelta=xarray.coders.CFTimedeltaCoder()
        )
    except (OSError, ValueError, ImportError) as cause:
        raise DataError(
            f"{redact_url(path)} cannot be opened as netCDF: {cause_words(cause)}. It must be "
            f"whole, and a package that reads it installed: pip install 'rff_stream[netcdf]'."
        ) from cause
    OPENED.append(found)
    close_netcdf(FILES_OPEN)
    return found


FILES_OPEN = 64
"""Most NetCDF files that stay open: half of those that xarray keeps open."""

OPENED: deque[Any] = deque()
"""NetCDF files as Datasets, the oldest first. The garbage collector would close a file that nothing
refers to, in any thread and at any time; the NetCDF library is not safe for threads and has crashed
so (pydata/xarray issues 9779 and 10783). A file in this list is closed here."""


@atexit.register
def close_netcdf(left: int = 0) -> None:
    """Close NetCDF files until so many are left; a source that still reads one opens it again."""
    while len(OPENED) > left:
        OPENED.popleft().close()


def references(path: str, storage_options: Mapping[str, Any] | None) -> Any:
    """The Zarr store of references (kerchunk, VirtualiZarr): where chunks are in other files.

    Options are those of fsspec's "reference" file system: ``remote_protocol``,
    ``remote_options`` for the files that are named, ``target_options`` for the references.
    """
    local = not is_remote(path)
    place = str(Path(path.removeprefix("file://")).absolute()) if local else path
    if local and not Path(place).exists():
        raise DataError(f"{path} does not exist. Look at the path; it counts from {Path.cwd()}.")
    choices: dict[str, Any] = {"fo": place, **(storage_options or {})}
    try:
        if choices.get("remote_protocol") is None:
            choices["remote_protocol"] = protocol_in(place, choices.get("target_options") or {})
        if choices["remote_protocol"] != "file":
            known = choices.get("remote_options") or {}
            choices["remote_options"] = {**known, "asynchronous": True}
        return FsspecStore.from_url("reference://", storage_options=choices, read_only=True)
    except ImportError as cause:
        raise missing_extra(path, cause) from cause
    except Exception as cause:
        raise DataError(
            f"{redact_url(path)} cannot be opened as references to chunks: {cause_words(cause)}. "
            f"It must be whole and within reach, and what kerchunk or VirtualiZarr wrote. Data of "
            f"another format need a name that tells the format."
        ) from cause


def protocol_in(place: str, options: Mapping[str, Any]) -> str:
    """Where the files are that references name: the protocol of the first address; "file"."""
    import fsspec

    if not place.removesuffix("/").endswith(".json"):
        return "file"
    with fsspec.open(place, "rb", **options) as file:
        text = json.load(file)
    templates = text.get("templates", {}).values()
    chunks = text.get("refs", text).values()
    addresses = [*templates, *(each[0] for each in chunks if isinstance(each, list))]
    remote = (str(each).partition("://")[0] for each in addresses if "://" in str(each))
    return next(remote, "file")


def dataset(path: str, kind: str, storage_options: Mapping[str, Any] | None) -> Any:
    """The pyarrow Dataset of a file."""
    needed_package("pyarrow", "dataframe", f"{redact_url(path)} holds {kind}")
    if "://" in path:
        import fsspec
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        files, inside = file_system_of(
            path, storage_options, lambda: fsspec.core.url_to_fs(path, **(storage_options or {}))
        )
        system: Any = PyFileSystem(FSSpecHandler(files))
    else:
        import fsspec

        files, inside, system = fsspec.filesystem("file"), str(Path(path).absolute()), None
    with reached(path):
        absent = not answer_in_time(files.exists, inside)
    if absent:
        raise DataError(
            f"{redact_url(path)} does not exist. X is an array, a table, or the path of data. "
            f"Look at the path; it counts from {Path.cwd()}."
        )
    return dataset_of(inside, kind, system, redact_url(path))


def dataset_of(places: Any, kind: str, system: Any, name: str, root: str | None = None) -> Any:
    """The pyarrow Dataset of one file, or of several below a root; the name is for messages."""
    import pyarrow.csv as csv
    import pyarrow.dataset as ds

    made: Any = kind
    if kind in ("csv", "tsv"):  # an empty cell of text is missing, as one of numbers is
        made = ds.CsvFileFormat(
            csv.ParseOptions(delimiter="," if kind == "csv" else "\t"),
            convert_options=csv.ConvertOptions(strings_can_be_null=True),
        )
    try:
        found = ds.dataset(
            places, format=made, filesystem=system, partitioning="hive", partition_base_dir=root
        )
    except (OSError, ValueError) as cause:
        _, _, reason = str(cause).rpartition(": Invalid: ")  # behind where it lies
        between = {"csv": ", with commas between values", "tsv": ", with tabs between values"}
        raise DataError(
            f"{name} cannot be opened as {kind}: {reason or cause_words(cause)}. "
            f"Every file must be whole and have the same columns"
            f"{between.get(kind, '')}."
        ) from cause
    if kind in ("csv", "tsv"):
        check_encoding(found.schema, name)
    return found


def check_encoding(schema: Any, name: str) -> None:
    """Text of a CSV file is UTF-8; pyarrow reads other text as bytes.

    Raises DataError: naming the column.
    """
    import pyarrow as pa

    try:
        pairs = zip(schema.names, schema.types, strict=True)
        odd = [name for name, kind in pairs if pa.types.is_binary(kind)]
        where = f"column {odd[0]!r}" if odd else ""
    except UnicodeDecodeError:
        where = "the names of its columns"
    if where:
        raise DataError(
            f"{name} holds text that is not UTF-8 in {where}. Text of CSV is read as UTF-8. "
            f"Convert it, for example by iconv -f latin1 -t utf-8, or give "
            f"pandas.read_csv({name!r}, encoding=…) in place of the path."
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group or array is: a store, a path in it, and a name for messages."""

    store: Store
    path: str
    name: str


def open_zarr(X: Any, versions: Versions | None, selection: Selection) -> Source:
    """A source of the rows of a Zarr group: labelled where xarray wrote it."""
    place = located(X, selection.storage_options)
    before = ChunkRule(absent=selection.missing_chunks == "fill")  # a fill value is known
    store = CheckedStore(place.store, place.name, default=before, versions=versions)
    group = open_node(store, place)
    if isinstance(group, zarr.Array):
        return open_one(group, selection)
    members = arrays_of(group, place)
    for array in members.values():
        check_array(array, place.name)
    if all(is_labelled(array) for array in members.values()):
        data = as_xarray(store, place, group)
        set_rules(store, members, selection, data.variables)
        return labelled.open_container(replace(selection, X=data))
    set_rules(store, members, selection)
    return open_table(members, selection, place.name)


def open_one(array: Any, selection: Selection) -> Source:
    """A source of one array, of rows and columns."""
    store = array.store_path.store
    if isinstance(selection.y, str | os.PathLike):
        group, _, own = name_in(store, array.path).rpartition("/")
        target = PurePath(selection.y).name
        raise KindError(
            f"y is the text {os.fspath(selection.y)!r}, but X is the one array {own!r} of {group}, "
            "beside which y is an array of values. Arrays of a group are found by their names: "
            f"fit({group!r}, {target!r}, inputs=[{own!r}])."
        )
    check_array(array, store.name)
    set_rules(store, {array.path: array}, selection)
    return arrays.open_container(replace(selection, X=array))


def located(X: Any, storage_options: Mapping[str, Any] | None) -> Place:
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
        remote = file_system_of(
            path,
            options,
            lambda: FsspecStore.from_url(path, storage_options=options, read_only=True),
        )
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
        f"{local} is a file, but a path is that of a Zarr group (a directory or .zip), or has a "
        f"name that tells the format, such as .csv, .tsv or .parquet. Open "
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
            f"{place.name} cannot be opened as Zarr: {cause_words(first)}. A path "
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
            raise DataError(f"{place.name}: {PICKLED} ({cause_words(cause)})") from cause
        raise DataError(
            f"{place.name} has metadata that cannot be read: {cause_words(cause)}. "
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
    store: CheckedStore, arrays: Mapping[str, Any], selection: Selection, variables: Any = ()
) -> None:
    """What absent chunks mean, for every array; ``variables`` know which values are missing."""
    for name, array in arrays.items():
        masked = labelled.masked_values(variables[name]) if name in variables else []
        store.rules[array.path] = array_rule(array, masked, selection.missing_chunks)


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
            f"{place.name} cannot be opened by xarray: {cause_words(cause)}. "
            f"Names of dimensions and CF attributes must fit together; correct them."
        ) from cause
    # By name: the order of a directory is another one in a copy on another disk.
    named = {str(name): variable.variable for name, variable in data.data_vars.items()}
    return xarray.Dataset(dict(sorted(named.items())), data.coords, data.attrs)
