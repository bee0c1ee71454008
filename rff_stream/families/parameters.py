"""The parameters that a map is drawn by: what was said, what is refused, what is left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.arguments import POSITIVE, SEED, Rule, number, numbers_or, one_of, truth, whole
from rff_stream.families.kernel_request import AUTO, KernelRequest
from rff_stream.features import FeatureMap, map_class
from rff_stream.features.base import UndrawnMap, is_map
from rff_stream.kernels import Gaussian, Laplacian, Matern, RadialKernel
from rff_stream.sources.request import MISSING_CHUNKS, MISSING_ROWS

COMPETING = (Gaussian(), Matern(nu=0.5), Matern(nu=1.5), Matern(nu=2.5), Laplacian())
"""Kernels that compete where none is asked for: from smooth to rough, and a product over inputs,
for functions that change at values of single inputs."""

RADIAL = tuple(each for each in COMPETING if isinstance(each, RadialKernel))
"""Those that a full metric is learnt for."""

DEFAULT_COMPONENTS = 2048
"""R of one map of the whole space, where it is not said."""

FeatureChoice = FeatureMap | str | Mapping[Any, FeatureMap]
"""A map, the name of one, or a mapping from columns to maps."""

MEMORY = number(
    "a number of bytes, such as 4 * 2**30", lambda limit: bool(limit >= 0), optional=True
)

RULES: Mapping[str, Rule] = {
    "features": Rule(
        "a map, a name such as 'auto', or a mapping of columns to maps",
        lambda value: is_map(value) or isinstance(value, UndrawnMap | str | Mapping),
        lambda value: not isinstance(value, Mapping) or len(value) > 0,
    ),
    "n_components": whole(1, "A map has at least 1 column.", optional=True),
    "gamma": replace(POSITIVE, optional=True),
    "metric": numbers_or(AUTO, "full", words="'auto', 'full', a matrix or None", optional=True),
    "missing_rows": one_of(*MISSING_ROWS),
    "missing_chunks": one_of(*MISSING_CHUNKS),
    "dtype": one_of("float32", "float64"),
    "sums": one_of("auto", "float32", "float64"),
    "sample_rows": whole(0),
    "memory": MEMORY,
    "search_seconds": number(
        "a number of CPU seconds, finite and ≥ 0",
        lambda seconds: bool(0 <= seconds < np.inf),
        "Give e.g. 10, or None for as long as the pass, and at least 10 s.",
        optional=True,
    ),
    "progress": truth(),
    "fit_intercept": truth(),
    "max_passes": whole(1, "Use max_passes=100."),
    "tol": replace(POSITIVE, remedy="Use tol=1e-2."),
    "warm_start": truth(),
}
"""What a parameter may be in every estimator that has it, by its name."""


FOLDS = whole(2, "Cross-validation needs at least 2 folds. Use cv=5.")
"""``cv``, where it is asked for: scikit-learn gives an estimator its own splits."""


def check_parameters(params: Any, rules: Mapping[str, Rule]) -> None:
    """Refuse parameters of an estimator that their rules do not allow."""
    for name, rule in rules.items():
        if hasattr(params, name):
            rule.check(name, getattr(params, name))


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


def check_pairs(n_components: Any, features: Any) -> None:
    """Refuse an odd number of columns of cosines and sines."""
    if n_components is not None and n_components % 2 and features in ("orthogonal", "fourier"):
        raise ValueError(
            f"n_components={n_components} but cosines and sines come in pairs: it must be even. "
            f"Use n_components={n_components + 1}."
        )


def seed_of(random_state: Any) -> int:
    """A seed that is stored with the model; drawn afresh for None."""
    SEED.check("random_state", random_state)
    if random_state is None:
        random_state = np.random.SeedSequence()
    if isinstance(random_state, np.random.SeedSequence):
        return int(random_state.generate_state(1)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**32, dtype=np.uint64))
    return int(random_state)


def number_or_array(values: Float64, flat: bool) -> Any:
    """A number for a single y."""
    return float(values[0]) if flat else values
