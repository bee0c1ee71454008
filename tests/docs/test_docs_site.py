"""The built site: every public name has a page with its signature, and no link leads nowhere.

``make docs`` builds the site and runs this file.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from places import ROOT

DOCS = ROOT / "docs"
HTML = DOCS / "_build" / "html"
REFERENCE = [
    name
    for page in sorted((DOCS / "api").glob("*.rst"))
    for name in re.findall(r"^   (rff_stream\.\S+)$", page.read_text("utf-8"), re.M)
]

pytestmark = pytest.mark.docs


@pytest.fixture(autouse=True)
def _built() -> None:
    if not (HTML / "index.html").exists():
        pytest.skip("the site is not built: make docs")


@pytest.mark.parametrize("name", REFERENCE)
def test_a_name_of_the_reference_has_its_signature(name: str) -> None:
    page = (HTML / "generated" / f"{name}.html").read_text("utf-8")
    assert re.search(rf'<dt class="sig [^>]*id="{re.escape(name)}"', page)


def test_a_page_of_the_reference_says_all_parameters_and_nothing_from_inside() -> None:
    assert not [name for name in REFERENCE if name.startswith("rff_stream.answers.")]
    shared = re.compile(r"<p>As in <a [^>]*><code[^>]*>[^.]*</code></a>")
    faults = []
    for name in REFERENCE:
        page = (HTML / "generated" / f"{name}.html").read_text("utf-8")
        if 'class="py class"' in page and shared.search(page):
            faults.append(name)
        short = name.rpartition(".")[2]
        assert re.search(rf"<h1>{short}<", page), name
    assert not faults


def test_the_reference_has_as_many_signatures_as_it_should() -> None:
    pages = [(HTML / "generated" / f"{name}.html").read_text("utf-8") for name in REFERENCE]
    methods = sum(page.count('<dt class="sig ') for page in pages)
    assert methods > 2 * len(REFERENCE)  # classes show their methods too


def test_no_link_of_the_site_leads_nowhere() -> None:
    lost = []
    for page in HTML.rglob("*.html"):
        if "_static" in page.parts or page.name in {"search.html", "genindex.html"}:
            continue
        for target in re.findall(r'href="([^"#?]+)', page.read_text("utf-8")):
            if not re.match(r"[a-z]+:", target) and not (page.parent / unquote(target)).exists():
                lost.append(f"{page.relative_to(HTML)} -> {target}")
    assert not lost


def test_formulas_are_drawn_without_another_host_and_without_tex() -> None:
    faults, formulas = [], 0
    for page in HTML.rglob("*.html"):
        text = page.read_text("utf-8")
        formulas += text.count("<math ")
        loaded = re.findall(r'<(?:script|img|link|iframe)[^>]* (?:src|href)="https?://[^"]*', text)
        prose = re.sub(r"<(script|style|pre|code|textarea)\b.*?</\1>", "", text, flags=re.S)
        tex = re.findall(r"\\[(\[][^<]*|\\(?:frac|sum|top|mathbb|omega)\b|<mi>&</mi>", prose)
        ignored = re.findall(r'mathvariant="(?!normal")[^"]*"', text)
        faults += [f"{page.relative_to(HTML)}: {each}" for each in (*loaded, *tex, *ignored)]
    assert formulas
    assert not faults
