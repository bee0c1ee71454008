"""The leaves of a layout in the order of the tree, each made when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import overload

from rff_stream.execution.leaf_task import Leaf
from rff_stream.layout import Layout, lay_out
from rff_stream.sources.protocol import Source

__all__ = ["leaves_of", "places_of"]

UNKNOWN_PLACES = 32
"""Bits of a place within a leaf where lengths are unknown."""


class Leaves(Sequence[Leaf]):
    """Boxes and the places of their first rows; 16 bytes each, whatever their number.

    Parameters
    ----------
    source : Source
    layout : Layout
    """

    def __init__(self, source: Source, layout: Layout) -> None:
        self._layout, self._known = layout, source.n_rows is not None
        self._order, self._starts = layout.order(), layout.starts()

    def __len__(self) -> int:
        return self._layout.n_leaves

    @overload
    def __getitem__(self, at: int) -> Leaf: ...
    @overload
    def __getitem__(self, at: slice) -> list[Leaf]: ...
    def __getitem__(self, at: int | slice) -> Leaf | list[Leaf]:
        if isinstance(at, slice):
            return [self._leaf(i) for i in range(*at.indices(len(self)))]
        return self._leaf(range(len(self))[at])

    def __iter__(self) -> Iterator[Leaf]:
        return map(self._leaf, range(len(self)))

    def _leaf(self, index: int) -> Leaf:
        place, part = divmod(index, self._layout.parts)
        coarse, cut = int(self._order[place]), self._layout.cut
        box = self._layout.box(coarse, part)
        if not self._known:
            return Leaf(box, coarse << UNKNOWN_PLACES)
        before = box[cut][0] - self._layout.box(coarse)[cut][0] if part else 0
        across = math.prod(hi - lo for i, (lo, hi) in enumerate(box) if i != cut)
        return Leaf(box, int(self._starts[coarse]) + before * across)


def leaves_of(source: Source, layout: Layout) -> Leaves:
    """Leaves in the order of the tree, with the place of their first row."""
    return Leaves(source, layout)


def places_of(source: Source, layout: Layout) -> int:
    """Places of the whole data: rows, or room for them where lengths are unknown."""
    return layout.n_boxes << UNKNOWN_PLACES if source.n_rows is None else source.n_rows


def grid_leaves(source: Source) -> Sequence[Leaf]:
    """Leaves spread over the grid, to see what they share."""
    return [] if source.graph is None else Leaves(source, lay_out(source, 1e-5))
