"""What all pictures share: axes, colours, labels, and rows to evaluate a model on."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.arguments import Rule, array_of, is_whole
from rff_stream.errors import ModelError
from rff_stream.model.gradients import function_of
from rff_stream.predictors import WithStd
from rff_stream.sources.container_types import check_index, is_from, is_table_of_pandas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Blue, vermilion, green, purple, orange, sky (Okabe & Ito 2008)."""

GREY = "#808080"
"""Of lines: a contrast of more than 3 with white and with black paper."""

VALUES, DIFFERENCES = "cividis", "RdBu_r"
"""Colour maps of values, and of differences from 0."""

BLANKS = ("#D9D9D9", "#404040")
"""Of places without a value, on light and on dark paper."""

MARGIN = 0.05
"""Of a box, as a share of the range of the rows."""

BAND = 0.22
"""Opacity of a band."""

LONG_LABELS = 40
"""Number of characters of all labels together above which they are drawn at an angle."""

TICK_WIDTH = 24
"""Characters of a line of a name beside an axis."""

FEW_NAMES = 12  # along an axis of 4 inches each has room for two lines

MOST_LABELS = 24  # under an axis of 6 inches, a quarter of an inch each
DATA_ARRAY = "xarray.core.dataarray"

TWO_DECADES = 100.0  # within them powers of ten alone label too little


AXES = Rule(
    "Axes of matplotlib",
    lambda value: hasattr(value, "get_xlim"),
    remedy="Give one of plt.subplots(), or leave ax out.",
    optional=True,
)


def check_target(target: int, count: int) -> None:
    """Refuse what is not the position of one of so many targets, or classes."""
    Rule(
        f"a position from 0 to {count - 1}, of a target or class", is_whole,
        lambda value: -count <= value < count,
    ).check("target", target)  # fmt: skip


def checked_box(box: Any, d: int) -> Float64:
    """Lowest and highest values (2, d) as they were given.

    Raises TypeError or ValueError: they are none.
    """
    array_of(f"an array of numbers (2, {d}): lowest values, highest values", 2, d).check("box", box)
    found = np.asarray(box, np.float64)
    if not (np.isfinite(found).all() and (found[0] < found[1]).all()):
        raise ValueError(
            f"box is {found.tolist()}, but its first row holds lowest values and its second row "
            "higher ones, all of them finite. Correct it."
        )
    return found


def axes(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure."""
    AXES.check("ax", ax)
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "matplotlib is not installed, and pictures need it. pip install 'rff_stream[plot]'."
        ) from error
    return plt.subplots(layout="constrained")[1]


def plain_text() -> Any:
    """The colour of text: black on light paper, white on dark."""
    import matplotlib as mpl

    return mpl.rcParams["text.color"]


def blank() -> str:
    """The colour of places without a value, told apart from every colour of a map."""
    import matplotlib as mpl
    from matplotlib.colors import to_rgb

    return BLANKS[0] if sum(to_rgb(mpl.rcParams["axes.facecolor"])) > 1.5 else BLANKS[1]


def on_paper(paper: str, ink: str) -> Any:
    """Settings of matplotlib for paper and ink of these colours."""
    papers = ("figure.facecolor", "savefig.facecolor", "axes.facecolor", "legend.facecolor")
    inks = ("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor", "xtick.color",
            "ytick.color", "legend.labelcolor")  # fmt: skip
    return dict.fromkeys(papers, paper) | dict.fromkeys(inks, ink) | {"legend.edgecolor": GREY}


def legend(ax: Axes, **choices: Any) -> None:
    """A small legend where there is room for it."""
    ax.legend(fontsize="small", framealpha=0.85, **choices)


def legend_above(ax: Axes, columns: int = 2, **choices: Any) -> None:
    """A legend outside the axes, where bars never are."""
    legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, **choices)


def wrap_label(text: str) -> str:
    """A label on lines that a small figure has room for."""
    return textwrap.fill(text, 34)


def name_ticks(axis: Axis, places: Sequence[int], names: Sequence[str]) -> list[str]:
    """Name places along an axis, on short lines; returns what is written there.

    Of names that need more than two lines, or one where there are many names, both ends are
    written: beside the whole of them the axes would have no room. Names that are alike at both
    ends are written in full.
    """
    lines = 2 if len(names) <= FEW_NAMES else 1
    written = [_short(name, lines) for name in names]
    if len({*written}) < len({*names}):
        written = [wrap_label(name) for name in names]
    axis.set_ticks(places, written)
    if any("\n" in label for label in written):
        axis.set_tick_params(labelsize="x-small")
    return written


def _short(name: str, lines: int) -> str:
    """A name on one line or two, or both of its ends."""
    whole = textwrap.wrap(name, TICK_WIDTH)
    if len(whole) <= lines:
        return "\n".join(whole)
    half = TICK_WIDTH * lines // 2
    return f"{name[: half - 1]}…" + "\n" * (lines - 1) + name[-half:].lstrip()


def line_width(labels: Iterable[str]) -> int:
    """Characters of the longest lines of labels, all together."""
    return sum(max(map(len, label.split("\n"))) for label in labels)


def colour_bar(ax: Axes, drawn: Any, label: str) -> None:
    """A colour bar beside the axes; it ends in a point where values lie beyond its colours."""
    from matplotlib.colors import LogNorm

    values, scale = drawn.get_array().compressed(), drawn.norm
    below = bool(len(values)) and values.min() < scale.vmin
    above = bool(len(values)) and values.max() > scale.vmax
    beyond = "both" if below and above else "min" if below else "max" if above else "neither"
    bar = ax.figure.colorbar(drawn, ax=ax, label=label, extend=beyond)
    if isinstance(scale, LogNorm):
        plain_ticks(bar.long_axis)


def plain_ticks(axis: Axis) -> None:
    """Numbers such as 0.3 in place of 3 × 10⁻¹ on a logarithmic axis of less than two decades."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    if high < TWO_DECADES * low:
        steps = (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 7)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def axis_label(name: str, unit: str = "") -> str:
    """ "lat [degrees_north]", on lines that a small figure has room for."""
    return wrap_label(f"{name} [{unit}]" if unit else name)


def fold_labels(ax: Axes, labels: Sequence[str]) -> None:
    """Labels of bars along x: at most 24 of them, leaning where they would touch."""
    step = -(-len(labels) // MOST_LABELS)
    shown = name_ticks(ax.xaxis, range(0, len(labels), step), labels[::step])
    if line_width(shown) > LONG_LABELS:
        ax.tick_params(axis="x", rotation=45)
        for text in ax.get_xticklabels():
            text.set_horizontalalignment("right")
            text.set_rotation_mode("anchor")


def require_inputs(model: Any, *allowed: int) -> int:
    """d, where this picture has axes for it."""
    d = len(model.columns_.inputs)
    if d not in allowed:
        words = " or ".join(map(str, allowed))
        raise ValueError(
            f"The model has {d} inputs ({', '.join(model.columns_.inputs)}), and this picture "
            f"shows {words}. Predict on a grid of the inputs that matter, and draw that with "
            "plot.surface."
        )
    return d


def input_label(model: Any, index: int) -> str:
    """Name in words, and unit of an input."""
    columns = model.columns_
    name = columns.inputs[index]
    unit = columns.units[index] if columns.units else ""
    return axis_label(dict(columns.long_names).get(name, name), unit)


def target_label(model: Any, target: int = 0) -> str:
    """Name in words, and unit of a target."""
    columns = model.columns_
    name, units = columns.targets[target], columns.units[len(columns.inputs) :]
    unit = units[target] if len(units) == len(columns.targets) else ""
    return axis_label(dict(columns.long_names).get(name, name), unit)


def function_label(model: Any, target: int) -> str:
    """What a value of the fit is: a target with its unit, or "score of wet" of a classifier.

    A classifier of two classes has the score of the second one.

    Raises ModelError or ValueError: there is no such function, target or class.
    """
    function_of(model)
    classes = getattr(model, "classes_", None)
    if classes is None:
        check_target(target, len(model.columns_.targets))
        return target_label(model, target)
    scored = classes if len(classes) > 2 else classes[1:]
    check_target(target, len(scored))
    return axis_label(f"score of {scored[target]}")


def require_numbers(model: Any, remedy: str) -> None:
    """Refuse a model that predicts no numbers: a classifier, or one without a target.

    Raises ModelError: saying what to draw instead.
    """
    if hasattr(model, "classes_"):
        raise ModelError(
            f"{type(model).__name__} predicts classes, and this picture shows numbers. {remedy}"
        )
    function_of(model)


def sample_of(model: Any) -> tuple[Float64, Float64, Float64]:
    """x (m, d), y (m, T) and w (m,) of the row sample; no rows where the model has none."""
    d = len(model.columns_.inputs)
    targets = len(model.columns_.targets)
    moments = getattr(model, "moments_", None)
    rows = np.empty((0, d + targets + 1)) if moments is None else moments.sample.rows
    return rows[:, :d], rows[:, d:-1], rows[:, -1]


def box_of(model: Any, margin: float = MARGIN) -> Float64:
    """Lowest and highest values (2, d) of the inputs in the row sample, a margin added."""
    x, _, _ = sample_of(model)
    if not len(x):
        raise ValueError(
            "The model has no row sample (sample_rows=0, or saved without moments), so the range "
            "to draw is unknown. Give it: at=…, or save with moments=True."
        )
    return box_around(x, margin)


def box_around(x: Array, margin: float = MARGIN) -> Float64:
    """Lowest and highest values (2, d) of rows x (n, d), a margin added."""
    low, high = x.min(axis=0), x.max(axis=0)
    return np.stack([low - margin * (high - low), high + margin * (high - low)])


def in_one_order(**columns: Any) -> dict[str, Any]:
    """Arrays by name: labelled ones with their dimensions in the order of the first of these.

    Raises DataError: objects of pandas with other indexes. ValueError: labelled ones with other
    dimensions, lengths or coordinates. As in xarray's exact join, a dimension without coordinates
    agrees with any of its length.
    """
    tables = {name: own for name, own in columns.items() if is_table_of_pandas(own)}
    for name in [*tables][:1]:
        check_index(tables.pop(name), name=name, **tables)
    labelled = {name: own for name, own in columns.items() if is_from(own, DATA_ARRAY)}
    first: str = next(iter(labelled), "")
    one: Any = labelled.get(first)
    for name, own in labelled.items():
        if dict(own.sizes) != dict(one.sizes):
            raise ValueError(
                f"{name} has the dimensions {dict(own.sizes)}, but {first} has {dict(one.sizes)}: "
                "they are not values of the same rows. Give all of them the same dimensions: "
                f"xr.broadcast({', '.join(labelled)})."
            )
        for dim in one.dims:
            ours, theirs = one.indexes.get(dim), own.indexes.get(dim)
            if not (ours is None or theirs is None or ours.equals(theirs)):
                raise ValueError(
                    f"{name} and {first} have other coordinates along {dim!r}: "
                    f"{_first_apart(theirs, ours)}. Values of a row have the same ones. Align them "
                    f"with xr.align({', '.join(labelled)})."
                )
        columns[name] = own.transpose(*one.dims)
    return columns


def _first_apart(one: Any, other: Any) -> str:
    """Where two indexes of one length part: "7 and 0 at place 0"."""
    place = next((i for i in range(len(one)) if one[i] != other[i]), 0)
    return f"{one[place]} and {other[place]} at place {place}"


def same_rows(**columns: Any) -> list[Float64]:
    """Arrays (n,) of numbers or NaN, by name, that have a finite number and are equally long.

    Labelled arrays are paired by their dimensions (:func:`in_one_order`), others by place.

    Raises ValueError: other values, of other lengths, dimensions or coordinates.
    """
    found = []
    for name, values in in_one_order(**columns).items():
        try:
            own = np.asarray(values, np.float64)
        except (TypeError, ValueError):
            own = np.empty(())
        if own.ndim == 0 or not np.isfinite(own).any():
            raise ValueError(
                f"{name} is of type {type(values).__name__} or holds no finite number, but this "
                f"picture takes an array of numbers (n,). Give one a row."
            )
        if np.isinf(own).any():
            raise ValueError(
                f"{name} holds {int(np.isinf(own).sum()):,} infinite values, which have no place "
                "in a picture. Leave these rows out, or make them NaN."
            )
        found.append(own.ravel())
    sizes = {name: len(own) for name, own in zip(columns, found, strict=True)}
    if len({*sizes.values()}) > 1:
        words = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ValueError(f"The numbers of rows differ: {words}. Give one value of each a row.")
    return found


def known_rows(**columns: Any) -> tuple[Array, list[Float64]]:
    """Which rows (n,) have a number in each of these arrays, and the numbers of these rows.

    Raises ValueError: as :func:`same_rows`, or if there is no such row.
    """
    found = same_rows(**columns)
    there = np.asarray(~np.isnan(found).any(axis=0))
    if not there.any():
        raise ValueError(
            f"No row has a number in each of {', '.join(columns)}: one of them is NaN wherever "
            "another is not. Give rows that have them all."
        )
    return there, [own[there] for own in found]


def grid_of(box: Float64, size: int) -> tuple[Float64, Float64, Float64]:
    """Coordinates (size,), (size,) of a box of two inputs, and its rows (size², 2)."""
    first, second = (np.linspace(low, high, size) for low, high in box.T)
    return first, second, np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2)


def mean_of(model: Any, x: Array) -> Float64:
    """Predictions, or scores of classes, (n, T) of rows (n, d) by position."""
    return np.asarray(function_of(model)(x))


def by_place(method: Callable[[Array], Any], rows: Array) -> Array:
    """What a method of a model gives for rows (n, d), whatever names the model knows."""
    with without_names():
        return np.asarray(method(rows))


@contextmanager
def without_names() -> Iterator[None]:
    """No warning of scikit-learn that rows have no names: a picture gives them by position."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        yield


def std_of(model: Any, x: Array, *, noise: bool) -> Float64 | None:
    """Standard deviations (n, T); None for a model that has none."""
    if not hasattr(model, "predict_interval"):
        return None
    variances = model._require_fit().answer.variances()
    return np.asarray(WithStd(variances, variances.width // 2, noise)(x))
