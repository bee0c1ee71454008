"""Plots for choices: error of the kernel against R, path of α, scores, learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.arguments import ROWS, Rule, is_several, whole
from rff_stream.errors import takes
from rff_stream.features.base import DRAWN
from rff_stream.plot.canvas import (
    BAND,
    COLOURS,
    GREY,
    MOST_LABELS,
    VALUES,
    axes,
    check_target,
    colour_bar,
    legend,
    legend_above,
    plain_ticks,
    wrap_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.answers.learning_curves import RowCurve
    from rff_stream.answers.penalty_selection import RidgePath, Selection
    from rff_stream.choice.stacking import Choice
    from rff_stream.features import FeatureMap
    from rff_stream.grid.selection import KernelComparison
    from rff_stream.kernels import Kernel
    from rff_stream.length_scales.map_choice import SearchRecord


FAR_RIVAL = 1.5
"""Error of a simple rule over that of the worst candidate above which it is not drawn."""

MOST_SHOWN = 4000
"""Rows of a kernel matrix: 128 MB of values."""

KERNEL = replace(DRAWN["kernel"], is_kind=callable)
"""Also a map, or a function of two matrices."""


@takes("Kernel", "NamedMap", remedy="Give a kernel or a map: model.features_.")
def kernel_matrix(kernel: Kernel | FeatureMap, X: Array, ax: Axes | None = None) -> Axes:
    """The matrix k(x, x') of all pairs of rows, exact or Z diag(s) Zᵀ of a map.

    Parameters
    ----------
    kernel : Kernel or FeatureMap
    X : (n, d) array
        Rows in the order in which they are drawn; n² values.
    ax : Axes, optional
    """
    values = _matrix(kernel, X)
    ax = axes(ax)
    drawn = ax.imshow(values, cmap=VALUES, vmin=min(0.0, float(values.min())), aspect="equal")
    size = getattr(kernel, "n_components", None)
    title = f"exact {type(kernel).__name__}" if size is None else f"R = {size} features"
    ax.set(xlabel="row", ylabel="row", title=title)
    colour_bar(ax, drawn, "k(x, x′)")
    return ax


@takes("NamedMap", remedy="Give a map: model.features_, or rs.FourierFeatures.sample(…).")
def approximation_error(
    features: FeatureMap,
    kernel: Kernel,
    X: Array,
    ax: Axes | None = None,
    *,
    sizes: Sequence[int] | None = None,
) -> Axes:
    """Error of Z diag(s) Zᵀ over all pairs of rows, against R, with the law of 1/√R.

    Parameters
    ----------
    features : FeatureMap
        A nested map: its first R' columns are a map, so that one Z is enough for all R'.
    kernel : Kernel
        The kernel that the map approximates.
    X : (n, d) array
        A few hundred rows: n² pairs for each R'.
    ax : Axes, optional
    sizes : sequence of int, optional
        R' to show; by default powers of 2.
    """
    KERNEL.check("kernel", kernel)
    r = features.n_components
    Rule(
        f"a list of whole numbers from 1 to {r}", is_several,
        lambda value: len(value) > 0
        and all(whole(1).is_kind(each) and 1 <= each <= r for each in value),
        optional=True,
    ).check("sizes", sizes)  # fmt: skip
    shown = sorted({2 << i for i in range(20) if 2 << i < r} | {r}) if sizes is None else [*sizes]
    exact, Z = _matrix(kernel, X), np.asarray(features(np.asarray(X, np.float64)), np.float64)
    worst, typical = [], []
    for size in shown:
        error = np.abs((Z[:, :size] * features.prior(size)) @ Z[:, :size].T - exact)
        typical.append(float(np.sqrt(np.mean(error**2))))
        worst.append(float(error.max()))
    ax = axes(ax)
    ax.loglog(shown, worst, "s--", color=COLOURS[1], label="largest of all pairs")
    ax.loglog(shown, typical, "o-", color=COLOURS[0], label="root mean square")
    law = typical[0] * np.sqrt(shown[0] / np.asarray(shown))
    ax.loglog(shown, law, ":", color=GREY, label="∝ 1/√R")
    ax.fill_between(shown, typical, worst, color=COLOURS[0], alpha=BAND / 2, linewidth=0)
    ax.set(xlabel="features R", ylabel="|k̂ − k|", title="Error of the kernel matrix")
    legend(ax)
    return ax


def _matrix(kernel: Any, X: Array) -> Float64:
    """Values of all pairs (n, n)."""
    ROWS.check("X", X)
    X = np.asarray(X, np.float64)
    if len(X) > MOST_SHOWN:
        raise ValueError(
            f"X has {len(X):,} rows, and a matrix of all pairs shows at most {MOST_SHOWN:,}. "
            "Give some of the rows."
        )
    if not hasattr(kernel, "n_components"):
        return np.asarray(kernel(X, X), np.float64)
    Z = np.asarray(kernel(X), np.float64)
    return np.asarray((Z * kernel.prior()) @ Z.T)


FLOOR = 1.0
"""Smallest difference of log evidence on a logarithmic axis."""

MOST_CURVES = 5  # as many as have a colour of their own
VISIBLE = 1.5
"""Ratio of two penalties that can be distinguished on the common axis."""

WIDE = 10.0
"""Ratio of scores above which their axis is logarithmic."""


@takes("RidgePath", remedy="Give rs.from_moments.ridge_path(model.moments_).")
def path(found: RidgePath, ax: Axes | None = None) -> Axes:
    """Residuals of the fit and effective degrees of freedom, against α.

    Parameters
    ----------
    found : RidgePath
        From :func:`rff_stream.from_moments.ridge_path`.
    ax : Axes, optional

    Returns
    -------
    Axes
        The axes of the residuals; degrees of freedom have their own axis on the right.
    """
    ax = axes(ax)
    system = found.spectrum.system
    rms = np.sqrt(found.residual_scatter / system.weight)
    for t in range(min(rms.shape[1], len(COLOURS) - 1)):
        colour = COLOURS[0] if rms.shape[1] == 1 else COLOURS[t + (t > 0)]
        ax.loglog(found.alphas, rms[:, t], color=colour, label=f"residual, {system.targets[t]}")
    ax.set(xlabel="penalty α", ylabel="root mean square residual of the fit")
    plain_ticks(ax.yaxis)
    right = ax.twinx()
    right.semilogx(found.alphas, found.df, "--", color=COLOURS[1], label="degrees of freedom")
    right.set_ylabel(f"degrees of freedom, of R = {system.n_features}", color=COLOURS[1])
    right.set_ylim(0, system.n_features * 1.05)
    lines = [*ax.get_lines(), *right.get_lines()]
    legend_above(right, handles=lines)
    return ax


@takes("KernelComparison", remedy="Give what compare_kernels returns.")
def kernel_evidence(found: KernelComparison, ax: Axes | None = None) -> Axes:
    """Evidence of each kernel against its length-scale, relative to the best one.

    Parameters
    ----------
    found : KernelComparison
        From :func:`rff_stream.from_moments.compare_kernels`.
    ax : Axes, optional
    """
    ax, (k, at) = axes(ax), found.best
    below = found.log_evidence.max() - found.log_evidence
    from matplotlib import colormaps

    shades = colormaps[VALUES](np.linspace(0.0, 0.92, len(found.kernels)))
    order = np.argsort(found.length_scales)
    each = zip(found.kernels, below, found.error, shades, strict=True)
    for kernel, values, errors, shade in each:
        ax.errorbar(
            found.length_scales[order], np.maximum(values, FLOOR)[order], errors[order],
            color=shade, marker="o", ms=3, lw=1.2, capsize=1.5, elinewidth=0.7,
            label=kernel_label(kernel),
        )  # fmt: skip
    label = f"highest: {kernel_label(found.kernels[k])}, length {found.length_scales[at]:.3g}"
    _star(ax, found.length_scales[at], FLOOR, label)
    ax.set(xscale="log", yscale="log", xlabel="length-scale", ylabel="log p below the highest")
    plain_ticks(ax.xaxis)
    ax.invert_yaxis()
    legend_above(ax, 3)
    return ax


def kernel_label(kernel: Kernel) -> str:
    """ "Matern 3/2", "Gaussian"."""
    name, nu = type(kernel).__name__, getattr(kernel, "nu", None)
    if nu is None:
        return name
    return f"{name} {round(2 * nu)}/2" if nu * 2 == round(2 * nu) else f"{name} {nu:g}"


@takes("SearchRecord", "Choice", remedy="Give model.choice_.")
def choice(found: SearchRecord | Choice, ax: Axes | None = None) -> Axes:
    """What was compared before or after the read, by errors at left-out rows, and what was taken.

    Parameters
    ----------
    found : SearchRecord or Choice
        ``choice_`` of a fitted model.
    ax : Axes, optional

    Returns
    -------
    Axes
        A row for each candidate, the best one on top. Bars are two standard errors of the
        difference from the best; a number on the right is CPU seconds. Grey lines are what simple
        rules give at the same rows; one that is far worse is in the legend alone.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).normal(size=(300, 2)); y = np.sin(X[:, 0] - X[:, 1])
    >>> model = rs.KernelRidge(random_state=0).fit(X, y)
    >>> ax = choice(model.choice_, Figure().subplots())
    >>> ax.get_xlabel()
    'error at left-out rows, over the spread of y'
    """
    ax, errors = axes(ax), np.asarray(found.errors, np.float64)
    error = errors if errors.ndim == 1 else np.sqrt((errors**2).mean(axis=1))
    compared = np.flatnonzero(np.isfinite(error))
    order = compared[np.argsort(error[compared], kind="stable")][:MOST_LABELS]
    taken, places = set(found.taken_names), np.arange(len(order))
    colours = [COLOURS[1] if found.names[k] in taken else COLOURS[0] for k in order]
    trials = getattr(found, "trials", ())
    if trials:
        spread = np.array([trials[k].spread for k in order]) / error[order]  # ∂√q = ∂q / 2√q
        ax.errorbar(error[order], places, xerr=spread, fmt="none", ecolor=GREY, elinewidth=1)
    ax.scatter(error[order], places, c=colours, zorder=3)
    names = [wrap_label(found.names[k]) for k in order]
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    for place, k in zip(places, order, strict=True):
        if trials and trials[k].seconds:
            ax.annotate(
                f"{trials[k].seconds:.1f} s", (1.01, place), xycoords=("axes fraction", "data"),
                ha="left", va="center", fontsize="small", color=GREY,
            )  # fmt: skip
    rivals: Mapping[str, float] = getattr(found, "rivals", {})
    for style, (name, value) in zip(("--", ":"), rivals.items(), strict=False):
        ax.plot([], [], color=GREY, ls=style, lw=1, label=f"{name}: {value:.3g}")
        if value <= FAR_RIVAL * error[order].max():
            ax.axvline(value, color=GREY, ls=style, lw=1)
    ax.scatter([], [], c=COLOURS[1], label="taken")
    ax.set(xlabel="error at left-out rows" + (", over the spread of y" if trials else ""))
    legend_above(ax)
    return ax


@takes("Selection", remedy="Give rs.from_moments.cross_validate(…), gcv(…), or model.selection_.")
def selection(found: Selection, ax: Axes | None = None) -> Axes:
    """Scores against α for each R', with standard errors over folds and what was chosen.

    Parameters
    ----------
    found : Selection
        From cross-validation or GCV.
    ax : Axes, optional
    """
    ax, best, error = axes(ax), found.best, found.relative_error
    chosen = found.sizes.index(best.n_components)
    others = [k for k in range(len(found.sizes)) if k != chosen][-(MOST_CURVES - 1) :]
    colours = iter(COLOURS[2:])
    for k in others:
        ax.plot(
            found.alphas, found.relative[k], "--", color=next(colours), lw=1.2, zorder=2.5,
            label=_size(found, k),
        )  # fmt: skip
    bars = None if error is None else error[chosen]
    ax.errorbar(
        found.alphas, found.relative[chosen], bars, color=COLOURS[0], lw=1.5, capsize=1.5,
        elinewidth=0.7, label=_size(found, chosen) + ("" if error is None else " ± standard error"),
    )  # fmt: skip
    label = f"chosen: α = {best.alpha:.2g}, R′ = {best.n_components}"
    _star(ax, best.alpha, best.score, label)
    ax.set_xscale("log")
    floor = float(found.eta[chosen])
    if floor > VISIBLE * found.alphas[0]:
        ax.axvspan(found.alphas[0], floor, color=GREY, alpha=BAND, lw=0, label="below rounding η")
    values = found.relative[np.isfinite(found.relative)]
    _widen(ax, values)
    ax.set(xlabel="penalty α", ylabel=_criterion(found))
    legend(ax)
    return ax


@takes("Selection", remedy="Give rs.from_moments.cross_validate(…), gcv(…), or model.selection_.")
def learning_curve(found: Selection, ax: Axes | None = None) -> Axes:
    """The best score of each R', to see whether more features would help.

    Parameters
    ----------
    found : Selection
        With several R', such as the default of
        :func:`rff_stream.from_moments.cross_validate`.
    ax : Axes, optional
    """
    ax, curve = axes(ax), found.learning_curve
    sizes, scores = [c.n_components for c in curve], [c.score for c in curve]
    errors = [c.standard_error or 0.0 for c in curve] if found.folds else None
    label = "best α of each R′" + (" ± standard error" if found.folds else "")
    ax.errorbar(sizes, scores, errors, color=COLOURS[0], marker="o", capsize=3, label=label)
    best = found.best
    _star(ax, best.n_components, best.score, f"chosen: R′ = {best.n_components}")
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    _widen(ax, scores)
    ax.set(xlabel="features R′", ylabel=_criterion(found))
    legend(ax)
    return ax


@takes("RowCurve", remedy="Give rs.from_moments.row_curve(…).")
def row_curve(found: RowCurve, ax: Axes | None = None, *, target: int = 0) -> Axes:
    """Error on held-out rows against rows read, to see whether more data would help.

    Parameters
    ----------
    found : RowCurve
        From :func:`rff_stream.from_moments.row_curve`.
    ax : Axes, optional
    target : int
    """
    check_target(target, len(found.targets))
    ax = axes(ax)
    name = found.targets[target]
    held, fitted = found.held_out_rmse[:, target], found.fitted_rmse[:, target]
    ax.plot(found.n_rows, held, "o-", color=COLOURS[0], label="on held-out rows")
    ax.plot(found.n_rows, fitted, "s--", color=COLOURS[1], ms=4, label="on the rows fitted")
    _widen(ax, held)
    ax.locator_params(axis="x", nbins=5)
    ax.set(xlabel="rows read", ylabel=f"RMSE, {name}")
    legend(ax)
    return ax


def _widen(ax: Axes, scores: ArrayLike) -> None:
    """A logarithmic axis of scores that differ by a factor of ten."""
    if np.max(scores) > WIDE * np.min(scores) > 0:
        ax.set_yscale("log")
        plain_ticks(ax.yaxis)


def _star(ax: Axes, x: float, y: float, label: str) -> None:
    """Mark what was chosen."""
    ax.plot(x, y, "*", ms=13, color=COLOURS[1], zorder=5, label=label)


def _size(found: Selection, k: int) -> str:
    return f"R′ = {found.sizes[k]}"


def _criterion(found: Selection) -> str:
    relative = "" if (found.scale == 1).all() else " / variance"
    return wrap_label(found.criterion + relative)
