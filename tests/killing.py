"""Drivers that are killed: a program that forks fits and updates and ends them at random moments.

``python killing.py FOLDER fit:3,update:2,two:1,rivals:1 SEED`` prints one line for each trial and
"all well" for each kind. The parent only imports: every child is a fresh driver.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.threaded  # all that a driver imports, so that no child spends its time on it
import distributed  # noqa: F401
import numpy as np
import tqdm.auto  # noqa: F401
import xarray as xr
import xarray.backends.zarr
import zarr.storage  # noqa: F401

import rff_stream as rs
import rff_stream.demo
import rff_stream.estimators.base
import rff_stream.sources.labelled
import rff_stream.sources.paths
from rff_stream.cli import main
from rff_stream.store import MomentStore

ROWS, MORE, CHUNK = 393_216, 65_536, 32_768
WORDS = [
    "--target",
    "y",
    "--inputs",
    "a,b",
    "--n-components",
    "32",
    "--length-scale",
    "1.0",
    "--alpha",
    "1e-3",
]


def rows(start: int, stop: int) -> xr.Dataset:
    rng = np.random.default_rng(start)
    a, b = rng.normal(size=(2, stop - start)).astype(np.float32)
    y = (np.sin(a) + b**2).astype(np.float32)
    return xr.Dataset({"a": ("row", a), "b": ("row", b), "y": ("row", y)})


def write(path: Path, start: int, stop: int) -> None:
    data = rows(start, stop)
    if start:
        data.to_zarr(path, append_dim="row", consolidated=False)
        return
    encoding = {name: {"chunks": (CHUNK,), "compressors": None} for name in ("a", "b", "y")}
    data.to_zarr(path, encoding=encoding, zarr_format=3, consolidated=False)


def fit(folder: Path) -> None:
    main(["fit", str(folder / "d.zarr"), *WORDS, "--model", str(folder / "M.zarr"), "--json"])


def update(folder: Path) -> None:
    main(["update", str(folder / "M.zarr"), str(folder / "d.zarr"), "--json"])


def state(folder: Path) -> None:
    """Write what the model at its end is: sha256 of moments and answers, and rows."""
    MomentStore.open(folder / "M.zarr").verify()
    model = rs.load(folder / "M.zarr")
    found = hashlib.sha256(model.moments_.sums.tobytes() + model.coef_.tobytes())
    found.update(model.moments_.sample.rows.tobytes())
    (folder / "state").write_text(f"{found.hexdigest()} {model.n_rows_}")


def look(folder: Path) -> None:
    """What lies there loads and verifies, or is not there."""
    for name in ("M.zarr", "M.zarr.checkpoint"):
        if (folder / name).exists():
            MomentStore.open(folder / name).verify()
    if (folder / "M.zarr").exists():
        rs.load(folder / "M.zarr")


def start(act: Callable[..., Any], *arguments: Any) -> int:
    """Run in a child; its id."""
    child = os.fork()
    if child:
        return child
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
        dask.config.set({"rff-stream.checkpoint-seconds": 0, "num_workers": 2})
        act(*arguments)
        os._exit(0)
    except SystemExit as end:
        os._exit(int(end.code or 0))
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(70)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(act: Callable[..., Any], *arguments: Any) -> None:
    code = ended(start(act, *arguments))
    assert code == 0, f"{act.__name__} ended with {code}"


def killed(act: Callable[..., Any], folder: Path, after: float) -> int:
    child = start(act, folder)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    return ended(child)


def trial(act: Callable[..., Any], before: Path, folder: Path, delays: list[float]) -> str:
    """State after a driver was killed (several times) and its command run again."""
    shutil.copytree(before, folder, symlinks=True)
    codes = [killed(act, folder, delay) for delay in delays]
    run(look, folder)
    whole = (folder / "M.zarr").exists() and not (folder / "M.zarr.checkpoint").exists()
    code = ended(start(act, folder))
    # Killed after its last step: a model that is whole is not replaced by accident.
    assert code == 0 or (code == 4 and whole and act is fit), f"{act.__name__} ended with {code}"
    run(state, folder)
    left = sorted(path.name for path in folder.iterdir())
    assert "M.zarr.checkpoint" not in left, left
    found = (folder / "state").read_text()
    say(f"{act.__name__} killed after {delays} ({codes}): {found[:12]}")
    shutil.rmtree(folder)
    return found


def two_at_once(before: Path, folder: Path, act: Callable[[Path], None], seed: int) -> str:
    """State after two drivers updated one model, or fitted it in one checkpoint, at once.

    Who is second to fit finds the model there and is told so: 4.
    """
    shutil.copytree(before, folder)
    children = []
    for _ in range(2):
        children.append(start(act, folder))
        time.sleep(random.Random(seed).uniform(0, 0.3 if act is fit else 0.05))
    codes = [ended(child) for child in children]
    assert 0 in codes and set(codes) <= {0, 4 if act is fit else 0}, codes
    run(state, folder)
    found = (folder / "state").read_text()
    say(f"two of {act.__name__} at once ended with {codes}: {found[:12]}")
    shutil.rmtree(folder)
    return found


@functools.cache
def prepared(folder: Path, act: Callable[[Path], None]) -> tuple[Path, str, float]:
    """Where the trials of an act begin, its state when nothing is killed, and its seconds."""
    before, whole = folder / f"before {act.__name__}", folder / f"{act.__name__} whole"
    before.mkdir()
    run(write, before / "d.zarr", 0, ROWS)
    if act is update:
        run(fit, before)
        run(write, before / "d.zarr", ROWS, ROWS + MORE)
    shutil.copytree(before, whole)
    began = time.monotonic()
    run(act, whole)
    seconds = time.monotonic() - began
    run(state, whole)
    return before, (whole / "state").read_text(), seconds


def warm() -> None:
    """Import what is imported on first use, so that no child has to."""
    rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 32, rng=0)(np.zeros((600, 2)))


def program(folder: Path, kind: str, seed: int, trials: int) -> None:
    act = fit if kind in ("fit", "rivals") else update
    before, expected, seconds = prepared(folder, act)
    rng = random.Random(seed)
    for number in range(trials):
        place = folder / f"{kind} {number}"
        if kind in ("two", "rivals"):
            found = two_at_once(before, place, act, seed + number)
        else:
            delays = [rng.uniform(0.02, 1.0) * seconds for _ in range(rng.choice([1, 1, 2]))]
            found = trial(act, before, place, delays)
        assert found == expected, (number, found, expected)
    say("all well")


if __name__ == "__main__":
    warm()
    for words in sys.argv[2].split(","):
        kind, _, trials = words.partition(":")
        program(Path(sys.argv[1]), kind, int(sys.argv[3]), int(trials))
