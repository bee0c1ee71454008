"""Targets by which the map for another loss is searched for.

A search for kernels, length-scales and a metric is by squared errors, which a few far targets
rule, and for counts f is the logarithm of a mean. So a loss is first fitted to pilot rows with
the map that needs no search, and the search is for f and what is left of each row's error: that
is the step of the method of scoring, or of Huber's pseudo-values. For losses with corners, which
take ten times as long, and Student's, which has several minima, the loss is Huber's here.

References
----------
Huber 1964. Nelder & Wedderburn 1972 (working targets of counts).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.descents.regression_penalty import choose_regression, fit_of_sample, of_target
from rff_stream.descents.sample_fits import FEW_ROWS, predicted
from rff_stream.features.base import FeatureMap
from rff_stream.losses.regression import Huber, RegressionLoss, robust_scale
from rff_stream.moments import AugmentedRow
from rff_stream.pilot import Pilot
from rff_stream.sources.protocol import Rows

FEWEST_SEARCHED = 20
"""Pilot rows from which a map is searched for: each quarter that is held out has five."""

BOUND = 3.0
"""Robust standard deviations at which an error is cut: of normal errors .3 % are larger."""

CLEAR = 2.0
"""Standard errors by which a map must be better: by chance one in 44 is."""

LEAST_WEIGHT = 1e-6
"""Least curvature of a row, relative to the mean: where a count is expected to be 0 its row says
nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class PilotFit:
    """Fits of a loss to pilot rows, for each target."""

    pilot: Pilot
    losses: tuple[RegressionLoss, ...]  # with their scales
    scores: Float64  # (m, T): where it can be, of fits that have not seen the row
    held_out: Array  # (m, T) bool: where they have not

    @classmethod
    def of(
        cls, features: FeatureMap, row: AugmentedRow, pilot: Pilot, loss: RegressionLoss
    ) -> PilotFit:
        """Fits to at most 2,000 of the rows; ``row`` is without targets."""
        loss = loss if loss.log_link or isinstance(loss, Huber) else Huber()
        n = len(pilot.x)
        few = np.zeros(n, bool)
        if n < 2 * FEW_ROWS:  # four folds, which leave out all of few rows
            few[:: -(-n // FEW_ROWS)] = True
        else:  # one fold
            few[np.arange(FEW_ROWS) * n // FEW_ROWS] = True
        sample = pilot.part(few)
        rows = Rows(sample.x, sample.y, sample.w, None, 0)
        held_out = np.repeat(~few[:, None], pilot.y.shape[1], axis=1)
        losses, scores = [], np.empty(pilot.y.shape)
        for t in range(pilot.y.shape[1]):
            own = of_target(rows, t)
            chosen = choose_regression(features, row, own, loss, None)
            linear = fit_of_sample(features, row, own, chosen.loss, chosen.alpha)
            scores[:, t] = predicted(features, linear, pilot.x)[:, 0]
            left = np.isfinite(chosen.scores[:, 0])
            scores[few, t] = np.where(left, chosen.scores[:, 0], scores[few, t])
            held_out[few, t] = left
            losses.append(chosen.loss)
        return cls(pilot, tuple(losses), scores, held_out)

    def is_clearly_worse_than(self, other: PilotFit) -> bool:
        """Whether losses of held-out rows are less with the other map, beyond chance.

        Both by the losses of this one; each target counts relative to its mean. The search has
        seen the rows, so the difference must be a clear one.
        """
        held, w = self.held_out & other.held_out, self.pilot.w
        gain = np.zeros(len(w))
        for t, loss in enumerate(self.losses):
            left, y = held[:, t], self.pilot.y[held[:, t], t, None]
            own, theirs = (loss.values(fit.scores[left, t, None], y)[:, 0] for fit in (self, other))
            gain[left] += (own - theirs) / (w[left] @ own / w[left].sum() or 1.0)
        some = held.any(axis=1)
        gain, w = gain[some], w[some]
        mean = w @ gain / w.sum()
        return bool(mean > CLEAR * np.sqrt(w**2 @ (gain - mean) ** 2) / w.sum())

    def working_pilot(self) -> Pilot:
        """The rows with targets for squared errors: scores, and errors that are cut.

        Under a logarithm f − ℓ'/ℓ'', of weight ℓ'': the mean of its squared errors is the loss
        near f, to second order.
        """
        pilot, w = self.pilot, np.ones(self.scores.shape)
        y = np.empty(self.scores.shape)
        for t, loss in enumerate(self.losses):
            f, own, left = self.scores[:, t, None], pilot.y[:, t, None], self.held_out[:, t]
            if loss.log_link:
                curvature = loss.curvatures(f, own)
                mean = curvature.mean()
                curvature = np.maximum(curvature, LEAST_WEIGHT * mean)
                error, w[:, t] = -loss.slope(f, own) / curvature, curvature[:, 0] / mean
            else:
                bound = BOUND * robust_scale(f[left], own[left], pilot.w[left])
                error = np.clip(own - f, -bound, bound)
            y[:, t] = (f + error)[:, 0]
        return replace(pilot, y=y, w=pilot.w * w.mean(axis=1))
