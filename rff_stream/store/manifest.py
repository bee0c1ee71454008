"""The files that a commit lists: written once, read once, verified before they are used."""

from __future__ import annotations

from collections.abc import Iterable

from rff_stream.errors import ModelError
from rff_stream.planning import available_memory
from rff_stream.store.files import Files, damage
from rff_stream.store.log_entries import Manifest, sha256

MAX_BYTES = 64 * 2**30
"""The most that one model may take in memory, whatever there is."""


def write_vouched(files: Files, contents: Iterable[tuple[str, bytes]]) -> Manifest:
    """Write new files, durably; returns what a commit says of them.

    What was written is removed again when one of them fails: a full disk gets its room back.
    """
    manifest: Manifest = {}
    try:
        for name, data in contents:
            files.write(name, data)
            manifest[name] = [len(data), sha256(data)]
        files.settle(manifest)
    except BaseException:
        for name in manifest:
            files.remove(name)
        raise
    return manifest


def read_vouched(files: Files, manifest: Manifest, max_bytes: int | None) -> dict[str, bytes]:
    """Every file of a manifest, each read once and verified; any difference is refused.

    Raises
    ------
    ModelError
        Names the file that is missing, extra, a link, or of other bytes than its commit says;
        or gives the bytes where all of them together are more than ``max_bytes``.
    """
    check_size(files.place, manifest, max_bytes)
    try:
        return _read_all(files, manifest)
    except MemoryError as error:
        total = sum(size for size, _ in manifest.values())
        raise ModelError(
            f"{files.place} takes {total:,} bytes in memory, and so much is not free. Leave more "
            "memory free; a model from an untrusted source may be made to fill it."
        ) from error


def most_bytes() -> int:
    """Bytes that a model may take unless the caller says otherwise: the memory there is."""
    limit = memory_limit()
    return min(MAX_BYTES, MAX_BYTES if limit is None else limit, available_memory())


def memory_limit() -> int | None:
    """Bytes that this process may take (``ulimit -v``); None where there is no such limit."""
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else int(limit)


def _read_all(files: Files, manifest: Manifest) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for root, mine in by_root(manifest).items():
        at_most = {name: size for name, (size, _) in mine.items()}
        data = files.take(root, at_most) if root else files.find_all(at_most)
        check_names(files.place, mine, data)
        found |= {name: verify_bytes(files.place, name, mine, data[name]) for name in mine}
    return found


def verify_bytes(place: str, name: str, manifest: Manifest, data: bytes | None) -> bytes:
    """The bytes of one file, if they are those of its commit."""
    size, wanted = manifest[name]
    if data is None:
        raise damage(place, name, "is missing")
    if len(data) != size:
        raise damage(place, name, f"has {len(data):,} bytes, but its commit says {size:,}")
    if (found := sha256(data)) != wanted:
        what = f"has sha256 {found[:12]}…, but its commit says {wanted[:12]}…"
        raise damage(place, name, what)
    return data


def check_size(place: str, manifest: Manifest, max_bytes: int | None) -> None:
    """Refuse before anything is allocated."""
    total = sum(size for size, _ in manifest.values())
    max_bytes = most_bytes() if max_bytes is None else max_bytes
    if total > max_bytes:
        raise ModelError(
            f"{place} takes {total:,} bytes in memory, but max_bytes={max_bytes:,}. Raise "
            "max_bytes if this is expected; an untrusted model may be made to fill memory."
        )


def check_names(place: str, manifest: Manifest, found: Iterable[str]) -> None:
    """Refuse files that are missing or extra in a folder that a manifest owns."""
    for name in sorted(manifest.keys() - found):
        raise damage(place, name, "is missing")
    for name in sorted({*found} - manifest.keys()):
        raise damage(place, name, "is an extra file that no commit names")


def by_root(manifest: Manifest) -> dict[str, Manifest]:
    """The part of a manifest in each folder that belongs to its commit."""
    found: dict[str, Manifest] = {}
    for name in sorted(manifest, key=root_of):
        found.setdefault(root_of(name), {})[name] = manifest[name]
    return found


def root_of(name: str) -> str:
    """The folder that belongs to the commit of a file; "" for metadata of a shared folder."""
    parts = name.split("/")
    if parts[0] in ("data", "answers"):
        return "/".join(parts[:2]) if len(parts) > 2 else ""
    return parts[0] if len(parts) > 1 and parts[0] != "log" else ""
