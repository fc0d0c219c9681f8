"""A file's metadata under other names: tables that find columns by field id, seen by code that goes by name.

Names are changed in the footer's schema, so whatever reads the footer speaks the new ones: leaves, pyarrow's
schema, page slices and pyarrow's own reader. Everything else of the footer stays as it is, but for the Arrow
schema that some writers store: it holds the old names, and types that the table's don't need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from skipstone.core.evidence import ColumnFacts
from skipstone.core.ir.nodes import ColumnRef
from skipstone.errors import CorruptFileError
from skipstone.parquet import compact as c
from skipstone.parquet.evidence import own_type
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import Repetition, SchemaGroup, text
from skipstone.parquet.structs import ChunkDetails, FileMetaData, KeyValue, SchemaElement

Path: TypeAlias = tuple[str, ...]

_ARROW_SCHEMA: Final = b"ARROW:schema"
_SCHEMA, _PAIRS = 2, 5
_NAME, _FIELD_ID = 4, 9
_MAPS, _LIST = (1, 2), 3
_TUPLE: Final = b"_tuple"


class Naming(Protocol):
    """How the fields of files are called; hashable and picklable.

    Paths are the file's own names, with ``element``, ``key`` and ``value`` for what lists and maps hold,
    whatever the file calls those.
    """

    def __hash__(self) -> int: ...

    def id_of(self, path: Path) -> int | None:
        """The id of a field whose file gives it none."""

    def name(self, field_id: int | None, path: Path, parent: int | None) -> str:
        """What a field is called; ``parent`` is the id of the field whose struct it is in, if any.

        A field that the table doesn't have gets a name that no other field has.
        """

    def supplies(self, path: Path) -> bool:
        """Whether a field (by its new names) has a value in files that lack it, and is not just NULL."""

    def path(self, ids: Path) -> Path:
        """The names of a path of ids: what it is called in an index, which outlives names."""

    def stored(self, path: Path) -> Path:
        """The path of ids that has these names."""

    @property
    def fallback(self) -> bytes:
        """A digest of what names fields without an id; empty where nothing does.

        What an index recorded of a file holds only as long as this stays the same.
        """

    def apply(self, metadata: ParquetMetadata) -> ParquetMetadata:
        """The metadata under these names."""


def renamed(metadata: ParquetMetadata, naming: Naming) -> RenamedMetadata:
    """``metadata`` under other names; what the files of one schema share is worked out once."""
    memo, key = metadata.kin.memo, (_View, naming)
    view: _View | None = memo.get(key)
    if view is None:
        view = memo[key] = _View.of(metadata, naming)
    return RenamedMetadata(metadata, naming, view)


class RenamedMetadata(ParquetMetadata):
    """Metadata whose fields have other names than in the file; rows, chunks and statistics are the file's."""

    __slots__ = ("_footer", "_naming", "_own", "_view")

    def __init__(self, own: ParquetMetadata, naming: Naming, view: _View) -> None:
        self._own, self._naming, self._view = own, naming, view
        self._footer: bytes | None = None
        self.path, self.size, self.version = own.path, own.size, own.version
        self.kin = view.kin
        self.row_groups, self.num_rows = own.row_groups, own.num_rows
        self.row_group_rows, self._starts = own.row_group_rows, None
        self._chunks = {}
        self.memo = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (renamed, (self._own, self._naming))

    @property
    def footer(self) -> bytes:  # type: ignore[override]
        """The footer with the new names, made at the first call."""
        if self._footer is None:
            self._footer = self._view.footer(self._own.footer, self._own.kin)
        return self._footer

    def shell(self) -> bytes:
        """The footer with the new names, without row groups."""
        return self._view.footer(self._own.shell(), self._own.kin)

    @property
    def footer_size(self) -> int:
        """Bytes of the footer in the file."""
        return self._own.footer_size

    @property
    def has_ids(self) -> bool:
        """Whether any field has an id in the file itself."""
        return self._view.has_ids

    @property
    def identity(self) -> tuple[str, object, int]:
        """What tells this file from others, from itself once rewritten, and from itself by other names."""
        path, version, mark = self._own.identity
        return (path, version, hash((mark, self._view.mark)))

    def recorded_facts(self, ref: ColumnRef) -> ColumnFacts | None:
        """Nothing is known of a field that the file lacks, where that doesn't mean NULL."""
        if self._naming.supplies(ref.path) and own_type(self, ref.path) is None:
            return ColumnFacts.unknown(ref.type, self.row_group_count)
        return None

    def _detail(self, group: int, leaf: int) -> ChunkDetails | None:
        return self._own._detail(group, leaf)


# -- what files of one schema share ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """What becomes of a schema element: its name, and its id if it was not in the file."""

    name: bytes
    field_id: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """A schema with other names: as objects, and as bytes that take the place of the file's own."""

    kin: SchemaGroup
    schema: list[SchemaElement]
    mark: int
    has_ids: bool
    old_schema: bytes
    new_schema: bytes

    @classmethod
    def of(cls, metadata: ParquetMetadata, naming: Naming) -> _View:
        raw, footer = metadata.kin.raw, metadata.footer
        seen = _seen(raw.schema or [], naming)
        try:
            start = _value_at(footer, _SCHEMA)
            old = footer[start : c.skip(footer, start, c.LIST)]
            new = _rewritten(old, seen)
        except (c.UnusualFooter, IndexError, RecursionError) as error:
            raise CorruptFileError(
                "its schema is laid out in no usual way, so its columns can't be found by field id",
                path=metadata.path,
                hint="rewrite the file",
            ) from error
        schema = [_element(element, name) for element, name in zip(raw.schema or [], seen, strict=True)]
        pairs = raw.key_value_metadata
        if pairs is not None:
            pairs = [pair for pair in pairs if pair.key != _ARROW_SCHEMA]
        shell = FileMetaData()
        shell.schema, shell.key_value_metadata = schema, pairs
        shell.created_by, shell.column_orders = raw.created_by, raw.column_orders
        shell.encryption_algorithm = raw.encryption_algorithm
        has_ids = any(_own_id(element) is not None for element in raw.schema or [])
        return cls(SchemaGroup(shell, metadata.path), schema, hash(naming), has_ids, old, new)

    def footer(self, footer: bytes, kin: SchemaGroup) -> bytes:
        """A file's footer with this schema."""
        start = _value_at(footer, _SCHEMA)
        stop = start + len(self.old_schema)
        new = self.new_schema
        if not footer.startswith(self.old_schema, start):  # another version of the same writer's encoder
            stop = c.skip(footer, start, c.LIST)
            new = _rewritten(footer[start:stop], [_Seen(e.name or b"", _own_id(e)) for e in self.schema])
        return footer[:start] + new + _without_arrow_schema(footer, stop, kin.raw.key_value_metadata)


def _element(element: SchemaElement, seen: _Seen) -> SchemaElement:
    made = SchemaElement()
    vars(made).update(vars(element))
    made.name = seen.name
    if seen.field_id is not None:
        made.field_id = seen.field_id
    return made


# -- bytes -------------------------------------------------------------------------------------


def _value_at(footer: bytes, field: int) -> int:
    """Where a field's value begins in a footer."""
    for number, _, start in c.struct_fields(footer, 0):
        if number == field:
            return start
    raise c.UnusualFooter


def _rewritten(listing: bytes, seen: Sequence[_Seen]) -> bytes:
    """An encoded list of schema elements with other names and ids; the other fields are copied."""
    position = 1 if listing[0] >> 4 < 15 else c.read_varint(listing, 1)[1]
    parts = [listing[:position]]
    for one in seen:
        fields = {}
        for number, kind, start in c.struct_fields(listing, position):
            position = c.skip(listing, start, kind)
            fields[number] = (kind, listing[start:position])
        position += 1
        fields[_NAME] = (c.BINARY, c.binary(one.name))
        if one.field_id is not None:
            fields[_FIELD_ID] = (c.I32, c.integer(one.field_id))
        parts.append(c.structure((number, *fields[number]) for number in sorted(fields)))
    return b"".join(parts)


def _without_arrow_schema(footer: bytes, start: int, pairs: list[KeyValue] | None) -> bytes:
    """A footer from ``start`` on, without the Arrow schema among its key-value pairs."""
    if not any(pair.key == _ARROW_SCHEMA for pair in pairs or ()):
        return footer[start:]
    assert pairs is not None
    encoded = [(pair.key, c.pair(pair.key or b"", pair.value)) for pair in pairs]
    old = c.listing(c.STRUCT, [pair for _, pair in encoded])
    new = c.listing(c.STRUCT, [pair for key, pair in encoded if key != _ARROW_SCHEMA])
    # They come after the row groups, which take long to walk over: so they are looked for as they should be.
    at = footer.rfind(old, start)
    stop = at + len(old)
    if at < 0:
        at = _value_at(footer, _PAIRS)
        stop = c.skip(footer, at, c.LIST)
    return footer[start:at] + new + footer[stop:]


# -- names -------------------------------------------------------------------------------------


def _seen(schema: Sequence[SchemaElement], naming: Naming) -> list[_Seen]:
    """What becomes of each element: the root, and what lists and maps are made of, keep their names."""
    ids = frozenset(_own_id(element) for element in schema)
    walk = _Walk(schema, naming, ids, [_Seen(element.name or b"", None) for element in schema])
    walk.struct(0, (), None)
    return walk.seen


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """Goes down a schema, which is stored depth first, and notes the new names."""

    schema: Sequence[SchemaElement]
    naming: Naming
    ids: frozenset[int | None]
    seen: list[_Seen]

    def struct(self, at: int, path: Path, parent: int | None) -> int:
        """Name the children of an element; the place after them."""
        at, children = at + 1, self.schema[at].num_children or 0
        for _ in range(children):
            at = self._field(at, path, parent)
        return at

    def _field(self, at: int, path: Path, parent: int | None) -> int:
        element = self.schema[at]
        mine = (*path, text(element.name or b""))
        own = _own_id(element)
        found = self.naming.id_of(mine) if own is None else None
        if found in self.ids:
            found = None  # a field that has the id itself stands
        field_id = found if own is None else own
        name = self.naming.name(field_id, mine, parent)
        self.seen[at] = _Seen(name.encode(), found)
        return self._inside(at, mine, field_id)

    def _inside(self, at: int, path: Path, parent: int | None) -> int:
        """Name what is inside of a field; ids are looked up below it, also through lists and maps."""
        element = self.schema[at]
        if not element.num_children:
            return at + 1
        kind = _kind(element)
        if kind is None or element.num_children != 1 or not _repeats(self.schema[at + 1]):
            return self.struct(at, path, parent)
        if kind == "list":
            return self._inside(at + (1 if self._is_item(at) else 2), (*path, "element"), parent)
        entries = self.schema[at + 1].num_children or 0
        at += 2
        for place in range(entries):
            at = self._inside(at, (*path, "value" if place else "key"), parent)
        return at

    def _is_item(self, at: int) -> bool:
        """Whether a list's repeated group is the item itself, by the format's rules for old files.

        pyarrow goes by these rules again, under the new names: they must come to the same result.
        """
        outer, inner = self.schema[at], self.schema[at + 1]
        if inner.num_children != 1 or _repeats(self.schema[at + 2]):
            return True
        if inner.name == (outer.name or b"") + _TUPLE:
            self.seen[at + 1] = _Seen(b"array", None)
        elif inner.name == self.seen[at].name + _TUPLE:
            self.seen[at + 1] = _Seen(b"list", None)
        return inner.name == b"array" or self.seen[at + 1].name == b"array"


def _own_id(element: SchemaElement) -> int | None:
    # Some writers say -1 where they mean none.
    return element.field_id if element.field_id is not None and element.field_id >= 0 else None


def _repeats(element: SchemaElement) -> bool:
    return element.repetition_type == Repetition.REPEATED


def _kind(element: SchemaElement) -> str | None:
    variant = element.logicalType.variant if element.logicalType is not None else None
    if variant == "LIST" or element.converted_type == _LIST:
        return "list"
    if variant == "MAP" or element.converted_type in _MAPS:
        return "map"
    return None
