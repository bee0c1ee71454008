r"""Feature maps: rows (n, d) -> raw, nested columns (n, R).

Which map when (kin40k: n = 36,000, d = 8, R = 2048, one ARD Gaussian for all; CPU seconds are of
the whole fit; ``tests/accuracy/maps.py`` measures again):

=============  ====================================================  =======  ======  =========
map            when                                                  RMSE     CPU s   ‖K̂ − K‖
=============  ====================================================  =======  ======  =========
orthogonal     any smooth kernel, any d: the default                 .191     3.5     .12
iid, phases    to compare with the literature                         .180     3.3     .13
qmc            d below about 10                                      .179     3.4     .08
structured     d of hundreds: a projection 2 to 3 times cheaper      .175     4.0     .11
nystroem       any kernel with a value; data near a low dimension    .166     7.0     .007
hermite        Gaussian, d up to about 8, inputs without long tails  .163     4.5     .004
binning        Laplacian with R so large that work must not grow     .596 *   3.7     .12
=============  ====================================================  =======  ======  =========

\* its own Laplacian kernel, for which iid Fourier features reach .257: it is there because it is
feature hashing seen as a kernel, not because it is the best map. One seed; more in
``docs/maps.md``.
"""

from __future__ import annotations

import importlib
import pkgutil

from rff_stream.features.base import FeatureMap, MapRequest, map_class, map_from_spec
from rff_stream.features.binning import RandomBinningFeatures
from rff_stream.features.candidates import CandidateFeatures, Candidates
from rff_stream.features.cells import Cells, LocalFeatures
from rff_stream.features.composed import ByColumns, SideBySide, Then, by_columns
from rff_stream.features.encodings import (
    OneHot,
    Periodic,
    PiecewiseLinear,
    Positional,
    Scaled,
    Sphere,
)
from rff_stream.features.fourier import FourierFeatures
from rff_stream.features.functionals import FunctionalFeatures, box_mean, derivative
from rff_stream.features.grid import Grid, GridFeatures
from rff_stream.features.hermite import HermiteFeatures
from rff_stream.features.nystroem import NystroemFeatures
from rff_stream.features.polynomial import PolynomialFeatures
from rff_stream.features.structured import StructuredFeatures

for _file in pkgutil.iter_modules(__path__):  # a map of its own file needs no line here
    importlib.import_module(f"{__name__}.{_file.name}")

__all__ = [
    "ByColumns",
    "CandidateFeatures",
    "Candidates",
    "Cells",
    "FeatureMap",
    "FourierFeatures",
    "FunctionalFeatures",
    "Grid",
    "GridFeatures",
    "HermiteFeatures",
    "LocalFeatures",
    "MapRequest",
    "NystroemFeatures",
    "OneHot",
    "Periodic",
    "PiecewiseLinear",
    "PolynomialFeatures",
    "Positional",
    "RandomBinningFeatures",
    "Scaled",
    "SideBySide",
    "Sphere",
    "StructuredFeatures",
    "Then",
    "box_mean",
    "by_columns",
    "derivative",
    "map_class",
    "map_from_spec",
]
