"""A lake as a pyarrow dataset, which DuckDB, DataFusion and Polars query with their pushed filters.

These engines trust the dataset to apply a filter exactly, so a filter is a scan of the lake, by the rules of
the caller. For SQL engines NaN equals itself and is the largest value, and NULL is neither in a list nor out
of it; for pyarrow NaN equals nothing, and a list contains NULL or not. Engines call ``scanner`` and
``get_fragments`` (Polars ``to_batches``), people call the other methods.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from skipstone.errors import SkipstoneError, UsageError
from skipstone.predicate.arrow import decode, from_arrow
from skipstone.predicate.tree import Predicate, conjunction
from skipstone.scan.execute import execute
from skipstone.scan.parts import split
from skipstone.scan.scan import Scan

if TYPE_CHECKING:
    from skipstone.scan.lake import Lake
    from skipstone.scan.plan import ScanPlan

Rules: TypeAlias = Literal["auto", "sql", "pyarrow"]
Columns: TypeAlias = "Sequence[str] | Mapping[str, pc.Expression] | None"

_UNSUPPORTED: Final = "pyarrow can't read the files of a Skipstone dataset by itself"
# Files whose footers are read to estimate the rows of all.
_SAMPLE: Final = 32
_INSTEAD: Final = "use scanner(), to_table() or to_batches() of the dataset, or lake.scan()"


class LakeDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A lake as a pyarrow dataset; [Lake.to_dataset][skipstone.Lake.to_dataset] makes it."""

    def __init__(self, lake: Lake, where: Predicate | None = None, rules: Rules = "auto") -> None:
        if rules not in get_args(Rules):
            raise UsageError(f"unknown rules {rules!r}", hint=f"use one of {', '.join(get_args(Rules))}")
        # A dataset of C++ has fragments. Whatever opens them, such as a union, fails with a clear error.
        files = fs.PyFileSystem(_NoFiles())
        format = ds.ParquetFileFormat()
        super().__init__([format.make_fragment("", files)], lake.schema, format, files)
        self._lake, self._where, self._rules = lake, where, rules
        self._recent: tuple[pc.Expression | None, ScanPlan] | None = None
        self._estimated: tuple[str, int | None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._lake, self._where, self._rules)

    def __repr__(self) -> str:
        where = "" if self._where is None else f", {str(self._where)!r}"
        return f"LakeDataset({self._lake.uri}{where})"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the lake."""
        return self._lake.schema

    @property
    def files(self) -> list[str]:
        """Paths of the lake's files."""
        return [entry.path for entry in self._lake.files]

    # -- for engines -------------------------------------------------------------------------

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> LakeScanner | ds.Scanner:
        """Return a scanner of the rows for which ``filter`` is TRUE by the rules of SQL."""
        plan = self._plan(columns, filter, batch_size, engine=True)
        # DataFusion asks for a scanner to see its schema, then for fragments.
        self._recent = filter, plan
        return _scanner_of(plan, columns)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[LakeFragment]:
        """Yield groups of the files that may match, for parallel scans by an engine."""
        condition, plan = self._recent or (None, None)
        version = self._lake.scan().lake.version
        if plan is None or plan.version != version or not _are_same(condition, filter):
            plan = self._scan([], filter, None, engine=True).plan()
        done: set[str] = set()
        if not plan.tasks:
            # DataFusion can't sort the rows of no fragments.
            yield LakeFragment(self, filter, plan)
        for group in split(plan, os.cpu_count() or 1) if len(plan.tasks) > 1 else [plan.tasks]:
            # A large file has pieces in several groups, but is scanned by one fragment.
            paths = {task.entry.key for task in group} - done
            done |= paths
            if paths:
                tasks = tuple(task for task in plan.tasks if task.entry.key in paths)
                yield LakeFragment(self, filter, plan.changed(tasks=tasks))

    def filter(self, expression: pc.Expression) -> LakeDataset:
        """Return the dataset with a filter for every scan."""
        return LakeDataset(self._lake, self._filtered(expression, engine=False), self._rules)

    def estimated_rows(self) -> int | None:
        """About how many rows there are without another filter; None if files can't be read.

        An index or a table's metadata has the number, else it follows from the footers of a few files.
        """
        lake = self._lake.scan().lake
        if self._estimated is None or self._estimated[0] != lake.version:
            try:
                rows: int | None = _estimated_rows(lake, self._where)
            except SkipstoneError:  # which the query raises as well
                rows = None
            self._estimated = lake.version, rows
        return self._estimated[1]

    # -- for people --------------------------------------------------------------------------

    def to_batches(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows in batches."""
        caller = sys._getframe(1).f_globals.get("__name__", "")
        engine = caller.partition(".")[0] == "polars"
        batches: Iterator[pa.RecordBatch] = self._scanner(
            columns, filter, batch_size, engine=engine
        ).to_batches()
        return batches

    def to_table(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> pa.Table:
        """Return the rows as a table."""
        if isinstance(columns, Mapping):
            return self._scanner(columns, filter, batch_size, engine=False).to_table()
        return self._scan(columns, filter, batch_size, engine=False).to_arrow()

    def head(
        self, num_rows: int, columns: Columns = None, filter: pc.Expression | None = None, **_: Any
    ) -> pa.Table:
        """Return the first rows as a table."""
        return self._scanner(columns, filter, num_rows, engine=False).head(num_rows)

    def take(
        self, indices: Any, columns: Columns = None, filter: pc.Expression | None = None, **_: Any
    ) -> pa.Table:
        """Return rows by position."""
        return self._scanner(columns, filter, None, engine=False).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:
        """Count rows; those that metadata proves to match are not read."""
        return self._scan([], filter, None, engine=False).count()

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Return the rows in memory, sorted."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, keys: Any, *args: Any, **options: Any) -> ds.InMemoryDataset:
        """Return the rows in memory, joined to another dataset."""
        return ds.InMemoryDataset(self.to_table().join(right_dataset.to_table(), keys, *args, **options))

    def join_asof(self, right_dataset: Any, *args: Any, **options: Any) -> ds.InMemoryDataset:
        """Return the rows in memory, joined to the nearest rows of another dataset."""
        return ds.InMemoryDataset(self.to_table().join_asof(right_dataset.to_table(), *args, **options))

    def replace_schema(self, schema: pa.Schema) -> LakeDataset:  # noqa: ARG002
        """Refuse another schema: the lake has one."""
        raise UsageError("the schema of a lake can't be replaced", hint="use sk.open(..., schema=...)")

    # -- scans -------------------------------------------------------------------------------

    def _filtered(self, filter: pc.Expression | None, *, engine: bool) -> Predicate | None:
        if filter is None:
            return self._where
        if isinstance(filter, pa.Scalar):
            filter = pc.scalar(filter)  # DataFusion computes IN (NULL)
        sql = self._rules == "sql" or (engine and self._rules == "auto")
        condition = from_arrow(filter, sql=sql)
        return condition if self._where is None else conjunction([self._where, condition])

    def _scan(
        self,
        columns: Sequence[str] | None,
        filter: pc.Expression | None,
        batch_size: int | None,
        *,
        engine: bool,
    ) -> Scan:
        where = self._filtered(filter, engine=engine)
        names = None if columns is None else list(columns)
        return self._lake.scan(where, names, batch_rows=batch_size or None)

    def _plan(
        self, columns: Columns, filter: pc.Expression | None, batch_size: int | None, *, engine: bool
    ) -> ScanPlan:
        return self._scan(_names(columns, self.schema), filter, batch_size, engine=engine).plan()

    def _scanner(
        self, columns: Columns, filter: pc.Expression | None, batch_size: int | None, *, engine: bool
    ) -> LakeScanner | ds.Scanner:
        return _scanner_of(self._plan(columns, filter, batch_size, engine=engine), columns)


@dataclass(frozen=True, eq=False)
class LakeFragment:
    """Some files of a lake, which an engine scans as one partition, by the plan that chose them."""

    dataset: LakeDataset
    condition: pc.Expression | None
    plan: ScanPlan

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema of the lake."""
        return self.dataset.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """TRUE: partition values are columns."""
        return pc.scalar(True)

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> LakeScanner | ds.Scanner:
        """Return a scanner of the rows of these files for which ``filter`` is TRUE."""
        if schema is not None and not schema.equals(self.dataset.schema):
            return self.dataset.replace_schema(schema).scanner()
        plan = self.plan
        if not _are_same(filter, self.condition):
            paths = {task.entry.key for task in plan.tasks}
            plan = self.dataset._plan(columns, filter, batch_size, engine=True)
            plan = plan.changed(tasks=tuple(task for task in plan.tasks if task.entry.key in paths))
        names = _names(columns, plan.schemas.read)
        return _scanner_of(plan if names == plan.schema.names else plan.with_columns(names), columns)

    def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows in batches."""
        batches: Iterator[pa.RecordBatch] = self.scanner(**options).to_batches()
        return batches

    def to_table(self, **options: Any) -> pa.Table:
        """Return the rows as a table."""
        return self.scanner(**options).to_table()

    def count_rows(self, **options: Any) -> int:
        """Count the rows."""
        return int(self.scanner(**options).count_rows())


@dataclass(frozen=True, eq=False)
class LakeScanner:
    """The rows of a plan, with the methods of a pyarrow scanner, which takes longer to start."""

    plan: ScanPlan

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.plan.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows in batches."""
        return execute(self.plan).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return execute(self.plan).to_reader()

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return execute(self.plan).to_arrow()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(ds.Scanner.from_batches(self.to_reader()), name)


def _are_same(a: pc.Expression | None, b: pc.Expression | None) -> bool:
    return a is b or (a is not None and b is not None and a.equals(b))


def _names(columns: Columns, schema: pa.Schema) -> list[str]:
    """The columns that are read."""
    if not isinstance(columns, Mapping):
        return list(schema.names if columns is None else columns)
    used = {node.path[0] for value in columns.values() for node in decode(value).walk() if node.path}
    return [name for name in schema.names if name in used]


def _scanner_of(plan: ScanPlan, columns: Columns) -> LakeScanner | ds.Scanner:
    if isinstance(columns, Mapping):
        return ds.Scanner.from_batches(execute(plan).to_reader(), columns=dict(columns))
    return LakeScanner(plan)


def _estimated_rows(lake: Lake, where: Predicate | None) -> int:
    if where is not None:
        return sum([len(task.rows) for task in lake.scan(where).plan().tasks])
    try:
        return len(lake)
    except TypeError:
        few = lake.entries[:: -(-len(lake.entries) // _SAMPLE)]
        rows = sum([layout.num_rows for layout in lake.access.layouts(few)])
        size = sum([entry.size for entry in few])
        return rows * sum([entry.size for entry in lake.entries]) // size


class _NoFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """A file system without files."""

    def get_type_name(self) -> str:
        return "skipstone"

    def normalize_path(self, path: str) -> str:
        return path

    def _refuse(self, *_: Any) -> Any:
        raise UsageError(_UNSUPPORTED, hint=_INSTEAD)

    get_file_info = get_file_info_selector = open_input_stream = open_input_file = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
