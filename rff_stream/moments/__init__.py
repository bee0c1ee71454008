"""Moments: the mergeable state that one pass leaves, and the loop that adds rows to it."""

from rff_stream.moments.moments import (
    AugmentedRow,
    Moments,
    ended_readings,
    pack,
    packed_size,
    row_start,
    total,
    unpack,
)
from rff_stream.moments.runs import N_PARTS

__all__ = [
    "N_PARTS",
    "AugmentedRow",
    "Moments",
    "ended_readings",
    "pack",
    "packed_size",
    "row_start",
    "total",
    "unpack",
]
