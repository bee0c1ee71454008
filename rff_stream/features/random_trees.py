"""Random trees that send every row to one cell each, the same cell on every machine.

A node of a tree cuts space by a hyperplane: row x goes right where

    Σⱼ (xⱼ − oⱼ) wⱼ > θ        added from j = 0 on, in float64

Products and sums are single IEEE operations in a fixed order (no BLAS, no fused multiply-add),
so every machine chooses the same side. o, w and θ are stored, not the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from rff_stream._array import Array, Float64, digest
from rff_stream.arguments import whole
from rff_stream.errors import ModelError
from rff_stream.features.base import RandomState, frozen

LOWEST, HIGHEST = 0.4, 0.6
"""A cut is at random between these quantiles, so that trees of the same rows differ."""

ROUTED_ROWS = 8192
"""Rows that pass a tree at once: their scores stay in the L2 cache."""

DIRECTIONS_TRIED = 8
"""Number of directions that are tried if all rows of a node have the same score; after that all
rows go to the left."""


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """J complete binary trees of B cells each, over d inputs.

    Node i of a tree has the children 2i + 1 (left) and 2i + 2 (right); the last B nodes are its
    cells.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 2))
    >>> trees = Partition.plant(x, n_cells=8, n_trees=2, rng=0)
    >>> trees.route(x).shape, bool((np.bincount(trees.route(x)[0]) > 60).all())
    ((2, 1000), True)
    """

    origin: Float64  # (d,): o, in units of the inputs
    directions: Float64  # (J, B − 1, d): w of each node, over the length-scales
    thresholds: Float64  # (J, B − 1): θ of each node

    def __post_init__(self) -> None:
        n_trees, n_nodes, d = np.shape(self.directions)
        check_n_cells(n_nodes + 1)
        object.__setattr__(self, "origin", frozen("origin", self.origin, (d,)))
        shape = (n_trees, n_nodes, d)
        object.__setattr__(self, "directions", frozen("directions", self.directions, shape))
        object.__setattr__(self, "thresholds", frozen("thresholds", self.thresholds, shape[:2]))

    @classmethod
    def plant(
        cls,
        X: Array,
        *,
        n_cells: int,
        n_trees: int,
        length_scale: Array | float = 1.0,
        rng: RandomState = None,
    ) -> Self:
        """J trees whose B = 2ᵖ cells hold about equally many of the rows X (m, d) of the pilot.

        Each node draws its direction from N(0, C), C the covariance of its own rows over the
        length-scales, so that long sides of a cell are cut more often than short ones; and its cut
        between the 40th and the 60th percentile of its rows. m·d·log₂B multiply-adds and one
        partition of all rows a level.
        """
        X = np.asarray(X, np.float64)
        check_n_cells(n_cells)
        if n_trees < 1:
            raise ValueError(f"n_trees={n_trees} but a partition has at least 1 tree.")
        if X.ndim != 2 or not len(X):
            raise ValueError(f"X has shape {X.shape} but trees are planted on rows (m, d).")
        d = X.shape[1]
        scale = np.broadcast_to(np.asarray(length_scale, np.float64), (d,))
        origin, rng = X.mean(axis=0), np.random.default_rng(rng)
        columns = np.ascontiguousarray((X - origin).T)
        directions = np.zeros((n_trees, n_cells - 1, d))
        thresholds = np.zeros((n_trees, n_cells - 1))
        for tree in range(n_trees):
            rows = {0: columns}
            for node in range(n_cells - 1):
                own = rows.pop(node)
                direction, threshold, right = _choose_cut(own, scale, rng)
                directions[tree, node], thresholds[tree, node] = direction, threshold
                if 2 * node + 1 < n_cells - 1:
                    for child, goes in enumerate((~right, right), 2 * node + 1):
                        rows[child] = own.take(np.flatnonzero(goes), axis=1)
        return cls(origin, directions, thresholds)

    @property
    def n_inputs(self) -> int:
        """d."""
        return len(self.origin)

    @property
    def n_trees(self) -> int:
        """J."""
        return len(self.thresholds)

    @property
    def n_cells(self) -> int:
        """B, the cells of one tree."""
        return int(self.thresholds.shape[1]) + 1

    def route(self, X: Array) -> Array:
        """Cell (J, n) of each row X (n, d) in each tree, int32 from 0 to B − 1."""
        cells = np.empty((self.n_trees, len(X)), np.int32)
        depth = self.n_cells.bit_length() - 1
        for start in range(0, len(X), ROUTED_ROWS):
            block = np.asarray(X[start : start + ROUTED_ROWS], np.float64) - self.origin
            columns = np.ascontiguousarray(block.T)
            scores, term = np.empty((2, len(block)))
            right, nodes = np.empty(len(block), bool), np.empty(len(block), np.intp)
            for tree in range(self.n_trees):
                weights, thresholds = self._by_input[tree], self.thresholds[tree]
                nodes[:] = 0
                for _ in range(depth):
                    scores[:] = 0
                    for column, weight in zip(columns, weights, strict=True):
                        # nodes are in range; only "raise" copies what it writes
                        weight.take(nodes, out=term, mode="clip")
                        scores += np.multiply(term, column, out=term)
                    thresholds.take(nodes, out=term, mode="clip")
                    np.greater(scores, term, out=right)
                    nodes *= 2
                    nodes += 1
                    nodes += right
                cells[tree, start : start + ROUTED_ROWS] = nodes - (self.n_cells - 1)
        return cells

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays that :meth:`from_spec` reads."""
        arrays = {
            "origin": self.origin,
            "directions": self.directions,
            "thresholds": self.thresholds,
        }
        return {"partition": "trees"}, arrays

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The partition that gave this spec, bit for bit."""
        try:
            if plain["partition"] != "trees":
                raise ValueError(f"partition={plain['partition']!r}")
            return cls(arrays["origin"], arrays["directions"], arrays["thresholds"])
        except (KeyError, ValueError, TypeError) as error:
            raise ModelError(
                f"The spec of a partition cannot be read: {error!r}. "
                "Check where it comes from; a stored model has all of its fields."
            ) from error

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the spec: equal fingerprints are equal cells."""
        return digest(*self.spec())

    @cached_property
    def _by_input(self) -> Float64:
        """Directions (J, d, B − 1): the entries of one input lie together."""
        return np.ascontiguousarray(self.directions.transpose(0, 2, 1))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.origin, self.directions, self.thresholds)

    def __repr__(self) -> str:
        return f"<Partition: {self.n_trees} trees of {self.n_cells} cells, {self.n_inputs} inputs>"


def order_by_cell(cells: Array, n_cells: int) -> tuple[Array, Array]:
    """Rows (n,) by their cells (n,), as they come within one, and where each cell ends (B + 1,)."""
    keys = cells.astype(np.uint16) if n_cells <= 1 << 16 else cells  # few bits: a sort of n steps
    ends = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=n_cells))])
    return np.argsort(keys, kind="stable"), ends


def random_cell(X: Float64, depth: int, length_scale: Float64, rng: Generator) -> Array:
    """Rows (places in X) of one cell of a tree that is cut ``depth`` times above it.

    A cell is met as often as it has rows.
    """
    own = np.arange(len(X))
    for _ in range(depth):
        _, _, right = _choose_cut(np.ascontiguousarray(X[own].T), length_scale, rng)
        own = own[right == (rng.random() < right.mean())]
    return own


def check_n_cells(n_cells: int) -> None:
    """B is a power of two: every path through a tree has the same length."""
    whole(1).check("n_cells", n_cells)
    if n_cells & (n_cells - 1):
        below = 1 << max(int(n_cells).bit_length() - 1, 0)
        raise ValueError(
            f"n_cells={n_cells} but a tree has 1, 2, 4, 8, … cells. "
            f"Use n_cells={below} or n_cells={2 * below}."
        )


def _scores(columns: Float64, weights: Float64) -> Float64:
    """Σⱼ columns[j]·weights[j] (n,) of columns (d, n) and weights (d,), added from j = 0 on."""
    total = np.zeros(columns.shape[1])
    for column, weight in zip(columns, weights, strict=True):
        total += column * weight
    return total


def _choose_cut(
    columns: Float64, scale: Float64, rng: Generator
) -> tuple[Float64, float, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Direction (d,), threshold and the rows (m,) that go right, for one node's rows (d, m)."""
    d, m = columns.shape
    centred = (columns - columns.mean(axis=1, keepdims=True) if m else columns) / scale[:, None]
    for _ in range(DIRECTIONS_TRIED if m > 1 else 0):
        drawn = centred @ rng.standard_normal(m)  # ~ N(0, m·C)
        length = float(np.sqrt(drawn @ drawn))
        share = rng.uniform(LOWEST, HIGHEST)
        if not length > 0:
            continue
        direction = drawn / length / scale
        scores = _scores(columns, direction)
        threshold = _between(scores, round(share * m))
        if threshold is not None:
            return direction, threshold, scores > threshold
    return np.zeros(d), 0.0, np.zeros(m, bool)


def _between(scores: Float64, place: int) -> float | None:
    """A value between two different scores next to a place of their order; None: all are equal."""
    ordered, at = np.partition(scores, (place - 1, place)), place
    if not ordered[at] > ordered[at - 1]:  # a sort takes four times as long
        ordered = np.sort(scores)
        gaps = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
        if not len(gaps):
            return None
        at = int(gaps[np.argmin(abs(gaps - place))])
    low, high = float(ordered[at - 1]), float(ordered[at])
    middle = low + (high - low) / 2
    return middle if low <= middle < high else low
