"""Scales of inputs along which a fit changes evenly, against a dense reference."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.features import InputWarp, NormalScores, map_from_spec
from rff_stream.kernels import Polynomial
from rff_stream.length_scales import scale_search
from rff_stream.length_scales.input_warps import EVEN, can_warp, input_warp
from rff_stream.length_scales.window_evidence import MetricFit, RowWindow

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}


def rises(kernel: Any, x: np.ndarray, y: np.ndarray, fit: MetricFit, j: int) -> np.ndarray:
    """Root mean squared differences of the exact fit between neighbouring values of input j."""
    u = x * fit.matrix.diagonal()
    K = kernel(u, u) + fit.alpha * np.eye(len(u))
    inverse, ones = np.linalg.inv(K), np.ones(len(u))
    mean = (ones @ inverse @ y) / (ones @ inverse @ ones)
    weights = inverse @ (y - mean)

    def f(rows: np.ndarray) -> np.ndarray:
        return np.asarray(kernel(rows * fit.matrix.diagonal(), u) @ weights)

    values, found = np.unique(x[:, j]), []
    for low, high in pairwise(values):
        own = x[x[:, j] == low]  # of rows on a knot each piece has those at its ends
        sides = [np.where(np.arange(x.shape[1]) == j, end, own) for end in (low, high)]
        found.append(np.sqrt(((f(sides[1]) - f(sides[0])) ** 2).mean()))
    return np.array(found)


@pytest.mark.parametrize("kernel", [rs.Gaussian(1.0), rs.Matern(1.0, nu=1.5), rs.Laplacian(1.0)])
def test_a_scale_rises_as_the_fit_does(kernel: Any, rng: Any) -> None:
    """Where all other inputs are equal, every row of a piece moves in the same way."""
    x = np.column_stack([np.repeat(np.arange(6.0) ** 2, 30), np.zeros(180)])
    y = np.where(x[:, :1] > 3, 1.0, -1.0) + 0.01 * x[:, :1]
    x[:, 1] = rng.normal(size=180) * 1e-9  # varies, and does not matter
    fit = MetricFit(kernel, np.diag([0.3, 1.0]), 0.05, 0.0)
    rows = RowWindow(x, y, np.ones(180))
    warp = input_warp(rows, np.arange(len(x)), x, fit, None, np.random.default_rng(0))
    assert warp is not None
    assert warp.columns[0] == 0
    expected = rises(kernel, x - x.mean(axis=0), y, fit, 0)
    expected += EVEN * expected.mean()
    found = np.diff(warp.scores[0])[:5]  # the last piece goes on
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), rtol=1e-6)
    np.testing.assert_array_equal(warp.knots[0, :6], np.arange(6.0) ** 2)
    assert warp(x)[:, 0].std() == pytest.approx(x[:, 0].std(), rel=1e-12)
    again = map_from_spec(*warp.spec())
    assert isinstance(again, InputWarp)
    np.testing.assert_array_equal(again(x), warp(x))


@pytest.mark.slow
def test_a_scale_follows_normal_scores(rng: Any) -> None:
    """Between knots it is linear in the score: far values of a heavy tail are told apart."""
    raw = np.exp(2 * rng.normal(size=(3000, 1)))
    scores = NormalScores.of_rows(raw, np.array([0]))
    origin = scores(raw).mean(axis=0)
    x = scores(raw) - origin
    rows = RowWindow(x, np.tanh(3 * x), np.ones(3000))
    fit = MetricFit(rs.Gaussian(1.0), np.eye(1), 0.01, 0.0)
    plain = input_warp(rows, np.arange(len(x)), x, fit, None, np.random.default_rng(0))
    warp = input_warp(rows, np.arange(len(x)), raw, fit, scores, np.random.default_rng(0))
    assert plain is not None
    assert warp is not None
    scale = x.std()
    np.testing.assert_allclose(warp(raw), plain(x), atol=1e-9 * scale)
    assert (np.diff(warp(np.sort(raw, axis=0)), axis=0) >= 0).all()


def test_what_has_no_scale_is_left_as_it_is() -> None:
    x = np.column_stack([np.tile([0.0, 1.0], 100), np.zeros(200)])
    fit = MetricFit(rs.Gaussian(1.0), np.eye(2), 0.1, 0.0)
    rows = RowWindow(x, x[:, :1], np.ones(200))
    assert input_warp(rows, np.arange(len(x)), x, fit, None, np.random.default_rng(0)) is None
    assert not can_warp(Polynomial(2))


def test_a_scale_that_falls_is_refused() -> None:
    falls = (np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.5]))
    with pytest.raises(ValueError, match="scores of InputWarp do not increase"):
        InputWarp.of_knots(1, np.array([0]), [falls])


def steps_of(x: np.ndarray) -> np.ndarray:
    return np.asarray((x[:, 0] > 0.7) * 1.0 + (x[:, 1] > 0.2) * (x[:, 2] > 0.5))


@pytest.mark.slow
def test_steps_are_found(rng: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Thresholds of single inputs: errors are a third less than with inputs as they are."""
    x = rng.uniform(size=(1500, 4))
    y = steps_of(x) + 0.1 * rng.normal(size=1500)

    def fitted() -> rs.GaussianProcessRegressor:
        return rs.GaussianProcessRegressor(**QUIET).fit(x[:1000], y[:1000])

    def error(model: rs.GaussianProcessRegressor) -> float:
        return float(np.sqrt(np.mean((model.predict(x[1000:]) - steps_of(x[1000:])) ** 2)))

    warped = fitted()
    assert "warped" in warped.choice_.taken
    assert len(set(warped.choice_.names)) == len(warped.choice_.names)
    warped.save(tmp_path / "model")
    again = rs.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(x[1000:]), warped.predict(x[1000:]))
    monkeypatch.setattr(scale_search, "FEWEST_WARPED", 10**9)
    plain = fitted()
    assert "warped" not in " ".join(plain.choice_.names)
    assert error(warped) < 0.75 * error(plain)


@pytest.mark.long
def test_noise_has_no_other_scale() -> None:
    """Two standard errors: 2.3 % of fits to noise would take one by chance, 5 of 40 less than once
    in 300 times."""
    taken = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(300, 4)), rng.normal(size=300)
        fit = rs.KernelRidge(random_state=seed, progress=False).fit(x, y)
        taken += "warped" in fit.choice_.taken
    assert taken < 5
