"""What boxes cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rff_stream.costs import Cost, Sizes


@dataclass(frozen=True, slots=True)
class BoxCost(Cost):
    """A look-up and an addition a row."""

    n_features: int  # R
    all_cells: ClassVar[int] = 0
    n_samples: ClassVar[int] = 1
    fewest_rows: ClassVar[int] = 0
    pilot_rows: ClassVar[int] = 0

    def numbers(self, sizes: Sizes) -> int:
        return self.n_features * (1 + sizes.n_targets) + sizes.n_targets

    def row_flops(self, sizes: Sizes) -> float:
        return 2.0 * (sizes.n_inputs + sizes.n_targets)

    def row_seconds(self, sizes: Sizes) -> float:
        return 1e-7 * (sizes.n_inputs + sizes.n_targets)

    def layout_seconds(self, sizes: Sizes) -> float:
        return 1e-7

    def accumulator_bytes(self, sizes: Sizes, n_groups: int, threads: int) -> int:
        return 2 * 8 * n_groups * self.numbers(sizes)

    def solve_bytes(self, sizes: Sizes, state_bytes: int) -> int:
        return 4 * state_bytes

    def solve_seconds(self, sizes: Sizes) -> float:
        return 1e-3

    def lines(self, sizes: Sizes, n_rows: int) -> list[tuple[str, str]]:
        return [("boxes", f"{self.n_features:,}")]
