r"""Feature maps: rows (n, d) -> raw, nested columns (n, R).

Which map to use (kin40k: n = 36,000, d = 8, R = 2048, one ARD Gaussian for all; means of three
seeds; CPU seconds of the whole fit; ``tests/accuracy/maps.py`` repeats the measurement):

=============  ====================================================  =======  ======  =========
map            use it for                                            RMSE     CPU s   ‖K̂ − K‖
=============  ====================================================  =======  ======  =========
orthogonal     any smooth kernel, any d: the default                 .188     10      .11
iid, phases    comparison with the literature                        .184     8       .12
qmc            d below about 10                                      .182     8       .073
structured     d of hundreds: a projection 2 to 3 times cheaper      .180     11      .11
nystroem       any kernel with a value; data near a low dimension    .163     17      .0048
hermite        Gaussian, d up to about 8, inputs without long tails  .165     11      .0026
binning        Laplacian with R too large for R² operations per row  .562 *   8       .19
=============  ====================================================  =======  ======  =========

\* with its own Laplacian kernel, for which iid Fourier features have .279: this map shows
feature hashing as a kernel method and is not the best map. More in
``docs/maps.md``.
"""

from __future__ import annotations

import importlib
import pkgutil

from rff_stream.features.base import FeatureMap, MapRequest, map_class, map_from_spec
from rff_stream.features.binning import RandomBinningFeatures
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
from rff_stream.features.hermite import HermiteFeatures
from rff_stream.features.input_warp import InputWarp
from rff_stream.features.level_intercepts import LevelIntercepts
from rff_stream.features.normal_scores import NormalScores
from rff_stream.features.nystroem import NystroemFeatures
from rff_stream.features.polynomial import PolynomialFeatures
from rff_stream.features.projection import Projection
from rff_stream.features.structured import StructuredFeatures

for _file in pkgutil.iter_modules(__path__):  # a map of its own file needs no line here
    importlib.import_module(f"{__name__}.{_file.name}")

__all__ = [
    "ByColumns",
    "FeatureMap",
    "FourierFeatures",
    "FunctionalFeatures",
    "HermiteFeatures",
    "InputWarp",
    "LevelIntercepts",
    "MapRequest",
    "NormalScores",
    "NystroemFeatures",
    "OneHot",
    "Periodic",
    "PiecewiseLinear",
    "PolynomialFeatures",
    "Positional",
    "Projection",
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
