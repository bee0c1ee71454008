"""What users read is true: examples run, notebooks are as last executed, pages exist."""

from __future__ import annotations

import base64
import functools
import importlib
import inspect
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import rff_stream as rs
from places import ROOT
from rff_stream.cli import main

DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
LARGEST_PICTURE = 150_000  # bytes
WITHOUT_EXAMPLE = {"__version__", "NumericalWarning", "from_moments", "inspect", "losses", "plot"}


def test_names_of_the_page_on_the_inside_are_true() -> None:
    """Files and names of the journey, and the file that each verb begins in."""
    text = (DOCS / "inside.md").read_text(encoding="utf-8")
    package = ROOT / "rff_stream"
    steps = re.findall(r"\| `(\w+/\w+\.py)` \| `(\w+)` \|", text)
    assert len(steps) == 5
    for file, name in steps:
        assert re.search(rf"^(class|def) {name}\b", (package / file).read_text(), re.MULTILINE)
    verbs = re.findall(r"^\| (`.+?`) \| `([\w/]+\.py)` \|", text, re.MULTILINE)
    named = {verb for cell, _ in verbs for verb in re.findall(r"`(\w+)`", cell)}
    assert {"fit", "predict", "update", "save", "load", "plan"} <= named
    for cell, file in verbs:
        for verb in re.findall(r"`(\w+)`", cell):
            start: Any = getattr(rs.GaussianProcessRegressor, verb, None) or getattr(rs, verb)
            assert Path(inspect.getsourcefile(inspect.unwrap(start)) or "") == package / file, verb
    for file in re.findall(r"`([\w/]+\.py)`", text):
        assert (package / file).exists(), file


@pytest.mark.parametrize("name", sorted(set(rs.__all__) - WITHOUT_EXAMPLE))
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    text = getattr(rs, name).__doc__
    assert "Examples\n" in text and ">>> " in text
    assert "+SKIP" not in text


def code_cells(text: str) -> list[str]:
    """Code of a py:percent file, cell by cell."""
    cells = re.split(r"^# %%", text, flags=re.M)[1:]
    return [cell.partition("\n")[2].strip() for cell in cells if "[markdown]" not in cell[:12]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_executed_notebook_is_the_one_beside_it(path: Path) -> None:
    """``make write-notebooks NOTEBOOKS=name`` after a change."""
    if not path.with_suffix(".ipynb").exists():
        pytest.skip(f"{path.stem} has no outputs yet: make write-notebooks NOTEBOOKS={path.stem}")
    executed = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    found = ["".join(cell["source"]).strip() for cell in cells]
    assert found == code_cells(path.read_text(encoding="utf-8"))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [each for each in outputs if each["output_type"] == "error"]
    texts = "".join("".join(each.get("text", "")) for each in outputs)
    assert not re.search(r"<[^>]+ at 0x[0-9a-f]+>", texts), "an address says nothing"
    said = re.findall(r"Warning: (.*)", texts)
    assert len(said) == len(set(said)), "a warning is said once"
    pictures = [size for each in outputs if (size := picture_bytes(each))]
    assert pictures and max(pictures) < LARGEST_PICTURE
    assert "/home/" not in path.with_suffix(".ipynb").read_text(encoding="utf-8")


def picture_bytes(output: dict[str, Any]) -> int:
    """Bytes of the PNG of an output; 0 where it has none."""
    drawn = output.get("data", {}).get("image/png", "")
    return len(base64.b64decode(drawn)) if drawn else 0


def test_every_page_of_the_site_is_in_its_navigation() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in [*DOCS.glob("*.md"), *DOCS.glob("*.rst"), *(DOCS / "howto").glob("*.md")]:
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        if name not in {"index", "when-not-table"}:
            assert re.search(rf"^{name}$", index, re.M), f"{name} is in no toctree of index.md"


def test_the_site_names_every_public_name_and_command() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.rst")]
    for name in set(rs.__all__) - WITHOUT_EXAMPLE:
        assert f"   rff_stream.{name}\n" in "".join(pages), name
    deep = [line.strip() for page in pages for line in page.splitlines() if line.count(".") > 2]
    assert [name for name in deep if name.startswith("rff_stream.")] == []  # one import away
    commands = (DOCS / "command-line.md").read_text(encoding="utf-8")
    for command in main.commands:  # type: ignore[attr-defined]
        assert f"| `{command}` |" in commands, command


INSIDE = re.compile(r"(?:from|import) (rff_stream\.\w+\.[\w.]+)|`~?(rff_stream\.\w+\.\w+\.[\w.]+)`")
"""An import from inside a room of the package, and a reference to what is inside."""


def test_users_meet_public_names_alone() -> None:
    """Pages, notebooks, and docstrings of what answers and draws: one import away."""
    shown = [ROOT / "README.md", *NOTEBOOKS, *DOCS.rglob("*.md")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in shown}
    for room in (rs, rs.inspect, rs.plot, rs.from_moments, rs.features):
        texts |= {f"{room.__name__}.{name}": getattr(room, name).__doc__ for name in room.__all__}
    found = {place: INSIDE.findall(text or "") for place, text in texts.items()}
    assert {place: names for place, names in found.items() if names} == {}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_links_and_pictures_of_the_site_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        place = (page.parent / target).resolve()
        if place.parent == DOCS / "notebooks":  # copied there when the site is built
            place = (ROOT / "notebooks" / place.name).with_suffix(".py")
        assert place.exists(), f"{page.name}: {target}"


WIDEST_CODE = 79
"""Columns of code that fit beside the sidebars of the site, and into half of a screen."""


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name
)
def test_code_on_a_page_is_narrow(page: Path) -> None:
    fenced = r"^ *```(.*?)\n(.*?)^ *```$"  # language or directive, and text
    blocks = re.findall(fenced, page.read_text(encoding="utf-8"), re.M | re.S)
    code = [text for kind, text in blocks if not kind.startswith("{")]
    lines = [line for text in code for line in text.splitlines()]
    assert [line for line in lines if len(line) > WIDEST_CODE] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_code_of_a_notebook_is_narrow(path: Path) -> None:
    cells = code_cells(path.read_text(encoding="utf-8"))
    lines = [line for cell in cells for line in cell.splitlines()]
    assert [line for line in lines if len(line) > WIDEST_CODE] == []


IDEAS = (ROOT / "tests" / "ideas.md").read_text(encoding="utf-8")
FIELDS = {"below_error"}
ROOMS = ("answers", "features", "kernels", "moments", "plot")


def named_in_package(text: str) -> Any:
    """What `answers.ridge.ridge`, `FourierFeatures.sample(paired=…)` or `collect` stands for."""
    head, *parts = text.partition("(")[0].split(".")
    if head in ROOMS and parts:
        found: Any = importlib.import_module(f"rff_stream.{head}")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                found = importlib.import_module(f"rff_stream.{head}.{'.'.join(parts[: i + 1])}")
            else:
                found = getattr(found, part)
        return found
    found = getattr(rs, head, None) or getattr(rs.KernelRidge, head, None)
    for part in parts:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(
    "cells", [line.split("|")[1:-1] for line in IDEAS.splitlines() if line.startswith("| ")]
)
def test_every_idea_has_its_function_test_and_picture(cells: list[str]) -> None:
    if len(cells) != 4 or cells[0].strip() in ("idea",) or set(cells[0].strip()) <= {"-"}:
        return
    _, functions, tests, pictures = (cell.strip() for cell in cells)
    for text in re.findall(r"`([A-Za-z_.]+)(?:\([^`]*)?`", functions):
        if not text.endswith("_") and text not in FIELDS:
            assert named_in_package(text) is not None, text
    for name, words in re.findall(r"`(?:tests/)?([\w/]+\.py)(?: -k (\w+))?", tests):
        path = ROOT / "tests" / name
        assert path.exists(), name
        assert words in path.read_text("utf-8"), words  # of a test, or of its parameters
    for number in re.findall(r"^(\d\d)\b", pictures):
        assert list((ROOT / "notebooks").glob(f"{number}_*.ipynb")), number
    for number, section in re.findall(r"(\d\d) §(\d)", pictures):
        (source,) = (ROOT / "notebooks").glob(f"{number}_*.py")
        assert f"# ## {section} ·" in source.read_text("utf-8"), pictures


def test_the_page_of_ideas_names_what_is_public() -> None:
    """It is for readers of the founding texts: no test, and nothing from inside."""
    page = (DOCS / "ideas.md").read_text(encoding="utf-8")
    names = re.findall(r"`rs\.([\w.]+)", page)
    assert len(names) > 15
    for name in names:
        assert functools.reduce(getattr, name.split("."), rs) is not None, name
    assert "test_" not in page and "answers." not in page


def test_a_package_index_can_follow_every_link_of_the_readme() -> None:
    """What the build writes into the package, by the patterns of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.compile(r"""(?:\]\(|src(?:set)?=")([^)"]+)[)"]""")
    before = links.findall(text)
    for each in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    after = links.findall(text)
    home = project["project"]["urls"]["Homepage"]
    files = home.replace("github.com", "raw.githubusercontent.com")
    assert len(after) == len(before) > 5
    for old, new in zip(before, after, strict=True):
        assert new in {old, f"{home}/blob/main/{old}", f"{files}/main/{old}"}
        assert new.startswith("https://")
        assert old == new or (ROOT / old).exists()
    assert "![" not in text, "pictures have a light and a dark form: <picture>"


def test_a_release_tests_every_python_that_the_classifiers_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = ROOT / ".github" / "workflows" / "release.yml"
    if not workflow.exists():
        pytest.skip("a source distribution has no workflows")
    matrix = r'\{python: "(3\.\d+)", resolution: ([\w-]+)\}'
    tested = re.findall(matrix, workflow.read_text(encoding="utf-8"))
    assert [python for python, _ in tested] == stated
    assert project["requires-python"] == f">={stated[0]}"
    assert [kind for _, kind in tested] == ["lowest-direct"] + ["highest"] * (len(stated) - 1)
