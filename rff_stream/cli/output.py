"""What a command prints: facts for programs as one JSON object, aligned lines for people.

Never a password or key of a URL, of options or of the environment.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from rff_stream import __version__
from rff_stream.text_formatting import (
    SECRETS,
    USER,
    format_bytes,
    hidden,
    hide,
    printable,
    without_hidden,
)

if TYPE_CHECKING:
    from rff_stream.planning import Plan
    from rff_stream.statistics.scores import ClassScores, Residuals

SOURCE = f"rff_stream {__version__}: predictions"
"""The attribute "source" of predictions: CF says by it who made the data."""


def redact_text(text: str) -> str:
    """Text without what stands before @ in a URL, signatures, or any hidden value."""
    text = re.sub(rf"(\w+://){USER}", r"\1…@", text)
    text = re.sub(r"(\w+://[^\s?'\"]*)\?[^\s'\"]*[^\s'\",;)]", r"\1?…", text)
    return without_hidden(text)


def forget() -> None:
    """Begin anew: hide what the environment calls a secret and nothing else."""
    hidden.clear()
    hide(value for name, value in os.environ.items() if SECRETS.search(name))


Line = tuple[str, str]
Facts = dict[str, Any]

SHOWN = 12
"""Number of batches or groups of a store that are printed; --json has all."""

PLANNED = (
    "n_rows", "n_inputs", "n_features", "n_targets", "n_groups", "order", "sums", "dtype",
    "threads", "workers", "state_bytes", "task_bytes", "driver_bytes", "process_bytes",
    "solve_bytes", "source_bytes", "flops", "traffic_bytes", "seconds",
)  # fmt: skip


def show(facts: Mapping[str, Any], lines: Sequence[Line], as_json: bool) -> None:
    """Print facts as JSON, or lines of a name and a text."""
    if as_json:
        click.echo(json.dumps(plain(facts), allow_nan=False))
        return
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        click.echo(printable(redact_text(f"{name:<{width}}  {text}")))


def plain(value: Any) -> Any:
    """Values that JSON has, without secrets: NaN and infinity become null, arrays lists."""
    if isinstance(value, Mapping):
        return {redact_text(str(name)): plain(each) for name, each in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (int, float, bool, type(None))):
        return value
    return redact_text(str(value))


def number(value: float) -> str:
    """Four digits that mean something."""
    return f"{value:.4g}"


def numbers(values: Any) -> str:
    """One number, or several with commas."""
    found = values.tolist() if hasattr(values, "tolist") else values
    return ", ".join(map(number, found)) if isinstance(found, list) else number(found)


def of_plan(found: Plan) -> tuple[Facts, list[Line]]:
    """The numbers of a plan, and the lines it prints."""
    facts = {name: getattr(found, name) for name in PLANNED}
    facts |= {"n_leaves": found.layout.n_leaves, "n_segments": found.layout.n_segments}
    facts |= {"leaf_rows": found.largest.rows}
    pairs = (line.split(None, 1) for line in str(found).splitlines())
    return facts, [(name, text) for name, text in pairs]


def of_model(model: Any) -> tuple[Facts, list[Line]]:
    """What a fitted model is."""
    from rff_stream.model.facts import facts, values_of

    return values_of(model), [(each.name, each.text) for each in facts(model) if each.text]


def of_fit(model: Any, seconds: float) -> tuple[Facts, list[Line]]:
    """What a fit made, and what it took."""
    from rff_stream.process_memory import peak_bytes

    facts, lines = of_model(model)
    seen, peak, promised = model.n_rows_ + model.n_missing_, peak_bytes(), model.plan_.process_bytes
    used = f"{model.n_rows_:,} fitted of {seen:,}"
    others = "" if not model.n_missing_ else " (the others are held out, filtered or missing)"
    speed = f"{seconds:.1f} s, {seen / seconds:,.0f} rows/s"
    memory = f"peak {format_bytes(peak)} in this process, {format_bytes(promised)} planned"
    described = [(name, text) for name, text in lines if name != "rows"]
    lines = [("rows", used + others), *described, ("time", speed), ("memory", memory)]
    measured = {
        "n_rows_seen": seen,
        "seconds": seconds,
        "rows_per_second": seen / seconds,
        "peak_bytes": peak,
        "planned_bytes": promised,
    }
    return facts | measured, lines


def of_scores(
    found: Residuals, names: Sequence[str], units: Sequence[str]
) -> tuple[Facts, list[Line]]:
    """R² and RMSE of every target."""
    r2, rmse = found.r2().tolist(), found.rmse().tolist()
    facts = {
        "n_rows": found.n,
        "r2": dict(zip(names, r2, strict=True)),
        "rmse": dict(zip(names, rmse, strict=True)),
    }
    lines = [
        (name, f"R² {a:.5f}, RMSE {number(b)} {unit}".rstrip() + f" over {found.n:,} rows")
        for name, a, b, unit in zip(names, r2, rmse, units, strict=True)
    ]
    return facts, lines


def of_class_scores(found: ClassScores) -> tuple[Facts, list[Line]]:
    """Accuracy, log-loss, calibration and AUROC of a classifier."""
    recall, areas = found.recall(), found.auroc()
    facts = {
        "n_rows": found.n,
        "accuracy": found.accuracy(),
        "log_loss": None if found.unseen else found.log_loss(),
        "calibration_error": found.calibration_error(),
        "auroc": areas,
        "recall": recall,
        "unseen": found.unseen,
    }
    loss = "infinite" if found.unseen else number(found.log_loss())
    lines = [
        ("accuracy", f"{found.accuracy():.5f} over {found.n:,} rows"),
        ("log-loss", f"{loss}; calibration error {number(found.calibration_error())}"),
        *[(f"class {c}", f"AUROC {number(areas[c])}, recall {number(recall[c])}") for c in recall],
        *[(f"class {c}", f"unknown to the model, weight {w:g}") for c, w in found.unseen.items()],
    ]
    return facts, lines


def of_prediction(model: Any, sizes: Mapping[str, int], words: str) -> tuple[Facts, list[Line]]:
    """Which rows are predicted."""
    rows = 1
    for size in sizes.values():
        rows *= size
    shape = ", ".join(f"{dim} {size:,}" for dim, size in sizes.items())
    names = ", ".join(model.columns_.targets)
    return {"n_rows": rows, "sizes": dict(sizes)}, [
        ("rows", f"{rows:,} ({shape}) {words}: {names}")
    ]


def of_store(path: str, storage_options: Any) -> tuple[Facts, list[Line]]:
    """Batches and groups of a stored model, with their rows and sizes."""
    from rff_stream.store import MomentStore

    store = MomentStore.open(path, storage_options=storage_options)
    batches = store.batches()
    sizes = store.sizes()
    several_groups = len({label for batch in batches for label in batch.groups}) > 1
    parts = store.groups() if several_groups else {}
    facts: Facts = {
        "batches": [
            {
                "id": b.id,
                "rows": b.rows,
                "bytes": sizes[b.id],
                "time": b.time,
                **row_range(b.labels),
            }
            for b in batches
        ],
        "groups": {str(label): part.n for label, part in parts.items()},
        "bytes": sum(sizes.values()),
    }
    lines = [("moments", f"{len(batches):,} batches, {format_bytes(facts['bytes'])}")]
    texts = [f"{b.id}: {b.rows:,} rows, {format_bytes(sizes[b.id])}" for b in batches]
    lines += several("batch", texts)
    lines += several("group", [f"{name}: {n:,} rows" for name, n in facts["groups"].items()])
    return facts, lines


def row_range(labels: Mapping[str, Any]) -> dict[str, Any]:
    """First and last rows of a batch, where they have coordinates."""
    return {name: labels[name] for name in ("first", "last") if name in labels}


def several(name: str, texts: list[str]) -> list[Line]:
    """One line each; the middle of many left out."""
    if len(texts) <= SHOWN:
        return [(name, text) for text in texts]
    half = SHOWN // 2
    left = f"… {len(texts) - SHOWN:,} more"
    return [(name, text) for text in [*texts[:half], left, *texts[-half:]]]
