"""The code on the pages of the documentation runs as it stands there, in a fresh interpreter.

With ``make docs``, since each takes some seconds, and the README's half a minute.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

pytestmark = pytest.mark.docs
PAGES = [
    pytest.param(page, id=page.stem)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "_build" not in page.parts and "```python" in page.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("page", PAGES)
def test_code_on_a_page_runs(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    code = "import matplotlib\nmatplotlib.use('agg')\n" + "\n".join(blocks)
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
