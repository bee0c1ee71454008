"""What is not known of a level that no row of the fit has: the levels' own variance, at least.

A level that is not known has 0 in the columns of all levels of its column. That is nearer to each
of them than they are to each other, and f seems as well known there as at any of them. A new level
is one more of their kind. So of L levels the variance of f is at least

    (L + 1)/(L − 1) · mean over levels l, and rows x of the sample, of (f(x, l) − f(x, none))²
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.families.missing_noise import MissingInputs
from rff_stream.families.noise_of_rows import NoisyProcess
from rff_stream.families.protocol import Process
from rff_stream.sources import Columns

ROWS, FEWEST_ROWS, PREDICTED = 32, 4, 8192
"""Rows at which levels are compared: the standard error of a variance of 20 levels, .3 of it, is
that of so few levels. Fewer of many levels: about so many rows are predicted, in .4 s."""


@dataclass(frozen=True, slots=True, eq=False)
class UnknownLevels:
    """The least variance of f at rows with unknown levels; the noise is that of other rows."""

    levels: tuple[tuple[int, ...], ...]
    """Places of the levels of each column of text."""
    variances: Float64  # (C, T): 0 of a column of which some rows have no level

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
    def restored(cls, columns: Columns, arrays: Any) -> UnknownLevels | None:
        """From what a store kept; None where it kept none."""
        if "unknown_levels" not in arrays:
            return None
        return cls(MissingInputs.of(columns).levels, np.asarray(arrays["unknown_levels"]))

    def __call__(self, x: Array, mean: Callable[[], Float64]) -> Float64:
        """Ones (n, T): factors of the noise."""
        return np.ones((len(x), self.width))

    def of_function(self, x: Array, factors: Float64, of_f: Float64, noise: Float64) -> Float64:
        """The larger of both (n, T)."""
        least = np.zeros_like(of_f)
        for places, own in zip(self.levels, self.variances, strict=True):
            least += np.outer(_has_none(x, places), own)
        return np.maximum(of_f, least)


def _has_none(x: Array, places: tuple[int, ...]) -> Array:
    """Whether rows (n, d) have none of the levels in these places (n,)."""
    return np.asarray((x[:, list(places)] == 0).all(axis=1))


def with_unknown_levels(process: Process, columns: Columns, sample: Float64) -> Process:
    """The process that is unsure where a level is unknown, by some sampled rows [x, y, w]."""
    levels, mean = MissingInputs.of(columns).levels, process.mean()
    rows = sample[:, : len(columns.inputs)]
    if not levels or not len(rows):
        return process
    of_all = sum(len(places) + 1 for places in levels)
    some = rows[: min(max(PREDICTED // of_all, FEWEST_ROWS), ROWS)]
    variances = np.zeros((len(levels), mean.width))
    for own, places in zip(variances, levels, strict=True):
        count = len(places)
        if count < 2 or _has_none(rows, places).any():
            continue
        asked = np.repeat(some[None], count + 1, axis=0)
        asked[:, :, list(places)] = np.eye(count + 1, count)[:, None]  # the last has none
        found = mean(asked.reshape(-1, asked.shape[2])).reshape(*asked.shape[:2], -1)
        apart = ((found[:-1] - found[-1]) ** 2).mean(axis=(0, 1))
        own[:] = (count + 1) / (count - 1) * apart
    return NoisyProcess(process, UnknownLevels(levels, variances)) if variances.any() else process
