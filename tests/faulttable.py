"""The table of faults: which tests show what a user sees, read from faults.md.

``pytest --faults`` runs the tests that the table names and all of marker cluster, whatever ``-m``
says, and prints every row with what became of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from places import TESTS

TABLE = TESTS / "faults.md"
ABSENT = "not here: "


@dataclass(frozen=True, slots=True)
class Row:
    """A fault, what a user sees, and the tests that show it, or the reason why none does."""

    name: str
    fault: str
    seen: str
    tests: tuple[tuple[str, str], ...]
    reason: str

    def shown_by(self, item: str) -> bool:
        """Whether a test is one of the row's; ``[part]`` is some text within its parameters."""
        path, _, rest = item.rpartition("/")[2].partition(".py::")
        name, _, parameters = rest.partition("[")
        return any(
            f"{path}::{name}" == test and part in parameters.removesuffix("]")
            for test, part in self.tests
        )


def rows(text: str) -> list[Row]:
    """Rows of every table in the text."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and re.fullmatch(r"[A-F]\d+", cells[0]):
            tests = re.findall(r"`(\w+::\w+)(?:\[(.*?)\])?`", cells[3])
            reason = cells[3].removeprefix(ABSENT) if cells[3].startswith(ABSENT) else ""
            found.append(Row(*cells[:3], tuple(tests), reason))
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", action="store_true", help="The table of faults: see faults.md.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--faults"):
        config.option.markexpr = ""
        config.pluginmanager.register(Table(rows(TABLE.read_text())), "fault-table")


class Table:
    """Chooses the tests of the rows and remembers how they went."""

    def __init__(self, found: Sequence[Row]) -> None:
        self._rows = found
        self._outcomes: dict[str, set[str]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[Any]) -> None:
        def wanted(item: Any) -> bool:
            shows = any(row.shown_by(item.nodeid) for row in self._rows)
            return shows or item.get_closest_marker("cluster") is not None

        left = [item for item in items if not wanted(item)]
        items[:] = [item for item in items if wanted(item)]
        config.hook.pytest_deselected(items=left)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._outcomes.setdefault(report.nodeid, set()).add(report.outcome)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("faults")
        states = [self._state(row) for row in self._rows]
        for row, state in zip(self._rows, states, strict=True):
            words = row.seen if state != "-" else row.reason
            terminalreporter.write_line(f"{row.name:<4} {state:<8} {row.fault}: {words}"[:150])
        kinds = sorted(set(states))
        counts = ", ".join(f"{states.count(k)} {'not here' if k == '-' else k}" for k in kinds)
        terminalreporter.write_line(f"{len(states)} faults: {counts}")

    def _state(self, row: Row) -> str:
        found = [seen for item, seen in self._outcomes.items() if row.shown_by(item)]
        outcomes = set().union(*found)
        if row.reason:
            return "-"
        return next(
            (kind for kind in ("failed", "passed", "skipped") if kind in outcomes), "not run"
        )
