"""Class numbers -> labels, in the container that the numbers came in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array

__all__ = ["Decoder"]


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """Labels of class numbers; NaN where a number is NaN, "" for labels that are strings.

    Parameters
    ----------
    classes : (C,) array
        Sorted.
    """

    classes: Array

    def __call__(self, numbers: Array) -> Array:
        """Labels in the dtype of the classes where every row has one."""
        missing = np.isnan(numbers)
        found: Array = self.classes[np.where(missing, 0, numbers).astype(np.int64)]
        if missing.any():
            found = found.astype(self.lazy_dtype)
            found[missing] = self._nothing
        return found

    def of(self, numbers: Any) -> Any:
        """Labels in the container of the numbers: lazy for lazy."""
        kind = type(numbers).__module__.partition(".")[0]
        if kind == "xarray":
            return numbers.copy(data=self.of(numbers.data))
        if kind == "pandas":
            return type(numbers)(self(numbers.to_numpy()), index=numbers.index, name=numbers.name)
        if kind == "polars":
            return type(numbers)(numbers.name, self(numbers.to_numpy()))
        if hasattr(numbers, "map_blocks"):
            return numbers.map_blocks(self._even, dtype=self.lazy_dtype)
        if hasattr(numbers, "map_partitions"):
            return numbers.map_partitions(
                self._even_series, meta=(numbers.name, self.lazy_dtype), enforce_metadata=False
            )
        return self(numbers)

    @property
    def lazy_dtype(self) -> Any:
        """A dtype that every label fits, and a row without one."""
        return np.dtype(float) if self.classes.dtype.kind in "iufb" else self.classes.dtype

    @property
    def _nothing(self) -> Any:
        return {"f": np.nan, "O": None}.get(self.lazy_dtype.kind, "")

    def _even(self, numbers: Array) -> Array:
        """Labels in one dtype, whatever a block holds."""
        return self(numbers).astype(self.lazy_dtype)

    def _even_series(self, numbers: Any) -> Any:
        values = self._even(numbers.to_numpy())
        return type(numbers)(values, index=numbers.index, name=numbers.name)
