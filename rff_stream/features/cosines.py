"""Maps whose columns are cosines of random projections: what they share, computed by NumPy.

A row has the same features whatever extras are installed and whatever batch it comes in. The
float32 cosines of NumPy give the same bits with AVX2 and with AVX-512.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import Nesting
from rff_stream.features.frequencies import check_components
from rff_stream.features.rowwise import RowwiseMap, prior_count


class CosineMap(RowwiseMap):
    """m frequencies as pairs cos, sin (``phases`` is None), or as cosines with phases.

    Beside ``phases``, a subclass has ``variance`` and ``kernel`` as fields, and ``n_frequencies``.
    """

    if TYPE_CHECKING:
        phases: Float64 | None
        variance: float
        kernel: Mapping[str, Any]

    @property
    def n_frequencies(self) -> int:
        """m."""
        raise NotImplementedError

    @property
    def paired(self) -> bool:
        """Whether columns are cos/sin pairs."""
        return self.phases is None

    @property
    def n_components(self) -> int:
        return (2 if self.paired else 1) * self.n_frequencies

    @property
    def nesting(self) -> Nesting:
        return "pairs" if self.paired else "average"

    @property
    def independent_terms(self) -> tuple[int, float]:
        """How many terms the kernel is the mean of, and the range of one at variance 1."""
        return self.n_frequencies, 2.0 if self.paired else 4.0

    def prior(self, n_components: int | None = None) -> Float64:
        """s (R',) = 2·variance/R' for each of the first R' columns."""
        count = prior_count(n_components, self.n_components)
        check_components(count, self.paired)
        return np.full(count, 2 * self.variance / count)

    @classmethod
    def _fields_of(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        fields = super()._fields_of(plain, arrays)
        if fields.pop("paired"):
            fields["phases"] = None
        return fields

    def __repr__(self) -> str:
        name, kind = self.kernel.get("kernel"), "cos/sin pairs" if self.paired else "phases"
        size = f"{self.n_inputs} inputs to {self.n_components} components"
        return f"<{type(self).__name__} of {name}: {size} ({kind}), {self.dtype}>"

    def _write(self, angles: Array, out: Array) -> None:
        """Columns of angles (n, m)."""
        (write_pairs if self.paired else write_cosines)(angles, out)


def write_pairs(angles: Array, out: Array) -> None:
    """cos of angles (n, m) into columns 0, 2, … of out (n, 2m), and sin into columns 1, 3, …."""
    np.cos(angles, out=out[:, 0::2])
    np.sin(angles, out=out[:, 1::2])


def write_cosines(angles: Array, out: Array) -> None:
    """cos of angles (n, m) into out (n, m)."""
    np.cos(angles, out=out)
