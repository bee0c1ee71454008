"""What commands write: how it is recognised, where it may go, and predictions block by block."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import click

from rff_stream.cli.output import SOURCE, redact_text
from rff_stream.errors import ModelError
from rff_stream.progress import Progress
from rff_stream.store.atomic import OutputKind, check_target, exists, replacing
from rff_stream.store.batch_writing import MODEL
from rff_stream.store.files import cannot_write
from rff_stream.store.local import check_apart, local_path, open_files
from rff_stream.store.zarr_files import MAX_JSON, parse_loosely
from rff_stream.text_formatting import redact_url

OTHER_ENDINGS = (
    ".nc", ".nc4", ".csv", ".tsv", ".txt", ".xls", ".xlsx", ".ods", ".parquet", ".orc", ".json",
    ".jsonl", ".npy", ".npz", ".h5", ".hdf5", ".gz", ".zip",
)  # fmt: skip
"""Names of files that a Zarr store would be taken for."""


def is_marked(data: bytes, place: str) -> bool:
    """Whether ``zarr.json`` is that of predictions."""
    attributes = parse_loosely(data, place).get("attributes")
    source = attributes.get("source") if isinstance(attributes, dict) else None
    return isinstance(source, str) and source.startswith("rff_stream ")


def _are_predictions(path: str) -> bool:
    data = open_files(path).find("zarr.json", MAX_JSON) if os.path.isdir(path) else None
    return data is not None and is_marked(data, path)


def _is_page(path: str) -> bool:
    from rff_stream.report import GENERATOR  # loads pictures

    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return GENERATOR.encode() in file.read(4096)


PREDICTIONS = OutputKind("no Zarr store that rff-stream predicted", _are_predictions)
PAGE = OutputKind("no page that rff-stream report wrote", _is_page, folder=False)


def check_free(path: str | None, overwrite: bool, *read: str) -> None:
    """Refuse a place for a model that is taken, or is read, before anything is read."""
    if path is None:
        return
    check_lasting(path)
    check_apart(path, *read)
    place = local_path(path)
    if place is not None:
        check_target(place, overwrite, MODEL)


TABLE_OR_GRID = (
    " That of a table may also end in .parquet, .arrow or .csv. In Python, "
    "xarray.open_zarr(…).to_netcdf(…) makes a NetCDF file of that of a grid."
)
"""Other names of an output."""


def check_lasting(place: str, remedy: str = "") -> None:
    """Refuse a place that ends with this command, and the name of a file of another format."""
    ending = PurePath(place).suffix
    if ending in OTHER_ENDINGS:
        raise click.UsageError(
            f"{redact_text(place)} ends in {ending}, but a Zarr store is written. Give a name that "
            f"ends in .zarr.{remedy}"
        )
    if place.rpartition("::")[2].startswith("memory://"):
        raise ModelError(
            f"{place} lies in the memory of this command and would be gone when it ends. Choose a "
            "path, or the URL of a bucket."
        )


def check_output(
    output: str, overwrite: bool, *read: str, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Refuse a place that is read, taken, or no predictions; before anything is computed."""
    check_lasting(output, TABLE_OR_GRID)
    check_apart(output, *read)
    path = local_path(output)
    if path is not None:
        check_target(path, overwrite, PREDICTIONS)
        return
    data = open_files(output, storage_options).find("zarr.json", MAX_JSON)
    if data is not None and not overwrite:
        raise exists(redact_url(output))
    if data is not None and not is_marked(data, redact_url(output)):
        raise ModelError(
            f"{redact_url(output)} exists and is {PREDICTIONS.stranger}, so it is not replaced. "
            "Choose another place, or remove it yourself."
        )


def stack_columns(columns: Any) -> Any:
    """Answers for plain arrays as one array (n, width)."""
    import dask.array as da

    return da.stack([column.astype(float) for column in columns], axis=-1)


def combined(mean: Any, *others: Any) -> Any:
    """Predictions and k other values of each, as one Dataset or one array (n, (1 + k)T)."""
    if hasattr(mean, "data_vars") or hasattr(mean, "to_dataset"):
        parts = [each if hasattr(each, "data_vars") else each.to_dataset() for each in others]
        whole = mean if hasattr(mean, "data_vars") else mean.to_dataset()
        for name, *beside in zip(whole.data_vars, *(part.data_vars for part in parts), strict=True):
            whole[name].attrs["ancillary_variables"] = " ".join(beside)
        return functools.reduce(lambda found, part: found.merge(part), parts, whole)
    import dask.array as da

    columns = [each[:, None] if each.ndim == 1 else each for each in (mean, *others)]
    return da.concatenate(columns, axis=1)


def sizes(values: Any) -> dict[str, int]:
    """Length of each dimension; those of a plain array are rows and targets."""
    found = getattr(values, "sizes", None)
    if found is None:
        found = dict(zip(("rows", "targets"), values.shape, strict=False))
    return {str(dim): int(size) for dim, size in found.items() if dim != "targets"}


@contextlib.contextmanager
def destination(output: str, overwrite: bool) -> Iterator[str]:
    """Where predictions are written: they have the name of ``output`` when the block ends well.

    Enter it before threads are started: what they still write when one of them has failed is
    written before the block ends, and removed.
    """
    path = local_path(output)
    if path is None:
        yield output
        return
    with replacing(path, overwrite, PREDICTIONS) as beside:
        yield beside


def write_predictions(
    values: Any,
    path: str,
    output: str,
    *,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Write lazy predictions, block by block, never more than a few in memory.

    The path is that of :func:`destination`, the output its place in messages. Names of the
    columns of an array become its attribute.
    """
    import zarr

    remote = "://" in path
    options = dict(storage_options) if remote and storage_options is not None else None
    mode: Any = "w" if not remote or overwrite else "w-"  # a folder of our own, and empty
    with cannot_write(redact_url(output)), warnings.catch_warnings(), task_bar():
        # xarray opens groups with consolidated metadata without a warning of its own.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        if hasattr(values, "to_dataset") or hasattr(values, "data_vars"):
            steps = {dim: lengths[0] for dim, lengths in values.chunksizes.items()}  # as Zarr has
            values.chunk(steps).to_zarr(path, mode=mode, zarr_format=3, storage_options=options)
        else:
            values = values.rechunk([lengths[0] for lengths in values.chunks])
            values.to_zarr(path, storage_options=options, mode=mode)
        made: Any = zarr.open(path, mode="r+", storage_options=options)
        made.attrs["source"] = SOURCE
        if columns and isinstance(made, zarr.Array):
            made.attrs["columns"] = list(columns)


def task_bar() -> contextlib.AbstractContextManager[Any]:
    """A bar of the tasks of Dask's threads, a line a minute in logs."""
    from dask.callbacks import Callback

    bars: list[Progress] = []

    def start(dsk: Any, state: Mapping[str, Any]) -> None:
        left = sum(len(state[kind]) for kind in ("ready", "waiting", "running"))
        bars.append(Progress("writing", left, unit="task"))

    def end(*_: Any) -> None:
        if bars:  # none where the graph itself was refused
            bars.pop().__exit__(None, None, None)

    made: contextlib.AbstractContextManager[Any] = Callback(
        start_state=start, posttask=lambda *_: bars[-1].advance(1), finish=end
    )
    return made
