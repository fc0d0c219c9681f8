"""Wall clocks and instants: offsets of a time zone for whole columns of seconds.

By Python's zone rules, not Arrow's: those end in 2037.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from skipstone.core.filter.truth import Array
from skipstone.core.ir.literals import find_zone, fixed_offset
from skipstone.core.ir.transforms import DAY

_CYCLE = 400 * 365 * DAY + 97 * DAY  # the Gregorian calendar, weekdays included, repeats
_FIRST, _LAST = -62_000_000_000, 253_000_000_000  # well inside the years Python has
_EPOCH = dt.datetime(1970, 1, 1)


def offset_of_instant(seconds: Array, zone: str) -> Array:
    """Seconds that clocks in ``zone`` are ahead of UTC at each instant."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return np.full(len(seconds), fixed, dtype=np.int64)
    tz = find_zone(zone)

    def offset(second: int) -> int:
        moment = (_EPOCH + dt.timedelta(seconds=second)).replace(tzinfo=dt.UTC)
        return _seconds(moment.astimezone(tz))

    return _by_day(seconds, offset)


def offset_of_wall(seconds: Array, zone: str) -> Array:
    """Seconds ahead of UTC of each wall-clock time; in a gap or overlap the earlier offset counts."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return np.full(len(seconds), fixed, dtype=np.int64)
    tz = find_zone(zone)
    return _by_day(
        seconds, lambda second: _seconds((_EPOCH + dt.timedelta(seconds=second)).replace(tzinfo=tz))
    )


def _seconds(local: dt.datetime) -> int:
    shift = local.utcoffset()
    assert shift is not None
    return int(shift.total_seconds())


def _by_day(seconds: Array, offset: Callable[[int], int]) -> Array:
    """``offset`` of each second: one call for the ends of a day, more only where clocks change in it."""
    moved = np.where(seconds < _FIRST, _FIRST, seconds)
    over = moved > _LAST
    if over.any():
        moved = np.where(over, (moved - _LAST) % _CYCLE + _LAST - _CYCLE, moved)
    coded = pa.array(moved // DAY).dictionary_encode()
    days, place = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    firsts = np.array([offset(day * DAY) for day in days], dtype=np.int64)
    lasts = np.array([offset(day * DAY + DAY - 1) for day in days], dtype=np.int64)
    found = firsts[place]
    for row in np.flatnonzero((firsts != lasts)[place]):
        found[row] = offset(int(moved[row]))
    return np.asarray(found)
