"""Options of the data source, which Spark hands over as texts."""

from __future__ import annotations

from typing import Final

STORAGE: Final = "storage."
"""Options that begin with it are the object store's."""


def names_of(text: str | None) -> list[str] | None:
    """Names with commas between; None for no text."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
