"""``lake.index``: build, refresh, inspect and drop the index of a lake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from skipstone.core.domain.keys import is_ordered, storage_type
from skipstone.engine.jobs import EngineChoice, LocalEngine, choose_engine
from skipstone.errors import (
    CorruptFileError,
    ReadError,
    TypeMismatchError,
    UnknownColumnError,
    UsageError,
    WriteError,
)
from skipstone.index.container import BadIndex
from skipstone.lake.files import Files
from skipstone.lake.records import FOLDER, index_root
from skipstone.report import Printable
from skipstone.store.store import ListedFile, Store

# Building and opening are imported where they are used: most lakes have no index.
if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.core.evidence import Array
    from skipstone.engine.jobs import Engine
    from skipstone.iceberg.inventory import CachedEntries
    from skipstone.index.advise.advice import Advice
    from skipstone.index.coverage import IndexCoverage
    from skipstone.index.results import IndexReport, IndexStatus
    from skipstone.index.spec import Path, Spec
    from skipstone.lake.snapshot import Snapshot
    from skipstone.parquet.metadata import ParquetMetadata
    from skipstone.typing import EngineLike, Progress, QueryLog

DEFAULT_COLUMNS: Final = 32
"""Number of columns that are indexed by default: the first ones with an ordered type."""


class LakeIndex(Printable):
    """The index of a lake, as ``lake.index``: build, refresh, inspect and drop it.

    An index never changes an answer. Entries of files that have changed are ignored, and so are damaged
    parts.

    Examples:
        >>> import skipstone as sk
        >>> lake = sk.open("events", index_root="index")
        >>> lake.index.build(engine="local").indexed
        4
        >>> lake.index.status().covered
        4
        >>> lake.index.drop()
    """

    view = "skipstone.index.views:index_tree"
    _internal = frozenset(
        {
            *("access", "changed", "coverage", "distrust", "kinds", "manifests", "over", "pin"),
            *("recorded", "store", "with_lake_names"),
        }
    )

    def __init__(
        self,
        snapshot: Snapshot,
        root: Store | None,
        relist: Callable[[Engine], None],
        *,
        changed: bool = False,
    ) -> None:
        """``relist`` lists the lake again and passes the new snapshot to ``pin``."""
        self._root, self._relist = root, relist
        self._lock = threading.Lock()
        self._served: Files | None = None
        self._below: LakeIndex | None = None
        self._problems: list[str] = []
        """Why cached entries of manifests are not used."""
        self.pin(snapshot, changed=changed)

    def over(self, snapshot: Snapshot) -> LakeIndex:
        """This index for a snapshot with the same files, numbered alike, and others in memory after them."""
        index = LakeIndex(snapshot, self.store, self._relist, changed=self.changed)
        index.access, index._below = self.access, self
        return index

    def pin(self, snapshot: Snapshot, *, changed: bool = False) -> None:
        """Serve another snapshot; ``changed`` if the index has changed since the lake was listed."""
        with self._lock:
            self._snapshot = snapshot
            self.changed = changed
            self._loaded = False
            self._coverage: IndexCoverage | None = None
            if self._served is not snapshot.access:
                self._served = snapshot.access
                self.store = index_root(snapshot.access.store) if self._root is None else self._root
                self.access = Files(self.store, retry=snapshot.access.retry)
        snapshot.access.recorded = self.recorded
        snapshot.use(self)

    @property
    def uri(self) -> str:
        """The location of the index."""
        return self.store.uri

    @property
    def coverage(self) -> IndexCoverage | None:
        """The index matched with the lake's listing; None if there is no index."""
        if not self._loaded:
            with self._lock:
                if not self._loaded:
                    self._coverage = self._load()
                    self._loaded = True
        return self._coverage

    def _load(self) -> IndexCoverage | None:
        if self._below is not None:
            coverage, snapshot = self._below.coverage, self._snapshot
            if coverage is None:
                return None
            return coverage.extended(snapshot.access, snapshot.entries, self.distrust)
        try:
            listed: list[ListedFile] | ReadError = self._files()
        except ReadError as error:
            listed = error
        if listed == []:
            return None
        from skipstone.index.opening import open_coverage

        coverage = open_coverage(self._snapshot, self.access, listed, self.distrust)
        if coverage is not None:
            coverage.problems.extend(self._problems)
        return coverage

    def distrust(self, bad: BadIndex) -> None:
        """Stop using a damaged part of the index."""
        with self._lock:
            # Several readers can find the same damage.
            if self._coverage is not None and self._coverage.uses(bad.name):
                self._coverage = self._coverage.without(bad)
                self._snapshot.access.forget_layouts()
                self._snapshot.plans.clear()

    # -- for snapshots -----------------------------------------------------------------------

    def recorded(self, entries: Sequence[ListedFile]) -> list[ParquetMetadata | None] | None:
        """Return the recorded metadata of files; None if there is no index."""
        while (coverage := self.coverage) is not None:
            numbers = map(self._snapshot.number_of, entries)
            try:
                return [None if number is None else coverage.metadata(number) for number in numbers]
            except BadIndex as error:
                self.distrust(error)
        return None

    def kinds(self) -> tuple[list[ParquetMetadata], Array] | None:
        """Return one file per recorded schema, and the numbers of unindexed files; None without an index."""
        while (coverage := self.coverage) is not None and coverage.covered:
            try:
                return coverage.kinds(), coverage.unknown
            except BadIndex as error:
                self.distrust(error)
        return None

    def manifests(self, version: str) -> tuple[CachedEntries, CachedEntries] | None:
        """Return the cached entries of a table's manifests."""
        from skipstone.index.entries import read_entries

        self._problems.clear()
        return read_entries(self.access, version, self._problems)

    def _files(self) -> list[ListedFile]:
        """List the files of the index; from the lake's own listing if the index is inside the lake."""
        if self._root is None and not self.changed and self._snapshot.listed_whole:
            prefix = f"{FOLDER}/"
            seen = [
                ListedFile(entry.key.removeprefix(prefix), entry.size, entry.version)
                for entry in self._snapshot.others
                if entry.key.startswith(prefix)
            ]
            # A directory without read permission looks absent in the lake's listing: list it to raise.
            if seen or not self.store.local:
                return seen
        return self.store.list_prefix("")

    # -- building ----------------------------------------------------------------------------

    def build(
        self,
        columns: Iterable[str] | None = None,
        blooms: Iterable[str] | bool | None = None,
        *,
        pages: bool = True,
        values: bool | None = None,
        sums: Iterable[str] | bool = False,
        sketches: Iterable[str] | bool = False,
        ids: Iterable[str] = (),
        rebuild: bool = False,
        engine: EngineLike = "auto",
        master: str | None = None,
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> IndexReport:
        """Build the index for the listed files; files that are already indexed with these options are kept.

        Args:
            columns: Columns to index. The default is the first 32 columns with ordered types.
            blooms: Columns to build bloom filters for, one per page where page boundaries are available.
                Bloom filters in the files are copied, unless this is False.
            pages: Index pages; if False, only row groups.
            values: Read values where footers lack statistics (pages without a page index, NaN counts,
                distinct counts). The default is True for columns that are named.
            sums: Columns with exact sums per row group and page; True for all numeric columns.
            sketches: Columns with sketches for approximate distinct counts and quantiles; True for all
                columns.
            ids: Integer columns for ``within=`` of aggregates. A column whose values increase by one from row
                to row then need not be read.
            rebuild: Index all files again.
            engine: ``"spark"``, ``"local"``, a Spark session or an [Engine][skipstone.Engine]; by default
                local threads for less than 64 MB of files, else Spark if PySpark and Java are installed.
            master: The master of a Spark session to start.
            remote: The Spark Connect URL of a session to start.
            conf: Settings of a Spark session to start.
            threads: Threads of the local engine.
            progress: Called with the number of finished and of all tasks.

        Returns:
            A report of what was indexed, read and skipped.

        Examples:
            >>> import skipstone as sk
            >>> lake = sk.open("events", index_root="index")
            >>> report = lake.index.build(blooms=["country"], engine="local")
            >>> report.indexed
            4
        """
        spec = self._spec(columns, blooms, pages, values, sums, sketches, ids)
        choice = choose_engine(engine, master, remote, conf, threads)
        return self._run(spec, choice, progress, rebuild=rebuild)

    def refresh(
        self,
        *,
        engine: EngineLike = "auto",
        master: str | None = None,
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> IndexReport:
        """List the lake again, index new and changed files, and drop files that no longer exist.

        Args:
            engine: ``"spark"``, ``"local"``, a Spark session or an [Engine][skipstone.Engine]; by default
                local threads for less than 64 MB of files, else Spark if PySpark and Java are installed.
            master: The master of a Spark session to start.
            remote: The Spark Connect URL of a session to start.
            conf: Settings of a Spark session to start.
            threads: Threads of the local engine.
            progress: Called with the number of finished and of all tasks.

        Examples:
            >>> import skipstone as sk
            >>> lake = sk.open("events", index_root="index")
            >>> report = lake.index.build(engine="local")
            >>> lake.index.refresh(engine="local").indexed
            0
        """
        stored = self._stored_spec()
        choice = choose_engine(engine, master, remote, conf, threads)
        if choice.by_size:
            # Which files are new is known only after the listing.
            self._relist(LocalEngine())
            return self._run(self._restore_spec(stored), choice, progress, rebuild=False)
        with choice.open() as running:
            self._relist(running)
            opened = EngineChoice(running, choice.reason)
            return self._run(self._restore_spec(stored), opened, progress, rebuild=False)

    def _stored_spec(self) -> dict[str, Any]:
        """Return the options of the last build."""
        from skipstone.index.manifest import read_manifest

        try:
            manifest = read_manifest(self.store)
        except BadIndex as error:
            raise CorruptFileError(
                error.reason,
                path=self.uri,
                hint="build the index again, with lake.index.build() or skipstone index build",
            ) from error
        if not manifest.spec:
            raise UsageError("no index to refresh", path=self.uri, hint="build the index first")
        return self.with_lake_names(manifest.spec)

    def with_lake_names(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Translate the columns of a stored spec to the lake's names."""
        naming = self._snapshot.access.naming
        if naming is None or not stored:
            return dict(stored)
        from skipstone.index.spec import LISTS

        lists = {name: [list(naming.path(tuple(p))) for p in stored[name]] for name in LISTS}
        columns = [[list(naming.path(tuple(p))), type] for p, type in stored["columns"]]
        return {**stored, **lists, "columns": columns}

    def _restore_spec(self, stored: Mapping[str, Any]) -> Spec:
        """Return a stored spec with the columns that the lake still has."""
        from skipstone.index.spec import LISTS, Spec

        types = dict(self._leaves())
        columns = tuple((path, types[path]) for p, _ in stored["columns"] if (path := tuple(p)) in types)
        listed = {name: tuple(path for p in stored[name] if (path := tuple(p)) in types) for name in LISTS}
        return Spec(columns, stored["pages"], own_blooms=stored["own_blooms"], **listed)

    def _run(
        self, spec: Spec, engine: EngineChoice, progress: Progress | None, *, rebuild: bool
    ) -> IndexReport:
        lake = self._snapshot
        if self._root is None and not lake.is_whole:
            raise UsageError(
                "an index can't be built for some files of a directory",
                path=self.uri,
                hint="open the directory, or pass an index_root",
            )
        from skipstone.engine.stopping import stoppable
        from skipstone.index.build import Job

        naming = lake.access.naming
        job = Job(
            lake.access,
            self.store,
            lake.entries,
            spec if naming is None else spec.renamed(naming.stored),
            engine,
            rebuild,
            progress,
            naming=lake.index_naming,
            listed_at=lake.listed_at,
        )
        with stoppable("the index is as before; the next build continues with what was written") as stop:
            try:
                report = job.run()
            except WriteError as error:
                error.hint = (
                    "write the index to a directory that you can write, with index_root= or --index-root"
                )
                raise
            stop.outcome = "the index is up to date"
            if lake.index_naming is not None:
                from skipstone.index.entries import store_entries

                store_entries(self.access, lake)
            self._invalidate()
        return report

    def _spec(
        self,
        columns: Iterable[str] | None,
        blooms: Iterable[str] | bool | None,
        pages: bool,
        values: bool | None,
        sums: Iterable[str] | bool,
        sketches: Iterable[str] | bool,
        ids: Iterable[str],
    ) -> Spec:
        from skipstone.index.spec import Spec

        leaves = self._leaves()
        types = dict(leaves)
        named = columns is not None
        chosen = (
            self._paths(columns, types, "columns")
            if columns is not None
            else tuple(path for path, _ in leaves)[:DEFAULT_COLUMNS]
        )
        made = () if blooms is None or isinstance(blooms, bool) else self._paths(blooms, types, "blooms")
        numeric = tuple(path for path in chosen if _is_number(types[path]))
        summed = self._extra(sums, types, numeric, "sums")
        self._check(summed, types, _is_number, "sums need a numeric column")
        sketched = self._extra(sketches, types, chosen, "sketches")
        id_columns = self._ids(ids, types)
        every = tuple(dict.fromkeys((*chosen, *made, *summed, *sketched, *id_columns)))
        read = every if values or (values is None and named) else ()
        return Spec(
            columns=tuple((path, types[path]) for path in every),
            pages=pages,
            blooms=made,
            own_blooms=blooms is not False,
            values=read,
            sums=summed,
            sketches=sketched,
            ids=id_columns,
        )

    def _ids(self, names: Iterable[str], types: Mapping[Path, pa.DataType]) -> tuple[Path, ...]:
        import pyarrow as pa

        paths = self._paths(names, types, "ids")
        is_integer = lambda type: pa.types.is_integer(storage_type(type))  # noqa: E731
        self._check(paths, types, is_integer, "ids need an integer column")
        return paths

    def _check(
        self,
        paths: Sequence[Path],
        types: Mapping[Path, pa.DataType],
        fits: Callable[[pa.DataType], bool],
        rule: str,
    ) -> None:
        for path in paths:
            if not fits(types[path]):
                raise TypeMismatchError(
                    f"{rule}, got {types[path]}",
                    path=self._snapshot.uri,
                    column=".".join(path),
                    hint="omit the column",
                )

    def _extra(
        self,
        names: Iterable[str] | bool,
        types: Mapping[Path, pa.DataType],
        default: tuple[Path, ...],
        what: str,
    ) -> tuple[Path, ...]:
        if isinstance(names, bool):
            return default if names else ()
        return self._paths(names, types, what)

    def _leaves(self) -> list[tuple[Path, pa.DataType]]:
        """Return the columns and struct fields with an ordered type, except partition columns."""
        partitions = self._snapshot.partition_names
        leaves: list[tuple[Path, pa.DataType]] = []
        for field in self._snapshot.query_schema:
            if field.name not in partitions:
                _collect(field, (), leaves)
        names = [path for path, _ in leaves]
        return [(path, type) for path, type in leaves if names.count(path) == 1]

    def _paths(self, names: Iterable[str], types: Mapping[Path, pa.DataType], what: str) -> tuple[Path, ...]:
        names = (names,) if isinstance(names, str) else names
        if not isinstance(names, Iterable):
            raise UsageError(f"{what} must be a list of column names, got {names!r}")
        by_name = {".".join(path): path for path in types}
        paths: list[Path] = []
        for name in names:
            nested = [path for path in types if path[0] == name]
            if name in by_name:
                paths.append(by_name[name])
            elif nested:
                paths += nested
            else:
                raise UnknownColumnError(
                    f"column in {what}= can't be indexed",
                    path=self._snapshot.uri,
                    column=str(name),
                    hint=f"use one of {', '.join(by_name)}" if by_name else "no column can be indexed",
                )
        return tuple(dict.fromkeys(paths))

    # -- inspecting --------------------------------------------------------------------------

    def status(self) -> IndexStatus:
        """Return what the index covers, its age and its size.

        Examples:
            >>> import skipstone as sk
            >>> sk.open("events").index.status().next_step
            'build the index: lake.index.build(), or skipstone index build'
        """
        from skipstone.index.status import index_status

        return index_status(self._snapshot, self)

    def advise(self, queries: QueryLog | None = None, *, sample: int = 64) -> Advice:
        """Recommend columns to index, bloom filters and an order of rows for a workload.

        Args:
            queries: Predicates, each alone or with its weight; or the path of a query log with a condition, a
                SELECT from one table or ``{"where": ..., "count": ...}`` on each line. By default sampled
                values and ranges of every column.
            sample: Maximum number of files to sample.

        Examples:
            >>> import skipstone as sk
            >>> advice = sk.open("events").index.advise(["event_id = 7", "country = 'DE'"])
        """
        from skipstone.index.advise import advise

        return advise(self._snapshot, queries, sample=sample)

    def drop(self) -> None:
        """Delete the index; the lake's own files are not changed."""
        from skipstone.index.manifest import is_entries, is_manifest, is_segment, leftovers

        listed = self.store.list_prefix("")
        names = [entry.key for entry in listed]
        # Manifests first: without one no reader looks for segments.
        manifests, segments = filter(is_manifest, names), filter(is_segment, names)
        self.store.delete([*manifests, *segments, *filter(is_entries, names), *leftovers(listed)])
        self._invalidate()

    def _invalidate(self) -> None:
        with self._lock:
            self._loaded, self._coverage, self.changed = False, None, True
        self._snapshot.plans.clear()

    def __repr__(self) -> str:
        coverage = self.coverage
        if coverage is None:
            return f"LakeIndex({self.uri!r}, none)"
        covered = f"{coverage.covered:,} of {len(self._snapshot.entries):,} files"
        return f"LakeIndex({self.uri!r}, version {coverage.manifest.number}, {covered})"


def _collect(field: pa.Field, above: Path, into: list[tuple[Path, pa.DataType]]) -> None:
    import pyarrow as pa

    path = (*above, field.name)
    plain = storage_type(field.type)
    if pa.types.is_struct(plain):
        for child in plain.fields:
            _collect(child, path, into)
    elif is_ordered(field.type):
        into.append((path, field.type))


def _is_number(type: pa.DataType) -> bool:
    import pyarrow as pa

    plain = storage_type(type)
    number = pa.types.is_integer(plain) or pa.types.is_floating(plain)
    return bool(number or pa.types.is_decimal(plain))
