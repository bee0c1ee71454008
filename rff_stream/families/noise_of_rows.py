"""A process whose variances are not the same for all rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rff_stream._array import Array, Float64, add_to_diagonals
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.contracts import Packed, RowFunction, Slopes, for_rows
from rff_stream.families.protocol import LeftOut, Process


class NoiseFactors(Protocol):
    """Factors of the variance of the noise at rows."""

    @property
    def width(self) -> int:
        """T."""

    @property
    def unseen(self) -> Float64 | None:
        """(T,): residuals over deviations of new rows, over those of rows that told the factors.

        None where the factors are 1.
        """

    @property
    def arrays(self) -> dict[str, Array]:
        """What a store keeps."""

    def __call__(self, x: Array, mean: Callable[[], Float64]) -> Float64:
        """Factors (n, T) of rows (n, d), whose predicted means (n, T) can be asked for."""

    def of_function(self, x: Array, factors: Float64, of_f: Float64, noise: Float64) -> Float64:
        """The variance (n, T) of f at rows (n, d), ``of_f`` by the process, of these factors."""


@dataclass(frozen=True, slots=True, eq=False)
class NoisyVariances:
    """x ↦ g(x) with its last 2T columns, variances of f and of the noise, times factors."""

    function: RowFunction
    """x ↦ variances (2T) of f and of the noise, or the mean and these (3T)."""
    mean: RowFunction
    factors: NoiseFactors

    @property
    def width(self) -> int:
        """That of g."""
        return self.function.width

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        found, width = np.array(self.function(x)), self.factors.width

        def mean() -> Float64:
            return found[:, :width] if found.shape[1] == 3 * width else self.mean(x)

        factors = self.factors(x, mean)
        of_f, noise = found[:, -2 * width : -width], found[:, -width:]
        of_f[...] = self.factors.of_function(x, factors, of_f, noise)
        noise *= factors
        return found

    def for_rows(self, count: int) -> NoisyVariances:
        """The same for so many rows in all, in calls of any size."""
        function, mean = (for_rows(each, count) for each in (self.function, self.mean))
        return NoisyVariances(function, mean, self.factors)


@dataclass(frozen=True, slots=True, eq=False)
class NoisyDraws:
    """x ↦ functions that are drawn, S for each target, as wide as the variance of f says."""

    draws: RowFunction  # (T·S)
    mean_and_variances: RowFunction
    """x ↦ (3T), with one noise for all rows."""
    factors: NoiseFactors

    @property
    def width(self) -> int:
        """T·S."""
        return self.draws.width

    def __call__(self, x: Array) -> Float64:
        """Values (n, T·S) of rows (n, d)."""
        mean, *each = np.split(self.mean_and_variances(x), 3, axis=1)
        scale = scale_of_f(self.factors, x, lambda: mean, *each)
        apart = self.draws(x).reshape(*mean.shape, -1) - mean[:, :, None]
        return np.asarray((mean[:, :, None] + scale[:, :, None] * apart).reshape(len(x), -1))


@dataclass(frozen=True, eq=False)
class NoisyProcess:
    """A process whose noise, and variance of f, depend on the row.

    Its methods are those of a :class:`~rff_stream.families.protocol.Process`.
    """

    process: Process
    factors: NoiseFactors

    @property
    def target_origin(self) -> Float64:
        """(T,)."""
        return np.asarray(self.process.target_origin)

    @property
    def unseen(self) -> Float64 | None:
        """(T,), as the factors say it, and those of the process; None where all are 1."""
        inner = self.process.unseen if isinstance(self.process, NoisyProcess) else None
        own = self.factors.unseen
        return inner if own is None else own * (1.0 if inner is None else inner)

    def mean(self) -> RowFunction:
        return self.process.mean()

    def slopes(self) -> Slopes:
        return self.process.slopes()

    def variances(self) -> RowFunction:
        return self._noisy(self.process.variances())

    def mean_and_variances(self) -> RowFunction:
        return self._noisy(self.process.mean_and_variances())

    def covariance(self, x: Array, noise: bool) -> Float64:
        found = self.process.covariance(x, False)
        mean, *each = np.split(self.process.mean_and_variances()(x), 3, axis=1)
        scale = scale_of_f(self.factors, x, lambda: mean, *each).T
        found *= scale[:, :, None] * scale[:, None]
        if noise:
            add_to_diagonals(found, self.variances()(x)[:, self.factors.width :])
        return found

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        draws = self.process.draws(n_samples, seed)
        return NoisyDraws(draws, self.process.mean_and_variances(), self.factors)

    def leave_one_out(self, sample: Float64) -> Float64:
        return self.process.leave_one_out(sample)

    def left_out(self, sample: Float64) -> LeftOut:
        found = self.process.left_out(sample)
        d = sample.shape[1] - 1 - found.residual.shape[1]
        x = sample[:, :d]
        own = self.factors(x, lambda: sample[:, d:-1] - found.residual)
        of_f = self.factors.of_function(x, own, found.variance, found.noise)
        return replace(found, variance=of_f, noise=own * found.noise)

    def state(self, tests: Sequence[Any], n_rows: int, fraction: float) -> HeldOutError:
        return self.process.state(tests, n_rows, fraction)

    def attributes(self, flat: bool) -> dict[str, Any]:
        """Those of the process."""
        return self.process.attributes(flat)

    def pack(self) -> Packed:
        """The process, and the factors."""
        return self.process.pack().with_arrays(self.factors.arrays)

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.process)

    def _noisy(self, function: RowFunction) -> RowFunction:
        return NoisyVariances(function, self.process.mean(), self.factors)


def scale_of_f(
    rule: NoiseFactors, x: Array, mean: Callable[[], Float64], of_f: Float64, noise: Float64
) -> Float64:
    """By how much deviations (n, T) of f at rows (n, d) are larger than those of the process."""
    own = rule.of_function(x, rule(x, mean), of_f, noise)
    return np.sqrt(np.divide(own, of_f, out=np.ones_like(own), where=of_f > 0))
