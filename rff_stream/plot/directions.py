"""Along which combinations of inputs a fitted function changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rff_stream.errors import takes
from rff_stream.plot.canvas import DIFFERENCES, MOST_LABELS, axes, colour_bar, name_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.inspect import Directions, GradientProducts

SHOWN, NEGLIGIBLE = 6, 1e-3
"""Directions that are drawn at most, and the share below which one is left out."""


@takes("GradientProducts", "Directions", remedy="Give rs.inspect.gradient_outer_product(model).")
def metric(found: GradientProducts | Directions, ax: Axes | None = None) -> Axes:
    """The directions along which a fitted function changes: inputs × directions.

    Parameters
    ----------
    found : GradientProducts or Directions
        From :func:`rff_stream.inspect.gradient_outer_product`.
    ax : Axes, optional

    Returns
    -------
    Axes
        A column for each direction with a share of at least .001, at most six, under its share of
        the squared slope; a row for each input over its standard deviation, at most the 24 that
        matter most. Colours are its part in the direction, from −1 to 1.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).normal(size=(500, 3)); y = np.sin(X[:, 0] - X[:, 1])
    >>> model = rs.KernelRidge(n_components=128, length_scale=2.0, random_state=0).fit(X, y)
    >>> ax = metric(rs.inspect.gradient_outer_product(model), Figure().subplots())
    >>> [label.get_text() for label in ax.get_xticklabels()][:1]
    ['100 %']
    """
    from matplotlib.colors import TwoSlopeNorm

    directions = found.directions() if hasattr(found, "directions") else found
    shares = directions.shares
    count = int(np.clip((shares >= NEGLIGIBLE).sum(), 1, SHOWN))
    size = directions.vectors**2 @ directions.eigenvalues
    rows = np.argsort(-size, kind="stable")[:MOST_LABELS]
    ax = axes(ax)
    drawn = ax.imshow(
        directions.vectors[rows, :count], cmap=DIFFERENCES, norm=TwoSlopeNorm(0, -1, 1),
        aspect="auto", interpolation="nearest",
    )  # fmt: skip
    name_ticks(ax.yaxis, range(len(rows)), [directions.inputs[j] for j in rows])
    ax.set_xticks(range(count), [f"{share:.3g} %" for share in 100 * shares[:count]])
    ax.set(xlabel="share of each direction in the squared slope")
    colour_bar(ax, drawn, "part of the input, over its deviation")
    return ax
