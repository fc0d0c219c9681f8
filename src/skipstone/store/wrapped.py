"""What sources on top of another source share: everything they don't do otherwise is done below."""

from __future__ import annotations

from skipstone.store.source import IoCounter, Source


class Wrapped:
    """A source that reads from the source below it."""

    def __init__(self, below: Source) -> None:
        self._below = below

    @property
    def path(self) -> str:
        """The file's name in messages."""
        return self._below.path

    @property
    def counter(self) -> IoCounter:
        """What reading has cost so far, failed attempts included."""
        return self._below.counter

    @property
    def gap(self) -> int:
        """Bytes that cost as much as a request."""
        return self._below.gap

    def size(self) -> int:
        """The file's size in bytes."""
        return self._below.size()

    def version(self) -> object | None:
        """What tells this version of the file from another."""
        return self._below.version()

    def expect(self, version: object | None, size: int | None) -> None:
        """Refuse to be another version."""
        self._below.expect(version, size)
