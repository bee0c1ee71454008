"""What a selection found: a table of α × R', the chosen one, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rff_stream._array import Float64
from rff_stream.cards import Card, table

Rule = Literal["best", "one_standard_error"]
"""The smallest score, or the simplest within one standard error of it."""

SIMPLEST = "the simplest within one standard error of the best"


@dataclass(frozen=True, slots=True)
class SelectionCell:
    """One cell of the table."""

    alpha: float  # penalty, in units of w
    n_components: int  # R'
    score: float
    """Mean over targets of the criterion, relative to each target's variance for errors."""
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

    def __post_init__(self) -> None:
        if self.rule not in ("best", "one_standard_error"):
            raise ValueError(f"rule={self.rule!r} but it is 'best' or 'one_standard_error'.")
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
        if self.rule == "best" or error is None:
            return int(k), int(a)
        near = masked <= masked[k, a] + error[k, a]
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
