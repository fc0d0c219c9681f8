"""Partition keys, and the partition values of rows: every transform forward, on whole columns."""

from __future__ import annotations

import decimal
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import copysign
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import PrimitiveType

from skipstone.core.evidence import Array
from skipstone.errors import SchemaError, UsageError
from skipstone.iceberg.partitions.evidence import source_facts

_RANKS = {bool: 0, int: 1, float: 2, decimal.Decimal: 3, str: 4, bytes: 5}


@dataclass(frozen=True, slots=True, eq=False)
class PartitionKey:
    """A spec and the values of one of its partitions, in Iceberg's internal form.

    ``partition`` is None for a file that is not partitioned by its own spec. Values of different types are
    different values: 1, 1.0 and True make three keys; so do 0.0 and -0.0. NaN is one value.
    """

    spec_id: int
    partition: tuple[Any, ...] | None
    _order: tuple[Any, ...] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Flat, as tables have many keys: the tags of two values differ before either ends.
        order: tuple[Any, ...] = (self.spec_id, self.partition is not None)
        for value in self.partition or ():
            order += _tagged(value)
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_hash", hash(order))

    @classmethod
    def of(cls, spec: PartitionSpec, values: Sequence[Any]) -> PartitionKey:
        """The key of a file that was written under ``spec``, whatever the table's default spec is."""
        if is_unpartitioned(spec):
            return cls(spec.spec_id, None)
        if len(values) != len(spec.fields):
            raise SchemaError(
                f"{len(values)} partition values for the {len(spec.fields)} fields of its spec",
                unit=f"partition spec {spec.spec_id}",
                hint="the manifest does not fit the table's metadata",
            )
        return cls(spec.spec_id, tuple(values))

    def sort_key(self) -> tuple[Any, ...]:
        """A tuple that orders keys by spec, then value by value: NULL first, 9 before 10, NaN last."""
        return self._order

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionKey) and self._order == other._order

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # The hash of a text differs from process to process, so it is worked out again.
        return PartitionKey, (self.spec_id, self.partition)

    def __str__(self) -> str:
        values = "unpartitioned" if self.partition is None else ", ".join(map(_shown, self.partition))
        return f"spec {self.spec_id} ({values})"


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a spec divides nothing: it has no fields, or only void ones."""
    return all(isinstance(f.transform, VoidTransform) for f in spec.fields)


def _tagged(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    rank = _RANKS.get(type(value))
    if rank is None:
        raise UsageError(
            f"{value!r} is not a partition value in Iceberg's internal form",
            hint="dates and times are integers, UUIDs are bytes",
        )
    if isinstance(value, float):
        # The sign tells the two zeros apart, which compare equal.
        return (1, rank, 1) if value != value else (1, rank, 0, value, copysign(1.0, value))
    return (1, rank, value)


def _shown(value: Any) -> str:
    return "NULL" if value is None else repr(value)


_MICROS: Final = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
_DAY: Final = 86_400_000_000
_HOUR: Final = 3_600_000_000
_PERIODS: Final = (YearTransform, MonthTransform, DayTransform, HourTransform)
_CALENDAR: Final = {YearTransform: "datetime64[Y]", MonthTransform: "datetime64[M]"}


def partition_values(
    transform: Transform[Any, Any], source: PrimitiveType, column: pa.Array, name: str = ""
) -> pa.Array:
    """What a transform makes of each value of a column of the table's own type.

    Dates and times are numbers in the result, UUIDs are bytes. ``name`` is for messages.
    """
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(column), pa.int32())
    if not transform.can_transform(source):
        hint = "the table's partition spec needs a transform that this version doesn't know"
        raise UsageError(f"{transform} of {source} can't be computed", column=name, hint=hint)
    values = internal(column)
    try:
        if isinstance(transform, IdentityTransform):
            return values
        if isinstance(transform, _PERIODS):
            return _in_time(transform, column)
        if isinstance(transform, TruncateTransform):
            return _truncated(transform, source, values)
        if isinstance(transform, BucketTransform):
            return _bucketed(transform, source, column, values)
    except (pa.ArrowInvalid, OverflowError) as error:
        hint = "the value is too far off for the partition's type: leave it out, or change the spec"
        raise SchemaError(
            f"a value has no partition by {transform}: {error}", column=name, hint=hint
        ) from error
    hint = "write with an engine that knows it"
    raise UsageError(f"the transform {transform} is unknown", column=name, hint=hint)


def internal(column: pa.Array) -> pa.Array:
    """A column of a table's type in Iceberg's internal form: dates and times as numbers, UUIDs as bytes."""
    type = column.type
    if isinstance(column, pa.ExtensionArray):
        return column.storage.cast(pa.binary())
    if pa.types.is_date32(type):
        return column.view(pa.int32())
    if pa.types.is_timestamp(type) or pa.types.is_time64(type):
        return column.view(pa.int64())
    if pa.types.is_fixed_size_binary(type):
        return column.cast(pa.binary())
    return column


def source_span(
    transform: Transform[Any, Any], type: pa.DataType, values: Collection[Any]
) -> tuple[pa.Scalar, pa.Scalar] | None:
    """The least and the greatest value of a column that these partition values can be made of, both included.

    None where nothing can be said; NULL does not count as a value here.
    """
    if pa.types.is_floating(type) or isinstance(type, pa.BaseExtensionType):
        return None
    if isinstance(transform, IdentityTransform):
        least, most = min(values), max(values)
    elif isinstance(transform, _PERIODS):
        facts = source_facts(transform, [*values], type)
        assert facts is not None
        least, most = int(facts.lower.min()), int(facts.upper.max())
    else:
        return None
    stored = pa.int32() if pa.types.is_date32(type) else pa.int64()
    timely = pa.types.is_temporal(type)
    try:
        found = pa.array([least, most], stored if timely else type)
    except (pa.ArrowException, OverflowError):
        return None
    ends = found.view(type) if timely else found
    return ends[0], ends[1]


# -- times -------------------------------------------------------------------------------------


def _in_time(transform: Any, column: pa.Array) -> pa.Array:
    nulls = np.asarray(column.is_null())
    if pa.types.is_date(column.type):
        days = np.asarray(internal(column).fill_null(0)).astype(np.int64)
        hours = days * 24
    else:
        micros = _micros(column)
        days, hours = np.floor_divide(micros, _DAY), np.floor_divide(micros, _HOUR)
    unit = _CALENDAR.get(type(transform))
    if unit is not None:
        found = days.astype("datetime64[D]").astype(unit).astype(np.int64)
    else:
        found = days if isinstance(transform, DayTransform) else hours
    return pa.array(found, mask=nulls).cast(pa.int32())


def _micros(column: pa.Array) -> Array:
    """Microseconds of times, rounded down; 0 for NULL."""
    more, less = _MICROS[column.type.unit]
    found: Array = np.floor_divide(np.asarray(internal(column).fill_null(0)), less) * more
    return found


# -- prefixes ----------------------------------------------------------------------------------


def _truncated(transform: TruncateTransform[Any], source: PrimitiveType, values: pa.Array) -> pa.Array:
    width: int = transform.width
    type = values.type
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return pc.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(type) or pa.types.is_large_binary(type):
        return pc.binary_slice(values, 0, width)
    if pa.types.is_integer(type):
        whole = np.asarray(values.fill_null(0)).astype(np.int64)
        found = whole - np.mod(whole, width)
        if (found > whole).any():
            raise OverflowError("the multiple below the value does not fit 64 bits")
        return pa.array(found, mask=np.asarray(values.is_null())).cast(type)
    return _each(transform.transform(source), values, type)


# -- buckets -----------------------------------------------------------------------------------


def _bucketed(
    transform: BucketTransform[Any], source: PrimitiveType, column: pa.Array, values: pa.Array
) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        hashed = _hash_longs(_micros(column))
    elif pa.types.is_integer(values.type):
        hashed = _hash_longs(np.asarray(values.fill_null(0)).astype(np.int64))
    else:
        return _each(transform.transform(source), values, pa.int32())
    found = (hashed & np.uint32(0x7FFFFFFF)).astype(np.int64) % transform.num_buckets
    return pa.array(found, pa.int32(), mask=np.asarray(values.is_null()))


def _hash_longs(values: Array) -> Array:
    """Murmur3 of the eight bytes of each number, as Iceberg hashes whole numbers and times."""
    whole = values.view(np.uint64)
    low = (whole & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (whole >> np.uint64(32)).astype(np.uint32)
    found = np.zeros(len(whole), np.uint32)
    with np.errstate(over="ignore"):
        for half in (low, high):
            mixed = _rotated(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            found = _rotated(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        found ^= np.uint32(8)
        found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    result: Array = found ^ (found >> np.uint32(16))
    return result


def _rotated(values: Array, by: int) -> Array:
    rotated: Array = (values << np.uint32(by)) | (values >> np.uint32(32 - by))
    return rotated


def _each(made: Any, values: pa.Array, type: pa.DataType) -> pa.Array:
    """What a function makes of each different value: what is partitioned by has few."""
    coded = values.dictionary_encode()
    results = pa.array([made(value) for value in coded.dictionary.to_pylist()], type)
    return results.take(coded.indices)
