from __future__ import annotations

import pyarrow as pa
import pytest

from skipstone.core.filter import RowFilter
from skipstone.errors import NotExpressibleError
from skipstone.predicate.sql import parse_sql

TEXTS = [
    "n1",
    "xn2y",
    "n4",
    "",
    None,
    "a\n",
    "a\r\n",
    "a\nb",
    "a.c",
    "abc",
    "a\x0bb",
    "aé1",
    "A1",
    "a]b",
    "aab",
]
TABLE = pa.table({"s": TEXTS})


def found(pattern: str) -> list[str]:
    where = parse_sql("s rlike '" + pattern.replace("\\", "\\\\") + "'")
    true, null = RowFilter(where, TABLE.schema).truth(TABLE)
    assert null.tolist() == [text is None for text in TEXTS]
    return [text for text, yes in zip(TEXTS, true, strict=True) if yes]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("n[1-3]", ["n1", "xn2y"]),
        ("^n[1-3]$", ["n1"]),
        ("a$", ["a\n", "a\r\n"]),
        ("^a.b", ["a\x0bb", "a]b", "aab"]),
        ("a\\.c", ["a.c"]),
        ("a\\sb", ["a\nb", "a\x0bb"]),
        ("a[\\s.]", ["a\n", "a\r\n", "a\nb", "a.c", "a\x0bb"]),
        ("^(?:a|x).{1,2}$", ["a.c", "abc", "a\x0bb", "aé1", "a]b", "aab"]),
        ("a{2}b+?", ["aab"]),
        ("^[^\\d]+$", ["a\n", "a\r\n", "a\nb", "a.c", "abc", "a\x0bb", "a]b", "aab"]),
        ("^$", [""]),
        ("[\\]]", ["a]b"]),
        ("é", ["aé1"]),
    ],
)
def test_supported_patterns(pattern, wanted):
    assert found(pattern) == wanted


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)a",
        "(?=a)",
        "(?<n>a)",
        "\\bn",
        "a\\1",
        "a++",
        "a{,3}",
        "[[a]b]",
        "[a&&b]",
        "[]a]",
        "a$b",
        "\\p{L}",
        "[a",
        "(",
        "\\Z",
        "\\",
    ],
)
def test_unsupported_patterns(pattern):
    with pytest.raises(NotExpressibleError, match="rlike"):
        found(pattern)


def test_a_pattern_must_be_constant():
    with pytest.raises(NotExpressibleError, match="constant pattern"):
        RowFilter(parse_sql("s rlike s"), TABLE.schema)
