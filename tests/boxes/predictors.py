"""Values by box as functions of rows, and the boxes of pilot rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boxes.map import Boxes, BoxFeatures
from rff_stream._array import Array, Float64


@dataclass(frozen=True, slots=True, eq=False)
class BoxTable:
    """x ↦ the values of its box; a row with a missing input has none."""

    features: BoxFeatures
    values: Float64  # (R, K)

    @property
    def width(self) -> int:
        """K."""
        return int(self.values.shape[1])

    def __call__(self, x: Array) -> Float64:
        known = np.isfinite(np.asarray(x, np.float64)).all(axis=1)
        return np.where(known[:, None], self.values[self.features.box_of(x)], np.nan)

    def slopes(self, x: Array) -> Float64:
        """A function of steps has none."""
        raise ValueError("A mean of boxes is a step function without slopes. Use another map.")


def draw_boxes(boxes: Boxes, x: Array) -> BoxFeatures:
    """The boxes of a request over the range of these rows."""
    low, high = x.min(axis=0), x.max(axis=0)
    size = np.where(high > low, high - low, 1.0) / boxes.per_input
    return BoxFeatures(low, size, boxes.per_input)
