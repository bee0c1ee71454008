"""The harness of bare calls: known figures of a set, and figures of rivals that are kept."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.accuracy

HARNESS = Path(__file__).with_name("bare.py")


def run(*words: str, data: Path) -> str:
    command = [sys.executable, str(HARNESS), *words]
    environment = os.environ | {"RFF_STREAM_DATA": str(data)}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout


def test_figures_of_rivals_are_known_ones_and_kept(
    shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("lightgbm", reason="one of the rivals")
    data, cache = shared_data("yacht.npz").parent, tmp_path / "rivals.tsv"
    words = ("--sets", "yacht", "--seeds", "0", "--only-rivals", "--cache", str(cache))
    shown = run(*words, data=data)
    with cache.open(newline="") as file:
        lines = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert list(lines) == ["line", "nearest", "lgbm2000"]
    assert float(lines["line"]["rmse"]) == pytest.approx(0.3135, rel=0.01)  # of least squares
    assert run(*words, data=data) == shown
    assert len(cache.read_text().splitlines()) == 1 + len(lines)


def test_a_bare_call_is_measured(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    data, table = shared_data("yacht.npz").parent, tmp_path / "bare.tsv"
    run("--sets", "yacht", "--seeds", "0", "--tsv", str(table), data=data)
    with table.open(newline="") as file:
        (line,) = csv.DictReader(file, delimiter="\t")
    assert 0 < float(line["rmse"]) < 1 and 0 < float(line["cover"]) <= 1
    assert float(line["fit_s"]) > 0 and float(line["peak_mib"]) > 0
