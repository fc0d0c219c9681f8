"""Mistakes that people make, and what Skipstone answers: one row per mistake.

Each row is what the user wrote, the error, its message and its hint. Paths are relative to the directory of the
tests. ``docs/troubleshooting.md`` lists the same rows.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import skipstone as sk
from skipstone import errors
from skipstone.cli.main import app
from skipstone.engine.session import memory_hint

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
    for folder in ("empty", "hidden"):
        Path(folder).mkdir()
    Path("hidden/_SUCCESS").write_text("done")
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
COLUMNS = "the schema has user_id, day, ts, kind, amount, geo, first name, paid"
UNKNOWN = "unknown column"

CONDITIONS: list[tuple[str, type[Exception], str, str]] = [
    # Dates and quotes.
    (
        "day = 2026-01-01",
        sk.TypeMismatchError,
        "column day: 2024 (int64) can't be compared with a column of type date32[day]",
        DATES,
    ),
    (
        "ts > 2026-01-01",
        sk.TypeMismatchError,
        "column ts: 2024 (int64) can't be compared with a column of type timestamp[us, tz=UTC]",
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
        "column day: '2026-13-01' (string) can't be compared with a column of type date32[day]",
        "write an existing date, as in '2026-01-31'",
    ),
    (
        "ts > 'yesterday'",
        sk.TypeMismatchError,
        "column ts: 'yesterday' (string) can't be compared with a column of type timestamp[us, tz=UTC]",
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
    # Names.
    (
        "first name = 'Ada'",
        sk.ParseError,
        "unexpected 'name' at line 1, column 7",
        "quote a name that contains a space: `first name`",
    ),
    ("usr_id = 1", sk.UnknownColumnError, f"column usr_id: {UNKNOWN}", "did you mean user_id?"),
    ("USER_ID = 1", sk.UnknownColumnError, f"column USER_ID: {UNKNOWN}", "did you mean user_id?"),
    ("geo.cty = 'Bern'", sk.UnknownColumnError, f"column geo.cty: {UNKNOWN}", "did you mean geo.city?"),
    ("city = 'Bern'", sk.UnknownColumnError, f"column city: {UNKNOWN}", "did you mean geo.city?"),
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
        "use skipstone.udf, or remove the condition and filter the result",
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
    "sk.open('people.csv').scan().count()": (
        lambda: sk.open("people.csv").scan().count(),
        sk.NotParquetError,
        "people.csv: file is not Parquet: the last bytes are b'Bob\\n' instead of b'PAR1'",
        "write the rows to a lake with skipstone ingest; to leave the file out, open a glob such as "
        "'lake/**/*.parquet', or begin its name with _",
    ),
    "sk.open('notes').scan().count()": (
        lambda: sk.open("notes").scan().count(),
        sk.NotParquetError,
        "notes/README.md: file is not Parquet: the last bytes are b'are.' instead of b'PAR1'",
        "check that the file is complete; to leave the file out, open a glob such as 'lake/**/*.parquet', or "
        "begin its name with _",
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
        "did you mean Europe/Zurich, Europe/Zagreb or Europe/Bucharest?",
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
        sk.MissingFileError,
        "s3:/bucket/events: no such file or directory",
        "write s3://bucket/events",
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str, here: Path) -> None:
    act, kind, message, hint = CALLS[call]
    assert said(act, here) == (kind, message, hint)


# -- commands ------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[int, str]] = {
    # Without quotes the shell splits the condition, and takes > and < for itself.
    "count events --where user_id = 42": (
        2, 'unexpected arguments: = 42; quote the condition: --where "user_id = 42"',
    ),
    "count events --where user_id": (
        3,
        "error: column user_id: user_id is not a condition; hint: compare the column with a value; in a shell, "
        "quote the whole condition",
    ),
    "cuont events": (2, "unknown command 'cuont'; did you mean count?"),
    "count events --were x": (2, "unknown option --were; did you mean --where?"),
    "query events --limit ten": (2, "Invalid value for '--limit': must be an integer"),
    "query events --format xlsx": (2, "'xlsx' is not one of"),
    "count evnts": (4, "error: evnts: no such file or directory; hint: did you mean events?"),
    "query events --order-by 'amount down'": (
        3,
        "error: column amount down: unknown column; hint: use asc or desc after the name of a column: amount "
        "desc",
    ),
    "count db.events": (
        4,
        "error: db.events: no such file or directory; hint: pass catalog= or --catalog to open a table of that "
        "name",
    ),
    "agg events 'summ(amount)'": (3, "error: unknown function 'summ'; hint: did you mean sum?"),
}  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(line: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    done = CliRunner().invoke(app, shlex.split(line))
    assert COMMANDS[line][1] in done.stderr.replace(f"{here}/", "")
    assert done.exit_code == COMMANDS[line][0]
