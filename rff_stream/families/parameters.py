"""The parameters that a map is drawn by: what was said, what is refused, what is left open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.families.kernel_request import KernelRequest
from rff_stream.features import FeatureMap, map_class
from rff_stream.kernels import Gaussian, Laplacian, Matern, RadialKernel

COMPETING = (Gaussian(), Matern(nu=0.5), Matern(nu=1.5), Matern(nu=2.5), Laplacian())
"""Kernels that compete where none is asked for: from smooth to rough, and a product over inputs,
for functions that change at values of single inputs."""

RADIAL = tuple(each for each in COMPETING if isinstance(each, RadialKernel))
"""Those that a full metric is learnt for."""

DEFAULT_COMPONENTS = 2048
"""R of one map of the whole space, where it is not said."""

FeatureChoice = FeatureMap | str | Mapping[Any, FeatureMap]
"""A map, the name of one, or a mapping from columns to maps."""


def check_map_for(features: FeatureMap | str, kernels: KernelRequest, d: int) -> None:
    """Refuse, before a row is read, a map or kernels that are not for d inputs.

    Raises ValueError: naming the parameter.
    """
    if isinstance(features, str):
        map_class(features)
    else:
        check_inputs(features.n_inputs, d)
    kernels.check(d)


def check_inputs(mapped: int, d: int) -> None:
    """Refuse a map of so many inputs for data that have others."""
    if mapped != d:
        raise ValueError(
            f"features maps {mapped} inputs but the data have {d}. Make the map for these columns."
        )


def check_sample_rows(size: Any) -> None:
    """A whole number ≥ 0."""
    if not isinstance(size, (int, np.integer)) or size < 0:
        raise ValueError(f"sample_rows={size!r} but it must be a whole number ≥ 0.")


def check_memory_limit(limit: Any) -> None:
    """A number of bytes, or None."""
    if limit is not None and not isinstance(limit, int | float | np.number):
        raise TypeError(f"memory={limit!r} but it must be a number of bytes, such as 4 * 2**30.")


def check_search_seconds(seconds: Any) -> None:
    """A number ≥ 0 that is finite, or None."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | np.number):
        raise TypeError(f"search_seconds={seconds!r} but it must be a number of CPU seconds.")
    if not 0 <= seconds < np.inf:
        raise ValueError(
            f"search_seconds={seconds!r} but it must be ≥ 0 and finite. Give e.g. 10, or None for "
            "as long as the pass, and at least 10 s."
        )


def check_n_components(n_components: Any, features: Any) -> None:
    """R is an integer ≥ 1, even where cosines and sines come in pairs; None if it is not said."""
    if n_components is None:
        return
    if not isinstance(n_components, (int, np.integer)) or isinstance(n_components, bool):
        raise TypeError(f"n_components={n_components!r} but it must be a whole number.")
    if n_components < 1:
        raise ValueError(f"n_components={n_components} but a map has at least 1 column.")
    if n_components % 2 and features in ("orthogonal", "fourier"):
        raise ValueError(
            f"n_components={n_components} but cosines and sines come in pairs: it must be even. "
            f"Use n_components={n_components + 1}."
        )


def seed_of(random_state: Any) -> int:
    """A seed that is stored with the model; drawn afresh for None."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**32, dtype=np.uint64))
    raise ValueError(
        f"random_state={random_state!r} but it must be None, an integer ≥ 0, a Generator or a "
        "RandomState."
    )


def number_or_array(values: Float64, flat: bool) -> Any:
    """A number for a single y."""
    return float(values[0]) if flat else values
