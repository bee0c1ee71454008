"""Losses of regression: for errors of any size or sign, and for counts.

Values, slopes and curvatures are elementwise: scores F and targets y are (m, T), and targets do
not curve together. The corner of max(0, u) is rounded over a width h,

    max(0, u) ≤ (u + √(u² + 4h²))/2 ≤ max(0, u) + h,

which has derivatives of every order, and is the corner for h → 0. Minima for falling h are the
central path of an interior-point method (Chen & Mangasarian 1996), so Newton's steps follow it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import xlogy

from rff_stream._array import Array, Float64
from rff_stream.arguments import NOT_NEGATIVE, POSITIVE, PROBABILITY, Rule
from rff_stream.errors import ModelError
from rff_stream.registry import Registry, snake_case

REGRESSION_LOSSES: Registry[Any] = Registry("loss")
"""Every loss by its short name."""

NEAR = 10.0
"""Number of widths below a corner at which the slope is 1 % of that above it."""

NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution relative to its median absolute deviation."""


class RegressionLoss(ABC):
    """A loss ℓ(f, y) ≥ 0, 0 where y is what f says; a frozen dataclass of numbers in one class.

    A subclass gives value, slope and curvature, elementwise. For a loss with corners it has a
    field ``width``; for counts, ``log_link``.
    """

    log_link: ClassVar[bool] = False
    """Whether the mean of y is exp(f)."""
    nonsmooth: ClassVar[bool] = False
    """Whether the loss has corners that are rounded over the field ``width``."""
    separable: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        REGRESSION_LOSSES.add(cls)

    @classmethod
    def short_name(cls) -> str:
        """ "huber", "student_t", …: what ``loss="…"`` asks for."""
        return snake_case(cls.__name__)

    @abstractmethod
    def values(self, F: Float64, y: Float64) -> Float64:
        """ℓ (m, T)."""

    @abstractmethod
    def slope(self, F: Float64, y: Float64) -> Float64:
        """∂ℓ/∂f (m, T)."""

    @abstractmethod
    def curvatures(self, F: Float64, y: Float64) -> Float64:
        """∂²ℓ/∂f² (m, T) ≥ 0, or that of a parabola above a loss that is not convex."""

    def value(self, F: Float64, y: Float64) -> Float64:
        """Σ ℓ over targets (m,)."""
        return np.asarray(self.values(F, y).sum(axis=1))

    def check_targets(self, y: Array) -> None:  # noqa: B027 - most losses take any number
        """Refuse targets that the loss is not for."""

    def constant(self, y: Float64, w: Float64) -> Float64:
        """About the best constant score (T,) for rows (m, T) of weights (m,)."""
        return weighted_quantile(y, w, 0.5)

    def of_residuals(self, F: Float64, y: Float64, w: Float64) -> Self:
        """The same with what it leaves to the data, from rows (m, T) that a fit did not see."""
        return self

    def with_width(self, width: float) -> Self:
        """The loss with its corners rounded over this width; itself where it has none."""
        return replace(self, width=width) if self.nonsmooth else self  # type: ignore[type-var]

    def spec(self) -> dict[str, Any]:
        """Plain JSON that :func:`regression_loss` reads."""
        own: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {"loss": self.short_name()} | own


@dataclass(frozen=True, slots=True)
class Huber(RegressionLoss):
    """``r²/2`` for ``|r| ≤ δσ``, then ``δσ(|r| − δσ/2)``: large errors count less.

    Parameters
    ----------
    delta : float, default=1.345
        δ. With 1.345 the efficiency for normal noise is 95 %.
    scale : float, optional
        σ in units of y; by default from the median absolute error of held-out rows.

    References
    ----------
    Huber 1964. ``sklearn.linear_model.HuberRegressor`` at its ``scale_`` and ``α·scale_``.
    """

    delta: float = 1.345
    scale: float | None = None

    def __post_init__(self) -> None:
        _require_positive(self, "delta", "scale")

    @property
    def _bend(self) -> float:
        return self.delta * _known(self.scale)

    def values(self, F: Float64, y: Float64) -> Float64:
        size, d = np.abs(y - F), self._bend
        return np.where(size <= d, size**2 / 2, d * (size - d / 2))

    def slope(self, F: Float64, y: Float64) -> Float64:
        return np.clip(F - y, -self._bend, self._bend)

    def curvatures(self, F: Float64, y: Float64) -> Float64:
        return np.where(np.abs(y - F) <= self._bend, 1.0, 0.0)

    def of_residuals(self, F: Float64, y: Float64, w: Float64) -> Self:
        return replace(self, scale=robust_scale(F, y, w)) if self.scale is None else self


@dataclass(frozen=True, slots=True)
class StudentT(RegressionLoss):
    """(ν + 1)/2 log(1 + r²/νσ²): y is t-distributed about f. Rows far from f have almost no effect.

    Not convex: descent (a parabola above the loss at every step) finds the minimum next to the
    least-squares fit.

    Parameters
    ----------
    freedom : float, default=4
        ν.
    scale : float, optional
        σ in units of y; by default from held-out rows.

    References
    ----------
    Lange, Little & Taylor 1989.
    """

    freedom: float = 4.0
    scale: float | None = None

    def __post_init__(self) -> None:
        _require_positive(self, "freedom", "scale")

    def values(self, F: Float64, y: Float64) -> Float64:
        spread = self.freedom * _known(self.scale) ** 2
        return np.asarray((self.freedom + 1) / 2 * np.log1p((y - F) ** 2 / spread))

    def slope(self, F: Float64, y: Float64) -> Float64:
        return np.asarray(self.curvatures(F, y) * (F - y))

    def curvatures(self, F: Float64, y: Float64) -> Float64:
        spread = self.freedom * _known(self.scale) ** 2
        return np.asarray((self.freedom + 1) / (spread + (y - F) ** 2))

    def of_residuals(self, F: Float64, y: Float64, w: Float64) -> Self:
        return replace(self, scale=robust_scale(F, y, w)) if self.scale is None else self


@dataclass(frozen=True, slots=True)
class EpsilonInsensitive(RegressionLoss):
    """``max(0, |r| − ε)``: support vector regression. Rows inside the tube have no effect.

    Parameters
    ----------
    epsilon : float, default=0.1
        ε in units of y, as in ``sklearn.svm.SVR``, whose C is 1/α.
    width : float
        Width of the rounded corners; the fit chooses it.

    Raises
    ------
    ValueError
        If ε is negative or not finite.
    """

    epsilon: float = 0.1
    width: float = 0.0
    nonsmooth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        NOT_NEGATIVE.check("epsilon", self.epsilon)
        NOT_NEGATIVE.check("width", self.width)

    def values(self, F: Float64, y: Float64) -> Float64:
        above, below = self._beyond(F, y)
        return round_corner(above, self.width) + round_corner(below, self.width)

    def slope(self, F: Float64, y: Float64) -> Float64:
        above, below = self._beyond(F, y)
        return rounded_slope(above, self.width) - rounded_slope(below, self.width)

    def curvatures(self, F: Float64, y: Float64) -> Float64:
        above, below = self._beyond(F, y)
        return rounded_curvature(above, self.width) + rounded_curvature(below, self.width)

    def supports(self, F: Float64, y: Float64) -> Array:
        """Whether a row is on or outside of the tube (m, T): only these rows hold the fit."""
        return np.asarray(np.maximum(*self._beyond(F, y)) > -NEAR * self.width)

    def _beyond(self, F: Float64, y: Float64) -> tuple[Float64, Float64]:
        """f − y − ε and y − f − ε."""
        return F - y - self.epsilon, y - F - self.epsilon


@dataclass(frozen=True, slots=True)
class Quantile(RegressionLoss):
    """q·r for r ≥ 0 and (q − 1)·r below: f is the q-quantile of y at x, not its mean.

    Parameters
    ----------
    quantile : float, default=0.5
        q between 0 and 1; 0.5 is the median.
    width : float
        Width of the rounded corners; the fit chooses it.

    Raises
    ------
    ValueError
        If the quantile does not lie between 0 and 1.

    References
    ----------
    Koenker & Bassett 1978. Takeuchi et al. 2006 (kernels).
    """

    quantile: float = 0.5
    width: float = 0.0
    nonsmooth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        PROBABILITY.check("quantile", self.quantile)
        NOT_NEGATIVE.check("width", self.width)

    def values(self, F: Float64, y: Float64) -> Float64:
        return (self.quantile - 1) * (y - F) + round_corner(y - F, self.width)

    def slope(self, F: Float64, y: Float64) -> Float64:
        return 1 - self.quantile - rounded_slope(y - F, self.width)

    def curvatures(self, F: Float64, y: Float64) -> Float64:
        return rounded_curvature(y - F, self.width)

    def constant(self, y: Float64, w: Float64) -> Float64:
        return weighted_quantile(y, w, self.quantile)


@dataclass(frozen=True, slots=True)
class Poisson(RegressionLoss):
    """Half the deviance of counts with mean exp(f): exp(f) − yf + y log y − y.

    ``sklearn.linear_model.PoissonRegressor`` with α/n for its alpha.
    """

    log_link: ClassVar[bool] = True

    def values(self, F: Float64, y: Float64) -> Float64:
        return np.asarray(np.exp(F) - y * F + xlogy(y, y) - y)

    def slope(self, F: Float64, y: Float64) -> Float64:
        return np.asarray(np.exp(F) - y)

    def curvatures(self, F: Float64, y: Float64) -> Float64:
        return np.exp(F)

    def constant(self, y: Float64, w: Float64) -> Float64:
        return _log_mean(y, w)

    def check_targets(self, y: Array) -> None:
        _require_counts(self, y)


@dataclass(frozen=True, slots=True)
class NegativeBinomial(RegressionLoss):
    """Half the deviance of counts with mean μ = exp(f) and variance μ + aμ².

    y log(y/μ) − (y + 1/a) log((1 + ay)/(1 + aμ)); the Poisson loss for a → 0.

    Parameters
    ----------
    dispersion : float, optional
        a; by default from held-out rows, as Σ((y − μ)² − μ)/Σμ².

    References
    ----------
    Cameron & Trivedi 2013, section 3.3 (NB2).
    """

    dispersion: float | None = None
    log_link: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_positive(self, "dispersion")

    def values(self, F: Float64, y: Float64) -> Float64:
        a = _known(self.dispersion)
        ratio = np.log1p(a * y) - np.logaddexp(0.0, np.log(a) + F)
        return np.asarray(xlogy(y, y) - y * F - (y + 1 / a) * ratio)

    def slope(self, F: Float64, y: Float64) -> Float64:
        return np.asarray((np.exp(F) - y) / (1 + _known(self.dispersion) * np.exp(F)))

    def curvatures(self, F: Float64, y: Float64) -> Float64:
        a, mean = _known(self.dispersion), np.exp(F)
        return np.asarray(mean * (1 + a * y) / (1 + a * mean) ** 2)

    def constant(self, y: Float64, w: Float64) -> Float64:
        return _log_mean(y, w)

    def check_targets(self, y: Array) -> None:
        _require_counts(self, y)

    def of_residuals(self, F: Float64, y: Float64, w: Float64) -> Self:
        if self.dispersion is not None:
            return self
        mean = np.exp(F)
        excess = w @ ((y - mean) ** 2 - mean) / (w @ mean**2)
        return replace(self, dispersion=float(np.clip(excess.mean(), 1e-6, 1e6)))


LOSS = Rule(
    "the name of a loss, or a loss such as Quantile(0.9)",
    lambda value: isinstance(value, str | Mapping),
)


def regression_loss(choice: RegressionLoss | str | Mapping[str, Any]) -> RegressionLoss:
    """The loss of a name, of a spec, or the loss itself.

    Raises
    ------
    ValueError
        For a name that no loss has.
    """
    if isinstance(choice, RegressionLoss):
        return choice
    LOSS.check("loss", choice)
    given: dict[str, Any] = {"loss": choice} if isinstance(choice, str) else dict(choice)
    known, name = REGRESSION_LOSSES.by_name, given.pop("loss", None)
    if name not in known:
        raise ValueError(
            f"loss={name!r} but it must be one of {', '.join(map(repr, sorted(known)))}, or a loss "
            "such as Quantile(0.9)."
        )
    cls = known[name]
    if not given.keys() <= {field.name for field in fields(cls)}:
        raise ModelError(
            f"The loss {name!r} has no parameters {sorted(given)}. Upgrade rff_stream."
        )
    loss: RegressionLoss = cls(**given)
    return loss


def round_corner(u: Float64, width: float) -> Float64:
    """max(0, u) with its corner rounded: (u + √(u² + 4h²))/2."""
    return np.asarray((u + np.hypot(u, 2 * width)) / 2)


def rounded_slope(u: Float64, width: float) -> Float64:
    """Its derivative, from 0 to 1."""
    far = np.hypot(u, 2 * width)
    return np.asarray((1 + np.divide(u, far, out=np.sign(u), where=far > 0)) / 2)


def rounded_curvature(u: Float64, width: float) -> Float64:
    """Its second derivative 2h²/(u² + 4h²)^{3/2}; 0 for a corner."""
    far = np.hypot(u, 2 * width)
    share = np.divide(2 * width, far, out=np.zeros_like(far), where=far > 0)
    curvature = np.divide(share**2, 2 * far, out=np.zeros_like(far), where=far > 0)
    return np.asarray(curvature)


def weighted_quantile(y: Float64, w: Float64, share: float) -> Float64:
    """The smallest value (T,) up to which this share of the weight lies."""
    return np.asarray(np.quantile(y, share, axis=0, weights=w, method="inverted_cdf"))


def robust_scale(F: Float64, y: Float64, w: Float64) -> float:
    """1.4826 times the median of ``|y − f|`` over all targets; 1 where f is y everywhere.

    Where more than half are rounding, as of a median of 0 in counts with many zeros, the median of
    the others.
    """
    misses, w = np.abs(y - F).ravel(), np.repeat(w, y.shape[1])
    least = np.finfo(np.float64).eps * np.abs(y).max()
    some = misses > least
    if not some.any():
        return 1.0
    middle = float(weighted_quantile(misses, w, 0.5))
    if middle <= least:
        middle = float(weighted_quantile(misses[some], w[some], 0.5))
    return NORMAL_MAD * middle


def _log_mean(y: Float64, w: Float64) -> Float64:
    """log of the mean of counts; of half a count where there is none."""
    total = w @ y
    return np.asarray(np.log(np.where(total > 0, total, 0.5 * w.mean()) / w.sum()))


def _known(value: float | None) -> float:
    """A number that the data gave meanwhile."""
    if value is None:
        raise ModelError("This loss has no scale yet. Give one, or ask for it with of_residuals.")
    return value


def _require_positive(loss: Any, *names: str) -> None:
    for name in names:
        value = getattr(loss, name)
        optional = loss.__dataclass_fields__[name].default is None
        replace(POSITIVE, optional=optional).check(name, value)


def _require_counts(loss: RegressionLoss, y: Array) -> None:
    if (y < 0).any():
        raise ValueError(
            f"A target is {y.min():.3g} but {loss.short_name()} is for counts, which are ≥ 0. "
            "Use another loss, or look at the target."
        )
