"""sqlglot's grammar, set up for conditions, and its types as Arrow's.

Functions are left to us: sqlglot rewrites them on the way in (formats, argument order), so its
parsers run here without their function tables and every call arrives as it was written.
"""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import NoReturn, cast

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.parser import Parser
from sqlglot.tokens import Token, TokenType

from skipstone.errors import ParseError, shorten
from skipstone.predicate.sql.types import INSTANT, NAIVE, SPARK_LIKE

_KEPT_GRAMMAR = ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION")


def syntax(text: str, dialect: str) -> exp.Expr:
    """The one condition in ``text`` as sqlglot's syntax tree."""
    statements = _statements(text, dialect, exp.Condition)
    if not statements:
        raise ParseError("the SQL text is empty", hint="write a condition such as a = 1")
    if len(statements) > 1:
        raise ParseError("the SQL text holds several statements", hint="give one condition")
    if dialect in SPARK_LIKE and '"' in text:
        _check_quotes(statements[0], text, dialect)
    return statements[0]


def select_list(text: str, dialect: str) -> list[exp.Expr]:
    """The expressions in a list as it stands after SELECT; aliases are :class:`exp.Alias`."""
    statements = _statements(text, dialect, exp.Select)
    select = statements[0]
    more = [name.strip("_") for name, value in select.args.items() if value and name != "expressions"]
    if more or len(statements) > 1:
        said = f"{more[0].upper()} can't follow a list of functions" if more else "several statements"
        raise ParseError(said, hint="give the list alone, as it stands between SELECT and FROM")
    return list(select.expressions)


def _statements(text: str, dialect: str, kind: type[exp.Expr]) -> list[exp.Expr]:
    grammar, parser = _grammar(dialect)
    try:
        tokens = list(grammar.tokenize(text))
        if kind is exp.Select:
            tokens.insert(0, Token(TokenType.SELECT, "SELECT"))
        found = parser(dialect=grammar, error_level=ErrorLevel.IMMEDIATE).parse_into(kind, tokens, text)
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001  (its parser also fails in other ways, of Decimal's for one)
        raise _parse_error(text, error) from None
    return [node for node in found if node is not None]


def _check_quotes(root: exp.Expr, text: str, dialect: str) -> None:
    """Refuse a test of constants alone of which one is in double quotes: those are meant as a column's name.

    Tests such as ``1 = 0`` or ``'a' = 'a'``, which tools write, stay what they are.
    """
    sound: set[int] = set()
    for literal in root.find_all(exp.Literal):
        start = literal.meta.get("start")
        if not literal.is_string or start is None or text[start] != '"':
            continue
        test: exp.Expr = literal
        typed = False
        while not isinstance(test, exp.Predicate) and not isinstance(test.parent, _ABOVE_TESTS):
            typed |= isinstance(test, exp.Cast) and not test.to.is_type(*exp.DataType.TEXT_TYPES)
            test = cast("exp.Expr", test.parent)
        if typed or id(test) in sound:
            continue
        if not any(_varies(node) for node in test.walk()):
            name = shorten(literal.name, 60)
            shown = shorten(test.sql(dialect), 80)
            raise ParseError(
                f'"{name}" is a string in the {dialect} dialect, so that {shown} tests constants alone',
                hint=f"write a column name in backticks, `{name}`, and a string in single quotes, '{name}'; "
                "or choose a dialect where double quotes make names: dialect='duckdb', --dialect duckdb",
            )
        sound.add(id(test))


_ABOVE_TESTS = (exp.Connector, exp.Not, type(None))


def _varies(node: exp.Expr) -> bool:
    """Whether this is a column, or a call of something like current_user()."""
    return isinstance(node, exp.Column) or (isinstance(node, exp.Func) and not any(node.iter_expressions()))


@functools.cache
def _grammar(dialect: str) -> tuple[sqlglot.Dialect, type[Parser]]:
    base = type(sqlglot.Dialect.get_or_raise(dialect))
    members: dict[str, object] = {}
    if dialect in SPARK_LIKE:
        # Spark 4 reads 'it''s' as it's; sqlglot still as two strings side by side.
        tokenizer = type("Tokenizer", (base.tokenizer_class,), {"STRING_ESCAPES": ["'", '"', "\\"]})
        members = {"Tokenizer": tokenizer, "tokenizer_class": tokenizer}
    kept = {k: v for k, v in base.parser_class.FUNCTION_PARSERS.items() if k in _KEPT_GRAMMAR}
    parser = type("Parser", (base.parser_class,), {"FUNCTIONS": {}, "FUNCTION_PARSERS": kept})
    return type(f"Skipstone{base.__name__}", (base,), members)(), parser


def _parse_error(text: str, error: Exception) -> ParseError:
    details = getattr(error, "errors", None)
    if not details:
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        return ParseError(f"can't read the SQL text {shown!r}", hint="check its quotes and comments")
    first = details[0]
    what = first["description"]
    if what.startswith("Required keyword"):
        what = "something is missing"
    near = first["highlight"]
    column = first["col"] - max(len(near) - 1, 0)  # sqlglot names a token's last column
    return ParseError(f"{what} at line {first['line']}, column {column}, near {near!r}")


def refuse(node: exp.Expr, what: str) -> NoReturn:
    """Raises the ParseError for a construct that no condition on rows can hold."""
    place = next((n.meta for n in node.walk() if "line" in n.meta), None)
    where = (
        f" at line {place['line']}, column {place['col'] - place['end'] + place['start']}" if place else ""
    )
    raise ParseError(f"{what} can't be part of a condition on rows{where}", hint="give one plain condition")


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
    """The Arrow type of a SQL type, None where Arrow or Spark has no equal."""
    # No type has a size of ten digits, and Python refuses to read very long ones.
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
