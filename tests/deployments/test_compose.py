"""The compose file on a container engine of this machine, from up to down.

``make compose-test`` runs it with the image that RFF_STREAM_IMAGE names: deployments/Dockerfile
has to be built before.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_deployments_processes import FOLDER, WORDS, coefficients, large, made

from places import ROOT
from processes import until

__all__ = ["large"]

pytestmark = [pytest.mark.compose, pytest.mark.cluster]

IMAGE = os.environ.get("RFF_STREAM_IMAGE", "")
USER = os.geteuid() or 10001  # containers are never root, whoever runs the tests
FIT = ["rff-stream", "fit", "/data/large.zarr", *WORDS, "--n-components", "1024"]
THERE = ["--scheduler", "tls://scheduler:8786"]


class Compose:
    """docker compose with the very file, on folders of a test, as a project of its own."""

    def __init__(self, name: str, folder: Path, data: Path, certificates: Path) -> None:
        self.models = folder / "models"
        self.models.mkdir()
        data.chmod(0o755)
        for path in (self.models, certificates, *certificates.iterdir()):
            shutil.chown(path, USER)
        services = ("scheduler", "worker", "job")
        image = folder / "image.yaml"
        image.write_text(yaml.safe_dump({"services": {one: {"image": IMAGE} for one in services}}))
        self._command = ["docker", "compose", "--project-name", name, "--file"]
        self._command += [str(FOLDER / "compose" / "compose.yaml"), "--file", str(image)]
        self._environment = os.environ | {
            "RFF_UID": str(USER),
            "RFF_GID": str(USER),
            "RFF_DATA": str(data),
            "RFF_MODELS": str(self.models),
            "RFF_CERTS": str(certificates),
            "RFF_WORKERS": "2",
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *words],
            env=self._environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *words: str, expected: int = 0) -> str:
        """What a command prints; it must end as it should, and soon."""
        process = self.start(*words)
        try:
            said, _ = process.communicate(timeout=200)
        finally:
            process.kill()
        assert process.returncode == expected, said
        return said

    def job(self, *words: str, expected: int = 0) -> str:
        return self("run", "--rm", "job", *words, expected=expected)

    def killed_in_mid_fit(self, model: str, service: str) -> tuple[int, str]:
        """How a fit ends and what it says when all processes of a container are killed under it."""
        often = ["--env", "DASK_RFF_STREAM__CHECKPOINT_SECONDS=0"]
        line = ["run", "--rm", *often, "job", *FIT, "--model", f"/models/{model}", *THERE]
        before = self.restarts()
        process = self.start(*line)
        try:
            kept = self.models / f"{model}.checkpoint" / "log"
            until((kept / f"{1:020}" / "zarr.json").exists, "finished node")
            # All but docker-init, which ends then and may take this command along.
            self.start("exec", service, "bash", "-c", "kill -9 -1").communicate(timeout=60)
            assert process.poll() is None, "it died in mid-fit"
            said, _ = process.communicate(timeout=200)
        finally:
            process.kill()
        assert sum(self.restarts().values()) > sum(before.values()), "restart: always"
        return process.returncode, said

    def containers(self) -> list[dict[str, Any]]:
        names = self("ps", "--all", "--quiet").split()
        words = ["docker", "inspect", *names]
        found = subprocess.run(words, capture_output=True, check=True, timeout=60).stdout
        return list(json.loads(found))

    def restarts(self) -> dict[str, int]:
        return {one["Name"]: one["RestartCount"] for one in self.containers()}

    def down(self) -> None:
        self("down", "--remove-orphans", "--timeout", "10")


def refused(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, timeout=60).returncode != 0


@pytest.fixture(scope="module")
def engine() -> None:
    if not IMAGE:
        pytest.skip("RFF_STREAM_IMAGE names no image of deployments/Dockerfile.")
    if shutil.which("docker") is None or refused("docker", "compose", "version"):
        pytest.skip("docker with Compose 2.24 or newer is not installed.")
    if refused("docker", "info"):
        pytest.skip("No container engine answers to docker info.")


@pytest.fixture(scope="module")
def cluster(
    engine: None, large: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Compose]:
    folder = tmp_path_factory.mktemp("compose")
    found = Compose("rff-stream-test", folder, large.parent, made(folder / "certificates"))
    try:
        found("up", "--detach", "--wait")
        yield found
    finally:
        found.down()


@pytest.fixture(scope="module")
def expected(cluster: Compose) -> bytes:
    """Coefficients of a fit that nothing disturbs."""
    cluster.job(*FIT, "--model", "/models/whole.zarr", *THERE)
    return coefficients(cluster.models / "whole.zarr")


def test_containers_are_healthy_locked_down_and_publish_nothing(cluster: Compose) -> None:
    found = cluster.containers()
    assert len(found) == 3
    for one in found:
        assert one["State"]["Health"]["Status"] == "healthy"
        assert one["Config"]["User"] == f"{USER}:{USER}"
        assert one["HostConfig"]["ReadonlyRootfs"]
        assert not any(one["NetworkSettings"]["Ports"].values())
        assert not one["HostConfig"]["PortBindings"]
    status = cluster("exec", "worker", "cat", "/proc/1/status").split()
    assert int(status[status.index("CapBnd:") + 1], 16) == 0
    assert status[status.index("NoNewPrivs:") + 1] == "1"
    out = "import socket; socket.create_connection(('192.0.2.1', 443), 5)"
    assert "Network is unreachable" in cluster.job("python", "-c", out, expected=1)


def test_who_speaks_plain_tcp_is_refused(cluster: Compose) -> None:
    line = "from distributed import Client; Client('tcp://scheduler:8786', timeout=10)"
    plain = ["run", "--rm", "--env", "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=False", "job"]
    assert "CommClosedError" in cluster(*plain, "python", "-c", line, expected=1)


def test_counters_of_the_scheduler_can_be_read(cluster: Compose) -> None:
    line = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8787/metrics').read())"
    assert "dask_scheduler_workers" in cluster("exec", "scheduler", "python", "-c", line)


def test_workers_write_predictions(cluster: Compose, expected: bytes) -> None:
    line = ["rff-stream", "predict", "/models/whole.zarr", "/data/large.zarr", "--output"]
    cluster.job(*line, "/models/there.zarr", *THERE)
    cluster.job(*line, "/models/here.zarr")
    here, there = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (cluster.models / "here.zarr", cluster.models / "there.zarr")
    )
    assert here == there


def test_a_worker_killed_in_mid_fit_comes_back_and_changes_no_bit(
    cluster: Compose, expected: bytes
) -> None:
    code, said = cluster.killed_in_mid_fit("worker.zarr", "worker")
    assert code == 0, said
    assert coefficients(cluster.models / "worker.zarr") == expected


def test_a_fit_goes_on_after_the_scheduler_came_back(cluster: Compose, expected: bytes) -> None:
    code, said = cluster.killed_in_mid_fit("scheduler.zarr", "scheduler")
    assert code == 1, said
    assert "run the fit again" in said
    assert "Traceback" not in said
    again = cluster.job(*FIT, "--model", "/models/scheduler.zarr", *THERE)
    assert "resuming from a checkpoint of" in again
    assert coefficients(cluster.models / "scheduler.zarr") == expected
    assert not (cluster.models / "scheduler.zarr.checkpoint").exists()


def test_keys_are_neither_in_logs_nor_in_models(cluster: Compose, expected: bytes) -> None:
    folder = cluster.models.parent / "certificates"
    keys = ["".join(key.read_text().split()[4:-4]) for key in folder.glob("*-key.pem")]
    assert min(map(len, keys)) > 100
    texts = [cluster("logs", "--no-log-prefix"), json.dumps(cluster.containers())]
    texts += [path.read_text("latin-1") for path in cluster.models.rglob("*") if path.is_file()]
    assert not any(key in "".join(text.split()) for key in keys for text in texts)


def test_workers_that_cannot_join_are_no_cluster(engine: None, large: Path, tmp_path: Path) -> None:
    """They die and are started again for ever, which up --wait must not take for running."""
    ours, theirs = made(tmp_path / "ours"), made(tmp_path / "theirs")
    for name in ("worker.pem", "worker-key.pem"):
        (theirs / name).replace(ours / name)
    found = Compose("rff-stream-test-strangers", tmp_path, large.parent, ours)
    try:
        assert "unhealthy" in found("up", "--detach", "--wait", expected=1)
    finally:
        found.down()
