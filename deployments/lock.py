"""Write requirements.lock and build.lock: the versions and hashes that the image installs.

``python deployments/lock.py`` asks the package index that pip is configured for; Python 3.13 on
x86_64 and aarch64, wheels only. Look at the difference before it is committed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PYTHON = "3.13"
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux_2_12")
MACHINES = ("x86_64", "aarch64")
EXTRAS = ("dataframe", "netcdf", "s3")
DASHBOARD = "bokeh>=3.1"  # the floor of distributed's dashboard
METRICS = "prometheus_client>=0.6"  # without it /metrics of dask.yaml is an empty page


def wheels(requirements: list[str], machine: str) -> list[tuple[str, str, str]]:
    """Name, version and sha256 of everything that pip would install on such a machine."""
    platforms = [word for glibc in GLIBC for word in ("--platform", f"{glibc}_{machine}")]
    with tempfile.TemporaryDirectory() as target:
        report = Path(target) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        pip += ["--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
        pip += [*platforms, "--target", target, "--report", str(report)]
        subprocess.run([*pip, *requirements], check=True)
        found = json.loads(report.read_text())["install"]
    return [
        (
            item["metadata"]["name"].lower().replace("_", "-"),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in found
    ]


def lock(name: str, requirements: list[str]) -> None:
    """One line a package, with a hash for every machine."""
    hashes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for machine in MACHINES:
        for package, version, digest in wheels(requirements, machine):
            if digest not in hashes[package, version]:
                hashes[package, version].append(digest)
    lines = ["# Written by python deployments/lock.py; wheels of Python 3.13 on Linux."]
    for (package, version), digests in sorted(hashes.items()):
        words = [f"{package}=={version}", *(f"--hash=sha256:{digest}" for digest in digests)]
        lines.append(" \\\n    ".join(words))
    (FOLDER / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    needs = project["project"]["dependencies"] + [need for name in EXTRAS for need in extras[name]]
    lock("requirements.lock", [*needs, DASHBOARD, METRICS])
    lock("build.lock", project["build-system"]["requires"])
