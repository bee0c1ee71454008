"""Small data, models and calls that many tests share."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from rff_stream.cli import main

__all__ = ["run"]


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])
