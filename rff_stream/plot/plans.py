"""What a pass will take: bytes of one process, and seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rff_stream.plot.canvas import COLOURS, GREY, axes, legend_above
from rff_stream.words import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rff_stream.planning import Plan

MIB = 2**20


def plan_memory(found: Plan, ax: Axes | None = None) -> Axes:
    """Bytes that a computing process is promised to stay below, by what takes them.

    Parameters
    ----------
    found : Plan
        Of :func:`rff_stream.plan`, or ``model.plan_``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = axes(ax)
    bars = found.memory_parts()
    _stack(ax, {bar: {k: v / MIB for k, v in parts.items()} for bar, parts in bars.items()})
    total = found.process_bytes / MIB
    text = f"promised: {format_bytes(found.process_bytes)}"
    ax.axvline(total, color="black", ls="--", lw=1.2, label=text)
    words = f"{found.threads} thread(s), R = {found.n_features}"
    ax.set(xlabel=f"memory of one process [MiB]: {words}", xlim=(0, 1.12 * total))
    legend_above(ax, 3)
    return ax


def plan_time(found: Plan, ax: Axes | None = None) -> Axes:
    """Seconds that the pass is expected to last, by what takes them.

    Parameters
    ----------
    found : Plan
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = axes(ax)
    _stack(ax, {"pass": found.time_parts()})
    words = f"{found.n_rows:,} rows, {found.workers} × {found.threads} thread(s)"
    ax.set(xlabel=f"time [s]: {words}", xlim=(0, 1.12 * max(found.seconds, 1e-9)))
    legend_above(ax, 3)
    return ax


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
