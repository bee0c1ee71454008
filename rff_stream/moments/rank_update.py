"""The dense BLAS rank-k update without the GIL; that of packed triangles is in features."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from scipy.linalg import cython_blas

from rff_stream._array import Array

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]


def _blas(name: str) -> Callable[..., None]:
    """A BLAS routine as a C function: calling it releases the GIL, unlike SciPy's f2py."""
    capsule = cython_blas.__pyx_capi__[name]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 10)(_pointer(capsule, _name(capsule)))


_SYRK = {
    np.dtype(np.float32): (_blas("ssyrk"), ctypes.c_float),
    np.dtype(np.float64): (_blas("dsyrk"), ctypes.c_double),
}


def rank_update(rows: Array, matrix: Array, beta: float) -> None:
    """matrix ← rowsᵀ rows + beta·matrix in its upper triangle (C order), in place.

    BLAS reads C order as the transpose: its "lower" is our upper triangle.
    """
    syrk, scalar = _SYRK[rows.dtype]
    k, n = rows.shape
    integers = [ctypes.c_int(v) for v in (n, k, rows.strides[0] // rows.itemsize, len(matrix))]
    one, factor = scalar(1.0), scalar(beta)
    order, depth, lda, ldc = (ctypes.byref(i) for i in integers)
    uplo, trans = ctypes.c_char_p(b"L"), ctypes.c_char_p(b"N")
    syrk(
        ctypes.cast(uplo, ctypes.c_void_p),
        ctypes.cast(trans, ctypes.c_void_p),
        order,
        depth,
        ctypes.byref(one),
        rows.ctypes.data,
        lda,
        ctypes.byref(factor),
        matrix.ctypes.data,
        ldc,
    )
