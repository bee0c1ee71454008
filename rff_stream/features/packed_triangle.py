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
from scipy.linalg import cython_blas, cython_lapack, lapack

from rff_stream._array import Array, Float64

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
_TRIANGULAR: dict[np.dtype[Any], tuple[Callable[..., None], Callable[..., None], Any]] = {
    np.dtype(dtype): (
        c_routine(cython_blas, letter + "trmm", 11),
        c_routine(cython_blas, letter + "gemm", 13),
        scalar,
    )
    for dtype, letter, scalar in (("f4", "s", ctypes.c_float), ("f8", "d", ctypes.c_double))
}

_OUTER: dict[np.dtype[Any], tuple[Callable[..., None], Any]] = {
    np.dtype(np.float32): (c_routine(cython_blas, "sger", 9), ctypes.c_float),
    np.dtype(np.float64): (c_routine(cython_blas, "dger", 9), ctypes.c_double),
}

_N, _L, _T, _U = (ctypes.byref(ctypes.c_char(letter)) for letter in (b"N", b"L", b"T", b"U"))


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
    pack = lapack.strttf if matrix.dtype == np.float32 else lapack.dtrttf
    triangle, _ = pack(matrix, transr="N", uplo="L")
    return np.asarray(triangle)


def unpack_triangle(triangle: Array, order: int) -> Float64:
    """A lower triangle (R, R) in Fortran order that is packed; zeros above."""
    exact = triangle.astype(np.float64, copy=False)
    full, _ = lapack.dtfttr(order, exact, transr="N", uplo="L")
    return np.asarray(full)


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


def multiply_rows(triangle: Array, rows: Array) -> None:
    """rows ← rows Wᵀ, in place, of rows (m, R) and a packed lower W: each row k becomes Wk.

    Rows may lie apart; entries of a row lie together. W = [A 0; B C]: C times the lower half of a
    row, B times the upper half added to it, and A times the upper half.
    """
    count, width = rows.shape
    half, item = width // 2, rows.itemsize
    first, even = width - half, width % 2 == 0  # A is the larger where R is odd
    start, at, stride = triangle.ctypes.data, rows.ctypes.data, _integer(_stride(rows))
    leading = _integer(width + 1 if even else width)
    places = (start + item, start + item * (first + 1), start) if even else (
        start, start + item * first, start + item * width
    )  # fmt: skip
    multiply, add, scalar = _TRIANGULAR[rows.dtype]
    one, upper, lower, many = (
        ctypes.byref(scalar(1.0)), _integer(first), _integer(half), _integer(count)
    )  # fmt: skip
    own, below = (one, places[0], leading, at, stride), at + item * first
    if half:
        last = (one, places[2], leading, below, stride)
        multiply(_L, _U, _T, _N, lower, many, *last)
        add(_N, _N, lower, many, upper, one, places[1], leading, at, stride, one, below, stride)
    multiply(_L, _L, _N, _N, upper, many, *own)


def add_outer(column: Array, line: Array, rows: Array) -> None:
    """rows ← rows + column lineᵀ, in place, of rows (m, R), a column (m,) and a line (R,)."""
    routine, scalar = _OUTER[rows.dtype]
    count, width = rows.shape
    one = _integer(1)
    routine(
        _integer(width),
        _integer(count),
        ctypes.byref(scalar(1.0)),
        line.ctypes.data,
        one,
        column.ctypes.data,
        one,
        rows.ctypes.data,
        _integer(_stride(rows)),
    )


@lru_cache(maxsize=4096)
def _integer(value: int) -> Any:
    """What BLAS reads as a number: kept, as making one takes as long as a row of a product."""
    return ctypes.byref(ctypes.c_int(value))


def _stride(rows: Array) -> int:
    """Entries from one row to the next."""
    return max(rows.strides[0] // rows.itemsize, 1)
