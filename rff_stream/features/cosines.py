"""cos and sin of angles into columns: compiled where Numba is installed, else NumPy's.

One of the two for a whole process, since their last bits differ: a row has the same features
whatever batch it comes in. A cluster whose processes differ is refused before work.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rff_stream._array import Array

__all__ = ["compiled", "write_cosines", "write_pairs"]

logger = logging.getLogger("rff_stream")


@cache
def compiled() -> bool:
    """Whether this process computes float32 cosines with Numba."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        from rff_stream.features import _compiled  # noqa: F401
    except ImportError as error:  # a Numba that does not know this NumPy says so here
        logger.warning("Numba cannot be used (%s); cosines are NumPy's, and slower.", error)
        return False
    return True


def write_pairs(angles: Array, out: Array) -> None:
    """cos of angles (n, m) into columns 0, 2, … of out (n, 2m), and sin into columns 1, 3, …."""
    if not _sweep(True, angles, out):
        np.cos(angles, out=out[:, 0::2])
        np.sin(angles, out=out[:, 1::2])


def write_cosines(angles: Array, out: Array) -> None:
    """cos of angles (n, m) into out (n, m)."""
    if not _sweep(False, angles, out):
        np.cos(angles, out=out)


def _sweep(paired: bool, angles: Array, out: Array) -> bool:
    """Write all columns with compiled code; False where NumPy must."""
    if angles.dtype.char != "f" or not compiled():
        return False
    direct = out.dtype.char in "fd" and out.strides[1] == out.itemsize
    target = out if direct else np.empty(out.shape, np.float32)
    if angles.strides[1] != angles.itemsize:
        angles = np.ascontiguousarray(angles)
    rows, columns = angles.shape
    wide = _kernel(paired, target.dtype)(
        *(angles.ctypes.data, angles.strides[0] // angles.itemsize),
        *(target.ctypes.data, target.strides[0] // target.itemsize),
        *(rows, columns),
    )
    if wide:
        _repair(paired, angles, target)
    if not direct:
        out[...] = target
    return True


@cache
def _kernel(paired: bool, dtype: np.dtype[Any]) -> Callable[..., int]:
    from rff_stream.features._compiled import compile_sweep

    return compile_sweep(paired, dtype.name)


def _repair(paired: bool, angles: Array, out: Array) -> None:
    """Angles beyond the reach of the compiled reduction, by NumPy."""
    from rff_stream.features._compiled import LARGEST_ANGLE

    wide = np.abs(angles) > LARGEST_ANGLE
    step = 2 if paired else 1
    for i, wave in enumerate((np.cos, np.sin)[:step]):
        out[:, i::step][wide] = wave(angles[wide])
