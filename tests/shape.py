"""The shape of the package in figures: what a fit passes through, what stands above an estimator.

``python tests/shape.py`` prints them for the package that it imports.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import dask
import numpy as np
import zarr

import rff_stream as rs

PACKAGE = Path(inspect.getfile(rs)).resolve().parent
ESTIMATORS = (
    rs.KernelRidge,
    rs.GaussianProcessRegressor,
    rs.KernelClassifier,
    rs.KernelDensity,
    rs.NoveltyDetector,
    rs.KernelPCA,
)


# What a fit passes through ------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """What a call passes through.

    Parameters
    ----------
    files, functions : int
        Of the package, that ran at least once; comprehensions and lambdas are not counted.
    switches : int
        Times that a function ran in another file than the one before it.
    """

    files: int
    functions: int
    switches: int

    def __str__(self) -> str:
        return f"{self.files} files, {self.functions} functions, {self.switches} switches"


def way_of(call: Callable[[], Any]) -> Way:
    """Count calls while it runs, in every thread."""
    calls: list[tuple[str, str]] = []
    root = f"{PACKAGE}/"

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and "<" not in code.co_name:
            calls.append((code.co_filename, code.co_qualname))

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    switches = sum(a[0] != b[0] for a, b in itertools.pairwise(calls))
    return Way(len({file for file, _ in calls}), len(set(calls)), switches)


def fits(folder: Path) -> dict[str, Callable[[], Any]]:
    """Small fits of a kernel ridge regression, from an array and from a Zarr group."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = np.sin(x[:, 0]) + x[:, 1]
    path = folder / "rows.zarr"
    if not path.exists():
        group = zarr.create_group(path)
        for name, values in (("a", x[:, 0]), ("b", x[:, 1]), ("y", y)):
            group.create_array(name, data=values, chunks=(100,))

    def model() -> Any:
        return rs.KernelRidge(n_components=32, random_state=0, progress=False)

    return {
        "NumPy": lambda: model().fit(x, y),
        "Zarr": lambda: model().fit(path, "y", inputs=["a", "b"]),
    }


def ways() -> dict[str, Way]:
    """By container; what is imported or compiled on first use is not counted."""
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="synchronous"):
        found = {}
        for name, fit in fits(Path(folder)).items():
            fit()
            found[name] = way_of(fit)
        return found


# What stands above an estimator -------------------------------------------------------------------


def own_classes(estimator: type) -> list[str]:
    """Classes of this package above a public estimator."""
    return [each.__name__ for each in estimator.__mro__[1:] if "rff_stream" in each.__module__]


def attributes_set(estimator: type) -> int:
    """Attributes that a fit sets."""
    x = np.random.default_rng(0).normal(size=(300, 2))
    choices = inspect.signature(estimator).parameters
    size = "n_map_components" if "n_map_components" in choices else "n_components"
    model = estimator(**{size: 32, "random_state": 0, "progress": False})
    before = set(vars(model))
    y = x[:, 0] > 0 if estimator is rs.KernelClassifier else x[:, 0]
    model.fit(x, y)
    return len(set(vars(model)) - before)


# What files say of each other ---------------------------------------------------------------------


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    """First part of a path inside the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of all that a file takes from the package by name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rff_stream"):
            for alias in node.names:
                yield str(node.module), alias.name


def floors() -> dict[str, int]:
    """By room, the longest chain of imports below it; 0 for those that import no other."""
    ahead: dict[str, set[str]] = {}
    for path in sources():
        found = re.findall(r"^\s*(?:from|import) rff_stream\.(\w+)", path.read_text(), re.MULTILINE)
        ahead.setdefault(room_of(path), set()).update(found)
    for name in ("__init__", "__main__"):
        del ahead[name]
    height: dict[str, int] = {}

    def floor(room: str, above: tuple[str, ...] = ()) -> int:
        below = ahead.get(room, set()) - {*above, room}
        if room not in height:
            height[room] = 1 + max((floor(each, (*above, room)) for each in below), default=-1)
        return height[room]

    return {room: floor(room) for room in sorted(ahead)}


def circles() -> dict[str, set[str]]:
    """Files of each room that reach themselves by imports."""
    found = {}
    for room in sorted({path.parent for path in sources()} - {PACKAGE}):
        stems = {path.stem: path for path in room.glob("*.py")}
        start = f"rff_stream.{room.relative_to(PACKAGE).as_posix().replace('/', '.')}"
        ahead: dict[str, set[str]] = {stem: set() for stem in stems}
        for stem, path in stems.items():
            for module, name in imports_of(path):
                inside = module.removeprefix(f"{start}.") if module != start else name
                ahead[stem] |= {inside} & stems.keys()
        for middle in stems:  # Warshall's closure
            for stem in stems:
                if middle in ahead[stem]:
                    ahead[stem] |= ahead[middle]
        round_ = {stem for stem in stems if stem in ahead[stem]}
        if round_:
            found[room.name] = round_
    return found


def public_names(path: Path) -> list[str]:
    """``__all__`` of a file."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def idle_names() -> list[str]:
    """Names in the ``__all__`` of files of rooms that no other room, test or page uses."""
    outside: dict[str, set[str]] = {}
    for path in sources():
        for module, name in imports_of(path):
            outside.setdefault(name, set()).add(room_of(path))
            outside.setdefault(module.rpartition(".")[2], set()).add(room_of(path))
    users = [PACKAGE.parent / name for name in ("tests", "docs", "deployments", "notebooks")]
    texts = [path.read_text() for root in users for path in root.rglob("*.*") if is_text(path)]
    words = set().union(*(set(words_of(text)) for text in texts)) | set(rs.__all__)
    return [
        f"{path.relative_to(PACKAGE).as_posix()}: {name}"
        for path in sources()
        for name in public_names(path)
        if not outside.get(name, set()) - {room_of(path)} and name not in words
    ]


def is_text(path: Path) -> bool:
    return path.suffix in (".py", ".md", ".rst", ".sh") and path.name != "shape.py"


def words_of(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()


def functions() -> list[int]:
    """Lines of each function."""
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def main() -> None:
    """Print the figures."""
    say = sys.stdout.write
    lines = [len(path.read_text().splitlines()) for path in sources()]
    sizes = functions()
    say(f"package: {sum(lines):,} lines in {len(lines)} files; ")
    say(f"functions: median {statistics.median(sizes):.0f} lines, longest {max(sizes)}\n")
    for name, way in ways().items():
        say(f"a {name} fit passes through {way}\n")
    for estimator in ESTIMATORS:
        classes = own_classes(estimator)
        say(f"{estimator.__name__}: {len(classes)} own classes above ({', '.join(classes)}), ")
        say(f"{attributes_set(estimator)} attributes set in a fit\n")
    say(f"rooms stand on {max(floors().values()) + 1} floors\n")
    round_ = circles()
    say(f"circles in {len(round_)} rooms, of {sum(map(len, round_.values()))} files: {round_}\n")
    names = sum(len(public_names(path)) for path in sources())
    idle = idle_names()
    say(f"{names} names in __all__, {len(idle)} used by no other room:\n  ")
    say("\n  ".join(idle) + "\n")


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    main()
