"""Kernel principal components from one read of the data."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.spatial import KDTree
from scipy.spatial.distance import pdist
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array
from rff_stream.answers.principal_components import Components, components, pre_images
from rff_stream.arguments import POSITIVE, Rule, array_of, truth, whole
from rff_stream.contracts import Packed
from rff_stream.estimators import rows
from rff_stream.estimators.base import Estimator
from rff_stream.estimators.rows import RowsRecipe, positive_numbers
from rff_stream.families import MapParameters
from rff_stream.families.kernel_request import length_scale_asked
from rff_stream.families.maps import find_kernel, n_columns
from rff_stream.families.parameters import RULES, check_pairs
from rff_stream.features import FeatureMap, derivative
from rff_stream.kernels import ExactKernel, Kernel, as_kernel
from rff_stream.kernels.base import positive
from rff_stream.model.fitted import Fitted
from rff_stream.model.predict import values_of_rows
from rff_stream.pilot import Pilot
from rff_stream.predictors import AnswerPredictor
from rff_stream.sources import Columns
from rff_stream.stored_fields import pack_fields, unpack_fields

MOST_PAIRED = 500
"""Sampled rows whose distances from each other have the median that is used: 1 MB."""


FINITE = Rule(
    "finite, where the search starts at the nearest row",
    lambda value: True,
    lambda value: bool(np.isfinite(value).all()),
    "Leave out other rows, or give a start.",
)


@dataclass(eq=False, repr=False)
class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):  # type: ignore[misc]
    """Principal components in feature space; any number of rows is read once.

    The components are eigenvectors of the centred ZᵀZ. Up to signs they are those of
    ``sklearn.decomposition.KernelPCA`` with the kernel Z diag(s) Zᵀ, without an n×n matrix.

    Parameters
    ----------
    n_components : int or None, default=2
        q, the components to keep; at most ``n_map_components``. None: all whose variance is not 0.
    kernel : str or Kernel, default="gaussian"
        As in :class:`~rff_stream.KernelRidge`.
    length_scale : "median", float or (d,) array, default="median"
        In input units; see :class:`~rff_stream.KernelRidge`.
    n_map_components : int, default=2048
        R of the map. The error of a component falls as 1/√R.
    gamma : float, optional
        As in :class:`~rff_stream.KernelRidge`.
    fit_inverse_transform : bool, default=False
        How :meth:`inverse_transform` goes back. False: rows whose features are nearest, a search
        for each row. True: kernel ridge regression of the sampled rows on their coordinates, as in
        scikit-learn; faster, and a mean of rows where the first finds one row.
    alpha : float, default=1.0
        The penalty of this regression.
    features : str or FeatureMap, default="whole"
        As in :class:`~rff_stream.KernelRidge`, for one map of the whole space; "auto" is "whole"
        here.
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

    n_components: int | None = 2
    kernel: Kernel | str = "gaussian"
    length_scale: str | ArrayLike = "median"
    n_map_components: int = 2048
    _: KW_ONLY
    gamma: float | None = None
    fit_inverse_transform: bool = False
    alpha: float = 1.0

    fit = rows.fit

    def transform(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Coordinates (n, q) of rows along the components; lazy for lazy.

        Parameters
        ----------
        X, storage_options : as in fit
            Inputs are matched by name if they have names, else by position.

        Returns
        -------
        (n, q) array, DataFrame or Dataset
            In units of √κ(0); with ``missing_rows="drop"`` NaN where an input is missing.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.
        """
        check_is_fitted(self)
        function = AnswerPredictor(self.features_, self.components_, self._n_features_out)
        names = tuple(self.get_feature_names_out())
        return values_of_rows(self, X, function, names, flat=False, storage_options=storage_options)

    def inverse_transform(self, T: Any, start: Any = None) -> Array:
        """Rows (n, d) whose features are nearest to these coordinates: pre-images.

        With ``fit_inverse_transform=True`` they are predicted from the coordinates.

        Parameters
        ----------
        T : (n, q) array
            Coordinates, as :meth:`transform` gives them.
        start : (n, d) array, optional
            Rows at which the search starts, such as the noisy rows. By default the search for each
            row starts at the sampled row with the nearest coordinates.

        Returns
        -------
        (n, d) array

        Raises
        ------
        TypeError, ValueError
            If T or the start have another shape or hold no numbers, if there is no start and no
            row sample, or if the map has no derivatives.

        References
        ----------
        Mika et al. 1999. Bakir, Weston & Schölkopf 2004 (prediction of pre-images).
        """
        check_is_fitted(self)
        d, q = self.n_features_in_, self._n_features_out
        array_of(
            f"an array of numbers (n, {q})", None, q, remedy="Give what transform gives."
        ).check("T", T)
        coordinates = np.asarray(T, np.float64)
        n = len(coordinates)
        array_of(
            f"an array of numbers ({n}, {d})", n, d, remedy="Give a row for each row of T.",
            optional=True,
        ).check("start", start)  # fmt: skip
        if self.fit_inverse_transform:
            return self.rows_of_coordinates_(coordinates)
        try:
            derivative(self.features_, 0)
        except ValueError:
            raise ValueError(
                f"{self.features_!r} has no slopes, by which inverse_transform searches for rows. "
                "Fit with fit_inverse_transform=True, or use Fourier features."
            ) from None
        if start is None:
            FINITE.check("T", coordinates)
            rows, known = self._sampled_rows("Give a start, or fit")
            start = rows[KDTree(known).query(coordinates)[1]]
        return pre_images(self.features_, self.components_, coordinates, np.asarray(start))

    def _sampled_rows(self, remedy: str) -> tuple[Array, Array]:
        """The sampled rows (m, d) and their coordinates (m, q)."""
        sample = self._require_fit().need_sample(
            "and sampled rows are where the way back begins",
            f"{remedy} with sample_rows=2000 and save with moments=True.",
        )
        rows = sample[:, : self.n_features_in_]
        return rows, self.components_(self.features_(rows).astype(np.float64))

    @functools.cached_property
    def rows_of_coordinates_(self) -> RowsOfCoordinates:
        """What ``inverse_transform`` predicts rows by, with ``fit_inverse_transform``."""
        rows, known = self._sampled_rows("Fit")
        return RowsOfCoordinates.of(rows, known, as_kernel(self.kernel), self.alpha)

    @property
    def _n_features_out(self) -> int:
        return len(self.explained_variance_)

    def _recipe(self) -> ComponentsRecipe:
        return ComponentsRecipe(self)


@dataclass(frozen=True, slots=True, eq=False)
class RowsOfCoordinates:
    """Kernel ridge regression of rows on their coordinates."""

    coordinates: Array  # (m, q)
    weights: Array  # (m, d): (K + αI)⁻¹ rows
    kernel: ExactKernel

    @classmethod
    def of(cls, rows: Array, coordinates: Array, kernel: ExactKernel, alpha: float) -> Self:
        """At the median distance of coordinates; a kernel with a length-scale keeps it."""
        if kernel.length_scale is None:
            kernel = kernel.with_length_scale(float(np.median(pdist(coordinates[:MOST_PAIRED]))))
        values = kernel(coordinates, coordinates)
        values[np.diag_indices(len(values))] += positive("alpha", alpha)
        return cls(coordinates, linalg.solve(values, rows, assume_a="pos"), kernel)

    def __call__(self, coordinates: Array) -> Array:
        """Rows (n, d) at coordinates (n, q)."""
        return np.asarray(self.kernel(coordinates, self.coordinates) @ self.weights)


@dataclass(frozen=True, slots=True, eq=False)
class ComponentsRecipe(RowsRecipe):
    """Eigenvectors of the centred second moments."""

    after_the_pass: ClassVar[frozenset[str]] = frozenset({"alpha", "fit_inverse_transform"})

    rules: ClassVar[Mapping[str, Rule]] = {
        **RULES,
        "n_map_components": whole(1),
        "fit_inverse_transform": truth(),
        "alpha": POSITIVE,
    }

    @property
    def n_components(self) -> int:
        return int(self.params.n_map_components)

    def check_columns(self, columns: Columns, parameters: MapParameters) -> None:
        params, d = self.params, len(columns.inputs)
        check_pairs(params.n_map_components, params.features)
        most = n_columns(parameters.features, params.n_map_components)
        if params.n_components is not None and params.n_components > most:
            raise ValueError(
                f"n_components={params.n_components} but the map has {most} columns. Ask "
                "for fewer components, or raise n_map_components."
            )
        if as_kernel(params.kernel).length_scale is None:
            positive_numbers("length_scale", length_scale_asked(params), d, "median")

    def new_map(
        self, pilot: Pilot, parameters: MapParameters, n_rows: int
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        kernel = find_kernel(parameters.kernels, pilot, parameters.seed, parameters.progress)
        return self.map_for(kernel, pilot, parameters)

    def answer(self, fitted: Fitted) -> Components:
        whole, params = fitted.needed_total, self.params.n_components
        if params is not None:
            return components(whole, params)
        found = components(whole, max(min(whole.row.n_features, whole.n - 1), 1))
        some = found.variance > 0
        return replace(found, rotation=found.rotation[:, some], variance=found.variance[some])

    def attributes(self, fitted: Fitted) -> dict[str, Any]:
        found: Components = fitted.answer
        return {
            "components_": found,
            "explained_variance_": found.variance,
            "explained_variance_ratio_": found.variance_ratio,
            "eigenvalues_": found.variance * found.weight,
            "length_scale_": fitted.length_scale,
        }

    def pack(self, fitted: Fitted) -> Packed:
        found: Components = fitted.answer
        totals = {"totals": np.array([found.total_variance, found.weight])}
        return Packed(*pack_fields(found)).with_arrays(totals | fitted.stored_scale)

    def restore(self, fitted: Fitted, packed: Packed) -> Components:
        total, weight = packed.arrays["totals"].tolist()
        return unpack_fields(Components, {}, packed.arrays, total_variance=total, weight=weight)
