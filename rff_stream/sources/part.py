"""A range of the rows of a source, as a source: places stay those of the whole grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from rff_stream._array import digest
from rff_stream.sources.base import Box, BoxCost, Reader, Rows, Source
from rff_stream.sources.extent import record_of

__all__ = ["PartSource"]


@dataclass(frozen=True, slots=True)
class ShiftedReader:
    """Reads boxes of a part."""

    reader: Reader
    axis: int
    shift: int

    def read(self, box: Box, *values: Any) -> Iterator[Rows]:
        """Rows of the same box in the whole grid."""
        yield from self.reader.read(moved(box, self.axis, self.shift), *values)


class PartSource:
    """Rows start:stop of a source along one dimension; see :class:`~.base.Source`.

    Parameters
    ----------
    source : Source
    dim : str
    start, stop : int
    """

    def __init__(self, source: Source, dim: str, start: int, stop: int) -> None:
        self._source, self._dim, self._axis = source, dim, source.dims.index(dim)
        self._start, self._stop = start, stop
        self.columns = source.columns
        self.dims = source.dims
        self.shape = replaced(source.shape, self._axis, stop - start)
        inside = (edge - start for edge in source.bounds[self._axis] if start < edge < stop)
        self.bounds = replaced(source.bounds, self._axis, (0, *inside, stop - start))
        self.n_rows: int | None = prod(self.shape)
        self.reader: Reader = ShiftedReader(source.reader, self._axis, start)

    @property
    def graph(self) -> Mapping[Any, Any] | None:
        """That of the whole."""
        return self._source.graph

    @property
    def is_lazy(self) -> bool:
        """As the whole."""
        return self._source.is_lazy

    def arguments(self, box: Box) -> tuple[Any, ...]:
        """Those of the same box in the whole."""
        return self._source.arguments(moved(box, self._axis, self._start))

    def cost(self, box: Box) -> BoxCost:
        """That of the same box in the whole."""
        return self._source.cost(moved(box, self._axis, self._start))

    def generation(self) -> str:
        """Hash of these rows alone: others may come meanwhile."""
        return digest(record_of(self._source, self._dim, self._start, self._stop, read=False))

    def describe(self, box: Box) -> str:
        """The box in words, as places in the whole."""
        return self._source.describe(moved(box, self._axis, self._start))

    def wrap(self, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
        """A part has no container of its own."""
        raise NotImplementedError("Predict for the whole source, not for a part of it.")


def moved(box: Box, axis: int, shift: int) -> Box:
    """A box further along one axis."""
    lo, hi = box[axis]
    return replaced(box, axis, (lo + shift, hi + shift))


def replaced(values: tuple[Any, ...], axis: int, value: Any) -> tuple[Any, ...]:
    """A tuple with another value in one place."""
    return (*values[:axis], value, *values[axis + 1 :])
