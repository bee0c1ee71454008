"""Cholesky factors and inverses of triangles, in place and without the GIL.

A matrix (R, R) is given in Fortran order; only its lower triangle is read and written.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from rff_stream._array import Float64
from rff_stream.features.packed_triangle import c_routine

_FACTOR = c_routine(cython_lapack, "dpotrf", 5)
_INVERT = c_routine(cython_lapack, "dtrtri", 6)
_SQUARE = c_routine(cython_lapack, "dlauum", 5)
_MULTIPLY = c_routine(cython_blas, "dtrmm", 11)

SMALL = 32
"""Order of a triangle up to which LAPACK inverts it: beyond it products are several times as
fast."""

LEAST_VALUE = 1e-100
"""Of a matrix without negative values: products of two are still normal numbers."""

_LETTERS = {letter: ctypes.byref(ctypes.c_char(letter)) for letter in (b"L", b"N", b"R")}
_SIGNS = {sign: ctypes.byref(ctypes.c_double(sign)) for sign in (1.0, -1.0)}


def factor_in_place(matrix: Float64) -> bool:
    """A ← L of A = LLᵀ; False, and A is of no use, where rounding makes A indefinite."""
    order, failed = ctypes.byref(ctypes.c_int(len(matrix))), ctypes.c_int(0)
    _FACTOR(_LETTERS[b"L"], order, matrix.ctypes.data, order, ctypes.byref(failed))
    return failed.value == 0


def invert_in_place(matrix: Float64) -> None:
    """L ← L⁻¹, by halves: [A 0; B C]⁻¹ = [A⁻¹ 0; −C⁻¹BA⁻¹ C⁻¹]."""
    _invert(matrix.ctypes.data, len(matrix), len(matrix))


def _invert(start: int, order: int, stride: int) -> None:
    leading = ctypes.byref(ctypes.c_int(stride))
    if order <= SMALL:
        failed, size = ctypes.c_int(0), ctypes.byref(ctypes.c_int(order))
        letters = _LETTERS[b"L"], _LETTERS[b"N"]
        _INVERT(*letters, size, start, leading, ctypes.byref(failed))
        return
    half = order // 2
    corner, below = start + 8 * half * (stride + 1), start + 8 * half
    _invert(start, half, stride)
    _invert(corner, order - half, stride)
    shape = (ctypes.byref(ctypes.c_int(order - half)), ctypes.byref(ctypes.c_int(half)))
    _multiply(b"L", -1.0, corner, below, shape, leading)
    _multiply(b"R", 1.0, start, below, shape, leading)


def _multiply(
    side: bytes, sign: float, triangle: int, at: int, shape: tuple[Any, Any], leading: Any
) -> None:
    """±LB or ±BL in place of B, both parts of one matrix."""
    lower, plain = _LETTERS[b"L"], _LETTERS[b"N"]
    _MULTIPLY(
        _LETTERS[side], lower, plain, plain, *shape, _SIGNS[sign], triangle, leading, at, leading
    )


def lift_small_values(matrix: Float64) -> None:
    """Raise values below 1e-100 to it, in a matrix that has no negative ones.

    Kernels of far rows are as small, and their products in a factor are smaller still. With numbers
    below 1e-308 (subnormal ones) a processor takes up to 40 times as long.
    """
    if 0 <= matrix.min() < LEAST_VALUE:
        np.maximum(matrix, LEAST_VALUE, out=matrix)


def invert_positive(matrix: Float64) -> float | None:
    """A ← A⁻¹, its lower triangle; log|A|, or None where A is not definite.

    LAPACK's dpotri inverts the factor by columns and takes twice as long.
    """
    lift_small_values(matrix)
    if not factor_in_place(matrix):
        return None
    log_det = 2 * float(np.log(matrix.diagonal()).sum())
    invert_in_place(matrix)
    order, failed = ctypes.byref(ctypes.c_int(len(matrix))), ctypes.c_int(0)
    _SQUARE(_LETTERS[b"L"], order, matrix.ctypes.data, order, ctypes.byref(failed))  # L⁻ᵀL⁻¹
    return log_det


def inverse_factor(matrix: Float64) -> Float64 | None:
    """L⁻¹ (R, R) of a symmetric matrix LLᵀ, in its place; None where it is not definite.

    What lies above the diagonal is what lay there.
    """
    columns = np.asfortranarray(matrix)
    lift_small_values(columns)
    if not factor_in_place(columns):
        return None
    invert_in_place(columns)
    return columns
