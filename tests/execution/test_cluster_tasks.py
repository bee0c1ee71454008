"""Tasks that read several leaves, on real workers: their sums when one dies, and their errors."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import rff_stream as rs
from processes import Meanwhile, Processes, connected, done_of, kill, leaves_done
from rff_stream import leaf_layout as layouts
from rff_stream._array import Array
from rff_stream.errors import ClusterError
from rff_stream.execution.leaves import Leaves
from rff_stream.execution.scheduler import Pass, Summation
from rff_stream.leaf_layout import lay_out
from rff_stream.moments import Moments
from toys import columns_to_zarr

pytestmark = pytest.mark.cluster

LEAF_ROWS, LEAVES, R = 1024, 256, 384
N = LEAF_ROWS * LEAVES
TOGETHER, SEGMENT_TASKS = 8, 8
TASKS = LEAVES // TOGETHER
ADDS = TASKS // SEGMENT_TASKS * (2 + 1)
"""Eight sums of a segment by fours: two additions, and one of the two."""


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 segments of 64 leaves: two threads of workers get tasks of 8."""
    monkeypatch.setattr(layouts, "LEAF_ROWS", LEAF_ROWS)
    monkeypatch.setattr(layouts, "FEWEST_LEAVES", LEAVES)
    monkeypatch.setattr(layouts, "MOST_SEGMENTS", LEAVES // TOGETHER // SEGMENT_TASKS)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Processes]:
    """A scheduler that blames a task for the first worker that it kills."""
    found = Processes(tmp_path, SCHEDULER__ALLOWED_FAILURES="0")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = np.random.default_rng(0).normal(size=N).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "table.zarr"
    return columns_to_zarr(path, {"x": x, "y": np.sin(x)}, LEAF_ROWS)


def collect(store: Path, **choices: Any) -> Moments:
    features = rs.FourierFeatures.sample(rs.Gaussian(1.5), 1, R, rng=0)
    found: Moments = rs.collect(features, store, "y", inputs=["x"], progress=False, **choices)
    return found


def test_a_worker_killed_among_tasks_of_several_leaves_changes_no_bit(
    tmp_path: Path, store: Path
) -> None:
    with dask.config.set(scheduler="threads"):
        expected = collect(store)
    processes = Processes(tmp_path)
    try:
        victim = processes.have(2)[0]
        with connected(processes, 2) as client:
            with Meanwhile(client, SEGMENT_TASKS, lambda: kill(victim)) as killing:
                found = collect(store, row=expected.row)
            done, adds = leaves_done(client) - killing.before, done_of(client, "rff_add")
            assert len(client.nthreads()) == 1
    finally:
        processes.stop()
    assert SEGMENT_TASKS <= killing.at < TASKS, "it died in mid-fit"
    # What it held was computed again, eight leaves a task; it may have handed over all it had.
    assert TASKS <= done < 2 * TASKS
    assert ADDS <= adds < 2 * ADDS, "sums are added by fours"
    assert found.sums.tobytes() == expected.sums.tobytes()
    assert found.sample.rows.tobytes() == expected.sample.rows.tobytes()
    assert (found.n, found.squared_weight) == (expected.n, expected.squared_weight)


def fatal() -> Any:
    """A statistic that kills the process which meets any row; it travels by value."""

    class Fatal:
        def start(self) -> Fatal:
            return self

        def add(self, rows: Any, places: Array) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def result(self) -> int:
            return 0

    return Fatal()


def test_a_task_that_kills_its_workers_names_every_box_that_it_read(
    own: Processes, store: Path
) -> None:
    source = rs.open_source(store, "y", inputs=["x"])
    layout = lay_out(source, 1e-5, fewest_rows=LEAF_ROWS)
    leaves = Leaves(source, layout)
    assert (len(leaves), layout.leaves_a_task(threads=2)) == (LEAVES, TOGETHER)
    own.add_worker(threads=2)
    with connected(own, 1), pytest.raises(ClusterError, match="killed its workers") as caught:
        Pass(source, token="fatal", progress=False).run(Summation(fatal(), leaves, layout))
    message = str(caught.value)
    # Dask blames what waited on the dead worker, too: leaves alone, as there are no sums to add.
    found = re.search(r"task 'rff_leaf-(\d+) ", message)
    assert found is not None, message
    first = int(found[1])
    blamed = ", ".join(source.describe(leaf.box) for leaf in leaves[first : first + TOGETHER])
    assert first % TOGETHER == 0
    assert f"It read {TOGETHER} boxes: {blamed}." in message
    assert "memory" in message


class Elsewhere:
    """A statistic of a module that only this process has."""

    def start(self) -> Any:
        raise NotImplementedError


def test_a_job_that_the_scheduler_cannot_load_is_said(own: Processes, store: Path) -> None:
    source = rs.open_source(store, "y", inputs=["x"])
    layout = lay_out(source, 1e-5)
    own.add_worker()
    with connected(own, 1), pytest.raises(ClusterError, match="cannot load") as caught:
        Pass(source, token="elsewhere", progress=False).run(
            Summation(Elsewhere(), Leaves(source, layout), layout)
        )
    assert own.address in str(caught.value)
    assert "install their package there" in str(caught.value)
    assert "lost or restarted" not in str(caught.value)
