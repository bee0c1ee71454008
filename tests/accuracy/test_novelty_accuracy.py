"""Novelty on ten public sets beside scikit-learn's detectors: `make accuracy` prints the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accuracy import novelty

pytestmark = pytest.mark.accuracy

SEEDS = (0, 1, 2)
DETECTORS = novelty.OURS | novelty.WHITENED | novelty.RIVALS
OURS, WHITENED, FOREST, LOCAL, MACHINE = range(5)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """AUROC and CPU seconds of every detector, by set."""
    novelty.warm_up(DETECTORS)
    return {}


@pytest.mark.parametrize("name", novelty.SETS)
def test_a_set(name: str, shared_data: Callable[[str], Path], found: dict[str, Any]) -> None:
    shared_data(f"ad_{name}.npz")
    found[name] = novelty.table((name,), SEEDS, DETECTORS)[0]
    assert (found[name][:, 0] > 0.4).all()


def test_beside_the_field(found: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    if found.keys() != {*novelty.SETS}:
        pytest.skip("Run all sets to compare their means.")
    every = np.stack([found[name] for name in novelty.SETS])
    with capsys.disabled():
        print("\n" + novelty.markdown(novelty.SETS, DETECTORS, every))
    auroc = novelty.summary(every)[:, 0]
    for ours in (OURS, WHITENED):
        assert auroc[ours] >= max(auroc[LOCAL], auroc[MACHINE])
        assert auroc[ours] > auroc[FOREST]
    large = np.stack([found[name][:, 1] for name in ("celeba", "skin")])
    assert (large[:, OURS] <= 2 * large[:, FOREST]).all()
    assert large[:, OURS].sum() < min(large[:, LOCAL].sum(), large[:, MACHINE].sum())
