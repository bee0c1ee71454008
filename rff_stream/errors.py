"""The errors a user can meet. Each message is: fact with its value; rule; remedy."""

from __future__ import annotations

import sys
import warnings


class RffStreamError(Exception):
    """Base of the errors that are about data, models, plans and clusters."""


class DataError(RffStreamError, ValueError):
    """The data are not what they should be: names store, array, chunk and rows."""


class OutsideGridError(DataError):
    """Rows lie beyond the reach of a grid of frequencies."""


class ModelError(RffStreamError, ValueError):
    """A stored model cannot be trusted or combined: names the file or field."""


class PlanError(RffStreamError, MemoryError):
    """The run cannot fit, or did not. Gives the bytes and what to change."""


class ClusterError(RffStreamError, RuntimeError):
    """The cluster cannot go on: names the scheduler, the workers or the leaf."""


class NumericalWarning(UserWarning):
    """The answer stands, but rounding or too few features shaped it."""


PASSED = ("rff_stream", "sklearn", "dask")
"""Packages whose lines a warning does not point to, because no user wrote them."""


def warn(words: str, kind: type[Warning] = NumericalWarning) -> None:
    """Warn at the line of the program that called this package, itself or through PASSED."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED:
        level, frame = level + 1, frame.f_back
    warnings.warn(words, kind, stacklevel=level)
