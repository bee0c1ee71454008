"""A hash of rows as they are counted: equal for equal rows, whatever they come from.

It adds, so it does not depend on the order of rows, on chunks or leaves. Names are not in it: rows
are compared under the columns of one model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.contracts import Sink
from rff_stream.hashes import Keys, hash_places, hash_rows, mix_bits
from rff_stream.label_forms import number_of, text_of
from rff_stream.sources.protocol import Rows

SALTS = (0, 1)  # two sums of 64 bits: sets of other rows agree with probability 2⁻¹²⁸

CACHED = 8192
"""Number of values that are mixed at once: they stay in the cache."""


@dataclass(frozen=True, slots=True)
class Content:
    """Rows, and two sums of their hashes modulo 2⁶⁴."""

    n: int = 0
    sums: tuple[int, int] = (0, 0)
    as_before: bool = False

    def __add__(self, other: Self) -> Self:
        a, b = ((x + y) % 2**64 for x, y in zip(self.sums, other.sums, strict=True))
        return type(self)(self.n + other.n, (a, b), self.as_before)

    def __sizeof__(self) -> int:
        return 256

    def __str__(self) -> str:
        form = "" if self.as_before else ROWS
        return f"{form}{self.n} {self.sums[0]:016x}{self.sums[1]:016x}"


ROWS = "rows "
"""Begins the text of this hash, in which each value is mixed before it is added to others."""


@dataclass(frozen=True, slots=True, eq=False)
class ContentStatistic:
    """:class:`Content` of rows [x, y, w] and their classes.

    ``labels`` are those of classes that rows have numbers of. ``as_before`` gives the hash of
    earlier versions, which left classes out, and to which some rows of few digits were equal.
    """

    labels: Array | None = None
    as_before: bool = False

    def start(self) -> Sink:
        return _ContentSink(self)


class _ContentSink:
    def __init__(self, of: ContentStatistic) -> None:
        self._of, self._content = of, Content(as_before=of.as_before)

    def add(self, rows: Rows, places: Array) -> None:
        if self._of.as_before:
            hashes = former_hashes(rows)
        else:
            whole = row_hashes(rows, self._of.labels)
            hashes = [mix_bits(whole ^ hash_places(np.array([salt]))) for salt in SALTS]
        a, b = (int(np.add.reduce(each, dtype=np.uint64)) for each in hashes)
        more = Content(len(rows.x), (a, b), self._of.as_before)
        self._content = self._content + more

    def result(self) -> Content:
        return self._content


def row_hashes(rows: Rows, labels: Array | None) -> Keys:
    """A 64-bit hash of each row: every value is mixed with its column's number before the sum."""
    weight = np.ones(len(rows.x)) if rows.w is None else rows.w
    columns = rows.x, rows.y, weight[:, None]
    salts = hash_places(np.arange(sum(each.shape[1] for each in columns)))
    found, step = np.empty(len(rows.x), np.uint64), max(CACHED // len(salts), 1)
    for lo in range(0, len(rows.x), step):
        some = np.concatenate([each[lo : lo + step] for each in columns], axis=1, dtype=np.float64)
        some += 0.0  # −0 is 0
        mixed = mix_bits(some.view(np.uint64) ^ salts)
        found[lo : lo + step] = mixed.sum(axis=1, dtype=np.uint64)
    if rows.label is not None:
        found ^= label_hashes(rows.label, labels)
    return mix_bits(found)


def label_hashes(own: Array, labels: Array | None) -> Keys:
    """Hashes of the labels that rows have, or have numbers of."""
    distinct, inverse = np.unique(own, return_inverse=True)
    names: Any = distinct if labels is None else labels[distinct.astype(int)]
    return np.array([number_of(text_of(name)) for name in names], np.uint64)[inverse]


def former_hashes(rows: Rows) -> list[Keys]:
    """Both hashes of each row, as earlier versions took them."""
    columns = [rows.x, rows.y] + ([] if rows.w is None else [rows.w[:, None]])
    return [hash_rows(np.full(len(rows.x), salt), *columns) for salt in SALTS]
