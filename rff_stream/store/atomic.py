"""A new folder that takes its place at one instant, beside whatever was there before."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator

from rff_stream.errors import ModelError
from rff_stream.store.canonical_json import MAX_JSON, parse_loosely
from rff_stream.store.entries import is_root
from rff_stream.store.local import LocalFiles, cannot_write

__all__ = ["exists", "staged"]

DAY = 86_400  # seconds
AT_FDCWD = -100
RENAME_EXCHANGE = 2


@contextlib.contextmanager
def staged(target: str, overwrite: bool) -> Iterator[LocalFiles]:
    """Files of a sibling folder that becomes ``target`` when the block ends well.

    The old model stays in its place, whole, until the new one is; there is no moment
    without one where the system can exchange two names (Linux). What a killed process leaves
    behind is a hidden sibling, which the next save removes when it is a day old.
    """
    check_target(target, overwrite)
    parent, name = os.path.split(target)
    own = os.path.join(parent, f".{name}.{uuid.uuid4().hex}.partial")
    with cannot_write(target):
        os.mkdir(own)
    files = LocalFiles(own)
    files.place = target
    try:
        yield files
        with cannot_write(target):
            _put_in_place(own, target, overwrite)
            _sync(parent)
    finally:
        shutil.rmtree(own, ignore_errors=True)  # the attempt that failed, or the old model
        _remove_abandoned(parent, name)


def check_target(target: str, overwrite: bool) -> None:
    """Refuse a place that is taken: by anything without ``overwrite``, else by no model."""
    if not os.path.isdir(os.path.dirname(target)):
        raise ModelError(
            f"{target} cannot be written: the folder {os.path.dirname(target)} does not exist. "
            "Make it, or look at the path."
        )
    if not os.path.lexists(target) or (os.path.isdir(target) and not os.listdir(target)):
        return
    if not _is_model(target):
        raise ModelError(
            f"{target} exists and is not a model of rff_stream, so it is not replaced. "
            "Choose another path, or remove it yourself."
        )
    if not overwrite:
        raise exists(target)


def exists(place: str) -> ModelError:
    """The error for a place that is taken."""
    return ModelError(
        f"{place} exists. A model is not replaced by accident: choose another path, or save "
        "with overwrite=True (--overwrite)."
    )


def _is_model(target: str) -> bool:
    """Whether the root says that this is a model, whole or damaged, of any format."""
    try:
        data = LocalFiles(target).find("zarr.json", MAX_JSON)
        return data is not None and is_root(parse_loosely(data, target))
    except ModelError:
        return False


def _put_in_place(own: str, target: str, overwrite: bool) -> None:
    """Rename onto nothing or an empty folder; exchange with a model."""
    try:
        os.rename(own, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        check_target(target, overwrite)  # someone else may have been faster
        _exchange(own, target)


def _exchange(own: str, target: str) -> None:
    if _renameat2(own, target):
        return
    aside = f"{own}.old"
    os.rename(target, aside)
    try:
        os.rename(own, target)
    except OSError:
        os.rename(aside, target)
        raise
    os.rename(aside, own)


def _renameat2(own: str, target: str) -> bool:
    """Exchange two names at one instant; False where the system cannot."""
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


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_abandoned(parent: str, name: str) -> None:
    """Remove what killed processes left here more than a day ago."""
    pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{32}}\.partial")
    with contextlib.suppress(OSError):
        for found in filter(pattern.fullmatch, os.listdir(parent)):
            path = os.path.join(parent, found)
            if time.time() - os.stat(path, follow_symlinks=False).st_mtime > DAY:
                shutil.rmtree(path, ignore_errors=True)
