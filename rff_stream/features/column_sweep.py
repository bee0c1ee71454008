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
        for start in range(0, len(x), SWEEP_ROWS):
            rows = slice(start, min(start + SWEEP_ROWS, len(x)))
            place = start % (SCALED_PORTIONS * SWEEP_ROWS)
            if place == 0:
                scaled = self._scale_rows(x[start : start + SCALED_PORTIONS * SWEEP_ROWS])
            # A copy, since products of few columns take a third longer with a transposed matrix.
            inputs = np.ascontiguousarray(scaled[place : place + SWEEP_ROWS].T)
            for block, projection in enumerate(self._table):
                np.matmul(projection, inputs, out=self._angles)
                first = block * PRODUCT_COLUMNS
                count = min(PRODUCT_COLUMNS, self._map.n_frequencies - first)
                angles = self._angles[MARGIN : MARGIN + count, : rows.stop - start]
                waves = self._waves[: SWEEP_ROWS * count].reshape(count, SWEEP_ROWS)
                for columns in self._write(first, angles, waves[:, : angles.shape[1]]):
                    yield rows, columns, waves.T

    def _write(self, first: int, angles: Array, waves: Array) -> Iterator[slice]:
        """Write columns of the frequencies from ``first`` on; says which, before the next ones."""
        kinds = (np.cos, np.sin) if self._map.paired else (np.cos,)
        step = len(kinds)
        for kind, wave in enumerate(kinds):  # pairs apart: NumPy is faster side by side
            wave(angles, out=waves)
            yield slice(step * first + kind, step * (first + len(angles)), step)

    def _scale_rows(self, x: Array) -> Array:
        """[x̃, 1] in the dtype of the features, of whole portions; the map refuses overflow."""
        exact = (np.asarray(x, np.float64) - self._map.origin) / self._map.scale
        if not np.abs(exact).max() <= self._map._largest_input:
            self._map(x)
        count = -(-len(x) // SWEEP_ROWS) * SWEEP_ROWS
        inputs = np.ones((count, self._table.shape[-1]), self._map.dtype)
        inputs[: len(x), : x.shape[1]] = exact
        return inputs


class _OneWaveSweep(_FourierSweep):
    """One column for each pair of a Fourier map, for one target: half of the cosines and sines.

    b cos a + c sin a = A cos(a − ψ), tan ψ = c/b, where |b| ≥ |c|; else A sin(a + ψ), tan ψ = b/c.
    So |ψ| ≤ π/4, and the rounding of an angle adds no more to a value than that of b and c
    themselves: a sine of a small angle keeps its digits.
    """

    def __init__(self, features: FourierFeatures, dtype: np.dtype[Any], coef: Float64) -> None:
        super().__init__(features, dtype)
        of_cosine, of_sine = coef[0::2, 0], coef[1::2, 0]
        sines = np.abs(of_sine) > np.abs(of_cosine)
        more, less = np.where(sines, (of_sine, of_cosine), (of_cosine, of_sine))
        angles = np.arctan(np.divide(less, more, out=np.zeros_like(more), where=more != 0))
        order = np.argsort(sines, kind="stable")  # all cosines first
        own, places = features._projections, np.arange(len(order))
        self._table = np.zeros((*own.shape[:2], own.shape[2] + 1), own.dtype)
        self._table[..., :-1][_line_of(places)] = own[_line_of(order)]
        self._table[..., -1][_line_of(places)] = np.where(sines, angles, -angles)[order]
        self._n_cosines = len(sines) - np.count_nonzero(sines)
        self.amplitudes = np.copysign(np.hypot(more, less), more)[order, None]

    def _write(self, first: int, angles: Array, waves: Array) -> Iterator[slice]:
        rest = max(self._n_cosines - first, 0)
        np.cos(angles[:rest], out=waves[:rest])
        np.sin(angles[rest:], out=waves[rest:])
        yield slice(first, first + len(angles))


def _line_of(frequency: Array) -> tuple[Array, Array]:
    """Its block and line in the projections of a map."""
    block, line = np.divmod(frequency, PRODUCT_COLUMNS)
    return block, MARGIN + line


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


def linear_form(features: FeatureMap, x: Array, coef: Float64) -> Float64:
    """z(x)ᵀβ (n, T) of rows x (n, d), β (R, T); NaN for rows of NaN.

    Products of a portion are float64. All portions have one shape, so a row has the same bits
    wherever it stands.
    """
    dtype = np.dtype(np.float64)
    sweep = sweep_of(features, dtype)
    if isinstance(features, FourierFeatures) and features.paired and coef.shape[1] == 1:
        sweep = _OneWaveSweep(features, dtype, coef)
        coef = sweep.amplitudes
    return swept_form(sweep, x, coef)


def swept_form(sweep: ColumnSweep, x: Array, coef: Float64) -> Float64:
    """Σ c z (n, T) of the columns of a sweep, c (R, T); products are of the sweep's dtype."""
    found = np.zeros((len(x), coef.shape[1]))
    own: dict[tuple[int, int], Array] = {}  # β of the columns of each portion
    with np.errstate(invalid="ignore"):
        for rows, columns, z in sweep(x):
            key = columns.start, columns.stop
            if key not in own:
                own[key] = np.ascontiguousarray(coef[columns], sweep.dtype)
            found[rows] += (z @ own[key])[: rows.stop - rows.start]
    return found
