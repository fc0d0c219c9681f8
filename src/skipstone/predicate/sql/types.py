"""SQL dialects: grammar, types, time zones, typed literals and function names.

The grammar is sqlglot's, restricted to conditions. Its parsers rewrite function calls (formats, argument
order), so they run here without their function tables, and every call is parsed as written.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import functools
import re
import zoneinfo
from types import MappingProxyType
from typing import NoReturn, cast

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.parser import Parser
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from skipstone.core.plain import int_scalar
from skipstone.errors import ParseError, PredicateError, did_you_mean, shorten

DIALECTS = ("spark", "hive", "trino", "presto", "duckdb")
SPARK_LIKE = frozenset({"spark", "hive"})
INSTANT = pa.timestamp("us", "UTC")
NAIVE = pa.timestamp("us")
MAX_DECIMAL = 38
_MAX_DIGITS = 76
UNIT_DIGITS = MappingProxyType({"s": 0, "ms": 3, "us": 6, "ns": 9})

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")
_STAMP = re.compile(
    r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?)?\s*([A-Za-z+-][\w:+/-]*)?)?)?)?\s*"
)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_SPECIAL_FLOATS = frozenset({"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})


def check_dialect(dialect: str) -> str:
    """Return ``dialect`` in lower case; raise if it is not supported."""
    name = dialect.lower() if isinstance(dialect, str) else ""
    if name not in DIALECTS:
        hint = did_you_mean(name, DIALECTS, f"use one of {', '.join(DIALECTS)}")
        raise PredicateError(f"unknown SQL dialect {dialect!r}", hint=hint)
    return name


def zone_info(name: str) -> dt.tzinfo:
    """Look up a time zone: a region, UTC, or a fixed offset such as +02:00."""
    if not isinstance(name, str):
        raise PredicateError(f"unknown time zone {name!r}", hint=_ZONE_HINT)
    if name in ("UTC", "Z", "GMT", "UT"):
        return dt.UTC
    if offset := _OFFSET.fullmatch(name):
        span = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        if span <= dt.timedelta(hours=18):
            return dt.timezone(-span if offset[1] == "-" else span)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        hint = did_you_mean(name, zoneinfo.available_timezones(), _ZONE_HINT)
        raise PredicateError(f"unknown time zone {name!r}", hint=hint) from error


_ZONE_HINT = "use a region such as Europe/Paris, UTC, or an offset such as +02:00"


# -- function names ----------------------------------------------------------------------------

_SAME = (
    *("abs", "ceil", "coalesce", "date_trunc", "day", "exp", "floor", "hour", "length", "lower"),
    *("minute", "month", "nullif", "quarter", "replace", "reverse", "second", "sqrt", "upper", "year"),
    *("current_timestamp", "current_date", "localtimestamp", "last_day"),
)

SPARK_ALIASES = MappingProxyType(
    {
        "btrim": "trim",
        "cardinality": "size",
        "ceiling": "ceil",
        "char_length": "length",
        "character_length": "length",
        "curdate": "current_date",
        "date_diff": "datediff",
        "dateadd": "date_add",
        "dayofmonth": "day",
        "ifnull": "coalesce",
        "lcase": "lower",
        "len": "length",
        "locate": "position",
        "mod": "%",
        "now": "current_timestamp",
        "nvl": "coalesce",
        "pow": "power",
        "regexp": "rlike",
        "regexp_like": "rlike",
        "sha": "sha1",
        "signum": "sign",
        "substring": "substr",
        "to_unix_timestamp": "unix_timestamp",
        "ucase": "upper",
    }
)

# Functions with the same semantics in both, with Spark's name on the right. Any other function gets its
# dialect as a prefix ("duckdb.list_sum"), so that it is never evaluated as Spark's function.
_TRINO = {
    **{name: name for name in _SAME},
    "cardinality": "size",
    "ceiling": "ceil",
    "concat": "concat",
    "contains": "array_contains",
    "day_of_month": "day",
    "day_of_year": "dayofyear",
    "doy": "dayofyear",
    "element_at": "try_element_at",
    "is_nan": "isnan",
    "last_day_of_month": "last_day",
    "mod": "%",
    "now": "current_timestamp",
    "starts_with": "startswith",
    "substr": "substr",
    "substring": "substr",
    "week": "weekofyear",
    "week_of_year": "weekofyear",
}
FOREIGN = MappingProxyType(
    {
        "trino": _TRINO,
        "presto": {**_TRINO, "ends_with": "endswith"},
        "duckdb": {
            **{name: name for name in _SAME},
            "array_contains": "array_contains",
            "array_has": "array_contains",
            "cardinality": "size",
            "ceiling": "ceil",
            "char_length": "length",
            "character_length": "length",
            "contains": "contains",
            "date_part": "date_part",
            "datepart": "date_part",
            "datetrunc": "date_trunc",
            "dayofmonth": "day",
            "dayofyear": "dayofyear",
            "ends_with": "endswith",
            "greatest": "greatest",
            "ifnull": "coalesce",
            "isnan": "isnan",
            "lcase": "lower",
            "least": "least",
            "left": "left",
            "len": "length",
            "list_contains": "array_contains",
            "list_element": "try_element_at",
            "list_extract": "try_element_at",
            "list_has": "array_contains",
            "ltrim": "ltrim",
            "mod": "%",
            "now": "current_timestamp",
            "prefix": "startswith",
            "rtrim": "rtrim",
            "starts_with": "startswith",
            "substr": "substr",
            "substring": "substr",
            "suffix": "endswith",
            "today": "current_date",
            "trim": "trim",
            "ucase": "upper",
            "weekofyear": "weekofyear",
        },
    }
)

ITEMS = MappingProxyType({"duckdb": "try_element_at", "trino": "element_at", "presto": "element_at"})
"""Spark's names of ``x[i]`` in dialects that count from 1; Spark and Hive count from 0."""

EXTRACT_FIELDS = MappingProxyType(
    {
        "year": "year",
        "quarter": "quarter",
        "month": "month",
        "week": "weekofyear",
        "day": "day",
        "doy": "dayofyear",
        "dayofyear": "dayofyear",
        "hour": "hour",
        "minute": "minute",
    }
)
TRUNC_UNITS = MappingProxyType({"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"})


# -- types -------------------------------------------------------------------------------------

_PLAIN_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
}
_SPARK_NAMES = {
    **_PLAIN_NAMES,
    pa.float32(): "FLOAT",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    NAIVE: "TIMESTAMP_NTZ",
    INSTANT: "TIMESTAMP_LTZ",
    pa.time64("us"): "TIME(6)",
}
_TRINO_NAMES = {
    **_PLAIN_NAMES,
    pa.float32(): "REAL",
    pa.string(): "VARCHAR",
    pa.binary(): "VARBINARY",
    pa.timestamp("ms"): "TIMESTAMP(3)",
    pa.timestamp("ms", "UTC"): "TIMESTAMP(3) WITH TIME ZONE",
    NAIVE: "TIMESTAMP(6)",
    INSTANT: "TIMESTAMP(6) WITH TIME ZONE",
    pa.time64("us"): "TIME(6)",
}
TYPE_NAMES: MappingProxyType[str, dict[pa.DataType, str]] = MappingProxyType(
    {
        "spark": _SPARK_NAMES,
        "hive": {
            **_PLAIN_NAMES,
            pa.float32(): "FLOAT",
            pa.string(): "STRING",
            pa.binary(): "BINARY",
            NAIVE: "TIMESTAMP",
            INSTANT: "TIMESTAMP WITH LOCAL TIME ZONE",
        },
        "trino": _TRINO_NAMES,
        "presto": {
            **_PLAIN_NAMES,
            pa.float32(): "REAL",
            pa.string(): "VARCHAR",
            pa.binary(): "VARBINARY",
            pa.timestamp("ms"): "TIMESTAMP",
            pa.timestamp("ms", "UTC"): "TIMESTAMP WITH TIME ZONE",
        },
        "duckdb": {
            **_PLAIN_NAMES,
            pa.float32(): "FLOAT",
            pa.uint8(): "UTINYINT",
            pa.uint16(): "USMALLINT",
            pa.uint32(): "UINTEGER",
            pa.uint64(): "UBIGINT",
            pa.string(): "VARCHAR",
            pa.binary(): "BLOB",
            pa.timestamp("s"): "TIMESTAMP_S",
            pa.timestamp("ms"): "TIMESTAMP_MS",
            NAIVE: "TIMESTAMP",
            pa.timestamp("ns"): "TIMESTAMP_NS",
            INSTANT: "TIMESTAMPTZ",
            pa.time64("us"): "TIME",
        },
    }
)


def sql_type(kind: pa.DataType, dialect: str) -> str | None:
    """Name of the Arrow type in ``dialect``, or None if the dialect has no such type."""
    if pa.types.is_decimal(kind):
        fits = kind.precision <= MAX_DECIMAL and 0 <= kind.scale <= kind.precision
        return f"DECIMAL({kind.precision}, {kind.scale})" if fits else None
    return TYPE_NAMES[dialect].get(kind)


# -- typed literals ----------------------------------------------------------------------------


def number(text: str) -> pa.Scalar:
    """Parse a numeric literal: bigint, decimal (with a point) or double (with an exponent)."""
    try:
        if "e" in text.lower():
            return pa.scalar(float(text))
        # Through Decimal, since int() rejects very long strings, even of zeros.
        exact = decimal.Decimal(text)
    except (ValueError, decimal.InvalidOperation):
        raise ParseError(f"{shorten(text, 40)} is not a number") from None
    if "." not in text and -(2**63) <= exact < 2**63:
        return int_scalar(int(exact))
    try:
        return pa.scalar(exact)
    except pa.ArrowInvalid:
        digits = sum(char.isdigit() for char in text)
        raise ParseError(
            f"number {shorten(text, 40)} has {digits:,} digits; a decimal has at most {_MAX_DIGITS}",
            hint="write it as a double, such as 1e100",
        ) from None


def date_value(text: str) -> pa.Scalar:
    """Parse a DATE literal by Spark's rules; raise ValueError if it is not a date."""
    day = re.split(r"[ T]", text.strip(), maxsplit=1)[0]
    match = _STAMP.fullmatch(day)
    if match is None:
        raise ValueError
    return pa.scalar(dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1)), pa.date32())


def timestamp_value(text: str, kind: pa.DataType, zone: str) -> pa.Scalar | None:
    """Parse a timestamp literal of type ``kind``; None if it can't be represented without loss.

    Nanoseconds are kept, where Spark would cut them off.
    """
    match = _STAMP.fullmatch(text)
    if match is None:
        raise ValueError
    fields = zip(match.groups(), (1, 1, 1, 0, 0, 0), strict=False)
    year, month, day, hour, minute, second = (int(part or default) for part, default in fields)
    zone_name = match[8]
    if zone_name and kind.tz is None:
        return None
    local = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC)
    offset = dt.timedelta(0)
    if kind.tz is not None:
        # As in Java, a time in a DST gap moves forward, and an ambiguous time is the earlier one.
        offset = local.replace(tzinfo=zone_info(zone_name or zone)).utcoffset() or offset
    if len((match[7] or "").rstrip("0")) > 9:
        raise ParseError(f"{text!r} has more than nine digits of a second", hint="write nanoseconds at most")
    if kind.unit == "us" and len((match[7] or "").rstrip("0")) > 6:
        kind = pa.timestamp("ns", kind.tz)
    digits = UNIT_DIGITS[kind.unit]
    if digits < 6 and len((match[7] or "").rstrip("0")) > digits:
        return None  # engines with coarser types round
    fraction = int((match[7] or "").ljust(digits, "0")[:digits] or 0)
    seconds = (local - _EPOCH - offset) // dt.timedelta(seconds=1)
    ticks = seconds * 10**digits + fraction
    if not -(2**63) <= ticks < 2**63:
        message = f"{text!r} is out of range: nanoseconds end in 1677 and 2262"
        raise ParseError(message, hint="write microseconds at most")
    return pa.scalar(ticks, pa.int64()).cast(kind)


# Months, days and nanoseconds of one unit.
_INTERVAL_UNITS = MappingProxyType(
    {
        "year": (12, 0, 0),
        "quarter": (3, 0, 0),
        "month": (1, 0, 0),
        "week": (0, 7, 0),
        "day": (0, 1, 0),
        "hour": (0, 0, 3_600 * 10**9),
        "minute": (0, 0, 60 * 10**9),
        "second": (0, 0, 10**9),
        "millisecond": (0, 0, 10**6),
        "microsecond": (0, 0, 10**3),
    }
)
_INTERVAL_PART = re.compile(r"\s*([+-]?)\s*(\d+)(?:\.(\d{1,9}))?\s*([a-z]+)\s*", re.IGNORECASE)
_YEARS_MONTHS = re.compile(r"\s*([+-]?)(\d+)-(\d+)\s*")
_CLOCK_FIELDS = ("day", "hour", "minute", "second")
_MAX_INTERVAL = (2**31 - 1, 2**31 - 1, 2**63 - 1)


def interval_value(text: str, unit: str) -> pa.Scalar:
    """Parse an interval such as ``7`` of unit ``day``, or ``1 2:03`` of unit ``day to minute``.

    Without a unit the text names its own: ``1 day 3 hours``. Raise ValueError if it is not an interval.
    """
    first, _, last = unit.lower().partition(" to ")
    if last:
        parts = _interval_fields(text, first.rstrip("s"), last.rstrip("s"))
    else:
        written = text if not first else f"{text} {first}"
        found = list(_INTERVAL_PART.finditer(written))
        if not found or "".join(match[0] for match in found) != written:
            raise ValueError(f"{text!r} is not an interval")
        parts = [(match[1], match[2], match[3], match[4].lower()) for match in found]
    total = [0, 0, 0]
    for sign, whole, fraction, name in parts:
        size = _INTERVAL_UNITS.get(name if name in _INTERVAL_UNITS else name.removesuffix("s"))
        if size is None:
            raise ValueError(f"unknown interval unit {name!r}; use {', '.join(_INTERVAL_UNITS)}")
        if fraction and size[2] != 10**9:
            raise ValueError(f"only seconds of an interval can have a fraction, not {name}")
        nanos = int((fraction or "0").ljust(9, "0"))
        for at, amount in enumerate(size):
            count = int(whole[:25]) * amount + (nanos if at == 2 else 0)
            total[at] += -count if sign == "-" else count
    return interval(*total)


def _interval_fields(text: str, first: str, last: str) -> list[tuple[str, str, str, str]]:
    """Parts of ``'2-3' YEAR TO MONTH`` or ``'1 2:03:04.5' DAY TO SECOND``."""
    match = _YEARS_MONTHS.fullmatch(text)
    if match and (first, last) == ("year", "month"):
        return [(match[1], match[2], "", "year"), (match[1], match[3], "", "month")]
    names = _CLOCK_FIELDS[_CLOCK_FIELDS.index(first) :] if first in _CLOCK_FIELDS else ()
    names = names[: names.index(last) + 1] if last in names else ()
    sign = "-" if text.strip().startswith("-") else ""
    numbers = re.split(r"[ :]", text.strip().lstrip("+-"))
    if not names or len(numbers) != len(names):
        raise ValueError(f"{text!r} is not an interval from {first} to {last}")
    parts = []
    for number, name in zip(numbers, names, strict=True):
        whole, _, fraction = number.partition(".")
        if not whole.isdecimal() or (fraction and (name != "second" or not fraction.isdecimal())):
            raise ValueError(f"{text!r} is not an interval from {first} to {last}")
        parts.append((sign, whole, fraction[:9], name))
    return parts


def interval(months: int, days: int, nanos: int) -> pa.Scalar:
    """An interval; raise ValueError if it is out of range, or finer than a microsecond."""
    if any(abs(part) > most for part, most in zip((months, days, nanos), _MAX_INTERVAL, strict=True)):
        raise ValueError("interval is out of range")
    if nanos % 1000:
        raise ValueError("interval has nanoseconds; the smallest unit is a microsecond")
    return pa.scalar(pa.MonthDayNano([months, days, nanos]), pa.month_day_nano_interval())


def fold(value: pa.Scalar, kind: pa.DataType, dialect: str, zone: str) -> pa.Scalar | None:
    """Fold ``CAST(value AS kind)`` to a literal, or return None if it would lose information."""
    if not value.is_valid:
        return pa.scalar(None, kind)
    if value.type == kind:
        return value
    if pa.types.is_string(value.type):
        return _fold_string(value.as_py(), kind, dialect, zone)
    if pa.types.is_boolean(value.type) or not (_is_number(value.type) and _is_number(kind)):
        return None
    return _fold_number(value, kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _fold_string(text: str, kind: pa.DataType, dialect: str, zone: str) -> pa.Scalar | None:
    if pa.types.is_date(kind):
        return date_value(text)
    if pa.types.is_timestamp(kind):
        return timestamp_value(text, kind, zone)
    if pa.types.is_time(kind):
        return pa.scalar(dt.time.fromisoformat(text.strip()), kind)
    if pa.types.is_binary(kind):
        return pa.scalar(_duckdb_blob(text) if dialect == "duckdb" else text.encode(), kind)
    if pa.types.is_floating(kind):
        special = text.strip().lower() in _SPECIAL_FLOATS
        return pa.scalar(float(text), kind) if special else _parse_float(text, kind)
    if _is_number(kind) and _NUMBER.fullmatch(text):
        with contextlib.suppress(decimal.InvalidOperation):  # e.g. an exponent of twenty digits
            return _fold_exact(decimal.Decimal(text.strip()), kind)
    return None


def _parse_float(text: str, kind: pa.DataType) -> pa.Scalar | None:
    return pa.scalar(text.strip()).cast(kind) if _NUMBER.fullmatch(text) else None


def _fold_number(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    plain = value.as_py()
    if pa.types.is_floating(kind):
        if isinstance(plain, decimal.Decimal):
            return _parse_float(f"{plain:f}", kind)
        rounded = pa.scalar(float(plain), pa.float64()).cast(kind, safe=False)
        same = rounded.as_py() == plain or plain != plain
        return rounded if same else None
    return None if isinstance(plain, float) else _fold_exact(decimal.Decimal(plain), kind)


def _fold_exact(exact: decimal.Decimal, kind: pa.DataType) -> pa.Scalar | None:
    # Checked first, so that 1e999999999 is never expanded.
    if exact.adjusted() >= _MAX_DIGITS or len(exact.as_tuple().digits) > _MAX_DIGITS:
        return None
    if pa.types.is_integer(kind):
        width = kind.bit_width - pa.types.is_signed_integer(kind)
        low = -(2**width) if pa.types.is_signed_integer(kind) else 0
        fits = exact == exact.to_integral_value() and low <= exact < 2**width
        return pa.scalar(int(exact), kind) if fits else None
    scaled = exact.scaleb(kind.scale, decimal.Context(prec=80))
    fits = scaled == scaled.to_integral_value() and abs(scaled) < 10**kind.precision
    return pa.scalar(exact, kind) if fits else None


def _duckdb_blob(text: str) -> bytes:
    return re.sub(
        rb"\\x([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(cast("bytes", m[1]).decode()), text.encode()
    )


_FUNCTION_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION")


def syntax(text: str, dialect: str) -> exp.Expr:
    """Parse one condition to sqlglot's syntax tree."""
    statements = _statements(text, dialect, exp.Condition)
    if not statements:
        raise ParseError("SQL condition is empty", hint="write a condition such as a = 1")
    if len(statements) > 1:
        raise ParseError("SQL condition contains several statements", hint="write one condition")
    if dialect in SPARK_LIKE and '"' in text:
        _check_quotes(statements[0], text, dialect)
    return statements[0]


def select_list(text: str, dialect: str) -> list[exp.Expr]:
    """Parse a SELECT list; aliases are :class:`exp.Alias`."""
    statements = _statements(text, dialect, exp.Select)
    select = statements[0]
    clauses = [name.strip("_") for name, value in select.args.items() if value and name != "expressions"]
    if clauses or len(statements) > 1:
        message = (
            f"{clauses[0].upper()} is not allowed after the list of functions"
            if clauses
            else "SELECT list contains several statements"
        )
        raise ParseError(message, hint="write only the expressions between SELECT and FROM")
    return list(select.expressions)


def _statements(text: str, dialect: str, kind: type[exp.Expr]) -> list[exp.Expr]:
    grammar, parser = _grammar(dialect)
    try:
        tokens = list(grammar.tokenize(text))
        if kind is exp.Select:
            tokens.insert(0, Token(TokenType.SELECT, "SELECT"))
    except Exception as error:  # noqa: BLE001  (sqlglot also raises other errors, such as Decimal's)
        raise _parse_error(text, error, dialect) from None

    def parse(tokens: list[Token]) -> list[exp.Expr]:
        made = parser(dialect=grammar, error_level=ErrorLevel.IMMEDIATE).parse_into(kind, tokens, text)
        return [node for node in made if node is not None]

    failed: Exception | None = None
    try:
        statements = parse(tokens)
        if statements and not any(isinstance(one, exp.Command) for one in statements):
            return statements
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001
        failed = error
    if dialect in SPARK_LIKE:
        from skipstone.predicate.sql.reserved import reserved_as_names

        named = reserved_as_names(tokens)
        if named is not None:
            with contextlib.suppress(Exception):
                return parse(named)
    if failed is not None:
        raise _parse_error(text, failed, dialect) from None
    return statements


def _parse_error(text: str, error: Exception, dialect: str) -> ParseError:
    from skipstone.predicate.sql.mistakes import parse_error

    return parse_error(text, error, dialect)


def _check_quotes(root: exp.Expr, text: str, dialect: str) -> None:
    """Reject a test of constants with a double-quoted string, which is almost certainly meant as a column.

    Tests such as ``1 = 0`` or ``'a' = 'a'``, which tools generate, are allowed.
    """
    checked: set[int] = set()
    for literal in root.find_all(exp.Literal):
        start = literal.meta.get("start")
        if not literal.is_string or start is None or text[start] != '"':
            continue
        test: exp.Expr = literal
        typed = False
        while not isinstance(test, exp.Predicate) and not isinstance(test.parent, _ABOVE_TESTS):
            typed |= isinstance(test, exp.Cast) and not test.to.is_type(*exp.DataType.TEXT_TYPES)
            test = test.parent
        if typed or id(test) in checked:
            continue
        if not any(_is_variable(node) for node in test.walk()):
            name = shorten(literal.name, 60)
            sql = shorten(test.sql(dialect), 80)
            raise ParseError(
                f'"{name}" is a string in the {dialect} dialect, so {sql} compares only constants',
                hint=f"quote a column with backticks, `{name}`, and a string with single quotes, '{name}'; "
                "or use a dialect where double quotes are identifiers: dialect='duckdb', --dialect duckdb",
            )
        checked.add(id(test))


_ABOVE_TESTS = (exp.Connector, exp.Not, type(None))


def _is_variable(node: exp.Expr) -> bool:
    """Whether this is a column or a call without arguments, such as current_user()."""
    return isinstance(node, exp.Column) or (isinstance(node, exp.Func) and not any(node.iter_expressions()))


_SILENT = {"_warn_unsupported": lambda _self: None}
"""sqlglot would log what it takes for a command, such as ``if = 1``."""


@functools.cache
def _grammar(dialect: str) -> tuple[sqlglot.Dialect, type[Parser]]:
    base = type(sqlglot.Dialect.get_or_raise(dialect))
    # Indexes are parsed as written: sqlglot would shift those of dialects that count from one.
    members: dict[str, object] = {"INDEX_OFFSET": 0}
    if dialect in SPARK_LIKE:
        # Spark 4 parses 'it''s' as it's; sqlglot still parses two adjacent strings.
        tokenizer = type("Tokenizer", (base.tokenizer_class,), {"STRING_ESCAPES": ["'", '"', "\\"]})
        members |= {"Tokenizer": tokenizer, "tokenizer_class": tokenizer}
    function_parsers = {k: v for k, v in base.parser_class.FUNCTION_PARSERS.items() if k in _FUNCTION_SYNTAX}
    parser = type(
        "Parser", (base.parser_class,), {"FUNCTIONS": {}, "FUNCTION_PARSERS": function_parsers} | _SILENT
    )
    return type(f"Skipstone{base.__name__}", (base,), members)(), parser


def refuse(node: exp.Expr, what: str, hint: str = "write a plain condition") -> NoReturn:
    """Raise the ParseError for a construct that is not allowed in a condition on rows."""
    position = next((n.meta for n in node.walk() if "line" in n.meta), None)
    where = (
        f" at line {position['line']}, column {position['col'] - position['end'] + position['start']}"
        if position
        else ""
    )
    raise ParseError(f"{what} is not allowed in a condition on rows{where}", hint=hint)


_TYPES: MappingProxyType[exp.DType, pa.DataType] = MappingProxyType(
    {
        exp.DType.BOOLEAN: pa.bool_(),
        exp.DType.TINYINT: pa.int8(),
        exp.DType.SMALLINT: pa.int16(),
        exp.DType.INT: pa.int32(),
        exp.DType.BIGINT: pa.int64(),
        exp.DType.UTINYINT: pa.uint8(),
        exp.DType.USMALLINT: pa.uint16(),
        exp.DType.UINT: pa.uint32(),
        exp.DType.UBIGINT: pa.uint64(),
        exp.DType.FLOAT: pa.float32(),
        exp.DType.DOUBLE: pa.float64(),
        exp.DType.TEXT: pa.string(),
        exp.DType.VARCHAR: pa.string(),
        exp.DType.BINARY: pa.binary(),
        exp.DType.VARBINARY: pa.binary(),
        exp.DType.DATE: pa.date32(),
        exp.DType.TIME: pa.time64("us"),
        exp.DType.TIMESTAMPNTZ: NAIVE,
        exp.DType.TIMESTAMPTZ: INSTANT,
        exp.DType.TIMESTAMPLTZ: INSTANT,
        exp.DType.TIMESTAMP_S: pa.timestamp("s"),
        exp.DType.TIMESTAMP_MS: pa.timestamp("ms"),
        exp.DType.TIMESTAMP_NS: pa.timestamp("ns"),
    }
)
_DEFAULT_DECIMAL = MappingProxyType(
    {"spark": (10, 0), "hive": (10, 0), "trino": (38, 0), "presto": (38, 0), "duckdb": (18, 3)}
)


def arrow_type(kind: exp.DataType, dialect: str) -> pa.DataType | None:
    """Arrow type of a SQL type, or None if Arrow or Spark has no equivalent."""
    # Truncated because int() rejects very long strings; no valid size has ten digits.
    sizes = [int(p.name[:10]) for p in kind.expressions if p.name.isdecimal()]
    if kind.this == exp.DType.DECIMAL:
        precision, scale = (*sizes, 0)[:2] if sizes else _DEFAULT_DECIMAL[dialect]
        return pa.decimal128(precision, scale) if 1 <= precision <= 38 and scale <= precision else None
    if kind.this in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ) and dialect in ("trino", "presto"):
        unit = {0: "s", 3: "ms", 6: "us", 9: "ns"}.get(sizes[0] if sizes else 3)
        return pa.timestamp(unit, "UTC" if kind.this == exp.DType.TIMESTAMPTZ else None) if unit else None
    if kind.this == exp.DType.TIMESTAMP:
        return INSTANT if dialect == "spark" else NAIVE
    if sizes and kind.this in (exp.DType.VARCHAR, exp.DType.TEXT) and dialect not in SPARK_LIKE:
        return None
    return _TYPES.get(kind.this)
