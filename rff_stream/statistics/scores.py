"""Scores as sums over rows: residuals, ZᵀWe, quantiles of a score, and how a classifier does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.contracts import Sink
from rff_stream.errors import DataError
from rff_stream.features.base import BATCH_ROWS, FeatureMap
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import codes_of


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Σw, ȳ, Σw(y − ȳ)², Σw(y − ŷ)² of T targets: they add.

    About its own mean a scatter does not cancel, wherever the targets of the fit lay.
    """

    sums: Float64  # (4, T)
    n: int  # rows
    outside: Any = None  # value that adds, or None: what else was counted of the inputs

    def __add__(self, other: Self) -> Self:
        there = self.outside is not None and other.outside is not None
        outside = self.outside + other.outside if there else self.outside or other.outside
        return type(self)(joined(self.sums, other.sums), self.n + other.n, outside)

    def r2(self) -> Float64:
        """1 − Σw(y − ŷ)²/Σw(y − ȳ)² (T,); as scikit-learn for a constant target."""
        _, _, scatter, missed = self.sums
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = 1 - missed / scatter
        constant = np.where(missed > 0, 0.0, 1.0)
        return np.asarray(np.where(scatter > 0, r2, constant))

    def rmse(self) -> Float64:
        """√(Σw(y − ŷ)²/Σw) (T,), in units of y."""
        return np.asarray(np.sqrt(self.sums[3] / self.sums[0]))


def joined(a: Float64, b: Float64) -> Float64:
    """Sums (4, T) of both: Chan, Golub & LeVeque 1983."""
    weight = a[0] + b[0]
    share = np.divide(b[0], weight, out=np.zeros_like(weight), where=weight > 0)
    apart = b[1] - a[1]
    return np.stack(
        [weight, a[1] + share * apart, a[2] + b[2] + a[0] * share * apart**2, a[3] + b[3]]
    )


@dataclass(frozen=True, slots=True, eq=False)
class ResidualStatistic:
    """What a leaf adds up for a score."""

    predict: Callable[[Array], Float64]  # (m, d) -> (m, T), picklable
    n_targets: int
    outside: Callable[[Array], Any] | None = None
    """x (m, d) -> a value that can be added: other counts of the inputs."""

    def start(self) -> Sink:
        return _ResidualSink(self)


class _ResidualSink:
    def __init__(self, statistic: ResidualStatistic) -> None:
        self._statistic = statistic
        self._sums = np.zeros((4, statistic.n_targets))
        self._n = 0
        self._outside: Any = None

    def add(self, rows: Rows, places: Array) -> None:
        count = self._statistic.outside
        if count is not None:
            more = count(rows.x)
            self._outside = more if self._outside is None else self._outside + more
        missed = rows.y - self._statistic.predict(rows.x)
        if not len(rows.x):
            return
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        first = rows.y[0]  # exactly the mean of a constant target
        mean = first + w @ (rows.y - first) / w.sum()
        own = [np.full(len(mean), w.sum()), mean, w @ (rows.y - mean) ** 2, w @ missed**2]
        self._sums = joined(self._sums, np.stack(own))
        self._n += len(rows.x)

    def result(self) -> Residuals:
        return Residuals(self._sums, self._n, self._outside)


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Weight below, in equal bins between two bounds, and above: they add.

    Parameters
    ----------
    low, high : float
    weights : (B + 2,) float64
    """

    low: float
    high: float
    weights: Float64

    def __add__(self, other: Self) -> Self:
        return type(self)(self.low, self.high, self.weights + other.weights)

    def __sizeof__(self) -> int:
        return int(self.weights.nbytes) + 64

    def quantile(self, share: float) -> float:
        """The edge nearest to which this share of the weight lies below; ∓∞ outside the bounds."""
        below = np.cumsum(self.weights)
        edge = int(np.abs(below[:-1] - share * below[-1]).argmin())
        if share * below[-1] < below[0]:
            return -np.inf
        if share * below[-1] > below[-2]:
            return np.inf
        return self.low + (self.high - self.low) * edge / (len(self.weights) - 2)


@dataclass(frozen=True, slots=True, eq=False)
class HistogramStatistic:
    """What a leaf adds up for a quantile."""

    score: Callable[[Array], Float64]  # (m, d) -> (m, 1), picklable
    low: float
    high: float
    bins: int = 65_536

    def start(self) -> Sink:
        return _HistogramSink(self)


class _HistogramSink:
    def __init__(self, statistic: HistogramStatistic) -> None:
        self._of = statistic
        self._weights = np.zeros(statistic.bins + 2)

    def add(self, rows: Rows, places: Array) -> None:
        of = self._of
        share = (self._of.score(rows.x)[:, 0] - of.low) / (of.high - of.low)
        bins = np.clip(np.floor(share * of.bins) + 1, 0, of.bins + 1).astype(np.int64)
        self._weights += np.bincount(bins, rows.w, len(self._weights))

    def result(self) -> Histogram:
        return Histogram(self._of.low, self._of.high, self._weights)


BINS = 8192
"""Bins of log-odds between −30 and 30, for AUROC: 0.007 wide."""

MOST_ODDS = 30.0  # 1 in 10¹³: beyond it rows are equally sure
CONFIDENCES = 20
"""Bins of confidence, for calibration."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassScores:
    """Sums that accuracy, log-loss, Brier score, AUROC and calibration are functions of."""

    labels: tuple[Any, ...]  # the C classes of the model
    confusion: Float64  # (C, C): Σw by class and predicted class
    losses: Float64  # (2,): Σw of −log p and of the Brier score
    odds: Float64
    """(C, 2, B + 2), Σw by log-odds of each class, for rows of the other classes and of it."""
    confidence: Float64
    """(3, 20), Σw, Σw p and Σw of correct predictions, by predicted probability."""
    unseen: Mapping[Any, float]
    """Σw of rows of classes that the model does not know."""
    n: int  # rows

    def __add__(self, other: Self) -> Self:
        unseen = dict(self.unseen)
        for label, weight in other.unseen.items():
            unseen[label] = unseen.get(label, 0.0) + weight
        return replace(
            self,
            confusion=self.confusion + other.confusion,
            losses=self.losses + other.losses,
            odds=self.odds + other.odds,
            confidence=self.confidence + other.confidence,
            unseen=unseen,
            n=self.n + other.n,
        )

    def __sizeof__(self) -> int:
        return int(self.confusion.nbytes + self.odds.nbytes) + 1024

    @property
    def weight(self) -> float:
        """Σw, rows of unknown classes included."""
        return float(self.confusion.sum()) + sum(self.unseen.values())

    def accuracy(self) -> float:
        """Share of the weight that is answered right; a class not known is answered wrong."""
        return float(np.trace(self.confusion)) / self.weight

    def recall(self) -> dict[Any, float]:
        """Accuracy on the rows of each class that has some."""
        totals, right = self.confusion.sum(axis=1), np.diag(self.confusion)
        pairs = zip(self.labels, right, totals, strict=True)
        return {label: float(a / b) for label, a, b in pairs if b > 0}

    def log_loss(self) -> float:
        """Mean of −log p of the true class, natural logarithm.

        Raises DataError: if there are rows of a class that the model does not know: their p is 0.
        """
        self._require_known("log-loss")
        return float(self.losses[0]) / self.weight

    def brier(self) -> float:
        """Mean of Σ_c (p_c − y_c)², in [0, 2]."""
        self._require_known("Brier score")
        return float(self.losses[1]) / self.weight

    def auroc(self) -> dict[Any, float]:
        """P(log-odds of a row of the class > of another row) for each class; ties are ½.

        From 8,192 bins of log-odds, 0.007 wide: :meth:`auroc_error` bounds what that costs.
        NaN where there are no rows of one side.
        """
        return {label: self._area(i)[0] for i, label in enumerate(self.labels)}

    def auroc_error(self) -> dict[Any, float]:
        """Half of the share of pairs that fell into one bin: the exact value is that near."""
        return {label: self._area(i)[1] for i, label in enumerate(self.labels)}

    def calibration(self) -> Float64:
        """(m, 3): mean probability of the answer, share that was right, and Σw, of each bin."""
        weight, p, right = self.confidence[:, self.confidence[0] > 0]
        return np.stack([p / weight, right / weight, weight], axis=1)

    def calibration_error(self) -> float:
        """Mean |probability − share right| over the bins of :meth:`calibration`, by weight."""
        p, right, weight = self.calibration().T
        return float(np.average(np.abs(p - right), weights=weight))

    def _area(self, place: int) -> tuple[float, float]:
        others, own = self.odds[place]
        pairs = others.sum() * own.sum()
        if not pairs:
            return np.nan, np.nan
        below = np.cumsum(others) - others
        return float(own @ (below + others / 2) / pairs), float(own @ others / 2 / pairs)

    def _require_known(self, what: str) -> None:
        if self.unseen:
            label = next(iter(self.unseen))
            raise DataError(
                f"There are rows of class {label!r}, which the model has not seen (it knows "
                f"{', '.join(map(repr, self.labels))}): their {what} is infinite. Leave them out "
                "with `where`, or update the model with rows of that class."
            )


@dataclass(frozen=True, slots=True, eq=False)
class ClassScoreStatistic:
    """What a leaf adds up for the scores of a classifier."""

    probabilities: Callable[[Array], Float64]  # (m, d) -> (m, C), picklable
    labels: tuple[Any, ...]  # of the C classes

    def start(self) -> Sink:
        return _ClassScoreSink(self)


class _ClassScoreSink:
    def __init__(self, statistic: ClassScoreStatistic) -> None:
        self._of = statistic
        c = len(statistic.labels)
        self._confusion, self._losses = np.zeros((c, c)), np.zeros(2)
        self._odds = np.zeros((c, 2, BINS + 2))
        self._confidence = np.zeros((3, CONFIDENCES))
        self._unseen: dict[Any, float] = {}
        self._n = 0

    def add(self, rows: Rows, places: Array) -> None:
        codes = codes_of(rows, self._of.labels)
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        assert rows.label is not None
        for label, weight in zip(rows.label[codes < 0].tolist(), w[codes < 0], strict=True):
            self._unseen[label] = self._unseen.get(label, 0.0) + float(weight)
        self._n += len(codes)
        known = codes >= 0
        if known.any():
            self._take(self._of.probabilities(rows.x[known]), codes[known], w[known])

    def _take(self, p: Float64, codes: Array, w: Float64) -> None:
        c = len(self._of.labels)
        best = p.argmax(axis=1)
        np.add.at(self._confusion, (codes, best), w)
        own = p[np.arange(len(p)), codes]
        self._losses[0] -= w @ np.log(np.maximum(own, np.finfo(float).tiny))
        self._losses[1] += w @ ((p**2).sum(axis=1) - 2 * own + 1)
        top = p.max(axis=1)
        bins = np.minimum((top * CONFIDENCES).astype(int), CONFIDENCES - 1)
        for i, values in enumerate((w, w * top, w * (best == codes))):
            self._confidence[i] += np.bincount(bins, values, CONFIDENCES)
        tiny = np.finfo(float).tiny
        odds = np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))
        share = (odds + MOST_ODDS) / (2 * MOST_ODDS)
        bins = np.clip(np.floor(share * BINS) + 1, 0, BINS + 1).astype(np.int64)
        for i in range(c):
            at = bins[:, i] + (BINS + 2) * (codes == i)
            self._odds[i] += np.bincount(at, w, 2 * (BINS + 2)).reshape(2, -1)

    def result(self) -> ClassScores:
        return ClassScores(
            self._of.labels,
            self._confusion,
            self._losses,
            self._odds,
            self._confidence,
            self._unseen,
            self._n,
        )


@dataclass(frozen=True, slots=True, eq=False)
class NormalEquationSums:
    """Σ w z eᵀ (R, T), Σ w e (T,), Σ w z (R,) and Σ w: they add."""

    cross: Float64  # (R + 1, T + 1): [z, 1]ᵀ W [e, 1]

    def __add__(self, other: Self) -> Self:
        return type(self)(self.cross + other.cross)

    def __sizeof__(self) -> int:
        return int(self.cross.nbytes) + 64

    @property
    def weight(self) -> float:
        """Σ w."""
        return float(self.cross[-1, -1])

    @property
    def feature_mean(self) -> Float64:
        """z̄ (R,)."""
        return np.asarray(self.cross[:-1, -1] / self.weight)

    @property
    def mean(self) -> Float64:
        """ē (T,)."""
        return np.asarray(self.cross[-1, :-1] / self.weight)

    def centred(self) -> Float64:
        """(Z − 1z̄ᵀ)ᵀW(e − ē) (R, T)."""
        return np.asarray(self.cross[:-1, :-1] - np.outer(self.feature_mean, self.cross[-1, :-1]))

    def raw(self) -> Float64:
        """ZᵀWe (R, T)."""
        return np.asarray(self.cross[:-1, :-1])


@dataclass(frozen=True, slots=True, eq=False)
class NormalEquationStatistic:
    """e = y − μ − zβ (residuals), or e = zβ + μ where ``residuals`` is False."""

    features: FeatureMap
    coef: Float64  # (R, T)
    intercept: Float64  # (T,)
    residuals: bool

    def start(self) -> Sink:
        return _NormalEquationSink(self)


class _NormalEquationSink:
    def __init__(self, statistic: NormalEquationStatistic) -> None:
        self._of = statistic
        r, t = statistic.coef.shape
        self._cross = np.zeros((r + 1, t + 1))
        self._z = np.ones((BATCH_ROWS, r + 1))
        self._e = np.ones((BATCH_ROWS, t + 1))

    def add(self, rows: Rows, places: Array) -> None:
        for start in range(0, len(rows.x), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            w = None if rows.w is None else rows.w[part]
            self._take(rows.x[part], rows.y[part], w)

    def _take(self, x: Float64, y: Float64, w: Float64 | None) -> None:
        z, e = self._z[: len(x)], self._e[: len(x)]
        self._of.features(x, out=z[:, :-1])
        fitted = z[:, :-1] @ self._of.coef + self._of.intercept
        e[:, :-1] = y - fitted if self._of.residuals else fitted
        self._cross += z.T @ (e if w is None else e * w[:, None])

    def result(self) -> NormalEquationSums:
        return NormalEquationSums(self._cross)
