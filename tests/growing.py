"""A cube and files that grow by days, and a count of what is read of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import rff_stream as rs
from rff_stream.sources.zarr_chunks import METADATA, CheckedStore

DIMS = ("time", "lat")


Leaves = Callable[[type, int], list[int]]
"""Of the fixture ``leaves``: a statistic and n to the starts of the leaves that it was run on."""


class Stopped(KeyboardInterrupt):
    """What Ctrl-C does."""


def days(start: int, stop: int, lat: int = 8) -> xr.Dataset:
    """Days start:stop of a cube; the same values whoever asks."""
    values = [np.random.default_rng([7, day]).normal(size=(2, lat)) for day in range(start, stop)]
    u, v = np.stack(values, axis=1)
    noise = np.stack([np.random.default_rng([8, d]).normal(size=lat) for d in range(start, stop)])
    return xr.Dataset(
        {
            "u": (DIMS, u, {"units": "m s-1"}),
            "v": (DIMS, v, {"units": "m s-1"}),
            "t": (DIMS, np.sin(u) + v**2 / 4 + noise / 10, {"units": "K"}),
        },
        {
            "time": np.datetime64("2000-01-01", "ns")
            + np.arange(start, stop) * np.timedelta64(1, "D"),
            "lat": np.linspace(-70, 70, lat),
        },
    )


def grown(path: Path, start: int, stop: int, *, chunk: int = 5, lat: int = 8) -> Path:
    """Write days start:stop: a new store from day 0, more rows otherwise."""
    data = days(start, stop, lat)
    if start:
        data.to_zarr(path, append_dim="time", consolidated=False)
        return path
    encoding: dict[str, Any] = {str(name): {"chunks": (chunk, lat)} for name in data.data_vars}
    encoding["time"] = {"chunks": (chunk,)}
    data.to_zarr(path, encoding=encoding, zarr_format=3, consolidated=False)
    return path


def table(day: int, n: int = 60, shift: float = 0.0) -> pd.DataFrame:
    """The rows of one day."""
    rng = np.random.default_rng([5, day])
    u, v = rng.normal(size=(2, n)) + shift
    t = np.sin(u) + v**2 / 4 + 0.1 * rng.normal(size=n)
    return pd.DataFrame({"day": day, "u": u, "v": v, "t": t})


def written(folder: Path, *numbers: int, end: str = "parquet", **choices: Any) -> Path:
    """Files of some days, one each."""
    folder.mkdir(parents=True, exist_ok=True)
    for day in numbers:
        write(folder / f"d{day:02}.{end}", table(day, **choices), day)
    return folder


def write(path: Path, rows: pd.DataFrame, day: int = 0) -> None:
    """One file in the format that its name says."""
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    elif path.suffix == ".csv":
        rows.to_csv(path, index=False)
    elif path.suffix == ".arrow":
        rows.to_feather(path, compression="uncompressed")
    else:
        days(day, day + 1).to_netcdf(path)


def ridge(**choices: Any) -> rs.KernelRidge:
    """A small model whose sums are in float64."""
    given: dict[str, Any] = {
        "length_scale": 1.5, "n_components": 24, "alpha": 1e-3, "sums": "float64",
        "dtype": "float64", "random_state": 0, "progress": False,
    }  # fmt: skip
    return rs.KernelRidge(**given | choices)


def fitted(path: Path, **choices: Any) -> rs.KernelRidge:
    """The small model of t from u and v."""
    return ridge(**choices).fit(path, "t", inputs=["u", "v"])


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Bytes and chunks that are read of any Zarr store, by array."""
    found: Counter[str] = Counter()
    original = CheckedStore.get

    async def get(self: Any, key: str, *given: Any, **more: Any) -> Any:
        value = await original(self, key, *given, **more)
        if key.rpartition("/")[2] not in METADATA and value is not None:
            found[key.partition("/")[0]] += len(value)
        return value

    monkeypatch.setattr(CheckedStore, "get", get)
    return found
