"""Byte ranges and how nearby ones become one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
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
        for want, owner in zip(self.wanted, self.owners, strict=True):
            body = bodies[owner] if owner >= 0 else b""
            start = want.start - self.requests[owner].start if owner >= 0 else 0
            pieces.append(body if want.length == len(body) else body[start : start + want.length])
        return pieces


def coalesce(ranges: Sequence[ByteRange], gap: int) -> Coalesced:
    """Merge ranges that overlap or lie at most ``gap`` bytes apart; empty ranges cost no request.

    >>> coalesce([ByteRange(50, 60), ByteRange(0, 10), ByteRange(12, 20)], gap=4).requests
    (ByteRange(start=0, stop=20), ByteRange(start=50, stop=60))
    """
    requests: list[ByteRange] = []
    owners = [-1] * len(ranges)
    starts = [want.start for want in ranges]
    for position in sorted(range(len(ranges)), key=starts.__getitem__):
        want = ranges[position]
        if want.stop <= want.start:
            continue
        if requests and want.start - requests[-1].stop <= gap:
            last = requests[-1]
            requests[-1] = ByteRange(last.start, max(last.stop, want.stop))
        else:
            requests.append(want)
        owners[position] = len(requests) - 1
    return Coalesced(tuple(requests), tuple(ranges), tuple(owners))
