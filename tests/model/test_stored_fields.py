"""A dataclass as plain JSON and named arrays of a store, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from rff_stream._array import Array, Float64
from rff_stream.stored_fields import NOT_STORED, pack_fields, stored, unpack_fields


@dataclass(frozen=True)
class Line:
    slope: Float64
    offset: float = field(metadata=stored("shift", write=lambda x: 1 / x, read=lambda x: 1 / x))


@dataclass(frozen=True)
class Curve:
    features: Any = field(metadata=NOT_STORED)
    line: Line
    n: int
    codes: Array
    names: tuple[str, ...] = field(metadata=stored(plain=True, write=list, read=tuple))
    copies: float = 1.0
    spread: Float64 | None = field(default=None, metadata=stored("width"))
    second: Other | None = None


@dataclass(frozen=True)
class Other:
    level: Float64
    scale: float = 2.0


CURVE = Curve("z", Line(np.arange(2.0), 4.0), 3, np.arange(2, dtype=np.int8), ("a", "b"))


def test_fields_that_have_their_default_are_left_out():
    plain, arrays = pack_fields(CURVE)
    assert plain == {"names": ["a", "b"]}
    assert list(arrays) == ["slope", "shift", "n", "codes"]
    assert (arrays["shift"].tolist(), arrays["n"].tolist()) == ([0.25], [3])
    assert [each.dtype.name for each in arrays.values()] == ["float64", "float64", "int64", "int8"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"copies": 2.5, "spread": np.ones(3)},
        {"second": Other(np.zeros(2))},
        {"second": Other(np.zeros(2), 3.0), "features": None},
    ],
)
def test_what_was_packed_comes_back(changes):
    value = replace(CURVE, **changes)
    plain, arrays = pack_fields(value)
    again = unpack_fields(Curve, json.loads(json.dumps(plain)), arrays, features=value.features)
    np.testing.assert_equal(vars(again.line), vars(value.line))
    np.testing.assert_equal(
        None if again.second is None else vars(again.second),
        None if value.second is None else vars(value.second),
    )
    own = {"line": None, "second": None}
    np.testing.assert_equal(vars(again) | own, vars(value) | own)
    assert [type(each) for each in (again.n, again.copies, again.line.offset)] == [
        int,
        float,
        float,
    ]


def test_arrays_are_not_copied():
    arrays = pack_fields(CURVE)[1]
    assert arrays["slope"] is CURVE.line.slope
    assert unpack_fields(Line, {}, arrays).slope is CURVE.line.slope


def test_a_field_that_is_needed_is_missed_by_its_name():
    plain, arrays = pack_fields(CURVE)
    del arrays["shift"]
    with pytest.raises(KeyError, match="shift"):
        unpack_fields(Curve, plain, arrays, features=None)


def test_half_of_an_optional_part_is_not_taken_for_none():
    """Before, a model that had lost one array of a part answered without the part."""
    plain, arrays = pack_fields(replace(CURVE, second=Other(np.zeros(2), 3.0)))
    del arrays["level"]
    with pytest.raises(KeyError, match="level"):
        unpack_fields(Curve, plain, arrays, features=None)
