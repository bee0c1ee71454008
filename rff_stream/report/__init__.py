"""A report on a model: settings, training data, errors, intervals, cost, drift, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from rff_stream.report import sections
from rff_stream.report.assess import Assessment, assess
from rff_stream.report.sections import page

__all__ = ["Assessment", "assess", "report", "write_report"]


def report(
    model: Any,
    *,
    test: Assessment | None = None,
    place: str | PathLike[str] | None = None,
    notes: Sequence[tuple[str, str]] = (),
) -> str:
    """One self-contained HTML page about a fitted model: no network, no script.

    Parameters
    ----------
    model : fitted estimator
    test : Assessment, optional
        From :func:`assess`: what the model did on other rows.
    place : path, optional
        Where the model was saved: its batches give drift, its log provenance.
    notes : sequence of (name, text)
        More lines under cost.

    Returns
    -------
    str
    """
    where = None if place is None else fspath(place)
    store = sections.store_of(where)
    return page(
        f"{type(model).__name__}: {', '.join(model.columns_.targets) or 'rows'}",
        sections.lead(model, test),
        [
            sections.fit_section(model),
            sections.good(model, test),
            sections.sure(model, test),
            sections.cost_section(model, test, notes),
            sections.drift_section(model, sections.groups_of(store)),
            sections.provenance(model, where, store),
        ],
    )


def write_report(path: str | PathLike[str], model: Any, **choices: Any) -> None:
    """Write :func:`report` to a file."""
    Path(path).write_text(report(model, **choices), encoding="utf-8")
