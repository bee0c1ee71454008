"""Σ w z (R,) of rows and z(x)ᵀβ (n,) of rows, without keeping Z: order-1 moments and scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import MAP_ROWS, FeatureMap
from rff_stream.features.cosines import write_cosines, write_pairs
from rff_stream.features.fourier import FourierFeatures

__all__ = ["ColumnSweep", "column_sums", "linear_form", "sweep_of"]

SWEEP_ROWS, SWEEP_COLUMNS = 256, 512
"""Rows and frequencies swept at a time: angles and cosines stay in the L2 cache."""

Portion = tuple[slice, slice, Array]
"""Rows, columns of Z and their features, until the next portion overwrites them."""


class ColumnSweep:
    """Z of any map in portions of 128 rows.

    Parameters
    ----------
    features : FeatureMap
    dtype : dtype
        Of the features that are handed out; they are computed in that of the map.
    """

    def __init__(self, features: FeatureMap, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._map = features
        self._z = np.empty((MAP_ROWS, features.n_components), dtype)

    def __call__(self, x: Array) -> Iterator[Portion]:
        """Portions of z(x)."""
        for start in range(0, len(x), MAP_ROWS):
            rows = slice(start, start + MAP_ROWS)
            z = self._map(x[rows], out=self._z[: len(x[rows])])
            yield rows, slice(0, self._z.shape[1]), z


class _FourierSweep(ColumnSweep):
    """Z of a Fourier map in portions that stay in cache."""

    def __init__(self, features: FourierFeatures, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._map: FourierFeatures = features
        self._table = np.ascontiguousarray(features.frequencies.T, features.dtype)  # (d, m)
        self._phases = None if features.phases is None else features.phases.astype(features.dtype)
        size = SWEEP_ROWS * min(SWEEP_COLUMNS, self._table.shape[1])
        self._angles = np.empty(size, features.dtype)
        self._waves = np.empty(size * (2 if features.paired else 1), dtype)

    def __call__(self, x: Array) -> Iterator[Portion]:
        step, write = (2, write_pairs) if self._map.paired else (1, write_cosines)
        for start in range(0, len(x), SWEEP_ROWS):
            rows = slice(start, start + SWEEP_ROWS)
            inputs = self._scaled(x[rows])
            for first in range(0, self._table.shape[1], SWEEP_COLUMNS):
                angles = self._turned(inputs, slice(first, first + SWEEP_COLUMNS))
                count = step * angles.shape[1]
                waves = self._waves[: len(angles) * count].reshape(len(angles), count)
                write(angles, waves)
                yield rows, slice(step * first, step * first + count), waves

    def _scaled(self, x: Array) -> Array:
        """x̃ in the dtype of the features; the map itself refuses what overflows."""
        exact = (np.asarray(x, np.float64) - self._map.origin) / self._map.scale
        if not np.abs(exact).max() <= self._map._largest_input:
            self._map(x)
        return exact.astype(self._map.dtype)

    def _turned(self, inputs: Array, columns: slice) -> Array:
        """Angles (rows, some frequencies), until the next are asked for."""
        table = self._table[:, columns]
        shape = (len(inputs), table.shape[1])
        angles = self._angles[: shape[0] * shape[1]].reshape(shape)
        np.matmul(inputs, table, out=angles)
        if self._phases is not None:
            angles += self._phases[columns]
        return angles


def sweep_of(features: FeatureMap, dtype: np.dtype[Any]) -> ColumnSweep:
    """The cheapest way through the features of rows that are not kept."""
    if isinstance(features, FourierFeatures):
        return _FourierSweep(features, dtype)
    return ColumnSweep(features, dtype)


def column_sums(sweep: ColumnSweep, x: Array, w: Float64 | None, n_components: int) -> Float64:
    """Σ w z (R,): of a portion's rows in the sweep's dtype, of portions in float64."""
    weights = np.ones(len(x), sweep.dtype) if w is None else w.astype(sweep.dtype)
    total = np.zeros(n_components)
    for rows, columns, z in sweep(x):
        total[columns] += weights[rows] @ z
    return total


def linear_form(sweep: ColumnSweep, x: Array, coef: Float64) -> Float64:
    """z(x)ᵀβ (n,) of rows x (n, d), β (R,); NaN for rows of NaN."""
    found = np.zeros(len(x))
    with np.errstate(invalid="ignore"):
        for rows, columns, z in sweep(x):
            found[rows] += z @ coef[columns].astype(sweep.dtype)
    return found
