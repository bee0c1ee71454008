"""Heavy-tailed inputs on the scale of a normal distribution, by their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from rff_stream._array import Array, Float64
from rff_stream.features.base import FeatureDtype, frozen
from rff_stream.features.encodings import Encoding

KNOTS = 129
"""Values of an input where its scores are exact, equally spaced in the score: between two, of the
largest pilot, lies a sixteenth of a standard deviation."""

HEAVY = 6.0
"""Fourth moment over the squared variance from which an input is heavy-tailed: twice that of a
normal distribution. An exponential has 9, a uniform 1.8."""


@dataclass(frozen=True, eq=False, repr=False)
class NormalScores(Encoding):
    """Φ⁻¹(F(x)) of some inputs, F their distribution; the others as they are.

    Linear between knots and, with the slope of the last piece, beyond them: order is kept.

    Parameters
    ----------
    width : int
        d, the number of inputs.
    columns : (m,) int64
        The inputs that are mapped.
    knots, scores : (m, K) float64
        Increasing along the second axis.

    References
    ----------
    van der Waerden 1952.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.exp(np.random.default_rng(0).normal(size=(5000, 1)))
    >>> scores = NormalScores.of_rows(x, np.array([0]))
    >>> float(scores(np.array([[np.exp(1.5)]]))[0, 0].round(1))
    1.5
    """

    width: int
    columns: Array
    knots: Float64
    scores: Float64
    dtype: FeatureDtype = "float64"

    unit: ClassVar[str] = "of its normal score"

    def __post_init__(self) -> None:
        m = len(self.columns)
        object.__setattr__(self, "columns", np.asarray(self.columns, np.int64))
        for name in ("knots", "scores"):
            values = frozen(name, getattr(self, name), (m, np.shape(self.knots)[1]))
            if not (np.diff(values) > 0).all():
                raise ValueError(
                    f"{name} of {type(self).__name__} do not increase along the second axis, but "
                    "must, to keep the order of an input. Sort them, and take each once."
                )
            object.__setattr__(self, name, values)

    @classmethod
    def of_rows(cls, x: ArrayLike, columns: Array) -> Self:
        """From the ranks of rows x (n, d), such as the pilot's; equal values share their scores."""
        values = np.asarray(x, np.float64)
        return cls.of_knots(values.shape[1], columns, [_knots(values[:, j]) for j in columns])

    @classmethod
    def of_knots(cls, width: int, columns: Array, pairs: Sequence[tuple[Float64, Float64]]) -> Self:
        """From the knots of each column and their scores, of any number."""
        size = max((len(knots) for knots, _ in pairs), default=2)
        padded = np.array([[_continued(each, size) for each in pair] for pair in pairs])
        padded = padded.reshape(len(pairs), 2, size)
        return cls(width, np.asarray(columns), padded[:, 0], padded[:, 1])

    @property
    def n_inputs(self) -> int:
        """d."""
        return self.width

    @property
    def n_components(self) -> int:
        """d."""
        return self.width

    def own_slopes(self, x: Float64) -> Float64:
        """∂z_j/∂x_j (n, d) of rows (n, d): 1 for inputs that stay as they are."""
        found = np.ones(x.shape)
        for j, knots, scores in zip(self.columns, self.knots, self.scores, strict=True):
            found[:, j] = _slopes(knots, scores)[_pieces(knots, x[:, j])]
        return found

    def _encode(self, x: Float64) -> Float64:
        found = np.array(x, np.float64)
        for j, knots, scores in zip(self.columns, self.knots, self.scores, strict=True):
            own = np.ascontiguousarray(found[:, j])
            place = _pieces(knots, own)  # once: they take most of the time
            slopes = _slopes(knots, scores)[place]
            found[:, j] = scores[place] + slopes * (own - knots[place])
        return found

    def _encode_slopes(self, x: Float64) -> Float64:
        return self.own_slopes(x)[:, :, None] * np.eye(self.n_inputs)


def normal_scores_of(features: Any) -> NormalScores | None:
    """By which a map compares heavy-tailed inputs; None where it compares them as they are."""
    each: list[Any] = [
        getattr(one, "encoding", None) for one in getattr(features, "maps", (features,))
    ]
    first, *others = (getattr(own, "first", own) for own in each)  # a metric may follow
    alike = all(
        isinstance(own, NormalScores) and own.fingerprint == first.fingerprint for own in others
    )
    return first if isinstance(first, NormalScores) and alike else None


def heavy_inputs(x: Float64) -> Array:
    """Inputs (m,) of rows x (n, d) with heavy tails, of three values or more."""
    centred = x - x.mean(axis=0)
    size = np.abs(centred).max(axis=0, initial=0.0)
    squares = (centred / np.maximum(size, np.finfo(float).tiny)) ** 2
    heavy = (squares**2).mean(axis=0) > HEAVY * squares.mean(axis=0) ** 2
    return np.array([j for j in np.flatnonzero(heavy) if len(np.unique(x[:, j])) > 2], np.int64)


def _pieces(knots: Float64, x: Float64) -> Array:
    """The piece (n,) between knots that each value lies in; the first or last beyond them."""
    return np.clip(np.searchsorted(knots, x) - 1, 0, len(knots) - 2)


def _slopes(knots: Float64, scores: Float64) -> Float64:
    """That of each piece."""
    return np.asarray(np.diff(scores) / np.diff(knots))


def _knots(x: Float64) -> tuple[Float64, Float64]:
    """Values of an input and their scores: of each value, or of quantiles where there are many."""
    values, counts = np.unique(x, return_counts=True)
    scores = ndtri((np.cumsum(counts) - counts / 2) / len(x))
    if len(values) <= KNOTS:
        return values, scores
    grid = np.linspace(scores[0], scores[-1], KNOTS)
    place = np.unique(np.searchsorted(scores, grid))
    return values[place], scores[place]


def _continued(values: Float64, size: int) -> Float64:
    """As many values as are asked for, in steps of the last one."""
    steps = np.arange(1, size - len(values) + 1) * (values[-1] - values[-2])
    return np.concatenate([values, values[-1] + steps])
