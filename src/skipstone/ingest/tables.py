"""What a caller gives to be ingested, as a data frame of Spark's in the very same types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.engine.session import require_pyspark, spark_session
from skipstone.errors import SchemaError, UsageError
from skipstone.ingest.lakes import check_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def frame_of(data: Any, session: SparkSession | None = None) -> DataFrame:
    """A data frame as it is; a table of pandas, Polars or Arrow becomes one."""
    if _is_of(data, "pyspark.sql."):
        if session is not None and data.sparkSession is not session:
            raise UsageError("the data frame is of another session", hint="leave session= out")
        found: DataFrame = data
        return found
    require_pyspark()
    from skipstone.engine.spark_types import arrow_schema, spark_schema, to_spark_table

    table = _micros(as_table(data))
    check_names(table.schema.names)
    if not table.num_columns:
        raise UsageError("the schema has no columns", hint="give a table that has some")
    schema = spark_schema(table.schema, table.schema, _intervals(table.schema))
    try:
        rows = to_spark_table(table, arrow_schema(schema))
    except pa.ArrowException as error:
        raise SchemaError(f"Spark can't hold the values: {error}", hint="cast them before") from error
    session = session or spark_session()
    return session.createDataFrame(rows, schema) if table.num_rows else session.createDataFrame([], schema)


def _is_of(data: Any, module: str) -> bool:
    return any(kind.__module__.startswith(module) for kind in type(data).__mro__)


def as_table(data: Any) -> pa.Table:
    """What Arrow makes of a caller's data, with the index of a pandas frame."""
    try:
        if _is_of(data, "pandas."):
            # As to_parquet does: an index is columns, unless it only numbers the rows. If that has a name, it
            # is a column too: to_parquet keeps it in pandas' own metadata, which a lake's files don't have.
            names = [name for name in data.index.names if name is not None]
            return pa.Table.from_pandas(data, preserve_index=True if names else None)
        return pa.table(data)
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        hint = "give a Spark data frame, or something that Arrow can read"
        raise UsageError(f"can't ingest a {type(data).__name__}: {error}", hint=hint) from error


def _micros(table: pa.Table) -> pa.Table:
    """The table with nanoseconds as Spark's microseconds, if nothing is lost by it."""
    for at, field in enumerate(table.schema):
        type = field.type
        if pa.types.is_timestamp(type) and type.unit == "ns":
            target = pa.timestamp("us", type.tz)
        elif pa.types.is_duration(type):
            target = pa.duration("us")
        else:
            continue
        try:
            column = table.column(at).cast(target)
        except pa.ArrowException as error:
            hint = "round it to microseconds before"
            problem = f"Spark has no nanoseconds: {error}"
            raise SchemaError(problem, column=field.name, hint=hint) from error
        table = table.set_column(at, field.with_type(target), column)
    return table


def _intervals(schema: pa.Schema) -> StructType:
    from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

    names = [field.name for field in schema if pa.types.is_duration(field.type)]
    return StructType([StructField(name, DayTimeIntervalType()) for name in names])
