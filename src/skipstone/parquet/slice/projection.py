"""What a slice's footer says about the chosen fields, whatever the rows: made once per footer.

The slice's schema has the chosen top-level fields with all their leaves. Leaves that are not wanted get an
empty chunk and are never read: so it is pyarrow that prunes nested fields, in its own way.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LogicalKind
from skipstone.parquet.slice import compact as c
from skipstone.parquet.slice.shape import Shape, shape_of

if TYPE_CHECKING:
    import pyarrow as pa

_ARROW_SCHEMA: Final = b"ARROW:schema"
_VERSION: Final = 2
_GEO: Final = (LogicalKind.GEOMETRY, LogicalKind.GEOGRAPHY)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One field of the output: its wanted leaves in the file, and which columns of the slice they are."""

    leaves: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Projection:
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
) -> Projection | None:
    """The projection of these fields, None when the footer can't be taken apart."""
    key = ("slice projection", tuple(fields), None if leaves is None else frozenset(leaves))
    if key not in metadata.kin.memo:
        shape = shape_of(metadata)
        metadata.kin.memo[key] = None if shape is None else _projection(metadata, shape, key[1], key[2])
    found: Projection | None = metadata.kin.memo[key]
    return found


def wanted_leaves(all_leaves: Sequence[int], leaves: Collection[int] | None) -> tuple[int, ...]:
    """The leaves of a field that are asked for; a field of which none is named is read whole."""
    if leaves is None:
        return tuple(all_leaves)
    return tuple(leaf for leaf in all_leaves if leaf in leaves) or tuple(all_leaves)


def _projection(
    metadata: ParquetMetadata, shape: Shape, fields: tuple[int, ...], leaves: frozenset[int] | None
) -> Projection:
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
    return Projection(
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
    return c.opened([(1, c.I32, c.integer(_VERSION)), (2, c.LIST, schema)])


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
    return c.opened([(number - 4, kind, value) for number, kind, value in fields]) + c.STOP
