"""A system without POSIX files: everything but a local store works, and that is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

ELSEWHERE = """
import os, sys
import numpy as np, fsspec, scipy.linalg, sklearn.base, zarr, dask, xarray, concurrent.futures
sys.modules["fcntl"] = sys.modules["resource"] = None
absent = "O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_CLOEXEC sysconf sched_getaffinity"
for name in absent.split():
    delattr(os, name)
import rff_stream as rs
x = np.linspace(0, 6, 300)[:, None]
model = rs.KernelRidge(n_components=32, random_state=0, progress=False).fit(x, np.sin(x[:, 0]))
assert model.score(x, np.sin(x[:, 0])) > 0.99
model.save("memory://m.zarr", moments=True)
assert rs.load("memory://m.zarr").n_rows_ == 300
for act in (lambda: model.save("m.zarr"), lambda: rs.load("m.zarr")):
    try:
        act()
    except rs.errors.ModelError as error:
        print(error)
"""


@pytest.mark.slow
def test_only_local_stores_need_posix(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("POSIX" in line and "object store" in line for line in lines)
    assert all(str(tmp_path / "m.zarr") in line for line in lines)
