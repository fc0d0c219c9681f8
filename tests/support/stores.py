"""Where things of a lake are."""

from __future__ import annotations

from pathlib import Path


def own_files(root: Path) -> Path:
    """The directory of a lake's index and records, beside the lake."""
    return root.parent / ".skipstone" / root.name
