"""Local files that outlive a power cut: their bytes, their names, and the directories that hold them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def make_folders(folder: Path) -> None:
    """Make a directory and those above it that are missing, each kept by the one above."""
    missing = []
    above = folder
    while not above.exists():
        missing.append(above)
        above = above.parent
    folder.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_folder(made.parent)


def sync_file(path: Path) -> None:
    """Wait until a file is on disk under its name."""
    _sync(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a directory are on disk: a file that was renamed may be lost until then."""
    # Some file systems refuse this of directories, and keep names in order themselves.
    with suppress(OSError):
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
