"""SQL parser; ``write`` is the inverse.

Parsed conditions are cached by shape (the text without its plain literals), so conditions that differ only
in their literals are parsed once. The first condition of a shape is parsed with a marker for each literal. If
every marker ends up as an operand of a comparison, the tree becomes a template, to be filled with the
literals of later conditions; other shapes are parsed each time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from skipstone.core.plain import int_scalar, string_scalar
from skipstone.errors import ParseError, SkipstoneError
from skipstone.predicate import tree
from skipstone.predicate.sql.read import SqlReader
from skipstone.predicate.sql.types import check_dialect, date_value, syntax, timestamp_value, zone_info

__all__ = ["parse_sql"]

Template = Callable[[Sequence[str]], Any]
"""Builds a tree from the literals of a condition."""

# Integers that fit a bigint, dates and times without a zone, and other strings without quotes or escapes.
_LITERAL = re.compile(
    r"(?<![\w.'])(?:(\d{1,18})(?![\w.])"
    r"|'(\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d{1,6})?)?)'(?!')"
    r"|'([^'\\]*)'(?!'))",
    re.ASCII,
)
_NUMBER, _STRING = "\x01", "\x02"
# In some dialects the number of digits decides the type, so times of different lengths differ in shape.
_TIMES = [chr(0xE000 + length) for length in range(27)]
_MARK = re.compile(f"[{_NUMBER}{_STRING}{''.join(_TIMES)}]")
_MAX_LITERALS = 900
_MAX_SHAPES = 1_024
_MAX_LENGTH = 2_048


def parse_sql(text: str, dialect: str = "spark", tz: str = "UTC") -> tree.Predicate:
    """Parse one SQL condition; zoneless timestamps are in the time zone ``tz``."""
    name = check_dialect(dialect)
    zone_info(tz)
    try:
        return _condition(text, name, tz)
    except RecursionError:
        raise ParseError("SQL condition is nested too deeply", hint="use fewer parentheses") from None


def _condition(text: str, dialect: str, zone: str) -> tree.Predicate:
    if len(text) > _MAX_LENGTH or _MARK.search(text):
        return _parse(text, dialect, zone)
    literals: list[str] = []

    def extract(match: re.Match[str]) -> str:
        number, time, string = match.groups()
        literals.append(number or time or string or "")
        return _NUMBER if number else _STRING if time is None else _TIMES[len(time)]

    template = _template(_LITERAL.sub(extract, text), dialect, zone)
    if template is None:
        return _parse(text, dialect, zone)
    try:
        filled: tree.Predicate = template(literals)
    except ValueError:
        # No such day or time of day: the parser reports it.
        return _parse(text, dialect, zone)
    return filled


def _parse(text: str, dialect: str, zone: str) -> tree.Predicate:
    return SqlReader(dialect, zone).condition(syntax(text, dialect))


@functools.lru_cache(maxsize=_MAX_SHAPES)
def _template(shape: str, dialect: str, zone: str) -> Template | None:
    """Template of a shape, or None if the shape must be parsed each time."""
    markers: list[tuple[str, str]] = []

    def insert_marker(match: re.Match[str]) -> str:
        kind, number = match[0], len(markers)
        if kind in _TIMES:
            marker = f"{9_000 + number}-01-02 03:04:05.666666"[: _TIMES.index(kind)]
        else:
            marker = str(918_273_645_000 + number) if kind == _NUMBER else f"literal {number} of a shape"
        markers.append((kind, marker))
        return marker if kind == _NUMBER else f"'{marker}'"

    text = _MARK.sub(insert_marker, shape)
    if len(markers) > _MAX_LITERALS:
        return None
    try:
        positions: list[int] = []
        template = _compile(_parse(text, dialect, zone), markers, zone, positions)
    except SkipstoneError:
        return None
    return template if sorted(positions) == list(range(len(markers))) else None


def _compile(
    node: tree.Expr, markers: Sequence[tuple[str, str]], zone: str, positions: list[int]
) -> Template:
    """Template of ``node``; the indexes of its markers are appended to ``positions``."""
    match node:
        case tree.Literal(scalar, own_zone):
            for position, (kind, marker) in enumerate(markers):
                convert = _converter(kind, scalar.type, zone)
                if convert is not None and convert(marker).equals(scalar):
                    positions.append(position)
                    return lambda literals: tree.Literal(convert(literals[position]), own_zone)
        case tree.Compare(op, left, right, own_zone):
            x, y = _compile(left, markers, zone, positions), _compile(right, markers, zone, positions)
            return lambda literals: tree.Compare(op, x(literals), y(literals), own_zone)
        case tree.Between(arg, low, high, low_inclusive, high_inclusive, own_zone):
            x, lower, upper = (_compile(part, markers, zone, positions) for part in (arg, low, high))
            return lambda literals: tree.Between(
                x(literals), lower(literals), upper(literals), low_inclusive, high_inclusive, own_zone
            )
        case tree.And(args) | tree.Or(args):
            join = type(node)
            parts = [_compile(arg, markers, zone, positions) for arg in args]
            return lambda literals: join(tuple([part(literals) for part in parts]))
        case tree.Not(arg):
            inner = _compile(arg, markers, zone, positions)
            return lambda literals: tree.Not(inner(literals))
    # The structure of any other node can depend on the literal's value.
    return lambda _: node


def _converter(kind: str, type: pa.DataType, zone: str) -> Callable[[str], pa.Scalar] | None:
    """Function from a literal's text to a value of ``type``; raises ValueError if there is none."""
    if kind == _NUMBER:
        return (lambda text: int_scalar(int(text))) if type == pa.int64() else None
    if type == pa.string():
        return string_scalar
    if kind in _TIMES and type == pa.date32():
        return date_value
    if kind in _TIMES and pa.types.is_timestamp(type):
        return lambda text: timestamp_value(text, type, zone)
    return None
