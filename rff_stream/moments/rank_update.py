"""The dense BLAS rank-k update without the GIL.

That of packed triangles is :func:`rff_stream.features.rectangular.add_products`.
"""

from __future__ import annotations

import ctypes

import numpy as np
from scipy.linalg import cython_blas

from rff_stream._array import Array
from rff_stream.features.rectangular import c_routine

_SYRK = {
    np.dtype(np.float32): (c_routine(cython_blas, "ssyrk", 10), ctypes.c_float),
    np.dtype(np.float64): (c_routine(cython_blas, "dsyrk", 10), ctypes.c_double),
}


def rank_update(rows: Array, matrix: Array, beta: float) -> None:
    """matrix ← rowsᵀ rows + beta·matrix in its upper triangle (C order), in place.

    BLAS reads C order as the transpose: its "lower" is our upper triangle.
    """
    syrk, scalar = _SYRK[rows.dtype]
    if rows.strides[1] != rows.itemsize:  # BLAS would refuse, and the sum stay as it was
        rows = np.ascontiguousarray(rows)
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
