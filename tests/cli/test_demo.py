"""The demonstration: a cube whose formula is known, fitted to its noise ceiling."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner, Result

import rff_stream as rs
from rff_stream import process_memory
from rff_stream.cli import main
from rff_stream.cli.demo_figures import Figures
from rff_stream.demo.cube import (
    INPUTS,
    NOISE_VARIANCE,
    TARGET,
    Cube,
    latent_heat_flux,
    saturation_humidity,
    write_cube,
)

TINY = Cube(n_days=10, n_lat=6, n_lon=8)


def demo(*words: object) -> Result:
    return CliRunner().invoke(main, ["demo", *map(str, words)])


@pytest.fixture(autouse=True)
def own_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak of a demo beyond that of this process before: other tests held up to 1 GiB."""
    before = process_memory.peak_bytes()
    monkeypatch.setattr(
        "rff_stream.cli.demo_figures.peak_bytes", lambda: process_memory.peak_bytes() - before
    )


def test_saturation_humidity_is_that_of_the_tables() -> None:
    # 611.2, 2,337 and 7,384 Pa at 0, 20 and 40 °C; Bolton's fit is within 0.3 %.
    pressure = np.array([611.2, 2337.0, 7384.0])
    expected = 0.622 * pressure / (101_325 - 0.378 * pressure)
    found = saturation_humidity(np.array([0.0, 20.0, 40.0]))
    np.testing.assert_allclose(found, expected, rtol=3e-3)


def test_flux_is_that_of_a_calculation_by_hand() -> None:
    # ρ = 101325/(287.05·298.15·1.00912) = 1.17323; L = 2.501e6 − 2370·27 = 2437010;
    # e = 611.2·exp(17.67·27/270.5) = 3565.6, q_s = 0.98·0.0221837 = 0.0217400
    flux = latent_heat_flux(*map(np.array, (8.0, 0.015, 298.15, 300.15)))
    assert float(flux) == pytest.approx(1.17323 * 2437010 * 1.2e-3 * 8 * (0.02174 - 0.015), 1e-3)


def test_the_same_cube_in_blocks_of_any_length() -> None:
    whole = TINY.block(0, 10)
    parts = xr.concat([TINY.block(0, 3), TINY.block(3, 4), TINY.block(4, 10)], "time")
    xr.testing.assert_equal(whole, parts)
    assert not whole.equals(replace(TINY, seed=1).block(0, 10))


def test_the_cube_is_land_sea_and_noise_of_known_variance() -> None:
    cube = Cube(n_days=20)
    data = cube.block(0, 20)
    for name in (*INPUTS, TARGET):
        assert (data[name].isnull() == cube.land.reshape(72, 144)).all()
        assert data[name].attrs.keys() == {"units", "long_name"}
    assert 0.25 < cube.land.mean() < 0.35
    exact = latent_heat_flux(*(data[name].values.astype(np.float64) for name in INPUTS))
    noise = (data[TARGET] - exact).values.ravel()
    noise = noise[np.isfinite(noise)]
    assert len(noise) == cube.n_valid
    error = NOISE_VARIANCE * np.sqrt(2 / len(noise))
    assert abs(np.mean(noise**2) - NOISE_VARIANCE) < 5 * error
    assert abs(noise.mean()) < 5 * np.sqrt(NOISE_VARIANCE / len(noise))


def test_what_is_written_is_labelled_zarr_in_runs_of_days(tmp_path: Path) -> None:
    path = tmp_path / "cube.zarr"
    assert list(write_cube(TINY, path, block_days=4)) == [4, 8, 10]
    data = xr.open_zarr(path, chunks=None, consolidated=False)
    assert data["time"].dtype.kind == "M"
    assert data[TARGET].encoding["chunks"] == (4, 6, 8)
    assert data[TARGET].dtype == np.float32
    assert json.loads((path / "zarr.json").read_text())["zarr_format"] == 3
    xr.testing.assert_equal(data.load(), TINY.block(0, 10))


@pytest.mark.slow
def test_writing_a_longer_cube_takes_no_more_memory(tmp_path: Path) -> None:
    def peak(days: int) -> int:
        tracemalloc.start()
        list(write_cube(replace(TINY, n_lat=36, n_lon=72, n_days=days), tmp_path / str(days), 8))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(8)  # what is imported and cached by the first write
    assert peak(64) < 1.25 * peak(16)


@pytest.mark.slow
def test_a_short_demo_reaches_the_ceiling_and_reports(tmp_path: Path) -> None:
    words = ["--output", tmp_path / "demo", "--days", 8, "--n-components", 256]
    result = demo(*words, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["n_rows"] + found["n_rows_held_out"] == Cube(n_days=8).n_valid
    assert abs(found["ceiling"] - found["r2"]) < 0.01
    assert found["peak_bytes"] < 2**30 == found["memory_bytes"]
    folder = Path(found["folder"])
    saved = json.loads((folder / "report.json").read_text())
    assert saved.items() <= found.items()
    assert "rows/s" in (folder / "report.txt").read_text(encoding="utf-8")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"{found['r2']:.5f}" in page
    assert rs.load(folder / "model.zarr").columns_.inputs == INPUTS

    result = demo(*words)
    assert result.exit_code == 4
    assert "--overwrite" in result.stderr
    text = demo(*words[:2], "--days", 4, "--n-components", 64, "--overwrite").stdout
    for word in ("rows over the sea", "rows/s", "planned", "from the ceiling", str(folder)):
        assert word in text


@pytest.mark.slow
def test_a_demo_that_breaks_its_promise_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rff_stream.cli.demo.page_of", lambda folder: None)  # no matplotlib
    result = demo("--output", tmp_path, "--days", 2, "--n-components", 2)
    assert result.exit_code == 1
    assert "for report.html: pip install 'rff_stream[plot]'" in result.stdout
    assert "is not within 0.01 of the noise ceiling" in result.stderr
    figures = Figures(1, 1, 1, 1, 1, 1, 1, 1, 1, 3 * 2**30, 2**30, 0.9, 1, 0.9)
    assert "This process held 3.0 GiB, but 1.0 GiB are allowed" in figures.failure
    assert replace(figures, peak_bytes=1).failure == ""


def test_a_demo_that_cannot_fit_exits_3(tmp_path: Path) -> None:
    result = demo("--output", tmp_path, "--days", 2, "--memory", "10MiB")
    assert result.exit_code == 3
    assert "10.0 MiB are allowed" in result.stderr


@pytest.mark.long
def test_the_demo_keeps_every_promise(tmp_path: Path) -> None:
    """As `make demo` runs it: 2.6 million rows under 3 minutes, 1 GiB, at the ceiling."""
    started = time.monotonic()
    words = [sys.executable, "-m", "rff_stream", "demo", "--output", tmp_path, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert time.monotonic() - started < 180
    found = json.loads(done.stdout)
    assert found["n_rows"] + found["n_rows_held_out"] > 2_000_000
    assert found["peak_bytes"] < 2**30
    assert found["peak_bytes"] < found["planned_bytes"]
    assert abs(found["ceiling"] - found["r2"]) < 0.01
