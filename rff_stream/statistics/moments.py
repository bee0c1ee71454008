"""Moments of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rff_stream._array import Array
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import Accumulator
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
    """

    features: FeatureMap
    row: AugmentedRow
    order: int
    sums: Any
    sample_rows: int
    n_places: int
    rounds: int = 1

    def start(self) -> Sink:
        return _MomentSink(self)

    def pack(self, value: Moments) -> Packed:
        return pack_moments(value)

    def unpack(self, packed: Packed) -> Moments:
        return unpack_moments(packed, self.row)


class _MomentSink:
    def __init__(self, statistic: MomentStatistic) -> None:
        self._accumulator = Accumulator(
            statistic.features,
            statistic.row,
            order=statistic.order,
            sums=statistic.sums,
            sample_rows=statistic.sample_rows,
            n_places=statistic.n_places,
            rounds=statistic.rounds,
        )

    def add(self, rows: Rows, places: Array) -> None:
        self._accumulator.add(rows.x, rows.y, rows.w, places)

    def result(self) -> Moments:
        return self._accumulator.result()
