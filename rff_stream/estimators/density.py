"""Kernel density estimation from one read of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array, Float64, is_named
from rff_stream.answers.bandwidth import (
    MOST_INPUTS,
    MultiScale,
    best_factor,
    effective_size,
    exact_scores,
    scott_factor,
    silverman_factor,
)
from rff_stream.answers.density import Density, DensityEstimate, components_needed, density
from rff_stream.arguments import whole
from rff_stream.contracts import Packed
from rff_stream.errors import warn
from rff_stream.estimators import rows
from rff_stream.estimators.base import Estimator
from rff_stream.estimators.rows import RowsRecipe, kernel_of, positive_numbers
from rff_stream.families import MapParameters
from rff_stream.families.kernel_request import KernelRequest
from rff_stream.families.maps import length_scale_of, scale_of_map
from rff_stream.families.parameters import check_map_for, check_pairs, seed_of
from rff_stream.families.protocol import WHOLE
from rff_stream.features import FeatureMap, FourierFeatures
from rff_stream.kernels import Gaussian, Kernel
from rff_stream.kernels.base import log_integral
from rff_stream.model.fitted import Fitted
from rff_stream.model.predict import values_of_rows
from rff_stream.moments.copies import distinct_rows
from rff_stream.pilot import Pilot
from rff_stream.predictors import AnswerPredictor
from rff_stream.sources import Columns
from rff_stream.stored_fields import pack_fields, unpack_fields

RULES = {"scott": scott_factor, "silverman": silverman_factor}
CANDIDATES = np.geomspace(0.05, 1.5, 40)
"""Candidate bandwidths of cross-validation, relative to Scott's."""

LEAST_FACTOR = 4
"""A warning about too few components advises at least so many times as many: a density that is not
resolved does not tell how many are enough."""

EXACT_ROWS, EXACT_CANDIDATES = 1000, np.geomspace(0.2, 2.0, 24)
"""The same for many inputs, where every candidate costs a million kernel values."""


@dataclass(eq=False, repr=False)
class KernelDensity(DensityMixin, Estimator):  # type: ignore[misc]
    """Kernel density on random features; rows are read once and not kept.

    p̂(x) = z(x)ᵀ diag(s) z̄ / ∫κ: as R grows this tends to ``sklearn.neighbors.KernelDensity``,
    at a cost for each new row that does not grow with the data.

    Parameters
    ----------
    bandwidth : {"scott", "silverman", "cv"}, float or (d,) array, default="scott"
        In input units. The rules "scott" and "silverman" are for one mode and a Gaussian kernel.
        They multiply each input's standard deviation ("silverman": or its interquartile range
        over 1.349 if that is smaller) by a factor that depends on n (for weights: (Σw)²/Σw²).
        "cv" is for several modes; it minimises the integrated squared error on held-out rows.
        For up to 4 inputs this is done after the one read; for more, on 1,000 pilot rows, and
        the result is scaled to n by the rate n^(−1/(d + 4)). Copies of a row count once in n, as
        far as pilot rows (at most 16,384) show them: the map is drawn before the pass, which
        could count them. In a larger table whose rows stand c times in any order, the bandwidth
        is up to c^(1/(d + 4)) too small. Then give a number, or each row once with its weight.
    kernel : str or Kernel, default="gaussian"
        A kernel with a known integral: "gaussian", "laplacian", "cauchy", "matern", … A kernel
        with its own length-scale is used as it is.
    n_components : int, default=4096
        R. The error of p̂ falls as 1/√R, for up to three inputs faster, and is estimated by
        ``density``; tails need a larger R than modes. Cost: R cosines per row.
    features : str, FeatureMap or mapping, default="whole"
        As in :class:`~rff_stream.KernelRidge`, for one map of the whole space; "auto" means "whole"
        here. Of up to four inputs "whole" has the frequencies of "qmc" where the kernel knows their
        quantiles. A map that you give as a value was made for one bandwidth: give the same in
        ``kernel`` and ``bandwidth`` (a number, or the kernel's own), because the integral follows
        from them. Only Fourier maps estimate their own error, and only "whole" can compare all
        candidates of "cv" after one read.
    missing_rows, missing_chunks, dtype, sample_rows, memory, progress, random_state
        As in :class:`~rff_stream.KernelRidge`.

    Attributes
    ----------
    bandwidth_ : float or (d,) array
        The kernel's length-scale, in input units.
    scores_ : (2, F) array
        Candidate bandwidths, relative to the standard deviations of the inputs, and their scores,
        if bandwidth is "cv".
    density_ : Density
        The answer, as a function of feature rows.
    features_, moments_, columns_, n_rows_, n_missing_, plan_
        As in :class:`~rff_stream.KernelRidge`; the moments are of order 1.

    Notes
    -----
    ``density`` marks estimates that are below their own error. A log density is never below that
    of a uniform density over the data's volume, times 1/(n + 1). This limit does not depend on R
    and bandwidth, so you can compare them by ``score``.

    References
    ----------
    Parzen 1962. Rahimi & Recht 2007. Scott 1992; Silverman 1986; Bowman 1984 (least-squares
    cross-validation).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).normal(size=(2000, 1))
    >>> model = rs.KernelDensity(n_components=512, random_state=0).fit(X)
    >>> found = model.density([[0.0]])
    >>> bool(abs(found.density[0] - 0.39) < 3 * found.se[0]), bool(found.below_error[0])
    (True, False)
    """

    bandwidth: str | ArrayLike = "scott"
    kernel: Kernel | str = "gaussian"
    n_components: int = 4096

    fit = rows.fit

    def score_samples(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Log density of every row, in the container of X: lazy for lazy.

        Parameters
        ----------
        X, storage_options : as in fit
            Inputs are matched by name if they have names, else by position.

        Returns
        -------
        (n,) array or DataArray; a Series where ``set_output`` asks for it
            Natural logarithm of the density in 1/(unit of input)ᵈ. With ``missing_rows="drop"`` NaN
            where an input is missing.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.
        """
        check_is_fitted(self)
        function = AnswerPredictor(self.features_, self.density_.log_density)
        return values_of_rows(
            self, X, function, ("log_density",), flat=True, storage_options=storage_options
        )

    def density(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Density of every row with its standard errors.

        Parameters
        ----------
        X, storage_options : as in fit
            Inputs are matched by name if they have names, else by position.

        Returns
        -------
        DensityEstimate of arrays, DataFrame or Dataset
            Fields ``density``, ``se_features``, ``se_data``, ``se`` and ``below_error``:
            whether the density is below its own error.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.
        """
        check_is_fitted(self)
        names, unit = DensityEstimate._fields, unit_of_density(self.columns_)
        function = AnswerPredictor(self.features_, self.density_.columns, len(names))
        units = (unit, unit, unit, unit, "")
        found = values_of_rows(
            self, X, function, names, units, flat=False, storage_options=storage_options
        )
        if hasattr(found, "columns") or hasattr(found, "data_vars"):
            return found
        density, features, data, both = (found[:, i] for i in range(4))
        return DensityEstimate(density, features, data, both, found[:, 4] > 0)

    def score(self, X: Any, y: Any = None) -> float:
        """Sum of the log densities of all rows.

        With ``missing_rows="drop"`` rows without an input are left out. The densities are divided
        by their total mass where the rows of the fit are. With few frequencies this mass is not 1,
        and a larger mass does not mean a better density.

        Parameters
        ----------
        X : as in fit
        y : None
            Ignored; scikit-learn passes one.

        Returns
        -------
        float
            In nats.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If a column of the fit is absent or no number, or a value is missing or infinite.
        """
        found = self.score_samples(X) - self.density_.log_mass
        plain: Any = found.data if hasattr(found, "dims") else found
        total = plain.map_blocks(np.nan_to_num).sum() if hasattr(plain, "map_blocks") else plain
        return float(np.nansum(np.asarray(total, np.float64)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw rows from the density: a sampled row of the data, plus noise of the bandwidth.

        Parameters
        ----------
        n_samples : int
        random_state : int, Generator, RandomState or None

        Returns
        -------
        (n_samples, d) array
            Drawn around the rows that the fit keeps, at most ``sample_rows`` of them.

        Raises
        ------
        ValueError
            For another kernel than the Gaussian, or a model without sampled rows.
        """
        check_is_fitted(self)
        whole(0).check("n_samples", n_samples)
        if not isinstance(kernel_of(self.kernel), Gaussian):
            raise ValueError(
                f"kernel={self.kernel!r} is not the Gaussian, and rows are drawn from that alone, "
                "as in scikit-learn. Use kernel='gaussian'."
            )
        known = self._require_fit().need_sample("and rows are drawn about sampled ones")
        rng, d = np.random.default_rng(seed_of(random_state)), self.n_features_in_
        share = known[:, -1] / known[:, -1].sum()
        around = known[rng.choice(len(known), n_samples, p=share), :d]
        return np.asarray(around + rng.standard_normal((n_samples, d)) * self.bandwidth_)

    def _recipe(self) -> DensityRecipe:
        return DensityRecipe(self, order=1)


def unit_of_density(columns: Columns) -> str:
    """1/(units of the inputs), where all are known."""
    units = columns.units[: len(columns.inputs)]
    return f"1/({' '.join(units)})" if units and all(units) else ""


@dataclass(frozen=True, slots=True, eq=False)
class DensityAnswer:
    """A density, and the bandwidth that it was chosen with."""

    density: Density
    bandwidth: Any  # float or (d,) float64
    scores: Float64 | None = None
    """(2, F), candidate bandwidths and their scores, if they were compared after the pass."""


@dataclass(frozen=True, slots=True, eq=False)
class DensityRecipe(RowsRecipe):
    """The mean feature vector over a known integral; its bandwidth by a rule, or chosen."""

    most_even: ClassVar[int] = 4
    """At 20,000 normal rows the error, over that with orthogonal frequencies, was .002, .13, .5 and
    1.1 for 1, 2, 3 and 5 inputs."""

    def check_columns(self, columns: Columns, parameters: MapParameters) -> None:
        params, d = self.params, len(columns.inputs)
        kernel = kernel_of(params.kernel)
        log_integral(kernel, d)
        check_pairs(params.n_components, params.features)
        own = getattr(kernel, "length_scale", None) is not None
        check_map_for(parameters.features, KernelRequest.of(params.kernel, "median"), d)
        if not (parameters.is_named or own) and isinstance(params.bandwidth, str):
            raise ValueError(
                f"bandwidth={params.bandwidth!r} but features is a map, which was made for one "
                "bandwidth already. Give that as a number, or as the kernel's length-scale."
            )
        positive_numbers("bandwidth", params.bandwidth, d, *RULES, "cv")
        if own and not is_named(params.bandwidth, "scott"):
            raise ValueError(
                f"bandwidth={params.bandwidth!r} but the kernel {kernel!r} has a length-scale. "
                "Give one of the two."
            )
        if is_named(params.bandwidth, "cv") and d > MOST_INPUTS:
            kernel.self_convolution(d)

    def new_map(
        self, pilot: Pilot, parameters: MapParameters, n_rows: int
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        params, bandwidth = self.params, self.params.bandwidth
        kernel, d = kernel_of(params.kernel), pilot.x.shape[1]
        scales: dict[str, Array] = {}
        if not isinstance(bandwidth, str):
            kernel = kernel.with_length_scale(bandwidth)
        elif kernel.length_scale is None:
            _require_spread(pilot, bandwidth)
            pilot.warn_of_outliers()
            pilot.warn_of_wide_gaps("Give bandwidth as numbers.")
            n = effective_size(pilot.x, pilot.w, pilot.without_copies(n_rows))
            whole = is_named(parameters.features, WHOLE)
            if bandwidth == "cv" and d <= MOST_INPUTS and whole:
                return self.several_bandwidths(kernel, pilot, n, parameters.seed)
            spread = pilot.smaller_scale if bandwidth == "silverman" else pilot.scale
            factor, scales = self.factor(kernel, pilot, n)
            kernel = kernel.with_length_scale(spread * factor)
        features, scale = self.map_for(kernel, pilot, parameters)
        return features, scale | scales

    def several_bandwidths(
        self, kernel: Kernel, pilot: Pilot, n: float, seed: int
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        """A map that serves every candidate; one is chosen after the pass."""
        d, params = pilot.x.shape[1], self.params
        several = MultiScale(kernel, scott_factor(n, d) * CANDIDATES, d)
        features = several.features(
            pilot.scale, params.n_components, pilot.origin, seed, params.dtype
        )
        return features, {"length_scale": np.array(1.0), "factors": several.factors}

    def factor(self, kernel: Kernel, pilot: Pilot, n: float) -> tuple[float, dict[str, Array]]:
        """Bandwidth as a share of the inputs' standard deviations; scores of the candidates."""
        d, rule = pilot.x.shape[1], self.params.bandwidth
        if rule != "cv":
            return RULES[str(rule)](n, d), {}
        step = -(-len(pilot.x) // EXACT_ROWS)
        rows = np.column_stack([pilot.x / pilot.scale, pilot.w])[::step]
        rows = distinct_rows(rows, len(rows))
        x, w = rows[:, :-1], rows[:, -1]
        m = effective_size(x, w, len(x))
        candidates = scott_factor(m, d) * EXACT_CANDIDATES
        scores = exact_scores(x - x.mean(axis=0), w, kernel, candidates.tolist())
        rate = float((m / max(n, m)) ** (1 / (d + 4)))
        return best(candidates, scores) * rate, {"scores": np.stack([candidates, scores])}

    def scales_in(self, features: FeatureMap) -> Mapping[str, Array]:
        own = getattr(kernel_of(self.params.kernel), "length_scale", None)
        return {"length_scale": scale_of_map(features) if own is None else np.asarray(own)}

    def answer(self, fitted: Fitted) -> DensityAnswer:
        moments, kernel = fitted.needed_total, self.fitted_kernel(fitted)
        scores, importance = fitted.scales.get("scores"), None
        if "factors" in fitted.scales:
            assert isinstance(fitted.features, FourierFeatures)
            plain = kernel_of(self.params.kernel)
            several = MultiScale(plain, fitted.scales["factors"], fitted.features.n_inputs)
            found = several.scores(fitted.features, moments)
            scores = np.stack([several.factors, found])
            factor = best(several.factors, found)
            importance = several.importance(fitted.features, factor)
            kernel = plain.with_length_scale(fitted.features.scale * factor)
        answer = DensityAnswer(
            density(moments, fitted.features, kernel, importance=importance),
            length_scale_of(kernel),
            scores,
        )
        warn_unresolved(answer, fitted)
        return answer

    def fitted_kernel(self, fitted: Fitted) -> Kernel:
        """The kernel with the bandwidth that the map was drawn for."""
        kernel = kernel_of(self.params.kernel)
        if getattr(kernel, "length_scale", None) is not None:
            return kernel
        return kernel.with_length_scale(fitted.scales["length_scale"])

    def attributes(self, fitted: Fitted) -> dict[str, Any]:
        answer: DensityAnswer = fitted.answer
        found = {"density_": answer.density, "bandwidth_": answer.bandwidth}
        return found if answer.scores is None else found | {"scores_": answer.scores}

    def pack(self, fitted: Fitted) -> Packed:
        found: Density = fitted.answer.density
        finite = max(found.log_lowest, np.finfo(np.float64).min)
        packed = Packed(*pack_fields(replace(found, log_lowest=finite)))
        bandwidth = np.asarray(fitted.answer.bandwidth, np.float64)
        return packed.with_arrays({"bandwidth": bandwidth})

    def restore(self, fitted: Fitted, packed: Packed) -> DensityAnswer:
        before = {"log_lowest": np.full(1, -np.inf), "log_mass": np.zeros(1)}
        found = unpack_fields(Density, {}, {**before, **packed.arrays})
        scale = packed.arrays["bandwidth"]
        return DensityAnswer(found, float(scale) if scale.ndim == 0 else scale)


def best(candidates: Float64, scores: Float64) -> float:
    """The candidate of least score; warns where that is the first or the last."""
    factor, inside = best_factor(candidates, scores)
    if not inside:
        warn(
            f"Cross-validation has no minimum between bandwidths of {candidates[0]:.3g} and "
            f"{candidates[-1]:.3g} standard deviations and chose {factor:.3g}: repeated "
            "rows make it too small, few rows too large. Give bandwidth as a number, or use "
            "'scott'."
        )
    return factor


def warn_unresolved(answer: DensityAnswer, fitted: Fitted) -> None:
    """Warn where R cannot resolve the bandwidth at the rows themselves."""
    x = fitted.needed_total.sample.rows[:256, : fitted.n_inputs]
    if not len(x):
        return
    needed, r = components_needed(answer.density, fitted.features(x)), fitted.features.n_components
    if needed <= r:
        return
    needed = max(needed, LEAST_FACTOR * r)
    more = f"n_components={2 * int(np.ceil(needed / 2))} or " if needed < 1e9 else ""
    warn(
        f"bandwidth_={np.round(answer.bandwidth, 6)} is too small for {r} components: at half of "
        "the rows the density is below twice its own error. "
        f"Use {more}a larger bandwidth."
    )


def _require_spread(pilot: Pilot, rule: Any) -> None:
    """A rule is a share of the spread, so there is one."""
    constant = np.flatnonzero((pilot.x == pilot.x[0]).all(axis=0))
    if len(constant):
        raise ValueError(
            f"bandwidth={rule!r} is relative to the spread of each input, but input {constant[0]} "
            f"is {pilot.x[0, constant[0]]} in all n_samples={len(pilot.x)} pilot rows. Leave the "
            "input out, or give bandwidth as a number."
        )
