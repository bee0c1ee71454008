"""Real data through the command line, against ordinary least squares on the same split."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

from rff_stream._array import Array
from rff_stream.cli import main
from rff_stream.sources import HoldOut

pytestmark = pytest.mark.accuracy

DAY = np.timedelta64(1, "D")


def fit(*words: Any) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["fit", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def linear_rmse(X: Array, y: Array, test: Array) -> float:
    """RMSE on test rows of least squares with an intercept on the others."""
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    A = np.column_stack([np.ones(len(y)), scaled])
    coef = np.linalg.lstsq(A[~test], y[~test], rcond=None)[0]
    return float(np.sqrt(np.mean((y[test] - A[test] @ coef) ** 2)))


def held_out(n: int) -> Array:
    """The rows that --holdout 0.1 --seed 0 leaves out of n."""
    return HoldOut(0.1, 0, "test").of_places(np.arange(n, dtype=np.uint64))


def air_rows(data: xr.Dataset) -> tuple[Array, Array]:
    """lat, lon, time, day of year (n, 4) and air (n,), in the order of the grid."""
    whole = xr.broadcast(data["air"], data["lat"], data["lon"], data["time"])
    air, lat, lon, time = (each.transpose("time", "lat", "lon") for each in whole)
    days = (time - np.datetime64("2013-01-01")) / DAY
    columns = [each.values.ravel().astype(float) for each in (lat, lon, days, time.dt.dayofyear)]
    return np.column_stack(columns), air.values.ravel().astype(float)


def test_air_temperature_beats_a_linear_model_by_half(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("air_temperature.zarr")
    with xr.open_zarr(path, chunks=None, decode_timedelta=True) as data:
        X, y = air_rows(data)
    test = held_out(len(y))
    words = ["--inputs", "lat,lon,time,time.dayofyear", "--target", "air", "--alpha", "0.1"]
    scales = ["--length-scale", "5,10,30,60", "--n-components", "1024", "--holdout", "0.1"]
    found = fit(path, *words, *scales)["held_out"]
    assert found["n_rows"] == test.sum()
    assert found["rmse"]["air"] < 0.5 * linear_rmse(X, y, test)  # 4.2 K against 9.6 K


def test_california_housing_beats_a_linear_model(
    shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    with np.load(shared_data("california_housing.npz"), allow_pickle=False) as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
    group = zarr.open_group(tmp_path / "california.zarr", mode="w", zarr_format=3)
    for i, column in enumerate(X.T):
        group.create_array(f"c{i}", data=np.ascontiguousarray(column), chunks=(4096,))
    group.create_array("value", data=y, chunks=(4096,))
    inputs = ",".join(f"c{i}" for i in range(X.shape[1]))
    words = ["--inputs", inputs, "--target", "value", "--length-scale", "ard", "--holdout", "0.1"]
    found = fit(tmp_path / "california.zarr", *words)["held_out"]
    test = held_out(len(y))
    assert found["n_rows"] == test.sum()
    assert found["rmse"]["value"] < 0.82 * linear_rmse(X, y, test)  # 55,000 against 68,900 USD
