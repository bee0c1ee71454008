"""What is not known where an input is: a level that no row of the fit has, or a missing number.

A level that is not known has 0 in the columns of all levels of its column. That is nearer to each
of them than they are to each other, and f seems as well known there as at any of them. A new level
is one more of their kind, and so is one of many levels that has no mean. So of L levels the
variance of f is at least

    (L + 1)/(L − 1) · mean over levels l, and rows x of the sample, of (f(x, l) − f(x, none))²

A missing number u has a value in its place. Where the fit has no mark for rows without u, its value
is one that no row has, and the variance of f is at least the mean of (f(x, u) − f(x, fill))² over
rows of the sample and values u that they have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.families.missing_noise import MissingInputs
from rff_stream.families.noise_of_rows import NoisyProcess
from rff_stream.families.protocol import Process
from rff_stream.sources import Columns
from rff_stream.sources.missing import unmarked

ROWS, FEWEST_ROWS, PREDICTED = 32, 4, 8192
"""Rows at which levels are compared: the standard error of a variance of 20 levels, .3 of it, is
that of so few levels. Fewer of many levels: about so many rows are predicted, in .4 s."""

VALUES = 16
"""Values that a missing number, or an unknown one of many levels, may have."""

NO_CODE = -1.0
"""No number of a level."""


@dataclass(frozen=True, slots=True, eq=False)
class UnknownInputs:
    """The least variance of f at rows with unknown inputs; the noise is that of other rows."""

    levels: tuple[tuple[int, ...], ...]
    """Places of the levels of each column of text."""
    numbers: tuple[tuple[int, float], ...]
    """Places of inputs of numbers without a mark, and the value where each is missing."""
    known: Mapping[int, Float64]
    """Numbers of the levels that have a mean, by the place of their input."""
    variances: Float64  # of each of these (C, T): 0 of a column of which some rows have no level

    @property
    def width(self) -> int:
        """T."""
        return int(self.variances.shape[1])

    @property
    def unseen(self) -> None:
        """None: the noise is the same for all rows."""

    @property
    def arrays(self) -> dict[str, Array]:
        """What a store keeps."""
        return {"unknown_levels": self.variances}

    @classmethod
    def restored(
        cls, columns: Columns, arrays: Any, known: Mapping[int, Float64]
    ) -> UnknownInputs | None:
        """From what a store kept; None where it kept none."""
        if "unknown_levels" not in arrays:
            return None
        levels, variances = MissingInputs.of(columns).levels, np.asarray(arrays["unknown_levels"])
        numbers = unmarked(columns)[: len(variances) - len(levels) - len(known)]
        return cls(levels, numbers, known, variances)

    def __call__(self, x: Array, mean: Callable[[], Float64]) -> Float64:
        """Ones (n, T): factors of the noise."""
        return np.ones((len(x), self.width))

    def of_function(self, x: Array, factors: Float64, of_f: Float64, noise: Float64) -> Float64:
        """The larger of both (n, T)."""
        unknown = [_has_none(x, places) for places in self.levels]
        unknown += [_is_missing(x, *each) for each in self.numbers]
        unknown += [~np.isin(x[:, place], codes) for place, codes in self.known.items()]
        least = np.stack(unknown, axis=1).astype(np.float64) @ self.variances
        return np.maximum(of_f, least)


def _has_none(x: Array, places: tuple[int, ...]) -> Array:
    """Whether rows (n, d) have none of the levels in these places (n,)."""
    return np.asarray((x[:, list(places)] == 0).all(axis=1))


def _is_missing(x: Array, place: int, fill: float) -> Array:
    """Whether rows (n, d) have no number in this place (n,), in either precision."""
    return np.asarray((x[:, place] == fill) | (x[:, place] == np.float32(fill)))


def with_unknown_inputs(
    process: Process, columns: Columns, known: Mapping[int, Float64], sample: Float64
) -> Process:
    """The process that is unsure where an input is unknown, by some sampled rows [x, y, w]."""
    levels, numbers = MissingInputs.of(columns).levels, unmarked(columns)
    rows = sample[:, : len(columns.inputs)]
    if not (levels or numbers or known) or not len(rows):
        return process
    of_all = sum(len(places) + 1 for places in levels)
    of_all += (VALUES + 1) * (len(numbers) + len(known))
    some = rows[: min(max(PREDICTED // of_all, FEWEST_ROWS), ROWS)]
    variances = np.zeros((len(levels) + len(numbers) + len(known), process.mean().width))
    for own, places in zip(variances, levels, strict=False):
        count = len(places)
        if count < 2 or _has_none(rows, places).any():
            continue
        values = np.eye(count + 1, count)  # the last has none
        own[:] = (count + 1) / (count - 1) * _apart(process, some, places, values)
    for own, (place, fill) in zip(variances[len(levels) :], numbers, strict=False):
        there = rows[~_is_missing(rows, place, fill), place]
        if len(there):
            few = np.quantile(there, (np.arange(VALUES) + 0.5) / VALUES)
            own[:] = _apart(process, some, (place,), np.append(few, fill)[:, None])
    for own, (place, codes) in zip(
        variances[len(levels) + len(numbers) :], known.items(), strict=True
    ):
        count = len(codes)
        if count > 1:
            few = codes[np.linspace(0, count - 1, min(count, VALUES)).astype(int)]
            values = np.append(few, NO_CODE)[:, None]
            own[:] = (count + 1) / (count - 1) * _apart(process, some, (place,), values)
    found = UnknownInputs(levels, numbers, known, variances)
    return NoisyProcess(process, found) if variances.any() else process


def _apart(process: Process, some: Float64, places: tuple[int, ...], values: Float64) -> Float64:
    """Mean (T,) over rows (m, d) and values (V, k) in places of (f(value) − f(the last))²."""
    asked = np.repeat(some[None], len(values), axis=0)
    asked[:, :, list(places)] = values[:, None]
    found = process.mean()(asked.reshape(-1, asked.shape[2])).reshape(*asked.shape[:2], -1)
    return np.asarray(((found[:-1] - found[-1]) ** 2).mean(axis=(0, 1)))
