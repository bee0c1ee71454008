"""References by path (kerchunk, VirtualiZarr): chunks that lie in other files, read as Zarr."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from test_sources import read

import rff_stream as rs
from rff_stream.errors import DataError
from rff_stream.sources import open_source, paths

pytest.importorskip("netCDF4")

SHAPE = (24, 5)


def cube() -> xr.Dataset:
    rng = np.random.default_rng(0)
    time, lat = np.arange(24.0), np.linspace(-1, 1, 5)
    air = np.sin(time[:, None] / 4) + lat + 0.01 * rng.standard_normal(SHAPE)
    return xr.Dataset({"air": (("time", "lat"), air)}, {"time": time, "lat": lat})


def metadata(values: Any, chunks: tuple[int, ...]) -> str:
    return json.dumps(
        {"zarr_format": 2, "shape": values.shape, "chunks": chunks, "dtype": values.dtype.str}
        | {"fill_value": None, "order": "C", "filters": None, "compressor": None}
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two NetCDF files of twelve rows each, and references to both as one array, made by hand."""
    data = cube()
    refs: dict[str, Any] = {".zgroup": '{"zarr_format": 2}'}
    for i in range(2):
        part = data.isel(time=slice(12 * i, 12 * i + 12))
        target = tmp_path / f"{i}.nc"
        part.to_netcdf(target, encoding={"air": {"contiguous": True}})
        place = target.read_bytes().find(part["air"].values.tobytes())
        assert place > 0
        refs[f"air/{i}.0"] = ["{{folder}}/" + target.name, place, part["air"].nbytes]
    refs["air/.zarray"] = metadata(data["air"].values, (12, 5))
    refs["air/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["time", "lat"]}'
    for name in ("time", "lat"):
        values = data[name].values
        refs[f"{name}/.zarray"] = metadata(values, values.shape)
        refs[f"{name}/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": [name]})
        refs[f"{name}/0"] = "base64:" + base64.b64encode(values.tobytes()).decode()
    whole = {"version": 1, "templates": {"folder": tmp_path.as_uri()}, "refs": refs}
    (tmp_path / "cube.json").write_text(json.dumps(whole))
    return tmp_path


def fit(X: Any) -> rs.KernelRidge:
    model = rs.KernelRidge(n_components=32, random_state=0, progress=False)
    return model.fit(X, "air", inputs=["time", "lat"])


def test_rows_are_those_of_the_files(files: Path) -> None:
    model, same = fit(files / "cube.json"), fit(cube())
    assert model.n_rows_ == 120
    np.testing.assert_array_equal(model.coef_, same.coef_)
    predicted = model.predict(files / "cube.json")
    assert predicted.dims == ("time", "lat")
    np.testing.assert_array_equal(predicted, same.predict(cube()))
    (files / "cube.json").rename(files / "no_end")  # known by what it holds
    assert fit(f"file://{files / 'no_end'}").n_rows_ == 120


def test_workers_open_them_by_themselves(files: Path) -> None:
    source = open_source(files / "cube.json", "air", inputs=["time", "lat"])
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(read(again).y, cube()["air"].values.reshape(-1, 1))


def test_a_file_that_is_gone_or_cut_is_an_error_with_its_name(files: Path) -> None:
    target = files / "1.nc"
    whole = target.read_bytes()
    target.write_bytes(whole[:-500])
    with pytest.raises(DataError, match=r"cube\.json: chunk 1\.0 of array 'air'"):
        fit(files / "cube.json")
    target.unlink()
    with pytest.raises(DataError, match=r"cube\.json: chunk 1\.0 of array 'air'.*1\.nc"):
        fit(files / "cube.json")


def test_a_reference_that_is_absent_is_an_absent_chunk(files: Path) -> None:
    text = json.loads((files / "cube.json").read_text())
    del text["refs"]["air/1.0"]
    (files / "cube.json").write_text(json.dumps(text))
    with pytest.raises(DataError, match=r"cube\.json: chunk 1\.0 of array 'air' is absent"):
        fit(files / "cube.json")


@pytest.mark.parametrize("text", ['{"refs": {', "[1, 2]", '{"version": 7, "refs": {}}'])
def test_other_text_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=r"x\.json cannot be opened as references to chunks"):
        fit(tmp_path / "x.json")
    with pytest.raises(DataError, match=r"none\.json does not exist"):
        fit(tmp_path / "none.json")


def test_the_files_may_be_elsewhere(files: Path) -> None:
    """The protocol of the files that are named comes from the references, or is given."""
    text = json.loads((files / "cube.json").read_text())
    assert paths.protocol_in(str(files / "cube.json"), {}) == "file"
    text["templates"]["folder"] = "s3://bucket/folder"
    (files / "cube.json").write_text(json.dumps(text))
    assert paths.protocol_in(str(files / "cube.json"), {}) == "s3"
    del text["templates"]
    text["refs"]["air/0.0"][0] = "https://example.org/0.nc"
    (files / "cube.json").write_text(json.dumps(text))
    assert paths.protocol_in(str(files / "cube.json"), {}) == "https"


@pytest.mark.optional
def test_those_of_kerchunk_in_json_and_parquet(files: Path) -> None:
    hdf = pytest.importorskip("kerchunk.hdf")
    pytest.importorskip("fastparquet")
    from kerchunk.df import refs_to_dataframe

    chunked = {name: {"zlib": True, "chunksizes": (8, 5)} for name in ("air",)}
    cube().to_netcdf(files / "all.nc", encoding=chunked)
    refs = hdf.SingleHdf5ToZarr(str(files / "all.nc"), inline_threshold=0).translate()
    (files / "made.json").write_text(json.dumps(refs))
    refs_to_dataframe(refs, str(files / "made.parq"))
    for name in ("made.json", "made.parq"):
        np.testing.assert_array_equal(fit(files / name).coef_, fit(cube()).coef_)


@pytest.mark.optional
def test_those_of_virtualizarr(files: Path) -> None:
    virtualizarr = pytest.importorskip("virtualizarr")
    parsers = pytest.importorskip("virtualizarr.parsers")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    cube().to_netcdf(files / "all.nc")
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    address = (files / "all.nc").as_uri()
    with virtualizarr.open_virtual_dataset(
        address, parser=parsers.HDFParser(), registry=registry, decode_times=False
    ) as virtual:
        virtual.vz.to_kerchunk(str(files / "virtual.json"), format="json")
    expected = fit(cube()).coef_
    np.testing.assert_array_equal(fit(files / "virtual.json").coef_, expected)
    store = parsers.HDFParser()(url=address, registry=registry)
    with pytest.raises(DataError, match=r"ManifestStore does not list .*Write its references"):
        fit(store)
