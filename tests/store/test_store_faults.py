"""Disks that fill, processes that die and writers that race: the old state or the new, whole."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from failing_files import fail_everywhere, failing
from places import ROOT, TESTS
from rff_stream.errors import ModelError
from rff_stream.store import MomentStore, load_model, local
from rff_stream.store import commit_log as log_module
from store_cases import (
    a_row,
    expected_total,
    new_store,
    same_moments,
    save,
    version_of,
    whole_moments,
)


def bare_store(path: Path, ids: str) -> None:
    store = MomentStore.create(path, a_row())
    for letter in ids:
        store.append(letter, whole_moments(ord(letter)), {"letter": letter})


@pytest.mark.slow
def test_every_failing_operation_of_a_first_save_leaves_nothing(quick_path):
    def check(path: Path, done: bool) -> None:
        left = os.listdir(path.parent)
        assert left == (["M.zarr"] if path.exists() else [])
        if done:
            assert version_of(load_model(path)) == 1

    count = fail_everywhere(
        lambda path: None, lambda path: save(path, 1, small=True), check, quick_path
    )
    assert count > 40


@pytest.mark.slow
def test_every_failing_operation_of_an_overwrite_leaves_the_old_model(quick_path):
    seen = set()

    def check(path: Path, done: bool) -> None:
        found = version_of(load_model(path))
        seen.add((found, done))
        assert found == 2 or (found == 1 and not done)

    fail_everywhere(
        lambda path: save(path, 1, small=True),
        lambda path: save(path, 2, small=True, overwrite=True),
        check,
        quick_path,
    )
    assert {(1, False), (2, True)} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_every_failing_operation_of_an_append_leaves_the_old_state(quick_path, code):
    def check(path: Path, done: bool) -> None:
        store = MomentStore.open(path)
        assert store.ids() in ([["a", "b"]] if done else [["a"], ["a", "b"]])
        assert same_moments(store.total(), expected_total("".join(store.ids())))

    def again(path: Path, done: bool) -> None:
        check(path, done)
        append(path)  # the disk has room again
        assert same_moments(MomentStore.open(path).total(), expected_total("ab"))

    def append(path: Path) -> None:
        MomentStore.open(path).append("b", whole_moments(ord("b")), {"letter": "b"})

    count = fail_everywhere(lambda p: bare_store(p, "a"), append, again, quick_path, code)
    assert count > 30


@pytest.mark.slow
def test_every_failing_operation_of_forget_and_compact_leaves_the_old_state(quick_path):
    def act(path: Path) -> None:
        store = MomentStore.open(path)
        store.forget("a")
        store.compact()

    def check(path: Path, done: bool) -> None:
        store = MomentStore.open(path)
        ids = store.ids()
        assert len(ids) == 1 if done else ids == list("abc") or ids == list("bc") or len(ids) == 1
        assert same_moments(store.total(), expected_total("abc" if len(ids) == 3 else "bc"))

    fail_everywhere(lambda path: bare_store(path, "abc"), act, check, quick_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    save(tmp_path / "M.zarr")
    original = os.read

    def read(descriptor: int, size: int) -> bytes:
        if "frequencies" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        return original(descriptor, size)

    monkeypatch.setattr(local.os, "read", read)
    with pytest.raises(ModelError, match=r"map/frequencies/.* cannot be read: Input/output error"):
        load_model(tmp_path / "M.zarr")


def test_a_full_disk_gets_its_room_back(tmp_path):
    store = new_store(tmp_path / "S.zarr")
    with failing(40, errno.ENOSPC), pytest.raises(ModelError, match=r"No space left.*ENOSPC"):
        store.append("a", whole_moments(1))
    left = [p for p in (tmp_path / "S.zarr/data").rglob("*") if p.is_file()]
    assert [p.name for p in left] == ["zarr.json"]


def test_a_read_only_target_says_so(tmp_path):
    store = new_store(tmp_path / "S.zarr", "a")
    with failing(1, errno.EROFS, for_ever=True):
        with pytest.raises(ModelError, match=r"cannot be written: Read-only.*EROFS"):
            store.append("b", whole_moments(1))
        with pytest.raises(ModelError, match=r"M.zarr cannot be written: Read-only"):
            save(tmp_path / "M.zarr")
        assert MomentStore.open(tmp_path / "S.zarr").ids() == ["a"]
    with pytest.raises(ModelError, match=r"folder .*absent does not exist"):
        save(tmp_path / "absent" / "M.zarr")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights_says_so(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ModelError, match="Permission denied"):
        save(tmp_path / "M.zarr")
    tmp_path.chmod(0o700)


def test_a_file_system_without_links_says_so(tmp_path, monkeypatch):
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(local.os, "link", refuse)
    with pytest.raises(ModelError, match="makes no hard links"):
        save(tmp_path / "M.zarr")


def test_what_was_never_synced_is_refused_or_absent(tmp_path):
    """After a loss of power: data of a commit that never was are garbage, whatever they hold."""
    store = new_store(tmp_path / "S.zarr", "a")
    with failing(35, errno.EIO), pytest.raises(ModelError):
        store.append("b", whole_moments(2))
    folder = tmp_path / "S.zarr/log" / f"{2:020}"
    folder.mkdir(exist_ok=True)  # made, but the link is not there
    (folder / ".zarr.json.0.partial").write_text('{"att')
    assert MomentStore.open(tmp_path / "S.zarr").ids() == ["a"]
    assert store.append("b", whole_moments(2))
    assert MomentStore.open(tmp_path / "S.zarr").ids() == ["a", "b"]


def test_everything_is_synced_before_the_commit(tmp_path, monkeypatch):
    """Every file and folder of a batch is on disk when its entry gets its name."""
    store = new_store(tmp_path / "S.zarr", "a")
    synced: set[tuple[int, int]] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.add((found.st_dev, found.st_ino))
        real(descriptor)

    def link(*args: Any, **options: Any) -> None:
        for batch in set(os.listdir(tmp_path / "S.zarr/data")) - before:
            folder = tmp_path / "S.zarr/data" / batch
            for path in [folder, *folder.rglob("*"), folder.parent, folder.parent.parent]:
                assert (path.stat().st_dev, path.stat().st_ino) in synced, path
        linked.append(os.stat(args[0], dir_fd=options["src_dir_fd"]).st_ino)
        real_link(*args, **options)

    before = set(os.listdir(tmp_path / "S.zarr/data"))
    linked: list[int] = []
    real_link = os.link
    monkeypatch.setattr(local.os, "fsync", fsync)
    monkeypatch.setattr(local.os, "link", link)
    store.append("b", whole_moments(2))
    assert len(linked) == 1
    entry = tmp_path / "S.zarr/log" / f"{2:020}"
    for path in (entry / "zarr.json", entry, entry.parent):
        assert (path.stat().st_dev, path.stat().st_ino) in synced


def test_a_model_replaced_while_it_is_read_is_read_whole(tmp_path, monkeypatch):
    path = tmp_path / "M.zarr"
    save(path, 1)
    original = local.LocalFiles.take
    versions = iter([2, 3])

    def replaced_meanwhile(self: Any, *given: Any) -> Any:
        if (version := next(versions, None)) is not None:
            monkeypatch.setattr(local.LocalFiles, "take", original)
            save(path, version, overwrite=True)
            monkeypatch.setattr(local.LocalFiles, "take", replaced_meanwhile)
        return original(self, *given)

    monkeypatch.setattr(local.LocalFiles, "take", replaced_meanwhile)
    assert version_of(load_model(path)) == 3


# Real processes.

APPEND = """
import sys
from store_cases import whole_moments
from rff_stream.store import MomentStore
path, names = sys.argv[1], sys.argv[2:]
store = MomentStore.open(path)
print("ready", flush=True)
sys.stdin.readline()
for name in names:
    print(name, store.append(name, whole_moments(int(name[1:]))), flush=True)
"""

OVERWRITE = """
import sys
from pathlib import Path
from store_cases import save
print("ready", flush=True)
sys.stdin.readline()
for version in range(int(sys.argv[2]), 10**6):
    save(Path(sys.argv[1]), version, overwrite=True)
    print(version, flush=True)
"""


CHANGE = """
import sys
from store_cases import whole_moments
from rff_stream.store import MomentStore
store = MomentStore.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[2]), 10**6):
    store.append(f"gone{n}", whole_moments(n + 1))
    store.append(f"kept{n}", whole_moments(n))
    store.forget(f"gone{n}")
    store.compact()
    store.gc(older_than=0)
    print(n, flush=True)
"""


@contextmanager
def process(code: str, *args: Any) -> Iterator[subprocess.Popen[str]]:
    """A real process that waits for a line before it begins."""
    command = [sys.executable, "-c", code, *map(str, args)]
    folders = os.pathsep.join([str(TESTS), str(ROOT)])
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": folders},
    )
    with child:
        try:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


def begin(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def kill_after(child: subprocess.Popen[str], seconds: float) -> list[str]:
    """SIGKILL at a moment of nobody's choice; what the process had said until then."""
    begin(child)
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    assert child.stdout is not None
    return child.stdout.read().split("\n")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 5])
def test_processes_that_commit_at_once_lose_nothing(tmp_path, count):
    path = tmp_path / "S.zarr"
    new_store(path)
    own = [[f"{'abcde'[i]}{n}" for n in range(12)] for i in range(count)]
    shared = [f"s{n}" for n in range(6)]
    with process(APPEND, path, *own[0], *shared) as first:
        rest = [process(APPEND, path, *names, *shared) for names in own[1:]]
        children = [first, *(child.__enter__() for child in rest)]
        for child in children:
            begin(child)
        said = [child.communicate()[0].split("\n")[:-1] for child in children]
        for child in rest:
            child.__exit__(None, None, None)
    store = MomentStore.open(path)
    names = sorted([*shared, *(name for names in own for name in names)])
    assert store.ids() == names
    for name in names:  # committed by exactly one of them
        assert sum(f"{name} True" in lines for lines in said) == 1
    assert store.verify().entries == 1 + len(names)
    assert store.verify().unnamed == []
    expected = [whole_moments(int(name[1:])) for name in names]
    total = expected[0]
    for moments in expected[1:]:
        total = total + moments
    assert same_moments(store.total(), total)


def check_killed_append(tmp_path: Path, rounds: int, rng: random.Random) -> None:
    path = tmp_path / "S.zarr"
    new_store(path)
    acknowledged: set[str] = set()
    for i in range(rounds):
        names = [f"{'abcdefghij'[i % 10]}{n}" for n in range(1000 * i, 1000 * i + 999)]
        with process(APPEND, path, *names) as child:
            lines = kill_after(child, rng.uniform(0.02, 0.4))
        acknowledged |= {line.split()[0] for line in lines if line.endswith("True")}
        store = MomentStore.open(path)
        assert acknowledged <= set(store.ids())
        assert len(store) <= len(acknowledged) + i + 1  # at most one was not told each time
        acknowledged |= set(store.ids())
        store.verify()
    rows = sum(whole_moments(int(name[1:])).n for name in acknowledged)
    assert MomentStore.open(path).total().n == rows


def check_killed_overwrite(tmp_path: Path, rounds: int, rng: random.Random) -> None:
    path = tmp_path / "M.zarr"
    save(path, 0)
    version = 0
    for _ in range(rounds):
        with process(OVERWRITE, path, version + 1) as child:
            lines = kill_after(child, rng.uniform(0.01, 0.3))
        said = int(lines[-1]) if lines else version
        version = version_of(load_model(path))
        assert version in (said, said + 1)
    save(path, version + 1, overwrite=True)


def check_killed_changes(tmp_path: Path, rounds: int, rng: random.Random) -> None:
    """Batches that are kept, forgotten, compacted and collected, and deaths in all of that."""
    path, begun = tmp_path / "S.zarr", 0
    new_store(path, "ab")
    expected = expected_total("ab")
    for _ in range(rounds):
        with process(CHANGE, path, begun) as child:
            lines = kill_after(child, rng.uniform(0.05, 0.5))
        done = begun + len(lines)
        for n in range(begun, done):
            expected = expected + whole_moments(n)
        store = MomentStore.open(path)
        store.verify()
        gone, kept = whole_moments(done + 1), whole_moments(done)
        possible = [expected, expected + gone, expected + gone + kept, expected + kept]
        found = store.total()
        states = [i for i, each in enumerate(possible) if same_moments(found, each)]
        assert states, "the sums are those of no state"
        if f"gone{done}" in store:
            store.forget(f"gone{done}")
        if states[0] < 2:
            store.append(f"kept{done}", kept)
        expected, begun = expected + kept, done + 1
        assert same_moments(store.total(), expected)


@pytest.mark.slow
def test_killed_changes_leave_a_state_between(tmp_path):
    check_killed_changes(tmp_path, 4, random.Random(3))


@pytest.mark.slow
def test_a_killed_append_leaves_the_old_state_or_the_new(tmp_path):
    check_killed_append(tmp_path, 3, random.Random(1))


@pytest.mark.slow
def test_a_killed_overwrite_leaves_the_old_model_or_the_new(tmp_path):
    check_killed_overwrite(tmp_path, 3, random.Random(2))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "check", [check_killed_append, check_killed_overwrite, check_killed_changes]
)
def test_many_killed_writers(tmp_path, check, seed):
    check(tmp_path, 15, random.Random(seed))


@pytest.mark.slow
def test_readers_of_a_model_that_is_overwritten_again_and_again(tmp_path):
    path = tmp_path / "M.zarr"
    save(path, 0)
    with process(OVERWRITE, path, 1) as child:
        begin(child)
        until = time.monotonic() + 0.8
        versions: list[int] = []
        while time.monotonic() < until or len(set(versions)) <= 2:
            versions.append(version_of(load_model(path)))
    assert versions == sorted(versions)
    assert len(set(versions)) > 2


def test_threads_share_a_store(tmp_path):
    store = new_store(tmp_path / "S.zarr")
    threads = [
        threading.Thread(target=lambda i=i: store.append(f"{i % 6}", whole_moments(i % 6)))
        for i in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.ids() == list("012345")
    assert store.verify().entries == 7


def test_a_log_with_a_snapshot_every_entry_survives_racing(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "SNAPSHOT_EVERY", 1)
    one = MomentStore.create(tmp_path / "S.zarr", a_row())
    other = MomentStore.open(tmp_path / "S.zarr")
    for i in range(6):
        (one if i % 2 else other).append(f"{i}", whole_moments(i))
    assert one.ids() == other.ids() == list("012345")
    assert one.head == other.head
