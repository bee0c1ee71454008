"""The site: Sphinx with MyST; the notebooks are shown as they were last run."""

from __future__ import annotations

import re
import shutil
import urllib.request
from pathlib import Path
from typing import Any

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
    "sphinx_copybutton",
]
PROJECTS = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "sklearn": "https://scikit-learn.org/stable",
    "dask": "https://docs.dask.org/en/stable",
    "xarray": "https://docs.xarray.dev/en/stable",
}
"""Other projects whose pages ours link to."""


def is_there(address: str) -> bool:
    """Whether a project's index of names can be read: not without a network."""
    try:
        with urllib.request.urlopen(f"{address}/objects.inv", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


# Links into other projects where they can be reached; elsewhere the site is built without them.
extensions.append("sphinx.ext.intersphinx")
linked = PROJECTS if is_there(PROJECTS["python"]) else {}
intersphinx_mapping = {name: (address, None) for name, address in linked.items()}
exclude_patterns = ["_build"]
# autosummary writes its pages with the first suffix: they hold reStructuredText.
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
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

copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "rff_stream"
html_static_path = ["_static"]


def skip_metadata_requests(_app: Any, _kind: str, name: str, *_: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator: its text is not about this package."""
    made_by_sklearn = re.fullmatch(r"set_\w+_request|get_metadata_routing", name)
    return True if made_by_sklearn else None


def setup(app: Any) -> None:
    """Connect what this file adds to Sphinx."""
    app.connect("autodoc-skip-member", skip_metadata_requests)
