"""The three routes from a plan to a data frame, and the choice between them.

*driver*: a few bytes are read at once in this process and become a local relation, without a Spark job.
*slices*: Spark's tasks read page slices, of about equal bytes each. *reader*: Spark's own reader reads the
kept files and filters the rows; it decodes faster than Python can pass rows to the JVM, so it suits plans
that keep most of the bytes. It checks for changed files when the frame is created, the others when they read.
It never reads the files of a table, because it knows neither their column mapping nor their deletes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Final, Literal, get_args

import pyarrow as pa

from skipstone.core.domain.keys import is_text, storage_type
from skipstone.engine.spark_types import spark_schema
from skipstone.errors import NotExpressibleError, SchemaError
from skipstone.predicate import tree
from skipstone.predicate.spark import to_spark_sql
from skipstone.report.trace import SparkUse
from skipstone.report.units import plural
from skipstone.scan import handover
from skipstone.scan.handover import REQUESTED
from skipstone.scan.parts import TaskGroup, split, weights
from skipstone.scan.plan import ScanPlan
from skipstone.scan.projection import Projection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Route = Literal["auto", "driver", "slices", "reader"]

_DRIVER_BYTES: Final = 4 * 1024 * 1024
_DRIVER_FILES: Final = 256
# Bytes that Spark's reader decodes while page slices bring one byte to the JVM, roughly.
_READER_FASTER: Final = 3.0
# Spark parses, analyzes and compiles each value of a list.
_MOST_VALUES: Final = 10_000


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """The chosen route; ``parts`` are for slices, ``condition`` (SQL) is for Spark's reader."""

    use: SparkUse
    parts: tuple[TaskGroup, ...] = ()
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class SessionTraits:
    """Session settings that affect the meaning of a condition."""

    zone: str = "UTC"
    ansi: bool = True
    """Whether strings are cast by the ANSI rules of Spark 4, not by Hive's."""
    escapes: bool = True
    """Whether a backslash in a string literal is an escape."""
    sensitive: bool = False
    """Whether column names are case-sensitive."""

    @classmethod
    def of(cls, session: SparkSession) -> SessionTraits:
        """Read the settings of a session."""

        def holds(name: str, default: str) -> bool:
            return (session.conf.get(name, default) or default).lower() == "true"

        return cls(
            zone=session.conf.get("spark.sql.session.timeZone") or "UTC",
            ansi=holds("spark.sql.ansi.enabled", "true"),
            escapes=not holds("spark.sql.parser.escapedStringLiterals", "false"),
            sensitive=holds("spark.sql.caseSensitive", "false"),
        )


def choose(plan: ScanPlan, route: str, *, parallelism: int, traits: SessionTraits) -> RouteChoice:
    """Choose the route for a plan in a session of that many cores."""
    handover.check_route(route, get_args(Route))
    sizes, total = weights(plan)
    amount = int(sizes.sum())
    obstacle = reader_obstacle(plan, traits)
    if route == "reader" and obstacle is not None:
        raise handover.refuse_reader("Spark", obstacle)
    if route == "driver" or (route == "auto" and _is_small(plan, amount)):
        why = REQUESTED if route == "driver" else handover.small_reason(plan, amount, "starting a job")
        return RouteChoice(SparkUse("driver", why, 0, amount))
    most = handover.keeps_most(amount, total, _READER_FASTER)
    if route == "reader" or (route == "auto" and obstacle is None and most):
        why = REQUESTED if route == "reader" else handover.reader_reason(amount, total)
        return RouteChoice(SparkUse("reader", why, len(plan.tasks), amount), condition=_condition(plan))
    parts = tuple(split(plan, parallelism))
    if route == "slices":
        why = REQUESTED
    elif obstacle is not None and most:
        why = handover.no_reader("Spark", obstacle)
    else:
        why = handover.slices_reason(amount, total)
    return RouteChoice(SparkUse("slices", why, len(parts), amount), parts)


def _is_small(plan: ScanPlan, amount: int) -> bool:
    return amount <= _DRIVER_BYTES and len(plan.tasks) <= _DRIVER_FILES


# -- Spark's own reader ------------------------------------------------------------------------


def reader_obstacle(plan: ScanPlan, traits: SessionTraits) -> str | None:
    """Why Spark's own reader can't run the plan; None if it can."""
    common = handover.reader_obstacle(plan, "Spark")
    if common is not None:
        return common
    twice = [] if traits.sensitive else _ambiguous_names(plan.schemas.read)
    if twice:
        return f"column {twice[0]} is ambiguous in a case-insensitive session"
    if len({_partition_names(task.entry.key) for task in plan.tasks}) > 1:
        # Spark reads the files of one set of columns and silently skips the others.
        return "its files have different partition columns"
    if plan.predicate is None:
        return None
    odd = _session_dependence(plan.predicate, plan.schemas.query, traits)
    if odd is not None:
        return odd
    try:
        condition = _condition(plan)
        _check_tested(plan)
    except (NotExpressibleError, SchemaError) as error:
        return str(error)
    if condition is not None and "\\" in condition and not traits.escapes:
        return "the session does not treat a backslash in a string literal as an escape"
    return None


def _partition_names(key: str) -> tuple[str, ...]:
    return tuple(part.partition("=")[0] for part in key.split("/")[:-1] if "=" in part)


def _check_tested(plan: ScanPlan) -> None:
    """Refuse a condition on a column that Spark can't read."""
    if plan.filter is not None:
        tested = Projection.of(plan.schemas.read, plan.filter.columns)
        spark_schema(tested.schema, plan.schemas.query, None, plan.schemas.partition)


def _ambiguous_names(schema: pa.Schema | pa.StructType) -> list[str]:
    """Return names that occur more than once if case is ignored, nested ones included."""
    counts = Counter(field.name.lower() for field in schema)
    names = [name for name, count in counts.items() if count > 1]
    for field in schema:
        if isinstance(field.type, pa.StructType):
            names += _ambiguous_names(field.type)
    return names


def _condition(plan: ScanPlan) -> str | None:
    return None if plan.predicate is None else to_spark_sql(plan.predicate, plan.schemas.query)


@singledispatch
def _session_dependence(node: tree.Expr, _schema: pa.Schema, _traits: SessionTraits) -> str | None:
    """Why a predicate may mean something else under the session's settings; None if it can't."""
    return f"only Skipstone can evaluate {node}"


@_session_dependence.register(tree.Constant)
def _(_node: tree.Constant, _schema: pa.Schema, _traits: SessionTraits) -> str | None:
    return None


@_session_dependence.register(tree.And)
@_session_dependence.register(tree.Or)
def _(node: tree.And | tree.Or, schema: pa.Schema, traits: SessionTraits) -> str | None:
    return next(
        (odd for arg in node.args if (odd := _session_dependence(arg, schema, traits)) is not None), None
    )


@_session_dependence.register(tree.Not)
@_session_dependence.register(tree.Truth)
@_session_dependence.register(tree.IsNull)
@_session_dependence.register(tree.IsNan)
@_session_dependence.register(tree.Match)
@_session_dependence.register(tree.Like)
@_session_dependence.register(tree.BooleanValue)
def _(node: tree.Not, schema: pa.Schema, traits: SessionTraits) -> str | None:
    return _session_dependence(node.arg, schema, traits)


@_session_dependence.register(tree.Column)
def _(node: tree.Column, schema: pa.Schema, _traits: SessionTraits) -> str | None:
    return None if _type_of(node, schema) is not None else f"only Skipstone can evaluate {node}"


@_session_dependence.register(tree.Compare)
def _(node: tree.Compare, schema: pa.Schema, traits: SessionTraits) -> str | None:
    sides = (node.left, node.right)
    literals = [side for side in sides if isinstance(side, tree.Literal)]
    columns = [side for side in sides if not isinstance(side, tree.Literal)]
    if len(literals) != 1:
        return f"only Skipstone can evaluate {node}"
    return _session_dependence(columns[0], schema, traits) or _zone_dependence(
        columns[0], literals[0].scalar.type, literals[0].zone, schema, traits
    )


@_session_dependence.register(tree.Between)
def _(node: tree.Between, schema: pa.Schema, traits: SessionTraits) -> str | None:
    low = _session_dependence(tree.Compare(">=", node.arg, node.low), schema, traits)
    return low or _session_dependence(tree.Compare("<=", node.arg, node.high), schema, traits)


@_session_dependence.register(tree.IsIn)
def _(node: tree.IsIn, schema: pa.Schema, traits: SessionTraits) -> str | None:
    if len(node.values) > _MOST_VALUES:
        return f"{plural(len(node.values), 'value')} are too many for a condition in SQL"
    return _session_dependence(node.arg, schema, traits) or _zone_dependence(
        node.arg, node.values.type, node.zone, schema, traits
    )


def _zone_dependence(
    arg: tree.Expr, literal: pa.DataType, own: str, schema: pa.Schema, traits: SessionTraits
) -> str | None:
    """Why a comparison of strings, dates or local times with instants depends on the session."""
    column = _type_of(arg, schema)
    if column is None:
        return None
    kinds = {_kind(literal), _kind(column)}
    if len(kinds) > 1 and "string" in kinds and not traits.ansi:
        return "the session casts strings by Hive's rules"
    times = kinds & {"string", "date", "local", "instant"}
    if own == traits.zone or len(times) < 2 or times == {"date", "local"}:
        return None
    return f"the predicate's time zone is {own}, the session's is {traits.zone}"


def _kind(type: pa.DataType) -> str:
    if is_text(type):
        return "string"
    if pa.types.is_timestamp(type):
        return "local" if type.tz is None else "instant"
    return "date" if pa.types.is_date(type) else "other"


def _type_of(arg: tree.Expr, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of a column; None for any other expression."""
    if not isinstance(arg, tree.Column):
        return None
    type: pa.Schema | pa.DataType = schema
    for name in arg.path:
        at = type.get_field_index(name) if isinstance(type, pa.Schema | pa.StructType) else -1
        if at < 0:
            return None
        type = storage_type(type.field(at).type)
    return type
