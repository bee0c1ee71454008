"""The sbatch file on a SLURM of this machine: Debian's packages, on loopback and on two nodes.

``make slurm-test`` runs it, as root, after ``apt-get install slurmctld slurmd slurm-client munge``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
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

import network_namespaces as namespaces
from network_namespaces import Machine, address, network
from places import ROOT
from processes import end, family, listening, until

__all__ = ["data", "expected"]

pytestmark = [pytest.mark.slurm, pytest.mark.cluster]

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
SIZE = ("--ntasks=4", "--cpus-per-task=1", "--mem-per-cpu=2G", "--time=00:10:00")
# The scheduler and a worker on the first node, the command and a worker on the second.
TWO_NODES = ("--nodes=2", "--ntasks-per-node=2", "--distribution=cyclic")

CONF = """
ClusterName=one
SlurmctldHost={host}({address})
SlurmctldPort={controller}
SlurmdPort={node}
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=20
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeAddr={address} CPUs=4 RealMemory=16000 State=UNKNOWN\n"
LOOPBACK = "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n"


@dataclass(frozen=True)
class Slurm:
    """A SLURM, from where its users log in."""

    known: dict[str, str]
    login: Machine | None = None

    def said(self, *words: Any, cwd: Path | None = None, **more: str) -> str:
        command = [*("env", f"--chdir={cwd or ROOT}"), *map(str, words)]
        done = subprocess.run(
            command if self.login is None else self.login.inside(*command),
            env=self.known | more,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submitted(self, folder: Path, *words: Any, options: Sequence[str] = ()) -> tuple[str, Path]:
        """Number and log of a job of the sbatch file."""
        own = {
            "RFF_REPOSITORY": str(ROOT),
            "RFF_ENVIRONMENT": str(BINARIES.parent),
            "RFF_FOLDER": str(folder / "own"),
            "RFF_INTERFACE": "lo" if self.login is None else "",
        }
        log = folder / "job.log"
        command = ["sbatch", "--parsable", *SIZE, *(options or ["--nodes=1"])]
        command += [f"--output={log}", f"--export={','.join(own)}"]
        job = self.said(*command, FOLDER / "slurm" / "fit.sbatch", *words, cwd=folder, **own)
        return job.strip(), log

    def state(self, job: str) -> dict[str, str]:
        text = self.said("scontrol", "show", "job", job)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def ended(self, job: str) -> dict[str, str]:
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
        until(lambda: self.state(job).get("JobState") in over, "end of the job", 200)
        return self.state(job)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a SLURM keeps; a test skips where there is none."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed: apt-get install slurmctld slurmd munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd starts jobs as their users, which takes root.")
    return tmp_path_factory.mktemp("slurm")


@pytest.fixture(scope="module")
def slurm(folder: Path) -> Iterator[Slurm]:
    """One node, on loopback."""
    host = socket.gethostname().partition(".")[0]
    place = folder / "one"
    with started(place, {host: "127.0.0.1"}, host, "127.0.0.1", more=LOOPBACK) as found:
        yield found


@pytest.fixture(scope="module")
def two_nodes(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Slurm, dict[str, Machine]]]:
    """A login node and two others, with no /tmp in common."""
    absent = [name for name in namespaces.PROGRAMS if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed: apt-get install iproute2 util-linux")
    shared = [tmp_path_factory.getbasetemp(), ROOT, Path(sys.prefix), BINARIES.parent]
    with contextlib.ExitStack() as stack:
        try:
            several = network(["login", "first", "second"], shared)
            there = stack.enter_context(several)
        except OSError as error:
            pytest.skip(f"No namespaces for machines here: {error}")
        nodes = {name: address(number) for number, name in enumerate(there) if number}
        place = started(folder / "two", nodes, "login", address(0), there=there)
        yield stack.enter_context(place), there


@contextlib.contextmanager
def started(
    folder: Path,
    nodes: dict[str, str],
    host: str,
    address: str,
    *,
    more: str = "",
    there: dict[str, Machine] | None = None,
) -> Iterator[Slurm]:
    (folder / "state").mkdir(parents=True)
    (folder / "key").write_bytes(os.urandom(64))
    (folder / "key").chmod(0o400)
    ports = {"controller": free_port(), "node": free_port()}
    conf = CONF.format(host=host, address=address, folder=folder, **ports) + more
    conf += "".join(NODE.format(name=name, address=where) for name, where in nodes.items())
    (folder / "slurm.conf").write_text(conf)
    for name in nodes:
        (folder / f"spool-{name}").mkdir()
    known = environment(None) | {"SLURM_CONF": str(folder / "slurm.conf")}
    munge = ["munged", "--foreground", "--force", f"--key-file={folder}/key"]
    for name in ("socket", "pid-file", "log-file", "seed-file"):
        munge.append(f"--{name}={folder}/munge.{name.partition('-')[0]}")
    # Machines that share a folder share a socket in it: one munge serves them all.
    lines = [(host, munge), (host, ["slurmctld", "-D", "-i"])]
    lines += [(name, ["slurmd", "-D", "-N", name]) for name in nodes]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        for name, line in lines:
            command = line if there is None else there[name].inside(*line)
            process = subprocess.Popen(command, env=known, stdout=log, stderr=log)
            stack.callback(end, process)
            time.sleep(1)
            assert process.poll() is None, (folder / "log").read_text()
        found = Slurm(known, None if there is None else there[host])
        idle = ("sinfo", "--noheader", "--Node", "--format=%T")
        until(lambda: found.said(*idle).split() == ["idle"] * len(nodes), "nodes")
        yield found


def test_the_sbatch_file_fits(slurm: Slurm, data: Path, expected: bytes, tmp_path: Path) -> None:
    model = tmp_path / "m.zarr"
    job, log = slurm.submitted(tmp_path, "fit", data, *WORDS, "--model", model)
    found = slurm.ended(job)
    assert (found["JobState"], found["ExitCode"]) == ("COMPLETED", "0:0"), log.read_text()
    assert coefficients(model) == expected
    assert "PRIVATE" not in log.read_text()
    assert log.read_text().splitlines()[-1].startswith("saved")
    assert not list((tmp_path / "own").iterdir())


def test_a_cancelled_job_leaves_nothing(slurm: Slurm, data: Path, tmp_path: Path) -> None:
    words = ["fit", data, "--inputs", "a,b", "--target", "t", "--n-components", "4096"]
    job, log = slurm.submitted(tmp_path, *words, "--model", tmp_path / "m.zarr")
    until(lambda: log.exists() and "2 of 2 workers" in log.read_text(), "workers")
    processes = [int(pid.name) for pid in Path("/proc").iterdir() if pid.name.isdigit()]
    mine = [
        pid for pid in processes if tmp_path.name in words_of(pid) or "runner.py" in words_of(pid)
    ]
    assert mine
    assert {address for address, _ in listening(mine)} <= {"127.0.0.1"}
    time.sleep(4)
    slurm.said("scancel", job)
    assert slurm.ended(job)["JobState"] == "CANCELLED"
    until(lambda: not any("runner.py" in words_of(pid) for pid in mine), "end of the tasks")
    assert "stopped by SIGTERM" in log.read_text()
    assert not (tmp_path / "m.zarr").exists()


def test_a_job_on_two_nodes_has_the_bits_of_one_process(
    two_nodes: tuple[Slurm, dict[str, Machine]], data: Path, expected: bytes, tmp_path: Path
) -> None:
    slurm, _ = two_nodes
    model = tmp_path / "m.zarr"
    words = ["fit", data, *WORDS, "--model", model]
    job, log = slurm.submitted(tmp_path, *words, options=TWO_NODES)
    found = slurm.ended(job)
    assert (found["JobState"], found["ExitCode"]) == ("COMPLETED", "0:0"), log.read_text()
    assert found["NodeList"] == "first,second"
    assert "2 of 2 workers on 2 node(s)" in log.read_text()
    assert coefficients(model) == expected
    assert not list((tmp_path / "own").iterdir())


def test_a_job_on_two_nodes_listens_where_slurm_reaches_them(
    two_nodes: tuple[Slurm, dict[str, Machine]], data: Path, tmp_path: Path
) -> None:
    slurm, there = two_nodes
    words = ["fit", data, "--inputs", "a,b", "--target", "t", "--n-components", "4096"]
    words += ["--model", tmp_path / "m.zarr"]
    job, log = slurm.submitted(tmp_path, *words, options=TWO_NODES)
    until(lambda: log.exists() and "2 of 2 workers" in log.read_text(), "workers")
    for number, name in ((1, "first"), (2, "second")):
        lines = there[name].says("ss", "--listening", "--tcp", "--numeric", "--processes")
        ours = [line.split()[3] for line in lines.splitlines() if '"python' in line]
        own = address(number)
        assert {word.rpartition(":")[0] for word in ours} == {"127.0.0.1", own}, lines
    slurm.said("scancel", job)
    assert slurm.ended(job)["JobState"] == "CANCELLED"
    assert not (tmp_path / "m.zarr").exists()


def test_a_cluster_for_notebooks_replaces_jobs_that_end(
    two_nodes: tuple[Slurm, dict[str, Machine]], tmp_path: Path
) -> None:
    slurm, there = two_nodes

    def jobs() -> list[str]:
        return slurm.said("squeue", "--noheader", "--states=RUNNING", "--format=%i").split()

    words = ["--jobs", "1", "--threads", "1", "--memory", "1GB", "--walltime", "00:10:00"]
    cluster = subprocess.Popen(
        there["login"].inside(sys.executable, FOLDER / "slurm" / "cluster.py", *words),
        env=slurm.known | {"RFF_FOLDER": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert cluster.stdout is not None
        assert cluster.stdout.readline().startswith(f"tls://{address(0)}:")
        assert cluster.stdout.readline().startswith("dashboard: http://127.0.0.1:")
        logs = tmp_path / "logs"
        until(lambda: any("Registered to" in log.read_text() for log in logs.glob("*")), "worker")
        (first,) = jobs()
        slurm.said("scancel", first)
        until(lambda: bool(jobs()) and first not in jobs(), "another job")
        os.kill(family(cluster.pid)[-1], signal.SIGINT)
        until(lambda: not jobs(), "end of the jobs")
    finally:
        end(cluster)


def words_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
