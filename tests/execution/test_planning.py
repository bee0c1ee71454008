"""A plan covers the data exactly once, keeps its rules, and refuses before anything is read."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import rff_stream as rs
from rff_stream import leaf_layout as layouts
from rff_stream.cells.cost import CellCost
from rff_stream.costs import WholeCost, leaf_row_seconds
from rff_stream.errors import PlanError
from rff_stream.execution import Leaves
from rff_stream.execution.reading import pilot_boxes
from rff_stream.leaf_layout import Layout, lay_out
from rff_stream.moments import counted_entries as entrysums
from rff_stream.moments.counted_entries import entries_of, pays
from rff_stream.pilot import PILOT_BLOCKS, PILOT_ROWS
from rff_stream.planning import check_memory, fits
from rff_stream.sources import Box, BoxCost, Columns
from rff_stream.text_formatting import format_bytes, format_seconds


@dataclass
class _Grid:
    """A source that is nothing but its boundaries; reading it is an error."""

    bounds: tuple[tuple[int, ...], ...]
    columns: Columns = field(default_factory=lambda: Columns(("a", "b"), ("t",), ("", "", "")))
    itemsize: int = 24
    cheap: bool = True
    """Whether a part of a chunk can be had without decoding all of it."""
    other: tuple[tuple[int, ...], ...] | None = None
    """Chunks of a second variable."""
    selected: Any = None
    """Per dimension, which places conditions leave."""
    graph: None = None
    is_lazy: bool = True

    def __post_init__(self) -> None:
        self.shape = tuple(b[-1] for b in self.bounds)
        self.dims = tuple(f"d{i}" for i in range(len(self.bounds)))
        self.n_rows = math.prod(self.shape)

    @property
    def reader(self) -> Any:
        raise AssertionError("The data were read.")

    def arguments(self, box: Box) -> tuple[Any, ...]:
        raise AssertionError("The data were read.")

    def cost(self, box: Box) -> BoxCost:
        rows = math.prod(hi - lo for lo, hi in box)
        needed = decoded = rows * self.itemsize
        if not self.cheap:
            decoded = self.itemsize * self.covered(box, self.bounds)
        if self.other is not None:
            needed, decoded = 2 * needed, decoded + self.itemsize * self.covered(box, self.other)
        return BoxCost(rows, needed, decoded, 1)

    @staticmethod
    def covered(box: Box, bounds: tuple[tuple[int, ...], ...]) -> int:
        """Rows of the chunks that a box touches."""
        sizes = []
        for (lo, hi), edges in zip(box, bounds, strict=True):
            chunks = [(a, b) for a, b in itertools.pairwise(edges) if a < hi and b > lo]
            sizes.append(sum(b - a for a, b in chunks))
        return math.prod(sizes)

    def describe(self, box: Box) -> str:
        return " ".join(f"{d} {lo}:{hi}" for d, (lo, hi) in zip(self.dims, box, strict=True))

    def possible_places(self) -> Any:
        return self.selected

    def generation(self) -> str:
        return ""

    def wrap(self, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
        return values


def grid(*arguments: Any, **choices: Any) -> Any:
    """A source, as far as planning asks."""
    return _Grid(*arguments, **choices)


def regular(size: int, step: int) -> tuple[int, ...]:
    return (*range(0, size, step), size)


@st.composite
def bounds(draw: st.DrawFn, most: int = 40) -> tuple[tuple[int, ...], ...]:
    """One to three dimensions with any boundaries."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, most))
        inner = draw(st.sets(st.integers(0, size), max_size=8))
        found.append(tuple(sorted({0, size, *inner})))
    return tuple(found)


def leaves(layout: Layout) -> list[Box]:
    order = layout.order().tolist()
    return [layout.box(coarse, part) for coarse in order for part in range(layout.parts)]


# -------------------------------------------------------------------------------------- the layout


@given(
    edges=bounds(),
    leaf_rows=st.sampled_from([1, 7, 50, 400, 65_536]),
    row_seconds=st.sampled_from([1e-9, 1e-3, 1.0]),
    cheap=st.booleans(),
    seed=st.integers(0, 5),
)
def test_leaves_cover_every_row_exactly_once(
    edges: tuple[tuple[int, ...], ...], leaf_rows: int, row_seconds: float, cheap: bool, seed: int
) -> None:
    source = grid(edges, cheap=cheap)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "LEAF_ROWS", leaf_rows)
        layout = lay_out(source, row_seconds, seed=seed)
    covered = np.zeros(source.shape, int)
    for box in leaves(layout):
        covered[tuple(slice(lo, hi) for lo, hi in box)] += 1
    assert (covered == 1).all()
    assert len(leaves(layout)) == layout.n_leaves
    segments = [layout.segment(i) for i in range(layout.n_segments)]
    assert [leaf for segment in segments for leaf in segment] == list(range(layout.n_leaves))
    assert layout.segment_leaves & (layout.segment_leaves - 1) == 0, "2^k leaves a segment"
    assert layout.n_segments <= layouts.MOST_SEGMENTS


@given(edges=bounds(), parts=st.integers(1, 7), data=st.data())
def test_places_are_the_rows_of_the_grid_once_each(
    edges: tuple[tuple[int, ...], ...], parts: int, data: st.DataObject
) -> None:
    """The place of a leaf's first row: no two leaves share one, and none is left out."""
    layout = Layout(edges, parts, data.draw(st.integers(0, len(edges) - 1)), seed=3)
    places = [
        np.arange(math.prod(hi - lo for lo, hi in leaf.box)) + leaf.start
        for leaf in Leaves(grid(edges), layout)
    ]
    found = np.sort(np.concatenate(places))
    assert np.array_equal(found, np.arange(math.prod(e[-1] for e in edges)))


@given(edges=bounds(), threads=st.integers(0, 5), short=st.integers(1, 64))
def test_a_task_of_several_leaves_is_a_whole_tree_of_a_segment(
    edges: tuple[tuple[int, ...], ...], threads: int, short: int
) -> None:
    layout = replace(lay_out(grid(edges), 1e-6), task_leaves=short)
    found = layout.leaves_a_task(threads)
    assert found & (found - 1) == 0 and found <= short
    assert layout.segment_leaves % found == 0, "no task crosses a segment"
    tasks = -(-layout.n_leaves // found)
    assert found == 1 or tasks >= layouts.TASKS_A_THREAD * threads, "threads end together"


def test_a_task_of_several_leaves_does_seconds_of_work_and_not_minutes() -> None:
    source = grid((regular(10**9, 65_536),))
    for r in (2, 64, 1024, 4096):
        plan = rs.plan(source, n_features=r, workers=8)
        work = (
            plan.n_rows * leaf_row_seconds(plan.width, 2, 2, plan.sums, plan.dtype) / plan.n_tasks
        )
        assert work <= max(layouts.MOST_TASK_SECONDS, 2 * work / plan.task_leaves)
        assert plan.task_leaves > 1 or r == 4096


def test_leaves_are_made_when_they_are_asked_for() -> None:
    source = grid((regular(10**7, 10), (0, 3)))
    layout = Layout(source.bounds, 1, 0, 128, 3)
    leaves = Leaves(source, layout)
    assert len(leaves) == layout.n_leaves == 10**6
    assert leaves[5:7] == [leaves[5], leaves[6]] == list(itertools.islice(leaves, 5, 7))
    assert leaves[-1] == leaves[10**6 - 1]
    with pytest.raises(IndexError):
        leaves[10**6]


@given(edges=bounds(), seed=st.integers(0, 9))
def test_the_same_data_give_the_same_layout(edges: tuple[tuple[int, ...], ...], seed: int) -> None:
    first, again = (lay_out(grid(edges), 1e-6, seed=seed) for _ in range(2))
    assert first == again
    assert np.array_equal(first.order(), again.order())
    assert pickle.loads(pickle.dumps(first)) == first
    assert sorted(first.order().tolist()) == list(range(first.n_boxes))


def test_the_layout_does_not_depend_on_who_computes() -> None:
    source = grid((regular(1_000_000, 1000), (0, 3)))
    plans = [
        rs.plan(source, n_features=64, threads=t, workers=w) for t, w in [(1, 1), (8, 1), (2, 50)]
    ]
    assert len({plan.layout for plan in plans}) == 1


def test_leaves_are_read_in_a_seeded_order_not_front_to_back() -> None:
    layouts = [lay_out(grid((regular(10**8, 10_000),)), 1e-6, seed=seed) for seed in (0, 0, 1)]
    orders = [layout.order().tolist() for layout in layouts]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


@pytest.mark.parametrize("chunk", [100, 1000, 50_000])
@pytest.mark.parametrize("row_seconds", [1e-7, 1e-5, 1e-3])
def test_small_chunks_are_folded_into_leaves_worth_a_task(chunk: int, row_seconds: float) -> None:
    layout = lay_out(grid((regular(20_000_000, chunk),)), row_seconds)
    sizes = [hi - lo for ((lo, hi),) in leaves(layout)]
    assert np.median(sizes) >= 65_536 - chunk
    assert max(sizes) * row_seconds <= max(10, 65_536 * row_seconds)
    if row_seconds > 1e-7:
        assert np.median(sizes) * row_seconds >= 0.5


def test_a_big_chunk_in_memory_is_cut() -> None:
    layout = lay_out(grid(((0, 10_000_000),)), 1e-5)
    sizes = [hi - lo for ((lo, hi),) in leaves(layout)]
    assert len(sizes) >= 64
    assert max(sizes) * 1e-5 <= 10
    assert max(sizes) - min(sizes) <= 1


def test_a_chunk_that_must_be_decoded_whole_is_cut_only_while_that_is_cheap() -> None:
    """Decoding again may take 3 % of the work: 4 GB/s of decoding against 0.1 µs or 10 ms a row."""
    quick = lay_out(grid(((0, 10_000_000),), cheap=False), 1e-8)
    slow = lay_out(grid(((0, 10_000_000),), cheap=False), 1e-3)
    assert quick.n_leaves == 1
    assert slow.n_leaves > 10
    again = (slow.parts - 1) * 10_000_000 * 24 / layouts.DECODE_RATE
    assert again <= 0.03 * 10_000_000 * 1e-3


def test_wide_rows_make_leaves_of_bounded_bytes() -> None:
    layout = lay_out(grid((regular(10_000_000, 100),), itemsize=8000), 1e-5)
    largest = max(hi - lo for ((lo, hi),) in leaves(layout)) * 8000
    assert largest <= 2 * layouts.LEAF_BYTES


def test_no_rows_make_no_leaf_that_breaks() -> None:
    layout = lay_out(grid(((0,),)), 1e-6)
    assert sum(hi - lo for ((lo, hi),) in leaves(layout)) == 0


# ------------------------------------------------------------------------------------ what it takes


def test_the_text_says_what_a_run_takes() -> None:
    plan = rs.plan(grid((regular(3_000_000, 1000),)), n_features=1024, threads=2)
    text = str(plan)
    for word in ("3,000,000 × 2 inputs, 1 targets", "R = 1024", "leaves", "segments", "flops"):
        assert word in text
    for name in ("read", "traffic", "task", "process", "solve", "time"):
        assert any(line.startswith(name) for line in text.splitlines()), name
    assert "<table" in plan._repr_html_()
    assert repr(plan).startswith("<Plan: ")


def test_a_plan_is_a_frozen_picklable_value() -> None:
    plan = rs.plan(grid(((0, 100),)), n_features=8)
    assert pickle.loads(pickle.dumps(plan)) == plan
    with pytest.raises(AttributeError):
        plan.threads = 3  # type: ignore[misc]


@given(
    r=st.integers(1, 4096),
    threads=st.integers(1, 64),
    order=st.sampled_from([1, 2]),
    groups=st.integers(1, 30),
)
def test_more_work_never_takes_less_memory(r: int, threads: int, order: int, groups: int) -> None:
    source = grid((regular(1_000_000, 10_000),))
    choices: dict[str, Any] = {"order": order, "n_groups": groups}
    found = rs.plan(source, n_features=r, threads=threads, **choices)
    assert rs.plan(source, n_features=r, threads=threads + 1, **choices).process_bytes >= (
        found.process_bytes
    )
    assert rs.plan(source, n_features=2 * r, threads=threads, **choices).process_bytes >= (
        found.process_bytes
    )
    assert found.state_bytes >= groups * 8 * (r + 2)
    assert found.task_bytes >= found.state_bytes
    assert found.solve_bytes == (24 * r * r if order == 2 else 0)


def test_traffic_is_nothing_in_one_process_and_a_state_a_task_in_many() -> None:
    source = grid((regular(10_000_000, 10_000),))
    one, many = (rs.plan(source, n_features=256, workers=w) for w in (1, 4))
    assert one.traffic_bytes == 0
    assert many.traffic_bytes == many.n_tasks * many.state_bytes
    assert many.seconds < one.seconds
    assert "of network" in str(many) and "of network" not in str(one)


def test_time_is_that_of_a_machine_and_the_machine_is_said() -> None:
    """n=10⁶, d=8, R=1024 from Zarr took 11 s and 19 CPU s on two threads of an idle EPYC."""
    columns = Columns(tuple("abcdefgh"), ("t",), ("",) * 9)
    source = grid((regular(10**6, 65_536),), columns, itemsize=36)
    found = rs.plan(source, n_features=1024, threads=2)
    assert found.seconds == pytest.approx(11, rel=0.1)
    parts = found.time_parts()
    assert 2 * (parts["features and sums"] + parts["reading"]) == pytest.approx(19, rel=0.1)
    assert "75 GFLOP/s" in str(found) and "AMD EPYC" in str(found)
    means = rs.plan(source, n_features=1000, order=1)
    assert 1.5 < means.time_parts()["features and sums"] < 3, "1.8 to 2.2 µs a row"


def test_the_pace_of_machines_is_no_part_of_the_layout() -> None:
    """Leaves are cut by nominal figures: were they another's, so would be the bits."""
    assert leaf_row_seconds(1025, 8, 2, "float32", "float32") == pytest.approx(8.6e-6, rel=0.01)
    assert leaf_row_seconds(1025, 8, 2, "float64", "float32") == pytest.approx(16.6e-6, rel=0.01)
    assert leaf_row_seconds(1025, 8, 1, "float64", "float64") == pytest.approx(15.2e-6, rel=0.01)


def test_a_thousand_workers_send_little_and_fill_no_scheduler() -> None:
    found = rs.plan(grid((regular(10**9, 65_000),)), n_features=4096, workers=1000)
    parts = found.time_parts()
    assert parts["sending"] <= 0.01 * parts["features and sums"]
    assert found.scheduler_bytes < 1 << 30
    assert found.seconds < 2 * parts["features and sums"]


def test_a_run_that_cannot_fit_is_refused_with_the_numbers() -> None:
    plan = rs.plan(grid((regular(1_000_000, 10_000),)), n_features=16_384, threads=4)
    assert not fits(plan, 10 << 30)
    with pytest.raises(PlanError) as caught:
        check_memory(plan, 10 << 30)
    message = str(caught.value)
    for part in ("10.0 GiB", "4 leaves of", "R=16384", "Nothing was read", "Lower n_components"):
        assert part in message
    assert isinstance(caught.value, MemoryError)
    check_memory(plan, plan.process_bytes)


@pytest.mark.parametrize("gigabytes", [1, 3])
def test_cells_that_do_not_fit_are_told_how_many_do(gigabytes: int) -> None:
    source, limit = grid((regular(20_000_000, 1 << 18),)), gigabytes << 30
    with pytest.raises(PlanError, match=r"features=rs\.Cells\(n_cells=(\d+)\)") as caught:
        check_memory(rs.plan(source, n_features=CellCost(256, 4, 4096), threads=2), limit)
    told = re.search(r"n_cells=(\d+)", str(caught.value))
    assert told is not None
    check_memory(rs.plan(source, n_features=CellCost(256, 4, int(told[1])), threads=2), limit)


@pytest.mark.parametrize("dtype", ["float16", "int32", "complex64"])
def test_features_of_another_precision_are_refused_by_name(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"dtype='{dtype}'"):
        rs.plan(grid(((0, 10),)), n_features=4, dtype=dtype)


# ---------------------------------------------------------------------------------- amplification


def test_chunks_that_fit_each_other_are_joined() -> None:
    """(1000, 1) and (1, 1000) of a small cube: one box decodes each chunk once."""
    tall, wide = ((0, 1000), regular(1000, 10)), (regular(1000, 10), (0, 1000))
    source = grid(tall, cheap=False, other=wide)
    layout = lay_out(source, 1e-6)
    costs = [source.cost(box) for box in leaves(layout)]
    needed = sum(cost.needed_bytes for cost in costs)
    assert needed == 2 * 24 * 1000 * 1000
    assert sum(cost.decoded_bytes for cost in costs) <= 3 * needed


def test_chunks_that_cannot_be_read_together_are_refused_with_the_remedy() -> None:
    size = 200_000
    tall, wide = ((0, size), regular(size, 10)), (regular(size, 10), (0, size))
    with pytest.raises(PlanError, match="must be decoded for it") as caught:
        lay_out(grid(tall, cheap=False, other=wide), 1e-6)
    message = str(caught.value)
    assert "at most 8×" in message
    assert "data.chunk({'d0':" in message


# ----------------------------------------------------------------------------------------- pilot


def first_boxes(source: Any, seed: int = 0) -> tuple[list[Box], int]:
    boxes, _, rows = pilot_boxes(source, PILOT_BLOCKS, PILOT_ROWS, seed)
    return list(itertools.islice(boxes, PILOT_BLOCKS)), rows


@given(edges=bounds(most=4000), seed=st.integers(0, 20))
def test_the_pilot_reads_few_places_inside_the_data(
    edges: tuple[tuple[int, ...], ...], seed: int
) -> None:
    source = grid(edges)
    assume(source.n_rows)
    boxes, rows = first_boxes(source, seed)
    assert boxes
    for box in boxes:
        assert len(box) == len(edges)
        assert all(0 <= lo < hi <= e[-1] for (lo, hi), e in zip(box, edges, strict=True))
    assert len(boxes) * rows <= PILOT_BLOCKS * PILOT_ROWS * 2
    covered = np.zeros(source.shape, int) if source.n_rows < 10**6 else np.zeros(())
    for box in boxes if covered.ndim else []:
        covered[tuple(slice(lo, hi) for lo, hi in box)] += 1
    assert covered.max() <= 1, "no row is drawn twice"
    if source.n_rows <= PILOT_BLOCKS * PILOT_ROWS:
        assert boxes == [tuple((0, size) for size in source.shape)], "small data are taken whole"
    assert first_boxes(source, seed) == (boxes, rows)


def test_the_first_pilot_blocks_are_spread_over_the_data() -> None:
    source = grid((regular(10**8, 10_000),))
    starts = np.array([box[0][0] for box in first_boxes(source)[0]])
    assert (np.diff(starts) > 0).all()
    assert (np.abs(starts / 10**8 * PILOT_BLOCKS - np.arange(PILOT_BLOCKS) - 0.5) < 0.51).all()


def test_the_pilot_can_look_everywhere() -> None:
    """Each box once: the only valid rows may be in the last one."""
    source = grid((regular(1_000_000, 1000),))
    boxes, *_ = pilot_boxes(source, PILOT_BLOCKS, PILOT_ROWS, 0)
    covered = sorted(box[0] for box in boxes)
    assert covered[0][0] == 0
    assert covered[-1][1] == 1_000_000
    assert all(a[1] == b[0] for a, b in itertools.pairwise(covered))


@pytest.mark.slow
@given(data=st.data(), edges=bounds(most=3000), cheap=st.booleans(), seed=st.integers(0, 5))
def test_the_pilot_reads_where_conditions_leave_rows(
    data: Any, edges: tuple[tuple[int, ...], ...], cheap: bool, seed: int
) -> None:
    """All selected rows are met once; no box is without any; the first are spread over them."""
    size = edges[0][-1]
    assume(size)
    source = grid(edges, cheap=cheap)
    assume(0 < source.n_rows < 10**6)
    lo, hi = sorted((data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))))
    step = data.draw(st.integers(1, 4))
    along = np.zeros(size, bool)
    along[lo : hi + 1 : step] = True
    source.selected = (along, *(None for _ in edges[1:]))
    boxes = list(pilot_boxes(source, PILOT_BLOCKS, PILOT_ROWS, seed)[0])
    met = np.zeros(source.shape, int)
    for box in boxes:
        met[tuple(slice(*pair) for pair in box)] += 1
        assert along[slice(*box[0])].any()
    assert met.max() <= 1
    assert (met[along] == 1).all()


def test_the_first_pilot_blocks_are_spread_over_the_rows_that_conditions_leave() -> None:
    """A twentieth of the rows, in one big chunk and in many small ones."""
    along = np.zeros(10**7, bool)
    along[3 * 10**6 : 35 * 10**5] = True
    for edges in ((0, 10**7), regular(10**7, 1000)):
        boxes, rows = first_boxes(grid((edges,), selected=(along,)))
        starts = np.array([box[0][0] for box in boxes]) - 3e6
        assert rows == PILOT_ROWS
        assert (np.abs(starts / 5e5 * PILOT_BLOCKS - np.arange(PILOT_BLOCKS) - 0.5) < 0.7).all()


def test_a_pilot_for_cells_comes_from_as_many_boxes_as_there_are_cells() -> None:
    """With as many rows in all as from 32 boxes; no more boxes than the data have."""
    source = grid((regular(4096, 512), regular(4096, 512)))  # 64 boxes
    for most, count in ((0, PILOT_BLOCKS), (48, 48), (64, 64), (1000, 64)):
        boxes, read, rows = pilot_boxes(source, PILOT_BLOCKS, 1 << 15, 0, most=most)
        assert read == count
        assert PILOT_BLOCKS << 15 <= read * rows < (PILOT_BLOCKS << 15) + read
        assert len(set(itertools.islice(boxes, read))) == count


def test_tiny_chunks_are_read_by_runs() -> None:
    source = grid((regular(1_000_000, 3), (0, 2)))
    boxes, rows = first_boxes(source)
    sizes = [source.cost(box).rows for box in boxes]
    assert min(sizes) >= rows


def test_a_pilot_of_one_big_chunk_does_not_read_it_where_it_need_not() -> None:
    boxes, rows = first_boxes(grid(((0, 10**8),)))
    assert len(boxes) == PILOT_BLOCKS
    assert rows == PILOT_ROWS
    assert sum(hi - lo for ((lo, hi),) in boxes) <= PILOT_BLOCKS * 4 * PILOT_ROWS


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_bytes_in_words(count: int, words: str) -> None:
    assert format_bytes(count) == words


@pytest.mark.parametrize(("seconds", "words"), [(3, "3 s"), (600, "10.0 min"), (7200, "2.0 h")])
def test_seconds_in_words(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words


# ------------------------------------------------------------------ rows of few entries


def test_a_map_that_bins_is_planned_by_its_entries() -> None:
    """n·grids² in place of n·R²: work and time stay where they are as R grows."""
    source = grid((regular(1_000_000, 10_000),))
    narrow, wide = (rs.plan(source, n_features=WholeCost(r, 256)) for r in (4096, 16_384))
    dense = rs.plan(source, n_features=4096)
    assert all(p.cost.counts_pairs(p) for p in (narrow, wide))
    assert not dense.cost.counts_pairs(dense)
    assert narrow.flops == wide.flops == 1e6 * 258**2
    assert dense.flops == 1e6 * 4098**2
    seconds = [p.time_parts()["features and sums"] for p in (narrow, wide, dense)]
    assert seconds[1] < 1.1 * seconds[0]
    assert seconds[0] == pytest.approx(1e6 * 180e-6, rel=0.2)  # as measured
    assert narrow.task_bytes < dense.task_bytes
    assert "256 of 4,096 columns in a row" in str(narrow)


def test_what_is_not_worth_counting_is_planned_as_any_map() -> None:
    source = grid((regular(1_000_000, 10_000),))
    dense = rs.plan(source, n_features=2048)
    for entries in (256, 2048):
        found = rs.plan(source, n_features=WholeCost(2048, entries))
        assert not found.cost.counts_pairs(found)
        assert (found.flops, found.seconds, found.process_bytes) == (
            dense.flops, dense.seconds, dense.process_bytes,
        )  # fmt: skip
    mean = rs.plan(source, n_features=WholeCost(8192, 256), order=1)
    assert not mean.cost.counts_pairs(mean)


KINDS: dict[str, Any] = {
    "ridge": rs.KernelRidge, "process": rs.GaussianProcessRegressor,
    "classifier": rs.KernelClassifier, "components": rs.KernelPCA,
}  # fmt: skip


@pytest.mark.parametrize("how", ["name", "map"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_of_a_fit_is_that_of_its_accumulator(
    kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrysums, "WIDTH_THAT_PAYS", {"float32": 2, "float64": 2})
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    features: Any = "binning"
    r = 512  # 2 columns a grid
    if how == "map":
        r = 300
        features = rs.RandomBinningFeatures.sample(rs.Laplacian(), 2, r, n_grids=20, rng=0)
    choices: dict[str, Any] = {"n_components": r, "sums": "float64"}
    if kind == "components":
        choices = {"n_components": 3, "n_map_components": r}
    model = KINDS[kind](
        kernel="laplacian", features=features, random_state=0, progress=False, **choices
    )
    model.fit(x, y)
    assert model.plan_.cost.entries == entries_of(model.features_)
    counted = model.plan_.cost.counts_pairs(model.plan_)
    assert counted == pays(model.features_, np.dtype(model.plan_.sums))
    assert model.plan_.cost.counts_pairs(model.plan_)


def test_the_plan_of_rows_collected_is_that_of_the_map() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    features = rs.RandomBinningFeatures.sample(rs.Laplacian(), 2, 300, n_grids=20, rng=0)
    small = 8 * 300**2  # below what the process takes anyway: refused with the numbers
    with pytest.raises(PlanError, match="R=300"):
        rs.collect(features, x, x[:, 0], memory=small)
    assert rs.collect(features, x, x[:, 0], progress=False).n == 200


def test_a_search_for_length_scales_has_memory_of_its_own(rng: np.random.Generator) -> None:
    x = rng.normal(size=(300, 2))
    plans = [
        rs.KernelRidge(length_scale=each, n_components=32, random_state=0, progress=False)
        .fit(x, np.sin(x[:, 0]))
        .plan_
        for each in (1.0, "evidence")
    ]
    known, searched = plans
    assert set(searched.memory_parts()) - set(known.memory_parts()) == {"search"}
    assert searched.process_bytes > known.process_bytes


def test_features_that_are_no_number_are_refused_by_name():
    source = rs.open_source(np.zeros((10, 2)), np.zeros(10))
    with pytest.raises(
        TypeError, match=r"n_features=256\.5 but it must be a whole number ≥ 1 .*, or the cost"
    ):
        rs.plan(source, n_features=256.5)
