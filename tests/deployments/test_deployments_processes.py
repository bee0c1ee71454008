"""Deployments as processes: the very command lines of the files, over TLS, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_deployments import FOLDER, commands

import rff_stream as rs
from places import ROOT
from processes import end, family, listening, until
from toys import columns_to_zarr

pytestmark = pytest.mark.cluster

PLACES = ["compose", "DaskCluster"]  # a DaskJob has the words of a DaskCluster
BINARIES = Path(sys.executable).parent
WORDS = ["--inputs", "a,b", "--target", "t", "--n-components", "64", "--alpha", "1.0"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("certificates") / "ours")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:

    path = tmp_path_factory.mktemp("data") / "table.zarr"
    a, b = np.random.default_rng(0).standard_normal((2, 100_000))
    return columns_to_zarr(path, {"a": a, "b": b, "t": np.sin(a) + b}, 10_000)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of ten leaves."""

    path = tmp_path_factory.mktemp("data") / "large.zarr"
    a, b = np.random.default_rng(0).standard_normal((2, 650_000), dtype=np.float32)
    return columns_to_zarr(path, {"a": a, "b": b, "t": np.sin(a) + b}, 65_000)


@pytest.fixture(scope="module")
def expected(data: Path) -> bytes:
    """Coefficients of the same command without a scheduler."""
    model = data.parent / "here.zarr"
    subprocess.run(rff_stream("fit", data, *WORDS, "--model", model), check=True, timeout=120)
    return coefficients(model)


def coefficients(model: Path) -> bytes:
    found: bytes = rs.load(model).coef_.tobytes()
    return found


def made(folder: Path) -> Path:
    subprocess.run([FOLDER / "make_certs.sh", folder], check=True, capture_output=True)
    return folder


def rff_stream(*words: object) -> list[str]:
    return [sys.executable, "-m", "rff_stream", *map(str, words)]


def environment(certificates: Path | None, role: str = "client", **more: str) -> dict[str, str]:
    """What a container finds: dask.yaml, and the certificate of its role; or none."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("DASK_")}
    found = plain | {"PYTHONPATH": str(ROOT), "PATH": f"{BINARIES}{os.pathsep}{os.environ['PATH']}"}
    if certificates is None:
        return found | more
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    found |= {"DASK_CONFIG": str(FOLDER / "dask.yaml"), f"{tls}CA_FILE": f"{certificates}/ca.pem"}
    for name in ("SCHEDULER", "WORKER", "CLIENT"):
        found[f"{tls}{name}__CERT"] = f"{certificates}/{role}.pem"
        found[f"{tls}{name}__KEY"] = f"{certificates}/{role}-key.pem"
    return found | more


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Cluster:
    """The scheduler and the worker of a deployment's files, with free ports and ``lo`` for eth0."""

    def __init__(self, place: str, certificates: Path, folder: Path) -> None:
        lines = {words[1]: words for name, words in commands() if name.split()[0] == place}
        ports = {name: free_port() for name in ("8786", "8787", "8788", "8789")}
        self.address = f"tls://127.0.0.1:{ports['8786']}"
        self.http = f"http://127.0.0.1:{ports['8787']}"
        there = {
            "tls://scheduler:8786": self.address,
            "$(DASK_SCHEDULER_ADDRESS)": self.address,
            "--name=$(DASK_WORKER_NAME)": "--name=one",
            "--interface=eth0": "--interface=lo",
            "--host=$(POD_IP)": "--host=127.0.0.1",
            "--memory-limit=${RFF_MEMORY:-4GiB}": "--memory-limit=4GiB",
            "--local-directory=/tmp": f"--local-directory={folder}",
        }
        self.processes = []
        for role in ("scheduler", "worker"):
            words = [there.get(word, word) for word in lines[role]]
            words = [re.sub(r"\b878\d\b", lambda found: str(ports[found[0]]), w) for w in words]
            assert not any("$" in word for word in words), words
            with (folder / f"{role}.log").open("wb") as log:
                known = environment(certificates, role)
                command = [sys.executable, "-m", *words]
                started = subprocess.Popen(command, stdout=log, stderr=log, env=known)
                self.processes.append(started)
        self.logs = [folder / f"{role}.log" for role in ("scheduler", "worker")]
        until(lambda: "Registered to" in self.logs[1].read_text(), "worker")

    def stop(self) -> None:
        for process in reversed(self.processes):
            end(process)


@pytest.fixture(scope="module", params=PLACES)
def cluster(
    request: pytest.FixtureRequest, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    found = Cluster(request.param, certificates, tmp_path_factory.mktemp("cluster"))
    yield found
    found.stop()


def test_a_fit_over_tls_has_the_bits_of_threads(
    cluster: Cluster, certificates: Path, data: Path, expected: bytes, tmp_path: Path
) -> None:
    model = tmp_path / "there.zarr"
    words = rff_stream("fit", data, *WORDS, "--model", model, "--scheduler", cluster.address)
    done = subprocess.run(words, env=environment(certificates), capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert coefficients(model) == expected


def test_nothing_listens_beyond_loopback(cluster: Cluster) -> None:
    for process in cluster.processes:
        found = listening(family(process.pid))
        assert found
        assert {address for address, _ in found} == {"127.0.0.1"}


@pytest.mark.parametrize("who", ["plain", "stranger", "nobody"])
def test_who_shows_no_certificate_of_this_cluster_is_refused(
    cluster: Cluster, data: Path, tmp_path: Path, who: str
) -> None:
    address = cluster.address
    if who == "plain":
        known, address = environment(None), address.replace("tls://", "tcp://")
    elif who == "stranger":
        known = environment(made(tmp_path / "theirs"))
    else:
        known = environment(None)
    known["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "3s"
    model = tmp_path / "M.zarr"
    words = rff_stream("fit", data, *WORDS, "--model", model, "--scheduler", address)
    done = subprocess.run(words, env=known, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "No Dask scheduler answered" in done.stderr


def test_a_client_with_certificates_does_not_fall_back_to_plain_tcp(
    cluster: Cluster, certificates: Path, data: Path
) -> None:
    address = cluster.address.replace("tls://", "tcp://")
    words = rff_stream("fit", data, *WORDS, "--scheduler", address)
    known = environment(certificates)
    done = subprocess.run(words, env=known, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "encryption" in done.stderr


def test_a_worker_without_a_certificate_of_this_cluster_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    known = environment(made(tmp_path / "theirs"), "worker")
    words = ["dask", "worker", cluster.address, "--no-nanny", "--host", "127.0.0.1"]
    words += ["--dashboard-address", "127.0.0.1:0", "--death-timeout", "5"]
    done = subprocess.run(
        [sys.executable, "-m", *words], env=known, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "Registered to" not in done.stderr


def test_the_http_server_answers_probes_and_no_more(cluster: Cluster) -> None:
    def status(path: str) -> int:
        try:
            with urllib.request.urlopen(cluster.http + path, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert status("/health") == status("/metrics") == 200
    for path in ("/proxy/22/127.0.0.1/", "/json/counts.json", "/api/v1/retire_workers"):
        assert status(path) in {403, 404, 405}, path


def test_keys_are_in_no_log(cluster: Cluster, certificates: Path) -> None:
    keys = ["".join(key.read_text().split()[4:-4]) for key in certificates.glob("*-key.pem")]
    assert min(map(len, keys)) > 100
    for log in cluster.logs:
        text = "".join(log.read_text().split())
        assert not any(key in text for key in keys)


# --------------------------------------------------------------------------------------- slurm

SRUN = """#!{python}
# Starts the tasks of a step as SLURM does: the same command, ranks in the environment.
import os, signal, subprocess, sys
words = sys.argv[1:]
while words[0].startswith("--"):
    words = words[1:]
started = []
for rank in range(4):
    own = {{"SLURM_PROCID": str(rank), "SLURM_NTASKS": "4"}}
    started.append(subprocess.Popen(words, env=os.environ | own))
def tell(number, frame):
    for task in started:
        task.send_signal(number)
signal.signal(signal.SIGTERM, tell)
sys.exit(max(task.wait() for task in started))
"""

SBATCH = """#!{python}
# Runs the script that it is given, at once, as a job of its own.
import subprocess, sys
log = open("{folder}/job.log", "ab")
job = subprocess.Popen(["bash", sys.argv[-1]], stdout=log, stderr=log, start_new_session=True)
script = open(sys.argv[-1]).read()
import json, time
open("{folder}/job.json", "w").write(json.dumps([job.pid, script]))
time.sleep(0.5)
print("Submitted batch job", job.pid)
"""

SCANCEL = """#!{python}
import os, signal, sys
for job in sys.argv[1:]:
    os.killpg(int(job), signal.SIGTERM)
"""


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """An environment whose srun, sbatch and scancel start processes of this machine."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, text in {"srun": SRUN, "sbatch": SBATCH, "scancel": SCANCEL}.items():
        (binaries / name).write_text(text.format(python=sys.executable, folder=tmp_path))
        (binaries / name).chmod(0o700)
    found = environment(None)
    job = {
        "SLURM_JOB_ID": "17",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_MEM_PER_CPU": "2048",
        "SLURM_SUBMIT_DIR": str(ROOT),
        "RFF_ENVIRONMENT": str(BINARIES.parent),
        "RFF_FOLDER": str(tmp_path / "own"),
        "RFF_INTERFACE": "lo",
        "TMPDIR": str(tmp_path),
    }
    return found | job | {"PATH": f"{binaries}{os.pathsep}{found['PATH']}"}


def job_of(
    words: list[object], known: dict[str, str], seconds: float = 150
) -> subprocess.CompletedProcess[str]:
    """The job's output and exit code; where it takes too long, what it started ends with it."""
    pipe = subprocess.PIPE
    command = list(map(str, words))
    job = subprocess.Popen(
        command, env=known, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        out, error = job.communicate(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
    return subprocess.CompletedProcess(command, job.returncode, out, error)


def test_a_job_that_takes_too_long_takes_all_its_processes_along(
    slurm: dict[str, str], data: Path
) -> None:
    words = ["bash", FOLDER / "slurm" / "fit.sbatch", "fit", data, *WORDS, "--n-components", "4096"]
    with pytest.raises(subprocess.TimeoutExpired):
        job_of(words, slurm, seconds=4)  # scheduler, command and workers are starting
    assert not started_with(f"RFF_FOLDER={slurm['RFF_FOLDER']}")


def started_with(setting: str) -> list[int]:
    """Processes that have a setting in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if setting.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def test_the_sbatch_file_fits_and_ends_with_the_code_of_the_command(
    slurm: dict[str, str], data: Path, expected: bytes, tmp_path: Path
) -> None:
    model = tmp_path / "there.zarr"
    script = ["bash", FOLDER / "slurm" / "fit.sbatch"]
    done = job_of([*script, "fit", data, *WORDS, "--model", model], slurm)
    assert done.returncode == 0, done.stderr
    assert coefficients(model) == expected
    assert "PRIVATE" not in done.stderr + done.stdout
    assert not list((tmp_path / "own").iterdir()), "certificates and addresses go with the job"

    done = job_of([*script, "fit", data.parent / "absent.zarr", *WORDS], slurm)
    assert done.returncode == 2, done.stderr


def test_a_slurm_job_that_had_finished_before_a_node_failed_does_nothing(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "finished-17").touch()
    done = job_of(["bash", FOLDER / "slurm" / "fit.sbatch", "fit", "absent.zarr"], slurm)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "This job had finished before a node failed.\n"
    assert not list((tmp_path / "own").iterdir())


def test_a_slurm_job_that_must_stop_says_so_and_leaves_nothing(
    slurm: dict[str, str], data: Path, tmp_path: Path
) -> None:
    words = ["fit", data, "--inputs", "a,b", "--target", "t", "--n-components", "4096"]
    log = tmp_path / "log"
    with log.open("wb") as out:
        job = subprocess.Popen(
            ["bash", FOLDER / "slurm" / "fit.sbatch", *words, "--model", tmp_path / "m.zarr"],
            env=slurm,
            stdout=out,
            stderr=out,
        )
        try:
            until(lambda: "2 of 2 workers" in log.read_text(), "workers")
            until(lambda: bool(named("rff-stream", job.pid)), "command")
            time.sleep(4)  # past its imports
            (step,) = named("/srun ", job.pid)
            os.kill(step, signal.SIGTERM)
            assert job.wait(90) == 143, log.read_text()
        finally:
            for pid in family(job.pid):
                os.kill(pid, signal.SIGKILL)
            job.wait(30)
    assert not (tmp_path / "m.zarr").exists()


def test_a_slurm_job_that_was_killed_goes_on(
    slurm: dict[str, str], large: Path, tmp_path: Path
) -> None:
    """Preempted without a word, put back into the queue: the rest is read, and no bit differs."""
    words = ["fit", large, *WORDS, "--n-components", "1024", "--model"]
    here, there = tmp_path / "here.zarr", tmp_path / "there.zarr"
    subprocess.run(rff_stream(*words, here), check=True, capture_output=True, timeout=150)
    script = ["bash", FOLDER / "slurm" / "fit.sbatch", *words, there]
    often = slurm | {"DASK_RFF_STREAM__CHECKPOINT_SECONDS": "0"}
    job = subprocess.Popen(script, env=often, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        kept = tmp_path / "there.zarr.checkpoint"
        until((kept / "log" / f"{1:020}" / "zarr.json").exists, "finished node", 120)
        assert job.poll() is None, "it died in mid-fit"
    finally:
        for pid in family(job.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.wait(30)
    assert not there.exists()
    again = job_of(script, slurm)
    assert again.returncode == 0, again.stderr
    assert "resuming from a checkpoint of" in again.stderr
    assert coefficients(there) == coefficients(here)
    assert not kept.exists()


def named(word: str, ancestor: int) -> list[int]:
    """Processes that descend from one, by a word of their command line."""
    found = []
    for pid in family(ancestor):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if word in words and "runner.py" not in words.partition(word)[0]:
                found.append(pid)
    return found


def test_a_cluster_of_slurm_jobs_fits_over_tls(
    slurm: dict[str, str], data: Path, expected: bytes, tmp_path: Path
) -> None:
    pytest.importorskip("dask_jobqueue")
    words = ["--jobs", "1", "--threads", "1", "--memory", "2GB", "--interface", "lo"]
    script = FOLDER / "slurm" / "cluster.py"
    log = (tmp_path / "cluster.log").open("wb")
    cluster = subprocess.Popen(
        [sys.executable, script, *words], env=slurm, stdout=subprocess.PIPE, stderr=log, text=True
    )
    try:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        assert address.startswith("tls://127.0.0.1:"), (tmp_path / "cluster.log").read_text()
        until((tmp_path / "job.json").exists, "job")
        pid, job = json.loads((tmp_path / "job.json").read_text())
        assert "--lifetime 230m --lifetime-stagger 4m" in job
        assert "--dashboard-address 127.0.0.1:0" in job
        assert "#SBATCH --export=NONE" in job
        model = tmp_path / "there.zarr"
        own = environment(tmp_path / "own" / "certs")
        done = subprocess.run(
            rff_stream("fit", data, *WORDS, "--model", model, "--scheduler", address),
            env=own,
            capture_output=True,
            timeout=150,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert coefficients(model) == expected
        for one in (cluster.pid, pid):
            assert {address for address, _ in listening(family(one))} == {"127.0.0.1"}
    finally:
        cluster.send_signal(signal.SIGINT)
        end(cluster)
        log.close()
    until(lambda: not family(pid), "end of the job")
    keys = list((tmp_path / "own").rglob("*-key.pem"))
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o400}
