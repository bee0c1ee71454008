"""What a grid of frequencies costs: transforms of the rows, iterations of the solve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rff_stream.costs import Cost, Sizes
from rff_stream.grid.system import BLOCK
from rff_stream.text_formatting import format_seconds

TAPS = 11  # of a transform's spreading along an axis, at its tolerance
ROWS = 1 << 18  # of one transform
SECONDS = 1.5e-6  # of a row with one target on a plane
PROBES = 4  # random vectors for the evidence and the degrees of freedom that are reported
STEPS = 100  # of a solve, where none were foreseen
STEP_SECONDS = 3e-8  # of one number of a padded product
SEARCH = 5  # evaluations of evidence on all columns, where length-scales are searched for
COARSE_SECONDS = 20.0  # of that search on fewer columns, for one kernel


@dataclass(frozen=True, slots=True)
class GridCost(Cost):
    """A grid of frequencies: non-uniform transforms of the rows, iterations of the solve."""

    n_features: int  # R: all columns of the grid
    modes: tuple[int, ...]  # m of each axis
    steps: int = STEPS  # of conjugate gradients for one solve, as they are foreseen
    n_searched: int = 0  # kernels whose length-scales are searched for after the read
    all_cells: ClassVar[int] = 0
    n_samples: ClassVar[int] = 1
    fewest_rows: ClassVar[int] = ROWS
    pilot_rows: ClassVar[int] = 0

    def numbers(self, sizes: Sizes) -> int:
        """Of density, projections, trends and border."""
        d, t = sizes.n_inputs, sizes.n_targets
        own = self.n_features + math.prod(2 * m + 1 for m in self.modes[:-1])
        differences = math.prod(4 * m + 1 for m in self.modes[:-1]) * (4 * self.modes[-1] + 2)
        return differences + own * (t + d) + (1 + d + t) ** 2

    def row_flops(self, sizes: Sizes) -> float:
        """Of spreading: the transforms' other work does not grow with the rows."""
        return 2.0 * math.pow(TAPS, sizes.n_inputs) * self._transforms(sizes)

    def row_seconds(self, sizes: Sizes) -> float:
        spreading = math.pow(TAPS, sizes.n_inputs - 2)
        return SECONDS * spreading * self._transforms(sizes) / 4

    def layout_seconds(self, sizes: Sizes) -> float:
        return SECONDS

    def accumulator_bytes(self, sizes: Sizes, n_groups: int, threads: int) -> int:
        """Rows that wait for a transform, and its grids."""
        rows = 8 * ROWS * (4 * sizes.n_inputs + 4 * sizes.n_targets + 8)
        return n_groups * rows + (16 << (2 * sizes.n_inputs)) * self.n_features

    def solve_bytes(self, sizes: Sizes, state_bytes: int) -> int:
        """A dozen vectors of all probes, and the preconditioner's block."""
        vectors = 12 * (sizes.n_targets + 2 * PROBES)
        return 16 * vectors * self.n_features + 3 * 8 * BLOCK**2

    def solve_seconds(self, sizes: Sizes) -> float:
        """The solution, its evidence, and the search for length-scales."""
        step = STEP_SECONDS * math.pow(2, sizes.n_inputs) * self.n_features
        found = self.steps * step * (2 * sizes.n_targets + PROBES)
        if not self.n_searched:
            return found
        again = SEARCH * self.steps * step * (sizes.n_targets + PROBES / 2)
        return found + again + self.n_searched * COARSE_SECONDS

    def lines(self, sizes: Sizes, n_rows: int) -> list[tuple[str, str]]:
        sides = " × ".join(str(2 * m + 1) for m in self.modes)
        seconds = format_seconds(self.solve_seconds(sizes))
        searched = f" and a search over {self.n_searched} kernel(s)" if self.n_searched else ""
        told = f"{self.steps} steps of conjugate gradients a solve{searched}, about {seconds}"
        return [("grid", f"{sides} frequencies"), ("steps", told)]

    def _transforms(self, sizes: Sizes) -> int:
        """Transforms of a row: density, projections and trends."""
        return 1 + sizes.n_targets + sizes.n_inputs
