"""Results of whole reads, beside a checkpoint: each a small store named by its question."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.moments import Moments
from rff_stream.store.canonical_json import MAX_JSON
from rff_stream.store.location import open_files
from rff_stream.store.model import StoredModel, load_model, save_model

__all__ = ["Passes"]

FOLDER = "passes"


class Passes:
    """What reads of all rows gave, under the sha256 of what they were asked; written once.

    A computation that asks the same again, and again in the same order, goes on where it was
    stopped without knowing that it was.

    Parameters
    ----------
    checkpoint : path or URL
        Where the checkpoint of the same fit lies; they go together.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = f"{os.fspath(checkpoint).rstrip('/')}/{FOLDER}"
        self._options = storage_options

    def find(self, question: str) -> StoredModel | None:
        """The answer, every byte of it verified; None where the question is new."""
        path = f"{self._path}/{question}"
        if open_files(path, self._options).find("zarr.json", MAX_JSON) is None:
            return None
        return load_model(path, storage_options=self._options)

    def save(
        self,
        question: str,
        header: Mapping[str, Any],
        arrays: Mapping[str, Array],
        moments: Moments | None = None,
    ) -> None:
        """Keep an answer; another driver may have been faster with the same."""
        path, groups = f"{self._path}/{question}", None if moments is None else {None: moments}
        if "://" not in path:
            os.makedirs(self._path, exist_ok=True)
        try:
            save_model(path, header, arrays, {}, groups, storage_options=self._options)
        except ModelError:
            if self.find(question) is None:
                raise
