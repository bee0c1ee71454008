"""Array types, and the hash of a value: used by every part of the package."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class JoinedArrays:
    """Arrays one after the other along their first dimension.

    A store writes them without a copy of all, which may be gigabytes.
    """

    parts: tuple[Array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all together."""
        return (sum(len(each) for each in self.parts), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of all together."""
        return np.result_type(*self.parts)

    @property
    def nbytes(self) -> int:
        """That of all together."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate(self.parts, dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """``size`` bytes of 0 that start on a 64-byte boundary: a cache line, a vector register."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def add_to_diagonals(matrices: Float64, values: Array | float) -> None:
    """Add values (n, T) or (T,) to the diagonals of matrices (T, n, n), in their place."""
    at = np.arange(matrices.shape[1])
    matrices[:, at, at] += np.broadcast_to(values, matrices.shape[1::-1]).T


RANGE_ROWS = 1024
"""Rows of which the least values are found side by side: then NumPy works on long vectors."""


def column_range(x: Array) -> Array:
    """Least and greatest value (2, d) of each column of rows (n, d), n ≥ 1; NaN counts for nothing.

    NumPy alone works on one row of d values at a time: 15 times slower for a few columns.
    """
    d = x.shape[1]
    whole = len(x) // RANGE_ROWS * RANGE_ROWS if x.flags.c_contiguous else 0
    ends = []
    for ufunc in (np.fmin, np.fmax):
        rest = x[whole:]
        if whole:
            beside = ufunc.reduce(x[:whole].reshape(whole // RANGE_ROWS, RANGE_ROWS * d))
            rest = np.concatenate([beside.reshape(RANGE_ROWS, d), rest])
        ends.append(ufunc.reduce(rest))
    return np.stack(ends)


def digest(plain: Any, arrays: Mapping[str, Array] | None = None) -> str:
    """sha256 of plain JSON values and named arrays (64 digits): equal values, equal text.

    Dicts are sorted by key, floats enter by their shortest exact repr, arrays with name, dtype
    (little-endian), shape and bytes.
    """
    found = hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=True).encode())
    for name, array in sorted((arrays or {}).items()):
        array = np.ascontiguousarray(array)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        found.update(f"{name}:{array.dtype.str}:{array.shape}".encode())
        found.update(array.data if array.size else b"")
    return found.hexdigest()


def is_named(value: Any, name: str) -> bool:
    """Whether a parameter that may be numbers is this text."""
    return isinstance(value, str) and value == name


def json_array(plain: Any) -> NDArray[np.int64]:
    """Plain JSON values as an array of the bytes of their text, for a store of arrays alone."""
    return np.frombuffer(json.dumps(plain).encode(), np.uint8).astype(np.int64)


def json_in(array: Array) -> Any:
    """The values that gave this array."""
    return json.loads(array.astype(np.uint8).tobytes())


def nested_arrays(arrays: Mapping[str, Array], start: str) -> dict[str, Array]:
    """Arrays whose names begin so, by the rest of their names: those of a part inside a whole."""
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
