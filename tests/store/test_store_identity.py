"""A handle knows which store it opened and what it read there; every commit checks both."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rff_stream as rs
from rff_stream.errors import ModelError
from rff_stream.store import MomentStore, Replaced, load_model, local
from rff_stream.store.commit_log import Log
from store_cases import expected_total, new_store, same_moments, save, version_of
from store_cases import whole_moments as batch
from toys import ridge, rows


def moments_of(model: Any, store: MomentStore, x: Any, y: Any) -> rs.Moments:
    return rs.collect(model.features_, x, y, row=store.row, progress=False)


def names_in(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*")}


def test_batches_of_the_same_size_are_told_apart(tmp_path):
    """What a model answers from are batches, not a number of rows."""
    model = ridge().partial_fit(*rows(300, 0), batch="0")
    model.save(tmp_path / "M", moments=True)
    store = MomentStore.open(tmp_path / "M")
    store.append("bad", moments_of(model, store, *rows(500, 1, 100.0)))
    live = rs.load(tmp_path / "M")
    store.forget("bad")
    store.append("good", moments_of(model, store, *rows(500, 1)))
    live.update(*rows(300, 0), batch="0")
    assert rs.load(tmp_path / "M").score(*rows(500, 2)) > 0.9
    assert live.score(*rows(500, 2)) > 0.9


@pytest.mark.parametrize("call", ["partial_fit", "update"])
def test_a_model_that_was_overwritten_is_not_written_to(tmp_path, call):
    ridge(length_scale=3.0).fit(*rows(300, 0)).save(tmp_path / "M", moments=True)
    late = rs.load(tmp_path / "M")
    ridge().fit(*rows(300, 0)).save(tmp_path / "M", moments=True, overwrite=True)
    before = names_in(tmp_path / "M")
    with pytest.raises(Replaced, match=r"entry 0 of its log was .*Nothing was written"):
        getattr(late, call)(*rows(3000, 1), batch="q")
    assert names_in(tmp_path / "M") == before
    assert late.n_rows_ == 300 and rs.load(tmp_path / "M").score(*rows(500, 2)) > 0.9


def test_another_working_directory_is_another_model(tmp_path, monkeypatch):
    for name, scale in (("a", 1.0), ("b", 3.0)):
        (tmp_path / name).mkdir()
        ridge(length_scale=scale).fit(*rows(300, 0)).save(tmp_path / name / "M", moments=True)
    monkeypatch.chdir(tmp_path / "a")
    model = rs.load("M")
    monkeypatch.chdir(tmp_path / "b")
    model.partial_fit(*rows(30, 1), batch="q")
    assert rs.load(tmp_path / "a" / "M").n_rows_ == 330
    assert rs.load(tmp_path / "b" / "M").n_rows_ == 300


def test_a_store_that_was_overwritten_is_not_written_to(tmp_path):
    path = tmp_path / "M.zarr"
    save(path, 1)
    store = MomentStore.open(path)
    save(path, 2, overwrite=True)
    before = names_in(path)
    for act in (lambda: store.append("x", batch(9)), lambda: store.forget("x"), store.compact):
        with pytest.raises(Replaced, match="no longer what was opened"):
            act()
    with pytest.raises(Replaced):
        store.ids()
    assert "no longer what was opened" in repr(store)
    assert names_in(path) == before and version_of(load_model(path)) == 2
    MomentStore.open(path).verify()


@pytest.mark.parametrize("moment", ["settle", "create"])
def test_a_store_that_is_overwritten_during_a_commit_is_as_its_writer_left_it(
    tmp_path, monkeypatch, moment
):
    """Between the check and the commit, too."""
    path = tmp_path / "M.zarr"
    save(path, 1)
    store = MomentStore.open(path)
    original = getattr(local.LocalFiles, moment)

    def replaced_first(self: Any, *given: Any) -> Any:
        if self._pin is not None:
            monkeypatch.setattr(local.LocalFiles, moment, original)
            save(path, 2, overwrite=True)
        return original(self, *given)

    monkeypatch.setattr(local.LocalFiles, moment, replaced_first)
    with pytest.raises(ModelError):
        store.append("x", batch(9))
    assert version_of(load_model(path)) == 2
    assert MomentStore.open(path).verify().unnamed == []


@pytest.mark.parametrize("act", ["append", "forget"])
@pytest.mark.parametrize("others", ["", "c", "cd"])
def test_a_backup_that_was_restored_is_not_torn(tmp_path, act, others):
    path, backup = tmp_path / "S.zarr", tmp_path / "backup"
    new_store(path, "a")
    shutil.copytree(path, backup)
    MomentStore.open(path).append("b", batch(ord("b")))
    handle = MomentStore.open(path)
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    for letter in others:
        MomentStore.open(path).append(letter, batch(ord(letter)))
    with pytest.raises(Replaced, match="restored from an older copy"):
        handle.append("x", batch(9)) if act == "append" else handle.forget("a")
    assert same_moments(MomentStore.open(path).total(), expected_total("a" + others))


def test_data_that_were_collected_before_their_commit_are_not_committed(tmp_path, monkeypatch):
    """A writer that stood still for two days between its data and its commit."""
    store = new_store(tmp_path / "S.zarr", "a")
    original = Log.commit

    def two_days_later(self: Log, build: Any) -> Any:
        for path in (tmp_path / "S.zarr/data").rglob("*"):
            os.utime(path, (0, 0))
        MomentStore.open(tmp_path / "S.zarr").gc()
        return original(self, build)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "commit", two_days_later)
        with pytest.raises(ModelError, match=r"batch 'b'.*removed when they are a day old"):
            store.append("b", batch(ord("b")))
    assert store.ids() == ["a"]
    assert store.append("b", batch(ord("b"))), "its id is free"
    assert same_moments(store.total(), expected_total("ab"))


def test_old_data_that_are_about_to_be_committed_are_not_collected(tmp_path, monkeypatch):
    store = new_store(tmp_path / "S.zarr", "a")
    original = local.LocalFiles.create

    def collected_first(self: Any, name: str, data: bytes) -> bool:
        monkeypatch.setattr(local.LocalFiles, "create", original)
        MomentStore.open(tmp_path / "S.zarr").gc()
        return original(self, name, data)

    hold = local.LocalFiles.hold

    def aged(self: Any, folder: str) -> Any:
        for path in (tmp_path / "S.zarr/data").rglob("*"):
            os.utime(path, (0, 0))
        return hold(self, folder)

    monkeypatch.setattr(local.LocalFiles, "hold", aged)
    monkeypatch.setattr(local.LocalFiles, "create", collected_first)
    assert store.append("b", batch(ord("b")))
    assert same_moments(MomentStore.open(tmp_path / "S.zarr").total(), expected_total("ab"))


def test_a_commit_that_the_disk_did_not_confirm_is_told_as_it_is(tmp_path, monkeypatch):
    store = new_store(tmp_path / "S.zarr", "a")
    linked, real_link, real_fsync = [], os.link, os.fsync

    def link(*given: Any, **options: Any) -> None:
        real_link(*given, **options)
        linked.append(True)

    def fsync(descriptor: int) -> None:
        if linked:
            raise OSError(errno.EIO, "Input/output error")
        real_fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(local.os, "link", link)
        patch.setattr(local.os, "fsync", fsync)
        with pytest.raises(ModelError) as caught:
            store.append("b", batch(ord("b")))
    assert "unchanged" not in str(caught.value)
    assert "was written and counts" in str(caught.value)
    assert store.ids() == ["a", "b"] == MomentStore.open(tmp_path / "S.zarr").ids()


def test_what_is_set_on_a_loaded_model_is_its_own(tmp_path):
    """The answer that a store keeps is that of the parameters it keeps."""
    ridge(alpha="evidence").fit(*rows(300, 0)).save(tmp_path / "M", moments=True)
    model = rs.load(tmp_path / "M").set_params(alpha=100.0)
    model.update(*rows(100, 1), batch="b")
    assert model.alpha_ == 100.0
    again = rs.load(tmp_path / "M")
    assert again.n_rows_ == 400 and again.alpha_ < 1.0
    model.set_params(alpha="evidence", memory=2**40, progress=True)
    model.update(*rows(100, 2), batch="c")
    assert len(MomentStore.open(tmp_path / "M").log.files.folders("answers")) == 2
    assert rs.load(tmp_path / "M").alpha_ == model.alpha_


def collect(model: Any, store: Any, x: Any, y: Any) -> Any:
    return rs.collect(model.features_, x, y, row=store.row, progress=False)


def test_a_batch_in_place_of_another_of_equal_size(tmp_path: Path) -> None:
    path = tmp_path / "a"
    model = ridge().partial_fit(*rows(300, 0), batch="0")
    model.save(path, moments=True)
    store = rs.MomentStore.open(path)
    store.append("bad", collect(model, store, *rows(500, 1, 100)))
    live = rs.load(path)
    store.forget("bad")
    store.append("good", collect(model, store, *rows(500, 1)))
    live.update(*rows(300, 0), batch="0")
    assert rs.load(path).score(*rows(500, 2)) > 0.99  # -1604 before


def test_a_model_overwritten_under_a_loaded_one(tmp_path: Path) -> None:
    path = tmp_path / "b"
    ridge(length_scale=3.0).fit(*rows(300, 0)).save(path, moments=True)
    loaded = rs.load(path)
    ridge().fit(*rows(300, 0)).save(path, moments=True, overwrite=True)
    with pytest.raises(ModelError, match="is no longer what was opened"):
        loaded.partial_fit(*rows(3000, 1), batch="q")
    assert rs.load(path).score(*rows(500, 2)) > 0.99  # -37 before


def test_a_store_overwritten_under_a_handle(tmp_path: Path) -> None:
    path = tmp_path / "c"
    model = ridge().fit(*rows(300, 0))
    model.save(path, moments=True)
    store = rs.MomentStore.open(path)
    batch = collect(model, store, *rows(9, 1))
    model.save(path, moments=True, overwrite=True)
    with pytest.raises(ModelError, match="is no longer what was opened"):
        store.append("x", batch)
    assert rs.load(path).n_rows_ == 300  # destroyed before


def test_a_backup_restored_under_a_handle(tmp_path: Path) -> None:
    path, backup = tmp_path / "d", tmp_path / "backup"
    model = ridge().fit(*rows(300, 0))
    model.save(path, moments=True)
    shutil.copytree(path, backup)
    store = rs.MomentStore.open(path)
    store.append("1", collect(model, store, *rows(9, 1)))
    shutil.rmtree(path)
    shutil.move(backup, path)
    other = rs.MomentStore.open(path)
    other.append("2", collect(model, other, *rows(9, 2)))
    with pytest.raises(ModelError, match="is no longer what was opened"):
        store.append("3", collect(model, other, *rows(9, 3)))
    assert rs.load(path).n_rows_ == 309
