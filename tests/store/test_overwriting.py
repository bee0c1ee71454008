"""Nothing is deleted but what this program wrote, and only where it was told to."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import rff_stream as rs
from growing import fitted, grown
from places import ROOT, TESTS
from rff_stream.cli.products import PREDICTIONS
from rff_stream.errors import ModelError
from rff_stream.store import Replaced, atomic, load_model, local
from rff_stream.store import model as store_model
from rff_stream.store.batch_writing import MODEL
from rff_stream.store.files import lock
from rff_stream.store.local import check_apart
from store_cases import save, version_of
from toys import run


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return grown(tmp_path / "in" / "cube.zarr", 0, 12)


@pytest.fixture
def model(tmp_path: Path, data: Path) -> Path:
    fitted(data).save(tmp_path / "m.zarr", moments=True)
    return tmp_path / "m.zarr"


def forms(path: Path, tmp_path: Path) -> Iterator[str]:
    """Everything that a path may be called."""
    yield from (str(path), f"file://{path}", f"local://{path}", f"{path}/", os.path.relpath(path))
    yield str(path.parent / "x" / ".." / path.name)
    link = tmp_path / f"link-{path.name}"
    if not link.exists():
        link.symlink_to(path)
    yield str(link)
    yield f"file://{link}"


@pytest.mark.parametrize("which", ["data", "model", "above", "below", "root"])
def test_no_form_of_a_path_that_is_read_is_written(data, model, tmp_path, which):
    path = {
        "data": data,
        "model": model,
        "above": data.parent,
        "below": data / "u",
        "root": tmp_path,
    }[which]
    before = tree(tmp_path)
    for form in [*forms(path, tmp_path.parent)]:
        for words in (
            ["predict", model, data, "--output"],
            ["fit", data, "--target", "t", "--model"],
        ):
            if words[0] == "fit" and which == "model":
                continue
            found = run(*words, form, "--overwrite")
            assert found.exit_code == 4 and "is read by this command" in found.output, found.output
    assert tree(tmp_path) == before


def test_urls_that_mean_the_same_are_the_same():
    for output, read in (
        ("s3://bucket/a.zarr", "s3a://key:secret@bucket/b/../a.zarr/"),
        ("gcs://bucket/a.zarr/inner", "gs://bucket/a.zarr"),
        ("s3://bucket", "simplecache::s3://bucket/a.zarr"),
    ):
        with pytest.raises(ModelError, match="is read by this command") as caught:
            check_apart(output, read)
        assert "secret" not in str(caught.value)
    check_apart("s3://bucket/a.zarr", "s3://bucket/a.zarr2", "/bucket/a.zarr", "gs://bucket/a.zarr")


def test_only_predictions_of_this_program_are_overwritten(data, model, tmp_path):
    out = grown(tmp_path / "out.zarr", 0, 3)
    before = tree(out)
    found = run("predict", model, data, "--output", out, "--overwrite")
    assert found.exit_code == 4 and "no Zarr store that rff-stream predicted" in found.output
    assert tree(out) == before
    mine = tmp_path / "mine.zarr"
    for more in ([], ["--overwrite"], ["--overwrite"]):
        assert run("predict", model, data, "--output", mine, *more).exit_code == 0
    assert xr.open_zarr(mine, consolidated=False).attrs["source"].startswith("rff_stream ")
    assert sorted(os.listdir(tmp_path)) == ["in", "m.zarr", "mine.zarr", "out.zarr"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_appears_meanwhile_is_not_deleted(tmp_path, overwrite, kind):
    target = tmp_path / "o.zarr"
    with pytest.raises(ModelError, match="exists and is no"):
        with atomic.replacing(str(target), overwrite, PREDICTIONS) as path:
            Path(path, "zarr.json").write_text("{}")
            if kind == "folder":
                target.mkdir()
                (target / "thesis").write_text("four years")
            else:
                target.write_text("four years")
    found = target if kind == "file" else target / "thesis"
    assert found.read_text() == "four years" and os.listdir(tmp_path) == ["o.zarr"]


@pytest.mark.parametrize("exchange", [True, False])
def test_what_takes_the_place_of_an_old_one_is_given_back(tmp_path, monkeypatch, exchange):
    """Between the last look and the rename."""
    target = tmp_path / "M.zarr"
    save(target, 1)
    real = atomic._renameat2
    thesis = target / "thesis"

    def renamed_late(own: str, name: str) -> bool:
        if not (tmp_path / "moved").exists():
            target.rename(tmp_path / "moved")
            target.mkdir()
            thesis.write_text("four years")
        return exchange and real(own, name)

    monkeypatch.setattr(atomic, "_renameat2", renamed_late)
    with pytest.raises(ModelError, match="not a model of rff_stream"):
        save(target, 2, overwrite=True)
    assert thesis.read_text() == "four years"
    assert sorted(os.listdir(tmp_path)) == ["M.zarr", "moved"]


def test_writers_of_one_place_take_nothing_from_each_other(tmp_path, monkeypatch):
    """Another one looks for litter just when this one has made or exchanged a folder."""
    target = tmp_path / "M.zarr"
    save(target, 1)
    made, exchange = os.mkdir, atomic._renameat2
    locked: list[tuple[str, int]] = []

    def make(path: str, *more: Any, **options: Any) -> None:
        made(path, *more, **options)
        if not locked:  # the other one has found it before it was locked, and is slow
            locked.append((path, os.open(path, os.O_RDONLY)))
            lock(locked[0][1])
        elif os.path.isdir(locked[0][0]):
            os.rmdir(locked[0][0])
            os.close(locked[0][1])

    def exchanged(own: str, name: str) -> bool:
        done = exchange(own, name)
        atomic._remove_litter(str(tmp_path), "M.zarr")
        return done

    monkeypatch.setattr(os, "mkdir", make)
    monkeypatch.setattr(atomic, "_renameat2", exchanged)
    save(target, 2, overwrite=True)
    assert version_of(load_model(target)) == 2
    assert os.listdir(tmp_path) == ["M.zarr"]


def test_an_update_leaves_no_answer_in_a_model_that_took_the_place(tmp_path, monkeypatch):
    """The new model looked as if it had lost commits, and no load was possible any more."""
    path, keep = tmp_path / "m.zarr", store_model.save_model
    rows = np.random.default_rng(0).normal(size=(60, 2))
    old, new = (
        rs.KernelRidge(n_components=8, length_scale=2.0, random_state=seed).fit(rows, rows[:, 0])
        for seed in (0, 1)
    )
    old.save(path, moments=True)
    model = rs.load(path)

    def late(place, *given, **more):
        monkeypatch.setattr(store_model, "save_model", keep)
        new.save(path, moments=True, overwrite=True)
        keep(place, *given, **more)

    monkeypatch.setattr(store_model, "save_model", late)
    # Not "the new rows are counted", which they were in the model that is gone
    with pytest.raises(Replaced, match=r"^\S*m.zarr is no longer what was opened.*load it again"):
        model.update(rows[:20] + 1, rows[:20, 0], batch="b")
    again = rs.load(path)
    assert again.n_rows_ == 60 and (again.predict(rows) == new.predict(rows)).all()
    assert again.update(rows + 2, rows[:, 0], batch="b").n_rows_ == 120


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["update", "forget", "batches"])
def test_a_verb_whose_model_is_overwritten_says_so_wherever_it_is(tmp_path, monkeypatch, verb):
    """Files that went with the old model looked like a full disk, damage, or rows that count."""
    path = tmp_path / "m.zarr"
    rows = np.random.default_rng(0).normal(size=(60, 2))
    old, new = (
        rs.KernelRidge(n_components=8, length_scale=2.0, random_state=seed).fit(rows, rows[:, 0])
        for seed in (0, 1)
    )
    for name, each in {"new.zarr": new, "first.zarr": old}.items():
        each.save(tmp_path / name, moments=True)
    if verb != "update":
        rs.load(tmp_path / "first.zarr").update(rows[:20] + 1, rows[:20, 0], batch="b")
    calls, at = 0, -1

    def counted(name: str) -> None:
        keep = getattr(local.LocalFiles, name)

        def call(self, *given, **more):
            nonlocal calls
            calls += 1
            if calls == at:  # a whole new folder in the place of the old one, which goes
                os.rename(path, tmp_path / "old")
                shutil.copytree(tmp_path / "new.zarr", path)
                shutil.rmtree(tmp_path / "old")
            return keep(self, *given, **more)

        monkeypatch.setattr(local.LocalFiles, name, call)

    for name in ("find", "find_all", "take", "create", "write", "sizes", "folders", "settle"):
        counted(name)
    said: list[str] = []
    while calls >= at:  # some steps later each time, until the verb is done before it
        steps, at = at, -1
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "first.zarr", path)
        model = rs.load(path)
        calls, at = 0, max(steps, 0) + 4
        try:
            if verb == "update":
                model.update(rows[:20] + 1, rows[:20, 0], batch="b")
            else:
                model.forget("b") if verb == "forget" else model.batches()
            said.append("")
        except ModelError as error:
            said.append(f"{type(error).__name__}: {error}")
        if calls >= at:
            again = rs.load(path)
            assert again.n_rows_ == 60 and (again.predict(rows) == new.predict(rows)).all()
    refused = [words for words in said if words]
    assert len(refused) > 5
    for words in refused:
        assert words.startswith("Replaced: ") and "is no longer what was opened" in words, words


def test_what_is_exchanged_during_a_look_is_looked_at_again(tmp_path):
    target, looks = tmp_path / "o", []

    def is_own(path: str) -> bool:
        looks.append(path)
        if len(looks) == 1:  # another writer puts a new one there, and removes this one
            target.rename(tmp_path / "old")
            target.mkdir()
            (target / "part").write_text("2")
            return False
        return True

    target.mkdir()
    (target / "part").write_text("1")
    atomic.check_target(str(target), True, atomic.OutputKind("not mine", is_own))
    assert len(looks) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from rff_stream.store import atomic
from store_cases import save
atomic._renameat2 = lambda own, target: False
real, calls = os.rename, []
def rename(*given, **options):
    real(*given, **options)
    calls.append(given)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
class System:
    def __getattr__(self, name):
        return rename if name == "rename" else getattr(os, name)
atomic.os = System()
save(Path(sys.argv[1]), 2, small=True, overwrite=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("renames", [1, 2, 3])
def test_a_save_killed_between_renames_leaves_the_old_or_the_new(tmp_path, renames):
    path = tmp_path / "M.zarr"
    save(path, 1, small=True)
    folders = os.pathsep.join([str(TESTS), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, path, str(renames)],
        env={**os.environ, "PYTHONPATH": folders},
    )
    assert done.returncode == -signal.SIGKILL
    assert version_of(load_model(path)) == (1 if renames == 1 else 2)
    save(path, 3, small=True, overwrite=True)
    assert version_of(load_model(path)) == 3 and os.listdir(tmp_path) == ["M.zarr"]


LEFT = """
import os, signal, sys
from rff_stream.cli.products import PREDICTIONS
from rff_stream.store.atomic import replacing
with replacing(sys.argv[1], True, PREDICTIONS) as path:
    open(path + "/part", "w").close()
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    print("there", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_what_a_killed_command_left_goes_with_the_next(data, model, tmp_path):
    """What a living one writes stays."""
    out = tmp_path / "out.zarr"
    words = [sys.executable, "-c", LEFT, str(out)]
    assert subprocess.run([*words, "kill"]).returncode == -signal.SIGKILL
    assert [name for name in os.listdir(tmp_path) if name.endswith(".partial")]
    with subprocess.Popen([*words, "live"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as live:
        assert live.stdout is not None and live.stdout.readline() == b"there\n"
        assert run("predict", model, data, "--output", out).exit_code == 0
        (left,) = (name for name in os.listdir(tmp_path) if name.endswith(".partial"))
        assert os.listdir(tmp_path / left / "out.zarr") == ["part"]
        live.kill()
    assert run("predict", model, data, "--output", out, "--overwrite").exit_code == 0
    assert sorted(os.listdir(tmp_path)) == ["in", "m.zarr", "out.zarr"]


def test_a_name_that_the_disk_did_not_confirm_is_told_as_it_is(tmp_path, monkeypatch):
    def confirm(folder: str, flags: int, *more: Any, **options: Any) -> int:
        if folder == str(tmp_path):
            raise OSError(errno.EIO, "Input/output error")
        return real(folder, flags, *more, **options)

    class System:
        open = staticmethod(confirm)

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

    real = os.open
    monkeypatch.setattr(atomic, "os", System())
    with pytest.raises(ModelError, match="was written and is whole, but the disk did not confirm"):
        save(tmp_path / "M.zarr", 1)
    assert version_of(load_model(tmp_path / "M.zarr")) == 1


@pytest.mark.slow
def test_a_page_replaces_only_a_page(data, model, tmp_path):
    page, notes = tmp_path / "page.html", tmp_path / "notes.html"
    notes.write_text("<html>mine</html>")
    assert run("report", model, "-o", page).exit_code == 0
    assert run("report", model, "-o", page).exit_code == 4
    assert run("report", model, "-o", page, "--overwrite").exit_code == 0
    found = run("report", model, "-o", notes, "--overwrite")
    assert found.exit_code == 4 and notes.read_text() == "<html>mine</html>"
    assert run("report", model, "-o", model / "page.html").exit_code == 4
    assert rs.load(model).n_rows_ == 12 * 8


def test_the_demo_deletes_only_a_demo(tmp_path):
    cube = grown(tmp_path / "ocean.zarr", 0, 3)
    before = tree(cube)
    found = run("demo", "--output", tmp_path, "--days", "2", "--overwrite")
    assert found.exit_code == 4 and "no cube that rff-stream demo made" in found.output
    assert tree(cube) == before


def test_a_model_is_a_kind_of_its_own(tmp_path):
    assert not MODEL.is_own(str(tmp_path))


def test_ctrl_c_while_a_folder_is_removed_leaves_nothing(tmp_path, monkeypatch):
    folder, remove, calls = tmp_path / "M.zarr.checkpoint", shutil.rmtree, []

    def stopped(*given, **more):
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(*given, **more)

    folder.mkdir()
    (folder / "part").write_text("1")
    monkeypatch.setattr(shutil, "rmtree", stopped)
    with pytest.raises(KeyboardInterrupt):
        atomic.remove_whole(str(folder))
    assert not list(tmp_path.iterdir())
