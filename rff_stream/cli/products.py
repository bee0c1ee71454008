"""Outputs of commands, and how they are recognised: a command replaces nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from rff_stream import __version__
from rff_stream.demo.cube import TITLE
from rff_stream.report.page import GENERATOR
from rff_stream.store.atomic import Kind
from rff_stream.store.canonical_json import MAX_JSON, parse_loosely
from rff_stream.store.location import open_files

SOURCE = f"rff_stream {__version__}: predictions"
"""The attribute "source" of predictions: CF says by it who made the data."""


def is_marked(data: bytes, place: str) -> bool:
    """Whether ``zarr.json`` is that of predictions."""
    attributes = parse_loosely(data, place).get("attributes")
    source = attributes.get("source") if isinstance(attributes, dict) else None
    return isinstance(source, str) and source.startswith("rff_stream ")


def _are_predictions(path: str) -> bool:
    data = open_files(path).find("zarr.json", MAX_JSON) if os.path.isdir(path) else None
    return data is not None and is_marked(data, path)


def _is_page(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return GENERATOR.encode() in file.read(4096)


def _is_cube(path: str) -> bool:
    root = Path(path) / "zarr.json"
    return root.is_file() and TITLE.encode() in root.read_bytes()


PREDICTIONS = Kind("no Zarr store that rff-stream predicted", _are_predictions)
PAGE = Kind("no page that rff-stream report wrote", _is_page, folder=False)
CUBE = Kind("no cube that rff-stream demo made", _is_cube)
