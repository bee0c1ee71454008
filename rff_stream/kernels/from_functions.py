"""Kernels made of a user's functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator

from rff_stream._array import Array, Float64
from rff_stream.arguments import shown
from rff_stream.errors import ModelError
from rff_stream.kernels.base import ExactKernel, Kernel, LengthScale
from rff_stream.stored_fields import NOT_STORED


def _absent(*_: object) -> Any:
    raise ModelError(
        "This kernel was loaded by its name: Python functions are not stored. "
        "Fourier maps predict without them; for Nyström maps, or to fit again, pass the "
        "kernel with its functions."
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


@dataclass(frozen=True, slots=True)
class PairFunction(ExactKernel):
    """k(x, x') by a function of two rows: what ``kernel=function`` means, as in scikit-learn.

    It is called once for each pair of a row and a landmark, in Python. Where time matters write a
    class (see :class:`ExactKernel`), whose ``unit_value`` computes whole matrices.

    Parameters
    ----------
    name : str
        What a stored model calls it. The function itself is not stored, and predictions need it.
    function : callable
        (x, x') -> a number, of two rows (d,) each; symmetric and positive definite.
    length_scale, variance
        As in :class:`Gaussian`; rows come as they are, at ℓ = 1.

    Examples
    --------
    >>> import numpy as np
    >>> shared = PairFunction("shared", lambda x, other: np.minimum(x, other).sum())
    >>> shared(np.array([[1.0, 5.0]]), np.array([[3.0, 4.0]]))
    array([[5.]])
    """

    name: str
    function: Callable[[Float64, Float64], float] = field(default=_absent, metadata=NOT_STORED)
    length_scale: LengthScale = 1.0
    variance: float = 1.0

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        """Values (n, m) of the function at all pairs of rows, one call each.

        Raises
        ------
        ValueError
            If the function gives no number for two rows, or more than one.
        """
        values = [[self.function(x, y) for y in Y] for x in X]
        try:
            found = np.asarray(values, np.float64).reshape(len(X), len(Y), -1)
        except (TypeError, ValueError):
            raise ValueError(
                f"The function {self.name!r} gave {shown(values[0][0])} for two rows, and a kernel "
                "is one number. Give float(k(x, other))."
            ) from None
        if found.shape[2] != 1:
            raise ValueError(
                f"The function {self.name!r} gave {found.shape[2]} values for two rows, and a "
                "kernel is one number. For a function of matrices derive a class from "
                "rff_stream.kernels.ExactKernel."
            )
        return found[:, :, 0]
