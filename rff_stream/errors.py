"""The errors a user can meet. Each message is: fact with its value; rule; remedy."""

from __future__ import annotations


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
