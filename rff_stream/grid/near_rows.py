"""A first look at a kernel, in windows of neighbouring rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from rff_stream._array import Float64
from rff_stream.kernels import ExactKernel, Matern
from rff_stream.length_scales.window_evidence import (
    MetricFit,
    RowWindow,
    WindowEvidence,
    fit_windows,
    left_out_residuals,
)
from rff_stream.length_scales.windows import deviation, nearest_to_median, scattered_windows
from rff_stream.pilot import neighbour_scale, weight_unit

NEAR_ROWS, NEAR_STEPS = 128, 30
"""Rows of a window, and steps of each search, in the first comparison."""

RATIOS_OF = Matern(nu=1.5)
"""The kernel whose length-scales give the ratios between inputs in the first comparison."""


def fit_near_rows(
    blocks: Sequence[RowWindow], rows: RowWindow, kernels: Sequence[ExactKernel], *, rng: Generator
) -> tuple[MetricFit, Float64] | None:
    """A first look at the kernel, and the error that it leaves at rows among their neighbours.

    Blocks are of neighbouring rows, ``rows`` of everywhere. The error (T,) is the mean square at
    left-out rows of compact windows, the others of the window seen. None where there are too few
    rows, or no target varies.

    One CPU second for ten blocks. The ratios of length-scales are those of a rough kernel, as a
    smooth one may see ridges in noise. Its searches start from the steps between rows and from
    their spread: an input that varies quickly and one that hardly matters are both found.
    """
    unit = weight_unit(rows.w)
    blocks = [RowWindow(each.x, each.y, each.w / unit) for each in blocks]
    scale = np.median([neighbour_scale(block.x) for block in blocks], axis=0)
    near = [nearest_to_median(each, np.diag(1 / scale), NEAR_ROWS) for each in blocks]
    near = [each for each in near if len(each.x) >= NEAR_ROWS / 2]
    if not near or not any((each.y != each.y[:1]).any() for each in near):
        return None
    far = scattered_windows(rows, size=2 * NEAR_ROWS, count=1, rng=rng)
    windows = [*near, *(RowWindow(each.x, each.y, each.w / unit) for each in far)]
    rough = [
        fit_windows(windows, RATIOS_OF, each, ard=True, iterations=NEAR_STEPS)
        for each in (scale, deviation(rows.x))
    ]
    best = max(rough, key=lambda end: end.log_evidence)
    evidence = WindowEvidence(windows, best.matrix)
    ends = [
        evidence.climb_scales(each, best.alpha, ard=False, iterations=NEAR_STEPS)
        for each in kernels
    ]
    found = max(ends, key=lambda end: end.log_evidence)
    residuals = [left_out_residuals(each, found) for each in near]
    return found, np.asarray((np.concatenate(residuals) ** 2).mean(axis=0))
