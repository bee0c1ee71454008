"""Predictions -> Zarr, streamed: a new group that takes its name when it is whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rff_stream.errors import ModelError

__all__ = ["check_output", "sizes", "stacked", "write_predictions"]

METADATA = ("zarr.json", ".zgroup", ".zarray")


def check_output(output: str, overwrite: bool, *read: str) -> None:
    """Refuse a place that is read, taken, or no Zarr store; before anything is computed."""
    if "://" in output:
        return
    path = Path(output).absolute()
    for other in read:
        if path.resolve() == Path(other).resolve():
            raise ModelError(
                f"{output} is read by this command, so predictions cannot be written there. "
                f"Give --output another name."
            )
    if not path.parent.is_dir():
        raise ModelError(
            f"{output} cannot be written: there is no folder {path.parent}. Make it, or look at "
            f"the path."
        )
    if os.path.lexists(path):
        check_replaced(path, overwrite)


def check_replaced(path: Path, overwrite: bool) -> None:
    """Replace nothing but a Zarr store, and that only where it was asked for."""
    if not any((path / name).is_file() for name in METADATA):
        raise ModelError(
            f"{path} exists and is no Zarr store, so it is not replaced. Choose another name, or "
            f"remove it yourself."
        )
    if not overwrite:
        raise ModelError(
            f"{path} exists. Predictions replace nothing by accident: give --overwrite, or "
            f"choose another name."
        )


def stacked(columns: Any) -> Any:
    """Answers for plain arrays as one array (n, width)."""
    import dask.array as da

    return da.stack([column.astype(float) for column in columns], axis=-1)


def sizes(values: Any) -> dict[str, int]:
    """Length of each dimension; those of a plain array are rows and targets."""
    found = getattr(values, "sizes", None)
    if found is None:
        found = dict(zip(("rows", "targets"), values.shape, strict=False))
    return {str(dim): int(size) for dim, size in found.items() if dim != "targets"}


def write_predictions(
    values: Any, output: str, *, overwrite: bool, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Write lazy predictions, block by block, never more than a few in memory.

    Parameters
    ----------
    values : DataArray, Dataset or dask array
    output : path or URL
    overwrite : bool
        Replace a Zarr store; the old one stays until the new is whole (local paths).
    storage_options : mapping, optional
        For URLs.
    """
    if "://" in output:
        store(values, output, "w" if overwrite else "w-", storage_options)
        return
    with staged(Path(output).absolute()) as path:
        store(values, str(path), "w-", None)


def store(values: Any, path: str, mode: str, storage_options: Mapping[str, Any] | None) -> None:
    """Write a labelled group, or a plain array for plain arrays."""
    from rff_stream.cli.watching import Blocks

    options = None if storage_options is None else dict(storage_options)
    with warnings.catch_warnings(), Blocks():
        # xarray opens groups with consolidated metadata without a warning of its own.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        if hasattr(values, "to_dataset") or hasattr(values, "data_vars"):
            regular(values).to_zarr(path, mode=mode, zarr_format=3, storage_options=options)
            return
        values = values.rechunk([lengths[0] for lengths in values.chunks])
        values.to_zarr(path, storage_options=options, mode=mode)


def regular(values: Any) -> Any:
    """Chunks of one length along every dimension, as Zarr has them."""
    return values.chunk({dim: lengths[0] for dim, lengths in values.chunksizes.items()})


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A hidden sibling that takes the name when the block ends well, and else is removed."""
    from rff_stream.store.local import cannot_write

    own = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    old = own.with_suffix(".old")
    try:
        with cannot_write(str(path)):
            yield own
            if os.path.lexists(path):
                path.rename(old)
            own.rename(path)
    finally:
        shutil.rmtree(own, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
