"""Moments of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rff_stream._array import Array
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import Accumulator
from rff_stream.moments.few_rows import Context, FewRowsSink
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.packing import Packed, pack_moments, unpack_moments
from rff_stream.statistics.protocol import Sink

__all__ = ["MomentStatistic"]


@dataclass(frozen=True, slots=True, eq=False)
class MomentStatistic:
    """:class:`~rff_stream.moments.Moments` of rows [x, y, w].

    Parameters
    ----------
    features, row, order, sums, sample_rows, n_places, rounds
        As in :class:`~rff_stream.moments.accumulate.Accumulator`.
    context : callable, optional
        Rows are few: they are kept, and sums are made in this context when they are asked for.
    """

    features: FeatureMap
    row: AugmentedRow
    order: int
    sums: Any
    sample_rows: int
    n_places: int
    rounds: int = 1
    context: Context | None = None

    def start(self) -> Sink:
        return _MomentSink(self)

    def pack(self, value: Moments) -> Packed:
        return pack_moments(value)

    def unpack(self, packed: Packed) -> Moments:
        return unpack_moments(packed, self.row)


class _MomentSink:
    def __init__(self, statistic: MomentStatistic) -> None:
        of = statistic
        self._sums: Accumulator | FewRowsSink
        if of.context is not None:
            self._sums = FewRowsSink(of.features, of.row, of.sample_rows, of.context)
            return
        self._sums = Accumulator(
            of.features,
            of.row,
            order=of.order,
            sums=of.sums,
            sample_rows=of.sample_rows,
            n_places=of.n_places,
            rounds=of.rounds,
        )

    def add(self, rows: Rows, places: Array) -> None:
        self._sums.add(rows.x, rows.y, rows.w, places)

    def result(self) -> Moments:
        return self._sums.result()
