"""Which partial sums of a pass go into a checkpoint, and when. The sums are not changed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from rff_stream._array import digest
from rff_stream.contracts import RepeatableStatistic, Statistic, packing_of
from rff_stream.execution.leaves import PartialSum
from rff_stream.execution.threads import seconds
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow
from rff_stream.moments.tree_sum import Node, RunningSum, TreeSum
from rff_stream.planning import Plan
from rff_stream.sources.growth import whole_content
from rff_stream.sources.protocol import Source
from rff_stream.statistics.groups import ByFold, ByGroup, Groups
from rff_stream.statistics.moment_statistics import MomentStatistic
from rff_stream.store import Checkpoint

logger = logging.getLogger("rff_stream")

SHARE = 20
"""After a write of t seconds, there is no other for at least this many times t."""


class CheckpointWriter:
    """Restores a sum from an earlier run, and saves it from time to time.

    Nodes are written every 30 seconds (``rff-stream.checkpoint-seconds`` of Dask's
    configuration), less often where writing takes more than 5 % of the time, and once more
    when the pass ends or is stopped by anything but the end of the process. Moments, by group or
    not, are batches of a store. The checkpoint has begun.

    Raises TypeError: for a statistic that does not pack its values.
    """

    def __init__(self, checkpoint: Checkpoint, statistic: Statistic) -> None:
        self._checkpoint = checkpoint
        self._pack, self._unpack = _packing(statistic)
        self._written: set[Node] = set()
        self._every = seconds("checkpoint-seconds", 30)
        self._last, self._cost = time.monotonic(), 0.0

    def restore(self, total: TreeSum[PartialSum] | RunningSum[PartialSum]) -> int:
        """Put finished nodes into an empty sum; returns the rows looked at for them."""
        rows = 0
        for (level, index), (kept, seen) in sorted(self._checkpoint.nodes().items(), reverse=True):
            value = self._unpack(kept)
            if value is not None:
                self._written.add((level, index))
                total.add(index, PartialSum(value, seen), level)
                rows += seen
        if rows:
            logger.warning("resuming from a checkpoint of %s rows", f"{rows:,}")
        return rows

    def offer(self, total: TreeSum[PartialSum] | RunningSum[PartialSum]) -> None:
        """Write what is new, if it is time."""
        if time.monotonic() - self._last >= max(self._every, SHARE * self._cost):
            self.write(total)

    def write(self, total: TreeSum[PartialSum] | RunningSum[PartialSum]) -> None:
        """Write what is new, largest nodes first."""
        started = time.monotonic()
        for node, partial_sum in sorted(total.nodes.items(), reverse=True):
            if node not in self._written:
                self._checkpoint.save(node, self._pack(partial_sum.value), partial_sum.seen)
                self._written.add(node)
        self._last = time.monotonic()
        self._cost = self._last - started


def _packing(statistic: Statistic) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A value of a statistic -> what a checkpoint keeps of it, and back; None for no value."""
    inner = statistic.statistic if isinstance(statistic, ByFold | ByGroup) else statistic
    if not isinstance(inner, MomentStatistic):
        packing = packing_of(statistic)
        return packing.pack, packing.unpack
    if inner is statistic:
        return lambda value: {None: value}, lambda groups: groups.get(None)
    return lambda value: value.by_label, Groups


def remember_passes(sums: Callable[[Any], Any], checkpoint: Checkpoint) -> Callable[[Any], Any]:
    """The same sums; one that was asked for before is taken from the checkpoint.

    What a descent asks depends on earlier answers alone. So a second run repeats the questions
    of the first and gets the stored answers, to the bit: no other state needs to be kept. The
    checkpoint has begun.
    """
    told = False

    def ask(statistic: RepeatableStatistic) -> Any:
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


def description_of(source: Source, plan: Plan, **choices: Any) -> dict[str, Any]:
    """What the bits of a pass depend on, as plain values by name; ``choices`` of the caller first.

    Two passes of one description (and one map and row) give equal bits, so one may go on where
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
        "data": whole_content(source),
        **in_sequence,
    }


def checkpoint_of_pass(
    path: str | os.PathLike[str] | None,
    source: Source,
    plan: Plan,
    features: FeatureMap,
    **choices: Any,
) -> Checkpoint | None:
    """The checkpoint of this pass, which may exist already; None where none is wanted."""
    if path is None:
        return None
    return Checkpoint(path, description_of(source, plan, map=features.fingerprint, **choices))


def kept_row(checkpoint: Checkpoint | None) -> AugmentedRow | None:
    """What the sums of an earlier run mean; None where there was none."""
    known = None if checkpoint is None else checkpoint.store
    return None if known is None else known.row
