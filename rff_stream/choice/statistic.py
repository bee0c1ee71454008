"""Sums of several maps of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass

from rff_stream._array import Array
from rff_stream.choice.moments import CandidateMoments
from rff_stream.contracts import Sink, Statistic
from rff_stream.errors import OutsideGridError
from rff_stream.moments import AugmentedRow
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.moment_statistics import MomentPacking


@dataclass(frozen=True, slots=True, eq=False)
class CandidateStatistic(MomentPacking):
    """:class:`~rff_stream.choice.moments.CandidateMoments` of rows [x, y, w]."""

    row: AugmentedRow  # of all maps side by side
    statistics: tuple[Statistic, ...]  # of each map

    def start(self) -> Sink:
        return _Sinks(self)


class _Sinks:
    """A sink of each statistic; that of a grid is closed by the first row beyond its reach."""

    def __init__(self, statistic: CandidateStatistic) -> None:
        self._row = statistic.row
        self._sinks: list[Sink | None] = [each.start() for each in statistic.statistics]

    def add(self, rows: Rows, places: Array) -> None:
        for i, sink in enumerate(self._sinks):
            try:
                if sink is not None:
                    sink.add(rows, places)
            except OutsideGridError:
                self._sinks[i] = None

    def result(self) -> CandidateMoments:
        members = []
        for sink in self._sinks:
            try:
                members.append(None if sink is None else sink.result())
            except OutsideGridError:
                members.append(None)
        return CandidateMoments(self._row, tuple(members))
