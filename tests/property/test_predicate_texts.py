"""Whatever the text, the builder or the foreign expression: a predicate, or an error of ours, and silence.

``SKIPSTONE_CASES`` sets how many texts are tried; a failure prints its seed.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import datafusion
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import expressions as ice

import skipstone as sk
from skipstone.core.filter import RowFilter
from skipstone.errors import NotExpressibleError, ParseError, SkipstoneError
from skipstone.predicate import tree
from tests.property._texts import Texts
from tests.support.samples import sample

CASES = sample("predicate texts")
PARTS = 4
DIALECTS = ("spark", "spark", "hive", "trino", "presto", "duckdb")
DAY = dt.datetime(2020, 1, 1)
ROWS = pa.table(
    {
        "i": [1, -5, None],
        "s": ["a", "bb\n%_", None],
        "f": [1.5, float("nan"), None],
        "d": pa.array([1, 2, None], pa.decimal128(20, 4)),
        "ts": pa.array([DAY, None, DAY], pa.timestamp("us", "UTC")),
        "b": [True, False, None],
        "dt": pa.array([0, 20_000, None], pa.date32()),
        "t": pa.array([0, 1, None], pa.time64("us")),
        "bin": [b"a", b"\xff", None],
        "User Name": ["user 3", "", None],
    }
)


def outcome(run: Callable[[], Any]) -> Any:
    """What comes of it: an error of ours is an answer, of a length that a log can take."""
    try:
        return run()
    except SkipstoneError as error:
        told = error
    assert len(str(told)) < 8_500
    return told


def asked(predicate: tree.Predicate) -> Any:
    """Use a predicate in every way there is, and give its answer."""
    assert repr(predicate)
    outcome(lambda: hash(predicate))
    assert predicate.columns() is not None
    for name in ("sql", "arrow", "polars", "iceberg", "datafusion", "domain"):
        outcome(getattr(predicate, f"to_{name}"))
    outcome(lambda: sk.Pruner(predicate, ROWS.schema))
    return outcome(lambda: RowFilter(predicate, ROWS.schema).mask(ROWS))


@pytest.mark.parametrize("part", range(PARTS))
def test_any_text_is_answered_or_refused(part: int, capfd: pytest.CaptureFixture[str]) -> None:
    seen: Counter[str] = Counter()
    for number in range(CASES // PARTS):
        rng = random.Random(f"{part}:{number}")
        text, dialect = Texts(rng).text(), rng.choice(DIALECTS)
        try:
            found = outcome(lambda: sk.parse(text, dialect=dialect))  # noqa: B023
            answer = asked(found) if isinstance(found, tree.Predicate) else found
        except Exception as error:
            raise AssertionError(f"seed {part}:{number}, {dialect}: {text[:300]!r}") from error
        seen[type(answer).__name__] += 1
    assert capfd.readouterr() == ("", "")
    # As many as make the test worth its time.
    assert seen["ndarray"] > sum(seen.values()) // 20, seen
    assert seen["ParseError"] > sum(seen.values()) // 20, seen


# What is too long, too deep or too large by itself; the number of rows, or None for an error.
EXTREMES: dict[str, tuple[str, int | None]] = {
    "an integer past Python's digits": ("i < " + "9" * 4_301, None),
    "zeros past Python's digits": ("i = " + "0" * 5_000 + "1", 1),
    "the most digits": ("i < " + "9" * 76, 2),
    "one digit more": ("i < " + "9" * 77, None),
    "a long decimal": ("d < 1." + "9" * 5_000, None),
    "a large exponent": ("f < 1e" + "9" * 5_000, 1),
    "a text of an integer": ("i = '" + "9" * 5_000 + "'", None),
    "a text of a large exponent": ("i = cast('1e999999999' as bigint)", None),
    "a text of a vast exponent": ("i = try_cast('-1e99999999999999999999' as int)", 0),
    "a vast precision": ("d = cast(i as decimal(" + "9" * 5_000 + ", 2))", None),
    "an IN list past Python's digits": ("i in (1, " + "9" * 5_000 + ")", None),
    "an IN list of no one decimal": ("d in (1." + "9" * 70 + ", " + "9" * 70 + ")", 0),
    "a long IN list": ("i in (" + ", ".join(map(str, range(-5, 5_000))) + ")", 2),
    "a LIKE of a megabyte": ("s like '" + "%a" * 500_000 + "'", 0),
    "a LIKE of places": ("s like '" + "_" * 500_000 + "'", 0),
    "a LIKE of percents": ("s like '" + "%" * 500_000 + "'", 2),
    "a long ILIKE": ("s ilike '" + "%A" * 20_000 + "'", 0),
    "a regular expression of a megabyte": ("s rlike '" + "a" * 1_000_000 + "'", None),
    "one of many groups": ("s rlike '" + "(" * 100_000 + ")" * 100_000 + "'", None),
    "one of many counts": ("s rlike '" + "[ab]{1000}" * 1_000 + "'", None),
    "one of nested counts": ("s rlike '((a{100}){100}){100}'", None),
    "one of a vast count": ("s rlike 'a{99999999999999999999}'", None),
    "deep parentheses": ("(" * 3_000 + "i = 1" + ")" * 3_000, None),
    "many NOTs": ("not " * 3_000 + "b", None),
    "a long sum": ("i = " + " + ".join(["i"] * 3_000), None),
    "many branches": ("case " + " ".join(f"when i = {n} then true" for n in range(1_000)) + " end", None),
    "a long name": ("`" + "x" * 1_000_000 + "` = 1", None),
    "a long function": ("f" * 100_000 + "(i) = 1", None),
    "a deep name": (".".join(["a"] * 5_000) + " = 1", None),
    "a long text": ("s = '" + "x" * 1_000_000 + "'", 0),
    "a long zone": ("ts = timestamp '2020-01-01 00:00:00 " + "A" * 5_000 + "'", None),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    text, rows = EXTREMES[name]
    found = outcome(lambda: RowFilter(sk.parse(text), ROWS.schema).mask(ROWS).sum())
    assert isinstance(found, SkipstoneError) if rows is None else found == rows, found
    assert capfd.readouterr() == ("", "")


def nested(times: int) -> tree.Predicate:
    """A tree of that depth."""
    made = sk.col("b").is_null()
    for at in range(times):
        made = ~made if at % 2 else (made & (sk.col("i") == at))
    return made


def arrow_nested(times: int) -> pc.Expression:
    """The same of another library's."""
    made = pc.field("b")
    for _ in range(times):
        made = ~made
    return made


def iceberg_nested(times: int) -> ice.BooleanExpression:
    """The same of a third one's."""
    made: ice.BooleanExpression = ice.EqualTo("i", 1)
    for at in range(times):
        made = ice.And(ice.Or(made, ice.EqualTo("i", at)), ice.NotNull("s"))
    return made


BUILT: dict[str, Callable[[], Any]] = {
    "an integer": lambda: sk.col("i") == 10**5_000,
    "a negative integer": lambda: sk.col("i") > -(10**80),
    "a decimal": lambda: sk.col("d") == decimal.Decimal("1e999999"),
    "no decimal": lambda: sk.col("d") == decimal.Decimal("NaN"),
    "a list of integers": lambda: sk.col("i").isin([1, 10**5_000]),
    "a list of decimals": lambda: sk.col("d").isin([decimal.Decimal("1e70"), decimal.Decimal("1e-70")]),
    "a list of integers and floats": lambda: sk.col("f").isin([10**400, 1.5]),
    "a list of everything": lambda: sk.col("i").isin([1, "a", b"x", None, dt.date(2020, 1, 1)]),
    "no list": lambda: sk.col("i").isin(10**5_000),
    "an object": lambda: sk.col("i") == object(),
    "a pattern": lambda: sk.col("s").like("%a" * 300_000),
    "no pattern": lambda: sk.col("s").like(5),  # type: ignore[arg-type]
    "no escape": lambda: sk.col("s").like("a", escape="ab"),
    "no prefix": lambda: sk.col("s").startswith(5),  # type: ignore[arg-type]
    "no scalar of that type": lambda: sk.lit(pa.scalar("x"), pa.int64()),
    "no condition": lambda: sk.predicate(10**5_000),
    "a deep tree": lambda: nested(3_000),
    "a deep pyarrow expression": lambda: arrow_nested(1_500),
    "a deep pyiceberg expression": lambda: iceberg_nested(400),
    "a long pyarrow LIKE": lambda: pc.match_like(pc.field("s"), "%a" * 100_000),
    "a wide pyarrow decimal": lambda: (
        pc.field("i") < pa.scalar(decimal.Decimal("9" * 76), pa.decimal256(76, 0))
    ),
    "a Polars decimal": lambda: pl.col("i") < pl.lit(decimal.Decimal("9" * 38)),
    "a long Polars pattern": lambda: pl.col("s").str.contains("(a|b)*" * 20_000),
    "a long DataFusion LIKE": lambda: datafusion.functions.regexp_like(
        datafusion.col("s"), datafusion.lit("(a|b)*" * 10_000)
    ),
}


@pytest.mark.parametrize("name", BUILT)
def test_what_is_built_is_answered_or_refused(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = outcome(lambda: sk.predicate(BUILT[name]()))
    if isinstance(found, tree.Predicate):
        asked(found)
    assert capfd.readouterr() == ("", "")


NAMES = ("User Name", "order", "a.b", "Größe", "plain")


@pytest.mark.parametrize("written", ["spark", "duckdb", "trino"])
@pytest.mark.parametrize("read", ["spark", "hive", "duckdb", "trino"])
def test_a_name_of_another_dialect_never_turns_into_a_constant(written: str, read: str) -> None:
    """Quoted as another dialect quotes it, a column is read as that column, or the text is refused."""
    refused = 0
    for name in NAMES:
        column = sk.col(name)
        tests = (
            *(
                column == "user 3",
                column > 5,
                column.isin(["a", "b"]),
                column.between(1, 2),
                column.is_null(),
            ),
            *(column.like("a%"), ~column.like("%a_b"), column.is_not_null(), tree.condition(column)),
            (column == 1) & (sk.col("x") == 2),
            (sk.col("x") == 2) | column.eq_null_safe(1),
            tree.Call("lower", (column,)) == "a",
        )
        for predicate in tests:
            try:
                found = sk.parse(predicate.to_sql(written), dialect=read)
            except (ParseError, NotExpressibleError):
                refused += 1
                continue
            assert found.columns() == predicate.columns(), predicate.to_sql(written)
    if written == read:
        assert refused == 0
