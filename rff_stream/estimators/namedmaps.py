"""Feature maps that an estimator knows by name, made for a kernel and the pilot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rff_stream.features import (
    FeatureMap,
    FourierFeatures,
    HermiteFeatures,
    NystroemFeatures,
    RandomBinningFeatures,
    StructuredFeatures,
)
from rff_stream.pilot import Pilot

__all__ = ["NAMED_MAPS"]


def _nystroem(kernel: Any, n_components: int, pilot: Pilot, seed: int, dtype: Any) -> FeatureMap:
    rng = np.random.default_rng(seed)
    return NystroemFeatures.sample(kernel, pilot.x, n_components, rng=rng, dtype=dtype)


def _binning(kernel: Any, n_components: int, pilot: Pilot, seed: int, dtype: Any) -> FeatureMap:
    origin, d = pilot.origin, pilot.x.shape[1]
    return RandomBinningFeatures.sample(
        kernel, d, n_components, origin=origin, rng=seed, dtype=dtype
    )


def _hermite(kernel: Any, n_components: int, pilot: Pilot, seed: int, dtype: Any) -> FeatureMap:
    origin, d = pilot.origin, pilot.x.shape[1]
    return HermiteFeatures.sample(
        kernel, d, n_components, origin=origin, deviation=pilot.scale, dtype=dtype
    )


def _structured(kernel: Any, n_components: int, pilot: Pilot, seed: int, dtype: Any) -> FeatureMap:
    origin, d = pilot.origin, pilot.x.shape[1]
    paired = n_components % 2 == 0
    return StructuredFeatures.sample(
        kernel, d, n_components, paired=paired, origin=origin, rng=seed, dtype=dtype
    )


def _qmc(kernel: Any, n_components: int, pilot: Pilot, seed: int, dtype: Any) -> FeatureMap:
    origin, d = pilot.origin, pilot.x.shape[1]
    paired = n_components % 2 == 0
    return FourierFeatures.sample(
        kernel,
        d,
        n_components,
        paired=paired,
        frequencies="sobol",
        origin=origin,
        rng=seed,
        dtype=dtype,
    )


NAMED_MAPS: dict[str, Callable[[Any, int, Pilot, int, Any], FeatureMap]] = {
    "nystroem": _nystroem,
    "binning": _binning,
    "hermite": _hermite,
    "structured": _structured,
    "qmc": _qmc,
}
"""(kernel, R, pilot, seed, dtype) -> a map about the pilot's mean; pairs where R is even."""
