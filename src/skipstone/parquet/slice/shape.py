"""Where each top-level field's schema stands in a footer's bytes, and which leaves it has.

Schema elements are copied into a slice as they are, whatever logical types they use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.shell import _skip, _UnusualFooterError, _varint

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMA: Final = 2
_LIST: Final = 9
_STRUCT: Final = 12
_LONG_LIST: Final = 15
_TYPE, _NUM_CHILDREN = 1, 5


@dataclass(frozen=True, slots=True)
class TopField:
    """A top-level field: its raw schema elements, its leaves, and whether they can be read one by one."""

    raw: bytes
    elements: int
    leaves: range
    mergeable: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """All top-level fields of a file, and for each leaf which field it belongs to."""

    fields: tuple[TopField, ...]
    owners: tuple[int, ...]


def shape_of(metadata: ParquetMetadata) -> Shape | None:
    """The shape of a file, None when its footer can't be taken apart so; made once per footer."""
    if "slice shape" not in metadata.kin.memo:
        metadata.kin.memo["slice shape"] = _shape(metadata)
    found: Shape | None = metadata.kin.memo["slice shape"]
    return found


def leaf_count(type: pa.DataType) -> int:
    """How many stored columns a type has."""
    import pyarrow as pa

    if isinstance(type, pa.BaseExtensionType):
        return leaf_count(type.storage_type)
    if not pa.types.is_nested(type):
        return 1
    return sum(leaf_count(type.field(i).type) for i in range(type.num_fields)) if type.num_fields else 0


def _shape(metadata: ParquetMetadata) -> Shape | None:
    try:
        fields = _top_fields(metadata.footer, metadata.arrow_schema)
    except (_UnusualFooterError, IndexError, RecursionError):
        return None
    owners = tuple(number for number, field in enumerate(fields) for _ in field.leaves)
    if len(fields) != len(metadata.arrow_schema) or len(owners) != len(metadata.leaves):
        return None
    if not all(field.leaves for field in fields):
        return None
    return Shape(tuple(fields), owners)


def _top_fields(footer: bytes, schema: pa.Schema) -> list[TopField]:
    size, position = _schema_list(footer)
    _, _, position = _element(footer, position)
    fields: list[TopField] = []
    seen, leaf = 1, 0
    while seen < size:
        start, first, elements, pending = position, leaf, 0, 1
        while pending:
            is_leaf, children, position = _element(footer, position)
            pending += children - 1
            elements += 1
            leaf += is_leaf
        leaves = range(first, leaf)
        mergeable = leaf - first == 1 or _fits(schema, len(fields), len(leaves))
        fields.append(TopField(footer[start:position], elements, leaves, mergeable))
        seen += elements
    return fields


def _schema_list(data: bytes) -> tuple[int, int]:
    """How many elements the schema has, and where the first begins."""
    position = field = 0
    while data[position]:
        head = data[position]
        step, kind = head >> 4, head & 0x0F
        position += 1
        field, position = _number(data, position, field, step)
        if field == _SCHEMA and kind == _LIST:
            size, element, position = data[position] >> 4, data[position] & 0x0F, position + 1
            if size == _LONG_LIST:
                size, position = _varint(data, position)
            if element != _STRUCT:
                raise _UnusualFooterError
            return size, position
        position = _skip(data, position, kind)
    raise _UnusualFooterError


def _element(data: bytes, position: int) -> tuple[bool, int, int]:
    """Whether the element at a position is a leaf, how many children it has, and where it ends."""
    field = children = 0
    typed = False
    while data[position]:
        head = data[position]
        step, kind = head >> 4, head & 0x0F
        position += 1
        field, position = _number(data, position, field, step)
        if field == _NUM_CHILDREN:
            children = _varint(data, position)[0] >> 1
        typed = typed or field == _TYPE
        position = _skip(data, position, kind)
    return typed and not children, children, position + 1


def _number(data: bytes, position: int, last: int, step: int) -> tuple[int, int]:
    """A field's number: the last one's and a step, or written out when the step is zero."""
    if step:
        return last + step, position
    number, position = _varint(data, position)
    return number >> 1, position


def _fits(schema: pa.Schema, number: int, leaves: int) -> bool:
    if number >= len(schema):
        return False
    type = schema.field(number).type
    return leaf_count(type) == leaves and _mergeable(type)


def _mergeable(type: pa.DataType) -> bool:
    """Whether a column of this type can be put together of leaves that were read one by one."""
    import pyarrow as pa

    if leaf_count(type) == 1:
        return True
    known = pa.types.is_struct(type) or pa.types.is_map(type)
    if known or pa.types.is_list(type) or pa.types.is_large_list(type):
        return all(_mergeable(type.field(i).type) for i in range(type.num_fields))
    return False
