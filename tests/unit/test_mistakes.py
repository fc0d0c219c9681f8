"""Mistakes that people make, and what Skipstone answers: one row per mistake.

Each row is what the user wrote, the error, its message and its hint. ``docs/troubleshooting.md`` lists the
same messages.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import skipstone as sk
from skipstone.cli.main import app
from skipstone.engine.session import memory_hint
from skipstone.lake.append import Append, JournalSource
from skipstone.lake.journal import claim
from skipstone.store.store import open_root
from tests.iceberg._maker import Maker

ROWS = 100
EVENTS = pa.table(
    {
        "user_id": range(ROWS),
        "day": [dt.date(2026, 1, 1)] * ROWS,
        "ts": pa.array([0] * ROWS, pa.timestamp("us", "UTC")),
        "kind": ["click", "view"] * (ROWS // 2),
        "amount": [1.5] * ROWS,
        "geo": [{"city": "Bern", "lat": 46.9}] * ROWS,
        "first name": ["Ada"] * ROWS,
        "paid": [True] * ROWS,
        "items": [[{"p": 1}]] * ROWS,
    }
)


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current directory: lakes, folders that are none, and a table whose column was renamed."""
    root, before = tmp_path_factory.mktemp("mistakes"), Path.cwd()
    os.chdir(root)
    for lake in ("events", "notes", "mixed", "old"):
        Path(lake).mkdir()
        pq.write_table(EVENTS, f"{lake}/00.parquet")
    Path("notes/README.md").write_text("What these files are.")
    Path("mixed/more.csv").write_text("user_id,kind\n1,click\n")
    Path("people.csv").write_text("user_id,name\n1,Ada\n2,Bob\n")
    Path("many/kind=a").mkdir(parents=True)
    pq.write_table(EVENTS, "many/kind=a/00.parquet")
    for folder in ("empty", "hidden"):
        Path(folder).mkdir()
    Path("hidden/_SUCCESS").write_text("done")
    Path("begun/_skipstone/staged/1").mkdir(parents=True)
    Path("begun/_skipstone/staged/1/00.parquet.staged").write_text("some rows")
    yield root
    os.chdir(before)


def said(act: Callable[[], object], root: Path) -> tuple[type[Exception], str, str | None]:
    """The type of the error that ``act`` raises, its message with the place, and its hint."""
    with pytest.raises(sk.SkipstoneError) as caught:
        act()
    error = caught.value
    text = f"{error.place}: {error.message}" if error.place else error.message
    short = [None if part is None else part.replace(f"{root}/", "") for part in (text, error.hint)]
    return type(error), short[0] or "", short[1]


# -- conditions ----------------------------------------------------------------------------------

DATES = "put dates in quotes, as in '2026-01-31'; without quotes, 2026-01-31 is a subtraction"
TIMES = "put dates in quotes, as in '2026-01-31 12:00:00'; without quotes, 2026-01-31 is a subtraction"
COLUMNS = "the schema has user_id, day, ts, kind, amount, geo, first name, paid, items"
UNKNOWN = "unknown column"

CONDITIONS: list[tuple[str, type[Exception], str, str]] = [
    # Dates and quotes.
    (
        "day = 2026-01-01",
        sk.TypeMismatchError,
        "column day: 2024 (int64) can't be compared with a column of type date",
        DATES,
    ),
    (
        "ts > 2026-01-01",
        sk.TypeMismatchError,
        "column ts: 2024 (int64) can't be compared with a column of type timestamp[us, UTC]",
        TIMES,
    ),
    (
        "ts > 2026-01-01 10:00",
        sk.ParseError,
        "unexpected '10' at line 1, column 17",
        "quote a time: '2026-01-01 10:00:00'",
    ),
    (
        "day = '2026-13-01'",
        sk.TypeMismatchError,
        "column day: '2026-13-01' (string) can't be compared with a column of type date",
        "write an existing date, as in '2026-01-31'",
    ),
    (
        "ts > 'yesterday'",
        sk.TypeMismatchError,
        "column ts: 'yesterday' (string) can't be compared with a column of type timestamp[us, UTC]",
        "write an existing date, as in '2026-01-31 12:00:00'",
    ),
    (
        "ts > date '2026-02-30'",
        sk.ParseError,
        "'2026-02-30' is not a date",
        "write an existing date, as in '2026-01-31'",
    ),
    (
        "kind = click",
        sk.UnknownColumnError,
        "column click: unknown column",
        f"write a string in quotes: 'click'; for a column: {COLUMNS}",
    ),
    ("kind = 'click", sk.ParseError, "SQL can't be read: \"kind = 'click\"", "close the quote"),
    # Types.
    (
        "user_id = 'abc'",
        sk.TypeMismatchError,
        "column user_id: 'abc' (string) can't be compared with a column of type int64",
        "compare the column with a number, or cast the column to a string",
    ),
    (
        "kind = 5",
        sk.PredicateError,
        "cast(kind as int64) failed: 'click' doesn't fit int64",
        "put the other value in quotes to compare text, or use try_cast to get NULL",
    ),
    (
        "paid = 'maybe'",
        sk.TypeMismatchError,
        "column paid: 'maybe' (string) can't be compared with a column of type bool",
        "use TRUE or FALSE",
    ),
    (
        "user_id",
        sk.TypeMismatchError,
        "column user_id: user_id is not a condition",
        "compare the column with a value; in a shell, quote the whole condition",
    ),
    (
        "amount / 0 > 1",
        sk.PredicateError,
        "(amount / 0) failed: division by zero",
        "exclude zeros with AND, or divide by nullif(divisor, 0)",
    ),
    # Syntax of other languages, and more than a condition.
    (
        "user_id = 1 && paid",
        sk.ParseError,
        "unexpected '&&' at line 1, column 13",
        "use AND instead of &&",
    ),
    (
        "where user_id = 1",
        sk.ParseError,
        "unexpected 'where' at line 1, column 1",
        "leave out WHERE: write only the condition",
    ),
    (
        "select * from events where user_id = 1",
        sk.ParseError,
        "unexpected 'select' at line 1, column 1",
        "write only the condition, the part after WHERE; choose columns with columns= or --columns",
    ),
    (
        "user_id = 1 order by ts",
        sk.ParseError,
        "unexpected 'order by' at line 1, column 13",
        "leave out ORDER BY: use order_by= or --order-by",
    ),
    (
        "user_id = 1 limit 10",
        sk.ParseError,
        "unexpected 'limit' at line 1, column 13",
        "leave out LIMIT: use limit= or --limit",
    ),
    (
        "user_id in 5",
        sk.ParseError,
        "IN without parentheses is not allowed in a condition on rows at line 1, column 12",
        "list the values in parentheses: id IN (1, 2)",
    ),
    (
        "user_id = 1 and",
        sk.ParseError,
        "operand is missing at line 1, column 13, near 'and'",
        "write a value or a column",
    ),
    ("(user_id = 1", sk.ParseError, ") is missing at line 1, column 12, near '1'", "close the parenthesis"),
    (
        "cast(kind as nonsense) = 1",
        sk.ParseError,
        "unknown type 'nonsense' at line 1, column 14",
        "use a type such as BIGINT, DOUBLE, STRING, DATE or TIMESTAMP",
    ),
    (
        "ts > '2026-01-01' + interval 1 day",
        sk.NotExpressibleError,
        "('2026-01-01' + INTERVAL '1' DAY) can't be evaluated: string + interval is not supported",
        "make the string a date: date '2026-01-01'",
    ),
    (
        "datediff(day, ts, now()) > 7",
        sk.ParseError,
        "datediff with a unit is not allowed in a condition on rows at line 1, column 1",
        "write datediff(end, start) for the days between two dates",
    ),
    (
        "dateadd('day', 7, ts) > now()",
        sk.ParseError,
        "unit must be a name without quotes, got 'day'",
        "write timestampadd(DAY, 7, ts)",
    ),
    # Names.
    (
        "first name = 'Ada'",
        sk.ParseError,
        "unexpected 'name' at line 1, column 7",
        "quote a name that contains a space: `first name`",
    ),
    ("usr_id = 1", sk.UnknownColumnError, f"column usr_id: {UNKNOWN}", "did you mean user_id?"),
    ("use = 1", sk.UnknownColumnError, f"column use: {UNKNOWN}", "did you mean user_id?"),
    (
        "ts > 1767225600000",
        sk.TypeMismatchError,
        "column ts: 1767225600000 (int64) can't be compared with a column of type timestamp[us, UTC]",
        "for a time since 1970 write timestamp_millis(1767225600000)",
    ),
    ("USER_ID = 1", sk.UnknownColumnError, f"column USER_ID: {UNKNOWN}", "did you mean user_id?"),
    ("geo.cty = 'Bern'", sk.UnknownColumnError, f"column geo.cty: {UNKNOWN}", "did you mean geo.city?"),
    ("city = 'Bern'", sk.UnknownColumnError, f"column city: {UNKNOWN}", "did you mean geo.city?"),
    (
        "items.p = 1",
        sk.UnknownColumnError,
        f"column items.p: {UNKNOWN}",
        "items is a list: use get(items, 0).p for its first element",
    ),
    (
        "user_id.x = 1",
        sk.UnknownColumnError,
        f"column user_id.x: {UNKNOWN}",
        "user_id is of type int64, which has no fields",
    ),
    (
        "lowr(kind) = 'click'",
        sk.NotExpressibleError,
        "lowr(kind) can't be evaluated: unknown function 'lowr'",
        "did you mean lower?",
    ),
    (
        "soundex(kind) = 'c'",
        sk.NotExpressibleError,
        "soundex(kind) can't be evaluated: unknown function 'soundex'",
        "use skipstone.udf in a condition, or compute the value from the result",
    ),
]


@pytest.mark.parametrize(("where", "kind", "message", "hint"), CONDITIONS, ids=[row[0] for row in CONDITIONS])
def test_conditions(where: str, kind: type[Exception], message: str, hint: str, here: Path) -> None:
    assert said(lambda: sk.open("events").scan(where).count(), here) == (kind, message, hint)


def test_hints_change_no_answer() -> None:
    """What looks like one of the mistakes is still a condition where it is one."""
    lake = sk.open("events")
    assert lake.scan("user_id < 2026-01-01").count() == ROWS
    assert lake.scan("user_id = 1 and kind <> 'order by limit && where'").count() == 1
    assert lake.scan("kind = kind").count() == ROWS
    assert lake.scan("`first name` = 'Ada' and geo.city = 'Bern'").count() == ROWS
    assert lake.scan("amount / nullif(user_id, 0) > 1").count() == 1


# -- calls ---------------------------------------------------------------------------------------

LEAVE_OUT = "to leave it out of a lake, open a glob such as 'lake/**/*.parquet', or begin its name with _"

CALLS: dict[str, tuple[Callable[[], object], type[Exception], str, str]] = {
    "sk.open(None)": (
        lambda: sk.open(None),  # type: ignore[call-overload]
        sk.UsageError,
        "path must be a string or a path, not None",
        "pass a path or URI of a directory, a file or a glob",
    ),
    "sk.open('evnts')": (
        lambda: sk.open("evnts"),
        sk.MissingFileError,
        "evnts: no such file or directory",
        "did you mean events?",
    ),
    "sk.open('empty')": (
        lambda: sk.open("empty"),
        sk.ReadError,
        "empty: directory contains no files",
        "check the path, or write files with skipstone ingest",
    ),
    "sk.open('hidden')": (
        lambda: sk.open("hidden"),
        sk.ReadError,
        "hidden: directory contains no files to read: _SUCCESS is ignored",
        "rename files that begin with . or _, and write empty ones again",
    ),
    "sk.open('begun')": (
        lambda: sk.open("begun"),
        sk.ReadError,
        "begun: directory contains no files to read: an ingest has not finished",
        "wait until the ingest has finished, or run it again if it was stopped",
    ),
    "sk.open('people.csv').scan().count()": (
        lambda: sk.open("people.csv").scan().count(),
        sk.NotParquetError,
        "people.csv: file is not Parquet: the last bytes are b'Bob\\n' instead of b'PAR1'",
        f"write the rows to a lake with skipstone ingest; {LEAVE_OUT}",
    ),
    "sk.open('notes').scan().count()": (
        lambda: sk.open("notes").scan().count(),
        sk.NotParquetError,
        "notes/README.md: file is not Parquet: the last bytes are b'are.' instead of b'PAR1'",
        f"check that it is a complete Parquet file; {LEAVE_OUT}",
    ),
    "sk.open('mixed').scan().count()": (
        lambda: sk.open("mixed").scan().count(),
        sk.NotParquetError,
        "mixed/more.csv: file is not Parquet: the last bytes are b'ick\\n' instead of b'PAR1'",
        f"write the rows to a lake with skipstone ingest; {LEAVE_OUT}",
    ),
    "sk.open('many/*.parquet')": (
        lambda: sk.open("many/*.parquet"),
        sk.ReadError,
        "many: no file matches *.parquet",
        "for files in subdirectories use ** in the pattern: **/*.parquet",
    ),
    "lake.scan(order_by='amount down')": (
        lambda: sk.open("events").scan(order_by="amount down").to_arrow(),
        sk.UnknownColumnError,
        "column amount down: unknown column",
        "use asc or desc after the name of a column: amount desc",
    ),
    "lake.scan(columns=['amont'])": (
        lambda: sk.open("events").scan(columns=["amont"]).to_arrow(),
        sk.UnknownColumnError,
        "column amont: unknown column",
        "did you mean amount?",
    ),
    "lake.scan(columns='amount, ts')": (
        lambda: sk.open("events").scan(columns="amount, ts").to_arrow(),
        sk.UnknownColumnError,
        "column amount, ts: unknown column",
        'pass a list: ["amount", "ts"]',
    ),
    "lake.scan(order_by='ts desc, amount')": (
        lambda: sk.open("events").scan(order_by="ts desc, amount").to_arrow(),
        sk.UnknownColumnError,
        "column ts desc, amount: unknown column",
        'pass a list: ["ts desc", "amount"]',
    ),
    "lake.scan(columns=[sk.col('ts')])": (
        lambda: sk.open("events").scan(columns=[sk.col("ts")]).to_arrow(),  # type: ignore[list-item]
        sk.UsageError,
        'columns must be a list of column names, got [Expr("ts")]',
        'write names and expressions as strings: ["ts"]',
    ),
    "lake.scan(columns=['soundex(kind)'])": (
        lambda: sk.open("events").scan(columns=["soundex(kind)"]).to_arrow(),
        sk.NotExpressibleError,
        "soundex(kind) can't be evaluated: unknown function 'soundex'",
        "use skipstone.udf in a condition, or compute the value from the result",
    ),
    "sk.parse(where, dialect='sparc')": (
        lambda: sk.parse("user_id = 1", dialect="sparc"),  # type: ignore[arg-type]
        sk.PredicateError,
        "unknown SQL dialect 'sparc'",
        "did you mean spark?",
    ),
    "sk.parse(where, dialect='postgres')": (
        lambda: sk.parse("user_id = 1", dialect="postgres"),  # type: ignore[arg-type]
        sk.PredicateError,
        "unknown SQL dialect 'postgres'",
        "use one of spark, hive, trino, presto, duckdb",
    ),
    "sk.parse(where, tz='Europe/Zurch')": (
        lambda: sk.parse("user_id = 1", tz="Europe/Zurch"),
        sk.PredicateError,
        "unknown time zone 'Europe/Zurch'",
        "did you mean Europe/Zurich?",
    ),
    "col.isin([1, 'a'])": (
        lambda: sk.col("user_id").isin([1, "a"]),
        sk.TypeMismatchError,
        "IN list mixes int, str",
        "use values of one type",
    ),
    "plan.why('01.parquet')": (
        lambda: sk.open("events").scan("user_id = 1").plan().why("01.parquet"),
        sk.UsageError,
        "events: lake has no file '01.parquet'",
        "did you mean 00.parquet?",
    ),
    "sk.open('s3:/bucket/events')": (
        lambda: sk.open("s3:/bucket/events"),
        sk.ReadError,
        "s3:/bucket/events: URI has one slash after its scheme",
        "use s3://bucket/events",
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str, here: Path) -> None:
    act, kind, message, hint = CALLS[call]
    assert said(act, here) == (kind, message, hint)


# -- commands ------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[int, str]] = {
    # Without quotes the shell splits the condition, and takes > and < for itself.
    "count events --where user_id = 42": (2, 'put the condition in quotes: "user_id = 42"'),
    "count events user_id = 42 --format json": (2, 'put the condition in quotes: "user_id = 42"'),
    "count events --where user_id": (
        3,
        "is not a condition; hint: compare the column with a value; in a shell",
    ),
    "cuont events": (2, "unknown command 'cuont'; did you mean count?"),
    "count events --were x": (2, "unknown option --were; did you mean --where?"),
    "query events --limit ten": (2, "Invalid value for '--limit': must be an integer"),
    "query events --format xlsx": (2, "'xlsx' is not one of 'table', 'csv'"),
    "compact db.events": (2, "use --catalog to name the catalog of the table"),
    "compact db.e --catalog w --strategy srt": (2, "'srt' is not one of 'binpack', 'sort', 'zorder'"),
    "compact db.e --catalog w --target-file-size-bytes big": (2, "invalid size 'big'; use one such as 128MB"),
    "compact db.e --catalog w --min-input-file 2": (2, "did you mean --min-input-files?"),
    "compact db.e --catalog w --files": (2, "Invalid value for --files: needs --dry-run"),
    "compact db.e --catalog w --plan p.json --rewrite-all": (2, "conflicts with --plan, which has its own"),
    "maintain db.e --catalog w --only compact": (2, "Invalid value for --only: needs --apply"),
    "count evnts": (4, "error: evnts: no such file or directory; hint: did you mean events?"),
    "query events --order-by 'amount down'": (
        3,
        "hint: use asc or desc after the name of a column: amount desc",
    ),
    "count db.events": (4, "hint: pass --catalog to open a table of that name"),
    "agg events 'count(distinct)'": (3, "error: count() got DISTINCT without a column; hint: write count("),
    "count 'user_id = 42'": (4, "hint: pass the path of the lake before the condition"),
    "query events -o reports/rows.csv": (1, "No such file or directory; hint: create its directory first"),
    "tables --catalog-property type=rest": (
        5,
        "the default catalog has no uri; hint: add the property uri",
    ),
    f"count {'x' * 300}": (4, "File name too long"),
    f"inspect {'x' * 300}": (4, "File name too long"),
    f"prune {'x' * 300} --where a=1": (4, "File name too long"),
    "agg events 'sum(amount), sum(amount)'": (
        5,
        "hint: name one of them with AS or alias(): sum(amount) AS other",
    ),
    "agg events 'summ(amount)'": (3, "error: unknown function 'summ'; hint: did you mean sum?"),
}


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(line: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    done = CliRunner().invoke(app, shlex.split(line))
    assert COMMANDS[line][1] in done.stderr.replace(f"{here}/", "")
    assert done.exit_code == COMMANDS[line][0]


# -- tables, stores and engines ------------------------------------------------------------------

RENAMED = "use event_kind: the column has another name in this schema"
DROPPED = "open another snapshot with snapshot= or --snapshot: this schema lacks the column"
CHANGED = "file has changed since it was listed or its metadata was read"
GONE = "file no longer exists"
CLAIMED = "another run is ingesting this file"
NOT_WRITABLE = "write the index to a directory that you can write, with index_root= or --index-root"
REGION = "set AWS_REGION, or region in storage_options, to the bucket's region"
JAVA = 'install Java 17 or newer, such as the package openjdk-17-jre-headless, or use engine="local"'
MEMORY = 'start Spark with more memory: conf={"spark.driver.memory": "4g"}, or spark.executor.memory'


@pytest.fixture(scope="module")
def catalog(here: Path) -> sk.Catalog:
    """A catalog with the table db.events, whose columns kind and geo.city were renamed."""
    catalog = sk.catalog("./warehouse")
    catalog.create_table("db.events", EVENTS.drop_columns("first name").schema)
    table = catalog.open("db.events").table
    table.append(EVENTS.drop_columns("first name"))
    with table.update_schema() as update:
        update.rename_column("kind", "event_kind")
        update.rename_column(("geo", "city"), "town")
        update.delete_column("paid")
    return catalog


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ("kind = 'click'", RENAMED),
        ("geo.city = 'Bern'", "use geo.town: the column has another name in this schema"),
        ("paid", DROPPED),
    ],
)
def test_columns_of_other_schemas(where: str, hint: str, catalog: sk.Catalog, here: Path) -> None:
    kind, message, shown = said(lambda: catalog.open("db.events").scan(where).count(), here)
    assert (kind, message, shown) == (
        sk.UnknownColumnError,
        f"column {where.split(maxsplit=1)[0]}: unknown column",
        hint,
    )


def test_an_aggregate_of_a_renamed_column(catalog: sk.Catalog, here: Path) -> None:
    scan = catalog.open("db.events").scan()
    hint = said(lambda: scan.aggregate(sk.count(), group_by=["kind"]).to_arrow(), here)[2]
    assert hint == RENAMED


def test_catalogs_and_tables(catalog: sk.Catalog, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "sqlite:///prod.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__URI", "sqlite:///test.db")
    path = "for an embedded catalog pass its directory: ./lakehouse, or lakehouse/ for a new one"
    assert said(lambda: sk.catalog("prodd"), here) == (
        sk.UsageError, "unknown catalog 'prodd'", "did you mean prod?",
    )  # fmt: skip
    assert said(lambda: sk.catalog("lakehouse"), here) == (
        sk.UsageError, "unknown catalog 'lakehouse'", f"configured catalogs: prod, test; {path}",
    )  # fmt: skip
    assert said(lambda: catalog.open("db.event"), here) == (
        sk.ReadError, "db.event: catalog skipstone has no such table", "did you mean db.events?",
    )  # fmt: skip


def test_a_snapshot_that_was_dropped(catalog: sk.Catalog, here: Path) -> None:
    kind, message, hint = said(lambda: catalog.open("db.events").at(12345), here)
    assert (kind, message) == (sk.UsageError, "db.events: unknown snapshot 12345")
    assert hint is not None
    assert "branches and tags are main; the last snapshots are " in hint
    assert hint.endswith("snapshots that have expired can't be read")


COMPACTIONS: dict[str, tuple[Callable[[sk.Table], object], type[Exception], str, str | None]] = {
    "table.plan_compaction(strategy='srt')": (
        lambda table: table.plan_compaction(strategy="srt"),  # type: ignore[arg-type]
        sk.UsageError,
        "unknown strategy 'srt'",
        "did you mean sort?",
    ),
    "table.plan_compaction(strategy='sort')": (
        lambda table: table.plan_compaction(strategy="sort"),
        sk.UsageError,
        "db.events: table has no sort order",
        "name columns in sort_by, or define a sort order for the table",
    ),
    "table.plan_compaction(sort_by='user_id')": (
        lambda table: table.plan_compaction(sort_by="user_id"),
        sk.UsageError,
        "sort_by= does not apply to binpack",
        'use strategy="sort"',
    ),
    "table.plan_compaction(strategy='sort', sort_by='usr_id')": (
        lambda table: table.plan_compaction(strategy="sort", sort_by="usr_id"),
        sk.UnknownColumnError,
        "column usr_id: unknown column",
        "did you mean user_id?",
    ),
    "table.plan_compaction(strategy='zorder')": (
        lambda table: table.plan_compaction(strategy="zorder"),
        sk.UsageError,
        "zorder does not support 0 columns",
        "name one to 8 columns in sort_by",
    ),
    "table.plan_compaction('usr_id = 1')": (
        lambda table: table.plan_compaction("usr_id = 1"),
        sk.UnknownColumnError,
        "column usr_id: unknown column",
        "did you mean user_id?",
    ),
    "table.plan_compaction(target_spec_id=9)": (
        lambda table: table.plan_compaction(target_spec_id=9),
        sk.UsageError,
        "db.events: table has no partition spec 9",
        "use one of 0",
    ),
    "table.plan_compaction(target_file_size_bytes=64)": (
        lambda table: table.plan_compaction(target_file_size_bytes=64),
        sk.UsageError,
        "target_file_size_bytes is 64 bytes, which is less than 1 MiB",
        'write a unit, as in "64MB"; force=True or --force accepts tiny files',
    ),
    "table.plan_compaction(target_file_size_bytes='64 M B')": (
        lambda table: table.plan_compaction(target_file_size_bytes="64 M B"),
        sk.UsageError,
        "target_file_size_bytes must be a number of bytes or text with a unit, got '64 M B'",
        'pass bytes, or text such as "64MB" or "1GiB"',
    ),
    "table.plan_compaction(min_file_size_bytes=2**40)": (
        lambda table: table.plan_compaction(min_file_size_bytes=2**40),
        sk.UsageError,
        "min_file_size_bytes must be less than the target 536870912, got 1099511627776",
        "omit min_file_size_bytes for 75 % of the target",
    ),
    "table.plan_compaction(delete_ratio_threshold=30)": (
        lambda table: table.plan_compaction(delete_ratio_threshold=30),
        sk.UsageError,
        "delete_ratio_threshold must be above 0 and at most 1, got 30",
        "use a fraction such as 0.3",
    ),
    "table.plan_compaction(options={'min-input-file': '2'})": (
        lambda table: table.plan_compaction(options={"min-input-file": "2"}),
        sk.UsageError,
        "unknown option 'min-input-file'",
        "did you mean min-input-files?",
    ),
    "table.plan_compaction(options={'rewrite-all': 'yes'})": (
        lambda table: table.plan_compaction(options={"rewrite-all": "yes"}),
        sk.UsageError,
        "rewrite-all must be of type bool, got 'yes'",
        "write true or false",
    ),
    "table.compact('ts > 1')": (
        lambda table: table.compact("ts > 1"),  # type: ignore[arg-type]
        sk.UsageError,
        "can't run a str",
        "pass the result of table.plan_compaction()",
    ),
    "sk.CompactionPlan.from_json('{}')": (
        lambda _: sk.CompactionPlan.from_json("{}"),
        sk.CorruptFileError,
        "compaction plan is damaged: it has no 'layout'",
        "make a new plan",
    ),
    "table.maintain(only='compcat')": (
        lambda table: table.maintain(only="compcat"),  # type: ignore[arg-type]
        sk.UsageError,
        "unknown maintenance task 'compcat'",
        "did you mean compact?",
    ),
    "table.layout('items')": (
        lambda table: table.layout("items"),
        sk.UsageError,
        "column items: list<struct<p: int64>> has no order",
        "use columns or struct fields of numbers, strings or times",
    ),
}


@pytest.mark.parametrize("call", COMPACTIONS)
def test_compactions(call: str, catalog: sk.Catalog, here: Path) -> None:
    act, kind, message, hint = COMPACTIONS[call]
    assert said(lambda: act(catalog.open("db.events")), here) == (kind, message, hint)


def test_compactions_since_an_unknown_snapshot(catalog: sk.Catalog, here: Path) -> None:
    kind, message, hint = said(lambda: catalog.open("db.events").plan_compaction(since=12345), here)
    assert (kind, message) == (sk.UsageError, "db.events: unknown snapshot 12345")
    assert (hint or "").endswith("snapshots that have expired can't be read")


def test_plans_that_no_longer_fit(here: Path) -> None:
    """A plan of another table, of a snapshot that expired, and one that was run already."""
    catalog = sk.catalog("./plans")
    for name in ("db.a", "db.b"):
        catalog.create_table(name, EVENTS.select(["user_id"]).schema).table.append(EVENTS.select(["user_id"]))
    table = catalog.open("db.a")
    plan = table.plan_compaction(rewrite_all=True)
    assert said(lambda: catalog.open("db.b").compact(plan, engine="local"), here) == (
        sk.UsageError, "db.b: plan belongs to table db.a",
        "open db.a, or plan the compaction of this table",
    )  # fmt: skip
    table.compact(plan, engine="local")
    problem = f"db.a: files of the plan, made on snapshot {plan.snapshot}, are no longer in the table"
    assert said(lambda: table.compact(plan, engine="local"), here) == (
        sk.ConflictError, problem, "make a new plan",
    )  # fmt: skip
    table.table.maintenance.expire_snapshots().by_id(plan.snapshot).commit()
    expired = f"db.a: snapshot {plan.snapshot} of the plan has expired"
    assert said(lambda: catalog.open("db.a").compact(plan, engine="local"), here) == (
        sk.ConflictError, expired, "make a new plan",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        (1, "upgrade it: with table.table.transaction() as change: change.upgrade_table_version(2)"),
        (3, "compact it with the engine that wrote it; Skipstone writes format version 2"),
    ],
)
def test_versions_that_can_not_be_compacted(version: int, hint: str, here: Path, tmp_path: Path) -> None:
    made = Maker(tmp_path / "table", [("id", "long")], format_version=version)
    made.append([{"id": 1}])
    metadata = max(made.metadata_files, key=lambda path: path.stat().st_mtime_ns)
    kind, message, shown = said(lambda: sk.open(str(metadata)).plan_compaction(), here)  # type: ignore[attr-defined]
    assert (kind, shown) == (sk.UsageError, hint)
    assert message.endswith(f"tables of format version {version} can't be compacted")


def test_files_that_changed_since_they_were_listed(here: Path) -> None:
    again = "refresh the lake with lake.refresh(), or open it again, and repeat the query"
    lake = sk.open("old")
    plan = lake.scan("user_id = 1").plan()
    pq.write_table(EVENTS.slice(1), "old/00.parquet")
    for act in (lambda: sk.execute(plan).to_arrow(), lambda: lake.scan("user_id = 2").to_arrow()):
        assert said(act, here) == (sk.ChangedFileError, f"old/00.parquet: {CHANGED}", again)
    Path("old/00.parquet").unlink()
    assert said(lambda: sk.execute(plan).to_arrow(), here) == (
        sk.MissingFileError,
        f"old/00.parquet: {GONE}",
        again,
    )


def test_two_writers_of_one_file(here: Path) -> None:
    store = open_root("ingested")
    source = [JournalSource("people.csv", 25, "1")]
    with Append.begin(store) as first, Append.begin(store) as second:
        claim(store, first, source)
        assert said(lambda: claim(store, second, source), here) == (
            sk.ConflictError,
            f"people.csv: {CLAIMED}",
            "wait for that run to end, then retry",
        )


def test_an_index_of_another_version(here: Path) -> None:
    lake = sk.open("events", index_root="index")
    lake.index.build(engine="local")
    (manifest,) = Path("index").glob("manifest-*")
    manifest.write_text(re.sub(r"format \d+", "format 1", manifest.read_text(), count=1))
    lake = sk.open("events", index_root="index")
    what = r"index has format 1; this version of Skipstone reads format \d+"
    # Queries ignore the index, and say so.
    assert lake.scan("user_id = 1").count() == 1
    assert re.search(f"index ignored: {what}", lake.scan("user_id = 1").explain())
    assert re.search(f"{what}\nnext: rebuild the index: lake.index.build", str(lake.index.status()))
    kind, message, hint = said(lambda: lake.index.refresh(engine="local"), here)
    assert kind is sk.CorruptFileError
    assert re.fullmatch(f"index: {what}", message)
    assert hint == "build the index again, with lake.index.build() or skipstone index build"


@pytest.mark.skipif(not Path("/sys").is_dir(), reason="needs a directory that nobody can write")
def test_an_index_where_nothing_can_be_written(here: Path) -> None:
    lake = sk.open("events", index_root="/sys/skipstone")
    kind, _, hint = said(lambda: lake.index.build(engine="local"), here)
    assert kind is sk.WriteError
    assert hint == NOT_WRITABLE


def test_a_bucket_that_does_not_exist(s3: dict[str, str], here: Path) -> None:
    kind, _, hint = said(lambda: sk.open("s3://buckte/events", storage_options=s3), here)
    assert kind is sk.ReadError
    assert re.fullmatch(
        "check the bucket name.*, and AWS_ENDPOINT_URL or endpoint in storage_options", hint or ""
    )


class _Elsewhere(BaseHTTPRequestHandler):
    """S3's answer to a request in the wrong region."""

    def do_GET(self) -> None:
        what = "the region 'us-east-1' is wrong; expecting 'eu-west-1'"
        body = f"<Error><Code>AuthorizationHeaderMalformed</Code><Message>{what}</Message></Error>".encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_bucket_in_another_region(s3: dict[str, str], here: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        options = {**s3, "aws_endpoint": f"http://127.0.0.1:{server.server_port}"}
        kind, _, hint = said(lambda: sk.open("s3://bucket/events", storage_options=options), here)
        server.shutdown()
        thread.join()
    assert kind is sk.ReadError
    assert hint == REGION


def test_spark_without_java(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    # Other tests of this process may have started a session.
    monkeypatch.setattr("skipstone.engine.session.running_session", lambda: None)
    kind, message, hint = said(lambda: sk.open("events").index.build(engine="spark"), here)
    assert (kind, hint) == (sk.UsageError, JAVA)
    assert re.fullmatch("Spark needs Java.* not installed on this machine", message)


@pytest.mark.parametrize(
    "text",
    [
        "System memory 66060288 must be at least 471859200. Please increase heap size using --driver-memory",
        "Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_spark_without_memory(text: str) -> None:
    assert memory_hint(text) == MEMORY
    assert memory_hint("Job aborted due to stage failure: no such file") is None


def test_the_repr_of_an_error_has_its_hint() -> None:
    """Debuggers, and lists of errors, show only that."""
    assert repr(sk.UsageError("limit is negative", hint="use 0")) == (
        "UsageError('limit is negative', hint='use 0')"
    )


# -- docs ----------------------------------------------------------------------------------------


def code(text: str) -> str:
    """Text as Markdown code in a table."""
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def condition_row(row: tuple[str, type[Exception], str, str]) -> str:
    where, _, message, hint = row
    return f"| {code(where)} | {code(message)} | {code(hint)} |\n"


def call_row(call: str) -> str:
    _, _, message, hint = CALLS[call]
    return f"| {code(call)} | {code(message)} | {code(hint)} |\n"


def compaction_row(call: str) -> str:
    _, _, message, hint = COMPACTIONS[call]
    return f"| {code(call)} | {code(message)} | {code(hint or '')} |\n"


def command_row(line: str) -> str:
    return f"| {code(f'skipstone {line}')} | {code(COMMANDS[line][1])} |\n" if len(line) < 200 else ""


def test_the_docs_list_these_messages() -> None:
    page = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    rows = [
        *map(condition_row, CONDITIONS),
        *map(call_row, CALLS),
        *map(compaction_row, COMPACTIONS),
        *map(command_row, COMMANDS),
    ]
    assert [row for row in rows if row not in page] == []
    texts = (RENAMED, DROPPED, CHANGED, GONE, CLAIMED, NOT_WRITABLE, REGION, JAVA, MEMORY)
    assert [text for text in texts if text not in page] == []


def test_a_comparison_with_null_says_why_nothing_is_found() -> None:
    lake = sk.open("events")
    assert lake.scan("user_id = 1").explain().count("IS NULL") == 0
    note = "kind = NULL: never true, as a comparison with NULL; use IS NULL"
    assert f"notes: {note}" in lake.scan("user_id = 1 and kind = NULL").explain()
    assert "use IS NOT NULL" in lake.scan("kind <> NULL").explain()
    shown = CliRunner().invoke(app, ["query", "events", "kind = NULL"])
    assert note in shown.stdout
    assert "0 rows" in shown.stdout


def test_commands_name_only_options() -> None:
    for where, hint in (
        ("select 1", "choose columns with --columns"),
        ("user_id = 1 limit 3", "use --limit"),
    ):
        shown = CliRunner().invoke(app, ["count", "events", where])
        assert shown.stderr.endswith(f"{hint}\n")
        assert "= or" not in shown.stderr
