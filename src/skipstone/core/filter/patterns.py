"""What a text ends with or has in it, and LIKE."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.filter.series import cannot
from skipstone.core.filter.texts import lower_case
from skipstone.core.filter.truth import Truth
from skipstone.predicate import tree
from skipstone.predicate.foreign import like_pieces, like_regex

Test = Callable[[pa.Array], Truth]
_LONG = 2_000
"""Characters of a LIKE pattern up to which a regular expression does it."""


def match_test(match: tree.Match, type: pa.DataType) -> Test:
    """A plain text at the end of a text, or anywhere in it."""
    if not (is_text(type) or is_binary(type)):
        raise cannot(match, f"{type} is not text")
    kernel = {"prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}[match.kind]
    text = match.text.encode("utf-8", "surrogatepass") if isinstance(match.text, str) else match.text
    if not text:
        return lambda array: Truth.of(pc.if_else(array.is_valid(), True, pa.scalar(None, pa.bool_())))
    return lambda array: Truth.of(kernel(_bytes(array), text))


def _bytes(array: pa.Array) -> pa.Array:
    """As bytes, so that a part of a character is no match error and binary columns do the same."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    if pa.types.is_large_string(array.type):
        return array.view(pa.large_binary())
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def like_test(like: tree.Like, type: pa.DataType) -> Test:
    """LIKE by the plainest kernel that does it."""
    if not is_text(type):
        raise cannot(like, f"{type} is not text")
    if like.ignore_case:
        escape = like.escape.lower() if like.escape else like.escape
        inner = like_test(tree.Like(like.arg, like.pattern.lower(), escape), type)
        return lambda array: inner(lower_case(array))
    plain = like.pattern
    body = plain.strip("%")
    escapes = "\\" in plain or (like.escape and like.escape in plain)
    if body and "%" not in body and "_" not in body and plain.startswith("%") and not escapes:
        kind: tree.MatchKind = "contains" if plain.endswith("%") else "suffix"
        return match_test(tree.Match(kind, like.arg, body), type)
    if len(plain) > _LONG:
        return _long_like(like)
    regex = like_regex(like)
    return lambda array: Truth.of(pc.match_substring_regex(array, regex))


def _long_like(like: tree.Like) -> Test:
    """A pattern that RE2 would refuse, or be slow with: its pieces between the %, each at its first place.

    Few texts are as long as such a pattern: the others are no match without being looked at.
    """
    first, *rest = like_pieces(like)
    shortest = len(first) + sum(map(len, rest))

    def holds(text: str) -> bool:
        if not rest:
            return len(text) == shortest and _is_at(first, text, 0)
        if not _is_at(first, text, 0):
            return False
        at = len(first)
        for piece in rest[:-1]:
            at = _find(piece, text, at)
            if at < 0:
                return False
            at += len(piece)
        end = len(text) - len(rest[-1])
        return at <= end and _is_at(rest[-1], text, end)

    def test(array: pa.Array) -> Truth:
        answers = pc.greater_equal(pc.utf8_length(array), shortest).to_pylist()
        for at, long in enumerate(answers):
            if long:
                answers[at] = holds(array[at].as_py())
        return Truth.of(pa.array(answers, pa.bool_()))

    return test


def _is_at(piece: Sequence[str | None], text: str, at: int) -> bool:
    return len(text) - at >= len(piece) and all(s in (None, text[at + n]) for n, s in enumerate(piece))


def _find(piece: Sequence[str | None], text: str, at: int) -> int:
    """Where a piece first stands in a text, from a place on; -1 if nowhere."""
    if None not in piece:
        return text.find("".join(map(str, piece)), at)
    found = re.compile("".join("." if s is None else re.escape(s) for s in piece), re.DOTALL).search(text, at)
    return -1 if found is None else found.start()
