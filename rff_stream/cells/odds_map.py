"""Logistic regression on a map of the whole space, beside the scores of cells.

Least squares finds where classes meet, but is not sure enough of them where they hardly overlap.
Logistic regression of pilot rows on Fourier features of the kernel that the search took is:

    Σ w log p(class | g(x)) − α/2 ‖β‖² → max,    g(x) = β₀ + z(x)β

It is found before the pass, of all pilot rows and of those outside each fold, as the line of
:mod:`~rff_stream.answers.odds_line` is. How much of it there is in the log-odds is found after it,
at rows of the sample, each held out of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64, json_array, json_in, nested_arrays
from rff_stream.answers.odds_line import FOLDS, folds_of
from rff_stream.descents.kept_rows import KeptFeatures, descents_of_kept
from rff_stream.descents.sample_fits import Coefficients
from rff_stream.features import FourierFeatures, Then
from rff_stream.features.base import FeatureMap, map_from_spec
from rff_stream.features.column_sweep import linear_form, sweep_of
from rff_stream.hashes import hash_values
from rff_stream.kernels import Kernel
from rff_stream.losses.classification import Loss, loss_for
from rff_stream.losses.penalised import PenalisedClasses
from rff_stream.pilot import weight_unit

COLUMNS, ROWS_A_COLUMN, FEWEST_COLUMNS = 1024, 4, 64
"""R of the map, and rows that each of its columns needs: with as many columns as rows, held-out
odds look better than those of new rows. With fewer columns there is no map."""

MOST_VALUES = 2**26
"""Rows times columns times classes: more would take seconds. Of many classes there are fewer
columns."""

SEED = 0
"""Of its frequencies: the same rows have the same map in every fit."""

MOST_CLASSES = 32
"""Classes up to which it is made: its time grows with them, and it is stored for each fold."""

PENALTIES = np.geomspace(10.0, 1e-5, 7)
"""α that are compared, from that of nearly equal scores to that of scores of ±300; smaller ones are
tried while the loss at folds falls."""

TOL, PASSES = 1e-2, 10
"""Tolerance as that of :class:`~rff_stream.KernelClassifier`, and most steps for each α. With 30
four tables of PMLB had the same losses to 1 %."""

ODDS_MAP = "odds_map"
"""Before the names of the arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class OddsMap:
    """The logistic regression of some rows, and of those outside each of their folds."""

    features: FeatureMap
    coef: Float64  # β (1 + FOLDS, R, C): of all rows, and without each fold
    intercept: Float64  # β₀ (1 + FOLDS, C)
    classes: tuple[str, ...]  # names of the C classes
    n_rows: int  # rows that it was found on

    @classmethod
    def of(
        cls, kernel: Any, encoding: Any, x: Float64, y: Float64, w: Float64, classes: Sequence[str]
    ) -> Self | None:
        """That of rows x (m, d) with one-hot classes y (m, C), for a kernel of encoded rows.

        The loss at folds chooses α, from the largest on while it falls. None where rows are few, a
        fold has all of a class, classes are many, or the kernel has no spectrum. The order of the
        rows does not matter.
        """
        order = np.lexsort((y.argmax(axis=1), hash_values(x)))
        order = order[w[order] > 0]
        x, y, w, n_classes = x[order], y[order], w[order], y.shape[1]
        most = min(len(x) // ROWS_A_COLUMN, MOST_VALUES // (len(x) * n_classes), COLUMNS)
        fold, size = folds_of(x), most // 2 * 2
        several = 2 <= n_classes <= MOST_CLASSES and isinstance(kernel, Kernel)
        if not several or size < FEWEST_COLUMNS:
            return None
        if not all((y[fold != k] > 0).any(axis=0).all() for k in range(FOLDS)):
            return None
        d = x.shape[1] if encoding is None else encoding.n_components
        columns = FourierFeatures.sample(kernel, d, size, rng=SEED)
        features = columns if encoding is None else Then(encoding, columns)
        loss = loss_for("logistic", n_classes)
        kept = KeptFeatures.of(features, (x, y.argmax(axis=1), w), n_classes, "float32")
        parts = [kept] + [kept.weigh(w * (fold != k)) for k in range(FOLDS)]
        paths = [_Path(part, features.prior(), loss) for part in parts]
        best, found = np.inf, list[Coefficients]()
        for alpha in PENALTIES * weight_unit(w):
            fits = [path.at(alpha) for path in paths]
            losses = [kept.losses(loss, own) for own in fits[1:]]
            held_out = sum(float((w * own)[fold == k].sum()) for k, own in enumerate(losses))
            if not held_out < best:
                break
            best, found = held_out, fits
        if not found:
            return None
        coef, intercept = np.zeros((1 + FOLDS, size, n_classes)), np.zeros((1 + FOLDS, n_classes))
        for i, (beta, constant) in enumerate(found):  # of two classes that of the second
            coef[i, :, -beta.shape[1] :], intercept[i, -beta.shape[1] :] = beta, constant
        return cls(features, coef, intercept, tuple(classes), len(x))

    def over(self, classes: Sequence[str]) -> Self | None:
        """The same with some of the classes, in their order; None where it lacks one."""
        if not set(classes) <= set(self.classes):
            return None
        places = [self.classes.index(name) for name in classes]
        coef, intercept = self.coef[..., places], self.intercept[..., places]
        return replace(self, coef=coef, intercept=intercept, classes=tuple(classes))

    def held_out(self, x: Float64) -> Float64:
        """g (m, C) of each row (m, d) by the fit without its fold."""
        fold, found = folds_of(x), np.empty((len(x), len(self.classes)))
        for k in range(FOLDS):
            some, own = fold == k, OddsPart(self.features, self.coef[1 + k])
            found[some] = own(x[some]) + self.intercept[1 + k]
        return found

    @property
    def stored(self) -> dict[str, Array]:
        """The coefficients and the map as arrays, for :meth:`from_stored`."""
        own = {
            "coef": self.coef,
            "intercept": self.intercept,
            "classes": json_array(self.classes),
            "n_rows": np.array(self.n_rows),
        }
        return {f"{ODDS_MAP}_{name}": a for name, a in (own | _packed(self.features)).items()}

    @classmethod
    def from_stored(cls, arrays: Mapping[str, Array]) -> Self | None:
        """That among arrays; None where there is none."""
        own = nested_arrays(arrays, f"{ODDS_MAP}_")
        if not own:
            return None
        classes, n_rows = tuple(json_in(own["classes"])), int(own["n_rows"])
        return cls(_map_in(own), own["coef"], own["intercept"], classes, n_rows)


@dataclass(slots=True, eq=False)
class _Path:
    """Fits of some rows for smaller and smaller penalties, each from the one before.

    Their own rows alone guide their steps. If all rows did, those of a fold would have a say in the
    fit without them, as a descent ends before the least loss where it hardly curves.
    """

    kept: KeptFeatures
    prior: Array
    loss: Loss
    problem: PenalisedClasses | None = None
    last: Coefficients | None = None

    def at(self, alpha: float) -> Coefficients:
        """Raw coefficients (R, K) and intercepts (K,)."""
        before = self.problem
        guide = before.system if before is not None and before.guided else None
        self.problem = problem = self.kept.penalise(self.prior, self.loss, alpha, guide)
        *_, end = descents_of_kept(self.kept, problem, self.last, tol=TOL, max_passes=PASSES)
        self.last = problem.linear(end.point.theta)
        return self.last


@dataclass(frozen=True, slots=True, eq=False)
class OddsPart:
    """x ↦ z(x)γ (n, K): what a map adds to log-odds."""

    features: FeatureMap
    weights: Float64  # γ (R, K)

    def __call__(self, x: Array) -> Float64:
        return linear_form(sweep_of(self.features, np.dtype(np.float64)), x, self.weights)

    def slopes(self, x: Array) -> Float64:
        """(n, d, K)."""
        return self.features.slopes(x, self.weights)

    @property
    def stored(self) -> dict[str, Array]:
        """γ and the map as arrays, for :meth:`from_stored`."""
        own = {"weights": self.weights} | _packed(self.features)
        return {f"{ODDS_MAP}_{name}": values for name, values in own.items()}

    @classmethod
    def from_stored(cls, arrays: Mapping[str, Array]) -> Self | None:
        """The part among arrays; None where there is none."""
        own = nested_arrays(arrays, f"{ODDS_MAP}_")
        return cls(_map_in(own), own["weights"]) if own else None


def _packed(features: FeatureMap) -> dict[str, Array]:
    """A map as arrays."""
    plain, arrays = features.spec()
    return {"spec": json_array(plain)} | {f"map_{name}": a for name, a in arrays.items()}


def _map_in(arrays: Mapping[str, Array]) -> FeatureMap:
    """The map among arrays."""
    return map_from_spec(json_in(arrays["spec"]), nested_arrays(arrays, "map_"))
