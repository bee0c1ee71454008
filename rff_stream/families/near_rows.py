"""Windows of neighbouring rows that length-scales are learnt from: of the pilot or of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.execution import Reading
from rff_stream.execution.leaf_task import Leaf
from rff_stream.features.cells import encode_rows
from rff_stream.length_scales.windows import Window, compact_windows, neighbour_scale
from rff_stream.pilot import PILOT_ROWS
from rff_stream.pilot_boxes import pilot_boxes
from rff_stream.statistics.pilot import WindowRows, WindowStatistic

WINDOWS, BLOCK_ROWS = 10, 1024
"""Windows that length-scales are learnt from; neighbouring rows kept for each."""


def pilot_windows(rows: Window, rng: np.random.Generator) -> list[Window]:
    """Compact windows of pilot rows."""
    return compact_windows(
        rows.x,
        rows.y,
        rows.w,
        scale=neighbour_scale(rows.x),
        size=min(BLOCK_ROWS, len(rows.x)),
        count=WINDOWS,
        rng=rng,
    )


def neighbouring_rows(
    reading: Reading, rows: Window, rng: np.random.Generator, seed: int, encoding: Any = None
) -> tuple[list[Window], bool]:
    """Neighbouring rows: of the pilot (True), or of boxes of the data that lie closer together.

    Rows that are stored side by side are neighbours on a grid, and strangers in a shuffled table.
    """
    near = pilot_windows(rows, rng)
    if reading.source.n_rows is not None and len(rows.x) >= reading.source.n_rows / 2:
        return near, True
    boxes, _ = pilot_boxes(reading.source, WINDOWS, PILOT_ROWS, seed)
    leaves = [Leaf(box, 0) for box, _ in zip(boxes, range(WINDOWS), strict=False)]
    found: WindowRows = reading.add_up(
        WindowStatistic(BLOCK_ROWS, seed), leaves, words="pilot"
    ).value
    d = len(reading.source.columns.inputs)
    stored = [
        Window(encode_rows(encoding, each[:, :d]), each[:, d:-1], each[:, -1])
        for each in found.windows
    ]
    unit = rows.x.std(axis=0) + np.finfo(float).tiny
    closer = _log_volume(stored, unit) < _log_volume(near, unit)
    return (stored, False) if closer else (near, True)


def _log_volume(blocks: list[Window], unit: Float64) -> float:
    """Mean log extent of some blocks along the inputs, for as many rows; ∞ where there are none."""
    sizes = [
        np.log(np.ptp(block.x, axis=0) / unit + 1e-12).mean() - np.log(len(block.x)) / len(unit)
        for block in blocks
        if len(block.x) > 1
    ]
    return float(np.median(sizes)) if sizes else np.inf
