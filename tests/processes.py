"""Schedulers and workers as real processes on loopback, for tests that kill them.

Ports are chosen by the system, every wait is bounded, and what was started is ended by its own
process id.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from places import ROOT

BOUND = 120.0  # seconds that anything here may take on a busy machine


def until(condition: Callable[[], bool], what: str, seconds: float = BOUND) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"No {what} after {seconds:.0f} s."
        time.sleep(0.05)


PRODUCTS = """
import numpy as np
rng = np.random.default_rng(0)
for d in (1, 3, 33, 400):
    for r in (2, 255, 510, 1026):
        for order in "CF":
            for dtype in ("float32", "float64"):
                A = rng.normal(size=(128, d)).astype(dtype)
                A @ np.asarray(rng.normal(size=(d, r)), dtype, order=order)
np.linalg.qr(rng.normal(size=(400, 400)))
"""


def run_with_blas_core(code: str, core: str) -> None:
    """Run Python code with the BLAS kernels of a CPU; refuses what it fails.

    Skips where NumPy alone does not survive its products with them: some builds of OpenBLAS crash
    on a CPU that is not the one named.
    """
    known = os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
    code_of_numpy = products_with_blas_core(core)
    if code_of_numpy < 0:
        name = signal.Signals(-code_of_numpy).name
        pytest.skip(f"NumPy {np.__version__} alone ends with {name} on the kernels of {core}.")
    subprocess.run([sys.executable, "-c", code], check=True, env=known, timeout=BOUND, cwd=ROOT)


@functools.cache
def products_with_blas_core(core: str) -> int:
    """How a process ends in which NumPy alone multiplies with the BLAS kernels of a CPU."""
    known = os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", PRODUCTS], env=known, timeout=BOUND).returncode


COUNTER = """
from collections import Counter

from distributed import SchedulerPlugin

class Done(SchedulerPlugin):
    name = "done"

    def __init__(self):
        self.counts = Counter()

    def transition(self, key, start, finish, *args, **kwargs):
        self.counts[str(key).partition("-")[0]] += finish == "memory"

async def dask_setup(scheduler):
    scheduler.add_plugin(Done())
"""


class Processes:
    """One scheduler and its workers, each a process of its own."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """Settings are names of Dask's environment without ``DASK_DISTRIBUTED__``."""
        self.folder = folder
        self.settings = {f"DASK_DISTRIBUTED__{name}": text for name, text in settings.items()}
        (folder / "counter.py").write_text(COUNTER)
        preload = str(folder / "counter.py")
        self.scheduler = self._start("scheduler", "--port", "0", "--preload", preload)
        until(lambda: (folder / "scheduler.json").exists(), "scheduler")
        until(lambda: bool((folder / "scheduler.json").read_text()), "address")
        self.address = str(json.loads((folder / "scheduler.json").read_text())["address"])
        self.workers: list[subprocess.Popen[bytes]] = []

    def add_worker(
        self,
        *arguments: str,
        threads: int = 1,
        nanny: bool = False,
        memory: str = "2GiB",
        file_bytes: int | None = None,
        before: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """One more worker; with ``file_bytes`` no file that it writes can be longer.

        ``before`` is a command that starts another one, such as unshare.
        """
        worker = self._start(
            "worker",
            *("--nthreads", str(threads), "--memory-limit", memory),
            "--nanny" if nanny else "--no-nanny",
            *("--local-directory", str(self.folder), "--death-timeout", "20", *arguments),
            file_bytes=file_bytes,
            before=before,
        )
        self.workers.append(worker)
        return worker

    def have(self, count: int, *, threads: int = 1) -> list[subprocess.Popen[bytes]]:
        """So many living workers: some are started, or some are killed."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        for worker in self.workers[count:]:
            kill(worker)
        self.workers = self.workers[:count]
        while len(self.workers) < count:
            self.add_worker(threads=threads)
        return list(self.workers)

    def _start(
        self, what: str, *arguments: str, file_bytes: int | None = None, before: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        here = {name: text for name, text in os.environ.items() if not name.startswith("DASK_")}
        fixed = {"PYTHONPATH": str(ROOT), "DASK_CONFIG": str(self.folder)}
        command = [sys.executable, "-m", "dask", what, "--host", "127.0.0.1"]
        if file_bytes is not None:
            limit = "import resource, runpy, sys; n = int(sys.argv.pop(1)); "
            limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); sys.argv[0] = 'dask'; "
            limit += "runpy.run_module('dask', run_name='__main__')"
            command = [sys.executable, "-c", limit, str(file_bytes), *command[3:]]
        command += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file"]
        command += [str(self.folder / "scheduler.json"), *arguments]
        with (self.folder / f"{what}.log").open("ab") as log:
            known = here | fixed | self.settings
            return subprocess.Popen([*before, *command], stdout=log, stderr=log, env=known)

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            for pid in family(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(10)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)


@contextlib.contextmanager
def connected(processes: Processes, workers: int) -> Iterator[Any]:
    from distributed import Client

    with Client(processes.address, timeout=BOUND) as client:
        until(lambda: len(client.nthreads()) == workers, f"{workers} workers")
        yield client


def done_of(client: Any, kind: str) -> int:
    """Tasks of a kind that workers have finished, those that were lost and done again included."""

    def count(dask_scheduler: Any = None) -> int:
        return int(dask_scheduler.plugins["done"].counts[kind])

    return int(client.run_on_scheduler(count))


def leaves_done(client: Any) -> int:
    return done_of(client, "rff_leaf")


class Meanwhile:
    """Runs something in a thread once a number of leaves is done, while a pass goes on."""

    def __init__(self, client: Any, leaves: int, act: Callable[[], None]) -> None:
        self.before = leaves_done(client)
        self.at = -1
        self.error: BaseException | None = None
        self._client, self._leaves, self._act = client, leaves, act
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            until(lambda: leaves_done(self._client) - self.before >= self._leaves, "leaves")
            self.at = leaves_done(self._client) - self.before
            self._act()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Meanwhile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(BOUND)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


def end(process: subprocess.Popen[Any], seconds: float = 20) -> None:
    """End a process as its system would: asked first, then killed with what it started."""
    left = family(process.pid)
    if process.poll() is None:
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(10)
    if process.stdout is not None:
        process.stdout.close()


def family(pid: int) -> list[int]:
    """A process and all that descend from it; nothing once it is gone."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid] if any(pid in children for children in parents.values()) else []
    for one in found:
        found.extend(parents.get(one, ()))
    return found


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """Addresses and ports of TCP on which processes listen, from the kernel's own tables."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(link))
    found = set()
    for table, kind in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address, _, port = fields[1].partition(":")
                words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
                found.add((socket.inet_ntop(kind, b"".join(words)), int(port, 16)))
    return found
