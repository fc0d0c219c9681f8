"""Evidence from manifests: the metrics of a column in N files become facts, as far as the law lets them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import GeographyType, GeometryType, IcebergType, PrimitiveType, UUIDType

from skipstone.core.domain.keys import PRESENCE, Kind, key_space, storage_type
from skipstone.core.evidence import Array, Bounds, ColumnFacts, widest
from skipstone.errors import SchemaError
from skipstone.iceberg.columns.schema import arrow_type
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.manifests.values import decode_keys
from skipstone.parquet.values import widen

# Writers order UUIDs as signed or as unsigned; what bounds of shapes mean is not an order at all.
_UNTRUSTED = (UUIDType, GeometryType, GeographyType)


def file_facts(
    entries: Entries, field_id: int, ref_type: pa.DataType, field_type: IcebergType, required: bool
) -> ColumnFacts:
    """What manifests say about a column in each file.

    ``required`` says that neither the column nor a struct around it may be NULL. Bounds are valid, not
    values: writers cut texts short. Where values were not counted once a row,
    or a file claims to have no rows, nothing is known.
    """
    units = len(entries)
    own = _own_type(field_type)
    steps = None if own is None else widen(own, storage_type(ref_type))
    if own is None or steps is None:
        return ColumnFacts.unknown(ref_type, units)
    found = entries.metrics(field_id)
    rows = entries.rows
    floating = key_space(own).kind is Kind.FLOAT
    # Of a repeated column, values are not rows. Whether a file has none at all only its footer can tell.
    per_row = ((found.values < 0) | (found.values == rows)) & (rows > 0)
    nulls_known = per_row & (found.nulls >= 0) & (found.nulls <= rows)
    nans_known = per_row & (found.nans >= 0) & (found.nans <= rows)
    stated = np.asarray(found.lower.is_valid()) | np.asarray(found.upper.is_valid())
    low, low_ok, high, high_ok, no_number = _bounds(field_type, found.lower, found.upper)
    low_ok, high_ok = low_ok & per_row, high_ok & per_row
    counted = nulls_known & (found.values == rows)
    # Counts alone prove nothing about the rest: bounds that are there deny it.
    all_null = counted & (found.nulls == rows) & ~stated
    all_nan = counted & nans_known & (found.nulls + found.nans == rows) & (~stated | no_number) & floating
    may_null = ~(nulls_known & (found.nulls == 0))
    if required:
        # Even so, a count is believed: the column may have become required after the file was written.
        may_null &= nulls_known
    meet = _meet(low, high) & low_ok & high_ok & nulls_known
    others = found.nulls + np.where(nans_known, found.nans, rows if floating else 0)
    exact = meet & (others < rows) & (not _may_be_cut(own))
    floor, ceiling = widest(own, units)
    facts = ColumnFacts(
        own,
        _merge(low, low_ok, floor),
        _merge(high, high_ok, ceiling),
        exact,
        exact,
        may_value=~all_null & ~all_nan,
        may_null=may_null,
        may_nan=~(nans_known & (found.nans == 0)) & ~all_null & floating,
    )
    for step in steps:
        facts = facts.through(step)
    return replace(facts, type=ref_type)


def _own_type(field_type: IcebergType) -> pa.DataType | None:
    """The Arrow type of the values; None if metadata can't order them."""
    if not isinstance(field_type, PrimitiveType):
        return None
    try:
        own = arrow_type(field_type)
    except SchemaError:
        return None
    return None if key_space(own) is PRESENCE else own


def _bounds(
    field_type: IcebergType, lower: pa.Array, upper: pa.Array
) -> tuple[Bounds, Array, Bounds, Array, Array]:
    """Keys of the bounds and which can be believed; and in which files both are NaN."""
    low, low_ok = decode_keys(field_type, lower)
    high, high_ok = decode_keys(field_type, upper)
    neither = np.zeros(len(lower), dtype=bool)
    if isinstance(field_type, _UNTRUSTED):
        return low, neither, high, neither, neither
    if isinstance(low, pa.Array):
        crossed = np.asarray(pc.greater(low, high).fill_null(False))
        return low, low_ok & ~crossed, high, high_ok & ~crossed, neither
    if low.dtype.kind == "f":
        wrong = np.isnan(low) | np.isnan(high)
        neither = np.isnan(low) & np.isnan(high) & low_ok & high_ok
        # Either zero may stand for the other.
        low, high = np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)
    else:
        wrong = neither
    wrong = wrong | (low_ok & high_ok & (low > high))
    return low, low_ok & ~wrong, high, high_ok & ~wrong, neither


def _meet(low: Bounds, high: Bounds) -> Array:
    if isinstance(low, pa.Array):
        return np.asarray(pc.equal(low, high).fill_null(False))
    equal: Array = (low == high) & (low != 0) if low.dtype.kind == "f" else low == high
    return equal


def _may_be_cut(own: pa.DataType) -> bool:
    return key_space(own).kind is Kind.BYTES and not pa.types.is_decimal(own)


def _merge(keys: Bounds, ok: Array, otherwise: Bounds) -> Bounds:
    if isinstance(keys, pa.Array):
        return keys if ok.all() else pc.if_else(pa.array(ok), keys, otherwise)
    return keys if ok.all() else np.where(ok, keys, otherwise)
