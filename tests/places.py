"""Where the project and its tests lie, whatever folder a test is in."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ROOT", "TESTS"]

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
