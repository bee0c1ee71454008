"""icechunk: the store of a repository or session, and what a repository tells of its versions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rff_stream.sources.container_types import needed_package

Place = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """A repository, and the snapshot of it that is read."""

    repository: Any
    snapshot: str

    def changed_since(self, snapshot: str, path: str) -> set[Place]:
        """Places of the chunks of an array that were written after a snapshot.

        None of them where the repository has forgotten that snapshot: then sizes alone tell.
        """
        import icechunk

        if snapshot == self.snapshot:
            return set()
        try:
            found = self.repository.diff(from_snapshot_id=snapshot, to_snapshot_id=self.snapshot)
        except icechunk.IcechunkError:
            return set()
        return {tuple(place) for place in found.updated_chunks.get(f"/{path}", ())}


def repository_at(path: str) -> Any:
    """The icechunk repository in a local folder."""
    icechunk = needed_package("icechunk", "icechunk", f"{path} is an icechunk repository")
    local = str(Path(path.removeprefix("file://")).absolute())
    return icechunk.Repository.open(icechunk.local_filesystem_storage(local))


def store_and_versions(X: Any) -> tuple[Any, Versions | None]:
    """The Zarr store of a repository (branch main), session or store; versions of a repository."""
    if hasattr(X, "readonly_session"):
        session = X.readonly_session("main")
        return session.store, Versions(X, session.snapshot_id)
    return (X.store if hasattr(X, "store") else X), None
