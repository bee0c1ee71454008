"""Which rows of growing data were counted, and whether they are still the same.

A record describes rows start:stop along one dimension. Of each variable it holds what makes values
of its bytes (dimensions, dtype, attributes), size and time of the files of every row of chunks, and
a hash of the values in the last chunks, which later rows may share; of each dimension its labels;
of an icechunk repository the snapshot that was read.
It is plain JSON and is stored beside the moments of these rows.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rff_stream._array import Array, digest
from rff_stream.errors import DataError, warn
from rff_stream.label_forms import text_of
from rff_stream.sources.protocol import Box, BoxCost, PlacesAlong, Reader, Rows, Source
from rff_stream.sources.rows import as_text
from rff_stream.sources.variables import Variable, VariablesSource, generation_of
from rff_stream.text_formatting import list_names

MOST_STAMPS = 1024
"""Largest number of hashes in a record; for longer arrays one hash covers several rows of
chunks."""

SMALL_BYTES = 64 << 20
"""Largest variable without rows along the dimension whose values are hashed: where its files are
written again with the same values, it has not changed. Also how much of a file is read at once."""

DECODING = (
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "_Encoding",
    "dtype",
    "units",
    "calendar",
)
"""Attributes of a stored array that change its values or what they mean."""

Record = Mapping[str, Any]

Hashes = Callable[[Variable, tuple[slice, ...]], str]
"""Hash of a part of a variable."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Rows start:stop along a dimension that were not counted yet.

    ``waiting`` says which chunk is not written yet where the data are longer; "" if none.
    """

    dim: str
    start: int
    stop: int
    waiting: str = ""


def whole_content(source: Source) -> str:
    """Hash of all that a source holds, as far as it is in memory or its files tell."""
    if not isinstance(source, VariablesSource):
        return source.generation()
    return generation_of(source.variables, source.graph, most=sys.maxsize)


def record_of(
    source: Source, dim: str, start: int, stop: int, *, read: bool = True, as_before: bool = False
) -> dict[str, Any]:
    """What is there of rows start:stop along a dimension, as plain JSON.

    Cost: a listing of the files, and a read of the last chunks of each variable where they are not
    full, unless told not to ``read``: then they are known by their files. ``as_before`` gives the
    record of earlier versions.
    """
    assert isinstance(source, VariablesSource)
    sizes = dict(zip(source.dims, source.shape, strict=True))
    hashes = partial(_values, as_before=as_before) if read else None
    found = {v: _describe(each, dim, start, stop, hashes) for v, each in _named(source).items()}
    labels = _labels(source)
    names = labels.get(dim)
    more: dict[str, Any] = {}
    if not as_before:
        more = {"labels": _label_hashes(labels, dim, start, stop)}
        snapshots = (each.data.snapshot for each in source.variables if each.is_stored)
        snapshot = next(filter(None, snapshots), "")
        more |= {"snapshot": snapshot} if snapshot else {}
        for name, each in _named(source).items():
            found[name]["decoding"] = _decoding(each)
    ends = {} if names is None else {"first": names[start], "last": names[stop - 1]}
    return {
        "dim": dim,
        "start": start,
        "stop": stop,
        "others": {name: size for name, size in sizes.items() if name != dim},
        "variables": found,
        **more,
        **{name: text_of(np.asarray(value)[()]) for name, value in ends.items()},
    }


def check_unchanged(source: Source, records: Sequence[Record]) -> None:
    """Refuse data that are no longer what these records say; they continue each other.

    Raises DataError: naming the rows and the variable.
    """
    assert isinstance(source, VariablesSource)
    sizes = dict(zip(source.dims, source.shape, strict=True))
    known = _named(source)
    for i, record in enumerate(records):
        dim, stop = record["dim"], record["stop"]
        others = {name: size for name, size in sizes.items() if name != dim}
        if others != record["others"] or sizes.get(dim, 0) < stop:
            was = {dim: stop, **record["others"]}
            raise DataError(
                f"The data are {_format_sizes(sizes)}, but {_format_sizes(was)} were counted. Data "
                f"grow along their first dimension, {dim}; these were cut or reshaped, or grew "
                "along another. Put the dimension that grows first, and fit a new model."
            )
        if known.keys() != record["variables"].keys():
            raise DataError(
                f"The data are read as {list_names(sorted(known))}, but were counted as "
                f"{list_names(sorted(record['variables']))}. Give the inputs, conditions "
                "and weights of the fit."
            )
        for name, variable in known.items():
            last = i == len(records) - 1
            _check(variable, record, record["variables"][name], last)
        _check_labels(source, record)


def growth_of(source: Source, records: Sequence[Record], missing_chunks: str) -> Growth:
    """What came after the last record, as far as it is written."""
    assert isinstance(source, VariablesSource)
    last = records[-1]
    dim, start = str(last["dim"]), int(last["stop"])
    stop, waiting = dict(zip(source.dims, source.shape, strict=True))[dim], ""
    for name, variable in _named(source).items():
        if dim not in variable.dims or not variable.is_stored or stop == start:
            continue
        before = last["variables"][name]
        end, chunk = _find_written(variable, dim, start, stop, before, missing_chunks)
        if end < stop:
            stop, waiting = max(end, start), f"{variable.name!r} lacks {chunk}"
    return Growth(dim, start, stop, waiting)


def _describe(
    variable: Variable, dim: str, start: int, stop: int, hashes: Hashes | None
) -> dict[str, Any]:
    """One variable's part of a record; values in files are not hashed where there are none."""
    if dim not in variable.dims:
        small = variable.nbytes <= SMALL_BYTES or not variable.is_stored
        values = hashes(variable, _part(variable)) if hashes and small else ""
        return {"whole": [_stamp_of(variable), values]}
    if not variable.is_stored:
        return {"values": (hashes or _values)(variable, _part(variable, dim, start, stop))}
    rows, chunk = variable.data.stamps_along(variable.dims.index(dim))
    first, full = start // chunk, stop // chunk
    step = -(-max(full - first, 1) // MOST_STAMPS)
    found: dict[str, Any] = {
        "meta": _metadata(variable),
        "chunk": chunk,
        "from": first,
        "step": step,
        "stamps": [
            _digest(rows, i, min(i + step, full)) for i in range(first, max(full, first), step)
        ],
    }
    if stop > full * chunk:
        tail = _part(variable, dim, full * chunk, stop)
        values = hashes(variable, tail) if hashes else ""
        found["tail"] = [_digest(rows, full, full + 1), values]
    return found


def _check(variable: Variable, record: Record, found: Mapping[str, Any], last: bool) -> None:
    """One variable is as its part of a record says."""
    dim, start, stop = record["dim"], record["start"], record["stop"]
    _check_decoding(variable, f"{dim} {start}:{stop}", found)
    changed = variable.data.changed_since(record.get("snapshot")) if variable.is_stored else set()
    if "whole" in found:
        stamp, values = found["whole"]
        same = variable.is_stored and not changed and _stamp_of(variable) == stamp
        if not (same or _agrees(values, variable)):
            raise _change_error(variable, "all of it", f"it has no {dim}, so none of it can be new")
        return
    if "values" in found:
        if not _agrees(found["values"], variable, dim, start, stop):
            raise _change_error(variable, f"{dim} {start}:{stop}", "its values are others")
        return
    rows, chunk = variable.data.stamps_along(variable.dims.index(dim))
    if (chunk, _metadata(variable)) != (found["chunk"], found["meta"]):
        raise _change_error(
            variable, f"{dim} {start}:{stop}", "its chunks, dtype or encoding differ"
        )
    first, step, full = found["from"], found["step"], stop // chunk
    changed_rows = {place[variable.dims.index(dim)] for place in changed}
    for i, stamp in enumerate(found["stamps"]):
        lo, hi = first + i * step, min(first + (i + 1) * step, full)
        same = stamp in (_digest(rows, lo, hi), _digest(rows, lo, hi, as_before=True))
        if not same or changed_rows.intersection(range(lo, hi)):
            words = f"{dim} {max(lo * chunk, start)}:{hi * chunk}"
            raise _change_error(variable, words, "its files were written again")
    if last and "tail" in found:
        stamp, values = found["tail"]
        same = _digest(rows, full, full + 1) == stamp and full not in changed_rows
        if not same and values and not _agrees(values, variable, dim, full * chunk, stop):
            raise _change_error(variable, f"{dim} {full * chunk}:{stop}", "its values are others")


def _check_decoding(variable: Variable, words: str, found: Mapping[str, Any]) -> None:
    """What makes values of its bytes is as it was; records of earlier versions do not tell."""
    was, now = found.get("decoding"), _decoding(variable)
    if was is None or was == now:
        return
    name = next(each for each in {**was, **now} if was.get(each) != now.get(each))
    why = f"its {name} is {now.get(name)!r}, and was {was.get(name)!r}"
    raise _change_error(variable, words, why)


def _check_labels(source: VariablesSource, record: Record) -> None:
    """Labels of all dimensions are as they were; records of earlier versions do not tell."""
    dim, start, stop = record["dim"], record["start"], record["stop"]
    known = record.get("labels", {})
    for name, now in _label_hashes(_labels(source), dim, start, stop).items():
        if known.get(name, now) != now:
            words = f"{dim} {start}:{stop}" if name == dim else "all of it"
            raise _change_error(f"labels of {name}", words, "its values are others")


def _change_error(changed: Variable | str, words: str, why: str) -> DataError:
    name = changed if isinstance(changed, str) else changed.name
    return DataError(
        f"{name!r} changed in {words}, which was counted before: {why}. The model "
        "still counts the old values. Put the old data back, or forget their batch and give "
        "the new data under another name (batch=…), or fit a new model."
    )


def _find_written(
    variable: Variable, dim: str, start: int, stop: int, before: Record, missing_chunks: str
) -> tuple[int, str]:
    """Rows up to which every chunk is there that was there before, and the one awaited."""
    rows, chunk = variable.data.stamps_along(variable.dims.index(dim))
    if start % chunk and "tail" in before and not variable.data.is_written_at_once:
        place = start // chunk
        if _digest(rows, place, place + 1) == before["tail"][0] and rows.get(place):
            return start, f"new values in chunk {place} along {dim}"
    if missing_chunks == "fill":
        return stop, ""
    there, chunk = variable.data.chunks_along(variable.dims.index(dim), start, stop)
    known = there.get((start - 1) // chunk, set()) if start else set()
    places = range(start // chunk, -(-stop // chunk))
    for place in places:
        absent = sorted(known - there.get(place, set()))
        if absent:
            at = ".".join(map(str, absent[0])) or "its place"
            words = f"chunk {place} along {dim} at {at}"
            later = [p for p in places if p > place and absent[0] in there.get(p, set())]
            if later:
                warn(
                    f"{variable.name!r} lacks {words}, though chunk {later[0]} is written there, "
                    f"so its rows from {dim} {max(place * chunk, start)} on wait. A writer leaves "
                    "out chunks whose values are all missing. If nobody is writing this one, "
                    "count it with missing_chunks='fill'; else run again when it is there."
                )
            return place * chunk, words
    return stop, ""


def _digest(
    rows: Mapping[int, Mapping[str, str]], lo: int, hi: int, *, as_before: bool = False
) -> str:
    """16 hexadecimal digits of the stamps of some rows of chunks.

    ``as_before`` gives that of earlier versions for Zarr in memory and in zip files: that of names.
    """
    found = hashlib.sha256()
    for i in range(lo, hi):
        for place, stamp in sorted(rows.get(i, {}).items()):
            stamp = "" if as_before else stamp
            found.update(f"{i} {place} {stamp}\n".encode())
    return found.hexdigest()[:16]


def _metadata(variable: Variable) -> str:
    """Hash of what does not change when an array grows."""
    plain = dict(variable.data.array.metadata.to_dict())
    for name in ("shape", "attributes", "consolidated_metadata"):
        plain.pop(name, None)
    return digest([str(sorted(plain.items())), variable.units, str(variable.dtype)])[:16]


def _decoding(variable: Variable) -> dict[str, Any]:
    """What makes values of its bytes, by name."""
    stored = variable.data.array.metadata.to_dict() if variable.is_stored else {}
    attributes = stored.get("attributes") or {}
    own = {name: attributes[name] for name in DECODING if name in attributes}
    kind = {"i": "number", "u": "number", "f": "number"}.get(variable.dtype.kind)
    return {
        "dimensions": list(variable.dims),
        "kind": kind or variable.dtype.kind,
        **({"units": variable.units} if variable.units else {}),
        **({"calendar": variable.calendar} if variable.calendar else {}),
        **own,
    }


def _named(source: VariablesSource) -> dict[str, Variable]:
    """Variables by name; those of one name also by their place."""
    found: dict[str, Variable] = {}
    for i, each in enumerate(source.variables):
        found[f"{each.name} ({i})" if each.name in found else each.name] = each
    return found


def _labels(source: VariablesSource) -> dict[str, Array]:
    """The labels of every dimension that has some."""
    return {dim: np.asarray(own) for each in source.variables for dim, own in each.labels.items()}


def _label_hashes(labels: Mapping[str, Array], dim: str, start: int, stop: int) -> dict[str, str]:
    """Hashes of labels: along a dimension those of rows start:stop, else all."""
    own = {name: each[start:stop] if name == dim else each for name, each in labels.items()}
    return {name: _hash(each) for name, each in own.items()}


def _stamp_of(variable: Variable) -> str:
    """Hash of the files of a variable that has no rows along the dimension."""
    if not variable.is_stored:
        return ""
    rows, _ = variable.data.stamps_along(0) if variable.dims else ({}, 1)
    return _digest(rows, 0, max(rows, default=-1) + 1)


def _agrees(known: str, variable: Variable, dim: str = "", lo: int = 0, hi: int = 0) -> bool:
    """Whether the values (of rows lo:hi) have this hash, or that of an earlier version."""
    if not known:  # not hashed, as they were many
        return False
    part = _part(variable, dim, lo, hi)
    return known in (_values(variable, part), _values(variable, part, as_before=True))


def _part(variable: Variable, dim: str = "", lo: int = 0, hi: int = 0) -> tuple[slice, ...]:
    """All of a variable, or rows lo:hi."""
    sizes = zip(variable.dims, variable.shape, strict=True)
    return tuple(slice(lo, hi) if name == dim else slice(0, size) for name, size in sizes)


def _values(variable: Variable, part: tuple[slice, ...], *, as_before: bool = False) -> str:
    """Hash of the values of a part, those of files read slab by slab.

    Numbers and times are in one form, but not ``as_before``: in the hash of earlier versions, which
    is empty for more than 64 MiB.
    """
    shape = [each.stop - each.start for each in part]
    nbytes = prod(shape) * variable.dtype.itemsize
    if variable.kind != "lazy" or nbytes <= SMALL_BYTES:
        return _hash(np.asarray(variable.data[part]), as_before)
    if as_before:
        return ""
    step, (whole, *others) = max(SMALL_BYTES * shape[0] // nbytes, 1), part
    starts = range(whole.start, whole.stop, step)
    slabs = [(slice(lo, min(lo + step, whole.stop)), *others) for lo in starts]
    return digest([_hash(np.asarray(variable.data[slab]), as_before) for slab in slabs])[:32]


def _hash(values: Array, as_before: bool = False) -> str:
    values = values if as_before else _one_form(values)
    text = values.dtype.kind not in "biufcmM"
    kind = ["text" if text and not as_before else str(values.dtype), list(values.shape)]
    if text:
        return digest([kind, as_text(values).tolist()])[:32]
    numbers = values.view("i8") if values.dtype.kind in "mM" else values
    return digest(kind, {"values": numbers})[:32]


def _one_form(values: Array) -> Array:
    """Numbers as float64 and times in nanoseconds, where these hold all of them exactly."""
    kind = values.dtype.kind
    if kind not in "iufmM":
        return values
    with np.errstate(all="ignore"):
        found = values.astype("f8" if kind in "iuf" else f"{kind}8[ns]")
        same = np.array_equal(found.astype(values.dtype), values, equal_nan=kind in "fmM")
    return found if same else values


def _format_sizes(sizes: Mapping[str, int]) -> str:
    return " × ".join(f"{size:,} {name}" for name, size in sizes.items())


@dataclass(frozen=True, slots=True)
class ShiftedReader:
    """Reads boxes of a part."""

    reader: Reader
    axis: int
    shift: int

    def read(self, box: Box, *values: Any) -> Iterator[Rows]:
        """Rows of the same box in the whole grid."""
        yield from self.reader.read(shift_box(box, self.axis, self.shift), *values)


class PartSource:
    """Rows start:stop of a source along one dimension; see :class:`~.protocol.Source`."""

    def __init__(self, source: Source, dim: str, start: int, stop: int) -> None:
        self._source, self._dim, self._axis = source, dim, source.dims.index(dim)
        self._start, self._stop = start, stop
        self.columns = source.columns
        self.dims = source.dims
        self.shape = replace_item(source.shape, self._axis, stop - start)
        inside = (edge - start for edge in source.bounds[self._axis] if start < edge < stop)
        self.bounds = replace_item(source.bounds, self._axis, (0, *inside, stop - start))
        self.n_rows: int | None = prod(self.shape)
        self.reader: Reader = ShiftedReader(source.reader, self._axis, start)

    @property
    def graph(self) -> Mapping[Any, Any] | None:
        return self._source.graph

    @property
    def is_lazy(self) -> bool:
        return self._source.is_lazy

    def arguments(self, box: Box) -> tuple[Any, ...]:
        return self._source.arguments(shift_box(box, self._axis, self._start))

    def cost(self, box: Box) -> BoxCost:
        return self._source.cost(shift_box(box, self._axis, self._start))

    def possible_places(self) -> PlacesAlong | None:
        whole = self._source.possible_places()
        own = None if whole is None else whole[self._axis]
        if whole is None or own is None:
            return whole
        return replace_item(whole, self._axis, own[self._start : self._stop])

    def generation(self) -> str:
        """Hash of these rows alone: others may come meanwhile."""
        return digest(record_of(self._source, self._dim, self._start, self._stop, read=False))

    def describe(self, box: Box) -> str:
        """The box in words, as places in the whole."""
        return self._source.describe(shift_box(box, self._axis, self._start))

    def wrap(self, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
        """A part has no container of its own."""
        raise NotImplementedError("Predict for the whole source, not for a part of it.")


def shift_box(box: Box, axis: int, shift: int) -> Box:
    """A box further along one axis."""
    lo, hi = box[axis]
    return replace_item(box, axis, (lo + shift, hi + shift))


def replace_item(values: tuple[Any, ...], axis: int, value: Any) -> tuple[Any, ...]:
    """A tuple with another value in one place."""
    return (*values[:axis], value, *values[axis + 1 :])
