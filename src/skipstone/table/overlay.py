"""A table's snapshot with uncommitted changes: rows in memory, and rows of the snapshot that are hidden.

Rows in memory are Parquet files with statistics and page indexes, listed after the files of the snapshot, and
hidden rows are deleted rows. So every way to read a lake sees the changes, and none has code for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from skipstone.core.evidence import Array, ColumnFacts, FactOverride
from skipstone.core.ir.nodes import Node
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import Engine
from skipstone.errors import UsageError
from skipstone.iceberg.writing.target import (
    column_without_fields,
    fit_table,
    stored_columns,
    without_fields,
)
from skipstone.lake.snapshot import PLANS, Deletions, FileEntry, IndexRecords, Overlay, Path, PrunedFiles
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Distinct, Profile, writer_options
from skipstone.prune.ledger import Ledger
from skipstone.report.units import plural
from skipstone.scan.lake import Lake
from skipstone.scan.table import Table
from skipstone.store.absolute import AbsoluteStore
from skipstone.store.cache import Cache
from skipstone.store.store import IN_MEMORY, ListedFile

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from skipstone.iceberg.table import TableSnapshot
    from skipstone.typing import SnapshotLike

# Pages of a few thousand rows are skipped or read; more of them would cost more than they save in memory.
_LAYOUT: Final = PageLayout(compression="none", page_rows=8_192, row_group_rows=131_072)
# Sorts after the paths of files, so that uncommitted rows come last.
_SCHEME: Final = "uncommitted://"


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """Rows as a Parquet file in memory, which later overlays can use again."""

    data: bytes = field(repr=False)
    rows: int
    digest: str
    table: pa.Table | None = field(default=None, repr=False, compare=False)
    """The rows, which are read without decoding; None after unpickling."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (MemoryFile, (self.data, self.rows, self.digest))

    @classmethod
    def of(cls, table: Table, rows: pa.Table) -> MemoryFile:
        """Convert rows to the columns of a table's snapshot."""
        columns = stored_columns(table.iceberg_schema)
        if (column := column_without_fields(columns)) is not None:
            # The last field was dropped after the rows were written.
            raise without_fields(column, table.name)
        rows = fit_table(rows, columns, table.name).combine_chunks()
        # Look-ups of keys that are not in memory end at a bloom filter.
        keys = sorted(table.iceberg_schema.identifier_field_names() & set(columns.names))
        count = Distinct(len(rows), len(rows), 0)
        shape = Profile(
            1.0, (), tuple((name, count) for name in keys if columns.field(name).type != pa.bool_()), leaves=0
        )
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, **writer_options(_LAYOUT, shape, columns)) as writer:
            writer.write_table(rows, row_group_size=_LAYOUT.row_group_rows)
        data = sink.getvalue().to_pybytes()
        return cls(data, rows.num_rows, xxhash.xxh3_128_hexdigest(data), rows)


@dataclass(frozen=True, slots=True)
class Layer:
    """A file in memory, and those of its rows that are deleted or replaced."""

    file: MemoryFile
    hidden: RowSet | None = None

    @property
    def rows(self) -> int:
        """Rows that are not hidden."""
        return self.file.rows - (0 if self.hidden is None else len(self.hidden))


def overlay(
    table: Table,
    hidden: Mapping[str, RowSet],
    rows: pa.Table | Sequence[Layer],
    *,
    name: str = "transaction",
) -> OverlayTable:
    """Return a table's snapshot without hidden rows, and with rows in memory.

    Args:
        table: The table at the snapshot to read.
        hidden: Rows to hide by path of their file, as the manifests spell it.
        rows: Rows to add, in one table, or in layers that were made before.
        name: What the changes are called in explanations: ``"transaction"`` or ``"tail"``.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> first = table.head(1).set_column(3, "amount", pa.array([5_000.0]))
        >>> path = table.files[0].path
        >>> changed = overlay(table, {path: sk.RowSet.from_positions(1000, [0])}, first)
        >>> changed.scan("event_id = 0").to_arrow()["amount"].to_pylist()
        [5000.0]
        >>> changed.scan().count(), changed.scan("amount > 99").count()
        (1000, 10)
    """
    if isinstance(rows, pa.Table):
        rows = [Layer(MemoryFile.of(table, rows))] if rows.num_rows else []
    return OverlayTable(table, hidden, [layer for layer in rows if layer.rows], name)


class OverlayTable(Lake):
    """A table's snapshot with uncommitted changes; [overlay][skipstone.table.overlay.overlay] makes it."""

    _internal = Lake._internal | {"base", "hidden", "iceberg_schema", "layers"}

    def __init__(self, base: Table, hidden: Mapping[str, RowSet], layers: Sequence[Layer], name: str) -> None:
        self.base = base
        self.hidden, self.layers, self._overlay_name = hidden, tuple(layers), name
        snapshot = OverlaySnapshot(base.pinned, hidden, layers, name)
        self._index_root = base._index_root
        self.index = base.index.over(snapshot)
        self._keep(snapshot)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.base.name

    @property
    def iceberg_schema(self) -> Schema:
        """The schema of the snapshot with its field ids."""
        return self.base.iceberg_schema

    def at(self, snapshot: SnapshotLike) -> Table:
        """Return the table at another snapshot, without the changes."""
        return self.base.at(snapshot)

    def _metadata_rows(self) -> int | None:
        rows, overlay = self.base._metadata_rows(), self.pinned.overlay
        return None if rows is None or overlay is None else rows - overlay.hidden + overlay.rows

    def __reduce__(self) -> tuple[Any, ...]:
        return (overlay, (self.base, self.hidden, self.layers), {"name": self._overlay_name})

    def __repr__(self) -> str:
        added = plural(sum(layer.rows for layer in self.layers), "row")
        gone = plural(sum(map(len, self.hidden.values())), "hidden row")
        return f"OverlayTable({self.base!r}, {self._overlay_name}: {added}, {gone})"


class OverlaySnapshot:
    """A table's snapshot, whose files keep their numbers, followed by files in memory."""

    partition_names: frozenset[str] = frozenset()
    is_whole, listed_whole, has_own_schema = True, False, False
    others: Sequence[ListedFile] = ()

    def __init__(
        self, base: TableSnapshot, hidden: Mapping[str, RowSet], layers: Sequence[Layer], name: str
    ) -> None:
        self.base, self.uri = base, base.uri
        self.listed_at, self.index_naming = base.listed_at, base.index_naming
        self.plans: Cache[Any, Any] = Cache(PLANS)
        self._first, self._layers = len(base.entries), tuple(layers)
        self._own = tuple(
            ListedFile(f"{_SCHEME}{number:06d}-{layer.file.digest}.parquet", len(layer.file.data), IN_MEMORY)
            for number, layer in enumerate(layers)
        )
        self.entries: Sequence[ListedFile] = _Listing(base.entries, self._own)
        self._hidden = self._by_number(hidden)
        self._name = name
        self.overlay: Overlay | None = Overlay(
            name,
            self._first,
            sum(layer.rows for layer in layers),
            sum(len(rows) for number, rows in self._hidden.items() if number < self._first),
        )
        store = base.access.store
        assert isinstance(store, AbsoluteStore)
        memory = {entry.key: layer.file.data for entry, layer in zip(self._own, layers, strict=True)}
        tables = {
            entry.key: layer.file.table
            for entry, layer in zip(self._own, layers, strict=True)
            if layer.file.table is not None
        }
        self.access = base.access.over(replace(store, memory=memory), tables)

    def _by_number(self, hidden: Mapping[str, RowSet]) -> dict[int, RowSet]:
        """Hidden rows by number of the file, including those of files in memory."""
        rows: dict[int, RowSet] = {}
        if hidden:
            entries, numbers = self.base.inventory.everything
            found = pc.index_in(pa.array(list(hidden), entries.paths.type), value_set=entries.paths)
            if found.null_count:
                path = next(path for path, at in zip(hidden, found.to_pylist(), strict=True) if at is None)
                hint = "locate the rows in the same snapshot"
                raise UsageError(f"snapshot has no such file: {path}", path=self.base.name, hint=hint)
            for at, gone in zip(found.to_pylist(), hidden.values(), strict=True):
                if len(gone):
                    rows[int(numbers[at])] = gone
        for number, layer in enumerate(self._layers, self._first):
            if layer.hidden is not None and len(layer.hidden):
                rows[number] = layer.hidden
        return rows

    @cached_property
    def version(self) -> str:
        """The version of the snapshot, and a digest of the changes."""
        digest = xxhash.xxh3_128()
        for number, rows in sorted(self._hidden.items()):
            digest.update(f"{number}:".encode())
            digest.update(rows.to_bytes())
        for layer in self._layers:
            digest.update(layer.file.digest.encode())
        return f"{self.base.version}+{digest.hexdigest()}"

    # -- the files ---------------------------------------------------------------------------

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files of the snapshot, and those in memory."""
        return self.files_of(np.arange(len(self.entries)))

    def files_of(self, files: Array) -> tuple[FileEntry, ...]:
        """The numbered files."""
        below = iter(self.base.files_of(files[files < self._first]))
        return tuple(next(below) if n < self._first else self._entry(n) for n in files.tolist())

    def _entry(self, number: int) -> FileEntry:
        entry, layer = self._own[number - self._first], self._layers[number - self._first]
        return FileEntry(entry.key, entry.size, {}, layer.file.rows)

    def number_of(self, entry: ListedFile) -> int | None:
        """The number of a file; None if it is not listed."""
        if entry.version != IN_MEMORY:
            return self.base.number_of(entry)
        return self._first + self._own.index(entry) if entry in self._own else None

    def check_files(self, files: Sequence[int]) -> None:
        """Refuse files that are not Parquet."""
        self.base.check_files(self._below(files))

    def check(self, footers: Sequence[ParquetMetadata]) -> None:
        """Accept all: columns are resolved by field id, and checked when they are read."""

    def _below(self, files: Sequence[int]) -> list[int]:
        """The numbered files that belong to the snapshot."""
        return [number for number in files if number < self._first]

    # -- columns -----------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self.base.schema

    @property
    def query_schema(self) -> pa.Schema:
        """The schema that predicates are bound to."""
        return self.base.query_schema

    def renamed(self, column: str) -> str | None:
        """The hint for a column that another schema of the table has."""
        return self.base.renamed(column)

    @cached_property
    def all_overrides(self) -> dict[Path, FactOverride]:
        """Facts of identity partition columns for all files."""
        return self.overrides(np.arange(len(self.entries)))

    def overrides(self, files: Array) -> dict[Path, FactOverride]:
        """Facts of identity partition columns; rows in memory have their own values."""
        own = files >= self._first
        below = self.base.overrides(files[~own])
        if not own.any():
            return below
        # Files in memory take the facts of one more file, of which nothing is known.
        source = np.where(own, len(files) - int(own.sum()), np.cumsum(~own) - 1)
        return {path: _without(override, own, source) for path, override in below.items()}

    def constants(self, files: Sequence[int]) -> list[Mapping[str, pa.Scalar]]:
        """Identity partition values of each numbered file; none for files in memory."""
        below = iter(self.base.constants(self._below(files)))
        return [next(below) if number < self._first else {} for number in files]

    # -- planning ----------------------------------------------------------------------------

    def prune_files(self, node: Node | None, ledger: Ledger, *, strict: bool = False) -> PrunedFiles:
        """Files that may match; those in memory are judged by their footers."""
        pruned = self.base.prune_files(node, ledger, strict=strict)
        if not self._own:
            return pruned
        assert pruned.files is not None
        assert pruned.rows is not None
        assert pruned.whole is not None
        own = np.arange(self._first, self._first + len(self._own))
        return replace(
            pruned,
            files=np.concatenate([pruned.files, own]),
            rows=np.concatenate([pruned.rows, [layer.file.rows for layer in self._layers]]),
            whole=np.concatenate([pruned.whole, np.full(len(own), node is None)]),
        )

    def deletions(self, files: Sequence[int]) -> Deletions:
        """Deleted and hidden rows of the numbered files."""
        below = self.base.deletions(self._below(files))
        rows, hidden = dict(below.rows), {}
        for number in files:
            gone = self._hidden.get(number)
            if gone is not None:
                hidden[number] = gone - rows[number] if number in rows else gone
                rows[number] = gone | rows[number] if number in rows else gone
        return replace(below, rows=rows, hidden=hidden)

    def use(self, records: IndexRecords) -> None:
        """Do nothing: the table's index serves the snapshot below."""

    def latest(self, engine: Engine | None = None) -> OverlaySnapshot:  # noqa: ARG002
        """This snapshot: the changes belong to it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        paths = {self.entries[n].key: rows for n, rows in self._hidden.items() if n < self._first}
        return (type(self), (self.base, paths, self._layers, self._name))


def _without(override: FactOverride, own: Array, source: Array) -> FactOverride:
    """An override for more files, to which it does not apply."""
    facts = ColumnFacts.concat([override.facts, ColumnFacts.unknown(override.facts.type, 1)])
    applies = np.ones(len(override.facts), dtype=bool) if override.where is None else override.where
    return FactOverride(facts.take(source), np.append(applies, False)[source] & ~own)


@dataclass(frozen=True, slots=True, eq=False)
class _Listing(Sequence[ListedFile]):
    """The listing of a snapshot, followed by files in memory."""

    below: Sequence[ListedFile]
    own: tuple[ListedFile, ...]

    def __len__(self) -> int:
        return len(self.below) + len(self.own)

    @overload
    def __getitem__(self, number: int) -> ListedFile: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[ListedFile]: ...
    def __getitem__(self, number: int | slice) -> ListedFile | Sequence[ListedFile]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        first = len(self.below)
        return self.below[number] if number < first else self.own[number - first]

    def __iter__(self) -> Iterator[ListedFile]:
        yield from self.below
        yield from self.own
