"""Every notebook runs from start to end in time and memory; its last cell asserts its claim.

The last cell also prints the answer to the question of the first, with figures of this run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from places import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
SECONDS, BYTES = 90, 2 << 30
"""Promised on two cores; a busy machine may take longer, so CPU seconds are what is held."""

RUN = """
import os, resource, runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
own = resource.getrusage(resource.RUSAGE_SELF)
used = own.ru_utime + own.ru_stime
from rff_stream.process_memory import peak_bytes
print("measured", used, peak_bytes())
"""


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path, shared_data: Callable[[str], Path]) -> None:
    env = os.environ | {"MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)}
    if "RFF_STREAM_DATA" in path.read_text(encoding="utf-8"):
        env["RFF_STREAM_DATA"] = str(shared_data("air_temperature.zarr").parent.resolve())
    started = time.monotonic()
    found = subprocess.run(
        [sys.executable, "-c", RUN, path],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env=env,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    seconds, peak = map(float, found.stdout.splitlines()[-1].split()[1:])
    wall = time.monotonic() - started
    assert seconds < 2 * SECONDS, f"{seconds:.0f} CPU s, {wall:.0f} s"
    assert peak < BYTES, f"{peak / 2**20:.0f} MiB"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_a_claim_and_ends_by_asserting_it(path: Path) -> None:
    cells = path.read_text(encoding="utf-8").split("# %%")
    assert "**Question.**" in cells[1] and "**Claim.**" in cells[1]
    assert "assert " in cells[-1]
    answer = cells[-1].partition('"Answer: ')[2]
    assert re.search(r"\{[^{}]+:[^{}]*\d[^{}]*[fe%]\}", answer), "an answer with computed figures"
