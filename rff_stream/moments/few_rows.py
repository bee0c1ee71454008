"""Moments of few rows, which are kept: their sums of R × R are made when somebody asks for them.

Where n is well below R an answer from n × n is the same and costs less than the sums themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import FeatureMap
from rff_stream.moments.accumulate import Accumulator
from rff_stream.moments.moments import AugmentedRow, Moments, packed_size
from rff_stream.moments.row_sample import RowSample

Context = Callable[[], AbstractContextManager[None]]

Precision = Literal["float32", "float64"]


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """Rows in memory, and the map that their sums are of."""

    features: FeatureMap
    x: Float64  # (n, d)
    y: Float64  # (n, T)
    w: Float64 | None  # (n,)
    context: Context  # a context in which sums are made: one BLAS thread
    precision: Precision = "float64"  # {"float32", "float64"}: of the sums

    def sums(self, row: AugmentedRow) -> Float64:
        """The packed triangle (P(P+1)/2,), bit for bit that of a pass over these rows."""
        sink = Accumulator(self.features, row, sums=self.precision)
        with self.context():
            sink.add(self.x, self.y, self.w, np.arange(len(self.x)))
            return sink.result().sums


class FewRows(Moments):
    """:class:`Moments` of order 2 whose ``sums`` are made at the first use.

    Every operation gives plain moments.
    """

    __slots__ = ("_kept",)

    _kept: KeptRows | None

    @classmethod
    def of(cls, kept: KeptRows, row: AugmentedRow, sample: RowSample) -> Self:
        """The moments of rows."""
        found = object.__new__(cls)
        w = np.ones(len(kept.x)) if kept.w is None else kept.w
        fields: dict[str, Any] = {
            "row": row,
            "order": 2,
            "n": len(w),
            "squared_weight": float(w @ w),
            "log_weight": 0.0 if kept.w is None else float(np.log(w).sum()),
            "parts": None,
            "sample": sample,
            "runs": None,
            "_kept": kept,
        }
        for name, value in fields.items():
            object.__setattr__(found, name, value)
        return found

    def __getattr__(self, name: str) -> Any:
        """``sums``, where they are not made; no rows in a copy with other fields."""
        if name == "_kept":
            return None
        kept = self._kept
        if name != "sums" or kept is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        sums = kept.sums(self.row)
        object.__setattr__(self, "sums", sums)
        return sums

    @property
    def kept(self) -> KeptRows | None:
        return self._kept if self._kept is not None and len(self._kept.x) > 1 else None

    @property
    def weight(self) -> float:
        """Σ w: no sums are made for it."""
        kept = self._kept
        if kept is None:
            return super().weight
        return float(self.n if kept.w is None else kept.w.sum())

    def target_squares(self) -> Float64:
        """Σ w (y − y₀)² (T,): no sums are made for it."""
        kept = self._kept
        if kept is None:
            return super().target_squares()
        squares = (kept.y - self.row.target_origin) ** 2
        return np.asarray(squares.sum(axis=0) if kept.w is None else kept.w @ squares)

    def __sizeof__(self) -> int:
        """Bytes with the sums."""
        return (
            8 * packed_size(self.row.width) + 3 * self.row.prior.nbytes + self.sample.nbytes + 256
        )


def under_row(moments: Any, row: AugmentedRow) -> Any:
    """The moments under other names of targets; rows that they keep are still kept."""
    kept = moments._kept if isinstance(moments, FewRows) else None
    return replace(moments, row=row) if kept is None else FewRows.of(kept, row, moments.sample)


class FewRowsSink:
    """Keeps rows (at most some thousand) and gives their moments."""

    def __init__(
        self,
        features: FeatureMap,
        row: AugmentedRow,
        sample_rows: int,
        context: Context,
        precision: Precision = "float64",
    ) -> None:
        self._features, self._row, self._context = features, row, context
        self._precision = precision
        self._rows: list[tuple[Float64, Float64, Float64]] = []
        self._weighted = False
        self._sample = RowSample.empty(sample_rows, len(row.inputs) + row.n_targets + 1)

    def add(self, x: Array, y: Array, w: Array | None, places: Array) -> None:
        """Take rows x (m, d), y (m, T) of weights w (m,) that stood at ``places`` (m,)."""
        if self._sample.size:
            self._sample = self._sample.with_rows(places, x, y, w)
        weights = np.ones(len(x)) if w is None else np.array(w, np.float64)
        self._weighted |= w is not None
        self._rows.append((np.array(x, np.float64), np.array(y, np.float64), weights))

    def result(self) -> FewRows:
        """The moments of all rows taken so far."""
        none = (np.empty((0, self._features.n_inputs)), np.empty((0, self._row.n_targets)))
        x, y, w = map(np.concatenate, zip((*none, np.empty(0)), *self._rows, strict=True))
        given = w if self._weighted else None
        kept = KeptRows(self._features, x, y, given, self._context, self._precision)
        return FewRows.of(kept, self._row, self._sample)
