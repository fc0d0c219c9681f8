"""What the partition values of one spec can say about a predicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import BucketTransform, Transform, UnknownTransform

from skipstone.core.evidence import Array, ColumnFacts, Evidence
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.judge import Judgement, judge
from skipstone.errors import SchemaError, TypeMismatchError
from skipstone.iceberg.manifests.reading import PartitionSummary
from skipstone.iceberg.partitions.buckets import Buckets, bucket_cleared
from skipstone.iceberg.partitions.summaries import summary_facts, summary_value
from skipstone.iceberg.partitions.transforms import says_something, source_facts

Path = tuple[str, ...]
Partition = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SourceField:
    """A partition field that is evidence about a column of the lake."""

    position: int
    transform: Transform[Any, Any]
    ref: ColumnRef
    asked: bool
    """Whether the predicate speaks of the column."""

    def facts(self, partitions: Sequence[Partition]) -> ColumnFacts | None:
        """What the field's values in N partitions say about its source."""
        return source_facts(self.transform, self.values(partitions), self.ref.type)

    def values(self, partitions: Sequence[Partition]) -> list[Any]:
        """The field's value in each partition."""
        return [partition[self.position] for partition in partitions]


@dataclass(frozen=True, slots=True)
class Projection:
    """A predicate seen through the fields of one spec."""

    node: Node
    fields: tuple[SourceField, ...]
    ignored: tuple[str, ...] = ()
    """Fields made from a column of the predicate in a way that is not known."""

    @property
    def constrained(self) -> bool:
        """Whether some field speaks of a column of the predicate."""
        return any(field.asked for field in self.fields)

    def cleared(self, partitions: Sequence[Partition]) -> dict[int, Array]:
        """The leaves that bucket numbers prove not to be TRUE in some of N partitions."""
        buckets: dict[Path, list[Buckets]] = {}
        for field in self.fields:
            if field.asked and isinstance(field.transform, BucketTransform):
                numbers = field.values(partitions)
                mine = Buckets.of(field.transform, numbers, numbers)
                buckets.setdefault(field.ref.path, []).append(mine)
        return bucket_cleared(self.node, buckets)


def project_spec(node: Node, spec: PartitionSpec, columns: Mapping[int, ColumnRef]) -> Projection:
    """What ``spec`` can say about ``node``; an error if that can't be told.

    Void fields, and fields whose source is no longer a column, say nothing. Neither does a transform that
    is not known; but a spec that has nothing else to say about the predicate can't be evaluated.
    """
    asked = {ref.path for ref in node.refs()}
    fields: list[SourceField] = []
    ignored = []
    for position, field in enumerate(spec.fields):
        ref = columns.get(field.source_id)
        if ref is None:
            continue
        if isinstance(field.transform, UnknownTransform) and ref.path in asked:
            ignored.append(field)
        elif _speaks(field.transform, ref, asked=ref.path in asked):
            fields.append(SourceField(position, field.transform, ref, ref.path in asked))
    projection = Projection(node, tuple(fields), tuple(field.name for field in ignored))
    if ignored and not projection.constrained:
        raise SchemaError(
            f"the transform of partition field {ignored[0].name!r} is not known",
            column=columns[ignored[0].source_id].name,
            hint="its files can't be told apart by their partitions",
        )
    return projection


def _speaks(transform: Transform[Any, Any], ref: ColumnRef, *, asked: bool) -> bool:
    try:
        return says_something(transform, ref.type)
    except TypeMismatchError:
        # What is wrong with a column that nobody asks about is no reason to keep everything.
        if asked:
            raise
        return False


def evaluate(projection: Projection, partitions: Sequence[Partition]) -> Judgement:
    """What the values of N partitions prove about the predicate."""
    columns: dict[Path, ColumnFacts] = {}
    for field in projection.fields:
        if field.asked:
            add_facts(columns, field.ref.path, field.facts(partitions))
    cleared = projection.cleared(partitions)
    return judge(projection.node, _evidence(len(partitions), columns), cleared)


def evaluate_summaries(projection: Projection, manifests: Sequence[Sequence[PartitionSummary]]) -> Judgement:
    """What the ranges of partition values in N manifests prove about the predicate."""
    columns: dict[Path, ColumnFacts] = {}
    buckets: dict[Path, list[Buckets]] = {}
    for field in projection.fields:
        if not field.asked:
            continue
        transform, type, path = field.transform, field.ref.type, field.ref.path
        mine = [summaries[field.position] for summaries in manifests]
        lower = [summary_value(transform, type, summary.lower) for summary in mine]
        upper = [summary_value(transform, type, summary.upper) for summary in mine]
        nulls, nans = [s.contains_null for s in mine], [s.contains_nan for s in mine]
        add_facts(columns, path, summary_facts(transform, lower, upper, nulls, nans, type))
        if isinstance(transform, BucketTransform):
            buckets.setdefault(path, []).append(Buckets.of(transform, lower, upper))
    cleared = bucket_cleared(projection.node, buckets)
    return judge(projection.node, _evidence(len(manifests), columns), cleared)


def _evidence(units: int, columns: Mapping[Path, ColumnFacts]) -> Evidence:
    # An unknown count must not be zero, which would say that there is no row.
    return Evidence(np.full(units, -1, dtype=np.int64), columns)


def add_facts(columns: dict[Path, ColumnFacts], path: Path, facts: ColumnFacts | None) -> None:
    """Another field's facts about a column; together they say more."""
    if facts is not None:
        earlier = columns.get(path)
        columns[path] = facts if earlier is None else earlier.narrowed(facts)
