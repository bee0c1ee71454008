"""A request for data: columns, conditions on rows, and hold-outs by hash."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.label_forms import number_of, text_of
from rff_stream.moments.row_sample import hash_places
from rff_stream.sources.protocol import Columns
from rff_stream.sources.rows import Convert, Days, Labels, Numbers
from rff_stream.text_formatting import list_names

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
    value: Any  # str or number: times as ISO text
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

    Raises DataError: the operator is not known, or the value is no number or no time.
    """
    if op not in OPERATORS:
        raise DataError(
            f"where {name!r} {op!r}: the operator is one of {list_names(OPERATORS, 'or')}."
        )
    try:
        Comparison(name, op, value, Numbers())(np.zeros(1, dtype))
    except (TypeError, ValueError) as cause:
        raise DataError(
            f"where {name} {op} {value!r} cannot be compared: {name!r} has dtype {dtype}. Give "
            f'a number, or a time as ISO text such as "2015-06-01" ({cause}).'
        ) from cause
    return Comparison(name, op, value, accessor)


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
        if not 0 < self.fraction < 1:
            raise DataError(
                f"HoldOut(fraction={self.fraction!r}): the fraction that is held out lies "
                f"strictly between 0 and 1. Give 0.1 to hold out a tenth."
            )
        if self.part not in ("train", "test"):
            raise DataError(f'HoldOut(part={self.part!r}): the part is "train" or "test".')

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


@dataclass(frozen=True, slots=True)
class Request:
    """What :func:`open_source` was asked for, without X and y."""

    inputs: tuple[Any, ...] | None = None
    dim: tuple[str, ...] | None = None
    where: tuple[Where, ...] = ()
    missing_rows: str = "error"  # {"error", "drop"}
    missing_chunks: str = "auto"  # {"auto", "error", "fill"}
    columns: Columns | None = None  # fitted columns, at prediction
    sample_weight: Any = None  # name or array-like
    by: Any = None  # name or array-like
    y_labels: bool = False  # y is the label of each row, not a number
    labels: tuple[str, ...] = ()
    """Columns whose values together are the group label: "month=1,region=north"."""
    storage_options: Mapping[str, Any] | None = None  # for URLs, as fsspec takes them
