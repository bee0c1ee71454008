"""Novelty on ten public sets beside scikit-learn's detectors: `make accuracy` prints the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from accuracy import novelty

pytestmark = pytest.mark.accuracy

OURS, WHITENED, FOREST, LOCAL, MACHINE = range(5)


@pytest.mark.timeout(1800)
def test_novelty_beside_the_field(
    shared_data: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in novelty.SETS:
        shared_data(f"ad_{name}.npz")
    detectors = novelty.OURS | novelty.WHITENED | novelty.RIVALS
    novelty.warm_up(detectors)
    found = novelty.table(novelty.SETS, (0, 1, 2), detectors)
    with capsys.disabled():
        print("\n" + novelty.markdown(novelty.SETS, detectors, found))  # noqa: T201
    auroc = novelty.summary(found)[:, 0]
    for ours in (OURS, WHITENED):
        assert auroc[ours] >= max(auroc[LOCAL], auroc[MACHINE])
        assert auroc[ours] > auroc[FOREST]
    large = found[[novelty.SETS.index(name) for name in ("celeba", "skin")], :, 1]
    assert (large[:, OURS] <= 2 * large[:, FOREST]).all()
    assert large[:, OURS].sum() < min(large[:, LOCAL].sum(), large[:, MACHINE].sum())
