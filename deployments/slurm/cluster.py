"""A cluster on SLURM for notebooks: workers as jobs that come and go, the scheduler where you are.

``python deployments/slurm/cluster.py`` prints the scheduler's address and stays until Ctrl-C; in a
notebook: ``from cluster import cluster`` with this folder on the path.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dask
from dask_jobqueue import SLURMCluster
from distributed import Security, Status
from distributed.utils import get_ip
from tornado.ioloop import PeriodicCallback

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("RFF_FOLDER", Path.home() / ".rff-stream"))


def certificates(folder: Path) -> Security:
    """This user's certificates, made when there are none."""
    if not (folder / "ca.pem").exists():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        subprocess.run([HERE.parent / "make_certs.sh", folder], check=True, stdout=sys.stderr)
    roles = {
        f"tls_{role}_{kind}": str(folder / f"{role}{end}.pem")
        for role in ("scheduler", "worker", "client")
        for kind, end in (("cert", ""), ("key", "-key"))
    }
    return Security(require_encryption=True, tls_ca_file=str(folder / "ca.pem"), **roles)


def configure() -> None:
    """Timeouts and rules of deployments/dask.yaml, here and in the jobs."""
    dask.config.refresh(paths=[*dask.config.paths, str(HERE.parent / "dask.yaml")])
    dask.config.set({"distributed.dashboard.link": "http://127.0.0.1:{port}/status"})


def network(interface: str | None) -> tuple[dict[str, Any], list[str], list[str]]:
    """Where the scheduler listens; words of a worker, and a line of its job, that do the same.

    One address, never all of them; that on the network over which SLURM reaches its nodes: a login
    node has another towards the world, which is Dask's own guess.
    """
    if interface is not None:
        return {}, [], []  # SLURMCluster tells scheduler and workers
    nodes = ["sinfo", "--Node", "--noheader", "--format=%o"]
    said = subprocess.run(nodes, check=True, capture_output=True, text=True)
    host = get_ip(said.stdout.split()[0])
    python = f"from distributed.utils import get_ip; print(get_ip('{host}'))"
    return {"host": host}, ["--host", "$host"], [f'host=$({sys.executable} -c "{python}")']


def keep(found: SLURMCluster) -> None:
    """Start jobs anew that came to their end, so that there are as many as were asked for."""

    def again() -> None:
        if found.status == Status.running:
            found.scale(len(found.worker_spec))

    found.loop.add_callback(PeriodicCallback(again, 30_000).start)


def cluster(
    *,
    jobs: int = 2,
    threads: int = 2,
    memory: str = "8GB",
    walltime: str = "04:00:00",
    interface: str | None = None,
    queue: str | None = None,
    account: str | None = None,
) -> Any:
    """A cluster of so many jobs, each one worker; ``scale(jobs=…)`` changes that.

    A job that comes to its end is followed by another.

    Parameters
    ----------
    jobs, threads, memory
        Workers, and what each has.
    walltime : str
        Of a job, as HH:MM:SS. A worker leaves ten minutes before, or in the middle of less than
        twenty, and hands its moments over.
    interface : str, optional
        The network that all nodes share, as ib0; SLURM's own where absent.
    queue, account : str, optional
        As SLURM wants them.
    """
    configure()
    hours, minutes, _ = (int(part) for part in walltime.split(":"))
    total = 60 * hours + minutes
    lifetime = max(total - 10, total // 2)
    here, there, line = network(interface)
    found = SLURMCluster(
        cores=threads,
        processes=1,
        memory=memory,
        walltime=walltime,
        queue=queue,
        account=account,
        interface=interface,
        protocol="tls://",
        security=certificates(FOLDER / "certs"),
        shared_temp_directory=str(FOLDER),
        log_directory=str(FOLDER / "logs"),
        local_directory=os.environ.get("SLURM_TMPDIR", "/tmp"),
        scheduler_options={"dashboard_address": "127.0.0.1:0", **here},
        worker_extra_args=[
            *("--dashboard-address", "127.0.0.1:0"),
            *("--lifetime", f"{lifetime}m", "--lifetime-stagger", f"{min(4, lifetime // 4)}m"),
            *there,
        ],
        job_script_prologue=[
            "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1",
            f"export DASK_CONFIG={HERE.parent / 'dask.yaml'}",
            *line,
        ],
        job_extra_directives=["--export=NONE"],
    )
    found.scale(jobs=jobs)
    keep(found)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="8GB")
    parser.add_argument("--walltime", default="04:00:00")
    parser.add_argument("--interface")
    parser.add_argument("--queue")
    parser.add_argument("--account")
    with cluster(**vars(parser.parse_args())) as running:
        print(running.scheduler_address, flush=True)
        print(f"dashboard: {running.dashboard_link}", flush=True)
        threading.Event().wait()
