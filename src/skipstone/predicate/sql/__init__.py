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
from skipstone.predicate.sql.types import check_dialect, syntax, zone_info

__all__ = ["parse_sql"]

Template = Callable[[Sequence[pa.Scalar]], Any]
"""Builds a tree from the literals of a condition."""

# Integers that fit a bigint, and strings without quotes or escapes.
_LITERAL = re.compile(r"(?<![\w.'])(?:(\d{1,18})(?![\w.])|'([^'\\]*)'(?!'))", re.ASCII)
_NUMBER, _STRING = "\x01", "\x02"
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
    if len(text) > _MAX_LENGTH or _NUMBER in text or _STRING in text:
        return _parse(text, dialect, zone)
    literals: list[pa.Scalar] = []

    def extract(match: re.Match[str]) -> str:
        number, string = match.groups()
        literals.append(string_scalar(string) if number is None else int_scalar(int(number)))
        return _STRING if number is None else _NUMBER

    template = _template(_LITERAL.sub(extract, text), dialect, zone)
    if template is None:
        return _parse(text, dialect, zone)
    filled: tree.Predicate = template(literals)
    return filled


def _parse(text: str, dialect: str, zone: str) -> tree.Predicate:
    return SqlReader(dialect, zone).condition(syntax(text, dialect))


@functools.lru_cache(maxsize=_MAX_SHAPES)
def _template(shape: str, dialect: str, zone: str) -> Template | None:
    """Template of a shape, or None if the shape must be parsed each time."""
    markers: list[int | str] = []

    def insert_marker(match: re.Match[str]) -> str:
        number = match[0] == _NUMBER
        markers.append(918_273_645_000 + len(markers) if number else f"literal {len(markers)} of a shape")
        return str(markers[-1]) if number else f"'{markers[-1]}'"

    text = re.sub(f"[{_NUMBER}{_STRING}]", insert_marker, shape)
    try:
        positions: list[int] = []
        template = _compile(_parse(text, dialect, zone), markers, positions)
    except SkipstoneError:
        return None
    return template if sorted(positions) == list(range(len(markers))) else None


def _compile(node: tree.Expr, markers: Sequence[int | str], positions: list[int]) -> Template:
    """Template of ``node``; the indexes of its markers are appended to ``positions``."""
    match node:
        case tree.Literal(scalar, zone) if scalar.type in (pa.int64(), pa.string()):
            value = scalar.as_py()
            if value in markers:
                position = markers.index(value)
                positions.append(position)
                return lambda literals: tree.Literal(literals[position], zone)
        case tree.Compare(op, left, right):
            x, y = _compile(left, markers, positions), _compile(right, markers, positions)
            return lambda literals: tree.Compare(op, x(literals), y(literals))
        case tree.Between(arg, low, high, low_inclusive, high_inclusive):
            x, lower, upper = (_compile(part, markers, positions) for part in (arg, low, high))
            return lambda literals: tree.Between(
                x(literals), lower(literals), upper(literals), low_inclusive, high_inclusive
            )
        case tree.And(args) | tree.Or(args):
            kind = type(node)
            parts = [_compile(arg, markers, positions) for arg in args]
            return lambda literals: kind(tuple([part(literals) for part in parts]))
        case tree.Not(arg):
            inner = _compile(arg, markers, positions)
            return lambda literals: tree.Not(inner(literals))
    # The structure of any other node can depend on the literal's value.
    return lambda _: node
