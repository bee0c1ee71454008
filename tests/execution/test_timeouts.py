"""Nothing waits without end: forked children, tasks of workers, reads that hang, late workers."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import rff_stream as rs
from rff_stream.errors import ClusterError, NumericalWarning
from rff_stream.execution import leaves as leaf
from rff_stream.execution.leaves import check_same, versions_question
from rff_stream.execution.threads import WatchedPool


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """One worker with one thread, which nothing uses that does not ask for it."""
    from distributed import Client

    one: dict[str, Any] = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    with Client(**one, dashboard_address="127.0.0.1:0", set_as_default=False) as client:
        yield client


def rows(n: int = 3000) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(n, 2))
    return x, np.sin(x[:, 0])


def fit(x: Any = None, y: Any = None) -> Any:
    if x is None:
        x, y = rows()
    model = rs.KernelRidge(n_components=64, length_scale=1.0, random_state=0, progress=False)
    return model.fit(x, y).coef_


def said(answer: Any, queue: Any) -> None:
    """What a child has to say, whatever happens to it."""
    try:
        queue.put(answer())
    except Exception as error:
        queue.put(f"{type(error).__name__}: {error}")


def in_child(answer: Any) -> Any:
    """What a function gives in a forked child, within a minute."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=said, args=(answer, queue))
    child.start()
    try:
        return queue.get(timeout=60)
    finally:
        child.kill()
        child.join()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fit_in_a_forked_child_works():
    """Dask's pool is inherited without its threads."""
    expected = fit()
    x, y = rows()
    da.from_array(x, chunks=100).sum().compute(scheduler="threads")
    assert np.array_equal(in_child(fit), expected)
    lazy = da.from_array(x, chunks=(1000, 2)), da.from_array(y, chunks=1000)
    in_memory = in_child(lambda: fit(*lazy))
    assert np.array_equal(in_memory, fit(*lazy))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_client_inherited_by_a_forked_child_is_an_error(client):
    expected = fit()
    with dask.config.set(scheduler=client):
        assert "ClusterError: The Dask client of inproc" in in_child(fit)

        def threads() -> Any:
            with dask.config.set(scheduler="threads"):
                return fit()

        assert np.array_equal(in_child(threads), expected)


@pytest.mark.slow
def test_fits_as_tasks_of_a_worker_with_one_thread_end(client):
    expected = fit()
    tasks = [client.submit(fit, pure=False) for _ in range(3)]
    for task in tasks:
        assert np.array_equal(task.result(timeout=60), expected)


def test_a_thread_that_hangs_is_an_error_within_the_limit():
    released = threading.Event()

    def hang(block: Any) -> Any:
        released.wait(60)
        return block

    x, y = rows(400)
    lazy = da.from_array(x, chunks=(100, 2)).map_blocks(hang, dtype=x.dtype, meta=x[:0])
    started = time.monotonic()
    limits = {"rff-stream.stall-timeout": 0.5, "rff-stream.stall-warning": 0.2}
    try:
        with dask.config.set({"scheduler": "threads", **limits}):
            with pytest.raises(ClusterError, match=r"Nothing finished for .* s in threads"):
                fit(lazy, da.from_array(y, chunks=100))
    finally:
        released.set()
    assert time.monotonic() - started < 30


@pytest.mark.slow
def test_a_slow_pass_that_moves_is_no_stall():
    def slow(block: Any) -> Any:
        time.sleep(0.1)
        return block

    x, y = rows(1200)
    lazy = da.from_array(x, chunks=(100, 2)).map_blocks(slow, dtype=x.dtype, meta=x[:0])
    limits = {"rff-stream.stall-timeout": 0.7, "rff-stream.stall-warning": 0.5}
    with dask.config.set({"scheduler": "threads", "num_workers": 1, **limits}):
        fit(lazy, da.from_array(y, chunks=100))


def test_a_pool_that_nobody_holds_is_not_watched():
    """An interrupt may come after the thread was started and before the with block."""
    with dask.config.set({"rff-stream.stall-warning": 0.04, "rff-stream.stall-timeout": 60}):
        pool = WatchedPool("nothing", 1)
        pool.__enter__()
        thread = pool._thread
        del pool
        gc.collect()
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("package", ["rff_stream", "numpy", "scipy"])
def test_a_leaf_is_refused_where_versions_differ(package):
    check_same(versions_question()())
    words = rf"process {os.getpid()}\) has {package} .*, but the fit runs with 0\.1"
    with pytest.raises(ClusterError, match=words):
        check_same(versions_question()() | {package: "0.1"})


def test_a_worker_that_joins_later_with_other_versions_is_refused(client, monkeypatch):
    """Its client was checked when all workers were the same."""
    with dask.config.set(scheduler=client):
        expected = fit()
        with monkeypatch.context() as patch:
            patch.setattr(leaf, "own_versions", lambda: versions_question()() | {"numpy": "0.1"})
            with pytest.raises(ClusterError, match=r"has numpy 0\.1, but the fit runs with"):
                fit()
        assert np.array_equal(fit(), expected)


@pytest.mark.slow
def test_workers_that_run_other_machine_code_are_said(client, monkeypatch):
    """Whenever they joined: every leaf tells what it ran on."""
    with dask.config.set(scheduler=client):
        x, y = rows(200_000)  # four leaves
        lazy = da.from_array(x, chunks=(50_000, 2)), da.from_array(y, chunks=50_000)
        expected = fit(*lazy)
        kinds = itertools.cycle(["openblas 0.3 Haswell", "openblas 0.3 SkylakeX"])
        monkeypatch.setattr(leaf, "own_kernels", lambda: next(kinds))
        words = r"2 kinds of machine code: openblas 0\.3 Haswell \(as on .*SkylakeX"
        with pytest.warns(NumericalWarning, match=words):
            coefficients = fit(*lazy)
    assert np.allclose(coefficients, expected)
