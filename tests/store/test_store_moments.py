"""Batches are counted once, summed in one order, forgotten and compacted by entries of a log."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rff_stream.errors import ModelError
from rff_stream.moments import Moments
from rff_stream.store import MomentStore, load_model, save_model
from rff_stream.store import commit_log as log_module
from store_cases import (
    HEADER,
    a_row,
    answers,
    arrays,
    bits,
    expected_total,
    new_store,
    same_moments,
    some_moments,
    whole_moments,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "S.zarr"


def test_a_new_store_holds_zero_rows(path):
    store = new_store(path)
    assert store.ids() == [] and len(store) == 0 and "a" not in store
    assert same_moments(store.total(), Moments.zero(a_row()))
    assert store.groups() == {}
    assert store.row.fingerprint == a_row().fingerprint
    assert store.header == HEADER and bits(store.arrays) == bits(arrays())
    assert [entry.op for entry in store.history()] == ["create"]
    with pytest.raises(ModelError, match="exists"):
        new_store(path)


def test_what_is_appended_is_there_for_everyone(path):
    store = new_store(path, "ba")
    for reader in (store, MomentStore.open(path)):
        assert reader.ids() == ["a", "b"]
        assert same_moments(reader.total(), expected_total("ab"))
        assert [b.labels for b in reader.batches()] == [{"letter": "a"}, {"letter": "b"}]
        assert [b.rows for b in reader.batches()] == [whole_moments(ord(c)).n for c in "ab"]
        assert "a" in reader and len(reader) == 2
    assert "2 batches" in repr(store)


def test_the_sum_is_in_order_of_id_and_not_of_commit(tmp_path):
    """Real numbers: another order of the sum would show in the last bits."""
    parts = {name: some_moments(i) for i, name in enumerate(["b", "a", "é", "c", "10", "9"])}
    expected = functools.reduce(lambda x, y: x + y, (parts[name] for name in sorted(parts)))
    for i, order in enumerate(itertools.islice(itertools.permutations(parts), 0, 720, 240)):
        store = MomentStore.create(tmp_path / f"{i}.zarr", a_row())
        for name in order:
            store.append(name, parts[name])
        assert same_moments(store.total(), expected)


@pytest.mark.parametrize("order", [1, 2])
def test_groups_are_kept_apart_and_summed(path, order):
    store = MomentStore.create(path, a_row(), order=order)
    days = {
        day: {g: some_moments(10 * i + j, order=order) for j, g in enumerate(["n", "s", 3])}
        for i, day in enumerate("ab")
    }
    for day, groups in days.items():
        store.append(day, groups)
    found = store.groups()
    assert list(found) == [3, "n", "s"]
    for g, moments in found.items():
        assert same_moments(moments, days["a"][g] + days["b"][g])
    every = [days[day][g] for day in "ab" for g in (3, "n", "s")]
    assert same_moments(store.total(), functools.reduce(lambda x, y: x + y, every))
    zero = store.total(where=lambda batch: False)
    assert zero.order == order and zero.n == 0


def test_where_chooses_batches_by_what_is_known_of_them(path):
    store = new_store(path, "abcd")
    assert same_moments(store.total(lambda b: b.id > "b"), expected_total("cd"))
    assert same_moments(store.total(lambda b: b.labels["letter"] in "ad"), expected_total("ad"))


def test_the_same_batch_twice_is_one_batch(path):
    store = new_store(path, "a")
    before = store.head
    assert store.append("a", whole_moments(ord("a")), {"letter": "a"}) is False
    assert store.head == before
    assert len(list((path / "data").iterdir())) == 2  # zarr.json and the one batch


@pytest.mark.parametrize("what", ["moments", "labels", "groups", "sample"])
def test_an_id_with_other_content_is_refused_and_named(path, what):
    store = new_store(path, "a")
    same = whole_moments(ord("a"))
    other = {
        "moments": (whole_moments(3), {"letter": "a"}),
        "labels": (same, {"letter": "b"}),
        "groups": ({0: same}, {"letter": "a"}),
        "sample": (dataclasses.replace(same, sample=some_moments(9).sample), {"letter": "a"}),
    }[what]
    with pytest.raises(
        ModelError, match=r"batch 'a' was committed with other content on 20.*entry 1"
    ):
        store.append("a", *other)
    assert same_moments(store.total(), same)
    assert store.verify().unnamed == []


def test_forgetting_is_an_entry(path):
    store = new_store(path, "abc")
    store.forget("b")
    assert store.ids() == ["a", "c"]
    assert same_moments(MomentStore.open(path).total(), expected_total("ac"))
    assert [(e.op, e.id) for e in store.history()][-1] == ("forget", "b")
    with pytest.raises(ModelError, match=r"'b' was forgotten on 20.*entry 4"):
        store.forget("b")
    with pytest.raises(ModelError, match=r"no batch 'x'.*'a', 'c'"):
        store.forget("x")


def test_batches_that_are_not_there_are_no_sum_of_nothing(path):
    store = new_store(path, "abc")
    store.forget("b")
    for read in (store.total, store.groups, store.batches):
        with pytest.raises(ModelError, match=r"no batch 'x'.*'a', 'c'"):
            read(["a", "x"])
        with pytest.raises(ModelError, match=r"'b' was forgotten"):
            read(["b"])
    assert same_moments(store.total(["a"]), expected_total("a"))


def test_what_was_forgotten_does_not_come_back_by_a_retry(path):
    store = new_store(path, "ab")
    store.forget("a")
    for content in (whole_moments(ord("a")), whole_moments(1)):
        with pytest.raises(ModelError, match=r"'a' was forgotten on 20.*under a new id"):
            store.append("a", content, {"letter": "a"})
    assert store.append("a, again", whole_moments(ord("a")))


def test_forgetting_what_the_map_was_made_from_warns(path):
    store = MomentStore.create(path, a_row(), pilot=["a"])
    store.append("a", whole_moments(1))
    with pytest.warns(UserWarning, match="made from a sample of 'a'"):
        store.forget("a")


def test_compacting_keeps_values_and_groups(path):
    store = MomentStore.create(path, a_row())
    for i in range(5):
        groups = {g: some_moments(10 * i + g) for g in range(2)}
        store.append(f"{i}", groups, {"year": 2000, "day": i})
    before, groups = store.total(), store.groups()
    made = store.compact()
    assert store.ids() == [made]
    assert store.batches()[0].labels == {"year": 2000}
    np.testing.assert_allclose(store.total().sums, before.sums, rtol=1e-14, atol=1e-13)
    assert store.total().n == before.n
    assert same_moments(store.groups()[0], groups[0])
    assert store.compact() is None
    assert store.history()[-1].replaces == list("01234")
    with pytest.raises(ModelError, match=r"'3' was compacted into a sum on 20"):
        store.forget("3")
    assert (
        store.append("3", {g: some_moments(30 + g) for g in range(2)}, {"year": 2000, "day": 3})
        is False
    )
    with pytest.raises(ModelError, match="other content"):
        store.append("3", some_moments(3))
    with pytest.raises(ModelError, match="begins as those that compact gives"):
        store.append("compacted:x", some_moments(3))


def test_compacting_some_batches(path):
    store = new_store(path, "abcd")
    made = store.compact(where=lambda batch: batch.id in "bc")
    assert store.ids() == ["a", made, "d"]
    assert same_moments(store.total(), expected_total("abcd"))
    assert same_moments(store.total(lambda b: b.id == made), expected_total("bc"))


def test_compacting_sums_again_when_a_batch_is_forgotten_meanwhile(path, monkeypatch):
    store, other = new_store(path, "abc"), MomentStore.open(path)
    original = log_module.Log.commit

    def late(log, build):
        monkeypatch.setattr(log_module.Log, "commit", original)
        other.forget("b")
        return original(log, build)

    monkeypatch.setattr(log_module.Log, "commit", late)
    store.compact()
    assert same_moments(store.total(), expected_total("ac"))
    assert store.history()[-1].replaces == ["a", "c"]
    assert store.verify().unnamed == [
        name for name in store.verify().unnamed if name.startswith("data/")
    ]


def test_a_race_for_one_id_is_won_once(path, monkeypatch):
    store, other = new_store(path), MomentStore.open(path)
    original = log_module.Log.commit

    def late(log, build):
        monkeypatch.setattr(log_module.Log, "commit", original)
        assert other.append("a", whole_moments(1)) is True
        return original(log, build)

    monkeypatch.setattr(log_module.Log, "commit", late)
    assert store.append("a", whole_moments(1)) is False
    assert store.verify().unnamed == []


def test_a_race_for_one_id_with_two_contents_is_refused(path, monkeypatch):
    store, other = new_store(path), MomentStore.open(path)
    original = log_module.Log.commit

    def late(log, build):
        monkeypatch.setattr(log_module.Log, "commit", original)
        other.append("a", whole_moments(1))
        return original(log, build)

    monkeypatch.setattr(log_module.Log, "commit", late)
    with pytest.raises(ModelError, match="'a' was committed with other content"):
        store.append("a", whole_moments(2))
    assert same_moments(store.total(), whole_moments(1))


def test_a_lost_answer_is_no_lost_race(path, monkeypatch):
    """The commit went through, but the file system said it did not."""
    store = new_store(path)
    files = store._log.files
    create = files.create
    monkeypatch.setattr(files, "create", lambda name, data: create(name, data) and False)
    assert store.append("a", whole_moments(1)) is True
    assert store.ids() == ["a"]


def test_moments_of_another_meaning_are_refused(path):
    store = new_store(path)
    with pytest.raises(ModelError, match="batch 'x' differs in names of targets"):
        store.append("x", some_moments(0, a_row(4, 2)))
    with pytest.raises(ModelError, match="batch 'x' has order 1, but the store keeps order 2"):
        store.append("x", some_moments(0, order=1))
    with pytest.raises(ModelError, match="'x' has no moments"):
        store.append("x", {})
    with pytest.raises(ModelError, match="which no pass over data gives"):
        store.append("x", -some_moments(0))
    with pytest.raises(ModelError, match=r"labels\['a'\] is nan"):
        store.append("x", some_moments(0), {"a": float("nan")})
    assert len(list((path / "data").iterdir())) == 1


def test_ids_are_any_text_in_its_one_form(path):
    store = new_store(path)
    odd = ["../../etc/passwd", "a/b", " ", "\n", "\x00", "日本", "x" * 512, "é" * 256, "'\"{}"]
    for name in odd:
        assert store.append(name, whole_moments(1))
    assert set(MomentStore.open(path).ids()) == set(odd)
    assert store.append("e\u0301", whole_moments(2)) and "\u00e9" in store
    assert store.append("\u00e9", whole_moments(2)) is False
    for bad in ("", "x" * 513, "é" * 257, "\ud800", 3, None, b"x"):
        with pytest.raises(ModelError, match=r"id"):
            store.append(bad, whole_moments(1))


def test_a_model_saved_with_moments_goes_on_growing(path):
    save_model(path, HEADER, arrays(), answers(), {"n": whole_moments(1), "s": whole_moments(2)})
    store = MomentStore.open(path)
    assert store.ids() == ["fit"]
    store.append("new", {"s": whole_moments(3), "x": whole_moments(4)})
    stored = load_model(path)
    assert stored.answers == {}  # they were solved from other moments
    assert stored.header == HEADER and bits(stored.arrays) == bits(arrays())
    assert stored.moments is not None
    assert same_moments(stored.moments["n"], whole_moments(1))
    assert same_moments(stored.moments["s"], whole_moments(2) + whole_moments(3))
    assert same_moments(stored.moments["x"], whole_moments(4))


def test_verify_says_what_is_there(path):
    store = new_store(path, "abc")
    store.forget("a")
    (path / "notes.txt").write_text("hello")
    found = store.verify()
    assert (found.entries, found.batches) == (5, 2)
    assert found.rows == store.total().n
    assert "notes.txt" in found.unnamed
    assert {name.split("/")[0] for name in found.unnamed} == {"notes.txt", "data"}
    assert found.bytes > 5000


def test_verify_names_everything_that_is_wrong(path):
    store = new_store(path, "abc")
    broken = []
    for batch in store.batches()[:2]:
        broken.append(f"data/{batch.data}/moments/c/0/0")
        (path / broken[-1]).write_bytes(b"")
    with pytest.raises(ModelError) as raised:
        store.verify()
    assert all(name in str(raised.value) for name in broken)


def test_verify_reads_the_log_from_its_beginning(path, monkeypatch):
    monkeypatch.setattr(log_module, "SNAPSHOT_EVERY", 2)
    store = new_store(path, "abcde")
    store.forget("a")
    entry = path / "log" / f"{1:020}" / "zarr.json"  # of a batch that is no longer there
    entry.write_bytes(entry.read_bytes().replace(b'"letter":"a"', b'"letter":"b"'))
    assert MomentStore.open(path).ids() == list("bcde")
    with pytest.raises(ModelError, match=f"log/{1:020}/zarr.json"):
        store.verify()


def test_gc_removes_what_is_old_and_not_needed(path):
    store = new_store(path, "abc")
    store.forget("b")
    (gone,) = (e.data for e in store.history() if e.id == "b" and e.op == "add")
    abandoned = path / "data" / ("0" * 32)
    abandoned.mkdir()
    (abandoned / "zarr.json").write_text("{}")
    partial = path / "log" / f"{2:020}" / ".zarr.json.0.partial"
    partial.write_text("{")
    assert store.gc() == []
    day = time.time() - 90_000
    os.utime(abandoned / "zarr.json", (day, day))
    assert store.gc() == [f"data/{abandoned.name}"]
    os.utime(path / "log" / f"{4:020}" / "zarr.json", (day, day))
    os.utime(partial, (day, day))
    assert sorted(store.gc()) == sorted([f"data/{gone}", f"log/{2:020}/{partial.name}"])
    assert store.verify().unnamed == []
    assert same_moments(store.total(), expected_total("ac"))


def test_order_comes_from_numbers_and_not_from_clocks(path, monkeypatch):
    clock = iter(f"20{99 - i}-01-01T00:00:00+00:00" for i in range(50))
    monkeypatch.setattr(log_module, "now", lambda: next(clock))
    store = new_store(path, "abc")
    store.forget("b")
    assert MomentStore.open(path).ids() == ["a", "c"]
    assert [entry.number for entry in store.history()] == list(range(5))


@pytest.mark.slow
def test_a_commit_costs_no_more_after_a_long_history(path, monkeypatch):
    """Opened and appended to: as many files are opened, and no moments of others are read."""
    monkeypatch.setattr(log_module, "SNAPSHOT_EVERY", 32)
    store = new_store(path, "")
    counts = []
    for stop in (34, 130):  # two entries after a full state, both times
        for number in range(len(store) + 1, stop):
            store.append(f"{number:04}", whole_moments(number % 9))
        opened: list[str] = []
        original = os.open

        def counting(name, *given, original=original, opened=opened, **more):
            opened.append(str(name))
            return original(name, *given, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", counting)
            MomentStore.open(path).append(f"{stop:04}", whole_moments(1))
        counts.append(len(opened))
    assert len(store) == 130
    assert counts[0] == counts[1]


@pytest.mark.parametrize("every", [1, 2, 3, 128])
def test_opening_reads_from_the_last_full_state(path, monkeypatch, every):
    monkeypatch.setattr(log_module, "SNAPSHOT_EVERY", every)
    store = new_store(path, "abcdef")
    store.forget("c")
    made = store.compact(lambda b: b.id in "ab")
    opened = MomentStore.open(path)
    assert opened.ids() == [made, "d", "e", "f"] if made < "d" else True
    assert bits(opened._log.state.live) == bits(store._log.state.live)
    assert bits(opened._log.state.gone) == bits(store._log.state.gone)
    assert same_moments(opened.total(), expected_total("abdef"))
    assert opened.append("g", whole_moments(1)) and store.append("h", whole_moments(2))
    assert opened.ids() == store.ids()
    assert opened.head == store.head


def test_a_state_too_long_for_an_entry_is_read_from_an_earlier_one(path, monkeypatch):
    monkeypatch.setattr(log_module, "SNAPSHOT_EVERY", 2)
    store = new_store(path, "abc")
    monkeypatch.setattr(log_module, "MAX_STATE", 10)
    for letter in "defg":
        store.append(letter, whole_moments(ord(letter)))
    assert [e.number for e in store.history() if e.state] == [2]
    assert MomentStore.open(path).ids() == list("abcdefg")
    store.forget("a")
    assert same_moments(MomentStore.open(path).total(), expected_total("bcdefg"))


def test_the_newest_entries_are_all_that_opening_reads(path, monkeypatch):
    assert log_module.SNAPSHOT_EVERY == 128
    monkeypatch.setattr(log_module, "SNAPSHOT_EVERY", 16)
    store = new_store(path)
    moments = whole_moments(1)
    for i in range(2 * 16 + 3):
        store.append(f"{i:04}", moments)
    names = []
    find = type(store._log.files).find
    monkeypatch.setattr(
        type(store._log.files),
        "find",
        lambda self, name, size: (names.append(name), find(self, name, size))[1],
    )
    opened = MomentStore.open(path)
    numbers = {name for name in names if name.startswith("log/0")}
    assert len(numbers) < 10
    assert len(opened) == 2 * 16 + 3
    assert opened.total().n == moments.n * len(opened)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("afc"), st.sampled_from("uvwxyz")), max_size=12))
def test_a_store_is_a_set_of_batches(tmp_path_factory, steps):
    """Against a dict: append, forget and compact in any order, seen by a second reader."""
    path = tmp_path_factory.mktemp("steps") / "S.zarr"
    store = new_store(path)
    live: set[str] = set()
    seen: set[str] = set()
    sums: set[str] = set()
    for op, name in steps:
        if op == "a" and name not in seen - live:
            assert store.append(name, whole_moments(ord(name))) is (name not in seen)
            live |= {name} - sums
            seen.add(name)
        elif op == "f" and name in live:
            store.forget(name)
            live.remove(name)
        elif op == "c" and store.compact() is not None:
            sums |= live
            live = set()
    opened = MomentStore.open(path)
    assert {name for name in opened.ids() if len(name) == 1} == live
    rows = sum(whole_moments(ord(name)).n for name in live | sums)
    assert opened.total().n == rows
    if live | sums:
        expected = expected_total("".join(sorted(live | sums)))
        np.testing.assert_array_equal(opened.total().sums, expected.sums)
    opened.verify()
