"""File metadata with renamed fields: maps columns of tables, which have field ids, to names.

Names are changed in the footer's schema, so everything that reads the footer sees the new ones: leaves,
pyarrow's schema, page slices and pyarrow's own reader. The rest of the footer is unchanged, except that the
Arrow schema stored by some writers is removed: it has the old names, and types the table does not need.
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
    """Names for the fields of files; hashable and picklable.

    Paths are the file's own names, with ``element``, ``key`` and ``value`` for the contents of lists and
    maps.
    """

    def __hash__(self) -> int: ...

    def id_of(self, path: Path) -> int | None:
        """Return the id of a field that has none in the file."""

    def name(self, field_id: int | None, path: Path, parent: int | None) -> str:
        """Return the name of a field; ``parent`` is the id of the enclosing struct field, if any.

        A field that the table lacks gets a unique name.
        """

    def supplies(self, path: Path) -> bool:
        """Whether a field (by its new names) has a value other than NULL in files that lack it."""

    def path(self, ids: Path) -> Path:
        """Return the names of a path of ids, as stored in an index."""

    def stored(self, path: Path) -> Path:
        """Return the path of ids of these names."""

    @property
    def fallback(self) -> bytes:
        """A digest of the mapping for fields without an id; empty without one.

        An index entry is valid only while this is unchanged.
        """

    def apply(self, metadata: ParquetMetadata) -> ParquetMetadata:
        """Return the metadata with these names."""


def renamed(metadata: ParquetMetadata, naming: Naming) -> RenamedMetadata:
    """Return ``metadata`` with other names; work shared by files of one schema is done once."""
    memo, key = metadata.schema_group.memo, (_View, naming)
    view: _View | None = memo.get(key)
    if view is None:
        view = memo[key] = _View.of(metadata, naming)
    return RenamedMetadata(metadata, naming, view)


class RenamedMetadata(ParquetMetadata):
    """Metadata with other field names than in the file; rows, chunks and statistics are the file's."""

    __slots__ = ("_footer", "_naming", "_own", "_view")

    def __init__(self, own: ParquetMetadata, naming: Naming, view: _View) -> None:
        self._own, self._naming, self._view = own, naming, view
        self._footer: bytes | None = None
        self.path, self.size, self.version = own.path, own.size, own.version
        self.schema_group = view.schema_group
        self.row_groups, self.num_rows = own.row_groups, own.num_rows
        self.row_group_rows, self._starts = own.row_group_rows, None
        self._chunks = {}
        self.memo = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (renamed, (self._own, self._naming))

    @property
    def footer(self) -> bytes:  # type: ignore[override]
        """The footer with the new names, built on first use."""
        if self._footer is None:
            self._footer = self._view.footer(self._own.footer, self._own.schema_group)
        return self._footer

    def shell(self) -> bytes:
        """Return the footer with the new names, without row groups."""
        return self._view.footer(self._own.shell(), self._own.schema_group)

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
        """Identifies the file, its version and the names."""
        path, version, mark = self._own.identity
        return (path, version, hash((mark, self._view.mark)))

    def recorded_facts(self, ref: ColumnRef) -> ColumnFacts | None:
        """Return unknown facts for a field that the file lacks, unless it is NULL there."""
        if self._naming.supplies(ref.path) and own_type(self, ref.path) is None:
            return ColumnFacts.unknown(ref.type, self.row_group_count)
        return None

    def _detail(self, group: int, leaf: int) -> ChunkDetails | None:
        return self._own._detail(group, leaf)


# -- shared by files of one schema -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NewElement:
    """The new name of a schema element, and its id if that was not in the file."""

    name: bytes
    field_id: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """A schema with other names: as objects, and as bytes that replace the file's own."""

    schema_group: SchemaGroup
    schema: list[SchemaElement]
    mark: int
    has_ids: bool
    old_schema: bytes
    new_schema: bytes

    @classmethod
    def of(cls, metadata: ParquetMetadata, naming: Naming) -> _View:
        raw, footer = metadata.schema_group.raw, metadata.footer
        elements = _new_elements(raw.schema or [], naming)
        try:
            start = _value_at(footer, _SCHEMA)
            old = footer[start : c.skip(footer, start, c.LIST)]
            new = _rewrite(old, elements)
        except (c.UnusualFooter, IndexError, RecursionError) as error:
            raise CorruptFileError(
                "schema has an unusual encoding, so columns can't be matched by field id",
                path=metadata.path,
                hint="rewrite the file",
            ) from error
        schema = [_element(element, new) for element, new in zip(raw.schema or [], elements, strict=True)]
        pairs = raw.key_value_metadata
        if pairs is not None:
            pairs = [pair for pair in pairs if pair.key != _ARROW_SCHEMA]
        shell = FileMetaData()
        shell.schema, shell.key_value_metadata = schema, pairs
        shell.created_by, shell.column_orders = raw.created_by, raw.column_orders
        shell.encryption_algorithm = raw.encryption_algorithm
        has_ids = any(_own_id(element) is not None for element in raw.schema or [])
        return cls(SchemaGroup(shell, metadata.path), schema, hash(naming), has_ids, old, new)

    def footer(self, footer: bytes, schema_group: SchemaGroup) -> bytes:
        """Return a file's footer with this schema."""
        start = _value_at(footer, _SCHEMA)
        stop = start + len(self.old_schema)
        new = self.new_schema
        if not footer.startswith(self.old_schema, start):  # another version of the same writer's encoder
            stop = c.skip(footer, start, c.LIST)
            elements = [_NewElement(e.name or b"", _own_id(e)) for e in self.schema]
            new = _rewrite(footer[start:stop], elements)
        return footer[:start] + new + _without_arrow_schema(footer, stop, schema_group.raw.key_value_metadata)


def _element(element: SchemaElement, new: _NewElement) -> SchemaElement:
    copy = SchemaElement()
    vars(copy).update(vars(element))
    copy.name = new.name
    if new.field_id is not None:
        copy.field_id = new.field_id
    return copy


# -- bytes -------------------------------------------------------------------------------------


def _value_at(footer: bytes, field: int) -> int:
    """Return the position of a field's value in a footer."""
    for number, _, start in c.struct_fields(footer, 0):
        if number == field:
            return start
    raise c.UnusualFooter


def _rewrite(listing: bytes, elements: Sequence[_NewElement]) -> bytes:
    """Replace names and ids in an encoded list of schema elements; other fields are copied."""
    position = 1 if listing[0] >> 4 < 15 else c.read_varint(listing, 1)[1]
    parts = [listing[:position]]
    for element in elements:
        fields = {}
        for number, kind, start in c.struct_fields(listing, position):
            position = c.skip(listing, start, kind)
            fields[number] = (kind, listing[start:position])
        position += 1
        fields[_NAME] = (c.BINARY, c.binary(element.name))
        if element.field_id is not None:
            fields[_FIELD_ID] = (c.I32, c.integer(element.field_id))
        parts.append(c.structure((number, *fields[number]) for number in sorted(fields)))
    return b"".join(parts)


def _without_arrow_schema(footer: bytes, start: int, pairs: list[KeyValue] | None) -> bytes:
    """Return a footer from ``start`` on, without the Arrow schema in its key-value pairs."""
    if not any(pair.key == _ARROW_SCHEMA for pair in pairs or ()):
        return footer[start:]
    assert pairs is not None
    encoded = [(pair.key, c.pair(pair.key or b"", pair.value)) for pair in pairs]
    old = c.listing(c.STRUCT, [pair for _, pair in encoded])
    new = c.listing(c.STRUCT, [pair for key, pair in encoded if key != _ARROW_SCHEMA])
    # The pairs follow the row groups, which take long to walk: search for their usual encoding first.
    at = footer.rfind(old, start)
    stop = at + len(old)
    if at < 0:
        at = _value_at(footer, _PAIRS)
        stop = c.skip(footer, at, c.LIST)
    return footer[start:at] + new + footer[stop:]


# -- names -------------------------------------------------------------------------------------


def _new_elements(schema: Sequence[SchemaElement], naming: Naming) -> list[_NewElement]:
    """Return the new name of each element; the root and the inner groups of lists and maps keep theirs."""
    ids = frozenset(_own_id(element) for element in schema)
    walk = _Walk(schema, naming, ids, [_NewElement(element.name or b"", None) for element in schema])
    walk.struct(0, (), None)
    return walk.elements


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """Walks a schema, which is stored depth first, and collects the new names."""

    schema: Sequence[SchemaElement]
    naming: Naming
    ids: frozenset[int | None]
    elements: list[_NewElement]

    def struct(self, at: int, path: Path, parent: int | None) -> int:
        """Name the children of an element, and return the position after them."""
        at, children = at + 1, self.schema[at].num_children or 0
        for _ in range(children):
            at = self._field(at, path, parent)
        return at

    def _field(self, at: int, path: Path, parent: int | None) -> int:
        element = self.schema[at]
        mine = (*path, text(element.name or b""))
        own = _own_id(element)
        mapped = self.naming.id_of(mine) if own is None else None
        if mapped in self.ids:
            mapped = None  # another field has the id itself
        field_id = mapped if own is None else own
        name = self.naming.name(field_id, mine, parent)
        self.elements[at] = _NewElement(name.encode(), mapped)
        return self._inside(at, mine, field_id)

    def _inside(self, at: int, path: Path, parent: int | None) -> int:
        """Name the fields inside a field, through lists and maps."""
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
        for entry in range(entries):
            at = self._inside(at, (*path, "value" if entry else "key"), parent)
        return at

    def _is_item(self, at: int) -> bool:
        """Whether a list's repeated group is the item itself, by the format's rules for old files.

        pyarrow applies these rules to the new names, and must come to the same result.
        """
        outer, inner = self.schema[at], self.schema[at + 1]
        if inner.num_children != 1 or _repeats(self.schema[at + 2]):
            return True
        if inner.name == (outer.name or b"") + _TUPLE:
            self.elements[at + 1] = _NewElement(b"array", None)
        elif inner.name == self.elements[at].name + _TUPLE:
            self.elements[at + 1] = _NewElement(b"list", None)
        return inner.name == b"array" or self.elements[at + 1].name == b"array"


def _own_id(element: SchemaElement) -> int | None:
    # Some writers use -1 for no id.
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
