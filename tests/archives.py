"""Stored archives of models, unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO

__all__ = ["unpack"]


def unpack(archive: Path | IO[bytes], folder: Path) -> None:
    """Unpack a .tar.xz of ours; Python 3.11.0 to 3.11.3 have no filters of what is unpacked."""
    chosen = {"name": archive} if isinstance(archive, Path) else {"fileobj": archive}
    with tarfile.open(mode="r:xz", **chosen) as opened:
        opened.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
