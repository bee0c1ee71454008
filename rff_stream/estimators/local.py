"""Local features in an estimator: cells for the data, length-scales from windows, the answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.local import (
    LocalPosterior,
    cross_validate_cells,
    local_evidence,
    local_posterior,
    local_spectrum,
)
from rff_stream.answers.windows import Window, compact_windows, neighbour_scale, search_windows
from rff_stream.execution import Reading
from rff_stream.execution.blas_threads import single_threaded_blas
from rff_stream.execution.leaf import Leaf
from rff_stream.features import Cells, LocalFeatures
from rff_stream.kernels import Kernel, as_kernel
from rff_stream.layout import pilot_boxes, rows_of
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate_cells import cell_row
from rff_stream.moments.cells import CellMoments
from rff_stream.pilot import PILOT_BLOCKS, PILOT_ROWS, Pilot
from rff_stream.sources import Columns
from rff_stream.statistics.windows import WindowRows, WindowStatistic

__all__ = ["local_sizes"]

logger = logging.getLogger("rff_stream")

FEWEST_PILOT_ROWS, MOST_PILOT_ROWS = 1 << 16, 1 << 20
"""Pilot rows: few say nothing of short scales; landmarks beyond many lie between them."""

WINDOWS, BLOCK_ROWS = 10, 1024
"""Windows that length-scales are learnt from; neighbouring rows kept for each."""

ALPHAS = np.logspace(-6, 3, 28)
"""Penalties that cross-validation compares, times the mean eigenvalue of a cell's matrix."""


def is_local(features: Any) -> bool:
    """Whether this choice of features is a local map, or one to be."""
    return isinstance(features, Cells | LocalFeatures) or (
        isinstance(features, str) and features == "local"
    )


def local_sizes(features: Any, n_rows: int) -> dict[str, int]:
    """R, J and B of a local map, or of the one to be for so many rows; for a plan."""
    if isinstance(features, LocalFeatures):
        sizes = (features.n_components, features.n_trees, features.n_cells)
    else:
        asked = Cells() if isinstance(features, str) else features
        sizes = (asked.n_components, asked.n_trees, asked.cells_of(n_rows))
    return dict(zip(("n_features", "n_trees", "n_cells"), sizes, strict=True))


def draw_locally(
    reading: Reading,
    columns: Columns,
    features: Any,
    kernel: Kernel | str | Sequence[Kernel | str],
    length_scale: Any,
    *,
    seed: int,
    dtype: Any,
    progress: bool,
) -> tuple[LocalFeatures, AugmentedRow]:
    """The map, drawn for pilot rows, and what a row of one of its cells means.

    A map that is given stays as it is. Length-scales are numbers, those of the kernel, or found
    on compact windows of rows: one for "evidence", else ("ard", and "median", which cannot see
    local scales) one for each input.
    """
    sizes = local_sizes(features, rows_of(reading.source))
    wanted = sizes["n_cells"] * sizes["n_features"]
    wanted = min(max(wanted, FEWEST_PILOT_ROWS), MOST_PILOT_ROWS)
    pilot = reading.pilot(seed, rows=max(-(-wanted // PILOT_BLOCKS), PILOT_ROWS))
    if not isinstance(features, LocalFeatures):
        known = _known_kernel(kernel, length_scale)
        if known is None:
            share = sizes["n_features"] * sizes["n_cells"] / max(rows_of(reading.source), 1)
            known = _search(reading, pilot, _named(kernel), length_scale, share, seed, progress)
        with single_threaded_blas():
            features = LocalFeatures.sample(
                known,
                pilot.x,
                n_cells=sizes["n_cells"],
                n_trees=sizes["n_trees"],
                n_components=sizes["n_features"],
                rng=seed,
                dtype=dtype,
            )
    row = cell_row(
        features,
        target_origin=pilot.target_origin,
        target_scale=pilot.target_scale,
        inputs=columns.inputs,
        targets=columns.targets,
        units=columns.units,
    )
    return features, row


def answer_locally(
    features: LocalFeatures,
    moments: CellMoments,
    alpha: Array | float | None,
    *,
    fit_intercept: bool,
) -> tuple[LocalPosterior, Float64]:
    """The posterior from moments, and log p (T,) as the mean over trees; no α: by evidence."""
    spectrum = local_spectrum(features, moments, fit_intercept=fit_intercept)
    evidence = local_evidence(spectrum, alpha=alpha)
    return local_posterior(evidence, moments.sample.rows), evidence.log_evidence.mean(axis=0)


def penalty_by_folds(
    features: LocalFeatures, folds: Mapping[Any, CellMoments], *, fit_intercept: bool
) -> Float64:
    """α (T,) of the least held-out error, summed over folds and trees."""
    parts = list(folds.values())
    size = np.mean([part.weight for part in parts]) * len(parts) / features.n_cells
    alphas = ALPHAS * size * features.kernel.variance / features.n_components
    losses = cross_validate_cells(features, parts, alphas, fit_intercept=fit_intercept)
    return np.asarray(alphas[losses.sum(axis=(0, 1)).argmin(axis=0)])


def _named(kernel: Kernel | str | Sequence[Kernel | str]) -> list[Any]:
    several = [kernel] if isinstance(kernel, str) or not isinstance(kernel, Sequence) else kernel
    return [as_kernel(each) for each in several]


def _known_kernel(kernel: Any, length_scale: Any) -> Any:
    """The kernel with the length-scales that were given; None where they are to be found."""
    named = _named(kernel)
    own = getattr(named[0], "length_scale", None)
    if len(named) == 1 and own is not None:
        return named[0]
    if isinstance(length_scale, str):
        return None
    values = np.asarray(length_scale, np.float64)
    return named[0].with_length_scale(float(values) if values.ndim == 0 else tuple(values.tolist()))


def _search(
    reading: Reading,
    pilot: Pilot,
    kernels: list[Any],
    length_scale: str,
    share: float,
    seed: int,
    progress: bool,
) -> Any:
    """The kernel that explains windows of rows best."""
    rng, rows = np.random.default_rng(seed), Window(pilot.x, pilot.y, pilot.w)
    with single_threaded_blas():
        found = search_windows(
            _blocks(reading, rows, rng, seed),
            rows,
            kernels,
            ard=length_scale != "evidence",
            rng=rng,
            share=share,
        )
    if progress:
        logger.info(
            "length-scales from windows: log p %.1f of %s", found.log_evidence, found.kernel
        )
    return found.kernel


def _blocks(reading: Reading, rows: Window, rng: np.random.Generator, seed: int) -> list[Window]:
    """Neighbouring rows: of the pilot, or of boxes of the data where those lie closer together.

    Rows that are stored side by side are neighbours on a grid, and strangers in a shuffled table.
    """
    scale, size = neighbour_scale(rows.x), min(BLOCK_ROWS, len(rows.x))
    near = compact_windows(rows.x, rows.y, rows.w, scale=scale, size=size, count=WINDOWS, rng=rng)
    if reading.source.n_rows is not None and len(rows.x) >= reading.source.n_rows / 2:
        return near
    boxes, _ = pilot_boxes(reading.source, WINDOWS, PILOT_ROWS, seed)
    leaves = [Leaf(box, 0) for box, _ in zip(boxes, range(WINDOWS), strict=False)]
    found: WindowRows = reading.add_up(
        WindowStatistic(BLOCK_ROWS, seed), leaves, words="pilot"
    ).value
    d = rows.x.shape[1]
    stored = [Window(each[:, :d], each[:, d:-1], each[:, -1]) for each in found.windows]
    unit = rows.x.std(axis=0) + np.finfo(float).tiny
    return min(near, stored, key=lambda blocks: _log_volume(blocks, unit))


def _log_volume(blocks: list[Window], unit: Float64) -> float:
    """Mean log extent of some blocks along the inputs, for as many rows; ∞ where there are none."""
    sizes = [
        np.log(np.ptp(block.x, axis=0) / unit + 1e-12).mean() - np.log(len(block.x)) / len(unit)
        for block in blocks
        if len(block.x) > 1
    ]
    return float(np.median(sizes)) if sizes else np.inf
