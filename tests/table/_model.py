"""A keyed table and a dict, which must agree after each operation; failing traces are shortened and shown."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import LongType

import skipstone as sk
from tests.table._keyed import as_others_read
from tests.table._operations import SCHEMA, Condition, Key, Operation, Row, holds, shorten, sort_key, text

TABLE = "db.t"


class Setup(NamedTuple):
    """How a table is created."""

    key: Sequence[str]
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = {}


SETUPS = (
    Setup(["n"]),
    Setup(["region", "n"], ["region"]),
    # A key can move from one partition to another.
    Setup(["n"], ["truncate(50, v)"], {"write.delete.granularity": "file"}),
    Setup(["region", "n"], ["bucket(3, n)"]),
)
EFFORT = 100_000
"""Operations to find a shorter trace with."""
Rows = dict[Key, Row]
Columns = dict[str, int]
"""Columns by name; a renamed column keeps its number."""
PLACES = {"st": "deep.st", "l": "deep.l.element", "m": "deep.m.value"}
"""Structs inside a column: in a struct, in a list, and as values of a map; all their fields are numbers."""
Places = dict[str, Columns]
"""The fields of each of these structs."""
PARTITIONS = (
    *(("v", TruncateTransform(width)) for width in (7, 50, 1_000)),
    *(("n", BucketTransform(count)) for count in (2, 5)),
    *(("region", IdentityTransform()), ("s", TruncateTransform(1)), ("f", IdentityTransform())),
)
"""Partition fields that are added."""

# -- a table and a dict ------------------------------------------------------------------------


@dataclass
class Open:
    """A transaction."""

    changes: sk.Transaction
    base: Rows
    rows: Rows
    staged: set[Key] = field(default_factory=set)


class Pin(NamedTuple):
    """What is expected of a snapshot."""

    rows: Rows
    columns: Columns
    schema: pa.Schema
    places: Places


@dataclass
class Pair:
    """A table, and what is expected of it."""

    folder: Path
    setup: Setup
    rows: Rows = field(default_factory=dict)
    columns: Columns = field(default_factory=lambda: {name: at for at, name in enumerate(SCHEMA.names)})
    places: Places = field(default_factory=lambda: {place: {"a": 3, "b": 4} for place in PLACES})
    past: dict[int, Pin] = field(default_factory=dict)
    """Snapshots by their id."""
    tags: dict[str, int] = field(default_factory=dict)
    open: dict[int, Open] = field(default_factory=dict)
    held: list[tuple[sk.Scan, Counter[Any]]] = field(default_factory=list)
    staged: set[Key] = field(default_factory=set)
    """Keys that the transaction has written."""
    pending: set[Key] = field(default_factory=set)
    """Keys in the tail, and maybe some that are flushed."""
    added: int = 0

    def __post_init__(self) -> None:
        self.keys = self.setup.key
        self.catalog = sk.catalog(self.folder)
        self.table = self.catalog.create_table(
            TABLE,
            self._schema(),
            key=self.keys,
            partition_by=self.setup.partition_by,
            properties=self.setup.properties,
        )
        self.writer: sk.TailWriter | None = None

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.keys)

    def short(self, keys: list[Key]) -> list[Key]:
        """Keys of both columns, as keys of this table."""
        return [key[-len(self.keys) :] for key in keys]

    def plain(self, keys: list[Key]) -> list[Any]:
        """Keys as users have them: one column takes plain values."""
        return [key[0] for key in keys] if len(self.keys) == 1 else keys

    def whole(self, rows: list[Row]) -> list[Row]:
        """Rows with values of the columns that were added."""
        return [
            {
                **row,
                **{name: row["n"] * at for name, at in self.columns.items() if name not in row},
                "deep": self._deep(row["n"]),
            }
            for row in rows
        ]

    def _deep(self, n: int) -> dict[str, Any] | None:
        """A value with structs, and with NULLs at every level."""
        if not n % 5:
            return None
        one = {place: {name: n * at for name, at in names.items()} for place, names in self.places.items()}
        return {
            "st": one["st"] if n % 3 else None,
            "l": [one["l"] if at % 2 else None for at in range(n % 4)],
            "m": [("x", one["m"]), ("y", None)][: n % 3],
        }

    def _schema(self) -> pa.Schema:
        extra = [pa.field(name, pa.int64()) for name in self.columns if name not in SCHEMA.names]
        one = {
            place: pa.struct([(name, pa.int64()) for name in names]) for place, names in self.places.items()
        }
        deep = {"st": one["st"], "l": pa.list_(one["l"]), "m": pa.map_(pa.string(), one["m"])}
        return pa.schema([*SCHEMA, *extra, pa.field("deep", pa.struct(deep))])

    def arrow(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, self._schema())

    def do(self, operation: Operation) -> None:
        name, *args = operation
        getattr(self, name)(*args)

    # -- writes ------------------------------------------------------------------------------

    def put(self, rows: list[Row]) -> None:
        rows = self.whole(rows)
        (self.writer or self.table).upsert(self.arrow(rows))
        self._replace(rows)

    def _replace(self, rows: list[Row]) -> None:
        new = {self.key(row): row for row in rows}
        self.rows.update(new)
        self._write(new)

    def _write(self, keys: Iterable[Key]) -> None:
        self.staged.update(keys)
        if self.writer is not None:
            self.pending.update(keys)

    def delete(self, keys: list[Key]) -> None:
        chosen = self.short(keys)
        (self.writer or self.table).delete(keys=self.plain(chosen))
        self._write([key for key in chosen if key in self.rows or self.writer is not None])
        for key in chosen:
            self.rows.pop(key, None)

    def append(self, rows: list[Row]) -> None:
        rows = self.whole(rows)
        added = {self.key(row): row for row in rows}
        if len(added) < len(rows) or self.rows.keys() & added:
            try:
                self.table.append(self.arrow(rows))
            except sk.DuplicateKeyError:
                return
            raise AssertionError("duplicate keys were appended")
        self.table.append(self.arrow(rows))
        self._replace(rows)

    def delete_where(self, where: Condition) -> None:
        self.table.delete(text(where))
        gone = {key for key, row in self.rows.items() if holds(where, row)}
        self.staged |= gone
        self.rows = {key: row for key, row in self.rows.items() if key not in gone}

    def update(self, where: Condition, value: int | None) -> None:
        self.table.update(text(where), {"v": value})
        chosen = [row for row in self.rows.values() if holds(where, row) and row["v"] != value]
        self._replace([{**row, "v": value} for row in chosen])

    def merge(self, rows: list[Row], unmatched: str) -> None:
        """Matched rows are updated; others are inserted or ignored."""
        source = {self.key(row): row for row in self.whole(rows)}
        self.table.merge(self.arrow(list(source.values())), when_not_matched=unmatched)
        known = {key: canonical(self.rows[key]) for key in source if key in self.rows}
        changed = [key for key, row in source.items() if known.get(key, unmatched) != canonical(row)]
        self._replace([source[key] for key in changed if unmatched == "insert" or key in known])

    def elsewhere(self, rows: list[Row], keys: list[Key]) -> None:
        """Another process writes rows of keys that are not in the tail."""
        own = [row for row in self.whole(rows) if self.key(row) not in self.pending]
        gone = [key for key in self.short(keys) if key not in self.pending]
        other = self.catalog.open(TABLE)
        if own:
            other.upsert(self.arrow(own))
        if gone:
            other.delete(keys=self.plain(gone))
        self.rows.update((self.key(row), row) for row in own)
        for key in gone:
            self.rows.pop(key, None)
        self.table.refresh()
        self.scan()

    # -- transactions ------------------------------------------------------------------------

    def transaction(self, staged: list[Operation], commits: bool) -> None:
        run = Open(self.table.transaction(), self.rows, dict(self.rows))
        self.pending.clear()
        try:
            with run.changes:
                for operation in staged:
                    self._do_within(run, operation)
                if not commits:
                    raise _AbortError
            self._commit(run)
        except _AbortError:
            pass
        self.scan()

    def begin(self, number: int) -> None:
        """Begin one of two transactions, between whose operations are those of others."""
        self.end(number, False)
        self.open[number] = Open(self.table.transaction(), dict(self.rows), dict(self.rows))
        self.pending.clear()

    def within(self, number: int, operation: Operation) -> None:
        if number in self.open:
            self._do_within(self.open[number], operation)

    def _do_within(self, run: Open, operation: Operation) -> None:
        """Reads and writes are those of the transaction."""
        outside = self.table, self.writer, self.rows, self.staged
        self.table, self.writer, self.rows, self.staged = run.changes, None, run.rows, run.staged
        try:
            self.do(operation)
        finally:
            run.rows = self.rows
            self.table, self.writer, self.rows, self.staged = outside

    def end(self, number: int, commits: bool) -> None:
        """Commit, which must fail if a row of a key that was written has changed, or roll back."""
        run = self.open.pop(number, None)
        if run is None:
            return
        if not commits:
            run.changes.rollback()
            return
        changed = {key for key in run.staged if _one(run.base, key) != _one(self.rows, key)}
        self.pending.clear()
        try:
            run.changes.commit()
        except sk.ConflictError:
            assert changed, "conflict without a changed row"
        else:
            assert not changed, f"changed rows are no conflict: {sorted(changed)}"
            self._commit(run)
        self.scan()

    def _commit(self, run: Open) -> None:
        for key in run.staged:
            self.rows.pop(key, None)
        self.rows.update((key, run.rows[key]) for key in run.staged if key in run.rows)

    # -- what changes no rows ----------------------------------------------------------------

    def tail(self, sync: str | None, flush_rows: int) -> None:
        """Close the writer, and open another one unless ``sync`` is None."""
        if self.writer is not None:
            self.writer.close(flush=sync is None or sync == "every")
            self.writer = None
        if sync is not None:
            self.writer = self.table.writer(sync=sync, flush_seconds=None, flush_rows=flush_rows)
        self.scan()

    def flush(self) -> None:
        if self.writer is not None:
            self.writer.flush()
            self.pending.clear()
        assert rows_of(self.catalog.open(TABLE).scan()) == expected(self.rows)

    def hold(self, where: Condition | None, columns: list[str] | None) -> None:
        """A scan is executed later, and has the rows of today."""
        scan = self.table.scan(None if where is None else text(where), columns=columns)
        self.held.append((scan, Counter(map(canonical, self.matching(where, columns)))))

    def release(self) -> None:
        for scan, rows in self.held:
            assert rows_of(scan) == rows, "a scan has other rows than when it began"
        self.held.clear()

    @property
    def now(self) -> Pin:
        places = {place: dict(names) for place, names in self.places.items()}
        return Pin(dict(self.rows), dict(self.columns), self.table.schema, places)

    def pin(self) -> None:
        self.flush()
        snapshot, metadata = self.table.snapshot, self.table.metadata
        # Snapshots are read with the schema that they were written with.
        if snapshot is not None and metadata.snapshot_by_id(snapshot).schema_id == metadata.current_schema_id:
            self.past[snapshot] = self.now

    def tag(self, number: int) -> None:
        self.pin()
        name = f"t{number}"
        if self.table.snapshot in self.past and name not in self.tags:
            self.table.create_tag(name)
            self.tags[name] = self.table.snapshot

    def untag(self, number: int) -> None:
        if self.tags.pop(f"t{number}", None) is not None:
            self.table.drop_ref(f"t{number}")

    def rollback(self, share: float) -> None:
        """Go back to an ancestor; what the tail has is flushed, and rolled back with the rest."""
        self._alone()
        self.flush()
        line = {one.snapshot_id for one in self.table.metadata.snapshots}
        number = self.some_past(share)
        if number is None or number not in line:
            return
        try:
            self.table.rollback(number)
        except sk.UsageError:
            # It was rolled back itself.
            return
        rows, columns, _, places = self.past[number]
        self.rows = {
            key: {**remapped(row, columns, self.columns), "deep": row["deep"]} for key, row in rows.items()
        }
        for place, names in places.items():
            self._follow(place, names)
        self.scan()

    def _follow(self, place: str, before: Columns) -> None:
        """Give the structs of a place the present fields."""
        for key, row in self.rows.items():
            if row["deep"] is not None:
                self.rows[key] = {**row, "deep": {**row["deep"]}}
                cell = row["deep"][place]
                after = [remapped(one, before, self.places[place]) for one in structs(cell)]
                if place == "st":
                    cell = after[0]
                elif place == "m":
                    cell = [(name, one) for (name, _), one in zip(cell, after, strict=True)]
                else:
                    cell = after
                self.rows[key]["deep"][place] = cell

    def evolve(self, kind: str, flushes: bool) -> None:
        """Another process changes the columns."""
        extra = [name for name in self.columns if name not in SCHEMA.names]
        new = self._new_name()
        with self._in_between(flushes), self._other().update_schema() as change:
            if kind == "widen":
                change.update_column("n", LongType())
            elif kind == "add" or not extra:
                change.add_column(new, LongType())
                self.columns[new] = 100 + self.added
                self.rows = {key: {**row, new: None} for key, row in self.rows.items()}
            else:
                old = extra[0]
                at = self.columns.pop(old)
                if kind == "rename":
                    change.rename_column(old, new)
                    self.columns[new] = at
                    self.rows = {key: {**row, new: row[old]} for key, row in self.rows.items()}
                else:
                    change.delete_column(old)
                self.rows = {
                    key: {name: row[name] for name in (*self.columns, "deep")}
                    for key, row in self.rows.items()
                }

    def nest(self, kind: str, place: str, flushes: bool) -> None:
        """Another process changes fields inside a struct, a list or a map, unless a transaction is open."""
        if self.open:
            return
        before, new = dict(self.places[place]), self._new_name()
        path, (one, *others) = (*PLACES[place].split("."),), before
        at = before[one]
        steps: list[tuple[str, tuple[Any, ...]]]
        if kind == "add" or (kind in ("drop", "exchange") and not others):
            steps, after = [("add_column", ((*path, new), LongType()))], {**before, new: 100 + self.added}
        elif kind == "drop":
            steps, after = [("delete_column", ((*path, one),))], {name: before[name] for name in others}
        elif kind == "rename":
            steps, after = [("rename_column", ((*path, one), new))], {new: at, **before}
            del after[one]
        elif kind == "exchange":
            names = [(one, new), (others[0], one), (new, others[0])]
            steps = [("rename_column", ((*path, old), to)) for old, to in names]
            after = {**before, one: before[others[0]], others[0]: at}
        else:
            # The same name, and another field.
            add = [("add_column", ((*path, name), LongType())) for name in (new, one)]
            steps = [add[0], ("delete_column", ((*path, one),)), add[1]]
            after = {**before, new: 100 + self.added, one: 1_000 + self.added}
        with self._in_between(flushes):
            for name, arguments in steps:
                with self._other().update_schema() as change:
                    getattr(change, name)(*arguments)
            self.places[place] = after
            self._follow(place, before)

    def respec(self, kind: str, share: float, flushes: bool) -> None:
        """Another process changes how new files are partitioned, unless a transaction is open."""
        if self.open:
            return
        with self._in_between(flushes):
            spec = self._other().spec()
            own = [one for one in spec.fields if not isinstance(one.transform, VoidTransform)]
            column, transform = PARTITIONS[int(share * len(PARTITIONS))]
            source = self._other().schema().find_field(column).field_id
            with self._other().update_spec() as change:
                if own and kind != "add":
                    change.remove_field(own[0].name)
                if kind != "remove" and (source, transform) not in [
                    (one.source_id, one.transform) for one in own
                ]:
                    change.add_field(column, transform, self._new_name())

    def _new_name(self) -> str:
        self.added += 1
        return f"x{self.added}"

    def _other(self) -> IcebergTable:
        """The table, as another process loads it."""
        return self.catalog.open(TABLE).table

    @contextmanager
    def _in_between(self, flushes: bool) -> Iterator[None]:
        """What others do while rows are in the log, or in a writer that flushes them afterwards."""
        self._alone()
        writer = self.writer
        if writer is not None and not flushes:
            writer.close(flush=False)
        yield
        if writer is not None and flushes:
            writer.close()
        self._open_again()

    def _alone(self) -> None:
        """End what would fail by itself later."""
        for number in list(self.open):
            self.end(number, False)
        self.release()

    def index(self) -> None:
        """Build the index of the table; writes extend it."""
        self.table.index.build(engine="local")
        self.scan()

    def compact(self, elsewhere: bool) -> None:
        """Rewrite all files, by this table or by another process."""
        table = self.catalog.open(TABLE) if elsewhere else self.table
        table.compact(table.plan_compaction(rewrite_all=True), engine="local", threads=1)
        if elsewhere:
            self.scan()
            self.table.refresh()
        self.scan()

    def expire(self, keep: int) -> None:
        """Remove all snapshots but the last ones, and those of tags."""
        self._alone()
        self.table.expire(older_than="9999-01-01", retain_last=keep)
        left = {one.id for one in self.table.snapshots()}
        assert set(self.tags.values()) <= left
        self.past = {number: pin for number, pin in self.past.items() if number in left}
        self.scan()

    def manifests(self) -> None:
        self.table.rewrite_manifests(rewrite_all=True)
        self.scan()

    def orphans(self) -> None:
        """Only metadata of commits that lost a race are orphans, and the log is not below the table."""
        self._alone()
        report = self.table.remove_orphans(older_than="9999-01-01", allow_recent=True)
        left = [path for path in report.files if not path.endswith(".metadata.json")]
        assert not left, f"orphans: {left}"
        self.scan()

    def reopen(self, flush: bool, torn: bool) -> None:
        """As if the process had ended, maybe while it wrote, and started again."""
        self._alone()
        if self.writer is not None:
            self.writer.close(flush=flush)
            logs = sorted(Path(self.table.tail_status().path).glob("*.wal"))
            if torn and logs:
                with logs[-1].open("ab") as log:
                    log.write(b"half a frame")
        self._open_again()

    def _open_again(self) -> None:
        self.table = self.catalog.open(TABLE)
        if self.writer is not None:
            self.writer = self.table.writer(sync="off", flush_seconds=None)
        self.scan()

    # -- reads -------------------------------------------------------------------------------

    def matching(self, where: Condition | None, columns: list[str] | None = None) -> list[Row]:
        rows = [row for row in self.rows.values() if where is None or holds(where, row)]
        return rows if columns is None else [{name: row[name] for name in columns} for row in rows]

    def scan(
        self,
        where: Condition | None = None,
        columns: list[str] | None = None,
        limit: int | None = None,
        order: list[str] | None = None,
    ) -> None:
        sql = None if where is None else text(where)
        found = self.table.scan(sql, columns=columns, limit=limit, order_by=order).to_arrow().to_pylist()
        wanted = self.matching(where, columns)
        count = len(wanted) if limit is None else min(limit, len(wanted))
        extra = Counter(map(canonical, found)) - Counter(map(canonical, wanted))
        assert not extra, f"wrong rows: {list(extra)}"
        assert len(found) == count, f"{len(found)} rows instead of {count}"
        if order is not None:
            rows = self.matching(where)
            for one in reversed(order):
                name, direction = one.split()
                rows.sort(key=lambda row, name=name: sort_key(row[name]), reverse=direction == "desc")
            for name in {one.split()[0] for one in order} & set(columns or SCHEMA.names):
                values = [sort_key(row[name]) for row in rows[:count]]
                assert [sort_key(row[name]) for row in found] == values, "wrong order"

    def count(self, where: Condition | None) -> None:
        found = self.table.scan(None if where is None else text(where)).count()
        assert found == len(self.matching(where)), f"counted {found}"

    def total(self, where: Condition | None) -> None:
        scan = self.table.scan(None if where is None else text(where))
        found = scan.aggregate(sk.count(), sk.sum("v"), sk.max("n")).to_pylist()[0]
        rows = self.matching(where)
        values = [row["v"] for row in rows if row["v"] is not None]
        wanted = [len(rows), sum(values) if values else None, max((row["n"] for row in rows), default=None)]
        assert list(found.values()) == wanted, f"aggregates are {found}, not {wanted}"

    def get(self, keys: list[Key]) -> None:
        chosen = self.short(keys)
        one = self.table.get(self.plain(chosen)[0])
        wanted = self.rows.get(chosen[0])
        assert (one is None) == (wanted is None), f"get gave {one}"
        assert wanted is None or canonical(one) == canonical(wanted)
        many = self.table.get_many(self.plain(chosen)).to_pylist()
        distinct = {key: self.rows[key] for key in chosen if key in self.rows}
        assert list(map(canonical, many)) == list(map(canonical, distinct.values())), f"get_many gave {many}"

    def some_past(self, share: float) -> int | None:
        return list(self.past)[int(share * len(self.past))] if self.past else None

    def old(self, share: float) -> None:
        """A snapshot has its rows until it expires; a tag is another name for it."""
        number = self.some_past(share)
        if number is not None:
            names = [name for name, tagged in self.tags.items() if tagged == number]
            for name in (number, *names):
                assert rows_of(self.table.at(name).scan()) == expected(self.past[number].rows)

    def others(self, share: float) -> None:
        """pyiceberg and Polars read the rows of the current snapshot, and of an old one."""
        self.pin()
        for number in {self.table.snapshot, self.some_past(share)} & self.past.keys():
            rows, _, schema, _ = self.past[number]
            # Not all of them follow nested fields by id.
            flat = {key: {name: row[name] for name in row if name != "deep"} for key, row in rows.items()}
            if schema == self.table.schema:
                for found in as_others_read(self.table, snapshot=number):
                    assert Counter(map(canonical, found.drop("deep").to_pylist())) == expected(flat), (
                        "others read other rows"
                    )

    def changes(self, one: float, other: float) -> None:
        """Rows that differ between two snapshots, or between one and now."""
        order = list(self.past)
        start, end = sorted(
            (self.some_past(share) for share in (one, other)),
            key=lambda number: -1 if number is None else order.index(number),
        )
        if end is None:
            return
        before, _, old, _ = self.past[start]
        after, _, schema, _ = self.now if start == end else self.past[end]
        if old != schema:
            return
        found = self.table.changes(start, None if start == end else end)
        updated = {key for key in before.keys() & after if _one(before, key) != _one(after, key)}
        for rows, wanted in (
            (found.inserted, [after[key] for key in after.keys() - before]),
            (found.deleted, [before[key] for key in before.keys() - after]),
            (found.updated, [after[key] for key in updated]),
            (found.before, [before[key] for key in updated]),
        ):
            assert Counter(map(canonical, rows.to_pylist())) == Counter(map(canonical, wanted))


class _AbortError(Exception):
    """Ends a transaction without a commit."""


def canonical(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A row that can be compared and hashed, with its columns by name."""
    return tuple(
        (name, "nan" if isinstance(value, float) and math.isnan(value) else frozen(value))
        for name, value in sorted(row.items())
    )


def frozen(value: Any) -> Any:
    """A nested value that can be compared and hashed."""
    if isinstance(value, Mapping):
        return canonical(value)
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def remapped(row: Row | None, before: Columns, after: Columns) -> Row | None:
    """A row, or a struct, with the fields of today: those with the same number have the same value."""
    names = {at: name for name, at in before.items()}
    if row is None:
        return None
    return {name: row[names[at]] if at in names else None for name, at in after.items()}


def structs(cell: Any) -> list[Row | None]:
    """The structs in one of the places."""
    if not isinstance(cell, list):
        return [cell]
    return [one[1] if isinstance(one, tuple) else one for one in cell]


def _one(rows: Rows, key: Key) -> tuple[Any, ...] | None:
    return canonical(rows[key]) if key in rows else None


def rows_of(scan: sk.Scan) -> Counter[tuple[Any, ...]]:
    return Counter(map(canonical, scan.to_arrow().to_pylist()))


def expected(rows: Rows) -> Counter[tuple[Any, ...]]:
    return Counter(map(canonical, rows.values()))


# -- runs --------------------------------------------------------------------------------------


@contextmanager
def pair(folder: Path, setup: Setup) -> Iterator[Pair]:
    """A new table, whose writer is closed at the end, and whose files are deleted."""
    made = Pair(folder, setup)
    try:
        yield made
    finally:
        if made.writer is not None:
            made.writer.close(flush=False)
        shutil.rmtree(folder)


def failure(folder: Path, setup: Setup, trace: Sequence[Operation]) -> tuple[int, BaseException] | None:
    """The first operation that fails, and how; None if all agree, also at the end."""
    number = -1
    try:
        with pair(folder, setup) as run:
            for number, operation in enumerate(trace):  # noqa: B007
                run.do(operation)
            run.release()
            run.flush()
            run.reopen(flush=True, torn=False)
    except Exception as error:
        return number, error
    return None


def check(folder: Path, setup: Setup, trace: Sequence[Operation]) -> None:
    """Run a trace; if it fails, shorten it, and show the shortest one."""
    failed = failure(folder, setup, trace)
    if failed is None:
        return
    number, problem = failed
    left = EFFORT

    def fails(shorter: Sequence[Operation]) -> bool:
        """Whether another trace fails in the same way; none does after so many operations."""
        nonlocal left, problem
        left -= len(shorter)
        again = None if left < 0 else failure(folder, setup, shorter)
        if again is None or type(again[1]) is not type(failed[1]):
            return False
        problem = again[1]
        return True

    shortest = shorten(list(trace[: number + 1]), fails)
    steps = "\n".join(f"    {operation!r}," for operation in shortest)
    raise AssertionError(f"{type(problem).__name__}: {problem}\n{setup}\n[\n{steps}\n]") from problem
