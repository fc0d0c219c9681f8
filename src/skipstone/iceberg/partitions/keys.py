"""Partition keys: which spec a file was written under, and its partition's values in one exact order."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import copysign
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

from skipstone.errors import SchemaError, UsageError

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
        # The hash of a text differs from process to process, so it is worked out anew.
        return PartitionKey, (self.spec_id, self.partition)

    def __str__(self) -> str:
        values = "unpartitioned" if self.partition is None else ", ".join(map(_shown, self.partition))
        return f"spec {self.spec_id} ({values})"


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a spec divides nothing: it has no fields, or only void ones."""
    return all(isinstance(f.transform, VoidTransform) for f in spec.fields)


def group_order(
    keys: Sequence[PartitionKey], sequences: Sequence[int], paths: Sequence[str]
) -> list[tuple[PartitionKey, list[int]]]:
    """N files grouped by key: groups in the order of their keys, files by data sequence number, then path."""
    groups: dict[PartitionKey, list[int]] = {}
    for file in sorted(range(len(keys)), key=lambda file: (sequences[file], paths[file])):
        groups.setdefault(keys[file], []).append(file)
    return sorted(groups.items(), key=lambda group: group[0].sort_key())


def _tagged(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    rank = _RANKS.get(type(value))
    if rank is None:
        raise UsageError(
            f"{value!r} is no partition value in Iceberg's internal form",
            hint="dates and times are integers, UUIDs are bytes",
        )
    if isinstance(value, float):
        # The sign tells the two zeros apart, which compare equal.
        return (1, rank, 1) if value != value else (1, rank, 0, value, copysign(1.0, value))
    return (1, rank, value)


def _shown(value: Any) -> str:
    return "NULL" if value is None else repr(value)
