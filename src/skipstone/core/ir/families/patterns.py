"""Prefixes, suffixes and LIKE: how a text starts is a range of bytes."""

from __future__ import annotations

import pyarrow as pa

from skipstone.core.domain import Domain
from skipstone.core.domain.keys import (
    is_binary,
    is_text,
    key_space,
    storage_type,
)
from skipstone.core.domain.spans import ByteSpans, prefix_end
from skipstone.core.ir.literals import text_key
from skipstone.core.ir.lower import Lowering, lower_node, null_for_null
from skipstone.core.ir.nodes import (
    ColumnRef,
    Node,
    Reason,
)
from skipstone.core.ir.operands import CantJudge
from skipstone.errors import TypeMismatchError
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate


@lower_node.register
def _(predicate: tree.Match, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if not isinstance(operand, ColumnRef):
        raise CantJudge(Reason.FUNCTION, "a pattern on a constant")
    return _text_leaf(
        predicate, to, operand, pa.scalar(predicate.text), exact=predicate.kind == "prefix", ends=False
    )


@lower_node.register
def _(predicate: tree.Like, to: Lowering) -> Node:
    operand = to.column(predicate.arg)
    if not isinstance(operand, ColumnRef):
        raise CantJudge(Reason.FUNCTION, "a pattern on a constant")
    start, rest = like_prefix(predicate.pattern, predicate.escape)
    if predicate.ignore_case:
        start, rest = "", "%_"
    prefix = pa.scalar(start)
    if rest == "":
        return _text_leaf(predicate, to, operand, prefix, exact=True, ends=True)
    return _text_leaf(predicate, to, operand, prefix, exact=rest.strip("%") == "", ends=False)


def like_prefix(pattern: str, escape: str | None) -> tuple[str, str]:
    """The plain text a LIKE pattern starts with, and the pattern from its first wildcard on."""
    plain: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape:
            if at + 1 == len(pattern):
                raise TypeMismatchError(f"LIKE pattern {pattern!r} ends with its escape character")
            plain.append(pattern[at + 1])
            at += 2
            continue
        if char in "%_":
            return "".join(plain), pattern[at:]
        plain.append(char)
        at += 1
    return "".join(plain), ""


def _text_leaf(
    predicate: Predicate, to: Lowering, ref: ColumnRef, start: pa.Scalar, *, exact: bool, ends: bool
) -> Node:
    """A condition on how a text starts: exactly that, or (not exact) at least that."""
    type = storage_type(ref.out)
    if not (is_text(type) or is_binary(type)):
        raise CantJudge(Reason.TYPES, f"{ref.out} is converted to text row by row")
    not_null = Domain.not_null(ref.out)
    matching_all = isinstance(predicate, tree.Match) and predicate.kind != "prefix"
    key = b"" if matching_all else text_key(type, start)
    space = key_space(ref.out)
    spans = ByteSpans.of_points(space, [key]) if ends else ByteSpans.of(space, [(key, prefix_end(key))])
    true = Domain.of_spans(ref.out, spans)
    if exact:
        return null_for_null(ref, true, predicate)
    if not key:
        to.note(predicate, Reason.PATTERN, "bounds say nothing about it")
    return null_for_null(ref, true, predicate, false=not_null)
