"""Partition keys, and partition values of rows: transforms of entire columns."""

from __future__ import annotations

import decimal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import copysign
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
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

    ``partition`` is None if the spec is unpartitioned. Values of different types differ: 1, 1.0 and True are
    three keys; so are 0.0 and -0.0 two. NaN is one value.
    """

    spec_id: int
    partition: tuple[Any, ...] | None
    _order: tuple[Any, ...] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # A flat tuple, as tables have many keys; tags keep values of different length from mixing.
        order: tuple[Any, ...] = (self.spec_id, self.partition is not None)
        for value in self.partition or ():
            order += _tagged(value)
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_hash", hash(order))

    @classmethod
    def of(cls, spec: PartitionSpec, values: Sequence[Any]) -> PartitionKey:
        """The key of a file that was written under ``spec``."""
        if is_unpartitioned(spec):
            return cls(spec.spec_id, None)
        if len(values) != len(spec.fields):
            raise SchemaError(
                f"file has {len(values)} partition values, but the spec has {len(spec.fields)} fields",
                unit=f"partition spec {spec.spec_id}",
                hint="check whether the manifest belongs to another table",
            )
        return cls(spec.spec_id, tuple(values))

    def sort_key(self) -> tuple[Any, ...]:
        """Orders keys by spec, then by value: NULL first, 9 before 10, NaN last."""
        return self._order

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionKey) and self._order == other._order

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # String hashes differ between processes, so the hash is not pickled.
        return PartitionKey, (self.spec_id, self.partition)

    def __str__(self) -> str:
        values = "unpartitioned" if self.partition is None else ", ".join(map(_shown, self.partition))
        return f"spec {self.spec_id} ({values})"


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a spec has no fields, or only void ones."""
    return all(isinstance(f.transform, VoidTransform) for f in spec.fields)


def _tagged(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    rank = _RANKS.get(type(value))
    if rank is None:
        raise UsageError(
            f"{value!r} is not a partition value in Iceberg's internal form",
            hint="pass dates and times as integers, UUIDs as bytes",
        )
    if isinstance(value, float):
        # The sign distinguishes the two zeros, which compare equal.
        return (1, rank, 1) if value != value else (1, rank, 0, value, copysign(1.0, value))
    return (1, rank, value)


def partition_texts(key: PartitionKey, specs: Mapping[int, PartitionSpec], schema: Schema) -> dict[str, str]:
    """Partition values for people by field name, such as ``{"ts_day": "2026-01-01", "id_bucket": "3"}``."""
    spec, texts = specs.get(key.spec_id), dict[str, str]()
    for one, value in zip(() if spec is None else spec.fields, key.partition or (), strict=False):
        if isinstance(one.transform, VoidTransform):
            continue
        try:
            shown = one.transform.to_human_string(schema.find_type(one.source_id), value)
        except (ValueError, TypeError, OverflowError):
            # A dropped source column, or a value that the transform can't show.
            shown = _shown(value)
        texts[one.name] = "NULL" if value is None else shown
    return texts


def partition_name(key: PartitionKey, specs: Mapping[int, PartitionSpec], schema: Schema) -> str:
    """A partition for people, such as ``ts_day=2026-01-01, id_bucket=3``."""
    if key.partition is None:
        return "unpartitioned"
    parts = [f"{name}={text}" for name, text in partition_texts(key, specs, schema).items()]
    return ", ".join(parts) or str(key)


def _shown(value: Any) -> str:
    return "NULL" if value is None else repr(value)


_MICROS: Final = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
_DAY: Final = 86_400_000_000
_HOUR: Final = 3_600_000_000
_PERIODS: Final = (YearTransform, MonthTransform, DayTransform, HourTransform)
_CALENDAR: Final[dict[type, str]] = {YearTransform: "datetime64[Y]", MonthTransform: "datetime64[M]"}


def partition_values(
    transform: Transform[Any, Any], source: PrimitiveType, column: pa.Array, name: str = ""
) -> pa.Array:
    """Apply a transform to a column of the table's type.

    Dates and times are integers in the result, UUIDs are bytes. ``name`` is for messages.
    """
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(column), pa.int32())
    if not transform.can_transform(source):
        hint = "write with an engine that supports this partition spec"
        raise UsageError(f"unsupported partition transform {transform} of {source}", column=name, hint=hint)
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
        hint = "remove the value, or change the partition spec"
        raise SchemaError(
            f"value is out of range of the partition transform {transform}: {error}", column=name, hint=hint
        ) from error
    hint = "write with an engine that supports it"
    raise UsageError(f"unknown partition transform {transform}", column=name, hint=hint)


def internal(column: pa.Array) -> pa.Array:
    """A column in Iceberg's internal form: dates and times as integers, UUIDs as bytes."""
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
    """Inclusive range of the column values that these partition values can come from, without NULL.

    None if unknown.
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
    temporal = pa.types.is_temporal(type)
    try:
        ends = pa.array([least, most], stored if temporal else type)
    except (pa.ArrowException, OverflowError):
        return None
    ends = ends.view(type) if temporal else ends
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
        periods = days.astype("datetime64[D]").astype(unit).astype(np.int64)
    else:
        periods = days if isinstance(transform, DayTransform) else hours
    return pa.array(periods, mask=nulls).cast(pa.int32())


def _micros(column: pa.Array) -> Array:
    """Microseconds of times, rounded down; 0 for NULL."""
    more, less = _MICROS[column.type.unit]
    micros: Array = np.floor_divide(np.asarray(internal(column).fill_null(0)), less) * more
    return micros


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
        truncated = whole - np.mod(whole, width)
        if (truncated > whole).any():
            raise OverflowError("truncated value does not fit 64 bits")
        return pa.array(truncated, mask=np.asarray(values.is_null())).cast(type)
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
    buckets = (hashed & np.uint32(0x7FFFFFFF)).astype(np.int64) % transform.num_buckets
    return pa.array(buckets, pa.int32(), mask=np.asarray(values.is_null()))


def _hash_longs(values: Array) -> Array:
    """Murmur3 of the eight bytes of each number, as Iceberg hashes integers and times."""
    whole = values.view(np.uint64)
    low = (whole & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (whole >> np.uint64(32)).astype(np.uint32)
    hashes = np.zeros(len(whole), np.uint32)
    with np.errstate(over="ignore"):
        for half in (low, high):
            mixed = _rotated(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            hashes = _rotated(hashes ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashes ^= np.uint32(8)
        hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    result: Array = hashes ^ (hashes >> np.uint32(16))
    return result


def _rotated(values: Array, by: int) -> Array:
    rotated: Array = (values << np.uint32(by)) | (values >> np.uint32(32 - by))
    return rotated


def _each(function: Any, values: pa.Array, type: pa.DataType) -> pa.Array:
    """Apply a function to each distinct value, of which partition columns have few."""
    coded = values.dictionary_encode()
    results = pa.array([function(value) for value in coded.dictionary.to_pylist()], type)
    return results.take(coded.indices)
