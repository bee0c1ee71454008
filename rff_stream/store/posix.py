"""What stores ask of a local disk: folders that are open, links that are refused, locks.

POSIX has them (Linux, macOS). Elsewhere this file can be imported, so that all that needs no
local store works, and a local store is refused with the reason.
"""

from __future__ import annotations

import os
import sys

from rff_stream.errors import ModelError

DIRECTORY: int = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
IS_POSIX = hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW")


def check_posix(place: str) -> None:
    """Refuse a local store where the system has no POSIX files.

    Raises
    ------
    ModelError
        Naming the place and the system.
    """
    if IS_POSIX:
        return
    raise ModelError(
        f"{place} is on a local disk of {sys.platform}, but stores and models on a local disk need "
        "POSIX files (locks, open folders, links that can be refused), which this system does not "
        "have. Save to an object store (s3://…), or work in WSL, a container or another Unix."
    )


def lock(descriptor: int) -> None:
    """Lock an open folder for this process.

    Raises
    ------
    OSError
        Another process holds it, or nothing can be locked here.
    """
    import fcntl  # absent outside POSIX, where no store is opened

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def memory_limit() -> int | None:
    """Bytes that this process may take (``ulimit -v``); None where there is no such limit."""
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else int(limit)
