"""The few file operations that a store needs; its guarantees depend on them.

On a local disk they need POSIX (Linux, macOS): folders that are open, links that are refused,
locks. Elsewhere a local store is refused with the reason, and all else works.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from rff_stream.errors import ModelError

DIRECTORY: int = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
IS_POSIX = hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW")

CLAIMS = "claims"
"""Folder of objects in a bucket: each says that a process commits or removes some data."""


class Files(Protocol):
    """Files under one root, by names such as ``log/00000000000000000000/zarr.json``.

    No operation follows a link, leaves the root or replaces a file that is there.
    """

    place: str
    """The root in messages, without secrets."""

    def find(self, name: str, at_most: int) -> bytes | None:
        """The bytes of a file, or None where there is none; refuses more than ``at_most``."""

    def find_all(self, at_most: Mapping[str, int]) -> dict[str, bytes | None]:
        """What :meth:`find` gives of several files."""

    def take(self, folder: str, at_most: Mapping[str, int]) -> dict[str, bytes | None]:
        """Every file under a folder: the bytes of those named, None for others; as :meth:`find`."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Name and bytes of every file under a folder; {} where there is none."""

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in a folder, sorted; [] where there is none."""

    def below(self, folder: str) -> Files:
        """Files under a folder, which is then the root."""

    def require_exclusive_puts(self) -> None:
        """Refuse a place where :meth:`create` would let two writers win."""

    def write(self, name: str, data: bytes) -> None:
        """A new file, durable once settled; refuses to replace one."""

    def settle(self, names: Iterable[str]) -> None:
        """Return when these files, and the folders above them, survive a loss of power."""

    def create(self, name: str, data: bytes) -> bool:
        """A whole new file at one instant, by one writer; False where another one was first."""

    def remove(self, folder: str) -> None:
        """Remove a folder and what is in it, as far as that goes."""

    def recover(self) -> bool:
        """Whether a root that a killed writer had moved aside has its name again."""

    def hold(self, folder: str) -> contextlib.AbstractContextManager[bool]:
        """Keep old data for one process, to commit or to remove them; False: another has them."""

    def pinned(self) -> contextlib.AbstractContextManager[Files]:
        """The files of the root that is there now, though another root takes its place."""

    def age(self, name: str) -> float:
        """Seconds since the last change of a file."""

    def identity(self) -> object:
        """Another value when another root was put in this place."""


def damage(place: str, name: str, fact: str) -> ModelError:
    """The error for a file that is not what its commit says."""
    return ModelError(
        f"{place}/{name} {fact}. A file that fails this check is not loaded: restore the file "
        "from a copy, or fit the model again."
    )


@contextlib.contextmanager
def cannot_write(place: str) -> Iterator[None]:
    """Turn what the system says into an error that names the place."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "error")
        raise ModelError(
            f"{place} cannot be written: {error.strerror} ({code}). What was committed before is "
            "unchanged. Look at the free space, the permissions and the mount, then run again."
        ) from error


def check_posix(place: str) -> None:
    """Refuse a local store where the system has no POSIX files.

    Raises
    ------
    ModelError
        Naming the place and the system.
    """
    if IS_POSIX:
        return
    raise ModelError(
        f"{place} is on a local disk of {sys.platform}, but stores and models on a local disk need "
        "POSIX files (locks, open folders, links that can be refused), which this system does not "
        "have. Save to an object store (s3://…), or work in WSL, a container or another Unix."
    )


def lock(descriptor: int) -> None:
    """Lock an open folder for this process.

    Raises
    ------
    OSError
        Another process holds it, or nothing can be locked here.
    """
    import fcntl  # absent outside POSIX, where no store is opened

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
