"""Where a model was loaded from: its location, identity and history at that time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from rff_stream.store.commit_log import Log
from rff_stream.store.location import local_path
from rff_stream.store.moment_store import MomentStore


@dataclass(frozen=True, slots=True)
class Home:
    """Where a model lives, and what was read there.

    Parameters
    ----------
    path : str
        Absolute where it is local: another working directory changes nothing.
    storage_options : mapping or None
    origin : str
        sha256 of the first entry of its log: no other model has it.
    last : int
        Number of the newest entry that was read.
    head : str
        sha256 of that entry.
    """

    path: str
    storage_options: Mapping[str, Any] | None
    origin: str
    last: int
    head: str

    @classmethod
    def of(
        cls, log: Log, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None
    ) -> Self:
        """The home of what a log was read from."""
        place = local_path(path) or os.fspath(path)
        return cls(place, storage_options, log.origin, log.last, log.head)

    def at(self, store: MomentStore) -> Self:
        """The same home, when all that a store has was read."""
        return replace(self, last=store.log.last, head=store.log.head)

    def open(self) -> MomentStore:
        """The store that is there now.

        Raises
        ------
        Replaced
            When it is another model, or has another history.
        """
        store = MomentStore.open(self.path, storage_options=self.storage_options)
        store.log.check_has(0, self.origin)
        store.log.check_has(self.last, self.head)
        return store
