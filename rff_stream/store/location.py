"""Where a store lies: a local path or a URL, in whatever form it was given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rff_stream.store.files import Files
from rff_stream.store.local import LocalFiles

__all__ = ["local_path", "open_files"]

LOCAL = ("file://", "local://")
"""Schemes that name a path of this machine."""


def local_path(place: str | os.PathLike[str]) -> str | None:
    """The absolute path without links that a place means; None for other URLs."""
    text = os.fspath(place)
    scheme = next((scheme for scheme in LOCAL if text.startswith(scheme)), "")
    if not scheme and "://" in text:
        return None
    return os.path.realpath(text.removeprefix(scheme))


def open_files(
    place: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Files:
    """Files under a local path or a URL; touches nothing yet."""
    path = local_path(place)
    if path is not None:
        return LocalFiles(path)
    from rff_stream.store.remote import RemoteFiles  # loads fsspec

    return RemoteFiles.of(os.fspath(place), storage_options)
