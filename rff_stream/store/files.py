"""The few file operations that a store needs; its guarantees depend on them.

On a local disk they need POSIX (Linux, macOS): folders that are open, links that are refused,
locks. Elsewhere a local store is refused with the reason, and all else works.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rff_stream.errors import ModelError
from rff_stream.process_memory import available_memory

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

    def write(self, name: str, data: Contents) -> None:
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

    Raises ModelError: naming the place and the system.
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

    Raises OSError: another process holds it, or nothing can be locked here.
    """
    import fcntl  # absent outside POSIX, where no store is opened

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


Manifest = dict[str, list[Any]]
"""Name of a file -> [bytes, sha256]."""

MAX_BYTES = 64 * 2**30
"""The most that one model may take in memory, whatever there is."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The bytes of a file, one piece after the other: it may be gigabytes that are not copied."""

    parts: tuple[memoryview, ...]

    def __len__(self) -> int:
        return sum(each.nbytes for each in self.parts)

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


Contents = bytes | Pieces


def pieces_of(data: Contents) -> tuple[memoryview, ...]:
    """The bytes of a file in pieces."""
    return data.parts if isinstance(data, Pieces) else (memoryview(data),)


def sha256(data: Contents) -> str:
    """64 hexadecimal digits."""
    found = hashlib.sha256()
    for each in pieces_of(data):
        found.update(each)
    return found.hexdigest()


def write_vouched(files: Files, contents: Iterable[tuple[str, Contents]]) -> Manifest:
    """Write new files, durably; returns what a commit says of them.

    What was written is removed again when one of them fails: a full disk gets its room back.
    """
    manifest: Manifest = {}
    try:
        for name, data in contents:
            files.write(name, data)
            manifest[name] = [len(data), sha256(data)]
        files.settle(manifest)
    except BaseException:
        for name in manifest:
            files.remove(name)
        raise
    return manifest


def read_verified(files: Files, manifest: Manifest, max_bytes: int | None) -> dict[str, bytes]:
    """Every file of a manifest, each read once and verified; any difference is refused.

    Raises ModelError: names the file that is missing, extra, a link, or of other bytes than its
    commit says; or gives the bytes where all of them together are more than ``max_bytes``.
    """
    check_size(files.place, manifest, max_bytes)
    try:
        return _read_all(files, manifest)
    except MemoryError as error:
        total = sum(size for size, _ in manifest.values())
        raise ModelError(
            f"{files.place} takes {total:,} bytes in memory, and so much is not free. Leave more "
            "memory free; a model from an untrusted source may be made to fill it."
        ) from error


def most_bytes() -> int:
    """Bytes that a model may take unless the caller says otherwise: the memory there is."""
    limit = memory_limit()
    return min(MAX_BYTES, MAX_BYTES if limit is None else limit, available_memory())


def memory_limit() -> int | None:
    """Bytes that this process may take (``ulimit -v``); None where there is no such limit."""
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else int(limit)


def _read_all(files: Files, manifest: Manifest) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for root, mine in by_root(manifest).items():
        at_most = {name: size for name, (size, _) in mine.items()}
        data = files.take(root, at_most) if root else files.find_all(at_most)
        check_names(files.place, mine, data)
        found |= {name: verify_bytes(files.place, name, mine, data[name]) for name in mine}
    return found


def verify_bytes(place: str, name: str, manifest: Manifest, data: bytes | None) -> bytes:
    """The bytes of one file, if they are those of its commit."""
    size, wanted = manifest[name]
    if data is None:
        raise damage(place, name, "is missing")
    if len(data) != size:
        raise damage(place, name, f"has {len(data):,} bytes, but its commit says {size:,}")
    if (found := sha256(data)) != wanted:
        what = f"has sha256 {found[:12]}…, but its commit says {wanted[:12]}…"
        raise damage(place, name, what)
    return data


def check_size(place: str, manifest: Manifest, max_bytes: int | None) -> None:
    """Refuse before anything is allocated."""
    total = sum(size for size, _ in manifest.values())
    max_bytes = most_bytes() if max_bytes is None else max_bytes
    if total > max_bytes:
        raise ModelError(
            f"{place} takes {total:,} bytes in memory, but max_bytes={max_bytes:,}. Raise "
            "max_bytes if this is expected; an untrusted model may be made to fill memory."
        )


def check_names(place: str, manifest: Manifest, found: Iterable[str]) -> None:
    """Refuse files that are missing or extra in a folder that a manifest owns."""
    for name in sorted(manifest.keys() - found):
        raise damage(place, name, "is missing")
    for name in sorted({*found} - manifest.keys()):
        raise damage(place, name, "is an extra file that no commit names")


def by_root(manifest: Manifest) -> dict[str, Manifest]:
    """The part of a manifest in each folder that belongs to its commit."""
    found: dict[str, Manifest] = {}
    for name in sorted(manifest, key=root_of):
        found.setdefault(root_of(name), {})[name] = manifest[name]
    return found


def root_of(name: str) -> str:
    """The folder that belongs to the commit of a file; "" for metadata of a shared folder."""
    parts = name.split("/")
    if parts[0] in ("data", "answers"):
        return "/".join(parts[:2]) if len(parts) > 2 else ""
    return parts[0] if len(parts) > 1 and parts[0] != "log" else ""
