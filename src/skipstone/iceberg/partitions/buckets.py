"""Bucket numbers as evidence: partitions in which none of the values that a leaf asks for can be."""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType, DecimalType, LongType, PrimitiveType

from skipstone.core.domain.keys import Key, is_text, storage_type, wide_value
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import Leaf, Node

# With so many values to each bucket hardly one bucket is without any.
_MOST_PER_BUCKET = 16


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """The range of buckets of one column in each of N units; unknown is every bucket."""

    transform: BucketTransform[Any]
    lower: Array
    upper: Array

    @classmethod
    def of(cls, transform: BucketTransform[Any], lower: Sequence[Any], upper: Sequence[Any]) -> Buckets:
        """Ranges from bucket numbers in internal form; one that is absent or impossible is unknown."""
        last = transform.num_buckets - 1
        known = [
            (low, high) if low is not None and high is not None and 0 <= low <= high <= last else (0, last)
            for low, high in zip(lower, upper, strict=True)
        ]
        ends = np.array(known, dtype=np.int64).reshape(-1, 2)
        return cls(transform, ends[:, 0], ends[:, 1])


def bucket_cleared(node: Node, buckets: Mapping[tuple[str, ...], Sequence[Buckets]]) -> dict[int, Array]:
    """For leaves (by ``id``) that ask for single values: the units whose buckets hold none of them."""
    cleared: dict[int, Array] = {}
    for leaf in node.leaves():
        for mine in buckets.get(leaf.ref.path, ()):
            numbers = _asked(leaf, mine.transform)
            if numbers is None:
                continue
            first = np.searchsorted(numbers, mine.lower)
            none = numbers[np.minimum(first, len(numbers) - 1)] > mine.upper
            none |= first == len(numbers)
            cleared[id(leaf)] = cleared[id(leaf)] | none if id(leaf) in cleared else none
    return cleared


def _asked(leaf: Leaf, transform: BucketTransform[Any]) -> Array | None:
    """The buckets of the values for which the leaf may be TRUE, in order; None if that may be any."""
    if leaf.ref.via or leaf.true.nulls or leaf.true.nans:
        return None
    points = leaf.true.spans.points()
    if points is None or not 0 < len(points) <= _MOST_PER_BUCKET * transform.num_buckets:
        return None
    keys = points.tolist() if isinstance(points, np.ndarray) else points
    if is_text(storage_type(leaf.ref.type)) and any(max(key, default=0) >= 0xF0 for key in keys):
        # Early Java writers hashed characters beyond the sixteenth bit wrongly.
        return None
    numbers = {number for key in keys for number in _numbers(transform, leaf.ref.type, key)}
    return np.array(sorted(numbers), dtype=np.int64) if numbers else None


def _numbers(transform: BucketTransform[Any], type: pa.DataType, key: Key) -> Iterator[int]:
    """Every bucket that a writer may have put the value with this key into."""

    def number(source: PrimitiveType, value: Any) -> int:
        return int(transform.transform(source)(value))

    storage = storage_type(type)
    if pa.types.is_decimal(storage):
        whole = wide_value(key) if isinstance(key, bytes) else int(key)
        yield number(DecimalType(38, 0), decimal.Decimal(whole))
        # Some writers took one byte more than needed for the least number of each length.
        longer = whole.to_bytes((whole.bit_length() + 8) // 8, "big", signed=True)
        yield number(BinaryType(), longer)
    elif isinstance(key, bytes):
        yield number(BinaryType(), key)
    elif pa.types.is_timestamp(storage) and storage.unit == "ns":
        # Hashed as microseconds, which are rounded down or, before 1970, by some toward zero.
        yield number(LongType(), int(key) // 1000)
        if key < 0:
            yield number(LongType(), -(-int(key) // 1000))
    else:
        yield number(LongType(), int(key))
