"""Rows in memory -> Moments: the hot loop of maps of the whole space.

Per batch of 512 rows: map them (one projection, one sweep of cosines), append 1 and
y − y₀, and add the batch's rank-512 update to one triangle in place. The call releases
the GIL, so threads of one process run side by side.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.linalg import cython_blas

from rff_stream._array import Array, Float64, aligned_bytes
from rff_stream.features.base import BATCH_ROWS, MAP_ROWS, FeatureMap
from rff_stream.features.column_sweep import column_sums, sweep_of
from rff_stream.features.fourier import FourierFeatures
from rff_stream.features.packed_triangle import c_routine
from rff_stream.moments import N_PARTS, AugmentedRow, Moments, ended_readings
from rff_stream.moments.counted_entries import EntryMoments, pays
from rff_stream.moments.moments import Border, rows_in_pairs
from rff_stream.moments.row_sample import RowSample
from rff_stream.moments.runs import EMPTY, MIXED, under_way

FLUSH_ROWS = 4096
"""Rows after which a float32 triangle is added to the float64 one."""

FLOAT64_ROWS, FLOAT64_MEAN_ROWS = 200_000, 20_000
"""``sums="auto"`` keeps float64 sums up to this n, for order 2 and for order 1."""

CENTRE_ROWS = 64
"""Rows that are centred at once: they and their copies of z₀ stay in the L2 cache."""

FLUSH_BLOCK = 64
"""Rows of the triangle that are added at once: the buffer of the cast stays in cache."""

_SYRK = {
    np.dtype(np.float32): (c_routine(cython_blas, "ssyrk", 10), ctypes.c_float),
    np.dtype(np.float64): (c_routine(cython_blas, "dsyrk", 10), ctypes.c_double),
}

SumsDtype = Literal["auto", "float32", "float64"]


def accumulate(
    features: FeatureMap,
    X: Array,
    y: Array | None = None,
    weights: Array | None = None,
    *,
    row: AugmentedRow | None = None,
    order: int = 2,
    sums: SumsDtype = "auto",
    sample_rows: int = 0,
) -> Moments:
    """Moments of rows in memory: Σ w a aᵀ (order 2) or Σ w a (order 1).

    Parameters
    ----------
    features : FeatureMap
        d inputs, R features.
    X : (n, d) array
        Finite rows.
    y : (n,) or (n, T) array, optional
    weights : (n,) array, optional
        Positive; 1 where absent.
    row : AugmentedRow, optional
        Origins and names; zero origins and plain names where absent.
    order : {2, 1}
        1 keeps the mean feature vector only: n·R work in place of n·R².
    sums : {"auto", "float32", "float64"}
        Precision of the sums; auto is float64 up to n = 2·10⁵, then float32 with the
        triangle added into float64 every 4,096 rows.
    sample_rows : int
        Rows kept in the mergeable sample.

    Returns
    -------
    Moments

    Notes
    -----
    About n·R² useful flops and n·R cosines; one float32 and one float64 P×P are held.
    """
    X, y, weights = _check_arrays(features, X, y, weights)
    row = plain_row(features, y.shape[1]) if row is None else row
    precision = resolve_sums(sums, len(X), order)
    sink = Accumulator(
        features, row, order=order, sums=precision, sample_rows=sample_rows, n_places=len(X)
    )
    sink.add(X, y, weights, np.arange(len(X)))
    return ended_readings({None: sink.result()})[None]


def _check_arrays(
    features: FeatureMap, X: Array, y: Array | None, weights: Array | None
) -> tuple[Array, Array, Array | None]:
    """X (n, d), y (n, T) and weights (n,) or None; refuses shapes that do not fit."""
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] != features.n_inputs:
        raise ValueError(
            f"X has shape {X.shape} but the map takes rows (n, {features.n_inputs}). "
            "Pass the inputs that the map was made for."
        )
    y = np.empty((len(X), 0)) if y is None else np.asarray(y)
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim != 2 or len(y) != len(X):
        raise ValueError(f"y has shape {y.shape} but X has {len(X)} rows. Pass y (n,) or (n, T).")
    w = None if weights is None else np.asarray(weights, np.float64)
    if w is not None and not (w.shape == (len(X),) and ((w > 0) & (w < np.inf)).all()):
        raise ValueError(
            f"weights have shape {w.shape} and values from {w.min(initial=np.inf)} to "
            f"{w.max(initial=-np.inf)}, but each of {len(X)} rows needs one finite weight > 0. "
            "Leave rows of weight 0 out."
        )
    return X, y, w


def plain_row(features: FeatureMap, n_targets: int = 0) -> AugmentedRow:
    """The augmented row of a map with zero origins and names x0, x1, …, y0, y1, …."""
    return AugmentedRow(
        map_fingerprint=features.fingerprint,
        prior=features.prior(),
        nesting=features.nesting,
        feature_origin=np.zeros(features.n_components),
        target_origin=np.zeros(n_targets),
        target_scale=np.ones(n_targets),
        inputs=tuple(f"x{i}" for i in range(features.n_inputs)),
        targets=tuple(f"y{i}" for i in range(n_targets)),
    )


def resolve_sums(sums: SumsDtype, n_rows: int, order: int = 2) -> Literal["float32", "float64"]:
    """The precision that "auto" means for n rows."""
    if sums == "auto":
        most = FLOAT64_ROWS if order == 2 else FLOAT64_MEAN_ROWS
        return "float64" if n_rows <= most else "float32"
    if sums not in ("float32", "float64"):
        raise ValueError(f"sums={sums!r} but it must be one of 'auto', 'float32', 'float64'.")
    return sums


class Accumulator:
    """Takes rows in any portions and gives their moments; the same rows, the same bits.

    Batches count from the first row taken and are copied into an aligned buffer, so the portions in
    which rows arrive and their layout in memory change nothing. Order 1 cuts the ``n_places`` of
    the whole data set into 32·``rounds`` runs, dealt to the 32 parts in turn: as many rounds as
    contiguous groups, so that each has all parts. The rest is as in :func:`accumulate`.
    """

    def __init__(
        self,
        features: FeatureMap,
        row: AugmentedRow,
        *,
        order: int = 2,
        sums: Literal["float32", "float64"] = "float64",
        sample_rows: int = 0,
        n_places: int = 1,
        rounds: int = 1,
    ) -> None:
        if row.n_features != features.n_components:
            named = f"{row.n_features} features but the map has {features.n_components}"
            raise ValueError(f"The AugmentedRow has {named}. Make the row for this map.")
        self._row = row
        self._n_places, self._n_runs = max(n_places, 1), N_PARTS * max(rounds, 1)
        self._order = order
        self._sums: _SecondMoments | EntryMoments | _FirstMoments
        if order == 2 and pays(features, np.dtype(sums)):
            self._sums = EntryMoments(features, row)
        elif order == 2:
            self._sums = _SecondMoments(features, row, np.dtype(sums))
        elif order == 1:
            self._sums = _FirstMoments(features, row, np.dtype(sums))
        else:
            raise ValueError(f"order={order!r} but moments are of order 1 or 2.")
        self._x = np.zeros((BATCH_ROWS, features.n_inputs))
        self._y = np.zeros((BATCH_ROWS, row.n_targets))
        self._w = np.ones(BATCH_ROWS)
        self._weighted = False
        self._filled = 0
        self._part = 0
        self._run_of_part = np.full(N_PARTS, EMPTY)
        self._n = 0
        self._squared_weight = 0.0
        self._log_weight = 0.0
        self._sample = RowSample.empty(sample_rows, len(row.inputs) + row.n_targets + 1)

    def add(self, x: Array, y: Array, w: Array | None, places: Array) -> None:
        """Take rows x (m, d), y (m, T) of weights w (m,) that stood at ``places`` (m,)."""
        if (x.shape[1], y.shape[1]) != (self._x.shape[1], self._y.shape[1]):
            raise ValueError(
                f"Rows have {x.shape[1]} inputs and {y.shape[1]} targets but the sums are of "
                f"{self._x.shape[1]} and {self._y.shape[1]}. Use a row and a map of these columns."
            )
        self._n += len(x)
        if self._sample.size:
            self._sample = self._sample.with_rows(places, x, y, w)
        for lo, hi, run in self._runs(places):
            part = run % N_PARTS
            if self._run_of_part[part] != run:
                self._run_of_part[part] = run if self._run_of_part[part] == EMPTY else MIXED
            self._take(x[lo:hi], y[lo:hi], None if w is None else w[lo:hi], part)

    def result(self) -> Moments:
        """The moments of all rows taken so far."""
        self._add_batch()
        sums, parts = self._sums.result()
        return Moments(
            row=self._row,
            order=self._order,
            sums=sums,
            n=self._n,
            squared_weight=self._squared_weight,
            log_weight=self._log_weight,
            parts=parts,
            sample=self._sample,
            runs=under_way(self._run_of_part) if self._order == 1 else None,
        )

    def _runs(self, places: Array) -> Iterable[tuple[int, int, int]]:
        """Runs of rows: (lo, hi, number of the run); run k is dealt to part k modulo 32."""
        if not len(places):
            return []
        if self._order == 2:
            return [(0, len(places), 0)]
        run = np.minimum(places * self._n_runs // self._n_places, self._n_runs - 1)
        cuts = np.r_[0, np.flatnonzero(np.diff(run)) + 1, len(run)]
        return [(lo, hi, int(run[lo])) for lo, hi in pairwise(cuts)]

    def _take(self, x: Array, y: Array, w: Array | None, part: int) -> None:
        if part != self._part:
            self._add_batch()
            self._part = part
        start = 0
        while start < len(x):
            lo = self._filled
            hi = min(BATCH_ROWS, lo + len(x) - start)
            stop = start + hi - lo
            self._x[lo:hi] = x[start:stop]
            self._y[lo:hi] = y[start:stop]
            self._w[lo:hi] = 1.0 if w is None else w[start:stop]
            self._weighted |= w is not None
            self._filled, start = hi, stop
            if hi == BATCH_ROWS:
                self._add_batch()

    def _add_batch(self) -> None:
        """Add the rows waiting in the buffer."""
        m, self._filled = self._filled, 0
        if m:
            w = self._w[:m]
            weights = w if self._weighted else None
            self._squared_weight += float(w @ w)
            self._log_weight += float(np.log(w).sum()) if self._weighted else 0.0
            self._sums.update(self._x[:m], self._y[:m], weights, self._part)


class _SecondMoments:
    """Σ w a aᵀ by rank-k updates of one triangle, batch by batch."""

    def __init__(self, features: FeatureMap, row: AugmentedRow, dtype: np.dtype[Any]) -> None:
        r, width = row.n_features, row.width
        self._row = row
        stride = -(-width // 16) * 16  # every row starts on a cache line, which is 16 float32
        size = BATCH_ROWS * stride * dtype.itemsize
        padded = aligned_bytes(size).view(dtype).reshape(BATCH_ROWS, stride)
        self._batch, self._flat = padded[:, :width], padded.reshape(-1)
        # Whole rows of [z₀, 0, …], one under the other: centring is then one contiguous sweep,
        # four times faster than row by row.
        origin = np.zeros((CENTRE_ROWS, padded.shape[1]), dtype)
        self._map: Callable[[Array, Array], object] = features
        origin[:, :r], self._pairs = row.feature_origin, 0
        if isinstance(features, FourierFeatures) and features.paired:
            self._map, self._pairs = features.write_halves, features.n_frequencies
            origin[:, :r] = np.concatenate([row.feature_origin[0::2], row.feature_origin[1::2]])
        self._origin = origin.reshape(-1) if origin.any() else None
        self._border = Border(row, BATCH_ROWS)
        self._triangle = np.zeros((width, width), dtype)
        self._fresh = True  # the triangle holds nothing yet: overwrite it
        self._rows = 0
        own = dtype == np.float64
        self._total = self._triangle if own else np.zeros((width, width))

    def update(self, x: Float64, y: Float64, w: Float64 | None, part: int) -> None:
        """Add m ≤ 512 rows."""
        m, r = len(x), self._row.n_features
        batch = self._batch[:m]
        for lo in range(0, m, MAP_ROWS):  # centred while still in cache
            stop = min(lo + MAP_ROWS, m)
            self._map(x[lo:stop], batch[lo:stop, :r])
            self._centre(lo, stop)
        root = None if w is None else np.sqrt(w)
        if root is not None:
            batch[:, :r] *= root[:, None].astype(batch.dtype)
        batch[:, r:] = self._border.take(y, root)
        rank_update(batch, self._triangle, beta=0.0 if self._fresh else 1.0)
        self._fresh = False
        self._rows += m
        if self._rows >= FLUSH_ROWS:
            self._spill_to_float64()

    def _centre(self, lo: int, stop: int) -> None:
        """Subtract z₀ from rows lo … stop of the batch; the border is written afterwards."""
        if self._origin is None:
            return
        lda = len(self._origin) // CENTRE_ROWS
        for first in range(lo, stop, CENTRE_ROWS):
            rows = self._flat[first * lda : min(first + CENTRE_ROWS, stop) * lda]
            np.subtract(rows, self._origin[: len(rows)], out=rows)

    def _spill_to_float64(self) -> None:
        """Add the float32 triangle into the float64 one."""
        self._rows = 0
        if self._total is self._triangle or self._fresh:
            return
        for i in range(0, len(self._total), FLUSH_BLOCK):
            stop = i + FLUSH_BLOCK
            self._total[i:stop, i:] += self._triangle[i:stop, i:]
        self._fresh = True

    def result(self) -> tuple[Float64, None]:
        """Packed upper triangle in units of y; border and counts from float64 values."""
        self._spill_to_float64()
        rows = rows_in_pairs(self._total, self._pairs) if self._pairs else self._total
        return self._border.packed(rows), None


def rank_update(rows: Array, matrix: Array, beta: float) -> None:
    """matrix ← rowsᵀ rows + beta·matrix in its upper triangle (C order), in place.

    BLAS reads C order as the transpose: its "lower" is our upper triangle.
    """
    syrk, scalar = _SYRK[rows.dtype]
    if rows.strides[1] != rows.itemsize:  # BLAS would refuse, and the sum stay as it was
        rows = np.ascontiguousarray(rows)
    k, n = rows.shape
    integers = [ctypes.c_int(v) for v in (n, k, rows.strides[0] // rows.itemsize, len(matrix))]
    one, factor = scalar(1.0), scalar(beta)
    order, depth, lda, ldc = (ctypes.byref(i) for i in integers)
    uplo, trans = ctypes.c_char_p(b"L"), ctypes.c_char_p(b"N")
    syrk(
        ctypes.cast(uplo, ctypes.c_void_p),
        ctypes.cast(trans, ctypes.c_void_p),
        order,
        depth,
        ctypes.byref(one),
        rows.ctypes.data,
        lda,
        ctypes.byref(factor),
        matrix.ctypes.data,
        ldc,
    )


class _FirstMoments:
    """Σ w a, in 32 parts: no Z is kept and no rank-k update made."""

    def __init__(self, features: FeatureMap, row: AugmentedRow, dtype: np.dtype[Any]) -> None:
        self._row, self._sweep = row, sweep_of(features, dtype)
        self._parts = np.zeros((N_PARTS, row.width))

    def update(self, x: Float64, y: Float64, w: Float64 | None, part: int) -> None:
        """Add m ≤ 512 rows to one part."""
        r, weights = self._row.n_features, np.ones(len(x)) if w is None else w
        sums, weight = self._parts[part], float(weights.sum())
        sums[:r] += column_sums(self._sweep, x, w, r) - weight * self._row.feature_origin
        sums[r] += weight
        sums[r + 1 :] += weights @ (y - self._row.target_origin)

    def result(self) -> tuple[Float64, Float64]:
        """m and its parts."""
        return self._parts.sum(axis=0), self._parts.copy()
