"""Memory of the machine, of what this process may use of it, and of what it has used."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path


def machine_memory() -> int:
    """Bytes of memory in this machine."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import psutil  # Windows; comes with distributed

    return int(psutil.virtual_memory().total)


def available_memory() -> int:
    """Bytes this process may use: the container's limit, or the machine's memory."""
    total = machine_memory()
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(name)
        text = path.read_text().strip() if path.is_file() else "max"
        if text.isdigit():
            total = min(total, int(text))
    return total


STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Most resident bytes since this program began; of the process where that is not told.

    On Linux ``ru_maxrss`` also counts what the parent held when it started this process.
    """
    if STATUS.is_file():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource  # absent outside POSIX

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def return_freed_pages() -> None:
    """Give freed memory between what is held back to the system, where the C library can.

    glibc keeps it for arrays of the size that was freed, and larger ones find no room in it.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # no glibc; Windows
        ctypes.CDLL(None).malloc_trim(0)
