"""Which partial sums of a pass go into a checkpoint, and when. The sums are not changed."""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Protocol

from rff_stream._array import digest
from rff_stream.errors import DataError
from rff_stream.execution.leaves import Tally
from rff_stream.execution.thread_watchdog import seconds
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow
from rff_stream.moments.tree_sum import Node, RunningSum, TreeSum
from rff_stream.planning import Plan
from rff_stream.sources.protocol import Source
from rff_stream.statistics.groups import ByFold, ByGroup, Groups
from rff_stream.statistics.loss import LossStatistic, LossSums, SumOfRows
from rff_stream.statistics.moments import MomentStatistic
from rff_stream.statistics.protocol import Statistic, packing_of
from rff_stream.store import Checkpoint

logger = logging.getLogger("rff_stream")

SHARE = 20
"""A write of t seconds is followed by at least so many times t without one."""


class Nodes(Protocol):
    """Where finished nodes of a sum are kept."""

    def nodes(self) -> dict[Node, tuple[Any, int]]:
        """Finished nodes: values of the statistic, and the rows that were looked at for them."""
        ...

    def save(self, node: Node, value: Any, seen: int) -> None:
        """Keep a node in place of those below it."""
        ...


class MomentNodes:
    """Nodes of moments, by group or not: a checkpoint keeps them as batches of a store.

    Parameters
    ----------
    checkpoint : Checkpoint
        Begun: it knows what the moments mean.
    grouped : bool
        Values are :class:`~rff_stream.statistics.groups.Groups` of moments.
    """

    def __init__(self, checkpoint: Checkpoint, *, grouped: bool) -> None:
        self._checkpoint, self._grouped = checkpoint, grouped

    def nodes(self) -> dict[Node, tuple[Any, int]]:
        return {
            node: (Groups(groups) if self._grouped else groups[None], seen)
            for node, (groups, seen) in self._checkpoint.nodes().items()
            if self._grouped or groups
        }

    def save(self, node: Node, value: Any, seen: int) -> None:
        self._checkpoint.save(node, value.by_label if self._grouped else {None: value}, seen)


class PackedNodes:
    """Nodes of any statistic that packs its values.

    Parameters
    ----------
    checkpoint : Checkpoint
        Begun.
    statistic : Statistic
    """

    def __init__(self, checkpoint: Checkpoint, statistic: Statistic) -> None:
        self._checkpoint, self._packing = checkpoint, packing_of(statistic)

    def nodes(self) -> dict[Node, tuple[Any, int]]:
        return {
            node: (self._packing.unpack(packed), seen)
            for node, (packed, seen) in self._checkpoint.nodes().items()
        }

    def save(self, node: Node, value: Any, seen: int) -> None:
        self._checkpoint.save(node, self._packing.pack(value), seen)


def nodes_of(checkpoint: Checkpoint, statistic: Statistic) -> Nodes:
    """Where a checkpoint that has begun keeps nodes of a statistic: moments as a store does.

    Raises
    ------
    TypeError
        For a statistic that does not pack its values.
    """
    inner = statistic.statistic if isinstance(statistic, ByFold | ByGroup) else statistic
    if isinstance(inner, MomentStatistic):
        return MomentNodes(checkpoint, grouped=inner is not statistic)
    return PackedNodes(checkpoint, statistic)


class Keeper:
    """Restores a sum from an earlier run, and saves it from time to time.

    Parameters
    ----------
    nodes : Nodes

    Notes
    -----
    Nodes are written every 30 seconds (``rff-stream.checkpoint-seconds`` of Dask's
    configuration), less often where writing takes more than 5 % of the time, and once more
    when the pass ends or is stopped by anything but the end of the process.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._written: set[Node] = set()
        self._every = seconds("checkpoint-seconds", 30)
        self._last, self._cost = time.monotonic(), 0.0

    def restore(self, total: TreeSum[Tally] | RunningSum[Tally]) -> int:
        """Put finished nodes into an empty sum; returns the rows looked at for them."""
        rows = 0
        for (level, index), (value, seen) in sorted(self._nodes.nodes().items(), reverse=True):
            self._written.add((level, index))
            total.add(index, Tally(value, seen), level)
            rows += seen
        if rows:
            logger.warning("resuming from a checkpoint of %s rows", f"{rows:,}")
        return rows

    def offer(self, total: TreeSum[Tally] | RunningSum[Tally]) -> None:
        """Write what is new, if it is time."""
        if time.monotonic() - self._last >= max(self._every, SHARE * self._cost):
            self.write(total)

    def write(self, total: TreeSum[Tally] | RunningSum[Tally]) -> None:
        """Write what is new, largest nodes first."""
        started = time.monotonic()
        for node, tally in sorted(total.nodes.items(), reverse=True):
            if node not in self._written:
                self._nodes.save(node, tally.value, tally.seen)
                self._written.add(node)
        self._last = time.monotonic()
        self._cost = self._last - started


def remember_passes(sums: SumOfRows, checkpoint: Checkpoint) -> SumOfRows:
    """The same sums; one that was asked for before is taken from the checkpoint.

    What a descent asks depends on earlier answers alone. So a second run repeats the questions
    of the first and gets the stored answers, to the bit: no other state needs to be kept.

    Parameters
    ----------
    sums : callable
        A statistic -> its sum over all rows.
    checkpoint : Checkpoint
        Begun.
    """
    told = False

    def ask(statistic: LossStatistic) -> LossSums:
        nonlocal told
        question = statistic.question(checkpoint.token)
        known = checkpoint.find(question)
        if known is None:
            answer = sums(statistic)
            checkpoint.keep(question, statistic.pack(answer))
            return answer
        if not told:
            logger.warning("resuming: sums of earlier passes come from the checkpoint")
        told = True
        return statistic.unpack(known)

    return ask


def facts_of(source: Source, plan: Plan, **choices: Any) -> dict[str, Any]:
    """What the bits of a pass depend on, as plain values by name; ``choices`` of the caller first.

    Two passes with equal facts (and one map and row) give equal bits, so one may go on where
    the other was stopped.
    """
    columns, layout = source.columns, plan.layout
    in_sequence = {"added": "one after the other"} if layout.in_sequence else {}
    return {
        **choices,
        "inputs": list(columns.inputs),
        "targets": list(columns.targets),
        "units": list(columns.units),
        "weight": columns.weight,
        "rows": dict(zip(source.dims, source.shape, strict=True)),
        "n_components": plan.n_features,
        "order": plan.order,
        "sums": plan.sums,
        "dtype": plan.dtype,
        "leaves": [layout.n_boxes, layout.parts, layout.cut, layout.segment_leaves, layout.seed],
        "edges": digest([list(edges) for edges in layout.edges]),
        "data": source.generation(),
        **in_sequence,
    }


def checkpoint_at(
    path: str | os.PathLike[str] | None,
    source: Source,
    plan: Plan,
    features: FeatureMap,
    **asked: Any,
) -> Checkpoint | None:
    """The checkpoint of this pass, which may exist already; None where none is wanted."""
    if path is None:
        return None
    return Checkpoint(path, facts_of(source, plan, map=features.fingerprint, **asked))


def kept_row(checkpoint: Checkpoint | None) -> AugmentedRow | None:
    """What the sums of an earlier run mean; None where there was none."""
    known = None if checkpoint is None else checkpoint.store
    return None if known is None else known.row


def check_same_data(source: Source, before: str) -> None:
    """Refuse what was summed while the data changed under it.

    Raises
    ------
    DataError
    """
    if source.generation() != before:
        raise DataError(
            f"The data changed while {' × '.join(source.dims)} {source.shape} of it were read, so "
            "the sum may mix old and new values and is dropped. Data must not change during a "
            "pass; run it again when their writer has finished."
        )
