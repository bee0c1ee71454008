"""The second attack: paths, stores that are damaged, full or used by several at once."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner, Result
from zarr.storage import LocalStore

import rff_stream as rs
from rff_stream.cli import main
from rff_stream.errors import ModelError
from rff_stream.registry import family_modules
from rff_stream.store import MomentStore
from rff_stream.store.local import LocalFiles
from toys import ridge, rows


def saved(path: Any, n: int = 200) -> Any:
    ridge().partial_fit(*rows(n, 0), batch="0").save(path, moments=True)
    return path


def shell(*words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rff_stream", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def invoked(*words: Any) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


PATHS = [
    "p%41q", "p#frag", "p?query=1", "ünïcødé ☃", "sp ace", "tab\tx", "nl\nx", "-dash", "a:b", "~t",
    "$HOME", "*glob[1]", "..dots..", "trail ", "a.zip", "a::b", "https%3A%2F%2Fx", "back\\slash",
    "%2e%2e%2fescape", "x" * 200,
]  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    """Relative and absolute, of a model and of data: no letter of it means anything."""
    monkeypatch.chdir(tmp_path)
    saved(name)
    rs.load(tmp_path / name).partial_fit(*rows(50, 1), batch="1")
    assert rs.load(name).n_rows_ == 250
    assert os.listdir(tmp_path) == [name]
    if ":" not in name:
        data = xr.Dataset({"x": ("t", np.arange(40.0)), "y": ("t", np.arange(40.0))})
        # A store, for newer zarr takes a path of xarray as a URL and drops the end after # or ?.
        data.to_zarr(LocalStore(tmp_path / f"d{name}"), consolidated=False)
        assert ridge(length_scale=9.0).fit(f"d{name}", "y").n_rows_ == 40


def test_a_path_of_bytes_is_a_path(tmp_path: Path) -> None:
    place = os.fsencode(tmp_path / "M.zarr")
    saved(place)
    assert rs.load(place).n_rows_ == 200


@pytest.mark.parametrize("name", ["x" * 256, "/".join(["y" * 200] * 25), "no/parent/M.zarr"])
def test_a_path_that_cannot_be_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="cannot be written"):
        saved(tmp_path / name)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("target", ["", ".", "/", "file", "folder", "data"])
def test_what_is_no_model_is_not_replaced(tmp_path: Path, monkeypatch: Any, target: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis").write_text("mine")
    xr.Dataset({"x": ("t", np.arange(4.0))}).to_zarr(tmp_path / "data", consolidated=False)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ModelError, match="exists and is not a model"):
        ridge().fit(*rows(50, 0)).save(target, overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_places_of_the_shell_that_lead_nowhere(tmp_path: Path) -> None:
    """Links in a circle, memory that ends with the command, more memory than there is."""
    xr.Dataset({"x": ("t", np.arange(40.0)), "y": ("t", np.arange(40.0))}).to_zarr(
        tmp_path / "d.zarr", consolidated=False
    )
    (tmp_path / "loop.zarr").symlink_to("loop.zarr")
    fit = ["fit", tmp_path / "d.zarr", "--target", "y", "--n-components", 32]
    circle = invoked("fit", tmp_path / "loop.zarr", "--target", "y")
    assert circle.exit_code == 2 and "is a link to loop.zarr, which leads nowhere" in circle.stderr
    model = invoked(*fit, "--model", tmp_path / "loop.zarr")
    assert model.exit_code == 4 and "exists and is not a model" in model.stderr
    gone = shell(*fit, "--model", "memory://m.zarr")
    assert gone.returncode == 4 and "would be gone when it ends" in gone.stderr
    much = invoked(*fit, "--memory", "1e400GiB")
    assert much.exit_code == 2 and "is no amount of memory" in much.stderr
    said = [done.stderr for done in (circle, model, gone, much)]
    assert all(
        len([line for line in text.splitlines() if "warning" not in line]) == 1 for text in said
    )


@pytest.mark.parametrize("batch", ["", 0, b"x", ("a", 1), "\ud800", "a" * 513])
@pytest.mark.parametrize("stored", [True, False])
def test_a_batch_name_is_text(tmp_path: Path, batch: Any, stored: bool) -> None:
    """Before, '' and 0 were taken for no name at all: a retry counted twice."""
    model = ridge().partial_fit(*rows(200, 0), batch="0")
    if stored:
        model.save(tmp_path / "M.zarr", moments=True)
        model = rs.load(tmp_path / "M.zarr")
    with pytest.raises(ModelError, match=r"is not text|an id has 1 to 512"):
        model.partial_fit(*rows(10, 1), batch=batch)
    assert model.n_rows_ == 200


@pytest.mark.slow
def test_names_of_batches_may_be_anything_else(tmp_path: Path) -> None:
    odd = ["../../escape", "\x1b[31m", ".", " ", "nul\0x", "é", "e\u0301f", "con"]
    path = saved(tmp_path / "M.zarr")
    for i, name in enumerate(odd):
        rs.load(path).partial_fit(*rows(10, i + 1), batch=name)
        rs.load(path).partial_fit(*rows(10, i + 1), batch=name)
    assert rs.load(path).n_rows_ == 280 and os.listdir(tmp_path) == ["M.zarr"]


def test_one_model_under_several_handles(tmp_path: Path) -> None:
    """Loaded twice, pickled, copied: each commit is seen by all, and counts once."""
    path = saved(tmp_path / "M.zarr")
    one, two = rs.load(path), rs.load(path)
    assert one.partial_fit(*rows(10, 1), batch="1").n_rows_ == 210
    assert two.partial_fit(*rows(10, 2), batch="2").n_rows_ == 220
    with pytest.raises(ModelError, match="counted before with other rows"):
        one.partial_fit(*rows(10, 9), batch="2")
    assert pickle.loads(pickle.dumps(one)).partial_fit(*rows(10, 3), batch="3").n_rows_ == 230
    assert copy.deepcopy(two).partial_fit(*rows(10, 4), batch="4").n_rows_ == 240
    assert rs.load(path).n_rows_ == 240


def test_a_model_that_was_moved_away_is_missed(tmp_path: Path) -> None:
    path = saved(tmp_path / "M.zarr")
    model = rs.load(path)
    os.rename(path, tmp_path / "N.zarr")
    with pytest.raises(ModelError, match="not a model of rff_stream: nothing is there"):
        model.partial_fit(*rows(10, 1), batch="1")
    assert os.listdir(tmp_path) == ["N.zarr"]
    os.rename(tmp_path / "N.zarr", path)
    assert model.partial_fit(*rows(10, 1), batch="1").n_rows_ == 210


def test_clocks_that_jump_change_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    path, now = saved(tmp_path / "M.zarr"), time.time
    for i, years in enumerate((-60, 300, 0)):
        monkeypatch.setattr(time, "time", lambda years=years: now() + years * 3.15e7)
        rs.load(path).partial_fit(*rows(10, i + 1), batch=str(i + 1))
    assert rs.load(path).n_rows_ == 230
    assert MomentStore.open(path).verify().rows == 230


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "bit": flip,
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "gone": lambda path: path.unlink(),
    "folder": replaced_by(lambda path: path.mkdir()),
    "pipe": replaced_by(os.mkfifo),
    "circle": replaced_by(lambda path: path.symlink_to(path.name)),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_no_damaged_file_loads(tmp_path: Path, damage: str) -> None:
    """Every file of a model with two batches, one at a time."""
    path = Path(saved(tmp_path / "M.zarr"))
    rs.load(path).update(*rows(50, 1), batch="1")
    for file in files_in(path):
        copied = tmp_path / "D.zarr"
        shutil.copytree(path, copied)
        DAMAGE[damage](copied / file.relative_to(path))
        with pytest.raises(ModelError):
            rs.load(copied)
        shutil.rmtree(copied)


def answers_of(path: Path) -> set[str]:
    return {each.name for each in (path / "answers").iterdir() if each.is_dir()}


def drop(path: Path, number: int, folder: bool) -> None:
    entry = path / f"log/{number:020}"
    shutil.rmtree(entry) if folder else (entry / "zarr.json").unlink()


@pytest.mark.parametrize("folder", [False, True])
def test_newest_entries_that_were_deleted_are_missed(tmp_path: Path, folder: bool) -> None:
    """By the answer that update() keeps; after append() alone only an open handle can tell."""
    path = Path(saved(tmp_path / "M.zarr"))
    model = rs.load(path).update(*rows(50, 1), batch="1")
    before = answers_of(path)
    model.update(*rows(50, 2), batch="2")
    rs.MomentStore.open(path).forget("1")
    rs.load(path).update(*rows(50, 3), batch="3")
    assert rs.load(path).n_rows_ == 300
    for number in (4, 3, 2):
        drop(path, number, folder)
        with pytest.raises(ModelError, match=rf"{number:020}/zarr.json is missing: answers/"):
            rs.load(path)
        with pytest.raises(ModelError, match="newest entries were deleted"):
            rs.MomentStore.open(path).verify()
    for name in answers_of(path) - before:
        shutil.rmtree(path / "answers" / name)
    assert rs.load(path).n_rows_ == 250


def test_answers_of_every_state_of_a_log_are_known(tmp_path: Path) -> None:
    """Forgotten and compacted batches and old answers are no sign of a loss."""
    path = Path(saved(tmp_path / "M.zarr"))
    for name in "abc":
        rs.load(path).update(*rows(20, ord(name)), batch=name)
    store = rs.MomentStore.open(path)
    store.forget("b")
    rs.load(path).update(*rows(20, 9), batch="d")
    store.compact()
    rs.load(path).update(*rows(20, 10), batch="e")
    store.append(
        "f", rs.collect(rs.load(path).features_, *rows(20, 11), row=store.row, progress=False)
    )
    assert rs.load(path).n_rows_ == 300
    assert store.verify().rows == 300
    (path / "answers/.left.partial").mkdir()
    assert rs.load(path).n_rows_ == 300


def together(act: Callable[[int], Any], n: int = 8) -> list[Any]:
    found: list[Any] = []

    def run(i: int) -> None:
        try:
            found.append(act(i))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == n, "a thread hangs"
    assert not [each for each in found if isinstance(each, Exception)]
    return found


def test_threads_that_fit_and_predict_see_whole_models() -> None:
    x = rows(200, 0)[0]
    known = {ridge().fit(*rows(200, i)).predict(x).tobytes() for i in range(4)}
    model = ridge().fit(*rows(200, 0))

    def act(i: int) -> None:
        for _ in range(5):
            if i < 4:
                model.fit(*rows(200, i))
            else:
                assert model.predict(x).tobytes() in known

    together(act)


@pytest.mark.slow
@pytest.mark.parametrize("handles", [1, 8])
def test_threads_that_count_lose_nothing(tmp_path: Path, handles: int) -> None:
    path = saved(tmp_path / "M.zarr")
    models = [rs.load(path) for _ in range(handles)]
    together(lambda i: models[i % handles].partial_fit(*rows(7, i + 1), batch=str(i + 1)))
    together(lambda i: models[i % handles].partial_fit(*rows(7, 99), batch="same"))
    assert rs.load(path).n_rows_ == 200 + 8 * 7 + 7


@pytest.mark.slow
def test_threads_that_save_and_load_one_path(tmp_path: Path) -> None:
    path = saved(tmp_path / "M.zarr")

    def act(i: int) -> None:
        for _ in range(3):
            if i % 2:
                assert rs.load(path).n_rows_ in {200, 100}
            else:
                ridge().partial_fit(*rows(100, i), batch="0").save(
                    path, moments=True, overwrite=True
                )

    together(act)
    assert os.listdir(tmp_path) == ["M.zarr"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_with_one_handle_lose_nothing(tmp_path: Path) -> None:
    model = rs.load(saved(tmp_path / "M.zarr"))
    children = []
    for i in range(4):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                model.partial_fit(*rows(5, i + 1), batch=str(i + 1))
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert model.partial_fit(*rows(5, 9), batch="9").n_rows_ == 225


def test_modules_of_families_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up takes the lock of all imports: an interrupt in one left other threads waiting."""
    found = family_modules("moments")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: pytest.fail(name))
    assert family_modules("moments") == found


def takes_lock_of_python(frame: FrameType) -> bool:
    """Whether Python takes or gives back a lock of its own there: an interrupt may keep it."""
    code = frame.f_code
    owner = code.co_filename == threading.__file__ or "importlib" in code.co_filename
    return owner and code.co_name not in {"wait", "_wait_for_tstate_lock"}


# Python drops an interrupt inside a callback of weakref and warns; the call then ends whole.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals")
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_interrupts_at_random_times_count_once(tmp_path: Path, stored: bool) -> None:
    """25 of them: the model is as it was or whole, and the same call again completes it."""
    rng, armed = np.random.default_rng(0), [False]

    def interrupt(number: int, frame: FrameType) -> None:
        if armed[0] and takes_lock_of_python(frame):
            signal.setitimer(signal.ITIMER_REAL, 1e-4)
        elif armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    model: Any = ridge(n_components=64).partial_fit(*rows(300, 0), batch="0")
    if stored:
        model.save(tmp_path / "M.zarr", moments=True)
        model = rs.load(tmp_path / "M.zarr")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for i in range(25):
            batch, n = rows(200, i + 1), model.n_rows_
            armed[0] = True
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.03))
                model.partial_fit(*batch, batch=str(i + 1))
            except KeyboardInterrupt:
                pass
            except RuntimeError as error:
                if str(error) != "release unlocked lock":  # of Python's own lock, interrupted there
                    raise
            armed[0] = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert model.n_rows_ in {n, n + 200}
            assert model.partial_fit(*batch, batch=str(i + 1)).n_rows_ == n + 200
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    expected = ridge(n_components=64).partial_fit(*rows(300, 0), batch="0")
    for i in range(25):
        expected.partial_fit(*rows(200, i + 1), batch=str(i + 1))
    assert np.allclose(model.predict(batch[0]), expected.predict(batch[0]), rtol=1e-9, atol=1e-9)


def test_an_interrupt_as_a_folder_is_closed_closes_each_of_them_once(tmp_path: Path) -> None:
    """A descriptor that is closed twice may by then be that of another thread's file."""
    model: Any = ridge(n_components=16).partial_fit(*rows(50, 0), batch="0")
    model.save(tmp_path / "M.zarr", moments=True)
    closed: list[int] = []
    close = os.close

    def close_and_interrupt(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)
        if len(closed) == 1:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "close", close_and_interrupt)
        with pytest.raises(KeyboardInterrupt), LocalFiles(str(tmp_path / "M.zarr"))._folder("data"):
            pass
    assert len(closed) == len(set(closed)) == 2
