"""What metadata knows of a column's aggregates: block sums of an index, or what footers tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from skipstone.aggregate.units import by_part
from skipstone.core.domain.keys import Key, from_key
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir.nodes import ColumnRef
from skipstone.index.coverage import Recorded
from skipstone.parquet.evidence import row_group_counts
from skipstone.partial.blocks import Blocks, Facet
from skipstone.partial.reading import constant_blocks
from skipstone.prune.survey import Part, Survey


def known_blocks(survey: Survey, ref: ColumnRef, facets: Facet, units: Array) -> Blocks:
    """The aggregates of a column in some row groups (rising), as far as they are known."""
    found = _stored(survey, ref, units)
    given = survey.given.get(ref.path)
    facts = survey.facts(ref).take(units)
    if given is not None:
        # What partitions state stands for what is stored.
        stated = np.ones(len(units), dtype=bool) if given.where is None else given.where[survey.owners[units]]
        found = replace(found, known=np.where(stated, 0, found.known).astype(np.uint8))
    lacking = (found.known & facets) != facets
    if lacking.any():
        found = _with_constants(found, facts, survey.rows[units], facets, lacking)
    return found


def _stored(survey: Survey, ref: ColumnRef, units: Array) -> Blocks:
    parts = [_of_part(part, ref, mine) for part, mine in by_part(survey, units)]
    return Blocks.concat(parts) if parts else Blocks.unknown(ref.type, 0)


def _of_part(part: Part, ref: ColumnRef, units: Array) -> Blocks:
    if isinstance(part, Recorded):
        groups = part.groups[units]
        blocks = part.segment.blocks("group", ref, groups)
        if blocks is not None:
            return blocks
        if part.segment.has("group", ref):
            segment = part.segment
            nulls, nans = segment.nulls("group", ref, groups), segment.nans("group", ref, groups)
            return told(segment.facts("group", ref, groups), part.rows[units], nulls, nans)
    # A loop over files: each has its own footer.
    counts = [row_group_counts(part.file(number), ref) for number in range(len(part.counts))]
    nulls, nans = (np.concatenate(side)[units] for side in zip(*counts, strict=True))
    return told(part.facts(ref).take(units), part.rows[units], nulls, nans)


def _with_constants(blocks: Blocks, facts: ColumnFacts, rows: Array, facets: Facet, lacking: Array) -> Blocks:
    """Units in which a column has one value, or none, are known whatever is asked of them."""
    for value, mine in constants(facts, lacking):
        order = np.arange(len(blocks))
        order[mine] = len(blocks) + np.arange(len(mine))
        found = constant_blocks(facts.type, value, rows[mine], facets)
        blocks = Blocks.concat([blocks, found]).take(order)
    return blocks


def told(facts: ColumnFacts, rows: Array, nulls: Array, nans: Array) -> Blocks:
    """What bounds and counts say: counts are -1 where they are unknown."""
    nulls, nans = np.where(facts.may_null, nulls, 0), np.where(facts.may_nan, nans, 0)
    counted, sorted_out = nulls >= 0, nans >= 0
    count = np.where(counted, rows - nulls, 0)
    has = facts.may_value & ~(counted & sorted_out & (count == nans))
    ends = sorted_out & (~has | (facts.lower_exact & facts.upper_exact))
    known = np.where(counted, Facet.COUNT, 0) | np.where(ends, Facet.ENDS, 0)
    return replace(
        Blocks.unknown(facts.type, len(facts)),
        known=known.astype(np.uint8),
        count=count,
        nans=np.maximum(nans, 0),
        lower=facts.lower,
        upper=facts.upper,
        has=has,
    )


def constants(facts: ColumnFacts, among: Array) -> list[tuple[pa.Scalar, Array]]:
    """The values that some units have throughout, each with the units; NULL for those of NULLs only."""
    nothing = ~facts.may_value & ~facts.may_nan
    found = []
    only_null = np.flatnonzero(among & nothing)
    if len(only_null):
        found.append((pa.scalar(None, facts.type), only_null))
    one = among & facts.may_value & ~facts.may_null & ~facts.may_nan & facts.lower_exact & facts.upper_exact
    if isinstance(facts.lower, pa.Array):
        same = np.array(
            [
                a is not None and a == b
                for a, b in zip(facts.lower.to_pylist(), facts.upper.to_pylist(), strict=True)
            ]
        )
        places = np.flatnonzero(one & same) if len(same) else np.zeros(0, dtype=np.int64)
        keys = [facts.lower[int(at)].as_py() for at in places.tolist()]
    else:
        places = np.flatnonzero(one & (facts.lower == facts.upper))
        keys = facts.lower[places].tolist()
    by_key: dict[Key, list[int]] = {}
    for key, at in zip(keys, places.tolist(), strict=True):
        by_key.setdefault(key, []).append(at)
    found += [(from_key(facts.type, key), np.array(mine)) for key, mine in by_key.items()]
    return found


def known_sketches(survey: Survey, ref: ColumnRef, kind: str, units: Array) -> list[bytes | None]:
    """The sketches of a column in some row groups (rising), where an index has them."""
    found: list[bytes | None] = []
    for part, mine in by_part(survey, units):
        blobs = None
        if isinstance(part, Recorded) and ref.path not in survey.given:
            blobs = part.segment.sketches(kind, ref, part.groups[mine])
        found += [None] * len(mine) if blobs is None else blobs
    return found
