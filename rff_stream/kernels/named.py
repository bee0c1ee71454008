"""Kernels by name and from their specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from rff_stream.errors import ModelError
from rff_stream.kernels.basic import Cauchy, Gaussian, Laplacian
from rff_stream.kernels.composed import Product, Sum, UserKernel
from rff_stream.kernels.exact import ArcCosine, Chi2, Polynomial
from rff_stream.kernels.mixtures import Matern, RationalQuadratic

__all__ = ["kernel_from_spec", "kernel_named"]

_SHIPPED: dict[str, Callable[..., Any]] = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "cauchy": Cauchy,
    "matern": Matern,
    "rational_quadratic": RationalQuadratic,
    "polynomial": Polynomial,
    "arc_cosine": ArcCosine,
    "chi2": Chi2,
}
_COMPOSED: dict[str, Callable[..., Any]] = {"sum": Sum, "product": Product}


def kernel_named(name: str) -> Any:
    """The kernel of this name, length-scale not set, variance 1.

    Parameters
    ----------
    name : {"gaussian", "rbf", "laplacian", "cauchy", "matern", "rational_quadratic", …}
        "rbf" is the Gaussian; "matern" has ν = 1.5. "polynomial", "arc_cosine" and "chi2" have
        values only: they need Nyström features.
    """
    known = _SHIPPED | {"rbf": Gaussian}
    if name not in known:
        raise ValueError(
            f"kernel={name!r} but the named kernels are {', '.join(map(repr, sorted(known)))}. "
            "Use one of these, or pass a kernel such as Matern(nu=2.5)."
        )
    return known[name]()


def kernel_from_spec(spec: Mapping[str, Any]) -> Any:
    """The kernel that gave this ``spec()``.

    A :class:`UserKernel` comes back by its name, without its functions.

    Raises
    ------
    ModelError
        When the spec names no kernel of this version or has other fields than it.
    """
    name, fields = spec.get("kernel"), dict(spec)
    if name in _COMPOSED:
        _check_fields(name, fields, {"kernel", "length_scale", "parts"})
        parts = tuple(kernel_from_spec(part) for part in fields["parts"])
        return _COMPOSED[name](parts, length_scale=fields["length_scale"])
    if name == "user":
        _check_fields(name, fields, UserKernel("").spec().keys())
        return UserKernel(**{key: fields[key] for key in fields.keys() - {"kernel"}})
    if name not in _SHIPPED:
        raise ModelError(
            f"The spec names kernel {name!r} but this version has "
            f"{', '.join([*_SHIPPED, *_COMPOSED])}. "
            "Upgrade rff_stream, or check where the spec comes from."
        )
    _check_fields(name, fields, _SHIPPED[name]().spec().keys())
    del fields["kernel"]
    return _SHIPPED[name](**fields)


def _check_fields(name: str, fields: Mapping[str, Any], needed: Set[str]) -> None:
    if fields.keys() != needed:
        raise ModelError(
            f"The spec of a {name} kernel has fields {sorted(fields)} but needs "
            f"{sorted(needed)}. Check where the spec comes from."
        )
