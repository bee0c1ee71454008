"""Feature columns of any kernel as a transformer of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array
from rff_stream.arguments import whole
from rff_stream.execution import Reading
from rff_stream.execution.leaves import map_rows
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families import check_whole_space
from rff_stream.families.kernel_request import KernelRequest, length_scale_asked
from rff_stream.families.maps import chosen_map, find_kernel, length_scale_of, make_features
from rff_stream.families.parameters import (
    RULES,
    FeatureChoice,
    check_map_for,
    check_pairs,
    check_parameters,
    seed_of,
)
from rff_stream.features import FeatureMap
from rff_stream.model.input_rows import open_rows
from rff_stream.model.predict import opened_inputs
from rff_stream.sources import Selection
from rff_stream.sources.container_types import is_sparse


@dataclass(eq=False, repr=False)
class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns whose inner products approximate a kernel: z(x)ᵀz(x') ≈ k(x, x').

    The same as ``sklearn.kernel_approximation.RBFSampler`` and ``Nystroem``, for every kernel and
    every map of this package: a linear model on these columns is a kernel machine. ``fit`` reads
    about 16,000 rows to find the length-scale and the centre. It keeps no rows except the
    landmarks of a Nyström map.

    Parameters
    ----------
    kernel : str, Kernel or kernel of scikit-learn, default="gaussian"
        "gaussian" ("rbf"), "laplacian", "cauchy", "matern", … or a value such as
        ``Matern(nu=2.5)``. A kernel with its own length-scale is used as it is.
    n_components : int, default=512
        R, the columns. The error of the kernel falls as 1/√R.
    length_scale : "median", float or (d,) array, default="median"
        In input units; "median" is the median distance between rows of standardised inputs.
        In place of it ``gamma`` is that of RBFSampler, 1/(2·length_scale²).
    gamma : float, optional
        As in :class:`~rff_stream.KernelRidge`.
    features : str, FeatureMap or mapping, default="whole"
        How columns are made, as in :class:`~rff_stream.KernelRidge`: "whole" ("auto" is the
        same here), "fourier", "nystroem", "structured", "qmc", "binning", "hermite", a map that
        you made, or a mapping from column names to maps.
    dtype : {"float32", "float64"}, default="float32"
        Of the columns.
    random_state : int, Generator, RandomState or None, default=None
        The same seed gives the same columns, whatever R.
    missing_rows : {"error", "drop"}, default="error"
        "drop" if rows have missing values: ``fit`` leaves them out, and their columns are NaN.
    missing_chunks : {"auto", "error", "fill"}, default="auto"
        As in :class:`~rff_stream.KernelRidge`.

    Attributes
    ----------
    features_ : FeatureMap
        The map that was drawn: a frozen value. ``transform`` is its columns times √``prior()``.
    length_scale_ : float or (d,) array
        In input units.
    n_features_in_ : int
    feature_names_in_ : (d,) array of str
        Of a DataFrame; a column of categories has a name for each level, "sky=rain".
    columns_ : Columns
        Names of the inputs.

    See Also
    --------
    rff_stream.FourierFeatures : the maps themselves, frozen values. scikit-learn writes to the
        steps of a pipeline, so there a map is the parameter ``features`` of this class.

    Notes
    -----
    For data larger than memory use :class:`~rff_stream.KernelRidge` or another estimator of this
    package: they never hold all columns (n·R numbers) in memory.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> X = np.random.default_rng(0).uniform(-2, 2, (400, 2))
    >>> y = np.sin(2 * X[:, 0]) * X[:, 1]
    >>> columns = rs.KernelFeatures("matern", 256, 1.0, random_state=0)
    >>> make_pipeline(columns, Ridge(0.01)).fit(X, y).score(X, y) > 0.99
    True
    """

    kernel: Any = "gaussian"
    n_components: int = 512
    length_scale: str | ArrayLike = "median"
    _: KW_ONLY
    gamma: float | None = None
    features: FeatureChoice = "whole"
    dtype: Literal["float32", "float64"] = "float32"
    random_state: Any = None
    missing_rows: Literal["error", "drop"] = "error"
    missing_chunks: Literal["auto", "error", "fill"] = "auto"

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        inputs: Sequence[str] | None = None,
        dim: str | Sequence[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Find the scales of the rows and draw the map.

        Parameters
        ----------
        X : array, DataFrame, DataArray, Dataset, Dask collection, Zarr path, URL or group
        y : None
            Ignored; pipelines pass one.
        inputs, dim, storage_options
            As in :meth:`KernelRidge.fit <rff_stream.KernelRidge.fit>`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is wrong; the message names it, and nothing was read.
        """
        check_parameters(self, {**RULES, "n_components": whole(1)})
        check_pairs(self.n_components, self.features)
        check_whole_space(self.features, type(self).__name__)
        if isinstance(self.length_scale, str) and self.length_scale != "median":
            raise ValueError(
                f"length_scale={self.length_scale!r} but there is no target that could choose "
                "one: it is 'median', a number, or one number per input. KernelRidge finds it by "
                "'evidence'; pass on its length_scale_."
            )
        data = Selection(X, inputs=inputs, dim=dim, storage_options=storage_options)
        opened = open_rows(self, data, "none")
        columns, names = opened.columns, opened.feature_names
        chosen = chosen_map(self.features, columns.inputs, self.kernel)
        kernels, d = KernelRequest.of(self.kernel, length_scale_asked(self)), len(columns.inputs)
        check_map_for(chosen, kernels, d)
        seed = seed_of(self.random_state)
        with single_threaded_blas():
            pilot = Reading(opened.source, progress=False).pilot(seed)
            kernel = find_kernel(kernels, pilot, seed, False)
            features = make_features(
                chosen, kernel, self.n_components, pilot, seed=seed, dtype=self.dtype
            )
        self.features_: FeatureMap = features
        self.length_scale_ = length_scale_of(kernel)
        self.columns_, self.n_features_in_ = columns, d
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def transform(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Columns (n, R) of rows, in the container of X; lazy for lazy.

        Parameters
        ----------
        X : as in fit
        storage_options : mapping, optional
            For URLs, as fsspec takes them.

        Returns
        -------
        (n, R) array, or the container of X
            NaN where an input is missing, with ``missing_rows="drop"``. ``set_output`` asks for
            DataFrames.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.
        """
        check_is_fitted(self)
        columns = ScaledColumns(self.features_)
        opened = opened_inputs(self, X, storage_options)
        source = opened.source
        if opened.in_memory and not is_sparse(X):
            with single_threaded_blas():
                return columns(opened.inputs)
        if is_sparse(X):
            return map_rows(source, columns).compute().astype(self.dtype)
        names = tuple(self.get_feature_names_out())
        return source.wrap(map_rows(source, columns), names, ("",) * len(names))

    @property
    def _n_features_out(self) -> int:
        return self.features_.n_components

    def __sklearn_tags__(self) -> Tags:
        """scikit-learn's description of the estimator: ``dtype`` says that of the columns."""
        tags: Tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True, slots=True, eq=False)
class ScaledColumns:
    """x ↦ z(x)·√s, of a map and its prior."""

    features: FeatureMap

    @property
    def width(self) -> int:
        """R."""
        return self.features.n_components

    def __call__(self, x: Array) -> Array:
        Z = self.features(x)
        Z *= np.sqrt(self.features.prior()).astype(Z.dtype)
        return Z
