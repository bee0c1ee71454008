"""What is wrong with the data is said with its name: store, array, chunk, rows, column."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from test_sources import read
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore, WrapperStore

import rff_stream
from rff_stream.errors import DataError
from rff_stream.sources import open_source
from rff_stream.sources.zarr_chunks import CheckedStore, ChunkError, Listing, RetryPolicy
from rff_stream.text_formatting import cause_words

OPENED: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: path,
    "lazy": lambda path: xr.open_zarr(path, consolidated=False, chunks=None),
    "dask": lambda path: xr.open_zarr(path, consolidated=False),
    "part": lambda path: xr.open_zarr(path, consolidated=False, chunks=None).isel(row=slice(3, 20)),
}


@pytest.fixture(params=[2, 3])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A group of 30 rows in chunks of 10, and the file of the chunk in the middle."""
    path = tmp_path / "d.zarr"
    values = np.random.default_rng(0).random((30, 4))
    data = xr.Dataset({"t": (("row", "k"), values)}, coords={"row": np.arange(30.0)})
    encoding = {"t": {"chunks": (10, 4), "_FillValue": None}}
    data.to_zarr(path, zarr_format=request.param, consolidated=False, encoding=encoding)
    return path, path / ("t/1.0" if request.param == 2 else "t/c/1/0")


def spoil(file: Path, how: str) -> None:
    content = file.read_bytes()
    file.unlink()
    half, zeros = content[: len(content) // 2], bytes(len(content))
    if how == "directory":
        file.mkdir()
    elif how == "fifo":
        os.mkfifo(file)
    elif how != "absent":
        file.write_bytes({"empty": b"", "truncated": half, "garbage": zeros}[how])


WORDS = {
    "absent": "is absent",
    "empty": "is empty (0 bytes)",
    "directory": "is a directory",
    "fifo": "is no regular file",
}


@pytest.mark.parametrize("how", ["absent", "empty", "directory", "fifo", "truncated", "garbage"])
@pytest.mark.parametrize("way", OPENED.values(), ids=list(OPENED))
def test_a_chunk_that_cannot_be_read_is_named(stored, how, way):
    path, file = stored
    data = way(path)
    spoil(file, how)
    with pytest.raises(DataError) as error:
        read(open_source(data, dim="row", missing_rows="drop", missing_chunks="error"))
    text = str(error.value)
    assert str(path) in text
    assert f"chunk {file.relative_to(path / 't')} of array 't'" in text
    assert WORDS.get(how, "") in text


def test_the_rows_of_an_unreadable_chunk_are_named(stored):
    path, file = stored
    spoil(file, "absent")
    with pytest.raises(DataError, match=r"'t' in row 5:15: .*chunk"):
        read(open_source(path, dim="row", missing_chunks="error"), ((5, 15),))
    assert len(read(open_source(path, dim="row"), ((0, 10),)).x) == 10


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads any file")
def test_a_chunk_without_permission_is_named(stored):
    path, file = stored
    file.chmod(0)
    with pytest.raises(DataError, match="PermissionError"):
        read(open_source(path, dim="row"))


def sharded(path: Any, values: Any, fill: float) -> Any:
    """An array in shards of two chunks."""
    group = zarr.open_group(path, mode="w")
    array = group.create_array(
        "X", shape=values.shape, dtype="f8", chunks=(5, 2), shards=(10, 2), fill_value=fill
    )
    array[:] = values
    return array


@pytest.mark.parametrize("rows", [slice(None), slice(15, 20), slice(18, 30)])
def test_a_chunk_that_a_shard_lacks_is_named(tmp_path, rows):
    """It was read as fill values: a shard may be there and not written to its end."""
    values = np.random.default_rng(0).normal(size=(30, 2))
    values[15:20] = 0.0  # zarr leaves such chunks out
    array = sharded(tmp_path / "x.zarr", values, 0.0)
    with pytest.raises(DataError, match=r"chunk c/1/0 of array 'X' lacks 1 of its chunks .* 0\.0"):
        open_source(array).variables[0].data[rows, :]
    assert open_source(array).variables[0].data[:15].shape == (15, 2)
    assert len(read(open_source(array, missing_chunks="fill")).x) == 30
    gaps = sharded(tmp_path / "y.zarr", np.where(values == 0, np.nan, values), np.nan)
    assert len(read(open_source(gaps, missing_rows="drop")).x) == 25


def test_an_empty_or_cut_shard_is_named(tmp_path):
    group = zarr.open_group(tmp_path / "d.zarr", mode="w")
    values = np.arange(80.0).reshape(40, 2)
    group.create_array("X", data=values, chunks=(5, 2), shards=(20, 2))
    file = tmp_path / "d.zarr/X/c/1/0"
    content = file.read_bytes()
    for kept in (0, 10, len(content) // 2):
        file.write_bytes(content[:kept])
        with pytest.raises(DataError, match=r"chunk c/1/0 of array 'X'"):
            read(open_source(tmp_path / "d.zarr"))
    assert len(read(open_source(tmp_path / "d.zarr"), ((0, 20),)).x) == 20


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_broken_metadata_are_named(stored, content):
    path, _ = stored
    for name in ("t/zarr.json", "t/.zarray"):
        if (path / name).exists():
            (path / name).write_bytes(content)
    with pytest.raises(DataError, match=str(path)):
        open_source(path, dim="row")


def test_places_that_hold_no_data_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere.zarr does not exist"):
        open_source(tmp_path / "nowhere.zarr")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty cannot be opened as Zarr"):
        open_source(tmp_path / "empty")
    zarr.open_group(tmp_path / "g.zarr", mode="w").create_group("inside")
    with pytest.raises(DataError, match='without arrays: it holds "inside"'):
        open_source(tmp_path / "g.zarr")
    (tmp_path / "d.nc").write_bytes(b"CDF")
    with pytest.raises(DataError, match=r"cannot be opened as netCDF"):
        open_source(tmp_path / "d.nc")
    (tmp_path / "d.grib").write_bytes(b"GRIB")
    with pytest.raises(DataError, match=r"xarray.open_dataset"):
        open_source(tmp_path / "d.grib")


def test_a_pickle_codec_is_refused_before_anything_is_read(tmp_path):
    numcodecs = pytest.importorskip("numcodecs")
    folder = tmp_path / "d.zarr/t"
    folder.mkdir(parents=True)
    (tmp_path / "d.zarr/.zgroup").write_text('{"zarr_format": 2}')
    (folder / ".zarray").write_text(
        '{"shape": [2], "chunks": [2], "dtype": "|O", "fill_value": null, "order": "C", '
        '"filters": [{"id": "pickle", "protocol": 5}], "compressor": null, "zarr_format": 2}'
    )
    (folder / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["row"]}')
    marker = tmp_path / "ran"
    payload = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    (folder / "0").write_bytes(payload)
    assert numcodecs.__version__
    with pytest.raises(DataError, match="pickle codec, which can run code"):
        open_source(tmp_path / "d.zarr")
    assert not marker.exists()


# --------------------------------------------------------------------------- the checked store
class Flaky(WrapperStore[Any]):
    """Fails a few times, or hangs."""

    failures = 0
    hang = 0.0

    async def get(self, key: str, *rest: Any) -> Any:
        await asyncio.sleep(type(self).hang)
        if type(self).failures and key.endswith("c/0"):
            type(self).failures -= 1
            raise OSError(5, "Input/output error")
        return await super().get(key, *rest)


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> CheckedStore:
    monkeypatch.setattr(Flaky, "failures", 0)
    monkeypatch.setattr(Flaky, "hang", 0.0)
    inner = MemoryStore()
    zarr.open_group(inner, mode="w").create_array("a", data=np.ones(4))
    return CheckedStore(Flaky(inner), "store", patience=RetryPolicy(pause=0.001, chunk=0.2))


def test_errors_that_pass_are_retried(flaky):
    Flaky.failures = 3
    np.testing.assert_array_equal(zarr.open_array(flaky, path="a", mode="r")[:], np.ones(4))


def test_errors_that_stay_are_named(flaky):
    Flaky.failures = 100
    with pytest.raises(ChunkError, match="store: chunk c/0 of array 'a' could not be read: OSErr"):
        zarr.open_array(flaky, path="a", mode="r")[:]
    assert Flaky.failures == 96


def test_a_read_that_hangs_is_given_up(flaky):
    array = zarr.open_array(flaky, path="a", mode="r")
    Flaky.hang = 5.0
    with pytest.raises(ChunkError, match=r"chunk c/0 of array 'a' was not read within 0.2 s"):
        array[:]


def test_the_store_counts_what_it_reads(flaky):
    array = zarr.open_array(flaky, path="a", mode="r")
    array[:]
    counts = array.store_path.store.counts
    assert counts["chunks"] == 1
    assert counts["bytes"] > 0


def test_every_way_to_read_is_checked(flaky):
    async def many() -> None:
        prototype = default_buffer_prototype()
        with pytest.raises(ChunkError):
            await flaky.get_partial_values(prototype, [("a/c/9", None)])
        with pytest.raises(ChunkError):
            async for _ in flaky._get_many([("a/c/9", prototype, None)]):
                pass

    asyncio.run(many())


def test_array_of_a_key_that_no_rule_names():
    store = CheckedStore(MemoryStore(), "store")
    for key, array in {"a/b/c/0/1": "a/b", "a/0.1": "a", "c/0": "", "0.0": "", "t/c": "t",
                       "a/0/1": "a"}.items():  # fmt: skip
        assert store.array_of(key) == array


# --------------------------------------------------------------------------- values
@pytest.mark.parametrize("container", [np.asarray, da.from_array])
def test_infinite_values_are_always_an_error(container, rng):
    x = rng.random((20_000, 2))
    x[9_000, 1], x[15_000, 1] = np.inf, -np.inf
    for missing in ("error", "drop"):
        with pytest.raises(
            DataError, match="'x1' holds 2 inf in rows 0:20000, the first at row 9000"
        ):
            read(open_source(container(x), missing_rows=missing))
    y = np.ones(20_000)
    y[3] = np.inf
    with pytest.raises(DataError, match="'y' holds 1 inf"):
        read(open_source(container(x[:, :1]), container(y), missing_rows="drop"))


def test_labelled_faults_name_their_place():
    data = xr.Dataset({"t": (("time", "lat"), np.ones((4, 5))), "s": ("lat", np.ones(5))})
    data["t"][2, 3] = np.inf
    with pytest.raises(
        DataError, match="'t' holds 1 inf in time 1:4 lat 0:5, the first at time 2 lat 3"
    ):
        read(open_source(data, "s", dim=("time", "lat"), inputs=["t"]), ((1, 4), (0, 5)))


@pytest.mark.parametrize(("value", "what"), [(-1.0, "negative weights"), (np.inf, "inf")])
def test_weights_must_be_positive_and_finite(value, what):
    weights = np.ones(5)
    weights[2] = value
    with pytest.raises(DataError, match=f"'sample_weight' holds 1 {what} in rows 0:5.*at row 2"):
        read(open_source(np.ones((5, 1)), None, weights, missing_rows="drop"))


def test_a_missing_weight_is_a_missing_row():
    weights = np.array([1.0, np.nan, 2.0])
    with pytest.raises(DataError, match=r"'sample_weight' holds 1 NaN.*missing_rows=\"drop\""):
        read(open_source(np.ones((3, 1)), None, weights))
    found = read(open_source(np.ones((3, 1)), None, weights, missing_rows="drop"))
    assert found.keep.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.ones((3, 2), complex), "Complex data not supported: 'X' is complex128"),
        (np.ones((3, 2), object), "'X' holds objects"),
        (np.full((3, 2), "a"), "'X' holds strings"),
        (np.full((3, 2), b"a"), "'X' holds strings"),
        (da.ones((3, 2), dtype=complex), "Complex data not supported"),
    ],
)
def test_what_is_no_number_is_refused(values, text):
    with pytest.raises(DataError, match=text) as error:
        open_source(values)
    assert isinstance(error.value, TypeError)


def test_names_of_labelled_columns_that_are_no_numbers():
    data = xr.Dataset({"a": ("row", np.ones(3)), "name": ("row", ["a", "b", "c"])})
    with pytest.raises(DataError, match="'name' holds strings"):
        open_source(data, "name", inputs=["a"])
    assert open_source(data).columns.inputs == ("a", "name=a", "name=b", "name=c")
    assert open_source(data, inputs=["a"], by="name").columns.inputs == ("a",)


def test_shapes_that_do_not_fit():
    x = np.ones((3, 2))
    with pytest.raises(DataError, match="Expected 2D array, got 1D array instead"):
        open_source(x[0])
    with pytest.raises(DataError, match="'y' has 4 rows, but the others have 3"):
        open_source(x, np.ones(4))
    with pytest.raises(DataError, match="'y' has 4 rows, but the others have 3"):
        open_source(da.from_array(x), da.ones(4))
    with pytest.raises(DataError, match=r"y has shape \(3, 1, 1\)"):
        open_source(x, np.ones((3, 1, 1)))
    with pytest.raises(DataError, match="Sample weights must be 1D array"):
        open_source(x, None, np.ones((3, 2)))
    with pytest.raises(DataError, match=r'no column \'x7\'.*There are: "x0" and "x1"'):
        open_source(x, inputs=["x7"])
    with pytest.raises(ValueError, match="rows='omit' but it must be one of 'error', 'drop'"):
        open_source(x, missing_rows="omit")


def test_unknown_names_get_suggestions():
    data = xr.Dataset({"temperature": ("row", np.ones(3)), "salt": ("row", np.ones(3))})
    wrong: list[dict[str, Any]] = [
        {name: "temprature"} for name in ("y", "by", "sample_weight", "inputs")
    ]
    for asked in [*wrong, {"where": [("temprature", "<", 1)]}]:
        with pytest.raises(DataError, match=r"no 'temprature'.*Did you mean \"temperature\""):
            open_source(data, **asked)


# --------------------------------------------------------------------------- dask blocks
def test_blocks_that_are_not_what_was_announced():
    x = da.ones((10, 2), chunks=5)
    longer = x.map_blocks(lambda block: np.ones((len(block) + 1, 2)), dtype="f8")
    with pytest.raises(DataError, match=r"of 'X' has shape \(6, 2\), but its array says \(5, 2\)"):
        read(open_source(longer))
    text = x.map_blocks(lambda block: block.astype(str), dtype="f8")
    with pytest.raises(DataError, match="of 'X' has dtype <U32, but its array says float64"):
        read(open_source(text))
    narrow = x.map_blocks(lambda block: (block * 1.5).astype("f4"), dtype="i8")
    assert (read(open_source(narrow)).x == 1.5).all()


def test_dask_graphs_on_zarr_are_checked(stored):
    path, file = stored
    file.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from_zarr's own, about asynchronous file systems
        lazy = da.from_zarr(str(path), component="t")
    source = open_source(lazy - lazy.mean(axis=0), lazy[:, 0] * 2, missing_chunks="error")
    with pytest.raises(
        DataError, match=f"chunk {file.relative_to(path / 't')} of array 't' is abs"
    ):
        read(source)
    shutil.rmtree(path)


# --------------------------------------------------------------------- what the driver saw
@pytest.fixture(params=[2, 3])
def gappy(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Rows whose absent chunks are missing rows; a chunk that is there, and one that never was."""
    path = tmp_path / "g.zarr"
    data = xr.Dataset({"t": ("row", np.arange(40.0)), "x": ("row", np.arange(40.0))})
    encoding = {"t": {"chunks": (10,)}, "x": {"chunks": (10,)}}
    data.to_zarr(path, zarr_format=request.param, consolidated=False, encoding=encoding)
    there, never = (path / ("t/{}" if request.param == 2 else "t/c/{}").format(i) for i in (1, 3))
    never.unlink()
    return path, there, never


GAPPY: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: path,
    "lazy": lambda path: xr.open_zarr(path, consolidated=False, chunks=None),
    "dask": lambda path: xr.open_zarr(path, consolidated=False),
}


@pytest.mark.parametrize("way", GAPPY.values(), ids=list(GAPPY))
def test_a_chunk_that_was_there_at_the_start_is_no_missing_row(gappy, way):
    path, there, _ = gappy
    source = open_source(way(path), "t", missing_rows="drop")
    assert read(source).keep.sum() == 30, "what was absent from the start is a missing row"
    there.unlink()
    with pytest.raises(DataError) as error:
        read(source)
    text = str(error.value)
    assert f"chunk {there.relative_to(path / 't')} of array 't'" in text
    assert "was there when the run began, but" in text
    assert f"process {os.getpid()}" in text
    again = open_source(way(path), "t", missing_rows="drop")
    assert read(again).keep.sum() == 20, "another run begins with what is there then"


def test_a_worker_without_the_data_is_named(gappy):
    """As where nothing is mounted: no row is dropped for it."""
    path, _, _ = gappy
    source = open_source(path, "t", missing_rows="drop")
    reader = source.reader
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(DataError, match=rf"the folder {path} is not there on .*\(process"):
        list(reader.read(((0, 40),)))


def test_a_mount_that_flaps_in_a_fit_is_no_missing_row(gappy, monkeypatch):
    """One read of one chunk sees nothing; the files are back before the fit ends."""
    path, there, _ = gappy
    attempts, left = CheckedStore.attempts, [1]

    async def flapping(self: Any, key: str, *arguments: Any) -> Any:
        if str(path / key) == str(there) and left:
            left.pop()
            return None
        return await attempts(self, key, *arguments)

    monkeypatch.setattr(CheckedStore, "attempts", flapping)
    model = rff_stream.KernelRidge(n_components=16, missing_rows="drop", progress=False)
    with pytest.raises(DataError, match="was there when the run began"):
        model.fit(path, "t")
    assert not left
    assert model.fit(path, "t").n_rows_ == 30


def test_a_relative_path_is_that_of_the_driver(gappy, monkeypatch):
    path, _, _ = gappy
    monkeypatch.chdir(path.parent)
    reader = open_source(path.name, "t", missing_rows="drop").reader
    monkeypatch.chdir("/")
    (rows,) = reader.read(((0, 40),))
    assert len(rows.x) == 30


@pytest.mark.slow
def test_the_listing_of_a_million_chunks_is_small():
    some = Listing.of((1000, 1000), ((i, j) for i in range(1000) for j in range(i % 7, 1000, 3)))
    assert len(some.packed) < 126_000
    assert some.holds((8, 4))
    assert not some.holds((8, 3))
    assert not some.holds((3,)), "no chunk of this array"
    every = Listing.of((1000, 1000), np.ndindex(1000, 1000))
    assert len(every.packed) < 1000
    assert Listing.of((), [()]).holds(())
    assert not Listing.of((), []).holds(())


# --------------------------------------------------------------------- one rule for every container
def ridge(**choices: Any) -> Any:
    return rff_stream.KernelRidge(n_components=16, length_scale=1.0, progress=False, **choices)


def test_what_a_mask_hides_is_missing():
    x = np.arange(20.0)[:, None]
    y = np.ma.array(np.arange(20.0), mask=np.arange(20) == 7)
    y.data[7] = 9.97e36
    with pytest.raises(ValueError, match="NaN"):
        ridge().fit(x, y)
    model = ridge(missing_rows="drop").fit(x, y)
    assert model.n_rows_ == 19
    assert np.abs(model.predict(x)).max() < 40
    hidden = np.ma.array(x, mask=np.arange(20)[:, None] == 3)
    assert np.isnan(model.predict(hidden)[3])
    assert ridge(missing_rows="drop").fit(hidden, y).n_rows_ == 18
    assert ridge(missing_rows="drop").partial_fit(hidden, y).n_rows_ == 18
    weights = np.ma.array(np.ones(20), mask=np.arange(20) == 5)
    with pytest.raises(ValueError, match="NaN"):
        ridge().fit(x, x[:, 0], weights)
    classes = rff_stream.KernelClassifier(
        n_components=16, length_scale=1.0, progress=False, missing_rows="drop"
    )
    labels = np.ma.array(np.arange(20) % 2, mask=np.arange(20) == 7)
    assert classes.fit(x, labels).n_rows_ == 19


def units(celsius: bool = False, calendar: str = "standard") -> xr.Dataset:
    t = np.linspace(270, 300, 40)
    time = xr.date_range("2000-01-01", periods=40, calendar=calendar, use_cftime=True)
    return xr.Dataset(
        {
            "t": ("time", t - 273.15 * celsius, {"units": "degC" if celsius else "K"}),
            "y": ("time", np.sin(t), {"units": "m"}),
        },
        {"time": time},
    )


def test_units_of_inputs_and_targets_are_those_of_the_fit():
    model = ridge().fit(units(), "y", inputs=["t"])
    for refused in (model.predict, model.score, model.update):
        with pytest.raises(ValueError, match=r"degC|units"):
            refused(units(celsius=True))
    with pytest.raises(DataError, match="'t' is in 'degC', but the model was fitted on 'K'"):
        model.predict(units(celsius=True))
    feet = units()
    feet.y.attrs["units"] = "feet"
    with pytest.raises(DataError, match="'y' is in 'feet', but the model was fitted on 'm'"):
        model.score(feet)
    bare = units()
    bare.t.attrs.clear()
    np.testing.assert_array_equal(model.predict(bare), model.predict(units()))
    levels = xr.Dataset({"u": (("i", "level"), np.ones((9, 2)))}, {"level": [500, 850]})
    levels["y"] = ("i", np.arange(9.0))
    levels.u.attrs["units"] = "m"
    model = ridge().fit(levels, "y")
    levels.u.attrs["units"] = "km"
    with pytest.raises(DataError, match=r"'u\[level=500\]' is in 'km'"):
        model.predict(levels)


def test_the_calendar_is_that_of_the_fit():
    model = ridge().fit(units(calendar="360_day"), "y", inputs=["time"])
    with pytest.raises(DataError, match=r"noleap.*fitted on 'days since 1970-01-01 \(360_day\)'"):
        model.score(units(calendar="noleap"))


def test_times_of_two_kinds_in_one_axis_are_said():
    import cftime

    times = np.array([cftime.datetime(2000, 1, 1, calendar="noleap")] * 3 + [None] * 2, object)
    times[4] = np.datetime64("2000-01-01", "us").astype(object)
    data = xr.Dataset({"y": ("i", np.arange(5.0)), "when": ("i", times)})
    with pytest.raises(DataError, match=r"'noleap' \(cftime\) stand beside .*datetime"):
        read(open_source(data, "y", inputs=["when"], missing_rows="drop"))


def test_integers_that_float64_cannot_tell_apart_are_refused():
    x = np.array([[2**53, 1], [2**53 + 1, 2], [0, 3]])
    with pytest.raises(DataError, match=r"'X' holds 1 integers such as 9007199254740993"):
        ridge().fit(x, np.arange(3.0))
    with pytest.raises(DataError, match=r"'a' holds 1 integers such as -9007199254740993"):
        read(open_source(xr.Dataset({"a": ("i", -x[:, 0]), "y": ("i", np.ones(3))}), "y"))
    nanoseconds = (10**18 + np.arange(3) * 10**9)[:, None]
    np.testing.assert_array_equal(read(open_source(nanoseconds)).x, nanoseconds.astype(float))


def test_labels_that_are_no_text_are_said():
    x = np.arange(6.0)[:, None]
    with pytest.raises(DataError, match=r"A label is b'\\xff', which is no text in UTF-8"):
        rff_stream.collect(
            rff_stream.FourierFeatures.sample(rff_stream.Gaussian(1.0), 1, 4, rng=0),
            x, x[:, 0], by=np.array([b"\xff"] * 6), progress=False,
        )  # fmt: skip


def test_a_link_that_leads_to_itself_is_named(gappy):
    path, there, _ = gappy
    there.unlink()
    there.symlink_to(there)
    with pytest.raises(DataError, match=rf"{there} is a link that cannot be followed"):
        ridge(missing_rows="drop").fit(path, "t")


def test_data_that_are_gone_at_the_end_are_said(gappy):
    path, _, _ = gappy
    source = open_source(path, "t", missing_rows="drop")
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(DataError, match="is no longer there, or cannot be opened"):
        source.generation()


def test_chunks_of_no_length_are_refused(gappy):
    path, _, _ = gappy
    for file, old in ((path / "t/zarr.json", r'("chunk_shape":\s*\[\s*)10'),
                      (path / "t/.zarray", r'("chunks":\s*\[\s*)10')):  # fmt: skip
        if file.exists():
            file.write_text(re.sub(old, r"\g<1>0", file.read_text()))
    with pytest.raises(DataError, match=r"(array 't' has chunks of shape \(0,\)|metadata|opened)"):
        open_source(path, "t")


def test_the_reads_beside_one_that_failed_are_stopped() -> None:
    """Zarr reads several keys at once, and nobody waits for the others after the first error."""

    class Half(WrapperStore[MemoryStore]):
        async def get(self, key: str, *given: Any, **options: Any) -> Any:
            if key == "a/c/0":
                await asyncio.sleep(0.01)
                raise RuntimeError("could not connect to http://user:PW@host")
            await asyncio.sleep(60)

    async def read_all() -> set[Any]:
        store = CheckedStore(Half(MemoryStore()), "half")
        prototype = default_buffer_prototype()
        with pytest.raises(ChunkError, match=r"chunk c/0 of array 'a' could not be read: Runtime"):
            await asyncio.gather(*(store.get(f"a/c/{i}", prototype) for i in range(5)))
        await asyncio.sleep(0.1)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(read_all()) == set()


ENDING = """
import asyncio
import numpy as np
import zarr
from zarr.storage import MemoryStore, WrapperStore
from rff_stream.sources.zarr_chunks import CheckedStore

class Slow(WrapperStore):
    async def get(self, key, *given, **options):
        if "/c/" in key:
            await asyncio.sleep(0.05 if key.endswith("/3") else 30)
            if key.endswith("/3"):
                raise PermissionError("no")
        return await self._store.get(key, *given, **options)

zarr.config.set({"async.concurrency": 4})
memory = MemoryStore()
group = zarr.open_group(memory, mode="w", zarr_format=3)
group.create_array("a", data=np.zeros(64), chunks=(1,))
array = zarr.open_group(CheckedStore(Slow(memory), "slow"), mode="r")["a"]
try:
    array[:]
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.slow
def test_a_process_that_ends_after_a_failed_read_is_silent() -> None:
    """Reads that wait for their turn begin after those beside the failure were stopped."""
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "ChunkError\n"
    assert done.stderr == ""


def test_what_a_service_answers_is_told_by_its_code() -> None:
    """File systems turn it into an error of the system: "[Errno 22] Bad Request"."""
    answer = RuntimeError("An error occurred")
    answer.response = {"Error": {"Code": "ExpiredToken"}}  # type: ignore[attr-defined]
    error = OSError(22, "Bad Request")
    error.__cause__ = answer
    assert cause_words(error) == "OSError: Bad Request (ExpiredToken)"
    assert "PW" not in cause_words(RuntimeError("at http://user:PW@host"))
