"""Runs notebooks and writes them with their outputs: .py (jupytext, py:percent) -> .ipynb.

    python notebooks/execute.py [name …]        all of them by default

Cells come from the .py, which is the source; outputs of the last run stand in the .ipynb.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import time
from pathlib import Path

import jupytext
import nbformat
import numpy as np
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).resolve().parent
LIMIT = 300  # seconds of a cell
SEEN = 6  # of 255: a difference of colours that the eye may see
LARGEST = 145_000  # bytes of a picture; the site and every clone carry it


def execute(path: Path) -> float:
    """Run one notebook and write it; the seconds it took."""
    notebook = jupytext.read(path)
    notebook.metadata = {
        "jupytext": {"formats": "ipynb,py:percent"},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    started = time.monotonic()
    NotebookClient(notebook, timeout=LIMIT, kernel_name="python3").execute(cwd=str(HERE))
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"  # the same cells give the same file
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = smaller(output.data["image/png"])
            if "text" in output:  # warnings begin with the path of a file on this machine
                output.text = output.text.replace(f"{HERE.parent}{os.sep}", "")
    nbformat.write(notebook, path.with_suffix(".ipynb"))
    return time.monotonic() - started


def smaller(picture: str) -> str:
    """The same picture without its transparency, with fewer pixels where it is large.

    Colours stay as they are, or bars would lie.
    """
    whole = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    whole, share = in_few_colours(whole), 1.0
    drawn = whole
    while True:
        written = io.BytesIO()
        drawn.save(written, "png", optimize=True)
        if written.tell() < LARGEST:
            break
        share *= 0.92
        size = int(whole.width * share), int(whole.height * share)
        drawn = whole.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    return base64.b64encode(written.getvalue()).decode() + "\n"


def in_few_colours(picture: Image.Image) -> Image.Image:
    """The same in at most 256 colours, where nobody can see it: a quarter of the bytes."""
    few = picture.quantize(256, Image.Quantize.MEDIANCUT, kmeans=2, dither=Image.Dither.NONE)
    off = np.abs(np.asarray(few.convert("RGB"), int) - np.asarray(picture, int))
    return few if off.mean() < 1 and np.quantile(off, 0.999) <= SEEN else picture


def main(names: list[str]) -> None:
    """Run the notebooks of these names, or all."""
    # Dask tells which of its add-ons cannot be imported here, and where they are.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:dask.cli")
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    for path in sorted(HERE.glob("[0-9]*.py")):
        if not names or path.stem in names:
            print(f"{path.stem}: {execute(path):.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
