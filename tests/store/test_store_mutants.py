"""Whatever is done to a stored model, it loads as it was or is refused with the file's name."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rff_stream.errors import ModelError
from rff_stream.store import MomentStore, load_model, save_model
from rff_stream.store.commit_log import Entry
from rff_stream.store.zarr_files import canonical
from store_cases import a_row, bits, expected_total, files_of, new_store, save, version_of

FIRST = "log/00000000000000000000/zarr.json"
Mutation = Callable[[], None]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three batches, one of them forgotten: as small as has every kind of file."""
    path = tmp_path_factory.mktemp("mutants") / "M.zarr"
    made = new_store(path, "abc")
    made.forget("b")
    made.gc(older_than=-1)  # so that every file that is left is named
    return path


def load(path: Path) -> Any:
    opened = MomentStore.open(path)
    return bits(opened.total()), opened.ids(), opened.header, bits(opened.arrays)


def refused(path: Path, name: str) -> bool:
    """Whether the store is refused with a message that names the file."""
    try:
        load(path)
    except ModelError as error:
        return name in str(error)
    return False


class Restored:
    """A file that gets its bytes back after each mutation."""

    def __init__(self, file: Path) -> None:
        self.file, self.data = file, file.read_bytes()

    def __enter__(self) -> bytes:
        return self.data

    def __exit__(self, *_: object) -> None:
        remove(self.file)
        self.file.write_bytes(self.data)


def remove(path: Path) -> None:
    """Whatever is there."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif os.path.lexists(path):
        path.unlink()


def byte_mutants(data: bytes, places: Iterator[int] | range) -> Iterator[bytes]:
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        yield bytes(changed)


def size_mutants(data: bytes) -> Iterator[bytes]:
    yield from (data[:-1], data[: len(data) // 2], b"", data + b"\0", data + b" ", b" " + data)


def check_bytes(path: Path, places: Callable[[bytes], Any]) -> int:
    """Change files in place; count the mutants, all of which must be refused."""
    count = 0
    for file in files_of(path):
        name = file.relative_to(path).as_posix()
        with Restored(file) as data:
            for changed in [*byte_mutants(data, places(data)), *size_mutants(data)]:
                file.write_bytes(changed)
                assert refused(path, name), f"{name}: {data!r} -> {changed!r}"
                count += 1
    return count


@pytest.mark.slow
def test_every_changed_or_cut_file_is_refused_by_name(store):
    rng = np.random.default_rng(0)
    before = load(store)
    count = check_bytes(store, lambda data: rng.integers(len(data), size=3))
    assert count >= 300
    assert load(store) == before


@pytest.mark.long
def test_every_single_changed_byte_is_refused(tmp_path):
    path = tmp_path / "M.zarr"
    made = MomentStore.create(path, a_row(1))
    made.append("a", dataclasses.replace(expected_total("a"), **one_feature()))
    check_bytes(path, lambda data: range(len(data)))


def one_feature() -> dict[str, Any]:
    return {"row": a_row(1), "sums": np.arange(6.0)}


def test_every_missing_file_is_refused_by_name(store):
    last = "log/00000000000000000004/zarr.json"  # without it the store is that of an earlier day
    for file in files_of(store):
        name = file.relative_to(store).as_posix()
        with Restored(file):
            file.unlink()
            assert name == last or refused(store, "log" if name == FIRST else name)


@pytest.mark.slow
def test_links_folders_and_pipes_in_place_of_files_are_refused(store, tmp_path):
    for file in files_of(store):
        name = file.relative_to(store).as_posix()
        with Restored(file) as data:
            outside = tmp_path / "same"
            outside.write_bytes(data)
            for put in (os.mkdir, os.mkfifo, functools.partial(os.symlink, outside)):
                remove(file)
                put(file)
                assert refused(store, name)


def test_links_in_place_of_folders_are_refused(store, tmp_path):
    for folder in sorted(path for path in store.rglob("*") if path.is_dir()):
        aside = tmp_path / "aside"
        folder.rename(aside)
        folder.symlink_to(aside)
        assert refused(store, folder.relative_to(store).as_posix())
        folder.unlink()
        aside.rename(folder)
    load(store)


def test_swapped_files_are_refused(store):
    files = files_of(store)
    for one, other in itertools.pairwise(files):
        with Restored(one) as first, Restored(other) as second:
            if first != second:
                one.write_bytes(second)
                other.write_bytes(first)
                with pytest.raises(ModelError):
                    load(store)


@pytest.mark.slow
def test_an_extra_file_is_refused_in_named_data_and_listed_elsewhere(store):
    before = load(store)
    for folder in {file.parent for file in files_of(store)}:
        name = folder.relative_to(store).as_posix()
        for extra in (folder / "extra", folder / "c" / "9", folder / "more" / "zarr.json"):
            fresh = not extra.parent.exists()
            if extra.parent.is_file():
                continue
            extra.parent.mkdir(exist_ok=True)
            extra.write_text("{}")
            inside = name.split("/")[0] in ("map", "pilot", "row") or name.startswith("data/")
            if inside:
                assert refused(store, extra.relative_to(store).as_posix())
            else:
                assert load(store) == before
                unnamed = MomentStore.open(store).verify().unnamed
                assert unnamed == [extra.relative_to(store).as_posix()]
            extra.unlink()
            if fresh:
                extra.parent.rmdir()


def test_entries_from_another_store_are_refused(store, tmp_path):
    other = new_store(tmp_path / "other.zarr", "abcd")
    for number in range(5):
        name = f"log/{number:020}/zarr.json"
        with Restored(store / name):
            shutil.copy(tmp_path / "other.zarr" / name, store / name)
            with pytest.raises(ModelError):
                load(store)
    assert other.ids() == list("abcd")


def test_only_who_kept_the_head_sees_that_the_last_entry_was_taken_away(store):
    head = MomentStore.open(store).head
    last = store / "log/00000000000000000004/zarr.json"
    with Restored(last):
        last.unlink()
        earlier = MomentStore.open(store)
        assert earlier.ids() == list("abc")
        assert earlier.head != head
    assert MomentStore.open(store).head == head


# What follows is written by someone who knows the format: every hash is right.


def rewrite(path: Path, change: Callable[[dict[str, Any]], None], name: str = FIRST) -> None:
    """Change an entry and give it the sha256 that fits."""
    plain = json.loads((path / name).read_text())
    attributes = plain["attributes"]
    del attributes["sha256"]
    change(attributes)
    attributes["sha256"] = hashlib.sha256(canonical(attributes, "entry")).hexdigest()
    (path / name).write_bytes(canonical(plain, "entry"))


def vouch(path: Path, name: str, data: bytes) -> None:
    """Put bytes into a model and into its commit."""
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(data)
    said = [len(data), hashlib.sha256(data).hexdigest()]
    rewrite(path, lambda attributes: attributes["files"].update({name: said}))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "M.zarr"
    save(path, 1)
    return path


def test_the_tools_of_a_forger_work(model):
    data = (model / "map/origin/c/0").read_bytes()
    vouch(model, "map/origin/c/0", data)
    assert version_of(load_model(model)) == 1


METADATA = {
    "data_type": ("string", "object", "complex128", "int8", {"name": "numpy.datetime64"}),
    "zarr_format": (2, 4, "3"),
    "node_type": ("arrow", None),
    "codecs": (
        [],
        [{"name": "numcodecs.pickle"}],
        [{"name": "bytes"}, {"name": "zstd"}],
        [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}],
        [{"name": "sharding_indexed", "configuration": {"codecs": []}}],
    ),
    "shape": ([2**50, 2**50], [-2], [2.0], "2", [10**9], [10**15], [True], [], [2] * 20, [1]),
    "chunk_grid": ({"name": "regular", "configuration": {"chunk_shape": [0]}}, None),
    "fill_value": (1.0, None),
    "chunk_key_encoding": ({"name": "v2"}, {"name": "default", "configuration": {}}),
    "dimension_names": ([], None, ["a", "b"]),
    "storage_transformers": ([{"name": "run"}],),
    "attributes": ({"_FillValue": 3},),
}


@pytest.mark.parametrize("key", METADATA)
def test_metadata_outside_the_allowed_terms_are_refused(model, key):
    name = "map/origin/zarr.json"
    good = json.loads((model / name).read_text())
    for value in METADATA[key]:
        vouch(model, name, canonical(good | {key: value}, "bad"))
        with pytest.raises(ModelError, match="map/origin"):
            load_model(model)


BAD_JSON = {
    "deep": b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
    "nan": b'{"a":NaN}',
    "inf": b'{"a":1e999}',
    "twice": b'{"a":1,"a":2}',
    "spaces": b'{"a": 1}',
    "a list": b"[1]",
    "utf-16": '{"a":1}'.encode("utf-16"),
    "a huge number": b'{"a":' + b"9" * 10_000 + b"}",
    "empty": b"",
}


@pytest.mark.parametrize("kind", BAD_JSON)
@pytest.mark.parametrize("name", ["zarr.json", "map/origin/zarr.json", FIRST])
def test_odd_json_is_refused_by_name(model, kind, name):
    if name == FIRST:
        (model / name).write_bytes(BAD_JSON[kind])
    else:
        vouch(model, name, BAD_JSON[kind])
    with pytest.raises(ModelError) as raised:
        load_model(model)
    assert name in str(raised.value)


OUTSIDE = ["../secret", "/etc/passwd", "map/../../secret", "map//x", ".", "", "map/\x00", "a\\b"]


@pytest.mark.parametrize("name", [*OUTSIDE, "data/" + "0" * 32 + "/x", "log/x", ".hidden"])
def test_nothing_outside_the_fixed_names_is_read(model, name, monkeypatch):
    (model.parent / "secret").write_bytes(b"x")
    said = [1, hashlib.sha256(b"x").hexdigest()]
    rewrite(model, lambda attributes: attributes["files"].update({name: said}))
    read: list[Any] = []
    original = os.open

    def watched(path: Any, *args: Any, **options: Any) -> int:
        read.append(path)
        return original(path, *args, **options)

    monkeypatch.setattr(os, "open", watched)
    with pytest.raises(ModelError, match=FIRST):
        load_model(model)
    assert not [path for path in read if "secret" in str(path) or "passwd" in str(path)]


ENTRY = {
    "number": (1, -1, "0", 0.0, True),
    "op": ("add", "run", "compact", None),
    "previous": ("0" * 64, 0),
    "files": ([], {}, {"zarr.json": [1]}, {"zarr.json": [-1, "0" * 64]}, {"zarr.json": [1, "x"]}),
    "id": (3, ["a"]),
    "groups": ("a", [["a"]], [0, 1], []),
    "labels": ([], "x"),
    "rows": (-1, 1.5, 3),
    "data": ("..", "0" * 32, 3),
    "replaces": (["a"], "a", None),
    "nonce": ("", None),
    "state": (3, []),
    "extra": (1,),
    "format": (2, 0, -1, "1", None),
}


@pytest.mark.parametrize("key", ENTRY)
def test_entries_that_mean_nothing_are_refused(model, key):
    good = (model / FIRST).read_bytes()
    for value in ENTRY[key]:
        (model / FIRST).write_bytes(good)
        rewrite(model, lambda attributes, value=value: attributes.update({key: value}))
        with pytest.raises(ModelError):
            load_model(model)


STATES: list[Any] = [
    {},
    {"live": {"a": {}}, "gone": {}},
    {"live": [], "gone": {}},
    {"live": {"a": 3}, "gone": {}},
    {"live": {}, "gone": {"a": {"x": 1}}},
    {"live": {}, "gone": {"a": {"op": "forget", "number": "3"}}},
]


def places_in(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values in JSON are."""
    yield at
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from places_in(inner, (*at, key))


def put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    for key in place[:-1]:
        value = value[key]
    if new is KeyError:
        del value[place[-1]]
    else:
        value[place[-1]] = new


@pytest.mark.parametrize("name", ["zarr.json", FIRST, f"log/{2:020}/zarr.json"])
def test_values_of_any_type_in_any_place_are_loaded_or_refused(tmp_path, name, monkeypatch):
    """Whatever a forger writes: no traceback of ours, and nothing that hangs or fills memory."""
    import rff_stream.store.commit_log as log

    monkeypatch.setattr(log, "SNAPSHOT_EVERY", 2)
    path = tmp_path / "M.zarr"
    store = MomentStore.create(path, a_row(), pilot=["a"])
    for letter in "ab":
        store.append(letter, expected_total(letter), {"x": 1})
    store.forget("b")
    entries = [path / f"log/{i:020}/zarr.json" for i in range(4)]
    good = {file: file.read_bytes() for file in [path / "zarr.json", *entries]}
    plain = json.loads(good[path / name])["attributes"]
    rng = np.random.default_rng(0)
    odd = [None, True, -1, 3, 10**30, 1.5, "x", [], ["x"], {}, {"x": {}}, KeyError]
    places = [place for place in places_in(plain) if place not in ((), ("sha256",))]
    for place in [places[i] for i in rng.permutation(len(places))[:40]]:
        for new in [odd[i] for i in rng.permutation(len(odd))[:3]]:
            changed = json.loads(good[path / name])
            put(changed["attributes"], place, new)
            forge(path, good, name, changed)
            with contextlib.suppress(ModelError):
                opened = MomentStore.open(path)
                opened.total()
                opened.history()
                opened.append("c", expected_total("c"))


def forge(path: Path, good: dict[Path, bytes], name: str, changed: dict[str, Any]) -> None:
    """Put a changed file into the store, with every hash that depends on it."""
    for file, data in good.items():
        file.write_bytes(data)
    for extra in (path / "log").glob("0*4"):
        shutil.rmtree(extra)
    if name == "zarr.json":
        vouch(path, name, canonical(changed, "root"))
    else:
        (path / name).write_bytes(canonical(changed, "entry"))
        rewrite(path, lambda attributes: None, name)
    previous, origin = None, ""
    for number in range(4):
        entry = f"log/{number:020}/zarr.json"
        follow = json.loads((path / entry).read_bytes())["attributes"]
        if entry != name and isinstance(follow.get("previous"), str):
            rewrite(path, lambda attributes, p=previous: attributes.update(previous=p), entry)
        if number == 0:
            origin = hashlib.sha256((path / entry).read_bytes()).hexdigest()
        elif entry != name and follow["state"]:
            rewrite(path, lambda a, o=origin: a["state"].update(origin=o), entry)
        previous = hashlib.sha256((path / entry).read_bytes()).hexdigest()


@pytest.mark.parametrize("state", STATES)
def test_states_that_mean_nothing_are_refused(tmp_path, state):
    new_store(tmp_path / "M.zarr", "ab")
    name = f"log/{2:020}/zarr.json"
    import rff_stream.store.commit_log as log

    origin = hashlib.sha256((tmp_path / "M.zarr" / FIRST).read_bytes()).hexdigest()
    rewrite(tmp_path / "M.zarr", lambda a: a.update({"state": {"origin": origin, **state}}), name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "SNAPSHOT_EVERY", 2)
        with pytest.raises(ModelError, match=f"{2:020}"):
            MomentStore.open(tmp_path / "M.zarr").total()


def test_forged_moments_are_refused_by_field(tmp_path):
    path = tmp_path / "M.zarr"
    good = expected_total("a")
    infinite = np.array([np.inf, -np.inf, *good.sums[2:]])
    bad = {
        "sums that are not": {"sums": infinite},
        "sums that are not finite": {"sums": np.full(len(good.sums), np.nan)},
        "squared weight -1": {"squared_weight": -1.0},
        "log weight nan": {"log_weight": float("nan")},
        "rows, which no pass": {"n": -5},
    }
    for message, change in bad.items():
        with pytest.raises(ModelError, match=message):
            save_model(path, {}, {}, {}, {None: dataclasses.replace(good, **change)})
    save_model(path, {}, {}, {}, {None: good})
    (data,) = [folder for folder in (path / "data").iterdir() if folder.is_dir()]
    name = data.relative_to(path).as_posix() + "/weights/c/0/0"
    vouch(path, name, (path / name).read_bytes()[:-20] + np.float64(np.nan).tobytes() + b"\0" * 12)
    with pytest.raises(ModelError, match="weight"):
        load_model(path)


def test_an_entry_that_was_written_is_read_as_it_was():
    entry = Entry(number=0, op="create", time="", nonce="0" * 32, previous=None)
    assert Entry.from_bytes(entry.to_bytes(), "here", "name") == entry
