"""The errors a user can meet. Each message is: fact with its value; rule; remedy."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


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


MODELS = "Estimator"
"""Base of the estimators of this package, as a kind of :func:`takes`."""


def takes(
    *kinds: str, remedy: str, has: str = "", groups: bool | None = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that refuses a first argument of another kind, before it does anything.

    Parameters
    ----------
    *kinds : str
        Names of classes, of which the argument, or a base of its class, is one.
    remedy : str
        What to give instead.
    has : str
        An attribute that a fitted model must have.
    groups : bool, optional
        True: a mapping of labels to these kinds. None: such a mapping, or one of them.

    Raises
    ------
    TypeError
        From the function: for an argument of another kind.
    NotFittedError
        For an estimator that is not fitted.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__code__.co_varnames[0]

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if args or name in kwargs:
                given: Any = args[0] if args else kwargs[name]
                if not _is_of(given, kinds, groups):
                    what = "a mapping of labels to " if groups else ""
                    wanted = " or ".join(kinds).replace(MODELS, "a model of this package")
                    raise TypeError(
                        f"{name} is {_in_words(given)}, but {function.__name__} takes {what}"
                        f"{wanted}. {remedy}"
                    )
                _require_fitted(given, has, function.__name__, remedy)
            return function(*args, **kwargs)

        return checked

    return decorate


def _is_of(given: Any, kinds: tuple[str, ...], groups: bool | None) -> bool:
    """Whether a value is of one of these kinds, or (see :func:`takes`) a mapping to such values."""
    if groups is not False and isinstance(given, Mapping):
        return all(_is_of(each, kinds, False) for each in given.values())
    bases = {base.__name__ for base in type(given).__mro__}
    return not groups and (not kinds or bool(bases & {*kinds}))


def _require_fitted(given: Any, has: str, function: str, remedy: str) -> None:
    """Refuse an estimator without a fit, or one whose fit lacks an attribute."""
    if hasattr(given, "_require_fit"):
        given._require_fit()
    if has and not hasattr(given, has):
        raise ModelError(f"{type(given).__name__} has no {has}, and {function} shows it. {remedy}")


def _in_words(given: Any) -> str:
    """A value by its type; a class, or a mapping, by what it is of."""
    if isinstance(given, type):
        return f"the class {given.__name__}"
    if isinstance(given, Mapping):
        of = {type(each).__name__ for each in given.values()}
        return f"a mapping to {', '.join(sorted(of))}" if of else "an empty mapping"
    return f"of type {type(given).__name__}" if given is not None else "None"
