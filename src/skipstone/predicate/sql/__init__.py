"""SQL text to a Predicate; ``write`` has the way back.

Conditions are kept by shape, so that texts that differ only in their literals are parsed once. A text's shape
is the text without its plain literals. The first text of a shape is parsed with a marker in place of each
literal. If each marker comes back as one side of a comparison, the tree of any other text of that shape is
this tree with the text's own literals in place of the markers; other shapes are parsed each time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from skipstone.core.plain import int_scalar, text_scalar
from skipstone.errors import ParseError, SkipstoneError
from skipstone.predicate import tree
from skipstone.predicate.sql.read import SqlReader
from skipstone.predicate.sql.types import check_dialect, syntax, zone_info

__all__ = ["parse_sql"]

Fill = Callable[[Sequence[pa.Scalar]], Any]
"""Makes a tree from the literals of a text."""

# Whole numbers that fit a bigint, and strings without quotes or escapes in them.
_LITERAL = re.compile(r"(?<![\w.'])(?:(\d{1,18})(?![\w.])|'([^'\\]*)'(?!'))", re.ASCII)
_NUMBER, _STRING = "\x01", "\x02"
_SHAPES = 1_024
_LONGEST = 2_048


def parse_sql(text: str, dialect: str = "spark", tz: str = "UTC") -> tree.Predicate:
    """One SQL condition as a Predicate; zoneless timestamps take the zone ``tz``."""
    name = check_dialect(dialect)
    zone_info(tz)
    try:
        return _condition(text, name, tz)
    except RecursionError:
        raise ParseError("the condition is nested too deeply", hint="flatten its parentheses") from None


def _condition(text: str, dialect: str, zone: str) -> tree.Predicate:
    """One SQL condition, by its shape where that is known."""
    if len(text) > _LONGEST or _NUMBER in text or _STRING in text:
        return _parse(text, dialect, zone)
    literals: list[pa.Scalar] = []

    def take_out(match: re.Match[str]) -> str:
        number, string = match.groups()
        literals.append(text_scalar(string) if number is None else int_scalar(int(number)))
        return _STRING if number is None else _NUMBER

    fill = _template(_LITERAL.sub(take_out, text), dialect, zone)
    if fill is None:
        return _parse(text, dialect, zone)
    found: tree.Predicate = fill(literals)
    return found


def _parse(text: str, dialect: str, zone: str) -> tree.Predicate:
    return SqlReader(dialect, zone).condition(syntax(text, dialect))


@functools.lru_cache(maxsize=_SHAPES)
def _template(shape: str, dialect: str, zone: str) -> Fill | None:
    """The tree of a shape, to be filled with literals; None for a shape that must be parsed every time."""
    markers: list[int | str] = []

    def put_in(match: re.Match[str]) -> str:
        number = match[0] == _NUMBER
        markers.append(918_273_645_000 + len(markers) if number else f"literal {len(markers)} of a shape")
        return str(markers[-1]) if number else f"'{markers[-1]}'"

    text = re.sub(f"[{_NUMBER}{_STRING}]", put_in, shape)
    try:
        found: list[int] = []
        fill = _filler(_parse(text, dialect, zone), markers, found)
    except SkipstoneError:
        return None
    return fill if sorted(found) == list(range(len(markers))) else None


def _filler(node: tree.Expr, markers: Sequence[int | str], found: list[int]) -> Fill:
    """What makes ``node`` from literals; the numbers of the markers in it are added to ``found``."""
    match node:
        case tree.Literal(scalar, zone) if scalar.type in (pa.int64(), pa.string()):
            held = scalar.as_py()
            if held in markers:
                place = markers.index(held)
                found.append(place)
                return lambda literals: tree.Literal(literals[place], zone)
        case tree.Compare(op, left, right):
            one, other = _filler(left, markers, found), _filler(right, markers, found)
            return lambda literals: tree.Compare(op, one(literals), other(literals))
        case tree.Between(arg, low, high, low_inclusive, high_inclusive):
            value, least, most = (_filler(part, markers, found) for part in (arg, low, high))
            return lambda literals: tree.Between(
                value(literals), least(literals), most(literals), low_inclusive, high_inclusive
            )
        case tree.And(args) | tree.Or(args):
            kind = type(node)
            parts = [_filler(arg, markers, found) for arg in args]
            return lambda literals: kind(tuple([part(literals) for part in parts]))
        case tree.Not(arg):
            inner = _filler(arg, markers, found)
            return lambda literals: tree.Not(inner(literals))
    # Whatever else holds a marker may depend on the literal's value.
    return lambda _: node
