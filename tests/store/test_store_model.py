"""A model comes back bit for bit; what cannot come back is refused by name, unwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rff_stream._array import JoinedArrays
from rff_stream.errors import ModelError
from rff_stream.store import MomentStore, load_model, save_model
from rff_stream.store.files import write_vouched
from rff_stream.store.local import LocalFiles
from rff_stream.store.zarr_files import decode, decode_rows, encode, encode_rows
from store_cases import (
    HEADER,
    a_row,
    answers,
    arrays,
    bits,
    files_of,
    same_moments,
    save,
    some_moments,
    version_of,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "M.zarr"


def test_a_model_comes_back_bit_for_bit(path):
    row = a_row(6, 2)
    moments = {label: some_moments(i, row) for i, label in enumerate(["b", 3, None, 2.5, "", True])}
    save_model(path, HEADER, arrays(), answers(), moments)
    stored = load_model(path)
    assert stored.header == HEADER
    assert bits(stored.arrays) == bits(arrays())
    assert bits(stored.answers) == bits(answers())
    assert stored.moments is not None
    assert {(type(k), k) for k in stored.moments} == {(type(k), k) for k in moments}
    for label, expected in moments.items():
        found = stored.moments[label]
        assert same_moments(found, expected)
        assert found.row.fingerprint == row.fingerprint


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("n_targets", [0, 2])
def test_moments_of_any_kind_come_back(path, order, k, n_targets):
    moments = {g: some_moments(g, a_row(5, n_targets), order, k) for g in range(3)}
    save_model(path, {}, {}, {}, moments)
    stored = load_model(path)
    assert stored.moments is not None
    assert all(same_moments(stored.moments[g], moments[g]) for g in moments)


def test_a_model_without_moments_holds_what_prediction_needs(path):
    save_model(path, HEADER, arrays(), answers(), None)
    stored = load_model(path)
    assert stored.moments is None
    assert bits(stored.answers) == bits(answers())
    with pytest.raises(ModelError, match="saved without moments"):
        MomentStore.open(path)


@given(
    hnp.arrays(
        dtype=st.sampled_from(["f8", ">f8", "f4", "i8", "u8", ">u8"]),
        shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
    )
)
def test_any_array_comes_back(array):
    for given_array in (array, np.asfortranarray(array), array[..., ::-1] if array.ndim else array):
        files = {name: bytes(data) for name, data in encode("x", given_array)}
        found = decode("x", files, "here")
        native = given_array.astype(given_array.dtype.newbyteorder("="))
        assert bits(found) == bits(np.ascontiguousarray(native).reshape(native.shape))


def test_rows_come_back_without_a_copy():
    rows = [np.arange(4.0), -np.arange(4.0)]
    files = {name: bytes(data) for name, data in encode_rows("x", rows, ("a", "b"))}
    found = decode_rows("x", files, "here")
    assert bits(np.array(found)) == bits(np.array(rows))
    assert all(np.may_share_memory(f, np.frombuffer(files[f"x/c/{i}/0"], np.uint8))
               for i, f in enumerate(found))  # fmt: skip
    assert bits(decode("x", files, "here")) == bits(np.array(rows))


def test_what_is_loaded_cannot_be_written_to(path):
    save(path)
    stored = load_model(path)
    with pytest.raises(ValueError, match="read-only"):
        stored.arrays["map/frequencies"][0] = 0


BAD_HEADERS = {
    r"header\['a'\]\['alpha'\] is nan": {"a": {"alpha": float("nan")}},
    r"header\['a'\]\[1\] is -inf": {"a": [0, float("-inf")]},
    r"header\['a'\] is a numpy\.int64": {"a": np.int64(3)},
    r"header\['a'\] is a numpy\.ndarray": {"a": np.zeros(2)},
    r"header\['a'\] is a numpy\.bool": {"a": np.True_},
    r"header\['a'\] is a bytes": {"a": b"x"},
    r"header has the key 3": {3: "x"},
}


@pytest.mark.parametrize("message", BAD_HEADERS)
def test_a_header_that_json_cannot_hold_is_refused_by_name(path, message):
    with pytest.raises(ModelError, match=message):
        save_model(path, BAD_HEADERS[message], {}, {}, None)
    assert os.listdir(path.parent) == []


def test_a_header_that_is_too_deep_or_too_long_is_refused(path):
    deep: object = 1
    for _ in range(40):
        deep = [deep]
    with pytest.raises(ModelError, match="deeper than 32 levels"):
        save_model(path, {"deep": deep}, {}, {}, None)
    with pytest.raises(ModelError, match="at most 67,108,864"):
        save_model(path, {"long": "x" * 2**26}, {}, {}, None)


BAD_ARRAYS = {
    "map/i": (np.zeros(2, np.int32), "int32; a store keeps NumPy arrays of float64"),
    "map/o": (np.array([None]), "object"),
    "map/c": (np.zeros(2, complex), "complex128"),
    "map/l": ([1.0, 2.0], "is list"),
    "../x": (np.zeros(2), "is not a path"),
    "/x": (np.zeros(2), "is not a path"),
    "map/.hidden": (np.zeros(2), "is not a path"),
    "map/a b": (np.zeros(2), "is not a path"),
    "data/x": (np.zeros(2), "kept for the store"),
    "log": (np.zeros(2), "kept for the store"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_an_array_that_cannot_be_kept_is_refused_by_name(path, name):
    values, message = BAD_ARRAYS[name]
    with pytest.raises(ModelError, match=message) as raised:
        save_model(path, {}, {name: values}, {}, None)
    assert name in str(raised.value)
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("names", [("map/a", "map/A"), ("map", "map/a")])
def test_names_that_collide_are_refused(path, names):
    with pytest.raises(ModelError, match="collides"):
        save_model(path, {}, dict.fromkeys(names, np.zeros(1)), {}, None)


def test_moments_of_one_model_have_one_meaning(path):
    mixed = {0: some_moments(0, a_row(4, seed=0)), 1: some_moments(1, a_row(4, seed=1))}
    with pytest.raises(ModelError, match="'fit', group 1, differs in feature map"):
        save_model(path, {}, {}, {}, mixed)
    with pytest.raises(ModelError, match="no groups"):
        save_model(path, {}, {}, {}, {})
    with pytest.raises(ModelError, match="group label \\(1, 2\\) is a tuple"):
        save_model(path, {}, {}, {}, {(1, 2): some_moments(0)})
    with pytest.raises(ModelError, match=r"-1[0-9]* rows, which no pass"):
        save_model(path, {}, {}, {}, {None: -some_moments(0)})


def test_a_place_that_is_taken_is_left_alone(path):
    save(path, 1)
    with pytest.raises(ModelError, match=r"M.zarr exists.*overwrite=True"):
        save(path, 2)
    assert version_of(load_model(path)) == 1
    save(path, 2, overwrite=True)
    assert version_of(load_model(path)) == 2
    assert os.listdir(path.parent) == ["M.zarr"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_model_is_never_replaced(path, overwrite):
    path.mkdir()
    (path / "thesis.txt").write_text("four years")
    with pytest.raises(ModelError, match="not a model of rff_stream, so it is not replaced"):
        save(path, overwrite=overwrite)
    assert (path / "thesis.txt").read_text() == "four years"
    file = path.parent / "file"
    file.write_text("x")
    with pytest.raises(ModelError, match="not a model"):
        save(file, overwrite=overwrite)


def test_a_damaged_model_and_an_empty_folder_may_be_replaced(path):
    path.mkdir()
    save(path, 1)
    (path / "log/00000000000000000000/zarr.json").unlink()
    save(path, 2, overwrite=True)
    assert version_of(load_model(path)) == 2


def test_overwrite_without_the_systems_exchange(path, monkeypatch):
    monkeypatch.setattr("rff_stream.store.atomic._renameat2", lambda own, target: False)
    save(path, 1)
    save(path, 2, overwrite=True)
    assert version_of(load_model(path)) == 2
    assert os.listdir(path.parent) == ["M.zarr"]


def test_a_path_through_a_link_stays_a_link(path, tmp_path):
    save(tmp_path / "real.zarr", 1)
    path.symlink_to(tmp_path / "real.zarr")
    save(path, 2, overwrite=True)
    assert path.is_symlink()
    assert version_of(load_model(tmp_path / "real.zarr")) == 2
    assert version_of(load_model(f"file://{path}")) == 2


def test_what_killed_saves_left_goes_after_a_day(path):
    old, new, other = (path.parent / f".M.zarr.{c * 32}.partial" for c in "abc")
    for folder in (old, new):
        folder.mkdir()
    other = path.parent / f".N.zarr.{'c' * 32}.partial"
    other.mkdir()
    for folder in (old, other):
        os.utime(folder, (0, 0))
    save(path)
    assert sorted(os.listdir(path.parent)) == sorted([new.name, other.name, path.name])


def test_what_is_no_model_says_so(tmp_path):
    with pytest.raises(ModelError, match=r"absent.zarr is not a model.*nothing is there"):
        load_model(tmp_path / "absent.zarr")
    with pytest.raises(ModelError, match=r"not a model.*nothing is there"):
        load_model(tmp_path)
    file = tmp_path / "file.zarr"
    file.write_text("x")
    with pytest.raises(ModelError, match=r"not a model.*no zarr.json"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match=r"file\.zarr"):
        load_model(file)


def test_other_zarr_groups_are_no_models(tmp_path):
    zarr = pytest.importorskip("zarr")
    for version in (2, 3):
        other = tmp_path / f"other{version}.zarr"
        zarr.create_group(other, zarr_format=version)
        with pytest.raises(ModelError, match=f"other{version}.zarr is not a model of rff_stream"):
            load_model(other)
    zarr.create_array(tmp_path / "array.zarr", shape=3, dtype="f8")
    with pytest.raises(ModelError, match="not a model of rff_stream"):
        load_model(tmp_path / "array.zarr")


def test_a_newer_format_is_refused_by_its_number(path):
    save(path)
    root = path / "zarr.json"
    plain = json.loads(root.read_text())
    plain["attributes"]["format"] = 3
    plain["something"] = {"new": [1.0]}
    root.write_text(json.dumps(plain, indent=1))
    with pytest.raises(ModelError, match="format 3, this build reads <= 1; upgrade rff_stream"):
        load_model(path)
    with pytest.raises(ModelError, match="exists"):
        save(path)
    save(path, 4, overwrite=True)
    assert version_of(load_model(path)) == 4


def test_too_many_bytes_are_refused_before_memory_is_taken(path):
    save(path)
    size = sum(file.stat().st_size for file in files_of(path / "map"))
    with pytest.raises(ModelError, match=rf"bytes in memory, but max_bytes={size // 2:,}"):
        load_model(path, max_bytes=size // 2)


def test_a_stranger_reads_every_number(path):
    """Zarr and xarray, with warnings as errors, find what we wrote."""
    zarr = pytest.importorskip("zarr")
    xr = pytest.importorskip("xarray")
    moments = {"a": some_moments(1), "b": some_moments(2)}
    save_model(path, HEADER, arrays(), answers(), moments)
    group = zarr.open_group(path, mode="r")
    assert group.attrs["header"] == HEADER
    for name, values in arrays().items():
        assert bits(np.asarray(group[name][...])) == bits(values)
    (data,) = group["data"].group_keys()
    inside = group["data"][data]
    assert bits(inside["moments"][...]) == bits(np.array([m.sums for m in moments.values()]))
    assert inside["rows"][...].tolist() == [m.n for m in moments.values()]
    assert inside["moments"].chunks[0] == 1
    assert group["log/00000000000000000000"].attrs["op"] == "create"
    members = dict(group.members(max_depth=None))
    assert {"log/00000000000000000000", f"data/{data}/moments", "map/deep/er"} <= members.keys()
    opened = xr.open_zarr(path, group=f"data/{data}", consolidated=False).load()
    assert opened["moments"].dims == ("group", "packed")
    assert opened.attrs["groups"] == ["a", "b"]
    tree = xr.open_datatree(path, engine="zarr", consolidated=False)
    assert bits(tree["map/frequencies"].values) == bits(arrays()["map/frequencies"])


def test_zarr_finds_a_flipped_bit_by_itself(path):
    zarr = pytest.importorskip("zarr")
    save(path)
    chunk = path / "map/frequencies/c/0/0"
    data = bytearray(chunk.read_bytes())
    data[3] ^= 4
    chunk.write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        zarr.open_group(path, mode="r")["map/frequencies"][...]


def test_the_store_needs_neither_zarr_nor_pickle():
    code = (
        "import sys, rff_stream.store; "
        "print(*sorted({'zarr', 'fsspec', 'xarray', 'dask'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    source = Path(sys.modules[MomentStore.__module__].__file__ or "").parent
    words = [line for file in source.glob("*.py") for line in file.read_text().splitlines()]
    assert not [line for line in words if "import pickle" in line or "eval(" in line]


@pytest.mark.parametrize("joined", [False, True])
def test_an_array_is_written_without_a_copy(tmp_path, joined):
    """Posteriors of cells are gigabytes, and fits at the limit of memory save them."""
    array = np.random.default_rng(0).normal(size=(500, 1000))
    held: Any = JoinedArrays((array[:200], array[200:])) if joined else array
    LocalFiles(str(tmp_path)).write("warm", b"")  # compiled and imported once
    tracemalloc.start()
    sizes = write_vouched(LocalFiles(str(tmp_path)), encode("a", held))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sizes["a/c/0/0"][0] == array.nbytes + 4 and peak < 0.1 * array.nbytes
    files = {name: (tmp_path / name).read_bytes() for name in sizes}
    np.testing.assert_array_equal(decode("a", files, "here"), array)
    assert array.flags.writeable
