"""Parts of one computation that share nothing, on several threads: the same bits on any number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

_threads: ContextVar[int] = ContextVar("threads of one computation", default=1)


@contextmanager
def threads_of_one(count: int) -> Iterator[None]:
    """Let one computation of this context use so many threads; it uses one by default.

    Each of them calls BLAS, which is limited to one thread meanwhile.
    """
    before = _threads.set(max(count, 1))
    try:
        yield
    finally:
        _threads.reset(before)


def side_by_side(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """What the work gives for each part, in their order."""
    threads = min(_threads.get(), len(parts))
    if threads < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads, "rff-stream-part") as pool:
        return list(pool.map(work, parts))
