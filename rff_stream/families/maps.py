"""From parameters and the pilot to one map of the whole space."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.answers.evidence import FEW_FEATURES
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.kernel_request import AUTO, KernelRequest, has_frequencies
from rff_stream.families.protocol import WHOLE, SumRequest
from rff_stream.features import FeatureMap, MapRequest, by_columns, map_class
from rff_stream.kernels import ExactKernel, Kernel, length_scale_vector
from rff_stream.length_scales.whole_space import (
    ITERATIONS,
    MOST_SEARCHED,
    TrialSize,
    fit_length_scales,
    search_seconds,
)
from rff_stream.moments.counted_entries import entries_of
from rff_stream.moments.few_rows import Context
from rff_stream.pilot import Pilot
from rff_stream.progress import Progress
from rff_stream.systems.spectrum import FEW_ROWS

logger = logging.getLogger("rff_stream")

PILOT_COMPONENTS = 1536
"""R of the map whose evidence determines length-scales: kin40k needs more than 1,000."""


def small_data_context(request: SumRequest) -> Context | None:
    """What sums are made in when they are asked for, where one leaf keeps its few rows."""
    plan, r = request.plan, request.row.n_features
    few = plan.sums == "float64" and request.n_places <= FEW_ROWS * r
    keeps = (
        plan.layout.n_leaves == 1
        and plan.order == 2
        and (few or plan.kept_bytes > 0)
        and r > FEW_FEATURES
        and n_entries(request.features, r) == r
    )
    return single_threaded_blas if keeps else None


def find_kernel(
    kernels: KernelRequest,
    pilot: Pilot,
    seed: int,
    progress: bool,
    n_components: int = PILOT_COMPONENTS,
    max_seconds: float = math.inf,
) -> Kernel:
    """The kernel with its length-scale in input units.

    A kernel given with its own length-scale is used as it is; a numeric ``length_scale``
    is in input units; "median" is the median distance between rows of standardised inputs;
    "evidence" and "ard" are found on the pilot, where several kernels may compete, by a map of so
    many columns in so many CPU seconds, counted by the work.
    """
    d = pilot.x.shape[1]
    kernels.require(d)
    known: Kernel | None = kernels.known
    if known is not None:
        return known
    if kernels.searched:
        found = _search_map(kernels, pilot, seed, progress, n_components, max_seconds)
        pilot.warn_of_far_gaps(length_scale_vector(found, d))
        return found
    pilot.warn_of_outliers()
    if pilot.y.shape[1]:
        pilot.warn_of_wide_gaps()
    median = pilot.leave_out(pilot.median_length_scale())
    drawn: Kernel = kernels.named[0].with_length_scale(tuple(median.tolist()))
    return drawn


def seconds_of_search(n_kernels: int, n_rows: int, *, ard: bool) -> float:
    """CPU seconds, at most about, of the search for length-scales on the pilot."""
    size = TrialSize(min(n_rows, MOST_SEARCHED), PILOT_COMPONENTS, ITERATIONS)
    return search_seconds(size, n_kernels, ard=ard)


def _search_map(
    kernels: KernelRequest,
    pilot: Pilot,
    seed: int,
    progress: bool,
    n_components: int,
    max_seconds: float,
) -> Kernel:
    """The kernel and length-scales of highest evidence on the pilot, by a map of its own."""
    weights, ard = None if (pilot.w == 1).all() else pilot.w, kernels.rule == "ard"
    # Small products: a second thread waits, and bits differ.
    with (
        single_threaded_blas(),
        Progress("length-scales", None, shown=progress, unit="step") as bar,
    ):
        found = fit_length_scales(
            pilot.x,
            pilot.y,
            list(kernels.named),
            ard=ard,
            one_unit=pilot.one_unit and not ard,
            n_components=n_components,
            max_seconds=max_seconds,
            rng=seed,
            weights=weights,
            progress=logger.info if progress else None,
            advance=bar.advance,
        )
    if not pilot.one_unit:  # nobody can look at directions of a metric
        pilot.warn_of_outliers()
    return found.kernel.with_length_scale(tuple(pilot.leave_out(found.length_scale).tolist()))


def chosen_map(features: Any, inputs: Sequence[str], kernel: Any = AUTO) -> Any:
    """A map or a name as it is; columns that choose their own as one map of the inputs.

    A kernel without frequencies is drawn by its values at landmarks, unless a map is asked for.

    Raises
    ------
    ValueError
        Naming the columns that are not among the inputs.
    TypeError
        Naming the column whose choice is no map.
    """
    if isinstance(features, Mapping):
        return by_columns(features, inputs)
    if isinstance(features, str) and features in (AUTO, WHOLE) and not has_frequencies(kernel):
        return "nystroem"
    own = getattr(features, "for_inputs", None)  # a request with maps of single columns inside
    return features if own is None else own(inputs)


def n_columns(features: FeatureMap | str, n_components: int) -> int:
    """R: a map given as a value brings its own."""
    return n_components if isinstance(features, str) else features.n_components


def n_entries(features: FeatureMap | str, n_components: int) -> int:
    """Entries of a row of R columns that are not 0, before the map is drawn."""
    if isinstance(features, str):
        return int(map_class(features).row_entries(n_components))
    return entries_of(features)


def make_features(
    features: FeatureMap | str,
    kernel: Kernel,
    n_components: int,
    pilot: Pilot,
    *,
    seed: int,
    dtype: str,
) -> FeatureMap:
    """A map given as a value, or the map of this name drawn for the kernel and the pilot."""
    if not isinstance(features, str):
        return features
    request = MapRequest(kernel, n_components, pilot.x, pilot.origin, pilot.scale, seed, dtype)
    drawn: FeatureMap = map_class(features).drawn_for(features, request)
    return drawn


def scale_of_map(features: Any) -> Float64:
    """The length-scale that a map was drawn with; 1 where it does not say."""
    return np.asarray(getattr(features, "scale", 1.0), np.float64)


def length_scale_of(kernel: ExactKernel) -> Float64 | float:
    """The kernel's length-scale in input units: a number, or one per input."""
    own = getattr(kernel, "length_scale", None)
    values = np.asarray(1.0 if own is None else own, dtype=np.float64)
    return float(values) if values.ndim == 0 else values
