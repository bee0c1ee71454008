"""Pictures of classifiers: the confusion matrix, and the calibration of probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rff_stream.plot.canvas import COLOURS, GREY, axes, colour_bar, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.statistics.scores import ClassScores

MOST_WRITTEN = 12
"""Classes up to which shares are written into the cells."""


def confusion(scores: ClassScores, ax: Axes | None = None) -> Axes:
    """Share of each class that is answered as each class.

    Parameters
    ----------
    scores : ClassScores
        From ``model.scores(X, y)``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    totals = scores.confusion.sum(axis=1, keepdims=True)
    share = scores.confusion / np.where(totals > 0, totals, 1.0)
    ax, names = axes(ax), [str(label) for label in scores.labels]
    drawn = ax.imshow(share, cmap="cividis", vmin=0, vmax=1)
    ax.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 4 else 0)
    ax.set_yticks(range(len(names)), names)
    if len(names) <= MOST_WRITTEN:
        for i, j in np.ndindex(*share.shape):
            dark = share[i, j] < 0.6
            ax.text(
                j, i, f"{share[i, j]:.2g}", ha="center", va="center", fontsize="x-small",
                color="white" if dark else "black",
            )  # fmt: skip
    ax.set(xlabel="answered", ylabel="class")
    colour_bar(ax, drawn, "share of the class")
    return ax


def calibration(scores: ClassScores, ax: Axes | None = None) -> Axes:
    """Share of answers that are right against the probability that they were given with.

    Parameters
    ----------
    scores : ClassScores
        From ``model.scores(X, y)``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    p, right, weight = scores.calibration().T
    ax, low = axes(ax), min(float(p.min()), float(right.min()), 0.5)
    ax.plot([low, 1], [low, 1], color=GREY, lw=1, label="as often right as said")
    sizes = 15 + 185 * weight / weight.max()
    label = f"answers; mean gap {scores.calibration_error():.3f}"
    ax.scatter(p, right, s=sizes, color=COLOURS[0], alpha=0.7, label=label)
    ax.set(xlabel="probability of the answer", ylabel="share that was right")
    legend(ax, loc="upper left", markerscale=0.5)
    return ax
