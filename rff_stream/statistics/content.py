"""A hash of rows that does not depend on their order, chunks or leaves: it adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.moments.row_sample import hash_rows
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.protocol import Sink

__all__ = ["ContentStatistic", "Contents"]


@dataclass(frozen=True, slots=True)
class Contents:
    """(rows, Σ hash, Σ other hash) by label, modulo 2⁶⁴."""

    by_label: Mapping[Any, tuple[int, int, int]]

    def __add__(self, other: Self) -> Self:
        merged = dict(self.by_label)
        for label, found in other.by_label.items():
            known = merged.get(label, (0, 0, 0))
            n, a, b = ((x + y) % 2**64 for x, y in zip(known, found, strict=True))
            merged[label] = n, a, b
        return type(self)(merged)

    def texts(self) -> dict[Any, str]:
        """By label, as text."""
        return {label: f"{n} {a:016x}{b:016x}" for label, (n, a, b) in self.by_label.items()}

    def __sizeof__(self) -> int:
        return 256 * (len(self.by_label) + 1)


@dataclass(frozen=True, slots=True)
class ContentStatistic:
    """What a leaf adds up to tell rows from others."""

    def start(self) -> Sink:
        return _ContentSink()


class _ContentSink:
    def __init__(self) -> None:
        self._found = Contents({})

    def add(self, rows: Rows, places: Array) -> None:
        columns = [rows.x, rows.y] + ([] if rows.w is None else [rows.w[:, None]])
        count = len(rows.x)
        hashes = [hash_rows(np.full(count, salt), *columns) for salt in (0, 1)]
        label = np.zeros(count, np.int64) if rows.label is None else rows.label
        labels, inverse = np.unique(label, return_inverse=True)
        for i, each in enumerate(labels.tolist()):
            mine = inverse == i
            a, b = (int(np.add.reduce(h[mine], dtype=np.uint64)) for h in hashes)
            self._found = self._found + Contents({each: (int(mine.sum()), a, b)})

    def result(self) -> Contents:
        return self._found
