"""What a pass can add up: a description that opens a sink for the rows of one leaf."""

from __future__ import annotations

from typing import Any, Protocol

from rff_stream._array import Array
from rff_stream.sources.protocol import Rows

__all__ = ["Sink", "Statistic"]


class Sink(Protocol):
    """Takes the rows of one leaf and gives a value that can be added."""

    def add(self, rows: Rows, places: Array) -> None: ...
    def result(self) -> Any: ...


class Statistic(Protocol):
    """Picklable description of what a leaf computes."""

    def start(self) -> Sink: ...
