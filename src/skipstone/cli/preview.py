"""Rows as a table for people: names over types, numbers to the right, what doesn't fit left out and told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from skipstone.cli.tables import Cell, Heading, fitting, table
from skipstone.cli.values import is_binary, is_nested, is_struct, is_text, plain, plain_type, texts
from skipstone.report.lines import Span, clean, shorten, width_of
from skipstone.report.units import plural

_LEAST = 12
_SHORTEST = 6
_BYTES = 32
# A fraction of a second that says nothing, in every value of a column.
_NO_FRACTION = re.compile(r"\.0+(?=Z|[+-]\d\d:\d\d|$)")
_NULL: Span = ("NULL", "dim")

Lines = Iterator[list[Span]]


def draw_rows(rows: pa.Table, width: int, *, more: str = "use --columns") -> Lines:
    """The lines of the table, and a last one that names the columns it has no room for."""
    columns = [cells_of(rows.column(number), width) for number in range(rows.num_columns)]
    headings = [_heading(field, column) for field, column in zip(rows.schema, columns, strict=True)]
    types = [(type_name(field.type), "dim") for field in rows.schema]
    lines: list[Sequence[Cell]] = [types, *zip(*columns, strict=True)]
    # At least one column, however narrow the screen.
    room = max(fitting(headings, lines, width), 1)
    yield from table(headings[:room], [line[:room] for line in lines], width, names="bold")
    left_out = rows.schema.names[room:]
    if left_out:
        head = f"… {plural(len(left_out), 'more column')}; {more}: "
        yield [(head, "dim"), (shorten(clean(", ".join(left_out)), width - width_of(head)), "dim")]


def _heading(field: pa.Field, cells: Sequence[Cell]) -> Heading:
    """Texts may be cut, and any column's name; numbers, dates and the like may not."""
    if may_be_cut(field.type):
        return Heading(field.name, flexible=True, least=_LEAST)
    widest = max((width_of(cell if isinstance(cell, str) else cell[0]) for cell in cells), default=0)
    return Heading(
        field.name, right=_is_number(plain_type(field.type)), flexible=True, least=max(widest, _SHORTEST)
    )


def may_be_cut(type: pa.DataType) -> bool:
    """Whether a part of a value says something about it, as it does of texts."""
    type = plain_type(type)
    return is_text(type) or is_nested(type) or is_binary(type)


def _is_number(type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(type) or types.is_floating(type) or types.is_decimal(type) or types.is_duration(type)
    )


def cells_of(column: pa.ChunkedArray, width: int) -> list[Cell]:
    """The values of a column as people read them."""
    found: list[str | None] = []
    for chunk in column.chunks:
        values = plain(chunk)
        if is_binary(values.type):
            found += [None if value is None else _hex(value) for value in values.to_pylist()]
        else:
            found += texts(values).to_pylist()
    if pa.types.is_temporal(column.type):
        found = _shorter_times(found)
    # Nobody sees more than a line of it, and a value may be of any length.
    return [_NULL if text is None else text[: width + 1] for text in found]


def _hex(value: bytes) -> str:
    return f"0x{value[:_BYTES].hex()}{'…' if len(value) > _BYTES else ''}"


def _shorter_times(found: list[str | None]) -> list[str | None]:
    """Times as people write them: a blank before the hour, no fraction where all of them are zero."""
    spaced = [None if text is None else text.replace("T", " ", 1) for text in found]
    if all(text is None or _NO_FRACTION.search(text) for text in spaced):
        return [None if text is None else _NO_FRACTION.sub("", text) for text in spaced]
    return spaced


def type_name(type: pa.DataType) -> str:
    """A type in a word or two.

    >>> type_name(pa.timestamp("us", "UTC")), type_name(pa.list_(pa.int64())), type_name(pa.decimal128(9, 2))
    ('timestamp UTC', 'list<int64>', 'decimal(9,2)')
    """
    types = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return str(type.extension_name).rpartition(".")[2]
    type = plain_type(type)
    if types.is_timestamp(type):
        return f"timestamp {type.tz}" if type.tz is not None else "timestamp"
    if types.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    if is_struct(type):
        return "struct"
    if types.is_map(type):
        return "map"
    if is_nested(type):
        return f"list<{type_name(type.value_type)}>"
    return _plain_name(type)


def _plain_name(type: pa.DataType) -> str:
    if is_text(type):
        return "string"
    if is_binary(type):
        return "binary"
    # Without the unit, which the values show.
    name = str(type).partition("[")[0]
    return {"halffloat": "float16", "float": "float32", "double": "float64"}.get(
        name, re.sub(r"^(date|time)\d+$", r"\1", name)
    )
