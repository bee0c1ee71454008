"""Windows of pilot rows, and the search for a map that looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.execution import Reading
from rff_stream.execution.leaves import Leaf
from rff_stream.execution.pilot_boxes import pilot_boxes
from rff_stream.families.maps import logger
from rff_stream.families.protocol import MapParameters
from rff_stream.features.composed import encode_rows
from rff_stream.features.normal_scores import NormalScores, heavy_inputs
from rff_stream.leaf_layout import n_rows_of
from rff_stream.length_scales.budget import SearchBudget
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_search import MapSearch
from rff_stream.length_scales.window_evidence import RANGE, RowWindow
from rff_stream.length_scales.windows import compact_windows
from rff_stream.moments.copies import merge_copies
from rff_stream.pilot import (
    MOST_OF_LEAF,
    PILOT_ROWS,
    Pilot,
    WindowRows,
    WindowStatistic,
    neighbour_scale,
)

WINDOWS, PLACES, BLOCK_ROWS = 10, 2, 1024
"""Boxes of stored neighbours, or windows of the pilot; windows of each box; neighbouring rows kept
for each. Of one window of each box, a search on six-hourly weather took another kernel in one of
six random states, whose error was a sixth larger; of two it did not."""

MOST_WINDOW_TARGETS = 8
"""If there are more targets, a search by windows takes random combinations of them: it needs
only their variation in space."""

SEARCH_SECONDS, SEARCHED_ROWS = 3.0, 4000
"""Approximate CPU seconds of a search by windows, for each kernel and once more for a metric, and
approximate rows of all its windows."""

MOST_VALUES = 6_000_000
"""Values of pilot rows that are searched: all rows of up to 300 inputs, 7,653 rows of 784. Of these
a quarter judge; the windows and slopes see 2,000 rows or fewer."""

FEWEST_LEVELS = 4
"""With fewer values of an input in a window, its length-scale cannot be estimated there."""


def seconds_of_windows(n_kernels: int, n_rows: int) -> float:
    """CPU seconds, about, of a search by windows: for each kernel and once more for a metric."""
    return (n_kernels + 1) * SEARCH_SECONDS * min(1.0, n_rows / SEARCHED_ROWS)


def searched_rows(x: Float64, y: Float64, w: Float64, rng: np.random.Generator) -> RowWindow:
    """Rows of the pilot that are searched: all, or some where inputs are many."""
    rows = RowWindow(x, y, w)
    if x.size <= MOST_VALUES:
        return rows
    return rows.part(np.sort(rng.permutation(len(x))[: MOST_VALUES // x.shape[1]]))


def pilot_windows(rows: RowWindow, rng: np.random.Generator) -> list[RowWindow]:
    """Compact windows of pilot rows."""
    size, centres = min(BLOCK_ROWS, len(rows.x)), rng.permutation(len(rows.x))[:WINDOWS]
    return compact_windows(rows, np.diag(1 / neighbour_scale(rows.x)), size=size, centres=centres)


def neighbouring_rows(
    reading: Reading,
    rows: RowWindow,
    n_rows: int,
    rng: np.random.Generator,
    seed: int,
    encoding: Any = None,
) -> tuple[list[RowWindow], bool]:
    """Neighbouring rows: of the pilot (True), or of boxes of the data that lie closer together.

    Of the data, which have so many rows without copies. Rows that are stored side by side are
    neighbours on a grid, and strangers in a shuffled table. A cube in one long table has slices
    side by side, so boxes are as large as a fortieth of the data and the windows' own limit allow:
    those of few slices tell little of the input across.
    """
    near = pilot_windows(rows, rng)
    if 2 * len(rows.x) >= n_rows:
        return near, True
    size = max(min(MOST_OF_LEAF, n_rows_of(reading.source) // (4 * WINDOWS)) // 4, PILOT_ROWS)
    boxes, *_ = pilot_boxes(reading.source, WINDOWS, size, seed)
    leaves = [Leaf(box, 0) for box, _ in zip(boxes, range(WINDOWS), strict=False)]
    found: WindowRows = reading.sum_leaves(
        WindowStatistic(BLOCK_ROWS, seed, PLACES), leaves, words="pilot"
    ).value
    d = len(reading.source.columns.inputs)
    merged = (merge_copies(each[:, :d], each[:, d:-1], each[:, -1]) for each in found.windows)
    stored = [RowWindow(encode_rows(encoding, x), y, w) for x, y, w in merged]
    unit = rows.x.std(axis=0) + np.finfo(float).tiny
    closer = _log_volume(stored, unit) < _log_volume(near, unit)
    thin = (_levels(stored) < FEWEST_LEVELS) & (_levels(near) >= FEWEST_LEVELS)
    return (stored, False) if closer and not thin.any() else (near, True)


def _levels(blocks: list[RowWindow]) -> Float64:
    """How many different values (d,) each input has in some blocks, in the middle one."""
    counts = [[len(np.unique(column)) for column in block.x.T] for block in blocks]
    return np.asarray(np.median(counts, axis=0) if counts else 0.0)


def _log_volume(blocks: list[RowWindow], unit: Float64) -> float:
    """Mean log extent of some blocks along the inputs, for as many rows; ∞ where there are none."""
    sizes = [
        np.log(np.ptp(block.x, axis=0) / unit + 1e-12).mean() - np.log(len(block.x)) / len(unit)
        for block in blocks
        if len(block.x) > 1
    ]
    return float(np.median(sizes)) if sizes else np.inf


def few_targets(y: Float64, rng: np.random.Generator) -> Float64:
    """At most eight combinations of targets (m, T), drawn at random: they vary where these do."""
    if y.shape[1] <= MOST_WINDOW_TARGETS:
        return y
    return np.asarray(y @ rng.choice([-1.0, 1.0], (y.shape[1], MOST_WINDOW_TARGETS)))


def map_search(
    rows: RowWindow,
    blocks: Sequence[RowWindow],
    in_rows: bool,
    parameters: MapParameters,
    shape: CellShape,
    rng: np.random.Generator,
    *,
    scores: bool = False,
    sizes: bool = False,
    finer: CellShape | None = None,
    averages: bool = False,
    trends: bool = False,
) -> MapSearch:
    """The search that the parameters ask for, before it has run.

    Copies are one row. Normal scores of heavy-tailed inputs, cells of other sizes, the mean of two
    maps, and what a line leaves compete where it is said. Where scores do not compete, values that
    no length-scale in reach can tell apart are bounded.
    """
    free = parameters.kernels.free
    heavy = heavy_inputs(rows.x) if scores and free else np.empty(0, np.int64)
    if not len(heavy):
        low, high = Pilot(rows.x, rows.y, rows.w).bounds(RANGE)
        rows, *blocks = (
            RowWindow(np.clip(each.x, low, high), each.y, each.w) for each in (rows, *blocks)
        )
    blocks = [RowWindow(*merge_copies(each.x, each.y, each.w)) for each in blocks]
    learns = isinstance(parameters.metric, str) and (free or parameters.metric == "full")
    return MapSearch(
        rows,
        blocks,
        in_rows,
        list(parameters.kernels.named),
        shape,
        rng,
        ard=parameters.kernels.rule != "evidence",
        metric=learns,
        only_metric=learns and parameters.metric == "full",
        sizes=sizes,
        more_columns=parameters.larger_fit,
        finer=finer,
        averages=averages,
        trends=trends and free,
        warps=scores and free,
        budget=SearchBudget(
            np.inf if parameters.search_seconds is None else parameters.search_seconds
        ),
        normal_scores=NormalScores.of_rows(rows.x, heavy) if len(heavy) else None,
        say=logger.info if parameters.progress else lambda line: None,
    )
