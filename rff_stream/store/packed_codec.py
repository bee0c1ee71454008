"""Packed values of any statistic as files, and back: what a checkpoint holds beside moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rff_stream.statistics.protocol import Packed
from rff_stream.store.array_codec import decode, encode, group_metadata
from rff_stream.store.canonical_json import parse

PLAIN = "packed"
"""Attribute of a batch that is a packed value: what is not an array."""


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
