"""The argument ``kernel=`` (a name, a kernel, one of scikit-learn) -> a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rff_stream.kernels.base import KERNELS, ExactKernel
from rff_stream.kernels.scikit_learn import is_scikit_learn, translate


def kernel_names(*, stationary: bool = False) -> list[str]:
    """Names that :func:`kernel_named` knows: kernels that need no argument, and their aliases.

    Of ``stationary`` ones alone: functions of x − x', which have a spectral measure.
    """
    known: list[tuple[str, Any]] = sorted(KERNELS.by_choice.items())
    return [name for name, make in known if make().stationary or not stationary]


def kernel_named(name: str) -> Any:
    """The kernel of this name, length-scale not set, variance 1.

    "rbf" is the Gaussian; "matern" has ν = 1.5. "polynomial", "arc_cosine" and "chi2" have
    values only: they need Nyström features.
    """
    known: Mapping[str, Any] = KERNELS.by_choice
    if name not in known:
        raise ValueError(
            f"kernel={name!r} but the named kernels are {', '.join(map(repr, sorted(known)))}. "
            "Use one of these, or pass a kernel such as Matern(nu=2.5)."
        )
    return known[name]()


def as_kernel(kernel: Any) -> Any:
    """The kernel that a parameter ``kernel=`` means: by name, as it is, or translated.

    Raises ValueError when a name is not known, or scikit-learn's kernel has no equal here, and
    TypeError when it is none of these.
    """
    if isinstance(kernel, str):
        return kernel_named(kernel)
    if isinstance(kernel, ExactKernel):
        return kernel
    if is_scikit_learn(kernel):
        return translate(kernel)
    raise TypeError(
        f"kernel={kernel!r} is a {type(kernel).__name__}, and a kernel is a name such as "
        "'gaussian', a value such as Matern(nu=2.5), or one of scikit-learn's kernels. To write "
        "one, derive a class from rff_stream.kernels.Kernel."
    )
