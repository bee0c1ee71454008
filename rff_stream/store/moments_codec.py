"""Moments, augmented rows and packed values as plain values and arrays, and back bit for bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from rff_stream._array import Array
from rff_stream.cells.moments import CellMoments
from rff_stream.choice.moments import CandidateMoments, rows_of_candidates
from rff_stream.errors import ModelError
from rff_stream.features.base import Nesting
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridMoments, sums_size
from rff_stream.moments import N_PARTS, AugmentedRow, Moments, ended_readings, packed_size
from rff_stream.moments.row_sample import RowSample
from rff_stream.statistics.protocol import Packed
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

Form = tuple[tuple[int, ...], str]
"""Shape and dtype."""

GRID = "grid"
"""Array with centre, period, reach and modes of a grid of frequencies."""

PLAIN = "packed"
"""Attribute of a batch that is a packed value: what is not an array."""

BY_ROW = ("moments", "parts")
"""Arrays with one chunk a group."""

OF_CELLS = ("cells", "cell_counts", "cell_powers", "cell_sums")
"""Arrays of moments of cells: all cells of all groups, one after the other."""

DIMS = {
    "moments": ("group", "packed"),
    "parts": ("group", "part", "column"),
    "runs": ("group", "part", "label"),
    "grid": ("field", "input"),
    "cell_sizes": ("group", "size"),
    "cells": ("cell",),
    "cell_counts": ("cell",),
    "cell_powers": ("cell", "power"),
    "cell_sums": ("cell", "packed"),
    "candidates": ("candidate", "fact"),
    "rows": ("group",),
    "weights": ("group", "power"),
    "sample_sizes": ("group", "size"),
    "sample_keys": ("sampled",),
    "sample_rows": ("sampled", "sampled_column"),
    "sample_reach": ("group", "end", "input"),
}
"""Arrays of a batch. weights: Σw² and Σlog w. sample_sizes: k and m of each group.
sample_reach: least and greatest value of each input, where all groups know them.
cell_sizes: J, B and cells held of each group. candidates: columns of each map, and whether its
sums are there, in a folder of their own."""


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


def check_moments(
    moments: Moments | CellMoments | GridMoments | CandidateMoments,
    row: AugmentedRow,
    order: int,
    name: str,
) -> None:
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


def encode_moments(folder: str, groups: Sequence[Any]) -> Iterator[tuple[str, bytes]]:
    """Files of the moments of some groups of one row and order, at least one."""
    if isinstance(groups[0], CandidateMoments):
        yield from _encode_candidates(folder, groups)
        return
    samples = [m.sample for m in groups]
    small = {
        "rows": np.array([m.n for m in groups], np.int64),
        "weights": np.array([[m.squared_weight, m.log_weight] for m in groups]),
        "sample_sizes": np.array([[s.size, len(s.keys)] for s in samples], np.int64),
        "sample_keys": np.concatenate([s.keys for s in samples]),
        "sample_rows": np.concatenate([s.rows for s in samples]),
    }
    reaches = [s.reach for s in samples if s.reach is not None]
    if len(reaches) == len(groups):
        small["sample_reach"] = np.stack(reaches)
    first, sizes = groups[0], small["sample_sizes"]
    if isinstance(first, CellMoments):
        small |= _cell_arrays(groups)
    elif isinstance(first, GridMoments):
        grid = first.features
        fields = [grid.centre, grid.period, grid.reach, np.array(grid.modes, float)]
        small |= {GRID: np.stack(fields)}
    labels = [m.runs for m in groups if m.runs is not None]
    if len(labels) == len(groups):  # order 1
        small["runs"] = np.stack(labels)
    large: dict[str, list[Array]] = {
        "moments": [m.sums for m in groups if not isinstance(m, CellMoments)],
        "parts": [m.parts for m in groups if m.parts is not None],
    }
    shapes = {name: _shape(values) for name, values in small.items()}
    shapes |= {name: _shape(rows) for name, rows in large.items() if rows}
    _check_shapes(first.row, first.order, len(groups), shapes, sizes, folder)
    for name, values in small.items():
        yield from encode(f"{folder}/{name}", values, DIMS[name])
    for name, rows in large.items():
        if rows:
            yield from encode_rows(f"{folder}/{name}", rows, DIMS[name])


def decode_moments(
    row: AugmentedRow,
    order: int,
    labels: Sequence[Label],
    files: Mapping[str, bytes],
    folder: str,
    place: str,
) -> dict[Label, Moments]:
    """Groups that :func:`encode_moments` wrote in a folder, as views of its verified files."""
    if f"{folder}/candidates/zarr.json" in files:
        return _decode_candidates(row, order, labels, files, folder, place)
    names = [name for name in DIMS if f"{folder}/{name}/zarr.json" in files]
    arrays: dict[str, Any] = {
        name: (decode_rows if name in BY_ROW else decode)(f"{folder}/{name}", files, place)
        for name in names
    }
    place = f"{place}/{folder}"
    shapes = {name: _shape(values) for name, values in arrays.items()}
    sizes = arrays.get("sample_sizes", np.zeros((0, 2), np.int64))
    _check_shapes(row, order, len(labels), shapes, sizes, place)
    stops = np.cumsum(sizes[:, 1])
    groups: dict[Label, Any] = {}
    for i, label in enumerate(labels):
        chosen = slice(int(stops[i] - sizes[i, 1]), int(stops[i]))
        keys, rows = arrays["sample_keys"][chosen], arrays["sample_rows"][chosen]
        reach = arrays["sample_reach"][i] if "sample_reach" in arrays else None
        sample = RowSample(int(sizes[i, 0]), keys, rows, reach)
        groups[label] = _group(row, order, arrays, i, sample)
        check_moments(groups[label], row, order, f"{place}, group {label!r},")
    return groups if "runs" in arrays else ended_readings(groups)  # stores of before had none


def encode_packed(folder: str, packed: Packed) -> Iterator[tuple[str, bytes]]:
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


def _encode_candidates(folder: str, groups: Sequence[Any]) -> Iterator[tuple[str, bytes]]:
    """Files of the sums of each map, those that reach every row of every group."""
    several = list(zip(*(group.members for group in groups), strict=True))
    there = [all(each is not None for each in members) for members in several]
    known = [next((m for m in members if m is not None), None) for members in several]
    sizes = [0 if m is None else m.row.n_features for m in known]
    facts = np.array([sizes, there], np.int64).T
    yield from encode(f"{folder}/candidates", facts, DIMS["candidates"])
    for i in np.flatnonzero(there).tolist():
        yield f"{folder}/{i}/zarr.json", group_metadata({}, "candidate")
        yield from encode_moments(f"{folder}/{i}", several[i])


def _decode_candidates(
    row: AugmentedRow,
    order: int,
    labels: Sequence[Label],
    files: Mapping[str, bytes],
    folder: str,
    place: str,
) -> dict[Label, Any]:
    """Groups that :func:`_encode_candidates` wrote."""
    facts = decode(f"{folder}/candidates", files, place)
    names = row.map_fingerprint.split("+")
    if facts.shape != (len(names), 2) or facts[:, 0].sum() != row.n_features or facts.min() < 0:
        raise ModelError(
            f"{place}/{folder}/candidates is {facts.tolist()}, but its row has {len(names)} maps "
            f"with {row.n_features} columns. Collect the moments again, or restore the file from "
            "a copy."
        )
    rows = rows_of_candidates(row, facts[:, 0].tolist())
    several = [
        decode_moments(own, order, labels, files, f"{folder}/{i}", place) if there else {}
        for i, (own, there) in enumerate(zip(rows, facts[:, 1].tolist(), strict=True))
    ]
    return {
        label: CandidateMoments(row, tuple(each.get(label) for each in several)) for label in labels
    }


def _cell_arrays(groups: Sequence[Any]) -> dict[str, Array]:
    """Arrays of moments of cells, group after group."""
    sizes = [[m.n_trees, m.n_cells, len(m.cells)] for m in groups]
    return {
        "cell_sizes": np.array(sizes, np.int64),
        "cells": np.concatenate([m.cells for m in groups]),
        "cell_counts": np.concatenate([m.counts for m in groups]),
        "cell_powers": np.concatenate([m.powers for m in groups]),
        "cell_sums": groups[0].sums
        if len(groups) == 1
        else np.concatenate([m.sums for m in groups]),
    }


def _group(
    row: AugmentedRow, order: int, arrays: Mapping[str, Any], i: int, sample: RowSample
) -> Moments | CellMoments | GridMoments:
    """Moments of group i."""
    if "cell_sizes" in arrays:
        n_trees, n_cells, count = arrays["cell_sizes"][i].tolist()
        start = int(arrays["cell_sizes"][:i, 2].sum())
        cells, counts, powers, own = (arrays[name][start : start + count] for name in OF_CELLS)
        return CellMoments(row, n_trees, n_cells, cells, counts, powers, own, sample)
    squared, logarithm = (float(weight) for weight in arrays["weights"][i])
    n, sums = int(arrays["rows"][i]), arrays["moments"][i]
    if GRID in arrays:
        centre, period, reach, modes = arrays[GRID]
        grid = GridFeatures(centre, period, reach, tuple(modes.astype(int).tolist()))
        return GridMoments(grid, row, sums, n, squared, logarithm, sample)
    parts = arrays["parts"][i] if order == 1 else None
    runs = arrays["runs"][i] if "runs" in arrays else None
    return Moments(row, order, sums, n, squared, logarithm, parts, sample, runs)


def _shape(values: Any) -> Form:
    """Of an array, or of the array whose rows these are."""
    if isinstance(values, list):
        return (len(values), *values[0].shape), values[0].dtype.name
    return values.shape, values.dtype.name


def _check_shapes(
    row: AugmentedRow, order: int, count: int, found: Mapping[str, Form], sizes: Array, place: str
) -> None:
    expected = _shapes(row, order, count, sizes)
    if GRID in found:
        d, size = len(row.inputs), found.get("moments", ((count, 0), ""))[0][1]
        expected |= {GRID: ((4, d), "float64"), "moments": ((count, size), "float64")}
    if "cell_sizes" in found:
        expected |= _cell_shapes(row, count, found)
        del expected["moments"]
    if "runs" in found and order == 1:  # not in stores of before they were kept
        expected["runs"] = ((count, N_PARTS, 2), "int64")
    if "sample_reach" in found:  # not in stores of before it was kept
        expected["sample_reach"] = ((count, 2, len(row.inputs)), "float64")
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise ModelError(
                f"{place}/{name} is {found.get(name, 'absent')}, but its row, order and groups ask "
                f"for {expected.get(name, 'no such array')}. Collect the moments again, or "
                "restore the file from a copy."
            )


def _shapes(row: AugmentedRow, order: int, count: int, sizes: Array) -> dict[str, Form]:
    """Shape and dtype that each array must have."""
    whole = sizes.shape == (count, 2) and bool((sizes >= 0).all())
    sampled = sum(sizes[:, 1].tolist()) if whole else -1
    found = {
        "rows": ((count,), "int64"),
        "weights": ((count, 2), "float64"),
        "sample_sizes": ((count, 2), "int64"),
        "sample_keys": ((sampled,), "uint64"),
        "sample_rows": ((sampled, len(row.inputs) + row.n_targets + 1), "float64"),
    }
    if order == 1:
        parts = ((count, N_PARTS, row.width), "float64")
        return {**found, "moments": ((count, row.width), "float64"), "parts": parts}
    return {**found, "moments": ((count, packed_size(row.width)), "float64")}


def _cell_shapes(row: AugmentedRow, count: int, found: Mapping[str, Form]) -> dict[str, Form]:
    """Shape and dtype of the arrays of moments of cells; all hold equally many cells."""
    cells = found.get("cells", ((0,), ""))[0][0]
    return {
        "cell_sizes": ((count, 3), "int64"),
        "cells": ((cells,), "int64"),
        "cell_counts": ((cells,), "int64"),
        "cell_powers": ((cells, 2), "float64"),
        "cell_sums": ((cells, packed_size(row.width)), "float64"),
    }


def _faults(
    moments: Moments | CellMoments | GridMoments | CandidateMoments,
) -> Iterator[tuple[str, bool]]:
    """(what, whether) of everything that cannot be in the moments of rows."""
    if isinstance(moments, CandidateMoments):
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
    if isinstance(moments, GridMoments):
        size = sums_size(moments.features, moments.row)
        fingerprint = moments.features.fingerprint
        yield "sums of another size than its grid", len(moments.sums) != size
        yield "another grid than its row", fingerprint != moments.row.map_fingerprint
    if isinstance(moments, CellMoments):
        most = moments.n_trees * moments.n_cells
        cells, counts = moments.cells, moments.counts
        outside = bool(len(cells)) and not (cells[0] >= 0 and cells[-1] < most)
        yield "cells out of order or range", outside or bool((cells[1:] <= cells[:-1]).any())
        yield f"cells of {counts.min(initial=1)} rows", bool((counts < 1).any())
        yield "rows that are not once in each tree", int(counts.sum()) % moments.n_trees != 0
    parts = moments.parts
    yield "parts that are not finite", parts is not None and not _is_finite(parts)


def _is_finite(values: Array) -> bool:
    """Whether all are, in a third of the time of looking at each: NaN and inf stay in a sum."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))
