"""Σ w z (R,) of rows: what a mean-only pass adds up, without keeping Z."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import MAP_ROWS, FeatureMap
from rff_stream.features.fourier import FourierFeatures

__all__ = ["ColumnSums", "column_sums"]

SUM_ROWS, SUM_COLUMNS = 256, 512
"""Rows and frequencies swept at a time: angles and cosines stay in the L2 cache."""


class ColumnSums(Protocol):
    """(x, w) -> Σ w z(x) (R,): the features of a few rows are summed while still in cache."""

    def __call__(self, x: Float64, w: Float64 | None) -> Float64: ...


def column_sums(features: FeatureMap, dtype: np.dtype[Any]) -> ColumnSums:
    """Sums of a map's columns over at most 256 rows in ``dtype``, over more in float64."""
    if isinstance(features, FourierFeatures):
        return _FourierSums(features, dtype)
    return _MapSums(features, dtype)


class _MapSums:
    """Of any map: 128 rows of Z at a time."""

    def __init__(self, features: FeatureMap, dtype: np.dtype[Any]) -> None:
        self._map = features
        self._z = np.empty((MAP_ROWS, features.n_components), dtype)

    def __call__(self, x: Float64, w: Float64 | None) -> Float64:
        weights = _weights(w, len(x), self._z.dtype)
        total = np.zeros(self._map.n_components)
        for start in range(0, len(x), MAP_ROWS):
            rows = slice(start, start + MAP_ROWS)
            z = self._map(x[rows], out=self._z[: len(x[rows])])
            total += weights[rows] @ z
        return total


class _FourierSums:
    """Of a Fourier map: one sweep of cosines and one of sines over the same angles."""

    def __init__(self, features: FourierFeatures, dtype: np.dtype[Any]) -> None:
        self._map = features
        self._table = np.ascontiguousarray(features.frequencies.T, features.dtype)  # (d, m)
        self._phases = None if features.phases is None else features.phases.astype(features.dtype)
        size = SUM_ROWS * min(SUM_COLUMNS, self._table.shape[1])
        self._angles = np.empty(size, features.dtype)
        self._waves = np.empty(size, dtype)

    def __call__(self, x: Float64, w: Float64 | None) -> Float64:
        weights = _weights(w, len(x), self._waves.dtype)
        total = np.zeros((self._table.shape[1], 2 if self._map.paired else 1))
        for start in range(0, len(x), SUM_ROWS):
            rows = slice(start, start + SUM_ROWS)
            inputs = self._scaled(x[rows])
            for first in range(0, len(total), SUM_COLUMNS):
                columns = slice(first, first + SUM_COLUMNS)
                self._add(inputs, weights[rows], columns, total[columns])
        return total.ravel()

    def _scaled(self, x: Float64) -> Array:
        """x̃ in the dtype of the features; the map itself refuses what overflows."""
        exact = (x - self._map.origin) / self._map.scale
        if not np.abs(exact).max() <= self._map._largest_input:
            self._map(x)
        return exact.astype(self._map.dtype)

    def _add(self, inputs: Array, weights: Array, columns: slice, total: Float64) -> None:
        """Add cosines, and for pairs sines, of some of the frequencies."""
        shape = (len(inputs), len(total))
        angles, waves = (
            a[: shape[0] * shape[1]].reshape(shape) for a in (self._angles, self._waves)
        )
        np.matmul(inputs, self._table[:, columns], out=angles)
        if self._phases is not None:
            angles += self._phases[columns]
        for i, wave in enumerate((np.cos, np.sin)[: total.shape[1]]):
            total[:, i] += weights @ wave(angles, out=waves)


def _weights(w: Float64 | None, n: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(n, dtype) if w is None else w.astype(dtype)
