"""The table of hard data: no estimator is wrong in silence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ACCURACY = str(Path(__file__).parent)


@pytest.mark.accuracy
@pytest.mark.parametrize(
    "name",
    [
        "kind",
        "heavy-tailed inputs",
        "Cauchy noise",
        "1 % of inputs times 1000",
        "every row 20 times",
        "near-collinear column",
        "huge offsets",
        "few distinct values",
        "one giant weight",
        "weights of 1e-300",
        "targets of 1e160",
        "n < R",
        "constant target",
        "long gap in time",
        "sorted rows",
    ],
)
def test_nobody_is_wrong_in_silence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [ACCURACY, *sys.path])
    import hard_data

    found: Any = hard_data.measure(name, 0)
    assert not found
