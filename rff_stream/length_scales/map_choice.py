"""The map that a search took, and the record of what was compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64, json_array, json_in
from rff_stream.errors import warn
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.features.normal_scores import NormalScores
from rff_stream.kernels import ExactKernel
from rff_stream.length_scales.budget import SearchBudget
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.window_evidence import mixes
from rff_stream.length_scales.windows import TINY, deviation


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate, and what was found."""

    name: str
    error: float  # root mean square over targets, each over its standard deviation
    behind: float  # mean squared error − that of the best
    spread: float  # standard error of this difference
    seconds: float  # CPU seconds of its search
    in_holes: float | None = None  # the same error in holes, where it was compared


@dataclass(frozen=True, slots=True, eq=False)
class MapChoice:
    """The kernel on rows xA that was taken, with all that was compared."""

    unit_kernel: ExactKernel  # of length-scale 1
    matrix: Float64  # A (d, k)
    shape: CellShape
    taken: str  # name of the trial
    n_rows: int  # rows that were compared
    trials: tuple[Trial, ...]
    normal_scores: NormalScores | None = None
    """What comes before A."""
    trend: LinearTrend | None = None
    """What is taken from the targets before all."""
    n_free: int = 0  # numbers of kernel and metric that were found from targets
    alpha: float = 1.0  # σₙ²/σ_f² of a row of weight 1, by the windows of the search
    second: MapChoice | None = None
    """A map whose mean with this one is better than either."""
    budget: SearchBudget | None = None
    rivals: Mapping[str, float] = field(default_factory=dict)
    least_alpha: float = 0.0
    """α below which evidence is not to be believed: left-out errors say so."""

    @classmethod
    def of_constant(cls, kernel: ExactKernel, x: Float64, shape: CellShape) -> MapChoice:
        """Where no target or no input varies: one standard deviation along each input."""
        if len(x) > 1 and (x == x[:1]).all():
            warn(
                f"Every input is constant in the {len(x)} pilot rows, so predictions are the mean "
                "of the targets. Look at the inputs, or give length_scale as numbers if they vary "
                "in other rows."
            )
        return cls(kernel, np.diag(1 / deviation(x)), shape, kernel.text, 0, ())

    @property
    def maps(self) -> list[MapChoice]:
        """The choice alone, or with the one whose mean with it answers."""
        return [self] if self.second is None else [self, self.second]

    @property
    def metric(self) -> Float64 | None:
        """A where it mixes inputs."""
        return self.matrix if mixes(self.matrix) else None

    @property
    def own_kernel(self) -> ExactKernel:
        """The kernel of rows x where there is no metric, else that of rows xA."""
        if self.metric is not None:
            return self.unit_kernel
        return self.unit_kernel.with_length_scale(tuple((1 / self.matrix.diagonal()).tolist()))

    @property
    def left_out_error(self) -> float:
        """Root mean squared error at left-out rows, over the standard deviation of y."""
        return next((each.error for each in self.trials if each.name == self.taken), np.nan)

    @property
    def stored(self) -> dict[str, Array]:
        """What is stored of a search beside its map: what was compared, if anything was."""
        return {"choice": self.packed()} if self.trials else {}

    def packed(self) -> Array:
        """The trials as bytes, for the store."""
        plain: dict[str, Any] = {
            "taken": self.taken,
            "n_rows": self.n_rows,
            "n_free": self.n_free,
            "trials": [_known(asdict(each)) for each in self.trials],
        }
        if self.least_alpha:
            plain["least_alpha"] = self.least_alpha
        if self.rivals:
            plain["rivals"] = dict(self.rivals)
        if self.budget is not None:
            plain["seconds"], plain["limit"] = self.budget.spent, self.budget.limit
            plain["not_begun"] = self.budget.left_out
        return json_array(plain)


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """What was compared before the read, and what was taken: ``choice_`` of a model."""

    taken: str
    n_rows: int  # rows that were compared
    trials: tuple[Trial, ...]
    seconds: float = np.nan  # CPU seconds of the search, by its work
    limit: float = np.inf  # those that it was allowed
    not_begun: tuple[str, ...] = ()  # candidates for which nothing was left
    rivals: Mapping[str, float] = field(default_factory=dict)
    """Errors of simple rules at the same rows, in the same units."""
    n_free: int | None = None
    """Numbers of kernel and metric that were found from targets; older stores do not say them."""
    least_alpha: float = 0.0
    """α = σₙ²/σ_f² below which evidence is not followed."""

    @classmethod
    def of(cls, packed: Array) -> SearchRecord:
        """The record of a search from its bytes."""
        plain = json_in(packed)
        plain["trials"] = tuple(Trial(**each) for each in plain["trials"])
        return cls(**plain | {"not_begun": tuple(plain.get("not_begun", ()))})

    @property
    def taken_names(self) -> tuple[str, ...]:
        """Of the candidates that answer: one, or a mean that is a candidate, too."""
        return (self.taken,)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the candidates."""
        return tuple(each.name for each in self.trials)

    @property
    def errors(self) -> Float64:
        """Root mean squared errors at left-out rows, over the standard deviation of y."""
        return np.array([each.error for each in self.trials])

    @property
    def words(self) -> str:
        """What was taken and the errors, in a line."""
        taken = next(each for each in self.trials if each.name == self.taken)
        others = [each for each in self.trials if each is not taken]
        found = f"{self.taken}: error {taken.error:.3g} at {self.n_rows:,} left-out rows"
        if others:
            near = min(others, key=lambda each: each.error)
            spread = (near.spread + taken.spread) / 2 / max(near.error, TINY)
            found += f"; {near.name} {near.error:.3g} ± {spread:.1g}"
        for name, error in self.rivals.items():
            found += f"; {name} {error:.3g}"
        left = f", {len(self.not_begun)} not begun" if self.not_begun else ""
        if np.isfinite(self.seconds):
            found += f"; {len(self.trials)} compared{left} in {self.seconds:.2g} CPU s"
        return found

    def __str__(self) -> str:
        lines = [f"errors at {self.n_rows:,} left-out rows, over the spread of y"]
        for each in sorted(self.trials, key=lambda trial: trial.error):
            spread = each.spread / 2 / max(each.error, TINY)
            known = f"{each.error:.4g} ± {spread:.1g}" if spread else f"{each.error:.4g}"
            mark = "  taken" if each.name == self.taken else ""
            holes = "" if each.in_holes is None else f", {each.in_holes:.3g} in holes"
            lines.append(f"{known:<18} {each.seconds:5.1f} s  {each.name}{holes}{mark}")
        lines += [f"{error:<18.4g} {'':7}  {name}" for name, error in self.rivals.items()]
        lines += [f"{'not begun':<18} {'':7}  {name}" for name in self.not_begun]
        if np.isfinite(self.seconds):
            limit = f" of {self.limit:.3g}" if np.isfinite(self.limit) else ""
            lines.append(f"search: {self.seconds:.2g}{limit} CPU s by its work")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)  # the table, where a notebook shows it


def _known(plain: dict[str, Any]) -> dict[str, Any]:
    """A trial as it is stored: without its error in holes where it has none."""
    return {name: each for name, each in plain.items() if each is not None}
