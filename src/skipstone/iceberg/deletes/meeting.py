"""Which equality deletes can't meet the rows of a data file, told from the metrics of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array, ColumnFacts

if TYPE_CHECKING:
    from skipstone.iceberg.manifests.entries import Entries

Facts: TypeAlias = "Callable[[Entries, int], ColumnFacts]"
"""What manifests say about a field, by its id, in each of some files."""
Meeting: TypeAlias = Callable[[Array, Array], Array]
"""Per pair of a data file and a delete file, whether the one may apply to the other."""


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One equality column on both sides, as bounds that compare with each other."""

    used: Array
    """By which delete files."""
    data: ColumnFacts
    deletes: ColumnFacts
    lowers: tuple[Array, Array]
    uppers: tuple[Array, Array]

    @classmethod
    def of(cls, used: Array, data: ColumnFacts, deletes: ColumnFacts) -> _Column:
        lowers, uppers = (data.lower, deletes.lower), (data.upper, deletes.upper)
        if isinstance(data.lower, pa.Array):
            lowers, uppers = _ranked(lowers, uppers)
        return cls(used, data, deletes, lowers, uppers)

    def meets(self, units: Array, which: Array) -> Array:
        """Whether a value, NULL or NaN may be on both sides."""
        one, other = self.data, self.deletes
        found = (self.lowers[0][units] <= self.uppers[1][which]) & (
            self.lowers[1][which] <= self.uppers[0][units]
        )
        found &= one.may_value[units] & other.may_value[which]
        found |= one.may_null[units] & other.may_null[which]
        found |= one.may_nan[units] & other.may_nan[which]
        return np.asarray(found | ~self.used[which])


def meeting(data: Entries, deletes: Entries, facts: Facts) -> Meeting:
    """Whether rows of a data file may have the values that an equality delete file deletes."""
    ids = sorted({number for some in deletes.equality_ids for number in some})
    columns = [
        _Column.of(
            np.array([number in some for some in deletes.equality_ids], dtype=bool),
            facts(data, number),
            facts(deletes, number),
        )
        for number in ids
    ]

    def meets(units: Array, which: Array) -> Array:
        found = np.ones(len(units), dtype=bool)
        for column in columns:
            found &= column.meets(units, which)
        return found

    return meets


def _ranked(
    lowers: Sequence[pa.Array], uppers: Sequence[pa.Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Byte bounds as ranks; an unknown one is the lowest or the highest of all."""
    parts = [*lowers, *uppers]
    ranks = np.asarray(pc.rank(pa.concat_arrays(parts), tiebreaker="dense")).astype(np.int64)
    edges = np.cumsum([0, *map(len, parts)])
    open_ends = (0, 0, int(ranks.max(initial=0)) + 1, int(ranks.max(initial=0)) + 1)
    made = [
        np.where(part.is_null(), end, ranks[first:last])
        for part, end, first, last in zip(parts, open_ends, edges[:-1], edges[1:], strict=True)
    ]
    return (made[0], made[1]), (made[2], made[3])
