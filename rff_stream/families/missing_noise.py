"""Noise of rows without some inputs: what a missing value would have told is unknown.

With ``missing_rows="indicate"`` rows without an input are predicted, and less well than others. One
noise for all of them is too small there and too large elsewhere. So left-out rows give each set of
missing inputs a factor of the variance of the noise, by which 95 % of them are within 1.96 standard
deviations. The deviation of the function stays: of a level that was never seen it is a priori.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import COVERAGE, NORMAL
from rff_stream.families.noise_of_rows import NoisyProcess
from rff_stream.families.protocol import LeftOut, Process
from rff_stream.sources import Columns
from rff_stream.sources.levels import column_of_level, is_coded, places_by_variable
from rff_stream.sources.missing import ENDING, NO_LEVEL

FEWEST = 40
"""Rows that give a factor: the standard error of its root is then .15."""

SURE = 2.0
"""Standard errors by which factors of rows with and without all inputs must differ."""

SPREAD = 0.951
"""Relative standard error of a quantile of 95 % of normal |ξ|, times √n: √(.05·.95)/(2φ(q)q)."""

LEAST = 1e-6
"""Factors below it are compared as it: such rows have no noise of their own."""


@dataclass(frozen=True, slots=True)
class MissingInputs:
    """Which inputs can be missing, and how a row says so; J in all."""

    marks: tuple[int, ...]
    """Places of inputs that are 1 where another is missing."""
    levels: tuple[tuple[int, ...], ...]
    """Places of the levels of a column: a row without it has none of them."""
    codes: tuple[int, ...]
    """Places of columns of many levels."""

    @classmethod
    def of(cls, columns: Columns) -> MissingInputs:
        """By the names of the inputs of a fit."""
        names = columns.inputs
        marks = tuple(names.index(f"{name}{ENDING}") for name in columns.indicated)
        codes = tuple(place for place, name in enumerate(names) if is_coded(name))
        one = {place for place, name in enumerate(names) if column_of_level(name)}
        one -= {*marks, *codes}
        groups = (
            tuple(place for place in own if place in one)
            for own in places_by_variable(names).values()
        )
        return cls(marks, tuple(group for group in groups if group), codes)

    def __call__(self, x: Array) -> Array:
        """Whether each is missing (n, J) in rows (n, d)."""
        none = [(x[:, list(places)] == 0).all(axis=1) for places in self.levels]
        found = [x[:, list(self.marks)] == 1, x[:, list(self.codes)] == NO_LEVEL]
        return np.column_stack([*found, *none])


@dataclass(frozen=True, slots=True, eq=False)
class MissingFactors:
    """Factors of the variance of the noise, for each set of inputs that is missing."""

    inputs: MissingInputs
    sets: Array  # (P, J) bool: sets that have a factor of their own
    factors: Float64  # (P + 1, T): those, and that of any other set

    @classmethod
    def found(cls, inputs: MissingInputs, sample: Float64, left: LeftOut) -> MissingFactors | None:
        """From left-out rows [x, y, w]; None where rows with all inputs are not told apart.

        A set with at least 40 rows has its own factor if it is told apart from them; the others
        have one together.
        """
        t = left.residual.shape[1]
        missing, noise = inputs(sample[:, : -t - 1]), left.noise / sample[:, -1:]
        some: Array = np.any(missing, axis=1)
        whole: Array = ~some
        if min(some.sum(), whole.sum()) < FEWEST or not (noise > 0).all():
            return None
        enough = ((left.residual / NORMAL) ** 2 - left.variance) / noise  # a factor as large

        def factor(rows: Array) -> Float64:
            return np.maximum(np.quantile(enough[rows], COVERAGE, axis=0), 0.0)

        of_whole = factor(whole)

        def is_apart(rows: Array) -> bool:
            ratio = np.maximum(factor(rows), LEAST) / np.maximum(of_whole, LEAST)
            error = 2 * SPREAD * np.sqrt(1 / rows.sum() + 1 / whole.sum())
            return bool((abs(np.log(ratio)) > SURE * error).any())

        sets, which, counts = np.unique(missing, axis=0, return_inverse=True, return_counts=True)
        large = np.flatnonzero(sets.any(axis=1) & (counts >= FEWEST))
        apart = [place for place in large.tolist() if is_apart(which == place)]
        own: list[Array] = [whole, *(which == place for place in apart)]
        rest = some & ~np.isin(which, apart)
        rest = rest if rest.sum() >= FEWEST else some
        if len(own) == 1 and not is_apart(rest):
            return None
        kept = np.array([missing[rows][0] for rows in own])
        return cls(inputs, kept, np.array([factor(rows) for rows in (*own, rest)]))

    def __call__(self, x: Array, mean: Callable[[], Float64]) -> Float64:
        """Factors (n, T) of rows (n, d), whatever their means."""
        missing = self.inputs(x)
        which = np.full(len(x), len(self.sets))
        for place, own in enumerate(self.sets):
            which[(missing == own).all(axis=1)] = place
        return np.asarray(self.factors[which])

    def of_function(self, x: Array, factors: Float64, of_f: Float64, noise: Float64) -> Float64:
        """As it is: a row does not know its own inputs, and those around it do."""
        return of_f

    @property
    def width(self) -> int:
        """T."""
        return int(self.factors.shape[1])

    @property
    def unseen(self) -> Float64:
        """Ones: many rows tell a factor."""
        return np.ones(self.width)

    @property
    def arrays(self) -> dict[str, Array]:
        """What a store keeps."""
        return {"missing_sets": self.sets.astype(np.int64), "missing_factors": self.factors}

    @classmethod
    def restored(cls, columns: Columns, arrays: Any) -> MissingFactors | None:
        """From what a store kept; None where it kept none."""
        if "missing_sets" not in arrays:
            return None
        sets = np.asarray(arrays["missing_sets"]).astype(bool)
        return cls(MissingInputs.of(columns), sets, np.asarray(arrays["missing_factors"]))


def with_missing_noise(process: Process, columns: Columns, sample: Float64) -> Process:
    """The process with noise by what is missing, where left-out rows tell it apart."""
    inputs = MissingInputs.of(columns)
    if not columns.fills or not len(sample) or not inputs(sample[:, : len(columns.inputs)]).any():
        return process
    factors = MissingFactors.found(inputs, sample, process.left_out(sample))
    return process if factors is None else NoisyProcess(process, factors)
