"""A hash of rows that does not depend on their order, chunks or leaves: it adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from rff_stream._array import Array
from rff_stream.moments.row_sample import hash_rows
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.protocol import Sink


@dataclass(frozen=True, slots=True)
class Content:
    """Rows, and two sums of their hashes modulo 2⁶⁴."""

    n: int = 0
    sums: tuple[int, int] = (0, 0)

    def __add__(self, other: Self) -> Self:
        a, b = ((x + y) % 2**64 for x, y in zip(self.sums, other.sums, strict=True))
        return type(self)(self.n + other.n, (a, b))

    def __sizeof__(self) -> int:
        return 256

    def __str__(self) -> str:
        return f"{self.n} {self.sums[0]:016x}{self.sums[1]:016x}"


@dataclass(frozen=True, slots=True)
class ContentStatistic:
    """:class:`Content` of rows [x, y, w]: equal for equal rows, wherever they lie."""

    def start(self) -> Sink:
        return _ContentSink()


class _ContentSink:
    def __init__(self) -> None:
        self._content = Content()

    def add(self, rows: Rows, places: Array) -> None:
        columns = [rows.x, rows.y] + ([] if rows.w is None else [rows.w[:, None]])
        count = len(rows.x)
        hashes = [hash_rows(np.full(count, salt), *columns) for salt in (0, 1)]
        a, b = (int(np.add.reduce(each, dtype=np.uint64)) for each in hashes)
        self._content = self._content + Content(count, (a, b))

    def result(self) -> Content:
        return self._content
