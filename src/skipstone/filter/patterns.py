"""What a text ends with or has in it, and LIKE."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.domain.keys import is_binary, is_text
from skipstone.filter.series import cannot
from skipstone.filter.texts import lower_case
from skipstone.filter.truth import Truth
from skipstone.predicate import tree
from skipstone.predicate.foreign import like_regex

Test = Callable[[pa.Array], Truth]


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
    regex = like_regex(like)
    plain = like.pattern
    if "\\" in plain or (like.escape and like.escape in plain):
        return lambda array: Truth.of(pc.match_substring_regex(array, regex))
    body = plain.strip("%")
    if body and "%" not in body and "_" not in body and plain.startswith("%"):
        kind: tree.MatchKind = "contains" if plain.endswith("%") else "suffix"
        return match_test(tree.Match(kind, like.arg, body), type)
    return lambda array: Truth.of(pc.match_substring_regex(array, regex))
