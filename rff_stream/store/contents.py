"""What a log vouches for, as values: verified bytes in, arrays and moments out."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.statistics.protocol import Packed
from rff_stream.store.array_codec import decode
from rff_stream.store.canonical_json import parse
from rff_stream.store.commit_log import Log
from rff_stream.store.criteria import ChosenGroups, Weights, group_chooser, weigher
from rff_stream.store.files import Files, damage
from rff_stream.store.log_entries import Batch, Manifest
from rff_stream.store.manifest import read_vouched
from rff_stream.store.moments_codec import (
    Label,
    decode_moments,
    decode_packed,
    decode_row,
    is_packed,
    label_key,
)

READERS = 2
"""Threads that read and hash ahead of the sum; hashing releases the GIL."""

Value = TypeVar("Value")
Groups = dict[Label, Moments]


@dataclass(frozen=True, slots=True)
class Root:
    """What a store began with: see :class:`~rff_stream.store.creation.NewStore`."""

    header: dict[str, Any]
    arrays: dict[str, Array]
    answers: dict[str, Array]
    row: AugmentedRow | None
    order: int
    pilot: tuple[str, ...]


def read_whole(files: Files, read: Callable[[Files], Value]) -> Value:
    """What ``read`` gives of one model, though another is put in its place meanwhile."""
    while True:
        before = files.identity()
        try:
            return read(files)
        except ModelError:
            if files.identity() == before:
                raise


def read_root(log: Log, max_bytes: int | None) -> Root:
    """Header, arrays, answers and row of a store, verified against its first commit."""
    files, place = log.files, log.files.place
    data = moments_files(log.first.files)
    mine = {name: said for name, said in log.first.files.items() if name not in data}
    found = read_vouched(files, mine, max_bytes)
    arrays = {name: decode(name, found, place) for name in _array_names(found, place)}
    attributes = parse(found["zarr.json"], f"{place}/zarr.json")["attributes"]
    header, plain, order = (attributes.get(key) for key in ("header", "row", "order"))
    pilot = attributes.get("pilot")
    texts = isinstance(pilot, list) and all(isinstance(name, str) for name in pilot)
    if not (isinstance(header, dict) and type(order) is int and order in (1, 2) and texts):
        raise damage(place, "zarr.json", "has no fitting header, order or pilot")
    row = _take(arrays, "row/")
    return Root(
        header=header,
        answers=_take(arrays, f"answers/{log.first.answers}/"),
        row=None if plain is None else decode_row(plain, row, f"{place}/row"),
        order=order,
        pilot=tuple(pilot),
        arrays=arrays,
    )


def read_batch(log: Log, batch: Batch, root: Root, max_bytes: int | None) -> Groups:
    """The moments of one batch, verified against its own commit; none of a packed value."""
    if root.row is None:
        raise ModelError(
            f"{log.files.place} was saved without moments, so it has no batches. Fit again and "
            "save with moments."
        )
    entry = log.entry_of(batch)
    data = moments_files(entry.files)
    files = read_vouched(log.files, data, max_bytes)
    folder, place = f"data/{batch.data}", log.files.place
    if is_packed(files, folder, place):
        return {}
    groups = decode_moments(root.row, root.order, batch.groups, files, folder, place)
    if sum(moments.n for moments in groups.values()) != batch.rows:
        raise damage(place, f"{folder}/rows", f"does not hold the {batch.rows} rows committed")
    return groups


def read_packed(log: Log, batch: Batch, max_bytes: int | None) -> Packed | None:
    """The packed value of one batch, verified against its own commit; None where it has moments."""
    files = read_vouched(log.files, moments_files(log.entry_of(batch).files), max_bytes)
    folder, place = f"data/{batch.data}", log.files.place
    return decode_packed(files, folder, place) if is_packed(files, folder, place) else None


def read_batches(
    log: Log, batches: Iterable[Batch], root: Root, max_bytes: int | None
) -> Iterator[tuple[Batch, Groups]]:
    """The moments of batches, in their order; the next ones are read while one is used."""
    waiting: collections.deque[tuple[Batch, Future[Groups]]] = collections.deque()
    with ThreadPoolExecutor(READERS, "rff-stream-store") as pool:
        try:
            for batch in batches:
                waiting.append((batch, pool.submit(read_batch, log, batch, root, max_bytes)))
                if len(waiting) > READERS:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def read_weighted(
    log: Log,
    batches: Sequence[Batch],
    root: Root,
    max_bytes: int | None,
    groups: ChosenGroups | None = None,
    weights: Weights | None = None,
) -> Iterator[Groups]:
    """Chosen groups of batches, in their order, times the weight of each batch."""
    counts, weight = group_chooser(groups), weigher(weights)
    factors = {batch.id: factor for batch in batches if (factor := weight(batch)) > 0}
    chosen = [batch for batch in batches if batch.id in factors]
    for batch, found in read_batches(log, chosen, root, max_bytes):
        factor = factors[batch.id]
        yield {
            label: moments if factor == 1 else moments.scale(factor)
            for label, moments in found.items()
            if counts(label)
        }


class SumInPlace:
    """Moments added from left to right, into the one array that the first addition made."""

    def __init__(self) -> None:
        self.value: Moments | None = None
        self._own: Float64 | None = None

    def add(self, moments: Moments) -> None:
        """Take one more; the value of before is no longer to be looked at."""
        if self.value is None:
            self.value = moments
            return
        self.value = self.value.plus(moments, self._own)
        self._own = self.value.sums


def sum_by_group(parts: Iterable[Groups]) -> Groups:
    """Sum of each group, from left to right; groups in the order they are stored."""
    found: collections.defaultdict[Label, SumInPlace] = collections.defaultdict(SumInPlace)
    for groups in parts:
        for label, moments in groups.items():
            found[label].add(moments)
    total = {label: each.value for label, each in found.items() if each.value is not None}
    return dict(sorted(total.items(), key=lambda item: label_key(item[0])))


def bytes_of(log: Log, batch: Batch) -> int:
    """Bytes of the files of a batch."""
    return sum(size for size, _ in moments_files(log.entry_of(batch).files).values())


def moments_files(manifest: Manifest) -> Manifest:
    """Files of the batch alone, without those of the store itself."""
    return {
        name: said
        for name, said in manifest.items()
        if name.startswith("data/") and name != "data/zarr.json"
    }


def _array_names(files: Mapping[str, bytes], place: str) -> list[str]:
    """Names of all that is not a group; what is no array either, its decoding refuses."""
    metadata = [name for name in files if name.endswith("/zarr.json")]
    kinds = {name: parse(files[name], f"{place}/{name}").get("node_type") for name in metadata}
    return [name.removesuffix("/zarr.json") for name in metadata if kinds[name] != "group"]


def _take(arrays: dict[str, Array], start: str) -> dict[str, Array]:
    """Remove the arrays whose names begin so; returns them by the rest of their names."""
    names = [name for name in arrays if name.startswith(start)]
    return {name.removeprefix(start): arrays.pop(name) for name in names}
