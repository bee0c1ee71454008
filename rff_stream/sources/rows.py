"""Values of a box -> slabs of rows in float64, and the rules a row must meet.

A conversion makes numbers, labels or truth values of stored ones, elementwise.
A use says what one array becomes: inputs, targets, the weight, a group label, or a
condition that the row must meet. Arrays keep one axis per sample dimension (of length 1
where they do not have it) and are broadcast as a slab is filled, never before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Literal, Protocol

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import DataError
from rff_stream.label_forms import is_absent, texts_of
from rff_stream.sources.container_types import KindError
from rff_stream.sources.protocol import LARGEST, SLAB_ROWS, Columns, Rows

Role = Literal["input", "target", "weight", "label", "named label", "condition"]

Slices = tuple[slice, ...]

Place = Callable[[int], str]
"""A row's place in its box (C order) -> its place in words."""

EPOCH = "days since 1970-01-01"

EXACT = 2**53
"""Up to here every integer is a float64."""

STANDARD_CALENDARS = ("standard", "gregorian", "proleptic_gregorian", "")

TIME_FIELDS = (
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "dayofyear",
    "dayofweek",
    "quarter",
    "days_in_month",
)
"""Accessors worth suggesting; any other numeric one of xarray's ``.dt`` works too."""


class Convert(Protocol):
    """Stored values -> values of a row, elementwise; shape (…) in, shape (…) out."""

    def __call__(self, values: Array) -> Array: ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """The values themselves; they are cast to float64 where they are placed.

    Integers that float64 cannot tell from their neighbours (beyond 2⁵³) are refused.
    """

    name: str = "a column"  # column, for the message

    def __call__(self, values: Array) -> Array:
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
            self.check(values)
        return values

    def check(self, values: Array) -> None:
        """Every integer is a float64."""
        if max(int(values.max()), -int(values.min())) <= EXACT:
            return
        lost = values[values.astype(np.float64).astype(object) != values.astype(object)]
        if lost.size:
            raise DataError(
                f"{self.name!r} holds {lost.size} integers such as {lost.flat[0]}, but rows are "
                f"float64, which is exact for integers up to 2^53 = {EXACT} only. Subtract an "
                f"offset from the column first, or take it out if it is an identifier."
            )


@dataclass(frozen=True, slots=True)
class Days:
    """Days since 1970-01-01 of datetime64, days of timedelta64; NaT becomes NaN."""

    def __call__(self, values: Array) -> Array:
        if values.dtype.kind == "M":
            coarse = np.datetime_data(values.dtype)[0] in ("Y", "M", "generic")
            values = values.astype("datetime64[D]") if coarse else values
            values = values - np.datetime64(0, "D")
        days: Array = values / np.timedelta64(1, "D")
        return days


@dataclass(frozen=True, slots=True)
class CftimeDays:
    """Days since 1970-01-01 in the calendar of cftime objects; None becomes NaN."""

    calendar: str

    def __call__(self, values: Array) -> Array:
        import cftime

        flat = values.ravel()
        there = np.array([hasattr(value, "calendar") for value in flat], dtype=bool)
        other = next((v for v in flat[~there] if v is not None and v == v), None)
        if other is not None:
            raise DataError(
                f"Times of calendar {self.calendar!r} (cftime) stand beside {other!r}, a "
                f"{type(other).__name__}. All times of a column are of one kind; convert them, "
                f"for example with DataArray.convert_calendar."
            )
        days = np.full(flat.shape, np.nan)
        if there.any():
            days[there] = cftime.date2num(flat[there], EPOCH, calendar=self.calendar)
        return days.reshape(values.shape)


@dataclass(frozen=True, slots=True)
class Accessor:
    """A field of times by xarray's ``.dt``: dayofyear, month and others."""

    field: str

    def __call__(self, values: Array) -> Array:
        import xarray

        times = xarray.DataArray(values.ravel(), dims="time")
        found: Array = np.asarray(getattr(times.dt, self.field))
        return found.reshape(values.shape)


@dataclass(frozen=True, slots=True)
class Labels:
    """Group labels in their one form: numbers as they are, times and objects as text.

    Spans of time are in days. Text that is missing is None.
    """

    accessor: Convert = Numbers()

    def __call__(self, values: Array) -> Array:
        found = self.accessor(values)
        if found.dtype.kind == "S":
            check_text(found)
        if found.dtype.kind == "m":
            return Days()(found)
        if found.dtype.kind not in "MOST":
            return found
        check_ends(found)
        missing = np.isnat(found) if found.dtype.kind == "M" else np.zeros(found.shape, bool)
        if found.dtype.kind in "OT":
            missing = np.array([*map(is_absent, found.ravel())], bool).reshape(found.shape)
        texts = texts_of(found)
        if not missing.any():
            return texts
        named: Array = texts.astype(object)
        named[missing] = None
        return named


@dataclass(frozen=True, slots=True)
class IsMissing:
    """Values -> 1 where their number is missing, else 0."""

    numbers: Convert

    def __call__(self, values: Array) -> Array:
        found: Array = np.isnan(self.numbers(values)).astype(np.float64)
        return found


ANOTHER_PART = re.compile(",[^,=]*=")
"""In a label of several columns, the beginning of the next one."""


@dataclass(frozen=True, slots=True)
class NamedLabels:
    """Group labels as text with their name: "month=1"; "" where there is none."""

    name: str
    accessor: Convert = Numbers()

    def __call__(self, values: Array) -> Array:
        found = Labels(self.accessor)(values)
        distinct, inverse = np.unique(texts_of(found), return_inverse=True)
        odd = next((text for text in distinct.tolist() if ANOTHER_PART.search(text)), None)
        if odd is not None:
            raise DataError(
                f"A label of {self.name!r} is {odd!r}, and labels of several columns are joined "
                'as "a=1,b=2", where it would be another. Rename it, or label by one column.'
            )
        texts = np.array([f"{self.name}={text}" for text in distinct.tolist()], dtype=str)
        labels = texts[inverse].reshape(found.shape)
        if found.dtype.kind == "O":
            absent = [label is None for label in found.ravel()]
            labels[np.array(absent, bool).reshape(found.shape)] = ""
        elif found.dtype.kind == "f":
            labels[np.isnan(found)] = ""
        return labels


@dataclass(frozen=True, slots=True)
class NonNumbers:
    """What a column holds that is no number or time."""

    kind: Literal["categories", "strings", "objects"]
    dtype: str  # as its container names it

    def __str__(self) -> str:
        return f"{self.kind} (dtype {self.dtype})"


def as_numbers(
    name: str, dtype: np.dtype[Any], calendar: str = "", holds: NonNumbers | None = None
) -> Convert:
    """The conversion that makes float64 of a stored (decoded) dtype.

    ``calendar`` is that of cftime objects. ``holds`` says what is no number where the dtype does
    not.

    Raises KindError: complex values, strings, categories, objects: they are no numbers.
    """
    if holds is not None:
        raise KindError(refusal(name, holds))
    if dtype.kind in "mM":
        return Days()
    if calendar:
        return CftimeDays(calendar)
    if dtype.kind in "biuf":
        return Numbers(name)
    if dtype.kind == "c":
        raise KindError(
            f"Complex data not supported: {name!r} is {dtype}. A row holds real numbers. "
            f"Give its real and imaginary parts as two columns."
        )
    kind: Literal["strings", "objects"] = "strings" if dtype.kind in "SUT" else "objects"
    raise KindError(refusal(name, NonNumbers(kind, str(dtype))))


def refusal(name: str, holds: NonNumbers) -> str:
    """Why values are no column of numbers, and what to do."""
    return (
        f"{name!r} holds {holds}, but what is read here must be a number or a time. Text and "
        f"categories can be inputs, where each level becomes one. Encode the column as numbers, or "
        f"leave it out: inputs=[…]."
    )


def units_of_time(dtype: np.dtype[Any], calendar: str = "") -> str:
    """Units of a time column, "" for other dtypes."""
    if dtype.kind == "m":
        return "days"
    if calendar not in STANDARD_CALENDARS:
        return f"{EPOCH} ({calendar})"
    return EPOCH if dtype.kind == "M" or calendar else ""


def as_text(values: Array) -> Array:
    """Values as text; bytes that are no UTF-8 with escapes."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "backslashreplace")
    texts: Array = values.astype(str)
    return texts


def check_text(values: Array) -> None:
    """Labels of bytes are text."""
    try:
        np.char.decode(values, "utf-8")
    except UnicodeDecodeError as cause:
        raise DataError(
            f"A label is {cause.object!r}, which is no text in UTF-8. A label is a number, a time "
            f"or text. Decode the column with the encoding that it was written in."
        ) from cause


def check_ends(values: Array) -> None:
    """Refuse a text that another one would become: NumPy fills its texts with zeros."""
    if values.dtype.kind not in "OT":
        return
    cut = next((v for v in values.ravel() if isinstance(v, str) and v[-1:] == "\0"), None)
    if cut is not None:
        raise DataError(
            f"A text is {cut!r}, and NumPy does not keep a zero at the end of a text, so it would "
            "become another label or level. Rename it."
        )


@dataclass(frozen=True, slots=True)
class VariableUse:
    """What one array becomes in a row."""

    part: int  # which array
    role: Role  # {"input", "target", "weight", "label", "named label", "condition"}
    convert: Convert  # stored values to numbers, labels or (conditions) truth values
    at: slice | None = None  # columns of x or y that it fills
    pick: tuple[int, ...] | None = None
    """Which of its columns (extra dimensions flattened); None: all, in order."""
    fills: tuple[float, ...] | None = None
    """What stands in the place of a missing value, one for each column; None: nothing does."""

    def columns(self, values: Array, n_dims: int) -> Array:
        """Values with the extra dimensions flattened into one: (sample dims…, columns)."""
        flat = values.reshape((*values.shape[:n_dims], -1))
        return flat if self.pick is None else flat[..., list(self.pick)]

    def ready(self, values: Any) -> tuple[VariableUse, Array]:
        """Small arrays (coordinates) are converted once a box, others once a slab."""
        if not isinstance(values, np.ndarray) or values.size > SLAB_ROWS:
            return self, values
        return replace(self, convert=Numbers()), self.convert(values)


@dataclass(slots=True, eq=False)
class Slab:
    """Rows of one slab before the rules: every row of it is still there."""

    x: Float64
    y: Float64
    w: Float64 | None
    label: Array | None
    selected: Array | None
    start: int

    def select(self, chosen: Array) -> None:
        """Leave out the rows that are not chosen."""
        self.selected = chosen if self.selected is None else self.selected & chosen


@dataclass(frozen=True, slots=True)
class Filler:
    """Fills slabs of rows from arrays with one axis per sample dimension."""

    uses: tuple[VariableUse, ...]
    n_inputs: int
    n_targets: int

    def slabs(
        self, arrays: Sequence[Array], shape: tuple[int, ...]
    ) -> Iterator[tuple[Slices, Slab]]:
        """The slabs of a box in C order, each with the part of the box that it is."""
        ready = [use.ready(arrays[use.part]) for use in self.uses]
        for start, slices in slab_slices(shape):
            own = tuple(part.stop - part.start for part in slices)
            x, y = np.empty((*own, self.n_inputs)), np.empty((*own, self.n_targets))
            slab = Slab(x, y, None, None, None, start)
            for use, array in ready:
                place(slab, use, part_of(array, slices), own)
            rows = prod(own)
            slab.x, slab.y = x.reshape(rows, self.n_inputs), y.reshape(rows, self.n_targets)
            yield slices, slab


def part_of(array: Any, slices: Slices) -> Array:
    """The part of an array that belongs to a slab, dense; axes of length 1 stay."""
    if not isinstance(array, np.ndarray):  # of scipy.sparse
        return array[slices].toarray()  # type: ignore[no-any-return]
    pairs = zip(array.shape, slices, strict=False)
    return array[tuple(slice(None) if size == 1 else part for size, part in pairs)]


def place(slab: Slab, use: VariableUse, values: Array, shape: tuple[int, ...]) -> None:
    """Put one use's values where they belong in the slab."""
    found = use.columns(use.convert(values), len(shape))
    if use.role in ("input", "target"):
        rows = slab.x if use.role == "input" else slab.y
        if use.fills is not None:
            found = np.where(np.isnan(found), use.fills, found)
        rows[..., use.at] = found
        return
    full = np.broadcast_to(found[..., 0], shape).reshape(-1)
    if use.role == "weight":
        slab.w = full.astype(np.float64)
    elif use.role == "label":
        slab.label = full if slab.label is None else pairs(slab.label, full)
    elif use.role == "named label":
        slab.label = full if slab.label is None else named_pairs(slab.label, full)
    else:
        slab.select(full)


def slab_slices(shape: tuple[int, ...], limit: int = SLAB_ROWS) -> Iterator[tuple[int, Slices]]:
    """(first row, slices) of runs of at most ``limit`` rows of a box, in C order."""
    inner = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    cut = next(axis for axis, size in enumerate(inner) if size <= limit)
    step = max(1, limit // max(1, inner[cut]))
    tail = tuple(slice(0, size) for size in shape[cut + 1 :])
    start = 0
    for outer in product(*(range(size) for size in shape[:cut])):
        head = tuple(slice(i, i + 1) for i in outer)
        for lo in range(0, shape[cut], step):
            hi = min(lo + step, shape[cut])
            yield start, (*head, slice(lo, hi), *tail)
            start += (hi - lo) * inner[cut]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which rows count, and which values are an error.

    Rows that a condition leaves out and rows of weight 0 are not looked at; ±inf, negative weights
    and targets whose squares overflow are errors; a NaN (in the label too) makes a missing row: an
    error or dropped.
    """

    columns: Columns
    missing: str  # {"error", "drop", "indicate"}; "indicate": NaN of inputs stays in the row

    def read(self, slabs: Callable[[], Iterator[Slab]], words: str, place: Place) -> Iterator[Rows]:
        """The valid rows of the slabs of a box, which are made again where they are in error."""
        for slab in slabs():
            rows = self.rows(slab)
            if rows is None:
                raise self.error(slabs(), words, place)
            yield rows

    def rows(self, slab: Slab) -> Rows | None:
        """The valid rows of a slab; None if it holds what is an error."""
        selected = slab.selected
        if slab.w is not None:
            selected = slab.w != 0 if selected is None else selected & (slab.w != 0)
        if self.all_count(slab, selected):
            return Rows(slab.x, slab.y, slab.w, None, slab.start, slab.label)
        if selected is None:
            selected = np.ones(len(slab.x), dtype=bool)
        nan, bad = faults(slab, selected, whole=self.missing != "indicate")
        if bad.any() or (nan.any() and self.missing == "error"):
            return None
        return keep_rows(slab, selected & ~nan)

    def all_count(self, slab: Slab, selected: Array | None) -> bool:
        """Whether every row counts and every value is finite: the usual case."""
        if selected is not None and not selected.all():
            return False
        if slab.label is not None and no_label(slab.label).any():
            return False
        with np.errstate(all="ignore"):
            total, squares = slab.x.sum(), np.square(slab.y).sum()
            if not (np.isfinite(total) and squares < LARGEST**2):
                return False
            w = slab.w
            return w is None or bool(np.isfinite(w.sum()) and w.min(initial=1) > 0)

    def error(self, slabs: Iterator[Slab], box: str, place: Place) -> DataError:
        """What is wrong with the rows of a box: counted over all of its slabs."""
        counts: dict[tuple[str, str], int] = {}
        first: dict[tuple[str, str], tuple[int, Any]] = {}
        for slab in slabs:
            for fault, rows, values in self.named_faults(slab):
                counts[fault] = counts.get(fault, 0) + len(rows)
                first.setdefault(fault, (slab.start + int(rows[0]), values[rows[0]]))
        order = list(RULES)
        name, kind = fault = min(counts, key=lambda fault: order.index(fault[1]))
        row, value = first[fault]
        where = f"{value:.3g} at {place(row)}" if kind == "large" else f"at {place(row)}"
        return DataError(message(name, kind, counts[fault], box, where))

    def named_faults(self, slab: Slab) -> Iterator[tuple[tuple[str, str], Array, Array]]:
        """((column, kind), rows, values of the column) of every fault in a slab."""
        selected = np.ones(len(slab.x), bool) if slab.selected is None else slab.selected
        weights = np.empty((len(slab.x), 0)) if slab.w is None else slab.w[:, None]
        if slab.w is not None:
            selected = selected & (slab.w != 0)
        table = np.concatenate([slab.x, slab.y, weights], axis=1)
        names = (*self.columns.inputs, *self.columns.targets, self.columns.weight)
        for name, column in zip(names, table.T, strict=False):
            yield from name_rows(name, "inf", column, np.isinf(column) & selected)
            yield from name_rows(name, "NaN", column, np.isnan(column) & selected)
        for name, column in zip(self.columns.targets, slab.y.T, strict=False):
            beyond = (np.abs(column) > LARGEST) & np.isfinite(column)
            yield from name_rows(name, "large", column, beyond & selected)
        if slab.w is not None:
            negative = (slab.w < 0) & selected
            yield from name_rows(self.columns.weight, "negative", slab.w, negative)
        if slab.label is not None:
            absent = no_label(slab.label) & selected
            yield from name_rows("the group label", "no label", slab.label, absent)


def name_rows(
    name: str, kind: str, values: Array, rows: Array
) -> Iterator[tuple[tuple[str, str], Array, Array]]:
    """The rows of one fault in the values of a column, if there are any."""
    if rows.any():
        yield (name, kind), np.flatnonzero(rows), values


def faults(slab: Slab, selected: Array, *, whole: bool) -> tuple[Array, Array]:
    """Which selected rows hold NaN (in inputs, too, if ``whole``), and what is always an error."""
    with np.errstate(all="ignore"):
        nan = np.isnan(slab.y).any(axis=1)
        if whole:
            nan |= np.isnan(slab.x).any(axis=1)
        bad = np.isinf(slab.x).any(axis=1) | (np.abs(slab.y) > LARGEST).any(axis=1)
        if slab.w is not None:
            nan |= np.isnan(slab.w)
            bad |= (slab.w < 0) | np.isinf(slab.w)
    if slab.label is not None:
        nan |= no_label(slab.label)
    return nan & selected, bad & selected


def pairs(first: Array, second: Array) -> Array:
    """Labels (m,) of two kinds as one: fields f0 and f1, where rows carry a class and a group."""
    return np.rec.fromarrays([first, second]).view(np.ndarray)


def named_pairs(first: Array, second: Array) -> Array:
    """Texts (m,) "month=1,region=north" of two columns; "" where one of them is missing."""
    together = np.char.add(np.char.add(first, ","), second)
    return np.where((first == "") | (second == ""), "", together)


def no_label(label: Array) -> Array:
    """Which rows have NaN, NaT or None for a label."""
    if label.dtype.kind in "mM":
        return np.isnat(label)
    if label.dtype.kind == "O":
        return np.array([each is None for each in label.ravel()], bool).reshape(label.shape)
    if label.dtype.kind == "U":
        return np.equal(label, "")
    if label.dtype.names is not None:
        return no_label(label["f0"]) | no_label(label["f1"])
    return np.isnan(label) if label.dtype.kind == "f" else np.zeros(len(label), dtype=bool)


def keep_rows(slab: Slab, keep: Array) -> Rows:
    """The rows to keep, and which they were."""
    if keep.all():
        return Rows(slab.x, slab.y, slab.w, None, slab.start, slab.label)
    w = None if slab.w is None else slab.w[keep]
    label = None if slab.label is None else slab.label[keep]
    return Rows(slab.x[keep], slab.y[keep], w, keep, slab.start, label)


LEAVE_OUT = (
    'Leave such rows out with missing_rows="drop" (of a fitted model: '
    'model.set_params(missing_rows="drop"))'
)

RULES = {
    "inf": "Infinite values (inf) have no place in a row. Correct them, or leave the rows "
    "out with `where`.",
    "large": "Squares and sums of such numbers leave the range of float64, and a fit would be "
    "wrong. Multiply the target by a constant, so that its scale is nearer to 1.",
    "negative": "A weight is positive, or 0 to leave its row out. Correct the weights.",
    "NaN": f"A row with a missing value cannot be used. {LEAVE_OUT}, or fill them before.",
    "no label": f"A row without a label belongs to no group. {LEAVE_OUT}, or give them a label, "
    'such as "none".',
}


def message(name: str, kind: str, count: int, box: str, first: str) -> str:
    """Fact with its value; rule; remedy."""
    words = {"negative": "negative weights", "large": f"values beyond ±{LARGEST:g}"}
    words["no label"] = "NaN or None"
    found = words.get(kind, kind)
    return f"{name!r} holds {count} {found} in {box}, the first {first}. {RULES[kind]}"
