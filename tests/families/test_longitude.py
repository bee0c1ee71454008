"""Longitudes that reach around the globe: 0° and 360° are one place, in every family."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import rff_stream as rs
from rff_stream.families.longitude import UNITS, longitudes_in, reaches_around
from rff_stream.sources import Columns

QUIET: Any = {"random_state": 0, "progress": False}

FAMILIES = (
    {},
    {"features": "local"},
    {"features": rs.Cells(64, 2, 8)},
    {"features": rs.Candidates(("whole", "local"))},
    {"features": "grid"},
    {"n_components": 256},
    {"n_components": 256, "metric": "full"},
)

SEAM = np.array([[10.0, 0.0], [10.0, 360.0], [10.0, -360.0], [10.0, 355.0], [10.0, -5.0]])


def field(rng: np.random.Generator, lon: np.ndarray, units: str = "degrees_east") -> xr.Dataset:
    """Waves around the globe with a little noise."""
    lat, angle = np.arange(-60, 61, 12.0), np.radians(lon)
    waves = [
        rng.normal() / k * np.cos(k * angle + rng.uniform(0, 6) + j * np.radians(lat)[:, None])
        for k in range(1, 6)
        for j in (-2, 0, 1)
    ]
    values = np.sum(waves, axis=0) + 0.05 * rng.normal(size=(len(lat), len(lon)))
    coords = {"lat": ("lat", lat), "lon": ("lon", lon, {"units": units})}
    return xr.Dataset({"t": (("lat", "lon"), values)}, coords)


def agree_at_the_seam(model: Any, at: Any = SEAM) -> None:
    values = model.predict(at)
    np.testing.assert_allclose(values[:3], values[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values[3:], values[3], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rff_stream.NumericalWarning")  # of one coarse map
@pytest.mark.parametrize("asked", FAMILIES, ids=str)
def test_a_longitude_that_reaches_around_is_periodic(
    rng: np.random.Generator, asked: dict[str, Any], tmp_path: Any
) -> None:
    data = field(rng, np.arange(0, 360, 15.0))
    model = rs.GaussianProcessRegressor(**QUIET, **asked).fit(data, "t", inputs=["lat", "lon"])
    assert dict(model.features_.periods) == {1: 360.0}
    agree_at_the_seam(model)
    assert "periodic: 360" in model._repr_html_()
    model.save(tmp_path / "m.zarr")
    agree_at_the_seam(rs.load(tmp_path / "m.zarr"))


def test_no_longitude_is_outside_of_a_range_that_is_a_circle(rng: np.random.Generator) -> None:
    data = field(rng, np.arange(0, 360, 15.0))
    model = rs.KernelRidge(**QUIET).fit(data, "t", inputs=["lat", "lon"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(np.column_stack([np.zeros(50), np.linspace(-180, 0, 50)]))
    with pytest.warns(rs.NumericalWarning, match="outside the range of the fit: input lat"):
        model.predict(np.column_stack([np.full(50, 90.0), np.linspace(-180, 0, 50)]))


@pytest.mark.slow
@pytest.mark.parametrize("units", ["degrees_east", "degrees"])
def test_a_region_and_what_is_given_in_degrees_stay_as_they_are(
    rng: np.random.Generator, units: str
) -> None:
    """The same bits with units of a longitude and without."""
    region = field(np.random.default_rng(0), np.arange(200, 331, 8.0), units)
    whole = field(np.random.default_rng(0), np.arange(0, 360, 5.0), units)
    found = rs.KernelRidge(**QUIET).fit(region, "t", inputs=["lat", "lon"])
    given = rs.KernelRidge(length_scale=[20.0, 30.0], **QUIET)
    given.fit(whole, "t", inputs=["lat", "lon"])
    assert not found.features_.periods and not given.features_.periods
    plain = field(np.random.default_rng(0), np.arange(200, 331, 8.0), "")
    plain = plain.rename(lon="x")
    again = rs.KernelRidge(**QUIET).fit(plain, "t", inputs=["lat", "x"])
    inside = SEAM + np.array([0, 210])
    assert (found.predict(inside) == again.predict(inside)).all()


@pytest.mark.filterwarnings("ignore::rff_stream.NumericalWarning")  # of one coarse map
def test_a_column_of_a_table_is_known_by_its_name(rng: np.random.Generator) -> None:
    table = field(rng, np.arange(-180, 180, 6.0)).to_dataframe().reset_index()
    at = pd.DataFrame(SEAM, columns=["lat", "lon"])
    small = QUIET | {"n_components": 256}
    model = rs.KernelRidge(**small).fit(table[["lat", "lon"]], table.t)
    agree_at_the_seam(model, at)
    sorter = rs.KernelClassifier(**small).fit(table[["lat", "lon"]], table.t > 0)
    shares = sorter.predict_proba(at)
    np.testing.assert_allclose(shares[0], shares[1], rtol=1e-5, atol=1e-6)
    other = table.rename(columns={"lon": "x"})
    plain = rs.KernelRidge(**small).fit(other[["lat", "x"]], other.t)
    assert not getattr(plain.features_, "periods", ())


def test_which_inputs_are_longitudes_and_which_reach_around() -> None:
    for unit in UNITS:
        assert longitudes_in(Columns(("a", "b"), ("y",), ("", unit, unit))) == (1,)
    assert longitudes_in(Columns(("Longitude", "lon"), ("y",), ("", "m", ""))) == (0,)
    assert longitudes_in(Columns(("x0", "x1"))) == ()
    assert reaches_around(np.arange(0, 360, 2.5)) and reaches_around(np.arange(-180, 181.0))
    assert reaches_around(np.r_[np.arange(-180, -60), np.arange(20, 180)])  # without an ocean
    assert not reaches_around(np.arange(200, 331, 2.5)) and not reaches_around(np.zeros(9))
    assert not reaches_around(np.arange(0, 720.0))


def test_a_model_without_sampled_rows_still_shows_itself(
    rng: np.random.Generator, tmp_path: Any
) -> None:
    """Its HTML asked for ``importance_``, which is computed from rows: a ModelError."""
    x = rng.normal(size=(200, 2))
    model = rs.KernelRidge(**QUIET).fit(x, x[:, 0])
    model.save(tmp_path / "m.zarr", moments=False)
    again = rs.load(tmp_path / "m.zarr")
    assert not hasattr(again, "importance_") and "KernelRidge" in again._repr_html_()
    with pytest.raises(AttributeError, match="no row sample"):
        _ = again.importance_
