"""Files whose operations fail one after another, and a folder that is quick to write to."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rff_stream.errors import ModelError
from rff_stream.store import atomic, local

__all__ = ["FailingSystem", "fail_everywhere", "failing", "quick_path"]

OPERATIONS = ("mkdir", "open", "write", "fsync", "link", "rename")


class FailingSystem:
    """``os`` whose k-th operation that writes fails; a failing write writes a part first."""

    def __init__(self, k: int, code: int, for_ever: bool = False) -> None:
        self.left, self.code, self.for_ever = k, code, for_ever
        self._lock = threading.Lock()

    @property
    def failed(self) -> bool:
        return self.left <= 0

    def __getattr__(self, name: str) -> Any:
        original = getattr(os, name)
        return self.wrapped(name, original) if name in OPERATIONS else original

    def wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            reads = name == "open" and not args[1] & os.O_CREAT
            with self._lock:
                self.left -= not reads
                fails = not reads and (self.left <= 0 if self.for_ever else self.left == 0)
            if fails:
                if name == "write":
                    original(args[0], args[1][: len(args[1]) // 2])
                raise OSError(self.code, os.strerror(self.code))
            return original(*args, **options)

        return operation


@contextmanager
def failing(k: int, code: int, for_ever: bool = False) -> Iterator[FailingSystem]:
    system = FailingSystem(k, code, for_ever)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "os", system)
        patch.setattr(atomic, "os", system)
        exchange = system.wrapped("exchange", atomic._renameat2)
        patch.setattr(atomic, "_renameat2", exchange)
        yield system


@pytest.fixture
def quick_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in memory where there is one: nothing here loses power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(
        dir=memory if os.access(memory, os.W_OK) else tmp_path
    ) as name:
        yield Path(name)


def fail_everywhere(
    prepare: Callable[[Path], Any],
    act: Callable[[Path], Any],
    check: Callable[[Path, bool], Any],
    tmp_path: Path,
    code: int = errno.ENOSPC,
) -> int:
    """Let every k-th operation of an act fail; ``check`` gets the path and whether it ended."""
    before = tmp_path / "before"
    before.mkdir()
    prepare(before / "M.zarr")
    for k in range(1, 1000):
        path = tmp_path / f"{k}" / "M.zarr"
        shutil.copytree(before, path.parent)
        message = ""
        with failing(k, code) as system:
            try:
                act(path)
            except ModelError as error:
                message = str(error)
        check(path, not message)
        assert not message or (os.strerror(code) in message and str(path) in message)
        if not system.failed:
            return k - 1
    raise AssertionError("it never ends")
