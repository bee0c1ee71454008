"""A line of the inputs in the log-odds, where classes are those of a line.

Least squares finds where classes meet, and not how odds grow from there. Where they grow along a
line, logistic regression does: of pilot rows, before the pass, or of the rows of the sample where
these are more, or hold a class that the pilot did not:

    Σ w log p(class | b + B₀ᵀx) − λ/2 ‖B₀‖² → max,    inputs over their standard deviation

and rows of the sample, each held out of both, say how much there is of it and of the scores f:

    log-odds = a·f + c·B₀ᵀ(x − x̄) + b,    a > 0, c ≥ 0
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy import optimize
from scipy.special import log_softmax

from rff_stream._array import Array, Float64, json_array, json_in, nested_arrays
from rff_stream.answers.calibration import PRIOR, Calibration, calibrate, of_every_class
from rff_stream.hashes import hash_values

PENALTIES, FOLDS = (1e3, 1e2, 1e1, 1.0, 0.1), 3
"""λ that are compared, and folds of rows that compare them. With .01, too, tables of 40 to 160 rows
had a larger log-loss."""

STEPS, TOLERANCE = 60, 1e-5
"""Most steps of a minimiser for each λ; it begins from that before. It ends where a step makes the
loss smaller by less than this share: the log-loss of n rows has a relative error of about 1/√n."""

MOST_VALUES = 2**22
"""Rows times inputs times classes of a line: a second of CPU time, about. Of more, some rows."""

ANGLE_TOLERANCE = 0.01
"""Of the angle between two scores in their sum: a hundredth of either."""

LINE = "odds_line"
"""Before the names of the arrays of a line."""


@dataclass(frozen=True, slots=True, eq=False)
class OddsLine:
    """The line of least log-loss of some rows, and of those outside each of their folds.

    A row's fold follows from its inputs, so that a row which is met again is judged by a line that
    did not see it.
    """

    slopes: Float64  # B₀ (1 + FOLDS, d, C): of all rows, and without each fold; 0 where none is
    origin: Float64  # x̄ (d,)
    classes: tuple[str, ...]  # names of the C classes
    n_rows: int  # rows that it was found on, or some of which it was found on where they are many

    @classmethod
    def of(
        cls,
        x: Float64,
        y: Float64,
        w: Float64,
        classes: Sequence[str],
        repeats: Collection[int] = (),
    ) -> Self:
        """That of rows x (m, d) with one-hot classes y (m, C); 0 where no line says more.

        The loss at folds chooses λ, from the largest on while it falls. An input that ``repeats``,
        such as an hour, has no slope. The order of the rows does not matter.
        """
        (m, d), n_classes = x.shape, y.shape[1]
        most = max(MOST_VALUES // (d * n_classes), 1)
        few = np.lexsort((y.argmax(axis=1), hash_values(x)))[:most]
        x, y, w = x[few], y[few], w[few]
        origin, fold = x.mean(axis=0), folds_of(x)
        slopes = np.zeros((1 + FOLDS, d, n_classes))
        line = cls(slopes, origin, tuple(classes), m)
        kept = (x != x[:1]).any(axis=0)  # of equal values the rounded deviation is no 0
        kept[list(repeats)] = False
        if n_classes < 2 or not kept.any() or len(np.unique(fold)) < FOLDS:
            return line
        spread = x[:, kept].std(axis=0)
        u = (x[:, kept] - origin[kept]) / spread
        loss = _LineLoss(u, y, w * (len(few) / w.sum()))
        points = [np.zeros((1 + u.shape[1], n_classes))] * FOLDS
        best = chosen = np.inf
        for penalty in (np.inf, *PENALTIES):
            found = [loss.part(fold != k).least(penalty, start) for k, start in enumerate(points)]
            held_out = sum(loss.part(fold == k).at(point) for k, point in enumerate(found))
            if held_out >= best:
                break
            best, chosen, points = held_out, penalty, found
        if not np.isfinite(chosen):
            return line
        for own, point in zip(slopes, (loss.least(chosen, points[0]), *points), strict=True):
            B = point[1:] - point[1:].mean(axis=1, keepdims=True)
            own[kept] = B / spread[:, None]
        return line

    def over(self, classes: Sequence[str]) -> Self:
        """The same over these classes: slopes are 0 of those that the rows did not hold."""
        places = {name: i for i, name in enumerate(self.classes)}
        slopes = np.zeros((*self.slopes.shape[:2], len(classes)))
        for i, name in enumerate(classes):
            if name in places:
                slopes[..., i] = self.slopes[..., places[name]]
        return replace(self, slopes=slopes, classes=tuple(classes))

    def held_out(self, x: Float64) -> Float64:
        """(x − x̄) B₀ (m, C), of each row by the line without its fold."""
        fold, found = folds_of(x), np.empty((len(x), self.slopes.shape[2]))
        for k, B in enumerate(self.slopes[1:]):
            found[fold == k] = (x[fold == k] - self.origin) @ B
        return found

    @property
    def stored(self) -> dict[str, Array]:
        """The line as arrays, for :meth:`from_stored`."""
        own = {
            "slopes": self.slopes,
            "origin": self.origin,
            "classes": json_array(self.classes),
            "n_rows": np.array(self.n_rows),
        }
        return {f"{LINE}_{name}": values for name, values in own.items()}

    @classmethod
    def from_stored(cls, arrays: Mapping[str, Array]) -> Self | None:
        """The line among arrays; None where there is none."""
        own = nested_arrays(arrays, f"{LINE}_")
        if not own:
            return None
        classes = tuple(json_in(own["classes"]))
        return cls(own["slopes"], own["origin"], classes, int(own["n_rows"]))


def folds_of(x: Array) -> Array:
    """The fold (m,) of each row (m, d): the same for rows in float32."""
    with np.errstate(over="ignore"):
        keys = hash_values(x.astype(np.float32))
    return (keys % np.uint64(FOLDS)).astype(np.int64)


def calibrate_beside_line(
    scores: Float64,
    x: Float64,
    line: OddsLine,
    codes: Array,
    weights: Float64,
    counts: Float64 | None = None,
) -> Calibration:
    """a, b and c of least log-loss of held-out scores (m, K) beside a line of rows x (m, d)."""
    along, B = line.held_out(x), line.slopes[0]
    if scores.shape[1] == 1:
        along, B = along[:, 1:] - along[:, :1], B[:, 1:] - B[:, :1]
    a, c = shares_beside(scores, along, codes, weights, counts)
    found = calibrate(a * scores + c * along if c else scores, codes, weights, counts)
    if not c:
        return found
    slopes = found.slope * c * B
    return Calibration(found.slope * a, found.offset - line.origin @ slopes, slopes)


def shares_beside(
    scores: Float64, other: Float64, codes: Array, weights: Float64, counts: Float64 | None = None
) -> tuple[float, float]:
    """a > 0 and c ≥ 0 for which a·scores + c·other (m, K) have the least log-loss, calibrated.

    The log-loss is convex in a, c and the offsets, so along the angle of (a, c), each over the
    deviation of its scores, its least value has one minimum. (1, 0) where either does not vary.
    """
    size, own, share = float(other.std()), float(scores.std()), weights / weights.sum()
    if not size > 0 or not own > 0:
        return 1.0, 0.0

    def shares(angle: float) -> tuple[float, float]:
        return float(np.cos(angle)) / own, float(np.sin(angle)) / size

    def loss(angle: float) -> float:
        a, c = shares(angle)
        mixed = a * scores + c * other
        odds = calibrate(mixed, codes, weights, counts)
        logs = log_softmax(of_every_class(odds(mixed)), axis=1)
        return -float(share @ logs[np.arange(len(codes)), codes])

    return shares(
        optimize.minimize_scalar(
            loss, bounds=(0, np.pi / 2), method="bounded", options={"xatol": ANGLE_TOLERANCE}
        ).x
    )


@dataclass(frozen=True, slots=True, eq=False)
class _LineLoss:
    """The log-loss of log-odds b + Bᵀu of some rows, at (1 + d, C): [b, B]."""

    u: Float64  # (m, d)
    y: Float64  # (m, C)
    w: Float64  # (m,)

    def part(self, rows: Array) -> _LineLoss:
        """Of some rows."""
        return _LineLoss(self.u[rows], self.y[rows], self.w[rows])

    def at(self, point: Float64) -> float:
        """Σ of losses."""
        logs = log_softmax(point[0] + self.u @ point[1:], axis=1)
        return -float(self.w @ (self.y * logs).sum(axis=1))

    def least(self, penalty: float, start: Float64) -> Float64:
        """The point of least penalised loss from a start; B = 0 where the penalty is infinite."""
        n_moving = start.size if np.isfinite(penalty) else start.shape[1]
        rest = start.ravel()[n_moving:]

        def loss(moving: Float64) -> tuple[float, Float64]:
            point = np.r_[moving, rest].reshape(start.shape)
            b, B = point[0], point[1:]
            logs = log_softmax(point[:1] + (self.u @ B if len(moving) > len(b) else 0.0), axis=1)
            logs = np.broadcast_to(logs, self.y.shape)
            missed = self.w[:, None] * (np.exp(logs) - self.y)
            value = -float(self.w @ (self.y * logs).sum(axis=1)) + PRIOR / 2 * float(b @ b)
            to_b = missed.sum(axis=0) + PRIOR * b
            if len(moving) == len(b):
                return value, to_b
            value += penalty / 2 * float(np.sum(B * B))
            return value, np.r_[to_b, (self.u.T @ missed + penalty * B).ravel()]

        found = optimize.minimize(
            loss, start.ravel()[:n_moving], jac=True, method="L-BFGS-B",
            options={"maxiter": STEPS, "ftol": TOLERANCE},
        )  # fmt: skip
        return np.asarray(np.r_[found.x, rest].reshape(start.shape))
