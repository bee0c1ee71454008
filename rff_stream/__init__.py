"""Kernel machines on data larger than memory.

A feature map turns rows into vectors; one pass adds up their moments; every answer is a
pure function of those moments.

Shapes in all docstrings: n rows, d inputs, R features, T targets, P = R + 1 + T.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ROOMS = {
    "answers.maximum_mean_discrepancy": "drift mmd",
    "cells.map": "Cells LocalFeatures",
    "choice.map": "Candidates",
    "errors": "NumericalWarning",
    "estimators": "GaussianProcessRegressor KernelClassifier KernelDensity KernelFeatures "
    "KernelPCA KernelRegressor KernelRidge NoveltyDetector load",
    "features": "FourierFeatures HermiteFeatures NystroemFeatures RandomBinningFeatures",
    "grid.map": "Grid GridFeatures",
    "kernels": "Cauchy Gaussian Laplacian Matern RationalQuadratic",
    "model.collect": "collect",
    "moments": "Moments",
    "planning": "plan",
    "sources": "HoldOut open_source",
    "store": "MomentStore",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}

if TYPE_CHECKING:
    from rff_stream import from_moments, inspect, losses, plot
    from rff_stream.answers.maximum_mean_discrepancy import drift, mmd
    from rff_stream.cells.map import Cells, LocalFeatures
    from rff_stream.choice.map import Candidates
    from rff_stream.errors import NumericalWarning
    from rff_stream.estimators import (
        GaussianProcessRegressor,
        KernelClassifier,
        KernelDensity,
        KernelFeatures,
        KernelPCA,
        KernelRegressor,
        KernelRidge,
        NoveltyDetector,
        load,
    )
    from rff_stream.features import (
        FourierFeatures,
        HermiteFeatures,
        NystroemFeatures,
        RandomBinningFeatures,
    )
    from rff_stream.grid.map import Grid, GridFeatures
    from rff_stream.kernels import Cauchy, Gaussian, Laplacian, Matern, RationalQuadratic
    from rff_stream.model.collect import collect
    from rff_stream.moments import Moments
    from rff_stream.planning import plan
    from rff_stream.sources import HoldOut, open_source
    from rff_stream.store import MomentStore

__all__ = [
    "Candidates",
    "Cauchy",
    "Cells",
    "FourierFeatures",
    "Gaussian",
    "GaussianProcessRegressor",
    "Grid",
    "GridFeatures",
    "HermiteFeatures",
    "HoldOut",
    "KernelClassifier",
    "KernelDensity",
    "KernelFeatures",
    "KernelPCA",
    "KernelRegressor",
    "KernelRidge",
    "Laplacian",
    "LocalFeatures",
    "Matern",
    "MomentStore",
    "Moments",
    "NoveltyDetector",
    "NumericalWarning",
    "NystroemFeatures",
    "RandomBinningFeatures",
    "RationalQuadratic",
    "__version__",
    "collect",
    "drift",
    "from_moments",
    "inspect",
    "load",
    "losses",
    "mmd",
    "open_source",
    "plan",
    "plot",
]


def __getattr__(name: str) -> Any:
    """Load a room on first use: importing the package stays cheap."""
    if name in ("from_moments", "inspect", "losses", "plot"):
        return importlib.import_module(f"rff_stream.{name}")
    if name in _HOMES:
        found = getattr(importlib.import_module(f"rff_stream.{_HOMES[name]}"), name)
        globals()[name] = found  # asked for once
        return found
    raise AttributeError(f"module 'rff_stream' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
