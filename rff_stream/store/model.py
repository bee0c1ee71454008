"""Fitted models as Zarr v3 groups: saved with one commit, loaded only when every byte verifies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.store.arrays import decode
from rff_stream.store.entries import Entry
from rff_stream.store.files import Files, damaged, open_files
from rff_stream.store.layout import FIT, NewBatch, NewStore, write_store
from rff_stream.store.log import Log
from rff_stream.store.plain import parse
from rff_stream.store.records import Label, decode_moments, decode_row
from rff_stream.store.vouched import MAX_BYTES, read_vouched

__all__ = ["Root", "StoredModel", "load_model", "read_root", "save_model"]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """What a store gives back.

    Parameters
    ----------
    header : dict
        Plain values, as they were saved.
    arrays : dict of str to array
        Such as ``map/frequencies``; read-only.
    answers : dict of str to array
        What was solved from the moments; {} where batches came or went since: solve again.
    moments : dict of label to Moments, or None
        Per group, summed over all batches; None where the model was saved without.
    """

    header: dict[str, Any]
    arrays: dict[str, Array]
    answers: dict[str, Array]
    moments: dict[Label, Moments] | None


def save_model(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
    answers: Mapping[str, Array],
    moments: Mapping[Any, Moments] | None,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """A Zarr v3 group at ``path`` that :func:`load_model` gives back bit for bit.

    Parameters
    ----------
    path : path or URL
    header : dict
        Plain JSON values; floats are finite. Other numbers go into arrays.
    arrays : mapping of str to array
        float64, float32, int64 or uint64, named such as ``map/frequencies``.
    answers : mapping of str to array
        What was solved from the moments, named such as ``coef``.
    moments : mapping of label to Moments, or None
        Groups of one pass. None keeps only what prediction needs; batches cannot be
        added to such a model later.
    overwrite : bool
        Replace a model, at one instant; the old one is kept until then. Local paths only.
    storage_options : mapping, optional
        For URLs, as fsspec takes them.

    Raises
    ------
    ModelError
        When the path is taken, cannot be written, or a value cannot be kept; it names which.
    """
    row, order, batch = None, 2, None
    if moments is not None:
        batch = NewBatch(FIT, moments)
        row, order = _row_and_order(moments)
        batch = batch.checked(row, order)
    new = NewStore(header, arrays, answers, row=row, order=order, batch=batch)
    write_store(path, new, overwrite=overwrite, storage_options=storage_options)


def load_model(
    path: str | os.PathLike[str],
    *,
    max_bytes: int = MAX_BYTES,
    storage_options: Mapping[str, Any] | None = None,
) -> StoredModel:
    """The model at ``path``, every byte of it verified.

    Parameters
    ----------
    path : path or URL
    max_bytes : int
        Refuse a model that declares more, before memory is taken.
    storage_options : mapping, optional
        For URLs, as fsspec takes them.

    Raises
    ------
    ModelError
        When there is no model, it is of a newer format, or a file is missing, extra, a link
        or changed; it names the file.
    """
    files = open_files(path, storage_options)
    while True:
        before = files.identity()
        try:
            return _load(files, max_bytes)
        except ModelError:
            # Another process may have put a new model in this place under our hands.
            if files.identity() == before:
                raise


def _load(files: Files, max_bytes: int) -> StoredModel:
    log = Log.open(files)
    root = read_root(log, max_bytes)
    batches = list(log.state.live.values())
    unchanged = [b.data for b in batches] == [log.first.data] or log.last == 0
    groups = None if root.row is None else _sum_groups(log, root, max_bytes)
    answers = root.answers if unchanged else {}
    return StoredModel(root.header, root.arrays, answers, groups)
