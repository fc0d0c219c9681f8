"""Projections and sort orders: names resolved to paths, and the resulting schema.

ORDER BY follows Spark: by default NULLs come first ascending and last descending; NaN is above all numbers.
"""

from __future__ import annotations

import decimal
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import slice_columns
from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.filter import RowValues
from skipstone.core.ir.bind import Binder
from skipstone.core.plain import type_name
from skipstone.errors import ParseError, SchemaError, TypeMismatchError, UnknownColumnError, UsageError
from skipstone.lake.snapshot import AntiJoin
from skipstone.predicate.tree import CLOCK, Call, Column, Expr, refuse_deep

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """Paths into a lake's schema, none inside another, and the columns read.

    Several paths into one struct read one column with only those fields, as in Parquet readers.
    """

    paths: tuple[Path, ...]
    schema: pa.Schema
    computed: ComputedColumns | None = None
    """The columns of the result, if they differ from the columns read."""
    sliced: tuple[int, ...] | None = None
    """Numbers of the result's columns whose slices engines can't import; None if not looked for."""

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
        """Names of the columns read."""
        return list(self.schema.names)

    @property
    def result(self) -> pa.Schema:
        """The schema of the result."""
        return self.schema if self.computed is None else self.computed.schema

    @property
    def inputs(self) -> Projection:
        """The columns read as they are, without what is computed from them."""
        return self if self.computed is None else Projection(self.paths, self.schema)

    def without(self, names: Iterable[str], schema: pa.Schema) -> Projection:
        """The projection without some columns."""
        left_out = set(names)
        return Projection.of(schema, [path for path in self.paths if path[0] not in left_out])


_RESOLVED = 64
_resolved: dict[tuple[Sequence[str] | None, int, bool], tuple[Projection, pa.Schema]] = {}


def resolve(
    columns: Sequence[str] | None,
    schema: pa.Schema,
    *,
    case_sensitive: bool,
    query: pa.Schema | None = None,
) -> Projection:
    """Resolve the columns of a result; None is every column.

    An item is a column, a field of a struct (``geo.city``), or an expression (``a * b AS v``). The column
    of the result is called what was written: ``geo.city``, ``a * b``; ``AS`` gives it another name.
    Expressions are bound to the types of ``query``.
    """
    query = schema if query is None else query
    if columns is not None and not isinstance(columns, tuple):
        return _resolve(columns, schema, case_sensitive, query)
    # By identity, as in ``binder_of``: a lake has one schema object per version, which the cache references.
    key = columns, id(schema), case_sensitive
    cached = _resolved.get(key)
    if cached is None:
        if len(_resolved) >= _RESOLVED:
            _resolved.clear()
        projection = _resolve(columns, schema, case_sensitive, query)
        projection = replace(projection, sliced=slice_columns(projection.result))
        cached = _resolved[key] = projection, schema
    return cached[0]


_REPEATED: Final = "list columns with other names in columns= or --columns; these can't be told apart"


@refuse_deep
def _resolve(
    columns: Sequence[str] | None, schema: pa.Schema, case_sensitive: bool, query: pa.Schema
) -> Projection:
    if columns is None:
        for name in _repeated(schema.names):
            message = "files have more than one column of this name"
            raise SchemaError(message, column=name, hint=_REPEATED)
        return Projection(tuple((name,) for name in schema.names), schema)
    columns = (columns,) if isinstance(columns, str) else columns
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        shown = list(columns) if isinstance(columns, tuple) else columns
        items = columns if isinstance(columns, list | tuple) else [columns]
        raise UsageError(
            f"columns must be a list of column names, got {shown!r}",
            hint=f"write names and expressions as strings: {as_list(map(str, items))}",
        )
    binder = Binder(schema, case_sensitive)
    if "*" in columns and "*" not in schema.names:
        columns = [name for text in columns for name in (schema.names if text == "*" else [text])]
    outputs = [(*_output(text, binder, query), text) for text in columns]
    repeated = _repeated(name for name, _, _ in outputs)
    if repeated:
        texts = [text for name, _, text in outputs if name == repeated[0]]
        same = len(set(texts)) == 1
        message = ", ".join(repeated) if same else f"{' and '.join(texts)} are both called {repeated[0]}"
        hint = "list each column once" if same else f"name one of them: {texts[-1].split(' AS ')[0]} AS other"
        raise UsageError(f"duplicate columns: {message}", hint=hint)
    values = {name: value for name, value, _ in outputs}
    paths = [binder.column(path).path for value in values.values() for path in value.columns()]
    read = Projection.of(schema, paths)
    if all(isinstance(value, Column) and value.path == (name,) for name, value in values.items()):
        return read
    return Projection(read.paths, read.schema, ComputedColumns.of(values, binder, query))


_PARTS = re.compile(r"""`(?:[^`]|``)*`|"(?:[^"]|"")*"|'(?:[^'\\]|\\.)*'|.""", re.DOTALL)
_QUOTED = re.compile(r"""`((?:[^`]|``)*)`|"((?:[^"]|"")*)\"""")


def split_columns(text: str) -> list[str]:
    """Split a list at its commas; a name that contains a comma is in backticks or double quotes.

    >>> split_columns("a, s.x, `b, c`, coalesce(a, 'x, y') AS v")
    ['a', 's.x', 'b, c', "coalesce(a, 'x, y') AS v"]
    """
    items, depth = [""], 0
    for part in _PARTS.findall(text):
        depth += (part in "([") - (part in ")]")
        if part == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += part
    return [_unquoted(item.strip()) for item in items if item.strip()]


def list_hint(text: str) -> str | None:
    """The next step for several names in one string; None if there is one."""
    items = split_columns(text)
    return f"pass a list: {as_list(items)}" if len(items) > 1 else None


def as_list(items: Iterable[str]) -> str:
    """A list of strings in Python, with double quotes as in the docs."""
    return json.dumps(list(items), ensure_ascii=False)


def _unquoted(item: str) -> str:
    match = _QUOTED.fullmatch(item)
    if match is None:
        return item
    return match[1].replace("``", "`") if match[2] is None else match[2].replace('""', '"')


_NAME = re.compile(r"[\w.]*")
_ALIAS = re.compile(r"\bas\b", re.IGNORECASE)


def _output(text: str, binder: Binder, query: pa.Schema) -> tuple[str, Expr]:
    """The name and the value of a column of the result."""
    try:
        path = find_path(binder, text)
    except UnknownColumnError as error:
        if _NAME.fullmatch(text):
            raise
        parsed = _parse_output(text)
        if parsed is None:
            error.hint = list_hint(text) or error.hint
            raise
    else:
        return ".".join(path), Column(path)
    from skipstone.core.filter.constants import settle_value

    name, value = parsed
    return name, settle_value(value, query, case_sensitive=binder.case_sensitive)


def _parse_output(text: str) -> tuple[str, Expr] | None:
    """Parse SQL with an optional name; None if it is a single name."""
    from sqlglot import exp

    from skipstone.predicate.sql.read import SqlReader
    from skipstone.predicate.sql.types import select_list

    try:
        items = select_list(text, "spark")
        item = items[0] if len(items) == 1 else None
        named = isinstance(item, exp.Alias)
        if item is None or (named and not _ALIAS.search(text)):
            return None
        value = SqlReader("spark", "UTC").value(item.this if named else item)
    except ParseError as error:
        reason = error.message.replace("a condition on rows", "columns")
        hint = "write a column, a field such as geo.city, or an expression such as a * b AS v"
        if reason.startswith("the aggregate"):
            hint = "use scan.aggregate"
        raise ParseError(f"{text!r} is neither a column nor an expression: {reason}", hint=hint) from None
    name = item.alias if named else text.strip()
    if isinstance(value, Column) and not named:
        name = ".".join(value.path)
    for node in value.walk():
        if isinstance(node, Call) and node.name in CLOCK:
            raise UsageError(f"{node} is not supported in columns", hint="write the time as a literal")
    return name, value


@dataclass(frozen=True, slots=True, eq=False)
class ComputedColumns:
    """Columns of a result by name: fields of structs, and values computed from the columns read."""

    values: dict[str, Expr]
    rows: RowValues
    """Evaluates those that are not columns."""
    schema: pa.Schema

    @classmethod
    def of(cls, values: dict[str, Expr], binder: Binder, query: pa.Schema) -> ComputedColumns:
        """Bind expressions to the types of ``query``."""
        expressions = {name: value for name, value in values.items() if not isinstance(value, Column)}
        rows = RowValues(expressions, query, case_sensitive=binder.case_sensitive)
        fields = [
            _field_at(binder.schema, value.path).with_name(name)
            if isinstance(value, Column)
            else pa.field(name, rows.types[name])
            for name, value in values.items()
        ]
        return cls(values, rows, pa.schema(fields))

    @property
    def plain(self) -> bool:
        """Whether all are columns or fields."""
        return not self.rows.types

    def adding(self, paths: Mapping[str, Path], schema: pa.Schema) -> ComputedColumns:
        """These columns and fields of the lake's schema under other names."""
        values = {**self.values, **{name: Column(path) for name, path in paths.items()}}
        fields = [_field_at(schema, path).with_name(name) for name, path in paths.items()]
        return replace(self, values=values, schema=pa.schema([*self.schema, *fields]))

    def compute(self, table: pa.Table) -> pa.Table:
        """The columns for the rows of a table with the columns read."""
        computed = self.rows.compute(table)
        columns = [
            column_at(table, value.path) if isinstance(value, Column) else computed[name]
            for name, value in self.values.items()
        ]
        return pa.table(columns, self.schema)


def _field_at(schema: pa.Schema, path: Path) -> pa.Field:
    """The field at a path, which is NULL where a struct around it is."""
    field = schema.field(path[0])
    nullable = field.nullable
    for name in path[1:]:
        field = storage_type(field.type).field(name)
        nullable = nullable or field.nullable
    return field.with_nullable(nullable)


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
            f"invalid order_by term {term!r}",
            hint='write a string: "name", "name desc" or "name desc nulls last"',
        )
    try:
        ref = binder.column(path := find_path(binder, name))
    except UnknownColumnError as error:
        column, _, direction = name.rpartition(" ")
        if several := list_hint(str(term)):
            error.hint = several
        elif column and direction.isalpha():
            error.hint = f"use asc or desc after the name of a column: {column} desc"
        raise
    if not is_ordered(ref.type) and not pa.types.is_null(ref.type):
        raise TypeMismatchError(f"can't sort by type {type_name(ref.type)}", column=name)
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
