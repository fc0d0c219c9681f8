"""Three ways from a plan to a data frame, and which of them a plan is best served by.

*driver*: few bytes are read here and now, and handed over as a local relation, for which no job reads.
*slices*: Spark's tasks read page slices, as many bytes each. *reader*: Spark's own reader takes the kept
files and tests the rows itself; it decodes faster than Python can hand over, so it is for plans that keep
most. It sees whether a file has changed when the frame is made, the others when they read. It is never given
the files of a table, of which it knows neither names nor deletes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Final, Literal, get_args

import pyarrow as pa

from skipstone.core.domain.keys import is_text, storage_type
from skipstone.engine.spark_types import spark_schema
from skipstone.errors import NotExpressibleError, SchemaError, UsageError
from skipstone.lake.files import Files
from skipstone.predicate import tree
from skipstone.predicate.spark import to_spark_sql
from skipstone.report.trace import SparkUse
from skipstone.report.units import plural, size
from skipstone.scan.parts import TaskGroup, split, weights
from skipstone.scan.plan import ScanPlan
from skipstone.scan.projection import Projection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Route = Literal["auto", "driver", "slices", "reader"]

_DRIVER_BYTES: Final = 4 * 1024 * 1024
_DRIVER_FILES: Final = 256
# How many bytes Spark's reader goes through while page slices bring one to the JVM, about.
_READER_FASTER: Final = 3.0
_ASKED: Final = "asked for"


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """The way that is taken: with ``parts`` for slices, with ``condition`` (SQL) for Spark's reader."""

    use: SparkUse
    parts: tuple[TaskGroup, ...] = ()
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class SessionTraits:
    """Settings of a session that say what a condition means there."""

    zone: str = "UTC"
    ansi: bool = True
    """Whether texts are cast by the rules of Spark 4, and not by those of Hive."""
    escapes: bool = True
    """Whether a backslash in a text is an escape."""
    sensitive: bool = False
    """Whether names that differ in case are different names."""

    @classmethod
    def of(cls, session: SparkSession) -> SessionTraits:
        """Ask the session."""

        def holds(name: str, usual: str) -> bool:
            return (session.conf.get(name, usual) or usual).lower() == "true"

        return cls(
            zone=session.conf.get("spark.sql.session.timeZone") or "UTC",
            ansi=holds("spark.sql.ansi.enabled", "true"),
            escapes=not holds("spark.sql.parser.escapedStringLiterals", "false"),
            sensitive=holds("spark.sql.caseSensitive", "false"),
        )


def choose(plan: ScanPlan, asked: str, *, parallelism: int, manner: SessionTraits) -> RouteChoice:
    """The way for a plan, in a session of that many cores and that manner."""
    if asked not in get_args(Route):
        raise UsageError(f"route={asked!r}", hint=f"give one of {', '.join(get_args(Route))}")
    kept, whole = weights(plan)
    amount = int(kept.sum())
    obstacle = unreadable(plan, manner)
    if asked == "reader" and obstacle is not None:
        raise UsageError(f"Spark's own reader can't answer this: {obstacle}", hint='use route="slices"')
    if asked == "driver" or (asked == "auto" and _is_small(plan, amount)):
        why = _ASKED if asked == "driver" else _small_words(plan, amount)
        return RouteChoice(SparkUse("driver", why, 0, amount))
    if asked == "reader" or (asked == "auto" and obstacle is None and amount * _READER_FASTER >= whole):
        why = _ASKED if asked == "reader" else _most_words(amount, whole)
        return RouteChoice(SparkUse("reader", why, len(plan.tasks), amount), condition=_condition(plan))
    parts = tuple(split(plan, parallelism))
    return RouteChoice(
        SparkUse("slices", _slices_words(asked, amount, whole, obstacle), len(parts), amount), parts
    )


def _is_small(plan: ScanPlan, amount: int) -> bool:
    return amount <= _DRIVER_BYTES and len(plan.tasks) <= _DRIVER_FILES


def _small_words(plan: ScanPlan, amount: int) -> str:
    if not plan.tasks:
        return "nothing is left to read"
    return f"{size(amount)} of {plural(len(plan.tasks), 'file')} are read sooner than a job is started"


def _most_words(amount: int, whole: float) -> str:
    return f"{_percent(amount, whole)} of the kept files' bytes would be read anyway"


def _slices_words(asked: str, amount: int, whole: float, obstacle: str | None) -> str:
    if asked == "slices":
        return _ASKED
    if obstacle is not None and amount * _READER_FASTER >= whole:
        return f"Spark's own reader can't answer this: {obstacle}"
    return f"{_percent(amount, whole)} of the kept files' bytes are in pages that may match"


def _percent(amount: int, whole: float) -> str:
    return f"{100 * amount / whole:.0f} %" if whole else "none"


# -- Spark's own reader ------------------------------------------------------------------------


def is_table(files: Files) -> bool:
    """Whether the files are a table's: only these have names for their columns that are not in them."""
    return files.naming is not None


def unreadable(plan: ScanPlan, manner: SessionTraits) -> str | None:
    """Why Spark's own reader can't be given the plan; None if it can."""
    if is_table(plan.files):
        return "a table's columns go by field id, and its files may hold rows that are deleted"
    if not plan.files.store.local:
        return "the files are in an object store, for which Spark needs settings of its own"
    twice = [] if manner.sensitive else _alike(plan.schemas.read)
    if twice:
        return f"there is more than one column {twice[0]} to a session that doesn't tell case"
    if len({_partition_names(task.entry.key) for task in plan.tasks}) > 1:
        # It reads those of one kind, and leaves the others out without a word.
        return "its files lie in partitions of different columns"
    if plan.predicate is None:
        return None
    odd = _oddity(plan.predicate, plan.schemas.query, manner)
    if odd is not None:
        return odd
    try:
        condition = _condition(plan)
        _check_tested(plan)
    except (NotExpressibleError, SchemaError) as error:
        return str(error)
    if condition is not None and "\\" in condition and not manner.escapes:
        return "the session takes a backslash in a text for itself"
    return None


def _partition_names(key: str) -> tuple[str, ...]:
    return tuple(part.partition("=")[0] for part in key.split("/")[:-1] if "=" in part)


def _check_tested(plan: ScanPlan) -> None:
    """Refuse to have a column tested by Spark that it can't read."""
    if plan.filter is not None:
        tested = Projection.of(plan.schemas.read, plan.filter.columns)
        spark_schema(tested.schema, plan.schemas.query, None, plan.schemas.partition)


def _alike(schema: pa.Schema | pa.StructType) -> list[str]:
    """Names that occur more than once if case doesn't count, here or in a struct."""
    counted = Counter(field.name.lower() for field in schema)
    found = [name for name, count in counted.items() if count > 1]
    for field in schema:
        if isinstance(field.type, pa.StructType):
            found += _alike(field.type)
    return found


def _condition(plan: ScanPlan) -> str | None:
    return None if plan.predicate is None else to_spark_sql(plan.predicate, plan.schemas.query)


@singledispatch
def _oddity(node: tree.Expr, _schema: pa.Schema, _manner: SessionTraits) -> str | None:
    """What in a predicate may mean something else in a session with its own zone and settings."""
    return f"{node} is for Skipstone to evaluate"


@_oddity.register(tree.Constant)
def _(_node: tree.Constant, _schema: pa.Schema, _manner: SessionTraits) -> str | None:
    return None


@_oddity.register(tree.And)
@_oddity.register(tree.Or)
def _(node: tree.And | tree.Or, schema: pa.Schema, manner: SessionTraits) -> str | None:
    return next((odd for arg in node.args if (odd := _oddity(arg, schema, manner)) is not None), None)


@_oddity.register(tree.Not)
@_oddity.register(tree.Truth)
@_oddity.register(tree.IsNull)
@_oddity.register(tree.IsNan)
@_oddity.register(tree.Match)
@_oddity.register(tree.Like)
@_oddity.register(tree.BooleanValue)
def _(node: tree.Not, schema: pa.Schema, manner: SessionTraits) -> str | None:
    return _oddity(node.arg, schema, manner)


@_oddity.register(tree.Column)
def _(node: tree.Column, schema: pa.Schema, _manner: SessionTraits) -> str | None:
    return None if _type_of(node, schema) is not None else f"{node} is for Skipstone to evaluate"


@_oddity.register(tree.Compare)
def _(node: tree.Compare, schema: pa.Schema, manner: SessionTraits) -> str | None:
    sides = (node.left, node.right)
    literals = [side for side in sides if isinstance(side, tree.Literal)]
    columns = [side for side in sides if not isinstance(side, tree.Literal)]
    if len(literals) != 1:
        return f"{node} is for Skipstone to evaluate"
    return _oddity(columns[0], schema, manner) or _zoned(
        columns[0], literals[0].scalar.type, literals[0].zone, schema, manner
    )


@_oddity.register(tree.Between)
def _(node: tree.Between, schema: pa.Schema, manner: SessionTraits) -> str | None:
    low = _oddity(tree.Compare(">=", node.arg, node.low), schema, manner)
    return low or _oddity(tree.Compare("<=", node.arg, node.high), schema, manner)


@_oddity.register(tree.IsIn)
def _(node: tree.IsIn, schema: pa.Schema, manner: SessionTraits) -> str | None:
    return _oddity(node.arg, schema, manner) or _zoned(node.arg, node.values.type, node.zone, schema, manner)


def _zoned(
    arg: tree.Expr, literal: pa.DataType, own: str, schema: pa.Schema, manner: SessionTraits
) -> str | None:
    """Texts, days and local times that meet an instant are read in a zone."""
    found = _type_of(arg, schema)
    if found is None:
        return None
    kinds = {_kind(literal), _kind(found)}
    if len(kinds) > 1 and "text" in kinds and not manner.ansi:
        return "texts stand for values, which the session casts as Hive does"
    timely = kinds & {"text", "day", "local", "instant"}
    if own == manner.zone or len(timely) < 2 or timely == {"day", "local"}:
        return None
    return f"its times are of the zone {own}, the session's is {manner.zone}"


def _kind(type: pa.DataType) -> str:
    if is_text(type):
        return "text"
    if pa.types.is_timestamp(type):
        return "local" if type.tz is None else "instant"
    return "day" if pa.types.is_date(type) else "other"


def _type_of(arg: tree.Expr, schema: pa.Schema) -> pa.DataType | None:
    """The type of a plain column; None for anything else."""
    if not isinstance(arg, tree.Column):
        return None
    found: pa.Schema | pa.DataType = schema
    for name in arg.path:
        at = found.get_field_index(name) if isinstance(found, pa.Schema | pa.StructType) else -1
        if at < 0:
            return None
        found = storage_type(found.field(at).type)
    return found
