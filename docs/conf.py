"""The site: Sphinx with MyST; the notebooks are shown as they were last run."""

from __future__ import annotations

import functools
import inspect
import re
import shutil
import unicodedata
import urllib.request
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

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

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "rff_stream"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]  # titles of the reference are names without their modules


def skip_metadata_requests(_app: Any, _kind: str, name: str, *_: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator: its text is not about this package."""
    made_by_sklearn = re.fullmatch(r"set_\w+_request|get_metadata_routing", name)
    return True if made_by_sklearn else None


AS_IN = re.compile(r"    As in :class:`~?(?:rff_stream\.)?(\w+)`(.*)")
"""The body of parameters that another class describes."""


def spell_out(_app: Any, what: str, _name: str, _object: Any, _: Any, lines: list[str]) -> None:
    """Write parameters and attributes that are "as in" another class in full.

    Docstrings say them once; a reader of a page should not have to look at another.
    """
    found: list[str] = []
    for line in lines:
        shared = AS_IN.fullmatch(line) if what == "class" else None
        if shared is None or not found:
            found.append(line)
            continue
        known, rest = entries_of(shared[1]), shared[2].strip(" .,;")
        head, colon, kind = found.pop().partition(" : ")
        for name in head.split(", "):
            own = known.get(name)
            if own is None:
                found += [head + colon + kind, line]
                break
            found += [f"{name}{colon}{kind}" if colon else own[0], *own[1:]]
            found += [f"    {rest[0].upper()}{rest[1:]}."] if rest else []
    lines[:] = found


@functools.cache
def entries_of(name: str) -> dict[str, list[str]]:
    """Header and body of each parameter and attribute of a class, by its name."""
    entries: dict[str, list[str]] = {}
    several: list[list[str]] = []
    for line in (inspect.getdoc(getattr(rff_stream, name)) or "").splitlines():
        if re.match(r"\w+(, \w+)*( : .*)?$", line):
            names, colon, kind = line.partition(" : ")
            several = [[each + colon + kind] for each in names.split(", ")]
            entries |= dict(zip(names.split(", "), several, strict=True))
        elif line.startswith("    ") or not line:
            for each in several:
                each.append(line)
        else:
            several = []
    return entries


PICTURE = re.compile(r"^( *)!\[([^\]]*)\]\(([^)]*_static/([^)]+))\.png\)$", re.M)


def two_forms(_app: Any, _page: str, text: list[str]) -> None:
    """Show the dark form of a picture to readers of the dark site, where there is one.

    The narrow form, where there is one, is for readers on a phone.
    """

    def both(found: re.Match[str]) -> str:
        indent, words, path, name = found.groups()
        if not (HERE / "_static" / f"{name}-dark.png").exists():
            return found[0]
        shown = [("only-light", path), ("only-dark", f"{path}-dark")]
        if (HERE / "_static" / f"{name}-narrow.png").exists():
            phone = [("only-light", f"{path}-narrow"), ("only-dark", f"{path}-narrow-dark")]
            shown = [(f"{form} only-wide", each) for form, each in shown]
            shown += [(f"{form} only-narrow", each) for form, each in phone]
        lines = [
            line
            for form, each in shown
            for line in (f"```{{image}} {each}.png", f":alt: {words}", f":class: {form}", "```")
        ]
        return "\n".join(indent + line for line in lines)

    text[0] = PICTURE.sub(both, text[0])


def styled(found: re.Match[str]) -> str:
    """The letter of a style as its own character: browsers ignore other values of mathvariant."""
    element, style, letter = found.groups()
    if style == "normal":
        return found[0]
    kind = "DIGIT" if letter.isdigit() else "CAPITAL" if letter.isupper() else "SMALL"
    name = unicodedata.name(letter).rpartition(" ")[2]
    words = style.upper().replace("BOLD-", "BOLD ")
    try:
        character = unicodedata.lookup(f"MATHEMATICAL {words} {kind} {name}")
    except KeyError:  # ℂ, ℍ, ℕ, ℙ, ℚ, ℝ, ℤ, ℬ, … are older than the block of the others
        character = unicodedata.lookup(f"{words} {kind} {name}")
    return f"<{element}>{character}</{element}>"


def write_formula(writer: Any, node: Any) -> None:
    """Write TeX as MathML, which browsers draw by themselves: no script, and no network."""
    display = node.tagname == "math_block"
    formula = convert(node.astext(), display="block" if display else "inline")
    formula = re.sub(r'<(m\w) mathvariant="([a-z-]+)">(\w)</\1>', styled, formula)
    tag = "div" if display else "span"
    writer.body.append(f'<{tag} class="math">{formula}</{tag}>')
    raise SkipNode


def setup(app: Any) -> None:
    """Connect what this file adds to Sphinx."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("source-read", two_forms)
    app.connect("autodoc-skip-member", skip_metadata_requests)
    app.connect("autodoc-process-docstring", spell_out, priority=400)  # before numpydoc's own
