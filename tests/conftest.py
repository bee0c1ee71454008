"""What every test may ask for: real data, a seeded generator, and settings no machine changes."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import dask
import hypothesis
import numpy as np
import pytest
import threadpoolctl

from failing_files import quick_path
from faulttable import pytest_addoption, pytest_configure
from growing import Leaves, Stopped
from places import ROOT
from recording import innermost
from rff_stream import leaf_layout
from rff_stream.errors import NumericalWarning
from rff_stream.execution import leaves as leaf_module
from rff_stream.kernels.base import KERNELS

__all__ = ["pytest_addoption", "pytest_configure", "quick_path"]

collect_ignore = ["boxes"]  # an example of a family: to import it is to make its maps known

DATA = Path(os.environ.get("RFF_STREAM_DATA", ROOT.parent / "shared" / "data"))

# Here and in the processes that tests start: without compiled modules each compiles them anew,
# half a CPU second each, and every run of pytest rewrites all assertions (16 CPU seconds).
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Folders of tests are in memory where it has room: on an ext4 disk to remove one took 3 ms, here
# .05 ms, and test_every_container alone makes 5,000. The faults are met on a disk.
MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30
has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM
if has_room and "--faults" not in sys.argv:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Neither ~/.config/dask nor DASK_… variables shape a test; a Client still takes over as usual.
dask.config.refresh(paths=[], env={})
dask.config.set(scheduler="threads")

# A deadline would measure the machine; CI must not fail on an example that no one can see again.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from what modules make: it is a twelfth of the CPU seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def ctrl_c_interrupts() -> None:
    """Ctrl-C raises, here and in what a test starts.

    A shell that starts tests with & ignores it; importing dask_jobqueue makes it exit.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def kernels_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels by name are those of modules, whatever an example or another test has defined."""
    classes = {
        path: cls
        for path, cls in KERNELS._classes.items()
        if getattr(sys.modules.get(cls.__module__), cls.__name__, None) is cls
    }
    monkeypatch.setattr(KERNELS, "_classes", classes)
    KERNELS.forget_names()


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power; who asks for a descriptor that is not open is still told."""
    monkeypatch.setattr(os, "fsync", os.fstat)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the test's own name: the same numbers in any order and folder."""
    name = f"tests/{request.node.path.name}::{request.node.nodeid.partition('::')[2]}"
    return np.random.default_rng(zlib.crc32(name.encode()))


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Path of a real data set by file name, or a skip that says where it was looked for."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"No {name} in {DATA}; RFF_STREAM_DATA names the folder of the data sets.")
        return path

    return find


@pytest.fixture
def quiet() -> Iterator[None]:
    """No word on how much so few columns resolve."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        yield


@pytest.fixture
def one_blas_thread() -> Iterator[None]:
    """What the pass sets: with more threads, BLAS cuts its products elsewhere."""
    with threadpoolctl.threadpool_limits(1, "blas"):
        yield


@pytest.fixture
def segments_kept() -> Iterator[None]:
    """Every finished segment is written to the checkpoint."""
    with dask.config.set({"rff-stream.checkpoint-seconds": 0, "num_workers": 1}):
        yield


@pytest.fixture
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves of 1,000 rows, so that small data have many."""
    monkeypatch.setattr(leaf_layout, "LEAF_ROWS", 1000)
    monkeypatch.setattr(leaf_layout, "LEAF_SECONDS", 0.0)
    monkeypatch.setattr(leaf_layout, "DECODE_AGAIN", 1e9)


@pytest.fixture
def leaves(monkeypatch: pytest.MonkeyPatch) -> Leaves:
    """Counts the leaves that add up one kind of statistic; stops a pass at the n-th."""
    original = leaf_module.Job.run

    def stop_at(kind: type, n: int) -> list[int]:
        run: list[int] = []

        def counted(self: Any, leaf: Any, *values: Any) -> Any:
            if isinstance(innermost(self.statistic), kind):
                run.append(leaf.start)
                if len(run) == n:
                    raise Stopped
            return original(self, leaf, *values)

        monkeypatch.setattr(leaf_module.Job, "run", counted)
        return run

    return stop_at
