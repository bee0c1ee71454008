"""Kernels: frozen values with an exact formula and a sampler of their spectral measure.

A shift-invariant kernel k(x, x') = κ(x − x') is the Fourier transform of a measure on
frequencies ω (Bochner): κ(δ) = variance · E cos(ωᵀδ). So each kernel has a formula and a
sampler of ω, and one test compares the two. ``k1 + k2``, ``k1 * k2`` and ``c * k`` are kernels.
Shapes: n and m rows, d inputs.

A kernel is added by one file in this folder: every file here is imported, and every class
derived from :class:`ExactKernel` is known by its name.
"""

from __future__ import annotations

import importlib
import pkgutil

from rff_stream.kernels.approximation_error import approximation_error
from rff_stream.kernels.arc_cosine import ArcCosine
from rff_stream.kernels.base import (
    DotProductKernel,
    ExactKernel,
    Kernel,
    LengthScale,
    RadialKernel,
    kernel_from_spec,
    length_scale_vector,
)
from rff_stream.kernels.cauchy import Cauchy
from rff_stream.kernels.chi2 import Chi2
from rff_stream.kernels.composed import Product, Sum
from rff_stream.kernels.constant import Constant
from rff_stream.kernels.from_functions import PairFunction, UserKernel
from rff_stream.kernels.gaussian import Gaussian
from rff_stream.kernels.kernel_argument import as_kernel, kernel_named, kernel_names, translate
from rff_stream.kernels.laplacian import Laplacian
from rff_stream.kernels.linear import Linear
from rff_stream.kernels.matern import Matern
from rff_stream.kernels.polynomial import Polynomial
from rff_stream.kernels.rational_quadratic import RationalQuadratic

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")

__all__ = [
    "ArcCosine",
    "Cauchy",
    "Chi2",
    "Constant",
    "DotProductKernel",
    "ExactKernel",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "LengthScale",
    "Linear",
    "Matern",
    "PairFunction",
    "Polynomial",
    "Product",
    "RadialKernel",
    "RationalQuadratic",
    "Sum",
    "UserKernel",
    "approximation_error",
    "as_kernel",
    "kernel_from_spec",
    "kernel_named",
    "kernel_names",
    "length_scale_vector",
    "translate",
]
