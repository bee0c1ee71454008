"""Files on a local or network file system: links are not followed, writes are synced to disk."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rff_stream.arguments import PATH
from rff_stream.errors import ModelError
from rff_stream.store.atomic import recover
from rff_stream.store.files import (
    DIRECTORY,
    NOFOLLOW,
    NONBLOCK,
    Contents,
    Files,
    cannot_write,
    check_posix,
    damage,
    pieces_of,
)
from rff_stream.text_formatting import redact_url

FOLDER = os.O_RDONLY | DIRECTORY
READ = os.O_RDONLY | NOFOLLOW | NONBLOCK  # a pipe must not block
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
SETTLING = 8  # threads
BLOCK = 2**30  # bytes; Linux moves less than 2 GiB at a time

Visit = Callable[[str, "os.DirEntry[str]", int], None]
"""Is told the name of a file, its entry and the descriptor of its folder."""


class LocalFiles:
    """Files under a local folder; see :class:`~rff_stream.store.files.Files`.

    The root may itself be reached through links; nothing below it may.
    """

    def __init__(self, root: str) -> None:
        check_posix(root)
        self.root = root
        self.place = root
        self._pin: int | None = None

    def find(self, name: str, at_most: int) -> bytes | None:
        with self._refusing_links(name):
            try:
                with self._folder(os.path.dirname(name)) as folder:
                    return self._read(name, folder, at_most)
            except FileNotFoundError:
                return None

    def find_all(self, at_most: Mapping[str, int]) -> dict[str, bytes | None]:
        return {name: self.find(name, size) for name, size in at_most.items()}

    def take(self, folder: str, at_most: Mapping[str, int]) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}

        def read(name: str, _: os.DirEntry[str], inside: int) -> None:
            with self._refusing_links(name):
                found[name] = self._read(name, inside, at_most[name]) if name in at_most else None

        self._walk(folder, read)
        return found

    def sizes(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}

        def look(name: str, entry: os.DirEntry[str], _: int) -> None:
            found[name] = entry.stat(follow_symlinks=False).st_size

        self._walk(folder, look)
        return found

    def folders(self, folder: str) -> list[str]:
        with (
            self._refusing_links(folder),
            contextlib.suppress(FileNotFoundError),
            self._folder(folder) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        return []

    def write(self, name: str, data: Contents) -> None:
        folder_name, last = os.path.split(name)
        with cannot_write(f"{self.place}/{name}"), self._folder(folder_name, make=True) as folder:
            _write_new(last, data, folder)

    def settle(self, names: Iterable[str]) -> None:
        # Threads: file systems write one journal for all that wait together (6 times faster).
        above = {name[:i] for name in names for i, letter in enumerate(name) if letter == "/"}
        with ThreadPoolExecutor(SETTLING, "rff-stream-store") as pool:
            list(pool.map(self._sync, sorted({"", *names, *above})))

    def create(self, name: str, data: bytes) -> bool:
        folder_name, last = os.path.split(name)
        partial = f".{last}.{uuid.uuid4().hex}.partial"
        with cannot_write(f"{self.place}/{name}"), self._folder(folder_name, make=True) as folder:
            _write_new(partial, data, folder, durable=True)
            try:
                first = self._link(partial, last, folder)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(partial, dir_fd=folder)
        if first:
            self._confirm(name)
        return first

    def below(self, folder: str) -> LocalFiles:
        return LocalFiles(os.path.join(self.root, folder))

    def require_exclusive_puts(self) -> None:
        """A link is exclusive."""

    def remove(self, folder: str) -> None:
        if self._pin is not None:  # the path may lead to another root by now
            with contextlib.suppress(OSError), self._folder(os.path.dirname(folder)) as inside:
                os.unlink(os.path.basename(folder), dir_fd=inside)
            return
        path = os.path.join(self.root, folder)
        if os.path.islink(path) or os.path.isfile(path):
            with contextlib.suppress(OSError):
                os.unlink(path)
        shutil.rmtree(path, ignore_errors=True)

    def age(self, name: str) -> float:
        path = os.path.join(self.root, name)
        return time.time() - os.stat(path, follow_symlinks=False).st_mtime

    def identity(self) -> object:
        try:
            found = os.stat(self.root if self._pin is None else self._pin)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def recover(self) -> bool:
        return recover(self.root)

    @contextlib.contextmanager
    def hold(self, folder: str) -> Iterator[bool]:
        with contextlib.suppress(OSError), self._folder(folder) as inside:
            os.utime("zarr.json", dir_fd=inside, follow_symlinks=False)  # too young to be removed
        yield True

    @contextlib.contextmanager
    def pinned(self) -> Iterator[LocalFiles]:
        with self._refusing_links(""), self._folder("") as descriptor:
            files = LocalFiles(self.root)
            files.place, files._pin = self.place, descriptor
            yield files

    @contextlib.contextmanager
    def _folder(self, name: str, make: bool = False) -> Iterator[int]:
        """Descriptor of a folder, reached from the root without following a link."""
        start = self.root if self._pin is None else "."
        with contextlib.ExitStack() as opened:  # closes each once, whenever an interrupt comes
            descriptor = os.open(start, FOLDER, dir_fd=self._pin)
            opened.callback(os.close, descriptor)
            for part in filter(None, name.split("/")):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                descriptor = os.open(part, FOLDER | NOFOLLOW, dir_fd=descriptor)
                opened.callback(os.close, descriptor)
            yield descriptor

    def _link(self, partial: str, name: str, folder: int) -> bool:
        """Give a file its name; False where the name is taken.

        A link either is there or is not, whoever watches and whenever this process ends, and
        is exclusive on NFS too, where locks are not always.
        """
        try:
            os.link(partial, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            raise ModelError(
                f"{self.place} lies in a file system that makes no hard links ({error.strerror}), "
                "so two writers could overwrite each other. Write to a local disk, NFS or S3."
            ) from error
        return True

    def _confirm(self, name: str) -> None:
        """Settle a file that others see already: where that fails, say what is so."""
        try:
            self.settle([name])
        except ModelError as error:
            raise ModelError(
                f"{self.place}/{name} was written and counts, but the disk did not confirm that "
                f"it will stay ({error.__cause__}): a loss of power may take it back. Do not "
                "repeat the call under another name, or without one. Look at the disk, then open "
                "the store again and see whether the commit is there."
            ) from error

    def _sync(self, name: str) -> None:
        folder_name, last = os.path.split(name)
        with cannot_write(f"{self.place}/{name}"), self._folder(folder_name) as folder:
            descriptor = os.open(last or ".", READ, dir_fd=folder)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _refusing_links(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOTDIR and os.path.isfile(self.root):
                raise ModelError(
                    f"{self.place} is not a model: it is a file, and a model is a folder that "
                    "save() or rff-stream fit --model wrote. Data are given after the model."
                ) from error
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
                what = "is a link, or lies behind one or behind a file, and a store has none there"
                raise damage(self.place, name, what) from error
            raise ModelError(
                f"{self.place}/{name} cannot be read: {error.strerror}. "
                "Look at the permissions and the disk."
            ) from error

    def _check(self, name: str, found: os.stat_result, at_most: int) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise damage(self.place, name, "is not a regular file")
        if found.st_size > at_most:
            fact = f"has {found.st_size:,} bytes, but at most {at_most:,} are expected"
            raise damage(self.place, name, fact)

    def _read(self, name: str, folder: int, at_most: int) -> bytes:
        """The bytes of a file in a folder that is open."""
        descriptor = os.open(os.path.basename(name), READ, dir_fd=folder)
        try:
            found = os.fstat(descriptor)
            self._check(name, found, at_most)
            return _read_all(descriptor, found.st_size)
        finally:
            os.close(descriptor)

    def _walk(self, folder: str, visit: Visit) -> None:
        """Visit every file under a folder; nothing where there is none."""
        with (
            self._refusing_links(folder),
            contextlib.suppress(FileNotFoundError),
            self._folder(folder) as descriptor,
        ):
            self._walk_in(folder, descriptor, visit)

    def _walk_in(self, folder: str, descriptor: int, visit: Visit) -> None:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    inner = os.open(entry.name, FOLDER | NOFOLLOW, dir_fd=descriptor)
                    try:
                        self._walk_in(name, inner, visit)
                    finally:
                        os.close(inner)
                elif entry.is_file(follow_symlinks=False):
                    visit(name, entry, descriptor)
                else:
                    raise damage(self.place, name, "is a link or not a regular file")


def _write_new(name: str, data: Contents, folder: int, durable: bool = False) -> None:
    descriptor = os.open(name, NEW, 0o666, dir_fd=folder)
    try:
        for view in pieces_of(data):
            while view:
                view = view[os.write(descriptor, view[:BLOCK]) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, size: int) -> bytes:
    """At most ``size`` bytes; a file that shrank gives fewer, and its hash will tell."""
    data = os.read(descriptor, min(size, BLOCK))
    if len(data) == size:
        return data
    parts = [data]
    while (left := size - sum(map(len, parts))) and (part := os.read(descriptor, min(left, BLOCK))):
        parts.append(part)
    return b"".join(parts)


LOCAL = ("file://", "local://")
"""Schemes that name a path of this machine."""

ALIASES = {"s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
"""Schemes by the one that means the same."""


def local_path(place: str | os.PathLike[str]) -> str | None:
    """The absolute path without links that a place means; None for other URLs."""
    PATH.check("path", place)
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

    Raises ModelError: naming what is read.
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
