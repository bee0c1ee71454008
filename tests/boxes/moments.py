"""Sums of the rows of each box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.moments.moments import AugmentedRow, CountedMoments, ProductMoments
from rff_stream.moments.row_sample import RowSample
from rff_stream.moments.stored import Form, numbers_of


@dataclass(frozen=True, slots=True, eq=False)
class BoxMoments(CountedMoments, ProductMoments):
    """Σw and Σw(y − y₀) of every box, and Σw(y − y₀)² of all rows: a group under ``+``."""

    kind = "Moments of boxes"

    row: AugmentedRow
    sums: Float64  # (R·(1 + T) + T,)
    n: int
    squared_weight: float
    log_weight: float
    sample: RowSample

    mark: ClassVar[str] = "boxes"  # the array in a store that only these moments have
    dimensions: ClassVar[Mapping[str, tuple[str, ...]]] = {"boxes": ("box_fact",)}

    @classmethod
    def zero(cls, row: AugmentedRow, n_boxes: int, sample_rows: int = 0) -> Self:
        t = row.n_targets
        sample = RowSample.empty(sample_rows, len(row.inputs) + t + 1)
        return cls(row, np.zeros(n_boxes * (1 + t) + t), 0, 0.0, 0.0, sample)

    @property
    def n_boxes(self) -> int:
        t = self.row.n_targets
        return (len(self.sums) - t) // (1 + t)

    @property
    def weights(self) -> Float64:
        """Σw of each box (R,)."""
        return self._boxes[:, 0]

    @property
    def values(self) -> Float64:
        """Σw(y − y₀) of each box (R, T)."""
        return self._boxes[:, 1:]

    @property
    def weight(self) -> float:
        return float(self.weights.sum())

    def target_squares(self) -> Float64:
        """Σw(y − y₀)² (T,) of all rows."""
        return self.sums[len(self.sums) - self.row.n_targets :]

    def spread(self, row: AugmentedRow, keep: Array, sample: RowSample) -> Self:
        """The same targets as ``keep[1:]`` of a row of more: new classes are columns of zeros."""
        found = self.zero(row, self.n_boxes)
        found._boxes[:, keep] = self._boxes
        found.target_squares()[keep[1:] - 1] = self.target_squares()
        return replace(self, row=row, sums=found.sums, sample=sample)

    @classmethod
    def own_arrays(cls, groups: Sequence[Self]) -> dict[str, Array | list[Array]]:
        return {"boxes": np.array([groups[0].n_boxes]), "moments": [each.sums for each in groups]}

    @classmethod
    def own_forms(
        cls, row: AugmentedRow, order: int, count: int, found: Mapping[str, Form]
    ) -> dict[str, Form]:
        shape = found.get("moments", ((count, 0), ""))[0]
        return {"boxes": ((1,), "int64"), "moments": ((count, shape[1]), "float64")}

    @classmethod
    def from_stored(
        cls, row: AugmentedRow, order: int, arrays: Mapping[str, Any], i: int, sample: RowSample
    ) -> Self:
        return cls(row, arrays["moments"][i], *numbers_of(arrays, i), sample)

    @property
    def _boxes(self) -> Float64:
        t = self.row.n_targets
        return self.sums[: len(self.sums) - t].reshape(-1, 1 + t)

    def __sizeof__(self) -> int:
        return int(self.sums.nbytes + self.sample.nbytes + 512)
