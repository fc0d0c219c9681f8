"""Local files that outlive a power cut: their bytes, their names, and the directories that hold them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# Some file systems can't do this to directories, and one that may be written to need not be readable.
_UNSUPPORTED = frozenset((errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM))


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
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
