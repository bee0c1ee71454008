"""Kernels: values that know their exact formula and their own spectral measure.

A shift-invariant kernel k(x, x') = κ(x − x') is the Fourier transform of a measure on
frequencies ω (Bochner): κ(δ) = variance · E cos(ωᵀδ). So each kernel is its formula and a
sampler of ω, and one law tests both. ``k1 + k2``, ``k1 * k2`` and ``c * k`` are kernels.
Shapes: n and m rows, d inputs.
"""

from __future__ import annotations

from rff_stream.kernels.base import ExactKernel, Kernel, LengthScale, length_scale_vector
from rff_stream.kernels.basic import Cauchy, Gaussian, Laplacian
from rff_stream.kernels.composed import Product, Sum, UserKernel
from rff_stream.kernels.error import ApproximationError, approximation_error
from rff_stream.kernels.exact import ArcCosine, Chi2, Polynomial
from rff_stream.kernels.mixtures import Matern, RationalQuadratic
from rff_stream.kernels.named import kernel_from_spec, kernel_named

__all__ = [
    "ApproximationError",
    "ArcCosine",
    "Cauchy",
    "Chi2",
    "ExactKernel",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "LengthScale",
    "Matern",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Sum",
    "UserKernel",
    "approximation_error",
    "kernel_from_spec",
    "kernel_named",
    "length_scale_vector",
]
