"""What a value shows of itself: short text, and a table for notebooks.

The text of an estimator is in ``estimators.base``, and the rows of its table in ``model.facts``.

Nothing is read or imported for it: shapes, bytes, groups and fingerprints that the value has
anyway, and of a model the importance of its inputs, from the row sample. Styles are inline and
inherit the page's colours, light or dark.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream.text_formatting import format_bytes, printable

MOST_LISTED = 8
"""Largest number of batches or groups that are listed; the others are counted."""

FRAME = "border-collapse:collapse;margin:.3em 0;font-size:90%"
CELL = "padding:.15em .8em .15em 0;text-align:left;vertical-align:top"
NUMBER = "padding:.15em .8em;text-align:right;white-space:nowrap"
RULE = "border-bottom:1px solid currentColor"


@dataclass(frozen=True, slots=True)
class Card:
    """A title, rows of a name and a text, and tables that fold."""

    title: str
    rows: tuple[tuple[str, str], ...]  # of (str, str)
    tables: tuple[tuple[str, str], ...] = ()  # of (str, str): caption and HTML of each

    def line(self, *names: str) -> str:
        """ "<Title: a, b>": some of the texts on one line."""
        texts = dict(self.rows)
        shown = ", ".join(texts[name] for name in names if texts.get(name))
        return printable(f"<{self.title}: {shown}>")

    def html(self) -> str:
        """The title, the rows as a table, and the tables under their captions."""
        rows = "".join(
            f'<tr><th style="{CELL}">{html.escape(name, quote=False)}</th>'
            f'<td style="{CELL}">{html.escape(text, quote=False)}</td></tr>'
            for name, text in self.rows
            if text
        )
        folded = "".join(
            f"<details><summary>{html.escape(caption, quote=False)}</summary>{inner}</details>"
            for caption, inner in self.tables
        )
        title = f'<div style="{RULE}"><b>{html.escape(self.title, quote=False)}</b></div>'
        return f'<div>{title}<table style="{FRAME}"><tbody>{rows}</tbody></table>{folded}</div>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], marked: tuple[int, int] | None = None
) -> str:
    """An HTML table; the first cell of a row is its name, one cell may be in bold."""
    heads = "".join(
        f'<th style="{NUMBER if i else CELL};{RULE}">{html.escape(each, quote=False)}</th>'
        for i, each in enumerate(head)
    )
    lines = []
    for i, (name, *cells) in enumerate(rows):
        texts = [html.escape(cell, quote=False) for cell in cells]
        if marked is not None and marked[0] == i:
            texts[marked[1]] = f"<b>{texts[marked[1]]}</b>"
        body = "".join(f'<td style="{NUMBER}">{text}</td>' for text in texts)
        words = html.escape(name, quote=False).replace("_", "_<wbr>")  # where a name may break
        lines.append(f'<tr><th style="{CELL}">{words}</th>{body}</tr>')
    return (
        f'<table style="{FRAME}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def moments_card(moments: Any) -> Card:
    """Of :class:`~rff_stream.Moments`."""
    row, sums = moments.row, moments.sums
    shape = f"P = R + 1 + T = {row.n_features} + 1 + {row.n_targets} = {row.width}"
    kept = f"packed triangle ({len(sums):,},) float64" if moments.order == 2 else (
        f"({row.width},) float64 and {len(moments.parts)} sub-sums"
    )  # fmt: skip
    return Card(
        f"Moments of order {moments.order}",
        (
            ("rows", f"{moments.n:,} rows"),
            ("features", f"R={row.n_features}"),
            ("targets", f"T={row.n_targets}"),
            ("shape", shape),
            ("sums", kept),
            ("bytes", format_bytes(moments.__sizeof__())),
            ("inputs", some(row.inputs)),
            ("target names", some(row.targets)),
            ("sample", f"{len(moments.sample.rows):,} of at most {moments.sample.size:,} rows"),
            ("map", f"map {row.map_fingerprint[:8]}"),
            ("fingerprint", row.fingerprint[:16]),
        ),
    )


def plan_card(plan: Any) -> Card:
    """Of :class:`~rff_stream.planning.Plan`: the lines that it prints."""
    rows = (line.split(None, 1) for line in str(plan).splitlines())
    return Card("Plan", tuple((name, text) for name, text in rows))


def store_card(store: Any, place: str) -> Card:
    """Of :class:`~rff_stream.MomentStore`; reads its log, no moments."""
    batches, row = store.batches(), store.row
    labels = {label for batch in batches for label in batch.groups}
    rows = (
        ("place", place),
        ("batches", f"{len(batches):,} batches"),
        ("rows", f"{sum(batch.rows for batch in batches):,} rows"),
        ("groups", "" if labels <= {None} else some(sorted(map(str, labels)))),
        ("features", f"R={row.n_features}, T={row.n_targets}, order {store.order}"),
        ("inputs", some(row.inputs)),
        ("target names", some(row.targets)),
        ("map", row.map_fingerprint[:16]),
        ("head", store.head[:16]),
    )
    listed = [(b.id, f"{b.rows:,}", b.time[:19], b.content[:8]) for b in batches[-MOST_LISTED:]]
    if not listed:
        return Card("MomentStore", rows)
    caption = f"{len(listed)} of {len(batches)} batches"
    return Card(
        "MomentStore", rows, ((caption, table(("id", "rows", "committed", "content"), listed)),)
    )


def numbers(value: Any, most: int = 6) -> str:
    """One number or several, four digits each; "" for None."""
    if value is None:
        return ""
    found = np.atleast_1d(np.asarray(value, np.float64))
    shown = ", ".join(f"{each:.4g}" for each in found[:most])
    return shown + (f", … ({len(found)})" if len(found) > most else "")


def names_with_units(names: Sequence[str], units: Sequence[str]) -> list[str]:
    """ "lat [degrees_north]"; the name alone where no unit is known."""
    padded = (*units, *[""] * len(names))
    return [f"{name} [{unit}]" if unit else name for name, unit in zip(names, padded, strict=False)]


def some(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """Names with commas, the first of many."""
    shown = ", ".join(map(str, names[:most]))
    return shown + (f", … ({len(names)})" if len(names) > most else "")
