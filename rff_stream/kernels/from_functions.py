"""A kernel made of a user's functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError
from rff_stream.kernels.base import NOT_STORED, Kernel, LengthScale


def _absent(*_: object) -> Float64:
    raise ModelError(
        "This kernel was loaded by its name: Python functions are not stored. "
        "Fourier maps predict without them; for Nyström maps, or to fit again, pass the "
        "UserKernel with its functions."
    )


@dataclass(frozen=True, slots=True)
class UserKernel(Kernel):
    """κ by a function of yours, with a sampler of its spectral measure.

    A class of your own (see :class:`Kernel`) is stored whole; this is for one formula in a
    notebook.

    Parameters
    ----------
    name : str
        What a stored model calls it. The functions themselves are not stored: a loaded model
        of Fourier features predicts (its map is arrays) but must be given the kernel again to be
        fitted; one of Nyström features needs the functions to predict.
    function : callable
        (X, Y) -> values (n, m) at ℓ = 1 of rows (n, d) and (m, d), 1 on the diagonal.
    sampler : callable
        (n, d, rng) -> frequencies (n, d) at ℓ = 1. Leave it out for Nyström features alone.
    isotropic : bool
        Whether a rotation keeps the spectral measure; True allows orthogonal frequencies.
    length_scale, variance
        As in :class:`Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> sinc = UserKernel(
    ...     "sinc",
    ...     lambda X, Y: np.sinc((X - Y.T) / np.pi),
    ...     lambda n, d, rng: rng.uniform(-1, 1, (n, d)),
    ... )
    >>> float(sinc(np.array([[0.0]]), np.array([[0.0]]))[0, 0])
    1.0
    """

    name: str
    function: Callable[[Float64, Float64], Array] = field(default=_absent, metadata=NOT_STORED)
    sampler: Callable[[int, int, Generator], Array] = field(default=_absent, metadata=NOT_STORED)
    isotropic: bool = False
    length_scale: LengthScale = None
    variance: float = 1.0

    @classmethod
    def short_name(cls) -> str:
        return "user"

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        values = np.asarray(self.function(X, Y), np.float64)
        return self._of_shape("function", values, (len(X), len(Y)))

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) of the sampler."""
        omega = np.asarray(self.sampler(n, d, rng), np.float64)
        return self._of_shape("sampler", omega, (n, d))

    def _of_shape(self, function: str, values: Float64, shape: tuple[int, int]) -> Float64:
        if values.shape != shape:
            raise ValueError(
                f"The {function} of UserKernel {self.name!r} gave shape {values.shape} where "
                f"{shape} is needed. Return one value for each."
            )
        return values
