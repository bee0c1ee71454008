"""Moments of cells: the mergeable state of local features, one small matrix for each cell.

Shapes: n rows, d inputs, J trees of B cells, R columns of a cell, T targets, P = R + 1 + T. In
every tree one row adds to one cell its augmented row a = [z_c, 1, y − y₀] (P,):

    M_c = Σ_{i in c} w a aᵀ
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.rectangular import places, triangle_size
from rff_stream.moments.moments import AugmentedRow, ProductMoments
from rff_stream.moments.row_sample import RowSample

ADDED_CELLS = 64
"""Cells whose sums are added together where two values hold different cells."""


@dataclass(frozen=True, slots=True, eq=False)
class CellMoments(ProductMoments):
    """Σ w a aᵀ of each cell that has met a row, with counts.

    An abelian group under ``+``: exact in ``n`` and ``counts``, to rounding in the sums. What
    asks moments for rows, weights, names or targets may ask these, too.
    """

    kind = "Moments of cells"

    row: AugmentedRow
    """What a row of one cell means: its R columns are those of the cell that the row is in."""
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
