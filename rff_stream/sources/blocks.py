"""Blocks of unknown length: dask arrays with unknown chunks and Dask DataFrames.

The grid counts partitions. A task gets the blocks of its partitions and checks there that
those of X, y and weights are equally long; how many blocks each has is checked before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.columns import SourceBuilder
from rff_stream.sources.container_types import is_from, plain_array
from rff_stream.sources.protocol import Box, BoxCost, Columns, PlacesAlong, Reader, Rows
from rff_stream.sources.request import HoldOut, Selection
from rff_stream.sources.rows import Filler, Rules, Slab
from rff_stream.sources.variables import Variable, Window, Wrap, column_values, kinds_like

GUESSED_ROWS = 65_536
"""Assumed rows of a partition of unknown length, until some partitions were counted."""

PARTITION_BITS = 40
"""A row's place for hold-outs: partition · 2⁴⁰ + row."""


@dataclass(frozen=True, slots=True)
class Member:
    """X, y, weight or label: something with one block (or a row of blocks) a partition."""

    name: str
    blocks: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class BlockColumn:
    """What a use takes from a member's block."""

    name: str  # for messages
    member: int
    column: Any  # column of a DataFrame
    dtype: np.dtype[Any]  # announced
    window: Window  # columns of an array that are read

    def of(self, blocks: Sequence[Any], partition: int) -> Array:
        """The values, checked against what was announced."""
        values = self.values(blocks[self.member])
        if values.dtype.kind not in kinds_like(self.dtype):
            raise DataError(
                f"Partition {partition} of {self.name!r} has dtype {values.dtype}, but its "
                f"meta says {self.dtype}. A block must hold what was announced; give the right "
                f"meta."
            )
        columns = [slice(*part) for part in self.window.values()]
        return values[:, columns[0]] if columns else values

    def values(self, block: Any) -> Array:
        """An array, or the column of a DataFrame, in numpy."""
        if not is_from(block, "pandas"):
            return plain_array(block)
        return column_values(block if self.column is None else block[self.column])


@dataclass(frozen=True, slots=True, eq=False)
class BlockReader:
    """Worker side of blocks of unknown length."""

    members: tuple[Member, ...]
    packed: bool  # whether one value a partition holds the blocks of all members
    block_columns: tuple[BlockColumn, ...]
    filler: Filler  # as in VariablesReader
    rules: Rules  # as in VariablesReader
    holdouts: tuple[HoldOut, ...] = ()  # as in VariablesReader

    def read(self, box: Box, *values: Any) -> Iterator[Rows]:
        """Rows of the partitions in slabs, in their order."""
        feed, start = iter(values), 0
        for partition in range(*box[0]):
            blocks = self.blocks(feed, partition)
            length = self.length(blocks, partition)
            arrays = [column.of(blocks, partition) for column in self.block_columns]
            slabs = partial(self.slabs, arrays, length, partition)
            words = f"partition {partition}"
            for rows in self.rules.read(slabs, words, f"row {{}} of {words}".format):
                yield replace(rows, start=start + rows.start)
            start += length

    def blocks(self, feed: Iterator[Any], partition: int) -> list[Any]:
        """One block per member."""
        if self.packed:
            return list(next(feed))
        return [self.side_by_side(member, feed, partition) for member in self.members]

    def side_by_side(self, member: Member, feed: Iterator[Any], partition: int) -> Any:
        """A member's blocks along its columns, joined."""
        several = [next(feed) for _ in range(member.blocks)]
        if len(several) == 1:
            return several[0]
        check_equal([len(block) for block in several], [member.name] * len(several), partition)
        return np.concatenate([plain_array(block) for block in several], axis=1)

    def length(self, blocks: Sequence[Any], partition: int) -> int:
        """Rows of a partition, the same for all members."""
        lengths = [len(block) for block in blocks]
        check_equal(lengths, [member.name for member in self.members], partition)
        return lengths[0]

    def slabs(self, arrays: Sequence[Array], length: int, partition: int) -> Iterator[Slab]:
        """Slabs of one partition before the rules, hold-outs applied."""
        for slices, slab in self.filler.slabs(arrays, (length,)):
            rows = np.arange(slices[0].start, slices[0].stop, dtype=np.uint64)
            for holdout in self.holdouts:
                slab.select(holdout.of_places(rows + np.uint64(partition << PARTITION_BITS)))
            yield slab


def check_equal(lengths: Sequence[int], names: Sequence[str], partition: int) -> None:
    """All lengths are the first one."""
    for length, name in zip(lengths, names, strict=True):
        if length != lengths[0]:
            raise DataError(
                f"Partition {partition} of {names[0]} has {lengths[0]} rows, but that of {name} "
                f"has {length}. Rows are paired by place, so partitions must be equally long. "
                f"Put them into one DataFrame or array before filtering."
            )


class BlockSource:
    """Driver side of blocks; see :class:`rff_stream.sources.protocol.Source`.

    Collections are in the order of the members; a single one where they are packed.
    """

    dims: tuple[str, ...] = ("partitions",)
    n_rows: int | None = None
    is_lazy: bool = True
    partition_rows: int = GUESSED_ROWS
    """Rows of a partition, about."""

    def __init__(
        self,
        columns: Columns,
        reader: BlockReader,
        count: int,
        collections: Sequence[Any],
        wrap: Wrap,
        missing_chunks: str,
    ) -> None:
        self.columns = columns
        self.shape: tuple[int, ...] = (count,)
        self.bounds: tuple[tuple[int, ...], ...] = (tuple(range(count + 1)),)
        self._reader = reader
        self._selective = any(use.role == "condition" for use in reader.filler.uses)
        self.row_bytes = sum(column.dtype.itemsize for column in reader.block_columns)
        self.collections = list(collections)
        self.missing_chunks = missing_chunks
        self._wrap = wrap

    @property
    def reader(self) -> Reader:
        """What a worker needs to read partitions."""
        return self._reader

    @property
    def filler(self) -> Filler:
        """How rows are filled from blocks."""
        return self._reader.filler

    def read_as(self, columns: Columns, filler: Filler) -> Self:
        """The same rows with other columns."""
        found = copy.copy(self)
        found.columns, rules = columns, replace(self._reader.rules, columns=columns)
        found._reader = replace(self._reader, filler=filler, rules=rules)
        return found

    @cached_property
    def graph(self) -> Mapping[Any, Any] | None:
        """One optimised graph of all blocks."""
        from rff_stream.sources.graph_arrays import one_graph

        return one_graph(self.collections, self.missing_chunks)

    def arguments(self, box: Box) -> tuple[Any, ...]:
        """Graph keys of the blocks, partition by partition."""
        from dask.task_spec import TaskRef

        keys = [collection.__dask_keys__() for collection in self.collections]
        return tuple(
            TaskRef(key)
            for partition in range(*box[0])
            for of_one in keys
            for key in flat(of_one[partition])
        )

    def cost(self, box: Box) -> BoxCost:
        """An estimate: lengths are unknown until the blocks are computed."""
        partitions = box[0][1] - box[0][0]
        rows = partitions * self.partition_rows
        return BoxCost(rows, rows * self.row_bytes, rows * self.row_bytes, partitions)

    def possible_places(self) -> PlacesAlong | None:
        """Any partition may hold rows that meet the conditions."""
        return (None,) if self._selective else None

    def generation(self) -> str:
        """Hash of the keys, and of stored arrays behind them."""
        from rff_stream._array import digest
        from rff_stream.sources.graph_arrays import of_graph

        keys = [str(collection.__dask_keys__()[0]) for collection in self.collections]
        return digest([keys, of_graph(self.graph)])

    def describe(self, box: Box) -> str:
        """ "partitions 0:3"."""
        return f"partitions {box[0][0]}:{box[0][1]}"

    def wrap(self, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
        return self._wrap(values, names, units)


def flat(keys: Any) -> list[Any]:
    """Keys of one partition: a key, or a list of keys along the columns."""
    return list(keys) if isinstance(keys, list) else [keys]


def check_counts(counts: Mapping[str, int]) -> None:
    """All have as many partitions as the first."""
    first = next(iter(counts))
    for name, count in counts.items():
        if count != counts[first]:
            raise DataError(
                f"{first} has {counts[first]} partitions, but {name} has {count}. Partitions "
                f"are paired by place where lengths are unknown; give both as one DataFrame (y "
                f"by name), repartition one of them, or call compute_chunk_sizes()."
            )


def block_source(
    builder: SourceBuilder,
    members: Sequence[Member],
    collections: Sequence[Any],
    place: Callable[[Variable], tuple[int, Any]],
    wrap: Wrap,
    selection: Selection,
    packed: bool = False,
) -> BlockSource:
    """The source of a draft whose variables stand for blocks."""
    windows, rules = builder.windows(), builder.rules(selection)
    block_columns = tuple(
        BlockColumn(variable.name, *place(variable), variable.dtype, window)
        for variable, window in zip(builder.variables, windows, strict=True)
    )
    filler, holdouts = builder.filler(windows), tuple(builder.holdouts)
    reader = BlockReader(tuple(members), packed, block_columns, filler, rules, holdouts)
    count = len(collections[0].__dask_keys__())
    return BlockSource(rules.columns, reader, count, collections, wrap, selection.missing_chunks)
