"""The account of an aggregation: where answers come from, and what sets of members rule out."""

from __future__ import annotations

import numpy as np

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.counting import Counted
from skipstone.aggregate.members import Members, Places
from skipstone.aggregate.prepare import Prepared
from skipstone.report.trace.aggregate import AggregateTrace, ColumnUse, MemberUse
from skipstone.report.trace.scan import ScanTrace


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
        members=None if members is None else _members(scan, prepared, members),
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


def _members(scan: ScanTrace, prepared: Prepared, members: Members) -> MemberUse:
    cover, units = prepared.cover, prepared.units
    kept = units.kept > 0
    outside = int(np.count_nonzero(kept & ~cover.inside))
    whole = kept & cover.inside & ~cover.outside
    if any(isinstance(leaf, Places) for leaf in members.leaves()):
        # Rows at other places were cut off before.
        whole &= units.kept == units.rows
    told = members.told()
    if any(isinstance(test, Counted) for test in prepared.tests.values()):
        told += ("ids count up from row to row: members are told by their places, ids are not read",)
    rows = scan.rows_kept - prepared.live
    return MemberUse(told, int(np.count_nonzero(kept)), outside, int(np.count_nonzero(whole)), rows)
