"""What a command prints: aligned lines for people, or one JSON object for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rff_stream.cli.redaction import redact_text
from rff_stream.words import printable

Line = tuple[str, str]


def show(facts: Mapping[str, Any], lines: Sequence[Line], as_json: bool) -> None:
    """Print facts as JSON, or lines of a name and a text."""
    if as_json:
        click.echo(redact_text(json.dumps(plain(facts), allow_nan=False)))
        return
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        click.echo(printable(redact_text(f"{name:<{width}}  {text}")))


def plain(value: Any) -> Any:
    """Values that JSON has: NaN and infinity become null, arrays lists."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def number(value: float) -> str:
    """Four digits that mean something."""
    return f"{value:.4g}"


def numbers(values: Any) -> str:
    """One number, or several with commas."""
    found = values.tolist() if hasattr(values, "tolist") else values
    return ", ".join(map(number, found)) if isinstance(found, list) else number(found)
