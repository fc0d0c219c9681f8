"""What a slice's footer says about the chosen fields, whatever the rows: made once per schema.

The slice's schema has the chosen top-level fields with all their leaves, copied from the file's footer as
they are. Leaves that are not wanted get an empty chunk and are never read: so it is pyarrow that prunes
nested fields, in its own way.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skipstone.parquet import compact as c
from skipstone.parquet.compact import UnusualFooter, read_varint, skip
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LogicalKind

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
class SliceShape:
    """All top-level fields of a file, and for each leaf which field it belongs to."""

    fields: tuple[TopField, ...]
    owners: tuple[int, ...]


def shape_of(metadata: ParquetMetadata) -> SliceShape | None:
    """The shape of a file, None when its footer can't be taken apart so; made once per footer."""
    if "slice shape" not in metadata.kin.memo:
        metadata.kin.memo["slice shape"] = _shape(metadata)
    found: SliceShape | None = metadata.kin.memo["slice shape"]
    return found


def leaf_count(type: pa.DataType) -> int:
    """How many stored columns a type has."""
    import pyarrow as pa

    if isinstance(type, pa.BaseExtensionType):
        return leaf_count(type.storage_type)
    if not pa.types.is_nested(type):
        return 1
    return sum(leaf_count(type.field(i).type) for i in range(type.num_fields)) if type.num_fields else 0


def _shape(metadata: ParquetMetadata) -> SliceShape | None:
    try:
        fields = _top_fields(metadata.footer, metadata.arrow_schema)
    except (UnusualFooter, IndexError, RecursionError):
        return None
    owners = tuple(number for number, field in enumerate(fields) for _ in field.leaves)
    if len(fields) != len(metadata.arrow_schema) or len(owners) != len(metadata.leaves):
        return None
    if not all(field.leaves for field in fields):
        return None
    return SliceShape(tuple(fields), owners)


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
                size, position = read_varint(data, position)
            if element != _STRUCT:
                raise UnusualFooter
            return size, position
        position = skip(data, position, kind)
    raise UnusualFooter


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
            children = read_varint(data, position)[0] >> 1
        typed = typed or field == _TYPE
        position = skip(data, position, kind)
    return typed and not children, children, position + 1


def _number(data: bytes, position: int, last: int, step: int) -> tuple[int, int]:
    """A field's number: the last one's and a step, or written out when the step is zero."""
    if step:
        return last + step, position
    number, position = read_varint(data, position)
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


_ARROW_SCHEMA: Final = b"ARROW:schema"
_VERSION: Final = 2
_GEO: Final = (LogicalKind.GEOMETRY, LogicalKind.GEOGRAPHY)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One field of the output: its wanted leaves in the file, and which columns of the slice they are."""

    leaves: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(slots=True, eq=False)
class SliceProjection:
    """The chosen fields in output order, and the slice's footer before and after its row groups.

    ``slots`` has one entry per column of the slice: the leaf of the file, and whether it is wanted.
    """

    fields: tuple[Wanted, ...]
    slots: tuple[tuple[int, bool], ...]
    head: bytes
    tail: bytes
    flat: bool
    """Whether every field is one column of values."""
    row_group: bytes = field(init=False)
    """What a row group begins with: the head of its list of columns."""
    leaves: list[int] = field(init=False)
    """The wanted leaves of the file, field by field."""
    columns: list[int] = field(init=False)
    """The columns of the slice that they are."""
    footers: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """What is known of footers for the codecs of a row group's chunks."""

    def __post_init__(self) -> None:
        self.row_group = b"\x19" + c.list_head(c.STRUCT, len(self.slots))
        self.leaves = [leaf for field in self.fields for leaf in field.leaves]
        self.columns = [column for field in self.fields for column in field.columns]


def projection_of(
    metadata: ParquetMetadata, fields: Sequence[int], leaves: Collection[int] | None
) -> SliceProjection | None:
    """The projection of these fields, None when the footer can't be taken apart."""
    key = ("slice projection", tuple(fields), None if leaves is None else frozenset(leaves))
    if key not in metadata.kin.memo:
        shape = shape_of(metadata)
        metadata.kin.memo[key] = None if shape is None else _projection(metadata, shape, key[1], key[2])
    found: SliceProjection | None = metadata.kin.memo[key]
    return found


def wanted_leaves(all_leaves: Sequence[int], leaves: Collection[int] | None) -> tuple[int, ...]:
    """The leaves of a field that are asked for; a field of which none is named is read whole."""
    if leaves is None:
        return tuple(all_leaves)
    return tuple(leaf for leaf in all_leaves if leaf in leaves) or tuple(all_leaves)


def _projection(
    metadata: ParquetMetadata, shape: SliceShape, fields: tuple[int, ...], leaves: frozenset[int] | None
) -> SliceProjection:
    pairs = metadata.key_value_metadata
    kept: Sequence[int] = fields
    schema = pairs.get(_ARROW_SCHEMA)
    if schema is not None:
        pruned = _pruned_schema(schema, fields, len(shape.fields))
        if pruned is None:
            # Not to be told apart: keep every field, as pyarrow would see them.
            kept = range(len(shape.fields))
        schema = pruned or schema
    slots: list[tuple[int, bool]] = []
    places: dict[int, Wanted] = {}
    for number in kept:
        field = shape.fields[number]
        chosen = wanted_leaves(field.leaves, leaves) if number in fields else ()
        first = len(slots) - field.leaves.start
        slots += [(leaf, leaf in chosen) for leaf in field.leaves]
        places[number] = Wanted(chosen, tuple(leaf + first for leaf in chosen))
    entries = {} if schema is None else {_ARROW_SCHEMA: schema}
    if any(metadata.leaves[leaf].logical.kind in _GEO for leaf, _ in slots):
        # Their reference systems may be defined in another entry.
        entries = {**pairs, **entries}
    return SliceProjection(
        fields=tuple(places[number] for number in fields),
        slots=tuple(slots),
        head=_head(
            [shape.fields[number].raw for number in kept], sum(shape.fields[n].elements for n in kept)
        ),
        tail=_tail(entries, metadata.created_by),
        flat=all(
            len(metadata.leaves[leaf].path) == 1 and not metadata.leaves[leaf].max_repetition
            for number in fields
            for leaf in shape.fields[number].leaves
        ),
    )


def _pruned_schema(value: bytes, fields: Sequence[int], count: int) -> bytes | None:
    """The Arrow schema that a writer stored, with some fields only; None when it doesn't fit."""
    import pyarrow as pa

    try:
        stored: pa.Schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
        if len(stored) != count:
            return None
        pruned = pa.schema([stored.field(number) for number in fields])
        return base64.b64encode(pruned.serialize())
    except (pa.ArrowException, OSError, ValueError, binascii.Error):
        return None


def _head(raw: Sequence[bytes], elements: int) -> bytes:
    root = c.structure([(4, c.BINARY, c.binary(b"schema")), (5, c.I32, c.integer(len(raw)))])
    schema = c.list_head(c.STRUCT, elements + 1) + root + b"".join(raw)
    return c.open_structure([(1, c.I32, c.integer(_VERSION)), (2, c.LIST, schema)])


def _tail(entries: dict[bytes, bytes], created_by: str) -> bytes:
    """Fields 5 and 6 of a footer whose last field was 4."""
    pairs = [
        c.structure([(1, c.BINARY, c.binary(key)), (2, c.BINARY, c.binary(value))])
        for key, value in entries.items()
    ]
    fields = [(6, c.BINARY, c.binary(created_by.encode()))]
    if pairs:
        fields.insert(0, (5, c.LIST, c.listing(c.STRUCT, pairs)))
    # The reader goes by the writer's name where a writer was wrong.
    return c.open_structure([(number - 4, kind, value) for number, kind, value in fields]) + c.STOP
