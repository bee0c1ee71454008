"""The argument ``kernel=`` (a name, a kernel, one of scikit-learn) -> a kernel."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from rff_stream.kernels.base import KERNELS, ExactKernel, positive
from rff_stream.kernels.chi2 import Chi2
from rff_stream.kernels.constant import Constant
from rff_stream.kernels.from_functions import PairFunction
from rff_stream.kernels.gaussian import Gaussian
from rff_stream.kernels.laplacian import Laplacian
from rff_stream.kernels.linear import Linear
from rff_stream.kernels.matern import Matern
from rff_stream.kernels.polynomial import Polynomial
from rff_stream.kernels.rational_quadratic import RationalQuadratic

MODULE = "sklearn.gaussian_process.kernels"

OF_SCIKIT_LEARN = {
    "precomputed": "means a matrix of n × n values, and no such matrix is made here: rows are read "
    "once, and predictions need them as rows. Give the rows, and as kernel a name, a value or a "
    "function of two rows.",
    "poly": "is (γxᵀx' + 1)³ with γ = 1/d in scikit-learn. Here it is kernel=Polynomial(degree=3, "
    "length_scale=d**0.5), features='polynomial' or 'nystroem', on inputs about their mean.",
    "sigmoid": "is not positive definite, so it is no covariance. Use 'arc_cosine', the kernel of "
    "a wide network, with features='nystroem'.",
    "cosine": "is xᵀx' of rows of length 1. Divide the rows by their length, and give "
    "kernel='linear'.",
}
"""Names of scikit-learn's kernels that mean something else here, or nothing, and what to give."""


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
    if name in OF_SCIKIT_LEARN:
        raise ValueError(f"kernel={name!r} {OF_SCIKIT_LEARN[name]}")
    if name not in known:
        raise ValueError(
            f"kernel={name!r} but the named kernels are {', '.join(map(repr, sorted(known)))}. "
            "Use one of these, or pass a kernel such as Matern(nu=2.5)."
        )
    return known[name]()


def as_kernel(kernel: Any) -> Any:
    """The kernel that a parameter ``kernel=`` means: by name, as it is, or translated.

    A function of two rows is what scikit-learn's KernelRidge takes it for: k(x, x').

    Raises ValueError when a name is not known, or scikit-learn's kernel has no equal here, and
    TypeError when it is none of these.
    """
    if isinstance(kernel, str):
        return kernel_named(kernel)
    if isinstance(kernel, ExactKernel):
        return kernel
    if is_scikit_learn(kernel):
        return translate(kernel)
    if callable(kernel) and not isinstance(kernel, type):
        _check_takes_two_rows(kernel)
        return PairFunction(getattr(kernel, "__name__", type(kernel).__name__), kernel)
    raise TypeError(
        f"kernel={kernel!r} is a {type(kernel).__name__}, and a kernel is a name such as "
        "'gaussian', a value such as Matern(nu=2.5), one of scikit-learn's kernels, or a function "
        "of two rows. To write one, derive a class from rff_stream.kernels.Kernel."
    )


def _check_takes_two_rows(function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # of some functions in C, Python knows none
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"kernel={function!r} has the parameters {signature}: {error}, and a function that is "
            "a kernel takes two rows. Write it as k(x, other)."
        ) from None


def is_scikit_learn(value: Any) -> bool:
    """Whether a value is a kernel of scikit-learn's, or of a class derived from one of them."""
    return any(base.__module__ == MODULE for base in type(value).__mro__)


def translate(kernel: Any) -> Any:
    """The kernel here whose values are those of scikit-learn's kernel.

    RBF, Matern, RationalQuadratic, ConstantKernel, DotProduct, PairwiseKernel of the metrics
    "rbf", "laplacian" and "chi2", and sums, products and whole powers of these. Values are taken
    as they stand: bounds and "fixed" say how scikit-learn searches, and here ``length_scale=``
    and ``alpha=`` say it.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel

    Raises
    ------
    ValueError
        For a kernel that has no equal here, with what to do instead.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> translate(ConstantKernel(2.0) * RBF(0.5))
    Gaussian(length_scale=0.5, variance=2.0)
    """
    builder = _BUILDERS.get(type(kernel).__name__)
    if builder is None or type(kernel).__module__ != MODULE:
        raise _refusal(
            kernel,
            "a class of its own, whose values are not known here",
            "Derive a class from rff_stream.kernels.Kernel that has them",
        )
    return builder(kernel)


def _refusal(kernel: Any, fact: str, remedy: str) -> ValueError:
    return ValueError(f"kernel={kernel!r} is {fact}. {remedy}.")


def _matern(kernel: Any) -> Any:
    scale = kernel.length_scale
    return Gaussian(scale) if kernel.nu == math.inf else Matern(scale, nu=kernel.nu)


def _dot_product(kernel: Any) -> Linear | Polynomial:
    if kernel.sigma_0 == 0:
        return Linear()
    return Polynomial(1.0, degree=1, offset=float(kernel.sigma_0) ** 2)


def _pairwise(kernel: Any) -> Any:
    if kernel.metric == "linear":
        return Linear()
    same = {"rbf": Gaussian(), "laplacian": Laplacian(), "chi2": Chi2()}
    if kernel.metric in same:
        return same[kernel.metric].with_gamma(kernel.gamma)
    raise _refusal(
        kernel,
        f"of the metric {kernel.metric!r}, and those with an equal here are 'rbf', 'laplacian', "
        "'chi2' and 'linear'",
        "Use one of these, or Polynomial or ArcCosine with features='nystroem'",
    )


def _product(kernel: Any) -> Any:
    """A constant factor is the variance of the other."""
    for factor, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
        if type(factor).__name__ == "ConstantKernel":
            return translate(other).scaled(factor.constant_value)
    return translate(kernel.k1) * translate(kernel.k2)


def _power(kernel: Any) -> Any:
    exponent = positive("exponent", kernel.exponent)
    if exponent != int(exponent):
        raise _refusal(
            kernel,
            f"the power {exponent:g} of a kernel, which need not be positive definite",
            "Use a whole power",
        )
    base = translate(kernel.kernel)
    if isinstance(base, Polynomial):
        return Polynomial(1.0, degree=base.degree * int(exponent), offset=base.offset)
    power = base
    for _ in range(int(exponent) - 1):
        power = power * base
    return power


def _white(kernel: Any) -> Any:
    raise _refusal(
        kernel,
        "the noise of single rows, and that is alpha here, not a part of the kernel",
        f"Leave it out and pass alpha={kernel.noise_level:g} (noise={kernel.noise_level:g} for "
        "GaussianProcessRegressor), or leave the noise to the evidence",
    )


def _periodic(kernel: Any) -> Any:
    raise _refusal(
        kernel,
        "a Gaussian kernel of places on a circle, and here the circle is a feature map",
        f"Pass features=Periodic({kernel.periodicity:g}).then(FourierFeatures.sample(Gaussian("
        f"{kernel.length_scale:g}), 2, n_components)) with Periodic from rff_stream.features",
    )


def _compound(kernel: Any) -> Any:
    raise _refusal(
        kernel,
        f"{len(kernel.kernels)} kernels, each with its own matrix, and a model here has one",
        "Fit a model for each of them, or use their sum",
    )


_BUILDERS: dict[str, Callable[[Any], Any]] = {
    "RBF": lambda kernel: Gaussian(kernel.length_scale),
    "Matern": _matern,
    "RationalQuadratic": lambda kernel: RationalQuadratic(
        kernel.length_scale, mixture=kernel.alpha
    ),
    "ConstantKernel": lambda kernel: Constant(kernel.constant_value),
    "DotProduct": _dot_product,
    "PairwiseKernel": _pairwise,
    "Sum": lambda kernel: translate(kernel.k1) + translate(kernel.k2),
    "Product": _product,
    "Exponentiation": _power,
    "WhiteKernel": _white,
    "ExpSineSquared": _periodic,
    "CompoundKernel": _compound,
}
