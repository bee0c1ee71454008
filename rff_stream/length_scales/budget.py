"""CPU seconds that a search for a map may take, counted by its work.

No clock decides: the same rows, parameters and seed give the same map on a fast machine, a slow one
and a busy one. Work is turned into seconds by what it took on one core (measured for windows of
256 to 1,500 rows and 3 to 1,000 inputs, cells of 256 and 512 columns, to within a quarter).
"""

from __future__ import annotations

from dataclasses import dataclass, field

PAIR_SECONDS, INPUT_SECONDS, FACTOR_SECONDS = 13e-9, 1e-9, 20e-12
"""Of one look at a window of m rows: times m²; times m² for each input, where the kernel's slope is
no function of distances; times m³ for the inverse."""

FEW_COLUMNS = 48
"""Columns whose products are within the seconds of a pair."""

COLUMN_SECONDS = 0.28e-9
"""Of a left-out error in cells of R columns: times R² for each row."""

PRODUCT_SECONDS = 0.1e-9
"""Of one multiplication and addition in a product of large matrices."""


def seconds_of_look(n_rows: int, n_inputs: int, radial: bool) -> float:
    """One value of the evidence of a window, with its slope."""
    more = PRODUCT_SECONDS * max(n_inputs - FEW_COLUMNS, 0) if radial else INPUT_SECONDS * n_inputs
    pair = PAIR_SECONDS + more
    return n_rows**2 * (pair + FACTOR_SECONDS * n_rows)


def seconds_of_columns(n_rows: int, d: int, k: int) -> float:
    """Rows xA of A (d, k); 0 where that is within the seconds of a pair."""
    return PRODUCT_SECONDS * n_rows * d * k if k > FEW_COLUMNS else 0.0


def seconds_of_judging(n_rows: int, n_columns: int) -> float:
    """Left-out errors of so many rows in cells of so many columns."""
    return COLUMN_SECONDS * n_rows * n_columns**2


@dataclass(slots=True)
class SearchBudget:
    """What a search may take, what it has taken, and which parts were not begun."""

    limit: float = float("inf")  # seconds
    spent: float = 0.0
    reserve: float = 0.0  # what is kept for judging what was found
    left_out: list[str] = field(default_factory=list)

    @property
    def is_spent(self) -> bool:
        """Whether a part that is under way should end with what it has found."""
        return self.spent + self.reserve >= self.limit

    def allows(self, name: str, seconds: float = 0.0) -> bool:
        """Whether a part may begin, after which there is enough left to judge what it finds."""
        if self.spent + seconds + self.reserve < self.limit:
            return True
        self.left_out.append(name)
        return False
