"""What a command prints: aligned lines for people, or one JSON object for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rff_stream.cli.redaction import redacted

__all__ = ["number", "numbers", "show", "with_units"]

Line = tuple[str, str]


def show(facts: Mapping[str, Any], lines: Sequence[Line], as_json: bool) -> None:
    """Print facts as JSON, or lines of a name and a text."""
    if as_json:
        click.echo(redacted(json.dumps(plain(facts), allow_nan=False)))
        return
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        click.echo(redacted(f"{name:<{width}}  {text}"))


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


def with_units(names: Sequence[str], units: Sequence[str], values: Any = None) -> str:
    """ "lat 8.2 degrees_north, lon 20 degrees_east"."""
    several = ["" if values is None else number(float(each)) for each in spread(values, names)]
    pairs = zip(names, several, units, strict=False)
    return ", ".join(" ".join(filter(None, each)) for each in pairs)


def spread(values: Any, names: Sequence[str]) -> Sequence[Any]:
    """One value a name, from one for all or one each."""
    found = values.tolist() if hasattr(values, "tolist") else values
    return found if isinstance(found, (list, tuple)) else [found] * len(names)
