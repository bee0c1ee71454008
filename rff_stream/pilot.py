"""What a few rows read first say: origins, scales, the median length-scale.

Everything here comes from at most 32 blocks of 512 valid rows and becomes part of the
model's spec; it is never drawn again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import pdist

from rff_stream._array import Array, Float64
from rff_stream.features.base import FeatureMap
from rff_stream.features.sums import column_sums, sweep_of
from rff_stream.moments import AugmentedRow

__all__ = ["PILOT_BLOCKS", "PILOT_ROWS", "Pilot", "augmented_row", "weighted_median"]

PILOT_BLOCKS = 32
PILOT_ROWS = 512
MEDIAN_ROWS = 1024
"""Rows whose pairs the median looks at: half a million distances."""


@dataclass(frozen=True, slots=True, eq=False)
class Pilot:
    """Pilot rows and their weighted statistics.

    Parameters
    ----------
    x : (m, d) float64
    y : (m, T) float64
    w : (m,) float64
        Positive.
    """

    x: Float64
    y: Float64
    w: Float64

    @property
    def origin(self) -> Float64:
        """Weighted mean of the inputs (d,)."""
        return np.average(self.x, axis=0, weights=self.w)

    @property
    def scale(self) -> Float64:
        """Weighted standard deviation of the inputs (d,); 1 for a constant column."""
        return _deviation(self.x, self.w)

    @property
    def target_origin(self) -> Float64:
        """Weighted mean of y (T,)."""
        return np.average(self.y, axis=0, weights=self.w)

    @property
    def target_scale(self) -> Float64:
        """Power of two next to the weighted standard deviation of y (T,)."""
        return np.asarray(2.0 ** np.round(np.log2(_deviation(self.y, self.w))))

    def median_length_scale(self) -> Float64:
        """Median distance between rows of scaled inputs, in input units (d,).

        Inputs are divided by their standard deviation; the median is over pairs of rows
        further apart than 0, weighted by wᵢwⱼ. 1 standard deviation if all rows are equal.
        """
        step = -(-len(self.x) // MEDIAN_ROWS)
        x, w = self.x[::step] / self.scale, self.w[::step]
        distances = pdist(x - x.mean(axis=0))
        apart = distances > 0
        if not apart.any():
            return self.scale
        if (w == w[0]).all():
            return self.scale * weighted_median(distances[apart], None)
        i, j = np.triu_indices(len(x), 1)
        return self.scale * weighted_median(distances[apart], (w[i] * w[j])[apart])


def augmented_row(
    features: FeatureMap,
    pilot: Pilot,
    inputs: tuple[str, ...],
    targets: tuple[str, ...] = (),
    units: tuple[str, ...] = (),
) -> AugmentedRow:
    """The row [z − z₀, 1, y − y₀] with z₀ and y₀ from the pilot."""
    sweep = sweep_of(features, np.dtype(np.float64))
    total = column_sums(sweep, pilot.x, pilot.w, features.n_components)
    return AugmentedRow(
        map_fingerprint=features.fingerprint,
        prior=features.prior(),
        nesting=features.nesting,
        feature_origin=total / pilot.w.sum(),
        target_origin=pilot.target_origin,
        target_scale=pilot.target_scale,
        inputs=inputs,
        targets=targets,
        units=units,
    )


def weighted_median(values: Array, weights: Array | None) -> float:
    """The smallest value with at least half of the weight at or below it."""
    if weights is None:  # a selection, ten times cheaper than a sort
        middle = (len(values) - 1) // 2
        return float(np.partition(values, middle)[middle])
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, 0.5 * below[-1])])


def _deviation(values: Float64, weights: Float64) -> Float64:
    """Weighted standard deviation of columns; 1 for a constant one.

    About the first row: the mean of many equal numbers is rounded, their difference is not.
    """
    shifted = values - values[0]
    mean = np.average(shifted, axis=0, weights=weights)
    spread = np.sqrt(np.average((shifted - mean) ** 2, axis=0, weights=weights))
    return np.asarray(np.where(shifted.any(axis=0), spread, 1.0))
