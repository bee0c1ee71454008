"""Every α for every target, R' and fold from one read: paths, cross-validation, GCV, tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.ridge import Ridge, ridge_at
from rff_stream.moments import Moments, total
from rff_stream.moments.copies import Observations
from rff_stream.moments.moments import AnyMoments
from rff_stream.notebook_display import Card, table
from rff_stream.systems.normal_equations import ridge_system, scatter_about
from rff_stream.systems.spectrum import (
    Floor,
    Spectrum,
    degrees_of_freedom,
    largest_eigenvalue,
    rounding_floor,
    spectrum,
)

N_ALPHAS = 66
"""Points of the default grid: five for each of thirteen decades."""

LOWEST, HIGHEST = 1e-12, 10.0
"""Ends of the default grid, relative to λ_max. If η is above the lower one, the grid starts at
η."""

BLOCK_COLUMNS = 1024
"""Coefficient columns (α × targets) in memory at once."""

Rule = Literal["best", "one_standard_error"]
"""The smallest score, or the simplest model within one standard error of it."""

SIMPLEST = "the simplest within one standard error of the best"


@dataclass(frozen=True, slots=True, eq=False)
class RidgePath:
    """Ridge regression at every α, from one decomposition."""

    alphas: Float64  # (A,): increasing; none below η
    df: Float64  # (A,): effective degrees of freedom
    residual_scatter: Float64  # (A, T): Σ w (y − μ − zβ)², in units of w·y²
    spectrum: Spectrum  # what at solves from

    def at(self, alpha: Array | float, *, floor: Floor = "raise_alpha") -> Ridge:
        """The regression at any α, one or one for each target; 2R²T flops."""
        return ridge_at(self.spectrum, alpha, floor=floor)


def ridge_path(
    moments: Moments, alphas: Array | None = None, *, fit_intercept: bool = True
) -> RidgePath:
    """Ridge regressions over a grid of α for all targets: O(R) each after one decomposition.

    Parameters
    ----------
    moments : Moments
        Order 2, with targets.
    alphas : (A,) array, optional
        Penalties > 0; 66 from the spectrum where absent. Those below η are left out.
    fit_intercept : bool
        Fit an unpenalised μ.

    Returns
    -------
    RidgePath

    Raises
    ------
    ValueError
        If every penalty is below the rounding of the sums.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).uniform(-2, 2, (600, 1))
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(0.7), 1, 64, rng=0)
    >>> path = ridge_path(rs.collect(features, x, np.sin(3 * x[:, 0])))
    >>> bool((np.diff(path.df) < 0).all())  # the larger α, the stiffer the fit
    True
    """
    found = spectrum(moments, fit_intercept=fit_intercept)
    grid = alpha_grid(found.eigenvalues) if alphas is None else _checked_alphas(alphas)
    grid = grid[grid >= found.eta]
    if not len(grid):
        raise ValueError(
            f"Every alpha is below η={found.eta:.3g}, the rounding in the sums. "
            'Give larger ones, or collect the moments with sums="float64".'
        )
    return RidgePath(grid, found.df(grid), _residual_scatter(found, grid), found)


def cross_validate(
    groups: Mapping[Hashable, Moments],
    alphas: Array | None = None,
    *,
    sizes: Sequence[int] | None = None,
    folds: int | None = None,
    fit_intercept: bool = True,
    rule: Rule = "best",
) -> Selection:
    """Exact cross-validation over α × R' × targets from the moments of groups of rows.

    Each fold is scored with the model of the *other* groups, whose moments are summed and
    never subtracted; its squared error is a quadratic form in its own moments.

    Parameters
    ----------
    groups : mapping of label to Moments
        At least two, each with rows; of one feature map.
    alphas : (A,) array, optional
        Penalties > 0; 66 from the spectrum where absent.
    sizes : sequence of int, optional
        R' to compare; R/16, R/8, R/4, R/2, R where absent and the map nests.
    folds : int, optional
        Join neighbouring groups into this many folds. By default each group is a fold:
        leave-one-group-out.
    fit_intercept : bool
        Fit an unpenalised μ, in each fold from its training groups.
    rule : {"best", "one_standard_error"}
        The second takes the smallest R', then the largest α, within one standard error
        of the best: where a simpler model is worth that loss.

    Returns
    -------
    Selection
        Mean squared errors (weighted in a fold, plain over folds) with standard errors
        over folds.

    Raises
    ------
    ValueError
        Fewer than two groups, fewer groups than folds, a group without rows, an α that is
        no penalty.

    Notes
    -----
    One decomposition for each fold and R', and 4R'²·A·T flops; 2 log₂(groups) sums of
    moments are held. Equal to scikit-learn's ``PredefinedSplit`` with
    ``Ridge(alpha=α/s)`` on the same features.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).uniform(-2, 2, (600, 1))
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(0.7), 1, 64, rng=0)
    >>> folds = rs.collect(features, x, np.sin(3 * x[:, 0]), folds=5)
    >>> cross_validate(folds).best.n_components <= 64
    True
    """
    labels, parts = _as_folds(groups, folds)
    whole = total(parts)
    sizes = nested_sizes(whole) if sizes is None else tuple(sizes)
    eigenvalues, scatter = _eigenvalues(whole, sizes, fit_intercept)
    grid = alpha_grid(eigenvalues[-1]) if alphas is None else _checked_alphas(alphas)
    scores = np.empty((len(parts), len(sizes), len(grid), whole.row.n_targets))
    eta = np.array([rounding_floor(values) for values in eigenvalues])
    for k, others in sums_of_others(parts):
        for j, size in enumerate(sizes):
            found = spectrum(others.leading(size), fit_intercept=fit_intercept)
            scores[k, j] = _held_out_error(found, parts[k].leading(size), grid)
            eta[j] = max(eta[j], found.eta)
    return Selection(
        criterion="cross-validated mean squared error",
        targets=whole.row.targets,
        folds=labels,
        sizes=sizes,
        alphas=grid,
        scores=scores,
        scale=_positive(scatter / whole.weight),
        df=np.array([degrees_of_freedom(v, grid, fit_intercept) for v in eigenvalues]),
        eta=eta,
        rule=rule,
    )


def gcv(
    moments: Moments,
    alphas: Array | None = None,
    *,
    sizes: Sequence[int] | None = None,
    fit_intercept: bool = True,
) -> Selection:
    """Generalised cross-validation over α × R': (RSS/Σw) / (1 − df/n)², in units of y².

    It assumes independent rows: duplicated or correlated rows make it choose α far too
    small. Use :func:`cross_validate` on whole runs of rows there.
    """
    sizes = nested_sizes(moments) if sizes is None else tuple(sizes)
    spectra = [spectrum(moments.leading(m), fit_intercept=fit_intercept) for m in sizes]
    grid = alpha_grid(spectra[-1].eigenvalues) if alphas is None else _checked_alphas(alphas)
    df = np.array([found.df(np.maximum(grid, found.eta)) for found in spectra])
    n = Observations.of(moments).n
    scores = [
        _residual_scatter(found, grid) / moments.weight / held[:, None] ** 2
        for found, held in zip(spectra, np.maximum(1 - df / n, 1 / n), strict=True)
    ]
    return Selection(
        criterion="GCV",
        targets=moments.row.targets,
        folds=(),
        sizes=sizes,
        alphas=grid,
        scores=np.array(scores)[None],
        scale=_positive(spectra[-1].system.target_scatter / moments.weight),
        df=df,
        eta=np.array([found.eta for found in spectra]),
        rule="best",
    )


def alpha_grid(eigenvalues: Float64) -> Float64:
    """66 α, log-spaced from max(η, 10⁻¹²λ_max) to 10λ_max: df from near R to a few."""
    largest = largest_eigenvalue(eigenvalues)
    lowest = max(rounding_floor(eigenvalues), largest * LOWEST)
    return np.geomspace(lowest, max(largest * HIGHEST, 10 * lowest), N_ALPHAS)


def nested_sizes(moments: Moments) -> tuple[int, ...]:
    """R/16, R/8, R/4, R/2, R, even (whole pairs), without repeats; R alone if not nested."""
    r = moments.row.n_features
    if moments.row.nesting == "none":
        return (r,)
    smaller = {2 * round(r / 2 ** (k + 1)) for k in range(1, 5)}
    return (*sorted(size for size in smaller if 2 <= size < r), r)


def _residual_scatter(found: Spectrum, alphas: Float64) -> Float64:
    """Σ w r² (A, T) for each α, which is η where it is below."""
    ones = np.ones(found.system.n_targets)
    return np.array([found.residual_scatter(max(a, found.eta) * ones) for a in alphas])


def _held_out_error(found: Spectrum, held: Moments, alphas: Float64) -> Float64:
    """Weighted mean squared error (A, T) on held-out rows, from their moments alone.

    Σ w (y − μ − zβ)² = βᵀAβ − 2βᵀB + C with the scatter of the held-out rows about the
    *training* means. α below η counts as η.
    """
    system = found.system
    scatter = scatter_about(held, system.feature_mean, system.target_mean)
    used = np.maximum(alphas, found.eta)
    step = max(1, BLOCK_COLUMNS // len(used))
    blocks = [slice(t, t + step) for t in range(0, system.n_targets, step)]
    errors = [_squared_error(found, used, scatter, block) for block in blocks]
    return np.asarray(np.concatenate(errors, axis=1) / held.weight)


def _squared_error(
    found: Spectrum, alphas: Float64, scatter: tuple[Float64, Float64, Float64], block: slice
) -> Float64:
    """βᵀAβ − 2βᵀB + C (A, targets of the block), not below 0."""
    matrix, cross, squares = scatter
    gamma = found.rhs[:, None, block] / (found.eigenvalues[:, None] + alphas)[..., None]
    flat = found.rotation @ gamma.reshape(len(gamma), -1)  # (R, A·t)
    quadratic = np.einsum("ij,ij->j", flat, matrix @ flat).reshape(gamma.shape[1:])
    coef = flat.reshape(len(flat), *gamma.shape[1:])  # r of few rows is below R
    linear = np.einsum("rat,rt->at", coef, cross[:, block])
    return np.asarray(np.maximum(quadratic - 2 * linear + squares[block], 0.0))


def _eigenvalues(
    moments: Moments, sizes: Sequence[int], fit_intercept: bool
) -> tuple[list[Float64], Float64]:
    """Eigenvalues of G for each R', and the target scatter, of all rows."""
    values = []
    for size in sizes:
        system = ridge_system(moments.leading(size), fit_intercept=fit_intercept)
        found = linalg.eigvalsh(system.matrix.T, overwrite_a=True, check_finite=False)
        values.append(np.asarray(found))
    return values, system.target_scatter


def sums_of_others(parts: Sequence[AnyMoments]) -> Iterator[tuple[int, AnyMoments]]:
    """(k, Σ of all parts but k), by halving: log₂ sums are held, nothing is subtracted."""

    def walk(lo: int, hi: int, outside: AnyMoments | None) -> Iterator[tuple[int, AnyMoments]]:
        if hi - lo == 1:
            assert outside is not None
            yield lo, outside
            return
        middle = (lo + hi) // 2
        for start, stop, rest in [(lo, middle, (middle, hi)), (middle, hi, (lo, middle))]:
            sibling = total(parts[slice(*rest)])
            yield from walk(start, stop, sibling if outside is None else outside + sibling)

    return walk(0, len(parts), None)


def _as_folds(
    groups: Mapping[Hashable, Moments], folds: int | None
) -> tuple[tuple[str, ...], list[Moments]]:
    """Names and moments of the folds, without row samples; refuses what cannot be scored."""
    wanted = len(groups) if folds is None else folds
    if not 2 <= wanted <= len(groups):
        raise ValueError(
            f"{wanted} folds from {len(groups)} groups of rows. Cross-validation needs at least "
            "two folds and a group for each. Collect with by= labels that tell rows apart."
        )
    for label, moments in groups.items():
        if moments.n < 1 or not moments.weight > 0:
            raise ValueError(
                f"Group {label!r} holds {moments.n} rows of total weight {moments.weight}. "
                "A fold needs rows to be scored on. Leave the group out, or join it to another."
            )
    bare = [moments.without_sample() for moments in groups.values()]
    runs = np.array_split(np.arange(len(bare)), wanted)
    labels = [str(label) for label in groups]
    names = [labels[run[0]] + (f" … {labels[run[-1]]}" if len(run) > 1 else "") for run in runs]
    return tuple(names), [total(bare[i] for i in run) for run in runs]


def _checked_alphas(alphas: Array) -> Float64:
    """A sorted grid of penalties > 0, or a refusal."""
    grid = np.unique(np.asarray(alphas, dtype=np.float64))
    if not grid.size or not (np.isfinite(grid).all() and (grid > 0).all()):
        raise ValueError(
            f"alphas={alphas!r} but a grid holds at least one α, each finite and > 0. "
            "Leave alphas out for a grid from the spectrum."
        )
    return grid


def _positive(value: Float64) -> Float64:
    """Values with 0 (a constant target) as 1: such a target must not decide anything."""
    return np.where(value > 0, value, 1.0)


@dataclass(frozen=True, slots=True)
class SelectionCell:
    """One cell of the table."""

    alpha: float  # penalty, in units of w
    n_components: int  # R'
    score: float
    """Mean of the criterion over targets; errors are relative to the variance of each target."""
    standard_error: float | None  # over folds; None without folds
    df: float  # effective degrees of freedom on all rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Selection:
    """Scores of every α, R', target and fold; smaller is better.

    Parameters
    ----------
    criterion : str
        What the scores are.
    targets, folds : tuple of str
        Names; ``folds`` is empty for criteria computed in the sample.
    sizes : tuple of int
        K values of R'.
    alphas : (A,) float64
        Penalties, increasing.
    scores : (F, K, A, T) float64
        One for each fold (F = 1 without folds), in units of y² for errors.
    scale : (T,) float64
        Variance of each target, which errors are divided by before targets are averaged.
    df : (K, A) float64
        Effective degrees of freedom on all rows.
    eta : (K,) float64
        The largest η of the systems involved: α below it is shown and never chosen.
    rule : {"best", "one_standard_error"}
        How :attr:`best` chooses.

    Raises
    ------
    ValueError
        From ``best``: for another rule, or where no penalty has a finite score.
    """

    criterion: str
    targets: tuple[str, ...]
    folds: tuple[str, ...]
    sizes: tuple[int, ...]
    alphas: Float64
    scores: Float64
    scale: Float64
    df: Float64
    eta: Float64
    rule: Rule
    error_of_difference: Float64 | None = None
    """(K, A), standard errors of the differences from the least score; absent, folds tell them."""

    def __post_init__(self) -> None:
        if self.rule not in ("best", "one_standard_error"):
            raise ValueError(f"rule={self.rule!r} but it must be 'best' or 'one_standard_error'.")
        if not self._allowed_mask().any():
            raise ValueError(
                f"No α in the grid has a finite score at or above η={self.eta.min():.3g}, the "
                'rounding in the sums. Give larger alphas, or collect with sums="float64".'
            )

    @property
    def mean(self) -> Float64:
        """Mean score over folds (K, A, T), in units of y² for errors."""
        return np.asarray(self.scores.mean(axis=0))

    @property
    def relative(self) -> Float64:
        """Mean over folds and targets (K, A) of score / variance: what is minimised."""
        return np.asarray(self._relative_by_fold().mean(axis=0))

    @property
    def relative_error(self) -> Float64 | None:
        """Standard error over folds (K, A) of :attr:`relative`; None without folds."""
        if len(self.folds) < 2:
            return None
        spread = self._relative_by_fold().std(axis=0, ddof=1)
        return np.asarray(spread / np.sqrt(len(self.folds)))

    @property
    def best(self) -> SelectionCell:
        """What the rule chooses."""
        return self._choice(*self._best_place())

    @property
    def learning_curve(self) -> tuple[SelectionCell, ...]:
        """The best α of each R', increasing; sizes where no α reaches η are left out."""
        masked = self._masked_scores()
        rows = [k for k in range(len(self.sizes)) if np.isfinite(masked[k]).any()]
        return tuple(self._choice(k, int(np.argmin(masked[k]))) for k in rows)

    @property
    def why(self) -> str:
        """One sentence: what was chosen, by what, and what to doubt."""
        best = self.best
        error = "" if best.standard_error is None else f" ± {best.standard_error:.2g}"
        rule = "the smallest" if self.rule == "best" else SIMPLEST
        return (
            f"alpha={best.alpha:.4g}, n_components={best.n_components}: {rule} "
            f"{self.criterion} ({best.score:.4g}{error}{self._basis()}; "
            f"df {best.df:.0f}).{self._doubts()}"
        )

    def of_target(self, target: int) -> Selection:
        """The same for one target, by position: its own α and R'."""
        return replace(
            self,
            targets=self.targets[target : target + 1],
            scores=self.scores[..., [target]],
            scale=self.scale[[target]],
        )

    def __repr__(self) -> str:
        lines = [f"<Selection by {self.criterion}{self._basis()}>", *self._table()]
        return "\n".join([*lines, self.why])

    def _repr_html_(self) -> str:
        """A table of α × R' with the chosen cell in bold."""
        (k, a), mean, error = self._best_place(), self.relative, self.relative_error
        head = ["alpha", *(f"R'={size}" for size in self.sizes)]
        rows = [
            [f"{alpha:.3g}", *_cells(mean[:, i], None if error is None else error[:, i])]
            for i, alpha in enumerate(self.alphas)
        ]
        curve = [
            [str(c.n_components), f"{c.alpha:.3g}", f"{c.score:.4g}", f"{c.df:.0f}"]
            for c in self.learning_curve
        ]
        best = [i for i, row in enumerate(curve) if int(row[0]) == self.sizes[k]]
        return Card(
            f"Selection by {self.criterion}{self._basis()}",
            (("chosen", self.why),),
            (
                ("the best of each R'", table(["R'", "alpha", "score", "df"], curve, (best[0], 1))),
                (f"all {mean.size} scores", table(head, rows, (a, k))),
            ),
        ).html()

    def _relative_by_fold(self) -> Float64:
        return np.asarray((self.scores / self.scale).mean(axis=-1))  # (F, K, A)

    def _allowed_mask(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray((self.alphas >= self.eta[:, None]) & np.isfinite(self.relative))

    def _masked_scores(self) -> Float64:
        return np.where(self._allowed_mask(), self.relative, np.inf)

    def _best_place(self) -> tuple[int, int]:
        masked, error = self._masked_scores(), self.relative_error
        k, a = np.unravel_index(int(np.argmin(masked)), masked.shape)
        if self.error_of_difference is not None:
            error = self.error_of_difference
        elif error is not None:
            error = error[k, a]
        if self.rule == "best" or error is None:
            return int(k), int(a)
        near = masked <= masked[k, a] + error
        k = np.flatnonzero(near.any(axis=1))[0]
        return int(k), int(np.flatnonzero(near[k])[-1])

    def _choice(self, k: int, a: int) -> SelectionCell:
        error = self.relative_error
        return SelectionCell(
            alpha=float(self.alphas[a]),
            n_components=self.sizes[k],
            score=float(self.relative[k, a]),
            standard_error=None if error is None else float(error[k, a]),
            df=float(self.df[k, a]),
        )

    def _basis(self) -> str:
        share = "" if (self.scale == 1).all() else " relative to the variance"
        return share + (f", {len(self.folds)} folds" if self.folds else "")

    def _doubts(self) -> str:
        k, a = self._best_place()
        allowed = np.flatnonzero(self._allowed_mask()[k])
        doubts = []
        if a == allowed[0]:
            doubts.append("It is the smallest alpha that the grid and the rounding allow.")
        if a == allowed[-1] and len(allowed) > 1:
            doubts.append("It is the largest alpha of the grid: a larger one may do better.")
        if self.df[k, a] > 0.8 * self.sizes[k]:
            doubts.append("df is above 0.8 R': more components may do better.")
        return "".join(f" {doubt}" for doubt in doubts)

    def _table(self) -> list[str]:
        head = f"{'R′':>8}{'alpha':>12}{'score':>12}{'± se':>10}{'df':>9}"
        return [head, *(_line(choice, choice == self.best) for choice in self.learning_curve)]


def _line(choice: SelectionCell, chosen: bool) -> str:
    error = "" if choice.standard_error is None else f"{choice.standard_error:.2g}"
    return (
        f"{choice.n_components:>8}{choice.alpha:>12.4g}{choice.score:>12.4g}{error:>10}"
        f"{choice.df:>9.0f}{'  <- chosen' if chosen else ''}"
    )


def _cells(scores: Float64, errors: Float64 | None) -> list[str]:
    """Scores of one α, with standard errors where there are some."""
    if errors is None:
        return [f"{score:.4g}" for score in scores]
    return [f"{score:.4g} ± {error:.1g}" for score, error in zip(scores, errors, strict=True)]
