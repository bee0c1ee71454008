"""cos and sin of angles: right to rounding, and a value depends on its angle only."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rff_stream._array import Array
from rff_stream.features import FourierFeatures, cosine_map
from rff_stream.kernels import Gaussian

ROUNDING = 1.2e-7
"""Two units in the last place of a float32 below 1: the polynomials' error and their rounding."""


def waves(angles: Array) -> Array:
    """cos, sin, cos, sin, … in float64."""
    exact = angles.astype(np.float64)
    return np.stack([np.cos(exact), np.sin(exact)], axis=2).reshape(len(angles), -1)


def write_pairs(angles: np.ndarray, out: np.ndarray) -> None:
    cosine_map.write_waves(angles, [out[:, 0::2], out[:, 1::2]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-30, 1.0, 30.0, 1e4, 4.9e5])
def test_pairs_and_cosines_are_right_to_rounding(
    size: float, dtype: type, rng: np.random.Generator
) -> None:
    angles = rng.uniform(-size, size, (37, 53)).astype(np.float32)
    out = np.full((37, 106), np.nan, dtype)
    write_pairs(angles, out)
    assert np.abs(out - waves(angles)).max() <= ROUNDING
    one = np.full((37, 53), np.nan, dtype)
    cosine_map.write_waves(angles, [one])
    assert np.array_equal(one, out[:, 0::2])


def test_edges_of_a_quadrant() -> None:
    steps = np.arange(-4000, 4001) * (np.pi / 4)
    angles = np.concatenate(
        [np.nextafter(steps.astype(np.float32), np.float32(s)) for s in (-np.inf, np.inf)]
    )[None]
    out = np.empty((1, 2 * angles.size), np.float32)
    write_pairs(angles, out)
    assert np.abs(out - waves(angles)).max() <= ROUNDING


def test_large_angles_are_waves_too_and_nan_stays() -> None:
    angles = np.array([[1e7, 3.0, np.nan, 4.9e5, -1e30, 5.1e5]], np.float32)
    out = np.empty((1, 12), np.float32)
    write_pairs(angles, out)
    expected = waves(angles)
    assert np.isnan(out[0, 4:6]).all()
    kept = ~np.isnan(expected)
    assert np.abs(out[kept] - expected[kept]).max() <= ROUNDING


@given(rows=st.integers(1, 9), columns=st.integers(1, 40), seed=st.integers(0, 99))
def test_a_value_depends_on_its_angle_only(rows: int, columns: int, seed: int) -> None:
    """Whatever its place in vector registers, its strides and the precision it is kept in."""
    angles = np.random.default_rng(seed).normal(0, 20, (rows, columns)).astype(np.float32)
    whole = np.empty((rows, 2 * columns), np.float32)
    write_pairs(angles, whole)
    wide = np.empty((rows, 2 * columns), np.float64)
    write_pairs(angles, wide)
    assert np.array_equal(whole, wide)
    turned = np.empty((2 * columns, rows), np.float32).T
    write_pairs(np.asfortranarray(angles), turned)
    assert np.array_equal(whole, turned)
    one = np.empty((1, 2), np.float32)
    write_pairs(angles[-1:, -1:], one)
    assert np.array_equal(one[0], whole[-1, -2:])


def test_a_map_of_float32_is_that_of_float64_to_rounding(rng: np.random.Generator) -> None:
    x = rng.normal(size=(300, 3))
    features = FourierFeatures.sample(Gaussian(1.0), 3, 600, rng=0)
    exact = replace(features, dtype="float64")(x)
    # 2⁻²⁴ of the inputs and of Ω, each met d times, on angles below 16; then the waves' own.
    assert np.abs(features(x) - exact).max() <= 2 * 4 * 2.0**-24 * 16 + ROUNDING


def test_cosines_need_no_extra() -> None:
    """One way to compute them: bits depended on Numba once, and mixed clusters were refused."""
    code = "import sys, rff_stream as rs, numpy as np;" + (
        "rs.FourierFeatures.sample(rs.Gaussian(), 20, 8, rng=0)(np.eye(20));print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"numba", "llvmlite"} & set(loaded.stdout.split())
