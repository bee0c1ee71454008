"""One task of a SLURM step: the first is the scheduler, the second the command, others workers.

``srun python runner.py fit DATA …`` runs ``rff-stream fit DATA … --scheduler ADDRESS`` in the
second task; the exit code of the step is that of the command. Certificates and timeouts come from
Dask's configuration (DASK_CONFIG and DASK_… in the environment, see fit.sbatch).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from dask_jobqueue.slurm import SLURMRunner
from distributed import Client, Security
from distributed.core import rpc

COMMAND = 1  # the rank of the task that runs it
NANNY_BYTES = 512 << 20  # of a task's memory: the nanny's own


class Runner(SLURMRunner):  # type: ignore[misc]
    """A runner that ends its scheduler with a certificate in hand."""

    async def before_client_start(self) -> None:
        # The base class would call over TLS without one.
        certificates = Security().get_connection_args("client")
        self.scheduler_comm = rpc(self.scheduler_address, connection_args=certificates)


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


def wait_for_workers(address: str, count: int) -> None:
    """All workers, or those that came within a minute: the others may join later.

    A command that fails at once would leave workers that still look for their scheduler.
    """
    with Client(address) as client, contextlib.suppress(TimeoutError):
        client.wait_for_workers(count, timeout=60)


def run(arguments: list[str], address: str) -> int:
    """The exit code of the command; SIGTERM reaches it, so that it cancels its work."""
    command = subprocess.Popen(["rff-stream", *arguments, "--scheduler", address])

    def stop(number: int, frame: FrameType | None) -> None:
        command.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    code = command.wait()
    return code if code >= 0 else 128 - code  # as a shell says that a signal ended it


def main() -> int:
    """One task, from start to end."""
    os.umask(0o077)  # the scheduler's file, too, is nobody else's
    mine = int(os.environ["SLURM_PROCID"])
    if mine != COMMAND:
        # SLURM warns all tasks at once, and the command needs a scheduler to cancel its work.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    network = {
        "interface": os.environ.get("RFF_INTERFACE"),
        "protocol": "tls://",
        "dashboard_address": "127.0.0.1:0",  # it has no login
    }
    try:
        with Runner(
            scheduler_file=str(Path(os.environ["RFF_FOLDER"]) / "scheduler-{job_id}.json"),
            scheduler_options={**network, "port": 0},
            worker_class="distributed.Nanny",  # replaces a worker that dies
            worker_options={**network, **worker_options()},
        ) as runner:
            wait_for_workers(runner.scheduler_address, runner.n_workers)
            return run(sys.argv[1:], runner.scheduler_address)
    except KeyboardInterrupt:  # how the runner ends scheduler and workers
        return 0


if __name__ == "__main__":
    sys.exit(main())
