"""A kernel, and how well a map of R features stands for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.plot.canvas import BAND, COLOURS, GREY, axes, colour_bar, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.features import FeatureMap
    from rff_stream.kernels import Kernel

MOST_SHOWN = 4000
"""Rows of a kernel matrix: 128 MB of values."""


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
    drawn = ax.imshow(values, cmap="cividis", vmin=min(0.0, float(values.min())), aspect="equal")
    size = getattr(kernel, "n_components", None)
    title = f"exact {type(kernel).__name__}" if size is None else f"R = {size} features"
    ax.set(xlabel="row", ylabel="row", title=title)
    colour_bar(ax, drawn, "k(x, x′)")
    return ax


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
        One that nests: its first R' columns are a map, so that one Z serves all R'.
    kernel : Kernel
        What it approximates.
    X : (n, d) array
        A few hundred rows: n² pairs for each R'.
    ax : Axes, optional
    sizes : sequence of int, optional
        R' to show; powers of 2 where absent.
    """
    r = features.n_components
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
