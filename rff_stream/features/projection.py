"""A metric in front of a map: rows in the combinations of inputs along which a function changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import FeatureDtype, frozen
from rff_stream.features.encodings import Encoding
from rff_stream.kernels import length_scale_vector


@dataclass(frozen=True, eq=False, repr=False)
class Projection(Encoding):
    """u = (x − origin) A: a distance between rows u is one in the metric AAᵀ of the inputs.

    Parameters
    ----------
    matrix : (d, k) float64
        A, in units of 1/input. A kernel of u at length-scale 1 has these length-scales:
        1/√(AAᵀ)ⱼⱼ along input j.
    origin : (d,) float64
        Subtracted first, so that large offsets lose no digits.

    Examples
    --------
    >>> import numpy as np
    >>> turn = Projection(np.array([[1.0, 1.0], [1.0, -1.0]]), np.zeros(2))
    >>> turn(np.array([[1.0, 2.0]]))
    array([[ 3., -1.]])
    """

    matrix: Float64
    origin: Float64
    dtype: FeatureDtype = "float64"

    def __post_init__(self) -> None:
        d, k = np.shape(self.matrix)
        object.__setattr__(self, "matrix", frozen("matrix", self.matrix, (d, k)))
        object.__setattr__(self, "origin", frozen("origin", self.origin, (d,)))

    @property
    def n_inputs(self) -> int:
        """d."""
        return len(self.origin)

    @property
    def n_components(self) -> int:
        """k."""
        return int(self.matrix.shape[1])

    @property
    def length_scale(self) -> Float64:
        """1/√(AAᵀ)ⱼⱼ (d,): how far an input moves alone until u has moved by 1; ∞ if never."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / np.sqrt((self.matrix**2).sum(axis=1)))

    def _encode(self, x: Array) -> Float64:
        return np.asarray((x - self.origin) @ self.matrix)

    def _batch_slopes(self, X: Array, weights: Float64) -> Float64:
        """Ac: the same at every row where c is."""
        return np.broadcast_to(self.matrix @ weights, (len(X), self.n_inputs, weights.shape[-1]))


def length_scale_behind(encoding: Any, kernel: Any) -> Float64:
    """Of a kernel in units of the inputs, or of the columns of an encoding that is no metric."""
    metric = getattr(encoding, "second", encoding)
    if isinstance(metric, Projection):
        own = length_scale_vector(kernel, metric.n_components)
        return np.asarray(replace(metric, matrix=metric.matrix / own).length_scale)
    given = getattr(kernel, "length_scale", None)
    return np.asarray(1.0 if given is None else given, np.float64)


def projection_of(features: Any) -> Projection | None:
    """The metric in front of a map, or of the first of several that has one; None without."""
    for each in getattr(features, "maps", (features,)):
        found = each if isinstance(each, Projection) else getattr(each, "encoding", None)
        if isinstance(found, Projection):
            return found
    return None
