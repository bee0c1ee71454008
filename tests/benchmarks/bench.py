"""Measures rff_stream against bare BLAS, scikit-learn and the plain Dask way; prints Markdown.

    make bench                          everything: about half an hour on two cores
    make bench BENCH_ARGS="--quick"     small sizes: does the script still work?
    python tests/benchmarks/bench.py --sections hot,import
    python tests/benchmarks/bench.py --sections fit --dtype float64

What is compared runs in turn, A B A B …; a ratio is taken within each turn and its median is
shown. Each whole fit is a fresh process. CPU is user + system time of all threads.
"""

from __future__ import annotations

import argparse
import compileall
import functools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

D = 8
INPUTS = [f"x{i}" for i in range(D)]
BATCH = 512  # rows of one rank-k update
CHUNK = 65_536  # rows of one Zarr chunk
TEST_ROWS = 20_000
ALPHA = 1.0
Result = dict[str, Any]
Predict = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[], Predict]


# --- data -------------------------------------------------------------------------------


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """X (n, d) and y (n,), float32: a smooth function of the inputs plus noise of σ = 0.1."""
    rng = np.random.default_rng(seed)
    x = 0.4 * rng.standard_normal((n, D), np.float32)
    y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + np.cos(2 * x[:, 3] + x[:, 4])
    return x, y + 0.1 * rng.standard_normal(n, np.float32)


def write_zarr(store: str, n: int, dtype: str = "float32") -> Result:
    """A group of 1-D arrays x0 … x7 and y, written a chunk at a time."""
    import zarr

    group = zarr.create_group(store)
    columns = {
        name: group.create_array(name, shape=(n,), chunks=(min(CHUNK, n),), dtype=dtype)
        for name in [*INPUTS, "y"]
    }
    for number, start in enumerate(range(0, n, CHUNK)):
        stop = min(start + CHUNK, n)
        x, y = rows(stop - start, seed=number + 1)
        for name, values in zip(columns, [*x.T, y], strict=True):
            columns[name][start:stop] = values
    return {}


def read_zarr(store: str) -> tuple[np.ndarray, np.ndarray]:
    import zarr

    group = zarr.open_group(store, mode="r")
    return np.column_stack([group[name][:] for name in INPUTS]), group["y"][:]


# --- what is measured, each in a process of its own ---------------------------------------


def fit_rff_stream(store: str, components: int) -> Fit:
    import rff_stream as rs

    model = rs.KernelRidge(
        kernel="gaussian", length_scale=1.0, n_components=components, alpha=ALPHA, random_state=0
    )
    return lambda: model.fit(store, "y", inputs=INPUTS).predict


def fit_scikit_learn(store: str, components: int) -> Fit:
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    sampler = RBFSampler(gamma=0.5, n_components=components, random_state=0)
    model = make_pipeline(sampler, Ridge(alpha=ALPHA))
    return lambda: model.fit(*read_zarr(store)).predict


def fit_plain_dask(store: str, components: int) -> Fit:
    """Features by map_blocks, moments by Z.T @ Z: the program one writes first."""
    import dask
    import dask.array as da

    rng = np.random.default_rng(0)
    omega = rng.standard_normal((D, components), np.float32)
    phases = rng.uniform(0, 2 * np.pi, components).astype(np.float32)
    scale = np.float32(np.sqrt(2 / components))

    def features(x: np.ndarray) -> np.ndarray:
        return np.cos(x @ omega + phases) * scale

    def fit() -> Predict:
        x = da.stack([da.from_zarr(store, component=name) for name in INPUTS], axis=1)
        x = x.rechunk({1: D})
        y = da.from_zarr(store, component="y")
        z = x.map_blocks(features, dtype=np.float32, chunks=(x.chunks[0], (components,)))
        sums = z.T @ z, z.T @ y, z.mean(axis=0), y.mean()
        zz, zy, z_mean, y_mean = (
            np.asarray(value, np.float64) for value in dask.compute(*sums, scheduler="threads")
        )
        n = len(y)
        matrix = zz - n * np.outer(z_mean, z_mean) + ALPHA * np.eye(components)
        beta = np.linalg.solve(matrix, zy - n * z_mean * y_mean)
        return lambda x: y_mean + (features(x) - z_mean) @ beta

    return fit


def bare_syrk(n: int, components: int) -> Callable[[], None]:
    """Rank-512 updates of one float32 triangle and nothing else, as often as n rows need."""
    from scipy.linalg.blas import ssyrk

    z = np.cos(np.random.default_rng(0).standard_normal((BATCH, components), np.float32))
    triangle = np.zeros((components, components), np.float32, order="F")

    def run() -> None:
        for _ in range(n // BATCH):
            ssyrk(1.0, z.T, beta=1.0, c=triangle, lower=1, overwrite_c=1)

    run_once = ssyrk(1.0, z.T, beta=1.0, c=triangle, lower=1, overwrite_c=1)
    assert np.shares_memory(run_once, triangle), "SYRK copied the triangle: not the bare cost"
    return run


FITS = {"rff_stream": fit_rff_stream, "sklearn": fit_scikit_learn, "dask": fit_plain_dask}


def whole_fit(library: str, store: str, components: int) -> Result:
    """One fit from Zarr: CPU and wall from its call to its return, then peak memory, then R²."""
    from threadpoolctl import threadpool_limits

    fit = FITS[library](store, components)
    cpu, wall = time.process_time(), time.perf_counter()
    with threadpool_limits(1, user_api="blas"):  # threads that wait for others take CPU, too
        predict = fit()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    # Of this process alone; imported here, as a process of another library may be without it.
    from rff_stream.process_memory import peak_bytes

    peak = peak_bytes()
    x, y = rows(TEST_ROWS, seed=0)
    r2 = 1 - np.mean((np.asarray(predict(x)).ravel() - y) ** 2) / y.var()
    return {"cpu": cpu, "wall": wall, "peak": peak, "r2": float(r2)}


def whole_syrk(n: int, components: int) -> Result:
    """CPU seconds of bare SYRK over n rows, dealt to as many threads as the fit has.

    Cores that work side by side are slower than one alone, so one thread is no measure of two.
    """
    from threadpoolctl import threadpool_limits

    count = os.cpu_count() or 1
    works = [bare_syrk(n // count, components) for _ in range(count)]  # SciPy's BLAS is loaded
    spent = []

    def timed(work: Callable[[], None]) -> None:
        cpu = time.thread_time()
        work()
        spent.append(time.thread_time() - cpu)

    with threadpool_limits(1):
        side_by_side([functools.partial(timed, work) for work in works])
    return {"cpu": sum(spent)}


def side_by_side(works: list[Callable[[], None]]) -> None:
    """Each work in a thread of its own."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hot_loop(n: int, components: int, pairs: int) -> Result:
    """A leaf over bare SYRK, in turn every 4,096 rows, and two threads over one."""
    from threadpoolctl import threadpool_limits

    from rff_stream.features.fourier import FourierFeatures
    from rff_stream.kernels import Gaussian
    from rff_stream.moments.accumulate import FLUSH_ROWS, Accumulator, accumulate, plain_row

    x, y = rows(n, seed=0)
    features = FourierFeatures.sample(Gaussian(1.0), D, components, rng=0)
    bare = bare_syrk(FLUSH_ROWS, components)

    def leaf_and_bare() -> tuple[float, float]:
        """CPU seconds of a leaf, its buffers and its result included, and of bare SYRK."""
        spent = [0.0, 0.0]

        def timed(place: int, work: Callable[[], Any]) -> Any:
            start = time.thread_time()
            made = work()
            spent[place] += time.thread_time() - start
            return made

        row = plain_row(features, 1)
        sink = timed(0, lambda: Accumulator(features, row, sums="float32"))
        for lo in range(0, n, FLUSH_ROWS):
            part = slice(lo, lo + FLUSH_ROWS)
            timed(0, lambda part=part: sink.add(x[part], y[part, None], None, np.arange(n)[part]))
            timed(1, bare)
        timed(0, sink.result)
        return spent[0], spent[1]

    def ours() -> None:
        accumulate(features, x, y, sums="float32")

    def two_threads() -> None:
        side_by_side([ours, ours])

    with threadpool_limits(1):
        bare(), two_threads()  # pages touched, code loaded
        cpu = [leaf_and_bare() for _ in range(pairs)]
        wall = list(turns(time.perf_counter, [ours, two_threads], pairs))
    return {
        "ours": statistics.median(a for a, _ in cpu) / n,
        "bare": statistics.median(b for _, b in cpu) / n,
        "over_bare": [a / b for a, b in cpu],
        "speed_up": [2 * one / two for one, two in wall],
    }


def choices(n: int, components: int, sums: str, targets: int, repeats: int) -> Result:
    """CPU seconds of one fit, and of 5 folds × 50 α × 5 sizes R', from one read each, in turn."""
    from threadpoolctl import threadpool_limits

    import rff_stream as rs
    from rff_stream.answers.penalty_selection import cross_validate
    from rff_stream.answers.ridge import ridge
    from rff_stream.moments import total

    x, y = rows(n, seed=0)
    y = np.column_stack([np.roll(y, i) for i in range(targets)])
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), D, components, rng=0)
    sizes, alphas = [components >> i for i in range(4, -1, -1)], np.geomspace(1e-3, 1e6, 50)

    def read(count: int, **asked: Any) -> Any:
        asked["sums"], asked["progress"] = sums, False
        return rs.collect(features, x[:count], y[:count], **asked)

    def single(count: int = n) -> None:
        ridge(read(count), ALPHA)

    def every(count: int = n) -> None:
        folds = read(count, folds=5)
        cross_validate(folds, alphas, sizes=sizes)
        ridge(total(list(folds.values())), ALPHA)

    with threadpool_limits(1, user_api="blas"):
        single(10_000), every(10_000)  # code loaded
        found = list(turns(time.process_time, [single, every], repeats))
    return {"single": [one for one, _ in found], "every": [several for _, several in found]}


def start_up(store: str) -> Result:
    """CPU seconds until a first row is summed: imports, then a fit of a small Zarr store."""
    stages = {"the interpreter": time.process_time()}

    def lap(name: str) -> None:
        stages[name] = time.process_time() - sum(stages.values())

    import numpy  # noqa: F401

    lap("`import numpy`")
    import sklearn.base  # noqa: F401

    lap("`import sklearn.base`")
    import dask.threaded  # noqa: F401

    lap("`import dask.threaded`")
    import rff_stream as rs

    model = rs.KernelRidge(progress=False, random_state=0)
    lap("`from rff_stream import KernelRidge`")
    import zarr  # noqa: F401

    lap("`import zarr`")
    from rff_stream.execution.reading import Reading
    from rff_stream.statistics.moment_statistics import MomentStatistic

    first = functools.partial(setattr, MomentStatistic, "start")
    original, pilot = MomentStatistic.start, Reading.pilot

    def started(self: MomentStatistic) -> Any:
        if "map, plan and graph" not in stages:
            lap("map, plan and graph")
        return original(self)

    def looked(self: Reading, seed: int) -> Any:
        lap("opening and checking the store")
        found = pilot(self, seed)
        lap("pilot rows")
        return found

    first(started)
    Reading.pilot = looked  # type: ignore[method-assign]
    model.fit(store, "y", inputs=INPUTS)
    return {"stages": stages}


def predictions(n: int, components: int, pairs: int) -> Result:
    """CPU seconds a row of predict in memory and from Zarr to Zarr, and of the bare operations."""
    import dask.array as da
    import zarr
    from threadpoolctl import threadpool_limits

    import rff_stream as rs

    x, y = rows(n, seed=0)
    model = rs.KernelRidge(length_scale=1.0, n_components=components, alpha=ALPHA, progress=False)
    model.fit(x[:20_000], y[:20_000])
    omega = np.ascontiguousarray(model.features_.frequencies.T, np.float32)  # (d, R/2)
    coef = np.asarray(model.coef_, np.float32)

    def bare() -> None:
        for lo in range(0, n, BATCH):
            angles = x[lo : lo + BATCH] @ omega
            np.cos(angles) @ coef[0::2] + np.sin(angles) @ coef[1::2]

    def in_memory() -> None:
        model.predict(x)

    def files() -> None:
        with tempfile.TemporaryDirectory(prefix="rff-stream-bench-") as folder:
            source = zarr.create_array(
                f"{folder}/x.zarr", shape=x.shape, chunks=(CHUNK, D), dtype=x.dtype
            )
            source[:] = x
            start = time.process_time()
            lazy = model.predict(da.from_zarr(f"{folder}/x.zarr"))
            lazy.to_zarr(f"{folder}/y.zarr")
            spent.append(time.process_time() - start)

    spent: list[float] = []
    with threadpool_limits(1, user_api="blas"):
        bare(), in_memory(), files()  # code loaded
        spent.clear()
        found = list(turns(time.process_time, [bare, in_memory, files], pairs))
    return {
        "bare": [a / n for a, _, _ in found],
        "memory": [b / n for _, b, _ in found],
        "files": [each / n for each in spent],
    }


def turns(
    clock: Callable[[], float], works: list[Callable[[], None]], repeats: int
) -> Iterator[list[float]]:
    """Seconds of each work, in turn, ``repeats`` times."""
    for _ in range(repeats):
        seconds = []
        for work in works:
            start = clock()
            work()
            seconds.append(clock() - start)
        yield seconds


CHILDREN: dict[str, Callable[..., Result]] = {
    function.__name__: function
    for function in (write_zarr, whole_fit, whole_syrk, hot_loop, choices, start_up, predictions)
}


def child(name: str, *arguments: Any) -> Result:
    """Result of a function in a fresh process, with that process's CPU seconds."""
    text, cpu = run_python(__file__, "--child", json.dumps([name, *arguments]))
    result: Result = json.loads(text.splitlines()[-1])
    return result | {"process_cpu": cpu}


def run_python(*arguments: str) -> tuple[str, float]:
    """What a fresh interpreter prints, and its CPU seconds from start to end."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as pipe:
        text = pipe.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"python {' '.join(arguments)} ended with {process.returncode}")
    return text, usage.ru_utime + usage.ru_stime


# --- sections -------------------------------------------------------------------------------


def section_hot(options: argparse.Namespace, folder: Path) -> None:
    print("\n### Hot loop\n")
    print(f"`accumulate` over {options.hot_rows:,} rows, float32, d={D}, one BLAS thread; bare")
    print("SYRK: R×R, 512 rows at a time, nothing else; in turn every 4,096 rows.\n")
    table = []
    for components in options.components:
        found = child("hot_loop", options.hot_rows, components, options.repeats)
        table.append(
            [
                f"{components}",
                f"{found['ours'] * 1e6:.2f}",
                f"{found['bare'] * 1e6:.2f}",
                spread(found["over_bare"]),
                spread(found["speed_up"]),
            ]
        )
    head = ["R", "CPU µs a row", "bare SYRK", "over bare SYRK", "two threads over one"]
    print_table(head, table)


def section_fit(options: argparse.Namespace, folder: Path) -> None:
    n, components = options.rows, options.components[0]
    store = stored(folder, n, options.dtype)
    print(f"\n### Whole fit from Zarr: n={n:,}, d={D}, {options.dtype}, R={components}\n")
    print("A fit is counted from its call to its return, a process from start to end, one BLAS")
    print("thread in each. Half of bare SYRK, on all cores, runs before ours and half after.\n")
    enough = memory_for_scikit_learn(n * components * np.dtype(options.dtype).itemsize)
    libraries = [name for name in FITS if name != "sklearn" or enough]
    found: dict[str, list[Result]] = {name: [] for name in ["syrk", *libraries]}
    for _ in range(options.repeats):
        halves = [child("whole_syrk", n // 2, components)]
        found["rff_stream"].append(child("whole_fit", "rff_stream", store, components))
        halves.append(child("whole_syrk", n - n // 2, components))
        found["syrk"].append({"cpu": sum(half["cpu"] for half in halves)})
        for name in libraries[1:]:
            found[name].append(child("whole_fit", name, store, components))
    ours = found["rff_stream"]
    titles = {"rff_stream": "**rff_stream**", "sklearn": "RBFSampler + Ridge, in memory"}
    table = [
        [
            titles.get(name, "plain Dask: map_blocks, Z.T @ Z"),
            f"{median(found[name], 'cpu'):.1f}",
            f"{ratio(found[name], found['syrk'], 'cpu'):.2f}",
            f"{median(found[name], 'process_cpu'):.1f}",
            f"{ratio(found[name], ours, 'process_cpu'):.2f}",
            f"{median(found[name], 'wall'):.1f}",
            f"{median(found[name], 'peak') / 1e9:.2f}",
            f"{median(found[name], 'r2'):.4f}",
        ]
        for name in libraries
    ]
    table.append(["bare SYRK", f"{median(found['syrk'], 'cpu'):.1f}", "1", *["–"] * 5])
    head = ["", "fit, CPU s", "over bare SYRK", "process, CPU s", "over rff_stream"]
    print_table([*head, "fit, wall s", "peak GB", "R²"], table)


def section_growth(options: argparse.Namespace, folder: Path) -> None:
    components = options.components[0]
    sizes = [options.rows * factor for factor in (1, 2, 4)]
    stores = {n: stored(folder, n) for n in sizes}
    print(f"\n### Growth with n: d={D}, R={components}\n")
    found: dict[int, list[Result]] = {n: [] for n in sizes}
    for _ in range(options.repeats):
        for n in sizes:
            found[n].append(child("whole_fit", "rff_stream", stores[n], components))
    least = sizes[0]
    table = [
        [
            f"{n:,}",
            f"{median(found[n], 'cpu'):.1f}",
            f"{ratio(found[n], found[least], 'cpu') * least / n:.3f}",
            f"{median(found[n], 'wall'):.1f}",
            f"{median(found[n], 'peak') / 1e9:.3f}",
            f"{ratio(found[n], found[least], 'peak'):.3f}",
        ]
        for n in sizes
    ]
    head = ["n", "fit, CPU s", f"CPU a row over n={least:,}", "wall s"]
    print_table([*head, "peak GB", f"over n={least:,}"], table)


def section_choices(options: argparse.Namespace, folder: Path) -> None:
    n, components = options.rows, options.components[0]
    print(f"\n### One read, every choice: n={n:,}, d={D}, R={components}\n")
    print("5 folds × 50 α × 5 sizes R' and the fit, over the fit alone: CPU, each with its read.\n")
    table = []
    for sums in ("float32", "float64"):
        for targets in (1, 10):
            found = child("choices", n, components, sums, targets, options.repeats)
            single, every = found["single"], found["every"]
            over = [b / a for a, b in zip(single, every, strict=True)]
            seconds = [f"{statistics.median(cpu):.1f}" for cpu in (single, every)]
            table.append([sums, f"{targets}", *seconds, spread(over)])
    print_table(["sums", "targets", "fit, CPU s", "every choice, CPU s", "ratio"], table)


def section_predict(options: argparse.Namespace, folder: Path) -> None:
    n, components = options.rows, options.components[0]
    print(f"\n### Prediction: n={n:,}, d={D}, R={components}\n")
    print("Beside the bare operations: a projection, cosines, sines and a product, 512 rows at a")
    print("time in float32; in turn, one BLAS thread.\n")
    found = child("predictions", n, components, options.repeats)
    titles = {"bare": "bare operations", "memory": "in memory", "files": "from Zarr to Zarr"}
    table = []
    for name, title in titles.items():
        over = [a / b for a, b in zip(found[name], found["bare"], strict=True)]
        table.append([title, f"{statistics.median(found[name]) * 1e6:.2f}", spread(over)])
    print_table(["", "CPU µs a row", "over bare"], table)


def section_import(options: argparse.Namespace, folder: Path) -> None:
    print("\n### Import\n\nA fresh interpreter from start to end.\n")
    codes = ["pass", "import numpy", "import rff_stream"]
    codes.append("import dask.array, distributed, xarray, zarr")
    run = [lambda code=code: run_python("-c", code)[1] for code in codes]
    found = [[work() for work in run] for _ in range(options.repeats + 1)][1:]  # the first compiles
    cpu = [statistics.median(column) for column in zip(*found, strict=True)]
    table = [[f"`{code}`", f"{seconds:.2f}"] for code, seconds in zip(codes, cpu, strict=True)]
    print_table(["", "CPU s"], table)

    print("\n### Before the first row\n")
    print("A process that fits 20,000 rows from Zarr, until the first row is summed.\n")
    store = stored(folder, 20_000)
    stages = [child("start_up", store)["stages"] for _ in range(options.repeats + 1)][1:]
    table = [[name, f"{statistics.median(s[name] for s in stages):.3f}"] for name in stages[0]]
    whole = statistics.median(sum(each.values()) for each in stages)
    print_table(["", "CPU s"], [*table, ["together", f"{whole:.2f}"]])


SMALL_ROWS = (20, 100, 1000, 10_000)


def small_pairs() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Each estimator with its defaults, and scikit-learn's for the same task."""
    from sklearn import decomposition, gaussian_process, kernel_ridge, neighbors, svm

    import rff_stream as rs

    quiet = {"progress": False, "random_state": 0}
    white = gaussian_process.kernels.RBF(2.0) + gaussian_process.kernels.WhiteKernel(0.1)
    return {
        "KernelRidge, KernelRidge": (
            lambda: rs.KernelRidge(**quiet),
            lambda: kernel_ridge.KernelRidge(alpha=0.1, kernel="rbf", gamma=0.1),
        ),
        "GaussianProcessRegressor, the same": (
            lambda: rs.GaussianProcessRegressor(**quiet),
            lambda: gaussian_process.GaussianProcessRegressor(white),
        ),
        "KernelClassifier, SVC": (lambda: rs.KernelClassifier(**quiet), svm.SVC),
        "KernelDensity, KernelDensity": (
            lambda: rs.KernelDensity(**quiet),
            lambda: neighbors.KernelDensity(bandwidth=0.5),
        ),
        "NoveltyDetector, OneClassSVM": (lambda: rs.NoveltyDetector(**quiet), svm.OneClassSVM),
        "KernelPCA, KernelPCA": (
            lambda: rs.KernelPCA(**quiet),
            lambda: decomposition.KernelPCA(2, kernel="rbf"),
        ),
    }


def fit_and_ask(make: Callable[[], Any], x: np.ndarray, y: np.ndarray) -> float:
    """CPU seconds of a fit and its answers at the same rows."""
    start = time.process_time()
    model = make().fit(x, y)
    getattr(model, "predict", getattr(model, "score_samples", getattr(model, "transform", None)))(x)
    return time.process_time() - start


def section_small(options: argparse.Namespace, folder: Path) -> None:
    from threadpoolctl import threadpool_limits

    print("\n### Small data\n")
    print("Defaults: fit, and predict at the same rows, CPU s, ours / scikit-learn's, in turn, one")
    print("BLAS thread. scikit-learn's Gaussian process is left out at 10,000 rows.\n")
    sizes = SMALL_ROWS[:2] if options.quick else SMALL_ROWS
    print_table(["ours, scikit-learn's", *(f"n={n:,}" for n in sizes)], [])
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of densities that few rows do not resolve
        for name, pair in small_pairs().items():
            cells = [name]
            for n in sizes:
                x, values = rows(n, 0)
                y = (values > 0).astype(int) if "Classifier" in name else values
                left_out = "Gaussian" in name and n > 1000
                turns_each = 3 if n <= 100 else 1
                both = pair[:1] if left_out else pair
                found = [[fit_and_ask(make, x, y) for make in both] for _ in range(turns_each)]
                cells.append(
                    " / ".join(f"{min(column):.3f}" for column in zip(*found, strict=True))
                )
            print(f"| {' | '.join(cells)} |", flush=True)


def section_search(options: argparse.Namespace, folder: Path) -> None:
    """scikit-learn's grid search around both, and length-scales of each input."""
    from sklearn import kernel_ridge
    from sklearn.model_selection import GridSearchCV
    from threadpoolctl import threadpool_limits

    import rff_stream as rs

    print("\n### Searches\n\n9 penalties, or length-scales with a penalty by evidence for each,")
    print("× 5 folds and the fit, n=1,000, CPU s, one BLAS thread.\n")
    x, y = rows(1000, 0)
    quiet = {"progress": False, "random_state": 0}
    models = {
        "GridSearchCV of KernelRidge": rs.KernelRidge(**quiet),
        "the same, scikit-learn's": kernel_ridge.KernelRidge(kernel="rbf", gamma=0.1),
    }
    searches = {
        name: GridSearchCV(model, {"alpha": np.geomspace(1e-3, 10, 9)})
        for name, model in models.items()
    }
    scales = {"length_scale": list(np.geomspace(0.3, 3, 9))}
    searches["the same over 9 length-scales"] = GridSearchCV(models[next(iter(models))], scales)
    process = rs.GaussianProcessRegressor(length_scale="ard", **quiet)
    warnings.simplefilter("ignore", rs.NumericalWarning)  # of gaps in 1,000 rows of 8 inputs
    with threadpool_limits(1, user_api="blas"):
        table = [[name, f"{fit_and_ask(lambda s=s: s, x, y):.2f}"] for name, s in searches.items()]
        for n, d in [(400, 8)] if options.quick else [(400, 8), (15_000, 26)]:
            rng = np.random.default_rng(0)
            x = rng.normal(size=(n, d))
            y = np.sin(2 * x[:, 0]) + 0.8 * x[:, 1] * x[:, 2] + 0.2 * rng.normal(size=n)
            seconds = fit_and_ask(lambda: process, x, y)
            table.append([f"GaussianProcessRegressor, ard, n={n:,}, d={d}", f"{seconds:.1f}"])
    print_table(["", "CPU s"], table)


def section_features(options: argparse.Namespace, folder: Path) -> None:
    import features  # beside this file

    for title, said, head, table in features.tables(options.quick):
        print(f"\n### {title}\n\n{said}\n")
        print_table(head, table)


# --- printing -------------------------------------------------------------------------------


SECTIONS: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "small": section_small,
    "search": section_search,
    "hot": section_hot,
    "fit": section_fit,
    "growth": section_growth,
    "choices": section_choices,
    "import": section_import,
    "predict": section_predict,
    "features": section_features,
}


def median(results: list[Result], key: str) -> float:
    return statistics.median(result[key] for result in results)


def ratio(above: list[Result], below: list[Result], key: str) -> float:
    """Median of the ratios within each turn."""
    return statistics.median(a[key] / b[key] for a, b in zip(above, below, strict=True))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def print_table(head: list[str], table: list[list[str]]) -> None:
    for cells in (head, ["---", *["---:"] * (len(head) - 1)], *table):
        print(f"| {' | '.join(cells)} |", flush=True)


def print_machine() -> None:
    import scipy

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
        model = next(names, model)
    print(
        f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}; BLAS {blas_kernels()}",
        flush=True,
    )


def blas_kernels() -> str:
    """The BLAS libraries and the processor that their kernels are for."""
    from threadpoolctl import threadpool_info

    found = {
        f"{each['internal_api']} {each['version']} ({each.get('architecture', '?')})"
        for each in threadpool_info()
        if each["user_api"] == "blas"
    }
    return ", ".join(sorted(found))


def memory_for_scikit_learn(size: int) -> bool:
    """Whether Z of so many bytes and its copies, 2.1 times as much, fit in what is free."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 2.4 * size > free:
        print(f"RBFSampler + Ridge left out: {2.4e-9 * size:.0f} GB, {free / 1e9:.0f} free.\n")
    return 2.4 * size <= free


def stored(folder: Path, n: int, dtype: str = "float32") -> str:
    store = folder / (f"{n}.zarr" if dtype == "float32" else f"{n}-{dtype}.zarr")
    if not store.exists():
        child("write_zarr", str(store), n, dtype)
    return str(store)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000, help="n of the whole fits")
    parser.add_argument("--hot-rows", type=int, default=65_536, help="rows of one leaf")
    parser.add_argument("--components", type=int, nargs="+", default=[1024, 4096], metavar="R")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"],
                        help="of the columns of the whole fits")  # fmt: skip
    parser.add_argument("--folder", type=Path, help="where the Zarr stores go and stay")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.rows, options.hot_rows = 2, 20_000, 4096
        options.components = [128, 256]
    return options


def main() -> None:
    options = parse()
    if options.child:
        name, *arguments = json.loads(options.child)
        print(json.dumps(CHILDREN[name](*arguments)))
        return
    sections = options.sections.split(",")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rff-stream-bench-"))
    print_machine()
    package = Path(__file__).parents[2] / "rff_stream"
    compileall.compile_dir(package, quiet=1)  # processes start as those of an installed package
    try:
        for name in filter(sections.__contains__, SECTIONS):
            SECTIONS[name](options, folder)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
