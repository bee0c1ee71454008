"""A linear model of feature columns as the answer of a fit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.answers.early_stopping import HeldOutError, state_of
from rff_stream.answers.penalty_selection import Selection
from rff_stream.answers.ridge import Ridge
from rff_stream.contracts import Packed, Slopes
from rff_stream.families.parameters import number_or_array
from rff_stream.families.protocol import Totals
from rff_stream.features import FeatureMap
from rff_stream.moments import Moments
from rff_stream.predictors import LinearPredictor
from rff_stream.statistics.scores import NormalEquationSums
from rff_stream.stored_fields import NOT_STORED, pack_fields
from rff_stream.systems.iterative_refinement import refine
from rff_stream.systems.spectrum import alpha_of_targets, spectrum


@dataclass(frozen=True, slots=True, eq=False)
class LinearAnswer:
    """A linear model of feature columns: ŷ = intercept + Z coef.

    Its methods are those of a :class:`~rff_stream.families.protocol.RidgeAnswer`.
    """

    features: FeatureMap = field(metadata=NOT_STORED)
    coef: Float64  # (R, T)
    intercept: Float64  # (T,)
    alpha: Float64  # (T,): penalty
    df: Float64  # (T,): effective degrees of freedom of every target
    target_origin: Float64  # (T,), y₀ of the moments: residuals are summed about it
    selection: Selection | None = field(default=None, metadata=NOT_STORED)
    """Scores of every α, where it was chosen."""

    @classmethod
    def of(
        cls, features: FeatureMap, found: Ridge, origin: Float64, selection: Selection | None = None
    ) -> LinearAnswer:
        """The answer that a ridge regression is."""
        return cls(features, found.coef, found.intercept, found.alpha, found.df, origin, selection)

    def mean(self) -> LinearPredictor:
        return LinearPredictor(self.features, self.coef, self.intercept)

    def slopes(self) -> Slopes:
        return functools.partial(self.features.slopes, weights=self.coef)

    def state(self, tests: Sequence[Moments], n_rows: int, fraction: float) -> HeldOutError:
        return state_of(tests, self.coef, self.intercept, n_rows, fraction)

    def attributes(self, flat: bool) -> dict[str, Any]:
        """β, μ, α and df; the scores of every α where it was chosen."""
        found = {
            "coef_": self.coef[:, 0] if flat else self.coef,
            "intercept_": number_or_array(self.intercept, flat),
            "alpha_": number_or_array(self.alpha, flat),
            "df_": number_or_array(self.df, flat),
        }
        return found if self.selection is None else found | {"selection_": self.selection}

    def pack(self) -> Packed:
        """The same without the scores."""
        return Packed(*pack_fields(self))


def refine_answer(
    answer: LinearAnswer,
    totals: Totals,
    alpha: Any,
    *,
    fit_intercept: bool,
    steps: int,
    normal_sums: Callable[..., NormalEquationSums],
) -> LinearAnswer:
    """The answer after conjugate-gradient steps on the exact system.

    Residuals take one more pass, and each step a product with the system, which is a pass, too.
    """
    moments: Moments = totals.total
    given = answer.alpha if isinstance(alpha, str) else alpha
    penalty = alpha_of_targets(given, moments.row.n_targets)
    found = spectrum(moments, fit_intercept=fit_intercept)
    first = normal_sums(answer.coef, answer.intercept, residuals=True)

    def product(direction: Float64) -> Float64:
        """Z̃ᵀWZ̃ v (R, T) by one pass."""
        if not fit_intercept:
            return normal_sums(direction, np.zeros(direction.shape[1])).raw()
        return normal_sums(direction, -(first.feature_mean @ direction)).centred()

    exact = refine(
        found,
        penalty,
        answer.coef,
        first.centred() if fit_intercept else first.raw(),
        product,
        steps,
    )
    exact.warn_if_short(found.system.targets)
    coef = exact.coef
    moved = first.mean - first.feature_mean @ (coef - answer.coef)
    intercept = answer.intercept + (moved if fit_intercept else 0.0)
    df = np.atleast_1d(found.df(penalty))
    origin, selection = answer.target_origin, answer.selection
    return LinearAnswer(totals.features, coef, intercept, penalty, df, origin, selection)
