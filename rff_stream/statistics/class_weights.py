"""Rows weighted by their class, before any statistic sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import select
from rff_stream.statistics.packing import Packed, packing_of
from rff_stream.statistics.protocol import Sink, Statistic

__all__ = ["ClassWeighted"]


@dataclass(frozen=True, slots=True, eq=False)
class ClassWeighted:
    """Any statistic of rows whose weights are multiplied by that of their class.

    Parameters
    ----------
    statistic : Statistic
    class_weight : mapping of label to float
        1 where absent; 0 leaves the rows of a class out.
    """

    statistic: Statistic
    class_weight: Mapping[Any, float]

    def start(self) -> Sink:
        return weigh_classes(self.statistic.start(), self.class_weight)

    def pack(self, value: Any) -> Packed:
        return packing_of(self.statistic).pack(value)

    def unpack(self, packed: Packed) -> Any:
        return packing_of(self.statistic).unpack(packed)


class _WeightedSink:
    def __init__(self, sink: Sink, class_weight: Mapping[Any, float]) -> None:
        self._sink, self._class_weight = sink, class_weight

    def add(self, rows: Rows, places: Array) -> None:
        known, codes = np.unique(labels_of(rows), return_inverse=True)
        weights = [float(self._class_weight.get(label, 1.0)) for label in known.tolist()]
        own = np.array(weights)[codes]
        w = own if rows.w is None else rows.w * own
        keep: Any = w > 0
        if keep.all():
            keep = slice(None)  # no copies
        self._sink.add(select(replace(rows, w=w), keep), places[keep])

    def result(self) -> Any:
        return self._sink.result()


def weigh_classes(sink: Sink, class_weight: Mapping[Any, float] | None) -> Sink:
    """The same sink behind weights of classes; the sink itself where there are none."""
    return _WeightedSink(sink, class_weight) if class_weight else sink


def codes_of(rows: Rows, labels: tuple[Any, ...]) -> Array:
    """Class numbers (m,) of the rows' labels; −1 for a label that is not among these."""
    present, inverse = np.unique(labels_of(rows), return_inverse=True)
    known = {label: i for i, label in enumerate(labels)}
    return np.array([known.get(label, -1) for label in present.tolist()], dtype=int)[inverse]


def labels_of(rows: Rows) -> Array:
    """Labels (m,) of rows that carry some."""
    if rows.label is None:
        raise DataError("Rows carry no labels. Open the source with a y of labels.")
    return rows.label
