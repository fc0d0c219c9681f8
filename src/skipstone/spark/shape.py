"""Columns of a data frame cut down to those, and to the fields of structs, that are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions
from pyspark.sql import types as st

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def shaped(frame: DataFrame, has: st.StructType, wanted: st.StructType) -> DataFrame:
    """A frame that ``has`` these columns, with the ``wanted`` ones, in their order."""
    if has == wanted:
        return frame
    columns = []
    for field in wanted.fields:
        column = frame[quoted((field.name,))]
        columns.append(_cut(column, has[field.name].dataType, field.dataType).alias(field.name))
    return frame.select(*columns)


def _cut(column: Any, has: st.DataType, wanted: st.DataType) -> Any:
    if has == wanted or not isinstance(has, st.StructType) or not isinstance(wanted, st.StructType):
        return column
    parts = [
        _cut(column.getField(field.name), has[field.name].dataType, field.dataType).alias(field.name)
        for field in wanted.fields
    ]
    return functions.when(column.isNotNull(), functions.struct(*parts))


def quoted(path: Sequence[str]) -> str:
    """A path as Spark's parser takes it."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)
