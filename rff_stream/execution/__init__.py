"""The one pass: leaves of many chunks -> fixed tree -> moments.

The only room that builds a Dask graph. One task reads a box, masks it, maps its rows and
adds up all statistics; nothing of size n is ever held.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any, cast

import numpy as np

from rff_stream.errors import DataError, ModelError, PlanError
from rff_stream.execution.blas_threads import single_threaded_blas
from rff_stream.execution.checkpoints import Keeper, checkpoint_at, row_kept, same_data
from rff_stream.execution.class_checkpoints import ClassNodes
from rff_stream.execution.leaf import Leaf, Tally
from rff_stream.execution.leaves import UNKNOWN_PLACES, grid_leaves, leaves_of, places_of
from rff_stream.execution.scheduler import Pass, active_client, thread_count, worker_memory
from rff_stream.features.base import FeatureMap
from rff_stream.layout import Layout, pilot_boxes
from rff_stream.moments import AugmentedRow, Moments, ended_readings
from rff_stream.moments.accumulate import Sums
from rff_stream.moments.classes import ClassMoments, one_hot, sorted_labels
from rff_stream.moments.entries import entries_of
from rff_stream.pilot import PILOT_BLOCKS, PILOT_ROWS, Pilot, augmented_row
from rff_stream.planning import Plan, check_memory, fits
from rff_stream.planning import plan as make_plan
from rff_stream.sources import open_source
from rff_stream.sources.protocol import Source
from rff_stream.statistics.classes import ClassStatistic
from rff_stream.statistics.moments import MomentStatistic
from rff_stream.statistics.pilot import PilotRows, PilotStatistic
from rff_stream.statistics.protocol import Statistic
from rff_stream.store import Checkpoint

__all__ = ["Reading", "collect", "leaves_of", "no_rows"]

SELECTED_ROWS = 4096
"""Pilot rows sought where conditions leave rows in some blocks only: of at least 8 of them."""

PILOT_TURNS = 8
"""Times that 32 blocks are read for them; then 512 rows are enough."""


class Reading:
    """One source and everything that is read from it: pilot, moments, scores.

    Parameters
    ----------
    source : Source
    progress : bool
        Show bars on reads longer than two seconds.
    """

    def __init__(self, source: Source, *, progress: bool = True) -> None:
        self.source = source
        self._pass = Pass(source, token=uuid.uuid4().hex[:12], progress=progress)
        self._settled = False

    def plan(self, n_features: int, *, memory: int | None = None, **choices: Any) -> Plan:
        """The plan of a pass over this source; refuses what cannot fit, and no rows at all."""
        if self.source.n_rows == 0:
            raise no_rows(self.source)
        workers, threads = _size()
        memory = worker_memory() if memory is None else memory
        found = make_plan(
            self.source, n_features=n_features, threads=threads, workers=workers, **choices
        )
        while found.threads > 1 and not fits(found, memory) and self._pass.limit(found.threads - 1):
            found = replace(found, threads=found.threads - 1)
        check_memory(found, memory)
        return found

    def pilot(self, seed: int = 0) -> Pilot:
        """At most 32 blocks of at most 512 valid rows; all rows of small data.

        Raises
        ------
        DataError
            If there is no valid row.
        """
        return self._pilot(seed, labelled=False)[0]

    def class_pilot(self, seed: int = 0) -> tuple[Pilot, tuple[Any, ...]]:
        """The pilot of labelled rows, its y one-hot, and the labels that it holds, sorted."""
        pilot, found = self._pilot(seed, labelled=True)
        labels = sorted_labels(found)
        at = np.array([labels.index(label) for label in found])
        codes = at[pilot.y[:, 0].astype(int)]
        return replace(pilot, y=one_hot(codes, len(labels))), labels

    def _pilot(self, seed: int, *, labelled: bool) -> tuple[Pilot, tuple[Any, ...]]:
        """Pilot rows, and the labels that y numbers."""
        boxes, rows = pilot_boxes(self.source, PILOT_BLOCKS, PILOT_ROWS, seed)
        leaves = (Leaf(box, i << UNKNOWN_PLACES) for i, box in enumerate(boxes))
        found, statistic = PilotRows(np.empty((0, 0))), PilotStatistic(rows, seed, labelled)
        fewest = PILOT_ROWS if self.source.selection() is None else SELECTED_ROWS
        for turn in count():
            some = list(islice(leaves, PILOT_BLOCKS))
            if not some or (turn >= PILOT_TURNS and len(found.rows) >= PILOT_ROWS):
                break
            found = found + self.fold(statistic, some, words="pilot").value
            if len(found.rows) >= fewest:
                break
        if not len(found.rows):
            raise no_rows(self.source)
        inputs = self.source.columns.inputs
        x, y, w = np.split(found.rows, [len(inputs), found.rows.shape[1] - 1], axis=1)
        return Pilot(x, y, w[:, 0], inputs), found.labels

    def row(self, features: FeatureMap) -> AugmentedRow:
        """Origins from the pilot and names of the columns, for a map that is given."""
        columns, pilot = self.source.columns, self.pilot()
        with single_threaded_blas():
            return augmented_row(features, pilot, columns.inputs, columns.targets, columns.units)

    def moments(
        self,
        features: FeatureMap,
        row: AugmentedRow,
        found: Plan,
        *,
        sample_rows: int = 2000,
        grouped: bool = False,
        folds: int = 0,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[dict[Any, Moments], int]:
        """Moments by label, fold or (neither) under None, and how many rows were looked at.

        A ``checkpoint`` that has begun gives the nodes that an earlier run finished, and
        takes those of this one.
        """
        places = places_of(self.source, found.layout)
        statistic = MomentStatistic(
            features,
            row,
            found.order,
            found.sums,
            sample_rows,
            places,
            grouped,
            folds,
            found.n_groups,
            self._grid(found) if found.order == 1 else (),
        )
        generation = self.source.generation()
        keeper = None if checkpoint is None else Keeper(checkpoint)
        tally = self.sums(statistic, found.layout, keeper=keeper)
        same_data(self.source, generation)
        groups = tally.value.by_label
        ordered = {label: groups[label] for label in sorted(groups)}
        return ended_readings(ordered), tally.seen

    def _grid(self, found: Plan) -> tuple[int, ...]:
        """The grid, where leaves are not in its order: cut along another dimension than the first.

        Moments of order 1 are so small that a leaf may meet all runs of rows.
        """
        layout = found.layout
        split = any(len(edges) > 2 for edges in layout.edges[1:])
        cut = layout.parts > 1 and layout.cut > 0
        return self.source.shape if self.source.n_rows is not None and (split or cut) else ()

    def classes(
        self,
        features: FeatureMap,
        row: AugmentedRow,
        found: Plan,
        *,
        nodes: ClassNodes | None = None,
        **choices: Any,
    ) -> tuple[dict[Any, ClassMoments], int]:
        """Class moments by (fold, label), and how many rows were looked at.

        Parameters
        ----------
        nodes : ClassNodes, optional
            Where finished nodes come from and go to.
        **choices
            Of :class:`~rff_stream.statistics.classes.ClassStatistic`: labels, class_weight,
            folds, apart and sample_rows.
        """
        places, sums = places_of(self.source, found.layout), cast(Any, found.sums)
        statistic = ClassStatistic(features, row, sums, n_places=places, **choices)
        generation = self.source.generation()
        keeper = None if nodes is None else Keeper(nodes)
        tally = self.sums(statistic, found.layout, keeper=keeper)
        same_data(self.source, generation)
        return dict(tally.value.by_label), tally.seen

    def sums(
        self,
        statistic: Statistic,
        layout: Layout,
        words: str = "reading",
        keeper: Keeper | None = None,
    ) -> Tally:
        """Sum of any statistic over all rows."""
        return self.fold(
            statistic,
            leaves_of(self.source, layout),
            segment_leaves=layout.segment_leaves,
            task_leaves=layout.leaves_a_task(thread_count()),
            words=words,
            keeper=keeper,
        )

    def fold(
        self,
        statistic: Statistic,
        leaves: Sequence[Leaf],
        *,
        segment_leaves: int = 1,
        task_leaves: int = 1,
        words: str = "reading",
        keeper: Keeper | None = None,
    ) -> Tally:
        """Sum of any statistic over leaves of this source."""
        if not self._settled:
            self._pass.settle(grid_leaves(self.source))
            self._settled = True
        return self._pass.fold(
            statistic,
            leaves,
            segment_leaves=segment_leaves,
            task_leaves=task_leaves,
            n_rows=self.source.n_rows if words != "pilot" else None,
            words=words,
            keeper=keeper,
        )


def collect(
    features: FeatureMap,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    by: Any = None,
    folds: int = 0,
    order: int = 2,
    sums: Sums = "auto",
    inputs: Sequence[str] | None = None,
    dim: Any = None,
    missing_rows: str = "error",
    missing_chunks: str = "auto",
    sample_rows: int = 2000,
    n_groups: int = 1,
    row: AugmentedRow | None = None,
    plan: Plan | None = None,
    memory: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Any:
    """Moments of all rows, from one read: eager, same bits on any scheduler.

    Parameters
    ----------
    features : FeatureMap
        d inputs, R features.
    X, y, sample_weight, inputs, dim
        Data, as in :meth:`rff_stream.KernelRidge.fit`.
    by : str, list of str or array, optional
        Label of each row: moments are then kept per label in the same read. Several columns
        make labels such as "month=1,region=north": a cube of statistics.
    folds : int
        Keep this many whole runs of rows apart, for cross-validation: no extra work, and
        honest for rows that are correlated in space or time. For random rows give their
        labels as ``by``.
    order : {2, 1}
        1 keeps mean feature vectors only.
    sums : {"auto", "float32", "float64"}
        Precision of the sums.
    missing_rows : {"error", "drop"}
    missing_chunks : {"auto", "error", "fill"}
    sample_rows : int
        Rows of the mergeable sample; 0 turns it off.
    n_groups : int
        Groups expected, for the plan's memory.
    row : AugmentedRow, optional
        Origins and names to sum with; from the pilot where absent.
    plan : Plan, optional
        A layout to keep; same plan, same bits.
    memory : int, optional
        Bytes that a computing process may use.
    checkpoint : path or URL, optional
        Where finished sums are kept every 30 seconds, and where the next call with the same
        arguments goes on: with the same bits. For reads that may not live to their end.
        Remove it when the result is saved.
    progress : bool

    Returns
    -------
    Moments, or dict of label -> Moments if ``by`` or ``folds`` is given.

    Raises
    ------
    DataError
        Naming store, array, chunk or rows.
    PlanError
        If the pass cannot fit, or the plan is for other data; nothing was read.
    ModelError
        If ``row`` is of another map or of other columns, or the checkpoint of another pass.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 64, rng=0)
    >>> rs.collect(features, x, x[:, 0]).n
    500
    """
    missing: Any = {"missing_rows": missing_rows, "missing_chunks": missing_chunks}
    source = open_source(X, y, sample_weight, inputs=inputs, dim=dim, by=by, **missing)
    _require_fit(source, features, row, plan)
    reading = Reading(source, progress=progress)
    plan = plan or reading.plan(
        features.n_components, n_entries=entries_of(features), order=order, sums=sums,
        dtype=features.dtype, n_groups=max(n_groups, folds), memory=memory,
    )  # fmt: skip
    chosen: dict[str, Any] = {"sample_rows": sample_rows, "folds": folds}
    kept = checkpoint_at(checkpoint, source, plan, features, by=str(by), **missing, **chosen)
    row = row or row_kept(kept) or reading.row(features)
    if kept is not None:
        kept.begin(row, plan.order)
    groups, _ = reading.moments(
        features, row, plan, grouped=by is not None, checkpoint=kept, **chosen
    )
    if not any(moments.n for moments in groups.values()):
        raise no_rows(source)
    return groups[None] if by is None and not folds else groups


def _require_fit(
    source: Source, features: FeatureMap, row: AugmentedRow | None, plan: Plan | None
) -> None:
    """Map, row and plan that were given are for these data: or they would be misread in silence."""
    columns, d = source.columns, len(source.columns.inputs)
    if features.n_inputs != d:
        raise ValueError(
            f"The feature map takes {features.n_inputs} inputs but the data have {d} "
            f"({', '.join(columns.inputs)}). Name the inputs of the map with inputs=[…]."
        )
    if row is not None:
        mine = replace(
            row,
            map_fingerprint=features.fingerprint,
            inputs=columns.inputs,
            targets=columns.targets,
            units=columns.units,
        )
        if mine.fingerprint != row.fingerprint:
            raise ModelError(
                f"The row that was given differs from the data in {row.difference(mine)}. Give "
                "data with the names and units of the row, or no row."
            )
    if plan is not None:
        ends = tuple(edges[-1] for edges in plan.layout.edges)
        planned = (ends, plan.n_features, plan.n_inputs, plan.n_targets)
        found = (source.shape, features.n_components, d, len(columns.targets))
        if planned != found:
            words = ("grid of rows", "number of features", "inputs", "targets")
            different = [w for w, a, b in zip(words, planned, found, strict=True) if a != b]
            raise PlanError(
                f"The plan is for another {' and '.join(different)}: {planned} and not {found}. "
                "Make the plan from these data and this map."
            )


def no_rows(source: Source) -> DataError:
    """The error of data without a single usable row."""
    return DataError(
        f"Found 0 sample(s) (grid {dict(zip(source.dims, source.shape, strict=True))}, inputs "
        f"{', '.join(source.columns.inputs)}) while a minimum of 1 is required: every row is "
        "missing, filtered out or of weight 0. Look at the inputs named, or at missing_rows."
    )


def _size() -> tuple[int, int]:
    """Computing processes, and threads in each."""
    client = active_client()
    if client is None:
        return 1, thread_count()
    threads = list(client.nthreads().values()) or [1]
    return len(threads), max(threads)
