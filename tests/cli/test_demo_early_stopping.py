"""Stopping early on the demo cube: as good as all of it, with an honest error bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.demo.cube import INPUTS, TARGET, Cube, write_cube


@pytest.mark.long
def test_an_early_stop_is_within_a_hundredth_of_the_error_of_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "cube.zarr"
    for _ in write_cube(Cube(n_days=730), path):
        pass
    test = [rs.HoldOut(0.1, 0, "test")]
    given: Any = {"inputs": INPUTS, "where": [rs.HoldOut(0.1, 0, "train")]}

    def made() -> rs.KernelRidge:
        return rs.KernelRidge(n_components=256, missing_rows="drop", random_state=0, progress=False)

    whole = made().fit(str(path), TARGET, **given)
    early = made().fit(str(path), TARGET, until=0.01, **given)
    errors = [float(m.residuals(str(path), where=test).rmse()[0]) for m in (whole, early)]
    assert early.fraction_seen_ < 0.75, early.fraction_seen_
    assert errors[1] <= 1.01 * errors[0], errors
    last = early.history_[-1]
    # Both are estimates from leaves; the test rows lie in every leaf, so theirs is the sharper.
    assert abs(last.rmse[0] - errors[1]) <= 3 * last.rmse_se[0], (last, errors)
    assert np.isfinite(last.rmse_se).all() and last.rmse_se[0] < 0.05 * last.rmse[0]
    figures = f"{last}; on the test rows {errors[1]:.5g}, all rows {errors[0]:.5g}"
    (tmp_path / "figures").write_text(figures)
