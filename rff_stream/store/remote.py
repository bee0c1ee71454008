"""Files in an object store, through fsspec: a put is atomic, and only one of two writers wins."""

from __future__ import annotations

import contextlib
import datetime
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self
from urllib.parse import unquote

import fsspec

from rff_stream.errors import ModelError
from rff_stream.remote_calls import answer_in_time, no_answer
from rff_stream.sources.container_types import missing_extra
from rff_stream.store.files import CLAIMS, Contents, damage
from rff_stream.text_formatting import cause_words, hide_in, hide_options, redact_url

PARALLEL = 16
"""Files that are read at once, because each needs a round trip."""


class RemoteFiles:
    """Files under a URL; see :class:`~rff_stream.store.files.Files`.

    Where the URL holds a secret, causes of errors are not shown, for they may quote it.
    """

    def __init__(self, system: Any, root: str, place: str, secret: bool = False) -> None:
        self.system = system
        self.root = root.rstrip("/")
        self.place = place.rstrip("/")
        self._secret = secret

    @classmethod
    def of(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """The files under a URL, with options as fsspec takes them."""
        place = redact_url(url)
        secret = place != url or any("@" in str(value) for value in _texts(storage_options))
        try:
            plain, options = _credentials(url)
            hide_options(options | {**(storage_options or {})})
            options |= {"use_listings_cache": False, **(storage_options or {})}
            system, root = fsspec.core.url_to_fs(plain, **options)
        except ImportError as error:
            raise missing_extra(url, error, ModelError) from (None if secret else error)
        except (ValueError, TypeError, OSError) as error:
            hide_in(error)
            fact = f"{place} cannot be opened: {type(error).__name__}"
            raise ModelError(f"{fact}. Look at the URL and at storage_options.") from (
                None if secret else error
            )
        return cls(system, root, place, secret)

    def find(self, name: str, at_most: int) -> bytes | None:
        path = self._path(name)
        with self._failing(name, "read"):
            try:
                part = {"start": 0, "end": at_most + 1}
                size = 0 if name.endswith(".json") else at_most
                data = answer_in_time(self.system.cat_file, path, size=size, **part)
            except FileNotFoundError:
                return None
            except TimeoutError:
                raise
            except OSError:
                size = answer_in_time(self.system.info, path)["size"]
                if size == 0:  # it has no range to read
                    return b""
                raise
        if len(data) > at_most:
            raise damage(self.place, name, f"has more than the {at_most:,} bytes expected")
        return bytes(data)

    def find_all(self, at_most: Mapping[str, int]) -> dict[str, bytes | None]:
        with ThreadPoolExecutor(PARALLEL, "rff-stream-store") as pool:
            return dict(zip(at_most, pool.map(self.find, at_most, at_most.values()), strict=True))

    def take(self, folder: str, at_most: Mapping[str, int]) -> dict[str, bytes | None]:
        there = self.sizes(folder)
        named = {name: size for name, size in at_most.items() if name in there}
        return {**dict.fromkeys(there), **self.find_all(named)}

    def sizes(self, folder: str) -> dict[str, int]:
        with self._failing(folder, "listed"), contextlib.suppress(FileNotFoundError):
            self.system.invalidate_cache()
            found = answer_in_time(self.system.find, self._path(folder), detail=True)
            return {self._name(path): info["size"] for path, info in found.items()}
        return {}

    def folders(self, folder: str) -> list[str]:
        with self._failing(folder, "listed"), contextlib.suppress(FileNotFoundError):
            self.system.invalidate_cache()
            found = answer_in_time(self.system.ls, self._path(folder), detail=True)
            names = [info["name"] for info in found if info["type"] == "directory"]
            return sorted(name.rstrip("/").rpartition("/")[2] for name in names)
        return []

    def write(self, name: str, data: Contents) -> None:
        data = bytes(data)
        # The answer to a put may be lost and the put repeated: then our own bytes are there.
        if not self.create(name, data) and self.find(name, len(data)) != data:
            raise ModelError(
                f"{self.place}/{name} exists, and a store never replaces a file. Another process "
                "writes there, or one was stopped: choose another place, or remove what is there."
            )

    def settle(self, names: Iterable[str]) -> None:
        """A put that returned is already durable."""

    def create(self, name: str, data: bytes) -> bool:
        if _looks_then_puts(self.system):
            raise self._not_exclusive()
        with self._failing(name, "written"):
            try:
                put = self.system.pipe_file
                answer_in_time(put, self._path(name), data, size=len(data), mode="create")
            except FileExistsError:
                return False
            except OSError:
                # Two puts at once may both be told to try again; and an answer may be lost.
                if answer_in_time(self.system.exists, self._path(name)):
                    return False
                raise
        return True

    def remove(self, folder: str) -> None:
        with contextlib.suppress(Exception):
            answer_in_time(self.system.rm, self._path(folder), recursive=True)

    def age(self, name: str) -> float:
        with self._failing(name, "read"):
            changed = self.system.modified(self._path(name))
        now = datetime.datetime.now(changed.tzinfo or datetime.UTC)
        return float((now - changed.replace(tzinfo=now.tzinfo)).total_seconds())

    def identity(self) -> object:
        return None

    def recover(self) -> bool:
        """Nothing is moved in an object store."""
        return False

    @contextlib.contextmanager
    def hold(self, folder: str) -> Iterator[bool]:
        """By an object that only one process can create: an object keeps its time."""
        name, own = f"{CLAIMS}/{folder.replace('/', '-')}", uuid.uuid4().hex.encode()
        # The answer to a put may be lost and the put repeated: then our own bytes are there.
        first = self.create(name, own) or self.find(name, len(own)) == own
        try:
            yield first
        finally:
            if first:
                self.remove(name)

    @contextlib.contextmanager
    def pinned(self) -> Iterator[RemoteFiles]:
        yield self

    def below(self, folder: str) -> RemoteFiles:
        return RemoteFiles(self.system, self._path(folder), f"{self.place}/{folder}", self._secret)

    def require_exclusive_puts(self) -> None:
        """Refuse a file system that lets two writers create one file: it would lose batches."""
        name = f".probe-{uuid.uuid4().hex}"
        try:
            exclusive = self.create(name, b"{}") and not self.create(name, b"{}")
        finally:
            self.remove(name)
        if not exclusive:
            raise self._not_exclusive()

    def _not_exclusive(self) -> ModelError:
        return ModelError(
            f"{self.place} lies in a file system ({type(self.system).__name__}) that does not "
            "create a file exclusively; two writers would lose batches. Write to a local disk or "
            "an S3, GCS or Azure bucket; models there can still be read."
        )

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def _name(self, path: str) -> str:
        return path.removeprefix(f"{self.root}/")

    @contextlib.contextmanager
    def _failing(self, name: str, verb: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(error, ModelError):
                raise
            why = type(error).__name__ if self._secret else cause_words(error)
            why = no_answer(error) or why
            raise ModelError(
                f"{self.place}/{name} cannot be {verb}: {why}. What was committed before is "
                "unchanged. Look at the network, the credentials and the rights, then run again."
            ) from (None if self._secret else error)


def _texts(options: Any) -> Iterator[Any]:
    """Every value of nested options: an address among them may hold a password."""
    for value in options.values() if isinstance(options, Mapping) else ():
        yield from _texts(value) if isinstance(value, Mapping) else (value,)


def _credentials(url: str) -> tuple[str, dict[str, Any]]:
    """The URL without the secret of ``s3://key:secret@bucket``, and what s3fs calls its parts."""
    scheme, _, rest = url.partition("://")
    user, at, path = rest.rpartition("@")
    if scheme not in ("s3", "s3a") or not at or ":" not in user:
        return url, {}
    key, _, secret = user.partition(":")
    return f"{scheme}://{path}", {"key": unquote(key), "secret": unquote(secret)}


def _looks_then_puts(system: Any) -> bool:
    """Whether exclusive creation is the generic one of fsspec, which looks and then writes."""
    return type(system).pipe_file is fsspec.AbstractFileSystem.pipe_file and not system.async_impl
