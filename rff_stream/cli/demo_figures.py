"""The figures of the command demo: a fit in bounded memory, against the noise ceiling."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rff_stream.demo.cube import INPUTS, NOISE_VARIANCE, TARGET
from rff_stream.process_memory import peak_bytes
from rff_stream.text_formatting import format_bytes

CEILING_MARGIN = 0.01  # of R²
HELD_OUT = 0.1  # of the rows


@dataclass(frozen=True, slots=True)
class Figures:
    """What the demonstration measured."""

    n_rows: int  # fitted
    n_rows_seen: int  # looked at, land and held-out rows included
    n_rows_held_out: int  # scored
    n_components: int  # R
    df: float  # effective degrees of freedom
    alpha: float  # the penalty that evidence chose
    seconds: float  # from call to return of fit
    score_seconds: float  # of the second pass, over the held-out rows
    planned_bytes: int  # what the plan promised for this process
    peak_bytes: int  # what it held at most
    memory_bytes: int  # what was allowed
    r2: float  # on held-out rows
    rmse: float  # on held-out rows, in W m⁻²
    ceiling: float
    """1 − noise variance / variance of the held-out targets: R² of the formula itself."""

    @property
    def rows_per_second(self) -> float:
        """Rows looked at in a second of fit."""
        return self.n_rows_seen / self.seconds

    @property
    def failure(self) -> str:
        """What was promised and not kept; "" if everything was."""
        if self.peak_bytes > self.memory_bytes:
            return (
                f"This process held {format_bytes(self.peak_bytes)}, but "
                f"{format_bytes(self.memory_bytes)} are allowed: the plan promised too little. "
                "Give --threads 1, and please report it."
            )
        if abs(self.ceiling - self.r2) > CEILING_MARGIN:
            return (
                f"R² {self.r2:.4f} on held-out rows is not within {CEILING_MARGIN} of the noise "
                f"ceiling {self.ceiling:.4f}. Give more --n-components or --days."
            )
        return ""

    def facts(self) -> dict[str, Any]:
        """Every figure by name."""
        return asdict(self) | {"rows_per_second": self.rows_per_second}

    def lines(self) -> list[tuple[str, str]]:
        """The figures as lines of a name and a text."""
        used = f"{self.n_rows:,} fitted of {self.n_rows_seen:,}; the others are land or held out"
        speed = f"{self.rows_per_second:,.0f} rows/s: fit {self.seconds:.1f} s, "
        planned, limit = format_bytes(self.planned_bytes), format_bytes(self.memory_bytes)
        gap = f"{abs(self.ceiling - self.r2):.5f} from the ceiling {self.ceiling:.5f}"
        return [
            ("rows", used),
            ("model", f"R = {self.n_components}, df = {self.df:.0f}, alpha = {self.alpha:.3g}"),
            ("speed", speed + f"score {self.score_seconds:.1f} s"),
            ("memory", f"peak {format_bytes(self.peak_bytes)}, planned {planned}, limit {limit}"),
            ("held out", f"R² {self.r2:.5f} on {self.n_rows_held_out:,} rows, {gap}"),
            ("", f"RMSE {self.rmse:.3f} W m-2; the noise is {NOISE_VARIANCE**0.5:.0f} W m-2"),
        ]

    def notes(self) -> list[tuple[str, str]]:
        """The lines about cost, named as the report shows them."""
        return [(name, text) for name, text in self.lines() if name in ("rows", "speed", "memory")]

    def write(self, folder: Path) -> None:
        """report.txt and report.json, beside the model."""
        text = "".join(f"{name:<9}{words}\n" for name, words in self.lines())
        (folder / "report.txt").write_text(text, encoding="utf-8")
        (folder / "report.json").write_text(json.dumps(self.facts(), indent=2), encoding="utf-8")


def fit_and_score(
    data: Path, model: Path, *, n_components: int, memory: int, seed: int, page: Path | None = None
) -> Figures:
    """Fits all but a tenth of the rows of a cube, saves the model, and scores it on that tenth.

    Everything but R, the memory of this process and the seed is KernelRidge's default; rows are
    held out by hash, before anything is chosen. ``page`` is where a report of it all is written,
    in HTML.
    """
    from rff_stream.estimators import KernelRidge
    from rff_stream.sources import HoldOut

    test = [HoldOut(HELD_OUT, seed, "test")]
    started = time.monotonic()
    fitted = KernelRidge(
        n_components=n_components, missing_rows="drop", memory=memory, random_state=seed
    )
    fitted.fit(str(data), TARGET, inputs=INPUTS, where=[HoldOut(HELD_OUT, seed, "train")])
    done = time.monotonic()
    scored = fitted.residuals(str(data), where=test)
    ended = time.monotonic()
    fitted.save(model)
    r2, rmse = float(scored.r2()[0]), float(scored.rmse()[0])
    found = Figures(
        n_rows=fitted.n_rows_,
        n_rows_seen=fitted.n_rows_ + fitted.n_missing_,
        n_rows_held_out=scored.n,
        n_components=fitted.features_.n_components,
        df=float(fitted.df_),
        alpha=float(fitted.alpha_),
        seconds=done - started,
        score_seconds=ended - done,
        planned_bytes=fitted.plan_.process_bytes,
        peak_bytes=peak_bytes(),
        memory_bytes=memory,
        r2=r2,
        rmse=rmse,
        ceiling=1 - NOISE_VARIANCE * (1 - r2) / rmse**2,
    )
    if page is not None:
        from rff_stream.report import assess, write_report  # after the peak was measured

        place = f"{data.name} that the fit left out"
        held_out = assess(fitted, str(data), place=place, where=test, residuals=scored)
        write_report(page, fitted, test=held_out, place=model, notes=found.notes())
    return found
