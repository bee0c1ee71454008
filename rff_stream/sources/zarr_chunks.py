"""Stored Zarr arrays: an absent chunk is an error, not fill values; a bad one is named.

Zarr reads an absent chunk, a directory in its place or an empty shard as fill values,
silently. Here an absent chunk raises an error with its name when it is read. The store also
tries failed reads again, stops reads that hang, and counts chunks and bytes.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import hashlib
import os
import re
import socket
import stat
import weakref
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.container_types import is_from
from rff_stream.sources.icechunk_repositories import Versions
from rff_stream.sources.protocol import Bounds, regular_bounds
from rff_stream.text_formatting import cause_words, hide_options, redact_url

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

V3_CHUNK = re.compile(r"(?:(.*)/)?c(?:[./]\d+)*")

V2_CHUNK = re.compile(r"(?:(.*?)/)?\d+(?:[./]\d+)*")

ENDING = 2.0
"""Seconds in which reads that nobody waits for must end when the process ends."""

LOOPS: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
"""Where chunks were read in this process: the loop of Zarr, which runs in a thread of its own."""

FINAL = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError, TimeoutError)
"""Errors after which another attempt is of no use."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a read is tried, and how long it is waited for."""

    retries: int = 3  # after errors that may pass
    pause: float = 0.1  # seconds before the first retry; four times as long before each next one
    chunk: float = 600.0  # seconds for one read of a chunk, its retries included
    metadata: float = 60.0
    """The same for metadata, which are small and read first: a wrong address fails after
    this time."""

    def limit(self, key: str) -> float:
        """Seconds for a key."""
        is_metadata = key.rpartition("/")[2] in METADATA
        return min(self.chunk, self.metadata) if is_metadata else self.chunk


PATIENCE = RetryPolicy()


class ChunkError(DataError):
    """A chunk is absent, empty or cannot be read."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Which chunks (or shards) of an array were there when a run began: a bit each, compressed.

    10⁶ chunks are at most 125 kB, and some hundred bytes where nearly all or none are there.
    """

    grid: tuple[int, ...]  # chunks along each dimension
    packed: bytes

    @classmethod
    def of(cls, grid: tuple[int, ...], places: Iterable[tuple[int, ...]]) -> Self:
        """The listing of the chunks at these places; places beyond the grid are left out."""
        there = np.zeros(grid, bool)
        for place in places:
            if len(place) == len(grid) and all(i < n for i, n in zip(place, grid, strict=True)):
                there[place] = True
        return cls(grid, zlib.compress(np.packbits(there).tobytes(), 1))

    def holds(self, place: tuple[int, ...]) -> bool:
        """Whether a chunk was there."""
        if len(place) != len(self.grid):
            return False
        bit = int(np.ravel_multi_index(place, self.grid)) if place else 0
        return bool(unpack_bits(self.packed)[bit >> 3] & (128 >> (bit & 7)))


@functools.lru_cache(maxsize=16)
def unpack_bits(packed: bytes) -> bytes:
    """Bits of a listing."""
    return zlib.decompress(packed)


@dataclass(frozen=True, slots=True)
class ChunkRule:
    """What an absent chunk of one array means."""

    absent: bool = False  # whether chunks may be absent: they read as the fill value
    fill: str = "the fill value"  # the fill value, for messages
    blosc: bool = False
    """Whether a chunk is one Blosc frame: its header says how long it must be. Blosc itself
    does not look, and decodes a truncated chunk from whatever memory follows."""
    there: Listing | None = None  # chunks that may be absent, but were there when the run began


async def _cancel_all() -> None:
    """Cancel what still runs on this loop, and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=ENDING)


@atexit.register
def _end_reads() -> None:
    """Stop reads that nobody waits for any more.

    After a failed read Zarr goes on with chunks that were asked for together with it. The process
    may end before they do, and asyncio then prints a message for each of them.
    """
    for loop in LOOPS:
        if loop.is_running():
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(2 * ENDING)


class CheckedStore(WrapperStore[Store]):
    """A read-only store whose chunks are there, or raise; its name in messages holds no secrets.

    Rules, by the path of an array, are shared by copies of the store; arrays without one take
    ``default``. Zarr reads several keys at once, and after the first failure nobody waits for
    the others. They are stopped, or the loop would complain about each when the process ends.
    """

    def __init__(
        self,
        store: Store,
        name: str = "",
        rules: MutableMapping[str, ChunkRule] | None = None,
        default: ChunkRule = ChunkRule(),
        patience: RetryPolicy | None = None,
        versions: Versions | None = None,
    ) -> None:
        super().__init__(store)
        self.versions = versions  # of an icechunk repository; workers need none
        self.name = name or store_name(store)
        self.rules = {} if rules is None else rules
        self.default = default
        self.patience = patience or PATIENCE
        self.counts: Counter[str] = Counter()
        self.trace: set[str] | None = None
        self._reads: set[asyncio.Task[Any]] = set()
        self._failure = ""

    def _with_store(self, store: Store) -> Self:
        return type(self)(store, self.name, self.rules, self.default, self.patience, self.versions)

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = {
            "counts": Counter(),
            "trace": None,
            "_reads": set(),
            "versions": None,
        }
        return self.__dict__ | own

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckedStore) and bool(self._store == other._store)

    __hash__ = None  # type: ignore[assignment]

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a key; a chunk that is absent or empty raises ChunkError."""
        if key.rpartition("/")[2] in METADATA:
            return await self.attempts(key, prototype, byte_range)
        if self.trace is not None:
            self.trace.add(key)
        self.check_regular(key)
        found = await self.attempts(key, prototype, byte_range)
        if found is None:
            self.check_absent(key)
            self.counts["absent"] += 1
            return None
        if len(found) == 0:
            raise ChunkError(self.message(key, "is empty (0 bytes)", REWRITE))
        if byte_range is None and self.rule_of(key).blosc:
            self.check_whole(key, found)
        self.counts["chunks"] += 1
        self.counts["bytes"] += len(found)
        return found

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Each of them by :meth:`get`."""
        reads = (self.get(key, prototype, part) for key, part in key_ranges)
        return list(await asyncio.gather(*reads))

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for key, prototype, part in requests:
            yield key, await self.get(key, prototype, part)

    async def attempts(
        self, key: str, prototype: BufferPrototype, part: ByteRequest | None
    ) -> Buffer | None:
        """The read, tried again after errors that may pass; a failure stops the other reads."""
        task = asyncio.current_task()
        assert task is not None
        self._reads.add(task)
        LOOPS.add(asyncio.get_running_loop())
        try:
            read = self._try_again(key, prototype, part)
            return await asyncio.wait_for(read, self.patience.limit(key))
        except asyncio.CancelledError:
            if not self._failure:
                raise
            raise ChunkError(self._failure) from None
        except DataError:
            raise
        except Exception as cause:
            error = ChunkError(self.unreadable(key, cause))
            self._reads.discard(task)
            await self._stop_others(str(error))
            raise error from cause
        finally:
            self._reads.discard(task)

    async def _try_again(
        self, key: str, prototype: BufferPrototype, part: ByteRequest | None
    ) -> Buffer | None:
        for attempt in range(self.patience.retries):
            try:
                return await self._store.get(key, prototype, part)
            except FINAL:
                raise
            except OSError:
                self.counts["retries"] += 1
                await asyncio.sleep(self.patience.pause * 4**attempt)
        return await self._store.get(key, prototype, part)

    async def _stop_others(self, failure: str) -> None:
        """Cancel the reads that still run, and wait until they have ended."""
        loop = asyncio.get_running_loop()
        others = {task for task in self._reads if task.get_loop() is loop}
        if not others:
            return
        self._failure = failure
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=1)
        self._failure = ""

    def check_regular(self, key: str) -> None:
        """On a local disk, what stands in a chunk's place is a file."""
        root = local_root(self._store)
        if root is None:
            return
        try:
            mode = os.stat(root / key).st_mode
        except OSError:
            return
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
            raise ChunkError(self.message(key, f"is {kind}", REWRITE))

    def check_absent(self, key: str) -> None:
        """An absent chunk is allowed by the rule of its array, and was absent from the start."""
        rule = self.rule_of(key)
        if rule.there is not None and rule.there.holds(chunk_index_of(key, len(rule.there.grid))):
            why = f"was there when the run began, but {here()} does not see it{self.no_folder()}"
            raise ChunkError(self.message(key, why, GONE))
        if not rule.absent:
            why = f"is absent and would read as {rule.fill}, silently{self.no_folder()}"
            raise ChunkError(self.message(key, why, ABSENT))

    def no_folder(self) -> str:
        """Words for a whole store that is not there, as where nothing is mounted."""
        root = local_root(self._store)
        if root is None or root.exists():
            return ""
        return f": the folder {root} is not there on {here()}"

    def rule_of(self, key: str) -> ChunkRule:
        """The rule of the array that a chunk belongs to."""
        return self.rules.get(self.array_of(key), self.default)

    def check_whole(self, key: str, found: Buffer) -> None:
        """A Blosc frame is as long as its header says."""
        said = int.from_bytes(found[12:16].to_bytes(), "little")
        if len(found) < 16 or said != len(found):
            why = f"is cut short or overwritten: {len(found)} bytes, but its header says {said}"
            raise ChunkError(self.message(key, why, REWRITE))

    def unreadable(self, key: str, cause: Exception) -> str:
        """Why a chunk could not be read."""
        if isinstance(cause, TimeoutError):
            return self.message(key, f"was not read within {self.patience.limit(key):g} s", HANGS)
        remote = local_root(self._store) is None
        hide_options(options_of(self._store))
        return self.message(
            key, f"could not be read: {cause_words(cause)}", REMOTE if remote else REWRITE
        )

    def message(self, key: str, why: str, remedy: str) -> str:
        """Fact with the names of store, array and chunk; rule; remedy."""
        array = self.array_of(key)
        chunk = key[len(array) :].lstrip("/")
        what = f"chunk {chunk} of array {array or '/'!r}"
        if chunk in METADATA:
            what = f"metadata {key}"
        return f"{self.name}: {what} {why}. {remedy}"

    def array_of(self, key: str) -> str:
        """Path of the array that a chunk key belongs to: "t" of "t/c/0/1" and of "t/0.1"."""
        parts = key.split("/")
        for end in range(len(parts) - 1, -1, -1):
            path = "/".join(parts[:end])
            if path in self.rules:
                return path
        match = V3_CHUNK.fullmatch(key) or V2_CHUNK.fullmatch(key)
        return (match[1] or "") if match else key.rpartition("/")[0]


REWRITE = "Every chunk must be readable and whole. Write it again from its source."

REMOTE = (
    "Every chunk must be readable and whole. Look at the address, the network, the credentials "
    "and the rights, then run again."
)

GONE = (
    "Chunks that exist when a run begins must exist until its end, on every worker. Check "
    "what is mounted there, and whether a process deletes files; then run again."
)

HANGS = "A read is stopped after this time. Check the storage, then run again."

ABSENT = (
    "Only a chunk whose fill value means missing may be absent. Write it again, or pass "
    'missing_chunks="fill" if it was left out because all its values are the fill value.'
)


def here() -> str:
    """Host and number of the process that does not see what others see."""
    return f"{socket.gethostname()} (process {os.getpid()})"


def chunk_index_of(name: str, ndim: int) -> tuple[int, ...]:
    """Place of a chunk in the grid of chunks: (0, 1) of "t/c/0/1" and of "t/0.1"."""
    numbers = re.findall(r"\d+", name)
    return tuple(int(number) for number in numbers[len(numbers) - ndim :])


def local_root(store: Store) -> Path | None:
    """Directory of a store on a local disk; None for others."""
    if isinstance(store, LocalStore):
        return Path(store.root)
    if isinstance(store, FsspecStore) and "file" in store.fs.protocol:
        return Path(store.path)
    return None


def options_of(store: Store) -> Mapping[str, Any]:
    """The options of a store's file system: in a worker no one else knows what is secret."""
    system = getattr(store, "fs", None)
    system = getattr(system, "sync_fs", system)
    return getattr(system, "storage_options", None) or {}


def store_name(store: Store) -> str:
    """A store in messages: its path or URL, without credentials."""
    root = local_root(store)
    if root is not None:
        return str(root)
    references = getattr(getattr(store, "fs", None), "storage_options", {}).get("fo")
    return redact_url(references if isinstance(references, str) else str(store))


def check_array(array: Any, name: str) -> None:
    """Chunks of some length, and no codec that runs code: refused before anything is read."""
    if 0 in array.chunks and array.ndim:
        raise DataError(
            f"{name}: array {array.path!r} has chunks of shape {array.chunks}. A chunk is at least "
            f"1 long along each dimension. Its metadata are damaged; write it again."
        )
    ids = codecs_of(array)
    found = next((codec for codec in ids if "pickle" in codec), None)
    if found is not None:
        raise DataError(f"{name}: {PICKLED} (array {array.path!r}, codec {found!r})")


PICKLED = (
    "An array is stored with a pickle codec, which can run code as it is read. Such arrays are "
    "not read; write it again as numbers."
)


def array_rule(array: Any, masked: Sequence[Any], missing_chunks: str) -> ChunkRule:
    """The rule of one array; ``masked`` are values that decode to missing."""
    fill = array.fill_value
    missing = is_missing(fill) or any(same(fill, value) for value in masked)
    allowed = missing_chunks == "fill" or (missing_chunks == "auto" and missing)
    return ChunkRule(allowed, f"its fill value {fill}", codecs_of(array)[-1:] == ["blosc"])


def codecs_of(array: Any) -> list[str]:
    """Names of an array's codecs in the order in which they encode."""
    metadata = array.metadata
    if metadata.zarr_format == 3:
        names = [str(codec.to_dict().get("name", "")) for codec in metadata.codecs]
    else:
        several = (*(metadata.filters or ()), metadata.compressor)
        names = [str(codec.codec_id) for codec in several if codec is not None]
    return [name.removeprefix("numcodecs.") for name in names]


def is_missing(fill: Any) -> bool:
    """Whether a fill value is NaN or NaT."""
    values = np.asarray(fill)
    if values.dtype.kind in "mM":
        return bool(np.isnat(values))
    return values.dtype.kind in "fc" and bool(np.isnan(values))


def same(fill: Any, value: Any) -> bool:
    """Whether a fill value equals a mask value."""
    return fill is not None and bool(np.any(np.asarray(fill) == np.asarray(value)))


@dataclass(frozen=True, slots=True)
class Shards:
    """Which chunks are in the shards of an array: each shard has an index of those that it holds.

    Zarr reads a chunk that a shard lacks as fill values, silently: also those of a shard that is
    not written to its end.
    """

    array: Any  # zarr.Array on a checked store
    each: tuple[int, ...]  # number of chunks in a shard along each dimension
    request: Any  # for the bytes of the index

    @classmethod
    def of(cls, array: Any) -> Self | None:
        """Those of an array; None where it has none, or indexes in another encoding."""
        if array.shards is None:
            return None
        each = tuple(n // size for n, size in zip(array.shards, array.chunks, strict=True))
        plain = next(codec.to_dict() for codec in array.metadata.codecs)["configuration"]
        names = [codec["name"] for codec in plain["index_codecs"]]
        if names not in (["bytes"], ["bytes", "crc32c"]):
            return None
        size = 16 * int(np.prod(each)) + 4 * ("crc32c" in names)
        at_start = str(plain.get("index_location", "end")) == "start"
        return cls(array, each, RangeByteRequest(0, size) if at_start else SuffixByteRequest(size))

    def name(self, place: tuple[int, ...]) -> str:
        """The key of a shard in its store."""
        path = f"{self.array.path}/" if self.array.path else ""
        return f"{path}{self.array.metadata.encode_chunk_key(place)}"

    def holds(self, place: tuple[int, ...]) -> Array:
        """Which of its chunks a shard holds; none where it is absent."""
        store, prototype = self.array.store_path.store, default_buffer_prototype()
        found = sync(store.get(self.name(place), prototype, self.request))
        if found is None:
            return np.zeros(self.each, bool)
        index = np.frombuffer(found.to_bytes(), "<u8", count=2 * int(np.prod(self.each)))
        return np.asarray(index.reshape(*self.each, 2)[..., 0] != 2**64 - 1)

    def overlapping(self, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
        """Places of the shards that part of the array lies in."""
        pairs = zip(ranges, self.array.shards, strict=True)
        yield from product(*(range(lo // n, -(-hi // n)) for (lo, hi), n in pairs))

    def inside(
        self, place: tuple[int, ...], ranges: Sequence[tuple[int, int]]
    ) -> tuple[slice, ...]:
        """Which chunks of a shard such a part overlaps."""
        found = []
        for i, (lo, hi), n, size in zip(place, ranges, self.each, self.array.chunks, strict=True):
            found.append(slice(max(lo // size - i * n, 0), min(-(-hi // size) - i * n, n)))
        return tuple(found)


class CheckedArray:
    """Slices of a zarr.Array on the checked store, or of xarray's layers around it (``data``).

    A slice that fails names the chunk.
    """

    def __init__(self, data: Any, array: Any) -> None:
        self.data = data
        self.array = array
        self._shards = Shards.of(array)
        self._whole: set[tuple[int, ...]] = set()  # shards that hold all of their chunks
        self.shape = tuple(data.shape)
        self.dtype = np.dtype(data.dtype)
        self.ndim = len(self.shape)

    def __getitem__(self, key: Any) -> Array:
        try:
            self.check_shards(key)
            return np.asarray(self.data[key])
        except DataError:
            raise
        except Exception as cause:
            raise DataError(self.message(key, cause)) from cause

    def check_shards(self, key: Any) -> None:
        """Shards hold the chunks of this slice, unless chunks of the array may be absent."""
        shards, store = self._shards, self.array.store_path.store
        rule = store.rule_of(f"{self.array.path}/c")
        if shards is None or rule.absent or self.shape != self.array.shape:
            return
        keys = key if isinstance(key, tuple) else (key,)
        keys = () if any(each is Ellipsis for each in keys) else keys
        sliced = [each if isinstance(each, slice) else slice(None) for each in keys]
        whole = [slice(None)] * (self.ndim - len(sliced))
        pairs = zip((*sliced, *whole), self.shape, strict=True)
        ranges = [part.indices(size)[:2] for part, size in pairs]
        for place in shards.overlapping(ranges):
            if place in self._whole:
                continue
            there = shards.holds(place)
            if there.all():
                self._whole.add(place)
            absent = np.argwhere(~there[shards.inside(place, ranges)])
            if len(absent):
                why = (
                    f"lacks {len(absent)} of its chunks that are asked for, and they would read as "
                    f"{rule.fill}, silently"
                )
                raise ChunkError(store.message(shards.name(place), why, ABSENT))

    def bounds(self) -> Bounds:
        """Where the stored chunks begin and end along each dimension."""
        return regular_bounds(self.shape, self.array.chunks)

    def identity(self) -> list[str]:
        """Metadata of the stored array as they are now, and the stamps of its files."""
        store, path = self.array.store_path.store, self.array.path
        version = self.array.metadata.zarr_format
        try:
            now = zarr.open_array(store, path=path, mode="r", zarr_format=version)
        except (FileNotFoundError, ValueError) as cause:
            raise DataError(
                f"{store.name}: array {path!r} is no longer there, or cannot be opened: "
                f"{cause_words(cause)}. Data that exist when a run begins must exist until its "
                f"end. Check what is mounted there, and whether a process deletes files; then run "
                f"again."
            ) from cause
        found = hashlib.sha256()
        for name, stamp in sorted(stamps_of(store._store, path).items()):
            found.update(f"{name} {stamp}\n".encode())
        return [store.name, path, str(now.metadata.to_dict()), found.hexdigest()]

    def message(self, key: Any, cause: Exception) -> str:
        """Store, array, chunk and cause."""
        found, cause = self.broken(key) or ("a chunk", cause)
        return (
            f"{self.array.store_path.store.name}: {found} of array {self.array.path!r} could not "
            f"be decoded: {cause_words(cause)}. Every chunk must be readable and "
            f"whole. Write it again from its source."
        )

    def broken(self, key: Any) -> tuple[str, Exception] | None:
        """The first chunk of a failed slice that fails on its own, and how."""
        for name in self.trace_chunks(key):
            place = chunk_index_of(name, self.array.ndim)
            try:
                self.array[self.region(place)]
            except Exception as cause:
                return f"chunk {name}", cause
        return None

    def trace_chunks(self, key: Any) -> list[str]:
        """Names of the chunks that a slice reads, seen as it is read once more."""
        store = self.array.store_path.store
        trace: set[str] = set()
        store.trace = trace
        with contextlib.suppress(Exception):
            np.asarray(self.data[key])
        prefix = f"{self.array.path}/" if self.array.path else ""
        store.trace = None
        return sorted(n.removeprefix(prefix) for n in trace if n.startswith(prefix))

    def list_chunks(self) -> None:
        """Note which chunks are there, for readers that do not find one of them later.

        Only where absent chunks are no error of themselves. Cost: one listing of the array.
        """
        store, path = self.array.store_path.store, self.array.path
        rule = store.rule_of(f"{path}/c")
        if not rule.absent or rule.there is not None:
            return
        sizes = self.array.shards or self.array.chunks
        grid = tuple(-(-n // size) for n, size in zip(self.array.shape, sizes, strict=True))
        names = names_of_chunks(store._store, path)
        there = Listing.of(grid, (chunk_index_of(name, self.array.ndim) for name in names))
        store.rules[path] = replace(rule, there=there)

    def stamps_along(self, axis: int) -> tuple[dict[int, dict[str, str]], int]:
        """By row of chunks along an axis: stamps of its files by their other places; its length."""
        rows: dict[int, dict[str, str]] = {}
        for name, stamp in stamps_of(self.array.store_path.store._store, self.array.path).items():
            place = chunk_index_of(name, self.array.ndim)
            if len(place) == self.array.ndim:
                others = ".".join(str(p) for i, p in enumerate(place) if i != axis)
                rows.setdefault(place[axis], {})[others] = stamp
        return rows, int((self.array.shards or self.array.chunks)[axis])

    @property
    def is_written_at_once(self) -> bool:
        """Whether a version has all of its chunks: icechunk commits an array and them together."""
        return is_from(self.array.store_path.store._store, "icechunk")

    @property
    def snapshot(self) -> str:
        """The version of an icechunk repository that is read; "" for other data."""
        versions = getattr(self.array.store_path.store, "versions", None)
        return "" if versions is None else str(versions.snapshot)

    def changed_since(self, snapshot: str) -> set[tuple[int, ...]]:
        """Places of chunks written after a snapshot; none where no repository tells."""
        versions = getattr(self.array.store_path.store, "versions", None)
        return versions.changed_since(snapshot, self.array.path) if versions and snapshot else set()

    def chunks_along(
        self, axis: int, start: int, stop: int
    ) -> tuple[dict[int, set[tuple[int, ...]]], int]:
        """By row of chunks the other places of those that are there, and the length of a row.

        From the row before ``start``. Cost: one listing of the array, and of shards in these rows
        their index.
        """
        names = names_of_chunks(self.array.store_path.store._store, self.array.path)
        places = [chunk_index_of(name, self.array.ndim) for name in names]
        rows: dict[int, set[tuple[int, ...]]] = {}
        size = int((self.array.shards or self.array.chunks)[axis])
        first, last = max(start - 1, 0) // size, -(-stop // size)
        for place in places:
            if len(place) != self.array.ndim or not first <= place[axis] < last:
                continue
            inner = [place]
            if self._shards is not None:
                origin = np.multiply(place, self._shards.each)
                inner = [
                    tuple(at) for at in (np.argwhere(self._shards.holds(place)) + origin).tolist()
                ]
            for each in inner:
                rows.setdefault(each[axis], set()).add((*each[:axis], *each[axis + 1 :]))
        return rows, size if self._shards is None else int(self.array.chunks[axis])

    def region(self, place: Sequence[int]) -> tuple[slice, ...]:
        """The part of the array that a chunk (or shard) holds."""
        sizes = self.array.shards or self.array.chunks
        return tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, sizes, strict=True))


def on_checked_store(array: Any, masked: Sequence[Any], missing_chunks: str) -> Any:
    """The zarr.Array on the checked store: its metadata are read again."""
    store = CheckedStore(array.store_path.store)
    check_array(array, store.name)
    store.rules[array.path] = array_rule(array, masked, missing_chunks)
    version = array.metadata.zarr_format
    return zarr.open_array(store, path=array.path, mode="r", zarr_format=version)


def stamps_of(store: Any, path: str) -> dict[str, str]:
    """What tells one state of every file of an array from another, without reading it.

    Names are relative to the array. On a local disk size and time; on an object store what
    its listing says (etag, or size and time); in a zip file size and CRC; in memory a hash;
    elsewhere the size alone, or not even that.
    """
    root = local_root(store)
    if root is not None:
        stats = ((name, entry.stat()) for name, entry in local_entries(str(root / path), ""))
        return {name: f"{status.st_size} {status.st_mtime_ns}" for name, status in stats}
    if isinstance(store, FsspecStore):
        return sync(remote_stamps(store, path))
    return sync(sizes_of(store, path))


def names_of_chunks(store: Any, path: str) -> Iterable[str]:
    """Names of the files of an array, relative to it; no file is looked at."""
    root = local_root(store)
    if root is None:
        names: Iterable[str] = sync(names_in(store, path))
    else:
        names = (name for name, _ in local_entries(str(root / path), ""))
    return (name for name in names if name.rpartition("/")[2] not in METADATA)


async def names_in(store: Any, path: str) -> list[str]:
    """Names of all keys of an array, relative to it."""
    prefix = f"{path}/" if path else ""
    return [name.removeprefix(prefix) async for name in store.list_prefix(prefix)]


def local_entries(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every file in a folder with its name in it: "c/0/1"."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if is_folder(entry):
                yield from local_entries(entry.path, f"{name}/")
            else:
                yield name, entry


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether this is a folder, or a link to one; a link that leads nowhere is named."""
    try:
        entry.stat() if entry.is_symlink() else None
        return entry.is_dir()
    except OSError as cause:
        raise DataError(
            f"{entry.path} is a link that cannot be followed: {cause.strerror}. Every chunk must "
            f"be a file that is there. Write it again from its source."
        ) from cause


async def remote_stamps(store: Any, path: str) -> dict[str, str]:
    """Etag, or size and time, of every object of an array."""
    folder = f"{store.path}/{path}".rstrip("/") + "/"
    found = await store.fs._find(folder, detail=True)
    return {
        name.removeprefix(folder.lstrip("/")).removeprefix(folder): str(
            info.get("ETag") or [info.get("size"), str(info.get("LastModified"))]
        )
        for name, info in found.items()
    }


async def sizes_of(store: Any, path: str) -> dict[str, str]:
    """What tells states of every value of an array apart; names alone where nothing cheap does."""
    prefix, cheap = f"{path}/" if path else "", type(store).getsize is not Store.getsize
    try:
        names = [name async for name in store.list_prefix(prefix)]
    except NotImplementedError as cause:  # a store of VirtualiZarr
        raise DataError(
            f"A {type(store).__name__} does not list its chunks, so a change of the data could not "
            f"be seen. Write its references to a file or to icechunk, and give that path."
        ) from cause
    if isinstance(store, MemoryStore):
        stamps = [hashlib.sha256(store._store_dict[name].to_bytes()).hexdigest() for name in names]
    elif isinstance(store, ZipStore):
        found = (store._zf.getinfo(name) for name in names)
        stamps = [f"{each.file_size} {each.CRC:08x}" for each in found]
    else:
        stamps = [str(await store.getsize(name)) if cheap else "" for name in names]
    return {name.removeprefix(prefix): stamp for name, stamp in zip(names, stamps, strict=True)}
