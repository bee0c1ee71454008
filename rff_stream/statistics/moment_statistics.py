"""Moments of the rows of a leaf: of one map, cells, a grid of frequencies, classes, many maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rff_stream._array import Array
from rff_stream.cells.map import LocalFeatures
from rff_stream.cells.moments import CellAccumulator, CellMoments
from rff_stream.choice.moments import CandidateMoments
from rff_stream.errors import OutsideGridError
from rff_stream.features.base import FeatureMap
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridAccumulator, GridMoments
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import Accumulator
from rff_stream.moments.class_moments import ClassMoments, class_row, one_hot, sorted_labels
from rff_stream.moments.few_rows import Context, FewRowsSink
from rff_stream.moments.row_sample import RowSample
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import labels_of
from rff_stream.statistics.protocol import (
    Packed,
    Sink,
    Statistic,
    pack_parts,
    packing_of,
    unpack_parts,
)


class _MomentSink:
    """The running sum of an accumulator."""

    def __init__(self, accumulator: Any) -> None:
        self._accumulator = accumulator

    def add(self, rows: Rows, places: Array) -> None:
        self._accumulator.add(rows.x, rows.y, rows.w, places)

    def result(self) -> Any:
        return self._accumulator.result()


def _accumulator(
    of: MomentStatistic | ClassStatistic, row: AugmentedRow, order: int = 2, rounds: int = 1
) -> Accumulator | FewRowsSink:
    """What adds rows up, or keeps them where they are few."""
    if of.context is not None:
        return FewRowsSink(of.features, row, of.sample_rows, of.context, of.sums)
    return Accumulator(
        of.features,
        row,
        order=order,
        sums=of.sums,
        sample_rows=of.sample_rows,
        n_places=of.n_places,
        rounds=rounds,
    )


@dataclass(frozen=True, slots=True, eq=False)
class MomentStatistic:
    """:class:`~rff_stream.moments.Moments` of rows [x, y, w]."""

    features: FeatureMap  # as in Accumulator, like all up to ``rounds``
    row: AugmentedRow
    order: int
    sums: Any
    sample_rows: int
    n_places: int
    rounds: int = 1
    context: Context | None = None
    """Rows are few: they are kept, and sums are made in this context when they are asked for."""

    def start(self) -> Sink:
        return _MomentSink(_accumulator(self, self.row, self.order, self.rounds))

    def pack(self, value: Moments) -> Packed:
        return pack_moments(value)

    def unpack(self, packed: Packed) -> Moments:
        return unpack_moments(packed, self.row)


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistic:
    """:class:`~rff_stream.cells.moments.CellMoments` of rows [x, y, w]."""

    features: LocalFeatures  # as in CellAccumulator, like all up to ``sample_rows``
    row: AugmentedRow
    sums: Any
    sample_rows: int

    def start(self) -> Sink:
        return _MomentSink(
            CellAccumulator(self.features, self.row, sums=self.sums, sample_rows=self.sample_rows)
        )

    def pack(self, value: CellMoments) -> Packed:
        sample = value.sample
        arrays: dict[str, Array] = {
            "cells": value.cells,
            "counts": value.counts,
            "powers": value.powers,
            "sums": value.sums,
            "sizes": np.array([value.n_trees, value.n_cells, sample.size], np.int64),
            **pack_sample(sample),
        }
        return Packed(None, arrays)

    def unpack(self, packed: Packed) -> CellMoments:
        arrays: Any = packed.arrays
        n_trees, n_cells, size = arrays["sizes"].tolist()
        return CellMoments(
            row=self.row,
            n_trees=n_trees,
            n_cells=n_cells,
            cells=arrays["cells"],
            counts=arrays["counts"],
            powers=arrays["powers"],
            sums=arrays["sums"],
            sample=unpack_sample(size, arrays),
        )


@dataclass(frozen=True, slots=True, eq=False)
class GridStatistic:
    """:class:`~rff_stream.grid.moments.GridMoments` of rows [x, y, w]."""

    features: GridFeatures  # as in GridAccumulator, like all up to ``sample_rows``
    row: AugmentedRow
    sample_rows: int

    def start(self) -> Sink:
        return _MomentSink(GridAccumulator(self.features, self.row, self.sample_rows))

    def pack(self, value: GridMoments) -> Packed:
        sample = value.sample
        arrays: dict[str, Array] = {
            "sums": value.sums,
            "counts": np.array([value.n, sample.size], np.int64),
            "weights": np.array([value.squared_weight, value.log_weight]),
            **pack_sample(sample),
        }
        return Packed(None, arrays)

    def unpack(self, packed: Packed) -> GridMoments:
        arrays: Any = packed.arrays
        n, size = arrays["counts"].tolist()
        squared, logarithm = arrays["weights"].tolist()
        sample = unpack_sample(size, arrays)
        return GridMoments(self.features, self.row, arrays["sums"], n, squared, logarithm, sample)


@dataclass(frozen=True, slots=True, eq=False)
class ClassStatistic:
    """:class:`~rff_stream.moments.class_moments.ClassMoments` of rows with class labels."""

    features: FeatureMap
    row: AugmentedRow  # without targets
    sums: Literal["float32", "float64"]  # as in Accumulator, like all up to ``n_places``
    sample_rows: int
    n_places: int
    labels: tuple[Any, ...] = ()  # labels known from the pilot; others are added where they appear
    context: Context | None = None  # as in MomentStatistic

    def start(self) -> Sink:
        return _ClassSink(self)

    def pack(self, value: ClassMoments) -> Packed:
        if isinstance(self.features, LocalFeatures):
            return Packed(list(value.labels), self._of_cells(()).pack(value.moments).arrays)
        return Packed(list(value.labels), pack_moments(value.moments).arrays)

    def unpack(self, packed: Packed) -> ClassMoments:
        labels = tuple(packed.plain)
        if isinstance(self.features, LocalFeatures):
            return ClassMoments(labels, self._of_cells(labels).unpack(packed))
        return ClassMoments(labels, unpack_moments(packed, class_row(self.row, labels)))

    def _of_cells(self, labels: tuple[Any, ...]) -> CellStatistic:
        """What sums of cells are, with the one-hot classes of these labels."""
        features: Any = self.features
        return CellStatistic(features, class_row(self.row, labels), self.sums, self.sample_rows)


class _ClassSink:
    """An accumulator whose one-hot targets grow: a new label closes it and opens a wider one."""

    def __init__(self, statistic: ClassStatistic) -> None:
        self._of = statistic
        self._closed: ClassMoments | None = None
        self._labels = statistic.labels
        self._open: Any = None

    def add(self, rows: Rows, places: Array) -> None:
        known, codes = np.unique(labels_of(rows), return_inverse=True)
        names = known.tolist()
        if not set(names) <= set(self._labels):
            if self._open is not None:
                self._closed, self._open = self.result(), None
            self._labels = sorted_labels([*self._labels, *names])
        if self._open is None:
            self._open = self._accumulator()
        at = np.array([self._labels.index(name) for name in names], dtype=int)
        self._open.add(rows.x, one_hot(at[codes], len(self._labels)), rows.w, places)

    def _accumulator(self) -> Any:
        of, row = self._of, class_row(self._of.row, self._labels)
        if isinstance(of.features, LocalFeatures):
            return CellAccumulator(of.features, row, sums=of.sums, sample_rows=of.sample_rows)
        return _accumulator(of, row)

    def result(self) -> ClassMoments:
        accumulator = self._accumulator() if self._open is None else self._open
        last = ClassMoments(self._labels, accumulator.result())
        return last if self._closed is None else self._closed + last


@dataclass(frozen=True, slots=True, eq=False)
class CandidateStatistic:
    """:class:`~rff_stream.choice.moments.CandidateMoments` of rows [x, y, w]."""

    row: AugmentedRow  # of all maps side by side
    statistics: tuple[Statistic, ...]  # of each map

    def start(self) -> Sink:
        return _Sinks(self)

    def pack(self, value: CandidateMoments) -> Packed:
        members = enumerate(zip(self.statistics, value.members, strict=True))
        return pack_parts(
            {i: packing_of(own).pack(each) for i, (own, each) in members if each is not None}
        )

    def unpack(self, packed: Packed) -> CandidateMoments:
        parts = unpack_parts(packed)
        members = (
            packing_of(own).unpack(parts[i]) if i in parts else None
            for i, own in enumerate(self.statistics)
        )
        return CandidateMoments(self.row, tuple(members))


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


def pack_sample(sample: RowSample) -> dict[str, Array]:
    """A row sample but for its size."""
    reach = {} if sample.reach is None else {"sample_reach": sample.reach}
    return {"sample_keys": sample.keys, "sample_rows": sample.rows, **reach}


def unpack_sample(size: int, arrays: Mapping[str, Any]) -> RowSample:
    """The sample that gave these arrays."""
    reach = arrays.get("sample_reach")
    return RowSample(size, arrays["sample_keys"], arrays["sample_rows"], reach)


def pack_moments(moments: Moments) -> Packed:
    """Moments without their row."""
    sample = moments.sample
    arrays: dict[str, Array] = {
        "sums": moments.sums,
        "counts": np.array([moments.order, moments.n, sample.size], np.int64),
        "weights": np.array([moments.squared_weight, moments.log_weight]),
        **pack_sample(sample),
    }
    for name, values in (("parts", moments.parts), ("runs", moments.runs)):
        if values is not None:
            arrays[name] = values
    return Packed(None, arrays)


def unpack_moments(packed: Packed, row: AugmentedRow) -> Moments:
    """Moments of a row."""
    arrays: Any = packed.arrays
    order, n, size = arrays["counts"].tolist()
    squared, logarithm = arrays["weights"].tolist()
    sample = unpack_sample(size, arrays)
    parts, runs = arrays.get("parts"), arrays.get("runs")
    return Moments(row, order, arrays["sums"], n, squared, logarithm, parts, sample, runs)
