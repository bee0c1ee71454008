"""Moments of cells: the mergeable state of local features, one small matrix for each cell.

Shapes: n rows, d inputs, J trees of B cells, R columns of a cell, T targets, P = R + 1 + T. In
every tree one row adds to one cell its augmented row a = [z_c, 1, y − y₀] (P,):

    M_c = Σ_{i in c} w a aᵀ

Per tree and cell, about 512 rows at a time: the kernel block, a triangular solve in place, 1 and
y − y₀ beside it, and the rank-k update of the cell's packed triangle. BLAS releases the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from rff_stream._array import Array, Float64, aligned_bytes
from rff_stream.features.base import BATCH_ROWS
from rff_stream.features.cells import LocalFeatures
from rff_stream.features.packed_triangle import add_products, places, triangle_size
from rff_stream.moments.accumulate import FLUSH_ROWS
from rff_stream.moments.moments import AugmentedRow, ProductMoments
from rff_stream.moments.row_sample import RowSample

ADDED_CELLS = 64
"""Cells whose sums are added at once if two values hold different cells."""

FEWEST_WAITING, MOST_WAITING, ROWS_A_CELL = 16_384, 262_144, 512
"""Rows that wait until they are sorted: so many for each cell of a tree, within these bounds.

They cost d + T + 1 numbers each; a visit of a cell costs one sweep over its packed triangle.
"""

MOST_BATCH_ROWS = BATCH_ROWS * 3 // 2
"""Rows of a visit are cut into equal batches of about 512: at most 1.5 times as many."""


@dataclass(frozen=True, slots=True, eq=False)
class CellMoments(ProductMoments):
    """Σ w a aᵀ of each cell that has met a row, with counts.

    An abelian group under ``+``: exact in ``n`` and ``counts``, to rounding in the sums. What
    asks moments for rows, weights, names or targets may ask these, too.
    """

    kind = "Moments of cells"

    row: AugmentedRow
    """The meaning of a row of one cell: its R columns are those of the cell that contains the
    row."""
    n_trees: int  # J
    n_cells: int  # B
    cells: Array  # (k,), cells that have rows, increasing: tree·B + cell
    counts: Array  # (k,): rows in each of them
    powers: Float64  # (k, 2): Σ w² and Σ log w over the rows of each
    sums: Float64  # (k, P(P+1) /2), M_c of each, packed (rectangular), in units of y
    sample: RowSample  # a mergeable uniform sample of rows: leave-one-out errors are computed on it

    @classmethod
    def zero(cls, row: AugmentedRow, n_trees: int, n_cells: int, sample_rows: int = 0) -> Self:
        """No rows: the neutral element of ``+``."""
        none, powers = np.empty(0, np.int64), np.empty((0, 2))
        sums = np.empty((0, triangle_size(row.width)))
        sample = RowSample.empty(sample_rows, len(row.inputs) + row.n_targets + 1)
        return cls(row, n_trees, n_cells, none, none, powers, sums, sample)

    @property
    def n(self) -> int:
        """Rows, exactly; each of them is in one cell of every tree."""
        return int(self.counts.sum()) // self.n_trees

    @property
    def squared_weight(self) -> float:
        """Σ w² over the rows."""
        return float(self.powers[:, 0].sum() / self.n_trees)

    @property
    def log_weight(self) -> float:
        """Σ log w over the rows."""
        return float(self.powers[:, 1].sum() / self.n_trees)

    def plus(self, other: Self, out: Float64 | None = None) -> Self:
        """The sum; its sums are put into ``out`` where that is given and has all cells."""
        self._require_same(other)
        sample = self.sample + other.sample
        if np.array_equal(self.cells, other.cells):
            fits = out is not None and out.shape == self.sums.shape
            return replace(
                self,
                counts=self.counts + other.counts,
                powers=self.powers + other.powers,
                sums=np.add(self.sums, other.sums, out=out if fits else None),
                sample=sample,
            )
        cells = np.union1d(self.cells, other.cells)
        counts, powers = np.zeros(len(cells), np.int64), np.zeros((len(cells), 2))
        sums = np.zeros((len(cells), self.sums.shape[1]))
        for each in (self, other):
            self._put(each, cells, counts, powers, sums)
        return replace(self, cells=cells, counts=counts, powers=powers, sums=sums, sample=sample)

    @staticmethod
    def _put(
        value: CellMoments, cells: Array, counts: Array, powers: Float64, sums: Float64
    ) -> None:
        """Add the sums of a value into those of more cells."""
        at = np.searchsorted(cells, value.cells)
        counts[at] += value.counts
        powers[at] += value.powers
        for start in range(0, len(at), ADDED_CELLS):  # a few at a time: no whole copy
            few = slice(start, start + ADDED_CELLS)
            sums[at[few]] += value.sums[few]

    def __iadd__(self, other: Self) -> Self:
        """The sum, for which the sums of this one are written into if they have all cells."""
        if not self.sums.flags.writeable or len(np.setdiff1d(other.cells, self.cells)):
            return self + other
        if len(other.cells) == len(self.cells):
            return self.plus(other, self.sums)
        self._require_same(other)
        counts, powers = self.counts.copy(), self.powers.copy()
        self._put(other, self.cells, counts, powers, self.sums)
        sample = self.sample + other.sample
        return replace(self, counts=counts, powers=powers, sample=sample)

    def __neg__(self) -> Self:
        return replace(self, counts=-self.counts, powers=-self.powers, sums=-self.sums)

    def __sub__(self, other: Self) -> Self:
        """Without the rows of ``other``; cells that have none left are dropped, and exactly 0."""
        difference = ProductMoments.__sub__(self, other)
        kept = difference.counts != 0
        return replace(
            difference,
            cells=difference.cells[kept],
            counts=difference.counts[kept],
            powers=difference.powers[kept],
            sums=difference.sums[kept],
        )

    def _scaled(self, factor: float) -> Self:
        squared, logarithm = self.powers.T
        powers = [squared * factor**2, logarithm + self.counts * np.log(factor)]
        return replace(
            self,
            powers=np.column_stack(powers),
            sums=self.sums * factor,
            sample=self.sample.scale(factor),
        )

    def leading(self, n_components: int) -> Self:
        """Moments of the first R' columns of each cell: no second read."""
        r = self.row.n_features
        keep = np.r_[0:n_components, r : self.row.width]
        return self._select(self.row.leading(n_components), keep)

    def with_targets(self, targets: Sequence[int]) -> Self:
        """Moments of some of the targets, by position and in that order, sample included."""
        row, columns = self.row.with_targets(targets)
        own = np.asarray(list(targets), dtype=int)
        first = self.row.n_features + 1
        selected = self._select(row, np.r_[0:first, first + own])
        return replace(selected, sample=self.sample.columns(columns))

    def matrices(self, which: Any = slice(None)) -> Float64:
        """M_c (k, P, P) of some of the k cells held, symmetric, both triangles."""
        return np.asarray(self.sums[which][..., places(self.row.width)])

    @property
    def weight(self) -> float:
        """Σ w over the rows: that of the cells of one tree."""
        return float(self.cell_weights().sum() / self.n_trees)

    def cell_weights(self) -> Float64:
        """Σ w (k,) of each cell held."""
        r = self.row.n_features
        return np.asarray(self.sums[:, places(self.row.width)[r, r]])

    def target_mean(self) -> Float64:
        """Weighted mean of y (T,) over all rows, in units of y."""
        if self.n < 1 or not self.weight > 0:
            raise ValueError(
                f"These moments hold {self.n} rows with total weight {self.weight}. "
                "A mean needs at least one row of positive weight."
            )
        r, trees = self.row.n_features, self.n_trees
        at = places(self.row.width)[r, r + 1 :]
        return np.asarray(
            self.row.target_origin + self.sums[:, at].sum(axis=0) / trees / self.weight
        )

    def of_tree(self, tree: int) -> slice:
        """Where the cells of one tree lie among those held."""
        ends = np.searchsorted(self.cells, np.array([tree, tree + 1]) * self.n_cells)
        return slice(int(ends[0]), int(ends[1]))

    def spread(self, row: AugmentedRow, keep: Array, sample: RowSample) -> Self:
        """Moments of a longer row, whose columns ``keep`` are those of this one; others are 0."""
        old, new = places(self.row.width), places(row.width)
        i, j = np.tril_indices(self.row.width)
        sums = np.zeros((len(self.sums), triangle_size(row.width)))
        sums[:, new[keep[i], keep[j]]] = self.sums[:, old[i, j]]
        return replace(self, row=row, sums=sums, sample=sample)

    def target_squares(self) -> Float64:
        """Σ w (y − y₀)² (T,) over the rows."""
        own = np.arange(self.row.n_features + 1, self.row.width)
        squares = self.sums[:, places(self.row.width)[own, own]].sum(axis=0)
        return np.asarray(squares / self.n_trees)

    def _select(self, row: AugmentedRow, keep: Array) -> Self:
        """Moments of the columns ``keep`` of a."""
        old, new = places(self.row.width), places(row.width)
        i, j = np.tril_indices(row.width)
        order = np.empty(triangle_size(row.width), np.intp)
        order[new[i, j]] = old[keep[i], keep[j]]
        return replace(self, row=row, sums=self.sums[:, order])

    def __sizeof__(self) -> int:
        own = self.sums.nbytes + self.cells.nbytes + self.counts.nbytes + self.powers.nbytes
        return int(own + self.sample.nbytes + 256)

    def __repr__(self) -> str:
        cells = f"{len(self.cells)} cells of {self.n_trees} trees"
        return f"<CellMoments: {self.n} rows, {cells}, {self.row.n_features} columns each>"


def cell_row(
    features: LocalFeatures,
    *,
    target_origin: Float64,
    target_scale: Float64,
    inputs: tuple[str, ...],
    targets: tuple[str, ...],
    units: tuple[str, ...] = (),
) -> AugmentedRow:
    """What a row [z_c, 1, y − y₀] of one cell means; columns are not centred."""
    return AugmentedRow(
        map_fingerprint=features.fingerprint,
        prior=np.ones(features.n_components),
        nesting=features.nesting,
        feature_origin=np.zeros(features.n_components),
        target_origin=target_origin,
        target_scale=target_scale,
        inputs=inputs,
        targets=targets,
        units=units,
    )


def waiting_rows(n_cells: int) -> int:
    """Rows that wait before they are sorted by cell."""
    return min(max(FEWEST_WAITING, ROWS_A_CELL * n_cells), MOST_WAITING)


class CellAccumulator:
    """Takes rows in any portions and gives their moments; the same rows, the same bits."""

    def __init__(
        self,
        features: LocalFeatures,
        row: AugmentedRow,
        *,
        sums: Literal["float32", "float64"] = "float64",
        sample_rows: int = 0,
    ) -> None:
        if row.n_features != features.n_components:
            raise ValueError(
                f"The AugmentedRow has {row.n_features} columns but a cell of the map has "
                f"{features.n_components}. Make the row for this map."
            )
        self._features, self._row = features, row
        self._dtype: np.dtype[Any] = np.dtype(sums)
        self._filled = 0
        size = waiting_rows(features.n_cells)
        self._x = np.empty((size, features.n_inputs))
        self._y = np.empty((size, row.n_targets))
        self._w = np.ones(size)
        self._weighted = False
        self._cells: dict[int, _Cell] = {}
        # Pages of cells without rows are never touched, and take no memory.
        shape = (features.n_trees * features.n_cells, triangle_size(row.width))
        self._totals = np.zeros(shape)
        self._value: CellMoments | None = None
        stride = -(-row.width // 16) * 16
        flat = aligned_bytes(MOST_BATCH_ROWS * stride * self._dtype.itemsize).view(self._dtype)
        self._batch = flat.reshape(MOST_BATCH_ROWS, stride)[:, : row.width]
        mapped = aligned_bytes(MOST_BATCH_ROWS * stride * np.dtype(features.dtype).itemsize)
        self._mapped = mapped.view(features.dtype).reshape(MOST_BATCH_ROWS, stride)
        self._product = np.empty(triangle_size(row.width), self._dtype)
        self._sample = RowSample.empty(sample_rows, len(row.inputs) + row.n_targets + 1)

    def add(self, x: Array, y: Array, w: Array | None, rows_places: Array) -> None:
        """Take rows x (m, d), y (m, T) of weights w (m,) that stood at these places (m,)."""
        if (x.shape[1], y.shape[1]) != (self._x.shape[1], self._y.shape[1]):
            raise ValueError(
                f"Rows have {x.shape[1]} inputs and {y.shape[1]} targets but the sums are of "
                f"{self._x.shape[1]} and {self._y.shape[1]}. Use a row and a map of these columns."
            )
        if self._value is not None:
            raise ValueError("The sums were taken already. Open another accumulator for more rows.")
        if self._sample.size:
            self._sample = self._sample.with_rows(rows_places, x, y, w)
        start = 0
        while start < len(x):
            lo = self._filled
            hi = min(len(self._x), lo + len(x) - start)
            stop = start + hi - lo
            self._x[lo:hi], self._y[lo:hi] = x[start:stop], y[start:stop]
            self._w[lo:hi] = 1.0 if w is None else w[start:stop]
            self._weighted |= w is not None
            self._filled, start = hi, stop
            if hi == len(self._x):
                self._sort()

    def result(self) -> CellMoments:
        """The moments of all rows; no more are taken afterwards."""
        if self._value is None:
            self._sort()
            self._value = self._finish()
        return self._value

    def _finish(self) -> CellMoments:
        cells = np.array(sorted(self._cells), np.int64)
        held = [self._cells[cell] for cell in cells.tolist()]
        for each in held:
            each.finish(self._row)
        sums = self._totals
        if 2 * len(cells) <= len(sums):
            sums = sums[cells]
        elif len(cells) < len(sums):  # in place: a copy would hold most of them twice
            for place, cell in enumerate(cells.tolist()):
                if place != cell:
                    sums[place] = sums[cell]
            sums = sums[: len(cells)]
        return CellMoments(
            row=self._row,
            n_trees=self._features.n_trees,
            n_cells=self._features.n_cells,
            cells=cells,
            counts=np.array([each.count for each in held], np.int64),
            powers=np.array([each.powers for each in held]).reshape(-1, 2),
            sums=sums,
            sample=self._sample,
        )

    def _sort(self) -> None:
        """Give the rows waiting to their cells, in the order in which they came."""
        m, self._filled = self._filled, 0
        if not m:
            return
        for tree, cells in enumerate(self._features.route(self._x[:m])):
            order = np.argsort(cells, kind="stable")
            ends = np.searchsorted(cells[order], np.arange(self._features.n_cells + 1))
            for cell in np.flatnonzero(np.diff(ends)).tolist():
                self._visit(tree, cell, order[ends[cell] : ends[cell + 1]])

    def _visit(self, tree: int, cell: int, rows: Array) -> None:
        """Add rows (by their place in the buffer) to one cell."""
        held = self._kept_cell(tree, cell)
        held.count += len(rows)
        if self._weighted:
            w = self._w.take(rows)
            held.powers += [w @ w, np.log(w).sum()]
        else:
            held.powers[0] += len(rows)
        exact = self._product.dtype == held.total.dtype
        waiting = 0
        parts = max(round(len(rows) / BATCH_ROWS), 1)
        for own in np.array_split(rows, parts):  # none of a few rows, which would cost a sweep
            batch = self._augment(tree, cell, own, held)
            if exact:
                add_products(batch, held.total, 1.0)
                continue
            add_products(batch, self._product, 1.0 if waiting else 0.0)
            waiting += len(batch)
            if waiting >= FLUSH_ROWS:
                held.total += self._product
                waiting = 0
        if waiting:
            held.total += self._product

    def _kept_cell(self, tree: int, cell: int) -> _Cell:
        key = tree * self._features.n_cells + cell
        if key not in self._cells:
            self._cells[key] = _Cell(self._totals[key])
        return self._cells[key]

    def _augment(self, tree: int, cell: int, rows: Array, held: _Cell) -> Array:
        """√w [z_c, 1, (y − y₀)/scale] (m, P) of at most 768 rows; a buffer."""
        m, r = len(rows), self._row.n_features
        batch = self._batch[:m]
        x = self._x.take(rows, axis=0)
        if self._mapped.dtype == batch.dtype:
            self._features.columns(tree, cell, x, out=batch[:, :r])
        else:
            Z = self._mapped[:m, :r]
            batch[:, :r] = self._features.columns(tree, cell, x, out=Z)
        border = np.ones((m, self._row.n_targets + 1))
        np.subtract(self._y.take(rows, axis=0), self._row.target_origin, out=border[:, 1:])
        border[:, 1:] /= self._row.target_scale
        if self._weighted:
            root = np.sqrt(self._w.take(rows))[:, None]
            border *= root
            batch[:, :r] *= root.astype(batch.dtype)
        held.border += border.T @ border
        batch[:, r:] = border
        return batch


class _Cell:
    """The sums of one cell."""

    def __init__(self, total: Float64) -> None:
        self.count = 0
        self.powers = np.zeros(2)
        self.total = total
        self.border: Float64 | float = 0.0

    def finish(self, row: AugmentedRow) -> None:
        """Bring M_c into units of y; counts and targets from float64 values."""
        at, r = places(row.width), row.n_features
        scale = np.concatenate([[1.0], row.target_scale])
        self.total[at[r:, :r]] *= scale[:, None]
        self.total[at[r:, r:]] = self.border * scale[:, None] * scale
