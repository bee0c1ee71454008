"""Deployments: scripts that start what they say, on loopback only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "deployments"
SCRIPT = FOLDER / "local" / "cluster.sh"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.sh")), ids=lambda path: path.name)
def test_shell_scripts_parse(path: Path) -> None:
    assert subprocess.run(["bash", "-n", path]).returncode == 0


@pytest.mark.parametrize(
    "path", sorted(FOLDER.rglob("*")), ids=lambda p: str(p.relative_to(FOLDER))
)
def test_nothing_listens_beyond_loopback(path: Path) -> None:
    if path.is_file():
        text = path.read_text()
        assert "0.0.0.0:" not in text
        assert "--no-dashboard" not in text.replace("# --no-dashboard", "")


@pytest.mark.cluster
def test_the_local_cluster_comes_up_and_goes_down(tmp_path: Path) -> None:
    from distributed import Client

    folder = tmp_path / "cluster"
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"CLUSTER_FOLDER": str(folder), "PATH": binaries}
    with (tmp_path / "out").open("w") as out:
        up = [SCRIPT, "up", "1", "1GiB"]
        subprocess.run(up, env=environment, stdout=out, check=True, timeout=90)
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    try:
        address = (folder / "address").read_text().strip()
        assert address.startswith("tcp://127.0.0.1:")
        with Client(address, timeout=60) as client:
            client.wait_for_workers(1, timeout=90)
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    finally:
        subprocess.run([SCRIPT, "down"], env=environment, check=True, timeout=60)
    assert not folder.exists()
    assert len(pids) == 2
