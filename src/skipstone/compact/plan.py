"""Planning of a compaction: which files to rewrite together, and why.

Partitions are filtered first, then files are selected by size and deletes, grouped by partition and packed
into groups; groups that are not worth it are dropped. All of it runs on columns of manifest entries. The same
input gives the same groups, in the same order, in every process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.compact.options import CompactionOptions
from skipstone.core.evidence import Array
from skipstone.errors import CorruptFileError, UsageError
from skipstone.iceberg.deletes.match import PATH_ID, DeleteMatches
from skipstone.iceberg.manifests.entries import Entries, value_from_json, value_to_json
from skipstone.iceberg.metadata import ancestors
from skipstone.iceberg.partitions.values import PartitionKey, partition_name
from skipstone.predicate import predicate as to_predicate
from skipstone.report import Reported, explanation
from skipstone.report.trace import FilterStats
from skipstone.report.units import plural, size
from skipstone.scan.options import explain_options

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from skipstone.iceberg.table import TableSnapshot
    from skipstone.scan.table import Table
    from skipstone.typing import PredicateLike, ReportFormat, SnapshotLike

REASONS: Final = ("small", "large", "deletes", "ratio", "unsorted", "spec", "rewrite-all")
"""Why a file is rewritten; the number of a reason is a bit of the column ``reasons``."""
_SMALL, _LARGE, _DELETES, _RATIO, _UNSORTED, _SPEC, _ALL = (1 << bit for bit in range(len(REASONS)))
_ENOUGH: Final = _DELETES | _RATIO | _UNSORTED | _SPEC | _ALL
"""Reasons for which a file is rewritten even on its own."""
_LAYOUT: Final = 1
_FILES: Final = pa.schema(
    {
        "path": pa.large_string(),
        "bytes": pa.int64(),
        "rows": pa.int64(),
        "sequence": pa.int64(),
        "reasons": pa.int16(),
        "deletes": pa.int32(),
    }
)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file to rewrite, and why.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> (file,) = table.plan_compaction(rewrite_all=True).groups[0].files
        >>> file.rows, file.reasons, file.deletes
        (1000, ('small', 'rewrite-all'), 0)
    """

    path: str
    bytes: int
    rows: int
    sequence: int
    """Data sequence number."""
    reasons: tuple[str, ...]
    """``small``, ``large``, ``deletes``, ``ratio``, ``unsorted``, ``spec`` or ``rewrite-all``."""
    deletes: int
    """Number of delete files that apply."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition that are rewritten together.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> group = table.plan_compaction(rewrite_all=True).groups[0]
        >>> group.id, group.count, group.rows, group.expected_files
        (0, 1, 1000, 1)
    """

    id: int
    key: PartitionKey | None
    """The partition; None for files of several partitions that move to another spec."""
    expected_files: int
    delete_files: tuple[str, ...]
    """Delete files that apply to some of the files."""
    table: pa.Table = field(repr=False)
    """The files as columns."""
    name: str = ""
    """The partition for people, such as ``ts_day=2026-01-01``."""

    @property
    def files(self) -> tuple[PlannedFile, ...]:
        """The files, by data sequence number and path."""
        columns = [self.table.column(name).to_pylist() for name in _FILES.names]
        return tuple(
            PlannedFile(path, nbytes, rows, sequence, _reason_names(reasons), deletes)
            for path, nbytes, rows, sequence, reasons, deletes in zip(*columns, strict=True)
        )

    @property
    def paths(self) -> pa.ChunkedArray:
        """Locations of the files."""
        return self.table.column("path")

    @property
    def count(self) -> int:
        """Number of files."""
        return int(self.table.num_rows)

    @property
    def bytes(self) -> int:
        """Bytes of the files."""
        return int(pc.sum(self.table.column("bytes")).as_py())

    @property
    def rows(self) -> int:
        """Rows of the files, including deleted ones."""
        return int(pc.sum(self.table.column("rows")).as_py())

    @property
    def reasons(self) -> dict[str, int]:
        """Number of files per reason."""
        bits = np.asarray(self.table.column("reasons"))
        counts = {name: int((bits >> at & 1).sum()) for at, name in enumerate(REASONS)}
        return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class SkippedGroup:
    """Candidates of one partition that are not worth rewriting, and why.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> [(group.files, group.reason) for group in table.plan_compaction().skipped]
        [(1, 'only one file')]
    """

    key: PartitionKey | None
    files: int
    bytes: int
    reason: str
    name: str = ""
    """The partition for people."""


@dataclass(frozen=True, slots=True)
class CompactionPlan(Reported):
    """Groups of files to rewrite, planned on one snapshot; ``table.compact(plan)`` runs it.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> plan = table.plan_compaction(min_input_files=2)
        >>> len(plan.groups), plan.bytes_to_read
        (0, 0)
    """

    view: ClassVar[str] = "skipstone.compact.views:plan_tree"

    table: str
    uuid: str
    """UUID of the table."""
    snapshot: int | None
    """The snapshot that the plan was made on."""
    sequence: int
    """Its sequence number."""
    where: str
    """The filter on partitions; "" for none."""
    options: CompactionOptions
    groups: tuple[FileGroup, ...]
    """In the order in which they are rewritten."""
    skipped: tuple[SkippedGroup, ...]
    filter_stats: FilterStats
    files_considered: int
    """Data files of the snapshot."""
    files_matched: int
    """Data files whose partition passed the filter."""

    @property
    def hash(self) -> str:
        """A fingerprint of the plan: equal for the same table, snapshot and options, in any process."""
        document = {name: value for name, value in self._document().items() if name != "table"}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def files(self) -> int:
        """Number of files to rewrite."""
        return sum(group.count for group in self.groups)

    @property
    def expected_files(self) -> int:
        """Estimated number of new files."""
        return sum(group.expected_files for group in self.groups)

    @property
    def bytes_to_read(self) -> int:
        """Bytes of the files to rewrite."""
        return sum(group.bytes for group in self.groups)

    @property
    def bytes_to_write(self) -> int:
        """Estimated bytes of the new files, before rows are deleted and encoded again."""
        return self.bytes_to_read

    def explain(self, files: bool | ReportFormat = False, format: ReportFormat = "text") -> str:
        """Describe the groups, why each is rewritten or skipped, and what is read and written.

        Args:
            files: Also list every file with the reasons why it is rewritten. The only argument can also be a
                format, as in ``plan.explain("html")``.
            format: ``"text"``, ``"json"`` or ``"html"``. JSON always lists the files.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.events", catalog="warehouse")
            >>> print(table.plan_compaction(rewrite_all=True).explain(files=True))
            1 file in 1 group become about 1 file
            ...
            group  file           size   rows  deletes  why
                0  00000-...  ... kB  1,000        0  small, rewrite-all
            ...
        """
        listed, chosen = explain_options(files, format, "files")
        return explanation(PlanListing(self) if listed else self, chosen, f"Compaction of {self.table}")

    # -- JSON ----------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the plan as dicts, lists, strings and numbers; ``from_json`` reads it."""
        totals = {
            "files": self.files,
            "expected_files": self.expected_files,
            "bytes_to_read": self.bytes_to_read,
            "bytes_to_write": self.bytes_to_write,
        }
        return {**self._document(), **totals, "hash": self.hash}

    def _document(self) -> dict[str, Any]:
        stats = {name: getattr(self.filter_stats, name) for name in FilterStats.__slots__}
        return {
            "layout": _LAYOUT,
            "table": self.table,
            "uuid": self.uuid,
            "snapshot": self.snapshot,
            "sequence": self.sequence,
            "where": self.where,
            "options": self.options.to_json(),
            "files_considered": self.files_considered,
            "files_matched": self.files_matched,
            "filter_stats": stats,
            "groups": [
                {
                    "id": group.id,
                    "partition": _key_to_json(group.key),
                    "name": group.name,
                    "expected_files": group.expected_files,
                    "delete_files": list(group.delete_files),
                    "files": _files_to_json(group.table),
                }
                for group in self.groups
            ],
            "skipped": [
                {
                    "partition": _key_to_json(one.key),
                    "name": one.name,
                    "files": one.files,
                    "bytes": one.bytes,
                    "reason": one.reason,
                }
                for one in self.skipped
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> CompactionPlan:
        """Read a plan that ``to_json`` returned, or its text."""
        try:
            document: Mapping[str, Any] = json.loads(data) if isinstance(data, str) else data
            if document["layout"] != _LAYOUT:
                raise UsageError(
                    f"plan has layout {document['layout']}, expected {_LAYOUT}", hint="make a new plan"
                )
            plan = cls(
                table=document["table"],
                uuid=document["uuid"],
                snapshot=document["snapshot"],
                sequence=document["sequence"],
                where=document["where"],
                options=CompactionOptions.from_json(document["options"]),
                groups=tuple(_group_from_json(group) for group in document["groups"]),
                skipped=tuple(
                    SkippedGroup(
                        _key_from_json(one["partition"]),
                        one["files"],
                        one["bytes"],
                        one["reason"],
                        one["name"],
                    )
                    for one in document["skipped"]
                ),
                filter_stats=FilterStats(**document["filter_stats"]),
                files_considered=document["files_considered"],
                files_matched=document["files_matched"],
            )
            same = plan.hash == document["hash"]
        except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise CorruptFileError(f"compaction plan is damaged: {what}", hint="make a new plan") from None
        if not same:
            raise CorruptFileError("compaction plan does not match its hash", hint="make a new plan")
        return plan


def _files_to_json(table: pa.Table) -> list[dict[str, Any]]:
    names = table.column_names
    columns = {name: table.column(name).to_pylist() for name in names}
    columns["reasons"] = [list(_reason_names(bits)) for bits in columns["reasons"]]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@dataclass(frozen=True, slots=True)
class PlanListing(Reported):
    """A plan with a line per file."""

    view: ClassVar[str] = "skipstone.compact.views:files_tree"

    plan: CompactionPlan

    def to_json(self) -> dict[str, Any]:
        """Return the plan, which contains the files."""
        return self.plan.to_json()


@cache
def _reason_names(bits: int) -> tuple[str, ...]:
    return tuple(name for at, name in enumerate(REASONS) if bits >> at & 1)


def _key_to_json(key: PartitionKey | None) -> Any:
    if key is None:
        return None
    values = None if key.partition is None else [value_to_json(value) for value in key.partition]
    return {"spec_id": key.spec_id, "values": values}


def _key_from_json(data: Any) -> PartitionKey | None:
    if data is None:
        return None
    values = data["values"]
    return PartitionKey(data["spec_id"], None if values is None else tuple(map(value_from_json, values)))


def _group_from_json(data: Mapping[str, Any]) -> FileGroup:
    rows = [
        {**row, "reasons": sum(1 << REASONS.index(name) for name in row["reasons"])} for row in data["files"]
    ]
    return FileGroup(
        id=data["id"],
        key=_key_from_json(data["partition"]),
        expected_files=data["expected_files"],
        delete_files=tuple(data["delete_files"]),
        table=pa.Table.from_pylist(rows, schema=_FILES),
        name=data["name"],
    )


# -- the planner -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompactionPlanning:
    """A plan, and how its partitions were judged.

    Examples:
        >>> import skipstone as sk
        >>> planner = sk.CompactionPlanner.of(sk.open("db.events", catalog="warehouse"))
        >>> planner.plan_with_stats().filter_stats.fail_open_files
        0
    """

    plan: CompactionPlan
    filter_stats: FilterStats


@dataclass(frozen=True, eq=False)
class CompactionPlanner:
    """Plans the compaction of one snapshot of a table; ``table.plan_compaction`` does it in one call.

    ``strict`` raises an error for a partition that can't be judged; by default its files are included.
    ``since`` limits the plan to files that were added after that snapshot.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> planning = sk.CompactionPlanner.of(table, {"rewrite-all": "true"}).plan_with_stats()
        >>> planning.plan.files, planning.filter_stats.unevaluable_specs
        (1, 0)
    """

    snapshot: TableSnapshot
    options: CompactionOptions
    where: PredicateLike = None
    strict: bool = False
    case_sensitive: bool = True
    since: SnapshotLike | None = None
    only: frozenset[str] | None = None
    """Paths of the only files to consider; None for all."""

    @classmethod
    def of(
        cls,
        table: Table,
        options: Mapping[str, str] | None = None,
        *,
        where: PredicateLike = None,
        strict: bool = False,
        case_sensitive: bool = True,
        since: SnapshotLike | None = None,
    ) -> CompactionPlanner:
        """Return the planner of a table, with options under Iceberg's names, and the table's defaults.

        Args:
            table: The table, at the snapshot to plan on.
            options: Such as ``{"min-input-files": "2", "strategy": "sort", "sort-by": "ts"}``.
            where: Only files in partitions that can match.
            strict: Raise an error for a partition that can't be judged, instead of including its files.
            case_sensitive: Whether column names in ``where`` are case-sensitive.
            since: Only files that were added after this snapshot.
        """
        from skipstone.compact.options import parse_java
        from skipstone.compact.run import resolve_options

        chosen = resolve_options(table, parse_java(options or {}))
        return cls(table.pinned, chosen, where, strict, case_sensitive, since)

    def plan(self) -> CompactionPlan:
        """Return the plan."""
        return self.plan_with_stats().plan

    def plan_with_stats(self) -> CompactionPlanning:
        """Return the plan, and how its partitions were judged."""
        options, snapshot = self.options, self.snapshot
        check_options(options, snapshot)
        predicate = None if self.where is None else to_predicate(self.where)
        judged = snapshot.prune_partitions(predicate, strict=self.strict, case_sensitive=self.case_sensitive)
        entries = snapshot.inventory.take(judged.files)
        matches = snapshot.match_deletes(entries)
        reasons = self._reasons(entries, matches)
        if self.since is not None:
            reasons = np.where(np.isin(entries.snapshots, self._added_since(self.since)), reasons, 0)
        if self.only is not None:
            named = pa.array(sorted(self.only), pa.large_string())
            reasons = np.where(pc.is_in(entries.paths, value_set=named), reasons, 0)
        chosen = np.flatnonzero(reasons)
        codes, files = np.unique(entries.partitions[chosen], return_counts=True)
        stats = judged.filter.stats([entries.keys[code] for code in codes.tolist()], files)
        packed = _Packing(entries, reasons, matches, options, snapshot)
        groups, skipped = packed.groups(chosen)
        head = snapshot.metadata.snapshot_by_id(snapshot.snapshot_id or -1)
        plan = CompactionPlan(
            table=snapshot.name,
            uuid=str(snapshot.metadata.table_uuid),
            snapshot=snapshot.snapshot_id,
            sequence=0 if head is None else head.sequence_number or 0,
            where="" if predicate is None else str(predicate),
            options=options,
            groups=_ordered(groups, options.rewrite_job_order),
            skipped=tuple(skipped),
            filter_stats=stats,
            files_considered=len(snapshot.inventory),
            files_matched=len(entries),
        )
        return CompactionPlanning(plan, stats)

    def _reasons(self, entries: Entries, matches: DeleteMatches | None) -> Array:
        """Bits of the reasons to rewrite each file; 0 for none."""
        options = self.options
        bits = np.zeros(len(entries), dtype=np.int16)
        bits[entries.sizes < options.min_file_size_bytes] |= _SMALL
        bits[entries.sizes > options.max_file_size_bytes] |= _LARGE
        if matches is not None:
            bits[_delete_counts(matches) >= options.delete_file_threshold] |= _DELETES
            deleted = _deleted_rows(matches)
            bits[(deleted > 0) & (deleted >= entries.rows * options.delete_ratio_threshold)] |= _RATIO
        elif options.delete_file_threshold == 0:
            bits |= _DELETES
        order = sort_order(self.options, self.snapshot.metadata)
        if order is not None:
            bits[entries.sort_orders != order] |= _UNSORTED
        if options.target_spec_id is not None:
            bits[entries.specs != options.target_spec_id] |= _SPEC
        if options.rewrite_all:
            bits |= _ALL
        return bits

    def _added_since(self, since: SnapshotLike) -> Array:
        """Snapshots after ``since``, which must be an ancestor."""
        metadata, newest = self.snapshot.metadata, self.snapshot.snapshot_id
        start = self.snapshot.at(since).snapshot_id
        line = [one.snapshot_id for one in ancestors(metadata, metadata.snapshot_by_id(newest or -1))]
        if start not in line:
            problem = f"snapshot {start} is not an ancestor of snapshot {newest}"
            hint = "name a snapshot of the same branch"
            raise UsageError(problem, path=self.snapshot.name, hint=hint)
        return np.array(line[: line.index(start)], dtype=np.int64)


def check_options(options: CompactionOptions, snapshot: TableSnapshot) -> None:
    """Refuse options that don't fit the table."""
    spec = options.target_spec_id
    if spec is not None and spec not in snapshot.specs:
        known = ", ".join(map(str, sorted(snapshot.specs)))
        raise UsageError(
            f"table has no partition spec {spec}", path=snapshot.name, hint=f"use one of {known}"
        )
    if options.strategy == "sort" and not options.sort_by:
        problem, hint = (
            "table has no sort order",
            "name columns in sort_by, or define a sort order for the table",
        )
        if snapshot.metadata.sort_order().fields:
            problem, hint = (
                "table's sort order begins with no column that has an order",
                "name columns in sort_by",
            )
        raise UsageError(problem, path=snapshot.name, hint=hint)


def sort_order(options: CompactionOptions, metadata: TableMetadata) -> int | None:
    """The id of the table's sort order, if it is exactly the order that the options write."""
    if options.strategy != "sort":
        return None
    order = next(one for one in metadata.sort_orders if one.order_id == metadata.default_sort_order_id)
    names = []
    for one in order.fields:
        terms = (str(one.transform), str(one.direction.value), str(one.null_order.value))
        if terms != ("identity", "asc", "nulls-first"):
            return None
        names.append(metadata.schema().find_column_name(one.source_id))
    return order.order_id if names and tuple(names) == options.sort_by else None


def _delete_counts(matches: DeleteMatches) -> Array:
    """Number of delete files that apply to each data file."""
    counts: Array = matches.positions.counts + matches.equalities.counts + (matches.vectors >= 0)
    return counts


def _deleted_rows(matches: DeleteMatches) -> Array:
    """Rows of each data file that deletes of this file alone remove."""
    deletes, data = matches.deletes, matches.data
    bounds = deletes.metrics(PATH_ID)
    named = deletes.referenced.cast(pa.large_binary())
    same = pc.fill_null(pc.equal(bounds.lower, bounds.upper), False)
    only = pc.coalesce(named, pc.if_else(same, bounds.lower, pa.scalar(None, pa.large_binary())))
    units, numbers = matches.positions.pairs(np.arange(len(data)))
    vectors = np.flatnonzero(matches.vectors >= 0)
    units, numbers = np.concatenate([units, vectors]), np.concatenate([numbers, matches.vectors[vectors]])
    paths = data.paths.cast(pa.large_binary()).take(pa.array(units))
    own = np.asarray(pc.fill_null(pc.equal(only.take(pa.array(numbers)), paths), False))
    rows = np.bincount(units[own], deletes.rows[numbers[own]], len(data)).astype(np.int64)
    return np.minimum(rows, data.rows)


# -- groups ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Packing:
    """Packs candidates into groups of one partition each."""

    entries: Entries
    reasons: Array
    matches: DeleteMatches | None
    options: CompactionOptions
    snapshot: TableSnapshot

    def name(self, key: PartitionKey | None) -> str:
        """The partition of a group for people, with its spec if the table has several."""
        if key is None:
            return "other specs"
        specs, schema = self.snapshot.specs, self.snapshot.iceberg_schema
        name = partition_name(key, specs, schema)
        return f"{name} (spec {key.spec_id})" if len(specs) > 1 else name

    def groups(self, chosen: Array) -> tuple[list[FileGroup], list[SkippedGroup]]:
        """Groups worth rewriting, numbered in the order of their partitions, and the others."""
        groups: list[FileGroup] = []
        skipped: list[SkippedGroup] = []
        chosen, owners = self._ordered(chosen)
        sizes = np.concatenate(([0], np.cumsum(self.entries.sizes[chosen])))
        enough = np.concatenate(([0], np.cumsum((self.reasons[chosen] & _ENOUGH) > 0)))
        table, deleted = self._table(chosen)
        # A group is a run of this order, so that its columns are slices.
        for start, stop in self._runs(owners, sizes):
            key = self.entries.keys[int(owners[start])] if owners[start] >= 0 else None
            total = int(sizes[stop] - sizes[start])
            problem = "" if enough[stop] > enough[start] else self._problem(stop - start, total)
            if problem:
                skipped.append(SkippedGroup(key, stop - start, total, problem, self.name(key)))
                continue
            deletes = self._delete_files(chosen[start:stop]) if deleted[start:stop].any() else ()
            expected = output_files(total, self.options)
            part = table.slice(start, stop - start)
            groups.append(FileGroup(len(groups), key, expected, deletes, part, self.name(key)))
        return groups, skipped

    def _ordered(self, chosen: Array) -> tuple[Array, Array]:
        """Files by partition, age and path, and the code of each one's partition."""
        entries = self.entries
        owners = entries.partitions[chosen].astype(np.int64)
        # Files that move to another spec are packed together: their partitions are about to change.
        owners[(self.reasons[chosen] & _SPEC) > 0] = -1
        ranks = np.asarray(pc.rank(entries.paths.take(pa.array(chosen)), tiebreaker="first"))
        order = np.lexsort((ranks, entries.sequences[chosen], owners))
        return chosen[order], owners[order]

    def _runs(self, owners: Array, sizes: Array) -> Iterator[tuple[int, int]]:
        """Runs of one partition, of at most the maximum size of a group; ``sizes`` are sums."""
        most = self.options.max_file_group_size_bytes
        firsts = np.flatnonzero(np.diff(owners, prepend=-2))
        for first, last in pairwise([*firsts.tolist(), len(owners)]):
            start = first
            while start < last:
                stop = last
                if sizes[last] - sizes[start] > most:
                    fitting = np.searchsorted(sizes[: last + 1], sizes[start] + most, side="right")
                    stop = max(int(fitting) - 1, start + 1)
                yield start, stop
                start = stop

    def _problem(self, count: int, total: int) -> str:
        """Why files that are only too small or too large are not worth rewriting; "" if they are."""
        options = self.options
        if total > options.max_file_size_bytes:
            return ""
        if count > 1 and (count >= options.min_input_files or total > options.target_file_size_bytes):
            return ""
        if count == 1:
            return "only one file"
        few = f"{plural(count, 'file')}, fewer than min-input-files {options.min_input_files}"
        return f"{few}, and {size(total)} is at most the target"

    def _table(self, files: Array) -> tuple[pa.Table, Array]:
        """Files as columns, and the number of delete files of each."""
        entries, matches = self.entries, self.matches
        deletes = np.zeros(len(files), np.int32)
        if matches is not None:
            deletes = _delete_counts(matches)[files].astype(np.int32)
        columns = [
            entries.paths.take(pa.array(files)),
            entries.sizes[files],
            entries.rows[files],
            entries.sequences[files],
            self.reasons[files],
            deletes,
        ]
        return pa.table(columns, schema=_FILES), deletes

    def _delete_files(self, files: Array) -> tuple[str, ...]:
        matches = self.matches
        assert matches is not None
        numbers = [matches.positions.pairs(files)[1], matches.equalities.pairs(files)[1]]
        vectors = matches.vectors[files]
        used = np.unique(np.concatenate([*numbers, vectors[vectors >= 0]]))
        return tuple(sorted(matches.deletes.paths.take(pa.array(used)).to_pylist()))


def output_files(total: float, options: CompactionOptions) -> int:
    """Number of files of about the target size that hold this many bytes."""
    return max(round(total / options.target_file_size_bytes), 1)


def _ordered(groups: Sequence[FileGroup], order: str) -> tuple[FileGroup, ...]:
    what, _, direction = order.partition("-")
    if what == "none":
        return tuple(groups)
    sign = -1 if direction == "desc" else 1
    return tuple(
        sorted(groups, key=lambda one: (sign * (one.bytes if what == "bytes" else one.count), one.id))
    )
