"""Tables through Arrow: polars, pyarrow, DuckDB and whatever else gives Arrow batches.

A table in memory gives its columns. Parquet is read by row groups, where the work is done. What
can only be read from its start (a lazy query, a DuckDB relation, CSV) is written once, batch by
batch and only the columns that are needed, to a temporary Parquet file, and read from there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.arrays import as_it_is
from rff_stream.sources.columns import align
from rff_stream.sources.container_types import is_from, is_names, needed_package
from rff_stream.sources.protocol import Bounds
from rff_stream.sources.request import Selection
from rff_stream.sources.rows import NonNumbers, Numbers
from rff_stream.sources.tables import Table
from rff_stream.sources.variables import Variable, VariablesSource, boundaries, variable_of
from rff_stream.text_formatting import cause_words, hide_options

GROUP_ROWS = 65_536
"""Rows in a row group of a temporary file: about a leaf."""

FILES = "pyarrow._dataset.FileSystemDataset"

IN_MEMORY = ("polars.dataframe", "pyarrow.lib.Table", "pyarrow.lib.RecordBatch")


def open_container(selection: Selection) -> VariablesSource:
    """A source of the rows of a table in memory, a query or a dataset."""
    X = selection.X
    pa = needed_package("pyarrow", "dataframe", f"X is a {type(X).__module__}.{type(X).__name__}")
    if any(is_from(X, each) for each in IN_MEMORY):
        return align(ArrowTable(pa.table(X)), selection).source(as_it_is, selection)
    return open_dataset(selection) if is_from(X, "pyarrow._dataset") else open_query(selection)


def table_of(X: Any) -> Table:
    """The columns of a table in memory by name."""
    pa = needed_package("pyarrow", "dataframe", f"X is a {type(X).__module__}.{type(X).__name__}")
    return ArrowTable(pa.table(X))


class ArrowTable(Table):
    """The columns of an Arrow table in memory."""

    def __init__(self, table: Any) -> None:
        def column(name: str) -> Variable:
            kind, stored = table.schema.field(name).type, table.column(name)
            values = arrow_values(name, stored.chunks, kind, stored.null_count > 0)
            return variable_of(name, ("rows",), values, holds=no_numbers_of(kind))

        super().__init__(
            schema_names(table.schema), column, "the table", index=index_of(table.schema)
        )


def pandas_of(schema: Any) -> dict[str, Any]:
    """What pandas wrote of a table."""
    found: dict[str, Any] = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    return found


def noted_index(schema: Any) -> list[str]:
    """Columns that pandas wrote its index to, by its notes."""
    noted = pandas_of(schema).get("index_columns", ())
    return [each for each in noted if isinstance(each, str) and each in schema.names]


def index_of(schema: Any) -> list[str]:
    """Columns that pandas wrote its index to: by its notes, or by the names that it gives them.

    A reader may have dropped the notes; CSV has none, and the name is empty there.
    """
    named = [name for name in schema.names if re.fullmatch(r"(__index_level_\d+__)?", name)]
    return [*noted_index(schema), *named]


def schema_names(schema: Any) -> list[str]:
    """Names of the columns, each once."""
    names = [str(name) for name in schema.names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"The table has several columns named {twice!r}. Columns are found by name, so each "
            f"has its own. Rename them."
        )
    return names


def open_dataset(selection: Selection) -> VariablesSource:
    """A source of the rows of a pyarrow Dataset: Parquet by row groups, others through a copy."""
    dataset = selection.X
    has_files = is_from(dataset, FILES)
    if not has_files or dataset.format.default_extname != "parquet" or is_filtered(dataset):
        return open_query(selection)
    groups = RowGroups.of(dataset)
    builder = align(stored_table(groups), selection)
    for variable in builder.variables:
        if isinstance(variable.data, RowGroupsColumn):  # else values beside the table
            check_column(groups.fragments, variable.data.name)
    return builder.source(as_it_is, selection)


def one_schema(files: Sequence[Any], schema: Any) -> Any:
    """The schema of several files: a column of numbers has a type that holds those of every file.

    That of a dataset is of its first file.
    """
    if len(files) > 1:
        kinds = [types_in(files, field.name) for field in schema]
        for i, (field, own) in enumerate(zip(schema, kinds, strict=True)):
            if len(own) > 1:
                schema = schema.set(i, field.with_type(common_type(field.type, list(own))))
    return schema


def types_in(files: Sequence[Any], name: str) -> dict[Any, str]:
    """The types that a column has in some files, each with the name of a file."""
    found: dict[Any, str] = {}
    for file in files:
        schema = file.physical_schema
        if (place := schema.get_field_index(name)) >= 0:
            found.setdefault(schema.field(place).type, Path(str(file.path)).name)
    return found


def common_type(first: Any, kinds: Sequence[Any]) -> Any:
    """The type of a column of several: numbers of every file are in it; else that of the first."""
    import pyarrow as pa

    types = pa.types
    known = [kind for kind in kinds if not types.is_null(kind)]
    if known and all(types.is_integer(kind) or types.is_floating(kind) for kind in known):
        whole = all(types.is_integer(kind) for kind in known) and pa.uint64() not in known
        return pa.int64() if whole else pa.float64()
    return known[0] if known and types.is_null(first) else first


def check_column(files: Sequence[Any], name: str) -> None:
    """Refuse a column that a file lacks, as its rows are not those with missing values.

    And one of truths in one file and numbers in another, which became truths; and one of times
    with a zone and without.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    for file in files:
        partition = ds.get_partition_keys(file.partition_expression)
        if name not in file.physical_schema.names and name not in partition:
            raise DataError(
                f"{Path(str(file.path)).name} has no column {name!r}, which other files have. Give "
                f"the files that have it, or write it, empty where values are missing."
            )
    kinds = types_in(files, name)
    truths = {pa.types.is_boolean(kind) for kind in kinds if not pa.types.is_null(kind)}
    zones = {kind.tz is not None for kind in kinds if pa.types.is_timestamp(kind)}
    if len(truths) > 1 or len(zones) > 1:
        told = " and ".join(f"{kind} in {file}" for kind, file in kinds.items())
        raise DataError(
            f"Column {name!r} is {told}, and neither can stand for the other. A column has one "
            f"kind of values in all files. Write them alike."
        )


def is_filtered(dataset: Any) -> bool:
    """Whether rows of its files are left out: such a dataset has no fragments."""
    try:
        dataset.get_fragments()
    except ValueError:  # pyarrow has no other way to ask
        return True
    return False


def open_query(selection: Selection) -> VariablesSource:
    """A source of what is read from its start only: written once to a temporary file."""
    import pyarrow.dataset as ds

    X = selection.X
    files = () if not is_from(X, FILES) or is_filtered(X) else tuple(X.get_fragments())
    if files:
        with readable():
            schema = one_schema(files, X.schema)
        X = ds.FileSystemDataset(files, schema, X.format, X.filesystem)
    used = columns_asked_for(schema_of(X), selection)
    for name in used:
        check_column(files, name)
    groups = RowGroups.of(*written(X, used))
    return align(stored_table(groups), selection).source(as_it_is, selection)


def schema_of(X: Any) -> Any:
    """Names and types of a query, which is not run."""
    import pyarrow as pa

    if is_from(X, "polars.lazyframe"):
        return X.limit(0).collect().to_arrow().schema
    if is_from(X, "duckdb"):
        return X.limit(0).to_arrow_table().schema
    if is_from(X, "pyarrow._dataset"):
        return X.schema
    if hasattr(X, "__arrow_c_schema__"):
        return pa.schema(X)
    return pa.RecordBatchReader.from_stream(X).schema


def columns_asked_for(schema: Any, selection: Selection) -> list[str]:
    """Names of the columns that rows are made of."""
    table = ArrowTable(schema.empty_table())
    roles = {role: getattr(selection, role) for role in ("y", "sample_weight", "by")}
    beside: dict[str, Any] = {
        role: None for role, each in roles.items() if not (isinstance(each, str) or is_names(each))
    }
    builder = align(table, replace(selection, **beside))
    return [variable.name for variable in builder.variables]


@contextmanager
def readable() -> Iterator[None]:
    """Errors of Arrow about rows that are read inside are errors of the data, with a remedy."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as cause:
        raise DataError(
            f"The rows cannot be read: {cause_words(cause)}. Every file must be whole and have the "
            f"same columns, and a column one type: that of its first values in CSV, where 1 is an "
            f"integer and 1.0 is none."
        ) from cause


def written(X: Any, columns: Sequence[str]) -> tuple[Any, Folder]:
    """A dataset of one temporary Parquet file with these columns, and its folder.

    Raises DataError: values are not of the type of their column, or a file is damaged.
    """
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    folder = Folder()
    if is_from(X, "polars.lazyframe"):
        X.select(list(columns)).sink_parquet(folder.rows, row_group_size=GROUP_ROWS)
        return ds.dataset(folder.rows, format="parquet"), folder
    batches = batches_of(X, columns)
    with (
        pq.ParquetWriter(folder.rows, batches.schema, write_page_checksum=True) as writer,
        readable(),
    ):
        for batch in batches:
            writer.write_batch(batch, row_group_size=GROUP_ROWS)
    return ds.dataset(folder.rows, format="parquet"), folder


def batches_of(X: Any, columns: Sequence[str]) -> Any:
    """The columns as a reader of Arrow batches."""
    import pyarrow as pa

    if is_from(X, "duckdb"):
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        return X.project(quoted).to_arrow_reader(GROUP_ROWS)
    if is_from(X, "pyarrow._dataset"):
        return X.scanner(columns=list(columns), batch_size=GROUP_ROWS).to_reader()
    reader = pa.RecordBatchReader.from_stream(X)
    schema = pa.schema([reader.schema.field(name) for name in columns])
    picked = (batch.select(list(columns)) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, picked)


class Folder:
    """A temporary folder that goes when nothing refers to it any more.

    A copy in another process knows the path alone and deletes nothing.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="rff_stream-"))
        self.rows = self.path / "rows.parquet"
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @cached_property
    def content(self) -> str:
        """sha256 of the rows: read once, as nothing writes to them any more."""
        with open(self.rows, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def stored_table(groups: RowGroups) -> Table:
    """The columns of Parquet files."""

    def column(name: str) -> Variable:
        kind = groups.kind(name)
        nulls = dtype_depends_on_nulls(kind) and groups.may_have_nulls(name)
        stored = RowGroupsColumn(groups, name, nulls, arrow_values(name, [], kind, nulls).dtype)
        holds = no_numbers_of(kind)
        return Variable(name, ("rows",), stored, "lazy", stored.bounds(), True, holds=holds)

    schema = groups.schema
    return Table(schema_names(schema), column, "the table", index=index_of(schema))


@dataclass(frozen=True, slots=True, eq=False)
class RowGroups:
    """Parquet files as runs of rows: small, picklable, read where the work is done."""

    fragments: tuple[Any, ...]
    groups: tuple[tuple[int, int], ...]  # (fragment, row group)
    edges: tuple[int, ...]  # rows before each row group, then all
    schema: Any
    categories: Mapping[str, Any]
    """Types of columns that were categories of numbers or times when they were written. Parquet
    has categories of text only, and keeps the type beside the values."""
    folder: Folder | None = None  # the temporary folder that they lie in

    @classmethod
    def of(cls, dataset: Any, folder: Folder | None = None) -> RowGroups:
        """The row groups of a dataset: reads the footer of every file."""
        fragments = tuple(sorted(dataset.get_fragments(), key=lambda each: str(each.path)))
        groups, lengths = [], []
        for i, fragment in enumerate(fragments):
            for group in fragment.row_groups:
                groups.append((i, int(group.id)))
                lengths.append(int(group.num_rows))
        with readable():
            schema = one_schema(fragments, dataset.schema)
        categories = categories_written(fragments[0], schema) if fragments else {}
        return cls(fragments, tuple(groups), boundaries(lengths), schema, categories, folder)

    def kind(self, name: str) -> Any:
        """The Arrow type of a column when it was written."""
        return self.categories.get(name, self.schema.field(name).type)

    def may_have_nulls(self, name: str) -> bool:
        """Whether a column lacks values in any row group: True where its footer does not say."""
        return self.schema.field(name).nullable and any(
            has_nulls(fragment, name) for fragment in self.fragments
        )

    def column(self, name: str, lo: int, hi: int, nulls: bool) -> Array:
        """Values lo:hi of a column, which ``nulls`` says may lack some; checksums are looked at."""
        first = max(bisect_right(self.edges, lo) - 1, 0)
        last = first
        while last < len(self.groups) and self.edges[last] < hi:
            last += 1
        parts = []
        for i, run in groupby(self.groups[first:last], key=lambda group: group[0]):
            some = self.fragments[i].subset(row_group_ids=[group for _, group in run])
            options = some.format.default_fragment_scan_options
            options.page_checksum_verification = True
            table = some.to_table(
                schema=self.schema, columns=[name], use_threads=False,
                fragment_scan_options=options,
            )  # fmt: skip
            parts.append(table.column(name))
        chunks = [chunk for part in parts for chunk in part.chunks]
        if name in self.categories:
            chunks = [chunk.dictionary_encode() for chunk in chunks]
        values = arrow_values(name, chunks, self.kind(name), nulls)
        return values[lo - self.edges[first] :][: hi - lo]

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """The options of the file system: in a worker no one else knows what is secret."""
        system = getattr(self.fragments[0].filesystem, "handler", None)
        return getattr(getattr(system, "fs", None), "storage_options", None) or {}

    def identity(self) -> list[Any]:
        """Path, size and time of every file; what is in it where it is a temporary one."""
        if self.folder is not None:
            return [self.folder.content]
        return [
            [info.path, info.size, info.mtime_ns]
            for fragment in self.fragments
            for info in [fragment.filesystem.get_file_info(fragment.path)]
        ]


def categories_written(fragment: Any, schema: Any) -> dict[str, Any]:
    """Types of columns that are categories in the Arrow schema of a file, and not in this one."""
    import pyarrow as pa

    kept = (fragment.metadata.metadata or {}).get(b"ARROW:schema")
    if kept is None:
        return {}
    written = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(kept)))
    coded = {field.name for field in written if pa.types.is_dictionary(field.type)}
    return {
        field.name: pa.dictionary(pa.int32(), field.type)
        for field in schema
        if field.name in coded and not pa.types.is_dictionary(field.type)
    }


def has_nulls(fragment: Any, name: str) -> bool:
    """Whether a column of a file lacks values, by the statistics of its row groups."""
    import pyarrow.dataset as ds

    if name in ds.get_partition_keys(fragment.partition_expression):
        return False
    footer = fragment.metadata
    names = [footer.schema.column(i).path for i in range(footer.num_columns)]
    if name not in names:
        return True
    groups = (footer.row_group(each.id) for each in fragment.row_groups)
    columns = (group.column(names.index(name)).statistics for group in groups)
    return any(each is None or not each.has_null_count or each.null_count for each in columns)


@dataclass(frozen=True, slots=True, eq=False)
class RowGroupsColumn:
    """One column of Parquet files, to be sliced."""

    files: RowGroups
    name: str
    nulls: bool  # whether any row group may lack values
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int]:
        """Rows."""
        return (self.files.edges[-1],)

    def bounds(self) -> Bounds:
        """Where row groups begin and end."""
        return (tuple(sorted({*self.files.edges})),)

    def __getitem__(self, key: tuple[slice, ...]) -> Array:
        part = key[0]
        try:
            return self.files.column(self.name, part.start, part.stop, self.nulls)
        except DataError:
            raise
        except Exception as cause:
            hide_options(self.files.storage_options)
            raise DataError(
                f"Column {self.name!r} could not be read: {cause_words(cause)}. Every "
                f"file must be whole and where it was when the run began; if it is a temporary "
                f"file of a query, all workers must see the folder for temporary files."
            ) from cause


def arrow_values(name: str, chunks: Any, kind: Any, nulls: bool) -> Array:
    """Arrow chunks of a column in numpy: nulls are NaN, NaT or None; times have no zone (UTC).

    Integers and truth values are float64 where the column may have ``nulls``, in these chunks or
    in others: so all parts of it have one dtype.

    Raises DataError: such integers are no float64.
    """
    import pyarrow as pa

    column = pa.chunked_array(chunks, type=kind)
    types = pa.types
    if types.is_dictionary(kind):
        plain = pa.string() if types.is_string_view(kind.value_type) else kind.value_type
        chunks = [chunk.dictionary.cast(plain).take(chunk.indices) for chunk in column.chunks]
        if types.is_boolean(plain) and nulls:  # levels True and False, not 1 and 0
            return np.asarray(pa.chunked_array(chunks, type=plain).to_numpy(), object)
        return arrow_values(name, chunks, plain, nulls)
    if types.is_integer(kind) and nulls:
        Numbers(name)(column.drop_null().to_numpy())
        column = column.cast(pa.float64(), safe=False)
    elif types.is_decimal(kind) or types.is_null(kind):  # the type of a column without any value
        column = column.cast(pa.float64(), safe=False)
    elif types.is_boolean(kind) and nulls:
        column = column.cast(pa.uint8()).cast(pa.float64())
    elif types.is_date(kind):
        column = column.cast(pa.timestamp("s") if types.is_date32(kind) else pa.timestamp("ms"))
    values: Array = column.to_numpy()
    return values


def dtype_depends_on_nulls(kind: Any) -> bool:
    """Whether numpy has no null of an Arrow type: integers and truth values, also as categories."""
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_integer(plain) or pa.types.is_boolean(plain))


def no_numbers_of(kind: Any) -> NonNumbers | None:
    """What an Arrow column holds that is no number or time; None for numbers and times."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return NonNumbers("categories", str(kind))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return NonNumbers("strings", str(kind))
    numbers = (
        types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null,
    )  # fmt: skip
    times = (types.is_timestamp, types.is_date, types.is_duration)
    known = any(each(kind) for each in (*numbers, *times))
    return None if known else NonNumbers("objects", str(kind))
