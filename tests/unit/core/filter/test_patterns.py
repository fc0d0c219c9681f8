"""LIKE by pieces, where a pattern is too long for a regular expression."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.core.filter import RowFilter

LONG = 2_500
TEXTS = ["", "a", "b", "ab", "ba", "aab", "a\nb", "a%b", "a_b", "é", "aéb", "abab", "bbabba", "a" * 30, None]


def answer(pattern: str, texts: list[str | None], escape: str | None = "\\") -> list[bool | None]:
    table = pa.table({"s": pa.array(texts, pa.string())})
    true, null = RowFilter(sk.col("s").like(pattern, escape), table.schema).truth(table)
    return [None if missing else bool(held) for held, missing in zip(true, null, strict=True)]


@pytest.mark.parametrize("part", range(4))
def test_a_long_pattern_answers_as_the_short_one(part: int) -> None:
    """A run of % means what one of them does, and can be made as long as one likes."""
    rng = random.Random(part)
    seen = set()
    for _ in range(40):
        signs = [rng.choice(["%", "%", "_", "a", "b", "é", "\\%", "\\_"]) for _ in range(rng.randrange(1, 7))]
        signs.insert(rng.randrange(len(signs) + 1), "%")
        long = ["%" * LONG if sign == "%" else sign for sign in signs]
        short = answer("".join(signs), TEXTS)
        assert answer("".join(long), TEXTS) == short, signs
        seen.update(short)
    assert seen == {True, False, None}


def test_long_texts() -> None:
    text = "ab" * LONG
    texts = [text, text + "a", text[:-1] + "x", "x" + text[1:], text.upper()]
    assert answer(text, texts) == [True, False, False, False, False]
    assert answer("_" * len(text), texts) == [True, False, True, True, True]
    assert answer("ab%" * (LONG // 2), texts) == [True, True, True, False, False]
    assert answer("%a_" * LONG, texts) == [True, False, True, False, False]
    assert answer("!a!b" * LONG, texts, "!") == [True, False, False, False, False]
    ignoring = RowFilter(sk.col("s").ilike(text), pa.schema({"s": pa.string()}))
    assert ignoring.mask(pa.table({"s": texts})).tolist() == [True, False, False, False, True]
