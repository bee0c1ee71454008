"""Facts and lines about plans, fitted models and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rff_stream.cli.output import Line, number

if TYPE_CHECKING:
    from rff_stream.planning import Plan
    from rff_stream.statistics.scores import ClassScores, Residuals


Facts = dict[str, Any]

PLANNED = (
    "n_rows", "n_inputs", "n_features", "n_targets", "n_groups", "order", "sums", "dtype",
    "threads", "workers", "state_bytes", "task_bytes", "driver_bytes", "process_bytes",
    "solve_bytes", "source_bytes", "flops", "traffic_bytes", "seconds",
)  # fmt: skip


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
    from rff_stream.demo.measure import peak_bytes
    from rff_stream.words import format_bytes

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
