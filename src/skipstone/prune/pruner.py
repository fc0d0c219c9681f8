"""Pruner: a predicate compiled once, used on many files, blocking or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.filter import fix_clock, settle
from skipstone.core.ir import Compiled, compile_predicate
from skipstone.core.rows import RowSet
from skipstone.core.rows.rowset import Selector, from_selection, to_selection
from skipstone.errors import PredicateError, UsageError
from skipstone.parquet.bloom import BloomFilter
from skipstone.parquet.metadata import ParquetMetadata, from_pyarrow, read_footer
from skipstone.predicate import Predicate
from skipstone.predicate import predicate as to_predicate
from skipstone.prune.cascade import Cascade, Outcome
from skipstone.prune.ledger import Ledger
from skipstone.prune.survey import (
    BloomProvider,
    BloomRequest,
    Need,
    PruneOptions,
    Survey,
    is_blooms,
    ranges_of,
)
from skipstone.report import Traced
from skipstone.report.trace import Trace
from skipstone.store.source import Source, TailSource, drive, open_source

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64

    from skipstone.typing import ArrowFileMetaData, PredicateLike, SourceLike, StorageOptions


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PruneResult(Traced):
    """The row groups and rows of one file that can match.

    ``rows`` includes every row that matches, and every row of ``proven`` matches, so that a reader need not
    test it. ``verdicts`` has a [Verdict][skipstone.Verdict] for each row group of the file, from statistics
    of row groups alone.

    Examples:
        >>> import skipstone as sk
        >>> result = sk.prune("events/part-0.parquet", "event_id < 60")
        >>> result.row_groups, result.rows.ranges(), result.proven.ranges()
        ([0], [(0, 100)], [(0, 50)])
        >>> result.row_selection()
        [('select', 100), ('skip', 150)]
    """

    rows: RowSet
    proven: RowSet
    verdicts: Array
    compiled: Compiled
    trace: Trace
    metadata: ParquetMetadata
    bitmap: BitMap | BitMap64 | None = None

    @property
    def row_groups(self) -> list[int]:
        """Row groups with rows that can match."""
        starts = self.metadata.row_group_starts
        counts = self.rows.counts(starts, starts + self.metadata.row_group_rows)
        return [int(group) for group in np.flatnonzero(counts)]

    def row_selection(self) -> list[Selector]:
        """Return ``("skip" | "select", n)`` pairs over ``row_groups``, as Parquet readers expect them."""
        meta = self.metadata
        return to_selection(self.rows, self.row_groups, meta.row_group_starts, meta.row_group_rows)

    def from_selection(self, selection: list[Selector]) -> RowSet:
        """Return the rows of the file that a selection over ``row_groups`` selects."""
        meta = self.metadata
        return from_selection(
            selection, self.row_groups, meta.row_group_starts, meta.row_group_rows, meta.num_rows
        )

    def to_bitmap(self) -> BitMap | BitMap64:
        """Return ``rows`` as a roaring bitmap."""
        return self.rows.to_bitmap() if self.bitmap is None else self.bitmap


class Pruner:
    """Prunes many files with one predicate, which is compiled once.

    Args:
        predicate: SQL text, or any predicate that ``sk.predicate`` accepts.
        schema: The schema to bind the predicate to; by default each file's own. A column that a file lacks
            is NULL.
        options: Options of pruning.

    Examples:
        >>> import skipstone as sk
        >>> pruner = sk.Pruner("event_id < 300")
        >>> [len(pruner.prune(f"events/part-{number}.parquet").row_groups) for number in range(4)]
        [1, 1, 0, 0]
    """

    __slots__ = ("_compiled", "_text", "options", "predicate", "schema")

    def __init__(
        self, predicate: PredicateLike, schema: pa.Schema | None = None, options: PruneOptions | None = None
    ) -> None:
        if schema is not None and not isinstance(schema, pa.Schema):
            raise UsageError(
                f"schema must be a pyarrow.Schema, got {type(schema).__name__}",
                hint="pass a pyarrow.Schema; pass PruneOptions as options=",
            )
        self.predicate: Predicate = fix_clock(to_predicate(predicate))
        self._text = str(self.predicate)
        self.schema = schema
        self.options = options or PruneOptions()
        self._compiled: tuple[pa.Schema, Compiled] | None = None
        if schema is not None:
            self.compile(schema)

    def __repr__(self) -> str:
        return f"Pruner({self._text!r})"

    def compile(self, schema: pa.Schema) -> Compiled:
        """Bind the predicate to a schema; the result for the last schema is cached."""
        if self._compiled is None or not (self._compiled[0] is schema or self._compiled[0].equals(schema)):
            sensitive = self.options.case_sensitive
            predicate = settle(self.predicate, schema, case_sensitive=sensitive)
            compiled = compile_predicate(predicate, schema, case_sensitive=sensitive)
            self._compiled = (schema, compiled)
        return self._compiled[1]

    def prune(
        self,
        source: SourceLike | ParquetMetadata | ArrowFileMetaData,
        *,
        metadata: ParquetMetadata | ArrowFileMetaData | None = None,
        storage_options: StorageOptions | None = None,
    ) -> PruneResult:
        """Prune one file; see ``sk.prune`` for the arguments."""
        provider = self.options.bloom_provider
        return self._prune(source, metadata, storage_options, None if provider is None else provider.load)

    async def prune_async(
        self,
        source: SourceLike | ParquetMetadata | ArrowFileMetaData,
        *,
        metadata: ParquetMetadata | ArrowFileMetaData | None = None,
        storage_options: StorageOptions | None = None,
    ) -> PruneResult:
        """Prune one file without blocking the event loop."""
        import asyncio

        provider, loop = self.options.bloom_provider, asyncio.get_running_loop()

        def load(requests: Sequence[BloomRequest]) -> Sequence[BloomFilter | None]:
            assert provider is not None
            return asyncio.run_coroutine_threadsafe(provider.load_async(requests), loop).result()

        return await asyncio.to_thread(self._prune, source, metadata, storage_options, load)

    def _prune(
        self,
        source: SourceLike | ParquetMetadata | ArrowFileMetaData,
        metadata: ParquetMetadata | ArrowFileMetaData | None,
        storage_options: StorageOptions | None,
        load: Callable[[Sequence[BloomRequest]], Sequence[BloomFilter | None]] | None,
    ) -> PruneResult:
        opened, footer = _open(source, metadata, storage_options)
        if footer is None:
            assert opened is not None
            footer = read_footer(opened, tail=self.options.tail_bytes)
        cascade, compiled = self._cascade(opened, footer)

        def answer(need: Need) -> list[Any]:
            if is_blooms(need):
                assert load is not None
                return list(load(need))
            assert opened is not None
            return opened.read_ranges(ranges_of(need))

        return self._result(footer, compiled, cascade.ledger, drive(cascade.steps(), answer))

    def _cascade(self, source: Source | None, metadata: ParquetMetadata) -> tuple[Cascade, Compiled]:
        try:
            compiled = self.compile(self.schema or metadata.query_schema)
        except PredicateError as error:
            if self.schema is None:
                error.path = error.path or metadata.path
            raise

        def cost() -> tuple[int, int]:
            return (source.counter.requests, source.counter.bytes) if source is not None else (0, 0)

        survey = Survey.of([metadata])
        cascade = Cascade(compiled.node, self.options, survey, Ledger(cost), readable=source is not None)
        return cascade, compiled

    def _result(
        self, metadata: ParquetMetadata, compiled: Compiled, ledger: Ledger, outcome: Outcome
    ) -> PruneResult:
        nothing = RowSet.none(metadata.num_rows)
        rows, proven = outcome.rows.get(0, nothing), outcome.proven.get(0, nothing)
        trace = Trace(
            path=metadata.path,
            predicate=self._text,
            rows=metadata.num_rows,
            rows_kept=len(rows),
            rows_whole=len(proven),
            levels=ledger.levels(),
            notes=ledger.notes.done(),
            unsupported=tuple(str(d) for d in compiled.unsupported),
        )
        assert outcome.verdicts is not None
        bitmap = rows.to_bitmap() if self.options.emit_roaring else None
        return PruneResult(rows, proven, outcome.verdicts, compiled, trace, metadata, bitmap)


def prune(
    source: SourceLike | ParquetMetadata | ArrowFileMetaData,
    predicate: PredicateLike,
    schema: pa.Schema | None = None,
    *,
    metadata: ParquetMetadata | ArrowFileMetaData | None = None,
    storage_options: StorageOptions | None = None,
    options: PruneOptions | None = None,
    page_index: bool | None = None,
    bloom_filter: bool | None = None,
    dictionary: bool | None = None,
    emit_roaring: bool | None = None,
    case_sensitive: bool | None = None,
    max_bloom_keys: int | None = None,
    bloom_provider: BloomProvider | None = None,
    tail_bytes: int | None = None,
) -> PruneResult:
    """Return the row groups and rows of one file that can match; no data is read.

    The keywords after ``options`` are the fields of [PruneOptions][skipstone.PruneOptions], which documents
    them. None means the value in ``options``, or the default.

    Args:
        source: A path or URI, bytes, a binary file object, an obstore store with a key, or only the metadata.
        predicate: SQL text, or any predicate that ``sk.predicate`` accepts.
        schema: The schema to bind the predicate to; by default the file's own. A column that the file lacks
            is NULL.
        metadata: Metadata of the file, so that its footer is not read.
        storage_options: Options of the object store.
        options: Options to start from.

    Raises:
        UnknownColumnError: If the schema lacks a column of the predicate.
        NotParquetError: If the file is not a Parquet file.

    Examples:
        >>> import skipstone as sk
        >>> result = sk.prune("events/part-0.parquet", "event_id < 10")
        >>> result.row_groups, len(result.rows) < 250
        ([0], True)
    """
    changes = {
        "page_index": page_index,
        "bloom_filter": bloom_filter,
        "dictionary": dictionary,
        "emit_roaring": emit_roaring,
        "case_sensitive": case_sensitive,
        "max_bloom_keys": max_bloom_keys,
        "bloom_provider": bloom_provider,
        "tail_bytes": tail_bytes,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    pruner = Pruner(predicate, schema, replace(options or PruneOptions(), **changes))  # type: ignore[arg-type]
    return pruner.prune(source, metadata=metadata, storage_options=storage_options)


def _open(
    source: SourceLike | ParquetMetadata | ArrowFileMetaData,
    metadata: ParquetMetadata | ArrowFileMetaData | None,
    storage_options: StorageOptions | None,
) -> tuple[TailSource | None, ParquetMetadata | None]:
    if _is_metadata(source):
        return None, _as_metadata(source)
    opened = TailSource(open_source(cast("SourceLike", source), storage_options=storage_options))
    if metadata is None:
        return opened, None
    footer = _as_metadata(metadata)
    opened.expect(footer.version, footer.size)
    return opened, footer


def _is_metadata(value: object) -> TypeGuard[ParquetMetadata | ArrowFileMetaData]:
    return isinstance(value, ParquetMetadata) or type(value).__name__ == "FileMetaData"


def _as_metadata(value: ParquetMetadata | ArrowFileMetaData) -> ParquetMetadata:
    return value if isinstance(value, ParquetMetadata) else from_pyarrow(value)
