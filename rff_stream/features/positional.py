"""Positional encoding: cos and sin at periods from long to short, evenly in their logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rff_stream._array import Float64
from rff_stream.features.encodings import _Waves
from rff_stream.features.rowwise import FeatureDtype, check_dtype


@dataclass(frozen=True, eq=False, repr=False)
class Positional(_Waves):
    """cos and sin of 2π(x − origin)/pₖ for n_periods pₖ from ``longest`` to ``shortest``.

    pₖ = longest·(shortest/longest)^{k/(n_periods − 1)}: near places are alike at every period,
    far ones at the long ones only, so the kernel falls with the logarithm of the distance. For
    inputs with structure at many scales, such as a place along a line.

    Parameters
    ----------
    longest, shortest : float
        Periods in units of the input; ``longest`` at least twice the range of the input, or its
        ends are alike.
    n_periods : int
        R = 2·n_periods.
    origin : float
        Of the phases; give a value near the data where they are far from 0.
    dtype : {"float64", "float32"}

    References
    ----------
    Vaswani et al. 2017, section 3.5 (longest 2π·10⁴, shortest 2π). Mildenhall et al. 2020, eq. 4.

    Examples
    --------
    >>> import numpy as np
    >>> Z = Positional(longest=100.0, shortest=1.0, n_periods=3)(np.array([[0.0], [50.0]]))
    >>> Z.round(6) + 0.0  # periods 100, 10 and 1: half a turn, five turns, fifty
    array([[ 1.,  0.,  1.,  0.,  1.,  0.],
           [-1.,  0.,  1.,  0.,  1.,  0.]])
    """

    longest: float
    shortest: float
    n_periods: int
    origin: float = 0.0
    dtype: FeatureDtype = "float64"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if not (0 < self.shortest < self.longest < np.inf and self.n_periods >= 2):
            raise ValueError(
                f"longest={self.longest}, shortest={self.shortest} and n_periods={self.n_periods} "
                "but there are two periods or more, from a longest to a shorter one > 0."
            )

    @property
    def n_components(self) -> int:
        return 2 * self.n_periods

    @cached_property
    def _periods(self) -> Float64:
        return np.geomspace(self.longest, self.shortest, self.n_periods)

    def _turns(self, x: Float64) -> Float64:
        return np.asarray((x - self.origin) / self._periods)
