"""Moments of cells: the mergeable state of local features, one small matrix for each cell.

Shapes: n rows, d inputs, J trees of B cells, R columns of a cell, T targets, P = R + 1 + T. In
every tree one row adds to one cell its augmented row a = [z_c, 1, y − y₀] (P,):

    M_c = Σ_{i in c} w a aᵀ

Rows wait and are sorted by cell, one tree after the other. Per cell, about 512 rows at a time: the
kernel block, a triangular product in place, 1 and y − y₀ beside it, and the rank-k update of the
cell's packed triangle. Runs of cells share nothing, so several threads may add to them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from rff_stream._array import Array, Float64, aligned_bytes
from rff_stream.cells.map import LocalFeatures
from rff_stream.costs import Precision
from rff_stream.features.base import BATCH_ROWS
from rff_stream.features.packed_triangle import add_products, places, triangle_size
from rff_stream.features.random_trees import order_by_cell
from rff_stream.moments.accumulate import FLUSH_ROWS
from rff_stream.moments.moments import AugmentedRow, ProductMoments
from rff_stream.moments.row_sample import RowSample
from rff_stream.moments.stored import Form
from rff_stream.side_by_side import side_by_side

ADDED_CELLS = 64
"""Cells whose sums are added at once if two values hold different cells."""

FEWEST_WAITING, ROWS_A_CELL, MOST_WAITING_NUMBERS = 16_384, 512, 1 << 23
"""Rows that wait until they are sorted: so many for each cell of a tree, within these bounds.

They cost d + T + 1 numbers each, and as much again while they are sorted; a visit of a cell costs
two sweeps over its packed triangle.
"""

PART_ROWS = 16_384
"""Approximate rows of a part: cells of a tree whose rows are copied together, by one thread."""

MOST_ROUNDINGS = 32
"""Additions after which sums at rest are float64. An entry of sums in float32 is then wrong by at
most 32·2⁻²⁴ of Σ w|aᵢaⱼ|, and by 6 times 2⁻²⁴ as a rule: float32 products of 4,096 rows, which
are what is added, are as wrong. (Higham 2002, section 4.2; sqrt(32) for signs at random.)"""

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
    borders: Float64  # (k, T + 1, T + 1): Σ w b bᵀ of b = [1, y − y₀], of each
    sums: Array  # (k, P(P+1) /2), M_c of each, packed (rectangular), in units of y
    """float64, or float32 at rest. What ``borders`` holds is rounded here."""
    sample: RowSample  # a mergeable uniform sample of rows: leave-one-out errors are computed on it
    roundings: int = 0  # additions of sums in float32
    room: Array | None = None
    """Sums that begin with these and have rows for more cells, as an accumulator makes them."""

    mark: ClassVar[str] = "cell_sizes"
    dimensions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "cell_sizes": ("group", "size"),
        "cells": ("cell",),
        "cell_counts": ("cell",),
        "cell_powers": ("cell", "power"),
        "cell_borders": ("cell", "border", "border_column"),
        "cell_sums": ("cell", "packed"),
    }

    @classmethod
    def own_arrays(cls, groups: Sequence[Self]) -> dict[str, Array | list[Array]]:
        """cell_sizes: J, B, cells held and roundings of each group; the cells of all in turn."""
        sizes = [[each.n_trees, each.n_cells, len(each.cells), each.roundings] for each in groups]
        first, alone = groups[0], len(groups) == 1
        return {
            "cell_sizes": np.array(sizes, np.int64),
            "cells": np.concatenate([each.cells for each in groups]),
            "cell_counts": np.concatenate([each.counts for each in groups]),
            "cell_powers": np.concatenate([each.powers for each in groups]),
            "cell_borders": np.concatenate([each.borders for each in groups]),
            "cell_sums": first.sums if alone else np.concatenate([each.sums for each in groups]),
        }

    @classmethod
    def own_forms(
        cls, row: AugmentedRow, order: int, count: int, found: Mapping[str, Form]
    ) -> dict[str, Form]:
        """All hold equally many cells. Stores of before have no borders, and float64 alone."""
        cells = found.get("cells", ((0,), ""))[0][0]
        before, t = "cell_borders" not in found, row.n_targets
        dtype = "float64" if before else found.get("cell_sums", ((), ""))[1]
        forms: dict[str, Form] = {
            "cell_sizes": ((count, 3 if before else 4), "int64"),
            "cells": ((cells,), "int64"),
            "cell_counts": ((cells,), "int64"),
            "cell_powers": ((cells, 2), "float64"),
            "cell_sums": (
                (cells, triangle_size(row.width)), dtype if dtype == "float32" else "float64"
            ),
        }  # fmt: skip
        return forms if before else forms | {"cell_borders": ((cells, t + 1, t + 1), "float64")}

    @classmethod
    def from_stored(
        cls, row: AugmentedRow, order: int, arrays: Mapping[str, Any], i: int, sample: RowSample
    ) -> Self:
        n_trees, n_cells, count, *roundings = arrays["cell_sizes"][i].tolist()
        start = int(arrays["cell_sizes"][:i, 2].sum())
        names = ("cells", "cell_counts", "cell_powers", "cell_sums")
        cells, counts, powers, sums = (arrays[name][start : start + count] for name in names)
        if "cell_borders" in arrays:
            borders = arrays["cell_borders"][start : start + count]
        else:
            borders = sums[:, places(row.width)[row.n_features :, row.n_features :]]
        return cls(
            row, n_trees, n_cells, cells, counts, powers, borders, sums, sample, *roundings
        )  # fmt: skip

    def own_faults(self) -> Iterator[tuple[str, bool]]:
        most, cells, counts = self.n_trees * self.n_cells, self.cells, self.counts
        outside = bool(len(cells)) and not (cells[0] >= 0 and cells[-1] < most)
        yield "cells out of order or range", outside or bool((cells[1:] <= cells[:-1]).any())
        yield f"cells of {counts.min(initial=1)} rows", bool((counts < 1).any())
        yield "rows that are not once in each tree", int(counts.sum()) % self.n_trees != 0

    @classmethod
    def zero(cls, row: AugmentedRow, n_trees: int, n_cells: int, sample_rows: int = 0) -> Self:
        """No rows: the neutral element of ``+``."""
        none, powers = np.empty(0, np.int64), np.empty((0, 2))
        borders = np.empty((0, row.n_targets + 1, row.n_targets + 1))
        sums = np.empty((0, triangle_size(row.width)), np.float32)
        sample = RowSample.empty(sample_rows, len(row.inputs) + row.n_targets + 1)
        return cls(row, n_trees, n_cells, none, none, powers, borders, sums, sample)

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

    def plus(self, other: Self, out: Array | None = None) -> Self:
        """The sum; its sums are put into ``out`` where that is given and has all cells."""
        self._require_same(other)
        sample, (dtype, roundings) = self.sample + other.sample, self._precision_with(other)
        if np.array_equal(self.cells, other.cells):
            fits = out is not None and out.shape == self.sums.shape and out.dtype == dtype
            return replace(
                self,
                counts=self.counts + other.counts,
                powers=self.powers + other.powers,
                borders=self.borders + other.borders,
                sums=np.add(self.sums, other.sums, out=out if fits else None, dtype=dtype),
                sample=sample,
                roundings=roundings,
                room=self.room if fits else None,
            )
        cells = np.union1d(self.cells, other.cells)
        held = self._no_sums(len(cells))
        sums = np.zeros((len(cells), self.sums.shape[1]), dtype)
        for each in (self, other):
            self._put(each, cells, held, sums)
        return replace(
            self, cells=cells, sums=sums, sample=sample, roundings=roundings, room=None, **held
        )

    def _precision_with(self, other: Self) -> tuple[np.dtype[Any], int]:
        """In which sums with another value are kept, and their roundings."""
        roundings = self.roundings + other.roundings + 1
        for alone, empty in ((self, other), (other, self)):
            if not len(empty.cells):
                return alone.sums.dtype, alone.roundings
        single = self.sums.dtype == other.sums.dtype == np.float32
        if single and roundings <= MOST_ROUNDINGS:
            return self.sums.dtype, roundings
        return np.dtype(np.float64), 0

    def _no_sums(self, count: int) -> dict[str, Any]:
        """Counts, powers and borders of so many cells without rows."""
        shape = (count, *self.borders.shape[1:])
        return {
            "counts": np.zeros(count, np.int64),
            "powers": np.zeros((count, 2)),
            "borders": np.zeros(shape),
        }

    @staticmethod
    def _put(value: CellMoments, cells: Array, held: dict[str, Array], sums: Array) -> None:
        """Add the sums of a value into those of more cells."""
        at = np.searchsorted(cells, value.cells)
        for name, values in held.items():
            values[at] += getattr(value, name)
        for start in range(0, len(at), ADDED_CELLS):  # a few at a time: no whole copy
            few = slice(start, start + ADDED_CELLS)
            sums[at[few]] += value.sums[few]

    def __iadd__(self, other: Self) -> Self:
        """The sum, for which the sums of this one are written into where there is room."""
        self._require_same(other)
        cells = np.union1d(self.cells, other.cells)
        room, (dtype, roundings) = self._room_for(len(cells)), self._precision_with(other)
        if room is None or room.dtype != dtype:
            return self + other
        if len(other.cells) == len(cells) == len(self.cells):
            return self.plus(other, self.sums)
        at = np.searchsorted(cells, self.cells)
        for place in range(len(at) - 1, -1, -1):  # the last first: none is written over
            if at[place] != place:
                room[at[place]] = room[place]
        room[np.setdiff1d(np.arange(len(cells)), at)] = 0.0
        held = self._no_sums(len(cells))
        for name, values in held.items():
            values[at] = getattr(self, name)
        self._put(other, cells, held, room)
        sample = self.sample + other.sample
        return replace(self, cells=cells, sums=room, sample=sample, roundings=roundings, **held)

    def _room_for(self, count: int) -> Array | None:
        """Room for the sums of so many cells, the first of which hold these."""
        if not self.sums.flags.writeable:
            return None
        room = self.room
        if room is None or room.ctypes.data != self.sums.ctypes.data:
            room = self.sums
        return room[:count] if len(room) >= count else None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, each.name) for each in fields(self)[:-1])

    def __neg__(self) -> Self:
        return replace(
            self, counts=-self.counts, powers=-self.powers, borders=-self.borders, sums=-self.sums
        )

    def __sub__(self, other: Self) -> Self:
        """Without the rows of ``other``; cells that have none left are dropped, and exactly 0."""
        difference = ProductMoments.__sub__(self, other)
        kept = difference.counts != 0
        return replace(
            difference,
            cells=difference.cells[kept],
            counts=difference.counts[kept],
            powers=difference.powers[kept],
            borders=difference.borders[kept],
            sums=difference.sums[kept],
        )

    def _scaled(self, factor: float) -> Self:
        squared, logarithm = self.powers.T
        powers = [squared * factor**2, logarithm + self.counts * np.log(factor)]
        return replace(
            self,
            powers=np.column_stack(powers),
            borders=self.borders * factor,
            sums=self.sums * np.asarray(factor, self.sums.dtype),
            sample=self.sample.scale(factor),
        )

    def leading(self, n_components: int) -> Self:
        """Moments of the first R' columns of each cell: no second read."""
        r = self.row.n_features
        keep = np.r_[0:n_components, r : self.row.width]
        return self._select(self.row.leading(n_components), keep, np.arange(self.row.n_targets + 1))

    def with_targets(self, targets: Sequence[int]) -> Self:
        """Moments of some of the targets, by position and in that order, sample included."""
        row, columns = self.row.with_targets(targets)
        own = np.asarray(list(targets), dtype=int)
        first = self.row.n_features + 1
        selected = self._select(row, np.r_[0:first, first + own], np.r_[0, 1 + own])
        return replace(selected, sample=self.sample.columns(columns))

    def matrices(self, which: Any = slice(None)) -> Float64:
        """M_c (k, P, P) of some of the k cells held, symmetric, both triangles, in float64."""
        r, at = self.row.n_features, places(self.row.width)
        found = self.sums[which][..., at].astype(np.float64)
        found[..., r:, r:] = self.borders[which]
        return np.asarray(found)

    @property
    def weight(self) -> float:
        """Σ w over the rows: that of the cells of one tree."""
        return float(self.cell_weights().sum() / self.n_trees)

    def cell_weights(self) -> Float64:
        """Σ w (k,) of each cell held."""
        return np.asarray(self.borders[:, 0, 0])

    def target_mean(self) -> Float64:
        """Weighted mean of y (T,) over all rows, in units of y."""
        if self.n < 1 or not self.weight > 0:
            raise ValueError(
                f"These moments hold {self.n} rows with total weight {self.weight}. "
                "A mean needs at least one row of positive weight."
            )
        sums = self.borders[:, 0, 1:].sum(axis=0)
        return np.asarray(self.row.target_origin + sums / self.n_trees / self.weight)

    def of_tree(self, tree: int) -> slice:
        """Where the cells of one tree lie among those held."""
        ends = np.searchsorted(self.cells, np.array([tree, tree + 1]) * self.n_cells)
        return slice(int(ends[0]), int(ends[1]))

    def spread(self, row: AugmentedRow, keep: Array, sample: RowSample) -> Self:
        """Moments of a longer row, whose columns ``keep`` are those of this one; others are 0."""
        old, new = places(self.row.width), places(row.width)
        i, j = np.tril_indices(self.row.width)
        sums = np.zeros((len(self.sums), triangle_size(row.width)), self.sums.dtype)
        sums[:, new[keep[i], keep[j]]] = self.sums[:, old[i, j]]
        borders = np.zeros((len(sums), row.n_targets + 1, row.n_targets + 1))
        at = keep[self.row.n_features :] - row.n_features
        borders[:, at[:, None], at] = self.borders
        return replace(self, row=row, borders=borders, sums=sums, sample=sample, room=None)

    def target_squares(self) -> Float64:
        """Σ w (y − y₀)² (T,) over the rows."""
        squares = np.einsum("kii->ki", self.borders)[:, 1:].sum(axis=0)
        return np.asarray(squares / self.n_trees)

    def _select(self, row: AugmentedRow, keep: Array, border: Array) -> Self:
        """Moments of the columns ``keep`` of a, with those of the ``border`` among [1, y]."""
        old, new = places(self.row.width), places(row.width)
        i, j = np.tril_indices(row.width)
        order = np.empty(triangle_size(row.width), np.intp)
        order[new[i, j]] = old[keep[i], keep[j]]
        borders = self.borders[:, border[:, None], border]
        return replace(self, row=row, borders=borders, sums=self.sums[:, order], room=None)

    def __sizeof__(self) -> int:
        own = (self.sums, self.borders, self.cells, self.counts, self.powers)
        return int(sum(each.nbytes for each in own) + self.sample.nbytes + 256)

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


def waiting_rows(n_cells: int, n_columns: int) -> int:
    """Rows of so many numbers each (inputs, targets, weight) that wait until they are sorted."""
    most = max(MOST_WAITING_NUMBERS // n_columns, FEWEST_WAITING)
    return min(max(FEWEST_WAITING, ROWS_A_CELL * n_cells), most)


def precision_at_rest(sums: str, n_rows: int, n_cells: int, n_columns: int) -> Precision:
    """Of the sums of so many rows in so many cells, for products in float32 or float64.

    A visit adds 512 rows a cell or more, or all rows that wait. A pass of 16 times as many rows
    adds at most half of :data:`MOST_ROUNDINGS` times.
    """
    few = 2 * n_rows <= MOST_ROUNDINGS * waiting_rows(n_cells, n_columns)
    return "float32" if sums == "float32" and few else "float64"


class CellAccumulator:
    """Takes rows in any portions and gives their moments; the same rows, the same bits."""

    def __init__(
        self,
        features: LocalFeatures,
        row: AugmentedRow,
        *,
        sums: Precision = "float64",
        at_rest: Precision = "float64",
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
        d, t = features.n_inputs, row.n_targets
        size = waiting_rows(features.n_cells, d + t + 1)
        self._x, self._y, self._w = np.empty((size, d)), np.empty((size, t)), np.ones(size)
        self._weighted = False
        count = features.n_trees * features.n_cells
        self._counts, self._powers = np.zeros(count, np.int64), np.zeros((count, 2))
        self._borders = np.zeros((count, t + 1, t + 1))
        # Pages of cells without rows are never touched, and take no memory.
        self._totals = np.zeros((count, triangle_size(row.width)), at_rest)
        self._visits = 0
        self._value: CellMoments | None = None
        self._sample = RowSample.empty(sample_rows, len(row.inputs) + t + 1)

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
        cells = np.flatnonzero(self._counts)
        self._use_units_of_targets(cells)
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
            counts=self._counts[cells],
            powers=self._powers[cells],
            borders=self._borders[cells],
            sums=sums,
            sample=self._sample,
            roundings=self._visits - 1 if self._totals.dtype == np.float32 else 0,
            room=sums if sums.base is None else self._totals,
        )

    def _use_units_of_targets(self, cells: Array) -> None:
        """Bring each M_c into units of y; counts and targets from float64 values."""
        at, r = places(self._row.width), self._row.n_features
        scale = np.concatenate([[1.0], self._row.target_scale])
        mixed, border = at[r:, :r], at[r:, r:]
        self._borders *= scale[:, None] * scale
        for cell in cells.tolist():
            total = self._totals[cell]
            total[mixed] *= scale[:, None]
            total[border] = self._borders[cell]

    def _sort(self) -> None:
        """Give the rows waiting to their cells, in the order in which they came."""
        m, self._filled = self._filled, 0
        if not m:
            return
        self._visits += 1
        features, row = self._features, self._row
        x, root = features.encode(self._x[:m]), None
        border = np.ones((m, row.n_targets + 1))
        np.subtract(self._y[:m], row.target_origin, out=border[:, 1:])
        border[:, 1:] /= row.target_scale
        if self._weighted:
            root = np.sqrt(self._w[:m])[:, None]
            border *= root
        for tree, cells in enumerate(features.partition.route(x)):
            rows = _SortedRows(tree, x, border, root, *order_by_cell(cells, features.n_cells))
            self._count(rows)
            side_by_side(functools.partial(self._add_cells, rows), rows.parts())

    def _count(self, rows: _SortedRows) -> None:
        """Count the rows of each cell of a tree and add up the powers of their weights."""
        counts, first = np.diff(rows.ends), rows.tree * self._features.n_cells
        cells = np.flatnonzero(counts)
        self._counts[first + cells] += counts[cells]
        if not self._weighted:
            self._powers[first + cells, 0] += counts[cells]
            return
        w = self._w.take(rows.order)
        powers = np.column_stack([w**2, np.log(w)])
        self._powers[first + cells] += np.add.reduceat(powers, rows.ends[cells])

    def _add_cells(self, rows: _SortedRows, cells: range) -> None:
        """Add the rows of some cells of a tree."""
        features = self._features
        lo, counts = int(rows.ends[cells.start]), np.diff(rows.ends[cells.start : cells.stop + 1])
        own = rows.order[lo : rows.ends[cells.stop]]
        x = features.rows_of_cells(rows.tree, np.repeat(cells, counts), rows.x.take(own, axis=0))
        border = rows.border.take(own, axis=0)
        root = None if rows.root is None else rows.root.take(own, axis=0)
        batches = _Batches(self._row.width, self._row.n_features, self._dtype, features.dtype)
        ends = (rows.ends[cells.start : cells.stop + 1] - lo).tolist()
        for cell, (start, stop) in zip(cells, pairwise(ends), strict=True):
            if stop > start:
                key = rows.tree * features.n_cells + cell
                self._borders[key] += border[start:stop].T @ border[start:stop]
                write = functools.partial(features.write_columns, rows.tree, cell)
                few = slice(start, stop)
                batches.add(
                    write, x[few], border[few], None if root is None else root[few],
                    self._totals[key],
                )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _SortedRows:
    """Rows, and their order by the cells of one tree."""

    tree: int
    x: Float64  # (m, d), encoded
    border: Float64  # (m, T + 1): √w [1, (y − y₀)/scale]
    root: Float64 | None  # (m, 1): √w
    order: Array  # (m,): rows of cell c from ends[c] to ends[c + 1], as they came
    ends: Array  # (B + 1,)

    def parts(self) -> list[range]:
        """Runs of cells of about as many rows each."""
        inner = np.searchsorted(self.ends, np.arange(PART_ROWS, len(self.order), PART_ROWS))
        return [range(*each) for each in pairwise(np.unique([0, *inner, len(self.ends) - 1]))]


class _Batches:
    """Adds rows of one cell after the other to its sums, about 512 at a time."""

    def __init__(self, width: int, n_features: int, sums: np.dtype[Any], columns: str) -> None:
        stride = -(-width // 16) * 16
        flat = aligned_bytes(MOST_BATCH_ROWS * stride * sums.itemsize).view(sums)
        self._batch = flat.reshape(MOST_BATCH_ROWS, stride)[:, :width]
        self._columns = self._batch[:, :n_features]
        self._mapped = self._columns
        if np.dtype(columns) != sums:
            self._mapped = np.empty((MOST_BATCH_ROWS, n_features), columns)
        self._product = np.empty(triangle_size(width), sums)

    def add(
        self,
        write: Callable[[Float64, Array], None],
        x: Float64,
        border: Float64,
        root: Float64 | None,
        total: Float64,
    ) -> None:
        """Add √w [z_c, 1, (y − y₀)/scale] (m, P) to a packed triangle."""
        parts, waiting = max(round(len(x) / BATCH_ROWS), 1), 0
        # Into a total in float32 only once a visit: each addition to it rounds.
        exact = self._product.dtype == total.dtype and (total.dtype == np.float64 or parts == 1)
        edges = [len(x) * part // parts for part in range(parts + 1)]
        for lo, hi in pairwise(edges):  # none of a few rows, which would cost a sweep
            batch = self._batch[: hi - lo]
            self._fill(batch, write, x[lo:hi], border[lo:hi], None if root is None else root[lo:hi])
            if exact:
                add_products(batch, total, 1.0)
                continue
            add_products(batch, self._product, 1.0 if waiting else 0.0)
            waiting += len(batch)
            if waiting >= FLUSH_ROWS:
                total += self._product
                waiting = 0
        if waiting:
            total += self._product

    def _fill(
        self,
        batch: Array,
        write: Callable[[Float64, Array], None],
        x: Float64,
        border: Float64,
        root: Float64 | None,
    ) -> None:
        """Write the rows."""
        columns, mapped = self._columns[: len(x)], self._mapped[: len(x)]
        write(x, mapped)
        if root is not None:
            np.multiply(mapped, root, out=columns, casting="same_kind")
        elif mapped.dtype != columns.dtype:
            columns[...] = mapped
        batch[:, columns.shape[1] :] = border
