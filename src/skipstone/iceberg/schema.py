"""An Iceberg table's columns: their Arrow types, and their names in files, which are found by field id.

A column that a file lacks is, in this order: the identity partition value, the column that the name mapping
gives its id to, the field's initial default, NULL. A file without any ids is refused in a table without a
name mapping: other readers refuse it too, or go by position.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from skipstone.errors import SchemaError, UnknownColumnError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.naming import Naming, renamed

Path: TypeAlias = tuple[str, ...]

_TYPES: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
    UnknownType: pa.null(),
    # Well-known binary, as it is stored.
    GeometryType: pa.binary(),
    GeographyType: pa.binary(),
}


# -- types -------------------------------------------------------------------------------------


def arrow_schema(schema: Schema) -> pa.Schema:
    """The table's columns, in the types that pyarrow reads from files without an Arrow schema."""
    return pa.schema([_arrow_field(field, (field.name,)) for field in schema.fields])


def arrow_type(type: IcebergType, path: Path = ()) -> pa.DataType:
    """The Arrow type of a field at ``path``."""
    if isinstance(type, StructType):
        return pa.struct([_arrow_field(field, (*path, field.name)) for field in type.fields])
    if isinstance(type, ListType):
        return pa.list_(_arrow_field(type.element_field, (*path, "element")))
    if isinstance(type, MapType):
        key, value = (
            _arrow_field(field, (*path, field.name)) for field in (type.key_field, type.value_field)
        )
        return pa.map_(key, value)
    if isinstance(type, DecimalType):
        return pa.decimal128(type.precision, type.scale)
    if isinstance(type, FixedType):
        return pa.binary(len(type))
    found = _TYPES.get(type.__class__)
    if found is None:
        raise SchemaError(f"type {type!r} can't be read", column=".".join(path), hint="drop the column")
    return found


def _arrow_field(field: NestedField, path: Path) -> pa.Field:
    return pa.field(field.name, arrow_type(field.field_type, path), nullable=field.optional)


# -- fields ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field of a struct, and where it is.

    In ``path`` and ``ids``, what lists and maps hold is called ``element``, ``key`` and ``value``. ``parent``
    is the id of the field whose struct it is in.
    """

    field: NestedField
    path: Path
    ids: Path
    parent: int | None
    repeated: bool


def walk_fields(
    fields: Iterable[NestedField],
    path: Path = (),
    ids: Path = (),
    parent: int | None = None,
    repeated: bool = False,
) -> Iterator[FieldPath]:
    """All fields of structs, outer ones first."""
    for field in fields:
        at = FieldPath(field, (*path, field.name), (*ids, str(field.field_id)), parent, repeated)
        yield at
        yield from _inside(field.field_type, at.path, at.ids, field.field_id, repeated)


def _inside(type: IcebergType, path: Path, ids: Path, parent: int, repeated: bool) -> Iterator[FieldPath]:
    if isinstance(type, StructType):
        yield from walk_fields(type.fields, path, ids, parent, repeated)
    elif isinstance(type, ListType):
        yield from _inside(type.element_type, (*path, "element"), (*ids, "element"), parent, True)
    elif isinstance(type, MapType):
        for name, part in (("key", type.key_type), ("value", type.value_type)):
            yield from _inside(part, (*path, name), (*ids, name), parent, True)


def field_paths(schema: Schema) -> dict[int, Path]:
    """The paths of the stored columns outside of lists and maps, by field id."""
    return {
        found.field.field_id: found.path
        for found in walk_fields(schema.fields)
        if not found.repeated and found.field.field_type.is_primitive
    }


def defaults(schema: Schema) -> dict[Path, pa.Scalar]:
    """The initial defaults of fields, nested ones included, as scalars of their Arrow types."""
    return {
        found.path: _scalar(found.field, found.path)
        for found in walk_fields(schema.fields)
        if found.field.initial_default is not None
    }


def _scalar(field: NestedField, path: Path) -> pa.Scalar:
    value: Any = field.initial_default
    type = arrow_type(field.field_type, path)
    try:
        if isinstance(value, uuid.UUID):
            return pa.ExtensionScalar.from_storage(type, pa.scalar(value.bytes, type.storage_type))
        return pa.scalar(value, type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        message = f"the initial default {value!r} is not a {field.field_type}: {error}"
        raise SchemaError(message, column=".".join(path)) from error


# -- names -------------------------------------------------------------------------------------

# What begins the name of a field without an id, where fields go by their ids.
_NO_ID = "#/"


class _Digested(Naming):
    """A naming identified by a digest, which takes the ids that files lack from a name mapping."""

    __slots__ = ()
    mapping: Mapping[Path, int] | None
    digest: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Digested) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def id_of(self, path: Path) -> int | None:
        """The id that the name mapping gives to a field, if any."""
        return None if self.mapping is None else self.mapping.get(path)

    @property
    def fallback(self) -> bytes:
        """A digest of the name mapping, which decides what a file without ids holds; empty without one."""
        return b"" if self.mapping is None else _digest(sorted(self.mapping.items()))

    def apply(self, metadata: ParquetMetadata) -> ParquetMetadata:
        """The metadata under these names."""
        found = renamed(metadata, self)
        if self.mapping is None and not found.has_ids:
            # To read NULL would contradict the manifests, which may have metrics of its columns.
            raise SchemaError(
                "the file's columns have no field ids, and the table has no name mapping to find them by",
                path=metadata.path,
                hint=f"set the table's property {TableProperties.DEFAULT_NAME_MAPPING}, or rewrite the file",
            )
        return found


@dataclass(frozen=True, slots=True, eq=False)
class FieldNaming(_Digested):
    """Fields by the names that the table has for their ids now."""

    mapping: Mapping[Path, int] | None
    digest: bytes
    names: Mapping[int, tuple[int | None, str]]
    """By id: the id of the field that it is in, and its name."""
    ids: Mapping[tuple[int | None, str], int]
    mark: str
    """What the names of fields that the table doesn't have begin with, and none of its own does."""
    filled: frozenset[Path]

    @classmethod
    def of(
        cls,
        schema: Schema,
        name_mapping: NameMapping | None = None,
        supplied: Iterable[int] = (),
    ) -> FieldNaming:
        """The names of a schema.

        Fields with ``supplied`` ids, and those with an initial default, are not NULL in files that lack them.
        """
        given, fields = set(supplied), [*walk_fields(schema.fields)]
        names = {found.field.field_id: (found.parent, found.field.name) for found in fields}
        mark = "#"
        while any(name.startswith(mark) for _, name in names.values()):
            mark += "#"
        filled = frozenset(found.path for found in fields if _is_filled(found, given))
        mapping = mapped_ids(name_mapping)
        mapped = None if mapping is None else sorted(mapping.items())
        digest = _digest("names", sorted(names.items()), sorted(filled), mapped)
        ids = {place: field_id for field_id, place in names.items()}
        return cls(mapping, digest, names, ids, mark, filled)

    def name(self, field_id: int | None, path: Path, parent: int | None = None) -> str:
        """The table's name for an id, or one that begins with ``mark``."""
        if field_id is None:
            return f"{self.mark}/{path[-1]}"
        known = self.names.get(field_id)
        # An id stays in its struct; anywhere else it is none of the table's.
        return f"{self.mark}{field_id}" if known is None or known[0] != parent else known[1]

    def supplies(self, path: Path) -> bool:
        """Whether files that lack a field have a value for it all the same."""
        return path in self.filled

    def path(self, ids: Path) -> Path:
        """The names of a path as :class:`IdNaming` has it."""
        steps: list[str] = []
        parent: int | None = None
        for step in ids:
            if not step.startswith(_NO_ID) and not step.isdecimal():
                steps.append(step)  # what lists and maps are made of has no id of its own
                continue
            field_id = None if step.startswith(_NO_ID) else int(step)
            steps.append(self.name(field_id, (step.removeprefix(_NO_ID),), parent))
            parent = field_id
        return tuple(steps)

    def stored(self, path: Path) -> Path:
        """A path of names as :class:`IdNaming` has it."""
        steps: list[str] = []
        parent: int | None = None
        for step in path:
            parent = self.ids.get((parent, step))
            if parent is None:
                raise UnknownColumnError("the table has no such column", column=".".join(path))
            steps.append(str(parent))
        return tuple(steps)


@dataclass(frozen=True, slots=True, eq=False)
class IdNaming(_Digested):
    """Fields by their ids, whatever the table calls them: what is kept under these outlives renames."""

    mapping: Mapping[Path, int] | None
    digest: bytes
    filled: frozenset[Path] | None

    @classmethod
    def of(
        cls,
        name_mapping: NameMapping | None = None,
        schemas: Iterable[Schema] | None = None,
        supplied: Iterable[int] = (),
    ) -> IdNaming:
        """The ids of files, and those of a name mapping for files without.

        ``schemas`` are all that the table had: the fields with an initial default, or with ``supplied`` ids,
        are not NULL in files that lack them. Without schemas any field may be such.
        """
        mapping, given = mapped_ids(name_mapping), set(supplied)
        filled = None
        if schemas is not None:
            fields = (found for schema in schemas for found in walk_fields(schema.fields))
            filled = frozenset(found.ids for found in fields if _is_filled(found, given))
        mapped = [None if some is None else sorted(some) for some in (filled, mapping and mapping.items())]
        return cls(mapping, _digest("ids", *mapped), filled)

    def name(self, field_id: int | None, path: Path, parent: int | None = None) -> str:  # noqa: ARG002
        """The id, or for a field without one a name that is not a number."""
        return f"{_NO_ID}{path[-1]}" if field_id is None else str(field_id)

    def supplies(self, path: Path) -> bool:
        """Whether files that lack a field may have a value for it all the same."""
        return self.filled is None or path in self.filled

    def path(self, ids: Path) -> Path:
        """The same path."""
        return ids

    def stored(self, path: Path) -> Path:
        """The same path."""
        return path


def _is_filled(found: FieldPath, given: set[int]) -> bool:
    return found.field.initial_default is not None or found.field.field_id in given


def settled_fields(name_mapping: NameMapping, schemas: Iterable[Schema]) -> frozenset[int]:
    """The fields that the name mapping knows by exactly the names that the table's schemas gave them.

    Iceberg makes and maintains mappings like that: whoever recorded metrics of such a field in a file without
    ids saw the column that reading finds. Where a name was taken away, dropped and added again, or chosen by
    hand, it may have been another column, or one that reading no longer finds.
    """
    given: dict[tuple[int | None, int], set[str]] = {}
    _collect_names(name_mapping.root, None, given)
    had: dict[tuple[int | None, int], set[str]] = {}
    for schema in schemas:
        for one in walk_fields(schema.fields):
            had.setdefault((one.parent, one.field.field_id), set()).add(one.field.name)
    settled: set[int] = set()
    # Outer fields come first.
    for (parent, field_id), names in had.items():
        if given.get((parent, field_id)) == names and (parent is None or parent in settled):
            settled.add(field_id)
    return frozenset(settled)


def _collect_names(
    fields: Iterable[MappedField], parent: int | None, into: dict[tuple[int | None, int], set[str]]
) -> None:
    """Names by the ids of the parent and the field; of fields with the same name the first has it."""
    taken: set[str] = set()
    for field in fields:
        if field.field_id is not None:
            into.setdefault((parent, field.field_id), set()).update(set(field.names) - taken)
            _collect_names(field.fields, field.field_id, into)
        taken.update(field.names)


def mapped_ids(name_mapping: NameMapping | None) -> dict[Path, int] | None:
    """The ids of a name mapping by path, None without one; an error if a name has two of them."""
    if name_mapping is None:
        return None
    found: dict[Path, int] = {}
    for field in name_mapping:
        _map_field(field, (), found)
    return found


def _map_field(field: MappedField, above: Path, into: dict[Path, int]) -> None:
    for name in field.names:
        path = (*above, name)
        if field.field_id is not None:
            known = into.setdefault(path, field.field_id)
            if known != field.field_id:
                raise SchemaError(
                    f"the name mapping has the name {name} for two fields, {known} and {field.field_id}",
                    column=".".join(path),
                    hint=f"correct the table's property {TableProperties.DEFAULT_NAME_MAPPING}",
                )
        for child in field.fields:
            _map_field(child, path, into)


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()
