"""Words of the command line -> values: names, conditions, numbers, bytes, addresses.

Every function is the ``type`` of an option: it gives a value or a usage error.
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from rff_stream.cli.redaction import hide_options, hide_url, redact_text

CONDITION = re.compile(r"((?:\[[^\]]*\]|[^\[<>=!])+)(<=|>=|==|!=|<|>)([^<>=!].*)")


class KernelName(click.Choice[str]):
    """The name of a kernel that has frequencies; which there are is asked on first use."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names, in the order of the alphabet."""
        from rff_stream.kernels import kernel_names

        return tuple(kernel_names(stationary=True))


def names(text: str) -> tuple[str, ...]:
    """ "lat,u[level=500,member=3]" -> ("lat", "u[level=500,member=3]")."""
    found = tuple(name.strip() for name in re.split(r",(?![^\[]*\])", text))
    if not all(found):
        raise click.BadParameter(f"{text!r} has an empty name. Separate names by single commas.")
    return found


def cells(text: str) -> Any:
    """ "256,4" or "256,4,1024" -> columns of a cell, trees, and cells of each."""
    from rff_stream.features import Cells

    parts = text.split(",")
    if not (2 <= len(parts) <= 3 and all(part.strip().isdigit() for part in parts)):
        raise click.BadParameter(
            f"{text!r} is not R,TREES or R,TREES,CELLS in whole numbers. Write for instance 256,4."
        )
    try:
        return Cells(*map(int, parts))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def condition(text: str) -> tuple[str, str, str]:
    """ "time<2015" -> ("time", "<", "2015")."""
    found = CONDITION.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(
            f"{text!r} is not NAME OP VALUE with OP one of < <= > >= == !=. Write for instance "
            f'"time<2015-06-01" or "lat>=30", in quotation marks.'
        )
    name, operator, value = (part.strip() for part in found.groups())
    return name, operator, value.strip("'\"")


def numbers(text: str) -> float | tuple[float, ...] | None:
    """A number, or several with commas; None if it is neither."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        return None
    return found[0] if len(found) == 1 else found


def length_scale(text: str) -> float | list[float] | str:
    """A number, one per input, or a word that the estimator knows."""
    found = numbers(text)
    if found is None:
        return text
    return found if isinstance(found, float) else list(found)


def alpha(text: str) -> Any:
    """A number, one per target, or a word that the estimator knows."""
    found = numbers(text)
    if found is None or isinstance(found, float):
        return text if found is None else found
    import numpy as np

    return np.array(found)


def memory(text: str) -> int:
    """ "4GiB" -> 4294967296."""
    from dask.utils import parse_bytes

    try:
        found = int(parse_bytes(text))
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise click.BadParameter(f"{text!r} is no amount of memory. Write 4GiB, 500MB or bytes.")
    return found


def address(text: str) -> str:
    """The address of a Dask scheduler."""
    hide_url(text)
    if not text.startswith(("tcp://", "tls://")):
        raise click.BadParameter(
            f"{text!r} is no address of a Dask scheduler. Write tcp://host:8786 or "
            f"tls://host:8786, as the scheduler prints it when it starts."
        )
    if "@" in text:
        raise click.BadParameter(
            f"{redact_text(text)} contains a user name, but Dask's schedulers have no users. Write "
            "tls://host:8786; certificates come from Dask's configuration (distributed.comm.tls)."
        )
    return text


def options(text: str) -> dict[str, Any]:
    """A JSON object of storage options; its secrets are never printed."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON ({error}). Write {EXAMPLE}.") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"is JSON, but not an object. Write {EXAMPLE}.")
    hide_options(found)
    return found


EXAMPLE = """'{"anon": true}', in quotation marks"""


def place(text: str) -> str:
    """A path that exists, or a URL."""
    hide_url(text)
    if "://" in text and not text.startswith("file://"):
        return text
    path = Path(text.removeprefix("file://"))
    if not path.exists():
        raise click.BadParameter(f"{text} does not exist. {near(path)}")
    return text


def near(path: Path) -> str:
    """Which path may have been meant."""
    if path.is_symlink():
        return f"It is a link to {path.readlink()}, which leads nowhere."
    known = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, known, n=1)
    if close:
        return f"Did you mean {path.with_name(close[0])}?"
    return f"Look at the path; it counts from {Path.cwd()}."
