"""The parameters that a map is drawn by: what was said, what is refused, what is left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.families.protocol import MapParameters
from rff_stream.features import FeatureMap, map_class
from rff_stream.kernels import Gaussian, Kernel, Laplacian, Matern, RadialKernel, as_kernel

AUTO = "auto"
"""What a parameter is if the data decide."""

COMPETING = (Gaussian(), Matern(nu=0.5), Matern(nu=1.5), Matern(nu=2.5), Laplacian())
"""Kernels that compete where none is asked for: from smooth to rough, and a product over inputs,
for functions that change at values of single inputs."""

RADIAL = tuple(each for each in COMPETING if isinstance(each, RadialKernel))
"""Those that a full metric is learnt for."""

DEFAULT_COMPONENTS = 2048
"""R of one map of the whole space, where it is not said."""

LengthScale = float | str | Array

FeatureChoice = FeatureMap | str | Mapping[Any, FeatureMap]
"""A map, the name of one, or a mapping from columns to maps."""


def given_kernel(
    kernel: Kernel | str | Sequence[Kernel], length_scale: LengthScale, d: int
) -> Kernel | list[Kernel]:
    """The kernel of d inputs with the length-scale that was given; those that rows decide on.

    Raises
    ------
    ValueError
        If both say a length-scale, or a name is unknown.
    """
    several = isinstance(kernel, Sequence) and not isinstance(kernel, str)
    kernels, chosen = named_kernels(kernel), searches(length_scale)
    if several and not chosen:
        raise ValueError(
            f"{len(kernels)} kernels can be compared only with length_scale='evidence' or 'ard', "
            f"not {length_scale!r}. Give one of the two, or a single kernel."
        )
    named: Kernel = kernels[0]
    median = isinstance(length_scale, str) and length_scale == "median"
    if not several and named.length_scale is not None:
        if not median:
            raise ValueError(
                f"length_scale={length_scale!r} but the kernel {named!r} has a length-scale. "
                "Give one of the two."
            )
        return named
    if chosen or median:
        return kernels
    if isinstance(length_scale, str):
        raise ValueError(
            f"length_scale={length_scale!r} but it must be a number, one number per input, "
            "'auto', 'median', 'evidence' or 'ard'."
        )
    return named.with_length_scale(_numbers(length_scale, d))


def length_scale_asked(asked: Any) -> Any:
    """``length_scale`` of an estimator, or what ``gamma`` says in its place.

    Raises
    ------
    ValueError
        If both are given, if there are several kernels, or one that has no gamma.
    """
    gamma, scale = getattr(asked, "gamma", None), getattr(asked, "length_scale", None)
    if gamma is None:
        return scale
    kernel = asked.kernel
    if not (isinstance(scale, str) and scale in (AUTO, "median")):
        raise ValueError(
            f"gamma={gamma!r} and length_scale={scale!r} were both given, and both say the "
            "length-scale. Give one of the two."
        )
    if isinstance(kernel, Sequence) and not isinstance(kernel, str):
        raise ValueError(
            f"gamma={gamma!r} but {len(kernel)} kernels were given, and gamma is of one. Give one."
        )
    chosen = Gaussian() if isinstance(kernel, str) and kernel == AUTO else as_kernel(kernel)
    if chosen.length_scale is not None:
        raise ValueError(
            f"gamma={gamma!r} but the kernel {chosen!r} has a length-scale. Give one of the two."
        )
    return chosen.with_gamma(gamma).length_scale


def searches(length_scale: LengthScale) -> bool:
    """Whether length-scales are found on the pilot."""
    return isinstance(length_scale, str) and length_scale in ("evidence", "ard")


def _numbers(length_scale: LengthScale, d: int) -> float | tuple[float, ...]:
    """One length-scale, or one per input."""
    values = np.asarray(length_scale, dtype=np.float64)
    if values.ndim > 1 or not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(
            f"length_scale={length_scale!r} but length-scales must be finite and positive: "
            "one number, or one per input."
        )
    if values.ndim == 1 and len(values) != d:
        raise ValueError(
            f"length_scale has {len(values)} values but there are {d} inputs. "
            "Give one number, or one per input."
        )
    return float(values) if values.ndim == 0 else tuple(values.tolist())


def named_kernels(kernel: Kernel | str | Sequence[Kernel | str]) -> list[Any]:
    """Those that compete."""
    several = [kernel] if isinstance(kernel, str) or not isinstance(kernel, Sequence) else kernel
    return [as_kernel(each) for each in several]


def has_frequencies(kernel: Any) -> bool:
    """Whether every kernel that is asked for is a function of x − x'."""
    automatic = isinstance(kernel, str) and kernel == AUTO
    return automatic or all(each.stationary for each in named_kernels(kernel))


def known_kernel(kernel: Any, length_scale: Any) -> Any:
    """The kernel with the length-scales that were given; None where they are to be found."""
    named = named_kernels(kernel)
    own = getattr(named[0], "length_scale", None)
    if len(named) == 1 and own is not None:
        return named[0]
    if isinstance(length_scale, str):
        return None
    values = np.asarray(length_scale, np.float64)
    return named[0].with_length_scale(float(values) if values.ndim == 0 else tuple(values.tolist()))


def learns_metric(asked: MapParameters) -> bool:
    """Whether a metric is learnt whatever left-out rows say."""
    return isinstance(asked.metric, str) and asked.metric == "full"


def finds_scales(asked: MapParameters) -> bool:
    """Whether a search may take any length-scales, or a metric in their place."""
    return isinstance(asked.length_scale, str) and asked.length_scale in (AUTO, "median")


def check_choices(
    kernel: Kernel | str | Sequence[Kernel],
    length_scale: LengthScale,
    features: FeatureMap | str,
    d: int,
) -> None:
    """Refuse, before a row is read, what would be refused after the pilot.

    Raises ValueError: naming the parameter.
    """
    if isinstance(features, str):
        map_class(features)
    else:
        check_inputs(features.n_inputs, d)
    check_kernel(kernel, length_scale, d)


def check_inputs(mapped: int, d: int) -> None:
    """Refuse a map of so many inputs for data that have others."""
    if mapped != d:
        raise ValueError(
            f"features maps {mapped} inputs but the data have {d}. Make the map for these columns."
        )


def check_kernel(
    kernel: Kernel | str | Sequence[Kernel], length_scale: LengthScale, d: int
) -> None:
    """Refuse a kernel, or length-scales, that say no kernel of d inputs."""
    if not searches(length_scale):
        given_kernel(kernel, length_scale, d)


def check_sample_rows(size: Any) -> None:
    """A whole number ≥ 0."""
    if not isinstance(size, (int, np.integer)) or size < 0:
        raise ValueError(f"sample_rows={size!r} but it must be a whole number ≥ 0.")


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
