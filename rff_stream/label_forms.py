"""The one form of a label: 1 and 1.0 are one label, and so is a time in any resolution."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_absent(label: Any) -> bool:
    """Whether a label is missing: None, NaN, NaT, or NA of pandas, which equals nothing."""
    same = label is not None and label == label
    return not (isinstance(same, bool | np.bool_) and bool(same))


def canonical(label: Any) -> Any:
    """A label as a key: a plain value, whole numbers as int, times as text."""
    if isinstance(label, np.datetime64) or hasattr(label, "isoformat"):
        return text_of(label)
    label = label.item() if isinstance(label, np.generic) else label
    return int(label) if isinstance(label, float) and label.is_integer() else label


def text_of(label: Any) -> str:
    """A label as text: whole numbers without a point, times as short as ISO 8601 allows."""
    if isinstance(label, np.datetime64):
        return str(np.datetime_as_string(label, unit="auto"))
    if isinstance(label, float | np.floating) and float(label).is_integer():
        return str(int(label))
    if isinstance(label, bytes):
        return label.decode("utf-8", "backslashreplace")
    if hasattr(label, "isoformat"):
        return time_text(label)
    return str(label)


def time_text(time: Any) -> str:
    """The text of a time that is an object; that of its calendar where no other has such a day."""
    if getattr(time, "tzinfo", None) is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    try:
        return str(np.datetime_as_string(np.datetime64(time.isoformat()), unit="auto"))
    except ValueError:
        return str(time)


def texts_of(labels: NDArray[Any]) -> NDArray[Any]:
    """The texts of labels, in an array of the same shape."""
    if labels.dtype.kind == "U":
        return labels
    if labels.dtype.kind == "M":
        return np.datetime_as_string(labels, unit="auto")
    if labels.dtype.kind in "OT":
        return np.array([text_of(label) for label in labels.ravel()], str).reshape(labels.shape)
    distinct, inverse = np.unique(labels, return_inverse=True)
    texts = np.array([text_of(label) for label in distinct], dtype=str)
    return texts[inverse].reshape(labels.shape)


def number_of(text: str) -> int:
    """A 64-bit integer of the text of a label, so 2015 and 2015.0 agree."""
    return int.from_bytes(
        hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "little"
    )


def former_texts(label: Any) -> tuple[str, ...]:
    """Texts that an older rff_stream may have had for a label of this canonical form."""
    if isinstance(label, int) and not isinstance(label, bool):
        return (f"{label}.0",)
    try:
        time = np.datetime64(label, "ns")
    except (TypeError, ValueError):
        return ()
    moment = time.astype("datetime64[us]").item()
    written = (str(moment),) if isinstance(moment, datetime) else ()
    return (str(time.astype(np.int64)), *written)
