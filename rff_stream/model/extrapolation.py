"""Rows that lie outside of what a fit has seen: their share, and a warning that names the input."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64, column_range
from rff_stream.contracts import RowFunction
from rff_stream.errors import warn
from rff_stream.features.composed import periods_of
from rff_stream.model.fitted import Fitted

MARGIN = 0.1
"""A row may lie outside the range of an input by this share of it: data nearby still support it."""

FEWEST_SHARE, TIMES_CHANCE = 0.01, 3.0
"""Share of rows outside at which a warning is given; and its ratio to the share that chance
gives for n fitted rows."""

CHANCE, MOST_ROWS = 0.01, 0.5
"""Probability that new rows of the same kind give a warning; and share of the rows outside from
which they are not of the same kind, however few they are."""


@dataclass(frozen=True, slots=True, eq=False)
class SeenInputs:
    """What a fit has seen of its inputs."""

    reach: Float64  # (2, d): least and greatest value of each input
    inputs: tuple[str, ...]
    n_rows: int
    text: Array  # (d,) int: 1, 2, … for inputs that are all levels of a column, 0 for others
    periodic: Array  # (d,) bool: no value of such an input is outside

    @classmethod
    def of(cls, fitted: Fitted) -> Self | None:
        """None where a store does not tell the range."""
        reach = fitted.input_range
        if reach is None:
            return None
        periodic = np.zeros(fitted.n_inputs, bool)
        periodic[list(periods_of(fitted.features))] = True
        text = fitted.text_columns
        return cls(reach, fitted.columns.inputs, fitted.n_rows, text, periodic)

    def text_of(self, column: int) -> str:
        """The name of a column of text."""
        return self.inputs[int(np.argmax(self.text == column))].partition("=")[0]


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """Rows beyond the range of each input, and rows without a level that is known; they add."""

    beyond: Float64  # (d,): rows beyond the range of each
    reach: Float64  # (2, d): least and greatest value of each input
    unknown: Float64  # of each column of text: rows whose level is none of the fit
    any: int  # rows beyond the range of some input
    n: int  # rows

    def __add__(self, other: Self) -> Self:
        low = np.fmin(self.reach[0], other.reach[0])
        high = np.fmax(self.reach[1], other.reach[1])
        return type(self)(
            self.beyond + other.beyond,
            np.stack([low, high]),
            self.unknown + other.unknown,
            self.any + other.any,
            self.n + other.n,
        )


def count_outside(x: Array, seen: SeenInputs) -> Outside:
    """Rows x (n, d) beyond the range that was seen, by more than a tenth of it, and of new levels.

    An input of 0 and 1 that is a level is not beyond its range: the level is new.
    """
    low, high = seen.reach
    width = np.where((seen.text > 0) | seen.periodic, np.inf, MARGIN * (high - low))
    columns = range(1, int(seen.text.max(initial=0)) + 1)
    unknown = np.array([(x[:, seen.text == k].sum(axis=1) == 0).sum() for k in columns], float)
    if not len(x):
        nothing = np.full((2, x.shape[1]), np.nan)
        return Outside(np.zeros(x.shape[1]), nothing, unknown, 0, 0)
    reach = column_range(x)
    if not ((reach[0] < low - width) | (reach[1] > high + width)).any():
        return Outside(np.zeros(x.shape[1]), reach, unknown, 0, len(x))
    outside = (x < low - width) | (x > high + width)
    return Outside(
        outside.sum(axis=0).astype(float), reach, unknown, int(outside.any(axis=1).sum()), len(x)
    )


def outside_in(fitted: Fitted, rows: Any) -> Outside | None:
    """The same for rows (n, d) in memory; None where the range is not known."""
    seen = SeenInputs.of(fitted)
    return None if seen is None else count_outside(np.asarray(rows), seen)


def warn_where_outside(fitted: Fitted, found: Outside | None) -> None:
    """Warn of the share of rows outside and name the input with most, unless chance explains it.

    Of n rows that were fitted, one more row of their kind is beyond the range of an input with
    probability 2/(n + 1) at most. It has one of L levels that no other row has, and that would be
    new to a fit without it, with probability L/n at most.
    """
    seen = SeenInputs.of(fitted)
    for words in () if found is None or seen is None else words_of(found, seen):
        warn(words)


def words_of(found: Outside, seen: SeenInputs) -> Iterator[str]:
    """What :func:`warn_where_outside` tells; nothing where chance may be the cause."""
    levels = np.bincount(seen.text, minlength=len(found.unknown) + 1)[1:]
    new = found.unknown / max(found.n, 1)
    by_chance = TIMES_CHANCE * (levels + 1) / (seen.n_rows + 1)
    told = (new > 0) & ((new > by_chance) | (new > MOST_ROWS))
    if told.any():
        most = int(np.where(told, new, 0).argmax())
        yield (
            f"{new[most]:.2%} of the rows have a value of "
            f"{seen.text_of(most + 1)} that no row of the fit has. All inputs made of it are 0 "
            "there, so the predictions are guesses. Leave these rows out, or fit a model to rows "
            "like them."
        )
    worst = int(found.beyond.argmax())
    if not found.n or _is_chance(int(found.beyond[worst]), found.n, seen):
        return
    (low, high), (least, most_seen) = seen.reach[:, worst], found.reach[:, worst]
    yield (
        f"{found.any / found.n:.2%} of the rows lie outside the range of the fit: input "
        f"{seen.inputs[worst]} goes from {least:.6g} to {most_seen:.6g} here, and went from "
        f"{low:.6g} to {high:.6g} in the fit. Rows nearer to it than a tenth of it are not "
        "counted. No data support predictions there: those of cells and grids go on for about a "
        "length-scale as at the edge and then approach a constant, those of one map of the whole "
        "space can have any value, with standard deviations that are "
        "too small. Leave these rows out, or fit a model to rows like them."
    )


def _is_chance(count: int, n_new: int, seen: SeenInputs) -> bool:
    """Whether so many of m new rows may lie beyond the range of some of d inputs of n rows.

    If all rows are of one kind, k of them lie beyond both ends of an input with probability at
    most rᵏ(1 + k(1 − r)), r = m/(n + m): they are the k outermost of all, at one end or the other.
    """
    share, chance = count / n_new, TIMES_CHANCE * 2 / (seen.n_rows + 1)
    if share <= max(FEWEST_SHARE, chance):
        return True
    r = n_new / (seen.n_rows + n_new)
    p = r**count * (1 + count * (1 - r))
    return share <= MOST_ROWS and p * len(seen.inputs) > CHANCE


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """A function of rows that tells, once in a process, of rows outside of what a fit has seen.

    For predictions that are computed later, part by part: the share is that of the first part
    with such rows.
    """

    function: RowFunction
    seen: SeenInputs
    token: str = field(default_factory=lambda: uuid.uuid4().hex)  # of one prediction

    @property
    def width(self) -> int:
        """That of the function."""
        return self.function.width

    def __call__(self, x: Array) -> Float64:
        """Its values."""
        if self.token not in _told:
            for words in words_of(count_outside(x, self.seen), self.seen):
                _told.add(self.token)
                warn(words)
        return self.function(x)


_told: set[str] = set()
"""Predictions that were told of in this process."""


def watched(fitted: Fitted, function: RowFunction) -> RowFunction:
    """The function, watched where the range of the fit is known."""
    seen = SeenInputs.of(fitted)
    return function if seen is None else Watched(function, seen)
