"""Conditions cached by shape: filling a template returns the same tree as parsing."""

from __future__ import annotations

import random
import re

import pytest

import skipstone as sk
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.sql.read import SqlReader
from skipstone.predicate.sql.types import DIALECTS, syntax

NUMBERS = ("0", "7", "007", "42", "999999999999999999", "9223372036854775807", "1.5", "1e3", ".5", "5.", "-3")
STRINGS = (
    "'a'",
    "''",
    "'it''s'",
    r"'a\'b'",
    "'2026-01-01'",
    "'2026-13-45'",
    "'2026-03-29 02:30:00'",
    "'2026-01-01 10:20:30.123456'",
    "'2026-01-01 10:20:30.1234567'",
    "'2026-01-01 25:00:00'",
    "'2026-01-01 10:20:30+01:00'",
    "'a' 'b'",
    "'5'",
    "'-- x'",
    "'é'",
    "'a\nb'",
    "x'0a'",
)
# Each {n} is a number and each {s} a string; in some of them the literal decides what the tree is like.
CONDITIONS = (
    "a = {n}",
    "{n} < a",
    "a-{n} > {n}",
    "s = {s}",
    "s <=> {s}",
    "a between {n} and {n}",
    "a not between {n} and {n}",
    "a in ({n}, {n})",
    "s in ({s}, {n})",
    "s like {s}",
    "substr(s, {n}, {n}) = {s}",
    "cast(a as decimal(10, 2)) = {n}",
    "cast({s} as string) = s",
    "cast({n} as bigint) = a",
    "ts >= timestamp {s}",
    "d = date {s}",
    "ts > {s}",
    "ts between timestamp {s} and timestamp {s}",
    "d < cast({s} as date)",
    "cast({s} as timestamp) <= ts",
    "a{n} = {n}",
    "a = {n} -- {n}",
    "`a {n}` = {n}",
    '"b" = {s} and c = {n}',
    "tags[{n}] = {s}",
    "case a when {n} then {s} else {s} end = {s}",
    "{n} = {n}",
    "{s} = {s}",
    "a is null or not a <> {n}",
)


def outcome(parse: object, text: str, dialect: str) -> str:
    try:
        return repr(parse(text, dialect).key())  # type: ignore[operator]
    except sk.SkipstoneError as error:
        return f"{type(error).__name__}: {error}"


def parsed(text: str, dialect: str) -> sk.Predicate:
    return SqlReader(dialect, "UTC").condition(syntax(text, dialect))


def by_shape(text: str, dialect: str) -> sk.Predicate:
    return parse_sql(text, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_tree_is_the_one_that_parsing_gives(dialect: str) -> None:
    rng = random.Random(f"shapes of {dialect}")
    for _ in range(250):
        parts = [_filled(rng, rng.choice(CONDITIONS)) for _ in range(rng.choice((1, 1, 2, 3)))]
        text = rng.choice((" and ", " or ", " AND NOT ")).join(parts)
        assert outcome(by_shape, text, dialect) == outcome(parsed, text, dialect), text


def _filled(rng: random.Random, condition: str) -> str:
    pools = {"{n}": NUMBERS, "{s}": STRINGS}
    return re.sub(r"\{[ns]\}", lambda slot: rng.choice(pools[slot[0]]), condition)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_times_take_the_zone(dialect: str) -> None:
    def parse(text: str, dialect: str) -> sk.Predicate:
        return SqlReader(dialect, "Europe/Paris").condition(syntax(text, dialect))

    for time in ("2026-01-01", "2026-03-29 02:30:00", "2026-10-25 02:30:00.5", "1850-07-01 00:00:00"):
        text = f"ts >= timestamp '{time}' and d < date '{time}'"
        assert outcome(lambda text, dialect: parse_sql(text, dialect, "Europe/Paris"), text, dialect) == (
            outcome(parse, text, dialect)
        )


def test_the_second_text_of_a_shape_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(SqlReader, "condition", _counting(asked))
    for key in (11, 12, 13):
        assert str(sk.parse(f"shaped_once = {key} and name = 'k{key}'")) == (
            f"shaped_once = {key} AND name = 'k{key}'"
        )
    assert len(asked) == 3  # AND and its two conditions, of the marked text alone
    asked.clear()
    for day in (11, 12, 13):
        sk.parse(f"shaped_once >= timestamp '2026-01-{day} 00:00:00' and d < date '2026-02-{day}'")
    assert len(asked) == 3


def _counting(asked: list[str]) -> object:
    plain = SqlReader.condition

    def condition(self: SqlReader, node: object) -> sk.Predicate:
        asked.append(str(node))
        return plain(self, node)  # type: ignore[arg-type]

    return condition
