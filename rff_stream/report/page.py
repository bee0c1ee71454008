"""One HTML page that needs nothing else: no network, no script, pictures inside."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 6.4, 4.2
"""Inches of a picture: 640 px wide on the page, and readable at half of that."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; line-height: 1.45;
  font-family: system-ui, "DejaVu Sans", sans-serif; color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5rem; margin: .2rem 0; }
h2 { font-size: 1.15rem; margin: 1.6rem 0 .4rem; border-bottom: 2px solid #0072B2; }
.lead { font-size: 1.05rem; max-width: 60rem; }
.row { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
.row > * { flex: 1 1 min(28rem, 100%); min-width: 0; max-width: 100%; }
img { width: 100%; max-width: 640px; height: auto; }
figure { margin: 0; }
figcaption { font-size: .85rem; color: #444; }
.wide { overflow-x: auto; }
.row > .wide:has(> p:only-child) { flex-basis: 100%; }
summary { cursor: pointer; color: #0072B2; }
table { font-variant-numeric: tabular-nums; }
td { overflow-wrap: anywhere; }
.wide :is(td, th) { white-space: normal !important; }
@media (min-width: 40rem) { .wide tr:has(td + td) td { white-space: nowrap !important; } }
@media (max-width: 40rem) {
  .wide { font-size: .8rem; }
  .wide :is(td, th) { padding: .15em .3em !important; }
  .wide :is(td, th):first-child { overflow-wrap: anywhere; min-width: 6rem; }
}
code { font-size: .85rem; overflow-wrap: anywhere; }
""".strip()


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and blocks of HTML, side by side where there is room."""

    title: str
    blocks: tuple[str, ...]  # HTML
    details: str = ""  # HTML that is shown when a reader opens it: hashes, versions, history
    words: str = ""  # HTML above the blocks

    def html(self) -> str:
        """The heading and its blocks."""
        inner = "".join(f'<div class="wide">{block}</div>' for block in self.blocks)
        more = f"<details><summary>Details</summary>{self.details}</details>" * bool(self.details)
        row = f'<div class="row">{inner}</div>' * bool(inner)
        return f"<section><h2>{html.escape(self.title)}</h2>{self.words}{row}{more}</section>"


GENERATOR = '<meta name="generator" content="rff_stream">'
"""Says whose page it is."""


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page."""
    shown = [each for each in sections if each.blocks or each.details]
    body = "".join(section.html() for section in shown)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'{GENERATOR}<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>"
        f'<body><h1>{html.escape(title)}</h1><p class="lead">{html.escape(lead)}</p>'
        f"{body}</body></html>\n"
    )


def paragraph(*sentences: str) -> str:
    """Sentences as a paragraph; empty ones are left out."""
    text = " ".join(sentence for sentence in sentences if sentence)
    return f"<p>{html.escape(text)}</p>" if text else ""


def picture(draw: Callable[[Axes], Any], caption: str, height: float = HEIGHT) -> str:
    """What a function draws, as an SVG inside the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained", dpi=100)
    draw(figure.subplots())
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    source = base64.b64encode(written.getvalue()).decode()
    words = html.escape(caption)
    return (
        f'<figure><img alt="{words}" src="data:image/svg+xml;base64,{source}">'
        f"<figcaption>{words}</figcaption></figure>"
    )
