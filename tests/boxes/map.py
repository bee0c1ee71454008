"""Boxes of equal size: a row's only column that is not 0 is that of its box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import NamedMap, UndrawnMap, check_rows


@dataclass(frozen=True, slots=True)
class Boxes(UndrawnMap):
    """``features=Boxes(8)``: so many boxes along each input, over the range of the pilot rows."""

    per_input: int = 8


@dataclass(frozen=True, eq=False)
class BoxFeatures(NamedMap):
    """The boxes that were drawn; those at the ends take all rows beyond them."""

    low: Float64  # (d,): corner of the first box
    size: Float64  # (d,)
    per_input: int

    @property
    def n_inputs(self) -> int:
        return len(self.low)

    @property
    def n_components(self) -> int:
        return int(self.per_input**self.n_inputs)

    @property
    def row_columns(self) -> int:
        return 0  # sums are of boxes, not of columns

    @property
    def dtype(self) -> str:
        return "float64"

    def box_of(self, X: Array) -> Array:
        """The number (n,) of the box of each row (n, d)."""
        along = np.floor((check_rows(X, self.n_inputs) - self.low) / self.size)
        along = np.clip(np.nan_to_num(along), 0, self.per_input - 1).astype(np.int64)
        return np.ravel_multi_index(tuple(along.T), (self.per_input,) * self.n_inputs)

    def spec(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        plain = {"map": self.short_name(), "per_input": self.per_input}
        return plain, {"low": self.low, "size": self.size}

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        return cls(np.asarray(arrays["low"]), np.asarray(arrays["size"]), plain["per_input"])
