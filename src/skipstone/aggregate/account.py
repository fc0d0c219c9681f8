"""The account of an aggregation: where answers come from, and what sets of members rule out."""

from __future__ import annotations

import numpy as np

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.members import Members
from skipstone.aggregate.prepare import Prepared
from skipstone.trace.aggregate import AggregateTrace, ColumnUse, MemberUse
from skipstone.trace.scan import ScanTrace


def account_of(
    scan: ScanTrace, binding: Binding, prepared: Prepared, members: Members | None, *, cached: bool
) -> AggregateTrace:
    """What phase one found, as data."""
    return AggregateTrace(
        scan=scan,
        functions=tuple(output.name for output in binding.outputs),
        group_by=tuple(field.name for field in binding.key_fields),
        rows=prepared.live,
        columns=_columns(binding, prepared),
        members=None if members is None else _members(prepared, members),
        cached=cached,
    )


def _columns(binding: Binding, prepared: Prepared) -> tuple[ColumnUse, ...]:
    uses = []
    for number, (measure, found) in enumerate(zip(binding.measures, prepared.found, strict=True)):
        names = tuple(output.name for output in binding.outputs if output.measure == number)
        if names:
            column = ".".join(measure.columns[0]) if measure.columns else ""
            read = sum(map(len, found.read.values()))
            uses.append(ColumnUse(column, names, found.answered, read, found.why))
    return tuple(uses)


def _members(prepared: Prepared, members: Members) -> MemberUse:
    cover, kept = prepared.cover, prepared.units.kept > 0
    outside = int(np.count_nonzero(kept & ~cover.inside))
    inside = int(np.count_nonzero(kept & cover.inside & ~cover.outside))
    return MemberUse(members.told(), int(np.count_nonzero(kept)), outside, inside, prepared.outside)
