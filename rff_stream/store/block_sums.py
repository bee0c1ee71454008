"""Sums of blocks of batches, which are kept: a sum of thousands of batches reads few of them.

Batches in the order of their ids are cut into blocks where a hash of the id says so, so one batch
more, or one less, changes one block. A block's sum is a store inside, under a hash of its batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from rff_stream._array import digest
from rff_stream.errors import ModelError
from rff_stream.store.batch_reading import (
    Groups,
    answer_name,
    read_ahead,
    read_batch,
    read_batches,
    sum_by_group,
)
from rff_stream.store.batch_writing import Root
from rff_stream.store.commit_log import Batch, Log

SUMS = "sums"

LENGTH = 128
"""Batches of a block on average. Of n batches a sum reads n/128 blocks and the batches of the
block that changed: least work near √n, for 10,000."""

FEWEST = 8
"""Batches below which a block is read one by one: a store inside costs about as much as three."""


def sorted_batches(log: Log) -> list[Batch]:
    """The batches that count, sorted by id."""
    live = log.state.live
    return [live[key] for key in sorted(live)]


def blocks_of(batches: Sequence[Batch]) -> list[list[Batch]]:
    """Batches, which are sorted by id, in blocks."""
    blocks: list[list[Batch]] = [[]]
    for batch in batches:
        blocks[-1].append(batch)
        if int(digest(batch.id)[:8], 16) % LENGTH == 0:
            blocks.append([])
    return [block for block in blocks if block]


def names_of_blocks(log: Log, batches: Sequence[Batch]) -> dict[str, list[Batch]]:
    """The blocks that are long enough to be kept, by the folder of their sum."""
    long = (block for block in blocks_of(batches) if len(block) >= FEWEST)
    return {answer_name(log, block): block for block in long}


def kept_sums(log: Log) -> set[str]:
    """Folders of the sums that are there."""
    return set(log.files.folders(SUMS))


def lasting_blocks(log: Log, batches: Sequence[Batch]) -> dict[str, list[Batch]]:
    """Blocks whose sums are worth keeping: that with the newest batch will change again."""
    newest = max((batch.number for batch in batches), default=0)
    found = names_of_blocks(log, batches)
    return {n: block for n, block in found.items() if all(b.number < newest for b in block)}


def sum_of_batches(log: Log, batches: Sequence[Batch], root: Root, max_bytes: int | None) -> Groups:
    """Sum of each group over batches sorted by id: of each block, then of the blocks.

    The same bits whether sums of blocks are kept or not.
    """
    there = kept_sums(log)
    calls = []
    for i, block in enumerate(blocks_of(batches)):
        name = answer_name(log, block) if there and len(block) >= FEWEST else ""
        if name in there:
            calls.append((i, partial(read_sum, log, name, block, root, max_bytes)))
        else:
            calls += [(i, partial(read_batch, log, each, root, max_bytes)) for each in block]

    def sums() -> Iterator[Groups]:
        read = read_ahead(call for _, call in calls)
        for _, parts in groupby(zip((i for i, _ in calls), read, strict=True), itemgetter(0)):
            yield sum_by_group(groups for _, groups in parts)

    return sum_by_group(sums())


def read_sum(
    log: Log, name: str, block: Sequence[Batch], root: Root, max_bytes: int | None
) -> Groups:
    """The kept sum of a block, every byte verified; of its batches where it is no longer there.

    The same where it was never finished: its driver died, and at a URL nothing comes at once.

    Raises ModelError: it is damaged, with the remedy to remove it.
    """
    files = log.files.below(f"{SUMS}/{name}")
    try:
        inside = Log.open(files)
        (batch,) = inside.state.live.values()
        groups = read_batch(inside, batch, root, max_bytes)
        if batch.rows != sum(each.rows for each in block):
            raise ModelError(f"{inside.files.place} does not hold the rows of its batches.")
        return groups
    except (ModelError, ValueError) as error:
        if name in kept_sums(log) and files.folders("log"):
            place = f"{log.files.place}/{SUMS}/{name}"
            raise ModelError(
                f"{error} Or remove {place}: it is a cache, and summed again."
            ) from error
    return sum_by_group(groups for _, groups in read_batches(log, block, root, max_bytes))
