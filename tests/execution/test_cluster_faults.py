"""Faults of real schedulers, workers and drivers that `test_cluster` leaves out: see faults.md."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import rff_stream as rs
from places import ROOT
from processes import BOUND, Meanwhile, Processes, connected, family, kill, leaves_done, until
from rff_stream import leaf_layout as layouts
from rff_stream._array import Array
from rff_stream.errors import ClusterError, DataError
from rff_stream.moments import Moments
from toys import columns_to_zarr

pytestmark = pytest.mark.cluster

N, D, R = 100_000, 3, 64
LEAF_ROWS = 4096
LEAVES = -(-N // LEAF_ROWS)


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "LEAF_ROWS", LEAF_ROWS)
    monkeypatch.setattr(layouts, "MOST_SEGMENTS", 16)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def rows() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D)).astype(np.float32)
    return x, np.sin(x[:, 0]) + x[:, 1]


@pytest.fixture(scope="module")
def store(rows: tuple[Array, Array], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "table.zarr"
    columns = {**{f"x{i}": rows[0][:, i] for i in range(D)}, "y": rows[1]}
    return columns_to_zarr(path, columns, 2048)


def map_of(r: int = R) -> rs.FourierFeatures:
    return rs.FourierFeatures.sample(rs.Gaussian(1.5), D, r, rng=0)


def lazy(
    rows: tuple[Array, Array], seconds: float, change: Callable[..., Array] | None = None
) -> Any:
    """The rows as Dask blocks, each of which takes its time."""

    def slow(block: Array) -> Array:  # travels by value: workers do not know this file
        time.sleep(seconds)
        return block

    x = da.from_array(rows[0], chunks=(LEAF_ROWS, D)).map_blocks(change or slow, dtype=np.float32)
    return x, da.from_array(rows[1], chunks=LEAF_ROWS)


def expected_of(rows: tuple[Array, Array]) -> Moments:
    """What threads make of the same rows."""
    with dask.config.set(scheduler="threads"):
        found: Moments = rs.collect(map_of(), *lazy(rows, 0), progress=False)
    return found


def same_bits(a: Moments, b: Moments) -> bool:
    return a.sums.tobytes() == b.sums.tobytes() and a.n == b.n


# ------------------------------------------------------------------------------------ workers


def disturbed(
    processes: Processes, rows: tuple[Array, Array], act: Callable[[], None], seconds: float = 0.1
) -> int:
    """The bits of an undisturbed run, whatever ``act`` does in mid-fit; leaves that were done."""
    expected = expected_of(rows)
    with connected(processes, len(processes.workers)) as client:
        with Meanwhile(client, 6, act) as meanwhile:
            found = rs.collect(map_of(), *lazy(rows, seconds), row=expected.row, progress=False)
        done = leaves_done(client) - meanwhile.before
    assert meanwhile.at < LEAVES, "it happened in mid-fit"
    assert same_bits(found, expected)
    return done


def test_a_fit_as_a_task_of_a_worker_process_ends(own: Processes) -> None:
    """The worker has one thread, which the fit itself would have to wait for."""

    def fit() -> Any:  # travels by value: workers do not know this file
        import numpy as np

        import rff_stream as rs

        x = np.random.default_rng(0).normal(size=(3000, 2))
        model = rs.KernelRidge(n_components=64, length_scale=1.0, random_state=0, progress=False)
        return model.fit(x, np.sin(x[:, 0])).coef_

    own.add_worker()
    with connected(own, 1) as client:
        tasks = [client.submit(fit, pure=False) for _ in range(2)]
        found = [task.result(timeout=BOUND) for task in tasks]
    with dask.config.set(scheduler="threads"):
        expected = fit()
    assert all(np.array_equal(each, expected) for each in found)


def test_a_worker_killed_under_its_nanny_changes_no_bit(
    own: Processes, rows: tuple[Array, Array]
) -> None:
    nanny = own.add_worker(nanny=True)
    children: list[int] = []

    def kill_child() -> None:
        children.extend(family(nanny.pid)[1:])
        os.kill(children[-1], signal.SIGKILL)

    assert disturbed(own, rows, kill_child) >= LEAVES
    assert nanny.poll() is None
    assert set(family(nanny.pid)[1:]) - set(children), "another one took its place"


def test_a_worker_that_is_told_to_go_changes_no_bit(
    own: Processes, rows: tuple[Array, Array]
) -> None:
    first, _ = own.add_worker(), own.add_worker()
    assert disturbed(own, rows, lambda: first.send_signal(signal.SIGTERM)) >= LEAVES
    assert first.wait(BOUND) == 0


def test_a_lifetime_hands_sums_over(own: Processes, rows: tuple[Array, Array]) -> None:
    own.add_worker()
    with connected(own, 1):
        first = own.add_worker("--lifetime", "5s")
    done = disturbed(own, rows, lambda: until(lambda: first.poll() is not None, "end"), 0.5)
    assert first.wait(BOUND) == 0
    assert LEAVES <= done <= LEAVES + 1, "nothing that was done is done again"


def test_a_frozen_worker_is_given_up(tmp_path: Path, rows: tuple[Array, Array]) -> None:
    own = Processes(tmp_path, SCHEDULER__WORKER_TTL="4s")
    try:
        first, _ = own.add_worker(), own.add_worker()
        started = time.monotonic()
        disturbed(own, rows, lambda: first.send_signal(signal.SIGSTOP))
        assert time.monotonic() - started < BOUND
        first.send_signal(signal.SIGCONT)
        until(lambda: first.poll() is not None, "end of the late worker")
    finally:
        own.stop()


def test_deaths_throughout_change_no_bit(tmp_path: Path, rows: tuple[Array, Array]) -> None:
    own = Processes(tmp_path, SCHEDULER__ALLOWED_FAILURES="20")
    try:
        own.have(2)

        def kill_again_and_again() -> None:
            for victim in list(own.workers):
                own.add_worker()
                time.sleep(1.5)
                kill(victim)
            own.workers = [worker for worker in own.workers if worker.poll() is None]

        disturbed(own, rows, kill_again_and_again, 0.2)
    finally:
        own.stop()


def map_of_cells(rows: tuple[Array, Array]) -> rs.LocalFeatures:
    return rs.LocalFeatures.sample(
        rs.Gaussian(1.5), rows[0][:2000], n_cells=8, n_trees=2, n_components=24, rng=0
    )


FAMILIES = ["whole", "landmarks", "cells", "grid", "candidates", "classes", "cell classes"]


def answers(kind: str, rows: tuple[Array, Array], seconds: float) -> Array:
    """Predictions of the model of a family: of classes their probabilities."""
    X, y = lazy(rows, seconds)
    model = model_of(kind, rows)
    if "classes" in kind:
        return np.asarray(model.fit(X, y > 0).predict_proba(rows[0][:500]))
    return np.asarray(model.fit(X, y).predict(rows[0][:500]))


def model_of(kind: str, rows: tuple[Array, Array]) -> Any:
    """One model of each family of maps, and a loss that reads all rows several times."""
    choices: Any = {"random_state": 0, "progress": False}
    if kind == "loss":
        return rs.KernelRegressor("huber", n_components=32, alpha=0.1, max_passes=2, **choices)
    if kind == "classes":
        return rs.KernelClassifier(features=map_of(), alpha=0.1, **choices)
    if kind == "cell classes":
        return rs.KernelClassifier(features=map_of_cells(rows), alpha=0.1, **choices)
    features: Any = {
        "whole": lambda: map_of(),
        "landmarks": lambda: rs.NystroemFeatures.sample(
            rs.Gaussian(1.5), rows[0][:2000], 64, rng=0
        ),
        "cells": lambda: map_of_cells(rows),
        "grid": lambda: rs.Grid(modes=(3, 4, 3), box={f"x{i}": (-6, 6) for i in range(D)}),
        "candidates": lambda: rs.Candidates(("whole", rs.Cells(24, 2, 8))),
    }[kind]()
    if kind == "candidates":
        choices["n_components"] = 64
    return rs.GaussianProcessRegressor(rs.Gaussian(1.5), features=features, noise=0.1, **choices)


@pytest.mark.filterwarnings("ignore::rff_stream.errors.NumericalWarning")
@pytest.mark.parametrize("kind", [*FAMILIES, "loss"])
def test_deaths_and_scaling_change_no_bit_of_any_family(
    kind: str, own: Processes, rows: tuple[Array, Array]
) -> None:
    """As an adaptive cluster does: a worker more, one retired; then one is killed."""
    with dask.config.set(scheduler="threads"):
        expected = answers(kind, rows, 0)
    own.add_worker()
    with connected(own, 1) as client:

        def scale_and_kill() -> None:
            first = list(client.scheduler_info()["workers"])
            victim = own.add_worker()
            until(lambda: len(client.nthreads()) == 2, "a second worker")
            client.retire_workers(first, close_workers=True)
            own.add_worker()
            until(lambda: len(client.nthreads()) == 2, "a third worker")
            kill(victim)

        with Meanwhile(client, 4, scale_and_kill) as meanwhile:
            found = answers(kind, rows, 0.3)
        done = leaves_done(client) - meanwhile.before
    assert meanwhile.at < LEAVES <= done, "it happened in mid-fit"
    assert found.tobytes() == expected.tobytes()


def test_an_adaptive_cluster_gives_the_same_bits(rows: tuple[Array, Array]) -> None:
    from distributed import Client, LocalCluster
    from distributed.diagnostics.plugin import SchedulerPlugin

    joined: set[str] = set()

    class Joining(SchedulerPlugin):
        def add_worker(self, scheduler: Any, worker: str) -> None:
            joined.add(worker)

    expected = expected_of(rows)
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        cluster.scheduler.add_plugin(Joining())
        cluster.adapt(minimum=1, maximum=2, interval="200ms", wait_count=1)
        found = rs.collect(map_of(), *lazy(rows, 0.8), row=expected.row, progress=False)
    assert len(joined) > 1, "it grew, and may have shrunk again before the end"
    assert same_bits(found, expected)


def test_a_leaf_beyond_the_memory_of_its_worker_is_named(
    tmp_path: Path, rows: tuple[Array, Array]
) -> None:
    def swell(block: Array, block_info: Any = None) -> Array:
        if block_info[0]["chunk-location"][0] == 5:
            held = np.ones((2 << 30) // 8)
            time.sleep(5)
            return block + held[:1]
        return block

    own = Processes(tmp_path, SCHEDULER__ALLOWED_FAILURES="1")
    try:
        own.add_worker(nanny=True, memory="800MiB")
        row = expected_of(rows).row
        with (
            connected(own, 1),
            pytest.raises(ClusterError, match=r"killed its workers.*memory") as caught,
        ):
            swelling = lazy(rows, 0, swell)
            rs.collect(map_of(), *swelling, row=row, memory=4 << 30, progress=False)
        assert "swell" in str(caught.value) or "rows 20480:24576" in str(caught.value)
    finally:
        own.stop()


LIMITS = {"rff-stream.stall-warning": 1, "rff-stream.stall-timeout": 12}


def test_a_paused_worker_is_named(
    own: Processes, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own.add_worker(memory="120MiB")  # less than it has imported
    with connected(own, 1), dask.config.set(LIMITS):
        with pytest.raises(ClusterError, match=r"tcp://127.*paused at 0.\d GiB") as caught:
            rs.collect(map_of(), store, "y", inputs=INPUTS, memory=4 << 30, progress=False)
    assert "nothing finished for" in caplog.text
    assert "too little memory or a full local directory" in str(caught.value)


@pytest.mark.parametrize("disk", ["good", "full"])
def test_a_full_spill_disk_is_no_silent_wait(own: Processes, store: Path, disk: str) -> None:
    """What others left on a worker goes to its disk; where it cannot, the worker pauses."""
    own.add_worker(memory="600MiB", file_bytes=None if disk == "good" else 4 << 20)

    def ballast(number: int) -> Array:
        return np.full((20 << 20) // 8, float(number))

    with connected(own, 1) as client:
        held = client.map(ballast, range(30))

        def finished() -> int:
            return sum(future.status == "finished" for future in held)

        def collect() -> Moments:
            found: Moments = rs.collect(
                map_of(), store, "y", inputs=INPUTS, memory=4 << 30, progress=False
            )
            return found

        if disk == "good":
            until(lambda: finished() == 30, "ballast")
            assert collect().n == N
            return
        until(lambda: paused(client) == 1, "paused worker")
        with (
            dask.config.set(LIMITS),
            pytest.raises(ClusterError, match=r"paused at.*full local directory"),
        ):
            collect()


def paused(client: Any) -> int:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return sum(worker["status"] == "paused" for worker in workers)


# ------------------------------------------------------------------- scheduler and driver

INPUTS = ["x0", "x1", "x2"]
WIDE = 1024
PILOT = 32  # blocks that are read first


def checkpointed(store: Path, checkpoint: Path | None) -> Moments:
    found: Moments = rs.collect(
        map_of(WIDE), store, "y", inputs=INPUTS, checkpoint=checkpoint, progress=False
    )
    return found


def test_a_fit_goes_on_after_the_death_of_its_scheduler(
    own: Processes, store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with dask.config.set(scheduler="threads"):
        expected = checkpointed(store, None)
    own.add_worker()
    path = tmp_path / "checkpoint.zarr"
    with connected(own, 1) as client, dask.config.set({"rff-stream.checkpoint-seconds": 0}):
        with (
            Meanwhile(client, PILOT + 8, lambda: kill(own.scheduler)),
            pytest.raises(ClusterError, match="scheduler"),
        ):
            checkpointed(store, path)
    again = Processes(tmp_path_factory.mktemp("again"))
    try:
        again.add_worker()
        with connected(again, 1) as client:
            before = leaves_done(client)
            found = checkpointed(store, path)
            assert leaves_done(client) - before < LEAVES, "what was finished is not read again"
    finally:
        again.stop()
    assert same_bits(found, expected)


DRIVER = """
import sys
import dask, rff_stream as rs
from distributed import Client
from rff_stream import leaf_layout as layout
layout.LEAF_ROWS, layout.MOST_SEGMENTS = {leaf_rows}, 16
dask.config.set({{"rff-stream.checkpoint-seconds": 0}})
features = rs.FourierFeatures.sample(rs.Gaussian(1.5), {d}, {r}, rng=0)
with Client("{address}", timeout=60):
    rs.collect(features, "{store}", "y", inputs={inputs}, checkpoint="{path}", progress=False)
"""


def test_a_fit_goes_on_after_the_death_of_its_driver(
    own: Processes, store: Path, tmp_path: Path
) -> None:
    with dask.config.set(scheduler="threads"):
        expected = checkpointed(store, None)
    own.add_worker()
    path = tmp_path / "checkpoint.zarr"
    words = {"address": own.address, "store": store, "inputs": INPUTS, "path": path}
    program = DRIVER.format(leaf_rows=LEAF_ROWS, d=D, r=WIDE, **words)
    with connected(own, 1) as client:
        driver = subprocess.Popen(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        until((path / "log" / f"{1:020}" / "zarr.json").exists, "finished node")
        assert driver.poll() is None, "it died in mid-fit"
        kill(driver)
        until(lambda: not any(client.processing().values()), "rest")
        before = leaves_done(client)
        found = checkpointed(store, path)
        assert leaves_done(client) - before < LEAVES, "what was finished is not read again"
    assert same_bits(found, expected)


def test_a_worker_that_does_not_see_the_data_is_named(own: Processes, tmp_path: Path) -> None:
    """One of two workers has nothing mounted where the data are; rows with gaps may be dropped."""
    import xarray as xr

    private = ("unshare", "--mount", "bash", "-c")
    if subprocess.run([*private, "mount -t tmpfs none /mnt"], capture_output=True).returncode:
        pytest.skip("mounts in a namespace of its own are not allowed here")
    folder = tmp_path / "mounted"
    folder.mkdir()
    rows = {"y": ("t", np.sin(np.arange(N) / 500)), "x": ("t", np.arange(float(N)))}
    data = xr.Dataset(rows)
    data.to_zarr(folder / "d.zarr", encoding={v: {"chunks": (5000,)} for v in "xy"},
                 consolidated=False)  # fmt: skip
    own.add_worker()
    own.add_worker(before=(*private, f'mount -t tmpfs none {folder} && exec "$@"', "bash"))
    choices: dict[str, Any] = {"length_scale": 500.0, "alpha": 0.1, "random_state": 0}
    model = rs.KernelRidge(n_components=R, missing_rows="drop", progress=False, **choices)
    with connected(own, 2):
        with pytest.raises(DataError, match=r"was there when the run .*d.zarr is not there on"):
            model.fit(folder / "d.zarr", "y")
    kill(own.workers.pop())
    with connected(own, 1):
        assert model.fit(folder / "d.zarr", "y").n_rows_ == N
