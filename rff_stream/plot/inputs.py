"""Which inputs matter: Sobol indices, relevance by length-scales, and dependence of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream.plot.canvas import COLOURS, GREY, axes, fold_labels, legend_above, plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.answers.dependence import Dependence
    from rff_stream.answers.sensitivity import Relevance, SobolIndices

RARE = 0.05
"""p-value below which a pair is marked, divided by their number (Bonferroni)."""


def sensitivity(
    found: SobolIndices, names: Sequence[str], ax: Axes | None = None, *, target: int = 0
) -> Axes:
    """Shares of the variance of a fitted function: of each input alone, and with interactions.

    Parameters
    ----------
    found : SobolIndices
        From :func:`~rff_stream.answers.sensitivity.sobol_indices`.
    names : sequence of str
        Of the inputs: ``model.columns_.inputs``.
    ax : Axes, optional
    target : int

    Returns
    -------
    Axes
        Bars with two standard errors; the most important input first.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from rff_stream.answers.sensitivity import sobol_indices
    >>> x = np.random.default_rng(0).uniform(size=(500, 2))
    >>> found = sobol_indices(lambda x: x[:, :1] + 2 * x[:, 1:], x)
    >>> ax = sensitivity(found, ["a", "b"], Figure().subplots())
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['b', 'a']
    """
    _require_names(names, len(found.total))
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


def relevance(found: Relevance, ax: Axes | None = None) -> Axes:
    """How many length-scales each input spans, the most relevant input first.

    Parameters
    ----------
    found : Relevance
        From :func:`~rff_stream.answers.sensitivity.ard_relevance`.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from rff_stream.answers.sensitivity import ard_relevance
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> ax = relevance(ard_relevance([9.0, 1.0], rows, ["a", "b"]), Figure().subplots())
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['b', 'a']
    """
    order = np.argsort(-found.spans, kind="stable")
    ax = axes(ax)
    ax.bar(np.arange(len(order)), found.spans[order], 0.7, color=COLOURS[5])
    fold_labels(ax, [found.inputs[j] for j in order])
    ax.set(ylabel="deviation / length-scale")
    return ax


def dependence(found: Mapping[Any, Dependence], ax: Axes | None = None) -> Axes:
    """Dependence of pairs of columns, in units of what independent columns would give.

    Parameters
    ----------
    found : mapping of label to Dependence
        From :func:`~rff_stream.answers.dependence.hsic`, such as ``{"wind, power": hsic(…)}``.
    ax : Axes, optional

    Returns
    -------
    Axes
        Bars on a logarithmic axis; pairs with p < 0.05 divided by their number are marked.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from rff_stream.answers.dependence import Dependence
    >>> pairs = {"a, b": Dependence(0.3, 0.01, 1e-9, 500), "a, c": Dependence(0.01, 0.01, 0.4, 500)}
    >>> dependence(pairs, Figure().subplots()).get_yscale()
    'log'
    """
    if not found:
        raise ValueError("There are no pairs to draw. Give a mapping of label to Dependence.")
    ax, places = axes(ax), np.arange(len(found))
    ratio = np.array([each.statistic / each.expected for each in found.values()])
    values = np.array([each.p_value for each in found.values()])
    rare = values < RARE / len(found)
    for chosen, colour, label in (
        (~rare, COLOURS[5], "explained by chance"),
        (rare, COLOURS[1], f"dependent: p < {RARE}/{len(found)}"),
    ):
        if chosen.any():
            ax.bar(places[chosen], ratio[chosen], color=colour, width=0.7, label=label)
    ax.axhline(1, color=GREY, lw=1)
    for place, height, p in zip(places, ratio, values, strict=True):
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


def _require_names(names: Sequence[str], d: int) -> None:
    if len(names) != d:
        raise ValueError(f"{len(names)} names were given for {d} inputs. Give one for each.")
