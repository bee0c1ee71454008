"""Bar charts: groups of rows, inputs, pairs of columns, and the cost of a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream._array import Array
from rff_stream.answers.learning_curves import group_errors
from rff_stream.arguments import Rule, is_mapping, is_several, is_string
from rff_stream.errors import MODELS, ModelError, takes
from rff_stream.model.gradients import has_log_link
from rff_stream.moments import Moments
from rff_stream.plot.canvas import (
    COLOURS,
    GREY,
    axes,
    check_target,
    fold_labels,
    legend_above,
    plain_text,
    plain_ticks,
    require_numbers,
    target_label,
)
from rff_stream.text_formatting import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.answers.dependence import Dependence
    from rff_stream.answers.maximum_mean_discrepancy import TwoSample
    from rff_stream.answers.sensitivity import Relevance, SobolIndices
    from rff_stream.planning import Plan

MIB = 2**20  # bytes

RARE = 0.05
"""p-value below which a bar is marked, divided by the number of bars (Bonferroni)."""

GROUPS = Rule(
    "a mapping of labels to Moments",
    lambda value: is_mapping(value) and all(isinstance(each, Moments) for each in value.values()),
    lambda value: len(value) > 0,
    remedy="Give collect(model.features_, …, by=…).",
)

INPUT_NAMES = Rule(
    "a list of names", lambda value: is_several(value) and all(map(is_string, value)),
    remedy="Leave it out: names are those of found.inputs.",
)  # fmt: skip


@takes(MODELS, remedy="Give a fitted KernelRidge with n_components.", has="coef_")
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

    Raises
    ------
    ModelError
        For a classifier, and where the mean is an exponential: moments do not tell its residuals.
    """
    require_numbers(model, "Use model.scores(X, y, by=…).")
    if has_log_link(model):
        raise ModelError(
            f"{type(model).__name__} fits the logarithm of a mean, and moments tell residuals of "
            "what is linear in their features. Use model.residuals(X, y, by=…)."
        )
    GROUPS.check("groups", groups)
    check_target(target, len(model.columns_.targets))
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


@takes("TwoSample", remedy="Give the result of rs.drift.", groups=True)
def drift(found: Mapping[Any, TwoSample], ax: Axes | None = None) -> Axes:
    """Distance of every group from the reference, compared with the distance by chance.

    Parameters
    ----------
    found : mapping of label to TwoSample
        From :func:`rff_stream.drift`.
    ax : Axes, optional
    """
    _require_groups(found)
    ax, places = axes(ax), np.arange(len(found))
    distance = np.array([each.distance for each in found.values()])
    expected = np.array([each.expected for each in found.values()])
    _mark_rare(ax, distance, np.array([each.p_value for each in found.values()]), "drifted")
    ax.plot(places, expected, "_", color=plain_text(), ms=12, mew=2, label="expected by chance")
    fold_labels(ax, [str(label) for label in found])
    ax.set(
        ylabel="distance from the reference (MMD)",
        ylim=(0, 1.05 * max(distance.max(), expected.max(), 1e-12)),
    )
    legend_above(ax)
    return ax


@takes("SobolIndices", remedy="Give rs.inspect.sobol_indices(model).")
def sensitivity(
    found: SobolIndices,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
    *,
    target: int = 0,
) -> Axes:
    """Shares of the variance of a fitted function: of each input alone, and with interactions.

    Parameters
    ----------
    found : SobolIndices
        From :func:`rff_stream.inspect.sobol_indices`.
    names : sequence of str, optional
        Of the inputs: by default ``found.inputs``.
    ax : Axes, optional
    target : int

    Returns
    -------
    Axes
        Bars with two standard errors; the most important input first.

    Raises
    ------
    ValueError
        If there are not as many names as indices.

    Examples
    --------
    >>> import numpy as np
    >>> import rff_stream as rs
    >>> from matplotlib.figure import Figure
    >>> x = np.random.default_rng(0).uniform(size=(500, 2))
    >>> model = rs.KernelRidge(n_components=64, random_state=0).fit(x, x @ [1.0, 2.0])
    >>> found = rs.inspect.sobol_indices(model, size=512)
    >>> ax = sensitivity(found, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['x1', 'x0']
    """
    names = found.inputs if names is None else names
    INPUT_NAMES.check("names", names)
    check_target(target, found.total.shape[1])
    if len(names) != len(found.total):
        raise ValueError(
            f"{len(names)} names were given for {len(found.total)} inputs. Give one for each."
        )
    order = np.argsort(-found.total[:, target], kind="stable")
    ax, places = axes(ax), np.arange(len(order))
    for shift, values, errors, colour, label in (
        (-0.2, found.first, found.first_error, COLOURS[0], "alone"),
        (0.2, found.total, found.total_error, COLOURS[5], "with interactions"),
    ):
        ax.bar(
            places + shift, values[order, target], 0.4, yerr=2 * errors[order, target],
            color=colour, ecolor=GREY, capsize=2, label=label,
        )  # fmt: skip
    ax.axhline(0, color=GREY, lw=1)
    fold_labels(ax, [names[j] for j in order])
    ax.set(ylabel="share of the variance of f (Sobol)")
    legend_above(ax)
    return ax


@takes("Relevance", remedy="Give rs.inspect.relevance(model).")
def relevance(found: Relevance, ax: Axes | None = None) -> Axes:
    """How many length-scales each input spans, the most relevant input first.

    Parameters
    ----------
    found : Relevance
        From :func:`rff_stream.inspect.relevance`.
    ax : Axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> import rff_stream as rs
    >>> from matplotlib.figure import Figure
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = rs.KernelRidge(n_components=64, length_scale=[9.0, 1.0], random_state=0)
    >>> found = rs.inspect.relevance(model.fit(x, np.sin(x[:, 1])))
    >>> [label.get_text() for label in relevance(found, Figure().subplots()).get_xticklabels()]
    ['x1', 'x0']
    """
    order = np.argsort(-found.spans, kind="stable")
    ax = axes(ax)
    ax.bar(np.arange(len(order)), found.spans[order], 0.7, color=COLOURS[5])
    fold_labels(ax, [found.inputs[j] for j in order])
    ax.set(ylabel="deviation / length-scale")
    return ax


@takes("Dependence", remedy="Give results of rs.inspect.hsic by name.", groups=True)
def dependence(found: Mapping[Any, Dependence], ax: Axes | None = None) -> Axes:
    """Dependence of pairs of columns, in units of that of independent columns.

    Parameters
    ----------
    found : mapping of label to Dependence
        From :func:`rff_stream.inspect.hsic`, such as ``{"wind, power": hsic(…)}``.
    ax : Axes, optional

    Returns
    -------
    Axes
        Bars on a logarithmic axis; pairs with p < 0.05 divided by their number are marked.

    Raises
    ------
    ValueError
        If there are no pairs.

    Examples
    --------
    >>> import numpy as np
    >>> import rff_stream as rs
    >>> from matplotlib.figure import Figure
    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> one = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 16, rng=0)
    >>> pair = rs.features.by_columns({"x": one, "x²": one}, ["x", "x²"])
    >>> found = rs.inspect.hsic(rs.collect(pair, np.hstack([x, x**2])), split=16)
    >>> dependence({"x, x²": found}, Figure().subplots()).get_yscale()
    'log'
    """
    if not found:
        raise ValueError("There are no pairs to draw. Give a mapping of label to Dependence.")
    ax = axes(ax)
    expected = np.array([each.expected for each in found.values()])
    statistic = np.array([each.statistic for each in found.values()])
    ratio = np.divide(statistic, expected, np.ones(len(found)), where=expected > 0)  # 1: constant
    values = np.array([each.p_value for each in found.values()])
    _mark_rare(ax, ratio, values, "dependent")
    ax.axhline(1, color=GREY, lw=1)
    for place, (height, p) in enumerate(zip(ratio, values, strict=True)):
        ax.annotate(
            f"p = {p:.1g}", (place, height), (0, 2), textcoords="offset points", ha="center",
            fontsize="x-small",
        )  # fmt: skip
    fold_labels(ax, [str(label) for label in found])
    ax.set_yscale("log")
    ax.set(
        ylabel="HSIC / its mean if independent", ylim=(min(0.5, ratio.min() / 2), 3 * ratio.max())
    )
    plain_ticks(ax.yaxis)
    legend_above(ax)
    return ax


@takes("Plan", remedy="Give rs.plan(…), or model.plan_ after a fit.")
def plan_memory(found: Plan, ax: Axes | None = None) -> Axes:
    """Upper limit of the memory of a computing process, by its parts.

    Parameters
    ----------
    found : Plan
        Of :func:`rff_stream.plan`, or ``model.plan_``.
    ax : Axes, optional
    """
    ax = axes(ax)
    bars = found.memory_parts()
    _stack(ax, {bar: {k: v / MIB for k, v in parts.items()} for bar, parts in bars.items()})
    total = found.process_bytes / MIB
    text = f"promised: {format_bytes(found.process_bytes)}"
    ax.axvline(total, color=plain_text(), ls="--", lw=1.2, label=text)
    words = f"{found.threads} thread(s), R = {found.n_features}"
    ax.set(xlabel=f"memory of one process [MiB]: {words}", xlim=(0, 1.12 * total))
    legend_above(ax, 3)
    return ax


@takes("Plan", remedy="Give rs.plan(…), or model.plan_ after a fit.")
def plan_time(found: Plan, ax: Axes | None = None) -> Axes:
    """Expected seconds of the pass, by its parts.

    Parameters
    ----------
    found : Plan
    ax : Axes, optional
    """
    ax = axes(ax)
    _stack(ax, {"pass": found.time_parts()})
    words = f"{found.n_rows:,} rows, {found.workers} × {found.threads} thread(s)"
    ax.set(xlabel=f"time [s]: {words}", xlim=(0, 1.12 * max(found.seconds, 1e-9)))
    legend_above(ax, 3)
    return ax


def _mark_rare(ax: Axes, heights: Array, values: Array, word: str) -> None:
    """Bars of two colours: those that chance explains, and those whose p-values are rare."""
    rare, places = values < RARE / len(values), np.arange(len(values))
    for chosen, colour, label in (
        (~rare, COLOURS[5], "explained by chance"),
        (rare, COLOURS[1], f"{word}: p < {RARE}/{len(values)}"),
    ):
        if chosen.any():
            ax.bar(places[chosen], heights[chosen], color=colour, width=0.7, label=label)


def _require_groups(groups: Mapping[Any, Any]) -> None:
    if not groups:
        raise ValueError("There are no groups to draw. Collect with by= or folds=.")


def _stack(ax: Axes, bars: Mapping[str, Mapping[str, float]]) -> None:
    """Horizontal bars of parts, one colour for each name."""
    names = list(dict.fromkeys(name for parts in bars.values() for name in parts))
    colours = dict(zip(names, (*COLOURS, GREY), strict=False))
    for place, parts in enumerate(bars.values()):
        left = 0.0
        for name, size in parts.items():
            label = name if name in names else None
            names = [other for other in names if other != name]
            ax.barh(place, size, left=left, color=colours[name], height=0.6, label=label)
            left += size
    ax.set_yticks(range(len(bars)), list(bars))
    ax.set_ylim(len(bars) - 0.4, -0.6)
