"""Inputs on scales along which targets change evenly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rff_stream.features.normal_scores import NormalScores


@dataclass(frozen=True, eq=False, repr=False)
class InputWarp(NormalScores):
    """g_j(x_j) of some inputs, increasing; the others as they are.

    Between two knots g_j rises by as much as the targets change between them, so that one
    length-scale serves where they jump and where they hardly change.

    Parameters
    ----------
    width : int
        d, the number of inputs.
    columns : (m,) int64
        The inputs that are warped.
    knots, scores : (m, K) float64
        x_j and g_j(x_j), increasing along the second axis.

    References
    ----------
    Snoek, Swersky, Zemel & Adams 2014 (input warping).

    Examples
    --------
    >>> import numpy as np
    >>> knots = (np.array([0.0, 0.9, 1.1, 2.0]), np.array([0.0, 0.1, 0.9, 1.0]))
    >>> warp = InputWarp.of_knots(1, np.array([0]), [knots])
    >>> warp(np.array([[0.45], [1.0], [3.0]])).round(2).ravel().tolist()
    [0.05, 0.5, 1.11]
    """

    unit: ClassVar[str] = "of its warped scale"
