"""What a cascade asks of its driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from skipstone.prune.options import BloomRequest
from skipstone.store.ranges import ByteRange


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bytes of one of the survey's files."""

    file: int
    range: ByteRange


Need: TypeAlias = list[Fetch] | list[BloomRequest]
Unusable: TypeAlias = Callable[[int, tuple[str, ...], str, str], None]
"""Takes note of metadata that can't be used: row group, column, what it is, why."""


def is_blooms(need: Need) -> TypeGuard[list[BloomRequest]]:
    """Whether bloom filters are asked for, rather than bytes."""
    return bool(need) and isinstance(need[0], BloomRequest)


def ranges_of(need: Need) -> list[ByteRange]:
    """The ranges of a need for bytes of one file."""
    return [fetch.range for fetch in need if isinstance(fetch, Fetch)]
