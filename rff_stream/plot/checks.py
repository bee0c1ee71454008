"""Checks on other rows: residuals, coverage of intervals, confusion of classes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from rff_stream._array import Array, Float64
from rff_stream.arguments import TEXT, Rule, is_several, truth
from rff_stream.errors import takes
from rff_stream.label_forms import is_absent, texts_of
from rff_stream.model.checked_values import as_numbers
from rff_stream.plot.canvas import (
    COLOURS,
    DIFFERENCES,
    GREY,
    VALUES,
    axes,
    colour_bar,
    in_one_order,
    known_rows,
    legend,
    name_ticks,
)
from rff_stream.plot.fits import coastlines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.statistics.scores import ClassScores

LEVELS = np.linspace(0.02, 0.98, 49)
"""Stated coverage at which the curve is drawn."""

BINS = 12
"""Bins of a curve of residuals: a hundred rows of a small test set in each."""

EXTREME = 0.99
"""Share of the errors inside the limits of the colours of a map."""

POLE = 90  # degrees of latitude

MOST_BARS = 100
"""Most bars of a histogram: one error that is 1e4 times as large as others asked for 28,000."""

MOST_WRITTEN = 12
"""Classes up to which shares are written into the cells of a confusion matrix."""


def histogram(residuals: ArrayLike, ax: Axes | None = None, *, label: str = "residual") -> Axes:
    """Histogram of residuals (n,), with the normal density of the same mean and deviation.

    Parameters
    ----------
    residuals : (n,) array
        y − ŷ of rows that the fit did not see.
    ax : Axes, optional
    label : str
        Name and unit of the residuals.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> ax = histogram(np.random.default_rng(0).normal(size=500), Figure().subplots())
    >>> ax.get_ylabel()
    'rows'
    """
    TEXT.check("label", label)
    _, (values,) = known_rows(residuals=residuals)
    ax = axes(ax)
    counts, edges, _ = ax.hist(values, bins=_bar_count(values), color=COLOURS[5])
    mean, deviation = values.mean(), values.std()
    if deviation > 0:
        at = np.linspace(edges[0], edges[-1], 200)
        height = len(values) * (edges[1] - edges[0]) / (deviation * np.sqrt(2 * np.pi))
        law = height * np.exp(-0.5 * ((at - mean) / deviation) ** 2)
        ax.plot(at, law, color=COLOURS[1], label=f"normal law, deviation {deviation:.3g}")
    ax.axvline(mean, color=GREY, lw=1, label=f"mean {mean:.3g}")
    ax.set(xlabel=label, ylabel="rows", ylim=(0, 1.25 * np.max(counts)))
    legend(ax, loc="upper right")
    return ax


def _bar_count(values: Float64) -> int:
    """Bars of width 2·(quartile distance)/n^⅓ (Freedman & Diaconis 1981), within limits."""
    low, high = np.quantile(values, (0.25, 0.75))
    width = 2 * (high - low) / len(values) ** (1 / 3)
    return int(np.ceil(min(np.ptp(values) / width, MOST_BARS))) if width > 0 else 1


def coverage(
    residuals: ArrayLike, std: ArrayLike, ax: Axes | None = None, *, by: ArrayLike | None = None
) -> Axes:
    """Share of rows inside their intervals against the stated share.

    A curve below the diagonal means intervals that are too narrow.

    DataArrays are paired by their dimensions, in any order, and have the same coordinates. Objects
    of pandas have the same index. Other arrays are paired by place.

    Parameters
    ----------
    residuals, std : (n,) arrays
        y − ŷ of rows that the fit did not see, and the standard deviation of a new y there.
    ax : Axes, optional
    by : (n,) array, optional
        A group for each row, such as a region: a curve for each, of at most six.

    Raises
    ------
    ValueError
        For more than six groups, a row without a group, a negative ``std``, or arrays of other
        dimensions, coordinates or indexes.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> noise = np.random.default_rng(0).normal(size=500)
    >>> coverage(noise, np.ones(500), Figure().subplots()).get_xlabel()
    'stated coverage'
    """
    columns = in_one_order(residuals=residuals, std=std, by=by)
    by = columns.pop("by")
    there, (errors, deviations) = known_rows(**columns)
    if (deviations < 0).any():
        raise ValueError(
            f"std holds {deviations.min():.3g}, but standard deviations are ≥ 0. Give those "
            "of predict(…, return_std=True)."
        )
    Rule(
        f"a group for each of {len(there)} rows", is_several,
        lambda value: np.size(value) == len(there), optional=True,
    ).check("by", by)  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):  # of deviation 0 only errors of 0 are in
        scaled = np.where(errors == 0, 0.0, np.abs(errors / deviations))
    group = np.zeros(len(scaled), int) if by is None else _groups(np.asarray(by).ravel(), there)
    names = np.unique(group)
    if len(names) > len(COLOURS):
        raise ValueError(
            f"by has {len(names)} groups, and this picture has {len(COLOURS)} colours. Put some "
            "of the groups together."
        )
    ax = axes(ax)
    if by is None:  # of groups each has a band of its own
        chance = 2 * np.sqrt(LEVELS * (1 - LEVELS) / len(scaled))
        ax.fill_between(
            LEVELS, LEVELS - chance, LEVELS + chance, color=COLOURS[5], alpha=0.4, lw=0,
            label="right intervals, two standard errors",
        )  # fmt: skip
    ax.plot((0, 1), (0, 1), color=GREY, lw=1)
    for name, colour in zip(names.tolist(), COLOURS, strict=False):
        own = scaled[group == name]
        found = (own[:, None] <= ndtri(0.5 + LEVELS / 2)).mean(axis=0)
        words = f"{len(own):,} rows; {(own <= ndtri(0.975)).mean():.1%} in 95 %"
        ax.plot(LEVELS, found, color=colour, label=words if by is None else f"{name}: {words}")
    ax.set(xlabel="stated coverage", ylabel="share of rows inside", xlim=(0, 1), ylim=(0, 1))
    legend(ax, loc="upper left")
    return ax


def _groups(labels: Array, there: Array) -> Array:
    """Labels of the rows that are there, which can be sorted; refuses a missing one."""
    absent = there & np.array([is_absent(label) for label in labels], bool)
    if absent.any():
        raise ValueError(
            f"by holds {absent.sum():,} missing labels, the first at row {np.argmax(absent)}, and "
            "a row without a label belongs to no group. Leave these rows out of all arrays, or "
            'give them a label of their own: pd.Series(by, dtype=object).fillna("none").'
        )
    found = as_numbers(labels[there])
    return texts_of(found) if found.dtype.kind == "O" else found


def error_curve(
    predicted: ArrayLike,
    residuals: ArrayLike,
    ax: Axes | None = None,
    *,
    label: str = "predicted",
    unit: str = "residual",
) -> Axes:
    """Residuals (n,) against predictions (n,), with their mean in bins of equally many rows.

    A mean that is not 0 shows an error of the model. Dots that spread more on one side show noise
    that is not the same everywhere.

    DataArrays are paired by their dimensions, in any order, and have the same coordinates. Objects
    of pandas have the same index. Other arrays are paired by place.

    Parameters
    ----------
    predicted, residuals : (n,) arrays
        ŷ and y − ŷ of rows that the fit did not see.
    ax : Axes, optional
    label, unit : str
        Names and units of both.

    Raises
    ------
    ValueError
        If no row has all of them, or for arrays of other dimensions, coordinates or indexes.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> rows = np.random.default_rng(0).normal(size=(2, 500))
    >>> error_curve(*rows, Figure().subplots()).get_xlabel()
    'predicted'
    """
    for name, text in {"label": label, "unit": unit}.items():
        TEXT.check(name, text)
    _, (at, errors) = known_rows(predicted=predicted, residuals=residuals)
    bins = [part for part in np.array_split(np.argsort(at), BINS) if len(part) > 1]
    ax = axes(ax)
    ax.scatter(at, errors, s=6, color=COLOURS[5], alpha=0.5, lw=0, label="a row")
    ax.axhline(0, color=GREY, lw=1)
    if bins:
        middle = [at[part].mean() for part in bins]
        mean = [errors[part].mean() for part in bins]
        spread = [2 * errors[part].std(ddof=1) / np.sqrt(len(part)) for part in bins]
        words = "mean of a bin, two standard errors"
        ax.errorbar(middle, mean, spread, color=COLOURS[1], fmt="o-", ms=4, lw=1, label=words)
    ax.set(xlabel=label, ylabel=unit)
    legend(ax, loc="upper left")
    return ax


def error_map(
    longitude: ArrayLike,
    latitude: ArrayLike,
    residuals: ArrayLike,
    ax: Axes | None = None,
    *,
    label: str = "observed − predicted",
    coasts: bool = True,
) -> Axes:
    """Residuals (n,) as dots on a map, with coastlines if their data are installed.

    DataArrays are paired by their dimensions, in any order, and have the same coordinates. Objects
    of pandas have the same index. Other arrays are paired by place.

    Parameters
    ----------
    longitude, latitude : (n,) arrays
        Degrees.
    residuals : (n,) array
    ax : Axes, optional
    label : str
        Name and unit of the residuals.
    coasts : bool
        Draw coastlines if ``rff_stream[maps]`` is installed.

    Raises
    ------
    ValueError
        If no row has all of them, for latitudes beyond a pole, or for arrays of other dimensions,
        coordinates or indexes.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> places = np.random.default_rng(0).uniform(0, 60, (2, 200))
    >>> ax = error_map(*places, np.zeros(200), Figure().subplots(), coasts=False)
    >>> ax.get_xlabel()
    'longitude'
    """
    TEXT.check("label", label)
    truth().check("coasts", coasts)
    _, (x, y, values) = known_rows(longitude=longitude, latitude=latitude, residuals=residuals)
    if (beyond := y[np.abs(y) > POLE]).size:
        raise ValueError(
            f"latitude holds {beyond[0]:g}, but latitudes are from -{POLE} to {POLE} degrees. "
            "Correct it, or give longitudes first: error_map(longitude, latitude, residuals)."
        )
    largest = float(np.quantile(np.abs(values), EXTREME)) or 1.0
    ax = axes(ax)
    order = np.argsort(np.abs(values))  # large errors on top
    drawn = ax.scatter(
        x[order], y[order], c=values[order], s=9, cmap=DIFFERENCES, vmin=-largest, vmax=largest,
        edgecolors=GREY, linewidths=0.2, rasterized=True,
    )  # fmt: skip
    colour_bar(ax, drawn, label)
    ax.set(xlabel="longitude", ylabel="latitude")
    if coasts:
        with contextlib.suppress(ImportError):  # a map without coastlines
            coastlines(ax)
    return ax


@takes("ClassScores", remedy="Give model.scores(X, y) of a KernelClassifier.")
def confusion(scores: ClassScores, ax: Axes | None = None) -> Axes:
    """Share of the rows of each class that are predicted as each class.

    Parameters
    ----------
    scores : ClassScores
        From ``model.scores(X, y)``.
    ax : Axes, optional
    """
    totals = scores.confusion.sum(axis=1, keepdims=True)
    share = scores.confusion / np.where(totals > 0, totals, 1.0)
    ax, names = axes(ax), [str(label) for label in scores.labels]
    drawn = ax.imshow(share, cmap=VALUES, vmin=0, vmax=1)
    many = len(names) > MOST_WRITTEN
    for axis in (ax.xaxis, ax.yaxis):
        name_ticks(axis, range(len(names)), names)
    ax.tick_params(axis="x", labelrotation=90 if many or max(map(len, names)) > 4 else 0)
    if many:
        ax.tick_params(labelsize="xx-small")
    else:
        for i, j in np.ndindex(*share.shape):
            dark = share[i, j] < 0.6
            ax.text(
                j, i, f"{share[i, j]:.2g}", ha="center", va="center", fontsize="x-small",
                color="white" if dark else "black",
            )  # fmt: skip
    ax.set(xlabel="answered", ylabel="class")
    colour_bar(ax, drawn, "share of the class")
    return ax


@takes("ClassScores", remedy="Give model.scores(X, y) of a KernelClassifier.")
def calibration(scores: ClassScores, ax: Axes | None = None) -> Axes:
    """Share of correct predictions against their predicted probability.

    Parameters
    ----------
    scores : ClassScores
        From ``model.scores(X, y)``.
    ax : Axes, optional
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
