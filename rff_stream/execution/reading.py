"""A source and what is read from it: its plan, its pilot, and sums of any statistic."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np

from rff_stream.contracts import Statistic
from rff_stream.errors import DataError
from rff_stream.execution.checkpoints import CheckpointWriter
from rff_stream.execution.leaves import UNKNOWN_PLACES, Leaf, Leaves, PartialSum
from rff_stream.execution.pilot_boxes import pilot_boxes
from rff_stream.execution.scheduler import Pass, Summation, computing_processes
from rff_stream.leaf_layout import Layout
from rff_stream.moments import ended_readings
from rff_stream.moments.class_moments import one_hot, sorted_labels
from rff_stream.moments.copies import different_share, levels_repeat, merge_copies
from rff_stream.pilot import PILOT_BLOCKS, PILOT_ROWS, Pilot, PilotRows, PilotStatistic
from rff_stream.planning import Plan, PlanRequest, check_memory, fits, plan_for
from rff_stream.sources.levels import is_coded
from rff_stream.sources.protocol import Source
from rff_stream.statistics.groups import ByFold, ByGroup, Slabs
from rff_stream.store import Checkpoint
from rff_stream.text_formatting import list_names

SELECTED_ROWS = 4096
"""Number of pilot rows to find if conditions select rows in some blocks only: from at least 8 of
these blocks."""

COUNTED_PARTITIONS = 8
"""Partitions of unknown length that tell how many rows all of them have, at most: a pass over all
of so few, and an eighth of one over 64."""

PILOT_TURNS = 8
"""Largest number of times that 32 blocks are read for them; then 512 rows are enough."""


class Reading:
    """One source and everything that is read from it: pilot, moments, scores.

    ``held_bytes`` are those of the model that is read for: they count as memory of every plan.
    Plans are for the computing processes there are, or for so many ``(processes, threads)``.
    """

    def __init__(
        self,
        source: Source,
        *,
        progress: bool = True,
        held_bytes: int = 0,
        processes: tuple[int, int] | None = None,
    ) -> None:
        self.source, self._held_bytes, self._processes = source, held_bytes, processes
        self._pass = Pass(source, token=uuid.uuid4().hex[:12], progress=progress)

    def plan(self, request: PlanRequest, *, memory: int | None = None) -> Plan:
        """The plan of a pass over this source; refuses what cannot fit, and no rows at all.

        ``memory`` are the bytes that a computing process may use. Where the request shrinks, its
        map is as large as they allow.
        """
        if self.source.n_rows == 0:
            raise no_rows(self.source)
        workers, threads, _ = computing_processes()
        if self._processes is not None:
            workers, threads = self._processes
        memory = self._most_memory(memory)
        plan = plan_for(self.source, request, threads=threads, workers=workers)
        plan = replace(plan, held_bytes=self._held_bytes)
        while plan.leaves_at_once > 1 and not fits(plan, memory):
            if self._processes is not None or not self._pass.limit(plan.threads - 1):
                break
            plan = replace(plan, threads=plan.threads - 1)
        if request.shrinks and not fits(plan, memory):
            plan = self._smaller_plan(plan, request, memory)
        check_memory(plan, memory)
        return plan

    def allows(self, plan: Plan, memory: int | None = None) -> bool:
        """Whether a plan fits into these bytes, or into what a computing process may use."""
        return fits(plan, self._most_memory(memory))

    def _most_memory(self, memory: int | None) -> int | None:
        """Bytes that a computing process may use, where none are given; None: all that is free."""
        if memory is not None or self._processes is not None:
            return memory
        return computing_processes()[2]

    def _smaller_plan(self, plan: Plan, request: PlanRequest, memory: int | None) -> Plan:
        """The plan of the largest map that fits; the same where none does."""
        cost = request.cost.smaller()
        while cost is not None:
            smaller = replace(request, cost=cost)
            found = plan_for(self.source, smaller, threads=plan.threads, workers=plan.workers)
            found = replace(found, held_bytes=plan.held_bytes, reduced_from=request.cost)
            if fits(found, memory):
                return found
            cost = cost.smaller()
        return plan

    def count_partitions(self) -> None:
        """Find out about how many rows there are, where partitions have unknown lengths.

        The size of a map follows from it: one for many rows interpolates few.
        """
        source: Any = self.source
        if source.n_rows is not None:
            return
        count = source.shape[0]
        some = np.unique(np.linspace(0, count - 1, COUNTED_PARTITIONS).astype(int)).tolist()
        leaves = [Leaf(((place, place + 1),), place << UNKNOWN_PLACES) for place in some]
        seen = self.sum_leaves(PilotStatistic(1, 0), leaves, words="pilot").seen
        source.partition_rows = max(-(-seen // len(some)), 1)

    def places(self, plan: Plan) -> int:
        """Places of rows in the whole data (or room for them), which runs are cut from."""
        known = self.source.n_rows
        return plan.layout.n_boxes << UNKNOWN_PLACES if known is None else known

    def pilot(self, seed: int = 0, *, rows: int = PILOT_ROWS, cells: int = 0) -> Pilot:
        """At most 32 blocks of at most ``rows`` valid rows; all rows of small data. Copies are one.

        For so many cells, which know only the pilot rows inside of them, as many rows come from
        up to as many blocks: a part of a grid from which none came would have a poor map.

        Raises DataError: if there is no valid row.
        """
        return self._pilot(seed, labelled=False, rows=rows, cells=cells)[0]

    def class_pilot(
        self, seed: int = 0, *, rows: int = PILOT_ROWS, cells: int = 0
    ) -> tuple[Pilot, tuple[Any, ...]]:
        """The pilot of labelled rows, its y one-hot, and the labels that it holds, sorted."""
        pilot, met = self._pilot(seed, labelled=True, rows=rows, cells=cells)
        labels = sorted_labels(met)
        at = np.array([labels.index(label) for label in met])
        codes = at[pilot.y[:, 0].astype(int)]
        return replace(pilot, y=one_hot(codes, len(labels))), labels

    def _pilot(
        self, seed: int, *, labelled: bool, rows: int, cells: int
    ) -> tuple[Pilot, tuple[Any, ...]]:
        """Pilot rows, and the labels that y numbers."""
        boxes, blocks, rows = pilot_boxes(self.source, PILOT_BLOCKS, rows, seed, most=cells)
        leaves = (Leaf(box, i << UNKNOWN_PLACES) for i, box in enumerate(boxes))
        total, statistic = PilotRows(np.empty((0, 0))), PilotStatistic(rows, seed, labelled)
        fewest = PILOT_ROWS if self.source.possible_places() is None else SELECTED_ROWS
        seen = 0
        for turn in count():
            some = list(islice(leaves, blocks))
            if not some or (turn >= PILOT_TURNS and len(total.rows) >= PILOT_ROWS):
                break
            partial_sum = self.sum_leaves(statistic, some, words="pilot")
            total, seen = total + partial_sum.value, seen + partial_sum.seen
            if len(total.rows) >= fewest:
                break
        if not len(total.rows):
            raise no_rows(self.source)
        inputs = self.source.columns.inputs
        x, y, w = np.split(total.rows, [len(inputs), total.rows.shape[1] - 1], axis=1)
        share = total.n_valid / seen
        levels = [place for place, name in enumerate(inputs) if is_coded(name)]
        if levels_repeat(x, levels):
            return Pilot(x, y, w[:, 0], inputs, share), total.labels
        different = different_share(total.rows[:, :-1], with_target=not labelled)
        x, y, weights = merge_copies(x, y, w[:, 0], of_classes=labelled)
        return Pilot(x, y, weights, inputs, share, different), total.labels

    def moments(
        self,
        statistic: Statistic,
        plan: Plan,
        *,
        grouped: bool = False,
        folds: int = 0,
        runs: int = 1,
        slabs: Slabs | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[dict[Any, Any], int]:
        """Sums by label, fold or (neither) under None, and how many rows were looked at.

        ``grouped`` is by the labels that rows carry; so many ``folds``, of ``runs`` runs of rows
        each, or of slabs of their inputs, are kept apart. The checkpoint is as in :meth:`whole`.
        """
        if grouped:
            statistic = ByGroup(statistic)
        elif folds:
            statistic = ByFold(statistic, folds, self.places(plan), runs, slabs)
        partial_sum = self.whole(statistic, plan, checkpoint)
        groups = partial_sum.value.by_label if grouped or folds else {None: partial_sum.value}
        ordered = {label: groups[label] for label in sorted(groups)}
        return ended_readings(ordered), partial_sum.seen

    def whole(
        self, statistic: Statistic, plan: Plan, checkpoint: Checkpoint | None = None
    ) -> PartialSum:
        """Sum of any statistic over all rows, whose data did not change meanwhile.

        A checkpoint that has begun gives finished nodes of an earlier run, and keeps those of
        this one.
        """
        generation, layout = self.source.generation(), plan.layout
        partial_sum = self._pass.run(
            Summation(
                statistic,
                Leaves(self.source, layout),
                layout,
                self.source.n_rows,
                grid=self._grid(plan),
                writer=None if checkpoint is None else CheckpointWriter(checkpoint, statistic),
            )
        )
        if self.source.generation() != generation:
            grid = f"{' × '.join(self.source.dims)} {self.source.shape}"
            raise DataError(
                f"The data changed while {grid} of it were read, so the sum may mix old and new "
                "values and is dropped. Data must not change during a pass; run it again when "
                "their writer has finished."
            )
        return partial_sum

    def _grid(self, plan: Plan) -> tuple[int, ...]:
        """The grid, where leaves are not in its order: cut along another dimension than the first.

        Moments of order 1 are so small that a leaf may meet all runs of rows.
        """
        layout = plan.layout
        split = any(len(edges) > 2 for edges in layout.edges[1:])
        cut = layout.parts > 1 and layout.cut > 0
        known = self.source.n_rows is not None
        return self.source.shape if plan.order == 1 and known and (split or cut) else ()

    def sums(self, statistic: Statistic, layout: Layout, words: str = "reading") -> PartialSum:
        """Sum of any statistic over all rows, in the leaves of a plan; the bar says the words."""
        leaves = Leaves(self.source, layout)
        return self._pass.run(Summation(statistic, leaves, layout, self.source.n_rows, words=words))

    def sum_leaves(self, statistic: Statistic, leaves: Sequence[Leaf], words: str) -> PartialSum:
        """Sum of any statistic over some leaves of this source."""
        n_rows = self.source.n_rows if words != "pilot" else None
        return self._pass.run(Summation(statistic, leaves, n_rows=n_rows, words=words))


def no_rows(source: Source) -> DataError:
    """The error of data without a single usable row."""
    return DataError(
        f"Found 0 sample(s) (grid {dict(zip(source.dims, source.shape, strict=True))}, inputs "
        f"{list_names(source.columns.inputs)}) while a minimum of 1 is required: every row is "
        "missing, filtered out or of weight 0. Look at the inputs named, or at missing_rows."
    )
