"""Every way that rows take into Spark, beside what Spark's own reader says of the same files."""

from __future__ import annotations

import functools
import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st

import skipstone as sk
from skipstone.errors import UsageError

PUSHING = "spark.sql.python.filterPushdown.enabled"
ZONE = "spark.sql.session.timeZone"
ROUTES = ("driver", "slices", "reader", "auto")
# What "auto" chooses among.
FORCED = ROUTES[:3]
SOURCES = ("pushed", "unpushed", "option")
CANT = "Spark's own reader can't run this scan"
_NUMBER = "?number"
_AT_ONCE = 40


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Settings of the session for a while; dots are written as two underscores."""
    names = {name.replace("__", "."): value for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def zone(spark: SparkSession, name: str) -> Any:
    """The session in another time zone."""
    return conf(spark, spark__sql__session__timeZone=name)


# -- rows --------------------------------------------------------------------------------------


def canon(value: Any) -> Any:
    """A value that is equal to itself, and to no other: NaN is one value, the zeros are two."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return tuple((name, canon(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(canon, value))
    return value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table, each in its canonical form."""
    columns = [list(map(canon, _plain(column).to_pylist())) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Times as numbers: Python has no year 10000, and a zone is a matter of the session.
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column


def types_of(schema: st.StructType) -> Any:
    """A schema as data, without the remarks that Spark leaves in it."""

    def bare(node: Any) -> Any:
        if isinstance(node, dict):
            return {name: bare(part) for name, part in node.items() if name != "metadata"}
        return [bare(part) for part in node] if isinstance(node, list) else node

    return bare(schema.jsonValue())


# -- the oracle --------------------------------------------------------------------------------


class Oracle:
    """All rows that Spark's reader gives, and for which of them each condition holds.

    Conditions are columns here, not filters: nothing is pruned, so no row with NaN is lost.
    """

    def __init__(self, frame: DataFrame, texts: Sequence[str]) -> None:
        self.names = frame.columns
        self.schema = frame.schema
        self.texts = list(texts)
        self._masks: dict[str, list[Any]] = {}
        tables = []
        for start in range(0, max(len(texts), 1), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            extra = [F.expr(f"({text})").alias(f"?{n}") for n, text in enumerate(some)]
            quoted = [F.col(quote(name)) for name in self.names]
            table = frame.select(*(quoted if not start else []), *extra).toArrow()
            tables.append(table)
            for n, text in enumerate(some):
                self._masks[text] = table.column(f"?{n}").to_pylist()
        self.table = tables[0].select(range(len(self.names)))

    @functools.cached_property
    def _rows(self) -> list[tuple[Any, ...]]:
        return rows_of(self.table)

    def rows(self, text: str | None, columns: Sequence[str] | None = None) -> Counter[tuple[Any, ...]]:
        """The matching rows, as often as they occur."""
        at = range(len(self.names)) if columns is None else [self.names.index(name) for name in columns]
        mask = self._masks[text] if text is not None else [True] * len(self._rows)
        return Counter(
            tuple(row[n] for n in at) for row, holds in zip(self._rows, mask, strict=True) if holds
        )

    def types(self, columns: Sequence[str] | None = None) -> Any:
        """The schema of these columns."""
        names = self.names if columns is None else columns
        return types_of(st.StructType([self.schema[name] for name in names]))


def quote(name: str) -> str:
    """A name as Spark's parser takes it."""
    return "`" + name.replace("`", "``") + "`"


# -- ways --------------------------------------------------------------------------------------


@dataclass
class World:
    """A lake, what Spark says of it, and how often each way was taken."""

    spark: SparkSession
    path: str
    oracle: Oracle
    zone: str = "UTC"
    lake: sk.Lake = field(init=False)
    taken: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.lake = sk.open(self.path)

    def scan(self, text: str | None, columns: Sequence[str] | None = None, **more: Any) -> sk.Scan:
        """The question in Skipstone's words."""
        where = None if text is None else sk.parse(text, tz=self.zone)
        return self.lake.scan(where, columns=columns, **more)

    def load(self, **options: str) -> DataFrame:
        """The lake as a data source."""
        return self.spark.read.format("skipstone").options(**options).load(self.path)

    def frame(self, way: str, text: str | None, columns: Sequence[str] | None) -> DataFrame | None:
        """The answer by one way; None if Spark's own reader can't give it."""
        if way in ROUTES:
            try:
                return self.scan(text, columns).to_spark(self.spark, route=way)
            except UsageError as error:
                if way == "reader" and CANT in str(error):
                    return None
                raise
        if way == "option":
            named = {} if columns is None else {"columns": ",".join(map(quote, columns))}
            asked = {} if text is None else {"where": text, "tz": self.zone}
            return self.load(**asked, **named)
        # Anew for each condition: Spark keeps the filters of a frame that was loaded once.
        frame = self.load(**({"pushdown": "true"} if way == "pushed" else {}))
        frame = frame if text is None else frame.where(text)
        return frame if columns is None else frame.select(*map(quote, columns))

    def check(
        self, texts: Iterable[str | None], ways: Sequence[str], columns: Sequence[str] | None = None
    ) -> None:
        """Each way gives the oracle's rows and schema for each condition; one job for each way."""
        asked = list(texts)
        for way in ways:
            pushing = {PUSHING.replace(".", "__"): str(way != "unpushed").lower()}
            with conf(self.spark, **pushing):
                self._check_way(way, asked, columns)

    def _check_way(self, way: str, texts: Sequence[str | None], columns: Sequence[str] | None) -> None:
        frames: list[tuple[str | None, DataFrame]] = []
        for text in texts:
            try:
                frame = self.frame(way, text, columns)
            except Exception as error:
                raise AssertionError(f"{way}: {text}: {columns}") from error
            if frame is None:
                continue
            assert types_of(frame.schema) == self.oracle.types(columns), (way, text)
            frames.append((text, frame))
        self.taken[way] += len(frames)
        for start in range(0, len(frames), 12):
            self._compare(way, frames[start : start + 12], columns)

    def _compare(
        self, way: str, frames: Sequence[tuple[str | None, DataFrame]], columns: Sequence[str] | None
    ) -> None:
        numbered = [frame.select(F.lit(n).alias(_NUMBER), "*") for n, (_, frame) in enumerate(frames)]
        try:
            found = functools.reduce(DataFrame.unionAll, numbered).toArrow()
        except PySparkException as error:
            raise AssertionError(f"{way}: {[text for text, _ in frames]}: {columns}") from error
        rows: dict[int, list[Any]] = {n: [] for n in range(len(frames))}
        for number, *row in rows_of(found):
            rows[number].append(tuple(row))
        for n, (text, _) in enumerate(frames):
            wanted, got = self.oracle.rows(text, columns), Counter(rows[n])
            if wanted != got:
                lost, extra = list((wanted - got).items())[:2], list((got - wanted).items())[:2]
                raise AssertionError(
                    f"{way} of {self.path} where {text}: {sum(got.values())} rows instead of "
                    f"{sum(wanted.values())}\n columns {columns or self.oracle.names}"
                    f"\n lost  {lost}\n extra {extra}"
                )


def native(spark: SparkSession, path: str | Path, schema: str | None = None, **options: str) -> DataFrame:
    """The lake as Spark's own reader has it; the name of its directory is no glob."""
    reader = spark.read.options(**{"__globPaths__": "false", **options})
    reader = reader if schema is None else reader.schema(schema)
    return reader.parquet(f"file://{path}")


def world(
    spark: SparkSession, path: str | Path, texts: Sequence[str], *, zone: str = "UTC", **options: str
) -> World:
    """A lake and its oracle, which answers these conditions."""
    return World(spark, str(path), Oracle(native(spark, path, **options), texts), zone)
