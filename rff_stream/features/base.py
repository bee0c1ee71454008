"""The contract of a feature map: rows (n, d) -> raw, nested columns (n, R)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from rff_stream._array import Array, Float64, digest

__all__ = ["BATCH_ROWS", "MAP_ROWS", "FeatureMap", "Nesting", "spec_fingerprint"]

BATCH_ROWS = 512
"""Rows of one rank-k update: Z of one batch stays in the L2 cache."""

MAP_ROWS = 128
"""Rows mapped at a time, always so many, padded: a row's bits never depend on its batch."""

Nesting = Literal["average", "pairs", "prefix", "none"]
"""How the prior of the first R' columns follows from that of all R.

"average": s' = s·R/R' (Monte-Carlo maps: fewer draws, each counts for more).
"pairs": the same for cosine/sine pairs: R' is even.
"prefix": s' = s[:R'] (Nyström by pivoted Cholesky, Hermite).
"none": the first columns alone are not a map; ``leading`` refuses.
"""


@runtime_checkable
class FeatureMap(Protocol):
    """Row-wise map z with k(x, x') ≈ z(x)ᵀ diag(s) z(x').

    Values are frozen and cheap to ship: arrays, not seeds. ``z(A ⧺ B) = z(A) ⧺ z(B)``
    bit for bit, whatever the batch a row arrives in.
    """

    @property
    def n_inputs(self) -> int:
        """d, the number of input columns."""
        ...

    @property
    def n_components(self) -> int:
        """R, the number of feature columns."""
        ...

    @property
    def dtype(self) -> Any:
        """float32 or float64: that of the features."""
        ...

    @property
    def nesting(self) -> Nesting:
        """How ``prior`` follows for the first R' columns."""
        ...

    @property
    def fingerprint(self) -> str:
        """sha256 of ``spec()``: equal fingerprints are equal maps."""
        ...

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        """Z (n, R) of rows X (n, d), raw columns in [-1, 1] for Fourier maps."""
        ...

    def prior(self, n_components: int | None = None) -> Float64:
        """s (R',): K ≈ Z[:, :R'] diag(s) Z[:, :R']ᵀ."""
        ...

    def spec(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        """Plain JSON and arrays, enough to rebuild the map on any machine and day."""
        ...


def spec_fingerprint(spec: tuple[dict[str, Any], Mapping[str, Array]]) -> str:
    """sha256 of a map's spec."""
    return digest(*spec)
