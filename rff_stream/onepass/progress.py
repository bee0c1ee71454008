"""A bar of rows with rows/s and time left, in terminals and notebooks."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

__all__ = ["Progress"]

DELAY_SECONDS = 2.0

_OPEN: ContextVar[Progress | None] = ContextVar("open bar", default=None)
"""The bar that several reads share."""


class Progress:
    """Shows how many rows were read, once a read lasts longer than two seconds.

    Parameters
    ----------
    words : str
        What is going on.
    n_rows : int, optional
        Total, where it is known.
    shown : bool
    unit : str
        What is counted.
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
    """A tqdm bar; plain ASCII where the terminal cannot show more."""
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
        disable=None if not _in_notebook() else False,
        leave=False,
    )


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules
