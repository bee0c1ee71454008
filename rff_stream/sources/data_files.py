"""Files that are written once, such as one a day: their names, and digests of their content.

A Parquet, Arrow, CSV, ORC or NetCDF file is known by its name below the folder that was given, and
by the sha256 of its bytes. Size and time of the last change tell whether these must be read again.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rff_stream._array import digest
from rff_stream.errors import DataError, RffStreamError
from rff_stream.remote_calls import answer_in_time
from rff_stream.sources.container_types import file_system_of, needed_package, reached
from rff_stream.sources.paths import (
    FORMATS,
    NETCDF,
    ZARR_FILES,
    dataset_of,
    format_of,
    is_remote,
    netcdf,
)
from rff_stream.sources.request import as_names
from rff_stream.text_formatting import cause_words, list_names, redact_url

WHOLE = ("parquet", "ipc", "csv", "tsv", "orc", "netcdf")
"""Formats of files that are written once; others (Zarr, icechunk) are stores that may grow."""

ENDS = tuple(end for end, kind in FORMATS.items() if kind in WHOLE) + NETCDF

LAST_BYTES = {"parquet": b"PAR1", "ipc": b"ARROW1", "orc": b"ORC"}
"""How a file of this format ends when it is complete, within its last 8 bytes."""

STAMPED = ("size", "mtime", "mtime_ns", "ETag", "etag", "LastModified", "last_modified", "md5Hash")
"""What file systems say of a file that changes when its content does."""

BLOCK = 1 << 22
"""Bytes of a file that are hashed at a time."""

LARGE = 1 << 30
"""Bytes of a file from which 128 blocks of it are hashed, its ends among them, in place of all: the
footer of a Parquet or NetCDF file has sizes, places and ranges of all its values."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file, under its name below the folder that was given."""

    name: str
    path: str
    stamp: str
    """Hash of size, time and version: the same stamp, the same content."""


def files_at(place: Any, storage_options: Mapping[str, Any] | None = None) -> list[DataFile] | None:
    """The files at a path, in a folder or of a pattern, by name; None for a store or no path.

    Files that were listed before are those. In a folder, those whose names end as a format does
    and begin with neither "." nor "_".

    Raises DataError: nothing is there.
    """
    if isinstance(place, list) and place and all(isinstance(each, DataFile) for each in place):
        return place
    if not isinstance(place, str | os.PathLike):
        return None
    path = os.fspath(place).removeprefix("file://")
    system, inside = file_system(path, storage_options)
    with reached(path):
        pattern = glob.has_magic(inside) and not answer_in_time(system.exists, inside)
        if pattern:
            found = [each for each in system.glob(inside, detail=True).values() if is_data(each)]
            root = root_of(inside)
        elif answer_in_time(system.isdir, inside):
            if is_store(system, path, inside):
                return None
            found = [each for each in system.find(inside, detail=True).values() if is_data(each)]
            root = inside
        elif format_of(path) in WHOLE and answer_in_time(system.exists, inside):
            found, root = [answer_in_time(system.info, inside)], str(PurePosixPath(inside).parent)
        else:
            return None
    if not found and pattern:
        raise DataError(
            f"{redact_url(path)} matches no file of a known format ({', '.join(ENDS)}). Look at "
            f"the pattern; it counts from {Path.cwd()}."
        )
    remote = is_remote(path)
    made = [data_file(system, each, root, remote=remote) for each in found]
    return sorted(made, key=lambda each: each.name) or None


def files_below(
    place: Any, storage_options: Mapping[str, Any] | None = None
) -> list[DataFile] | None:
    """The files in a folder or of a pattern, by name; None for one file, a store or no path."""
    if not isinstance(place, str | os.PathLike):
        return None
    path = os.fspath(place).removeprefix("file://")
    if is_remote(path):  # of a URL, ? is also where a query begins
        folder = format_of(path) == "zarr" and "?" not in path
        several = folder or any(sign in path for sign in "*[")
    else:
        several = Path(path).is_dir() or (glob.has_magic(path) and not Path(path).exists())
    return files_at(path, storage_options) if several else None


def steady_files(
    place: Any, storage_options: Mapping[str, Any] | None, every: float
) -> Iterator[list[DataFile]]:
    """Look at a place again and again: files that have not changed since the look before."""
    before: dict[str, str] = {}
    while True:
        files = files_at(place, storage_options) or []
        yield [file for file in files if before.get(file.name) == file.stamp]
        before = {file.name: file.stamp for file in files}
        time.sleep(every)


def file_system(path: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, without a listing kept, and the path in it."""
    import fsspec

    local = not is_remote(path)
    system, inside = file_system_of(
        path, storage_options, lambda: fsspec.core.url_to_fs(path, **(storage_options or {}))
    )
    system.invalidate_cache()  # a listing of before knows no later files
    return system, (str(Path(path).absolute()) if local else inside.rstrip("/"))


def is_store(system: Any, path: str, inside: str) -> bool:
    """Whether a folder is a Zarr store, an icechunk repository, or holds no file of a format."""
    if not is_remote(path):
        kind = format_of(path)
        return kind in ("references", "icechunk") or any(
            answer_in_time(system.exists, f"{inside}/{name}") for name in ZARR_FILES
        )
    names = {str(each).rsplit("/", 1)[-1] for each in system.ls(inside, detail=False)}
    return bool(names & {*ZARR_FILES, "snapshots"})


def is_data(info: Mapping[str, Any]) -> bool:
    """Whether a name is that of a file of a known format."""
    name = str(info["name"]).rsplit("/", 1)[-1].lower()
    return info["type"] == "file" and name.endswith(ENDS) and name[0] not in "._"


def root_of(pattern: str) -> str:
    """The folder of a pattern, up to its first part with a wildcard."""
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first])


def data_file(system: Any, info: Mapping[str, Any], root: str, *, remote: bool) -> DataFile:
    """A file as a listing tells it."""
    inside = str(info["name"])
    told = {name: str(info[name]) for name in STAMPED if info.get(name) is not None}
    if not remote:
        status = os.stat(inside)
        told = {"size": str(status.st_size), "mtime_ns": str(status.st_mtime_ns)}
    name = inside.removeprefix(root.rstrip("/")).lstrip("/")
    path = system.unstrip_protocol(inside) if remote else inside
    return DataFile(name, path, digest(told)[:32])


def stamp_of(file: DataFile, storage_options: Mapping[str, Any] | None) -> str:
    """The stamp that a file has now; "" if it is gone."""
    system, inside = file_system(file.path, storage_options)
    with reached(file.path):
        try:
            info = answer_in_time(system.info, inside)
            return data_file(system, info, "", remote=is_remote(file.path)).stamp
        except FileNotFoundError:
            return ""


def content_of_file(file: DataFile, storage_options: Mapping[str, Any] | None) -> str:
    """sha256 of the bytes of a file; of a large one, of its size and of blocks spread over it."""
    system, inside = file_system(file.path, storage_options)
    found = hashlib.sha256()
    with reached(file.path):
        try:
            size = system.size(inside)
            starts: Any = range(0, size, BLOCK)
            if size > LARGE:
                found.update(str(size).encode())
                starts = [round(i * (size - BLOCK) / 127) for i in range(128)]
            with system.open(inside, "rb") as opened:
                for start in starts:
                    opened.seek(start)
                    found.update(opened.read(BLOCK))
        except OSError as cause:
            raise DataError(
                f"{redact_url(file.path)} cannot be read: {cause_words(cause)}. Look at the file "
                "and the right to read it."
            ) from cause
    return found.hexdigest()


def is_complete(file: DataFile, storage_options: Mapping[str, Any] | None) -> bool:
    """Whether a file has bytes, and ends as its format does if that tells its end."""
    kind = next((kind for end, kind in FORMATS.items() if file.name.lower().endswith(end)), "")
    system, inside = file_system(file.path, storage_options)
    with reached(file.path):
        size = system.size(inside)
        if kind not in LAST_BYTES:
            return bool(size)
        # A file begins with these bytes, too: what is read lies behind those 8.
        last = system.tail(inside, 8) if size >= 16 else b""
    return LAST_BYTES[kind] in last


def open_together(
    files: Sequence[DataFile],
    y: Any,
    storage_options: Mapping[str, Any] | None = None,
    inputs: Sequence[Any] | str | None = None,
) -> Any:
    """The rows of files: a pyarrow Dataset, or an xarray one of NetCDF files.

    NetCDF files follow each other along the first dimension of the target; what lacks it, such as
    heights, is that of each file where they differ. A variable that a file lacks is left out where
    it is not among the ``inputs``, if they are given. Folders below the one that was given may name
    columns ("year=2020"); those above it do not.
    """
    kinds = sorted({str(format_of(file.path)) for file in files})
    if len(kinds) > 1:
        raise DataError(
            f"The files are of several formats: {list_names(kinds)}. The files of a fit are of "
            "one format: give a pattern, such as 'days/*.parquet'."
        )
    if kinds != ["netcdf"]:
        return dataset_of_files(files, kinds[0], storage_options)
    import xarray

    opened = [netcdf(file.path) for file in files]
    if len(opened) == 1:
        return opened[0]
    name = y if isinstance(y, str) else next(iter(opened[0].data_vars))
    dim = str(opened[0][name].dims[0])
    try:
        for each, file in zip(opened, files, strict=True):
            check_alike(opened[0], each, files[0].name, file.name)
        known = set.intersection(*({*each.variables} for each in opened))
        lacked = sorted({*opened[0].data_vars} - known)
        used = None if inputs is None else {stem(name) for name in as_names(inputs) or ()}
        for variable in lacked:
            if used is None or variable in used:
                without = next(
                    f for f, each in zip(files, opened, strict=True) if variable not in each
                )
                raise ValueError(f"{without.name} has no {variable!r}, which {files[0].name} has")
        opened = [each.drop_vars([*(each.data_vars.keys() - known)]) for each in opened]
        return xarray.concat(
            [each.chunk() for each in opened], dim,
            data_vars="different", coords="different", compat="equals", join="exact",
        )  # fmt: skip
    except ValueError as cause:
        raise DataError(
            f"The files cannot be read as one: {cause_words(cause)}. They follow each other along "
            f"{dim!r}, and other coordinates are the same in all of them. Correct the files, or "
            f"open them yourself, as xarray.open_mfdataset does."
        ) from cause


def stem(name: Any) -> str:
    """The variable of an input: "time" of time.hour, "sky" of sky=rain, "u" of u[level=500]."""
    return re.split(r"[.=\[]", str(name), maxsplit=1)[0]


def check_alike(first: Any, other: Any, first_name: str, name: str) -> None:
    """Refuse a NetCDF file whose rows mean something else than those of the first.

    Raises ValueError: naming the coordinate or the variable.
    """
    if other.indexes.keys() != first.indexes.keys():
        raise ValueError(
            f"{first_name} has the coordinates {list_names(first.indexes)}, "
            f"{name} has {list_names(other.indexes) or 'none'}"
        )
    for variable in first.variables.keys() & other.variables.keys():
        units = [str(each[variable].attrs.get("units", "")) for each in (first, other)]
        if all(units) and units[0] != units[1]:
            raise ValueError(
                f"{variable!r} is in {units[0]!r} in {first_name}, and in {units[1]!r} in {name}"
            )


def dataset_of_files(
    files: Sequence[DataFile], kind: str, storage_options: Mapping[str, Any] | None
) -> Any:
    """The pyarrow Dataset of files, all local or all behind URLs."""
    needed_package("pyarrow", "dataframe", f"the files hold {kind}")
    paths, others = [file.path for file in files], f" and {len(files) - 1} others"
    name = redact_url(paths[0]) + (others if len(files) > 1 else "")
    root = paths[0].removesuffix(files[0].name)
    if not is_remote(paths[0]):
        return dataset_of(paths, kind, None, name, root)
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    system, _ = file_system(paths[0], storage_options)
    places, root = [system._strip_protocol(path) for path in paths], system._strip_protocol(root)
    return dataset_of(places, kind, PyFileSystem(FSSpecHandler(system)), name, root)


@contextmanager
def naming(file: DataFile) -> Iterator[None]:
    """Errors of what is read inside name the file."""
    try:
        yield
    except RffStreamError as error:
        raise type(error)(f"{file.name}: {error}") from error
