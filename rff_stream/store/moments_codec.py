"""Moments, augmented rows and packed values as plain values and arrays, and back bit for bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from rff_stream._array import Array
from rff_stream.contracts import Packed
from rff_stream.errors import ModelError
from rff_stream.features.base import Nesting
from rff_stream.moments import AugmentedRow, Moments, ended_readings
from rff_stream.moments.stored import all_dimensions, arrays_of, moments_of
from rff_stream.store.files import Contents
from rff_stream.store.zarr_files import (
    decode,
    decode_rows,
    encode,
    encode_rows,
    group_metadata,
    parse,
)

Label = str | int | float | bool | None
"""What a group may be called: a JSON scalar."""

ROW_ARRAYS = ("prior", "feature_origin", "target_origin", "target_scale")
ROW_NAMES = ("inputs", "targets", "units")

PLAIN = "packed"
"""Attribute of a batch that is a packed value: what is not an array."""

BY_ROW = ("moments", "parts")
"""Arrays with one chunk a group."""


def row_plain(row: AugmentedRow) -> dict[str, Any]:
    """What of a row is text; its numbers are :func:`row_arrays`."""
    return {
        "map_fingerprint": row.map_fingerprint,
        "nesting": row.nesting,
        "fingerprint": row.fingerprint,
        **{name: list(getattr(row, name)) for name in ROW_NAMES},
    }


def row_arrays(row: AugmentedRow) -> dict[str, Array]:
    """The numbers of a row, by name."""
    return {name: np.asarray(getattr(row, name), np.float64) for name in ROW_ARRAYS}


def decode_row(plain: Any, arrays: Mapping[str, Array], place: str) -> AugmentedRow:
    """The row that gave these; refuses one whose fingerprint is not the one recorded."""
    try:
        if plain["nesting"] not in get_args(Nesting):
            raise ValueError(f"nesting is {plain['nesting']!r}")
        fingerprint = plain["map_fingerprint"]
        numbers: list[Any] = [arrays[name] for name in ROW_ARRAYS]
        if any(a.ndim != 1 or a.dtype != np.float64 for a in numbers):
            raise ValueError("its arrays are not vectors of float64")
        prior, *origins = numbers
        names: list[Any] = [tuple(plain[name]) for name in ROW_NAMES]
        if not all(isinstance(text, str) for text in itertools.chain(*names, [fingerprint])):
            raise ValueError("its names are not text")
        row = AugmentedRow(fingerprint, prior, plain["nesting"], *origins, *names)
        if row.fingerprint != plain["fingerprint"]:
            raise ValueError("its fingerprint is not that of its values")
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{place} does not describe moments (map, origins, names, units): {error!r}. "
            "Restore it from a copy."
        ) from error
    return row


def sorted_groups(groups: Mapping[Any, Moments]) -> list[tuple[Label, Moments]]:
    """Groups in the order they are stored and summed: by type, then by value."""
    for label in groups:
        known = type(label) in (str, int, float, bool, type(None))
        if not known or (isinstance(label, float) and not math.isfinite(label)):
            raise ModelError(
                f"The group label {label!r} is a {type(label).__name__}, which a store cannot give "
                "back. Use text, whole numbers, finite floats, booleans or None."
            )
    return sorted(groups.items(), key=lambda item: label_key(item[0]))


def label_key(label: Label) -> tuple[str, Any]:
    """What labels of groups are sorted by."""
    return type(label).__name__, 0 if label is None else label


def check_moments(moments: Any, row: AugmentedRow, order: int, name: str) -> None:
    """Refuse moments that mean something else, or hold what no pass gives."""
    if moments.row.fingerprint != row.fingerprint:
        raise ModelError(
            f"{name} differs in {row.difference(moments.row)} from the store (its value is given "
            "first). Collect it with the map, origins, names and units of the store."
        )
    if moments.order != order:
        raise ModelError(
            f"{name} has order {moments.order}, but the store keeps order {order}. "
            f"Collect it with order={order}."
        )
    for what, wrong in _faults(moments):
        if wrong:
            raise ModelError(
                f"{name} has {what}, which no pass over data gives. Collect it again; "
                "differences of moments are for answers and are not stored."
            )


def encode_moments(folder: str, groups: Sequence[Any]) -> Iterator[tuple[str, Contents]]:
    """Files of the moments of some groups of one row and order, at least one."""
    dimensions, found = all_dimensions(), arrays_of(groups, folder)
    for group in sorted({name.rpartition("/")[0] for name in found} - {""}):
        yield f"{folder}/{group}/zarr.json", group_metadata({}, "candidate")
    for name, values in found.items():
        write: Any = encode_rows if isinstance(values, list) else encode
        yield from write(f"{folder}/{name}", values, dimensions[_last(name)])


def decode_moments(
    row: AugmentedRow,
    order: int,
    labels: Sequence[Label],
    files: Mapping[str, bytes],
    folder: str,
    place: str,
) -> dict[Label, Moments]:
    """Groups that :func:`encode_moments` wrote in a folder, as views of its verified files."""
    start, end, dimensions = f"{folder}/", "/zarr.json", all_dimensions()
    inside = [name[len(start) : -len(end)] for name in files if name.endswith(end)]
    arrays: dict[str, Any] = {
        name: (decode_rows if _last(name) in BY_ROW else decode)(f"{folder}/{name}", files, place)
        for name in inside
        if _last(name) in dimensions
    }
    place = f"{place}/{folder}"
    found = moments_of(row, order, len(labels), arrays, place)
    groups = dict(zip(labels, found, strict=True))
    for label, moments in groups.items():
        check_moments(moments, row, order, f"{place}, group {label!r},")
    return groups if "runs" in arrays else ended_readings(groups)  # stores of before had none


def _last(name: str) -> str:
    """The name of an array of one map."""
    return name.rpartition("/")[2]


def encode_packed(folder: str, packed: Packed) -> Iterator[tuple[str, Contents]]:
    """Files of a packed value, its own group and those of its parts included."""
    above = {name[:i] for name in packed.arrays for i, c in enumerate(name) if c == "/"}
    yield f"{folder}/zarr.json", group_metadata({PLAIN: packed.plain}, "a packed value")
    for group in sorted(above):
        yield f"{folder}/{group}/zarr.json", group_metadata({}, group)
    for name, values in packed.arrays.items():
        yield from encode(f"{folder}/{name}", values)


def is_packed(files: Mapping[str, bytes], folder: str, place: str) -> bool:
    """Whether the verified files of a batch are those of a packed value."""
    name = f"{folder}/zarr.json"
    return PLAIN in parse(files[name], f"{place}/{name}").get("attributes", {})


def decode_packed(files: Mapping[str, bytes], folder: str, place: str) -> Packed:
    """The value that :func:`encode_packed` wrote in a folder, from its verified files."""
    plain = None
    arrays = {}
    for name in files:
        path, _, last = name.rpartition("/")
        if last == "zarr.json":
            metadata = parse(files[name], f"{place}/{name}")
            if path == folder:
                plain = metadata["attributes"][PLAIN]
            elif metadata.get("node_type") != "group":
                arrays[path.removeprefix(f"{folder}/")] = decode(path, files, place)
    return Packed(plain, arrays)


def _faults(moments: Any) -> Iterator[tuple[str, bool]]:
    """(what, whether) of everything that cannot be in the moments of rows."""
    if moments.several:
        for each in moments.members:
            yield from _faults(each) if each is not None else ()
        return
    sample = moments.sample
    yield f"{moments.n} rows", moments.n < 0
    yield "sums that are not finite", not _is_finite(moments.sums)
    yield f"squared weight {moments.squared_weight}", not 0 <= moments.squared_weight < math.inf
    yield f"log weight {moments.log_weight}", not math.isfinite(moments.log_weight)
    yield f"{len(sample.keys)} sampled rows of {sample.size}", len(sample.keys) > sample.size
    yield "sample keys out of order", bool((sample.keys[1:] < sample.keys[:-1]).any())
    yield from moments.own_faults()
    parts = moments.parts
    yield "parts that are not finite", parts is not None and not _is_finite(parts)


def _is_finite(values: Array) -> bool:
    """Whether all are, in a third of the time of looking at each: NaN and inf stay in a sum."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))
