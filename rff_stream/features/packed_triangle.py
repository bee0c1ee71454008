"""Triangles in LAPACK's rectangular full packed form: half the memory, the speed of full ones.

A triangle of order P lies in P(P+1)/2 numbers as three blocks (two small triangles and a
rectangle) that matrix products can use in place. Calls release the GIL.

References
----------
Gustavson, Waśniewski, Dongarra & Langou 2010 (ACM TOMS 37, 18): xSFRK, xTFSM.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack, lapack

from rff_stream._array import Array

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]


def c_routine(module: Any, name: str, n_arguments: int) -> Callable[..., None]:
    """A routine of BLAS or LAPACK as a C function: it releases the GIL, unlike SciPy's f2py."""
    capsule = module.__pyx_capi__[name]
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    return prototype(_pointer(capsule, _name(capsule)))


_PRODUCTS: dict[np.dtype[Any], tuple[Callable[..., None], Any]] = {
    np.dtype(np.float32): (c_routine(cython_lapack, "ssfrk", 10), ctypes.c_float),
    np.dtype(np.float64): (c_routine(cython_lapack, "dsfrk", 10), ctypes.c_double),
}
_SOLVE: dict[np.dtype[Any], tuple[Callable[..., None], Any]] = {
    np.dtype(np.float32): (c_routine(cython_lapack, "stfsm", 11), ctypes.c_float),
    np.dtype(np.float64): (c_routine(cython_lapack, "dtfsm", 11), ctypes.c_double),
}

_N, _L = (ctypes.byref(ctypes.c_char(letter)) for letter in (b"N", b"L"))


def triangle_size(width: int) -> int:
    """P(P+1)/2."""
    return width * (width + 1) // 2


@lru_cache(maxsize=16)
def places(width: int) -> NDArray[np.intp]:
    """Where entry (i, j) of a symmetric matrix lies in its packed triangle: (P, P)."""
    count = np.arange(triangle_size(width), dtype=np.float64)
    full, _ = lapack.dtfttr(width, count, transr="N", uplo="L")
    found: NDArray[np.intp] = np.tril(full).astype(np.intp)
    found += np.tril(found, -1).T
    found.flags.writeable = False
    return found


def pack_triangle(matrix: Array) -> Array:
    """The lower triangle of a matrix (P, P), packed (P(P+1)/2,), in its dtype."""
    at = places(len(matrix))
    rows, columns = np.tril_indices(len(matrix))
    triangle = np.empty(triangle_size(len(matrix)), matrix.dtype)
    triangle[at[rows, columns]] = matrix[rows, columns]
    return triangle


def add_products(rows: Array, triangle: Array, beta: float) -> None:
    """triangle ← rowsᵀ rows + beta·triangle, in place, of rows (m, P) and a packed triangle.

    Rows may lie apart; entries of a row lie together. What the triangle held is not read where beta
    is 0. That of a whole matrix is :func:`rff_stream.moments.accumulate.rank_update`.
    """
    routine, scalar = _PRODUCTS[rows.dtype]
    depth, width = rows.shape
    routine(
        _N,
        _L,
        _N,
        _integer(width),
        _integer(depth),
        ctypes.byref(scalar(1.0)),
        rows.ctypes.data,
        _integer(_stride(rows)),
        ctypes.byref(scalar(beta)),
        triangle.ctypes.data,
    )


def solve_rows(factor: Array, rows: Array) -> None:
    """rows ← rows L⁻ᵀ, in place, of rows (m, R) and L packed: each row k becomes L⁻¹k.

    Rows may lie apart; entries of a row lie together.
    """
    routine, scalar = _SOLVE[rows.dtype]
    count, width = rows.shape
    routine(
        _N,
        _L,
        _L,
        _N,
        _N,
        _integer(width),
        _integer(count),
        ctypes.byref(scalar(1.0)),
        factor.ctypes.data,
        rows.ctypes.data,
        _integer(_stride(rows)),
    )


def _integer(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _stride(rows: Array) -> int:
    """Entries from one row to the next."""
    return max(rows.strides[0] // rows.itemsize, 1)
