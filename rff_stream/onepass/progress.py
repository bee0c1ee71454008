"""A bar of rows with rows/s and time left, in terminals and notebooks."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType
from typing import Any, Self

__all__ = ["Progress"]

DELAY_SECONDS = 2.0


class Progress:
    """Shows how many rows were read, once a read lasts longer than two seconds.

    Parameters
    ----------
    words : str
        What is going on.
    n_rows : int, optional
        Total, where it is known.
    shown : bool
    """

    def __init__(self, words: str, n_rows: int | None, *, shown: bool = True) -> None:
        self._bar: Any = _bar(words, n_rows) if shown else None

    def advance(self, rows: int) -> None:
        """Count rows."""
        if self._bar is not None:
            self._bar.update(rows)

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


def _bar(words: str, n_rows: int | None) -> Any:
    """A tqdm bar; plain ASCII where the terminal cannot show more."""
    with warnings.catch_warnings():
        # In a notebook without ipywidgets tqdm warns, and draws the bar as text: that is fine.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    return tqdm(
        total=n_rows,
        desc=words,
        unit="row",
        unit_scale=True,
        delay=DELAY_SECONDS,
        ascii=not encoding.lower().startswith("utf"),
        disable=None if not _in_notebook() else False,
        leave=False,
    )


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules
