"""scikit-learn shells around the core: validate -> core -> attributes; no maths."""

from __future__ import annotations

from rff_stream.estimators.base import load
from rff_stream.estimators.classifier import KernelClassifier
from rff_stream.estimators.density import KernelDensity
from rff_stream.estimators.gaussian_process import GaussianProcessRegressor
from rff_stream.estimators.kernel_features import KernelFeatures
from rff_stream.estimators.kernel_pca import KernelPCA
from rff_stream.estimators.kernel_regressor import KernelRegressor
from rff_stream.estimators.kernel_ridge import KernelRidge
from rff_stream.estimators.novelty import NoveltyDetector

__all__ = [
    "GaussianProcessRegressor",
    "KernelClassifier",
    "KernelDensity",
    "KernelFeatures",
    "KernelPCA",
    "KernelRegressor",
    "KernelRidge",
    "NoveltyDetector",
    "load",
]
