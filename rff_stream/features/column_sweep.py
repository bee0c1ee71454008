"""Σ w z (R,) of rows and z(x)ᵀβ (n,) of rows, without keeping Z: order-1 moments and scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import MAP_ROWS, MARGIN, PADDED_ROWS, PRODUCT_COLUMNS, FeatureMap
from rff_stream.features.fourier import FourierFeatures

SWEEP_ROWS = PADDED_ROWS
"""Rows swept at a time: with 256 frequencies, angles and cosines stay in the L2 cache.

Products have this shape whatever the rows, that of the map's own: a row's features do
not depend on its place (AVX2 without this: scores of one row differed by 7e-9).
"""

SCALED_PORTIONS = 32
"""Portions whose inputs are scaled at once: calls from Python cost less."""

Portion = tuple[slice, slice, Array]
"""Rows, columns of Z and their features until the next portion overwrites them, with what is left
over from before in the rows after the last."""


class ColumnSweep:
    """Z of any map in portions of 128 rows, handed out in a dtype; computed in that of the map."""

    def __init__(self, features: FeatureMap, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._map = features
        self._z = np.zeros((MAP_ROWS, features.n_components), dtype)

    def __call__(self, x: Array) -> Iterator[Portion]:
        """Portions of z(x)."""
        for start in range(0, len(x), MAP_ROWS):
            rows = slice(start, min(start + MAP_ROWS, len(x)))
            self._map(x[rows], out=self._z[: rows.stop - start])
            yield rows, slice(0, self._z.shape[1]), self._z


class _FourierSweep(ColumnSweep):
    """Z of a Fourier map in portions that stay in cache.

    A frequency's angles of all rows lie together: the portion is then one sweep for NumPy.
    """

    def __init__(self, features: FourierFeatures, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._map: FourierFeatures = features
        self._table = features._projections
        self._angles = np.empty((self._table.shape[1], SWEEP_ROWS), features.dtype)
        self._waves = np.zeros(SWEEP_ROWS * PRODUCT_COLUMNS, dtype)

    def __call__(self, x: Array) -> Iterator[Portion]:
        kinds = (np.cos, np.sin) if self._map.paired else (np.cos,)
        step, end = len(kinds), self._map.n_components
        for start in range(0, len(x), SWEEP_ROWS):
            rows = slice(start, min(start + SWEEP_ROWS, len(x)))
            place = start % (SCALED_PORTIONS * SWEEP_ROWS)
            if place == 0:
                scaled = self._scale_rows(x[start : start + SCALED_PORTIONS * SWEEP_ROWS])
            # A copy, since products of few columns take a third longer with a transposed matrix.
            inputs = np.ascontiguousarray(scaled[place : place + SWEEP_ROWS].T)
            for block, projection in enumerate(self._table):
                np.matmul(projection, inputs, out=self._angles)
                first = block * step * PRODUCT_COLUMNS
                last = min(first + step * PRODUCT_COLUMNS, end)
                count = (last - first) // step
                angles = self._angles[MARGIN : MARGIN + count, : rows.stop - start]
                waves = self._waves[: SWEEP_ROWS * count].reshape(count, SWEEP_ROWS)
                for kind, wave in enumerate(kinds):  # pairs apart: NumPy is faster side by side
                    wave(angles, out=waves[:, : angles.shape[1]])
                    yield rows, slice(first + kind, last, step), waves.T

    def _scale_rows(self, x: Array) -> Array:
        """[x̃, 1] in the dtype of the features, of whole portions; the map refuses overflow."""
        exact = (np.asarray(x, np.float64) - self._map.origin) / self._map.scale
        if not np.abs(exact).max() <= self._map._largest_input:
            self._map(x)
        count = -(-len(x) // SWEEP_ROWS) * SWEEP_ROWS
        inputs = np.ones((count, self._table.shape[-1]), self._map.dtype)
        inputs[: len(x), : x.shape[1]] = exact
        return inputs


def sweep_of(features: FeatureMap, dtype: np.dtype[Any]) -> ColumnSweep:
    """The cheapest way through the features of rows that are not kept, handed out in a dtype."""
    if isinstance(features, FourierFeatures):
        return _FourierSweep(features, dtype)
    return ColumnSweep(features, dtype)


def column_sums(sweep: ColumnSweep, x: Array, w: Float64 | None, n_components: int) -> Float64:
    """Σ w z (R,): of a portion's rows in the sweep's dtype, of portions in float64."""
    weights = np.ones(len(x), sweep.dtype) if w is None else w.astype(sweep.dtype)
    total = np.zeros(n_components)
    for rows, columns, z in sweep(x):
        total[columns] += weights[rows] @ z[: rows.stop - rows.start]
    return total


def linear_form(sweep: ColumnSweep, x: Array, coef: Float64) -> Float64:
    """z(x)ᵀβ (n, T) of rows x (n, d), β (R, T); NaN for rows of NaN.

    Products of a portion are of the sweep's dtype and are added in float64. All portions have one
    shape, so a row has the same bits wherever it stands.
    """
    found = np.zeros((len(x), coef.shape[1]))
    own: dict[tuple[int, int], Array] = {}  # β of the columns of each portion
    with np.errstate(invalid="ignore"):
        for rows, columns, z in sweep(x):
            key = columns.start, columns.stop
            if key not in own:
                own[key] = np.ascontiguousarray(coef[columns], sweep.dtype)
            found[rows] += (z @ own[key])[: rows.stop - rows.start]
    return found
