"""Atomic replacement of a file or folder: the old one stays until the new one is complete.

Used for models, checkpoints, predictions and pages. The new content is written within a hidden
folder ``.NAME.<hex>.partial`` beside the target, which its writer keeps locked until nothing is
left in it: the old content too lies there when the two names have been exchanged. A killed writer
leaves this folder behind; the next writer of the same path removes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import platform
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rff_stream.errors import ModelError
from rff_stream.store.files import DIRECTORY, NOFOLLOW, cannot_write, check_posix, lock

DAY = 86_400  # seconds
AT_FDCWD = -100  # of fcntl.h
RENAME_EXCHANGE = 2  # of linux/fs.h
TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class OutputKind:
    """What is written, and how to know that something was written as such."""

    stranger: str  # what a message says of anything else: "not a model of rff_stream"
    is_own: Callable[[str], bool]
    """Whether what is at a path is of this kind: only that is ever replaced."""
    folder: bool = True  # it is a folder, not a file


@contextlib.contextmanager
def replacing(target: str, overwrite: bool, kind: OutputKind) -> Iterator[str]:
    """A path beside ``target`` (absolute, no link), which takes its name when the block ends well.

    ``overwrite`` replaces what is there, if it is of this kind. The old one stays in its place,
    whole, until the new one is: there is no moment without one where the system can exchange two
    names (Linux). Elsewhere a process that is killed between two renames leaves the old one
    beside, and :func:`recover` gives it its name back.

    Raises ModelError: the place is taken, at the start or when the block has ended, or cannot be
    written. What is there is unchanged.
    """
    check_posix(target)
    parent, name = os.path.split(target)
    recover(target)
    check_target(target, overwrite, kind)
    _remove_litter(parent, name)
    own, descriptor = _new_sibling(target)
    path = os.path.join(own, name)
    try:
        if kind.folder:
            with cannot_write(target):
                os.mkdir(path)
        yield path
        with cannot_write(target):
            if kind.folder:
                _put_folder(path, target, overwrite, kind)
            else:
                _put_file(path, target, overwrite, kind)
        _confirm(parent, target)
    finally:
        shutil.rmtree(own, ignore_errors=True)  # the attempt that failed, or the old one
        os.close(descriptor)


def check_target(target: str, overwrite: bool, kind: OutputKind) -> None:
    """Refuse a place that is taken: by anything without ``overwrite``, else by another kind."""
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise ModelError(
            f"{target} cannot be written: there is no folder to write it in ({parent} does not "
            "exist). Make it, or look at the path."
        )
    if not os.path.lexists(target):
        return
    if kind.folder and os.path.isdir(target) and not os.listdir(target):
        return
    if not _is_own(target, kind):
        raise _stranger(target, kind)
    if not overwrite:
        raise exists(target)


def _is_own(target: str, kind: OutputKind) -> bool:
    """Whether what is at a path is of a kind; looked at again where another took its place."""
    while True:
        before = _identity(target)
        if kind.is_own(target):
            return True
        if _identity(target) == before:
            return False


def _identity(path: str) -> tuple[int, int] | None:
    """Device and number of what is at a path; None where nothing is."""
    with contextlib.suppress(OSError):
        found = os.stat(path, follow_symlinks=False)
        return found.st_dev, found.st_ino
    return None


def exists(place: str) -> ModelError:
    """The error for a place that is taken."""
    return ModelError(
        f"{place} exists, and nothing is replaced by accident: choose another path, or replace it "
        "with overwrite=True (--overwrite)."
    )


def recover(target: str) -> bool:
    """Rename the old folder back, where a writer was killed between its two renames."""
    parent, name = os.path.split(target)
    if os.path.lexists(target):
        return False
    with contextlib.suppress(OSError):
        for sibling in _siblings(parent, name, "old"):
            os.rename(sibling, target)
            return True
    return False


def remove_whole(path: str) -> None:
    """Remove a folder: it is there as it was, or it is not."""
    parent, name = os.path.split(path)
    beside = os.path.join(parent, f".{name}.{_mark()}.partial")
    os.rename(path, beside)
    try:
        shutil.rmtree(beside, ignore_errors=True)
    except BaseException:  # Ctrl-C: nothing stays
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _new_sibling(target: str) -> tuple[str, int]:
    """An empty hidden folder beside the target, and its lock."""
    parent, name = os.path.split(target)
    while True:
        own = os.path.join(parent, f".{name}.{_mark()}.partial")
        with cannot_write(target):
            os.mkdir(own)
        with contextlib.suppress(FileNotFoundError):  # taken for litter before it was locked
            descriptor = os.open(own, os.O_RDONLY | DIRECTORY)
            if _lock_unless_held(descriptor) and os.path.isdir(own):
                return own, descriptor
            os.close(descriptor)


def _lock_unless_held(descriptor: int) -> bool:
    """Lock a folder; False where another one holds it, to remove it as litter."""
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    except OSError:  # no locks here: then it is litter after a day
        return True
    return True


def _put_folder(own: str, target: str, overwrite: bool, kind: OutputKind) -> None:
    """Rename onto nothing or an empty folder; exchange with one of the same kind."""
    try:
        os.rename(own, target)
    except OSError as error:
        if error.errno not in TAKEN:
            raise
        check_target(target, overwrite, kind)  # someone else may have been faster
        _exchange(own, target, kind)


def _put_file(own: str, target: str, overwrite: bool, kind: OutputKind) -> None:
    """Create the file where its name is free; else replace a file of the same kind."""
    created = False
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        created = True
    except FileExistsError:
        check_target(target, overwrite, kind)
    try:
        os.rename(own, target)
    except OSError:
        if created:
            os.unlink(target)
        raise


def _exchange(own: str, target: str, kind: OutputKind) -> None:
    """Exchange two folders; undone where the old one is not of this kind."""
    if _renameat2(own, target):
        if not kind.is_own(own):
            _renameat2(own, target)
            raise _stranger(target, kind)
        return
    aside = f"{os.path.dirname(own).removesuffix('.partial')}.old"
    while True:
        os.rename(target, aside)
        try:
            if not kind.is_own(aside):
                raise _stranger(target, kind)
            os.rename(own, target)
        except (OSError, ModelError) as error:
            again = isinstance(error, OSError) and error.errno in TAKEN
            if not os.path.lexists(target):
                os.rename(aside, target)
            if not again:
                raise
            continue
        os.rename(aside, own)
        return


def _renameat2(own: str, target: str) -> bool:
    """Exchange two names at one instant; False where the system cannot.

    Nothing in ``os`` does: a folder is never renamed onto one that is not empty.
    """
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    paths = os.fsencode(own), os.fsencode(target)
    if function(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code))


def _stranger(target: str, kind: OutputKind) -> ModelError:
    return ModelError(
        f"{target} exists and is {kind.stranger}, so it is not replaced. Choose another path, or "
        "remove it yourself."
    )


def _confirm(folder: str, target: str) -> None:
    """The new name survives a loss of power."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "error")
        raise ModelError(
            f"{target} was written and is whole, but the disk did not confirm that it will stay: "
            f"{error.strerror} ({code}). A loss of power may take it back. Look at the disk."
        ) from error


def _mark() -> str:
    """32 hexadecimal digits: 8 of this machine since it was started, 24 of this call."""
    return _machine() + uuid.uuid4().hex[:24]


def _machine() -> str:
    """The machine whose locks are seen here, containers included."""
    boot = BOOT.read_text() if BOOT.is_file() else platform.node()
    return hashlib.sha256(boot.encode()).hexdigest()[:8]


def _siblings(parent: str, name: str, kind: str) -> list[str]:
    """What writers made beside a target, the newest first."""
    pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{32}}\.{kind}")
    found = [os.path.join(parent, each) for each in os.listdir(parent) if pattern.fullmatch(each)]
    return sorted(found, key=lambda path: -os.stat(path, follow_symlinks=False).st_mtime)


def _remove_litter(parent: str, name: str) -> None:
    """Remove what killed processes left: at once where the lock tells, else after a day."""
    with contextlib.suppress(OSError):
        for path in _siblings(parent, name, "partial"):
            _remove_unlocked(path, name)
        if os.path.lexists(os.path.join(parent, name)):
            for path in _siblings(parent, name, "old"):
                _remove_unlocked(path, name)


def _remove_unlocked(path: str, name: str) -> None:
    mine = os.path.basename(path).removeprefix(f".{name}.").startswith(_machine())
    old = time.time() - os.stat(path, follow_symlinks=False).st_mtime > DAY
    descriptor = os.open(path, os.O_RDONLY | DIRECTORY | NOFOLLOW)
    try:
        try:
            lock(descriptor)
        except OSError:  # its writer lives, or nothing can be locked here
            mine = False
        if mine or old:
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
