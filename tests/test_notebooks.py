"""Every notebook runs from start to end; its last cell asserts its claim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("[0-9]*.py"))


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path) -> None:
    found = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=280)
    assert found.returncode == 0, found.stderr[-3000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_a_claim_and_ends_by_asserting_it(path: Path) -> None:
    cells = path.read_text().split("# %%")
    assert "**Claim.**" in cells[1]
    assert "assert " in cells[-1]
