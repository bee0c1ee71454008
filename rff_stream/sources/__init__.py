"""Any container -> aligned blocks of rows: the only room that knows chunks."""

from __future__ import annotations

from rff_stream.sources.base import SLAB_ROWS, Box, BoxCost, Columns, Reader, Rows, Source
from rff_stream.sources.conditions import HoldOut
from rff_stream.sources.opening import open_source

__all__ = [
    "SLAB_ROWS",
    "Box",
    "BoxCost",
    "Columns",
    "HoldOut",
    "Reader",
    "Rows",
    "Source",
    "open_source",
]
