"""Kernel ridge regression from one read of the data."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from sklearn.base import MultiOutputMixin, RegressorMixin

from rff_stream._array import Array, Float64
from rff_stream.answers.duplicate_rows import warn_of_copies
from rff_stream.arguments import Rule, numbers_or, whole
from rff_stream.estimators import regression
from rff_stream.estimators.base import Estimator
from rff_stream.estimators.regression import RegressionRecipe, warn_of_residuals
from rff_stream.families import MapParameters, require
from rff_stream.families.kernel_request import LengthScale
from rff_stream.families.linear_answer import LinearAnswer, refine_answer
from rff_stream.families.parameters import FOLDS, RULES, FeatureChoice
from rff_stream.families.protocol import RidgeAnswer
from rff_stream.kernels import Kernel
from rff_stream.model.fitted import Fitted
from rff_stream.model.gradients import importance
from rff_stream.model.recipe import PassResult
from rff_stream.moments.accumulate import SumsDtype
from rff_stream.sources import Columns
from rff_stream.statistics.scores import NormalEquationStatistic, NormalEquationSums
from rff_stream.systems.spectrum import alpha_of_targets

CRITERIA = ("evidence", "cv", "gcv")


@dataclass(eq=False, repr=False)
class KernelRidge(MultiOutputMixin, RegressorMixin, Estimator):  # type: ignore[misc]
    """Kernel ridge regression on random features; any number of rows is read once.

    Minimises Σ w (y − μ − z(x)β)² + α βᵀ diag(1/s) β over the R feature columns; as R
    grows this tends to ``sklearn.kernel_ridge.KernelRidge`` with the same ``alpha``.

    Parameters
    ----------
    kernel : str, Kernel or sequence of Kernel, default="auto"
        "gaussian" ("rbf"), "laplacian", "cauchy", "matern", or a value such as
        ``Matern(nu=2.5)``. A kernel with its own length-scale is used as it is. If you give
        several, the data choose one. A function k(x, x') of two rows, and every kernel that is no
        function of x − x', has Nyström features. "auto": Gaussian, Matérn 1/2, 3/2, 5/2
        and Laplacian compete where the data choose the map (see ``features``), and where one map
        of the whole space is all that serves, as with ``until``, ``stream`` or columns of many
        levels; else it is Gaussian.
    length_scale : float, (d,) array, "auto", "median", "evidence" or "ard", default="auto"
        In input units. "auto" finds them where kernels compete; else it is "median", the median
        distance between rows of inputs divided by their pilot standard deviation. "evidence" (one)
        and "ard" (one per input) maximise the marginal likelihood of pilot rows. Give numbers when
        they are known.
    gamma : float, optional
        scikit-learn's, in place of ``length_scale``: exp(−γ‖x − x'‖²) is the Gaussian of
        length-scale 1/√(2γ); the Laplacian has 1/γ, the polynomial 1/√γ. None: ``length_scale``
        says it (in scikit-learn γ is then 1/d).
    n_components : int, optional
        R of one map of the whole space; if it is given, the map is one, unless ``features`` says
        cells or a grid: they have sizes of their own, ``features=Cells(n_components=…)``. The
        error of the kernel falls as 1/√R, the cost per row grows as R². With √n·log n columns the
        error converges at the rate of the exact method (Rudi & Rosasco 2017). Not given, and with
        a map by name, it is 2048.
    alpha : float, (T,) array, "evidence", "cv" or "gcv", default="evidence"
        Penalty on the scale of ``sklearn.kernel_ridge.KernelRidge``: σ²(noise)/σ²(signal).
        0: least squares, of all solutions that of least norm; for cells a little more than 0.
        "evidence" maximises the marginal likelihood. "cv" minimises the error on held-out runs of
        rows: use it if neighbouring rows are correlated. "gcv" is for independent rows only.
    features : str, FeatureMap or mapping, default="auto"
        "auto": kernels, length-scales, a metric and sizes of cells compete before the read, by
        their errors at left-out rows of the pilot; ``choice_`` says what was compared. Up to 1,536
        rows are one cell whose columns are all rows: the exact process. With ``n_components``,
        ``until`` or ``stream`` it is "whole": one map of cosine/sine pairs (phases for an odd R).
        Its frequencies are orthogonal if the kernel is isotropic, otherwise independent;
        "orthogonal", "fourier" (iid) and "phase" select one of these. "local" (or
        ``Cells(n_components, n_trees, n_cells)``) divides the data into cells that have their own
        columns; the rest is found as with "auto". "grid" (or ``Grid(modes, periods)``) is for
        one to three inputs: sums on a grid of frequencies, from which kernel, length-scales and
        ``alpha`` are found after the read. ``Candidates(maps)`` collects the sums of several maps
        in one read; leave-one-out errors choose one of them, or a weighted mean. For "hermite",
        "nystroem", "qmc", "structured" and
        "binning" see :mod:`rff_stream.features`. A map that you give as a value has its own R and
        kernel. A mapping from columns to maps puts their columns side by side:
        ``{("lat", "lon"): Sphere(), "hour": Periodic(24)}``; other inputs are left out.
    metric : {"auto", "full"}, (d, k) array or None, default="auto"
        A matrix A in front of the map: rows are compared as xA, so that the kernel sees
        combinations of inputs. "auto": in front of cells it is learnt by evidence and taken if
        left-out rows are predicted better than with one length-scale for each input, where
        ``length_scale`` is "auto"; of 49 to 1,000 inputs a few directions are learnt. "full": it is
        learnt and taken, in front of cells or of one map that is drawn by name. A matrix in units
        of 1/input is taken as it is, and ``length_scale`` is that of rows xA: a number keeps the
        scales of its columns.
        None: no metric.
    search_seconds : float, optional
        CPU seconds that the search for kernel, length-scales, metric and cells may take, counted by
        its work on one core, so that a busy machine finds the same. None: as long as the pass that
        is planned, and at least 10 s, but by "evidence" or "ard" of one map until its evidence
        grows no more. ``choice_`` says which candidates were not begun.
    refine : int, default=0
        Conjugate-gradient steps that remove the rounding error of float32 sums. Each step is one
        cheap pass over the data (n·R flops, not n·R²). Use 3 to 5 if ``alpha`` was raised.
    cv : int, default=5
        Folds of ``alpha="cv"``. Each has 16 runs of rows, and its own sums from the one read.
        Where rows stand more than once, runs are of rows in the order of their inputs, so that
        copies share a fold.
    fit_intercept : bool, default=True
        Whether to fit an unpenalised μ. Set False for the model of scikit-learn's KernelRidge.
    missing_rows : {"error", "drop", "indicate"}, default="error"
        "drop" leaves out rows with NaN (land, gaps); predictions of them are NaN. "indicate" takes
        a missing input as information: the input has its median there, and if 64 of the rows that
        are read first lack it, an input "u=missing" says where; rows without a target are left
        out. "error" refuses rows with NaN, wherever they come from and whatever they are for.
    missing_chunks : {"auto", "error", "fill"}, default="auto"
        The meaning of an absent Zarr chunk; see :func:`rff_stream.open_source`.
    dtype : {"float32", "float64"}, default="float32"
        Type of the features. float64 is slower and rarely changes an answer; cells have it
        with ``sums="auto"``, as far as memory allows, where left-out rows show hardly any noise.
    sums : {"auto", "float32", "float64"}, default="auto"
        Type of the sums. "auto" is float64 up to n = 2·10⁵, and beyond where the pilot says that
        the answer needs it and memory allows it. Use float64 if ``alpha`` is raised.
    sample_rows : int, default=2000
        Number of rows that are kept in addition to the moments; 0 keeps none.
    memory : int, optional
        Bytes that a computing process may use; by default all that are available. Cells whose
        number was not given are halved until the fit needs no more; the repr says so.
    progress : bool, default=True
        Show a progress bar for reads longer than two seconds.
    random_state : int, Generator, RandomState or None
        Seed of the frequencies and the pilot.

    Attributes
    ----------
    importance_ : dict of input to float
        The share of each input in the squared slope of the fitted function over its row sample,
        computed when it is asked for; see :func:`rff_stream.inspect.gradient_outer_product`. Of a
        column of levels it is the mean variance of f where they are drawn again.
    features_ : FeatureMap
        The map as it was drawn: ``features_(X)`` are the columns of rows.
    moments_ : Moments
        The sums of the fit, of which every answer is made.
    coef_ : (R,) or (R, T) array
        β of the raw feature columns.
    intercept_ : float or (T,) array
    alpha_ : float or (T,) array
        The penalty that was used; at least the rounding error in the sums.
    df_ : float or (T,) array
        Effective degrees of freedom. R is large enough if df is well below R.
    choice_ : SearchRecord or Choice
        What was compared, with errors at left-out rows, if the data chose the map.
    trend_slopes_ : (d,) or (d, T) array
        Of the line beside the map, in units of y over those of x, if ``choice_`` says "a line + …".
    selection_ : Selection
        Scores of every α, if alpha is "cv" or "gcv".
    length_scale_ : float or (d,) array
        In input units; of a heavy-tailed input that is compared by its normal score, in these.
    columns_ : Columns
        Names and units of inputs and targets.
    n_rows_ : int
        Rows that were used.
    n_missing_ : int
        Rows that were read but not used.
    plan_ : Plan
        Memory, time and traffic, as estimated before the read.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (500, 1)); y = np.sin(2 * X[:, 0])
    >>> model = rs.KernelRidge(length_scale=0.7, n_components=64, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    warns_extrapolation = True

    kernel: Kernel | str | Sequence[Kernel] = "auto"
    length_scale: LengthScale = "auto"
    n_components: int | None = None
    alpha: float | str | Array = "evidence"
    _: KW_ONLY
    cv: int = 5
    refine: int = 0
    gamma: float | None = None
    metric: Any = "auto"
    search_seconds: float | None = None
    fit_intercept: bool = True
    sums: SumsDtype = "auto"
    features: FeatureChoice = "auto"

    fit = regression.fit
    stream = regression.stream
    predict = regression.predict
    score = regression.score
    residuals = regression.residuals
    importance_ = functools.cached_property(importance)
    with_kernel = regression.with_kernel

    def _recipe(self) -> RidgeRecipe:
        return RidgeRecipe(self, penalty=self.alpha, sums=self.sums, chooses=True, searches=True)


@dataclass(frozen=True, slots=True, eq=False)
class RidgeRecipe(RegressionRecipe):
    """Ridge regression: a penalty given, or chosen from the same moments."""

    after_the_pass: ClassVar[frozenset[str]] = frozenset({"alpha", "cv", "fit_intercept", "refine"})

    rules: ClassVar[Mapping[str, Rule]] = {
        **RULES,
        "alpha": numbers_or(
            *CRITERIA,
            words="a number ≥ 0, one number per target, or one of "
            + ", ".join(map(repr, CRITERIA)),
        ),
        "refine": whole(0, "It is a number of steps. Use refine=0."),
    }

    def n_folds(self, n_targets: int) -> int:
        params = self.params
        if not isinstance(params.alpha, str):
            alpha_of_targets(params.alpha, n_targets)  # refused before rows are read
        elif params.alpha == "cv":
            FOLDS.check("cv", params.cv)
            return int(params.cv)
        return 0

    def check_columns(self, columns: Columns, parameters: MapParameters) -> None:
        RegressionRecipe.check_columns(self, columns, parameters)
        if self.params.refine:
            require(parameters.features, "refine", self.params.refine)

    def answer(self, fitted: Fitted) -> RidgeAnswer:
        params = self.params
        if isinstance(params.alpha, str) and params.alpha != "cv" and fitted.total is not None:
            sample = fitted.total.sample
            warn_of_copies(sample.rows, fitted.n_rows, sample.keys)
        found: RidgeAnswer = fitted.family.solve(
            self.totals(fitted),
            params.alpha,
            fit_intercept=params.fit_intercept,
            refine=params.refine,
            variances=False,
        )
        warn_of_residuals(fitted, found, chosen=isinstance(params.alpha, str))
        return found

    def answer_of_pass(self, fitted: Fitted, done: PassResult) -> RidgeAnswer:
        """With conjugate-gradient steps on the exact system; each reads the rows once."""
        params, answer = self.params, self.answer(fitted)
        if not params.refine:
            return answer
        assert isinstance(answer, LinearAnswer)  # of other families refine is refused
        return refine_answer(
            answer,
            self.totals(fitted),
            params.alpha,
            fit_intercept=params.fit_intercept,
            steps=params.refine,
            normal_sums=functools.partial(normal_sums, done),
        )


def normal_sums(
    done: PassResult, coef: Float64, intercept: Float64, *, residuals: bool = False
) -> NormalEquationSums:
    """Σ w z̃ (y − ŷ) and what else refinement needs, by one more pass."""
    statistic = NormalEquationStatistic(done.drawn.features, coef, intercept, residuals)
    sums: NormalEquationSums = done.request.sums(statistic, "refining").value
    return sums
