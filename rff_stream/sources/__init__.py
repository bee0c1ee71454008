"""Any container -> aligned blocks of rows: the only subpackage that knows chunks."""

from __future__ import annotations

from rff_stream.sources.opening import kind_of, open_selection, open_source, table_of
from rff_stream.sources.protocol import SLAB_ROWS, Box, BoxCost, Columns, Reader, Rows, Source
from rff_stream.sources.request import HoldOut, Selection

__all__ = [
    "SLAB_ROWS",
    "Box",
    "BoxCost",
    "Columns",
    "HoldOut",
    "Reader",
    "Rows",
    "Selection",
    "Source",
    "kind_of",
    "open_selection",
    "open_source",
    "table_of",
]
