"""The rooms of the design, and the size and shape of what is in them, read from the source."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import io
import re
import subprocess
import sys
import textwrap
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rff_stream
from places import ROOT
from rff_stream.registry import FAMILY_FOLDERS

PACKAGE = ROOT / "rff_stream"
FILES = sorted(PACKAGE.rglob("*.py"))

# A file imports from its own room and from rows above it. The contracts of a source and of a
# statistic stand above what reads them; what keeps a contract stands below.
ROOMS = [
    {
        "_array",
        "arguments",
        "errors",
        "label_forms",
        "moments.tree_sum",
        "process_memory",
        "progress",
        "registry",
        "side_by_side",
        "stored_fields",
        "text_formatting",
        "remote_calls",
    },
    {"hashes", "notebook_display"},
    {"kernels"},
    {"features"},
    {"moments"},
    {"systems"},
    {"losses"},
    {"sources.protocol"},
    {"contracts"},
    {"statistics"},
    {"pilot"},
    {"answers"},
    {"descents"},
    {"length_scales"},
    {"predictors"},
    {"costs"},
    {"leaf_layout"},
    {"planning"},
    {"sources"},
    {"store"},
    {"execution"},
    {"families"},
    {"cells", "choice", "grid", "level_means", "trend", "whole"},
    {"model"},
    {"estimators"},
    {"from_moments", "inspect"},
    {"plot"},
    {"report"},
    {"demo"},
    {"cli"},
]
ROW = {room: row for row, rooms in enumerate(ROOMS) for room in rooms}
FOLDERS = {name.rpartition(".")[2] for name in FAMILY_FOLDERS}
CORE = {room for room, row in ROW.items() if row <= ROW["predictors"]}
HEAVY = {"dask", "distributed", "pandas", "sklearn", "xarray", "zarr"}

# Who may import what a graph is built with. The command line only connects a Client.
GRAPH_BUILDING = {
    "dask.task_spec": {"execution", "sources"},
    "dask._task_spec": {"execution"},
    "dask.delayed": {"execution"},
    "dask.highlevelgraph": {"execution"},
    "distributed": {"execution", "cli"},
}
SHORT_METHOD = 4

# Who may import from the folder of a family: the public face, and the picture of a grid's kernels.
FACE = {"__init__.py", "from_moments.py", "plot/selection.py"}


def label(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room_of(path: Path) -> str:
    return room_of_name(label(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."))


def room_of_name(name: str) -> str:
    """Room of a dotted name inside the package: its first two parts where they are a room."""
    first, _, rest = name.partition(".")
    inner = f"{first}.{rest.partition('.')[0]}"
    return inner if inner in ROW else first


def in_rooms(rooms: set[str]) -> list[Path]:
    return [path for path in FILES if room_of(path) in rooms]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax of a file, read once for all tests."""
    return ast.parse(path.read_text())


@functools.cache
def imported_names(path: Path) -> set[str]:
    """Absolute dotted names that a file imports anywhere, ``from a import b`` as a.b."""
    names: set[str] = set()
    package = ["rff_stream", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(source: str, tree: ast.AST) -> set[int]:
    """Numbers of the lines that hold code: no blanks, comments or docstrings."""
    layout = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in layout:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= span(node)  # a docstring, or the … of a stub
    return lines


def span(node: ast.stmt) -> set[int]:
    """Numbers of the lines of a statement."""
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


RULES: dict[Callable[[Path], None], list[Path]] = {}


def rule_of(paths: list[Path]) -> Callable[[Any], Any]:
    """A rule that each of these files keeps; it fails as an assertion."""

    def keep(rule: Callable[[Path], None]) -> Callable[[Path], None]:
        RULES[rule] = paths
        return rule

    return keep


def test_every_file_is_in_a_room():
    strangers = {room_of(path) for path in FILES} - ROW.keys() - {"__init__", "__main__"}
    assert not strangers, f"Give {sorted(strangers)} a row in ROOMS (design, section 2)."


def test_the_table_of_rooms_is_that_of_contributing():
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Rooms")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    names = [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in lines]
    assert [set(each) for each in names] == ROOMS
    inside = {room for path in FILES if (room := room_of(path)) in ROW}
    assert inside == ROW.keys(), "a room that no file is in"


@rule_of(in_rooms(CORE))
def the_core_is_numpy_and_scipy(path: Path) -> None:
    packages = {name.split(".")[0] for name in imported_names(path)}
    assert not packages & HEAVY


@rule_of(in_rooms(set(ROW)))
def a_file_imports_only_from_rows_above_it(path: Path) -> None:
    own = room_of(path)
    for name in imported_names(path):
        package, _, inside = name.partition(".")
        other = room_of_name(inside)
        if package == "rff_stream" and other in ROW:
            assert other == own or ROW[other] < ROW[own], f"{own} imports {name}"


@rule_of(FILES)
def no_file_outside_the_folder_of_a_family_imports_it(path: Path) -> None:
    own = room_of(path)
    others = {room_of_name(name.partition(".")[2]) for name in imported_names(path)} & FOLDERS
    assert others <= {own} or label(path) in FACE


DEMO = {"cli/demo.py", "cli/demo_figures.py"}


@pytest.mark.slow
def test_only_its_command_imports_the_demonstration():
    for path in FILES:
        if room_of(path) != "demo" and label(path) not in DEMO:
            assert not [name for name in imported_names(path) if "rff_stream.demo" in name], path


@functools.cache
def circle(room: str) -> set[str]:
    """Files of a room that can be reached from themselves by imports."""
    paths = {path.stem: path for path in sorted((PACKAGE / room).glob("*.py"))}
    ahead = {
        stem: {
            name.removeprefix(f"rff_stream.{room}.").partition(".")[0]
            for name in imported_names(path)
            if name.startswith(f"rff_stream.{room}.")
        }
        & paths.keys()
        for stem, path in paths.items()
    }
    for middle in paths:  # Warshall's closure
        for stem in paths:
            if middle in ahead[stem]:
                ahead[stem] = ahead[stem] | ahead[middle]
    return {stem for stem in paths if stem in ahead[stem]}


@pytest.mark.parametrize("room", sorted({path.parent.name for path in FILES} - {"rff_stream"}))
def test_files_of_a_room_import_each_other_in_one_direction(room):
    assert not circle(room)


@rule_of(FILES)
def only_execution_builds_graphs(path: Path) -> None:
    for name in imported_names(path):
        for part, allowed in GRAPH_BUILDING.items():
            if f"{name}.".startswith(f"{part}."):
                assert room_of(path) in allowed, f"imports {name}"


@rule_of(FILES)
def only_accumulate_calls_rank_updates(path: Path) -> None:
    syrk = re.compile(r"[sd]?syrk")
    used = {
        text
        for node in ast.walk(tree_of(path))
        for text in (
            getattr(node, "id", None),
            getattr(node, "attr", None),
            getattr(node, "name", None),
            getattr(node, "value", None),
        )
        if isinstance(text, str) and syrk.fullmatch(text)
    }
    assert not used or label(path) == "moments/accumulate.py"


@rule_of(FILES)
def what_is_public_has_a_docstring(path: Path) -> None:
    source = path.read_text()
    tree = ast.parse(source)
    assert ast.get_docstring(tree) or not tree.body, "the module has none"
    silent = set(without_docstring(tree.body, code_lines(source, tree)))
    assert not {name for name in silent if name.rpartition(".")[2] not in contracts()}


@functools.cache
def contracts() -> set[str]:
    """Methods that some class of the package explains: a Protocol speaks for what keeps it."""
    return {
        method.name
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and ast.get_docstring(method)
    }


def without_docstring(body: list[ast.stmt], code: set[int], of: str = "") -> Iterator[str]:
    """Public functions and classes that say nothing; a short method may leave it to its class."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        short = of and len(code & span(node)) <= SHORT_METHOD
        if not ast.get_docstring(node) and not short:
            yield of + node.name
        if isinstance(node, ast.ClassDef):
            yield from without_docstring(node.body, code, f"{node.name}.")


def test_importing_the_package_imports_nothing_heavy():
    code = f"import sys, rff_stream; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_version_is_that_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert rff_stream.__version__ == project["version"]


def test_what_the_package_imports_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    groups = [project["dependencies"], *(extras[name] for name in extras.keys() - {"test", "dev"})]
    declared = {
        re.split(r"[^\w-]", requirement)[0].lower() for group in groups for requirement in group
    }
    imported = {name.split(".")[0] for path in FILES for name in imported_names(path)}
    imported -= {"rff_stream", *sys.stdlib_module_names}
    names = {"sklearn": "scikit-learn", "google_crc32c": "google-crc32c"}
    assert not {names.get(name, name).lower() for name in imported} - declared


def test_annotations_are_published():
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule):
    broken = []
    for path in RULES[rule]:
        try:
            rule(path)
        except AssertionError as error:
            broken.append(f"{label(path)}: {error}")
    assert not broken, "\n".join(broken)


def has_section(text: str | None, *titles: str) -> bool:
    """Whether a docstring of numpydoc has one of these sections."""
    return any(f"\n{title}\n{'-' * len(title)}" in inspect.cleandoc(text or "") for title in titles)


def methods_of_estimators() -> dict[str, Any]:
    """Public methods of estimators that this package wrote, by name."""
    found = {}
    for name in sorted(rff_stream.__all__):
        estimator = getattr(rff_stream, name)
        if inspect.isclass(estimator) and hasattr(estimator, "get_params"):
            for method, function in inspect.getmembers(estimator, inspect.isfunction):
                own = inspect.unwrap(function).__module__.startswith("rff_stream.")
                if own and not method.startswith("_"):
                    found[f"{name}.{method}"] = inspect.unwrap(function)
    return found


def test_methods_of_estimators_say_what_they_take_and_give_and_raise():
    silent = []
    for name, function in methods_of_estimators().items():
        signature, text = inspect.signature(function), function.__doc__
        gives = signature.return_annotation not in (None, "None")
        wanted = {
            ("Parameters",): len(signature.parameters) > 1,
            ("Returns", "Yields"): gives and len(signature.parameters) > 1,
            ("Raises",): True,
        }
        silent += [
            (name, at) for at, asked in wanted.items() if asked and not has_section(text, *at)
        ]
    assert not silent and len(methods_of_estimators()) > 100


@functools.cache
def public_objects() -> dict[str, Any]:
    """What the reference in docs/api lists, by name."""
    text = "".join(path.read_text() for path in sorted((ROOT / "docs" / "api").glob("*.rst")))
    found = {}
    for name in re.findall(r"^ +(rff_stream(?:\.\w+)+)$", text, re.MULTILINE):
        package, _, last = name.rpartition(".")
        found[name] = getattr(importlib.import_module(package), last)
    return found


def raising(function: Any) -> bool:
    """Whether the body of a function has a raise that makes an error."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) and node.exc for node in ast.walk(tree))


def public_raises() -> Iterator[tuple[str, Any]]:
    """Public functions that raise, and what explains them: of a class's checks the class does."""
    for name, each in public_objects().items():
        if inspect.isfunction(each) and raising(inspect.unwrap(each)):
            yield name, each
        elif inspect.isclass(each):
            for method, function in inspect.getmembers(each, inspect.isfunction):
                own = inspect.unwrap(function).__module__.startswith("rff_stream.")
                if method == "__post_init__" and raising(function):
                    yield name, each
                elif own and method[0] != "_" and raising(inspect.unwrap(function)):
                    yield f"{name}.{method}", function


def test_what_is_public_and_raises_says_so():
    found = dict(public_raises())
    assert len(found) > 60
    assert not [name for name, each in found.items() if not has_section(each.__doc__, "Raises")]


def test_rules_see_what_they_look_for(tmp_path, monkeypatch):
    """The rules above are not blind: each sees a file that breaks it."""
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / "features" / "bad.py"
    path.parent.mkdir()
    path.write_text(
        "import zarr.storage\n"
        "from .. import store\n"
        "from ..answers import ridge\n"
        "def f():\n"
        "    from dask.task_spec import Task\n"
        "    from scipy.linalg.blas import ssyrk\n"
    )
    assert imported_names(path) == {
        "zarr.storage",
        "rff_stream.store",
        "rff_stream.answers.ridge",
        "dask.task_spec.Task",
        "scipy.linalg.blas.ssyrk",
    }
    for rule in (
        the_core_is_numpy_and_scipy,
        a_file_imports_only_from_rows_above_it,
        only_execution_builds_graphs,
        only_accumulate_calls_rank_updates,
        what_is_public_has_a_docstring,
    ):
        with pytest.raises(AssertionError):
            rule(path)
