"""The clock, constants, intervals and formats; expected values are Spark's."""

from __future__ import annotations

import datetime as dt
import pickle
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from skipstone.core.filter import RowFilter, fix_clock, settle
from skipstone.core.ir import compile_predicate
from skipstone.errors import NotExpressibleError, ParseError, PredicateError
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import col, lit
from tests.unit.core.filter.test_rowfilter import answers

NOON = dt.datetime(2026, 3, 31, 12, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    {
        "d": pa.date32(),
        "ts": pa.timestamp("us", "UTC"),
        "wall": pa.timestamp("us"),
        "ms": pa.int64(),
        "st": pa.struct({"x": pa.int64()}),
        "m": pa.map_(pa.string(), pa.int64()),
    }
)


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("ts >= current_timestamp() - interval 7 days", "ts >= '2026-03-24 12:00:00.000000Z'"),
        ("ts >= now() - INTERVAL '1' DAY", "ts >= '2026-03-30 12:00:00.000000Z'"),
        ("d = current_date", "d = '2026-03-31'"),
        ("d > curdate() - interval 1 month", "d > '2026-02-28'"),
        ("d > current_date() - 7", "d > '2026-03-24'"),
        ("d between date_sub(current_date, 1) and current_date", "d BETWEEN '2026-03-30' AND '2026-03-31'"),
        ("d >= trunc(current_date, 'MM')", "d >= '2026-03-01'"),
        ("ts >= date_trunc('hour', now())", "ts >= '2026-03-31 12:00:00.000000Z'"),
        ("ts > timestampadd(MONTH, -1, now())", "ts > '2026-02-28 12:00:00.000000Z'"),
        ("ms > unix_millis(now())", "ms > 1774958400000"),
        ("wall < localtimestamp()", "wall < '2026-03-31 12:00:00.000000'"),
        ("st['x'] = 1", "st.x = 1"),
        ("m.k = 1", "m['k'] = 1"),
        ("d > date'2024-01-31' + interval '1' month", "d > '2024-02-29'"),
        ("ts - interval 1 hour > '2026-01-01'", "(ts - INTERVAL '3600' SECOND) > '2026-01-01'"),
        ("ms > 1 / 0", "ms > (1 / 0)"),
        (
            "date_format(ts, 'yyyy-MM') = '2024-02'",
            "cast(ts as date) BETWEEN '2024-02-01' AND '2024-02-29'",
        ),
        ("date_format(d, 'yyyy') = '2024'", "cast(d as date) BETWEEN '2024-01-01' AND '2024-12-31'"),
        (
            "date_format(d, 'yyyyMMdd') = date_format(current_date, 'yyyyMMdd')",
            "cast(d as date) BETWEEN '2026-03-31' AND '2026-03-31'",
        ),
        ("date_format(ts, 'yyyy-MM') = '2024-2'", "date_format(ts, 'yyyy-MM') = '2024-2'"),
        ("date_format(ts, 'yyyy-MM') > '2024-02'", "date_format(ts, 'yyyy-MM') > '2024-02'"),
        ("date_format(ts, 'yyyy-MM-dd') = '2024-02-30'", "date_format(ts, 'yyyy-MM-dd') = '2024-02-30'"),
    ],
)
def test_settled_text(text: str, settled: str) -> None:
    assert str(settle(fix_clock(parse_sql(text), NOON), SCHEMA)) == settled


def test_hours_beyond_a_day_are_refused_in_zones_with_summer_time() -> None:
    text = "ts > timestampadd(HOUR, 30, ts)"
    assert str(parse_sql(text)) == "ts > (ts + INTERVAL '108000' SECOND)"
    with pytest.raises(ParseError, match="30 HOUR are more than a day"):
        parse_sql(text, tz="Europe/Paris")


def test_the_clock_has_the_zone_of_the_text_and_is_read_once_per_filter() -> None:
    late = dt.datetime(2026, 3, 31, 23, tzinfo=dt.UTC)
    assert str(fix_clock(parse_sql("d = current_date", tz="Asia/Tokyo"), late)) == "d = '2026-04-01'"
    made = RowFilter(parse_sql("ts <= now()"), SCHEMA)
    assert pickle.loads(pickle.dumps(made)).predicate == made.predicate


# -- intervals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("interval 7 days", (0, 7, 0)),
        ("interval '1' week", (0, 7, 0)),
        ("interval '7 days'", (0, 7, 0)),
        ("interval -36 hours", (0, 0, -36 * 3600 * 10**9)),
        ("interval 1 day 2 hours", (0, 1, 7200 * 10**9)),
        ("interval '1 day 3 minutes'", (0, 1, 180 * 10**9)),
        ("interval 1.5 seconds", (0, 0, 1_500_000_000)),
        ("interval '-1 2:03:04.5' day to second", (0, -1, -7_384_500_000_000)),
        ("interval '2-3' year to month", (27, 0, 0)),
        ("interval 2 quarters", (6, 0, 0)),
        ("-interval 5 minutes", (0, 0, -300 * 10**9)),
    ],
)
def test_interval_literals(text: str, wanted: tuple[int, int, int]) -> None:
    predicate = parse_sql(f"ts > d + {text}")
    assert tuple(predicate.right.args[1].scalar.as_py()) == wanted  # type: ignore[attr-defined]
    for dialect in ("spark", "trino", "duckdb"):
        assert parse_sql(predicate.to_sql(dialect), dialect) == predicate  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("interval 1 month 2 days", "mixes months with days"),
        ("interval '1 month 2 days'", "mixes months with days"),
        ("interval 1 fortnight", "unknown interval unit 'fortnight'; use year"),
        ("interval '1.5' day", "only seconds"),
        ("interval 'x' day", "'x' is not an interval"),
        ("interval '1:2' day to second", "not an interval from day to second"),
        ("interval ms days", "without a constant number"),
        ("interval 99999999999 days", "out of range"),
        ("interval '0.0000001' second", "smallest unit is a microsecond"),
        ("interval 1 nanosecond", "unknown interval unit"),
    ],
)
def test_wrong_intervals(text: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        parse_sql(f"ts > now() - {text}")


def times(*texts: str | None, zone: str = "UTC") -> pa.Array:
    moments = [None if text is None else dt.datetime.fromisoformat(text) for text in texts]
    return pa.array(
        [m if m is None else m.replace(tzinfo=ZoneInfo(zone)) for m in moments], SCHEMA.field("ts").type
    )


def test_days_are_days_of_the_zone_and_hours_are_elapsed() -> None:
    before = pa.table({"ts": times("2026-03-28 12:00", None, zone="Europe/Paris")})
    # The clock jumps at 2 o'clock on 2026-03-29.
    day, hours, month = "2026-03-29 12:00:00+02:00", "2026-03-29 00:00:00+01:00", "2026-04-28 12:00:00+02:00"
    for text, wanted in [
        (f"ts + interval 1 day = timestamp '{day}'", [True, None]),
        (f"ts + interval 24 hours = timestamp '{day}'", [True, None]),
        (f"ts + interval 12 hours = timestamp '{hours}'", [True, None]),
        (f"ts + interval 1 month = timestamp '{month}'", [True, None]),
        (f"timestamp '{day}' - ts = interval 1 day", [True, None]),
        (f"ts - interval 1 day < timestamp '{day}'", [True, None]),
    ]:
        assert answers(parse_sql(text, tz="Europe/Paris"), before) == wanted, text


def test_an_hour_that_occurs_twice_keeps_its_offset() -> None:
    # 02:30 in Paris occurs at 00:30 and 01:30 UTC on 2026-10-25.
    rows = pa.table({"ts": times("2026-10-24 00:30", "2026-10-26 01:30")})
    for text, wanted in [
        ("ts + interval 1 day = timestamp '2026-10-25 00:30:00Z'", [True, False]),
        ("ts - interval 1 day = timestamp '2026-10-25 01:30:00Z'", [False, True]),
    ]:
        assert answers(parse_sql(text, tz="Europe/Paris"), rows) == wanted, text


def test_units_and_types() -> None:
    rows = pa.table(
        {
            "d": pa.array([dt.date(2024, 1, 31), None]),
            "s": pa.array([0, None], pa.timestamp("s")),
            "ns": pa.array([1, None], pa.timestamp("ns")),
            "edge": pa.array([2**63 - 1, None], pa.timestamp("us")),
        }
    )
    for text in [
        "d + interval 1 day = date'2024-02-01' and d - interval 1 month = date'2023-12-31'",
        "interval 1 month + d = date'2024-02-29'",
        "d + interval 1 hour = timestamp '2024-01-31 01:00:00'",
        "s + interval 1.5 seconds = timestamp_ntz '1970-01-01 00:00:01.5'",
        "ns + interval 1 day > timestamp_ntz '1970-01-02 00:00:00'",
        "d - date'2024-01-01' = interval 30 days",
        "d - date'2024-01-01' < interval 31 days",
        "add_months(d, 1) = date'2024-02-29' and last_day(d) = d",
        "datediff(d, '2024-01-01') = 30 and date_add(d, 1) = date'2024-02-01'",
    ]:
        assert answers(parse_sql(text), rows) == [True, None], text
    for text in [
        "edge + interval 1 day > edge",
        "edge + interval 1 second > edge",
        "add_months(d, 2000000000) = d",
    ]:
        with pytest.raises(PredicateError, match="failed: "):
            RowFilter(parse_sql(text), rows.schema).mask(rows)
    for text in ["d * interval 1 day = d", "interval 1 day - d = d", "s + d = d", "d + d = d"]:
        with pytest.raises(PredicateError):
            RowFilter(parse_sql(text), rows.schema)


def test_timedelta_is_an_interval() -> None:
    rows = pa.table({"ts": times("2026-03-28 12:00", None)})
    assert answers(col("ts") + dt.timedelta(days=1) == lit(NOON - dt.timedelta(days=2)), rows) == [True, None]
    assert str(col("ts") - dt.timedelta(hours=36)) == "(ts - INTERVAL '1' DAY '43200' SECOND)"


@pytest.mark.parametrize(
    ("text", "judged"),
    [
        ("ts + interval 1 day > '2026-01-01'", True),
        ("timestamp '2026-01-01 00:00:00' - ts < interval 1 hour", True),
        ("d - interval 1 week > '2026-01-01'", True),
        ("date_add(ts, 1) > '2026-01-01'", True),
        ("timestamp_millis(ms) > '2026-01-01'", True),
        ("unix_seconds(ts) > 5", True),
        ("ts + interval 1 month > '2026-01-01'", False),
        ("date_format(ts, 'yyyy') = '2026'", False),
        ("m['k'] = 1", False),
    ],
)
def test_what_metadata_can_judge(text: str, judged: bool) -> None:
    compiled = compile_predicate(parse_sql(text), SCHEMA)
    assert (not compiled.unsupported) is judged
    summer = compile_predicate(parse_sql(text, tz="Europe/Paris"), SCHEMA)
    zoneless = "ms" in text or text.startswith(("d ", "unix"))
    assert (not summer.unsupported) is (judged and zoneless)


# -- formats and nanoseconds -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-01-05 15:08:07.123"),
        ("yy y M d H", "24 2024 1 5 15"),
        ("E EE EEE EEEE", "Fri Fri Fri Friday"),
        ("MMM MMMM", "Jan January"),
        ("hh h KK K kk a", "03 3 03 3 15 PM"),
        ("D DDD", "5 005"),
        ("yyyy''T''HH", "2024T15"),
        ("S SSSSSS SSSSSSSSS", "1 123456 123456000"),
        ("", ""),
    ],
)
def test_date_format(pattern: str, wanted: str) -> None:
    moment = dt.datetime(2024, 1, 5, 15, 8, 7, 123456)
    rows = pa.table({"t": pa.array([moment, None], pa.timestamp("us"))})
    assert answers(parse_sql(f"date_format(t, '{pattern}') = '{wanted}'"), rows) == [True, None]


def test_formats_of_far_years_and_zones() -> None:
    days = pa.array([3_789_391, -721_157, 0], pa.int32()).view(pa.date32())
    rows = pa.table({"d": days})
    years = "date_format(d, 'yyyy') in ('+12345', '-0005', '1970')"
    assert answers(parse_sql(years), rows) == [True, True, True]
    stamps = pa.table({"ts": times("2026-07-01 23:30")})
    assert answers(parse_sql("date_format(ts, 'dd HH') = '02 01'", tz="Europe/Paris"), stamps) == [True]


@pytest.mark.parametrize("pattern", ["Y", "w", "yyyyy", "VV", "[yyyy]", "''yyyy"])
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises((NotExpressibleError, ParseError)):
        RowFilter(parse_sql(f"date_format(d, '{pattern}') = d"), SCHEMA)


def test_nanoseconds_of_a_literal_are_kept() -> None:
    rows = pa.table(
        {"t": pa.array([1, 999, 1000], pa.timestamp("ns")), "u": pa.array([0, 1, 2], pa.timestamp("us"))}
    )
    nine = "timestamp_ntz '1970-01-01 00:00:00.000000999'"
    assert answers(parse_sql(f"t = {nine}"), rows) == [False, True, False]
    assert answers(parse_sql(f"u > {nine}"), rows) == [False, True, True]
    with pytest.raises(ParseError, match="more than nine digits"):
        parse_sql("t = timestamp '1970-01-01 00:00:00.0000009999'")
    with pytest.raises(ParseError, match="1677 and 2262"):
        parse_sql("t = timestamp '2500-01-01 00:00:00.000000999'")


# -- common types ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("coalesce(i, 1.5) = 1.5", [False, True]),
        ("case when i = 1 then i else 2.5 end = 2.5", [False, True]),
        ("coalesce(f, i) = 1", [False, None]),
        ("greatest(d, t) = t", [True, None]),
        ("greatest(f, 3) = double('nan')", [True, False]),
        ("least(f, 3) = 3", [True, True]),
        ("coalesce(s, i) = 7", [True, None]),
        ("coalesce(i, 'x') = 1 and i is not null", [True, False]),
        ("coalesce(d, '2024-01-02') = date'2024-01-02'", [False, True]),
        ("concat(s, '-', i) = '7-1'", [True, None]),
        ("nvl2(i, 'a', 'b') = 'b'", [False, True]),
        ("instr(s, '7') + locate('x', s) + position('7' in s) = 2", [True, None]),
    ],
)
def test_common_types(text: str, wanted: list[bool | None]) -> None:
    rows = pa.table(
        {
            "i": pa.array([1, None], pa.int32()),
            "f": [float("nan"), None],
            "d": [dt.date(2024, 1, 1), None],
            "t": pa.array([dt.datetime(2024, 1, 1, 1), None], pa.timestamp("us")),
            "s": ["7", None],
        }
    )
    assert answers(parse_sql(text), rows) == wanted
