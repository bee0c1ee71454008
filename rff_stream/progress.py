"""A bar of rows with rows/s and time left, in terminals and notebooks; in logs, a line a minute."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

DELAY_SECONDS = 2.0  # no bar for what ends before anybody looks
LINE_SECONDS = 60.0  # between two lines of a log

_OPEN: ContextVar[Progress | None] = ContextVar("open bar", default=None)
"""The bar that several reads share."""


class Progress:
    """Shows how many rows (or other units) were read, once a read lasts longer than two seconds.

    The words say what is going on.
    """

    def __init__(
        self, words: str, n_rows: int | None, *, shown: bool = True, unit: str = "row"
    ) -> None:
        self._outer = _OPEN.get()
        self._bar: Any = _bar(words, n_rows, unit) if shown and self._outer is None else None

    def advance(self, rows: int) -> None:
        """Count rows."""
        if self._outer is not None:
            self._outer.advance(rows)
        elif self._bar is not None:
            self._bar.update(rows)

    def say(self, text: str) -> None:
        """Show a text behind the bar, from the next rows on."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Reads inside count on this bar and show none of their own."""
        token = _OPEN.set(self)
        try:
            yield
        finally:
            _OPEN.reset(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(words: str, n_rows: int | None, unit: str) -> Any:
    """A tqdm bar, plain ASCII where the terminal cannot show more; lines where there is none."""
    if not _in_notebook() and not sys.stderr.isatty():
        return _Lines(words, n_rows, unit)
    with warnings.catch_warnings():
        # In a notebook without ipywidgets tqdm warns, and draws the bar as text: that is fine.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    return tqdm(
        total=n_rows,
        desc=words,
        unit=unit,
        unit_scale=True,
        delay=DELAY_SECONDS,
        ascii=not encoding.lower().startswith("utf"),
        leave=False,
    )


class _Lines:
    """A bar for logs, in which a bar would draw over itself: a line a minute."""

    def __init__(self, words: str, n_rows: int | None, unit: str) -> None:
        self._words, self._total, self._unit, self._text = words, n_rows, unit, ""
        self._done = self._said = 0
        self._last = time.monotonic()

    def update(self, rows: int) -> None:
        self._done += rows
        if time.monotonic() - self._last >= LINE_SECONDS:
            self._write()

    def _write(self) -> None:
        seconds = time.monotonic() - self._last
        rate = (self._done - self._said) / max(seconds, 1e-3)
        sys.stderr.write(f"{self._words}: {self._line(rate)}\n")
        sys.stderr.flush()
        self._last, self._said = self._last + seconds, self._done

    def _line(self, rate: float) -> str:
        parts = [f"{self._done:,} {self._unit}s", f"{rate:,.0f}/s"]
        if self._total is not None:
            parts[0] = f"{self._done:,} of {self._total:,} {self._unit}s"
            if rate > 0 and self._done < self._total:
                parts.append(f"{(self._total - self._done) / rate / 60:.0f} min left")
        return ", ".join([*parts, *filter(None, [self._text])])

    def set_postfix_str(self, text: str, *, refresh: bool) -> None:
        self._text = text

    def close(self) -> None:
        """A last line, so that a log that was begun does not end before its read does."""
        if 0 < self._said < self._done:
            self._write()


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules
