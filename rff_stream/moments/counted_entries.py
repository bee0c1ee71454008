"""Σ w a aᵀ of maps whose rows hold few entries: n·grids² adds in place of n·R²."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from scipy.sparse import coo_array

from rff_stream._array import Array, Float64
from rff_stream.features.base import BATCH_ROWS, FeatureMap
from rff_stream.features.binning import RandomBinningFeatures
from rff_stream.moments.moments import AugmentedRow, Border

WIDTH_THAT_PAYS = {"float32": 14, "float64": 10}
"""R/grids above which counting entries costs less than a rank-k update, for sums of this dtype."""

FEWEST_COUNTED, MOST_COUNTED, ROWS_A_CELL = 4096, 65_536, 16
"""Rows that are counted at once: this many for each cell of a pair of grids, within these
bounds."""

COUNTED = 262_144
"""Entries that are counted in one call: their positions stay in the L2 cache."""

CELL_SECONDS, ADD_SECONDS, SWEEP_SECONDS = 1.4e-8, 4.5e-9, 1e-9
"""Seconds for one coordinate of a row in a grid, for one pair of entries, and for one sum."""


def pays(features: FeatureMap, dtype: np.dtype[Any]) -> TypeGuard[RandomBinningFeatures]:
    """Whether entries are counted, or the rows of this map go through a rank-k update."""
    if not isinstance(features, RandomBinningFeatures):
        return False
    return counts(features.n_components, entries_of(features), dtype.name)


def entries_of(features: FeatureMap) -> int:
    """Entries of a row that sums can count: the grids of a map that bins, else all R columns."""
    if isinstance(features, RandomBinningFeatures):
        return features.n_grids
    return features.n_components


def counts(n_components: int, n_entries: int, sums: str) -> bool:
    """Whether rows of so many entries in R columns are counted: what the plan asks, too."""
    return n_components >= WIDTH_THAT_PAYS[sums] * n_entries


def portion_rows(n_buckets: int) -> int:
    """Rows counted at a time."""
    return min(max(FEWEST_COUNTED, ROWS_A_CELL * n_buckets**2), MOST_COUNTED)


def counting_bytes(n_components: int, n_entries: int, n_targets: int) -> int:
    """Upper bound on what :class:`EntryMoments` holds: its R²/2 sums, entries and scratch."""
    buckets = -(-n_components // n_entries)
    rows, width = portion_rows(buckets), n_components + 1 + n_targets
    waiting = rows * (5 * n_entries + 16)
    batch = 8 * BATCH_ROWS * (8 * n_entries + 2 * (1 + n_targets))
    joint = 32 * (COUNTED + rows) + 8 * n_entries * buckets**2
    return 8 * width * (width + 2 * (1 + n_targets)) + waiting + batch + joint


def counting_seconds(n_components: int, n_entries: int, n_inputs: int) -> float:
    """CPU seconds of one row: its cells, their pairs, and its share of a sweep over the sums."""
    rows = portion_rows(-(-n_components // n_entries))
    cells, pairs = n_entries * (n_inputs + 1), n_entries**2 / 2
    return CELL_SECONDS * cells + ADD_SECONDS * pairs + SWEEP_SECONDS * n_components**2 / 2 / rows


class EntryMoments:
    """Second moments of a binning map: joint counts of the cells of every two grids.

    A row costs grids²/2 adds whatever R, and each ``ROWS_A_CELL`` B² rows one sweep over the
    R²/2 sums. Without weights all sums of z are whole numbers, and exact.
    """

    def __init__(self, features: RandomBinningFeatures, row: AugmentedRow) -> None:
        self._map, self._row, self._border = features, row, Border(row, BATCH_ROWS)
        self._size = portion_rows(features.n_buckets)
        grids = features.n_grids
        self._columns = np.empty((grids, self._size), np.int32)
        self._signs = np.empty((grids, self._size), np.int8)
        self._weights, self._weighted, self._filled = np.ones(self._size), False, 0
        self._padded = np.zeros((grids * features.n_buckets, row.width - row.n_features))
        self._matrix = np.zeros((row.width, row.width))
        self._zeros = np.zeros(COUNTED + self._size, np.int32)

    def update(self, x: Float64, y: Float64, w: Float64 | None, part: int) -> None:
        """Take m rows; their entries wait to be counted."""
        if self._filled + len(x) > self._size:
            self._count()
        columns, signs = self._map.cells(x)
        root = None if w is None else np.sqrt(w)
        border = self._border.take(y, root)
        flat, border = columns.ravel(), border if root is None else border * root[:, None]
        for k, values in enumerate(border.T):
            weights = (signs * values[:, None]).ravel()
            self._padded[:, k] += np.bincount(flat, weights, minlength=len(self._padded))
        rows = slice(self._filled, self._filled + len(x))
        self._columns[:, rows], self._signs[:, rows] = columns.T, signs.T
        self._weights[rows] = 1.0 if w is None else w
        self._weighted |= w is not None
        self._filled = rows.stop

    def result(self) -> tuple[Float64, None]:
        """Packed upper triangle about z₀, in units of y."""
        self._count()
        r, matrix, origin = self._row.n_features, self._matrix, self._row.feature_origin
        sums = self._padded[:r]
        weight = self._border.sums[0]
        matrix[:r, r:] = sums - np.outer(origin, weight)
        rest = sums[:, 0] - weight[0] * origin
        for i in range(r):  # Σ w (z − z₀)(z − z₀)ᵀ, row by row: nothing of R² is made beside it
            matrix[i, :r] -= sums[i, 0] * origin + origin[i] * rest
        return self._border.packed(matrix), None

    def _count(self) -> None:
        """Add the entries waiting in the buffer to the upper blocks of the matrix."""
        m, self._filled = self._filled, 0
        grids, buckets = len(self._columns), self._map.n_buckets
        step = max(1, COUNTED // max(m, 1))
        for p in range(grids if m else 0):
            signs: Array = self._signs[p, :m]
            if self._weighted:
                signs = signs * self._weights[:m]
            for q in range(p, grids, step):
                self._add_block(p, q, self._joint(p, slice(q, q + step), signs, buckets))

    def _joint(self, p: int, others: slice, signs: Array, buckets: int) -> Array:
        """Σ w s_p s_q (B, columns of others) of each cell of grid p with those of other grids."""
        columns = self._columns[others, : len(signs)]
        width = len(columns) * buckets
        own = (self._columns[p, : len(signs)] - p * buckets) * width - others.start * buckets
        places = np.add(columns, own).ravel()
        values = (self._signs[others, : len(signs)] * signs).ravel()  # ±1, or ±w in float64
        values = values if self._weighted else values.astype(np.int32)
        counts = coo_array(
            (values, (self._zeros[: len(places)], places)), shape=(1, buckets * width)
        )
        return np.asarray(counts.toarray().reshape(buckets, width))

    def _add_block(self, p: int, q: int, block: Array) -> None:
        """Add a block of joint sums; columns of the last grid beyond R are cut off."""
        r, buckets = self._row.n_features, self._map.n_buckets
        top, left = p * buckets, q * buckets
        target = self._matrix[top : min(top + buckets, r), left : min(left + block.shape[1], r)]
        target += block[: target.shape[0], : target.shape[1]]
