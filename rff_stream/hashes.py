"""64-bit hashes of rows, by their places and values: the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rff_stream._array import Array

Keys = NDArray[np.uint64]


def hash_places(places: Array, seed: int = 0) -> Keys:
    """A 64-bit hash of row places (integers), uniform whatever their order.

    The finaliser of SplitMix64 (Steele, Lea & Flood 2014): a bijection, so distinct
    places never collide.
    """
    offset = (0x9E3779B97F4A7C15 * (2 * seed + 1)) % 2**64
    return mix_bits(places.astype(np.uint64) + np.uint64(offset))


def hash_rows(places: Array, *columns: Array) -> Keys:
    """Hashes of rows by their places and values (m, ·): every batch of data starts at place 0.

    By places alone, batches would keep the rows of the same places, and could not be told
    apart when one is taken out again.
    """
    found = hash_places(places)
    for i, values in enumerate(columns):
        bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
        found ^= bits @ (hash_places(np.arange(bits.shape[1]), i + 1) | np.uint64(1))
    return mix_bits(found)


def hash_values(rows: Array) -> Keys:
    """Hashes of rows (m, d) by their values alone: equal rows have the same."""
    bits = np.ascontiguousarray(rows + 0.0, np.float64).view(np.uint64)  # −0 is 0
    return mix_bits(bits @ (hash_places(np.arange(bits.shape[1])) | np.uint64(1)))


def mix_bits(z: Keys) -> Keys:
    """SplitMix64's finaliser: each bit of the result depends on all of the input."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
