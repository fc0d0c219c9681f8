"""Reserved words are names of columns without quotes, where Spark takes them."""

from __future__ import annotations

import pytest

import skipstone as sk

WORDS = [
    *("when", "then", "from", "select", "where", "values", "union", "using", "distinct", "cross", "any"),
    *("between", "like", "not", "case", "else", "and", "or", "join", "on", "order", "group", "limit"),
    *("having", "all", "table", "interval", "set", "with", "as", "inner", "left", "offset", "window", "over"),
]
FORMS = (
    "{} = 1",
    "{} IN (1, 2) AND a > {}",
    "NOT ({} IS NULL OR {} BETWEEN 1 AND 2)",
    "CASE WHEN {} = 1 THEN {} ELSE 0 END = 1",
    "a = 1 OR {} <> 3",
)


@pytest.mark.parametrize("word", WORDS)
def test_words_are_columns(word: str) -> None:
    tried = 0
    for form in FORMS:
        logic = word in ("not", "and", "or") and "{} " in form.replace("{} = 1", "").replace("{} <> 3", "")
        if logic or (word in ("case", "when", "then", "else") and "CASE" in form):
            continue  # a word of the syntax around it, which it stays
        tried += 1
        assert sk.parse(form.replace("{}", word)) == sk.parse(form.replace("{}", f"`{word}`"))
    assert tried >= 2


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("select a from t where b = 1", 1),
        ("where a = 1", 1),
        ("a = 1 order by b", 7),
        ("a = 1 and and b = 2", 11),
        ("like 'x%'", 6),
    ],
)
def test_other_uses_are_still_errors(text: str, column: int) -> None:
    with pytest.raises(sk.ParseError, match=f"column {column}"):
        sk.parse(text)


def test_other_dialects_keep_their_reserved_words() -> None:
    with pytest.raises(sk.ParseError):
        sk.parse("from = 1", dialect="duckdb")
