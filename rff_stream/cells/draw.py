"""From parameters and the pilot to cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream.cells.cost import CellCost
from rff_stream.cells.map import Cells, ChosenCells, LocalFeatures
from rff_stream.costs import Cost
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.kernel_request import AUTO, KernelRequest
from rff_stream.families.metric import columns_of_metric
from rff_stream.families.parameters import check_inputs
from rff_stream.families.protocol import MapParameters
from rff_stream.length_scales.left_out import ROWS_A_COLUMN, CellShape
from rff_stream.pilot import Pilot

EXACT_ROWS = 1536
"""Rows up to which the process itself is fitted: one cell whose landmarks are all rows."""

COLUMNS_AT_ONCE = 8
"""Columns that products take at once: others are as dear as the next multiple."""

FEWEST_COLUMNS = 256
"""Columns of the one cell of few rows, which may become many."""


def encoding_of(features: Any) -> Any:
    """What is applied to rows before they are sent to cells, None for nothing."""
    return features.encode if isinstance(features, Cells) else None


def cell_cost(features: Any, n_rows: int, d: int, planned: Cost | None = None) -> CellCost:
    """Of cells that are drawn, or that are asked for, with so many rows of d inputs.

    Few rows are one cell, whose landmarks are all of them: the process itself. There are no more
    cells than were planned.
    """
    if isinstance(features, LocalFeatures):
        return CellCost(features.n_components, features.n_trees, features.n_cells)
    if isinstance(features, ChosenCells) and n_rows <= EXACT_ROWS:
        return CellCost(max(n_rows, FEWEST_COLUMNS), 1, 1)
    cells = Cells() if isinstance(features, str) else features
    r, n_trees, n_cells = cells.sizes(n_rows, d)
    if isinstance(planned, CellCost):
        n_cells = min(n_cells, planned.n_cells)
    return CellCost(r, n_trees, n_cells)


def has_default_cells(features: Any) -> bool:
    """Whether nothing was said of the number of cells, which memory may then limit."""
    return not isinstance(features, LocalFeatures) and getattr(features, "n_cells", None) is None


def finer_cells(features: Any, sizes: CellCost, n_rows: int) -> CellCost | None:
    """Twice as many cells in one tree less, with columns whose sums take no more memory.

    None where the number of cells was asked for, or memory allows as many as rows ask for.
    """
    n_trees, r = sizes.n_trees - 1, sizes.n_features
    enough = n_rows < 2**0.5 * ROWS_A_COLUMN * r * sizes.n_cells
    if not isinstance(features, ChosenCells) or enough or n_trees < 2 or sizes.n_cells == 1:
        return None
    columns = int(r * (sizes.n_trees / (2 * n_trees)) ** 0.5) // COLUMNS_AT_ONCE * COLUMNS_AT_ONCE
    return replace(sizes, n_features=columns, n_trees=n_trees, n_cells=2 * sizes.n_cells)


def cost_of_shape(sizes: CellCost, shape: CellShape, n_rows: int) -> CellCost:
    """Of cells of the shape that was chosen; the same for the shape that was asked for."""
    if sizes.n_cells == 1:
        return sizes
    if shape.n_trees and shape.n_trees != sizes.n_trees:  # those of finer_cells
        return replace(
            sizes, n_features=shape.n_components, n_trees=shape.n_trees, n_cells=2 * sizes.n_cells
        )
    halvings = round(np.log2(max(n_rows / shape.n_rows, 1.0)))
    n_cells = min(1 << halvings, sizes.n_cells)
    return CellCost(shape.n_components, sizes.n_trees if n_cells > 1 else 1, n_cells)


def draw_cells(
    kernel: Any, pilot: Pilot, parameters: MapParameters, cost: CellCost, encoding: Any
) -> LocalFeatures:
    """Cells of the sizes that are priced, cut and filled from pilot rows."""
    exact = cost.n_cells == 1 and cost.n_features >= len(pilot.x)
    with single_threaded_blas():
        return LocalFeatures.sample(
            kernel,
            pilot.x,
            n_cells=cost.n_cells,
            n_trees=cost.n_trees,
            n_components=cost.n_features,
            rng=parameters.seed,
            dtype="float64"
            if exact and isinstance(parameters.features, ChosenCells)
            else parameters.dtype,
            encoding=encoding,
        )


def check_cells(given: Any, kernels: KernelRequest, d: int, metric: Any = None) -> None:
    """Refuse cells, an encoding or metric before them, or a kernel, that are not for d inputs."""
    encoding = encoding_of(given)
    if isinstance(given, LocalFeatures) or encoding is not None:
        check_inputs((given if encoding is None else encoding).n_inputs, d)
    if encoding is not None:
        d = encoding.n_components
    d = columns_of_metric(metric, d)
    if not isinstance(given, LocalFeatures) and kernels.rule != AUTO:
        kernels.check(d)
