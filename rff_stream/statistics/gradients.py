"""M = Σ w ∇f∇fᵀ of a fitted function: along which inputs, and combinations of them, it changes.

The mean M/Σw (d, d) is in units y²/x²: symmetric, positive, and a plain sum over rows. Its leading
eigenvectors, in inputs over their standard deviations, are the directions along which f changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.contracts import Packed, Sink
from rff_stream.features.normal_scores import NormalScores
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.added_fields import AddedFields
from rff_stream.stored_fields import NOT_STORED, pack_fields, stored, unpack_fields

ROWS = 4096
"""Rows whose slopes are in memory at once: 1 MB for 30 inputs and one target."""


@dataclass(frozen=True, eq=False)
class GradientProducts(AddedFields):
    """Σ w ∇f∇fᵀ of T functions of d inputs; values add, subtract and scale.

    Parameters
    ----------
    inputs, targets : tuple of str
    outer : (T, d, d) float64
        Σ w ∇f_t ∇f_tᵀ.
    origin : (d,) float64
        About which inputs are summed.
    shift : (2, d) float64
        Σ w(x − origin) and Σ w(x − origin)², for the standard deviations of the inputs.
    variance : (T,) float64
        Σ w times the variance of each target; NaN where it is not known.
    weight : float
        Σ w.
    n : int
        Rows.
    """

    sums: ClassVar[tuple[str, ...]] = ("outer", "shift", "variance", "weight")

    inputs: tuple[str, ...] = field(metadata=NOT_STORED)
    targets: tuple[str, ...] = field(metadata=NOT_STORED)
    outer: Float64
    origin: Float64
    shift: Float64
    variance: Float64
    weight: float = field(metadata=stored(plain=True))
    n: int = field(metadata=stored(plain=True))

    def __sizeof__(self) -> int:
        return int(self.outer.nbytes + self.shift.nbytes) + 512

    def matrix(self, target: str | None = None) -> Float64:
        """The mean of ∇f∇fᵀ (d, d), in units y²/x².

        Parameters
        ----------
        target : str, optional
            Without it, several targets are added up, each over its variance.

        Raises
        ------
        ValueError
            If no target has this name, or several are added whose variances are not known.
        """
        if target is not None or len(self.targets) == 1:
            return np.asarray(self.outer[self.target_index(target)] / self.weight)
        if np.isnan(self.variance).any():
            raise ValueError(
                f"The variances of the {len(self.targets)} targets are not known, because the "
                "model was saved without moments, and their slopes have different units. Name one: "
                f"matrix({self.targets[0]!r}), or save with moments=True."
            )
        varies = self.variance > 0
        return np.asarray((self.outer[varies] / self.variance[varies, None, None]).sum(axis=0))

    @cached_property
    def spread(self) -> Float64:
        """Standard deviations (d,) of the inputs."""
        mean, square = self.shift / self.weight
        return np.asarray(np.sqrt(np.maximum(square - mean**2, 0)))

    def standardised(self, target: str | None = None) -> Float64:
        """M (d, d) in inputs over their standard deviations: units of the inputs do not matter."""
        return np.asarray(self.matrix(target) * np.outer(self.spread, self.spread))

    def importance(self, target: str | None = None) -> dict[str, float]:
        """The share of each input in the trace of :meth:`standardised`; 0 for a constant."""
        own = self.standardised(target).diagonal()
        shares = own / own.sum() if own.sum() > 0 else np.zeros(len(own))
        return dict(zip(self.inputs, shares.tolist(), strict=True))

    def directions(self, target: str | None = None) -> Directions:
        """The eigenvectors of :meth:`standardised`, the largest eigenvalue first."""
        values, vectors = np.linalg.eigh(self.standardised(target))
        values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
        largest = np.abs(vectors).argmax(axis=0)
        vectors = vectors * np.sign(vectors[largest, np.arange(len(values))])
        return Directions(self.inputs, self.spread, values, vectors)

    def matched(self, other: Self) -> Self:
        self.require_alike(other, "Slopes", "cannot be added. Add those of the same columns.")
        moved = other.origin - self.origin
        first, second = other.shift
        shift = np.stack([
            first + other.weight * moved,
            second + moved * (2 * first + other.weight * moved),
        ])  # fmt: skip
        return replace(other, origin=self.origin, shift=shift)


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """Orthogonal combinations Σ_j v_j x_j/σ_j of inputs, along which a function changes.

    Parameters
    ----------
    inputs : tuple of str
    spread : (d,) float64
        σ, standard deviations of the inputs.
    eigenvalues : (d,) float64
        Mean squared slope along each direction, decreasing.
    vectors : (d, d) float64
        v, one column a direction; its largest entry is positive.
    """

    inputs: tuple[str, ...]
    spread: Float64
    eigenvalues: Float64
    vectors: Float64

    @property
    def shares(self) -> Float64:
        """Share (d,) of each direction in the sum of the eigenvalues; 0 for a constant."""
        total = self.eigenvalues.sum()
        return self.eigenvalues / total if total > 0 else np.zeros(len(self.eigenvalues))

    @property
    def n_active(self) -> float:
        """(Σλ)²/Σλ²: about how many directions matter; 0 for a constant."""
        total = float((self.eigenvalues**2).sum())
        return float(self.eigenvalues.sum() ** 2) / total if total > 0 else 0.0

    def combination(self, place: int = 0, most: int = 4) -> str:
        """One direction in words: "0.71 lat − 0.70 lon", inputs over their standard deviations."""
        own = self.vectors[:, place]
        chosen = np.argsort(-np.abs(own), kind="stable")[:most]
        text = ""
        for j in chosen[np.abs(own[chosen]) >= 0.05]:
            sign = ("− " if own[j] < 0 else "+ ") if text else "−" if own[j] < 0 else ""
            text += f"{' ' if text else ''}{sign}{abs(own[j]):.2f} {self.inputs[j]}"
        return text


@dataclass(frozen=True, slots=True, eq=False)
class GradientStatistic:
    """Adds up :class:`GradientProducts` of a function whose slopes are known."""

    slopes: Callable[[Array], Float64]  # (m, d) -> (m, d, T), picklable
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    origin: Float64  # (d,)
    variance: Float64  # (T,), of the targets; NaN where it is not known
    scores: NormalScores | None = None
    """What the map compares heavy-tailed inputs by: slopes are those by scores then. A mean of
    squared slopes by such inputs is that of a few rows."""
    kept: tuple[int, ...] | None = None
    """Places of the inputs in a row; None: all of them."""

    def start(self) -> Sink:
        return _GradientSink(self)

    def pack(self, value: GradientProducts) -> Packed:
        """The sums."""
        return Packed(*pack_fields(value))

    def unpack(self, packed: Packed) -> GradientProducts:
        """The sums with their names."""
        return unpack_fields(
            GradientProducts, packed.plain, packed.arrays, inputs=self.inputs, targets=self.targets
        )


class _GradientSink:
    def __init__(self, statistic: GradientStatistic) -> None:
        self._of = statistic
        d, t = len(statistic.inputs), len(statistic.targets)
        self._outer, self._shift = np.zeros((t, d, d)), np.zeros((2, d))
        self._weight, self._n = 0.0, 0

    def add(self, rows: Rows, places: Array) -> None:
        for start in range(0, len(rows.x), ROWS):
            part = slice(start, start + ROWS)
            x = np.asarray(rows.x[part], np.float64)
            self._take(x, np.ones(len(x)) if rows.w is None else rows.w[part])

    def _take(self, x: Float64, w: Float64) -> None:
        slopes, scores = self._of.slopes(x), self._of.scores
        if scores is not None:
            slopes, x = slopes / scores.own_slopes(x)[:, :, None], scores(x)
        if self._of.kept is not None:
            slopes, x = slopes[:, self._of.kept], x[:, self._of.kept]
        moved = x - self._of.origin
        for own, total in zip(np.moveaxis(slopes, 2, 0), self._outer, strict=True):
            scaled = own * np.sqrt(w)[:, None]
            total += scaled.T @ scaled
        self._shift += np.stack([w @ moved, w @ moved**2])
        self._weight += float(w.sum())
        self._n += len(x)

    def result(self) -> GradientProducts:
        of = self._of
        variance = of.variance * self._weight
        return GradientProducts(
            of.inputs, of.targets, self._outer, of.origin, self._shift, variance, self._weight,
            self._n,
        )  # fmt: skip
