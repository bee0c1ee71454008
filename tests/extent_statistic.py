"""A statistic that the package does not know: the box of the inputs, and rows by whole y.

It needs no file of the package: a value that adds and says its bytes, a sink, ``start``; and
``pack`` and ``unpack`` where a checkpoint is to keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream.contracts import Packed, Sink
from rff_stream.sources.protocol import Rows

__all__ = ["Extent", "ExtentStatistic"]


@dataclass(frozen=True, eq=False)
class Extent:
    """Smallest and largest inputs (2, d), rows, and the rows of each whole y."""

    box: np.ndarray[Any, Any]
    n: int
    by_digit: dict[str, float]

    def __add__(self, other: Extent) -> Extent:
        low, high = np.minimum(self.box[0], other.box[0]), np.maximum(self.box[1], other.box[1])
        digits = dict(self.by_digit)
        for digit, weight in other.by_digit.items():
            digits[digit] = digits.get(digit, 0.0) + weight
        return Extent(np.stack([low, high]), self.n + other.n, digits)

    def __sizeof__(self) -> int:
        return self.box.nbytes + 64


@dataclass(frozen=True)
class ExtentStatistic:
    d: int

    def start(self) -> Sink:
        box = np.stack([np.full(self.d, np.inf), np.full(self.d, -np.inf)])
        return ExtentSink(Extent(box, 0, {}))

    def pack(self, value: Extent) -> Packed:
        digits = sorted(value.by_digit)
        weights = np.array([value.by_digit[digit] for digit in digits], float)
        arrays = {"box": value.box, "n": np.array([value.n]), "of/weights": weights}
        return Packed(digits, arrays)

    def unpack(self, packed: Packed) -> Extent:
        arrays: Any = packed.arrays
        digits = dict(zip(packed.plain, arrays["of/weights"].tolist(), strict=True))
        return Extent(arrays["box"], int(arrays["n"][0]), digits)


class ExtentSink:
    def __init__(self, zero: Extent) -> None:
        self.value = zero

    def add(self, rows: Rows, places: Any) -> None:
        if not len(rows.x):
            return
        box = np.stack([rows.x.min(axis=0), rows.x.max(axis=0)])
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        digits, at = np.unique(np.floor(rows.y[:, 0]), return_inverse=True)
        weights = np.bincount(at, w).tolist()
        mine = dict(zip(map(str, digits.tolist()), weights, strict=True))
        self.value = self.value + Extent(box, len(rows.x), mine)

    def result(self) -> Extent:
        return self.value
