"""xarray in, rows out: names, dimensions and coordinates decide, chunks do not."""

from __future__ import annotations

import gc
import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sources import boxes, check_any_partition, cuts, read, whole

import rff_stream as rs
from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources import Columns, HoldOut, open_source, paths

DIMS = ("time", "lat", "lon")


def cube(shape: tuple[int, int, int] = (12, 4, 5), seed: int = 0) -> xr.Dataset:
    """t and s over (time, lat, lon), u with levels, a mask over (lat, lon)."""
    rng = np.random.default_rng(seed)
    nt, ny, nx = shape
    return xr.Dataset(
        {
            "t": (DIMS, rng.random(shape), {"units": "K"}),
            "s": (("lat", "time", "lon"), rng.random((ny, nt, nx)).astype("f4")),
            "u": (("time", "level", "lat", "lon"), rng.random((nt, 2, ny, nx)), {"units": "m s-1"}),
            "mask": (("lat", "lon"), rng.integers(0, 2, (ny, nx))),
        },
        coords={
            "time": np.datetime64("2000-01-01", "ns") + np.arange(nt) * np.timedelta64(31, "D"),
            "lat": ("lat", np.linspace(-60, 60, ny), {"units": "degrees_north"}),
            "lon": np.linspace(0, 350, nx),
            "level": [500.0, 850.5],
            "area": (("lat", "lon"), rng.random((ny, nx))),
        },
    )


def dense(data: xr.Dataset, name: str, dims: tuple[str, ...] = DIMS) -> Array:
    """A variable over the whole grid, in the obvious way."""
    template = data.t.transpose(*dims)
    return data[name].broadcast_like(template).transpose(*dims).values.astype("f8")


def on_disk(data: xr.Dataset, path: Any, **encoding: Any) -> xr.Dataset:
    data.to_zarr(path, consolidated=False, encoding=encoding)
    return xr.open_zarr(path, consolidated=False, chunks=None)


CONTAINERS = {
    "memory": lambda data, _: data,
    "dask": lambda data, _: data.chunk(time=5, lat=3, lon=2, level=1),
    "uneven": lambda data, _: data.assign(t=data.t.chunk(time=7), s=data.s.chunk(lon=3)),
    "lazy": lambda data, path: on_disk(data, path, t={"chunks": (5, 2, 5)}),
    "zarr": lambda data, path: (on_disk(data, path), path)[1],
}


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=list(CONTAINERS))
def test_every_container_gives_the_same_rows(make, tmp_path):
    data = cube()
    source = open_source(make(data, tmp_path / "d.zarr"), "t", inputs=["s", "mask", "lat", "area"])
    found = read(source)
    for column, name in enumerate(["s", "mask", "lat", "area"]):
        np.testing.assert_array_equal(found.x[:, column], dense(data, name).ravel())
    np.testing.assert_array_equal(found.y[:, 0], dense(data, "t").ravel())
    assert source.dims == DIMS
    assert source.n_rows == data.t.size
    assert source.columns == Columns(
        ("s", "mask", "lat", "area"), ("t",), ("", "", "degrees_north", "", "K")
    )
    assert source.describe(((0, 3), (1, 4), (0, 5))) == "time 0:3 lat 1:4 lon 0:5"


def own(steps: dict[str, int], array: xr.DataArray) -> dict[str, int]:
    return {dim: steps[dim] for dim in array.dims}


@pytest.mark.slow
@settings(max_examples=12)
@given(st.data())
def test_chunks_and_boxes_cannot_matter(data):
    grid = cube((6, 4, 5))
    steps = {dim: data.draw(st.integers(1, 6)) for dim in (*DIMS, "level")}
    names = ("t", "s", "u")
    chunked = grid.assign({name: grid[name].chunk(own(steps, grid[name])) for name in names})
    source = open_source(chunked, "t", inputs=["s", "u", "lon"])
    x = np.stack([dense(grid, "s"), dense(grid.isel(level=0), "u"), dense(grid.isel(level=1), "u"),
                  dense(grid, "lon")], axis=-1)  # fmt: skip
    edges = [data.draw(cuts(size)) for size in (6, 4, 5)]
    check_any_partition(source, edges, x, dense(grid, "t")[..., None])


def test_sample_dimensions_are_those_of_y_in_its_order():
    data = cube()
    source = open_source(data, "s", inputs=["t"])
    assert source.dims == ("lat", "time", "lon")
    np.testing.assert_array_equal(read(source).x[:, 0], dense(data, "t", source.dims).ravel())
    only_time = open_source(data, data.t.mean(("lat", "lon")), inputs=["mask", "t"])
    assert only_time.dims == ("time",)
    assert only_time.columns.inputs[20:22] == ("t[lat=-60,lon=0]", "t[lat=-60,lon=87.5]")
    np.testing.assert_array_equal(read(only_time).x[:, 20:], data.t.values.reshape(12, -1))


def test_dim_chooses_sample_dimensions():
    data = cube()[["t", "s"]]
    source = open_source(data, "t", dim=["lat", "lon"])
    assert source.shape == (4, 5)
    assert source.columns.targets[:2] == ("t[time=2000-01-01]", "t[time=2000-02-01]")
    expected = data.t.transpose("lat", "lon", "time").values.reshape(20, 12)
    np.testing.assert_array_equal(read(source).y, expected)
    with pytest.raises(DataError, match=r"no column has the dimension 'tme'.*\"time\""):
        open_source(data, "t", dim="tme")


def test_extra_dimensions_become_columns():
    data = cube()
    for each in (data, data.chunk(level=1, time=5)):
        source = open_source(each, "t", inputs=["u"])
        assert source.columns.inputs == ("u[level=500]", "u[level=850.5]")
        assert source.columns.units == ("m s-1", "m s-1", "K")
        expected = data.u.transpose(*DIMS, "level").values.reshape(-1, 2)
        np.testing.assert_array_equal(read(source).x, expected)
        with pytest.raises(DataError, match=r"Two inputs have the name 'u\[level=850\.5\]'"):
            open_source(each, "t", inputs=["u", "u[level=850.5]"])


def test_one_place_of_an_extra_dimension_is_read_alone():
    data = cube().chunk(level=1)
    one = open_source(data, "t", inputs=["u[level=850.5]"])
    both = open_source(data, "t", inputs=["u"])
    box = whole(one)
    assert one.cost(box).needed_bytes == both.cost(box).needed_bytes - data.t.nbytes
    np.testing.assert_array_equal(read(one).x[:, 0], data.u.values[:, 1].ravel())
    for wrong, hint in (("u[level=851]", "850.5"), ("u[lvl=850.5]", "level"), ("w", "There are")):
        with pytest.raises(DataError, match=hint):
            open_source(data, "t", inputs=[wrong])


def test_places_are_named_for_all_extra_dimensions_or_none():
    data = cube()
    source = open_source(data, "u[level=500]", inputs=["t"])
    assert source.dims == DIMS
    np.testing.assert_array_equal(read(source).y[:, 0], data.u.values[:, 0].ravel())
    both = open_source(data, data.t[:, 0, 0], inputs=["t[lat=-20,lon=0]"])
    np.testing.assert_array_equal(read(both).x[:, 0], data.t.values[:, 1, 0])
    with pytest.raises(DataError, match="names 1 of its dimensions, but 2 are no sample"):
        open_source(data, data.t[:, 0, 0], inputs=["t[lat=-20]"])
    with pytest.raises(DataError, match="names 1 of its dimensions, but 0 are no sample"):
        open_source(data, "t", inputs=["s[lat=-20]"])


def test_columns_of_the_fit_are_found_by_name():
    data = cube()
    columns = open_source(data, "t", inputs=["u", "lat", "time.month"]).columns
    turned = data.isel(level=[1, 0]).transpose("lon", "level", "lat", "time").drop_vars("t")
    source = open_source(turned, columns=columns)
    assert set(source.dims) == set(DIMS)
    x = read(source).x
    u = data.u.transpose(*source.dims, "level").values.reshape(-1, 2)
    np.testing.assert_array_equal(x[:, :2], u)
    assert source.columns.inputs == columns.inputs
    with pytest.raises(DataError, match="no level=500"):
        open_source(turned.isel(level=[0]), columns=columns)


def test_missing_values_after_a_fit_are_left_out_where_that_is_the_rule():
    data = cube()
    columns = open_source(data, "t", inputs=["s"]).columns
    data["s"][0, 0, 0] = np.nan
    found = read(open_source(data, columns=columns, missing_rows="drop"))
    assert found.keep.sum() == data.s.size - 1
    with pytest.raises(DataError, match="'s' holds 1 NaN"):
        read(open_source(data, columns=columns))


def test_time_is_days_and_virtual_names_are_fields():
    data = cube()
    source = open_source(data, "t", inputs=["time", "time.dayofyear", "time.month"])
    x = read(source).x.reshape(12, -1, 3)
    days = (data.time.values - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    np.testing.assert_array_equal(x[:, 0, 0], days)
    np.testing.assert_array_equal(x[:, 3, 1], data.time.dt.dayofyear)
    np.testing.assert_array_equal(x[:, 3, 2], data.time.dt.month)
    assert source.columns.units == ("days since 1970-01-01", "", "", "K")


def test_virtual_names_that_are_no_numbers_are_refused():
    data = cube()
    with pytest.raises(DataError, match=r"'time.season' holds .* a column holds numbers"):
        open_source(data, "t", inputs=["time.season"])
    with pytest.raises(DataError, match=r"no field 'dayofyr'. Did you mean \"dayofyear\""):
        open_source(data, "t", inputs=["time.dayofyr"])
    with pytest.raises(DataError, match="only times have fields"):
        open_source(data, "t", inputs=["lat.month"])


@pytest.mark.parametrize("calendar", ["noleap", "360_day"])
def test_cftime_becomes_days_in_its_calendar(calendar, tmp_path):
    cftime = pytest.importorskip("cftime")
    data = cube()
    times = xr.date_range("2001-01-01", periods=12, freq="MS", calendar=calendar, use_cftime=True)
    data = data.assign_coords(time=times)
    expected = cftime.date2num(times.values, "days since 1970-01-01", calendar=calendar)
    data.to_zarr(tmp_path / "d.zarr", consolidated=False)
    for each in (data, tmp_path / "d.zarr"):
        source = open_source(
            each, "t", inputs=["time", "time.month"], where=[("time", "<=", "2001-03")]
        )
        x = read(source).x.reshape(3, 20, 2)
        np.testing.assert_array_equal(x[:, 0, 0], expected[:3])
        np.testing.assert_array_equal(x[:, 7, 1], [1, 2, 3])
        assert source.columns.units[0] == f"days since 1970-01-01 ({calendar})"


def test_weights_are_broadcast_by_name():
    data = cube()
    weight = np.cos(np.deg2rad(data.lat)).rename("cos_lat")
    full = weight.broadcast_like(data.t).transpose(*DIMS).values.ravel()
    assert open_source(data, "t", weight, inputs=["s"]).columns.weight == "cos_lat"
    for given_weight in (weight, "area", weight.chunk(lat=1), full.reshape(12, 4, 5)):
        expected = dense(data, "area").ravel() if given_weight is not weight else full
        expected = expected if isinstance(given_weight, str) else full
        source = open_source(data, "t", given_weight, inputs=["s"])
        np.testing.assert_array_equal(read(source).w, expected)
    with pytest.raises(DataError, match='used as weight, but has the dimensions "level"'):
        open_source(data, "t", "level", inputs=["s"])


def test_y_as_array_must_have_the_shape_of_the_grid():
    data = cube()[["t", "s"]]
    values = data.t.values
    source = open_source(data, values, inputs=["s"], dim=DIMS)
    np.testing.assert_array_equal(read(source).y[:, 0], values.ravel())
    several = open_source(data, np.stack([values, values], -1), inputs=["s"], dim=DIMS)
    assert several.columns.targets == ("y0", "y1")
    lazy = open_source(data, da.from_array(values, chunks=5), inputs=["s"], dim=DIMS)
    np.testing.assert_array_equal(read(lazy).y[:, 0], values.ravel())
    with pytest.raises(DataError, match=r"y has shape \(3,\), but the samples of X are"):
        open_source(data, values[0, 0, :3])


def test_labelled_y_must_lie_on_the_coordinates_of_x():
    data = cube()
    np.testing.assert_array_equal(
        read(open_source(data, data.t, inputs=["s"])).y[:, 0], data.t.values.ravel()
    )
    with pytest.raises(DataError, match=r"other coordinates along 'lat'.*xarray.align"):
        open_source(data, data.t.isel(lat=slice(None, None, -1)), inputs=["s"])
    with pytest.raises(DataError, match="'t' has 11 time, but X has 12"):
        open_source(data, data.t[:11], inputs=["s"])


def test_default_inputs_are_the_other_data_variables():
    data = cube()
    expected = ("s", "u[level=500]", "u[level=850.5]", "mask")
    assert open_source(data, "t").columns.inputs == expected
    assert open_source(data, data.t).columns.inputs == expected
    assert open_source(data, "t", "mask").columns.inputs == expected[:3]
    assert open_source(data, ["t", "mask"], dim=DIMS).columns.targets == ("t", "mask")
    with pytest.raises(DataError, match="no inputs left"):
        open_source(data[["t"]], "t")


def test_without_y_samples_are_all_dimensions_of_a_data_set():
    data = cube()
    assert open_source(data[["mask", "t"]]).dims == DIMS
    x = read(open_source(data[["mask", "t"]])).x
    np.testing.assert_array_equal(x[:, 0], dense(data, "mask").ravel())


def test_coordinates_alone_are_ordered_as_the_data_are():
    data = cube()
    columns = open_source(data, "t", inputs=["lon", "time"]).columns
    assert open_source(data, columns=columns).dims == ("time", "lon")
    assert open_source(data[["s"]], inputs=["lon", "lat"]).dims == ("lat", "lon")
    bare = data.drop_vars(list(data.data_vars))
    assert open_source(bare, columns=columns).dims == ("time", "lon")


def test_a_data_array_is_an_array_whose_first_axis_counts_rows(rng):
    values = rng.random((9, 3))
    array = xr.DataArray(values, dims=("sample", "band"), coords={"band": ["r", "g", "b"]})
    source = open_source(array)
    assert source.columns.inputs == ("x[band=r]", "x[band=g]", "x[band=b]")
    np.testing.assert_array_equal(read(source).x, values)
    fitted = open_source(array.rename("image"), values[:, 0])
    assert fitted.columns.inputs[0] == "image[band=r]"
    target = xr.DataArray(values[:, 0], dims="sample")
    np.testing.assert_array_equal(read(open_source(array.chunk(sample=4), target)).x, values)
    cube_of = xr.DataArray(rng.random((2, 9, 3)), dims=("time", "sample", "band"))
    predicted = open_source(cube_of.assign_coords(array.coords), columns=source.columns)
    assert predicted.dims == ("time", "sample")
    by_count = open_source(array, columns=Columns(("x0", "x1", "x2")))
    np.testing.assert_array_equal(read(by_count).x, values)
    with pytest.raises(DataError, match=r"X has 3 features.*expecting 2 features"):
        open_source(array, columns=Columns(("x0", "x1")))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("time", "<", "2000-03"), lambda d: d.time < np.datetime64("2000-03-01")),
        (("time", "<=", "2000-03"), lambda d: d.time < np.datetime64("2000-04-01")),
        (("time", ">", "2000"), lambda d: d.time >= np.datetime64("2001-01-01")),
        (("time.month", "==", 1), lambda d: d.time.dt.month == 1),
        (("mask", "!=", 0), lambda d: d.mask != 0),
        (("u[level=500]", ">=", 0.5), lambda d: d.u.sel(level=500) >= 0.5),
        (("region", "==", "north"), lambda d: d.lat > 0),
    ],
)
def test_conditions_take_any_name(condition, expected):
    data = cube()
    data = data.assign_coords(region=("lat", np.where(data.lat > 0, "north", "south")))
    keep = expected(data).broadcast_like(data.t).transpose(*DIMS).values.ravel()
    source = open_source(data, "t", inputs=["s"], where=[condition])
    np.testing.assert_array_equal(read(source).keep, keep)


def test_conditions_that_cannot_be_compared_are_refused():
    with pytest.raises(DataError, match="cannot be compared"):
        open_source(cube(), "t", where=[("time", "<", "soon")])
    with pytest.raises(DataError, match="the operator is one of"):
        open_source(cube(), "t", where=[("time", "~", "2000")])
    for value in (18628, np.timedelta64(9, "D")):  # a number was given: that is no remedy
        with pytest.raises(DataError, match=r"datetime64.* Give a time as ISO text such as"):
            open_source(cube(), "t", where=[("time", "<", value)])
    with pytest.raises(DataError, match=r"dtype float64\. Give a number \("):
        open_source(cube(), "t", where=[("lat", "<", "2000-01")])
    spans = cube().assign(age=("time", np.arange(12).astype("timedelta64[h]")))
    for value in ("100h", np.timedelta64(1, "Y")):
        with pytest.raises(DataError, match=r"Give a number of days, or a span such as np\.time"):
            open_source(spans, "t", where=[("age", "<", value)])


@pytest.mark.parametrize("span", [np.timedelta64(6, "h"), timedelta(hours=6), 0.25])
@pytest.mark.parametrize("unit", ["h", "ns"])
def test_spans_of_time_are_compared_with_spans(span, unit):
    """They were compared with a number of days alone."""
    ages = np.arange(12).astype("timedelta64[h]").astype(f"timedelta64[{unit}]")
    source = open_source(cube().assign(age=("time", ages)), "t", where=[("age", "<=", span)])
    assert read(source).keep.sum() == 7 * 20


@pytest.mark.parametrize(
    ("value", "days"),
    [(np.datetime64("2000-01-10"), 10), (date(2000, 1, 10), 10), (datetime(2000, 1, 10), 9.5),
     (datetime(2000, 1, 10, tzinfo=UTC), 9.5), (np.datetime64("2000-01", "M"), 12)],
)  # fmt: skip
def test_a_model_keeps_a_condition_of_any_kind_of_time(value, days, tmp_path):
    """Such a model could not be saved: JSON knows no times. Each compares at its precision."""
    data = xr.Dataset({"u": ("time", np.arange(24.0) % 5), "t": ("time", np.arange(24.0))})
    data = data.assign_coords(time=np.datetime64("2000-01-01") + 12 * np.arange(24).astype("m8[h]"))
    model = rs.KernelRidge(n_components=8, random_state=0, progress=False)
    model.fit(data, "t", inputs=["u"], where=[("time", "<=", value)])
    model.save(tmp_path / "m.zarr", moments=True)
    assert rs.load(tmp_path / "m.zarr").score(data) == model.score(data)
    assert model.n_rows_ == 2 * days


def test_holdout_by_year_and_labels_by_virtual_names():
    data = cube()
    parts = [read(open_source(data, "t", inputs=["time.month"], by="time.month",
                              where=[HoldOut(0.4, 3, part, by="time.month")]))
             for part in ("train", "test")]  # fmt: skip
    months = [set(part.label) for part in parts]
    assert not months[0] & months[1]
    assert months[0] | months[1] == set(data.time.dt.month.values)
    np.testing.assert_array_equal(parts[0].label, parts[0].x[:, 0])
    source = open_source(data, "t", by=xr.DataArray(list("abcd"), dims="lat"), inputs=["s"])
    expected = np.broadcast_to(np.array(list("abcd"))[:, None], (12, 4, 5)).ravel()
    np.testing.assert_array_equal(read(source).label, expected)


def test_wrap_keeps_dims_coords_name_and_units(tmp_path):
    data = cube()
    on_disk(data, tmp_path / "d.zarr")
    for each in (data, tmp_path / "d.zarr"):
        source = open_source(each, "t", inputs=["s"])
        values = np.arange(240.0).reshape(12, 4, 5)
        one = source.wrap(values, ("t",), ("K",))
        assert (one.dims, one.name, one.attrs) == (DIMS, "t", {"units": "K"})
        assert set(one.coords) == {"time", "lat", "lon", "area"}
        two = source.wrap(da.from_array(np.stack([values, values], -1)), ("a", "b"), ("K", ""))
        assert isinstance(two, xr.Dataset)
        assert set(two.data_vars) == {"a", "b"}
        one.to_zarr(tmp_path / "out.zarr", mode="w", consolidated=False)
        back = xr.open_zarr(tmp_path / "out.zarr", consolidated=False)
        xr.testing.assert_identical(back.t.drop_encoding().load(), one.load())


def test_predictions_in_another_order_of_dimensions_fit_back():
    data = cube()
    source = open_source(data, "s", inputs=["t"])
    array = source.wrap(np.zeros(source.shape), ("s",), ("",))
    assert array.dims == ("lat", "time", "lon")
    xr.testing.assert_equal(array.lat, data.lat)


def test_lazily_opened_data_travel_as_a_few_kilobytes(tmp_path):
    lazy = on_disk(cube((50, 40, 40)), tmp_path / "d.zarr")
    source = open_source(lazy, "t", inputs=["s", "u", "lat", "time.dayofyear"])
    assert source.is_lazy
    assert source.graph is None
    assert len(pickle.dumps(source.reader)) < 20_000
    assert len(pickle.dumps(source)) < 40_000


def test_netcdf_is_read_lazily(tmp_path):
    pytest.importorskip("netCDF4")
    data = cube()
    data.to_netcdf(tmp_path / "d.nc", encoding={"t": {"chunksizes": (5, 4, 5)}})
    with xr.open_dataset(tmp_path / "d.nc", engine="netcdf4") as lazy:
        source = open_source(lazy, "t", inputs=["s", "time"])
        assert source.is_lazy
        assert source.bounds == ((0, 5, 10, 12), (0, 4), (0, 5))
        before = source.generation()
        edges = [[0, 4, 12], [0, 4], [0, 2, 5]]
        x = np.stack([dense(data, "s"), dense(data, "t")], -1)
        for box in boxes(edges):
            inside = tuple(slice(*part) for part in box)
            np.testing.assert_array_equal(read(source, box).x[:, 0], x[inside][..., 0].ravel())
            np.testing.assert_array_equal(read(source, box).y[:, 0], x[inside][..., 1].ravel())
        assert source.generation() == before


def test_real_netcdf(shared_data):
    pytest.importorskip("netCDF4")
    with xr.open_dataset(shared_data("A1B_north_america.nc"), decode_timedelta=False) as data:
        name = "air_temperature"
        inputs = ["latitude", "longitude", "time"]
        source = open_source(data, name, inputs=inputs)
        box = ((3, 9), (0, 37), (5, 49))
        expected = data[name][3:9, :, 5:49].values.ravel()
        np.testing.assert_array_equal(read(source, box).y[:, 0], expected.astype("f8"))
        assert source.columns.units[-1] == "K"


def test_an_ocean_has_missing_rows(shared_data):
    pytest.importorskip("netCDF4")
    with xr.open_dataset(shared_data("basin_mask.nc")) as data:
        source = open_source(data, missing_rows="drop")
        shape = source.shape
        found = read(source, ((0, 1), (0, shape[1]), (0, shape[2])))
        values = data["basin"][0].values.ravel()
        np.testing.assert_array_equal(found.keep, ~np.isnan(values))


@pytest.mark.parametrize("lazy", [False, True])
def test_a_coordinate_without_dimensions_is_an_input(lazy: bool) -> None:
    """The same value in each row, as of one time that was selected for a map."""
    data = xr.Dataset(
        {"t": ("lat", np.arange(4.0))}, {"lat": np.arange(4.0), "level": ((), np.array(500.0))}
    )
    source = open_source(data.chunk() if lazy else data, "t", inputs=["lat", "level"])
    assert read(source).x.tolist() == [[i, 500.0] for i in range(4)]


def test_the_garbage_collector_closes_no_netcdf_file(tmp_path, monkeypatch):
    """It may run in any thread while another one reads, and NetCDF is not safe for threads."""
    from xarray.backends.file_manager import CachingFileManager

    pytest.importorskip("netCDF4")
    closed: list[str] = []
    close = CachingFileManager.close

    def noted(self, needs_lock=True):
        closed.append("by hand" if needs_lock else "by the collector")
        close(self, needs_lock)

    monkeypatch.setattr(CachingFileManager, "close", noted)
    monkeypatch.setattr(paths, "FILES_OPEN", 3)
    paths.close_netcdf()
    closed.clear()
    path = tmp_path / "rows.nc"
    xr.Dataset({"u": ("row", np.arange(9.0))}).to_netcdf(path)
    closed.clear()
    sources = [open_source(str(path)) for _ in range(5)]
    assert closed == ["by hand"] * 2
    first = sources[0]  # its file was closed: it is opened again
    (rows,) = first.reader.read(((0, 9),), *first.arguments(((0, 9),)))
    assert np.array_equal(rows.x[:, 0], np.arange(9.0))
    del sources[1:]
    gc.collect()
    assert closed == ["by hand"] * 2
    paths.close_netcdf()
    assert closed == ["by hand"] * 5


def with_fills(key: str, dtype: str) -> xr.Dataset:
    """Two values of y are -99, which an attribute says is missing; so is one of the input."""
    t = np.arange(30)
    y, a = (10 * np.sin(t)).astype(dtype), np.cos(t)
    y[[3, 4]], a[7] = -99, -99
    fill = {key: np.array(-99, dtype).item()}
    data = xr.Dataset({"y": ("t", y, fill), "a": ("t", a, {key: -99.0})}, coords={"t": t})
    return data.assign_coords(t=data.t.assign_attrs({key: 12}))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16"])
@pytest.mark.parametrize("key", ["_FillValue", "missing_value"])
def test_values_that_an_attribute_calls_missing_are_missing(key, dtype, tmp_path):
    """As where the same data set is opened; rioxarray, and a file that was not decoded, have it."""
    data = with_fills(key, dtype)
    data.to_netcdf(tmp_path / "rows.nc")
    data.to_zarr(tmp_path / "rows.zarr", consolidated=False)
    raw = xr.open_dataset(tmp_path / "rows.nc", mask_and_scale=False)
    stored = xr.open_zarr(tmp_path / "rows.zarr", mask_and_scale=False, consolidated=False)
    lazy = xr.open_zarr(
        tmp_path / "rows.zarr", mask_and_scale=False, consolidated=False, chunks=None
    )
    arrays = {"memory": data, "Dask": data.chunk(t=7), "file": raw, "stored": stored, "lazy": lazy}
    expected = [i for i in range(30) if i not in (3, 4, 7, 12)]
    for name, each in {**arrays, "path": str(tmp_path / "rows.zarr")}.items():
        source = open_source(each, "y", inputs=["a", "t"], missing_rows="drop")
        rows = read(source)
        np.testing.assert_allclose(rows.y[:, 0], data.y.values[expected], err_msg=name)
        np.testing.assert_array_equal(rows.x[:, 1], expected, err_msg=name)
        with pytest.raises(DataError, match=r"holds . NaN"):
            read(open_source(each, "y", inputs=["a"]))
    assert data.y.attrs and data.y.values[3] == -99  # as it was


@pytest.mark.parametrize("key", ["scale_factor", "add_offset", "_Unsigned"])
def test_values_that_may_be_packed_are_refused(key):
    value = "true" if key == "_Unsigned" else 0.5
    data, name = cube(), "t"
    data[name].attrs[key] = value
    with pytest.raises(DataError, match=rf"'{name}' has the attribute {key}={value!r}: .*decode"):
        open_source(data, name, inputs=["time"])
    data[name].attrs[key] = {"scale_factor": 1.0, "add_offset": 0, "_Unsigned": "false"}[key]
    assert open_source(data, name, inputs=["time"]).columns.targets == (name,)


def test_data_without_a_dimension_are_refused(rng):
    cube = xr.Dataset({"u": ("t", rng.normal(size=20)), "y": ("t", rng.normal(size=20))})
    model = rs.KernelRidge(n_components=16, random_state=0, progress=False).fit(cube, "y")
    with pytest.raises(DataError, match=r"no dimension along which rows could lie.*length 1"):
        model.predict(cube.isel(t=3))
    np.testing.assert_allclose(model.predict(cube.isel(t=[3])), model.predict(cube)[[3]])
