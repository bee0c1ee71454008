"""Small rows, models, stores and calls that many tests share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from click.testing import CliRunner, Result

import rff_stream as rs
from rff_stream.cli import main

__all__ = ["columns_to_zarr", "ridge", "rows", "run", "same_bits"]


def rows(n: int, seed: int, offset: float = 0.0) -> tuple[Any, Any]:
    """Inputs (n, 2) and sin x₀ + x₁² + offset."""
    x = np.random.default_rng(seed).normal(size=(n, 2))
    return x, np.sin(x[:, 0]) + x[:, 1] ** 2 + offset


def ridge(**choices: Any) -> rs.KernelRidge:
    """A small model that searches for nothing, for tests of what is around it."""
    given: dict[str, Any] = {"n_components": 32, "length_scale": 1.0, "alpha": 1e-2}
    return rs.KernelRidge(**given | {"random_state": 0, "progress": False} | choices)


def columns_to_zarr(path: Path, columns: Mapping[str, Any], rows: int, **options: Any) -> Path:
    """A group of plain arrays in chunks of some rows."""
    group = zarr.open_group(path, mode="w", zarr_format=3)
    for name, column in columns.items():
        group.create_array(name, data=column, chunks=(rows,), **options)
    return path


def run(*words: Any) -> Result:
    """A line of the shell, in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays are equal to the last bit, the sign of zeros included."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
