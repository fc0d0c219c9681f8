"""One regular expression for records of a schema: built from the lengths and counts that were met before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from skipstone.iceberg.manifests.avro import Node, write_long
from skipstone.iceberg.manifests.walk import SHORT, SIZES, Form, Step, is_plain

_NUMBER = rb"(?:%b|[\x80-\xff]{9}[\x00\x01])" % SHORT
_NEVER = rb"(?!)"
_MOST_LENGTHS = 96
_MOST_COUNTS = 12
# Texts that vary have more lengths than this among a few entries; numbers as bytes have fewer.
_FEW_LENGTHS = 6
_NARROW = 48
_MARGIN = 3
_SHORT_ITEM = 100


class _Unpatterned(Exception):
    """A type that no pattern can cut."""


def compile_steps(steps: Sequence[Step]) -> Any:
    """A match function for the records that steps walk; None if no pattern can be made."""
    try:
        return re.compile(b"".join(_step_pattern(step) for step in steps), re.DOTALL).match
    except (_Unpatterned, RecursionError, OverflowError):
        return None


def _step_pattern(step: Step) -> bytes:
    node, form = step.node, step.form
    if step.inner:
        inner = b"".join(map(_step_pattern, step.inner))
        if node.kind == "record":
            return inner
        return _union([inner if part.kind == "record" else _NEVER for part in node.parts])
    if step.slot is None:
        return _pattern(node)
    if form is Form.RAW:
        return b"(%b)" % _pattern(node)
    if node.kind != "union":
        return _captured(node, form)
    # A group can stand in a pattern only once: of a union's branches, one may hold the value.
    if sum(part.kind != "null" for part in node.parts) != 1:
        raise _Unpatterned
    return _union([b"" if part.kind == "null" else _captured(part, form) for part in node.parts])


def _captured(node: Node, form: Form) -> bytes:
    if not is_plain(node, form):
        raise _Unpatterned
    return b"(%b)" % _pattern(node)


def _pattern(node: Node) -> bytes:
    match node.kind:
        case "int" | "long":
            return _NUMBER
        case "bytes" | "string":
            return _alternatives(
                re.escape(write_long(length)) + rb".{%d}" % length for length in _lengths(node)
            )
        case "union":
            return _union([_pattern(part) for part in node.parts])
        case "record":
            return b"".join(_pattern(part) for part in node.parts)
        case "array" | "map":
            key = b"" if node.kind == "array" else _NEVER
            # Counts and sizes have fewer bits, and items are many.
            item = key + _pattern(node.parts[0]).replace(_NUMBER, SHORT)
            met = dict(node.seen)
            counts = sorted(met, key=lambda n: -met[n])[:_MOST_COUNTS]
            blocks = (re.escape(write_long(n)) + _times(item, n) + rb"\x00" for n in counts)
            return _alternatives((*blocks, rb"\x00"))
        case "null":
            return b""
        case "boolean":
            return rb"[\x00\x01]"
        case "enum":
            raise _Unpatterned
    return rb".{%d}" % SIZES.get(node.kind, node.size)


def _times(item: bytes, count: int) -> bytes:
    """An item again and again; two at a time, if it is short, are matched faster."""
    if len(item) > _SHORT_ITEM:
        return rb"(?:%b){%d}" % (item, count)
    return rb"(?:%b){%d}" % (item * 2, count // 2) + item * (count % 2)


def _lengths(node: Node) -> list[int]:
    """Lengths to expect, the common ones first: those met, and those near them if they are close together."""
    met = dict(node.seen)
    if len(met) > _FEW_LENGTHS and max(met) - min(met) <= _NARROW:
        near = range(max(0, min(met) - _MARGIN), max(met) + _MARGIN + 1)
        met = {length: met.get(length, 0) for length in near}
    return sorted(met, key=lambda length: -met[length])[:_MOST_LENGTHS]


def _union(patterns: list[bytes]) -> bytes:
    return _alternatives(re.escape(write_long(i)) + pattern for i, pattern in enumerate(patterns))


def _alternatives(patterns: Iterable[bytes]) -> bytes:
    return b"(?:%b)" % (b"|".join(patterns) or _NEVER)
