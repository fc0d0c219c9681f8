"""The leaf columns of a Parquet file's schema, and data shared by files of one schema.

A lake has many files and few schemas: most footers differ only in their row groups.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from skipstone.errors import CorruptFileError
from skipstone.parquet.compact import UnusualFooter, read_varint, rows_at
from skipstone.parquet.structs import ColumnOrder, FileMetaData, LogicalType, RowGroup, SchemaElement
from skipstone.parquet.wire import S, decode, decode_run

if TYPE_CHECKING:
    import pyarrow as pa


# pyarrow walks the schema recursively in C++; real schemas are far less deep.
_MAX_DEPTH = 128


class PhysicalType(IntEnum):
    """Physical type of stored values."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class Repetition(IntEnum):
    """How often a field occurs in its parent."""

    REQUIRED = 0
    OPTIONAL = 1
    REPEATED = 2


class LogicalKind(StrEnum):
    """Logical type of stored values."""

    NONE = "none"
    STRING = "string"
    ENUM = "enum"
    JSON = "json"
    BSON = "bson"
    UUID = "uuid"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    INTEGER = "integer"
    FLOAT16 = "float16"
    INTERVAL = "interval"
    NULL = "null"
    LIST = "list"
    MAP = "map"
    VARIANT = "variant"
    GEOMETRY = "geometry"
    GEOGRAPHY = "geography"
    UNKNOWN = "unknown"


Unit: TypeAlias = Literal["ms", "us", "ns"]
Order: TypeAlias = Literal["type_defined", "ieee754_total", "int96_timestamp", "undefined", "unknown"]


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type; fields that don't apply to its kind have their defaults.

    ``legacy`` marks a type that has only a deprecated converted type: such times and timestamps are UTC in
    the format, while pyarrow reads them without a zone.
    """

    kind: LogicalKind
    precision: int = 0
    scale: int = 0
    unit: Unit | None = None
    utc: bool = False
    bits: int = 0
    signed: bool = True
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """One stored column: its full path, including steps of lists and maps, and its types.

    ``repetitions`` has one entry per step of ``path``; a null above the leaf is a null at the leaf.
    """

    index: int
    path: tuple[str, ...]
    physical: PhysicalType
    type_length: int
    logical: Logical
    repetitions: tuple[Repetition, ...]
    max_definition: int
    max_repetition: int
    field_id: int | None
    column_order: Order

    @property
    def name(self) -> str:
        """The dotted path; compare ``path`` instead, because names may contain dots."""
        return ".".join(self.path)

    @property
    def required(self) -> bool:
        """Whether the column can't have nulls."""
        return self.max_definition == 0


_P = PhysicalType
_K = LogicalKind
_BYTES = frozenset({_P.BYTE_ARRAY})
_FIXED = frozenset({_P.FIXED_LEN_BYTE_ARRAY})
# A logical type on any other physical type is a contradiction, and treated as UNKNOWN.
_STORAGE: Final[dict[LogicalKind, frozenset[PhysicalType]]] = {
    _K.STRING: _BYTES,
    _K.ENUM: _BYTES,
    _K.JSON: _BYTES,
    _K.BSON: _BYTES,
    _K.UUID: _FIXED,
    _K.DECIMAL: frozenset({_P.INT32, _P.INT64}) | _BYTES | _FIXED,
    _K.DATE: frozenset({_P.INT32}),
    _K.TIME: frozenset({_P.INT32, _P.INT64}),
    _K.TIMESTAMP: frozenset({_P.INT64}),
    _K.INTEGER: frozenset({_P.INT32, _P.INT64}),
    _K.FLOAT16: _FIXED,
    _K.INTERVAL: _FIXED,
    _K.NULL: frozenset(_P),
    _K.GEOMETRY: _BYTES,
    _K.GEOGRAPHY: _BYTES,
}
_WIDTH: Final[dict[LogicalKind, int]] = {_K.UUID: 16, _K.FLOAT16: 2, _K.INTERVAL: 12}

_CONVERTED: Final[tuple[Logical, ...]] = (
    Logical(_K.STRING),
    Logical(_K.MAP),
    Logical(_K.MAP),
    Logical(_K.LIST),
    Logical(_K.ENUM),
    Logical(_K.DECIMAL),
    Logical(_K.DATE),
    Logical(_K.TIME, unit="ms", utc=True, legacy=True),
    Logical(_K.TIME, unit="us", utc=True, legacy=True),
    Logical(_K.TIMESTAMP, unit="ms", utc=True, legacy=True),
    Logical(_K.TIMESTAMP, unit="us", utc=True, legacy=True),
    *(Logical(_K.INTEGER, bits=bits, signed=False) for bits in (8, 16, 32, 64)),
    *(Logical(_K.INTEGER, bits=bits, signed=True) for bits in (8, 16, 32, 64)),
    Logical(_K.JSON),
    Logical(_K.BSON),
    Logical(_K.INTERVAL),
)
_KINDS: Final[dict[str, LogicalKind]] = {kind.name: kind for kind in LogicalKind}
_UNITS: Final[dict[str, Unit]] = {"MILLIS": "ms", "MICROS": "us", "NANOS": "ns"}
_BARE: Final[dict[LogicalKind, Logical]] = {kind: Logical(kind) for kind in LogicalKind}
_UNKNOWN: Final = _BARE[_K.UNKNOWN]
_PHYSICAL: Final[dict[int | None, PhysicalType]] = {int(kind): kind for kind in PhysicalType}
_REPETITION: Final[dict[int | None, Repetition]] = {int(kind): kind for kind in Repetition}


def leaf_columns(
    schema: Sequence[SchemaElement], orders: Sequence[ColumnOrder] | None, path: str
) -> tuple[LeafColumn, ...]:
    """Return the leaves of the depth-first list of schema elements; an error if it is not a tree."""
    if not schema or (schema[0].num_children or 0) < 0:
        raise CorruptFileError("schema has no root", path=path)
    leaves: list[LeafColumn] = []
    order_of = _orders(schema, orders)
    # Remaining children of each open group.
    pending = [schema[0].num_children or 0]
    steps: list[str] = []
    repetitions: list[Repetition] = []
    for element in schema[1:]:
        while pending and pending[-1] == 0:
            pending.pop()
            if steps:
                steps.pop()
                repetitions.pop()
        if not pending:
            raise CorruptFileError("schema has elements outside its root", path=path)
        pending[-1] -= 1
        steps.append(_name(element, path))
        repetitions.append(_repetition(element, steps, path))
        if _is_leaf(element):
            leaves.append(_leaf(len(leaves), element, steps, repetitions, order_of, path))
            steps.pop()
            repetitions.pop()
        else:
            children = element.num_children or 0
            if element.type is not None or children < 0 or len(pending) >= _MAX_DEPTH:
                raise CorruptFileError(f"schema is malformed at {'.'.join(steps)}", path=path)
            pending.append(children)
    if any(pending):
        raise CorruptFileError("schema has fewer elements than its groups declare", path=path)
    return tuple(leaves)


def _name(element: SchemaElement, path: str) -> str:
    if element.name is None:
        raise CorruptFileError("schema element has no name", path=path)
    return text(element.name)


def text(raw: bytes) -> str:
    """Decode a name; invalid UTF-8 is escaped, so that the file stays usable."""
    return raw.decode("utf-8", "backslashreplace")


def _repetition(element: SchemaElement, steps: list[str], path: str) -> Repetition:
    found = _REPETITION.get(element.repetition_type)
    if found is None:
        raise CorruptFileError(f"{'.'.join(steps)} has no known repetition type", path=path)
    return found


def _is_leaf(element: SchemaElement) -> bool:
    return element.type is not None and not element.num_children


def _leaf(
    index: int,
    element: SchemaElement,
    steps: list[str],
    repetitions: list[Repetition],
    orders: Sequence[ColumnOrder] | Order,
    path: str,
) -> LeafColumn:
    physical = _PHYSICAL.get(element.type)
    if physical is None:
        message = f"unknown physical type {element.type}"
        raise CorruptFileError(message, path=path, column=".".join(steps))
    length = element.type_length or 0
    if physical is _P.FIXED_LEN_BYTE_ARRAY and length <= 0:
        raise CorruptFileError("a fixed-length type has no length", path=path, column=".".join(steps))
    logical = _logical(element, physical, length)
    return LeafColumn(
        index=index,
        path=tuple(steps),
        physical=physical,
        type_length=length,
        logical=logical,
        repetitions=tuple(repetitions),
        max_definition=len(repetitions) - repetitions.count(Repetition.REQUIRED),
        max_repetition=repetitions.count(Repetition.REPEATED),
        field_id=element.field_id,
        column_order=orders if isinstance(orders, str) else _order(orders[index], physical, logical),
    )


def _logical(element: SchemaElement, physical: PhysicalType, length: int) -> Logical:
    if element.logicalType is not None:
        logical = _from_logical(element.logicalType)
    elif element.converted_type is not None:
        logical = _from_converted(element)
    else:
        return _BARE[_K.NONE]
    fits = physical in _STORAGE.get(logical.kind, ()) and _WIDTH.get(logical.kind, length) == length
    if logical.kind is _K.DECIMAL:
        fits = fits and logical.precision > 0 and 0 <= logical.scale <= logical.precision
    if logical.kind is _K.INTEGER:
        fits = fits and logical.bits in (8, 16, 32, 64) and (logical.bits == 64) == (physical is _P.INT64)
    if logical.kind is _K.TIME:
        fits = fits and (logical.unit == "ms") == (physical is _P.INT32)
    return logical if fits else _UNKNOWN


def _from_logical(union: LogicalType) -> Logical:
    kind = _KINDS.get(union.variant or "", _K.UNKNOWN)
    if kind is _K.DECIMAL:
        return Logical(kind, precision=union.DECIMAL.precision or 0, scale=union.DECIMAL.scale or 0)
    if kind is _K.INTEGER:
        return Logical(kind, bits=union.INTEGER.bitWidth or 0, signed=union.INTEGER.isSigned is not False)
    if kind is _K.TIME or kind is _K.TIMESTAMP:
        time = union.TIME if kind is _K.TIME else union.TIMESTAMP
        unit = _UNITS.get(time.unit.variant or "") if time.unit is not None else None
        return Logical(kind, unit=unit, utc=bool(time.isAdjustedToUTC)) if unit else _UNKNOWN
    return _BARE[kind]


def _from_converted(element: SchemaElement) -> Logical:
    number = element.converted_type
    if number is None or not 0 <= number < len(_CONVERTED):
        return _UNKNOWN
    if _CONVERTED[number].kind is _K.DECIMAL:
        return Logical(_K.DECIMAL, precision=element.precision or 0, scale=element.scale or 0)
    return _CONVERTED[number]


def _orders(
    schema: Sequence[SchemaElement], orders: Sequence[ColumnOrder] | None
) -> Sequence[ColumnOrder] | Order:
    if orders is None:
        return "undefined"
    return orders if len(orders) == sum(map(_is_leaf, schema[1:])) else "unknown"


def _order(order: ColumnOrder, physical: PhysicalType, logical: Logical) -> Order:
    variant = order.variant
    if variant == "TYPE_ORDER":
        return "type_defined"
    floating = physical in (_P.FLOAT, _P.DOUBLE) or logical.kind is _K.FLOAT16
    if variant == "IEEE_754_TOTAL_ORDER" and floating:
        return "ieee754_total"
    if variant == "INT96_TIMESTAMP_ORDER" and physical is _P.INT96:
        return "int96_timestamp"
    return "unknown"


def is_unmarked_instant(leaf: LeafColumn) -> bool:
    """Whether a leaf's times are instants that pyarrow, without a logical type, reads without a zone."""
    return leaf.physical is _P.INT96 or (leaf.logical.kind is _K.TIMESTAMP and leaf.logical.legacy)


# -- files of one schema -------------------------------------------------------------------------


_MOST = 16
_SHORT_LIST = 256
# Fields for zero rows and an empty list of row groups.
_NO_ROWS: Final = b"\x16\0\x19\x0c"
_ROWS_FIELD, _LIST_FIELD, _OF_STRUCTS = 0x16, 0x19, 0x0C
_WRITER = re.compile(r"\s*(.*?)\s+(?:version\s+v?|v)(\d{1,9}(?:\.\d{1,9})*)", re.IGNORECASE)
_recent: tuple[SchemaGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class FileWriter:
    """The writer of a file, from ``created_by``; an unknown version is the empty tuple."""

    application: str
    version: tuple[int, ...]

    @classmethod
    def parse(cls, created_by: str) -> FileWriter:
        """Parse the usual "application version 1.2.3 (build ...)", or "application v1.2.3".

        >>> FileWriter.parse("parquet-mr version 1.8.0 (build 0fda28af84b9746396014ad6a415b90592a98b3b)")
        FileWriter(application='parquet-mr', version=(1, 8, 0))
        """
        match = _WRITER.match(created_by)
        if match is None:
            return cls(created_by.strip(), ())
        return cls(match[1], tuple(int(part) for part in match[2].split(".")))


class SchemaGroup:
    """Files whose footers differ only in their row groups.

    Results that depend only on schema, column orders, key-value pairs and writer are computed once, and
    cached in ``memo``. ``head`` and ``tail`` are the footers' bytes before the number of rows and after the
    row groups; empty if a footer has its fields in another order, or if ``raw`` was not read from a file.
    """

    __slots__ = (
        "_by_name",
        "arrow_schema",
        "created_by",
        "head",
        "leaves",
        "memo",
        "paths",
        "raw",
        "start",
        "tail",
        "writer",
    )

    def __init__(self, raw: FileMetaData, path: str, head: bytes = b"", tail: bytes = b"") -> None:
        self.raw, self.head, self.tail, self.start = raw, head, tail, len(head)
        self.leaves: tuple[LeafColumn, ...] = leaf_columns(raw.schema or [], raw.column_orders, path)
        self.paths = [[step.encode() for step in leaf.path] for leaf in self.leaves]
        self.created_by = text(raw.created_by or b"")
        self.writer = FileWriter.parse(self.created_by)
        self.arrow_schema: pa.Schema | None = None
        self.memo: dict[Any, Any] = {}
        self._by_name: dict[str, list[LeafColumn]] = {}

    @property
    def shell(self) -> bytes:
        """A footer of these files without row groups; empty if it can't be built from bytes alone."""
        return self.head + _NO_ROWS + self.tail if self.head else b""

    def leaves_of(self, name: str) -> list[LeafColumn]:
        """Return the leaves of a top-level column."""
        if not self._by_name:
            by_name: dict[str, list[LeafColumn]] = {}
            for leaf in self.leaves:
                by_name.setdefault(leaf.path[0], []).append(leaf)
            self._by_name = by_name
        return self._by_name.get(name, [])


def split_footer(footer: bytes, path: str) -> tuple[SchemaGroup, int, list[RowGroup]]:
    """Return a file's schema group (a recent or a new one), its number of rows and its row groups.

    Most footers differ from a recent one only in their row groups, so nothing else is decoded.
    """
    for group in _recent:
        if group.head and footer.startswith(group.head) and footer.endswith(group.tail):
            decoded = _row_groups(footer, group.start)
            if decoded is not None and footer[decoded[2] :] == group.tail:
                return group, decoded[0], decoded[1]
    return _new_schema_group(footer, path)


def _row_groups(footer: bytes, start: int) -> tuple[int, list[RowGroup], int] | None:
    """Decode the rows and row groups that follow the schema, and their end; None if they don't follow it."""
    if footer[start] != _ROWS_FIELD:
        return None
    coded, at = read_varint(footer, start + 1)
    if footer[at] != _LIST_FIELD or footer[at + 1] & 0x0F != _OF_STRUCTS:
        return None
    count, at = footer[at + 1] >> 4, at + 2
    if count == 0x0F:
        count, at = read_varint(footer, at)
    run = decode_run(RowGroup, footer, at, count)
    return None if run is None else ((coded >> 1) ^ -(coded & 1), *run)


def _new_schema_group(footer: bytes, path: str) -> tuple[SchemaGroup, int, list[RowGroup]]:
    try:
        start = rows_at(footer)
        decoded = _row_groups(footer, start)
    except (UnusualFooter, IndexError, RecursionError):
        decoded = None
    if decoded is not None:
        head, tail = footer[:start], footer[decoded[2] :]
        raw = decode_footer(FileMetaData, head + _NO_ROWS + tail, path)
        rows, groups = decoded[:2]
    else:
        # Fields in another order, or bytes that can't be decoded, for which this raises.
        head = tail = b""
        raw = decode_footer(FileMetaData, footer, path)
        if raw.row_groups is None or raw.num_rows is None:
            raise CorruptFileError("footer lacks a required field", path=path)
        rows, groups = raw.num_rows, raw.row_groups
    if raw.schema is None or raw.version is None:
        raise CorruptFileError("footer lacks a required field", path=path)
    raw.row_groups, raw.num_rows = None, None
    return _remember(SchemaGroup(raw, path, head, tail)), rows, groups


def _remember(new: SchemaGroup) -> SchemaGroup:
    """Return the new group, or a recent one of the same content with other bytes."""
    global _recent  # noqa: PLW0603
    recent = _recent
    if not new.head:
        for group in recent:
            if not group.head and group.raw == new.raw:
                return group
    # Replaced atomically: a thread that loses a race only repeats some work.
    _recent = (new, *recent[: _MOST - 1])
    return new


def decode_footer(cls: type[S], footer: bytes, path: str) -> S:
    """Decode a footer, or some fields of it."""
    # Elements of long lists take three bytes or more; lists of encodings and names are short.
    return decode(cls, footer, "footer", path, longest=max(len(footer) // 3, _SHORT_LIST))
