"""Longitudes of data that reach around the globe: 0° and 360° are one place."""

from __future__ import annotations

from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.families.metric import matrix_of
from rff_stream.families.protocol import MapParameters
from rff_stream.features import ByColumns, FeatureMap
from rff_stream.features.encodings import Periodic, Scaled
from rff_stream.sources import Columns

TURN = 360.0  # degrees

UNITS = frozenset(("degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"))
"""Of a longitude (CF conventions 1.11, section 4.2)."""

NAMES = frozenset(("lon", "longitude"))
"""Of a longitude in a table, whose columns have no units."""


def longitudes_in(columns: Columns) -> tuple[int, ...]:
    """Places of the inputs that are longitudes, by their units, or by their names without one."""
    count = len(columns.inputs)
    units = columns.units[:count] or ("",) * count
    return tuple(
        place
        for place, (name, unit) in enumerate(zip(columns.inputs, units, strict=True))
        if unit in UNITS or (not unit and name.lower() in NAMES)
    )


def reaches_around(longitudes: Float64) -> bool:
    """Whether values (n,) leave no larger gap between the ends of their range than inside it.

    False for values that are no longitudes: a range of more than a turn.
    """
    known = np.unique(longitudes)
    if len(known) < 2 or np.ptp(known) > TURN:
        return False
    return bool(TURN - np.ptp(known) <= np.diff(known).max())


def around_the_globe(parameters: MapParameters, x: Float64) -> FeatureMap | None:
    """cos and sin of the longitudes among rows x (n, d) that reach around; the rest as it is.

    None where there are none, and where length-scales or a metric are given: they are of the
    inputs as they are.
    """
    if parameters.kernels.known is not None or matrix_of(parameters.metric) is not None:
        return None
    around = [place for place in parameters.longitudes if reaches_around(x[:, place])]
    if not around:
        return None
    d = x.shape[1]
    rest = tuple(place for place in range(d) if place not in around)
    maps: list[Any] = [Periodic(TURN) for _ in around]
    columns: list[tuple[int, ...]] = [(place,) for place in around]
    if rest:
        maps, columns = [*maps, Scaled(np.zeros(len(rest)), np.ones(len(rest)))], [*columns, rest]
    return ByColumns(tuple(maps), tuple(columns), d)
