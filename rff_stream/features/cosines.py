"""cos and sin of angles as columns of features, computed by NumPy in every installation.

A row has the same features whatever extras are installed and whatever batch it comes in. The
float32 cosines of NumPy give the same bits with AVX2 and with AVX-512.
"""

from __future__ import annotations

import numpy as np

from rff_stream._array import Array


def write_pairs(angles: Array, out: Array) -> None:
    """cos of angles (n, m) into columns 0, 2, … of out (n, 2m), and sin into columns 1, 3, …."""
    np.cos(angles, out=out[:, 0::2])
    np.sin(angles, out=out[:, 1::2])


def write_cosines(angles: Array, out: Array) -> None:
    """cos of angles (n, m) into out (n, m)."""
    np.cos(angles, out=out)
