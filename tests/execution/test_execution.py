"""One read of any container, on any scheduler, in any chunks: the same answer, the same bits."""

from __future__ import annotations

import functools
import itertools
import logging
import pickle
import re
import signal
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import dask
import dask.array as da
import dask.local
import numpy as np
import pytest
import xarray as xr
import zarr
from dask.sizeof import sizeof
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reference
import rff_stream as rs
from counted_blocks import Blocks
from rff_stream import execution
from rff_stream import leaf_layout as layouts
from rff_stream import progress as bars
from rff_stream._array import Array, Float64
from rff_stream.errors import ClusterError, DataError, ModelError, PlanError
from rff_stream.execution import scheduler as running
from rff_stream.execution.leaves import Leaf, PartialSum, segment_tasks, sequence_tasks
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.moments import AugmentedRow, Moments, total
from rff_stream.moments import accumulate as accumulating
from rff_stream.moments.accumulate import plain_row
from rff_stream.moments.tree_sum import TreeSum
from rff_stream.planning import segments_in_flight
from rff_stream.statistics.groups import Groups

N, D, R = 6000, 3, 16
FEATURES = rs.FourierFeatures.sample(rs.Gaussian(1.5), D, R, rng=0)


SENT: weakref.WeakValueDictionary[int, SentBlocks] = weakref.WeakValueDictionary()


def sent(number: int) -> SentBlocks:
    return SENT[number]


class SentBlocks(Blocks):
    """The same for the workers of a cluster in this process, which find it by its number."""

    def __reduce__(self) -> Any:
        SENT[id(self)] = self
        return sent, (id(self),)

    def __dask_tokenize__(self) -> int:
        return id(self)


@pytest.fixture
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves of a few hundred rows, so that small data have many."""
    monkeypatch.setattr(layouts, "LEAF_ROWS", 300)


@pytest.fixture
def xyw(rng: np.random.Generator) -> tuple[Float64, Float64, Float64]:
    x = rng.normal(size=(N, D)) * [1.0, 2.0, 0.5] + [0.0, 10.0, -3.0]
    return x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=N) + 5, rng.uniform(0.5, 2, N)


Rows = tuple[Float64, Float64, Float64]


def collect(X: Any, y: Any = None, **choices: Any) -> Moments:
    given: dict[str, Any] = {"sums": "float64", "progress": False, "features": FEATURES}
    given |= choices
    found: Moments = rs.collect(given.pop("features"), X, y, **given)
    return found


def same_bits(a: Moments, b: Moments) -> bool:
    return (
        a.row.fingerprint == b.row.fingerprint
        and np.array_equal(a.sums, b.sums)
        and (a.n, a.squared_weight, a.log_weight) == (b.n, b.squared_weight, b.log_weight)
        and np.array_equal(a.sample.keys, b.sample.keys)
        and np.array_equal(a.sample.rows, b.sample.rows)
        and (a.parts is None or b.parts is None or np.array_equal(a.parts, b.parts))
    )


def close(a: Moments, b: Moments, rtol: float = 1e-10) -> bool:
    """Equal to rounding; the origins may differ in their last bits."""
    scale = np.abs(a.sums).max()
    return a.n == b.n and bool(np.allclose(a.sums, b.sums, rtol=rtol, atol=rtol * scale))


def dense(x: Array, y: Array, w: Array | None, row: AugmentedRow) -> Float64:
    a = reference.augmented(FEATURES(x), y, row.feature_origin, row.target_origin)
    return reference.second_moments(a, w)


# ------------------------------------------------------------------------------- any container


def as_dataset(x: Array, y: Array, w: Array) -> xr.Dataset:
    columns = {f"x{i}": ("row", x[:, i]) for i in range(D)}
    return xr.Dataset(columns | {"y": ("row", y), "w": ("row", w)})


CONTAINERS: dict[str, Callable[[Array, Array, Array, Path], dict[str, Any]]] = {
    "numpy": lambda x, y, w, _: {"X": x, "y": y, "sample_weight": w},
    "lists": lambda x, y, w, _: {"X": x.tolist(), "y": y.tolist(), "sample_weight": w},
    "dask": lambda x, y, w, _: {
        "X": da.from_array(x, chunks=(500, 3)),
        "y": da.from_array(y, chunks=500),
        "sample_weight": da.from_array(w, chunks=500),
    },
    "dask, columns apart": lambda x, y, w, _: {
        "X": da.from_array(x, chunks=(700, 1)),
        "y": da.from_array(y, chunks=1100),
        "sample_weight": w,
    },
    "dataset": lambda x, y, w, _: {"X": as_dataset(x, y, w), "y": "y", "sample_weight": "w"},
    "dataset in chunks": lambda x, y, w, _: {
        "X": as_dataset(x, y, w).chunk(row=999),
        "y": "y",
        "sample_weight": "w",
    },
    "Zarr by xarray": lambda x, y, w, path: {
        "X": written(as_dataset(x, y, w), path),
        "y": "y",
        "inputs": ["x0", "x1", "x2"],
        "sample_weight": "w",
    },
    "plain Zarr": lambda x, y, w, path: {
        "X": plain_zarr(x, y, w, path),
        "y": "y",
        "inputs": ["X"],
        "sample_weight": "w",
    },
    "data frame": lambda x, y, w, _: {
        "X": as_dataset(x, y, w).to_dataframe(),
        "y": "y",
        "sample_weight": "w",
    },
    "dask frame": lambda x, y, w, _: {
        "X": dask_frame(as_dataset(x, y, w).to_dataframe()),
        "y": "y",
        "sample_weight": "w",
    },
}


def written(data: xr.Dataset, path: Path) -> str:
    data.to_zarr(path / "data.zarr", encoding={v: {"chunks": (640,)} for v in data.data_vars})
    return str(path / "data.zarr")


def plain_zarr(x: Array, y: Array, w: Array, path: Path) -> str:
    group = zarr.create_group(path / "plain.zarr")
    for name, values in {"X": x, "y": y, "w": w}.items():
        chunks = (640, *values.shape[1:])
        group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks)[:] = values
    return str(path / "plain.zarr")


def dask_frame(frame: Any) -> Any:
    import dask.dataframe as dd

    return dd.from_pandas(frame, npartitions=7)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.usefixtures("small_leaves")
def test_every_container_gives_the_dense_sum(
    xyw: Rows, tmp_path: Path, container: str, order: int
) -> None:
    found = collect(**CONTAINERS[container](*xyw, tmp_path), order=order)
    x, y, w = xyw
    assert found.n == N
    expected = dense(x, y, w, found.row)
    scale = np.abs(expected).max()
    sums = found.matrix() if order == 2 else found.sums
    assert np.allclose(
        sums, expected if order == 2 else expected[R], rtol=1e-10, atol=1e-13 * scale
    )
    assert found.squared_weight == pytest.approx((w**2).sum(), rel=1e-12)
    assert len(found.sample.rows) == 2000


@pytest.mark.slow
@given(
    cuts=st.lists(st.integers(1, N - 1), max_size=12),
    other=st.integers(1, N),
    leaf_rows=st.sampled_from([100, 1000, 65_536]),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chunks_do_not_matter(xyw: Rows, cuts: list[int], other: int, leaf_rows: int) -> None:
    x, y, w = xyw
    edges = sorted({0, *cuts, N})
    chunks = tuple(b - a for a, b in itertools.pairwise(edges))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "LEAF_ROWS", leaf_rows)
        found = collect(
            da.from_array(x, chunks=(chunks, D)), da.from_array(y, chunks=other), sample_weight=w
        )
    assert found.n == N
    assert np.allclose(found.matrix(), dense(x, y, w, found.row), rtol=1e-10, atol=1e-9)


def test_empty_blocks_are_no_rows(xyw: Rows) -> None:
    x, y, _ = xyw
    lazy = da.from_array(x, chunks=((0, 2500, 0, 0, 3500, 0), D))
    target = da.from_array(y, chunks=((2500, 0, 3500),))
    assert close(collect(lazy, target), collect(x, y))


@pytest.mark.parametrize("keep", ["most", "some blocks empty"])
def test_unknown_lengths_are_found_in_the_task(xyw: Rows, keep: str) -> None:
    x, y, _ = xyw
    lazy, target = da.from_array(x, chunks=(500, D)), da.from_array(y, chunks=500)
    mask = lazy[:, 0] > -1 if keep == "most" else da.arange(N, chunks=500) // 500 % 3 == 1
    found = collect(lazy[mask], target[mask])
    chosen = np.asarray(mask)
    assert found.n == chosen.sum()
    assert close(found, collect(x[chosen], y[chosen]))


def test_unknown_lengths_that_differ_are_refused(xyw: Rows) -> None:
    x, y, _ = xyw
    lazy, target = da.from_array(x, chunks=(500, D)), da.from_array(y, chunks=500)
    with pytest.raises(DataError, match=r"rows|length"):
        collect(lazy[lazy[:, 0] > 0], target[target > 5])


def test_only_some_rows_count(xyw: Rows) -> None:
    x, y, w = (part.copy() for part in xyw)
    w[::3] = 0
    x[1::5, 1] = np.nan
    y[2::7] = np.nan
    found = collect(x, y, sample_weight=w, missing_rows="drop")
    kept = (w > 0) & np.isfinite(x).all(axis=1) & np.isfinite(y)
    assert found.n == kept.sum()
    assert np.allclose(found.matrix(), dense(x[kept], y[kept], w[kept], found.row), atol=1e-9)


def test_several_targets(xyw: Rows) -> None:
    x, y, _ = xyw
    both = np.column_stack([y, x[:, 0] ** 2])
    found = collect(da.from_array(x, chunks=(700, D)), da.from_array(both, chunks=(900, 1)))
    assert found.row.targets == ("y0", "y1")
    assert np.allclose(found.target_mean(), both.mean(axis=0))


# --------------------------------------------------------------------------- the same bits, always


@pytest.fixture
def in_process_cluster() -> Iterator[Any]:
    from distributed import Client

    with Client(
        processes=False, n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0"
    ) as client:
        yield client


def on(scheduler: str) -> Any:
    if scheduler == "sync":
        return dask.config.set(scheduler="sync")
    return dask.config.set(scheduler="threads", num_workers=int(scheduler))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("sums", ["float32", "float64"])
@pytest.mark.usefixtures("small_leaves")
def test_threads_change_no_bit(xyw: Rows, order: int, sums: str) -> None:
    x, y, w = xyw
    lazy, target = da.from_array(x, chunks=(170, D)), da.from_array(y, chunks=170)
    found = []
    for scheduler in ("sync", "1", "2", "4", "4", "4"):
        with on(scheduler):
            found.append(collect(lazy, target, sample_weight=w, order=order, sums=sums))
    assert all(same_bits(found[0], other) for other in found[1:])


@pytest.mark.slow
@pytest.mark.usefixtures("small_leaves")
def test_a_cluster_changes_no_bit(xyw: Rows, in_process_cluster: Any) -> None:
    x, y, _ = xyw
    lazy, target = da.from_array(x, chunks=(170, D)), da.from_array(y, chunks=170)
    there = collect(lazy, target)
    with on("2"):
        here = collect(lazy, target)
    assert same_bits(there, here)


class Words(str):
    """A sum that shows its tree."""

    def __add__(self, other: str) -> Words:
        return Words(f"({self}+{other})")


class Said:
    """A source, and a job that says which leaf it ran."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    def describe(self, box: Any) -> str:
        return str(box)

    def arguments(self, box: Any) -> tuple[()]:
        return ()

    def run(self, leaf: Leaf) -> Words:
        self.ran.append(leaf.start)
        return Words(leaf.start)


@pytest.mark.parametrize("n", [1, 2, 7, 21])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_leaves_in_sequence_are_added_from_left_to_right_and_few_wait(n: int, window: int) -> None:
    leaves, said = [Leaf(((i, i + 1),), i) for i in range(n)], cast(Any, Said())
    done: list[str] = []
    key, tasks = sequence_tasks(said, said, leaves, 0, "token", {}, window=window, done=done)
    assert len(done) == n
    for leaf, before in zip(leaves[window:], done, strict=False):
        start = f"rff_leaf-{leaf.start:09}"
        (own,) = (task for name, task in tasks.items() if name.startswith(start))
        assert own.dependencies == {before}, "it starts when the one before the window is added"
    plain = functools.reduce(lambda a, b: Words(f"({a}+{b})"), map(Words, range(n)))
    assert dask.local.get_sync(tasks, key) == plain
    assert sorted(said.ran) == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 21, 64, 69])
def test_a_segment_has_one_tree_however_it_is_cut_into_tasks(n: int) -> None:
    leaves, said = [Leaf(((i, i + 1),), i) for i in range(n)], cast(Any, Said())
    expected: TreeSum[Words] = TreeSum()
    for leaf in leaves:
        expected.add(leaf.start, said.run(leaf))
    for together, fan_in in itertools.product([1, 2, 8], [2, 4, 8]):
        key, tasks = segment_tasks(said, said, leaves, 100, "token", {}, together, fan_in)
        assert dask.local.get_sync(tasks, key) == expected.total()
        assert len(tasks) <= -(-n // together) * fan_in / (fan_in - 1) + 8


@pytest.fixture
def tasks_of_several(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Leaves of 300 rows, four segments, several leaves a task; the tasks of each segment."""
    monkeypatch.setattr(layouts, "LEAF_ROWS", 300)
    monkeypatch.setattr(layouts, "MOST_SEGMENTS", 4)
    monkeypatch.setattr(layouts, "TASKS_A_THREAD", 1)
    found: list[int] = []
    plain = segment_tasks

    def counted(*arguments: Any) -> Any:
        key, tasks = plain(*arguments)
        found.append(sum(str(key).startswith("rff_leaf") for key in tasks))
        return key, tasks

    monkeypatch.setattr(running, "segment_tasks", counted)
    monkeypatch.setattr(running, "WIDE_SEGMENT", 1)
    return found


@pytest.mark.parametrize("n", [N, 5150, 4750])
def test_tasks_of_several_leaves_change_no_bit(
    in_process_cluster: Any, tasks_of_several: list[int], xyw: Rows, tmp_path: Path, n: int
) -> None:
    """Whole trees and torn ones: the last task, and the last segment, may be smaller."""
    x, y, w = (values[:n] for values in xyw)
    store = plain_zarr(x, y, w, tmp_path)
    with on("2"):
        here = collect(store, "y", inputs=["X"])
    tasks_of_several.clear()
    there = collect(store, "y", inputs=["X"], row=here.row)
    assert same_bits(there, here)
    leaves = rs.plan(rs.open_source(store, "y", inputs=["X"]), n_features=R).layout.n_leaves
    assert sum(tasks_of_several) < leaves


@pytest.mark.usefixtures("in_process_cluster")
def test_a_lost_chunk_is_named_from_a_task_of_several_leaves(
    tasks_of_several: list[int], xyw: Rows, tmp_path: Path
) -> None:
    store = plain_zarr(*xyw, tmp_path)
    row = collect(store, "y", inputs=["X"]).row
    (tmp_path / "plain.zarr" / "X" / "c" / "3" / "0").unlink()
    with pytest.raises(DataError, match=r"plain\.zarr: chunk c/3/0 of array 'X'"):
        collect(store, "y", inputs=["X"], row=row)


def test_a_leaf_without_memory_is_named(xyw: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(*_: Any) -> None:
        raise MemoryError("Unable to allocate 8.00 GiB")

    monkeypatch.setattr(accumulating._SecondMoments, "update", update)
    words = r"The box \[0:\d+\], rows from 0 on, got no memory: Unable to allocate 8.00 GiB\."
    with pytest.raises(PlanError, match=words):
        collect(xyw[0], xyw[1])


@pytest.mark.slow
@pytest.mark.usefixtures("small_leaves")
def test_leaves_that_finish_out_of_order_change_no_bit(xyw: Rows) -> None:
    x, y, _ = xyw
    rng = np.random.default_rng(0)
    target = da.from_array(y, chunks=300)
    found = []
    for _ in range(3):
        delays = rng.uniform(0, 0.02, 20)

        def late(block: Array, block_info: Any = None, delays: Array = delays) -> Array:
            time.sleep(delays[block_info[0]["chunk-location"][0]])
            return block

        lazy = da.from_array(x, chunks=(300, D)).map_blocks(late, dtype=float)
        with on("4"):
            found.append(collect(lazy, target))
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


@pytest.mark.usefixtures("small_leaves")
def test_blas_threads_change_no_bit(xyw: Rows) -> None:
    from threadpoolctl import threadpool_limits

    x, y, _ = xyw
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            found.append(collect(x, y))
    assert same_bits(*found)


def blas_threads() -> list[int]:
    from threadpoolctl import threadpool_info

    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture(params=["nobody", "this thread", "another thread"])
def two_blas_threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """BLAS of two threads, set by someone whom threadpoolctl may take for its only user."""
    from threadpoolctl import OpenBLASController, threadpool_limits

    def force(count: int) -> None:
        if hasattr(OpenBLASController, "clear_controlling_thread"):  # from 3.8 on
            OpenBLASController.clear_controlling_thread(force=True)
        threadpool_limits(limits=count, user_api="blas")

    before = blas_threads()
    with ThreadPoolExecutor(1) as other:
        if request.param == "another thread":
            other.submit(force, 2).result()
        else:
            force(2)
        if request.param == "nobody" and hasattr(OpenBLASController, "clear_controlling_thread"):
            OpenBLASController.clear_controlling_thread(force=True)
        assert set(blas_threads()) == {2}
        yield
        assert set(blas_threads()) == {2}, "left as it was"
        force(max(before))


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_is_pinned_while_any_leaf_runs_and_freed_after() -> None:
    gate, seen = threading.Barrier(2, timeout=20), []

    def leaf(stay: float) -> None:
        with single_threaded_blas():
            gate.wait()
            time.sleep(stay)
            seen.append(blas_threads())

    for _ in range(2):
        users = [threading.Thread(target=leaf, args=(stay,)) for stay in (0.0, 0.1)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert set(blas_threads()) == {2}
    assert all(set(counts) == {1} for counts in seen), "the later one is still pinned"


@pytest.mark.usefixtures("small_leaves", "two_blas_threads")
def test_every_leaf_runs_on_one_blas_thread(xyw: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two would change bits: their cuts fall elsewhere (seen at R=768)."""
    x, y, _ = xyw
    seen: set[int] = set()
    plain = accumulating.rank_update

    def looking(*arguments: Any, **choices: Any) -> None:
        seen.update(blas_threads())
        plain(*arguments, **choices)

    monkeypatch.setattr(accumulating, "rank_update", looking)
    found = []
    for scheduler in ("sync", "2", "sync", "3"):
        with on(scheduler):
            found.append(collect(x[:1500], y[:1500]))
        assert seen == {1}, scheduler
    assert all(same_bits(found[0], other) for other in found)


@pytest.mark.usefixtures("small_leaves")
def test_a_plan_that_is_given_keeps_its_bits(xyw: Rows) -> None:
    x, y, _ = xyw
    lazy, target = da.from_array(x, chunks=(170, D)), da.from_array(y, chunks=170)
    source = rs.open_source(lazy, target)
    plan = rs.plan(source, n_features=R, sums="float64", threads=3, workers=9)
    assert same_bits(collect(lazy, target, plan=plan), collect(lazy, target))
    again = pickle.loads(pickle.dumps(plan))
    assert same_bits(collect(lazy, target, plan=again), collect(lazy, target))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rows": 5000}, "rows"),
        ({"rows": 7000}, "rows"),
        ({"n_features": 2 * R}, "features|R"),
        ({"targets": 2}, "targets"),
    ],
)
def test_a_plan_for_other_data_is_refused(xyw: Rows, changed: dict[str, int], named: str) -> None:
    """It would read some of the rows, or none, and say nothing."""
    x, y, _ = xyw
    rows = changed.get("rows", N)
    other = rs.open_source(np.zeros((rows, D)), np.zeros((rows, changed.get("targets", 1))))
    plan = rs.plan(other, n_features=changed.get("n_features", R))
    with pytest.raises((PlanError, ValueError), match=named):
        collect(x, y, plan=plan)


@pytest.mark.parametrize("asked", [{"order": 1}, {"sums": "float64"}])
def test_a_plan_of_other_sums_is_refused(xyw: Rows, asked: dict[str, Any]) -> None:
    """It decided in silence: moments of order 2 where order=1 was asked for."""
    x, y, _ = xyw
    plan = rs.plan(rs.open_source(x, y), n_features=R, sums="float32")
    with pytest.raises(PlanError, match=r"order=2 and sums='float32', but order="):
        collect(x, y, plan=plan, **asked)


def test_a_row_that_is_given_makes_batches_that_add_up(xyw: Rows) -> None:
    x, y, w = xyw
    first = collect(x[:4000], y[:4000], sample_weight=w[:4000])
    second = collect(x[4000:], y[4000:], sample_weight=w[4000:], row=first.row)
    both = first + second
    assert both.n == N
    assert np.allclose(both.matrix(), dense(x, y, w, first.row), rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"map_fingerprint": "0" * 64}, "map"),
        ({"inputs": ("x0", "x2", "x1")}, "inputs"),
        ({"targets": ("flux",)}, "targets"),
        ({"units": ("m", "", "", "")}, "units"),
    ],
)
def test_a_row_for_other_columns_is_refused(xyw: Rows, changes: dict[str, Any], named: str) -> None:
    """Its sums would be added to what they are not."""
    x, y, _ = xyw
    blocks = Blocks(x, 1000)
    row = replace(collect(x, y).row, **changes)
    with pytest.raises(ModelError, match=named):
        collect(blocks.array, da.from_array(y, chunks=1000), row=row)
    assert not blocks.computed


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_a_map_of_other_inputs_is_refused_before_anything_is_read(xyw: Rows, columns: int) -> None:
    x, y, _ = xyw
    blocks = Blocks(np.resize(x, (N, columns)), 1000)
    with pytest.raises(ValueError, match="inputs"):
        collect(blocks.array, da.from_array(y, chunks=1000))
    assert not blocks.computed


# ------------------------------------------------------------------------------------------ groups


@pytest.mark.usefixtures("small_leaves")
@pytest.mark.parametrize("order", [1, 2])
def test_groups_are_the_moments_of_their_rows(xyw: Rows, order: int) -> None:
    x, y, w = xyw
    label = (np.arange(N) * 7919) % 5
    whole = collect(x, y, sample_weight=w, order=order)
    found: Any = collect(x, y, sample_weight=w, by=label, order=order, row=whole.row)
    assert list(found) == [0, 1, 2, 3, 4]
    for name, moments in found.items():
        chosen = label == name
        expected = collect(
            x[chosen], y[chosen], sample_weight=w[chosen], order=order, row=whole.row
        )
        assert close(moments, expected)
    assert close(total(found.values()), whole)
    assert np.array_equal(total(found.values()).sample.rows, whole.sample.rows)


def test_labels_may_be_words_and_dates(xyw: Rows) -> None:
    x, y, _ = xyw
    words = np.where(np.arange(N) % 3 == 0, "land", "sea")
    found: Any = collect(x, y, by=words)
    assert {name: moments.n for name, moments in found.items()} == {"land": 2000, "sea": 4000}


@pytest.mark.usefixtures("small_leaves")
@pytest.mark.parametrize("folds", [2, 5])
def test_folds_are_whole_runs_of_rows(xyw: Rows, folds: int) -> None:
    x, y, _ = xyw
    whole = collect(x, y)
    found: Any = collect(da.from_array(x, chunks=(170, D)), y, folds=folds, row=whole.row)
    assert list(found) == list(range(folds))
    for k, moments in found.items():
        rows = slice(k * N // folds, (k + 1) * N // folds)
        assert close(moments, collect(x[rows], y[rows], row=whole.row))


# ------------------------------------------------------------------------- what is read, and when


def test_the_inputs_of_a_store_come_in_an_order_of_their_own(xyw: Rows, tmp_path: Path) -> None:
    """Not in that of the directory: a copy on another disk could not be merged with it."""
    path = written(as_dataset(*xyw), tmp_path)
    assert rs.open_source(path, "y", "w").columns.inputs == ("x0", "x1", "x2")


def test_every_block_is_read_once_by_the_pass_and_once_by_the_pilot(xyw: Rows) -> None:
    x, y, _ = xyw
    blocks = Blocks(x, 500)
    row = collect(x, y).row
    collect(blocks.array, da.from_array(y, chunks=500), row=row)
    assert set(blocks.computed.values()) == {1}
    collect(blocks.array, da.from_array(y, chunks=500))
    assert set(blocks.computed.values()) == {3}, "small data are all pilot"


@pytest.mark.slow
@pytest.mark.usefixtures("small_leaves")
def test_the_pilot_of_large_data_reads_few_blocks(rng: np.random.Generator) -> None:
    x = rng.normal(size=(400_000, D))
    blocks = Blocks(x, 2000)
    features = rs.FourierFeatures.sample(rs.Gaussian(1.5), D, 2, rng=0)
    collect(blocks.array, da.from_array(x[:, 0], chunks=2000), features=features)
    assert len(blocks.computed) == blocks.count
    assert set(blocks.computed.values()) == {1, 2}
    assert sum(blocks.computed.values()) == blocks.count + 32


@pytest.mark.usefixtures("small_leaves")
def test_a_standardised_input_is_read_twice_and_never_held(xyw: Rows) -> None:
    x, y, _ = xyw
    blocks = Blocks(x, 200)
    lazy = (blocks.array - blocks.array.mean(axis=0)) / blocks.array.std(axis=0)
    expected = (x - x.mean(axis=0)) / x.std(axis=0)
    row = collect(expected, y).row
    with on("2"):
        found = collect(lazy, da.from_array(y, chunks=200), row=row)
    assert close(found, collect(expected, y, row=row), rtol=1e-8)
    assert set(blocks.computed.values()) == {2}
    assert blocks.most_alive <= 8, f"{blocks.most_alive} of 30 blocks in memory"


@pytest.mark.usefixtures("small_leaves")
def test_a_standardised_target_is_read_twice_too(xyw: Rows) -> None:
    x, y, _ = xyw
    blocks = Blocks(np.column_stack([x, y]), 200)
    table = (blocks.array - blocks.array.mean(axis=0)) / blocks.array.std(axis=0)
    standard = np.column_stack([x, y])
    standard = (standard - standard.mean(axis=0)) / standard.std(axis=0)
    row = collect(standard[:, :D], standard[:, D]).row
    with on("2"):
        found = collect(table[:, :D], table[:, D], row=row)
    assert close(found, collect(standard[:, :D], standard[:, D], row=row), rtol=1e-8)
    assert set(blocks.computed.values()) == {2}
    assert blocks.most_alive <= 8


CELLS = rs.LocalFeatures.sample(
    rs.Gaussian(1.5), np.random.default_rng(0).normal(size=(500, D)), n_cells=4, n_trees=1,
    n_components=8, rng=0,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("taken", "kind", "where"),
    [
        *itertools.product(("inputs", "table", "later"), ("whole", "cells"), ("threads",)),
        *(("table", "whole", "cluster"), ("later", "whole", "cluster")),
        ("inputs", "cells", "cluster"),
    ],
)
@pytest.mark.usefixtures("small_leaves")
def test_the_input_is_never_held_in_memory(
    xyw: Rows, taken: str, kind: str, where: str, request: pytest.FixtureRequest
) -> None:
    """Of a table, inputs and targets need the same blocks; of later targets, leaves share them.

    Tasks of the data ran ahead of the sums, of cells in threads and of all maps on a cluster.
    """
    x, y, _ = xyw
    features: Any = {"whole": FEATURES, "cells": CELLS}[kind]
    whole = np.tile(np.column_stack([x, y]), (8, 1))
    blocks = (SentBlocks if where == "cluster" else Blocks)(whole, 300)
    table, again = blocks.array, 2 if taken == "later" else 1
    inputs, target = {
        "inputs": (table[:, :D], da.from_array(whole[:, D], chunks=300)),
        "table": (table[:, :D], table[:, D]),
        "later": (table[:-10, :D], table[10:, D]),
    }[taken]
    row = collect(x, y, features=features).row
    if where == "cluster":
        request.getfixturevalue("in_process_cluster")
        collect(inputs, target, features=features, row=row)
    else:
        with on("2"):
            collect(inputs, target, features=features, row=row)
    of_a_leaf = 1 if features is FEATURES else 13
    assert blocks.most_alive <= 4 * (of_a_leaf + 8), f"{blocks.most_alive} of 160 in memory"
    assert max(blocks.computed.values()) <= 2 * again, "each is read for inputs and for targets"
    assert blocks.alive == 0


@pytest.mark.slow
@pytest.mark.usefixtures("small_leaves", "in_process_cluster")
def test_few_sums_of_cells_are_in_flight_also_where_leaves_share_blocks(
    xyw: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All were started at once, and up to all waited on the driver for the first."""
    x, y, _ = xyw
    monkeypatch.setattr(layouts, "DECODE_AGAIN", np.inf)
    whole = np.tile(np.column_stack([x, y]), (24, 1))
    table = da.from_array(whole, chunks=18_000).map_blocks(np.copy)
    waiting, submit = [], running.ClusterRun.submit

    def counted(run: Any, *segment: Any) -> None:
        submit(run, *segment)
        waiting.append(run.waiting)

    row = collect(x, y, features=CELLS).row
    monkeypatch.setattr(running.ClusterRun, "submit", counted)
    collect(table[:, :D], table[:, D], row=row, features=CELLS)
    assert len(waiting) == 32, "four leaves of a block"
    assert max(waiting) <= segments_in_flight(running.thread_count(), 1)


def test_planning_opening_and_drawing_compute_nothing(xyw: Rows) -> None:
    x, y, _ = xyw

    def refuse(graph: Any, keys: Any, **_: Any) -> Any:
        raise AssertionError("Something was computed.")

    lazy, target = da.from_array(x, chunks=(500, D)), da.from_array(y, chunks=500)
    data = as_dataset(x, y, y).chunk(row=700)
    with dask.config.set(scheduler=refuse):
        for source in (rs.open_source(lazy, target), rs.open_source(data, "y")):
            plan = rs.plan(source, n_features=R)
            assert str(plan)
            assert execution.Leaves(source, plan.layout)
            source.arguments(plan.layout.box(0))


def test_a_run_over_the_limit_is_refused_before_anything_is_read(xyw: Rows) -> None:
    x, y, _ = xyw
    blocks = Blocks(x, 500)
    with pytest.raises(PlanError, match=r"Nothing was read.*Lower n_components"):
        collect(blocks.array, da.from_array(y, chunks=500), memory=10 << 20)
    assert not blocks.computed


def test_a_huge_declared_shape_is_refused_before_anything_is_read() -> None:
    """A terabyte in one chunk that a task would have to hold."""
    huge = da.zeros((10**9, 100), chunks=(10**9, 100))
    with pytest.raises(PlanError, match="Nothing was read"):
        collect(
            huge,
            da.zeros(10**9, chunks=10**9),
            features=rs.FourierFeatures.sample(rs.Gaussian(1.0), 100, 4, rng=0),
        )


@pytest.mark.parametrize("rows", [np.empty((0, D)), da.empty((0, D), chunks=D)])
def test_no_rows_are_an_error_in_scikit_learns_words(rows: Any) -> None:
    for row in (None, replace(plain_row(FEATURES, 1), targets=("y",), units=("",) * 4)):
        with pytest.raises(DataError, match=r"0 sample\(s\)"):
            collect(rows, rows[:, 0], row=row)


def test_all_rows_missing_or_weightless_are_no_rows(xyw: Rows) -> None:
    x, y, _ = xyw
    row = collect(x, y).row
    for choices in ({"sample_weight": np.zeros(N)}, {"missing_rows": "drop"}):
        bad = x * np.nan if "missing_rows" in choices else x
        for given_row in (None, row):
            with pytest.raises(DataError, match=r"0 sample\(s\)"):
                collect(bad, y, row=given_row, **choices)


# -------------------------------------------------------------------------------------- schedulers


SEEN: list[str] = []


def look(block: Array) -> Array:
    from distributed import get_worker

    SEEN.append(get_worker().address)
    return block


@pytest.mark.usefixtures("in_process_cluster")
def test_the_users_own_client_is_used(xyw: Rows) -> None:
    x, y, _ = xyw
    SEEN.clear()
    lazy = da.from_array(x, chunks=(1000, D)).map_blocks(look, dtype=float, meta=x[:0])
    collect(lazy, da.from_array(y, chunks=1000))
    assert len(SEEN) == 12
    assert all(address.startswith("inproc://") for address in SEEN)


def test_a_run_that_no_worker_can_hold_is_refused(xyw: Rows) -> None:
    from distributed import Client

    x, y, _ = xyw
    blocks = Blocks(x, 1000)
    with (
        Client(processes=False, n_workers=1, memory_limit="5GiB", dashboard_address="127.0.0.1:0"),
        pytest.raises(PlanError, match=r"4.0 GiB are allowed.*Nothing was read"),
    ):
        collect(blocks.array, da.from_array(y, chunks=1000), n_groups=10**5)
    assert not blocks.computed


@pytest.mark.usefixtures("in_process_cluster")
def test_a_scheduler_that_is_set_wins_over_a_client(xyw: Rows) -> None:
    x, y, _ = xyw
    blocks = Blocks(x, 1000)
    with dask.config.set(scheduler="sync"):
        collect(blocks.array, da.from_array(y, chunks=1000))
    assert blocks.threads == {threading.current_thread().name}


def test_a_pool_that_is_set_is_used(xyw: Rows) -> None:
    x, y, _ = xyw
    blocks = Blocks(x, 1000)
    with (
        ThreadPoolExecutor(1, thread_name_prefix="mine") as pool,
        dask.config.set(pool=pool, scheduler="threads"),
    ):
        collect(blocks.array, da.from_array(y, chunks=1000))
    assert {name.rpartition("_")[0] for name in blocks.threads} == {"mine"}


def test_a_callable_scheduler_is_used(xyw: Rows) -> None:
    x, y, _ = xyw
    calls: list[int] = []

    def mine(graph: Any, keys: Any, **choices: Any) -> Any:
        calls.append(len(graph))
        return dask.local.get_sync(graph, keys, **choices)

    with dask.config.set(scheduler=mine):
        found = collect(da.from_array(x, chunks=(1000, D)), da.from_array(y, chunks=1000))
    assert calls
    assert close(found, collect(x, y))


def test_processes_are_refused_with_the_remedy(xyw: Rows) -> None:
    x, y, _ = xyw
    with (
        dask.config.set(scheduler="processes"),
        pytest.raises(ClusterError, match=r"'processes'.*distributed.Client"),
    ):
        collect(x, y)


@pytest.mark.usefixtures("small_leaves")
def test_a_plan_that_lowered_its_threads_runs_with_so_many(rng: np.random.Generator) -> None:
    """Memory was promised for two leaves at a time, not for eight."""
    n = 20_000
    blocks = Blocks(rng.normal(size=(n, D)), 300, seconds=0.002)
    target = da.from_array(np.ones(n), chunks=300)
    choices: dict[str, Any] = {"n_features": R, "sums": "float64"}
    with dask.config.set(scheduler="threads", num_workers=8):
        source = rs.open_source(blocks.array, target)
        limit = rs.plan(source, threads=2, **choices).process_bytes
        assert limit < rs.plan(source, threads=3, **choices).process_bytes
        collect(blocks.array, target, memory=limit)
    assert len(blocks.threads) == 2


# ------------------------------------------------------------------------------- faults and waits


@pytest.mark.usefixtures("small_leaves")
def test_a_bad_value_is_named_by_its_row(xyw: Rows) -> None:
    x, y, _ = xyw
    x = x.copy()
    x[4321, 1] = np.nan
    with pytest.raises(DataError, match=r"x1.*NaN|NaN.*x1") as caught:
        collect(da.from_array(x, chunks=(500, D)), y)
    assert "4321" in str(caught.value)


def test_an_error_of_the_users_code_keeps_its_cause(xyw: Rows) -> None:
    x, y, _ = xyw

    def broken(block: Array) -> Array:
        raise OSError("disk on fire")

    lazy = da.from_array(x, chunks=(500, D)).map_blocks(broken, dtype=float, meta=x[:0])
    with pytest.raises(OSError, match="disk on fire"):
        collect(lazy, da.from_array(y, chunks=500))


@pytest.mark.slow
@pytest.mark.usefixtures("small_leaves")
def test_an_interrupt_stops_the_pass(xyw: Rows) -> None:
    x, y, _ = xyw
    blocks = Blocks(x, 100, seconds=0.05)
    row = plain_row(FEATURES, 1)
    row = replace(row, targets=("y",), units=("", "", "", ""))
    threading.Timer(0.4, signal.raise_signal, [signal.SIGINT]).start()
    started = time.monotonic()
    with on("2"), pytest.raises(KeyboardInterrupt):
        collect(blocks.array, da.from_array(y, chunks=100), row=row)
    assert time.monotonic() - started < 5
    time.sleep(0.3)
    done = len(blocks.computed)
    time.sleep(0.3)
    assert len(blocks.computed) == done < blocks.count, "nothing goes on behind the user's back"


def test_a_long_wait_is_said(xyw: Rows, caplog: pytest.LogCaptureFixture) -> None:
    x, y, _ = xyw
    blocks = Blocks(x, N, seconds=0.3)
    with (
        dask.config.set({"rff-stream.stall-warning": 0.05}),
        caplog.at_level(logging.WARNING, "rff_stream"),
    ):
        collect(blocks.array, da.from_array(y, chunks=N))
    assert "still waiting" in caplog.text


def test_the_bar_counts_every_row(xyw: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = xyw
    counted: Counter[str] = Counter()

    class Bar:
        def __init__(self, words: str, n_rows: int | None, unit: str) -> None:
            self.words = words
            counted[f"total of {words}"] = n_rows or 0

        def update(self, rows: int) -> None:
            counted[self.words] += rows

        def close(self) -> None:
            counted[f"closed {self.words}"] += 1

    monkeypatch.setattr(bars, "_bar", Bar)
    collect(x, y, progress=True)
    assert counted["reading"] == counted["total of reading"] == N
    assert counted["closed reading"] == counted["closed pilot"] == 1


def test_a_log_gets_a_line_now_and_then_and_no_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with bars.Progress("reading", 3_000) as bar:
        bar.advance(3_000)
    assert not capsys.readouterr().err, "within a minute"
    monkeypatch.setattr(bars, "LINE_SECONDS", 1e-9)
    with bars.Progress("reading", 3_000) as bar:
        bar.advance(1_000)
        bar.say("RMSE 3")
        bar.advance(2_000)
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"reading: 1,000 of 3,000 rows, [\d,]+/s, \d+ min left", first)
    assert re.fullmatch(r"reading: 3,000 of 3,000 rows, [\d,]+/s, RMSE 3", second)


def test_a_log_that_was_begun_ends_with_all_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bars, "LINE_SECONDS", 1e-9)
    with bars.Progress("writing", 16, unit="task") as bar:
        bar.advance(14)
        monkeypatch.setattr(bars, "LINE_SECONDS", 60.0)  # the last two come within a minute
        bar.advance(2)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("writing: 14 of 16 tasks, ")
    assert re.fullmatch(r"writing: 16 of 16 tasks, [\d,]+/s", last)


# -------------------------------------------------------------------------------------- transport


def test_dask_is_told_the_size_of_what_leaves_return(xyw: Rows) -> None:
    x, y, _ = xyw
    moments = collect(x, y)
    tally = PartialSum(Groups({None: moments}), N)
    assert sizeof(tally) >= moments.sums.nbytes + moments.sample.nbytes
    assert sizeof(tally) <= 1.5 * len(pickle.dumps(tally)) + 2000


def test_what_workers_are_sent_holds_no_data(xyw: Rows, tmp_path: Path) -> None:
    """Reader and statistic of a million rows on disk: as many bytes as for six thousand."""
    x, y, w = xyw
    path = written(as_dataset(x, y, w), tmp_path)
    for source in (
        rs.open_source(path, "y"),
        rs.open_source(xr.open_zarr(path), "y"),
        rs.open_source(da.from_array(x, chunks=(500, D)), da.from_array(y, chunks=500)),
    ):
        assert len(pickle.dumps(source.reader)) < 20_000
