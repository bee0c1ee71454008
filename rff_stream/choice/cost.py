"""What several maps cost that share one read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rff_stream.costs import Cost, Sizes


@dataclass(frozen=True, slots=True)
class SeveralCosts(Cost):
    """Several maps in one read: what they take adds up."""

    members: tuple[Cost, ...]
    maps: tuple[Any, ...] = ()
    """The map, or the request for one, that each is of."""

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
