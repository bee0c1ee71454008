"""A selection of rows: their columns, conditions on them, and hold-outs by hash."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.arguments import (
    OPTIONS,
    SEED_NUMBER,
    Rule,
    is_several,
    is_string,
    number,
    one_of,
    truth,
)
from rff_stream.errors import DataError
from rff_stream.hashes import hash_places
from rff_stream.label_forms import number_of, text_of
from rff_stream.sources.container_types import is_names
from rff_stream.sources.protocol import Columns
from rff_stream.sources.rows import Convert, Days, Labels, Numbers, check_ends
from rff_stream.text_formatting import hide_options, list_names

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Truth of ``values op value``, elementwise.

    Times compare at the precision of the value: ``time <= "2015"`` takes all of 2015; time
    spans compare in days.
    """

    name: str  # column, for messages
    op: str  # {"<", "<=", ">", ">=", "==", "!="}
    value: Any  # str or number: times as ISO text, spans in days
    accessor: Convert  # applied first: the accessor of a virtual name

    def __call__(self, values: Array) -> Array:
        values = self.accessor(values)
        if values.dtype.kind == "M":
            value = np.datetime64(self.value)
            values = values.astype(f"datetime64[{np.datetime_data(value)[0]}]")
        else:
            values, value = self.alike(values)
        found: Array = np.asarray(OPERATORS[self.op](values, value), dtype=bool)
        return found

    def alike(self, values: Array) -> tuple[Array, Any]:
        """Values and value in one kind: text of cftime objects, strings, numbers."""
        if values.dtype.kind == "m":
            values = Days()(values)
        check_ends(values)
        if values.dtype.kind == "O":
            texts = [iso(value, len(str(self.value))) for value in values.ravel()]
            return np.array(texts, dtype=str).reshape(values.shape), str(self.value)
        if values.dtype.kind in "SUT":
            return values.astype(str), str(self.value)
        return values, float(self.value)


def iso(value: Any, precision: int) -> str:
    """ISO text of a time, cut to as many characters; other objects as text."""
    return str(value.isoformat())[:precision] if hasattr(value, "isoformat") else str(value)


def comparison(
    name: str, op: str, value: Any, accessor: Convert, dtype: np.dtype[Any]
) -> Comparison:
    """A comparison that is possible for values of this dtype (that which ``accessor`` gives).

    Raises DataError: the operator is not known, or the value is none of this dtype.
    """
    if op not in OPERATORS:
        raise DataError(
            f"where {name!r} {op!r}: the operator is one of {list_names(OPERATORS, 'or')}."
        )
    try:
        plain = plain_value(value)
        Comparison(name, op, plain, Numbers())(np.zeros(1, dtype))
    except (TypeError, ValueError) as cause:
        raise DataError(
            f"where {name} {op} {value!r} cannot be compared: {name!r} has dtype {dtype}. Give "
            f"{COMPARED_WITH.get(dtype.kind, 'a number')} ({cause})."
        ) from cause
    return Comparison(name, op, plain, accessor)


COMPARED_WITH = {
    "M": 'a time as ISO text such as "2015-06-01"',
    "m": 'a number of days, or a span such as np.timedelta64(36, "h")',
}
"""What values of these kinds of dtype are compared with."""


def plain_value(value: Any) -> Any:
    """The value of a condition as text or a number: a time as precise as it is, a span in days."""
    if isinstance(value, np.timedelta64 | timedelta):
        return float(Days()(np.asarray(value, "timedelta64")))
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return value.isoformat(timespec="microseconds")
    if hasattr(value, "isoformat"):  # a date, or a time of another calendar
        return value.isoformat()
    return value.item() if isinstance(value, np.generic) else value


def plain_condition(condition: Any) -> Any:
    """A condition that a model can keep, whatever kind of time it holds."""
    if isinstance(condition, HoldOut) or not is_several(condition) or len(condition) != 3:
        return condition
    return (*condition[:2], plain_value(condition[2]))


COLUMN = Rule("the name of a column of labels", is_string, optional=True)

FRACTION = number(
    "a share of the rows in (0, 1)",
    lambda value: bool(0 < value < 1),
    "Give 0.1 to hold out a tenth.",
)


@dataclass(frozen=True, slots=True)
class HoldOut:
    """Training or test part of the rows, chosen by a hash; the parts are exact complements.

    The part of a row depends only on its place in the whole grid, or on its label, not on boxes,
    chunks and workers. In a Dask frame, whose lengths are unknown, it is the place in a partition.

    Parameters
    ----------
    fraction : float
        Expected share of the test part, 0 < fraction < 1.
    seed : int
        Another seed gives another choice.
    part : {"train", "test"}
        Which part is read.
    by : str, optional
        Hold out whole labels: "time.year" keeps every year on one side. 1 and 1.0 are one label.

    Raises
    ------
    TypeError, ValueError
        If the fraction does not lie between 0 and 1, or there is no such part.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> X, y = np.arange(1000.0)[:, None], np.arange(1000.0)
    >>> model = rs.KernelRidge(n_components=32, random_state=0)
    >>> model = model.fit(X, y, where=[HoldOut(0.2)])
    >>> model.residuals(X, y, where=[HoldOut(0.2, part="test")]).n + model.n_rows_
    1000
    """

    fraction: float
    seed: int = 0
    part: Literal["train", "test"] = "train"
    by: str | None = None
    as_before: bool = field(default=False, repr=False, kw_only=True)
    """Whether a model of an earlier version holds labels out by it: to that, 1 and 1.0 were two."""

    def __post_init__(self) -> None:
        FRACTION.check("fraction", self.fraction)
        SEED_NUMBER.check("seed", self.seed)
        one_of("train", "test").check("part", self.part)
        COLUMN.check("by", self.by)

    def of_places(self, places: Array) -> Array:
        """Which of these rows (places in the grid, integers) belong to the part."""
        limit = np.uint64(min(2**64 - 1, int(self.fraction * 2**64)))
        test = hash_places(places, self.seed) < limit
        return test if self.part == "test" else ~test

    def of_labels(self, labels: Array) -> Array:
        """Which rows belong to the part, by their labels; equal labels stay together."""
        distinct, inverse = np.unique(labels.ravel(), return_inverse=True)
        texts = [str(label) if self.as_before else text_of(label) for label in distinct]
        found = self.of_places(np.array([number_of(text) for text in texts], np.uint64))
        return found[inverse].reshape(labels.shape)


@dataclass(frozen=True, slots=True)
class InHoldOut:
    """Truth of "this label belongs to the part", elementwise."""

    holdout: HoldOut
    accessor: Convert = Numbers()

    def __call__(self, values: Array) -> Array:
        values = self.accessor(values)
        if not (self.holdout.as_before and values.dtype.kind in "MmS"):
            values = Labels()(values)
        return self.holdout.of_labels(values)


Where = tuple[str, str, Any] | HoldOut
"""(name, op, value), or a hold-out."""


CONDITIONS = Rule(
    "a list of conditions",
    is_several,
    remedy='Write where=[("time", "<", 2015)], or where=[HoldOut(0.1)].',
)

NAMES = Rule(
    "a name or a list of names",
    lambda value: (
        is_string(value) or (is_several(value) and all(isinstance(n, Hashable) for n in value))
    ),
    optional=True,
)

COLUMNS = Rule(
    "the Columns of a fit",
    lambda value: isinstance(value, Columns),
    remedy="Give model.columns_.",
    optional=True,
)

MISSING_ROWS = ("error", "drop", "indicate")
"""What a missing value means: an error, no row, or information that an input has."""

MISSING_CHUNKS = ("auto", "error", "fill")
"""What an absent chunk means: what its format says, an error, or fill values."""


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Which rows and columns of a container are read, and what they mean.

    What a caller asks for, what a container opens, and what a fit remembers to choose later rows
    alike. Names and values are as they were given: see :func:`rff_stream.open_source`.
    """

    X: Any = None
    y: Any = None  # values beside X, or name(s) in it
    sample_weight: Any = None  # values beside X, or a name in it
    inputs: Sequence[Any] | str | None = None
    dim: Sequence[str] | str | None = None
    where: Sequence[Where] = ()
    by: Any = None  # label of each row: a name, names, or values beside X
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """For URLs, as fsspec takes them; may hold secrets."""
    missing_rows: str = "error"  # {"error", "drop", "indicate"}
    missing_chunks: str = "auto"  # {"auto", "error", "fill"}
    y_labels: bool = False  # y is the label of each row, not a number
    columns: Columns | None = None
    """Those of the fit, for later rows: the source gives these inputs in this order."""

    def __post_init__(self) -> None:
        OPTIONS.check("storage_options", self.storage_options)
        CONDITIONS.check("where", self.where)
        object.__setattr__(self, "where", tuple(self.where))
        hide_options(self.storage_options)

    @property
    def input_names(self) -> tuple[Any, ...] | None:
        """Inputs that were asked for; None for the default."""
        return as_names(self.inputs)

    @property
    def dims(self) -> tuple[str, ...] | None:
        """Sample dimensions that were asked for; None for the default."""
        return as_names(self.dim)

    @property
    def labels_by(self) -> Any:
        """Name(s) of the column(s) that label the rows; None where there are none, or an array."""
        return self.by if isinstance(self.by, str) or is_names(self.by) else None

    @property
    def lasting(self) -> Self:
        """What later rows are chosen by, too: dimensions, conditions and the columns of labels."""
        where = tuple(plain_condition(each) for each in self.where)
        return type(self)(dim=self.dim, where=where, by=self.by)

    @property
    def arguments(self) -> dict[str, Any]:
        """What was asked for, as ``fit`` and the scores of an estimator take it."""
        own = ("X", "y", "sample_weight", "inputs", "dim", "where", "by", "storage_options")
        return {name: getattr(self, name) for name in own if getattr(self, name) is not None}

    def check(self) -> None:
        """Refuse names that cannot be, and words that are not known, before anything is opened."""
        for role, names in (("inputs", self.inputs), ("dim", self.dim)):
            NAMES.check(role, names)
            check_names(role, as_names(names))
        targets = as_names(self.y) if isinstance(self.y, str | list | tuple) else ()
        names = self.input_names or ()
        both = [name for name in names if isinstance(name, str) and name in (targets or ())]
        if both:
            raise DataError(
                f"{both[0]!r} is the target and an input, so it would be predicted from itself. "
                "Take it out of inputs."
            )
        one_of(*MISSING_ROWS).check("missing_rows", self.missing_rows)
        one_of(*MISSING_CHUNKS).check("missing_chunks", self.missing_chunks)
        truth().check("y_labels", self.y_labels)
        COLUMNS.check("columns", self.columns)


def as_names(names: Sequence[Any] | str | None) -> tuple[Any, ...] | None:
    """One name or several, as a tuple."""
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)


def check_names(role: str, names: tuple[Any, ...] | None) -> None:
    """Some names, each once."""
    if names == ():
        raise DataError(
            f"{role} names nothing. Give at least one name, or leave it out for the default."
        )
    twice = next((name for name in names or () if (names or ()).count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{role} names {twice!r} twice. Each name stands there once.")
