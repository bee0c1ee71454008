"""Plots of answers: functions that take an answer and an ``ax``, draw on it and return it.

matplotlib is imported on use (``pip install 'rff_stream[plot]'``). Without ``ax`` a new figure is
made with pyplot, so that notebooks show it; with one, only that ``ax`` is changed. Colours are
those of Okabe & Ito and cividis, which can be distinguished with any colour vision and in grey.
"""

from rff_stream.plot.bars import (
    dependence,
    drift,
    plan_memory,
    plan_time,
    relevance,
    residuals,
    sensitivity,
)
from rff_stream.plot.checks import (
    calibration,
    confusion,
    coverage,
    error_curve,
    error_map,
    histogram,
)
from rff_stream.plot.directions import metric
from rff_stream.plot.fits import coastlines, curve, observed, partial_dependence, slope, surface
from rff_stream.plot.row_plots import components, decision, density, novelty
from rff_stream.plot.selection import (
    approximation_error,
    choice,
    kernel_evidence,
    kernel_matrix,
    learning_curve,
    path,
    row_curve,
    selection,
)

__all__ = [
    "approximation_error",
    "calibration",
    "choice",
    "coastlines",
    "components",
    "confusion",
    "coverage",
    "curve",
    "decision",
    "density",
    "dependence",
    "drift",
    "error_curve",
    "error_map",
    "histogram",
    "kernel_evidence",
    "kernel_matrix",
    "learning_curve",
    "metric",
    "novelty",
    "observed",
    "partial_dependence",
    "path",
    "plan_memory",
    "plan_time",
    "relevance",
    "residuals",
    "row_curve",
    "selection",
    "sensitivity",
    "slope",
    "surface",
]
