"""What the issue promises of speed, in CPU seconds, rivals taking turns on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import rff_stream as rs
from rff_stream.accumulate import accumulate
from rff_stream.features import FourierFeatures
from rff_stream.kernels import Gaussian

pytestmark = pytest.mark.slow


def fastest(rivals: dict[str, Callable[[], Any]], turns: int = 9) -> dict[str, float]:
    """The least CPU seconds of each, all of them in every turn."""
    best = dict.fromkeys(rivals, np.inf)
    with threadpool_limits(1):
        for _ in range(turns):
            for name, run in rivals.items():
                started = time.process_time()
                run()
                best[name] = min(best[name], time.process_time() - started)
    return best


@pytest.mark.parametrize("d", [3, 20])
def test_a_mean_costs_its_projection_its_cosines_and_its_sum(d: int) -> None:
    n, pairs = 100_000, 500
    x = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
    features = FourierFeatures.sample(Gaussian(), d, 2 * pairs, rng=0)
    table = np.ascontiguousarray(features.frequencies.T, np.float32)

    def bare(batch: int) -> None:
        angles = np.empty((batch, pairs), np.float32)
        waves, total = np.empty_like(angles), np.zeros(2 * pairs)
        for start in range(0, n, batch):
            m = min(batch, n - start)
            np.matmul(x[start : start + m], table, out=angles[:m])
            total[0::2] += np.cos(angles[:m], out=waves[:m]).sum(axis=0)
            total[1::2] += np.sin(angles[:m], out=waves[:m]).sum(axis=0)

    rivals = {str(batch): lambda batch=batch: bare(batch) for batch in (128, 256, 512)}
    ours = {
        "sums": lambda: accumulate(features, x, order=1),
        "sums and sample": lambda: accumulate(features, x, order=1, sample_rows=2000),
    }
    shares = []
    for _ in range(3):  # what else runs on the machine only ever lowers a share
        found = fastest(rivals | ours)
        best = min(found[name] for name in rivals)
        shares.append(min(best / found[name] for name in ours))
        if shares[-1] >= 0.8:
            break
    assert max(shares) >= 0.8, f"{shares} of the bare rate"


def test_a_score_is_a_hundred_times_cheaper_than_a_sum_over_a_million_rows() -> None:
    from sklearn.neighbors import KernelDensity

    rng = np.random.default_rng(0)
    x, new = rng.standard_normal((1_000_000, 2)), rng.standard_normal((1_000_000, 2))
    model = rs.KernelDensity(0.2, n_components=1000, random_state=0, progress=False).fit(x)
    exact = KernelDensity(bandwidth=0.2).fit(x)
    model.score_samples(new[:10])
    seconds = fastest(
        {
            "exact": lambda: exact.score_samples(new[:500]),
            "ours": lambda: model.score_samples(new),
        },
        turns=1,
    )
    ratio = (seconds["exact"] / 500) / (seconds["ours"] / len(new))
    assert ratio >= 100, f"{ratio:.0f} times"
