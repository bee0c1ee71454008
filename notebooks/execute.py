"""Runs notebooks and writes them with their outputs: .py (jupytext, py:percent) -> .ipynb.

    python notebooks/execute.py [name …]        all of them by default

Cells come from the .py, which is the source; outputs of the last run stand in the .ipynb.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import time
from pathlib import Path

import jupytext
import nbformat
import numpy as np
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).resolve().parent
LIMIT = 900  # seconds of a cell, on a busy machine
UNSEEN, SEEN = (
    6,
    40,
)  # of 255: differences of colours that no eye, or only a careful one, sees
LARGEST = 145_000  # bytes of a picture; the site and every clone carry it


def execute(path: Path) -> float:
    """Run one notebook and write it; the seconds it took."""
    notebook = jupytext.read(path)
    notebook.metadata = {
        "jupytext": {"formats": "ipynb,py:percent"},
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    started = time.monotonic()
    NotebookClient(notebook, timeout=LIMIT, kernel_name="python3").execute(
        cwd=str(HERE)
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"  # the same cells give the same file
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = smaller(output.data["image/png"])
            if (
                "text" in output
            ):  # warnings begin with the path of a file on this machine
                text = output.text.replace(f"{HERE.parent}{os.sep}", "")
                output.text = re.sub(
                    r"/tmp/ipykernel_\d+/\d+\.py", "this cell", text
                )
    nbformat.write(notebook, path.with_suffix(".ipynb"))
    return time.monotonic() - started


def smaller(picture: str) -> str:
    """The same picture without its transparency; fewer colours, then pixels, where it is large."""
    whole = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    few = whole.quantize(
        256, Image.Quantize.MEDIANCUT, kmeans=2, dither=Image.Dither.NONE
    )
    off = np.abs(np.asarray(few.convert("RGB"), int) - np.asarray(whole, int))
    rare = np.quantile(off, 0.999) if off.mean() < 1 else 255
    written = png(few if rare <= UNSEEN else whole)
    if len(written) > LARGEST and rare <= SEEN:
        written = png(few)
    share = 1.0
    while len(written) > LARGEST:
        share *= 0.92
        size = int(whole.width * share), int(whole.height * share)
        written = png(whole.resize(size, Image.Resampling.LANCZOS))
    return base64.b64encode(written).decode() + "\n"


def png(picture: Image.Image) -> bytes:
    """The bytes of its file."""
    written = io.BytesIO()
    picture.save(written, "png", optimize=True)
    return written.getvalue()


def main(names: list[str]) -> None:
    """Run the notebooks of these names, or all."""
    # Dask tells which of its add-ons cannot be imported here, and where they are.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:dask.cli")
    os.environ.setdefault(
        "MPLBACKEND", "module://matplotlib_inline.backend_inline"
    )
    for path in sorted(HERE.glob("[0-9]*.py")):
        if not names or path.stem in names:
            print(f"{path.stem}: {execute(path):.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
