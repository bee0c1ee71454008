"""What cells cost: numbers held, flops and seconds of a row, memory of a solve."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from rff_stream.cells.evidence import SAMPLED_CELLS
from rff_stream.cells.map import LITTLE, cell_bytes, pilot_rows
from rff_stream.cells.moments import precision_at_rest, waiting_rows
from rff_stream.costs import SYRK_FLOPS, VALUE_SECONDS, Cost, Precision, Sizes, leaf_row_seconds
from rff_stream.features.base import BATCH_ROWS
from rff_stream.moments import packed_size
from rff_stream.planning import SAMPLE_ROWS

ROUTING_SECONDS = 2e-9  # of an input of a row at one node of a tree
GAP_BYTES = 192 << 20  # of the test of gaps: six products of 1,024 rows, and freed pages
LOCAL_BLOCK = 64  # cells that are decomposed together
LEAF_ROWS_A_CELL = 400  # adding the sums of a leaf to others then costs 5 % of computing them
MORE_ROWS_A_CELL, SHORT_LEAF = 1000, 1 << 20  # or so many in a leaf of no more rows: some seconds
CELL_SECONDS = 0.15  # of a cell at R = 1000: four factorisations and inverses of triangles


@dataclass(frozen=True, slots=True)
class CellCost(Cost):
    """Cells of trees: a triangular solve and a rank-k update in each tree."""

    n_features: int  # R: columns of one cell
    n_trees: int  # J
    n_cells: int  # B
    decomposed: bool = False
    """Whether the penalty is looked for along a path, which takes eigenvectors of every cell."""
    n_samples: ClassVar[int] = 1

    @property
    def all_cells(self) -> int:
        return self.n_trees * self.n_cells

    @property
    def fewest_rows(self) -> int:
        return max(
            LEAF_ROWS_A_CELL * self.n_cells, min(MORE_ROWS_A_CELL * self.n_cells, SHORT_LEAF)
        )

    @property
    def pilot_rows(self) -> int:
        return pilot_rows(self.n_cells, self.n_features)

    def smaller(self) -> Cost | None:
        return replace(self, n_cells=self.n_cells // 2) if self.n_cells > 1 else None

    def larger(self) -> tuple[Cost, ...]:
        """Of two such maps, and of twice the columns in half the cells."""
        columns = replace(self, n_features=2 * self.n_features, n_cells=max(self.n_cells // 2, 1))
        return replace(self, n_trees=2 * self.n_trees), columns

    def numbers(self, sizes: Sizes) -> int:
        size = packed_size(self.width(sizes))
        if self.at_rest(sizes) == "float32":
            size = (size + 1) // 2
        return self.all_cells * (size + (1 + sizes.n_targets) ** 2)

    def at_rest(self, sizes: Sizes) -> Precision:
        """Precision of the sums that are held."""
        columns = sizes.n_inputs + sizes.n_targets + 1
        return precision_at_rest(sizes.sums, sizes.n_rows, self.n_cells, columns)

    def row_flops(self, sizes: Sizes) -> float:
        return 2.0 * self.n_trees * self.width(sizes) ** 2

    def row_seconds(self, sizes: Sizes) -> float:
        width, d = self.width(sizes), sizes.n_inputs
        value = VALUE_SECONDS[sizes.dtype] + 2 * (d + 2) / SYRK_FLOPS["float64"]
        products = 2 * width**2 / SYRK_FLOPS[sizes.sums]
        routing = ROUTING_SECONDS * d * math.log2(self.n_cells + 1)
        return self.n_trees * (width * 2 * value + products + routing)

    def layout_seconds(self, sizes: Sizes) -> float:
        one = leaf_row_seconds(self.width(sizes), sizes.n_inputs, 2, sizes.sums, sizes.dtype)
        return one * 2 * self.n_trees

    def accumulator_bytes(self, sizes: Sizes, n_groups: int, threads: int) -> int:
        """Rows that wait for their cell, factors that threads share, and one batch."""
        columns = sizes.n_inputs + sizes.n_targets + 1
        waiting = 8 * waiting_rows(self.n_cells, columns) * (2 * columns + 5 + self.n_trees // 2)
        return waiting + self._factors(sizes) // threads + 8 * BATCH_ROWS * 8 * self.width(sizes)

    def solve_bytes(self, sizes: Sizes, state_bytes: int) -> int:
        """A factor of each cell and the test of gaps, beside the sums.

        In its place the rotation of each cell, where they are decomposed. Of the landmarks the
        factors that the row sample needs are left from the pass, and few others.
        """
        whole = self.decomposed or sizes.n_targets != 1 or self.n_cells <= SAMPLED_CELLS
        solved = 8 * self.n_features**2 if whole else 8 * packed_size(self.n_features)
        solved += 3 * 8 * self.n_features * max(sizes.n_targets, 1)
        few = 8 * self.n_features**2 * 3 * min(LOCAL_BLOCK, self.all_cells)
        factors = self._factors(sizes)
        left = min(factors, factors * SAMPLE_ROWS // self.n_cells + LITTLE)
        return state_bytes + left + self.all_cells * solved + few + GAP_BYTES

    def solve_seconds(self, sizes: Sizes) -> float:
        """Factors of landmarks and of sums, the latter at a step or two of the search for α."""
        return CELL_SECONDS * (self.n_features / 1000) ** 3 * self.all_cells

    def lines(self, sizes: Sizes, n_rows: int) -> list[tuple[str, str]]:
        share = n_rows / self.n_cells
        trees = f"{self.n_trees} trees of {self.n_cells:,}, about {share:,.0f} rows in each"
        cells = f"{trees}, R = {self.n_features}, sums kept in {self.at_rest(sizes)}"
        return [("cells", cells)]

    def _factors(self, sizes: Sizes) -> int:
        return self.all_cells * cell_bytes(self.n_features, sizes.n_inputs, sizes.dtype)
