"""The writer of a tail: rows are acknowledged after the write-ahead log, and flushed as snapshots.

    upsert, delete → log → mutable memtable → sealed memtables → one snapshot each → log trimmed

Readers of the same table object see its snapshot and the memtables that the snapshot does not contain, both
taken at one moment.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from skipstone.errors import ConflictError, UsageError
from skipstone.iceberg.partitions.values import is_unpartitioned
from skipstone.report import PublicNames
from skipstone.report.units import plural
from skipstone.table.keys import Keys, last_of_each
from skipstone.table.tail.evolve import adapt, check_key, key_columns, same_fields
from skipstone.table.tail.flush import Flusher
from skipstone.table.tail.lease import Lease
from skipstone.table.tail.location import claim
from skipstone.table.tail.memtable import Memtable, Versions, of_frame
from skipstone.table.tail.recovery import recover, snapshot_floor
from skipstone.table.tail.shield import PAUSE, Call, Shield, StoppedError
from skipstone.table.tail.status import TailStatus, status_of
from skipstone.table.tail.view import TailView
from skipstone.table.tail.wal import ON_DAMAGE, POLICIES, Frame, Kind, Log, OnDamage, SyncPolicy
from skipstone.table.write import opened, to_rows

if TYPE_CHECKING:
    from types import TracebackType

    from skipstone.iceberg.table import TableSnapshot
    from skipstone.iceberg.writing.target import Target
    from skipstone.scan.table import Table
    from skipstone.table.overlay import OverlayTable
    from skipstone.typing import DataLike, KeysLike, StrPath

_WRITTEN: Final = "the rows of the interrupted call are in the write-ahead log"
_WRITTEN_OR_NOT: Final = "the rows of the interrupted call are in the write-ahead log, or none of them is"
_CLOSED: Final = "the tail writer is closed, and unflushed rows are in its write-ahead log"
_CLOSED_OR_NOT: Final = "unflushed rows are in the write-ahead log of the tail"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a memtable is flushed, and how much memory all of them take."""

    rows: int
    bytes: int
    seconds: float | None
    memory: int

    def check(self) -> None:
        """Refuse limits that are not positive, or exclude each other."""
        for name, value in (("flush_rows", self.rows), ("flush_bytes", self.bytes), ("memory", self.memory)):
            if value < 1:
                raise UsageError(f"{name} is {value}", hint="use a positive number")
        if self.seconds is not None and self.seconds <= 0:
            raise UsageError(f"flush_seconds is {self.seconds}", hint="use a positive number, or None")
        if self.bytes > self.memory:
            problem = f"flush_bytes is {self.bytes:,}, which is more than memory={self.memory:,}"
            raise UsageError(problem, hint="set memory to several times flush_bytes")


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What the names in a call mean: the columns of the table object when the call began."""

    pinned: TableSnapshot
    """The snapshot of the table object, which can have another one with the same schema."""
    keys: Keys
    codes: Keys
    """The key with its columns in the order that all unflushed rows are encoded in."""
    target: Target
    schema: pa.Schema

    @classmethod
    def of(cls, table: Table, before: Columns | None = None) -> Columns:
        """The columns of a table; raise if the rows of those before can't be compared with theirs by key."""
        pinned = table.pinned
        if before is not None and pinned.metadata.schema() == before.target.table_schema:
            return replace(before, pinned=pinned)
        # Another thread can move the table.
        keys, target = opened(table.pinned_to(pinned))
        schema = target.schema
        if before is None:
            return cls(pinned, keys, keys, target, schema)
        former = key_columns(before.schema, before.codes.names)
        now = same_fields(former, schema)
        names = [one.name for one in now if one.name in keys.names]
        codes = Keys(keys.table, pa.schema([keys.schema.field(name) for name in names]))
        if sorted(codes.names) != sorted(keys.names) or codes.types != before.codes.types:
            problem = "schema was changed by another commit, with another key or other types of its columns"
            hint = "close the tail writer, open it again, and repeat the write"
            raise ConflictError(problem, path=table.name, hint=hint)
        return cls(pinned, keys, codes, target, schema)

    def stored(self, kind: Kind) -> pa.Schema:
        """The columns of a frame."""
        return self.schema if kind is Kind.ROWS else key_columns(self.schema, self.keys.names)

    def versions(self, kind: Kind, rows: pa.RecordBatch) -> Versions:
        """The versions of a frame."""
        return of_frame(self.codes, self.schema, kind, rows)


class TailWriter(PublicNames):
    """Writes rows to the tail of a keyed table; [Table.writer][skipstone.Table.writer] opens it.

    When a call returns, its rows are as safe as the sync policy says, and scans of the same table object see
    them. A flush commits them, so that all other readers see them. Several threads can share a writer.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> catalog = sk.catalog("warehouse")
        >>> schema = pa.schema({"id": pa.int64(), "name": pa.string()})
        >>> table = catalog.create_table("db.people", schema, key=["id"])
        >>> with table.writer() as writer:
        ...     _ = writer.upsert(pa.table({"id": [1, 2], "name": ["Ada", "Bob"]}))
        ...     _ = writer.delete(keys=[2])
        ...     table.scan().to_arrow().to_pylist(), len(table.snapshots())
        ([{'id': 1, 'name': 'Ada'}], 0)
        >>> table.scan().count(), len(table.snapshots())
        (1, 1)
        >>> catalog.drop_table("db.people")
    """

    _internal = frozenset({"current"})

    def __init__(
        self,
        table: Table,
        lease: Lease,
        frames: Iterable[Frame],
        recovered: TailStatus,
        *,
        limits: Limits,
        sync: SyncPolicy,
    ) -> None:
        self.recovered = recovered
        """What earlier processes had left when this writer was opened."""
        floor, last = recovered.floor, recovered.last
        self._table, self._lease, self._limits = table, lease, limits
        self._columns = columns = Columns.of(table)
        self._log = Log(lease.store, lease.state.id, columns.schema, columns.keys.names, last + 1, sync=sync)
        self._flusher = Flusher(table, lease, columns.stored(Kind.KEYS))
        self._view = TailView()
        # One lock for all that follows. Its waiters wait for room, for work, or for a flush.
        self._changed = threading.Condition()
        self._mutable = Memtable(columns.codes, columns.schema, floor + 1)
        self._sealed: deque[Memtable] = deque()
        self._pending: deque[tuple[int, Versions, Columns]] = deque()
        """Frames that are not acknowledged yet."""
        self._since = 0.0
        self._problem: Exception | None = None
        self._closed = False
        self._worker: threading.Thread | None = None
        self._flushing: int | None = None
        """The thread that flushes, one at a time; a flush of its own that was interrupted is over."""
        self._shield = Shield()
        self._base: tuple[Table, int] | None = None
        with self._changed:
            for frame in frames:
                self._put(frame.number, columns.versions(frame.kind, self._adapted(frame)), columns)

    # -- writes --------------------------------------------------------------------------------

    def upsert(self, data: DataLike) -> int:
        """Insert rows, or replace those with the same keys, and return the number of keys.

        All rows of a call are written together, or none of them. Of several rows with one key the last wins.

        Args:
            data: An Arrow table or stream, or a data frame of pandas or Polars.
        """
        columns = self._meant()
        return self._write(Kind.ROWS, to_rows(data, columns.target, columns.keys), columns)

    def delete(self, keys: KeysLike) -> int:
        """Delete rows by key, whether they exist or not, and return the number of keys.

        Args:
            keys: A key, several keys, or a table with the key columns.
        """
        columns = self._meant()
        return self._write(Kind.KEYS, columns.keys.parse(keys), columns)

    def _meant(self) -> Columns:
        """The columns that names mean now: the schema can change while the writer is open."""
        columns = self._columns
        if self._table.pinned is not columns.pinned:
            self._columns = columns = Columns.of(self._table, columns)
        return columns

    def _write(self, kind: Kind, rows: pa.Table, columns: Columns) -> int:
        last = last_of_each(columns.codes.encode(rows))
        if len(last) < len(rows):
            rows = rows.take(pa.array(last))
        if not len(rows):
            return 0
        (batch,) = rows.combine_chunks().to_batches()
        if kind is Kind.ROWS and not is_unpartitioned(columns.target.spec):
            # What no partition can hold could never be flushed.
            columns.target.partitions(batch)
        schema = columns.stored(kind)
        payload = pa.RecordBatch.from_arrays(batch.columns, schema=schema).serialize()
        # The log's copy: the caller can change the buffers of the rows.
        versions = columns.versions(kind, pa.ipc.read_record_batch(payload, schema))
        self._shield.run(partial(self._log_rows, kind, payload, versions, columns), _WRITTEN, _WRITTEN_OR_NOT)
        return len(versions)

    def _log_rows(
        self, kind: Kind, payload: pa.Buffer, versions: Versions, columns: Columns, call: Call[None]
    ) -> None:
        with self._changed:
            self._wait_for_room(versions.nbytes, call)
            self._lease.check()
            self._log.use(columns.schema, columns.keys.names)
            number = self._log.append(kind, payload)
            self._pending.append((number, versions, columns))
        self._log.acknowledge(number)
        with self._changed:
            # In the order of the log, and not before they are acknowledged.
            while self._pending and self._pending[0][0] <= number:
                self._put(*self._pending.popleft())
            self._changed.notify_all()

    def _adapted(self, frame: Frame) -> pa.RecordBatch:
        """The rows of a frame under the table's schema, which can have changed since."""
        key, wanted = self._columns.stored(Kind.KEYS), self._columns.stored(frame.kind)
        check_key(key_columns(frame.rows.schema, frame.keys), key, self._table.name)
        rows = adapt(pa.Table.from_batches([frame.rows]), wanted, self._table.name)
        (batch,) = rows.to_batches()
        return batch

    def _put(self, number: int, versions: Versions, columns: Columns) -> None:
        if columns.schema is not self._mutable.schema:
            # Rows of one memtable have one schema.
            self._seal()
            self._mutable = Memtable(columns.codes, columns.schema, self._mutable.last + 1)
        if not len(self._mutable):
            self._since = time.monotonic()
        self._mutable.put(number, versions)
        if len(self._mutable) >= self._limits.rows or self._mutable.nbytes >= self._limits.bytes:
            self._seal()
            self._start()
        elif self._limits.seconds is not None:
            self._start()

    def _seal(self) -> None:
        """Have the mutable memtable flushed."""
        if len(self._mutable):
            self._sealed.append(self._mutable)
            self._mutable = Memtable(self._mutable.keys, self._mutable.schema, self._mutable.last + 1)

    def _check(self) -> None:
        """Raise if the writer is closed, or what has failed since the last call."""
        if self._closed:
            raise UsageError("tail writer is closed", path=self._table.name, hint="open another one")
        self._log.check()
        problem, self._problem = self._problem, None
        if problem is not None:
            # The thread tries again once its error has been raised.
            self._changed.notify_all()
            raise problem

    def _wait_for_room(self, size: int, call: Call[None]) -> None:
        """Return when the memory has room; a write that is larger than all of it waits until it is alone."""
        while True:
            self._check()
            tables = sum(table.nbytes for table in (*self._sealed, self._mutable))
            used = tables + sum(versions.nbytes for _, versions, _ in self._pending)
            if not used or used + size <= self._limits.memory:
                return
            if not self._sealed:
                self._seal()
            self._start()
            self._wait(call)

    def _wait(self, call: Call[Any]) -> None:
        """Wait for a change, unless the caller was interrupted: nothing tells this thread of that."""
        self._changed.wait(PAUSE)
        if call.interrupted:
            raise StoppedError

    # -- flushes -------------------------------------------------------------------------------

    def flush(self) -> int | None:
        """Commit all rows of earlier calls and return the table's snapshot, which the table object moves to.

        No snapshot is made if nothing changes. If the commit fails, the rows stay in the tail.
        """
        self._flush(self._shield.run(self._seal_all))
        self._shield.run(self._move_now)
        return self._table.snapshot

    def _seal_all(self, _call: Call[int]) -> int:
        """Seal what is there, and return the number of the next frame."""
        with self._changed:
            # What failed in the background is tried again here.
            self._problem = None
            self._check()
            self._seal()
            return self._mutable.first

    def _flush(self, upto: int) -> None:
        """Flush the sealed memtables that begin before a frame."""
        mine = threading.get_ident()
        try:
            while (oldest := self._shield.run(partial(self._oldest, mine, upto))) is not None:
                versions, last = oldest
                # In the caller's thread: some catalogs, such as those in memory, are bound to it.
                snapshot = self._flusher.commit(versions, last)
                self._shield.run(partial(self._forget, last, snapshot))
        except KeyboardInterrupt as error:
            error.add_note("rows of the tail that are not committed are in its write-ahead log")
            raise
        finally:
            self._shield.run(partial(self._end_turn, mine))

    def _oldest(
        self, mine: int, upto: int, call: Call[tuple[Versions, int] | None]
    ) -> tuple[Versions, int] | None:
        """Take the turn to flush; return the versions and the last frame of the oldest sealed memtable."""
        with self._changed:
            while self._flushing not in (None, mine) and not self._closed:
                self._wait(call)
            if self._closed or not self._sealed or self._sealed[0].first >= upto:
                return None
            self._flushing = mine
            return self._sealed[0].versions(), self._sealed[0].last

    def _forget(self, last: int, snapshot: TableSnapshot, _call: Call[None]) -> None:
        """Forget the oldest memtable, which is committed."""
        with self._changed:
            # Together: readers see the rows here or in the snapshot.
            self._flusher.latest = snapshot
            self._sealed.popleft()
            self._changed.notify_all()
        self._log.rotate()
        self._log.trim(last)

    def _end_turn(self, mine: int, _call: Call[None]) -> None:
        with self._changed:
            if self._flushing == mine:
                self._flushing = None
                self._changed.notify_all()

    def _start(self) -> None:
        """Have the thread look for work, and start it if it is not running."""
        if self._worker is None:
            self._worker = threading.Thread(target=self._run, name="skipstone-tail-flush", daemon=True)
            self._worker.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._is_due():
                    self._changed.wait(self._left())
                if self._closed:
                    return
                if not self._sealed:
                    self._seal()
                upto = self._mutable.first
            try:
                self._flush(upto)
            except Exception as error:  # noqa: BLE001  (the next call raises it)
                with self._changed:
                    self._problem = error
                    self._changed.notify_all()

    def _left(self) -> float | None:
        """Seconds until the mutable memtable is to be flushed."""
        seconds = self._limits.seconds
        if seconds is None or self._problem is not None or not len(self._mutable):
            return None
        return max(self._since + seconds - time.monotonic(), 0.0)

    def _is_due(self) -> bool:
        return self._problem is None and (bool(self._sealed) or self._left() == 0.0)

    # -- reads ---------------------------------------------------------------------------------

    def current(self) -> Table | OverlayTable:
        """The table's snapshot, with the memtables that it does not contain."""
        return self._shield.run(self._current)

    def _current(self, _call: Call[Table | OverlayTable]) -> Table | OverlayTable:
        with self._changed:
            self._move()
            base, floor = self._based()
            tables = [one for one in (*self._sealed, self._mutable) if len(one) and one.last > floor]
            parts = tuple(part for one in tables for part in one.parts())
        return self._view.of(base, parts) if parts else base

    def _move_now(self, _call: Call[None]) -> None:
        with self._changed:
            self._move()

    def _move(self) -> None:
        """Move the table to the last flush, unless it is at a later snapshot."""
        latest, table = self._flusher.latest, self._table
        if latest is not None and _age(table.pinned) < _age(latest):
            table.move_to(latest)

    def _based(self) -> tuple[Table, int]:
        """The table without its tail, which keeps its snapshot, and the last frame that this contains."""
        pinned = self._table.pinned
        if self._base is None or self._base[0].pinned is not pinned:
            floor = snapshot_floor(pinned.metadata, pinned.snapshot_id, self._lease.state.id)
            self._base = self._table.without_tail(), floor
        return self._base

    # -- the end -------------------------------------------------------------------------------

    def close(self, *, flush: bool = True) -> None:
        """Flush and close; without ``flush``, the rows stay in the log until the next writer is opened."""
        if self._closed:
            return
        try:
            if flush:
                self.flush()
        finally:
            self._shield.run(self._end, _CLOSED, _CLOSED_OR_NOT, insist=True)

    def _end(self, _call: Call[None]) -> None:
        with ExitStack() as steps:
            steps.callback(self._detach)
            steps.callback(self._lease.release)
            steps.callback(self._record_end)
            steps.callback(self._log.close)
            steps.callback(self._stop)

    def _stop(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join()

    def _record_end(self) -> None:
        self._lease.record(durable=self._log.synced)

    def _detach(self) -> None:
        with self._changed:
            self._move()
        self._table.attach(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the rows that were acknowledged stay in the log.
        self.close(flush=kind is None)

    def __repr__(self) -> str:
        state = "closed" if self._closed else plural(self._log.last, "frame")
        return f"TailWriter({self._table.name!r}, {state})"


def _age(snapshot: TableSnapshot) -> int:
    """A number that every commit to the table increases."""
    return snapshot.metadata.next_sequence_number()


def open_writer(
    table: Table, *, sync: SyncPolicy, limits: Limits, wal: StrPath | None, on_damage: OnDamage = "error"
) -> TailWriter:
    """Take the lease of a table's tail, and recover the rows that were not flushed."""
    limits.check()
    if sync not in POLICIES:
        raise UsageError(f"unknown sync policy {sync!r}", hint=f"use one of {', '.join(POLICIES)}")
    if on_damage not in ON_DAMAGE:
        raise UsageError(f"unknown on_damage {on_damage!r}", hint=f"use one of {', '.join(ON_DAMAGE)}")
    opened(table)
    table.refresh()
    if table.snapshot != table.metadata.current_snapshot_id:
        hint = "open the table without snapshot="
        raise UsageError(
            f"table is at snapshot {table.snapshot}, not the current one", path=table.name, hint=hint
        )
    lease = claim(table.table, table.name, wal, table.pinned.access.store)
    try:
        recovery = recover(lease, table.metadata, drop=on_damage == "drop")
        found = status_of(table.name, lease.store.uri, lease.before, recovery, held=False)
        writer = TailWriter(table, lease, recovery.frames, found, limits=limits, sync=sync)
        table.attach(writer)
    except BaseException:
        lease.release()
        raise
    return writer
