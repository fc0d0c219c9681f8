"""Prepares a predicate for one query: the clock is read once, and constants are computed.

``geo['city']`` of a struct becomes its field and ``m.key`` of a map its value, so that metadata can judge
fields of structs however they are written.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re

import pyarrow as pa

from skipstone.core.domain.keys import storage_type
from skipstone.core.filter.plan import RowBinder
from skipstone.core.ir.bind import Binder
from skipstone.errors import SkipstoneError, UnknownColumnError
from skipstone.predicate import tree

_ITEMS = frozenset({"getitem", "element_at", "try_element_at", "getfield"})
_PATTERNS: dict[str, tree.MatchKind | None] = {
    "like": None,
    "ilike": None,
    "startswith": "prefix",
    "endswith": "suffix",
    "contains": "contains",
}
_NO_COLUMNS = pa.schema([])


def read_clock(expr: tree.Expr, now: dt.datetime | None = None) -> tree.Expr:
    """Replace the functions of the current time by ``now``, by default the time of this call."""
    instant = pa.scalar(now or dt.datetime.now(dt.UTC), pa.timestamp("us", "UTC"))

    def change(node: tree.Expr) -> tree.Expr:
        if not isinstance(node, tree.Call) or node.name not in tree.CLOCK or node.args:
            return node
        literal = tree.Literal(instant, node.zone)
        if node.name == "current_timestamp":
            return literal
        kind = pa.date32() if node.name == "current_date" else pa.timestamp("us")
        return _compute(tree.Cast(literal, kind, node.zone), RowBinder(_NO_COLUMNS))

    return tree.rewrite(expr, change)


def settle_value(expr: tree.Expr, schema: pa.Schema, *, case_sensitive: bool = True) -> tree.Expr:
    """Replace constant calls by literals, and access to fields by columns."""
    binder = RowBinder(schema, case_sensitive)

    def change(node: tree.Expr) -> tree.Expr:
        if isinstance(node, tree.Column) and len(node.path) > 1:
            return _split_at_map(node, binder)
        if isinstance(node, tree.Call) and node.name in _ITEMS and len(node.args) == 2:
            column = _field(node, binder)
            if column is not None:
                return column
        if isinstance(node, tree.Call) and node.name in _PATTERNS:
            return _pattern(node)
        if isinstance(node, tree.BooleanValue) and isinstance(node.arg, tree.Predicate):
            return node.arg
        if isinstance(node, tree.Compare):
            dates = _dates_of_format(node, binder)
            return node if dates is None else dates
        if isinstance(node, tree.Call | tree.Cast):
            constant = all(isinstance(child, tree.Literal) for child in node.children())
            return _compute(node, binder) if constant else node
        return node

    return tree.rewrite(expr, change)


def _compute(expr: tree.Expr, binder: RowBinder) -> tree.Expr:
    """A constant expression as a literal; unchanged if its value is an error, which only rows may raise."""
    try:
        value = binder.constant(expr)
    except (SkipstoneError, pa.ArrowException):
        return expr
    if pa.types.is_nested(value.scalar.type):
        return expr
    zone = expr.zone if isinstance(expr, tree.Call | tree.Cast) else value.zone
    return tree.Literal(value.scalar, zone)


def _pattern(call: tree.Call) -> tree.Expr:
    """A test for a constant pattern that was computed, such as ``k LIKE concat('a', '%')``."""
    texts = call.args[1:]
    constants = [text.scalar.as_py() for text in texts if isinstance(text, tree.Literal)]
    if not constants or len(constants) < len(texts):
        return call
    arg = call.args[0]
    text, *escape = constants
    if text is None:
        return tree.Constant(None)
    kind = _PATTERNS[call.name]
    valid = all(mark is None or (isinstance(mark, str) and len(mark) == 1) for mark in escape)
    if not isinstance(text, str) or not valid or len(escape) > (kind is None):
        return call
    if kind is not None:
        return tree.Match(kind, arg, text)
    return tree.Like(arg, text, escape[0] if escape else "\\", call.name == "ilike")


def _field(call: tree.Call, binder: Binder) -> tree.Expr | None:
    """The column of ``struct['field']``."""
    base, key = call.args
    if not isinstance(base, tree.Column) or not isinstance(key, tree.Literal):
        return None
    name, type = key.scalar.as_py(), _type_of(base.path, binder)
    is_field = isinstance(name, str) and type is not None and pa.types.is_struct(type)
    return tree.Column((*base.path, name)) if is_field else None


def _type_of(path: tuple[str, ...], binder: Binder) -> pa.DataType | None:
    try:
        return storage_type(binder.column(path).type)
    except UnknownColumnError:
        return None  # compiling reports the whole path


def _split_at_map(column: tree.Column, binder: Binder) -> tree.Expr:
    """``m.key`` of a map column as ``m['key']``."""
    for depth in range(1, len(column.path)):
        type = _type_of(column.path[:depth], binder)
        if type is not None and pa.types.is_map(type):
            item: tree.Expr = tree.Column(column.path[:depth])
            for number, name in enumerate(column.path[depth:]):
                item = tree.Call("getitem" if number == 0 else "getfield", (item, tree.lit(name)))
            return item
    return column


# What patterns of whole years, months and days write for years of four digits.
_DATE_PATTERNS = {
    "yyyy": r"(\d{4})()()",
    "yyyy-MM": r"(\d{4})-(\d\d)()",
    "yyyyMM": r"(\d{4})(\d\d)()",
    "yyyy-MM-dd": r"(\d{4})-(\d\d)-(\d\d)",
    "yyyyMMdd": r"(\d{4})(\d\d)(\d\d)",
}


def _dates_of_format(node: tree.Compare, binder: Binder) -> tree.Predicate | None:
    """``date_format(time, 'yyyy-MM') = '2026-01'`` as a range of dates, which metadata can judge."""
    match node:
        case tree.Compare(
            "=",
            tree.Call("date_format", (tree.Column(path) as column, tree.Literal(pattern)), zone),
            tree.Literal(text),
        ):
            type, digits = _type_of(path, binder), _DATE_PATTERNS.get(pattern.as_py())
        case _:
            return None
    known = type is not None and (pa.types.is_date32(type) or pa.types.is_timestamp(type))
    found = re.fullmatch(digits, str(text.as_py()), re.ASCII) if known and digits else None
    if found is None:
        return None
    year, month, day = (int(part) if part else None for part in found.groups())
    try:
        first = dt.date(year or 0, month or 1, day or 1)
        last = (
            first
            if day
            else dt.date(first.year, month or 12, calendar.monthrange(first.year, month or 12)[1])
        )
    except ValueError:
        return None  # no such date: never equal
    low, high = (tree.Literal(pa.scalar(date, pa.date32()), zone) for date in (first, last))
    return tree.Between(tree.Cast(column, pa.date32(), zone), low, high)
