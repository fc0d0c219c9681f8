"""States put together: of blocks, of pieces that were read, of tasks elsewhere, in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.aggregate.grouping import group_rows, number_groups, runs_of
from skipstone.partial.states import Measure, Path


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The state of one measure in some groups: their keys, a column each (none without ``group_by``)."""

    measure: int
    keys: Sequence[pa.Array]
    state: Any
    groups: int
    """Groups of the state; without keys they are parts of the one group."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """What to make of rows: measures by number, and the columns that tell groups apart."""

    keys: tuple[Path, ...]
    measures: Mapping[int, Measure[Any]]

    def count_in(self, table: pa.Table) -> tuple[tuple[Known, ...], int]:
        """The states of the groups of a table's rows, and how many rows those are."""
        if not len(table):
            return (), 0
        keys, rows = group_rows(table, self.keys)
        known = (
            Known(number, keys, measure.update(rows), len(rows.starts))
            for number, measure in self.measures.items()
        )
        return tuple(known), len(table)


def merged(known: Sequence[Known], measures: Mapping[int, Measure[Any]]) -> tuple[Known, ...]:
    """The same with one state per measure, in which every group is once."""
    parts: dict[int, list[Known]] = {}
    for one in known:
        parts.setdefault(one.measure, []).append(one)
    return tuple(_together(number, measures[number], mine) for number, mine in parts.items())


def _together(number: int, measure: Measure[Any], parts: Sequence[Known]) -> Known:
    state = parts[0].state if len(parts) == 1 else measure.join([part.state for part in parts])
    count = sum(part.groups for part in parts)
    if not parts[0].keys:
        return Known(number, [], measure.fold(state, np.arange(count), np.zeros(1, dtype=np.int64)), 1)
    keys = [pa.concat_arrays(columns) for columns in zip(*(part.keys for part in parts), strict=True)]
    if not count:
        return Known(number, keys, state, 0)
    codes, some = number_groups(keys)
    state = measure.fold(state, *runs_of(codes))
    return Known(number, [key.take(pa.array(some)) for key in keys], state, len(some))


def aligned(known: Known, measure: Measure[Any], keys: Sequence[pa.Array]) -> Any:
    """A merged state with its groups in the order of ``keys``, which has all of them and no others."""
    if not keys or not len(keys[0]):
        return known.state
    both = [pa.concat_arrays([wanted, own]) for wanted, own in zip(keys, known.keys, strict=True)]
    codes, _ = number_groups(both)
    count = len(keys[0])
    place = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[codes[count:]] = np.arange(known.groups)
    order = place[codes[:count]]
    assert (order >= 0).all(), "every measure sees every group"
    return measure.fold(known.state, order, np.arange(count))
