"""Which partitions a predicate can match, on a table whose partitioning has changed.

Files keep the spec they were written under, so a predicate is projected onto every spec of the table, and
each partition key is judged under its own. What can't be judged is kept and counted: it *fails open*.
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
        """What the field's values in N partitions say about its source."""
        return source_facts(self.transform, self.values(partitions), self.ref.type)

    def values(self, partitions: Sequence[Partition]) -> list[Any]:
        """The field's value in each partition."""
        return [partition[self.position] for partition in partitions]


@dataclass(frozen=True, slots=True)
class PartitionProjection:
    """A predicate seen through the fields of one spec."""

    node: Node
    fields: tuple[SourceField, ...]
    ignored: tuple[str, ...] = ()
    """Fields made from a column of the predicate in a way that is not known."""

    def facts(self, partitions: Sequence[Partition]) -> dict[Path, ColumnFacts]:
        """What the values of N partitions say about the predicate's columns."""
        columns: dict[Path, ColumnFacts] = {}
        for field in self.fields:
            _add_facts(columns, field.ref.path, field.facts(partitions))
        return columns

    def cleared(self, partitions: Sequence[Partition]) -> dict[int, Array]:
        """The leaves that bucket numbers prove not to be TRUE in some of N partitions."""
        buckets: dict[Path, list[Buckets]] = {}
        for field in self.fields:
            if isinstance(field.transform, BucketTransform):
                numbers = field.values(partitions)
                mine = Buckets.of(field.transform, numbers, numbers)
                buckets.setdefault(field.ref.path, []).append(mine)
        return bucket_cleared(self.node, buckets)


def project_spec(node: Node, spec: PartitionSpec, columns: Mapping[int, ColumnRef]) -> PartitionProjection:
    """What ``spec`` can say about ``node``; an error if that is not known.

    Void fields, and fields whose source is no longer a column, say nothing. Neither does a transform that
    is not known; but a spec that has nothing else to say about the predicate can't be evaluated.
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
            f"the transform of partition field {ignored[0].name!r} is not known",
            column=columns[ignored[0].source_id].name,
            hint="partitions can't tell its files apart",
        )
    return PartitionProjection(node, tuple(fields), tuple(field.name for field in ignored))


def evaluate(projection: PartitionProjection, partitions: Sequence[Partition]) -> Judgement:
    """What the values of N partitions prove about the predicate."""
    evidence = _evidence(len(partitions), projection.facts(partitions))
    return judge(projection.node, evidence, projection.cleared(partitions))


def evaluate_summaries(
    projection: PartitionProjection, manifests: Sequence[Sequence[PartitionSummary]]
) -> Judgement:
    """What the ranges of partition values in N manifests prove about the predicate."""
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
    # An unknown count must not be zero, which would say that there is no row.
    return Evidence(np.full(units, -1, dtype=np.int64), columns)


def _add_facts(columns: dict[Path, ColumnFacts], path: Path, facts: ColumnFacts | None) -> None:
    """Another field's facts about a column; together they say more."""
    if facts is not None:
        earlier = columns.get(path)
        columns[path] = facts if earlier is None else earlier.intersect(facts)


# -- all specs of a table ------------------------------------------------------------------------

_MOST_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class FilterWarning:
    """One kind of trouble with one spec: how often it was met, and what it was the first time."""

    code: str
    spec_id: int | None
    """The spec; None where the trouble of further specs is counted together."""
    count: int
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class PartitionVerdicts:
    """What partition values alone prove about N keys."""

    verdicts: Array
    fail_open: Array
    judgement: Judgement

    @property
    def kept(self) -> Array:
        """Which keys may hold a matching row."""
        return np.asarray(self.verdicts != Verdict.NONE)


class PartitionFilter:
    """A predicate on the partitions of every spec of a table; each key is evaluated at most once.

    ``node`` is bound to the table's schema already (None: no filter), ``columns`` are the lake's columns by
    field id. With ``strict`` it is an error to keep a partition because it could not be judged.
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
        """How many keys have been evaluated."""
        self._specs = dict(sorted(specs.items()))
        self._warnings: dict[tuple[str, int | None], FilterWarning] = {}
        self._places: dict[PartitionKey, int] = {}
        self._eval_errors = 0
        self._fail_open = np.zeros(0, dtype=bool)
        self._judgement = self._unknown(0)
        self._projections = {spec_id: self._project(spec, columns) for spec_id, spec in self._specs.items()}

    # -- verdicts --------------------------------------------------------------------------------

    def judge(self, keys: Sequence[PartitionKey]) -> PartitionVerdicts:
        """The verdict of each key from its partition values alone."""
        fresh = list(dict.fromkeys(key for key in keys if key not in self._places))
        for spec_id, places in self._by_spec(fresh).items():
            projection, mine = self._projection(spec_id), [fresh[at] for at in places]
            if isinstance(projection, Exception):
                self._fail_open_for(mine, projection)
            else:
                self.evaluations += len(mine)
                self._evaluate(projection, mine)
        taken = np.fromiter((self._places[key] for key in keys), np.int64, len(keys))
        judgement = self._judgement.take(taken)
        return PartitionVerdicts(judgement.verdicts(), self._fail_open[taken], judgement)

    def manifests(self, spec_id: int, summaries: Sequence[Sequence[PartitionSummary]]) -> Array:
        """The verdict of each manifest of one spec, from the ranges of its partition values."""
        projection = self._projection(spec_id)
        verdicts = np.full(len(summaries), Verdict.SOME, dtype=np.int8)
        if isinstance(projection, Exception):
            return verdicts
        # A manifest without a summary of every field has to be opened.
        fields = len(self._specs[spec_id].fields)
        whole = [at for at, mine in enumerate(summaries) if len(mine) == fields]
        try:
            verdicts[whole] = evaluate_summaries(projection, [summaries[at] for at in whole]).verdicts()
        except Exception as error:  # noqa: BLE001  (whatever goes wrong, the manifests are opened)
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
        """What partition values say about the predicate's columns; unknown where a spec says nothing."""
        types: dict[Path, ColumnRef] = {}
        parts: list[tuple[Array, dict[Path, ColumnFacts]]] = []
        for places, projection, partitions in self._judged(keys):
            types |= {field.ref.path: field.ref for field in projection.fields}
            parts.append((places, projection.facts(partitions)))
        return {path: _spread(parts, ref, len(keys)) for path, ref in types.items()}

    def cleared(self, keys: Sequence[PartitionKey]) -> dict[int, Array]:
        """The leaves of ``node`` (by ``id``) that bucket numbers prove not to be TRUE, for each key."""
        masks: dict[int, Array] = {}
        for places, projection, partitions in self._judged(keys):
            for leaf, mask in projection.cleared(partitions).items():
                masks.setdefault(leaf, np.zeros(len(keys), dtype=bool))[places] = mask
        return masks

    # -- diagnostics -----------------------------------------------------------------------------

    def stats(self, candidates: Sequence[PartitionKey] = ()) -> FilterStats:
        """The counts so far; ``candidates`` has the key of each candidate file."""
        files = int(self.judge(candidates).fail_open.sum())
        made = [p for p in self._projections.values() if isinstance(p, PartitionProjection)]
        # A predicate that is decided without looking at any column constrains all specs alike.
        open_ended = judge(self.node, Evidence(np.full(1, -1), {})).verdicts()[0] == Verdict.SOME
        return FilterStats(
            unevaluable_specs=len(self._projections) - len(made),
            eval_errors=self._eval_errors,
            fail_open_partitions=int(self._fail_open.sum()),
            fail_open_files=files,
            unconstrained_specs=sum(not p.fields for p in made) if open_ended else 0,
        )

    @property
    def warnings(self) -> tuple[FilterWarning, ...]:
        """What went wrong: each kind once for each spec, and never many."""
        return tuple(self._warnings.values())

    # -- inside ----------------------------------------------------------------------------------

    def _project(
        self, spec: PartitionSpec, columns: Mapping[int, ColumnRef]
    ) -> PartitionProjection | Exception:
        try:
            projection = project_spec(self.node, spec, columns)
        except Exception as error:  # noqa: BLE001  (whatever goes wrong, the spec's partitions are kept)
            self._warn("unevaluable-spec", spec.spec_id, _text(error))
            return error
        for name in projection.ignored:
            message = f"the transform of partition field {name!r} is not known"
            self._warn("unknown-transform", spec.spec_id, message)
        return projection

    def _projection(self, spec_id: int) -> PartitionProjection | Exception:
        found = self._projections.get(spec_id)
        if found is None:
            known = ", ".join(map(str, self._specs)) or "none"
            raise SchemaError(
                f"the table has no partition spec {spec_id}",
                unit=f"partition spec {spec_id}",
                hint=f"its specs are {known}; a manifest does not fit the table's metadata",
            )
        return found

    def _evaluate(self, projection: PartitionProjection, keys: list[PartitionKey]) -> None:
        try:
            judgement = evaluate(projection, [key.partition or () for key in keys])
        except Exception as error:  # noqa: BLE001  (whatever goes wrong, the partition is kept)
            if len(keys) > 1:
                # Halves, to find the few keys that fail among many that don't.
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
        """Fail open: what is not known is not dropped."""
        if self.strict:
            raise SchemaError(
                f"the partition can't be judged: {_text(error)}",
                unit=str(keys[0]),
                hint="without strict it is kept",
            ) from error
        self._remember(keys, self._unknown(len(keys)), fail_open=True)

    def _remember(self, keys: list[PartitionKey], judgement: Judgement, *, fail_open: bool) -> None:
        self._places.update(zip(keys, range(len(self._places), len(self._places) + len(keys)), strict=True))
        self._fail_open = np.concatenate((self._fail_open, np.full(len(keys), fail_open)))
        self._judgement = _joined(self._judgement, judgement)

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

    def _judged(
        self, keys: Sequence[PartitionKey]
    ) -> Iterator[tuple[Array, PartitionProjection, list[Partition]]]:
        """The keys of each spec that did not fail open: their places, the projection and the partitions."""
        fail_open = self.judge(keys).fail_open
        for spec_id, places in self._by_spec(keys).items():
            projection = self._projection(spec_id)
            some = [at for at in places if not fail_open[at]]
            if some and isinstance(projection, PartitionProjection):
                yield np.array(some, dtype=np.int64), projection, [keys[at].partition or () for at in some]

    def _warn(self, code: str, spec_id: int, message: str, count: int = 1) -> None:
        place: tuple[str, int | None] = (code, spec_id)
        if place not in self._warnings and len(self._warnings) >= _MOST_WARNINGS:
            place = (code, None)
        found = self._warnings.get(place) or FilterWarning(code, place[1], 0, message)
        self._warnings[place] = replace(found, count=found.count + count)


def _joined(a: Judgement, b: Judgement) -> Judgement:
    pairs = zip(a.parts, b.parts, strict=True)
    parts = tuple((node, _joined_bits(mine, theirs)) for (node, mine), (_, theirs) in pairs)
    return Judgement(_joined_bits(a.bits, b.bits), parts)


def _joined_bits(a: VerdictBits, b: VerdictBits) -> VerdictBits:
    return VerdictBits(
        *(np.concatenate((getattr(a, name), getattr(b, name))) for name in ("true", "false", "null"))
    )


def _spread(parts: list[tuple[Array, dict[Path, ColumnFacts]]], ref: ColumnRef, units: int) -> ColumnFacts:
    """One column's facts about all units from those about some; the rest are unknown."""
    given = [(places, columns[ref.path]) for places, columns in parts if ref.path in columns]
    known = np.concatenate([np.zeros(0, dtype=np.int64), *(places for places, _ in given)])
    rest = np.setdiff1d(np.arange(units), known)
    facts = ColumnFacts.concat([*(f for _, f in given), ColumnFacts.unknown(ref.type, len(rest))])
    return facts.take(np.argsort(np.concatenate([known, rest])))


def _text(error: Exception) -> str:
    return str(error) or error.__class__.__name__
