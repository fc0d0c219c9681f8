"""SQL text to a Predicate; ``write`` has the way back."""

from __future__ import annotations

from skipstone.errors import ParseError
from skipstone.predicate import tree
from skipstone.predicate.sql.shape import parse_condition
from skipstone.predicate.sql.types import known_dialect, zone_info

__all__ = ["parse_sql"]


def parse_sql(text: str, dialect: str = "spark", tz: str = "UTC") -> tree.Predicate:
    """One SQL condition as a Predicate; zoneless timestamps take the zone ``tz``."""
    name = known_dialect(dialect)
    zone_info(tz)
    try:
        return parse_condition(text, name, tz)
    except RecursionError:
        raise ParseError("the condition is nested too deeply", hint="flatten its parentheses") from None
