"""What estimators of the rows themselves share: their rows, their map, and fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar, TypeVar

import numpy as np

from rff_stream._array import Array, is_named
from rff_stream.arguments import Rule, holds_numbers, whole
from rff_stream.estimators.base import Estimator
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families import DrawnMap, MapParameters, check_whole_space
from rff_stream.families.maps import length_scale_of, make_features
from rff_stream.families.parameters import RULES, check_parameters, seed_of
from rff_stream.families.protocol import WHOLE
from rff_stream.features import FeatureMap
from rff_stream.kernels import Kernel, as_kernel
from rff_stream.leaf_layout import n_rows_of
from rff_stream.model.checked_values import Target
from rff_stream.model.fit import fit as fit_rows
from rff_stream.model.recipe import PassRequest, Recipe
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.sources import Columns, Selection

Model = TypeVar("Model", bound=Estimator)

EVEN = "qmc"
"""Frequencies that fill their measure evenly."""


@dataclass(frozen=True, slots=True, eq=False)
class RowsRecipe(Recipe):
    """Rows without targets; a map of the whole space drawn for the pilot's scales."""

    target: ClassVar[Target] = "none"

    rules: ClassVar[Mapping[str, Rule]] = {**RULES, "n_components": whole(1)}

    most_even: ClassVar[int] = 0
    """The most inputs of which a map of the whole space has even frequencies."""

    @property
    def n_components(self) -> int:
        """R of a map that is to be drawn."""
        return int(self.params.n_components)

    def map_parameters(self, columns: Columns) -> MapParameters:
        return replace(Recipe.map_parameters(self, columns), n_components=self.n_components)

    @abstractmethod
    def new_map(
        self, pilot: Pilot, parameters: MapParameters, n_rows: int
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        """A map for the pilot, and what it was drawn for."""

    def check(self) -> None:
        check_parameters(self.params, self.rules)
        check_whole_space(self.params.features, type(self.params).__name__)

    def draw(self, request: PassRequest) -> DrawnMap:
        seed, columns = seed_of(self.params.random_state), request.opened.columns
        with single_threaded_blas():
            pilot = request.reading.pilot(seed)
            n_rows = round(n_rows_of(request.reading.source) * pilot.valid)
            features, scales = self.new_map(
                pilot, request.drawn_by(seed, self.params.memory), n_rows
            )
            row = augmented_row(features, pilot, columns.inputs, (), columns.units)
        return DrawnMap(features, row, scales)

    def map_for(
        self, kernel: Kernel, pilot: Pilot, parameters: MapParameters
    ) -> tuple[FeatureMap, dict[str, Array]]:
        """The map asked for, drawn for a kernel with its length-scale."""
        size, seed, dtype = parameters.n_components, parameters.seed, parameters.dtype
        asked, d = parameters.features, pilot.x.shape[1]
        if is_named(asked, WHOLE) and d <= self.most_even and kernel.uniforms(1):
            asked = EVEN
        features = make_features(asked, kernel, size, pilot, seed=seed, dtype=dtype)
        return features, {"length_scale": np.asarray(length_scale_of(kernel))}


def fit(
    self: Model,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    inputs: Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    by: Any = None,
    checkpoint: str | PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Model:
    """Fit from one read of the data.

    Parameters
    ----------
    X : array, DataFrame, DataArray, Dataset, Dask collection, Zarr path, URL or group
    y : None
        Ignored; scikit-learn passes one.
    sample_weight, inputs, dim, where, by, checkpoint, storage_options
        As in :meth:`rff_stream.KernelRidge.fit`, which also lists the errors.

    Returns
    -------
    self

    Raises
    ------
    DataError, ValueError
        The message names store, array, chunk, rows or parameter. The model stays as it was.
    PlanError
        If the pass does not fit in memory. Nothing was read.
    """
    data = Selection(X, None, sample_weight, inputs, dim, where, by, storage_options)
    with self._lock():
        return self._set_fit(fit_rows(self._recipe(), data, checkpoint))


def kernel_of(kernel: Kernel | str) -> Kernel:
    """A kernel by name or as a value; refuses one without frequencies."""
    found: Kernel = as_kernel(kernel)
    if not found.stationary:
        raise ValueError(
            f"kernel={kernel!r} is no function of x − x', and a density needs one. Use "
            "'gaussian', 'laplacian', 'cauchy', 'matern' or a kernel like them."
        )
    return found


def positive_numbers(name: str, value: Any, d: int, *rules: str) -> None:
    """Refuse what is neither one of the rules nor one number > 0, or one for each input."""
    known = [*map(repr, rules), "a number > 0", "one number > 0 per input"]
    values = np.asarray(value if holds_numbers(value) else np.nan, np.float64)
    fine = values.shape in ((), (d,)) and bool((np.isfinite(values) & (values > 0)).all())
    if not (isinstance(value, str) and value in rules) and not fine:
        raise ValueError(
            f"{name}={value!r} but it must be {', '.join(known[:-1])} or {known[-1]} (here {d})."
        )
