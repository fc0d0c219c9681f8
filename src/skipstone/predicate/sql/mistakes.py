"""Errors for SQL text that can't be parsed: what is wrong, where, and the next step."""

from __future__ import annotations

import re

from skipstone.errors import ParseError, shorten

_CONDITION_ONLY = "write only the condition, the part after WHERE"

# Patterns of the text from the unexpected token on.
_AT: tuple[tuple[str, str], ...] = (
    (r"where\b", "leave out WHERE: write only the condition"),
    (r"(?:select|with|from)\b", f"{_CONDITION_ONLY}; choose columns with columns= or --columns"),
    (r"order\s+by\b", "leave out ORDER BY: use order_by= or --order-by"),
    (r"limit\b", "leave out LIMIT: use limit= or --limit"),
    (r"(?:group\s+by|having)\b", f"{_CONDITION_ONLY}; group rows with aggregate() or skipstone agg"),
    (r"&&", "use AND instead of &&"),
    (r"~", "use RLIKE for a regular expression: name RLIKE 'a.*'"),
    (r"=>", "use >= instead of =>"),
    (r"=<", "use <= instead of =<"),
    (r"(contains|startswith|endswith)\b", r"write {0} as a function: {0}(name, 'text')"),
    (r"\d{1,2}:\d\d", "quote a time: '2026-01-01 10:00:00'"),
    (r",\s*\d", "write a decimal with a point, and the values of a list in parentheses"),
    (r",", "join conditions with AND or OR"),
    (r"\)", "remove the closing parenthesis, or open one before it"),
    (r"[^\W\d]\w*\s*(?:[<>=!]|(?:not|in|like|between|is)\b)", "{name}"),
)
# A name before a token that can't follow it.
_NAME_BEFORE = re.compile(r"([^\W\d]\w*)\s+$")
_LOGIC = frozenset({"and", "or", "not", "is", "in", "like", "between"})


def parse_error(text: str, error: Exception, dialect: str) -> ParseError:
    """Convert an error of sqlglot's parser."""
    details = getattr(error, "errors", None)
    if not details:
        hint = "close the quote" if text.count("'") % 2 else "check quotes and comments"
        return ParseError(f"SQL can't be read: {shorten(text, 60)!r}", hint=hint)
    first = details[0]
    token, before, what = first["highlight"], first["start_context"], first["description"]
    column = first["col"] - max(len(token) - 1, 0)  # sqlglot reports the last column of the token
    place = f"at line {first['line']}, column {column}"
    if what.startswith("Required keyword"):
        return ParseError(f"operand is missing {place}, near {token!r}", hint="write a value or a column")
    if what.startswith("Expecting"):
        wanted = what.removeprefix("Expecting").strip()
        hint = "close the parenthesis" if wanted == ")" else f"add {wanted}"
        return ParseError(f"{wanted} is missing {place}, near {token!r}", hint=hint)
    if what.startswith("Expected TYPE"):
        hint = "use a type such as BIGINT, DOUBLE, STRING, DATE or TIMESTAMP"
        return ParseError(f"unknown type {token!r} {place}", hint=hint)
    if not what.startswith("Invalid expression"):
        return ParseError(f"{what[:1].lower()}{what[1:]} {place}, near {token!r}", hint=_JOIN)
    hint = _hint(before, token + first["end_context"], dialect)
    return ParseError(f"unexpected {token!r} {place}", hint=hint)


_JOIN = "join conditions with AND or OR, and quote strings: name = 'text'"


def _hint(before: str, rest: str, dialect: str) -> str:
    for pattern, hint in _AT:
        found = re.match(pattern, rest, re.IGNORECASE)
        if found is None:
            continue
        if hint != "{name}":
            return hint.format(*found.groups())
        first = _NAME_BEFORE.search(before)
        if first and first[1].lower() not in _LOGIC:
            quote = "`" if dialect in ("spark", "hive") else '"'
            second = re.match(r"\w+", rest)
            assert second is not None
            return f"quote a name that contains a space: {quote}{first[1]} {second[0]}{quote}"
    return _JOIN
