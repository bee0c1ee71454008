"""Zarr in, rows out: any kind of place, decoded as xarray decodes, every chunk checked."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from test_sources import check_any_partition, read, whole
from test_sources_labelled import DIMS, cube
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore

from rff_stream.errors import DataError
from rff_stream.sources import graph_arrays, open_source
from rff_stream.sources.zarr_chunks import CheckedStore


class Counting(WrapperStore[Any]):
    """Counts the chunks that are read."""

    reads = 0

    async def get(self, key: str, *rest: Any) -> Any:
        if not key.endswith((".json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")):
            type(self).reads += 1
        return await super().get(key, *rest)


@pytest.fixture(params=[2, 3])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A cube as xarray writes it, in both formats; t has several chunks."""
    encoding = {"t": {"chunks": (5, 2, 5)}, "u": {"chunks": (12, 1, 4, 5)}}
    where = tmp_path / "d.zarr"
    cube().to_zarr(where, zarr_format=request.param, consolidated=False, encoding=encoding)
    return where


def plain_group(path: Path, rows: int = 20) -> Path:
    group = zarr.open_group(path, mode="w")
    group.create_array("X", data=np.arange(3.0 * rows).reshape(rows, 3), chunks=(6, 2))
    group.create_array("a", data=np.arange(rows, dtype="i2"), chunks=(7,), fill_value=-1)
    group.create_array("y", data=-np.arange(rows, dtype="f4"), chunks=(rows,))
    group["y"].attrs["units"] = "K"
    return path


def test_any_way_to_name_a_group(path, tmp_path):
    expected = read(open_source(cube(), "t", inputs=["s", "u"]))
    ways = [path, str(path), f"file://{path}", LocalStore(path), zarr.open_group(path, mode="r")]
    ways += [StorePath(LocalStore(path.parent), path.name)]
    for way in ways:
        source = open_source(way, "t", inputs=["s", "u"])
        found = read(source)
        np.testing.assert_array_equal(found.x, expected.x)
        np.testing.assert_array_equal(found.y, expected.y)
        assert source.bounds == ((0, 12), (0, 4), (0, 5))


def test_memory_zip_and_fsspec_stores(tmp_path):
    data = cube()
    memory = MemoryStore()
    data.to_zarr(memory, consolidated=False)
    data.to_zarr(tmp_path / "d.zarr", consolidated=False)
    shutil.make_archive(str(tmp_path / "d"), "zip", tmp_path / "d.zarr")
    url = "memory://rff_stream_test/d.zarr"
    data.to_zarr(url, consolidated=False)
    for way in (memory, tmp_path / "d.zip", url):
        source = open_source(way, "t", inputs=["s"], storage_options=None)
        np.testing.assert_array_equal(read(source).y[:, 0], data.t.values.ravel())
        assert source.generation() == open_source(way, "t", inputs=["s"]).generation()


def test_only_coordinates_are_read_while_opening(path):
    store = Counting(LocalStore(path))
    source = open_source(store, "t", inputs=["s", "u", "area", "time.month"])
    opening, Counting.reads = Counting.reads, 0
    assert opening <= 3 * len(["time", "lat", "lon", "level"])
    source.cost(whole(source))
    source.arguments(whole(source))
    source.generation()
    assert len(pickle.dumps(source.reader)) < 20_000
    assert Counting.reads == 0
    read(source, ((0, 1), (0, 1), (0, 1)))
    assert Counting.reads == 5  # t, s, area, and both levels of u


def test_chunks_are_boundaries_and_costs(path):
    source = open_source(path, "t", inputs=["lat"])
    assert source.bounds == ((0, 5, 10, 12), (0, 2, 4), (0, 5))
    cost = source.cost(((4, 6), (0, 1), (0, 5)))
    assert cost.needed_bytes == 10 * 8 + 8
    assert cost.decoded_bytes == 10 * 2 * 5 * 8 + 8
    assert cost.chunks == 2


def test_boxes_across_and_inside_chunks(path):
    data = cube()
    source = open_source(path, "t", inputs=["s", "lon"])
    x = np.stack(
        [data[name].broadcast_like(data.t).transpose(*DIMS).values for name in ("s", "lon")], -1
    )
    check_any_partition(source, [[0, 1, 7, 12], [0, 3, 4], [0, 2, 5]], x, data.t.values[..., None])


def test_packed_real_data_equal_xarrays_decoding(shared_data):
    path = shared_data("air_temperature.zarr")
    with xr.open_zarr(path, consolidated=False, chunks=None) as data:
        source = open_source(path, "air", np.cos(np.deg2rad(data.lat)), inputs=["lat", "time"])
        box = ((700, 760), (10, 20), (20, 40))
        found = read(source, box)
        part = data.air[700:760, 10:20, 20:40]
        np.testing.assert_array_equal(found.y[:, 0], part.values.ravel().astype("f8"))
        weight = np.cos(np.deg2rad(part.lat)).broadcast_like(part).transpose(*part.dims)
        np.testing.assert_array_equal(found.w, weight.values.ravel().astype("f8"))
    assert source.shape == (2920, 25, 53)
    assert source.columns.units == ("degrees_north", "days since 1970-01-01", "degK")


def test_packed_integers_and_fill_values_are_decoded(tmp_path):
    data = cube()
    packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 1.0, "_FillValue": -9999}
    data["t"][0, 0, 0] = np.nan
    data.to_zarr(tmp_path / "d.zarr", consolidated=False, encoding={"t": packed})
    found = read(open_source(tmp_path / "d.zarr", "t", inputs=["lat"], missing_rows="drop"))
    assert not found.keep[0]
    assert found.keep[1:].all()
    np.testing.assert_allclose(found.y[:, 0], data.t.values.ravel()[1:], atol=0.005 + 1e-12)


def test_an_ocean_whose_land_xarray_did_not_write(tmp_path):
    data = cube()
    land = xr.where(data.lat < 0, np.nan, data.t).transpose(*DIMS)
    data["t"] = land
    chunks = {"chunks": (5, 2, 5), "write_empty_chunks": False}
    data.to_zarr(tmp_path / "d.zarr", consolidated=False, encoding={"t": chunks})
    assert not (tmp_path / "d.zarr/t/c/0/0").exists()
    ways = [
        tmp_path / "d.zarr",
        xr.open_zarr(tmp_path / "d.zarr", consolidated=False),
        xr.open_zarr(tmp_path / "d.zarr", consolidated=False, chunks=None),
    ]
    for way in ways:
        found = read(open_source(way, "t", inputs=["s"], missing_rows="drop"))
        np.testing.assert_array_equal(found.keep, ~np.isnan(land.values.ravel()))
        with pytest.raises(DataError, match="'t' holds 120 NaN"):
            read(open_source(way, "t", inputs=["s"]))
        with pytest.raises(DataError, match=r"chunk c/\d/0/0 of array 't' is absent"):
            read(open_source(way, "t", inputs=["s"], missing_rows="drop", missing_chunks="error"))


def test_absent_chunks_of_a_fill_value_that_means_missing(tmp_path):
    """A v2 array: xarray masks its fill value, so an absent chunk is a missing row."""
    group = zarr.open_group(tmp_path / "d.zarr", mode="w", zarr_format=2)
    array = group.create_array("t", shape=(6,), chunks=(3,), dtype="i4", fill_value=-1)
    array.attrs["_ARRAY_DIMENSIONS"] = ["row"]
    array[:3] = 7
    found = read(open_source(tmp_path / "d.zarr", missing_rows="drop"))
    np.testing.assert_array_equal(found.keep, [1, 1, 1, 0, 0, 0])


def test_fill_values_are_taken_where_asked(tmp_path):
    group = zarr.open_group(tmp_path / "d.zarr", mode="w")
    group.create_array("a", shape=(6,), chunks=(3,), dtype="f8", fill_value=0)[3:] = 7
    with pytest.raises(DataError, match="would read as its fill value 0"):
        read(open_source(tmp_path / "d.zarr"))
    source = open_source(tmp_path / "d.zarr", missing_chunks="fill")
    (slab,) = source.reader.read(whole(source))
    np.testing.assert_array_equal(slab.x[:, 0], [0, 0, 0, 7, 7, 7])
    assert source.variables[0].data.array.store_path.store.counts["absent"] == 1


# --------------------------------------------------------------------------- plain arrays
def test_plain_arrays_are_columns(tmp_path):
    path = plain_group(tmp_path / "d.zarr")
    source = open_source(path, "y")
    assert source.columns.inputs == ("X[0]", "X[1]", "X[2]", "a")
    assert source.columns.units == ("", "", "", "", "K")
    found = read(source, ((3, 17),))
    np.testing.assert_array_equal(found.x[:, :3], np.arange(60.0).reshape(20, 3)[3:17])
    np.testing.assert_array_equal(found.x[:, 3], np.arange(3, 17))
    np.testing.assert_array_equal(found.y[:, 0], -np.arange(3, 17))
    assert source.bounds == ((0, 6, 12, 18, 20),)
    some = open_source(path, "y", "a", inputs=["X[2]"], by="a")
    np.testing.assert_array_equal(read(some).x[:, 0], np.arange(2, 60, 3)[1:])
    again = open_source(path, columns=source.columns)
    np.testing.assert_array_equal(read(again).x, read(source).x)
    values = np.zeros(20)
    assert source.wrap(values, ("y",), ("",)) is values


def test_zarr_arrays_are_arrays(tmp_path):
    path = plain_group(tmp_path / "d.zarr")
    group = zarr.open_group(path, mode="r")
    for X in (path / "X", group["X"]):
        source = open_source(X, group["y"])
        assert source.columns.inputs == ("x0", "x1", "x2")
        assert source.is_lazy
        np.testing.assert_array_equal(read(source).x, np.arange(60.0).reshape(20, 3))
    lazy = open_source(da.from_zarr(group["X"]), da.from_zarr(group["y"]))
    np.testing.assert_array_equal(read(lazy).x, np.arange(60.0).reshape(20, 3))


def test_sharded_arrays(tmp_path):
    group = zarr.open_group(tmp_path / "d.zarr", mode="w")
    group.create_array("X", data=np.arange(80.0).reshape(40, 2), chunks=(5, 2), shards=(20, 2))
    source = open_source(tmp_path / "d.zarr")
    np.testing.assert_array_equal(read(source, ((3, 33),)).x, np.arange(80.0).reshape(40, 2)[3:33])
    assert source.cost(((3, 7),)).chunks == 2


def test_plain_arrays_that_are_no_columns_are_refused(tmp_path):
    path = plain_group(tmp_path / "d.zarr")
    group = zarr.open_group(path)
    group.create_array("c", shape=(20, 2, 2), dtype="f8")
    with pytest.raises(DataError, match=r"'c' has shape \(20, 2, 2\) and no names"):
        open_source(path, "y")
    group["a"].attrs["scale_factor"] = 0.1
    with pytest.raises(DataError, match='"scale_factor" but no names of dimensions'):
        open_source(path, "y", inputs=["a"])
    group.create_array("short", shape=(19,), dtype="f8")
    with pytest.raises(DataError, match="'short' has 19 rows, but the others have 20"):
        open_source(path, "y", inputs=["X", "short"])
    with pytest.raises(DataError, match=r"the rows that they share, or leave it out: inputs="):
        open_source(path, "y", inputs=["X", "short"])
    with pytest.raises(DataError, match=r"the rows that they share\.$"):
        open_source(path, "y", "short", inputs=["X"])
    with pytest.raises(DataError, match=r"no 'X0' in .*Did you mean \"X\""):
        open_source(path, "y", inputs=["X0"])


def test_a_path_of_y_beside_a_path_of_x_is_told_the_call_that_works(tmp_path):
    """It was "a builtins.str, which is not a known type", known being paths."""
    path = str(plain_group(tmp_path / "d.zarr"))
    for X, y in ((f"{path}/X", f"{path}/y"), (zarr.open_group(path)["X"], "y")):
        with pytest.raises(DataError, match=r"y is the text .*, but X is the one array") as failed:
            open_source(X, y)
        words = str(failed.value)
        assert f"fit({path!r}, 'y', inputs=['X'])" in words.replace("file://", "")
    assert open_source(path, "y", inputs=["X"]).columns.targets == ("y",)


# --------------------------------------------------------------------------- change
def test_generation_follows_the_data(path):
    def generations() -> list[str]:
        ways = [
            path,
            xr.open_zarr(path, consolidated=False),
            xr.open_zarr(path, consolidated=False, chunks=None),
        ]
        return [open_source(way, "t", inputs=["s"]).generation() for way in ways]

    before = generations()
    assert generations() == before
    array = zarr.open_group(path)["t"]
    array[0, 0, 0] = 5
    after = generations()
    assert not set(after) & set(before)
    array.attrs["units"] = "degC"
    assert not set(generations()) & {*before, *after}


def test_a_source_sees_that_its_data_changed(path):
    source = open_source(path, "t", inputs=["s"])
    before = source.generation()
    assert source.generation() == before
    zarr.open_group(path)["s"][0] = 1
    assert source.generation() != before


def test_a_store_in_memory_has_the_name_it_was_given():
    assert CheckedStore(MemoryStore(), "d").name == "d"


def test_a_newer_xarray_with_other_private_names_is_refused_not_unchecked(tmp_path, monkeypatch):
    """Absent chunks are seen only through the Zarr array inside xarray's layers."""
    from xarray.backends.zarr import ZarrArrayWrapper
    from xarray.core import indexing

    path = tmp_path / "c.zarr"
    xr.Dataset({"t": ("x", np.arange(8.0))}).chunk(x=4).to_zarr(path)
    plain = xr.open_zarr(path, chunks=None)
    read(open_source(plain))

    class Renamed(ZarrArrayWrapper):
        """Another class name: its array is no longer looked for."""

        __slots__ = ()

    layers = list(graph_arrays.layers(plain["t"].variable._data))
    (holder,) = (layer for layer in layers if isinstance(layer, ZarrArrayWrapper))
    holder.__class__ = Renamed
    with pytest.raises(DataError, match=r"xarray .* holds an array in a .*Renamed"):
        open_source(plain)

    class Layer(indexing.ExplicitlyIndexed):
        held, shape, dtype, ndim = holder, (8,), np.dtype(float), 1

    with pytest.raises(DataError, match=r"has none of the attributes .* Use an older xarray"):
        list(graph_arrays.layers(Layer()))
