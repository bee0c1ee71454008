"""The pass on real schedulers and workers, which are killed, starved and cut off.

What starts and ends them is in `processes`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

import rff_stream as rs
from places import ROOT
from processes import Meanwhile, Processes, connected, done_of, kill, leaves_done, until
from rff_stream import leaf_layout as layouts
from rff_stream._array import Array
from rff_stream.errors import ClusterError, DataError
from rff_stream.moments import Moments

pytestmark = pytest.mark.cluster

N, D = 200_000, 3
LEAF_ROWS, MOST_SEGMENTS = 4096, 16
LEAVES = -(-N // LEAF_ROWS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    found = Processes(tmp_path_factory.mktemp("cluster"))
    yield found
    found.stop()


@pytest.fixture
def processes(shared: Processes) -> Processes:
    """The scheduler that tests share, with the workers that are still alive."""
    return shared


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Processes]:
    """A scheduler that may die."""
    found = Processes(tmp_path)
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """49 leaves in 13 segments: the driver alone lays them out."""
    monkeypatch.setattr(layouts, "LEAF_ROWS", LEAF_ROWS)
    monkeypatch.setattr(layouts, "MOST_SEGMENTS", MOST_SEGMENTS)


@pytest.fixture(scope="module")
def table() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D)).astype(np.float32)
    return {"x": x, "y": np.sin(x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=N)}


@pytest.fixture(scope="module")
def store(table: dict[str, Array], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table as a Zarr store: leaves read their own slices."""
    path = tmp_path_factory.mktemp("data") / "table.zarr"
    columns = {f"x{i}": ("row", table["x"][:, i]) for i in range(D)}
    data = xr.Dataset(columns | {"y": ("row", table["y"])})
    data.to_zarr(path, consolidated=False, encoding={v: {"chunks": (1024,)} for v in data})
    return path


INPUTS = ["x0", "x1", "x2"]


def map_of(r: int) -> rs.FourierFeatures:
    return rs.FourierFeatures.sample(rs.Gaussian(1.5), D, r, rng=0)


def collect(X: Any, y: Any, r: int = 64, **choices: Any) -> Moments:
    names = INPUTS if isinstance(X, Path) else None
    found: Moments = rs.collect(map_of(r), X, y, inputs=names, progress=False, **choices)
    return found


def in_threads(X: Any, y: Any, r: int = 64, **choices: Any) -> Moments:
    with dask.config.set(scheduler="threads"):
        return collect(X, y, r, **choices)


def same_bits(a: Moments, b: Moments) -> bool:
    return (
        a.row.fingerprint == b.row.fingerprint
        and a.sums.tobytes() == b.sums.tobytes()
        and (a.n, a.squared_weight, a.log_weight) == (b.n, b.squared_weight, b.log_weight)
        and a.sample.keys.tobytes() == b.sample.keys.tobytes()
        and a.sample.rows.tobytes() == b.sample.rows.tobytes()
    )


# ---------------------------------------------------------------------------------- the same bits


def test_threads_and_1_2_and_3_worker_processes_give_the_same_bits(
    processes: Processes, store: Path, table: dict[str, Array]
) -> None:
    lazy = da.from_array(table["x"], chunks=(1500, D)), da.from_array(table["y"], chunks=1500)
    here = [
        in_threads(store, "y", order=1),
        in_threads(store, "y", sums="float32"),
        in_threads(*lazy),
    ]
    for workers in (1, 2, 3):
        processes.have(workers, threads=workers)
        with connected(processes, workers):
            there = [
                collect(store, "y", order=1),
                collect(store, "y", sums="float32"),
                collect(*lazy),
            ]
        assert all(same_bits(a, b) for a, b in zip(here, there, strict=True)), workers


def test_a_model_is_the_same_bits_from_threads_and_processes(
    processes: Processes, store: Path
) -> None:
    def fitted() -> rs.KernelRidge:
        model = rs.KernelRidge(n_components=64, alpha=1.0, random_state=0, progress=False)
        return model.fit(store, "y", inputs=INPUTS)

    with dask.config.set(scheduler="threads"):
        here = fitted()
    processes.have(1)
    with connected(processes, 1):
        there = fitted()
        lazy = there.predict(store)
        assert np.array_equal(np.asarray(lazy[:5000]), np.asarray(here.predict(store)[:5000]))
        assert there.score(store, "y") == pytest.approx(here.score(store, "y"), rel=1e-12)
    assert same_bits(here.moments_, there.moments_)
    assert here.coef_.tobytes() == there.coef_.tobytes()


# ---------------------------------------------------------------------------------- deaths


def test_a_worker_killed_in_mid_fit_changes_no_bit(
    processes: Processes, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    r = 768
    expected = in_threads(store, "y", r)
    victim = processes.have(2)[0]
    with connected(processes, 2) as client, caplog.at_level(logging.WARNING, "rff_stream"):
        row = expected.row
        with Meanwhile(client, 8, lambda: kill(victim)) as killing:
            found = collect(store, "y", r, row=row)
        done = leaves_done(client) - killing.before
        assert len(client.scheduler_info()["workers"]) == 1
    assert 8 <= killing.at < LEAVES, "it died in mid-fit"
    assert "worker(s) lost" in caplog.text
    assert done >= LEAVES
    assert same_bits(found, expected)


def test_all_workers_killed_and_replaced_change_no_bit(processes: Processes, store: Path) -> None:
    r = 768
    expected = in_threads(store, "y", r)
    victims = processes.have(2)

    def replace_all() -> None:
        for victim in victims:
            kill(victim)
        processes.add_worker(threads=2)

    with connected(processes, 2) as client:
        with Meanwhile(client, 8, replace_all) as killing:
            found = collect(store, "y", r, row=expected.row)
        done = leaves_done(client) - killing.before
    assert killing.at < LEAVES
    assert done > LEAVES, "what the dead held was computed again"
    assert same_bits(found, expected)


def test_a_worker_killed_under_a_dask_source_changes_no_bit(
    processes: Processes, table: dict[str, Array]
) -> None:
    def slow(block: Array) -> Array:
        time.sleep(0.05)
        return block

    lazy = da.from_array(table["x"], chunks=(LEAF_ROWS, D)).map_blocks(slow, dtype=np.float32)
    target = da.from_array(table["y"], chunks=LEAF_ROWS)
    expected = in_threads(table["x"], table["y"])
    row = expected.row
    here = in_threads(lazy, target, row=row)
    victim = processes.have(2)[0]
    with connected(processes, 2) as client:
        with Meanwhile(client, 10, lambda: kill(victim)) as killing:
            found = collect(lazy, target, row=row)
    assert killing.at < LEAVES
    assert same_bits(found, here)


def test_a_scheduler_killed_in_mid_fit_is_an_error_soon(own: Processes, store: Path) -> None:
    own.add_worker()
    expected = in_threads(store, "y", 2).row
    died: list[float] = []

    def die() -> None:
        kill(own.scheduler)
        died.append(time.monotonic())

    model = rs.KernelRidge(n_components=768, alpha=1.0, random_state=0, progress=False)
    state = dict(vars(model))
    with (
        connected(own, 1) as client,
        Meanwhile(client, 12, die),
        pytest.raises(ClusterError, match="scheduler") as caught,
    ):
        model.fit(store, "y", inputs=INPUTS)
    assert time.monotonic() - died[0] < 20
    assert own.address in str(caught.value)
    assert vars(model) == state
    assert expected is not None


def test_no_workers_are_an_error_that_names_the_scheduler(
    processes: Processes, store: Path
) -> None:
    processes.have(0)
    with (
        connected(processes, 0),
        dask.config.set({"rff-stream.no-workers-timeout": 2}),
        pytest.raises(ClusterError, match="No workers at") as caught,
    ):
        started = time.monotonic()
        collect(store, "y")
    assert time.monotonic() - started < 15
    assert processes.address in str(caught.value)
    assert "dask worker" in str(caught.value)


def test_no_workers_are_an_error_for_a_standardised_dask_source_too(
    processes: Processes, table: dict[str, Array]
) -> None:
    """What every leaf depends on is computed first, and waits for workers as well."""
    lazy = da.from_array(table["x"], chunks=(5000, D))
    processes.have(0)
    with (
        connected(processes, 0),
        dask.config.set({"rff-stream.no-workers-timeout": 2}),
        pytest.raises(ClusterError, match="No workers at"),
    ):
        started = time.monotonic()
        collect((lazy - lazy.mean(axis=0)) / lazy.std(axis=0), table["y"])
    assert time.monotonic() - started < 15


def test_workers_that_all_die_are_an_error_within_the_limit(
    processes: Processes, store: Path
) -> None:
    victims = processes.have(2)

    def die() -> None:
        for victim in victims:
            kill(victim)

    with (
        connected(processes, 2) as client,
        dask.config.set({"rff-stream.no-workers-timeout": 2}),
        Meanwhile(client, 6, die),
        pytest.raises(ClusterError, match="No workers at"),
    ):
        collect(store, "y", 768, row=in_threads(store, "y", 768).row)


def test_a_read_that_hangs_is_an_error_that_names_the_leaf(
    processes: Processes, table: dict[str, Array]
) -> None:
    def hang(block: Array, block_info: Any = None) -> Array:
        time.sleep(12 if block_info[0]["chunk-location"][0] == 7 else 0)
        return block

    lazy = da.from_array(table["x"], chunks=(LEAF_ROWS, D)).map_blocks(hang, dtype=np.float32)
    target = da.from_array(table["y"], chunks=LEAF_ROWS)
    row = in_threads(table["x"], table["y"]).row
    processes.have(1)
    with (
        connected(processes, 1),
        dask.config.set({"rff-stream.stall-timeout": 4}),
        pytest.raises(ClusterError, match=r"Nothing finished for .*running: ") as caught,
    ):
        collect(lazy, target, row=row)
    assert f"[rows {7 * LEAF_ROWS}:{8 * LEAF_ROWS}]" in str(caught.value)


@pytest.mark.slow
def test_a_block_that_kills_its_workers_is_named(own: Processes, table: dict[str, Array]) -> None:
    def fatal(block: Array, block_info: Any = None) -> Array:
        if block_info[0]["chunk-location"][0] == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    lazy = da.from_array(table["x"], chunks=(LEAF_ROWS, D)).map_blocks(fatal, dtype=np.float32)
    target = da.from_array(table["y"], chunks=LEAF_ROWS)
    row = in_threads(table["x"], table["y"]).row
    own.add_worker(nanny=True)
    with connected(own, 1), pytest.raises(ClusterError, match="killed its workers") as caught:
        collect(lazy, target, row=row)
    assert "fatal" in str(caught.value) or "rows" in str(caught.value)


# ------------------------------------------------------------------------------- errors of the data


def test_a_read_that_fails_once_is_tried_again(
    processes: Processes, table: dict[str, Array], tmp_path: Path
) -> None:
    folder = str(tmp_path)

    def flaky(block: Array, block_info: Any = None) -> Array:
        place = block_info[0]["chunk-location"][0]
        with contextlib.suppress(FileExistsError):
            os.close(os.open(f"{folder}/tried-{place}", os.O_CREAT | os.O_EXCL))
            if place % 10 == 3:
                raise OSError("503 Slow down")
        return block

    lazy = da.from_array(table["x"], chunks=(LEAF_ROWS, D))
    target = da.from_array(table["y"], chunks=LEAF_ROWS)
    expected = in_threads(lazy, target)
    processes.have(1)
    with connected(processes, 1):
        found = collect(lazy.map_blocks(flaky, dtype=np.float32), target, row=expected.row)
    assert same_bits(found, expected)


def test_a_bad_value_is_named_from_a_worker_too(
    processes: Processes, store: Path, tmp_path: Path
) -> None:
    import zarr

    bad = tmp_path / "bad.zarr"
    xr.open_zarr(store, consolidated=False).to_zarr(bad, consolidated=False)
    zarr.open_array(bad / "x1", mode="r+")[123_456] = np.nan
    processes.have(1)
    with connected(processes, 1), pytest.raises(DataError, match=r"x1.*NaN.*123456"):
        collect(bad, "y")


# ------------------------------------------------------------------------------------- interrupts

DRIVER = """
import sys
import rff_stream as rs
from distributed import Client
from rff_stream import leaf_layout as layout
layout.LEAF_ROWS = {leaf_rows}
with Client("{address}", timeout=60):
    model = rs.KernelRidge(n_components=1024, alpha=1.0, random_state=0, progress=False)
    try:
        model.fit("{store}", "y", inputs={inputs})
    except KeyboardInterrupt:
        print("interrupted", len(vars(model)), flush=True)
        sys.exit(130)
print("finished", flush=True)
"""


def start_driver(processes: Processes, store: Path, client: Any) -> subprocess.Popen[bytes]:
    """A program that fits, when its pass has begun on the cluster."""
    before = leaves_done(client)
    program = DRIVER.format(
        leaf_rows=LEAF_ROWS, address=processes.address, store=store, inputs=INPUTS
    )
    driver = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    until(lambda: leaves_done(client) - before >= 34, "leaf of the pass")  # the pilot has 32
    return driver


def test_ctrl_c_stops_the_work_of_the_cluster(processes: Processes, store: Path) -> None:
    processes.have(1)
    with connected(processes, 1) as client:
        before = leaves_done(client)
        driver = start_driver(processes, store, client)
        driver.send_signal(signal.SIGINT)
        said, complaints = driver.communicate(timeout=20)
        assert driver.returncode == 130, complaints.decode()
        assert said.decode().startswith("interrupted")
        time.sleep(0.5)  # what runs at this moment may end
        done = leaves_done(client)
        time.sleep(1.5)
        assert leaves_done(client) == done < before + LEAVES + 32, "the cluster rests"
        until(lambda: not any(client.processing().values()), "rest")


def test_a_driver_that_is_killed_leaves_nothing_running(processes: Processes, store: Path) -> None:
    processes.have(1)
    with connected(processes, 1) as client:
        before = leaves_done(client)
        driver = start_driver(processes, store, client)
        kill(driver)
        driver.communicate()
        until(lambda: not any(client.processing().values()), "rest")
        done = leaves_done(client)
        time.sleep(1.0)
        assert leaves_done(client) == done < before + LEAVES + 32


def test_a_cluster_with_another_version_is_refused_before_it_works(
    processes: Processes, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.have(1)
    monkeypatch.setattr("rff_stream.execution.scheduler.__version__", "99.0")
    with connected(processes, 1) as client:
        before = leaves_done(client)
        with pytest.raises(ClusterError, match=r"rff_stream 99.0 but the scheduler has 0\."):
            collect(store, "y")
        assert leaves_done(client) == before


# ------------------------------------------------------------------------------- what is sent where


def test_the_map_is_shipped_once_not_once_a_task(
    processes: Processes, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map of 25 kB and 49 leaves: pickled once, in one key, which one worker is sent once."""
    pickled: list[int] = []
    plain = rs.FourierFeatures.__reduce__

    def counted(self: rs.FourierFeatures) -> Any:
        pickled.append(1)
        return plain(self)

    def specs(dask_scheduler: Any = None) -> dict[str, list[int]]:
        """Bytes of what tells workers what to do, by kind of task."""
        import pickle

        found: dict[str, list[int]] = {}
        for key, task in dask_scheduler.tasks.items():
            size = len(pickle.dumps(task.run_spec))
            found.setdefault(str(key).partition("-")[0], []).append(size)
        return found

    seen: dict[str, list[int]] = {}
    r, nbytes = 2048, map_of(2048).frequencies.nbytes
    row = in_threads(store, "y", r, order=1).row
    processes.have(2)
    with connected(processes, 2) as client:

        def look() -> None:
            seen.update(client.run_on_scheduler(specs))

        monkeypatch.setattr(rs.FourierFeatures, "__reduce__", counted)
        jobs = done_of(client, "rff_job")
        with Meanwhile(client, 3, look):
            collect(store, "y", r, order=1, row=row)
        jobs = done_of(client, "rff_job") - jobs
    assert len(pickled) == 1
    assert jobs == 1, "sent to one worker; the other had it from there"
    assert [size > nbytes for size in seen["rff_job"]] == [True]
    assert max(seen["rff_leaf"]) < 3000 < nbytes


def test_a_standardised_input_is_read_twice_on_a_cluster_too(
    processes: Processes, table: dict[str, Array], tmp_path: Path
) -> None:
    folder = str(tmp_path)

    def seen(block: Array, block_info: Any = None) -> Array:
        place = block_info[0]["chunk-location"][0]
        with open(f"{folder}/read-{place}", "ab") as file:
            file.write(b".")
        return block

    lazy = da.from_array(table["x"], chunks=(LEAF_ROWS, D)).map_blocks(seen, dtype=np.float32)
    target = da.from_array(table["y"], chunks=LEAF_ROWS)
    standard = (lazy - lazy.mean(axis=0)) / lazy.std(axis=0)
    here = in_threads(standard, target)
    for file in tmp_path.glob("read-*"):
        file.unlink()
    processes.have(1)
    with connected(processes, 1):
        found = collect(standard, target, row=here.row)
    reads = {file.name: file.stat().st_size for file in tmp_path.glob("read-*")}
    assert len(reads) == LEAVES
    assert set(reads.values()) == {2}
    assert same_bits(found, here)


def test_a_lazy_prediction_on_a_cluster_computes_nothing_at_once(
    processes: Processes, store: Path
) -> None:
    model = rs.KernelRidge(n_components=16, alpha=1.0, random_state=0, progress=False)
    with dask.config.set(scheduler="threads"):
        model.fit(store, "y", inputs=INPUTS)
        expected = np.asarray(model.predict(store))
    processes.have(1)
    with connected(processes, 1) as client:
        lazy = model.predict(store)

        def tasks(dask_scheduler: Any = None) -> int:
            return len(dask_scheduler.tasks)

        assert client.run_on_scheduler(tasks) == 0
        assert np.array_equal(np.asarray(lazy), expected)
