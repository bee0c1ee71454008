"""What a map costs: numbers held, flops and seconds of a row, memory of a solve.

Shapes: d inputs, R features, T targets, P = R + 1 + T. A plan asks the cost of its map and knows
no kind of map itself; a family of maps says its cost in
:meth:`~rff_stream.families.protocol.Family.request`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

from rff_stream.features.base import BATCH_ROWS
from rff_stream.moments import packed_size
from rff_stream.moments.counted_entries import counting_bytes, counting_seconds, counts

Precision = Literal["float32", "float64"]

SOLVE_SECONDS = 1.3  # at R = 1000: ten Cholesky factorisations' worth of eigenvalues

# Sizes of leaves depend on these two, and the order of additions on the leaves: another value
# changes the rounding of every model.
_FLOPS = {"float32": 140e9, "float64": 68e9}  # useful flops a second of the rank-k update
_COSINE = {"float32": 0.9e-9, "float64": 14.6e-9}  # seconds a value

# Times are estimated with these, measured on one thread of the slower of two idle machines.
# They are not measured again, as a plan is often made on a login node or beside other work.
MACHINE = "AMD EPYC with AVX2, 2026"
SYRK_FLOPS = {"float32": 75e9, "float64": 37e9}  # a second
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
    n_rows: int  # of the grid, missing ones included; an estimate where lengths are unknown


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

    def smaller(self) -> Cost | None:
        """The cost of half the cells; None where there is nothing to halve."""
        return None

    def larger(self) -> tuple[Cost, ...]:
        """The costs of larger maps that a search may take in its place."""
        return ()

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


def leaf_row_seconds(width: int, d: int, order: int, sums: str, dtype: str) -> float:
    """Seconds of a row that leaves are cut by: projection, cosines, for order 2 a rank-1 update."""
    features = width * (_COSINE[dtype] + 2 * d / _FLOPS[dtype])
    return features + (width**2 / _FLOPS[sums] if order == 2 else 0.0)


def batch_bytes(sizes: Sizes) -> int:
    """Of the inputs of one batch, as a map prepares them."""
    return BATCH_ROWS * 3 * 8 * (sizes.n_inputs + 2)
