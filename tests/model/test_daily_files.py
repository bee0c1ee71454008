"""A model over 30 daily files: the script of the guide, and the same in Python."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import rff_stream as rs
from growing import table, write
from places import ROOT
from rff_stream.model import update
from rff_stream.store import MomentStore

PAGE = ROOT / "docs" / "howto" / "daily.md"
ROWS, BROKEN = 120, 12


def arrives(folder: Path, day: int, *, broken: bool = False) -> None:
    """The file of a day, complete at once."""
    write(folder / "new.parquet", table(day, ROWS, 8.0 if broken else 0.0))
    (folder / "new.parquet").rename(folder / "days" / f"{day:02}.parquet")


def is_of(model: Any, *numbers: int) -> None:
    """A model equals a fit of exactly these days, with its map and origins."""
    rows = pd.concat([table(day, ROWS) for day in numbers])
    inputs = list(model.columns_.inputs)
    moments = rs.collect(
        model.features_, rows, "t", inputs=inputs, row=model.moments_.row, sums="float64",
        progress=False,
    )  # fmt: skip
    other = clone(model).fit_moments(model.features_, moments)
    assert model.n_rows_ == len(rows)
    np.testing.assert_allclose(model.predict(rows), other.predict(rows), rtol=0, atol=1e-10)


def counted(store: Path) -> Counter[str]:
    """How often each content of each file was committed."""
    entries = MomentStore.open(store).history()
    return Counter(entry.id for entry in entries if entry.op in ("create", "add"))  # type: ignore[misc]


def program(folder: Path) -> dict[str, str]:
    """An environment in which ``rff-stream`` is this package."""
    own = folder / "bin"
    own.mkdir()
    (own / "rff-stream").write_text(f"#!/bin/sh\nexec '{sys.executable}' -m rff_stream \"$@\"\n")
    (own / "rff-stream").chmod(0o755)
    return {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ['PATH']}"}


def test_the_script_has_twelve_lines() -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    lines = script.strip().replace("\\\n", "").splitlines()  # long ones are continued
    assert len(lines) <= 13, "twelve, and the line that names the shell"


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="a script of the POSIX shell")
def test_the_script_keeps_a_model_over_thirty_days(tmp_path: Path) -> None:
    """A broken day, a mended one, a file twice, and a kill −9 in between."""
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "daily.sh").write_text(script)
    for name in ("days", "broken"):
        (tmp_path / name).mkdir()
    write(tmp_path / "tomorrow.parquet", table(99, 50))
    environment = program(tmp_path)

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "daily.sh"], cwd=tmp_path, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run() -> str:
        done = start()
        said = done.communicate(timeout=280)[0]
        assert done.returncode == 0, said
        return said

    for day in range(1, 8):
        arrives(tmp_path, day)
    run()
    for day in range(8, 12):
        arrives(tmp_path, day)
    arrives(tmp_path, BROKEN, broken=True)
    assert re.search(r"12\.parquet .*mean of [uv]", run())
    assert [path.name for path in (tmp_path / "broken").iterdir()] == ["12.parquet"]
    arrives(tmp_path, BROKEN)
    shutil.copy(tmp_path / "days" / "03.parquet", tmp_path / "days" / "03 again.parquet")
    for day in range(13, 31):
        arrives(tmp_path, day)
    before, killed = len(MomentStore.open(tmp_path / "daily.zarr")), start()
    while killed.poll() is None and len(MomentStore.open(tmp_path / "daily.zarr")) == before:
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert before < len(MomentStore.open(tmp_path / "daily.zarr")) < 30, "killed in between"
    shutil.move(tmp_path / "days" / "03 again.parquet", tmp_path / "days" / "31.parquet")
    run()
    model = rs.load(tmp_path / "daily.zarr")
    is_of(model, *range(1, 31))
    assert set(counted(tmp_path / "daily.zarr").values()) == {1}
    found = pd.read_csv(tmp_path / "tomorrow.csv")
    np.testing.assert_allclose(found["t"], model.predict(table(99, 50)), rtol=1e-6)


@pytest.mark.slow
def test_eighteen_days_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[str] = Counter()
    original = update.read_file

    def read(*given: Any) -> Any:
        reads[given[-1].id] += 1
        return original(*given)

    monkeypatch.setattr(update, "read_file", read)
    folder, place = tmp_path / "days", tmp_path / "daily.zarr"
    folder.mkdir()
    for day in range(1, 8):
        arrives(tmp_path, day)
    model = rs.KernelRidge(n_components=32, sums="float64", random_state=0, progress=False)
    model.fit(folder, "t", inputs=["u", "v"]).save(place, moments=True)
    alarms = []
    for day in [*range(8, 19), BROKEN]:
        arrives(tmp_path, day, broken=day == BROKEN and not alarms)
        if day == 15:
            shutil.copy(folder / "03.parquet", folder / "15 again.parquet")
        model = rs.load(place).set_params(progress=False).update(folder)
        look = model.drift(alarm=0.01)
        if look.alarm:
            alarms.append(look.batch)
            model.forget(look.batch)
    assert alarms == ["12.parquet"]
    is_of(model, *range(1, 19))
    assert set(reads.values()) == {1} and len(reads) == 12
    assert set(counted(place).values()) == {1}
