"""Means of levels or random intercepts: what predicts left-out pilot rows better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from rff_stream._array import Array
from rff_stream.families.level_intercepts import MixedModel
from rff_stream.features import FourierFeatures
from rff_stream.features.composed import encode_rows
from rff_stream.kernels import Kernel
from rff_stream.kernels.base import length_scale_vector
from rff_stream.length_scales.class_errors import probability_errors
from rff_stream.length_scales.map_choice import SearchRecord
from rff_stream.pilot import Pilot

COMPARED, MOST_COLUMNS = 256, 512
"""R of the map of the other inputs, and columns, those of a second column of levels among them, up
to which intercepts are compared: a second or two."""

FACTORS, FAR_WORSE, DISTANCES = (0.25, 1.0, 0.0625), 4.0, 500
"""Length-scales with which the few columns are tried, of the median distance of so many rows. What
was found says how inputs compare, but is long where there is hardly any noise. No other is tried
where squared errors are so many times those of means."""


def intercepts_serve(pilot: Pilot, features: Any, scales: Mapping[str, Array]) -> bool:
    """Whether random intercepts predict left-out pilot rows as well as the means of levels.

    A function of the other inputs by the kernel that was found, and intercepts beside it, for the
    column of most levels. Intercepts are preferred: they grow with later rows.
    """
    means, local = features.means, features.maps[0]
    kernel, encoding = getattr(local, "kernel", None), getattr(local, "encoding", None)
    if not isinstance(kernel, Kernel) or "choice" not in scales:
        return False
    x = pilot.x.copy()
    x[:, means.places] = 0.0
    z = encode_rows(encoding, x)
    z = z / length_scale_vector(kernel, z.shape[1])
    few, kernel = z[:DISTANCES], kernel.with_length_scale(1.0)
    z = z / (float(np.median(pdist(few))) or 1.0)
    *others, last = sorted(means.known, key=lambda place: len(means.known[place]))
    beside = [pilot.x[:, [place]] == np.unique(pilot.x[:, place]) for place in others]
    if COMPARED + sum(each.shape[1] for each in beside) > MOST_COLUMNS:
        return False
    record = SearchRecord.of(scales["choice"])
    error = dict(zip(record.names, record.errors, strict=True))[record.taken]
    y = pilot.y[:, 1:] if pilot.classes and pilot.y.shape[1] == 2 else pilot.y  # one target
    origin, spread = y.mean(axis=0), np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)
    for factor in FACTORS:
        columns = FourierFeatures.sample(kernel, z.shape[1], COMPARED, rng=0)
        Z = np.asarray(columns(z / factor) * np.sqrt(columns.prior()), np.float64)
        model = MixedModel.of(np.column_stack([Z, *beside]), pilot.x[:, last], y, pilot.w)
        errors = model.left_out() / spread
        if pilot.classes:  # as the search compares them
            errors = probability_errors(errors, (y - origin) / spread, spread, origin)
        left = np.average((errors**2).mean(axis=1), weights=pilot.w)
        if left <= error**2:
            return True
        if left > FAR_WORSE * error**2:
            return False
    return False
