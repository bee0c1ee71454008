"""The sbatch file on a SLURM of this machine: Debian's packages, started on loopback.

``make slurm-test`` runs it, as root, after ``apt-get install slurmctld slurmd slurm-client munge``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT, end, listening, until
from test_deployments_processes import (
    BINARIES,
    FOLDER,
    WORDS,
    coefficients,
    data,
    environment,
    expected,
    free_port,
)

__all__ = ["data", "expected"]

pytestmark = [pytest.mark.slurm, pytest.mark.cluster]

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
SIZE = ["--nodes=1", "--ntasks=4", "--cpus-per-task=1", "--mem-per-cpu=2G", "--time=00:10:00"]

CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/node.log
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=20
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a person who works on this cluster."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed: apt-get install slurmctld slurmd munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd starts jobs as their users, which takes root.")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(64))
    (folder / "key").chmod(0o400)
    ports = {"controller": free_port(), "node": free_port()}
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, **ports))
    known = environment(None) | {"SLURM_CONF": str(folder / "slurm.conf")}
    munge = ["munged", "--foreground", "--force", f"--key-file={folder}/key"]
    for name in ("socket", "pid-file", "log-file", "seed-file"):
        munge.append(f"--{name}={folder}/munge.{name.partition('-')[0]}")
    lines = [munge, ["slurmctld", "-D", "-i"], ["slurmd", "-D", "-N", host]]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        for line in lines:
            process = subprocess.Popen(line, env=known, stdout=log, stderr=log)
            stack.callback(end, process)
            time.sleep(1)
            assert process.poll() is None, (folder / "log").read_text()
        until(lambda: "idle" in said("sinfo", "--noheader", "--format=%T", env=known), "node")
        yield known


def said(*words: str, env: dict[str, str]) -> str:
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60).stdout


def submitted(slurm: dict[str, str], folder: Path, *words: Any) -> tuple[str, Path]:
    """Number and log of a job of the sbatch file."""
    own = {
        "RFF_REPOSITORY": str(ROOT),
        "RFF_ENVIRONMENT": str(BINARIES.parent),
        "RFF_FOLDER": str(folder / "own"),
        "RFF_INTERFACE": "lo",
    }
    log = folder / "job.log"
    command = ["sbatch", "--parsable", *SIZE, f"--output={log}", f"--export={','.join(own)}"]
    done = subprocess.run(
        [*command, FOLDER / "slurm" / "fit.sbatch", *map(str, words)],
        env=slurm | own,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), log


def state(slurm: dict[str, str], job: str) -> dict[str, str]:
    text = said("scontrol", "show", "job", job, env=slurm)
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def ended(slurm: dict[str, str], job: str) -> dict[str, str]:
    over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
    until(lambda: state(slurm, job).get("JobState") in over, "end of the job", 200)
    return state(slurm, job)


def test_the_sbatch_file_fits(
    slurm: dict[str, str], data: Path, expected: bytes, tmp_path: Path
) -> None:
    model = tmp_path / "m.zarr"
    job, log = submitted(slurm, tmp_path, "fit", data, *WORDS, "--model", model)
    found = ended(slurm, job)
    assert (found["JobState"], found["ExitCode"]) == ("COMPLETED", "0:0"), log.read_text()
    assert coefficients(model) == expected
    assert "PRIVATE" not in log.read_text()
    assert not list((tmp_path / "own").iterdir())


def test_a_cancelled_job_leaves_nothing(slurm: dict[str, str], data: Path, tmp_path: Path) -> None:
    words = ["fit", data, "--inputs", "a,b", "--target", "t", "--n-components", "4096"]
    job, log = submitted(slurm, tmp_path, *words, "--model", tmp_path / "m.zarr")
    until(lambda: log.exists() and "2 of 2 workers" in log.read_text(), "workers")
    processes = [int(pid.name) for pid in Path("/proc").iterdir() if pid.name.isdigit()]
    mine = [
        pid for pid in processes if tmp_path.name in words_of(pid) or "runner.py" in words_of(pid)
    ]
    assert mine
    assert {address for address, _ in listening(mine)} <= {"127.0.0.1"}
    time.sleep(4)
    said("scancel", job, env=slurm)
    assert ended(slurm, job)["JobState"] == "CANCELLED"
    until(lambda: not any("runner.py" in words_of(pid) for pid in mine), "end of the tasks")
    assert "stopped by SIGTERM" in log.read_text()
    assert not (tmp_path / "m.zarr").exists()


def words_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
