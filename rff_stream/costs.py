"""What each kind of map costs: numbers held, flops and seconds of a row, memory of a solve.

Shapes: d inputs, R features, T targets, P = R + 1 + T. A plan asks the cost of its map and knows
no kind of map itself; a family of maps says its cost in
:meth:`~rff_stream.families.protocol.Family.request`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

from rff_stream.cells.map import cell_bytes, pilot_rows
from rff_stream.cells.moments import waiting_rows
from rff_stream.features.base import BATCH_ROWS
from rff_stream.moments import packed_size
from rff_stream.moments.counted_entries import counting_bytes, counting_seconds, counts
from rff_stream.text_formatting import format_seconds

Precision = Literal["float32", "float64"]

ROUTING_SECONDS = 2e-9  # of an input of a row at one node of a tree
GAP_BYTES = 192 << 20  # of the test of gaps: six products of 1,024 rows, and freed pages
LOCAL_BLOCK = 64  # cells that are decomposed together
LEAF_ROWS_A_CELL = 400  # adding the sums of a leaf to others then costs 5 % of computing them
MORE_ROWS_A_CELL, SHORT_LEAF = 1000, 1 << 20  # or so many in a leaf of no more rows: some seconds
GRID_TAPS = 11  # of a transform's spreading along an axis, at its tolerance
GRID_ROWS = 1 << 18  # of one transform
GRID_SECONDS = 1.5e-6  # of a row with one target on a plane
GRID_PROBES, GRID_BLOCK = 4, 2000  # of evidence; columns that are eliminated
GRID_STEPS = 100  # of a solve, where none were foreseen
GRID_STEP_SECONDS = 3e-8  # of one number of a padded product
GRID_SEARCH = 5  # evaluations of evidence on all columns, where length-scales are searched for
GRID_COARSE_SECONDS = 20.0  # of that search on fewer columns, for one kernel
SOLVE_SECONDS = 1.3  # at R = 1000: ten Cholesky factorisations' worth of eigenvalues
CELL_SECONDS = 0.15  # of a cell at R = 1000: four factorisations and inverses of triangles

# Sizes of leaves depend on these two, and the order of additions on the leaves: another value
# changes the rounding of every model.
_FLOPS = {"float32": 140e9, "float64": 68e9}  # useful flops a second of the rank-k update
_COSINE = {"float32": 0.9e-9, "float64": 14.6e-9}  # seconds a value

# Times are estimated with these, measured on one thread of the slower of two idle machines.
# They are not measured again, as a plan is often made on a login node or beside other work.
MACHINE = "AMD EPYC with AVX2, 2026"
SYRK_FLOPS = {"float32": 75e9, "float64": 37e9}
VALUE_SECONDS = {"float32": 2e-9, "float64": 16e-9}  # of a feature: projected, its cosine
STORED_SECONDS = 2e-9  # of a feature that a rank-k update takes


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a cost depends on besides its map."""

    n_inputs: int  # d
    n_targets: int  # T
    order: int  # order of the moments
    sums: Precision  # {"float32", "float64"}: of the sums
    dtype: Precision  # {"float32", "float64"}: of the features


@runtime_checkable
class Cost(Protocol):
    """What a pass with one map takes, by the sizes of its rows."""

    n_features: int
    """R: columns of the map, or of one cell."""

    @property
    def all_cells(self) -> int:
        """Cells of all trees, each with sums of its own; 0 for a map without cells."""

    @property
    def n_samples(self) -> int:
        """Row samples that the sums of one label group keep: one for each map."""

    @property
    def fewest_rows(self) -> int:
        """Fewest rows for which a leaf is efficient; 0 if there is no minimum."""

    @property
    def pilot_rows(self) -> int:
        """Pilot rows that the map needs; 0 for the default number."""

    def width(self, sizes: Sizes) -> int:
        """P of the map, or of one cell."""
        return self.n_features + 1 + sizes.n_targets

    def numbers(self, sizes: Sizes) -> int:
        """Float64 numbers of the sums of one label group."""

    def row_flops(self, sizes: Sizes) -> float:
        """Useful flops of the sums of one row."""

    def row_seconds(self, sizes: Sizes) -> float:
        """CPU seconds of one row."""

    def layout_seconds(self, sizes: Sizes) -> float:
        """The seconds of a row that leaves are cut by: constants, as leaves decide bits."""

    def accumulator_bytes(self, sizes: Sizes, n_groups: int, threads: int) -> int:
        """Memory of one leaf's sums while it adds rows."""

    def solve_bytes(self, sizes: Sizes, state_bytes: int) -> int:
        """Memory of the solve."""

    def solve_seconds(self, sizes: Sizes) -> float:
        """Seconds of the solve."""

    def lines(self, sizes: Sizes, n_rows: int) -> list[tuple[str, str]]:
        """What a printed plan says of the map besides R."""


@dataclass(frozen=True, slots=True)
class WholeCost(Cost):
    """A map of the whole space: a rank-k update of P columns, or pairs of entries counted."""

    n_features: int  # R
    n_entries: int | None = None
    """Of a row of Z that are not 0: the grids of a map that bins. R where absent."""
    all_cells: ClassVar[int] = 0
    n_samples: ClassVar[int] = 1
    fewest_rows: ClassVar[int] = 0
    pilot_rows: ClassVar[int] = 0

    @property
    def entries(self) -> int:
        """Of a row of Z that are not 0."""
        return self.n_features if self.n_entries is None else self.n_entries

    def counts_pairs(self, sizes: Sizes) -> bool:
        """Whether entries are counted in pairs, in place of rank-k updates."""
        return sizes.order == 2 and counts(self.n_features, self.entries, sizes.sums)

    def numbers(self, sizes: Sizes) -> int:
        width = self.width(sizes)
        return packed_size(width) if sizes.order == 2 else 33 * width

    def row_flops(self, sizes: Sizes) -> float:
        columns = self.entries if self.counts_pairs(sizes) else self.n_features
        return float((columns + 1 + sizes.n_targets) ** 2) if sizes.order == 2 else 0.0

    def row_seconds(self, sizes: Sizes) -> float:
        if self.counts_pairs(sizes):
            return counting_seconds(self.n_features, self.entries, sizes.n_inputs)
        width = self.width(sizes)
        value = VALUE_SECONDS[sizes.dtype] + 2 * sizes.n_inputs / SYRK_FLOPS[sizes.dtype]
        if sizes.order == 1:
            return width * value
        return width * (value + STORED_SECONDS) + width**2 / SYRK_FLOPS[sizes.sums]

    def layout_seconds(self, sizes: Sizes) -> float:
        return leaf_row_seconds(
            self.width(sizes), sizes.n_inputs, sizes.order, sizes.sums, sizes.dtype
        )

    def accumulator_bytes(self, sizes: Sizes, n_groups: int, threads: int) -> int:
        """Triangles, one batch of Z or its entries, and the map's scratch."""
        rows, width = batch_bytes(sizes), self.width(sizes)
        if self.counts_pairs(sizes):
            counting = counting_bytes(self.n_features, self.entries, sizes.n_targets)
            return n_groups * (rows + counting)
        batch = rows + BATCH_ROWS * 2 * 8 * width
        if sizes.order == 1:
            return n_groups * (batch + 8 * 33 * width)
        return n_groups * (batch + (8 if sizes.sums == "float64" else 12) * width**2)

    def solve_bytes(self, sizes: Sizes, state_bytes: int) -> int:
        """Three R×R in float64; order 1 needs none."""
        return 3 * 8 * self.n_features**2 if sizes.order == 2 else 0

    def solve_seconds(self, sizes: Sizes) -> float:
        return SOLVE_SECONDS * (self.n_features / 1000) ** 3 if sizes.order == 2 else 0.0

    def lines(self, sizes: Sizes, n_rows: int) -> list[tuple[str, str]]:
        if not self.counts_pairs(sizes):
            return []
        return [("counted", f"{self.entries:,} of {self.n_features:,} columns in a row")]


@dataclass(frozen=True, slots=True)
class CellCost(Cost):
    """Cells of trees: a triangular solve and a rank-k update in each tree."""

    n_features: int  # R: columns of one cell
    n_trees: int  # J
    n_cells: int  # B
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

    def numbers(self, sizes: Sizes) -> int:
        return self.all_cells * packed_size(self.width(sizes))

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
        """Factors and rotations of each cell, and the test of gaps, beside the sums."""
        rotations = 8 * self.n_features**2 * (self.all_cells + 3 * LOCAL_BLOCK)
        return state_bytes + self._factors(sizes) + rotations + GAP_BYTES

    def solve_seconds(self, sizes: Sizes) -> float:
        """Factors of landmarks and of sums, the latter at a step or two of the search for α."""
        return CELL_SECONDS * (self.n_features / 1000) ** 3 * self.all_cells

    def lines(self, sizes: Sizes, n_rows: int) -> list[tuple[str, str]]:
        share = n_rows / self.n_cells
        trees = f"{self.n_trees} trees of {self.n_cells:,}, about {share:,.0f} rows in each"
        return [("cells", f"{trees}, R = {self.n_features}")]

    def _factors(self, sizes: Sizes) -> int:
        return self.all_cells * cell_bytes(self.n_features, sizes.n_inputs, sizes.dtype)


@dataclass(frozen=True, slots=True)
class GridCost(Cost):
    """A grid of frequencies: non-uniform transforms of the rows, iterations of the solve."""

    n_features: int  # R: all columns of the grid
    modes: tuple[int, ...]  # m of each axis
    steps: int = GRID_STEPS  # of conjugate gradients for one solve, as they are foreseen
    n_searched: int = 0  # kernels whose length-scales are searched for after the read
    all_cells: ClassVar[int] = 0
    n_samples: ClassVar[int] = 1
    fewest_rows: ClassVar[int] = GRID_ROWS
    pilot_rows: ClassVar[int] = 0

    def numbers(self, sizes: Sizes) -> int:
        """Of density, projections, trends and border."""
        d, t = sizes.n_inputs, sizes.n_targets
        own = self.n_features + math.prod(2 * m + 1 for m in self.modes[:-1])
        differences = math.prod(4 * m + 1 for m in self.modes[:-1]) * (4 * self.modes[-1] + 2)
        return differences + own * (t + d) + (1 + d + t) ** 2

    def row_flops(self, sizes: Sizes) -> float:
        """Of spreading: the transforms' other work does not grow with the rows."""
        return 2.0 * math.pow(GRID_TAPS, sizes.n_inputs) * self._transforms(sizes)

    def row_seconds(self, sizes: Sizes) -> float:
        spreading = math.pow(GRID_TAPS, sizes.n_inputs - 2)
        return GRID_SECONDS * spreading * self._transforms(sizes) / 4

    def layout_seconds(self, sizes: Sizes) -> float:
        return GRID_SECONDS

    def accumulator_bytes(self, sizes: Sizes, n_groups: int, threads: int) -> int:
        """Rows that wait for a transform, and its grids."""
        rows = 8 * GRID_ROWS * (4 * sizes.n_inputs + 4 * sizes.n_targets + 8)
        return n_groups * rows + (16 << (2 * sizes.n_inputs)) * self.n_features

    def solve_bytes(self, sizes: Sizes, state_bytes: int) -> int:
        """A dozen vectors of all probes, and the preconditioner's block."""
        vectors = 12 * (sizes.n_targets + 2 * GRID_PROBES)
        return 16 * vectors * self.n_features + 3 * 8 * GRID_BLOCK**2

    def solve_seconds(self, sizes: Sizes) -> float:
        """The solution, its evidence, and the search for length-scales."""
        step = GRID_STEP_SECONDS * math.pow(2, sizes.n_inputs) * self.n_features
        found = self.steps * step * (2 * sizes.n_targets + GRID_PROBES)
        if not self.n_searched:
            return found
        again = GRID_SEARCH * self.steps * step * (sizes.n_targets + GRID_PROBES / 2)
        return found + again + self.n_searched * GRID_COARSE_SECONDS

    def lines(self, sizes: Sizes, n_rows: int) -> list[tuple[str, str]]:
        sides = " × ".join(str(2 * m + 1) for m in self.modes)
        seconds = format_seconds(self.solve_seconds(sizes))
        searched = f" and a search over {self.n_searched} kernel(s)" if self.n_searched else ""
        told = f"{self.steps} steps of conjugate gradients a solve{searched}, about {seconds}"
        return [("grid", f"{sides} frequencies"), ("steps", told)]

    def _transforms(self, sizes: Sizes) -> int:
        """Transforms of a row: density, projections and trends."""
        return 1 + sizes.n_targets + sizes.n_inputs


@dataclass(frozen=True, slots=True)
class SeveralCosts(Cost):
    """Several maps in one read: what they take adds up."""

    members: tuple[Cost, ...]

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return sum(each.n_features for each in self.members)

    @property
    def all_cells(self) -> int:
        return sum(each.all_cells for each in self.members)

    @property
    def n_samples(self) -> int:
        return len(self.members)

    @property
    def fewest_rows(self) -> int:
        return max(each.fewest_rows for each in self.members)

    @property
    def pilot_rows(self) -> int:
        return max(each.pilot_rows for each in self.members)

    def numbers(self, sizes: Sizes) -> int:
        return sum(each.numbers(sizes) for each in self.members)

    def row_flops(self, sizes: Sizes) -> float:
        return sum(each.row_flops(sizes) for each in self.members)

    def row_seconds(self, sizes: Sizes) -> float:
        return sum(each.row_seconds(sizes) for each in self.members)

    def layout_seconds(self, sizes: Sizes) -> float:
        return sum(each.layout_seconds(sizes) for each in self.members)

    def accumulator_bytes(self, sizes: Sizes, n_groups: int, threads: int) -> int:
        return sum(each.accumulator_bytes(sizes, n_groups, threads) for each in self.members)

    def solve_bytes(self, sizes: Sizes, state_bytes: int) -> int:
        own = [each.numbers(sizes) for each in self.members]
        shares = (state_bytes * each / sum(own) for each in own)
        parts = zip(self.members, shares, strict=True)
        return sum(each.solve_bytes(sizes, int(share)) for each, share in parts)

    def solve_seconds(self, sizes: Sizes) -> float:
        return sum(each.solve_seconds(sizes) for each in self.members)

    def lines(self, sizes: Sizes, n_rows: int) -> list[tuple[str, str]]:
        return [line for each in self.members for line in each.lines(sizes, n_rows)]


def leaf_row_seconds(width: int, d: int, order: int, sums: str, dtype: str) -> float:
    """Seconds of a row that leaves are cut by: projection, cosines, for order 2 a rank-1 update."""
    features = width * (_COSINE[dtype] + 2 * d / _FLOPS[dtype])
    return features + (width**2 / _FLOPS[sums] if order == 2 else 0.0)


def batch_bytes(sizes: Sizes) -> int:
    """Of the inputs of one batch, as a map prepares them."""
    return BATCH_ROWS * 3 * 8 * (sizes.n_inputs + 2)
