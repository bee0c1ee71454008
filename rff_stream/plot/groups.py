"""Groups of rows beside each other: residuals by group, and drift over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream.answers.learning import group_errors
from rff_stream.plot.canvas import COLOURS, GREY, axes, fold_labels, legend_above, target_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.answers.twosample import TwoSample
    from rff_stream.moments import Moments

RARE = 0.05
"""p-value below which a bucket is marked, divided by their number (Bonferroni)."""


def residuals(
    model: Any, groups: Mapping[Any, Moments], ax: Axes | None = None, *, target: int = 0
) -> Axes:
    """Mean and spread of y − ŷ in every group, from its moments: no row is read again.

    Parameters
    ----------
    model : KernelRidge or GaussianProcessRegressor
    groups : mapping of label to Moments
        Order 2, of the model's map: ``collect(model.features_, …, by="time.year")``.
    ax : Axes, optional
    target : int

    Returns
    -------
    Axes
    """
    _require_groups(groups)
    found = [group_errors(part, model.coef_, model.intercept_) for part in groups.values()]
    bias = np.array([each.bias[target] for each in found])
    rmse = np.array([each.rmse[target] for each in found])
    spread = np.sqrt(np.maximum(rmse**2 - bias**2, 0.0))
    ax, places = axes(ax), np.arange(len(found))
    ax.use_sticky_edges = False  # bars keep the margin of the axes below them too
    ax.axhline(0, color=GREY, lw=1)
    ax.bar(
        places, 2 * spread, bottom=bias - spread, color=COLOURS[5], width=0.7, alpha=0.6,
        label="± one standard deviation",
    )  # fmt: skip
    ax.plot(places, bias, "o", color=COLOURS[0], label="mean residual")
    ax.plot(places, rmse, "_", color=COLOURS[1], ms=12, mew=2, label="RMSE")
    fold_labels(ax, [str(label) for label in groups])
    ax.set(ylabel=f"residual of {target_label(model, target)}")
    legend_above(ax)
    return ax


def drift(found: Mapping[Any, TwoSample], ax: Axes | None = None) -> Axes:
    """Distance of every bucket from the reference, beside what chance would give.

    Parameters
    ----------
    found : mapping of label to TwoSample
        From :func:`~rff_stream.answers.twosample.drift`.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    _require_groups(found)
    ax, places = axes(ax), np.arange(len(found))
    distance = np.array([each.distance for each in found.values()])
    expected = np.array([each.expected for each in found.values()])
    rare = np.array([each.p_value for each in found.values()]) < RARE / len(found)
    for chosen, colour, label in (
        (~rare, COLOURS[5], "explained by chance"),
        (rare, COLOURS[1], f"drifted: p < {RARE}/{len(found)}"),
    ):
        if chosen.any():
            ax.bar(places[chosen], distance[chosen], color=colour, width=0.7, label=label)
    ax.plot(places, expected, "_", color="black", ms=12, mew=2, label="expected by chance")
    fold_labels(ax, [str(label) for label in found])
    ax.set(
        ylabel="distance from the reference (MMD)",
        ylim=(0, 1.05 * max(distance.max(), expected.max(), 1e-12)),
    )
    legend_above(ax)
    return ax


def _require_groups(groups: Mapping[Any, Any]) -> None:
    if not groups:
        raise ValueError("There are no groups to draw. Collect with by= or folds=.")
