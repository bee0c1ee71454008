"""The site: Sphinx with MyST; the notebooks are shown as they were last run."""

from __future__ import annotations

import shutil
from pathlib import Path

import rff_stream

HERE = Path(__file__).resolve().parent

# The executed notebooks live beside the package; the site shows copies, and runs nothing.
shown = HERE / "notebooks"
shown.mkdir(exist_ok=True)
for path in (HERE.parent / "notebooks").glob("[0-9]*.ipynb"):
    shutil.copy(path, shown / path.name)

project = "rff_stream"
author = "rff_stream founders"
copyright = "rff_stream founders"
version = release = rff_stream.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_nb",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext", ".ipynb": "myst-nb"}
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"
suppress_warnings = ["mystnb.unknown_mime_type"]

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc says the types
autodoc_default_options = {"members": True, "show-inheritance": False}
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
default_role = "code"

html_theme = "furo"
html_title = "rff_stream"
html_static_path = ["_static"]
