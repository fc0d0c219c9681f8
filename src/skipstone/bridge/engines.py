"""A lake as a relation of DuckDB, a table of DataFusion and a lazy frame of Polars."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from skipstone.bridge.dataset import Columns, LakeDataset, LakeScanner
from skipstone.bridge.routes import ENGINES, choose, file_schema, float_columns, type_obstacle
from skipstone.core.domain.keys import is_text
from skipstone.errors import NotExpressibleError, UsageError, require
from skipstone.predicate import tree
from skipstone.predicate.coerce import predicate as to_predicate
from skipstone.predicate.tree import Predicate, conjunction
from skipstone.report.trace import EngineUse
from skipstone.scan.plan import ScanPlan, Task

if TYPE_CHECKING:
    import datafusion
    import duckdb
    import polars as pl

    from skipstone.scan.lake import Lake
    from skipstone.typing import EngineName, EngineRoute, PredicateLike

_Obstacle: TypeAlias = Callable[[ScanPlan], str | None]

_STATISTICS: Final = "datafusion.execution.collect_statistics"


def explain_route(plan: ScanPlan, engine: str, route: str) -> EngineUse:
    """Return the route that a question takes, for a report."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}", hint=f"use one of {', '.join(ENGINES)}")
    require(engine)
    return choose(plan, engine, route, partial(_OBSTACLES[engine], plan))  # type: ignore[arg-type]  # checked


def _registered_plan(
    lake: Lake, where: PredicateLike, engine: EngineName, route: EngineRoute, obstacle: _Obstacle
) -> ScanPlan | None:
    """The plan of a lake that is registered as files for the engine's own reader; None if as a dataset.

    Without a condition that is not chosen: the questions to come may be selective.
    """
    if route == "auto" and where is None:
        return None
    plan = lake.scan(where).plan()
    if choose(plan, engine, route, partial(obstacle, plan)).route != "reader":
        return None
    lake.access.check_unchanged([task.entry for task in plan.tasks])
    return plan


# -- DuckDB ------------------------------------------------------------------------------------


def to_duckdb(
    lake: Lake, connection: object, name: str, where: PredicateLike = None, route: EngineRoute = "auto"
) -> duckdb.DuckDBPyRelation:
    """Register a lake as a view of a connection."""
    require("duckdb")
    import duckdb

    _check_name(name)
    chosen = duckdb.default_connection() if connection is None else connection
    if not isinstance(chosen, duckdb.DuckDBPyConnection):
        hint = "pass duckdb.connect(), or omit it for the default connection"
        raise UsageError(f"{type(connection).__name__} is not a DuckDB connection", hint=hint)
    plan = _registered_plan(lake, where, "duckdb", route, _duckdb_obstacle)
    if plan is None:
        dataset = LakeDataset if route == "slices" else DuckDBDataset
        _register_counted(chosen, name, dataset(lake, _predicate(where)))
    else:
        chosen.register(name, chosen.sql(_duckdb_query(plan)))
    return chosen.table(_quoted(name))


def _register_counted(connection: duckdb.DuckDBPyConnection, name: str, dataset: LakeDataset) -> None:
    """Register a dataset with its number of rows.

    DuckDB takes a dataset of unknown size for one row, and so makes bad plans for joins of several. It can be
    told only by the class that it wraps datasets in, which isn't public: without it, the size stays unknown.
    """
    counted, register = _counted_source(), getattr(connection, "_register_arrow_source", None)
    if counted is None or register is None:
        connection.register(name, dataset)
    else:
        register(name, counted(dataset))


@cache
def _counted_source() -> type[Any] | None:
    try:
        from duckdb._sources.pyarrow import PyArrowDatasetSource
    except ImportError:
        return None

    class CountedSource(PyArrowDatasetSource):
        """A dataset that pushes down filters as every other, and has a number of rows."""

        obj: LakeDataset

        def rows(self) -> int | None:
            return self.obj.estimated_rows()

    return CountedSource


class DuckDBDataset(LakeDataset):
    """A lake that answers DuckDB by page slices, or by DuckDB's own reader in another database."""

    def scanner(
        self, columns: Columns = None, filter: pc.Expression | None = None, *args: Any, **options: Any
    ) -> LakeScanner | ds.Scanner:
        """Return a scanner of the rows for which ``filter`` is TRUE by the rules of SQL."""
        found = super().scanner(columns, filter, *args, **options)
        if not isinstance(found, LakeScanner):
            return found
        plan = found.plan
        use = choose(plan, "duckdb", "auto", partial(_duckdb_obstacle, plan))
        if use.route == "slices" or not plan.schema.names:
            return found
        self._lake.access.check_unchanged([task.entry for task in plan.tasks])
        return DuckDBScanner(plan)


class DuckDBScanner(LakeScanner):
    """The rows of a plan, as DuckDB reads them in another database."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream. Threads of a pyarrow scanner could crash a process that ends."""
        types, names = self.plan.schema.types, ", ".join(map(_quoted, self.plan.schema.names))
        query = _duckdb(os.getpid()).cursor().sql(_duckdb_query(self.plan))
        rows = query.project(names).to_arrow_reader()
        # DuckDB passes some types as others, such as UUID as text.
        same = all(
            _passed(given) == _passed(type) for given, type in zip(rows.schema.types, types, strict=True)
        )
        return rows.cast(self.plan.schema) if same else super().to_reader()


@cache
def _duckdb(_process: int) -> duckdb.DuckDBPyConnection:
    """A database that reads files for other connections of this process."""
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _passed(type: pa.DataType) -> pa.DataType:
    """A type as DuckDB passes it in UTC."""
    if pa.types.is_timestamp(type) and type.tz is not None:
        return pa.timestamp(type.unit, "UTC")
    wide = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return wide.get(type, type)


def _duckdb_query(plan: ScanPlan) -> str:
    """A query of the kept files whose floats DuckDB can't prune by bounds, which leave NaN out.

    TRY costs nothing, and bounds of its result are not inferred.
    """
    guarded, _ = float_columns(plan.schemas.read)
    columns = [
        f"TRY({column}) AS {column}" if name in guarded else column
        for name, column in zip(plan.schemas.read.names, map(_quoted, plan.schemas.read.names), strict=True)
    ]
    query = f"SELECT {', '.join(columns)} {_from_files(plan.tasks)}"
    tested = _tested(plan)
    return query if tested is None else f"FROM ({query}) WHERE {tested.to_sql('duckdb')}"


def _from_files(tasks: tuple[Task, ...]) -> str:
    paths = ", ".join("'" + task.path.replace("'", "''") + "'" for task in tasks)
    return f"FROM read_parquet([{paths}], hive_partitioning = false)"


def _duckdb_obstacle(plan: ScanPlan) -> str | None:
    import duckdb

    names = [name.lower() for name in plan.schemas.read.names]
    if "" in names or len({*names}) < len(names):
        return "DuckDB gives other names to columns that have none or differ only in case"
    inside = float_columns(plan.schemas.read)[1]
    if inside is not None:
        return f"DuckDB's pruning loses NaN inside column {inside}"
    tested = _tested(plan)
    try:
        if tested is not None:
            tested.to_sql("duckdb")
            if _depends_on_zone(tested, plan.schemas.query):
                return "a timestamp is compared with a string, which depends on the session's time zone"
    except NotExpressibleError as error:
        return str(error)

    def types() -> str | None:
        with duckdb.connect() as connection:
            connection.register("empty", plan.schemas.read.empty_table())
            files, empty = connection.sql(_from_files(plan.tasks[:1])), connection.table("empty")
            both = (dict(zip(of.columns, map(str, of.types), strict=True)) for of in (files, empty))
            return type_obstacle("DuckDB", *both)

    return _once(plan, "duckdb", types)


# -- DataFusion --------------------------------------------------------------------------------


def to_datafusion(
    lake: Lake, context: object, name: str, where: PredicateLike = None, route: EngineRoute = "auto"
) -> datafusion.SessionContext:
    """Register a lake as a table of a session."""
    require("datafusion")
    import datafusion

    _check_name(name)
    if context is None:
        settings = {_STATISTICS: "false"} if route == "reader" else None
        context = datafusion.SessionContext(datafusion.SessionConfig(settings))
    if not isinstance(context, datafusion.SessionContext):
        hint = "pass datafusion.SessionContext(), or omit it for a new one"
        raise UsageError(f"{type(context).__name__} is not a DataFusion session", hint=hint)
    obstacle = partial(_datafusion_obstacle, session=context)
    plan = _registered_plan(lake, where, "datafusion", route, obstacle)
    if plan is None:
        context.register_dataset(name, LakeDataset(lake, _predicate(where)))
    else:
        context.register_view(name, _datafusion_frame(plan, context))
    return context


def _datafusion_frame(plan: ScanPlan, session: datafusion.SessionContext) -> datafusion.DataFrame:
    """The kept files with floats that DataFusion can't prune by bounds, which leave NaN out.

    Subtracting zero changes no value, not even -0.0, and bounds of a difference are not inferred.
    """
    from datafusion import col, lit

    def guarded(field: pa.Field) -> datafusion.Expr:
        column = col(_quoted(field.name))
        if not pa.types.is_floating(field.type):
            return column
        return (column - lit(pa.scalar(0.0, field.type))).alias(field.name)

    frame = session.read_parquet(_linked(plan.tasks)).select(*map(guarded, plan.schemas.read))
    tested = _tested(plan)
    return frame if tested is None else frame.filter(tested.to_datafusion())


def _linked(tasks: tuple[Task, ...]) -> str:
    """A directory of links, since DataFusion reads a directory or a file, not a list of files."""
    directory = Path(tempfile.mkdtemp(prefix="skipstone-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    for number, task in enumerate(tasks):
        (directory / f"{number:06d}.parquet").symlink_to(Path(task.path).absolute())
    return str(directory)


def _datafusion_obstacle(plan: ScanPlan, session: datafusion.SessionContext | None = None) -> str | None:
    import datafusion

    flat, inside = float_columns(plan.schemas.read)
    if inside is not None:
        return f"DataFusion's pruning loses NaN inside column {inside}"
    if flat and (session is None or _collects_statistics(session)):
        return f"DataFusion can read NaN of column {flat[0]} as another value unless {_STATISTICS} is false"
    tested = _tested(plan)
    try:
        _ = tested is None or tested.to_datafusion()
    except NotExpressibleError as error:
        return str(error)

    def types() -> str | None:
        schema = datafusion.SessionContext().read_parquet(plan.tasks[0].path).schema()
        both = ({one.name: str(_without_view(one.type)) for one in of} for of in (schema, plan.schemas.read))
        return type_obstacle("DataFusion", *both)

    return _once(plan, "datafusion", types)


def _collects_statistics(session: datafusion.SessionContext) -> bool:
    """Whether a session replaces a column by the only value that statistics of a file show."""
    import datafusion

    shown = datafusion.SessionContext(session.copied_config().with_information_schema(True))
    return bool(shown.sql(f"SHOW {_STATISTICS}").to_pylist()[0]["value"] != "false")


def _without_view(type: pa.DataType) -> pa.DataType:
    """DataFusion reads strings and bytes as views."""
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return views.get(type, type)


# -- Polars ------------------------------------------------------------------------------------


def to_polars_lazy(lake: Lake, route: EngineRoute = "auto") -> pl.LazyFrame:
    """Return a lazy frame that has each query planned by Skipstone."""
    require("polars")
    from polars.lazyframe.resolver import FilterExpr, LazyFrameResolver, ResolvedLazyFrameProps

    if route == "slices":
        return _slices_frame(lake)
    if route != "auto":
        plan = lake.scan().plan()
        choose(plan, "polars", route, partial(_polars_obstacle, plan))

    class Resolver(LazyFrameResolver):
        """Answers a query's projection and filters with one of two lazy frames."""

        def schema(self) -> pl.Schema:
            return _polars_schema(lake.schema)

        def resolve_lazyframe(
            self,
            *,
            projection: list[str] | None,
            limit: int | None,
            filters: list[FilterExpr],
            filter_columns: list[str],  # noqa: ARG002
            filter_drop_columns_idx: int | None,  # noqa: ARG002
            existing_resolved_version_key: str | None,  # noqa: ARG002
        ) -> tuple[pl.LazyFrame, ResolvedLazyFrameProps]:
            # With a version Polars asks again at each collect, so that it sees what refresh() has found.
            props = ResolvedLazyFrameProps(version_key=lake.version, applied_filters=range(len(filters)))
            return _resolved(lake, projection, limit, [one.expr for one in filters], route), props

    return Resolver().lazy()


def _resolved(
    lake: Lake, columns: list[str] | None, limit: int | None, filters: list[pl.Expr], route: EngineRoute
) -> pl.LazyFrame:
    """The frame that answers a query: page slices, or Polars' own reader of the kept files."""
    import polars as pl

    from skipstone.predicate.polars import from_polars

    where = conjunction([from_polars(one) for one in filters]) if filters else None
    plan = lake.scan(where, columns, limit=None if filters else limit).plan()
    if choose(plan, "polars", route, partial(_polars_obstacle, plan)).route == "reader":
        lake.access.check_unchanged([task.entry for task in plan.tasks])
        paths, sound = [task.path for task in plan.tasks], _are_comparisons(plan.predicate)
        frame = pl.scan_parquet(paths, glob=False, hive_partitioning=False, use_statistics=sound)
    else:
        frame = _slices_frame(lake)
    frame = frame.filter(*filters) if filters else frame
    return frame if columns is None else frame.select(columns)


def _are_comparisons(predicate: Predicate | None) -> bool:
    """Whether only columns are compared: Polars skips by arithmetic on bounds, which can wrap around."""
    kinds = (tree.Column, tree.Literal, tree.IsNull, tree.IsNan, tree.IsIn, tree.Not, tree.And, tree.Or)
    compared = (tree.Compare, tree.Between, tree.BooleanValue, tree.Constant, tree.Truth)
    return predicate is None or all(isinstance(node, (*kinds, *compared)) for node in predicate.walk())


def _slices_frame(lake: Lake) -> pl.LazyFrame:
    import polars as pl
    from polars.io.plugins import register_io_source

    from skipstone.predicate.polars import from_polars

    def scan(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        # Polars counts rows before it filters them.
        where = None if predicate is None or rows is not None else from_polars(predicate)
        for batch in lake.scan(where, columns, limit=rows, batch_rows=batch_rows):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame if predicate is None or rows is None else frame.filter(predicate)

    return register_io_source(scan, schema=_polars_schema(lake.schema), is_pure=True)


def _polars_obstacle(plan: ScanPlan) -> str | None:
    import polars as pl

    def types() -> str | None:
        schemas = (pl.read_parquet_schema(plan.tasks[0].path), _polars_schema(file_schema(plan)))
        return type_obstacle("Polars", *({name: str(type) for name, type in of.items()} for of in schemas))

    return _once(plan, "polars", types)


def _polars_schema(schema: pa.Schema) -> pl.Schema:
    import polars as pl

    empty: Any = pl.from_arrow(schema.empty_table())
    found: pl.Schema = empty.schema
    return found


# -- shared ------------------------------------------------------------------------------------


_OBSTACLES: Mapping[str, _Obstacle] = {
    "duckdb": _duckdb_obstacle,
    "datafusion": _datafusion_obstacle,
    "polars": _polars_obstacle,
}


def _once(plan: ScanPlan, engine: str, find: Callable[[], str | None]) -> str | None:
    """What was found about the types of a schema, which the kept files share."""
    memo = plan.files.layout(plan.tasks[0].entry).schema_group.memo
    key = (type_obstacle, engine, plan.schemas.read)
    if key not in memo:
        memo[key] = find()
    found: str | None = memo[key]
    return found


def _predicate(where: PredicateLike) -> Predicate | None:
    return None if where is None else to_predicate(where)


def _tested(plan: ScanPlan) -> Predicate | None:
    """The condition to test on the rows of the kept files; None if every row of them matches."""
    every = plan.residual is None and all(task.rows.is_full for task in plan.tasks)
    return None if every else plan.predicate


def _depends_on_zone(predicate: Predicate, schema: pa.Schema) -> bool:
    """Whether a predicate has strings and timestamps."""
    times = any(pa.types.is_timestamp(schema.field(path[0]).type) for path in predicate.columns())
    texts = (node for node in predicate.walk() if isinstance(node, tree.Literal | tree.IsIn))
    return times and any(
        is_text(node.scalar.type if isinstance(node, tree.Literal) else node.values.type) for node in texts
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise UsageError(f"name must be a string, got {name!r}", hint='pass a table name such as "events"')
