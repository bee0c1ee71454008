"""Columns of categories or text: the levels that they have, and an input of 0 and 1 for each.

The inputs of a column are "sky=rain", "sky=sun". A level is part of a column's name, as a field
of a time is. So a model knows its levels by its columns, and finds them in any other table,
whatever that one holds besides.

A column of many levels is one input, "airport=*": a number for each text, the same in any data, for
levels that are known and for new ones. It says which level a row has, and is no quantity: a map has
a column for each level (:class:`~rff_stream.features.level_intercepts.LevelIntercepts`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import warn
from rff_stream.label_forms import time_text
from rff_stream.sources.container_types import KindError
from rff_stream.sources.rows import as_text, check_ends
from rff_stream.sources.variables import Variable

MAX_LEVELS = 64
"""With more inputs of 0 and 1 a kernel carries little information: all rows are equally far
apart. A column of more levels is one input, of random intercepts."""

EVERY = "*"
"""In the place of a level: "airport=*" is the number of the level that a row has."""

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)
WITH_COMMAS = re.compile(r"\s*[+-]?\d+(,\d+)+(\.\d+)?\s*")
"""Text that is a number, and text that is one with a comma for thousands or as the point."""

SCAN_ROWS = 65_536
"""Rows of a stored column that are read at once."""


@dataclass(frozen=True, slots=True)
class Indicators:
    """Values (…) -> (…, levels): 1 at a value's own level, 0 elsewhere; NaN where it is missing.

    A level that is not listed is 0 everywhere. Of numbers, 3 and 3.0 are the same level; of times,
    the same moment in any resolution and zone.
    """

    levels: tuple[str, ...]

    def __call__(self, values: Array) -> Array:
        texts, absent = level_texts(values)
        levels = np.array(self.levels)
        if are_numbers(values):
            names, place = np.unique(texts, return_inverse=True)
            texts = np.array([without_point(name) for name in names])[place.reshape(texts.shape)]
            levels = np.array([without_point(level) for level in self.levels])
        elif are_times(values):
            levels = np.array([text_of_time(level) for level in self.levels])
        found: Array = (texts[..., None] == levels).astype(np.float64)
        found[absent] = np.nan
        return found


@dataclass(frozen=True, slots=True)
class LevelCodes:
    """Values (…) -> numbers (…) of their levels, by a hash of their text; NaN where missing.

    Whole numbers below 2⁵³, which float64 holds: two of 10⁵ levels share one with probability
    6·10⁻⁷. Of numbers, 3 and 3.0 are the same level.
    """

    def __call__(self, values: Array) -> Array:
        texts, absent = level_texts(values)
        names, place = np.unique(texts, return_inverse=True)
        numbers = are_numbers(values)
        codes = [code_of(without_point(name) if numbers else name) for name in names.tolist()]
        found: Array = np.array(codes, np.float64)[place.reshape(texts.shape)]
        found[absent] = np.nan
        return found


def code_of(level: str) -> int:
    """The number of a level: the first 53 bits of a hash of its text."""
    digest = hashlib.blake2b(level.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 11


def is_coded(name: str) -> bool:
    """Whether an input is the number of a level, "airport=*"."""
    return column_of_level(name) != "" and name.endswith(f"={EVERY}")


def are_numbers(values: Array) -> bool:
    """Whether levels are numbers: one file may hold them as integers, another as floats."""
    if values.dtype.kind != "O":
        return values.dtype.kind in "iuf"
    known = next((v for v in values.ravel() if v is not None and v == v), None)
    return isinstance(known, int | float | np.number) and not isinstance(known, bool)


def without_point(level: str) -> str:
    """The text of a whole number as that of an integer: "3.0" is "3"."""
    try:
        value = float(level)
    except ValueError:
        return level
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else level


def are_times(values: Array) -> bool:
    """Whether levels are times: arrays of them, or objects such as those of pandas."""
    if values.dtype.kind != "O":
        return values.dtype.kind == "M"
    known = next((v for v in values.ravel() if v is not None and v == v), None)
    return hasattr(known, "isoformat")


def level_texts(values: Array) -> tuple[Array, Array]:
    """Values as text, and which of them are missing (None, NaN)."""
    absent = np.zeros(values.shape, bool)
    if values.dtype.kind not in "SU":
        there = [v is not None and v == v for v in values.ravel().tolist()]
        absent = ~np.array(there, bool).reshape(values.shape)
        check_ends(values)
    return texts_of_times(values) if are_times(values) else as_text(values), absent


def texts_of_times(values: Array) -> Array:
    """Times (…) as text, in UTC, as pandas writes them: "2020-01-04 06:00:00"."""
    names, place = np.unique(as_text(values), return_inverse=True)
    texts = np.array([text_of_time(name) for name in names.tolist()])
    return np.asarray(texts[place.reshape(values.shape)])


def text_of_time(text: str) -> str:
    """The one text of a time; another text as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    short = time_text(time) if len(text.partition(".")[2]) <= 6 or time.tzinfo else text
    day, _, clock = short.replace("T", " ").partition(" ")
    clock, _, part = f"{clock or '00'}".partition(".")
    clock += ":00" * (2 - clock.count(":"))
    part = part.rstrip("0")
    part = part.ljust(6 if len(part) <= 6 else 9, "0") if part else ""
    return f"{day} {clock}{'.' if part else ''}{part}"


def holds_levels(variable: Variable) -> bool:
    """Whether a column has a type of categories."""
    return variable.holds is not None and variable.holds.kind == "categories"


def is_text(variable: Variable) -> bool:
    """Whether a column holds text."""
    strings = variable.holds is not None and variable.holds.kind == "strings"
    if strings or variable.dtype.kind in "SUT":
        return True
    has_objects = variable.dtype.kind == "O" and variable.kind == "memory"
    values = variable.data.ravel() if has_objects else ()
    known = (v for v in values if v is not None and (np.ndim(v) or v == v))  # of lists, no NaN
    return isinstance(next(known, None), str)


def levels_of(variable: Variable) -> tuple[str, ...]:
    """The levels that occur in a column, sorted: read once, slab by slab; ``EVERY`` for many.

    Raises KindError: objects that are no text.
    """
    if variable.levels is not None or variable.kind == "graph":
        return known_levels(variable)
    levels: set[str] = set()
    for lo in range(0, variable.shape[0], SCAN_ROWS):
        hi = min(lo + SCAN_ROWS, variable.shape[0])
        rest = tuple(slice(0, size) for size in variable.shape[1:])
        values = np.asarray(variable.data[(slice(lo, hi), *rest)])
        check_texts(variable, values)
        levels |= level_set(values)
        if len(levels) > MAX_LEVELS:
            break  # text is looked at where it is read
    if not holds_levels(variable):
        warn_of_numbers(variable.name, levels)
        warn_of_times(variable.name, levels)
    return few_or_every(variable.name, levels)


def warn_of_numbers(name: str, levels: Collection[str]) -> None:
    """Warn of text whose levels are numbers: a mark for "missing" among them, commas, fractions.

    Whole numbers alone may be codes, as may texts such as "2A". In CSV one such mark makes text of
    a column of numbers.
    """
    numbers = [level for level in levels if NUMBER.fullmatch(level)]
    commas = [level for level in levels if WITH_COMMAS.fullmatch(level)]
    others = sorted({*levels}.difference(numbers, commas))
    marks = bool(others) and not any(letter.isdigit() for level in others for letter in level)
    fractions = len(levels) > MAX_LEVELS and any("." in level for level in numbers)
    suspect = commas or (marks if others else fractions)
    if suspect and len(numbers) + len(commas) > len(levels) / 2:
        beside = f" beside {others[0]!r}" if others else ""
        warn(
            f"{name!r} holds text, so that its values are levels, but they are numbers such as "
            f"{min([*commas, *numbers])!r}{beside}. Numbers are inputs as numbers only where a "
            f"column holds nothing else: leave missing values empty, write no commas, or convert "
            f"the column, such as with pandas.to_numeric.",
            UserWarning,
        )


def warn_of_times(name: str, levels: Collection[str]) -> None:
    """Warn of text whose levels are all times, of which later rows have others."""
    if levels and all(is_time(level) for level in levels):
        warn(
            f"{name!r} holds text, so that its values are levels, but they are times such as "
            f"{min(levels)!r}: a later time is a level that was never seen. Times are inputs where "
            "the column has their type: convert it, such as with pandas.to_datetime.",
            UserWarning,
        )


def is_time(text: str) -> bool:
    """Whether text is a day or a moment as ISO 8601 writes it, with hyphens."""
    try:
        datetime.fromisoformat(text.strip())
    except ValueError:
        return False
    return "-" in text


def level_set(values: Array) -> set[str]:
    """The texts of the levels that occur; whole numbers have no point."""
    texts, absent = level_texts(values)
    found = np.unique(texts[~absent]).tolist()
    return {without_point(level) for level in found} if are_numbers(values) else {*found}


def known_levels(variable: Variable) -> tuple[str, ...]:
    """The levels of a column whose values are computed: those that its type names."""
    if not variable.levels:
        name, in_frame = variable.name, variable.levels is not None
        remedy = f"let Dask find them: X.categorize(columns=[{name!r}])"
        raise KindError(
            f"The levels of {name!r} are not known before it is computed. Name them with "
            f"inputs=['{name}=…', …], or {remedy if in_frame else 'load the column before'}."
        )
    return few_or_every(variable.name, variable.levels)


def few_or_every(name: str, levels: Collection[str]) -> tuple[str, ...]:
    """The levels, sorted; one place for every level where they are many, or one is ``EVERY``."""
    if len(levels) > MAX_LEVELS:
        return (EVERY,)
    if EVERY in levels:
        warn(
            f"{name!r} has a level {EVERY!r}, which as the name of an input stands for all levels: "
            f"so it becomes one input, {name}={EVERY}, whose {len(levels)} levels have random "
            "intercepts and act with no other input. Write this level otherwise.",
            UserWarning,
        )
        return (EVERY,)
    return tuple(sorted(levels))


def check_texts(variable: Variable, values: Array) -> None:
    """Values of a column that is no category are text."""
    if holds_levels(variable) or values.dtype.kind in "SUT":
        return
    other = next((v for v in values.ravel() if not isinstance(v, str) and v is not None), "")
    if other == other and not isinstance(other, str):
        raise KindError(
            f"{variable.name!r} holds {other!r}, a {type(other).__name__}, beside text. Levels are "
            f"text or categories. Convert the column, or leave it out with inputs=[…]."
        )


def level_names(name: str, levels: Sequence[str]) -> tuple[str, ...]:
    """Names of the inputs of a column: "sky=rain", "sky=sun"."""
    return tuple(f"{name}={level}" for level in levels)


def split_level(name: str, names: Sequence[str]) -> tuple[str, str] | None:
    """The column and the level of "sky=rain"; None where no column has such a name."""
    places = (i for i, letter in enumerate(name) if letter == "=")
    pairs = ((name[:i], name[i + 1 :]) for i in places)
    return next((pair for pair in pairs if pair[0] in names), None)


def column_of_level(name: str) -> str:
    """The column of the input "sky=rain"; empty for "u[level=500]" and other columns."""
    column, equals, _ = name.partition("=")
    inside = name.endswith("]") and "[" in column and "]" not in column
    return column if equals and not inside else ""


def places_by_variable(inputs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Places of the inputs that tell of each variable, by its name, in their order.

    The levels of a column are one variable, "sky", and so are an input and the mark of where it is
    missing; of one level alone the name is that of the input.
    """
    found: dict[str, list[int]] = {}
    for place, name in enumerate(inputs):
        column = column_of_level(name)
        found.setdefault(name if not column or is_coded(name) else column, []).append(place)
    return {name if len(own) > 1 else inputs[own[0]]: tuple(own) for name, own in found.items()}
