"""Byte ranges and how nearby ones become one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ByteRange(NamedTuple):
    """The bytes from ``start`` up to, not including, ``stop``."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many bytes the range holds."""
        return self.stop - self.start

    def cut(self, size: int) -> list[ByteRange]:
        """The range in parts of ``size`` bytes, the last of which may be shorter."""
        starts = range(self.start, self.stop, size)
        return [ByteRange(start, min(start + size, self.stop)) for start in starts]

    def __str__(self) -> str:
        return f"bytes {self.start}-{self.stop}"


@dataclass(frozen=True, slots=True)
class Coalesced:
    """Requests to make, and for each wanted range which request holds it (-1 for an empty range)."""

    requests: tuple[ByteRange, ...]
    wanted: tuple[ByteRange, ...]
    owners: tuple[int, ...]

    def split(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Cut the answers of the requests into the wanted ranges, in the order they were asked for."""
        pieces = []
        for (start, stop), owner in zip(self.wanted, self.owners, strict=True):
            if owner < 0:
                pieces.append(b"")
                continue
            first, last = self.requests[owner]
            body = bodies[owner]
            pieces.append(body if (first, last) == (start, stop) else body[start - first : stop - first])
        return pieces


def coalesce(ranges: Sequence[ByteRange], gap: int) -> Coalesced:
    """Merge ranges that overlap or lie at most ``gap`` bytes apart; empty ranges cost no request.

    >>> coalesce([ByteRange(50, 60), ByteRange(0, 10), ByteRange(12, 20)], gap=4).requests
    (ByteRange(start=0, stop=20), ByteRange(start=50, stop=60))
    """
    requests: list[ByteRange] = []
    owners = [-1] * len(ranges)
    end = 0
    for position in sorted(range(len(ranges)), key=ranges.__getitem__):
        start, stop = want = ranges[position]
        if stop <= start:
            continue
        if requests and start - end <= gap:
            if stop > end:
                requests[-1] = ByteRange(requests[-1].start, stop)
        else:
            requests.append(want)
        end = requests[-1].stop
        owners[position] = len(requests) - 1
    return Coalesced(tuple(requests), tuple(ranges), tuple(owners))
