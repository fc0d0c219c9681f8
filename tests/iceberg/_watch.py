"""Which bytes of which files are read, wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from skipstone.iceberg.manifests.reading import clear_cache
from skipstone.store.local import LocalSource
from skipstone.store.objects import ObjectSource
from skipstone.store.source import ByteRange

TAIL = -1


@dataclass
class Reads:
    """Reads since the last look: the path, where they begin and where they end; footers end at the end."""

    seen: list[tuple[str, int, int]] = field(default_factory=list)

    def restart(self) -> None:
        """Forget what was read, and make the process forget manifests."""
        clear_cache()
        self.seen.clear()

    @property
    def manifests(self) -> set[str]:
        """Manifests, and not lists of them."""
        return {path for path, _, _ in self.seen if path.endswith(".avro") and "/snap-" not in path}

    @property
    def lists(self) -> set[str]:
        return {path for path, _, _ in self.seen if "/snap-" in path}

    @property
    def data(self) -> set[str]:
        """Data and delete files."""
        return {path for path, _, _ in self.seen if path.endswith((".parquet", ".puffin"))}

    def footers(self, sizes: dict[str, int]) -> set[str]:
        """Files of these sizes whose last bytes were read."""
        return {path for path, _, stop in self.seen if path in sizes and stop in (TAIL, sizes[path])}


def watch(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """See every read from now on; segments of a local index are mapped, and not seen."""
    reads = Reads()
    for kind in (LocalSource, ObjectSource):
        _see(monkeypatch, kind, reads)
    return reads


def _see(monkeypatch: pytest.MonkeyPatch, kind: Any, reads: Reads) -> None:
    read, tail = kind.read_ranges, kind.tail

    def read_ranges(self: Any, ranges: Sequence[ByteRange]) -> list[bytes]:
        reads.seen += [(self.path, one.start, one.stop) for one in ranges]
        found: list[bytes] = read(self, ranges)
        return found

    def read_tail(self: Any, length: int) -> tuple[bytes, int]:
        reads.seen.append((self.path, TAIL, TAIL))
        found: tuple[bytes, int] = tail(self, length)
        return found

    monkeypatch.setattr(kind, "read_ranges", read_ranges)
    monkeypatch.setattr(kind, "tail", read_tail)
