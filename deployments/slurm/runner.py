"""One task of a SLURM step: the first is the scheduler, the second the command, others workers.

``srun python runner.py fit DATA …`` runs ``rff-stream fit DATA … --scheduler ADDRESS`` in the
second task; the exit code of the step is that of the command. Certificates and timeouts come from
Dask's configuration (DASK_CONFIG and DASK_… in the environment, see fit.sbatch).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from dask_jobqueue.slurm import SLURMRunner
from distributed import Client, Security, Worker, WorkerPlugin
from distributed.core import Status, rpc
from distributed.utils import get_ip, json_load_robust

COMMAND = 1  # the rank of the task that runs it
NANNY_BYTES = 512 << 20  # of a task's memory: the nanny's own


class Runner(SLURMRunner):  # type: ignore[misc]
    """A runner that ends its scheduler with a certificate in hand."""

    async def get_scheduler_address(self) -> str:
        # Another node may see the file before what is written in it.
        address: str = json_load_robust(self.scheduler_file)["address"]
        return address

    async def before_client_start(self) -> None:
        # The base class would call over TLS without one.
        certificates = Security().get_connection_args("client")
        self.scheduler_comm = rpc(self.scheduler_address, connection_args=certificates)


def network() -> dict[str, Any]:
    """Where scheduler and workers listen: on one address of this node, never on all of them."""
    if interface := os.environ.get("RFF_INTERFACE"):
        return {"interface": interface}
    # The network over which SLURM itself started this step: the way to the internet, Dask's own
    # guess, may be another network or none.
    return {"host": get_ip(os.environ["SLURM_LAUNCH_NODE_IPADDR"])}


def worker_options() -> dict[str, Any]:
    """What a worker may use: what SLURM gave to its task."""
    threads = int(os.environ["SLURM_CPUS_PER_TASK"])
    memory = int(os.environ["SLURM_MEM_PER_CPU"]) * threads << 20
    return {
        "nthreads": threads,
        "memory_limit": memory - NANNY_BYTES,
        "local_directory": os.environ.get("SLURM_TMPDIR", os.environ.get("TMPDIR", "/tmp")),
        "death_timeout": 120,
    }


class Quiet(WorkerPlugin):  # type: ignore[misc]
    """Keeps what a closing worker says of the connections that it closes out of the log.

    With every fit that went well those would be pages of tracebacks behind the model's lines.
    """

    def setup(self, worker: Worker) -> None:
        def still_works(record: logging.LogRecord) -> bool:
            return worker.status in {Status.init, Status.running, Status.paused}

        for name in ("distributed", "tornado.application"):
            for handler in logging.getLogger(name).handlers:
                handler.addFilter(still_works)


def wait_for_workers(address: str, count: int) -> None:
    """All workers, or those that came within a minute: the others may join later.

    A command that fails at once would leave workers that still look for their scheduler.
    """
    with Client(address) as client:
        client.register_plugin(Quiet())
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(count, timeout=60)
        here = client.scheduler_info(n_workers=-1)["workers"].values()
        nodes = {worker["host"] for worker in here}
    print(
        f"{len(here)} of {count} workers on {len(nodes)} node(s); scheduler {address}", flush=True
    )


def finished() -> Path:
    """A file that says that the command did all it should: this job must not start it again."""
    return Path(os.environ["RFF_FOLDER"]) / f"finished-{os.environ['SLURM_JOB_ID']}"


def run(arguments: list[str], address: str) -> int:
    """The exit code of the command; SIGTERM reaches it, so that it cancels its work."""
    command = subprocess.Popen(["rff-stream", *arguments, "--scheduler", address])

    def stop(number: int, frame: FrameType | None) -> None:
        command.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    code = command.wait()
    if code == 0:
        finished().touch()
    return code if code >= 0 else 128 - code  # as a shell says that a signal ended it


def main() -> int:
    """One task, from start to end."""
    os.umask(0o077)  # the scheduler's file, too, is nobody else's
    mine = int(os.environ["SLURM_PROCID"])
    if mine != COMMAND:
        # SLURM warns all tasks at once, and the command needs a scheduler to cancel its work.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    common = {
        **network(),
        "protocol": "tls://",
        "dashboard_address": "127.0.0.1:0",  # it has no login
    }
    try:
        with Runner(
            scheduler_file=str(Path(os.environ["RFF_FOLDER"]) / "scheduler-{job_id}.json"),
            scheduler_options={**common, "port": 0},
            worker_class="distributed.Nanny",  # replaces a worker that dies
            worker_options={**common, **worker_options()},
        ) as runner:
            wait_for_workers(runner.scheduler_address, runner.n_workers)
            return run(sys.argv[1:], runner.scheduler_address)
    except KeyboardInterrupt:  # how the runner ends scheduler and workers
        return 0


if __name__ == "__main__":
    sys.exit(main())
