"""Partition pruning for tables whose partitioning has evolved.

Files keep the spec they were written with, so a predicate is projected onto every spec, and each partition
key is judged under its own. Partitions that can't be judged are kept and counted: they *fail open*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import BucketTransform, Transform, UnknownTransform

from skipstone.core.evidence import Array, ColumnFacts, Evidence
from skipstone.core.ir.nodes import AndNode, ColumnRef, ConstantNode, Node
from skipstone.core.judge import Judgement, Verdict, VerdictBits, judge
from skipstone.errors import SchemaError
from skipstone.iceberg.manifests.lists import PartitionSummary
from skipstone.iceberg.partitions.evidence import (
    Buckets,
    bucket_cleared,
    says_something,
    source_facts,
    summary_facts,
    summary_value,
)
from skipstone.iceberg.partitions.values import PartitionKey
from skipstone.report.trace import FilterStats

Path = tuple[str, ...]
Partition = tuple[Any, ...]


# -- one spec ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceField:
    """A partition field that is evidence about a column of the predicate."""

    position: int
    transform: Transform[Any, Any]
    ref: ColumnRef

    def facts(self, partitions: Sequence[Partition]) -> ColumnFacts | None:
        """Facts of the source column in N partitions."""
        return source_facts(self.transform, self.values(partitions), self.ref.type)

    def values(self, partitions: Sequence[Partition]) -> list[Any]:
        """The field's value in each partition."""
        return [partition[self.position] for partition in partitions]


@dataclass(frozen=True, slots=True)
class PartitionProjection:
    """A predicate projected onto the fields of one spec."""

    node: Node
    fields: tuple[SourceField, ...]
    ignored: tuple[str, ...] = ()
    """Fields of predicate columns with an unknown transform."""

    def facts(self, partitions: Sequence[Partition]) -> dict[Path, ColumnFacts]:
        """Facts of the predicate's columns in N partitions."""
        columns: dict[Path, ColumnFacts] = {}
        for field in self.fields:
            _add_facts(columns, field.ref.path, field.facts(partitions))
        return columns

    def cleared(self, partitions: Sequence[Partition]) -> dict[int, Array]:
        """Leaves that bucket numbers prove not TRUE, with a mask over N partitions."""
        buckets: dict[Path, list[Buckets]] = {}
        for field in self.fields:
            if isinstance(field.transform, BucketTransform):
                numbers = field.values(partitions)
                mine = Buckets.of(field.transform, numbers, numbers)
                buckets.setdefault(field.ref.path, []).append(mine)
        return bucket_cleared(self.node, buckets)


def project_spec(node: Node, spec: PartitionSpec, columns: Mapping[int, ColumnRef]) -> PartitionProjection:
    """Project a predicate onto a spec.

    Void fields, dropped source columns and unknown transforms are ignored; but if a spec has only unknown
    transforms of the predicate's columns, it can't be evaluated, which raises.
    """
    queried = {ref.path for ref in node.refs()}
    fields: list[SourceField] = []
    ignored = []
    for position, field in enumerate(spec.fields):
        ref = columns.get(field.source_id)
        if ref is None or ref.path not in queried:
            continue
        if isinstance(field.transform, UnknownTransform):
            ignored.append(field)
        elif says_something(field.transform, ref.type):
            fields.append(SourceField(position, field.transform, ref))
    if ignored and not fields:
        raise SchemaError(
            f"partition field {ignored[0].name!r} has an unknown transform",
            column=columns[ignored[0].source_id].name,
            hint="upgrade Skipstone to prune these partitions",
        )
    return PartitionProjection(node, tuple(fields), tuple(field.name for field in ignored))


def evaluate(projection: PartitionProjection, partitions: Sequence[Partition]) -> Judgement:
    """Judge the predicate on N partitions."""
    evidence = _evidence(len(partitions), projection.facts(partitions))
    return judge(projection.node, evidence, projection.cleared(partitions))


def evaluate_summaries(
    projection: PartitionProjection, manifests: Sequence[Sequence[PartitionSummary]]
) -> Judgement:
    """Judge the predicate on the partition summaries of N manifests."""
    columns: dict[Path, ColumnFacts] = {}
    buckets: dict[Path, list[Buckets]] = {}
    for field in projection.fields:
        transform, type, path = field.transform, field.ref.type, field.ref.path
        mine = [summaries[field.position] for summaries in manifests]
        lower = [summary_value(transform, type, summary.lower) for summary in mine]
        upper = [summary_value(transform, type, summary.upper) for summary in mine]
        nulls, nans = [s.contains_null for s in mine], [s.contains_nan for s in mine]
        _add_facts(columns, path, summary_facts(transform, lower, upper, nulls, nans, type))
        if isinstance(transform, BucketTransform):
            buckets.setdefault(path, []).append(Buckets.of(transform, lower, upper))
    cleared = bucket_cleared(projection.node, buckets)
    return judge(projection.node, _evidence(len(manifests), columns), cleared)


def _evidence(units: int, columns: Mapping[Path, ColumnFacts]) -> Evidence:
    # An unknown count is not zero, which would mean an empty unit.
    return Evidence(np.full(units, -1, dtype=np.int64), columns)


def _add_facts(columns: dict[Path, ColumnFacts], path: Path, facts: ColumnFacts | None) -> None:
    """Combine facts of several fields of one column."""
    if facts is not None:
        earlier = columns.get(path)
        columns[path] = facts if earlier is None else earlier.intersect(facts)


# -- all specs of a table ------------------------------------------------------------------------

_MAX_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class FilterWarning:
    """A kind of problem with a spec: its count, and the first message."""

    code: str
    spec_id: int | None
    """The spec; None if problems of further specs are counted together."""
    count: int
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class PartitionVerdicts:
    """Verdicts of N partition keys."""

    verdicts: Array
    fail_open: Array
    judgement: Judgement

    @property
    def kept(self) -> Array:
        """Mask of the keys that may match."""
        return np.asarray(self.verdicts != Verdict.NONE)


class PartitionFilter:
    """Judges partitions of every spec of a table; each key is evaluated at most once.

    ``node`` is bound to the table's schema (None: no filter), ``columns`` are the lake's columns by field id.
    ``strict`` raises instead of keeping a partition that can't be judged.
    """

    def __init__(
        self,
        node: Node | None,
        specs: Mapping[int, PartitionSpec],
        columns: Mapping[int, ColumnRef],
        *,
        strict: bool = False,
    ) -> None:
        self.node = ConstantNode(True) if node is None else node
        self.strict = strict
        self.evaluations = 0
        """Number of evaluated keys."""
        self._specs = dict(sorted(specs.items()))
        self._warnings: dict[tuple[str, int | None], FilterWarning] = {}
        self._numbers: dict[PartitionKey, int] = {}
        self._eval_errors = 0
        self._fail_open = np.zeros(0, dtype=bool)
        self._judgement = self._unknown(0)
        self._projections = {spec_id: self._project(spec, columns) for spec_id, spec in self._specs.items()}

    # -- verdicts --------------------------------------------------------------------------------

    def judge(self, keys: Sequence[PartitionKey]) -> PartitionVerdicts:
        """Verdicts of keys by their partition values."""
        fresh = list(dict.fromkeys(key for key in keys if key not in self._numbers))
        for spec_id, positions in self._by_spec(fresh).items():
            projection, mine = self._projection(spec_id), [fresh[at] for at in positions]
            if isinstance(projection, Exception):
                self._fail_open_for(mine, projection)
            else:
                self.evaluations += len(mine)
                self._evaluate(projection, mine)
        taken = np.fromiter((self._numbers[key] for key in keys), np.int64, len(keys))
        judgement = self._judgement.take(taken)
        return PartitionVerdicts(judgement.verdicts(), self._fail_open[taken], judgement)

    def manifests(self, spec_id: int, summaries: Sequence[Sequence[PartitionSummary]]) -> Array:
        """Verdicts of manifests of one spec by their partition summaries."""
        projection = self._projection(spec_id)
        verdicts = np.full(len(summaries), Verdict.SOME, dtype=np.int8)
        if isinstance(projection, Exception):
            return verdicts
        # A manifest without a summary of every field must be opened.
        fields = len(self._specs[spec_id].fields)
        whole = [at for at, mine in enumerate(summaries) if len(mine) == fields]
        try:
            verdicts[whole] = evaluate_summaries(projection, [summaries[at] for at in whole]).verdicts()
        except Exception as error:  # noqa: BLE001  (on any error the manifests are opened)
            self._warn("manifest-summary", spec_id, _text(error), len(whole))
        return verdicts

    @property
    def condition(self) -> str:
        """The conjuncts of the predicate on columns that partitions are made from."""
        projections = [p for p in self._projections.values() if isinstance(p, PartitionProjection)]
        paths = {field.ref.path for projection in projections for field in projection.fields}
        conjuncts = self.node.args if isinstance(self.node, AndNode) else (self.node,)
        chosen = [str(node) for node in conjuncts if any(ref.path in paths for ref in node.refs())]
        return " AND ".join(chosen) or str(self.node)

    # -- evidence --------------------------------------------------------------------------------

    def facts(self, keys: Sequence[PartitionKey]) -> dict[Path, ColumnFacts]:
        """Facts of the predicate's columns per key; unknown if a spec has none."""
        types: dict[Path, ColumnRef] = {}
        parts: list[tuple[Array, dict[Path, ColumnFacts]]] = []
        for positions, projection, partitions in self._evaluable(keys):
            types |= {field.ref.path: field.ref for field in projection.fields}
            parts.append((positions, projection.facts(partitions)))
        return {path: _spread(parts, ref, len(keys)) for path, ref in types.items()}

    def cleared(self, keys: Sequence[PartitionKey]) -> dict[int, Array]:
        """Leaves of ``node`` (by ``id``) that bucket numbers prove not TRUE, with a mask over the keys."""
        masks: dict[int, Array] = {}
        for positions, projection, partitions in self._evaluable(keys):
            for leaf, mask in projection.cleared(partitions).items():
                masks.setdefault(leaf, np.zeros(len(keys), dtype=bool))[positions] = mask
        return masks

    # -- diagnostics -----------------------------------------------------------------------------

    def stats(self, candidates: Sequence[PartitionKey] = (), files: Array | None = None) -> FilterStats:
        """Counts so far; ``candidates`` are keys of candidate files: ``files`` of each, by default one."""
        fail_open = self.judge(candidates).fail_open
        evaluable = [p for p in self._projections.values() if isinstance(p, PartitionProjection)]
        # A constant predicate constrains all specs.
        open_ended = judge(self.node, Evidence(np.full(1, -1), {})).verdicts()[0] == Verdict.SOME
        return FilterStats(
            unevaluable_specs=len(self._projections) - len(evaluable),
            eval_errors=self._eval_errors,
            fail_open_partitions=int(self._fail_open.sum()),
            fail_open_files=int(fail_open.sum() if files is None else files[fail_open].sum()),
            unconstrained_specs=sum(not p.fields for p in evaluable) if open_ended else 0,
        )

    @property
    def warnings(self) -> tuple[FilterWarning, ...]:
        """Problems, one per kind and spec, and a bounded number of them."""
        return tuple(self._warnings.values())

    # -- inside ----------------------------------------------------------------------------------

    def _project(
        self, spec: PartitionSpec, columns: Mapping[int, ColumnRef]
    ) -> PartitionProjection | Exception:
        try:
            projection = project_spec(self.node, spec, columns)
        except Exception as error:  # noqa: BLE001  (on any error the spec's partitions are kept)
            self._warn("unevaluable-spec", spec.spec_id, _text(error))
            return error
        for name in projection.ignored:
            message = f"partition field {name!r} has an unknown transform"
            self._warn("unknown-transform", spec.spec_id, message)
        return projection

    def _projection(self, spec_id: int) -> PartitionProjection | Exception:
        projection = self._projections.get(spec_id)
        if projection is None:
            specs = ", ".join(map(str, self._specs)) or "none"
            raise SchemaError(
                f"table has no partition spec {spec_id}; its specs are {specs}",
                unit=f"partition spec {spec_id}",
                hint="check whether a manifest belongs to another table",
            )
        return projection

    def _evaluate(self, projection: PartitionProjection, keys: list[PartitionKey]) -> None:
        try:
            judgement = evaluate(projection, [key.partition or () for key in keys])
        except Exception as error:  # noqa: BLE001  (on any error the partition is kept)
            if len(keys) > 1:
                # Bisect, to find the few keys that fail.
                middle = len(keys) // 2
                self._evaluate(projection, keys[:middle])
                self._evaluate(projection, keys[middle:])
                return
            self._fail_open_for(keys, error)
            self._eval_errors += 1
            self._warn("evaluation-error", keys[0].spec_id, f"{keys[0]}: {_text(error)}")
        else:
            self._remember(keys, judgement, fail_open=False)

    def _fail_open_for(self, keys: list[PartitionKey], error: Exception) -> None:
        """Keep partitions that can't be judged."""
        if self.strict:
            raise SchemaError(
                f"partition can't be judged: {_text(error)}",
                unit=str(keys[0]),
                hint="remove strict to keep it",
            ) from error
        self._remember(keys, self._unknown(len(keys)), fail_open=True)

    def _remember(self, keys: list[PartitionKey], judgement: Judgement, *, fail_open: bool) -> None:
        self._numbers.update(
            zip(keys, range(len(self._numbers), len(self._numbers) + len(keys)), strict=True)
        )
        self._fail_open = np.concatenate((self._fail_open, np.full(len(keys), fail_open)))
        self._judgement = _concat(self._judgement, judgement)

    def _unknown(self, units: int) -> Judgement:
        conjuncts = self.node.args if isinstance(self.node, AndNode) else (self.node,)
        bits = VerdictBits.unknown(units)
        return Judgement(bits, tuple((conjunct, bits) for conjunct in conjuncts))

    def _by_spec(self, keys: Sequence[PartitionKey]) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        for at, key in enumerate(keys):
            groups.setdefault(key.spec_id, []).append(at)
        for spec_id in groups:
            self._projection(spec_id)
        return groups

    def _evaluable(
        self, keys: Sequence[PartitionKey]
    ) -> Iterator[tuple[Array, PartitionProjection, list[Partition]]]:
        """Per spec, the keys that did not fail open: their positions, the projection and the partitions."""
        fail_open = self.judge(keys).fail_open
        for spec_id, positions in self._by_spec(keys).items():
            projection = self._projection(spec_id)
            some = [at for at in positions if not fail_open[at]]
            if some and isinstance(projection, PartitionProjection):
                yield np.array(some, dtype=np.int64), projection, [keys[at].partition or () for at in some]

    def _warn(self, code: str, spec_id: int, message: str, count: int = 1) -> None:
        key: tuple[str, int | None] = (code, spec_id)
        if key not in self._warnings and len(self._warnings) >= _MAX_WARNINGS:
            key = (code, None)
        warning = self._warnings.get(key) or FilterWarning(code, key[1], 0, message)
        self._warnings[key] = replace(warning, count=warning.count + count)


def _concat(a: Judgement, b: Judgement) -> Judgement:
    pairs = zip(a.parts, b.parts, strict=True)
    parts = tuple((node, _concat_bits(mine, theirs)) for (node, mine), (_, theirs) in pairs)
    return Judgement(_concat_bits(a.bits, b.bits), parts)


def _concat_bits(a: VerdictBits, b: VerdictBits) -> VerdictBits:
    return VerdictBits(
        *(np.concatenate((getattr(a, name), getattr(b, name))) for name in ("true", "false", "null"))
    )


def _spread(parts: list[tuple[Array, dict[Path, ColumnFacts]]], ref: ColumnRef, units: int) -> ColumnFacts:
    """Facts of one column for all units, unknown for units without any."""
    some = [(positions, columns[ref.path]) for positions, columns in parts if ref.path in columns]
    present = np.concatenate([np.zeros(0, dtype=np.int64), *(positions for positions, _ in some)])
    rest = np.setdiff1d(np.arange(units), present)
    facts = ColumnFacts.concat([*(f for _, f in some), ColumnFacts.unknown(ref.type, len(rest))])
    return facts.take(np.argsort(np.concatenate([present, rest])))


def _text(error: Exception) -> str:
    return str(error) or error.__class__.__name__
