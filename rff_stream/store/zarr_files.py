"""Plain values and arrays as the files of Zarr v3, each in one fixed form."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import google_crc32c
import numpy as np

from rff_stream._array import Array, JoinedArrays
from rff_stream.errors import ModelError
from rff_stream.store.files import Contents, Pieces, damage

MAX_JSON = 64 * 2**20
"""Bytes of the largest JSON file that is written or read."""

MAX_DEPTH = 32
"""Levels of nesting."""


def canonical(value: Any, name: str) -> bytes:
    """The one text of a plain value: sorted keys, no spaces, ASCII; ``name`` is it in messages.

    Raises ModelError: names the part that JSON cannot hold: NaN, ±inf, other types, keys that are
    not text.
    """
    check_plain(value, name)
    data = dump(value)
    if len(data) > MAX_JSON:
        raise ModelError(
            f"{name} takes {len(data):,} bytes as JSON; a store keeps at most {MAX_JSON:,}. "
            "Put long lists of numbers into arrays."
        )
    return data


def dump(value: Any) -> bytes:
    """The text of :func:`canonical`, of a value that was checked before."""
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii")


def parse(data: bytes, place: str) -> dict[str, Any]:
    """The value of a canonical JSON object; refuses every other text, naming its place."""
    found = parse_loosely(data, place)
    try:
        if data.count(b"{") + data.count(b"[") > MAX_DEPTH:  # else it is not that deep
            check_plain(found, place)
        same = dump(found) == data
    except ValueError as error:
        raise ModelError(f"{place} holds what rff_stream does not write: {error}") from error
    if not same:
        raise ModelError(
            f"{place} is JSON, but not in the form that rff_stream writes: it was changed. "
            "Restore it from a copy."
        )
    return found


def parse_loosely(data: bytes, place: str) -> dict[str, Any]:
    """The value of any JSON object: for telling what a file is before it is trusted."""
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{place} is not JSON ({type(error).__name__}, {len(data):,} bytes). "
            "A model has JSON there; restore it from a copy."
        ) from error
    if not isinstance(found, dict):
        raise ModelError(f"{place} holds a JSON {type(found).__name__}, but a model has an object.")
    return found


def check_plain(value: Any, name: str, depth: int = MAX_DEPTH) -> None:
    """Refuse what JSON cannot give back, by name: ``header['alpha']``."""
    if depth == 0:
        raise ModelError(f"{name} is nested deeper than {MAX_DEPTH} levels. Flatten it.")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ModelError(f"{name} has the key {key!r}, but keys of JSON are text.")
            check_plain(inner, f"{name}[{key!r}]", depth - 1)
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            check_plain(inner, f"{name}[{i}]", depth - 1)
    elif not (value is None or isinstance(value, str | int | float)):
        raise ModelError(
            f"{name} is a {_kind(value)}, which JSON does not know. Use dict, list, str, int, "
            "float, bool or None there; put arrays into arrays."
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise ModelError(f"{name} is {value}, which JSON does not know. Put it into arrays.")


def _kind(value: Any) -> str:
    found = type(value)
    return f"{found.__module__}.{found.__name__}".removeprefix("builtins.")


DTYPES = ("float64", "float32", "int64", "uint64")
CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
CHECKSUM = 4  # bytes
ALLOWED: dict[str, list[Any]] = {
    "zarr_format": [3],
    "node_type": ["array"],
    "data_type": list(DTYPES),
    "codecs": [CODECS],
}


Metadata = tuple[tuple[int, ...], str, tuple[int, ...]]
"""Shape, dtype and shape of a chunk."""

KNOWN: dict[bytes, Metadata] = {}
MOST_KNOWN = 256  # a store with more shapes parses the rest each time


def encode(
    name: str, array: Array | JoinedArrays, dims: Sequence[str] = ()
) -> Iterator[tuple[str, Contents]]:
    """Files of the array at a path inside the store, in one chunk, one file at a time.

    ``dims`` are names of its dimensions, which xarray wants; made from the path by default.
    """
    check_dtype(name, array)
    parts = array.parts if isinstance(array, JoinedArrays) else (np.asarray(array),)
    shape, dtype, last = array.shape, array.dtype, name.rpartition("/")[2]
    dims = dims or [f"{last}_{axis}" for axis in range(len(shape))]
    chunk = _chunk_shape(shape, False)
    yield _metadata_file(name, shape, dtype.name, chunk, dims)
    for key in _keys(shape, chunk):
        yield f"{name}/{key}", _chunk(parts, dtype)


def encode_rows(
    name: str, rows: Sequence[Array], dims: Sequence[str]
) -> Iterator[tuple[str, Contents]]:
    """Files of the array whose rows these are: equal shapes, at least one, a chunk for each."""
    check_dtype(name, rows[0])
    shape = (len(rows), *rows[0].shape)
    chunk = _chunk_shape(shape, True)
    yield _metadata_file(name, shape, rows[0].dtype.name, chunk, dims)
    for key, row in zip(_keys(shape, chunk), rows, strict=True):
        yield f"{name}/{key}", _chunk((row,), row.dtype)


def decode(name: str, files: Mapping[str, bytes], place: str) -> Array:
    """The array that was encoded, read-only, from the verified files of a store (``place``).

    Their sha256 was compared, so the weaker crc32c (for readers other than us) is not computed
    again.
    """
    shape, dtype, parts = _decoded_chunks(name, files, place)
    if len(parts) == 1:
        return parts[0].reshape(shape)
    joined = np.concatenate(parts) if parts else np.empty(0, dtype)
    return joined.reshape(shape)


def decode_rows(name: str, files: Mapping[str, bytes], place: str) -> list[Array]:
    """The rows of an array, each a view of its own chunk: nothing is copied."""
    shape, _, parts = _decoded_chunks(name, files, place)
    if not parts or (len(parts),) != shape[:1]:
        raise damage(place, f"{name}/zarr.json", f"has {len(parts)} chunks for shape {shape}")
    return [part.reshape(shape[1:]) for part in parts]


def _decoded_chunks(
    name: str, files: Mapping[str, bytes], place: str
) -> tuple[tuple[int, ...], str, list[Array]]:
    """(shape, dtype, flat chunks), every size checked before anything is made of it."""
    shape, dtype, chunk = _checked_metadata(files[f"{name}/zarr.json"], place, f"{name}/zarr.json")
    parts, count = [], math.prod(chunk)
    little = np.dtype(dtype).newbyteorder("<")
    wanted = count * little.itemsize + CHECKSUM
    for key in _keys(shape, chunk):
        data = files.get(f"{name}/{key}")
        if data is None or len(data) != wanted:
            found = "is missing" if data is None else f"has {len(data):,} bytes"
            raise damage(place, f"{name}/{key}", f"{found}; shape {shape} needs {wanted:,}")
        parts.append(np.frombuffer(data, little, count=count).astype(dtype, copy=False))
    return shape, dtype, parts


def check_dtype(name: str, array: Any) -> None:
    """Refuse values that a store does not keep, by name."""
    dtype = getattr(array, "dtype", None)
    if (
        not isinstance(array, np.ndarray | np.generic | JoinedArrays)
        or getattr(dtype, "name", "") not in DTYPES
    ):
        found = type(array).__name__ if dtype is None else f"an array of dtype {dtype}"
        raise ModelError(
            f"{name} is {found}; a store keeps NumPy arrays of {', '.join(DTYPES)}. "
            "Convert it with astype, or put plain values into the header."
        )


def group_metadata(attributes: Mapping[str, Any], name: str) -> bytes:
    """``zarr.json`` of a group."""
    plain = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
    return canonical(plain, name)


def _chunk_shape(shape: tuple[int, ...], by_row: bool) -> tuple[int, ...]:
    whole = tuple(max(1, size) for size in shape)
    return (1, *whole[1:]) if by_row else whole


def _keys(shape: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[str]:
    """Names of the chunks of an array, which is cut along its first dimension alone."""
    if not shape:
        yield "c"
    elif 0 not in shape:
        for i in range(math.ceil(shape[0] / chunk[0])):
            yield "/".join(["c", str(i), *["0"] * (len(shape) - 1)])


def _chunk(parts: Sequence[Array], dtype: np.dtype[Any]) -> Pieces:
    """What Zarr's codecs bytes and crc32c make of arrays one after the other, without a copy."""
    pieces, checksum = [], 0
    for each in parts:
        little = np.ascontiguousarray(each.astype(dtype.newbyteorder("<"), copy=False))
        data: Any = little.reshape(-1).view(np.uint8)
        data.flags.writeable = False
        checksum = google_crc32c.extend(checksum, data)
        pieces.append(memoryview(data))
    return Pieces((*pieces, memoryview(checksum.to_bytes(CHECKSUM, "little"))))


def _metadata_file(
    name: str, shape: Sequence[int], dtype: str, chunk: Sequence[int], dims: Sequence[str]
) -> tuple[str, bytes]:
    plain = _metadata(shape, dtype, chunk, dims)
    return f"{name}/zarr.json", canonical(plain, f"the metadata of {name}")


def _metadata(
    shape: Sequence[int], dtype: str, chunk: Sequence[int], dims: Sequence[str]
) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN" if dtype.startswith("float") else 0,
        "codecs": CODECS,
        "attributes": {},
        "dimension_names": list(dims),
    }


def _checked_metadata(data: bytes, place: str, where: str) -> Metadata:
    """(shape, dtype, chunk shape) of metadata that are, to the byte, what we write."""
    if data in KNOWN:  # batches of one store have the same few, and parsing is slow
        return KNOWN[data]
    plain = parse(data, f"{place}/{where}")
    for key, allowed in ALLOWED.items():
        if plain.get(key) not in allowed:
            found = json.dumps(plain.get(key))[:200]
            fact = f"has {key} {found}, but a store has {' or '.join(map(json.dumps, allowed))}"
            raise damage(place, where, fact)
    sizes, dims = plain.get("shape"), plain.get("dimension_names")
    if _is_shape(sizes) and isinstance(dims, list) and len(dims) == len(sizes):
        shape = tuple(sizes)
        for chunk in {_chunk_shape(shape, False), _chunk_shape(shape, bool(shape))}:
            if dump(_metadata(shape, plain["data_type"], chunk, dims)) == data:
                if len(KNOWN) < MOST_KNOWN:
                    KNOWN[data] = shape, plain["data_type"], chunk
                return shape, plain["data_type"], chunk
    raise damage(place, where, "is not the metadata of an array that rff_stream writes")


def _is_shape(value: Any) -> TypeGuard[list[int]]:
    """Sizes whose product an index can hold."""
    whole = isinstance(value, list) and all(type(n) is int and 0 <= n < 2**60 for n in value)
    return whole and len(value) <= 8 and math.prod(max(1, n) for n in value) < 2**60
