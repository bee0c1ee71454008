"""Plots of rows: their density, their novelty scores, their principal components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.density import DensityEstimate
from rff_stream.estimators.density import unit_of_density
from rff_stream.plot.canvas import (
    BAND,
    COLOURS,
    GREY,
    VALUES,
    axes,
    axis_label,
    box_of,
    colour_bar,
    grid_of,
    input_label,
    legend,
    require_inputs,
    sample_of,
)
from rff_stream.predictors import AnswerPredictor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = 120
MOST_BARS = 20
MOST_TICKS = 400
SURE = 2
"""A density is drawn above this number of standard errors: by chance 1 in 40 empty places is
above."""


def density(
    model: Any,
    ax: Axes | None = None,
    *,
    box: Array | None = None,
    data: bool = True,
    levels: int | Array = 10,
) -> Axes:
    """The density of one input with its error, or contours over two, with rows of the data.

    Parameters
    ----------
    model : KernelDensity
        Fitted on one or two inputs.
    ax : Axes, optional
    box : (2, d) array, optional
        Lowest and highest values; by default the range of the row sample.
    data : bool
        Show the row sample.
    levels : int or (k,) array
        The number of contours, at equal steps of density, or the densities themselves: use the
        same for plots that you compare. Densities below two standard errors are left blank.
    """
    d = require_inputs(model, 1, 2)
    box = box_of(model, 0.1) if box is None else np.asarray(box, np.float64)
    rows, _, _ = sample_of(model)
    unit = unit_of_density(model.columns_)
    label = axis_label("density", unit)
    ax = axes(ax)
    if d == 1:
        return _density_curve(model, ax, box, rows[:, 0] if data else np.empty(0), label)
    x, y, places = grid_of(box, GRID)
    estimate = AnswerPredictor(
        model.features_, model.density_.columns, len(DensityEstimate._fields)
    )
    found = dict(zip(DensityEstimate._fields, estimate(places).T, strict=True))
    unsure = found["density"] < SURE * found["se"]
    field = np.ma.masked_where(unsure, found["density"]).reshape(len(y), len(x))
    drawn = ax.contourf(
        x,
        y,
        field,
        levels=levels,
        cmap=VALUES,
        extend="neither" if isinstance(levels, int) else "max",
    )
    if data and len(rows):
        ax.plot(*rows.T, ".", color="white", mec="black", mew=0.3, ms=3, alpha=0.6, label="rows")
        legend(ax, loc="upper right")
    ax.set(xlabel=input_label(model, 0), ylabel=input_label(model, 1))
    ax.set_title(f"blank: below {SURE} standard errors", fontsize="small", color=GREY)
    ax.set(xlim=box[:, 0], ylim=box[:, 1])
    colour_bar(ax, drawn, label)
    return ax


def novelty(model: Any, ax: Axes | None = None, *, box: Array | None = None) -> Axes:
    """Scores over two inputs, the threshold as a line, and which rows are novel.

    For maps of places, draw ``model.decision_function(cube)`` with :func:`surface`.

    Parameters
    ----------
    model : NoveltyDetector
        Fitted on two inputs.
    ax : Axes, optional
    box : (2, 2) array, optional
        Lowest and highest values; by default the range of the row sample.
    """
    require_inputs(model, 2)
    box = box_of(model, 0.1) if box is None else np.asarray(box, np.float64)
    x, y, places = grid_of(box, GRID)
    scores = model.score_samples(places).reshape(len(y), len(x))
    ax = axes(ax)
    drawn = ax.contourf(x, y, scores, levels=14, cmap=VALUES)
    ax.contour(x, y, scores, levels=[model.offset_], colors=COLOURS[1], linewidths=2)
    ax.plot([], [], color=COLOURS[1], lw=2, label="threshold")
    rows, _, _ = sample_of(model)
    if len(rows):
        novel = model.score_samples(rows) < model.offset_
        for chosen, mark, colour, label in (
            (~novel, ".", "white", "like the others"),
            (novel, "X", COLOURS[4], f"novel: {novel.mean():.1%}"),
        ):
            style: dict[str, Any] = {"mec": "black", "mew": 0.4, "ms": 4 + 2 * (mark == "X")}
            ax.plot(*rows[chosen].T, ls="none", marker=mark, color=colour, label=label, **style)
    ax.set(xlabel=input_label(model, 0), ylabel=input_label(model, 1))
    ax.set(xlim=box[:, 0], ylim=box[:, 1])
    legend(ax, loc="upper right")
    colour_bar(ax, drawn, "score (larger: like the others)")
    return ax


def components(shares: Any, ax: Axes | None = None) -> Axes:
    """Share of the variance in feature space that each component explains, and their sum.

    Parameters
    ----------
    shares : KernelPCA, or (K,) array
        A model with ``explained_variance_ratio_``, or the shares themselves.
    ax : Axes, optional
    """
    found = getattr(shares, "explained_variance_ratio_", shares)
    values = np.asarray(found, np.float64)[:MOST_BARS]
    ax, places = axes(ax), np.arange(1, len(values) + 1)
    ax.bar(places, values, color=COLOURS[5], label="of this component")
    ax.plot(places, np.cumsum(values), "o-", color=COLOURS[1], ms=4, label="so far")
    ax.set(xlabel="component", ylabel="share of the variance", ylim=(0, 1.05))
    step = -(-len(values) // 10)
    ax.set_xticks(places[::step])
    legend(ax, loc="center right")
    return ax


def _density_curve(model: Any, ax: Axes, box: Float64, rows: Float64, label: str) -> Axes:
    """p̂ along one input, its error, and the rows as ticks."""
    low, high = box[:, 0].tolist()
    x = np.linspace(low, high, 4 * GRID)
    found = model.density_(model.features_(x[:, None]).astype(np.float64))
    lower, upper = np.maximum(found.density - 2 * found.se, 0), found.density + 2 * found.se
    ax.fill_between(
        x, lower, upper, color=COLOURS[0], alpha=BAND, lw=0, label="± 2 standard errors"
    )
    known = np.ma.masked_where(found.below_error, found.density)
    ax.plot(x, known, color=COLOURS[0], label=f"density, R = {model.features_.n_components}")
    if len(rows):
        rows = rows[:MOST_TICKS]
        place = np.full(len(rows), -0.02 * float(found.density.max()))
        ax.plot(rows, place, "|", color=GREY, ms=5, alpha=0.4, label="rows")
    ax.set(xlabel=input_label(model, 0), ylabel=label)
    legend(ax)
    return ax
