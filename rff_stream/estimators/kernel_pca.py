"""Kernel principal components from one read of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array
from rff_stream.answers.components import Components, components
from rff_stream.estimators.mapping import (
    FeatureChoice,
    check_n_components,
    find_kernel,
    length_scale_of,
    make_features,
    n_columns,
)
from rff_stream.estimators.unsupervised import StreamedMean, kernel_of, positive_numbers
from rff_stream.features import FeatureMap
from rff_stream.kernels import Kernel
from rff_stream.moments import Moments
from rff_stream.pilot import Pilot
from rff_stream.predictor import AnswerPredictor

__all__ = ["KernelPCA"]


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StreamedMean):  # type: ignore[misc]
    """Principal components in feature space: rows are read once, in any amount.

    Eigenvectors of the centred ZᵀZ: equal, up to signs, to ``sklearn.decomposition.KernelPCA``
    on the kernel Z diag(s) Zᵀ, without an n×n matrix.

    Parameters
    ----------
    n_components : int, default=2
        q, the components to keep; at most ``n_map_components``.
    kernel : str or Kernel, default="gaussian"
        As in :class:`~rff_stream.KernelRidge`.
    length_scale : "median", float or (d,) array, default="median"
        In input units; see :class:`~rff_stream.KernelRidge`.
    n_map_components : int, default=2048
        R of the map. The error of a component falls as 1/√R.
    features : str or FeatureMap, default="auto"
        As in :class:`~rff_stream.KernelRidge`.
    missing_rows, missing_chunks, dtype, sample_rows, memory, progress, random_state
        As in :class:`~rff_stream.KernelRidge`.

    Attributes
    ----------
    explained_variance_ : (q,) array
        Variance of the rows along each component, in units of κ(0), decreasing.
    explained_variance_ratio_ : (q,) array
        Share of the variance of all R components.
    eigenvalues_ : (q,) array
        Of the centred kernel matrix: variance times Σw.
    components_ : Components
        The answer, as a function of feature rows.
    length_scale_ : float or (d,) array
    features_, moments_, columns_, n_rows_, n_missing_, plan_
        As in :class:`~rff_stream.KernelRidge`; the moments have no targets.

    References
    ----------
    Schölkopf, Smola & Müller 1998. Lopez-Paz et al. 2014 (random features).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = rs.KernelPCA(n_components=2, n_map_components=256, random_state=0).fit(X)
    >>> model.transform(X).shape
    (300, 2)
    """

    def __init__(
        self,
        n_components: int = 2,
        kernel: Kernel | str = "gaussian",
        length_scale: str | ArrayLike = "median",
        n_map_components: int = 2048,
        *,
        features: FeatureChoice = "auto",
        missing_rows: Literal["error", "drop"] = "error",
        missing_chunks: Literal["auto", "error", "fill"] = "auto",
        dtype: Literal["float32", "float64"] = "float32",
        sample_rows: int = 2000,
        memory: int | None = None,
        progress: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.length_scale = length_scale
        self.n_map_components = n_map_components
        self.features = features
        self.missing_rows = missing_rows
        self.missing_chunks = missing_chunks
        self.dtype = dtype
        self.sample_rows = sample_rows
        self.memory = memory
        self.progress = progress
        self.random_state = random_state

    def transform(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Coordinates (n, q) of rows along the components; lazy for lazy.

        Returns
        -------
        (n, q) array, DataFrame or Dataset
            In units of √κ(0); NaN where an input is missing.
        """
        check_is_fitted(self)
        function = AnswerPredictor(self.features_, self.components_, self._n_features_out)
        names = tuple(self.get_feature_names_out())
        units = ("",) * len(names)
        return self._values(X, function, names, units, flat=False, storage_options=storage_options)

    @property
    def _n_features_out(self) -> int:
        return len(self.explained_variance_)

    def _order(self) -> int:
        return 2

    def _n_map(self) -> int:
        return n_columns(self._chosen, self.n_map_components)

    def _check(self, d: int) -> None:
        check_n_components(self.n_map_components, self.features)
        if self.n_components > self._n_map():
            raise ValueError(
                f"n_components={self.n_components} but the map has {self._n_map()} columns. Ask "
                "for fewer components, or raise n_map_components."
            )
        kernel = kernel_of(self.kernel)
        if getattr(kernel, "length_scale", None) is None:
            positive_numbers("length_scale", self.length_scale, d, "median")

    def _make_features(self, pilot: Pilot, n_rows: int, seed: int) -> FeatureMap:
        scale: Any = self.length_scale
        kernel = find_kernel(kernel_of(self.kernel), scale, pilot, seed, self.progress)
        self.length_scale_ = length_scale_of(kernel)
        return make_features(
            self._chosen, kernel, self.n_map_components, pilot, seed=seed, dtype=self.dtype
        )

    def _solve(self, folds: Mapping[Any, Moments]) -> None:
        self._set(components(self.moments_, self.n_components))

    def _set(self, found: Components) -> None:
        self.components_ = found
        self.explained_variance_ = found.variance
        self.explained_variance_ratio_ = found.variance_ratio
        self.eigenvalues_ = found.variance * found.weight

    def _arrays(self) -> dict[str, Array]:
        found = self.components_
        return {
            "rotation": np.ascontiguousarray(found.rotation),
            "feature_mean": found.feature_mean,
            "variance": found.variance,
            "totals": np.array([found.total_variance, found.weight]),
            "length_scale": np.asarray(self.length_scale_, np.float64),
        }

    def _restore(self, arrays: Mapping[str, Array]) -> None:
        total, weight = arrays["totals"].tolist()
        self._set(
            Components(
                arrays["rotation"], arrays["feature_mean"], arrays["variance"], total, weight
            )
        )
        scale = arrays["length_scale"]
        self.length_scale_ = float(scale) if scale.ndim == 0 else scale
