"""Plots of rows: their density, novelty scores, classes and principal components."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.answers.density import DensityEstimate
from rff_stream.arguments import ENDS, array_of, truth, whole_or
from rff_stream.errors import MODELS, takes
from rff_stream.estimators.density import unit_of_density
from rff_stream.plot.canvas import (
    BAND,
    COLOURS,
    GREY,
    VALUES,
    axes,
    axis_label,
    box_around,
    box_of,
    by_place,
    checked_box,
    colour_bar,
    grid_of,
    input_label,
    legend,
    require_inputs,
    same_rows,
    sample_of,
)
from rff_stream.plot.given_rows import PAIR, rows_and_values
from rff_stream.predictors import AnswerPredictor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = 120  # places along each of two inputs: 14,400 rows are predicted
MOST_BARS = 20  # wide enough to be told apart
MOST_TICKS = 400  # more are a grey band
SURE = 2
"""A density is drawn above this number of standard errors: by chance 1 in 40 empty places is
above."""

DENSITIES = array_of("an array of increasing densities (k,)", None)

LEVELS = whole_or(
    replace(
        DENSITIES,
        holds=lambda value: (
            DENSITIES.holds(value) and bool((np.diff(np.asarray(value, np.float64)) > 0).all())
        ),
    )
)


@takes(MODELS, remedy="Give a fitted KernelDensity.", has="density_")
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
    truth().check("data", data)
    LEVELS.check("levels", levels)
    box = box_of(model, 0.1) if box is None else checked_box(box, d)
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


@takes(MODELS, remedy="Give a fitted NoveltyDetector.", has="offset_")
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
    box = box_of(model, 0.1) if box is None else checked_box(box, 2)
    x, y, places = grid_of(box, GRID)
    scores = by_place(model.score_samples, places).reshape(len(y), len(x))
    ax = axes(ax)
    drawn = ax.contourf(x, y, scores, levels=14, cmap=VALUES)
    ax.contour(x, y, scores, levels=[model.offset_], colors=COLOURS[1], linewidths=2)
    ax.plot([], [], color=COLOURS[1], lw=2, label="threshold")
    rows, _, _ = sample_of(model)
    if len(rows):
        novel = by_place(model.score_samples, rows) < model.offset_
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


@takes(remedy="Give a fitted classifier of two inputs.", has="classes_")
def decision(
    model: Any,
    ax: Axes | None = None,
    *,
    data: tuple[Array, ArrayLike] | None = None,
    box: Array | None = None,
    margins: tuple[float, float] | None = None,
) -> Axes:
    """Which class is predicted where, over two inputs, with rows of each class.

    Parameters
    ----------
    model : KernelClassifier, or another classifier with the methods of scikit-learn
        Fitted on two inputs.
    ax : Axes, optional
    data : (X, y), optional
        Rows to show, as in predict, and their classes; the title gives the share of all of them
        that is predicted right. Rows of a class that the model does not know are never right, and
        grey. Inputs are matched by name if they have names. By default the row sample, without its
        classes.
    box : (2, 2) array, optional
        Lowest and highest values; by default the range of ``data``, or of the row sample.
    margins : (low, high), optional
        Scores of two classes that are drawn as dashed lines; by default those of a hinge machine.

    Returns
    -------
    Axes
        A colour for each class, and lines where the predicted class changes.

    Raises
    ------
    ValueError
        For other than two inputs, more classes than colours (six), ``margins`` of more than two
        classes, or rows of which none has all inputs and a class.
    ModelError, DataError
        If an input of the fit is absent among the names of the rows, or is no number.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).normal(size=(200, 2)); y = X[:, 0] > 0
    >>> model = rs.KernelClassifier(n_components=32, random_state=0, progress=False).fit(X, y)
    >>> ax = decision(model, Figure().subplots(), data=(X, y))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['False', 'True']
    """
    classes = list(model.classes_)
    if len(classes) > len(COLOURS):
        raise ValueError(
            f"The model has {len(classes)} classes, and this picture has {len(COLOURS)} colours. "
            "Draw the probability of one class with plot.surface."
        )
    if margins is not None and np.ndim(margins) < 2:  # those of several classes are pairs
        ENDS.check("margins", margins)
    PAIR.check("data", data)
    _require_two(model)
    margins = getattr(model, "margins_", None) if margins is None else margins
    if margins is not None and len(classes) > 2 and np.ndim(margins) == 1:
        raise ValueError(
            f"margins={tuple(margins)} but the model has {len(classes)} classes, and margins are "
            "those of a score of two. Leave margins out."
        )
    given = None
    if data is not None:
        given = rows_and_values(model, *data, names=("data[0]", "data[1]"))
    if box is not None:
        box = checked_box(box, 2)
    else:
        box = box_of(model) if given is None else box_around(given[0])
    x, y, places = grid_of(box, GRID)
    found = by_place(model.predict, places)
    index = np.array([classes.index(each) for each in found.tolist()]).reshape(len(y), len(x))
    ax = axes(ax)
    levels = np.arange(len(classes) + 1) - 0.5
    ax.contourf(x, y, index, levels=levels, colors=COLOURS[: len(classes)], alpha=BAND)
    if len(classes) == 2:
        scores = by_place(model.decision_function, places).reshape(len(y), len(x))
        lines = [0.0] if margins is None else sorted([*np.ravel(margins), np.mean(margins)])
        styles = ["-"] if margins is None else ["--", "-", "--"]
        ax.contour(x, y, scores, levels=lines, linestyles=styles, colors="black", linewidths=1)
    else:
        for k in range(len(classes)):
            own = (index == k).astype(float)
            ax.contour(x, y, own, levels=[0.5], colors="black", linewidths=0.6)
    _class_rows(model, ax, classes, given)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    return ax


def components(shares: Any, ax: Axes | None = None) -> Axes:
    """Share of the variance in feature space that each component explains, and their sum.

    Parameters
    ----------
    shares : KernelPCA, or (K,) array
        A model with ``explained_variance_ratio_``, or the shares themselves.
    ax : Axes, optional

    Raises
    ------
    ValueError
        If the shares are no row of numbers, or one is negative.
    """
    found = getattr(shares, "explained_variance_ratio_", shares)
    if hasattr(shares, "_require_fit"):
        shares._require_fit()
    if np.ndim(found) > 1:
        raise ValueError(
            f"shares have shape {np.shape(found)}, but a share is one number. Give (K,)."
        )
    every = same_rows(shares=found)[0]
    if (least := np.nanmin(every)) < 0:
        raise ValueError(
            f"shares hold {least:.3g}, but a share of a variance is ≥ 0. Give "
            "explained_variance_ratio_ of a KernelPCA."
        )
    values = every[:MOST_BARS]
    ax, places = axes(ax), np.arange(1, len(values) + 1)
    ax.bar(places, values, color=COLOURS[5], label="of this component")
    ax.plot(places, np.cumsum(values), "o-", color=COLOURS[1], ms=4, label="so far")
    some = f" (the first of {len(every)})" if len(every) > len(values) else ""
    ax.set(xlabel=f"component{some}", ylabel="share of the variance", ylim=(0, 1.05))
    step = -(-len(values) // 10)
    ax.set_xticks(places[::step])
    legend(ax, loc="center right")
    return ax


def _require_two(model: Any) -> None:
    """Refuse a classifier, also one of scikit-learn, of other than two inputs."""
    if hasattr(model, "columns_"):
        require_inputs(model, 2)
    elif (d := getattr(model, "n_features_in_", None)) != 2:
        raise ValueError(f"The model has {d} inputs, and this picture shows 2.")


def _class_rows(
    model: Any, ax: Axes, classes: list[Any], given: tuple[Float64, Array] | None
) -> None:
    """Rows of each class with a mark of its own, and the labels of the axes."""
    if hasattr(model, "columns_"):
        ax.set(xlabel=input_label(model, 0), ylabel=input_label(model, 1))
    else:
        ax.set(xlabel="x0", ylabel="x1")
    if given is None:
        if hasattr(model, "columns_"):
            ax.plot(*sample_of(model)[0].T, ".", color=GREY, ms=3, alpha=0.6)
        return
    rows, labels = given
    for k, (label, mark) in enumerate(zip(classes, "o^sDvP", strict=False)):
        style: dict[str, Any] = {"ls": "none", "ms": 3.5, "mec": "white", "mew": 0.3}
        ax.plot(*rows[labels == label].T, marker=mark, color=COLOURS[k], label=str(label), **style)
    other = np.logical_and.reduce([labels != label for label in classes])
    if other.any():
        words = f"not in the fit: {other.sum():,} rows"
        ax.plot(*rows[other].T, "x", color=GREY, ms=3.5, label=words)
    right = float(np.mean(by_place(model.predict, rows) == labels))
    ax.set_title(f"{len(rows):,} rows, {right:.1%} right", fontsize="medium")
    legend(ax, title="class", loc="upper right")


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
