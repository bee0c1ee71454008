"""Predictions of a table as a table: Parquet, Arrow or CSV, row by row and file by file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from rff_stream.cli.output import SOURCE, redact_text
from rff_stream.errors import ModelError
from rff_stream.store.atomic import OutputKind, check_target, replacing
from rff_stream.store.local import check_apart, local_path

if TYPE_CHECKING:
    from rff_stream.sources.data_files import DataFile

ENDINGS = (".parquet", ".arrow", ".feather", ".csv")
"""Names of tables that can be written."""

ROWS = 65_536
"""Rows that are predicted at a time; a row group of the output."""


def is_table(output: str) -> bool:
    """Whether a name is that of a table."""
    return output.lower().endswith(ENDINGS)


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What is written of each row."""

    values: Callable[[Any], Sequence[Any]]
    """A table in memory -> the columns that are predicted."""
    names: tuple[str, ...]  # of these columns
    inputs: tuple[str, ...]  # names of the inputs of the model
    keep: tuple[str, ...]  # columns of the data that stand before them


def files_to_predict(data: str, output: str, storage_options: Any) -> list[DataFile]:
    """The files of a table; refuses data that are no table."""
    from rff_stream.sources.data_files import files_at
    from rff_stream.sources.paths import format_of

    files = files_at(data, storage_options)
    if files is None or any(format_of(file.path) == "netcdf" for file in files):
        raise click.UsageError(
            f"{redact_text(output)} is a table, and {redact_text(data)} is none: it is no Parquet, "
            "Arrow or CSV file. Give a name that ends in .zarr: predictions have the dimensions of "
            "the data."
        )
    return files


def keeps_nothing(keep: Sequence[str], output: str | None) -> click.UsageError:
    """The error of columns that are to stand in what is no table."""
    other = "no --output is given" if output is None else f"{redact_text(output)} is no table"
    return click.UsageError(
        f"--keep {','.join(keep)} names columns of a table, but {other}. Give an --output that "
        "ends in .parquet, .arrow or .csv."
    )


def kind_of_output(files: Sequence[DataFile], output: str) -> OutputKind:
    """One file for one, a folder for several: how an earlier one is known."""
    end = Path(output).suffix.lower()
    if len(files) == 1:
        return OutputKind(f"no {end} file", lambda path: os.path.isfile(path), folder=False)

    def holds_tables(path: str) -> bool:
        found = [each for each in Path(path).rglob("*") if each.is_file()]
        return os.path.isdir(path) and all(each.suffix.lower() == end for each in found)

    return OutputKind(f"no folder of {end} files", holds_tables)


def check_table(files: Sequence[DataFile], output: str, overwrite: bool, *read: str) -> str:
    """The absolute path of an output; refuses one that is taken, read, or remote."""
    check_apart(output, *read)
    path = local_path(output)
    if path is None:
        raise ModelError(
            f"{redact_text(output)} is a URL, and tables are written to local paths. Write it here "
            "and copy it, or give a URL that ends in .zarr."
        )
    check_target(path, overwrite, kind_of_output(files, output))
    return path


def write_tables(
    files: Sequence[DataFile],
    request: TableRequest,
    path: str,
    output: str,
    overwrite: bool,
    storage_options: Any,
) -> int:
    """Predict all rows, in their order, and write them; how many there are.

    Several files make a folder of files of the same names.
    """
    end, rows = Path(output).suffix, 0
    with replacing(path, overwrite, kind_of_output(files, output)) as beside:
        for file in files:
            place = beside
            if len(files) > 1:
                place = str((Path(beside) / file.name).with_suffix(end))
                os.makedirs(os.path.dirname(place), exist_ok=True)
            rows += write_table(file, request, place, storage_options)
    return rows


def write_table(file: DataFile, request: TableRequest, place: str, storage_options: Any) -> int:
    """One file of predictions."""
    import pyarrow as pa

    from rff_stream.sources.data_files import naming
    from rff_stream.sources.paths import dataset, format_of

    opened = dataset(file.path, format_of(file.path), storage_options)
    kept, rows = kept_columns(opened.schema, request, file.name), 0
    stems = {stem for name in request.inputs for stem in stems_of(name)}
    names = opened.schema.names
    used = [name for name in names if name in {*request.inputs, *stems, *kept}]
    if any(not {name, *stems_of(name)} & {*names} for name in request.inputs):
        used = names  # by place; or none is found, and the error names all that there are
    with ExitStack() as stack, naming(file):
        write = None
        for batch in batches_in_order(opened, used):
            table = pa.Table.from_batches([batch])
            found = request.values(table) if len(table) else [np.empty(0)] * len(request.names)
            arrays = [pa.array(each) for each in found]
            made = pa.table(
                [*(table.column(name) for name in kept), *arrays], names=[*kept, *request.names]
            ).replace_schema_metadata(metadata(opened.schema, kept))
            if write is None:
                write = stack.enter_context(writer(place, made.schema))
            write(made)
            rows += len(made)
    return rows


def stems_of(name: str) -> set[str]:
    """Columns that an input of this name may be made of: of a level, a place or a field."""
    return {name.partition(mark)[0] for mark in "=[."}


def batches_in_order(opened: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Rows in the order of the file; at least one batch, of no rows."""
    import pyarrow as pa

    some = False
    for batch in opened.scanner(columns=list(columns), batch_size=ROWS).to_batches():
        if len(batch):
            some = True
            yield batch
    if not some:
        schema = pa.schema([opened.schema.field(name) for name in columns])
        yield pa.RecordBatch.from_pylist([], schema=schema)


def kept_columns(schema: Any, request: TableRequest, name: str) -> list[str]:
    """Columns that stand before the predictions: the index of pandas, and those asked for."""
    from rff_stream.sources.arrow_and_parquet import noted_index

    absent = [column for column in request.keep if column not in schema.names]
    if absent:
        raise click.UsageError(
            f"--keep {absent[0]} is no column of {name}. It has: {', '.join(schema.names)}."
        )
    kept = list(dict.fromkeys([*noted_index(schema), *request.keep]))
    both = [column for column in kept if column in request.names]
    if both:
        raise click.UsageError(
            f"{both[0]} would be a column of {name} that is kept and one of predictions. A table "
            f"has each name once. Leave it out of --keep, or rename it in the data."
        )
    return kept


def metadata(schema: Any, kept: Sequence[str]) -> dict[str, str]:
    """Who wrote the table, and what pandas reads its index by: columns, or a range in the notes."""
    from rff_stream.sources.arrow_and_parquet import pandas_of

    notes = pandas_of(schema)
    noted = notes.get("index_columns", ())
    index = [each for each in noted if isinstance(each, dict) or each in kept]
    found = {"source": SOURCE}
    if index:
        known = [each for each in notes["columns"] if each["field_name"] in index]
        notes = {"index_columns": index, "column_indexes": [], "columns": known}
        found["pandas"] = json.dumps(notes)
    return found


@contextmanager
def writer(place: str, schema: Any) -> Iterator[Callable[[Any], None]]:
    """A function that adds rows to a file of the format that its name says."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    end = Path(place).suffix.lower()
    if end == ".csv":
        made: Any = pyarrow.csv.CSVWriter(place, schema)
    elif end == ".parquet":
        made = pq.ParquetWriter(place, schema, write_page_checksum=True)
    else:
        made = pa.ipc.new_file(place, schema)
    with made:
        yield made.write_table
