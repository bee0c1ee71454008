"""What arguments of the public face may be: each kind of rule once, with the words of a refusal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np

SHOWN = 80
"""Characters of a value that a refusal shows at most: about a line."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value may be: of a kind, and within bounds."""

    words: str
    """They follow "but it must be"."""
    is_kind: Callable[[Any], bool]
    holds: Callable[[Any], bool] = lambda value: True
    """Asked of values of the kind alone."""
    remedy: str = ""
    optional: bool = False
    """Whether None stands for a default."""

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that the rule does not allow.

        Raises
        ------
        TypeError
            For another kind.
        ValueError
            For a value of the kind outside the bounds.
        """
        if value is None and self.optional:
            return
        is_kind = self.is_kind(value)
        if is_kind and self.holds(value):
            return
        text = f"{name}={shown(value)} but it must be {self.words}. {self.remedy}".rstrip()
        raise ValueError(text) if is_kind else TypeError(text)


def shown(value: Any) -> str:
    """A value on one line, of an array with its shape; a long one is cut."""
    text = " ".join(repr(value).split())
    shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) and value.ndim else ""
    return (text if len(text) <= SHOWN else f"{text[:SHOWN]}…") + shape


def is_number(value: Any) -> bool:
    """Whether a value is one real number: no truth, no text, no span of time."""
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def is_whole(value: Any) -> bool:
    """Whether a value is one whole number."""
    return is_number(value) and isinstance(value, Integral)


def number(
    words: str, holds: Callable[[Any], bool], remedy: str = "", *, optional: bool = False
) -> Rule:
    """One real number within bounds."""
    return Rule(words, is_number, holds, remedy, optional)


def whole(least: int, remedy: str = "", *, optional: bool = False) -> Rule:
    """One whole number from a least one, that int64 holds: a larger one counts nothing."""
    words = f"a whole number ≥ {least} and below 2**63"
    return Rule(words, is_whole, lambda value: bool(least <= value < 2**63), remedy, optional)


def whole_or(other: Rule, remedy: str = "") -> Rule:
    """One whole number ≥ 1, or what another rule allows."""
    count = whole(1)
    return Rule(
        f"{count.words}, or {other.words}",
        lambda value: is_whole(value) or other.is_kind(value),
        lambda value: count.holds(value) if is_whole(value) else other.holds(value),
        remedy,
    )


def truth() -> Rule:
    """True or False, also as 1 and 0."""
    return Rule(
        "True or False",
        lambda value: isinstance(value, bool | np.bool_) or (is_whole(value) and value in (0, 1)),
    )


def one_of(*choices: str, remedy: str = "", optional: bool = False) -> Rule:
    """One of these texts."""
    words = f"one of {', '.join(map(repr, choices))}"
    return Rule(words, is_string, lambda value: value in choices, remedy, optional)


def is_string(value: Any) -> bool:
    """Whether a value is text."""
    return isinstance(value, str)


def numbers_or(*texts: str, words: str, optional: bool = False) -> Rule:
    """One number, an array of numbers, or one of these texts."""
    return Rule(
        words, lambda value: is_string(value) or holds_numbers(value),
        lambda value: not is_string(value) or value in texts, "", optional,
    )  # fmt: skip


def number_or(
    *texts: str,
    words: str,
    holds: Callable[[Any], bool] = lambda value: bool(0 < value < np.inf),
    optional: bool = False,
) -> Rule:
    """One number within bounds, by default finite and > 0, or one of these texts."""
    return Rule(
        words, lambda value: is_string(value) or is_number(value),
        lambda value: value in texts if is_string(value) else holds(value), "", optional,
    )  # fmt: skip


def holds_numbers(value: Any) -> bool:
    """Whether a value is a number, or an array or sequence of numbers, none of them masked."""
    try:
        is_array = np.asarray(value).dtype.kind in "iuf" and not np.ma.is_masked(value)
        return is_array or is_number(value)
    except (TypeError, ValueError):  # of sequences of other lengths
        return False


def array_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a value as an array of numbers; None for text, and what is no such array."""
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":  # also of lazy arrays
        return tuple(value.shape)
    try:
        return None if is_string(value) else np.asarray(value, np.float64).shape
    except (TypeError, ValueError, OverflowError):
        return None


def array_of(words: str, *shape: int | None, remedy: str = "", optional: bool = False) -> Rule:
    """An array of numbers that has this shape; None is a length of 1 or more."""
    return Rule(
        words, lambda value: bool(array_shape(value)),
        lambda value: len(array_shape(value) or ()) == len(shape) and all(
            size == wanted if wanted is not None else size > 0
            for size, wanted in zip(array_shape(value) or (), shape, strict=True)
        ), remedy, optional,
    )  # fmt: skip


def is_several(value: Any) -> bool:
    """Whether a value lists others: no text, and nothing by name."""
    if isinstance(value, str | bytes | Mapping):
        return False
    try:
        iter(value)
    except TypeError:
        return False
    return True


def is_mapping(value: Any) -> bool:
    """Whether a value is a mapping."""
    return isinstance(value, Mapping)


NUMBERS = Rule("a number, or one number for each input", holds_numbers, optional=True)

POSITIVE = number("a finite number > 0", lambda value: bool(0 < value < np.inf))

NOT_NEGATIVE = number("a finite number ≥ 0", lambda value: bool(0 <= value < np.inf))

PROBABILITY = number("a probability in (0, 1)", lambda value: bool(0 < value < 1))

ENDS = Rule(
    "two finite numbers, the lower one first",
    lambda value: is_several(value) and holds_numbers(value),
    lambda value: np.shape(value) == (2,) and bool(-np.inf < value[0] < value[1] < np.inf),
)

ROWS = array_of("an array of numbers (n, d)", None, None)

TEXT = Rule("text", is_string)

OPTIONS = Rule("a mapping, as fsspec takes it", is_mapping, optional=True)

GENERATORS = (np.random.Generator, np.random.RandomState, np.random.SeedSequence)

SEED_NUMBER = Rule("a whole number ≥ 0", is_whole, lambda value: bool(value >= 0))
"""Of any size, for it counts nothing: all of its digits go into what is drawn."""

SEED = Rule(
    "None, an integer ≥ 0, a Generator, a RandomState or a SeedSequence",
    lambda value: is_whole(value) or isinstance(value, GENERATORS),
    lambda value: not is_whole(value) or SEED_NUMBER.holds(value),
    optional=True,
)

PATH = Rule(
    "a path",
    lambda value: isinstance(value, str | bytes | PathLike),
    lambda value: "\0" not in os.fsdecode(value),
)
