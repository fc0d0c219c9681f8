"""An Iceberg table as a lake, with its snapshots, writes and maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from skipstone.core.evidence import ColumnFacts
from skipstone.lake.files import CACHE_BYTES
from skipstone.scan.lake import Lake, restored
from skipstone.store.retry import RetryPolicy
from skipstone.store.store import Store

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata

    from skipstone.compact.expire import ExpireReport
    from skipstone.compact.maintenance import Maintenance, MaintenanceName, MaintenanceReport
    from skipstone.compact.manifests import ManifestsReport
    from skipstone.compact.orphans import OrphansReport, PrefixMismatch
    from skipstone.compact.plan import CompactionPlan
    from skipstone.compact.run import CompactionReport
    from skipstone.iceberg.inventory import Inventory
    from skipstone.iceberg.manifests.entries import Entries
    from skipstone.iceberg.metadata import SnapshotInfo
    from skipstone.iceberg.plan import FilePlan
    from skipstone.iceberg.table import TableSnapshot
    from skipstone.table.changes import TableChanges
    from skipstone.table.overlay import OverlayTable
    from skipstone.table.report import WriteReport
    from skipstone.table.tail.status import TailStatus
    from skipstone.table.tail.wal import OnDamage, SyncPolicy
    from skipstone.table.tail.writer import TailWriter
    from skipstone.table.transaction import Transaction
    from skipstone.typing import (
        CompactionStrategy,
        DataLike,
        EngineLike,
        IngestProgress,
        JobOrder,
        KeysLike,
        MergeAction,
        PredicateLike,
        QueryLog,
        SizeLike,
        SnapshotLike,
        StorageOptions,
        StrPath,
    )


class Table(Lake):
    """An Iceberg table at one snapshot; [open][skipstone.open] opens it.

    The index of a table is keyed by data file, so it serves every snapshot.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> table.name, len(table.snapshots()), table.scan("event_id < 10").count()
        ('db.events', 1, 10)
    """

    _internal = (Lake._internal - {"at"}) | {
        *("attach", "delete_inventory", "detached", "file_facts", "flush_tail", "following"),
        *("inventory", "keep_manifests", "move_to", "without_tail"),
    }
    pinned: TableSnapshot
    _tail: TailWriter | None = None

    def __init__(
        self,
        table: IcebergTable,
        *,
        snapshot: SnapshotLike | None = None,
        storage_options: StorageOptions | None = None,
        retry: RetryPolicy | None = None,
        memory: int = CACHE_BYTES,
        stay_below_root: bool = False,
        index_root: Store | None = None,
    ) -> None:
        from skipstone.iceberg.table import TableSnapshot

        self._start(
            TableSnapshot.open(
                table,
                snapshot=snapshot,
                storage_options=storage_options,
                retry=retry,
                memory=memory,
                stay_below_root=stay_below_root,
            ),
            index_root,
        )

    def at(self, snapshot: SnapshotLike) -> Table:
        """Return the table at another snapshot.

        Args:
            snapshot: An id, a branch, a tag or a time (ISO text or datetime).

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.events", catalog="warehouse")
            >>> table.at(table.snapshots()[0].id).scan().count()
            1000
        """
        return restored(type(self), self.pinned.at(snapshot), self._index_root)

    def __repr__(self) -> str:
        at = "no snapshot" if self.snapshot is None else f"snapshot {self.snapshot}"
        return f"Table({self.name!r}, {at})"

    @property
    def name(self) -> str:
        """Name in the catalog, or location."""
        return self.pinned.name

    @property
    def table(self) -> IcebergTable:
        """The table as a pyiceberg object."""
        return self.pinned.table

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata as a pyiceberg object."""
        return self.pinned.metadata

    @property
    def snapshot(self) -> int | None:
        """The id of the snapshot; None for a table without snapshots."""
        return self.pinned.snapshot_id

    def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """Return all snapshots in the metadata, oldest first; a notebook shows them as a table."""
        return self.pinned.snapshots()

    def _metadata_rows(self) -> int | None:
        current = self._current()
        if not isinstance(current, Table):
            return current._metadata_rows()
        summary = next((one.summary for one in self.snapshots() if one.id == self.snapshot), {})
        rows = summary.get("total-records", "0" if self.snapshot is None else "")
        undeleted = self.snapshot is None or summary.get("total-delete-files") == "0"
        return int(rows) if undeleted and rows.isdecimal() else None

    @property
    def iceberg_schema(self) -> Schema:
        """The schema of the snapshot with its field ids."""
        return self.pinned.iceberg_schema

    @property
    def specs(self) -> Mapping[int, PartitionSpec]:
        """The partition specs by id."""
        return self.pinned.specs

    @property
    def inventory(self) -> Inventory:
        """The data files."""
        return self.pinned.inventory

    @property
    def delete_inventory(self) -> Inventory:
        """The delete files."""
        return self.pinned.delete_inventory

    def plan_files(
        self, where: PredicateLike = None, *, strict: bool = False, case_sensitive: bool = True
    ) -> FilePlan:
        """Return the data files that can match according to the manifests, each with its delete files.

        Args:
            where: SQL text, or any predicate that ``sk.predicate`` accepts.
            strict: Raise an error for a partition that can't be judged. By default the partition is kept, and
                counted in ``filter_stats``.
            case_sensitive: Whether column names are case-sensitive.
        """
        return self.pinned.plan_files(where, strict=strict, case_sensitive=case_sensitive)

    def plan_compaction(
        self,
        where: PredicateLike = None,
        *,
        strategy: CompactionStrategy = "binpack",
        sort_by: Sequence[str] | str = (),
        target_spec_id: int | None = None,
        since: SnapshotLike | None = None,
        strict: bool = False,
        case_sensitive: bool = True,
        target_file_size_bytes: SizeLike | None = None,
        min_file_size_bytes: SizeLike | None = None,
        max_file_size_bytes: SizeLike | None = None,
        min_input_files: int | None = None,
        max_file_group_size_bytes: SizeLike | None = None,
        rewrite_all: bool | None = None,
        delete_file_threshold: int | None = None,
        delete_ratio_threshold: float | None = None,
        rewrite_job_order: JobOrder | None = None,
        max_concurrent_file_group_rewrites: int | None = None,
        partial_progress_enabled: bool | None = None,
        partial_progress_max_commits: int | None = None,
        use_starting_sequence_number: bool | None = None,
        remove_dangling_deletes: bool | None = None,
        options: Mapping[str, str] | None = None,
        force: bool = False,
    ) -> CompactionPlan:
        """Plan which files to rewrite, without reading any of them; ``compact`` runs the plan.

        Files are rewritten if they are too small or too large, or if too many of their rows are deleted.
        Each file stays in its own partition spec, unless ``target_spec_id`` moves it. Names and defaults are
        those of Iceberg's RewriteDataFiles; None means the default.

        Args:
            where: Only files in partitions that can match. Conditions on other columns include all files,
                which ``plan.filter_stats`` counts.
            strategy: ``"binpack"`` keeps the order of rows; ``"sort"`` sorts each group by ``sort_by``;
                ``"zorder"`` and ``"hilbert"`` order it along a curve over up to eight columns.
            sort_by: Columns; for ``"sort"`` by default those of the table's sort order.
            target_spec_id: Move files of other partition specs to this one.
            since: Only files that were added after this snapshot.
            strict: Raise an error for a partition that can't be judged, instead of including its files.
            case_sensitive: Whether column names in ``where`` are case-sensitive.
            target_file_size_bytes: Size of new files; by default the table's
                ``write.target-file-size-bytes``, or 512 MiB. Sizes are bytes, or text such as ``"64MB"``.
            min_file_size_bytes: Smaller files are rewritten; by default 75 % of the target.
            max_file_size_bytes: Larger files are rewritten; by default 180 % of the target.
            min_input_files: Groups with fewer files are skipped unless they exceed the target size; 5.
            max_file_group_size_bytes: Largest group; 100 GiB.
            rewrite_all: Rewrite all files.
            delete_file_threshold: Rewrite files with at least this many delete files; by default none.
            delete_ratio_threshold: Rewrite files if delete files that apply only to them delete this
                share; 0.3.
            rewrite_job_order: Order of the groups: ``"none"``, ``"bytes-asc"``, ``"bytes-desc"``,
                ``"files-asc"`` or ``"files-desc"``.
            max_concurrent_file_group_rewrites: Groups that are rewritten at the same time; 5.
            partial_progress_enabled: Commit groups in several snapshots; groups that fail are reported.
            partial_progress_max_commits: Number of these snapshots; 10.
            use_starting_sequence_number: Give new files the sequence number of the planned snapshot, so that
                concurrent equality deletes still apply to them; True.
            remove_dangling_deletes: Drop delete files that no longer apply to any file; True.
            options: Options under Iceberg's names, as in ``{"min-input-files": "2"}``.
            force: Accept a ``target_file_size_bytes`` below 1 MiB, and more than 10,000 new files.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.events", catalog="warehouse")
            >>> plan = table.plan_compaction("event_id < 500", rewrite_all=True)
            >>> [(group.count, group.rows, group.reasons) for group in plan.groups]
            [(1, 1000, {'small': 1, 'rewrite-all': 1})]
        """
        from skipstone.compact.options import parse_java
        from skipstone.compact.run import plan_compaction

        given = {
            "strategy": strategy,
            "sort_by": (sort_by,) if isinstance(sort_by, str) else tuple(sort_by),
            "target_spec_id": target_spec_id,
            "target_file_size_bytes": target_file_size_bytes,
            "min_file_size_bytes": min_file_size_bytes,
            "max_file_size_bytes": max_file_size_bytes,
            "min_input_files": min_input_files,
            "max_file_group_size_bytes": max_file_group_size_bytes,
            "rewrite_all": rewrite_all,
            "delete_file_threshold": delete_file_threshold,
            "delete_ratio_threshold": delete_ratio_threshold,
            "rewrite_job_order": rewrite_job_order,
            "max_concurrent_file_group_rewrites": max_concurrent_file_group_rewrites,
            "partial_progress_enabled": partial_progress_enabled,
            "partial_progress_max_commits": partial_progress_max_commits,
            "use_starting_sequence_number": use_starting_sequence_number,
            "remove_dangling_deletes": remove_dangling_deletes,
        }
        return plan_compaction(
            self,
            {**given, **parse_java(options or {})},
            where=where,
            strict=strict,
            case_sensitive=case_sensitive,
            since=since,
            force=force,
        )

    def compact(
        self,
        plan: CompactionPlan | None = None,
        *,
        engine: EngineLike = "auto",
        master: str | None = None,
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
        threads: int | None = None,
        checksums: bool = False,
        memory: SizeLike | None = None,
        properties: Mapping[str, str] | None = None,
        progress: IngestProgress | None = None,
    ) -> CompactionReport:
        """Rewrite the files of a plan and commit the result; the rows of the table stay the same.

        Deletes are applied. Before a commit, the rows written are compared with the rows read. Concurrent
        appends are kept; groups whose rows were deleted concurrently are planned and rewritten again.

        Args:
            plan: The result of ``plan_compaction``; by default a plan with default options.
            engine: ``"spark"``, ``"local"`` or a Spark session; by default local threads for less than
                64 MB, else Spark if PySpark and Java are installed.
            master: Master URL of a new Spark session.
            remote: Spark Connect URL.
            conf: Settings of a new Spark session.
            threads: Threads of the local engine; one per core by default.
            checksums: Also read the new files and compare checksums of all columns before the commit.
            memory: Bytes of rows to hold while they are sorted; a quarter of the memory by default.
            properties: Properties for the summaries of the snapshots.
            progress: Called with the phase (``"rewriting"`` rows, ``"committing"`` groups, ``"indexing"``
                files), and the number of its finished and of all parts; from any thread.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.events", catalog="warehouse")
            >>> report = table.compact(table.plan_compaction(rewrite_all=True), engine="local")
            >>> report.files_removed, report.files_added, report.rows
            (1, 1, 1000)
        """
        from skipstone.compact.run import compact

        return compact(
            self,
            self.plan_compaction() if plan is None else plan,
            engine=engine,
            master=master,
            remote=remote,
            conf=conf,
            threads=threads,
            checksums=checksums,
            memory=memory,
            properties=properties,
            progress=progress,
        )

    def maintenance(self, queries: QueryLog | None = None, *, sample: int = 16) -> Maintenance:
        """Propose maintenance tasks for the table, with the requests and bytes that they would save.

        Reads manifests and, to judge orders of rows, a sample of files. Nothing is changed.

        Args:
            queries: Predicates, each alone or with its weight, or the path of a query log, by which orders of
                rows are judged. Without queries, only the table's own sort order is recommended.
            sample: Maximum number of files to sample.

        Examples:
            >>> import skipstone as sk
            >>> proposal = sk.open("db.events", catalog="warehouse").maintenance()
            >>> print(proposal["index"].saves)
            1 request per query
        """
        from skipstone.compact.maintenance import propose

        return propose(self, queries, sample=sample)

    def maintain(
        self,
        proposal: Maintenance | None = None,
        *,
        only: Sequence[MaintenanceName] | MaintenanceName | None = None,
        queries: QueryLog | None = None,
        sample: int = 16,
        engine: EngineLike = "auto",
        master: str | None = None,
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
        threads: int | None = None,
        progress: IngestProgress | None = None,
    ) -> MaintenanceReport:
        """Run the tasks that ``maintenance`` recommends; each is planned again when it runs.

        An error ends only its own task, and is in the report.

        Args:
            proposal: The result of ``maintenance``; by default a new one.
            only: Do exactly these tasks, recommended or not.
            queries: Queries by which orders of rows are judged, as for ``maintenance``.
            sample: Maximum number of files to sample.
            engine: ``"spark"``, ``"local"`` or a Spark session, as for ``compact``.
            master: Master URL of a new Spark session.
            remote: Spark Connect URL.
            conf: Settings of a new Spark session.
            threads: Threads of the local engine; one per core by default.
            progress: Called with the phase, and the number of its finished and of all parts.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.events", catalog="warehouse", index_root="other_index")
            >>> report = table.maintain(only="index", engine="local")
            >>> report.tasks[0].report.indexed, report.failed
            (1, ())
        """
        from skipstone.compact.maintenance import maintain

        where = {"engine": engine, "master": master, "remote": remote, "conf": conf, "threads": threads}
        return maintain(self, proposal, only, queries, sample, progress, where)

    def expire(
        self,
        *,
        older_than: datetime | timedelta | str | None = None,
        retain_last: int | None = None,
        snapshot_ids: Sequence[int] = (),
        dry_run: bool = False,
    ) -> ExpireReport:
        """Remove old snapshots from the table, and delete the files that no other snapshot needs.

        Iceberg's rules apply: branches keep their last snapshots and young ones; branches and tags can set
        limits of their own, and the snapshot of a branch or tag never expires. The metadata is committed
        before anything is deleted, and files that a concurrent commit refers to stay. Queries that still read
        a removed snapshot fail.

        Args:
            older_than: A time, or an age such as ``"7d"``; younger snapshots stay. By default the table's
                ``history.expire.max-snapshot-age-ms``, or 5 days.
            retain_last: Number of snapshots that each branch keeps; by default the table's
                ``history.expire.min-snapshots-to-keep``, or 1.
            snapshot_ids: Remove these snapshots, whatever their age; others expire by age only if
                ``older_than`` or ``retain_last`` is set too.
            dry_run: Only report what would be removed.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.events", catalog="warehouse")
            >>> table.expire(older_than="7d", retain_last=10).snapshots
            ()
        """
        from skipstone.compact.expire import expire

        return expire(
            self,
            older_than=older_than,
            retain_last=retain_last,
            snapshot_ids=snapshot_ids,
            dry_run=dry_run,
        )

    def remove_orphans(
        self,
        *,
        older_than: datetime | timedelta | str | None = None,
        location: str | None = None,
        prefix_mismatch: PrefixMismatch = "error",
        allow_recent: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> OrphansReport:
        """Delete the files in the table's location that nothing in its metadata refers to.

        Such files are left by writers that failed or were killed. Files of a running writer look the same, so
        only old files are deleted. Names that begin with ``_`` or ``.`` are ignored, as by other engines.
        Files of other tables of the catalog stay, wherever their own metadata is.

        Args:
            older_than: A time, or an age such as ``"7d"``; younger files stay. 3 days by default.
            location: Look only below this directory of the table.
            prefix_mismatch: A file can be listed with another scheme or authority than the metadata has.
                ``"error"`` refuses to delete anything; ``"ignore"`` leaves these files.
            allow_recent: Accept an ``older_than`` of less than a day; safe only while nothing writes.
            force: Delete even though the catalog can't be listed or some of its tables can't be loaded, so
                that the files could be theirs; the report's ``unchecked`` has the reasons.
            dry_run: Only report what would be deleted.

        Raises:
            UsageError: If other tables of the catalog can't be compared, unless ``force`` or ``dry_run``.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.events", catalog="warehouse")
            >>> report = table.remove_orphans(dry_run=True)
            >>> report.files, report.referenced == report.listed
            ((), True)
        """
        from skipstone.compact.orphans import remove_orphans

        return remove_orphans(
            self,
            older_than=older_than,
            location=location,
            prefix_mismatch=prefix_mismatch,
            allow_recent=allow_recent,
            force=force,
            dry_run=dry_run,
        )

    def rewrite_manifests(
        self,
        where: PredicateLike = None,
        *,
        spec_id: int | None = None,
        target_size_bytes: SizeLike | None = None,
        rewrite_all: bool = False,
        force: bool = False,
        properties: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> ManifestsReport:
        """Combine small manifests and sort their entries by partition; rows and files stay the same.

        Small manifests are combined, and all manifests of a spec are rewritten if files of the same
        partitions are spread over many of them. Entries keep their sequence numbers and snapshot ids.
        Concurrent commits are kept.

        Args:
            where: Only manifests with files in partitions that can match.
            spec_id: Only manifests of this partition spec.
            target_size_bytes: Size of new manifests; by default the table's
                ``commit.manifest.target-size-bytes``, or 8 MiB.
            rewrite_all: Rewrite manifests that are neither small nor spread out too.
            properties: Properties for the summary of the snapshot.
            dry_run: Only report what would be rewritten.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.events", catalog="warehouse")
            >>> report = table.rewrite_manifests(dry_run=True)
            >>> report.replaced, report.snapshot
            (0, None)
        """
        from skipstone.compact.manifests import rewrite_manifests

        return rewrite_manifests(
            self,
            where,
            spec_id=spec_id,
            target_size_bytes=target_size_bytes,
            rewrite_all=rewrite_all,
            force=force,
            properties=properties,
            dry_run=dry_run,
        )

    # -- writes by key -----------------------------------------------------------------------

    def append(
        self,
        data: DataLike,
        *,
        token: str | None = None,
        properties: Mapping[str, str] | None = None,
        engine: EngineLike = "auto",
    ) -> WriteReport:
        """Insert rows into a keyed table as one snapshot.

        A key that is already in the table, or twice in the data, is a
        [DuplicateKeyError][skipstone.DuplicateKeyError], and nothing is written. A Spark data frame is
        written by Spark's tasks.

        Args:
            data: The rows; missing columns are NULL.
            token: A name for this write. If a snapshot of the table has the same token, nothing is done, so
                that a call whose outcome is unknown can be repeated.
            properties: Properties for the snapshot's summary.
            engine: Where a Spark data frame is written; other data is written by this process.

        Examples:
            >>> import pyarrow as pa
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> table.append(pa.table({"id": [4, 5], "v": [40, 50]}), token="monday").inserted
            2
            >>> table.append(pa.table({"id": [4, 5], "v": [40, 50]}), token="monday").repeated
            True
        """
        from skipstone.table.write import append

        return append(self, data, token=token, properties=properties, engine=engine)

    def upsert(
        self,
        data: DataLike,
        *,
        compare: bool = True,
        token: str | None = None,
        properties: Mapping[str, str] | None = None,
        engine: EngineLike = "auto",
    ) -> WriteReport:
        """Insert rows of a keyed table, and replace those whose key is in it, as one snapshot.

        Of several rows with one key the last is written. In a Spark data frame, whose rows have no order,
        they are an error. After a concurrent commit the write is repeated on the newest snapshot, for which
        only new files are searched.

        Args:
            data: The rows; missing columns are NULL.
            compare: Compare rows with those in the table, and write only what differs. Spark data frames
                are written without a comparison.
            token: A name for this write, as for ``append``.
            properties: Properties for the snapshot's summary.
            engine: Where a Spark data frame is written; other data is written by this process.

        Examples:
            >>> import pyarrow as pa
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> report = table.upsert(pa.table({"id": [2, 3, 4], "v": [21, 30, 40]}))
            >>> report.inserted, report.updated, report.unchanged
            (1, 1, 1)
        """
        from skipstone.table.write import upsert

        return upsert(self, data, compare=compare, token=token, properties=properties, engine=engine)

    def delete(
        self,
        where: PredicateLike = None,
        *,
        keys: KeysLike | None = None,
        token: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> WriteReport:
        """Delete rows of a keyed table by a condition or by key, as one snapshot.

        Keys that are not in the table are ignored.

        Args:
            where: SQL text, or any predicate that ``sk.predicate`` accepts.
            keys: A key, or several: ``3``, ``[3, 4]``, ``[("EU", 3)]``, an Arrow array or a table.
            token: A name for this write, as for ``append``.
            properties: Properties for the snapshot's summary.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> table.delete(keys=[1, 99]).deleted, table.delete("v = 99").deleted
            (1, 0)
        """
        from skipstone.table.write import delete

        return delete(self, where, keys, token=token, properties=properties)

    def update(
        self,
        where: PredicateLike,
        values: Mapping[str, Any],
        *,
        token: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> WriteReport:
        """Set columns of the rows that match a condition, as one snapshot.

        Args:
            where: SQL text, or any predicate that ``sk.predicate`` accepts; None for all rows.
            values: New values by column. Text is an SQL expression over the columns of the row, as in
                ``{"v": "v + 1"}``; all other values, and ``sk.lit("text")``, are constants.
            token: A name for this write, as for ``append``.
            properties: Properties for the snapshot's summary.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> table.update("id >= 2", {"v": "v + 1"}).updated, table.get(2)
            (2, {'id': 2, 'v': 21})
        """
        from skipstone.table.write import update

        return update(self, where, values, token=token, properties=properties)

    def merge(
        self,
        data: DataLike,
        on: Sequence[str] | str | None = None,
        *,
        when_matched: MergeAction | Sequence[tuple[PredicateLike, MergeAction]] = "update",
        when_not_matched: Literal["insert", "ignore"] = "insert",
        token: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> WriteReport:
        """Merge rows of a source into a keyed table, as one snapshot.

        Args:
            data: The source; it can have other columns than the table, but must have the key.
            on: The columns to match by, which are those of the key.
            when_matched: What happens to a row whose key is in the source: ``"update"`` sets the columns
                that the source has, ``"delete"``, ``"ignore"``, or a mapping of columns to new values. Or
                pairs of a condition and one of these, of which the first that is TRUE applies (None is
                TRUE). Expressions name columns ``source.v`` and ``target.v``.
            when_not_matched: What happens to the other rows of the source: ``"insert"`` or ``"ignore"``.
            token: A name for this write, as for ``append``.
            properties: Properties for the snapshot's summary.

        Examples:
            >>> import pyarrow as pa
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> source = pa.table({"id": [2, 3, 4], "v": [1, 2, 3], "gone": [True, False, False]})
            >>> clauses = [("source.gone", "delete"), (None, {"v": "source.v + target.v"})]
            >>> report = table.merge(source, when_matched=clauses)
            >>> report.inserted, report.updated, report.deleted
            (1, 1, 1)
        """
        from skipstone.table.write import merge

        return merge(self, data, on, when_matched, when_not_matched, token=token, properties=properties)

    def transaction(
        self, *, token: str | None = None, properties: Mapping[str, str] | None = None
    ) -> Transaction:
        """Begin a transaction: several writes to a keyed table that are committed as one snapshot.

        It reads the current snapshot, to which the table moves, and its own writes. The end of a ``with``
        block commits them, if no other commit has changed a row with one of their keys since the beginning;
        otherwise, and after an error in the block, nothing is written. An open writer of the table's tail is
        flushed first.

        Args:
            token: A name for the commit, as for ``append``.
            properties: Properties for the snapshot's summary.

        Raises:
            ConflictError: At the end, if another commit has changed a row with one of the keys.

        Examples:
            >>> import pyarrow as pa
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> with table.transaction() as tx:
            ...     _ = tx.update("id = 3", {"v": "v - 5"})
            ...     _ = tx.upsert(pa.table({"id": [4], "v": [5]}))
            ...     tx.scan("id >= 3").to_arrow()["v"].to_pylist(), table.get(3)
            ([25, 5], {'id': 3, 'v': 30})
            >>> tx.report.inserted, tx.report.updated, table.get(3)
            (1, 1, {'id': 3, 'v': 25})
        """
        from skipstone.table.transaction import Transaction

        return Transaction(self, token, properties)

    # -- rows by key -------------------------------------------------------------------------

    def get(self, key: KeysLike, columns: Sequence[str] | None = None) -> dict[str, Any] | None:
        """Return the row of a key of a keyed table; None if there is none.

        Args:
            key: The key: a value, a tuple with one value per key column, or a mapping by column.
            columns: Columns of the result; None for all.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> table.get(3), table.get(99)
            ({'id': 3, 'v': 30}, None)
        """
        from skipstone.table.get import get

        return get(self._current(), key, columns)

    def get_many(self, keys: KeysLike, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of keys of a keyed table, in the order of the keys.

        Args:
            keys: A list of keys, an Arrow array, or a table. Keys that are not in the table are left out.
            columns: Columns of the result; None for all.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> table.get_many([3, 99, 1])["v"].to_pylist()
            [30, 10]
        """
        from skipstone.table.get import get_many

        return get_many(self._current(), keys, columns)

    def changes(self, start: SnapshotLike | None = None, end: SnapshotLike | None = None) -> TableChanges:
        """Return the rows that differ between two snapshots of a keyed table, by key.

        Args:
            start: The earlier snapshot: an id, a branch, a tag or a time; None for the empty table.
            end: The later snapshot; by default that of this table, with the unflushed rows of its tail.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> before = table.snapshot
            >>> _ = table.delete(keys=3), table.update("id = 1", {"v": 11})
            >>> changes = table.changes(before)
            >>> len(changes.inserted), len(changes.updated), len(changes.deleted)
            (0, 1, 1)
        """
        from skipstone.table.changes import table_changes

        return table_changes(self, start, self._current() if end is None else self.at(end))

    # -- snapshots ---------------------------------------------------------------------------

    def create_tag(self, name: str, snapshot: SnapshotLike | None = None) -> None:
        """Name a snapshot; by default the current one.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> table.create_tag("audited")
            >>> table.at("audited").snapshot == table.snapshot
            True
        """
        from skipstone.table.refs import create_ref

        create_ref(self, name, snapshot, "tag")

    def create_branch(self, name: str, snapshot: SnapshotLike | None = None) -> None:
        """Create a branch at a snapshot; by default at the current one."""
        from skipstone.table.refs import create_ref

        create_ref(self, name, snapshot, "branch")

    def drop_ref(self, name: str) -> None:
        """Drop a tag or a branch; snapshots stay until they expire."""
        from skipstone.table.refs import drop_ref

        drop_ref(self, name)

    def rollback(self, snapshot: SnapshotLike) -> None:
        """Make an ancestor of the current snapshot the current one.

        Args:
            snapshot: An id, a tag or a time.

        Examples:
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> before = table.snapshot
            >>> _ = table.delete(keys=3)
            >>> table.rollback(before)
            >>> table.get(3)
            {'id': 3, 'v': 30}
        """
        from skipstone.table.refs import rollback

        rollback(self, snapshot)

    # -- for the planner ---------------------------------------------------------------------

    def following(self, current: IcebergTable) -> Table:
        """The table in a newer state, with the same options and index."""
        return restored(type(self), self.pinned.following(current), self._index_root)

    # -- the tail ----------------------------------------------------------------------------

    def writer(
        self,
        *,
        sync: SyncPolicy = "every",
        flush_rows: int = 100_000,
        flush_bytes: SizeLike = 64 << 20,
        flush_seconds: float | None = 60.0,
        memory: SizeLike = 256 << 20,
        wal: StrPath | None = None,
        on_damage: OnDamage = "error",
    ) -> TailWriter:
        """Open the writer of a keyed table's tail, for small and frequent writes.

        Rows are acknowledged when they are in a write-ahead log, scans of this table object see them at once,
        and flushes commit many of them as one snapshot. Rows that an earlier process left in the log are
        recovered, each exactly once. A table has one such writer at a time.

        The table object moves to the current snapshot, then with every flush. Its other writes (``upsert``,
        ``transaction`` ...) flush the tail first.

        Args:
            sync: When rows are safe from a power failure: ``"every"`` before the call that wrote them returns
                (calls of several threads share a sync), ``"interval"`` within 0.1 seconds, ``"off"`` when the
                system writes them. In all cases they survive the end of the process.
            flush_rows: Rows to collect before they are flushed in the background.
            flush_bytes: Bytes to collect before they are flushed.
            flush_seconds: Age of the oldest row at which all are flushed; None for any age.
            memory: Bytes of unflushed rows; a write that would exceed them waits for a flush.
            wal: A local directory for the write-ahead log, outside the table. It is recorded in the table, so
                that later writers use it, too. By default ``.skipstone-tail`` beside a local table.
            on_damage: What to do if calls that had been synced are damaged or missing in the log: ``"error"``
                raises, ``"drop"`` recovers the calls before the first damage. The rest is lost to the table;
                its files stay in the directory, with ``.damaged`` after their names.
                ``writer.recovered`` says what was recovered and dropped.

        Raises:
            ConflictError: If another process, or another writer of this one, has the table's tail.
            CorruptFileError: If calls that had been synced are damaged or missing in the log.

        Examples:
            >>> import pyarrow as pa
            >>> import skipstone as sk
            >>> table = sk.open("db.accounts", catalog="warehouse")
            >>> writer = table.writer(sync="interval")
            >>> writer.upsert(pa.table({"id": [3, 4], "v": [31, 40]})), writer.delete(keys=[1, 2])
            (2, 2)
            >>> table.scan().to_arrow().to_pylist(), len(table.snapshots())
            ([{'id': 3, 'v': 31}, {'id': 4, 'v': 40}], 1)
            >>> writer.close()
            >>> table.scan().count(), len(table.snapshots())
            (2, 2)
        """
        from skipstone.core.plain import as_bytes
        from skipstone.table.tail.writer import Limits, open_writer

        limits = Limits(
            flush_rows, as_bytes(flush_bytes, "flush_bytes"), flush_seconds, as_bytes(memory, "memory")
        )
        return open_writer(self, sync=sync, limits=limits, wal=wal, on_damage=on_damage)

    def tail_status(self) -> TailStatus:
        """Return the unflushed writes in a keyed table's tail, and the process that writes to it.

        Examples:
            >>> import skipstone as sk
            >>> status = sk.open("db.accounts", catalog="warehouse").tail_status()
            >>> status.calls, status.open
            (0, False)
        """
        from skipstone.table.tail.status import tail_status

        return tail_status(self)

    def _current(self) -> Table | OverlayTable:
        return self if self._tail is None else self._tail.current()

    def flush_tail(self) -> None:
        """Flush the tail before another write of this object, which is then the later one."""
        if self._tail is not None:
            self._tail.flush()

    def attach(self, tail: TailWriter | None) -> None:
        """Let scans see the unflushed rows of a writer; None ends it."""
        self._tail = tail

    def move_to(self, snapshot: TableSnapshot) -> None:
        """Replace the snapshot."""
        self.index.pin(snapshot)
        self._keep(snapshot)

    def without_tail(self) -> Table:
        """A copy of the table that stays at its snapshot, and whose scans see no unflushed rows."""
        return self.pinned_to(self.pinned)

    def detached(self) -> Table:
        """A table at the same snapshot that another thread can refresh and write to."""
        return restored(type(self), self.pinned.detached(), self._index_root)

    def file_facts(self, entries: Entries, field_id: int) -> ColumnFacts:
        """Manifest facts of a column per file."""
        return self.pinned.file_facts(entries, field_id)

    def keep_manifests(self) -> None:
        """Cache the snapshot's manifest entries in the index; only new manifests are read."""
        from skipstone.index.entries import store_entries

        store_entries(self.index.access, self.pinned)


def current_table(table: Table, snapshot: int | None = None) -> Table:
    """Return the table at its current snapshot, or at one that is read with the table's current schema."""
    from skipstone.iceberg.metadata import RewriteBase

    reference: Any = None if snapshot is None else RewriteBase(snapshot)
    return restored(type(table), table.pinned.at(reference), table._index_root)
