"""What maps and means cost: the parts of bench.py that need one thread and no files.

Each function returns its table: a title, a sentence, the head and the rows. CPU seconds are of one
thread, the least of some turns; what is compared takes turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Work = Callable[[], Any]
Table = tuple[str, str, list[str], list[list[str]]]


def fastest(rivals: dict[str, Work], turns: int) -> dict[str, float]:
    """The least CPU seconds of each, all of them in every turn."""
    best = dict.fromkeys(rivals, np.inf)
    for work in rivals.values():
        work()  # pages touched, code loaded
    for _ in range(turns):
        for name, work in rivals.items():
            started = time.thread_time()
            work()
            best[name] = min(best[name], time.thread_time() - started)
    return best


def mean_vector(n: int, turns: int) -> Table:
    """Order-1 moments beside the bare projection, cosines and sums."""
    rows = [[f"{d}", *_mean_vector(n, d, turns)] for d in (3, 20)]
    head = ["d", "ns a row", "with 2,000 sampled rows", "bare", "share of the bare rate"]
    said = f"`accumulate(order=1)` of {n:,} rows, R=1000, float32 features."
    return "Mean feature vector", said, head, rows


def _mean_vector(n: int, d: int, turns: int) -> list[str]:
    from rff_stream.features import FourierFeatures
    from rff_stream.kernels import Gaussian
    from rff_stream.moments.accumulate import accumulate

    x = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
    features = FourierFeatures.sample(Gaussian(), d, 1000, rng=0)
    table = np.ascontiguousarray(features.frequencies.T, np.float32)
    ours: dict[str, Work] = {
        "sums": lambda: accumulate(features, x, order=1),
        "sample": lambda: accumulate(features, x, order=1, sample_rows=2000),
    }
    batches = (128, 256, 512)
    rivals: dict[str, Work] = {str(b): lambda b=b: bare_mean(x, table, b) for b in batches}
    found = fastest(rivals | ours, turns)
    bare = min(found[name] for name in rivals)
    shown = [f"{seconds / n * 1e9:.0f}" for seconds in (found["sums"], found["sample"], bare)]
    return [*shown, f"{bare / found['sums']:.2f} ({bare / found['sample']:.2f} with the sample)"]


def bare_mean(x: np.ndarray, table: np.ndarray, batch: int) -> np.ndarray:
    """Projection + cos + sum, and nothing else."""
    pairs = table.shape[1]
    angles = np.empty((batch, pairs), np.float32)
    waves, total = np.empty_like(angles), np.zeros(2 * pairs)
    for start in range(0, len(x), batch):
        m = min(batch, len(x) - start)
        np.matmul(x[start : start + m], table, out=angles[:m])
        total[0::2] += np.cos(angles[:m], out=waves[:m]).sum(axis=0)
        total[1::2] += np.sin(angles[:m], out=waves[:m]).sum(axis=0)
    return total


def density_scores(n: int, turns: int) -> Table:
    """Scores of new rows beside scikit-learn's sum over all training rows."""
    from sklearn.neighbors import KernelDensity

    import rff_stream as rs

    rng = np.random.default_rng(0)
    x, new, some = rng.standard_normal((n, 2)), rng.standard_normal((n, 2)), 500
    model = rs.KernelDensity(0.2, n_components=1000, random_state=0, progress=False).fit(x)
    exact = KernelDensity(bandwidth=0.2).fit(x)
    started = time.process_time()
    model.score_samples(new)
    ours = time.process_time() - started
    started = time.process_time()
    exact.score_samples(new[:some])
    theirs = (time.process_time() - started) / some
    said = f"{n:,} rows scored against {n:,} training rows, d=2; scikit-learn timed on {some}."
    cells = [f"{ours / n * 1e6:.2f}", f"{theirs * 1e6:.0f}", f"{theirs * n / ours:,.0f}"]
    return "Density of a row", said, ["ours, CPU µs", "KernelDensity, CPU µs", "times"], [cells]


def each_map(n: int, turns: int) -> Table:
    """Z of each kind of map: CPU time a row, and bytes that the map itself takes."""
    from rff_stream.features import (
        FourierFeatures,
        HermiteFeatures,
        NystroemFeatures,
        RandomBinningFeatures,
        StructuredFeatures,
    )
    from rff_stream.kernels import Gaussian, Laplacian

    d, r, rows = 8, 2048, []
    X = np.random.default_rng(0).standard_normal((n, d))
    kernel, rough = Gaussian(2.0), Laplacian(8.0)
    maps = {
        "Fourier, pairs": FourierFeatures.sample(kernel, d, r, rng=0),
        "Fourier, phases": FourierFeatures.sample(kernel, d, r, paired=False, rng=0),
        "structured, pairs": StructuredFeatures.sample(kernel, d, r, rng=0),
        "Nyström": NystroemFeatures.sample(kernel, X[:8192], r, rng=0),
        "Hermite": HermiteFeatures.sample(kernel, d, r, deviation=np.ones(d)),
        "binning, 256 grids": RandomBinningFeatures.sample(rough, d, r, rng=0),
    }
    for name, features in maps.items():
        out = np.empty((512, features.n_components), np.float32)
        seconds = fastest({"": lambda m=features, z=out: m(X[:512], out=z)}, turns)[""]
        held = sum(array.nbytes for array in features.spec()[1].values())
        shown = [f"{features.n_components}", f"{seconds / 512 * 1e6:.1f}", f"{held / 2**20:.2f}"]
        rows.append([name, *shown])
    said = f"512 rows at a time, d={d}, float32. A rank-k update of R² comes on top (hot loop)."
    return "Maps", said, ["map", "R", "CPU µs a row", "MiB"], rows


def structured_projection(turns: int) -> Table:
    """Ωx by Walsh-Hadamard transforms beside the dense product, without the cosines."""
    from rff_stream.features import FourierFeatures, StructuredFeatures
    from rff_stream.kernels import Gaussian

    rows = []
    for d in (16, 128, 256, 512, 784):
        X = np.random.default_rng(0).standard_normal((144, d))
        dense = FourierFeatures.sample(Gaussian(d**0.5), d, 8192, rng=0)
        fast = StructuredFeatures.sample(Gaussian(d**0.5), d, 8192, rng=0)
        found = fastest(
            {"dense": lambda m=dense, x=X: project(m, x), "fast": lambda m=fast, x=X: turn(m, x)},
            turns,
        )
        shown = [f"{found[name] / 128 * 1e6:.1f}" for name in ("dense", "fast")]
        rows.append([f"{d}", *shown, f"{found['dense'] / found['fast']:.2f}"])
    head = ["d", "dense, CPU µs a row", "structured", "times fewer"]
    return "Projection, R=8192", "Pairs, float32; cosines are the same for both.", head, rows


def project(features: Any, x: np.ndarray) -> None:
    """The products of 128 rows that the dense map makes."""
    angles = np.empty((144, 288), np.float32)
    inputs = features._scale_rows(x[:128])
    for block in features._projections:
        np.matmul(inputs, block.T, out=angles)


def turn(features: Any, x: np.ndarray) -> None:
    """The transforms of 144 rows that the structured map makes."""
    for start in range(0, 144, 48):
        for _ in features._angles(x[start : start + 48]):
            pass


def binning_rows(n: int, sizes: tuple[int, ...]) -> Table:
    """Second moments of random binning: entries counted, beside a rank-k update."""
    rows = [[f"{r}", *_binning_rows(n, r)] for r in sizes]
    head = ["R", "counted, CPU µs a row", "rank-k update", "chosen"]
    said = (
        f"What {n:,} rows more (R=16384: 65,536) add to an `accumulate`, d=8, 256 grids, float32 "
        "sums: what every sum pays once, R² numbers made and packed, is left out."
    )
    return "Random binning", said, head, rows


def _binning_rows(n: int, r: int) -> list[str]:
    from rff_stream.features import RandomBinningFeatures
    from rff_stream.kernels import Laplacian
    from rff_stream.moments import counted_entries as entrysums

    features = RandomBinningFeatures.sample(Laplacian(4.0), 8, r, rng=0)
    own = dict(entrysums.WIDTH_THAT_PAYS)
    entrysums.WIDTH_THAT_PAYS.update(float32=0)
    counted = one_more_row(features, max(n, entrysums.portion_rows(features.n_buckets)))
    entrysums.WIDTH_THAT_PAYS.update(float32=1 << 30)
    dense = f"{one_more_row(features, min(n, 2048)):.0f}" if r <= 8192 else "not measured"
    entrysums.WIDTH_THAT_PAYS.update(own)
    chosen = "counted" if entrysums.pays(features, np.dtype("float32")) else "rank-k"
    return [f"{counted:.0f}", dense, chosen]


def one_more_row(features: Any, n: int) -> float:
    """CPU µs of a row: what n rows more than n take."""
    from rff_stream.moments.accumulate import accumulate

    x, seconds = np.random.default_rng(0).standard_normal((2 * n, 8)), []
    accumulate(features, x[:512], sums="float32")
    for rows in (n, 2 * n):
        started = time.thread_time()
        accumulate(features, x[:rows], sums="float32")
        seconds.append(time.thread_time() - started)
    return (seconds[1] - seconds[0]) / n * 1e6


def tables(quick: bool) -> Iterator[Table]:
    """All of them, one by one."""
    from threadpoolctl import threadpool_limits

    n, turns = (10_000, 1) if quick else (100_000, 5)
    with threadpool_limits(1):
        yield mean_vector(n, turns)
        yield density_scores(10 * n, turns)
        yield each_map(n // 10 if quick else n // 5, 5 * turns)
        yield structured_projection(5 * turns)
        wide = () if quick else (8192, 16_384)
        yield binning_rows(2048 if quick else 16_384, (1024, 2048, 4096, *wide))
