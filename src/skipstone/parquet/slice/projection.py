"""The row-independent parts of a slice's footer for selected fields, built once per schema.

The slice's schema has the selected top-level fields with all their leaves, copied unchanged from the file's
footer. Unwanted leaves get an empty chunk and are never read, so nested fields are pruned by pyarrow.
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
    """A top-level field: its raw schema elements, its leaves, and whether they can be read individually."""

    raw: bytes
    elements: int
    leaves: range
    mergeable: bool


@dataclass(frozen=True, slots=True)
class SliceShape:
    """All top-level fields of a file, and the field of each leaf."""

    fields: tuple[TopField, ...]
    owners: tuple[int, ...]


def shape_of(metadata: ParquetMetadata) -> SliceShape | None:
    """Return the shape of a file, computed once per schema; None if its footer can't be split into fields."""
    if "slice shape" not in metadata.schema_group.memo:
        metadata.schema_group.memo["slice shape"] = _shape(metadata)
    found: SliceShape | None = metadata.schema_group.memo["slice shape"]
    return found


def leaf_count(type: pa.DataType) -> int:
    """Number of stored columns of a type."""
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
    """Return the number of schema elements, and the position of the first."""
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
    """Return whether the element at a position is a leaf, its number of children, and its end."""
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
    """Decode a field's number: the previous one plus a step, or a varint if the step is zero."""
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
    """Whether a column of this type can be merged from leaves read individually."""
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
    """One field of the output: its wanted leaves in the file, and their columns in the slice."""

    leaves: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(slots=True, eq=False)
class SliceProjection:
    """The selected fields in output order, and the slice's footer before and after its row groups.

    ``slots`` has one entry per column of the slice: the leaf of the file, and whether it is wanted.
    """

    fields: tuple[Wanted, ...]
    slots: tuple[tuple[int, bool], ...]
    head: bytes
    tail: bytes
    flat: bool
    """Whether every field is one flat column."""
    row_group: bytes = field(init=False)
    """Start of a row group: the header of its list of columns."""
    leaves: list[int] = field(init=False)
    """The wanted leaves of the file, field by field."""
    columns: list[int] = field(init=False)
    """Their columns in the slice."""
    footers: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """Footer templates by the codecs of a row group's chunks."""

    def __post_init__(self) -> None:
        self.row_group = b"\x19" + c.list_head(c.STRUCT, len(self.slots))
        self.leaves = [leaf for field in self.fields for leaf in field.leaves]
        self.columns = [column for field in self.fields for column in field.columns]


def projection_of(
    metadata: ParquetMetadata, fields: Sequence[int], leaves: Collection[int] | None
) -> SliceProjection | None:
    """Return the projection of these fields; None if the footer can't be split into fields."""
    key = ("slice projection", tuple(fields), None if leaves is None else frozenset(leaves))
    if key not in metadata.schema_group.memo:
        shape = shape_of(metadata)
        metadata.schema_group.memo[key] = (
            None if shape is None else _projection(metadata, shape, key[1], key[2])
        )
    found: SliceProjection | None = metadata.schema_group.memo[key]
    return found


def wanted_leaves(all_leaves: Sequence[int], leaves: Collection[int] | None) -> tuple[int, ...]:
    """Return the wanted leaves of a field; all of them if none is named."""
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
            # Ambiguous: keep every field, as pyarrow would.
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
        # Coordinate reference systems may be defined in another entry.
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
    """Return the stored Arrow schema with some fields only; None if it does not match."""
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
    """Encode fields 5 and 6 of a footer after field 4."""
    pairs = [
        c.structure([(1, c.BINARY, c.binary(key)), (2, c.BINARY, c.binary(value))])
        for key, value in entries.items()
    ]
    fields = [(6, c.BINARY, c.binary(created_by.encode()))]
    if pairs:
        fields.insert(0, (5, c.LIST, c.listing(c.STRUCT, pairs)))
    # Readers use the writer's name to work around its defects.
    return c.open_structure([(number - 4, kind, value) for number, kind, value in fields]) + c.STOP
