"""What a stored value becomes in a row: float64, or a group label.

Every conversion is a small picklable value that is applied in the leaf, to the slice that
the leaf read. Times become days since 1970-01-01, so that two files in different units
mean the same; what cannot be a number is refused before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.words import redact_url

if TYPE_CHECKING:
    import pandas

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


class KindError(DataError, TypeError):
    """A column holds what cannot be a number: strings, objects, complex values."""


class Convert(Protocol):
    """Stored values -> values of a row, elementwise; shape (…) in, shape (…) out."""

    def __call__(self, values: Array) -> Array: ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """The values themselves; they are cast to float64 where they are placed.

    Integers that float64 cannot tell from their neighbours (beyond 2⁵³) are refused.

    Parameters
    ----------
    name : str
        Column, for the message.
    """

    name: str = "a column"

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
    """Group labels: integers, strings and times as they are; objects as strings or None."""

    then: Convert = Numbers()

    def __call__(self, values: Array) -> Array:
        found = self.then(values)
        if found.dtype.kind == "S":
            check_text(found)
        if found.dtype.kind not in "OT":
            return found
        missing = np.array([v is None or v != v for v in found.ravel()], bool).reshape(found.shape)
        texts = found.astype(str)
        if not missing.any():
            return texts
        named: Array = texts.astype(object)
        named[missing] = None
        return named


@dataclass(frozen=True, slots=True)
class NamedLabels:
    """Group labels as text with their name: "month=1"; "" where there is none."""

    name: str
    then: Convert = Numbers()

    def __call__(self, values: Array) -> Array:
        found = Labels(self.then)(values)
        flat = found.ravel().astype(object) if found.dtype.kind == "O" else found.ravel()
        distinct, inverse = np.unique(flat.astype(str), return_inverse=True)
        absent = ("nan", "NaT", "None")
        texts = ["" if v in absent else f"{self.name}={v}" for v in distinct.tolist()]
        return np.array(texts)[inverse].reshape(found.shape)


def as_numbers(name: str, dtype: np.dtype[Any], calendar: str = "", note: str = "") -> Convert:
    """The conversion that makes float64 of a stored dtype.

    Parameters
    ----------
    name : str
        Column, for the message.
    dtype : dtype
        Stored (decoded) dtype.
    calendar : str
        Calendar of cftime objects, "" where there are none.
    note : str
        What it holds where the dtype does not say it: "categories".

    Raises
    ------
    KindError
        Complex values, strings, categories, objects: they are no numbers.
    """
    if note:
        raise KindError(refusal(name, note))
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
    what = "strings" if dtype.kind in "SUT" else "objects"
    raise KindError(refusal(name, f"{what} (dtype {dtype})"))


def refusal(name: str, what: str) -> str:
    """Why values are no column of numbers, and what to do."""
    return (
        f"{name!r} holds {what}, but an argument must be a number or a time. Where strings are "
        f"named, inputs=[{name!r}, …], each level becomes an input. Encode it as numbers yourself, "
        f"such as by OneHotEncoder of scikit-learn, or leave it out: inputs=[…]."
    )


def units_of_time(dtype: np.dtype[Any], calendar: str = "") -> str:
    """Units of a time column, "" for other dtypes."""
    if dtype.kind == "m":
        return "days"
    if calendar not in STANDARD_CALENDARS:
        return f"{EPOCH} ({calendar})"
    return EPOCH if dtype.kind == "M" or calendar else ""


def is_from(value: Any, name: str) -> bool:
    """Whether the type (or a base of it) comes from a module or has this whole name.

    Nothing is imported for it.
    """
    names = (f"{base.__module__}.{base.__qualname__}." for base in type(value).__mro__)
    return any(each.startswith(f"{name}.") for each in names)


def unknown_container(role: str, values: Any) -> KindError:
    """The error that names a type which is no container here."""
    kind = type(values)
    return KindError(
        f"{role} is a {kind.__module__}.{kind.__qualname__}, which is no container that is known. "
        f"Known are arrays (NumPy, Dask, lists), tables, xarray objects, Zarr groups and paths. "
        f"Convert it: numpy.asarray(…) where it fits in memory, dask.array.from_array(…) where "
        f"slices of it can be read."
    )


def regular_edges(size: int, step: int) -> tuple[int, ...]:
    """Where chunks of one length begin and end along a dimension."""
    return (*range(0, size, max(1, step)), size) if size else (0,)


def plain_array(values: Any) -> Array:
    """A numpy array without a mask: masked entries become NaN."""
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype.kind in "biuf":
            values = values.astype(np.float64)
        return np.ma.filled(values, np.nan)
    return np.asarray(values)


def column_values(series: pandas.Series[Any]) -> Array:
    """Values of a column in numpy: views where they are; nullable numbers with NaN."""
    import pandas

    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return series.to_numpy()
    if pandas.api.types.is_datetime64_any_dtype(dtype):
        return moments_in_time(series)
    if pandas.api.types.is_timedelta64_dtype(dtype):
        return series.astype("timedelta64[ns]").to_numpy()
    if str(dtype) != "category" and pandas.api.types.is_numeric_dtype(dtype):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return series.to_numpy(dtype=object, na_value=None)  # type: ignore[call-overload, no-any-return]


def moments_in_time(series: pandas.Series[Any]) -> Array:
    """Times with a zone in UTC, without it."""
    zone = getattr(series.dt, "tz", None)
    times = series if zone is None else series.dt.tz_convert("UTC").dt.tz_localize(None)
    return times.astype("datetime64[ns]").to_numpy()


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


def arrow_values(chunks: Any, kind: Any) -> Array:
    """Arrow chunks of one type in numpy: nulls are NaN, NaT or None; times have no zone (UTC)."""
    import pyarrow as pa

    column = pa.chunked_array(chunks, type=kind)
    types = pa.types
    if types.is_dictionary(kind):
        plain = pa.string() if types.is_string_view(kind.value_type) else kind.value_type
        chunks = [chunk.dictionary.cast(plain).take(chunk.indices) for chunk in column.chunks]
        return arrow_values(chunks, plain)
    if types.is_decimal(kind) or (types.is_integer(kind) and column.null_count):
        column = column.cast(pa.float64(), safe=False)
    elif types.is_boolean(kind) and column.null_count:
        column = column.cast(pa.uint8()).cast(pa.float64())
    elif types.is_date(kind):
        column = column.cast(pa.timestamp("s") if types.is_date32(kind) else pa.timestamp("ms"))
    values: Array = column.to_numpy()
    return values


def kind_in_words(kind: Any) -> str:
    """What an Arrow column holds that is no number or time: "strings (dtype string)"; else ""."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return f"categories (dtype {kind})"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return f"strings (dtype {kind})"
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    times = (types.is_timestamp, types.is_date, types.is_duration)
    return "" if any(each(kind) for each in (*numbers, *times)) else f"objects (dtype {kind})"


def needed_package(name: str, extra: str, fact: str) -> Any:
    """A package of an extra.

    Raises
    ------
    DataError
        It is not installed: with the line that installs it.
    """
    try:
        return import_module(name)
    except ImportError as cause:
        raise DataError(
            f"{fact}, which is read with {name}, and that is not installed ({cause}). It comes "
            f"with an extra. Install it: pip install 'rff_stream[{extra}]'."
        ) from cause


EXTRAS = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure"}
"""Packages of file systems, and the extra that installs them."""


def missing_extra(path: str, cause: ImportError) -> DataError:
    """The error of a URL whose file system is not installed, with the line that installs it."""
    extra = next((extra for name, extra in EXTRAS.items() if name in str(cause)), "all")
    return DataError(
        f"{redact_url(path)} is on a file system whose package is not installed ({cause}). It "
        f"comes with an extra. Install it: pip install 'rff_stream[{extra}]'."
    )


def check_index(X: Any, **others: Any) -> None:
    """pandas objects beside a pandas X have its index: rows are paired by place.

    Raises
    ------
    DataError
        Naming what differs, and its first label that does.
    """
    if not is_from(X, "pandas"):
        return
    for role, each in others.items():
        if not is_from(each, "pandas") or len(each) != len(X) or X.index.equals(each.index):
            continue
        first = next(i for i, (a, b) in enumerate(zip(X.index, each.index, strict=True)) if a != b)
        raise DataError(
            f"{role} and X have other indexes: {each.index[first]} and {X.index[first]} at "
            f"place {first}. Rows are paired by position, so indexes must agree. Give "
            f"{role}.loc[X.index], or {role}.to_numpy() if the positions are right."
        )


def is_sparse(values: Any) -> bool:
    """Whether these are values of scipy.sparse: rows of them are made dense slab by slab."""
    return is_from(values, "scipy.sparse")


def is_masked(values: Any) -> bool:
    """Whether these are values under a mask."""
    return isinstance(values, np.ma.MaskedArray)
