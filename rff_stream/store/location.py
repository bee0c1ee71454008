"""Where a store lies: a local path or a URL, in whatever form it was given."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import Any

from rff_stream.errors import ModelError
from rff_stream.store.files import Files
from rff_stream.store.local import LocalFiles
from rff_stream.words import redact_url

LOCAL = ("file://", "local://")
"""Schemes that name a path of this machine."""

ALIASES = {"s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
"""Schemes by the one that means the same."""


def local_path(place: str | os.PathLike[str]) -> str | None:
    """The absolute path without links that a place means; None for other URLs."""
    text = os.fsdecode(place)
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

    return RemoteFiles.of(os.fsdecode(place), storage_options)


def check_apart(output: str | os.PathLike[str], *read: str | os.PathLike[str]) -> None:
    """Refuse to write where something is read: in it, above it, or in its place.

    Paths are compared as what they lead to: relative ones, links, ``file://``, letters of
    another case where the disk does not tell them apart.

    Raises
    ------
    ModelError
        Naming what is read.
    """
    for other in read:
        if _is_within(output, other) or _is_within(other, output):
            shown, place = redact_url(os.fspath(output)), redact_url(os.fspath(other))
            raise ModelError(
                f"{shown} cannot be written: {place} is read by this command, and lies there, "
                "above it or within it. Choose another place."
            )


def _is_within(place: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether a place is another, or lies within it."""
    path, above = (local_path(_last(each)) for each in (place, other))
    if path is None or above is None:
        return path is above is None and f"{_plain(place)}/".startswith(f"{_plain(other)}/")
    try:
        known = os.stat(above)
    except OSError:
        return f"{path}/".startswith(f"{above}/")
    while not os.path.exists(path):  # a link that leads nowhere is nowhere either
        path = os.path.dirname(path)
    while not os.path.samestat(os.stat(path), known):
        if path == (path := os.path.dirname(path)):
            return False
    return True


def _last(place: str | os.PathLike[str]) -> str:
    """Where the bytes of a chain of URLs lie: "simplecache::file:///x" is "file:///x"."""
    return os.fspath(place).rpartition("::")[2]


def _plain(url: str | os.PathLike[str]) -> str:
    """A URL without user, query and detours, and with one name for each scheme."""
    scheme, _, rest = _last(url).partition("://")
    rest = rest.partition("?")[0].rpartition("@")[2]
    return f"{ALIASES.get(scheme, scheme)}://{posixpath.normpath(rest)}"
