"""Projections and sort orders: names resolved to paths, and the resulting schema.

ORDER BY follows Spark: by default NULLs come first ascending and last descending; NaN is above all numbers.
"""

from __future__ import annotations

import decimal
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.ir.bind import Binder
from skipstone.errors import SchemaError, TypeMismatchError, UnknownColumnError, UsageError
from skipstone.lake.snapshot import AntiJoin

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """Paths into a lake's schema, none inside another, and the resulting columns.

    Several paths into one struct give one column with only those fields, as in Parquet readers.
    """

    paths: tuple[Path, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, schema: pa.Schema, paths: Iterable[Path]) -> Projection:
        """The columns at ``paths``, in order of first appearance."""
        outermost = _outermost(paths)
        fields = [_cut(schema.field(name), mine) for name, mine in _below(outermost).items()]
        return cls(outermost, pa.schema(fields))

    @property
    def below(self) -> dict[str, list[Path]]:
        """Paths into each column; the empty path is the entire column."""
        return _below(self.paths)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def without(self, names: Iterable[str], schema: pa.Schema) -> Projection:
        """The projection without some columns."""
        left_out = set(names)
        return Projection.of(schema, [path for path in self.paths if path[0] not in left_out])


_RESOLVED = 64
_resolved: dict[tuple[Sequence[str] | None, int, bool], tuple[Projection, pa.Schema]] = {}


def resolve(columns: Sequence[str] | None, schema: pa.Schema, *, case_sensitive: bool) -> Projection:
    """Resolve column names; None is every column, ``s.x`` is field x of struct s."""
    if columns is not None and not isinstance(columns, tuple):
        return _resolve(columns, schema, case_sensitive)
    # By identity, as in ``binder_of``: a lake has one schema object per version, which the cache references.
    key = columns, id(schema), case_sensitive
    cached = _resolved.get(key)
    if cached is None:
        if len(_resolved) >= _RESOLVED:
            _resolved.clear()
        cached = _resolved[key] = _resolve(columns, schema, case_sensitive), schema
    return cached[0]


def _resolve(columns: Sequence[str] | None, schema: pa.Schema, case_sensitive: bool) -> Projection:
    if columns is None:
        for name in _repeated(schema.names):
            message = "files have more than one column of this name"
            raise SchemaError(message, column=name, hint="list the columns to read in columns=")
        return Projection(tuple((name,) for name in schema.names), schema)
    columns = (columns,) if isinstance(columns, str) else columns
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f"columns must be a list of column names, got {columns!r}")
    repeated = _repeated(columns)
    if repeated:
        raise UsageError(f"duplicate columns: {', '.join(repeated)}", hint="list each column once")
    binder = Binder(schema, case_sensitive)
    return Projection.of(schema, [find_path(binder, name) for name in columns])


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _below(paths: Iterable[Path]) -> dict[str, list[Path]]:
    below: dict[str, list[Path]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    return below


def find_path(binder: Binder, name: str) -> Path:
    """The column of this name, or the struct field of a dotted name."""
    try:
        return binder.column((name,)).path
    except UnknownColumnError:
        if "." not in name:
            raise
    return binder.column(tuple(name.split("."))).path


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Paths without those inside another one."""
    wanted = dict.fromkeys(paths)
    return tuple(p for p in wanted if not any(p[:depth] in wanted for depth in range(1, len(p))))


def _cut(field: pa.Field, below: list[Path]) -> pa.Field:
    if () in below:
        return field
    children = []
    for child in field.type.fields:
        mine = [path[1:] for path in below if path[0] == child.name]
        if mine:
            children.append(_cut(child, mine))
    return field.with_type(pa.struct(children))


def with_hidden(schema: pa.Schema, deletes: Iterable[AntiJoin]) -> pa.Schema:
    """A lake's schema, with additional columns that equality deletes need."""
    fields = list(schema)
    for anti in deletes:
        for path, type in zip(anti.columns, anti.types, strict=True):
            fields = _with_path(fields, path, type)
    return schema if fields == list(schema) else pa.schema(fields)


def _with_path(fields: list[pa.Field], path: Path, type: pa.DataType) -> list[pa.Field]:
    """Add a field at a path, unless it exists."""
    position = next((at for at, one in enumerate(fields) if one.name == path[0]), len(fields))
    if len(path) == 1:
        return fields if position < len(fields) else [*fields, pa.field(path[0], type)]
    inner = list(fields[position].type.fields) if position < len(fields) else []
    struct = pa.struct(_with_path(inner, path[1:], type))
    field = fields[position].with_type(struct) if position < len(fields) else pa.field(path[0], struct)
    return [*fields[:position], field, *fields[position + 1 :]]


_TERM = re.compile(
    r"^(?P<name>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?$",
    re.IGNORECASE | re.DOTALL,
)
_DIRECTIONS = {"ascending": False, "asc": False, "descending": True, "desc": True}


@dataclass(frozen=True, slots=True)
class Order:
    """One sort key."""

    path: Path
    descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        direction = " desc" if self.descending else ""
        usual = self.nulls_first is not self.descending
        nulls = "" if usual else f" nulls {'first' if self.nulls_first else 'last'}"
        return ".".join(self.path) + direction + nulls


def parse_order(
    order_by: str | Sequence[str | tuple[str, str] | Order] | None, schema: pa.Schema, *, case_sensitive: bool
) -> tuple[Order, ...]:
    """Parse ORDER BY: ``"ts desc"``, ``["a", "b nulls last"]``, ``[("a", "descending")]``."""
    if order_by is None:
        return ()
    terms = [order_by] if isinstance(order_by, str | Order) else list(order_by)
    binder = Binder(schema, case_sensitive)
    return tuple(_term(term, binder) for term in terms)


def _term(term: Any, binder: Binder) -> Order:
    if isinstance(term, Order):
        return term
    nulls: str | None = None
    if isinstance(term, tuple) and len(term) == 2 and str(term[1]).lower() in _DIRECTIONS:
        name, descending = term[0], _DIRECTIONS[term[1].lower()]
    elif isinstance(term, str) and (match := _TERM.match(term.strip())) is not None:
        name, descending = match["name"], (match["direction"] or "").lower() == "desc"
        nulls = (match["nulls"] or "").lower() or None
    else:
        raise UsageError(
            f"invalid order_by term {term!r}", hint='use "name", "name desc" or "name desc nulls last"'
        )
    try:
        ref = binder.column(path := find_path(binder, name))
    except UnknownColumnError as error:
        column, _, direction = name.rpartition(" ")
        if column and direction.isalpha():
            error.hint = f"use asc or desc after the name of a column: {column} desc"
        raise
    if not is_ordered(ref.type) and not pa.types.is_null(ref.type):
        raise TypeMismatchError(f"can't sort by type {ref.type}", column=name)
    return Order(path, descending, (nulls == "first") if nulls else not descending)


def sort_positions(table: pa.Table, order: Sequence[Order], limit: int | None = None) -> Array:
    """Positions of the first ``limit`` rows in sort order; a stable sort."""
    keys: dict[str, Any] = {}
    directions: list[tuple[str, str]] = []
    for number, term in enumerate(order):
        for part, (values, descending) in enumerate(_columns(column_at(table, term.path), term)):
            keys[f"{number}.{part}"] = values
            directions.append((f"{number}.{part}", "descending" if descending else "ascending"))
    # Not all of pyarrow's sorts are stable; the row number breaks ties.
    keys["row"] = pa.array(np.arange(len(table)))
    directions.append(("row", "ascending"))
    ranked = pa.table(keys)
    if limit is not None and limit < len(table):
        picked = pc.select_k_unstable(ranked, limit, sort_keys=directions)
    else:
        picked = pc.sort_indices(ranked, sort_keys=directions)
    return np.asarray(picked)


def _columns(column: pa.ChunkedArray, term: Order) -> list[tuple[Any, bool]]:
    """Columns without NULL and NaN that sort in the term's order."""
    missing = np.asarray(column.is_null().combine_chunks())
    nulls = [(pa.array(missing.astype(np.int8)), term.nulls_first)] if missing.any() else []
    return [*nulls, (sortable(column), term.descending)]


def sortable(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values that Arrow sorts in Spark's order; NULLs become arbitrary values."""
    type = storage_type(column.type)
    chunks = [plain_chunk(chunk) for chunk in column.chunks or [pa.nulls(0, column.type)]]
    values = pa.chunked_array(chunks)
    if key_space(type).kind is Kind.FLOAT:
        numbers = np.asarray(values.cast(pa.float64()).fill_null(0.0)) + 0.0  # one zero
        bits, most = numbers.view(np.int64), np.iinfo(np.int64).max
        # Bits of positive floats sort like integers, those of negative ones in reverse.
        ordered = np.where(bits < 0, bits ^ most, bits)
        return pa.array(np.where(np.isnan(numbers), most, ordered))
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_null(values.type):
        return pa.array(np.zeros(len(values), dtype=np.int8))
    return values.fill_null(_filler(values.type))


def plain_chunk(chunk: pa.Array) -> pa.Array:
    """An array without extension, dictionary or view layouts."""
    if isinstance(chunk, pa.ExtensionArray):
        return plain_chunk(chunk.storage)
    if pa.types.is_dictionary(chunk.type):
        return plain_chunk(chunk.dictionary_decode())
    if pa.types.is_string_view(chunk.type):
        return chunk.cast(pa.large_string())
    if pa.types.is_binary_view(chunk.type):
        return chunk.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(chunk.type):
        return chunk.cast(pa.binary())
    return chunk


def _filler(type: pa.DataType) -> pa.Scalar:
    if pa.types.is_temporal(type):
        return pa.scalar(0, pa.int32() if type.bit_width == 32 else pa.int64()).cast(type)
    if pa.types.is_decimal(type):
        return pa.scalar(decimal.Decimal(0), type)
    if pa.types.is_integer(type):
        return pa.scalar(0, type)
    return pa.scalar(b"" if pa.types.is_binary(type) or pa.types.is_large_binary(type) else "", type)


def column_at(table: pa.Table, path: Path) -> pa.ChunkedArray:
    """A column or a field of a struct column; fields of a NULL struct are NULL."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pa.chunked_array(
            [pc.struct_field(chunk, name) for chunk in column.chunks],
            column.type.field(name).type,
        )
    return column
