"""Which boxes of a source are read for the pilot: spread over the rows that were asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from rff_stream.leaf_layout import Layout, merge_chunks, n_rows_of
from rff_stream.sources.protocol import Box, PlacesAlong, Source


def pilot_boxes(
    source: Source, blocks: int, rows: int, seed: int, *, most: int = 0
) -> tuple[Iterator[Box], int, int]:
    """Boxes for the pilot in the order to read them, how many to read, and rows to keep of each.

    The first ``blocks`` are spread over the rows that were asked for: boxes in which conditions
    on coordinates leave nothing are passed over, others are cut to what they leave. Up to
    ``most`` are read, where there are as many, and give as many rows together. All the rest
    follows in seeded order, for data whose first blocks hold no valid row. No two overlap. Data
    of at most ``blocks`` × ``rows`` rows are taken whole.
    """
    possible = source.possible_places()
    whole: Box = _clip(tuple((0, size) for size in source.shape), possible)
    if n_rows_of(source) <= blocks * rows or _is_small(source, whole, possible, blocks * rows):
        return iter([whole]), blocks, blocks * rows
    chunks = Layout(merge_chunks(source, source.bounds, 4 * rows))
    kept = _with_rows(chunks, possible)
    count = len(kept)
    if count < blocks:
        boxes = [_clip(chunks.box(int(i)), possible) for i in kept]
        return _cut_boxes(source, boxes, blocks, rows, possible, seed)
    wanted, blocks = blocks * rows, max(blocks, min(count, most))
    rng = np.random.default_rng(seed)
    strata = np.arange(blocks + 1) * count // blocks
    spread = rng.integers(strata[:-1], strata[1:])
    others = rng.permutation(np.setdiff1d(np.arange(count), spread))
    order = kept[np.concatenate([spread, others])]
    return (_clip(chunks.box(int(i)), possible) for i in order), blocks, -(-wanted // blocks)


def _with_rows(chunks: Layout, possible: PlacesAlong | None) -> np.ndarray[Any, Any]:
    """Coarse boxes in which conditions on coordinates leave rows."""
    if possible is None or all(along is None for along in possible):
        return np.arange(chunks.n_boxes)
    left = np.ones(1, bool)
    for edges, along in zip(chunks.edges, possible, strict=True):
        inside = np.ones(len(edges) - 1, bool)
        if along is not None:
            inside = np.diff(np.concatenate([[0], np.cumsum(along)])[list(edges)]) > 0
        left = np.logical_and.outer(left, inside).ravel()
    return np.flatnonzero(left)


def _clip(box: Box, possible: PlacesAlong | None) -> Box:
    """The box from the first to the last place that conditions leave along each dimension."""
    return tuple(
        (int(places[0]), int(places[-1]) + 1) if len(places := _places(pair, along)) else pair
        for pair, along in zip(box, possible or [None] * len(box), strict=True)
    )


def _places(pair: tuple[int, int], along: Any) -> Any:
    """Places lo … hi − 1 that conditions along their dimension leave."""
    lo, hi = pair
    return range(lo, hi) if along is None else lo + np.flatnonzero(along[lo:hi])


def _is_small(source: Source, whole: Box, possible: PlacesAlong | None, most: int) -> bool:
    """Whether conditions on coordinates leave few rows, and those not far apart."""
    if source.n_rows is None or possible is None:
        return False
    inside = math.prod(hi - lo for lo, hi in whole)
    return inside <= 4 * most and _n_selected(whole, possible) <= most


def _n_selected(box: Box, possible: PlacesAlong | None) -> int:
    """Rows of a box that conditions on coordinates leave."""
    pairs = zip(box, possible or [None] * len(box), strict=True)
    return math.prod(len(_places(pair, along)) for pair, along in pairs)


def _cut_boxes(
    source: Source,
    boxes: list[Box],
    blocks: int,
    rows: int,
    possible: PlacesAlong | None,
    seed: int,
) -> tuple[Iterator[Box], int, int]:
    """For few chunks: several short boxes in each if that is cheap, otherwise whole chunks."""
    if not boxes:
        return iter(()), blocks, rows
    pieces = -(-blocks // len(boxes))
    model = boxes[0] if possible is None else max(boxes, key=lambda b: _n_selected(b, possible))
    sizes = [hi - lo for lo, hi in model]
    axis = int(np.argmax([size >= pieces for size in sizes]))
    whole = source.cost(model)
    length = max(1, -(-4 * rows * sizes[axis] // max(whole.rows, 1)))
    if source.n_rows is None or length * pieces >= sizes[axis]:
        return iter(boxes), blocks, rows * pieces
    start = model[axis][0]
    one = _replace_range(model, axis, (start, start + length))
    if source.cost(one).decoded_bytes * pieces > 2 * whole.decoded_bytes:
        return iter(boxes), blocks, rows * pieces
    along = None if possible is None else possible[axis]
    runs = [list(_spread_runs(box[axis], along, pieces, length)) for box in boxes]
    first = [
        _replace_range(box, axis, pair)
        for box, own in zip(boxes, runs, strict=True)
        for pair in own
    ]
    gaps = _gaps(boxes, runs, axis, length, along, seed)
    return chain(first, gaps), blocks, rows


def _spread_runs(
    pair: tuple[int, int], along: Any, pieces: int, length: int
) -> Iterator[tuple[int, int]]:
    """At most ``pieces`` runs of ``length`` places, evenly over those that are left."""
    lo, hi = pair
    places = _places(pair, along)
    count = len(places)
    several = max(1, min(pieces, count // length))
    if along is None:
        for start in np.linspace(lo, max(lo, hi - length), several).astype(int).tolist():
            yield start, min(start + length, hi)
        return
    for first in np.linspace(0, max(0, count - length), several).astype(int).tolist():
        run = places[first : first + length]
        together = int(np.argmax(np.append(np.diff(run) > 1, True))) + 1  # up to the first gap
        yield int(run[0]), int(run[0]) + together


def _gaps(
    boxes: list[Box],
    runs: list[list[tuple[int, int]]],
    axis: int,
    length: int,
    along: Any,
    seed: int,
) -> Iterator[Box]:
    """What lies between the runs of each box, in pieces of that length, in seeded order."""
    gaps = []
    for box, own in zip(boxes, runs, strict=True):
        ends = [box[axis][0], *chain.from_iterable(own), box[axis][1]]
        for lo, hi in zip(ends[::2], ends[1::2], strict=True):
            pairs = [(start, min(start + length, hi)) for start in range(lo, hi, length)]
            gaps += [(box, pair) for pair in pairs if len(_places(pair, along))]
    for i in np.random.default_rng(seed).permutation(len(gaps)):
        box, pair = gaps[int(i)]
        yield _replace_range(box, axis, pair)


def _replace_range(box: Box, axis: int, pair: tuple[int, int]) -> Box:
    """The box with another range along one axis."""
    return (*box[:axis], pair, *box[axis + 1 :])
