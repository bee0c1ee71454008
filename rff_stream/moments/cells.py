"""Moments of cells: the mergeable state of local features, one small matrix for each cell.

Shapes: n rows, d inputs, J trees of B cells, R columns of a cell, T targets, P = R + 1 + T. In
every tree one row adds to one cell its augmented row a = [z_c, 1, y − y₀] (P,):

    M_c = Σ_{i in c} w a aᵀ
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64, digest
from rff_stream.errors import ModelError
from rff_stream.features.rectangular import places, triangle_size
from rff_stream.moments.row_sample import RowSample

__all__ = ["CellMoments", "CellRow"]


@dataclass(frozen=True, slots=True, eq=False)
class CellRow:
    """What the numbers of a = [z_c, 1, y − y₀] mean; equal rows may be summed.

    Parameters
    ----------
    map_fingerprint : str
        sha256 of the local map's spec.
    n_trees, n_cells, n_features : int
        J, B and R.
    target_origin, target_scale : (T,) float64
        y₀ from the pilot, in units of y; a power of two that y − y₀ is divided by before a
        cast to float32. The sums themselves are in units of y.
    inputs, targets : tuple of str
        Names of the columns.
    units : tuple of str
        Units (or encodings) of inputs, then targets; "" where unknown.
    """

    map_fingerprint: str
    n_trees: int
    n_cells: int
    n_features: int
    target_origin: Float64
    target_scale: Float64
    inputs: tuple[str, ...]
    targets: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        plain = [
            self.map_fingerprint,
            [self.n_trees, self.n_cells, self.n_features],
            self.inputs,
            self.targets,
            self.units,
        ]
        arrays = {"target_origin": self.target_origin, "target_scale": self.target_scale}
        object.__setattr__(self, "fingerprint", digest(plain, arrays))

    @property
    def n_targets(self) -> int:
        """T."""
        return len(self.target_origin)

    @property
    def width(self) -> int:
        """P = R + 1 + T."""
        return self.n_features + 1 + self.n_targets

    def leading(self, n_components: int) -> Self:
        """The row of the first R' columns of each cell."""
        if not 1 <= n_components <= self.n_features:
            raise ValueError(
                f"n_components={n_components} but these moments have 1 to {self.n_features} "
                "columns in a cell. Ask for a number in this range."
            )
        if n_components == self.n_features:
            return self
        name = f"{self.map_fingerprint.partition('[')[0]}[:{n_components}]"
        return replace(self, map_fingerprint=name, n_features=n_components)

    def difference(self, other: Self) -> str:
        """Name the first thing in which two rows differ, with both values."""
        for name in ("n_trees", "n_cells", "n_features", "inputs", "targets", "units"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} ({mine} and {theirs})"
        if self.map_fingerprint != other.map_fingerprint:
            return f"feature map ({self.map_fingerprint[:12]} and {other.map_fingerprint[:12]})"
        mine, theirs = self.target_origin.tolist(), other.target_origin.tolist()
        return f"target origin or scale ({mine} and {theirs})"


@dataclass(frozen=True, slots=True, eq=False)
class CellMoments:
    """Σ w a aᵀ of each cell that has met a row, with counts.

    An abelian group under ``+``: exact in ``n`` and ``counts``, to rounding in the sums.

    Parameters
    ----------
    row : CellRow
        What the sums mean. Only moments of equal rows add.
    cells : (k,) int64
        Cells that have rows, increasing: tree·B + cell.
    counts : (k,) int64
        Rows in each of them.
    sums : (k, P(P+1)/2) float64
        M_c of each, packed (:mod:`rff_stream.features.rectangular`), in units of y.
    n : int
        Rows, exactly; each of them is in one cell of every tree.
    squared_weight, log_weight : float
        Σ w² and Σ log w over the rows.
    sample : RowSample
        A mergeable uniform sample of rows: leave-one-out errors are computed on it.
    """

    row: CellRow
    cells: Array
    counts: Array
    sums: Float64
    n: int
    squared_weight: float
    log_weight: float
    sample: RowSample

    @classmethod
    def zero(cls, row: CellRow, sample_rows: int = 0) -> Self:
        """No rows: the neutral element of ``+``."""
        none = np.empty(0, np.int64)
        sums = np.empty((0, triangle_size(row.width)))
        sample = RowSample.empty(sample_rows, len(row.inputs) + row.n_targets + 1)
        return cls(row, none, none, sums, 0, 0.0, 0.0, sample)

    def __add__(self, other: Self) -> Self:
        return self.plus(other)

    def plus(self, other: Self, out: Float64 | None = None) -> Self:
        """The sum; its sums are put into ``out`` where that is given and has all cells."""
        self._require_same(other)
        cells, counts, sums = _merged(self, other, out)
        return replace(
            self,
            cells=cells,
            counts=counts,
            sums=sums,
            n=self.n + other.n,
            squared_weight=self.squared_weight + other.squared_weight,
            log_weight=self.log_weight + other.log_weight,
            sample=self.sample + other.sample,
        )

    def __neg__(self) -> Self:
        return replace(
            self,
            counts=-self.counts,
            sums=-self.sums,
            n=-self.n,
            squared_weight=-self.squared_weight,
            log_weight=-self.log_weight,
        )

    def __sub__(self, other: Self) -> Self:
        """Without the rows of ``other``; cells that have none left are dropped, and exactly 0."""
        difference = self + -other
        kept = difference.counts != 0
        return replace(
            difference,
            cells=difference.cells[kept],
            counts=difference.counts[kept],
            sums=difference.sums[kept],
            sample=self.sample - other.sample,
        )

    def scale(self, factor: float) -> Self:
        """Every weight times ``factor`` > 0: M and Σw by c, Σw² by c², n unchanged."""
        if not (np.isfinite(factor) and factor > 0):
            raise ValueError(f"factor={factor!r} but weights are scaled by a finite number > 0.")
        return replace(
            self,
            sums=self.sums * factor,
            squared_weight=self.squared_weight * factor**2,
            log_weight=self.log_weight + self.n * float(np.log(factor)),
            sample=self.sample.scale(factor),
        )

    def leading(self, n_components: int) -> Self:
        """Moments of the first R' columns of each cell: no second read."""
        r = self.row.n_features
        keep = np.r_[0:n_components, r : self.row.width]
        return self._select(self.row.leading(n_components), keep)

    def with_targets(self, targets: Sequence[int]) -> Self:
        """Moments of some of the targets, by position and in that order, sample included."""
        chosen, d = list(targets), len(self.row.inputs)
        if len({*chosen} & {*range(self.row.n_targets)}) != len(chosen):
            raise ValueError(
                f"targets={chosen} but these moments have targets 0 to {self.row.n_targets - 1}. "
                "Give each position at most once, from this range."
            )
        own = np.asarray(chosen, dtype=int)
        row = replace(
            self.row,
            target_origin=self.row.target_origin[own],
            target_scale=self.row.target_scale[own],
            targets=tuple(self.row.targets[i] for i in chosen),
            units=self.row.units[:d] + tuple(self.row.units[d + i] for i in chosen)
            if self.row.units
            else (),
        )
        first = self.row.n_features + 1
        columns = np.r_[0:d, d + own, d + self.row.n_targets]
        selected = self._select(row, np.r_[0:first, first + own])
        return replace(selected, sample=self.sample.columns(columns))

    def matrices(self, which: Any = slice(None)) -> Float64:
        """M_c (k, P, P) of some of the k cells held, symmetric, both triangles."""
        return np.asarray(self.sums[which][..., places(self.row.width)])

    @property
    def weight(self) -> float:
        """Σ w over the rows: that of the cells of one tree."""
        return float(self.cell_weights().sum() / self.row.n_trees)

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
        r, trees = self.row.n_features, self.row.n_trees
        at = places(self.row.width)[r, r + 1 :]
        return np.asarray(
            self.row.target_origin + self.sums[:, at].sum(axis=0) / trees / self.weight
        )

    def of_tree(self, tree: int) -> slice:
        """Where the cells of one tree lie among those held."""
        ends = np.searchsorted(self.cells, [tree * self.row.n_cells, (tree + 1) * self.row.n_cells])
        return slice(int(ends[0]), int(ends[1]))

    def _select(self, row: CellRow, keep: Array) -> Self:
        """Moments of the columns ``keep`` of a."""
        old, new = places(self.row.width), places(row.width)
        i, j = np.tril_indices(row.width)
        order = np.empty(triangle_size(row.width), np.intp)
        order[new[i, j]] = old[keep[i], keep[j]]
        return replace(self, row=row, sums=self.sums[:, order])

    def _require_same(self, other: Self) -> None:
        if not isinstance(other, CellMoments):
            raise TypeError(f"Moments of cells cannot be added to {type(other).__name__}.")
        if self.row.fingerprint != other.row.fingerprint:
            raise ModelError(
                f"Moments of cells that differ in {self.row.difference(other.row)} cannot be "
                "added. Collect both with the same local map, origins, names and units."
            )

    def __sizeof__(self) -> int:
        own = self.sums.nbytes + self.cells.nbytes + self.counts.nbytes
        return int(own + self.sample.nbytes + 256)

    def __repr__(self) -> str:
        row = self.row
        cells = f"{len(self.cells)} cells of {row.n_trees} trees"
        return f"<CellMoments: {self.n} rows, {cells}, {row.n_features} columns each>"


def _merged(a: CellMoments, b: CellMoments, out: Float64 | None) -> tuple[Array, Array, Float64]:
    """Cells, counts and sums of both."""
    if len(a.cells) == len(b.cells) and (a.cells == b.cells).all():
        fits = out is not None and out.shape == a.sums.shape
        return a.cells, a.counts + b.counts, np.add(a.sums, b.sums, out=out if fits else None)
    cells = np.union1d(a.cells, b.cells)
    counts, sums = np.zeros(len(cells), np.int64), np.zeros((len(cells), a.sums.shape[1]))
    for each in (a, b):
        at = np.searchsorted(cells, each.cells)
        counts[at] += each.counts
        sums[at] += each.sums
    return cells, counts, sums
