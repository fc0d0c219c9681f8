"""Random value expressions as Spark SQL over a small table of nested and odd values."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random

import pyarrow as pa

D = decimal.Decimal
SCHEMA = pa.schema(
    {
        "rid": pa.int64(),
        "i": pa.int32(),
        "j": pa.int64(),
        "f": pa.float64(),
        "g": pa.float32(),
        "n": pa.decimal128(9, 2),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "w": pa.timestamp("us"),
        "tags": pa.list_(pa.string()),
        "nums": pa.list_(pa.float64()),
        "m": pa.map_(pa.string(), pa.int32()),
        "geo": pa.struct({"city": pa.string(), "at": pa.struct({"x": pa.int32()})}),
        "people": pa.list_(pa.struct({"name": pa.string()})),
    }
)
_DAYS = [
    dt.date(2024, 1, 31),
    dt.date(2024, 2, 29),
    dt.date(1969, 12, 31),
    dt.date(1, 1, 1),
    dt.date(9998, 12, 31),
]
_TIMES = [
    dt.datetime(2026, 3, 29, 0, 59, 59, 999_999),  # Paris skips an hour
    dt.datetime(2026, 10, 25, 0, 30),  # and repeats one
    dt.datetime(2026, 10, 25, 1, 30),
    dt.datetime(2024, 3, 31, 23, 0, 0, 1),
    dt.datetime(1970, 1, 1),
    dt.datetime(1905, 6, 7, 8, 9, 10),
    dt.datetime(9998, 12, 31, 23, 59, 59),
]
_TEXTS = ["", "a", "Ab c", "7", "é", "a%b"]


def random_rows(rng: random.Random, rows: int) -> pa.Table:
    """A table with NULLs, NaN, empty lists and dates at the ends of months and of summer time."""

    def maybe(value: object) -> object:
        return None if rng.random() < 0.15 else value

    def text() -> object:
        return maybe(rng.choice(_TEXTS))

    made = []
    for rid in range(rows):
        city, at = text(), maybe({"x": maybe(rng.randrange(-3, 4))})
        made.append(
            {
                "rid": rid,
                "i": maybe(rng.choice([0, 1, -7, 100, 2**31 - 1, -(2**31)])),
                "j": maybe(rng.choice([0, 1, -1, 2, 3, 2**40])),
                "f": maybe(rng.choice([0.0, -0.0, 1.5, -2.5, math.nan, math.inf, 1e300])),
                "g": maybe(rng.choice([0.0, 0.5, math.nan, -math.inf])),
                "n": maybe(rng.choice([D("0.00"), D("1.50"), D("-9999999.99")])),
                "s": text(),
                "d": maybe(rng.choice(_DAYS)),
                "t": maybe(rng.choice(_TIMES)),
                "w": maybe(rng.choice(_TIMES)),
                "tags": maybe([text() for _ in range(rng.randrange(4))]),
                "nums": maybe(
                    [maybe(rng.choice([0.0, -0.0, math.nan, 1.0])) for _ in range(rng.randrange(3))]
                ),
                "m": maybe([(key, maybe(rng.randrange(3))) for key in rng.sample("abc", rng.randrange(4))]),
                "geo": maybe({"city": city, "at": at}),
                "people": maybe([maybe({"name": text()}) for _ in range(rng.randrange(3))]),
            }
        )
    return pa.Table.from_pylist(made, SCHEMA)


class Expressions:
    """Makes SQL text of a wanted kind."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def any(self) -> str:
        """An expression of any kind."""
        return self.of(
            self.rng.choice(["int", "double", "decimal", "text", "date", "instant", "wall", "bool"]), 3
        )

    def of(self, kind: str, depth: int) -> str:
        """An expression of one kind, with arguments of less depth."""
        if depth <= 0 or self.rng.random() < 0.2:
            return self.rng.choice(_LEAVES[kind])
        text = self.rng.choice(_CALLS[kind] + _ANY)
        while "{" in text:
            start, _, rest = text.partition("{")
            name, _, rest = rest.partition("}")
            inner = self.of(kind if name == "same" else name, depth - 1)
            text = start + (f"({inner})" if " " in inner else inner) + rest
        return text


def _by_kind(lines: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines.strip().splitlines():
        kind, _, text = line.partition(" ")
        found.setdefault(kind, []).append(text.strip())
    return found


_ANY = [
    "coalesce({same}, {same})",
    "if({bool}, {same}, {same})",
    "case when {bool} then {same} when {bool} then {same} end",
    "nullif({same}, {same})",
]
_LEAVES = _by_kind(
    """
int     i
int     j
int     geo.at.x
int     geo['at']['x']
int     m['a']
int     element_at(m, 'b')
int     3
int     -1
int     size(tags)
double  f
double  g
double  get(nums, 0)
double  1.5e0
double  double('nan')
decimal n
decimal 2.5
decimal 1
text    s
text    geo.city
text    geo['city']
text    get(tags, 0)
text    get(people, 0).name
text    'a'
text    try_element_at(tags, -1)
date    d
date    date'2024-02-29'
date    date(w)
instant t
instant timestamp'2026-03-28 12:00:00'
wall    w
wall    timestamp_ntz'2026-03-28 12:00:00'
bool    s = 'a'
bool    f > 1
bool    d is null
bool    array_contains(tags, 'a')
bool    true
bool    m['c'] = 1
"""
)
_CALLS = _by_kind(
    """
int     abs({int} % 7)
int     {int} % 5 + {int} % 3
int     length({text})
int     size(tags)
int     cardinality(m)
int     array_size(nums)
int     year({date})
int     month({date})
int     day({date})
int     dayofweek({date})
int     weekofyear({date})
int     quarter({instant})
int     hour({instant})
int     minute({wall})
int     second({instant})
int     datediff({date}, {date})
int     instr({text}, 'a')
int     greatest({int}, {int})
int     least({int}, {int}, 2)
int     nvl2({text}, {int}, {int})
int     unix_seconds({instant})
int     unix_millis({instant})
int     try_cast({text} as int)
int     dayofyear({wall})
int     weekday({date})
int     {int} & {int}
int     ({int} | 5) ^ {int}
int     ~{int}
int     shiftleft(i, 3)
int     shiftright(j, i)
int     shiftleft(cast({int} as bigint), i)
int     shiftright(i, 33)
int     round({int}, -1)
int     bround({int}, -2)
int     octet_length({text})
int     bit_length({text})
int     size(split({text}, '[ %]'))
int     unix_timestamp({instant})
int     floor({double})
int     ceil({double})
double  round({double}, 1)
double  round({double} / 3, 3)
double  bround({double})
double  round({double}, -2)
double  sign({double})
double  degrees({double})
double  radians({double})
decimal round({decimal})
decimal round({decimal}, 1)
decimal bround({decimal}, 1)
decimal round({decimal}, -3)
decimal n % 0.7
decimal n % 12.345
text    lpad({text}, 5, '*-')
text    rpad({text}, 3)
text    lpad({text}, {int} % 3, 'x')
text    repeat({text}, 2)
text    concat_ws('-', {text}, {text}, {text})
text    concat_ws({text}, {text}, {text})
text    split_part({text}, ' ', 2)
text    split_part({text}, 'b', -1)
text    split({text}, ' ')[0]
text    regexp_replace({text}, '([a-b])', '<$1>')
text    btrim({text})
text    md5({text})
text    sha1({text})
text    sha2({text}, 384)
double  greatest({double}, {double})
double  least({double}, {int})
double  {double} + {double}
double  {double} * 2
double  -{double}
double  coalesce({double}, {int})
double  {int} / 4
double  if({bool}, {double}, {decimal})
decimal coalesce({decimal}, {int})
decimal greatest({decimal}, {decimal})
decimal case when {bool} then {decimal} else 1 end
text    upper({text})
text    lower({text})
text    concat({text}, '-', {text})
text    concat({text}, {int})
text    substr({text}, 1, 2)
text    trim({text})
text    reverse({text})
text    greatest({text}, {text})
text    left({text}, 1)
text    replace({text}, 'a', 'b')
text    date_format({instant}, 'yyyy-MM-dd HH:mm:ss.SSS')
text    date_format({date}, 'EEE d MMM yy')
text    date_format({wall}, 'hh:mm a, D')
text    date_format({instant}, 'EEEE k K H MMMM')
date    date_add({date}, 40)
date    date_sub({date}, 1)
date    add_months({date}, 1)
date    add_months({date}, -13)
date    last_day({date})
date    {date} + interval 1 month
date    {date} - interval 3 days
date    {date} + 1
date    date({instant})
date    trunc({date}, 'quarter')
date    trunc({date}, 'week')
date    least({date}, {date})
date    cast({wall} as date)
instant {date} + interval 5 hours
instant greatest({instant}, {date})
instant coalesce({instant}, {wall})
instant timestampadd(MONTH, 1, {instant})
instant dateadd(HOUR, 20, {instant})
instant timestamp_millis({int})
instant timestamp_seconds({int} % 100000)
instant cast({date} as timestamp)
instant cast({wall} as timestamp)
wall    greatest({wall}, {date})
wall    cast({instant} as timestamp_ntz)
bool    {int} > {int}
bool    {double} >= {double}
bool    {text} < {text}
bool    {date} <= {date}
bool    {instant} > {instant}
bool    array_contains(tags, {text})
bool    array_contains(nums, {double})
bool    map_contains_key(m, {text})
bool    {bool} and {bool}
bool    {bool} or {bool}
bool    not {bool}
bool    {text} is null
bool    {instant} - {instant} < interval 1 day
bool    {date} - {date} > interval 30 days
bool    {text} like 'a%'
bool    {wall} between {wall} and {wall}
bool    {decimal} = {int}
bool    {text} rlike 'a'
bool    {date} <=> {date}
bool    {int} in (1, 2, {int})
"""
)
_UNITS = ("day", "hour", "month", "year", "minute", "week", "quarter", "second")
_SPANS = (
    *("1 day", "36 hours", "-1 month", "13 months", "1.5 seconds", "1 week", "2 years"),
    "'1 02:03:04' day to second",
)
_CALLS["instant"] += [f"date_trunc('{unit}', {{instant}})" for unit in _UNITS]
for _kind in ("instant", "wall"):
    _CALLS[_kind] += [f"{{{_kind}}} {sign} interval {span}" for sign in "+-" for span in _SPANS]
