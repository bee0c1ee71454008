"""What must never be printed: passwords and keys in URLs, options and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from rff_stream.words import USER

NAMES = re.compile(
    r"secret|password|passwd|token|credential|account_key|^sas(_|$)|^key$", re.IGNORECASE
)
PASSWORD = re.compile(r"[^\s/:@'\"]+:([^\s@'\"/][^\s@'\"]*)@")
"""user:password@ wherever it stands, in a URL or in what was meant as one."""

SHORTEST = 6
"""Characters of a secret that is worth hiding wherever it stands."""

_hidden: set[str] = set()


def redact_text(text: str) -> str:
    """Text without what stands before @ in a URL, signatures, or any hidden value."""
    text = re.sub(rf"(\w+://){USER}", r"\1…@", text)
    text = re.sub(r"(\w+://[^\s?'\"]*)\?[^\s'\"]*[^\s'\",;)]", r"\1?…", text)
    for value in sorted(_hidden, key=len, reverse=True):
        text = text.replace(value, "…")
    return text


def hide(values: Iterable[str]) -> None:
    """Never print these, alone or within a text."""
    _hidden.update(value for value in values if len(value) >= SHORTEST)


def hide_url(url: str) -> None:
    """Hide the password of a URL, as it is written and as it is meant."""
    found = PASSWORD.search(url)
    if found:
        _hidden.add(found[0])  # whole, however short
        hide([found[1], unquote(found[1])])


def hide_options(options: Mapping[str, Any]) -> None:
    """Hide the texts under names such as "secret" or "token", however deep."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            hide_options(value)
        elif isinstance(value, str):
            hide_url(value)
            if NAMES.search(name):
                hide([value])


def forget() -> None:
    """Begin anew: hide what the environment calls a secret and nothing else."""
    _hidden.clear()
    hide(value for name, value in os.environ.items() if NAMES.search(name))
