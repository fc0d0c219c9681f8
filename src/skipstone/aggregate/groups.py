"""Keys of groups that metadata knows: of units in which every key column has one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skipstone.aggregate.grouping import plain_key
from skipstone.aggregate.known import constants
from skipstone.aggregate.units import Units
from skipstone.core.evidence import Array
from skipstone.core.filter.rows import plain, plain_type
from skipstone.core.ir.nodes import ColumnRef


@dataclass(frozen=True, slots=True, eq=False)
class UnitKeys:
    """Per unit the group that all of its rows are in, where it is ``fixed``."""

    columns: tuple[pa.Array, ...]
    fixed: Array

    @classmethod
    def of(cls, units: Units, refs: Sequence[ColumnRef]) -> UnitKeys:
        """Look for units without a choice; without keys there is one group for all."""
        fixed = np.ones(len(units), dtype=bool)
        columns = []
        for ref in refs:
            facts = units.survey.facts(ref).take(units.group)
            found = constants(facts, np.ones(len(units), dtype=bool))
            places = np.full(len(units), -1, dtype=np.int64)
            for number, (_, mine) in enumerate(found):
                places[mine] = number
            fixed &= places >= 0
            # One by one: they are few, and may be of any type.
            type = plain_type(ref.type)
            values = [plain(pa.repeat(v, 1)) if v.is_valid else pa.nulls(1, type) for v, _ in found]
            known = plain_key(pa.chunked_array(values, type))
            columns.append(known.take(pa.array(places, mask=places < 0)))
        return cls(tuple(columns), fixed)

    def take(self, units: Array) -> list[pa.Array]:
        """The keys of some units."""
        return [column.take(pa.array(units)) for column in self.columns]
