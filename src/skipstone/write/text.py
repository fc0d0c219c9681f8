"""CSV and newline-delimited JSON as Arrow batches: types of a file, and its rows in a schema.

Columns are matched by name; a column that a file lacks is NULL. Errors name the line and the column.
"""

from __future__ import annotations

import base64
import csv
import decimal
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any, Final, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.plain import type_name
from skipstone.errors import CorruptFileError, SchemaError, UsageError

Open = Callable[[], Any]
"""Opens a file from its beginning, as a binary file object without compression."""
_BLOCK: Final = 8 * 2**20
_DECIMAL: Final = pa.decimal128(38, 0)
_INSTANT: Final = pa.timestamp("us", "UTC")
_CLOCK: Final = pa.timestamp("us")


# -- options -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How a CSV file is written."""

    separator: str = ","
    header: bool = True
    quote: str = '"'
    escape: str = ""
    null: str = ""
    encoding: str = "utf-8"

    @classmethod
    def of(cls, options: Mapping[str, str], *, tabs: bool = False) -> CsvFormat:
        """Read options named as in Spark; values in quotes may always contain line breaks."""
        named = {name.lower(): str(value) for name, value in options.items()}
        found = cls(
            separator=named.get("sep", named.get("delimiter", "\t" if tabs else ",")).replace("\\t", "\t"),
            header=named.get("header", "true").lower() == "true",
            quote=named.get("quote", '"'),
            escape=named.get("escape", ""),
            null=named.get("nullvalue", ""),
            encoding=named.get("encoding", "utf-8"),
        )
        for name, value in (("sep", found.separator), ("quote", found.quote), ("escape", found.escape)):
            if len(value) > 1 or (name == "sep" and not value):
                raise UsageError(f"read option {name} must be one character, got {value!r}")
        return found


# -- inferred types ----------------------------------------------------------------------------


def widen(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the type of a column with inferred types ``a`` and ``b``; text if nothing else holds both."""
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        left, right = ({field.name: field.type for field in type.fields} for type in (a, b))
        return pa.struct(_united(left, right))
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(widen(a.value_type, b.value_type))
    return _WIDER.get(frozenset((a, b)), pa.string())


# Types that stand for others until all values are known: int64 with values that a double would round, and
# NaN and infinities only, which may be words.
_LARGE: Final = pa.uint64()
_WORDS: Final = pa.float16()
# A double would round large numbers: both together are text.
_WIDER: Final = {
    frozenset((pa.float64(), pa.int64())): pa.float64(),
    frozenset((pa.float64(), _WORDS)): pa.float64(),
    frozenset((pa.int64(), _WORDS)): pa.float64(),
    frozenset((pa.int64(), _LARGE)): _LARGE,
    frozenset((pa.int64(), _DECIMAL)): _DECIMAL,
    frozenset((_LARGE, _DECIMAL)): _DECIMAL,
    frozenset((pa.date32(), _CLOCK)): _CLOCK,
}


def _united(a: dict[str, pa.DataType], b: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    return {name: widen(a.get(name, pa.null()), b.get(name, pa.null())) for name in a | b}


def unite(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Unite the inferred schemas of files; columns without values are text."""
    types: dict[str, pa.DataType] = {}
    for schema in schemas:
        types = _united(types, dict(zip(schema.names, schema.types, strict=True)))
    return pa.schema([(name, _storable(type)) for name, type in types.items()])


def _storable(type: pa.DataType) -> pa.DataType:
    """Replace unknown types, and objects without fields, which no file can store, by text."""
    if pa.types.is_null(type) or type == _WORDS:
        return pa.string()
    if type == _LARGE:
        return pa.int64()
    if pa.types.is_list(type):
        return pa.list_(_storable(type.value_type))
    if pa.types.is_struct(type):
        fields = [(field.name, _storable(field.type)) for field in type.fields]
        return pa.struct(fields) if fields else pa.string()
    return type


# -- text to values ----------------------------------------------------------------------------

_ZONED: Final = r"\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"


def _parse(texts: pa.Array, type: pa.DataType) -> pa.Array:
    """Convert strings to times, as Spark does; a time without an offset is in UTC."""
    if not pa.types.is_timestamp(type):
        return texts.cast(type)
    if type.tz is None:
        return texts.cast(type)
    zoned = pc.match_substring_regex(texts, _ZONED)
    none = pa.scalar(None, pa.string())
    with_offset = pc.if_else(zoned, texts, none).cast(pa.timestamp(type.unit, "UTC"))
    without = pc.if_else(zoned, none, texts).cast(pa.timestamp(type.unit))
    return pc.coalesce(with_offset, without.cast(pa.timestamp(type.unit, "UTC"))).cast(type)


def _first_invalid(texts: pa.Array, type: pa.DataType) -> int:
    """Return the position of the first string that isn't a value of a type; one is not."""
    start, stop = 0, len(texts)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            _parse(texts.slice(start, middle - start), type)
            start = middle
        except pa.ArrowInvalid:
            stop = middle
    return start


# -- CSV ---------------------------------------------------------------------------------------


_BAD_BYTE: Final = re.compile("[\udc80-\udcff]")
_ENCODING: Final = "pass the encoding of the files as a read option, such as encoding=latin1"


@dataclass(frozen=True, slots=True)
class CsvFile:
    """One CSV file."""

    path: str
    open: Open
    format: CsvFormat

    def names(self) -> list[str]:
        """Return the names in the header; a column without a name is called as in Spark, ``_c0``."""
        return self._header()[0]

    def _header(self) -> tuple[list[str], int]:
        """Names, and the number of lines up to the header."""
        for lines, (_, cells) in enumerate(self._python_rows(), 1):
            if not cells:
                continue
            if _BAD_BYTE.search("".join(cells)):
                raise CorruptFileError(
                    f"header is not {self.format.encoding}", path=self.path, unit="line 1", hint=_ENCODING
                )
            return [name or f"_c{at}" for at, name in enumerate(cells)], lines
        return [], 0

    def _python_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield all rows, with the number of the last line of each."""
        form = self.format
        encoding = "utf-8-sig" if form.encoding.lower().replace("-", "") == "utf8" else form.encoding
        try:
            text = io.TextIOWrapper(
                io.BufferedReader(self.open()), encoding, errors="surrogateescape", newline=""
            )
            csv.field_size_limit(2**31 - 1)
            rows = csv.reader(
                text,
                delimiter=form.separator,
                quotechar=form.quote or None,
                escapechar=form.escape or None,
                quoting=csv.QUOTE_MINIMAL if form.quote else csv.QUOTE_NONE,
            )
            for row in rows:
                yield rows.line_num, row
        except LookupError as error:
            raise UsageError(f"unknown encoding {form.encoding!r}", hint=_ENCODING) from error
        except (UnicodeError, csv.Error) as error:
            raise CorruptFileError(str(error), path=self.path, hint=_ENCODING) from error

    def infer(self, known: frozenset[str] = frozenset()) -> pa.Schema:
        """Return the type that holds all values of each column; columns of known types are text."""
        names = self.names()
        types: dict[str, pa.DataType] = dict.fromkeys(names, pa.null())
        texts = [name for name in names if name in known]
        types |= dict.fromkeys(texts, pa.string())
        if len(texts) == len(types):
            return pa.schema(list(types.items()))
        for batch in self.read(pa.schema([(name, pa.string()) for name in types if name not in known])):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if types[name] != pa.string():
                    types[name] = widen(types[name], _infer(column))
        return pa.schema(list(types.items()))

    def read(
        self, schema: pa.Schema, *, by_position: bool = False, exact: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in a schema; columns that it lacks are left out.

        ``exact`` refuses numbers and booleans that inference would keep as text.
        """
        import pyarrow.csv as pc_csv

        names, lines = (schema.names, 0) if by_position else self._header()
        if not names:
            return
        places = _places(names, schema, self.path)
        # Columns are read by position: names may occur twice.
        labels = [str(at) for at in range(len(names))]
        wanted = [str(at) for at in places if at is not None]
        types = {label: _csv_type(field.type, exact) for label, field in _pairs(places, schema)}
        # The last column shows whether a quote is not closed, and the number of rows if no other is read.
        wanted += [label for label in labels[-1:] if label not in wanted]
        types.setdefault(labels[-1], pa.string())
        form = self.format
        try:
            reader = pc_csv.open_csv(
                self.open(),
                pc_csv.ReadOptions(
                    use_threads=False,
                    block_size=_BLOCK,
                    column_names=labels,
                    skip_rows_after_names=lines,
                    encoding=form.encoding,
                ),
                pc_csv.ParseOptions(
                    delimiter=form.separator,
                    quote_char=form.quote or False,
                    escape_char=form.escape or False,
                    newlines_in_values=True,
                ),
                pc_csv.ConvertOptions(
                    null_values=sorted({"", form.null}),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    include_columns=wanted,
                    column_types=types,
                ),
            )
            done, last = 0, None
            for batch in reader:
                yield self._convert(batch, schema, places, lines + done)
                done += batch.num_rows
                last = batch.column(labels[-1])[-1].as_py() if batch.num_rows else last
        except pa.ArrowInvalid as error:
            if self._has_rows():
                self._explain(str(error), schema, places)
            return
        if isinstance(last, str) and re.search("[\r\n]", last) and not self._ends_with_quote():
            # The last line break is part of the value too.
            line = self._line(lines + done) + last.endswith("\n")
            hint = "close the quote; rows after it would be part of the value"
            raise CorruptFileError("quote is not closed", path=self.path, unit=f"line {line}", hint=hint)

    def _has_rows(self) -> bool:
        """Whether the file is more than a header."""
        return len(list(islice((cells for _, cells in self._python_rows() if cells), 2))) == 2

    def _ends_with_quote(self) -> bool:
        tail, stream = b"", self.open()
        while block := stream.read(_BLOCK):
            tail = (tail + block)[-64:]
        text = tail.decode(self.format.encoding, errors="replace").rstrip("\r\n\0")
        return bool(self.format.quote) and text.endswith(self.format.quote)

    def _convert(
        self, batch: pa.RecordBatch, schema: pa.Schema, places: Sequence[int | None], above: int
    ) -> pa.RecordBatch:
        arrays = []
        for place, field in zip(places, schema, strict=True):
            array = pa.nulls(batch.num_rows, field.type) if place is None else batch.column(str(place))
            if array.type != field.type:
                try:
                    parsed = _parse(array, field.type)
                    at = pc.index(_altered(array, field.type), value=True).as_py()
                except pa.ArrowInvalid:
                    at = _first_invalid(array, field.type)
                if at >= 0:
                    raise self._bad_value(above + at + 1, field, array[at].as_py())
                array = parsed
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _explain(self, message: str, schema: pa.Schema, places: Sequence[int | None]) -> NoReturn:
        """Raise the error that names the line and the column of pyarrow's message."""
        row = re.search(r"Row #(\d+)", message)
        column = re.search(r"CSV column #(\d+)", message)
        value = re.search(r"invalid value '(.*)'$", message, re.DOTALL)
        if row and column:
            field = schema.field(places.index(int(column[1])))
            raise self._bad_value(int(row[1]), field, value[1] if value else None, message)
        unit = None if row is None else f"line {self._line(int(row[1]))}"
        if "straddl" in message:
            message = f"a row is longer than {_BLOCK:,} bytes, or a quote is not closed"
        elif "Expected" in message:
            message = message[message.index("Expected") :].replace("Expected", "expected", 1)
        hint = "fix or remove the line; if values contain separators, quote them"
        raise CorruptFileError(message, path=self.path, unit=unit, hint=hint)

    def _bad_value(self, row: int, field: pa.Field, value: str | None, message: str = "") -> SchemaError:
        line = f"line {self._line(row)}"
        shown = (
            f"{value!r} is not a valid {type_name(field.type)}"
            if value is not None
            else message.rpartition(": ")[2]
        )
        hint = f'fix the value, or read the column as text into a new lake: schema="{field.name} string, …"'
        if "UTF8" in message:
            hint = _ENCODING
        return SchemaError(shown, path=self.path, unit=line, column=field.name, hint=hint)

    def _line(self, row: int) -> int:
        """Return the line on which a row begins; rows are counted from the header, without blank lines."""
        rows = ((line, cells) for line, cells in self._python_rows() if cells)
        for line, cells in islice(rows, row - 1, row):
            return line - sum(cell.count("\n") for cell in cells)
        return 0


def _places(names: Sequence[str], schema: pa.Schema, path: str) -> list[int | None]:
    """Return the position of each column of a schema in a file."""
    for name in schema.names:
        if names.count(name) > 1:
            raise SchemaError("two columns have this name", path=path, column=name, hint="rename one of them")
    return [names.index(name) if name in names else None for name in schema.names]


def _pairs(places: Sequence[int | None], schema: pa.Schema) -> Iterator[tuple[str, pa.Field]]:
    for place, field in zip(places, schema, strict=True):
        if place is not None:
            yield str(place), field


def _csv_type(type: pa.DataType, exact: bool) -> pa.DataType:
    """Return the type that pyarrow reads directly: text for times in a zone, which may lack an offset."""
    checked = exact and (_is_number(type) or pa.types.is_boolean(type))
    return pa.string() if checked or (pa.types.is_timestamp(type) and type.tz is not None) else type


def check_csv_types(schema: pa.Schema) -> None:
    """Refuse types that CSV files have no values of."""
    for field in schema:
        if pa.types.is_nested(field.type):
            hint = "read the column as string"
            raise UsageError(
                f"CSV files have no values of type {type_name(field.type)}", column=field.name, hint=hint
            )


_LADDER: Final = (pa.bool_(), pa.int64(), _DECIMAL, pa.float64(), pa.date32(), _CLOCK, _INSTANT)
_FIRST: Final = 64
_BOOLEANS: Final = pa.array(["true", "false", "TRUE", "FALSE", "True", "False"])
# Zip codes, telephone numbers and padded values.
_TEXT_NUMBER: Final = r"^(\+|-?0[0-9xX]|\s)|\s$"
_WHOLE: Final = r"^-?[0-9]{1,38}$"
# Any other number has at most 15 digits and a small exponent, and is exact in a double.
_LONG: Final = r"[0-9.]{16,}|[eE][+-]?[0-9]{3}"
_DOUBLE_DIGITS: Final = 17
_EXACT: Final = 2**53


def _infer(texts: pa.Array) -> pa.DataType:
    """Return the first type that all strings can be converted to."""
    texts = texts.drop_null()
    if not len(texts):
        return pa.null()
    # A type that the first values don't have needs no test on the others.
    types = [type for type in _LADDER if _fits(texts.slice(0, _FIRST), type)]
    found = next((type for type in types if _fits(texts, type)), pa.string())
    if found == pa.int64() and _has_large(texts.cast(found)):
        return _LARGE
    words = found == pa.float64() and not pc.any(pc.match_substring_regex(texts, "[0-9]")).as_py()
    return _WORDS if words else found


def _fits(texts: pa.Array, type: pa.DataType) -> bool:
    try:
        texts.cast(type)
    except pa.ArrowInvalid:
        return False
    if type == _DECIMAL and not pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
        return False
    return not pc.any(_altered(texts, type)).as_py()


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _has_large(numbers: pa.Array) -> bool:
    """Whether a double would round some integers."""
    return any(end is not None and abs(end) > _EXACT for end in pc.min_max(numbers).as_py().values())


def _altered(texts: pa.Array, type: pa.DataType) -> pa.Array:
    """Mark strings of which a number or boolean of a type would not keep the spelling or all digits."""
    if pa.types.is_boolean(type):
        return pc.and_(pc.is_valid(texts), pc.invert(pc.is_in(texts, _BOOLEANS)))
    if not _is_number(type):
        return pa.array([], pa.bool_())
    spelled = pc.match_substring_regex(texts, _TEXT_NUMBER)
    return pc.or_(spelled, _rounded(texts)) if type == pa.float64() else spelled


def _rounded(texts: pa.Array) -> pa.Array:
    """Mark numbers that differ from their double in the digits they have."""
    suspect = pc.match_substring_regex(texts, _LONG)
    if not pc.any(suspect).as_py():
        return suspect
    same = pc.equal(texts.cast(pa.float64()).cast(pa.string()), texts)
    whole = pc.match_substring_regex(texts, _WHOLE)
    suspect = pc.and_(suspect, pc.or_(pc.invert(same), whole))
    marks = np.zeros(len(texts), bool)
    places = pc.indices_nonzero(suspect)
    marks[places.to_numpy()] = [_is_rounded(text) for text in texts.take(places).to_pylist()]
    return pa.array(marks)


def _is_rounded(text: str) -> bool:
    value = float(text)
    digits = re.sub("[eE].*|[^0-9]", "", text).strip("0")
    if value == 0 or math.isinf(value):
        return bool(digits)
    if len(digits) > _DOUBLE_DIGITS or (abs(value) > _EXACT and text.lstrip("-").isdecimal()):
        return True
    return decimal.Decimal(f"{value:.{len(digits) - 1}e}") != decimal.Decimal(text)


# -- JSON --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JsonFile:
    """One file of JSON objects, one per line."""

    path: str
    open: Open

    def infer(self) -> pa.Schema:
        """Return the type that holds all values of each field; strings stay text."""
        import pyarrow.json as pj

        found: pa.DataType = pa.struct([])
        for line, block in self._blocks():
            try:
                table = pj.read_json(pa.BufferReader(block), _json_options(block))
                chunks = [column.combine_chunks() for column in table.columns]
                named = zip(table.column_names, map(_inferred, chunks), strict=True)
                type = None if any(map(_may_be_rounded, chunks)) else pa.struct(list(named))
            except pa.ArrowInvalid:
                type = None
            if type is None:
                rows = [_json_type(row) for _, row in self._objects(line, block)]
                type = reduce(widen, rows, pa.struct([]))
            found = widen(found, type)
        return pa.schema(list(found.fields))

    def read(self, schema: pa.Schema, *, exact: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows in a schema; fields that it lacks are left out.

        ``exact`` refuses numbers that inference would keep as text.
        """
        for line, block in self._blocks():
            batch = self._read_fast(block, schema)
            if batch is None or (exact and any(map(_may_be_rounded, batch.columns))):
                batch = self._read_slowly(line, block, schema, exact)
            yield batch

    def _read_fast(self, block: bytes, schema: pa.Schema) -> pa.RecordBatch | None:
        """Read a block by pyarrow; None if it has values that pyarrow can't convert."""
        import pyarrow.json as pj

        direct = pa.schema([field.with_type(_json_carrier(field.type)) for field in schema])
        if not len(schema) or any(_needs_python(type) for type in direct.types):
            return None
        how = pj.ParseOptions(explicit_schema=direct, unexpected_field_behavior="ignore")
        try:
            table = pj.read_json(pa.BufferReader(block), _json_options(block), how).combine_chunks()
            columns = [table.column(name).combine_chunks() for name in schema.names]
            arrays = [
                array if array.type == field.type else _parse(array, field.type)
                for array, field in zip(columns, schema, strict=True)
            ]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read_slowly(self, line: int, block: bytes, schema: pa.Schema, exact: bool) -> pa.RecordBatch:
        """Read a block line by line: maps, numbers as text, and the place of an error."""
        rows: list[list[Any]] = []
        for number, row in self._objects(line, block):
            try:
                rows.append([_json_value(row.get(f.name), f.type, f.name, exact) for f in schema])
            except _InvalidValue as error:
                shown = _json_text(error.value)
                raise SchemaError(
                    f"{shown} is not a valid {type_name(error.type)}",
                    path=self.path,
                    unit=f"line {number}",
                    column=error.column,
                    hint="fix the value, or read the column as text into a new lake: pass schema=",
                ) from None
        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = [pa.array(list(values), type) for values, type in zip(columns, schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of whole lines, with the number of the first line of each."""
        line, rest = 1, b""
        stream = self.open()
        while data := stream.read(_BLOCK):
            whole, newline, end = data.rpartition(b"\n")
            if not newline:
                rest += data
                continue
            block = b"".join((rest, whole, newline))
            yield line, self._checked(line, block)
            line, rest = line + block.count(b"\n"), end
        if rest.strip():
            yield line, self._checked(line, rest)

    def _checked(self, line: int, block: bytes) -> bytes:
        """Refuse bytes that are not UTF-8, which pyarrow would accept."""
        try:
            pa.array([block], pa.large_binary()).cast(pa.large_string())
        except pa.ArrowInvalid:
            place = next(at for at, text in enumerate(block.split(b"\n"), line) if not _is_utf8(text))
            hint = "convert the file to UTF-8"
            raise CorruptFileError("not UTF-8", path=self.path, unit=f"line {place}", hint=hint) from None
        return block

    def _objects(self, line: int, block: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, text in enumerate(block.split(b"\n"), line):
            if not text.strip():
                continue
            unit = f"line {number}"
            try:
                row = json.loads(text, parse_float=_Fraction)
            except ValueError as error:
                hint = "write one JSON object per line; for an array or indented objects, run jq -c '.[]'"
                raise CorruptFileError(
                    f"not a JSON object: {error}", path=self.path, unit=unit, hint=hint
                ) from None
            if not isinstance(row, dict):
                hint = "write one JSON object per line: run jq -c '.[]' on an array"
                problem = f"line is a JSON {'array' if isinstance(row, list) else 'value'}, not an object"
                raise CorruptFileError(problem, path=self.path, unit=unit, hint=hint)
            yield number, row


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _json_options(block: bytes) -> Any:
    import pyarrow.json as pj

    return pj.ReadOptions(use_threads=False, block_size=len(block) + 1)


class _Fraction(decimal.Decimal):
    """A number with a fraction or an exponent, and its text."""

    text: str

    def __new__(cls, text: str) -> Self:
        try:
            value = super().__new__(cls, text)
        except decimal.InvalidOperation:
            # The exponent is beyond that of decimals too.
            value = super().__new__(cls, float(text))
        value.text = text
        return value


def _inferred(array: pa.Array) -> pa.DataType:
    """Return the type of values that pyarrow has read; times, which it infers from strings, are text."""
    type = array.type
    if pa.types.is_struct(type):
        fields = zip(type.fields, array.flatten(), strict=True)
        return pa.struct([(field.name, _inferred(values)) for field, values in fields])
    if pa.types.is_list(type):
        return pa.list_(_inferred(array.flatten()))
    if pa.types.is_int64(type) and _has_large(array):
        return _LARGE
    return pa.string() if pa.types.is_temporal(type) else type


def _may_be_rounded(array: pa.Array) -> bool:
    """Whether an array has doubles that may have been other whole numbers, or beyond the range."""
    if pa.types.is_struct(array.type):
        return any(map(_may_be_rounded, array.flatten()))
    if pa.types.is_list(array.type):
        return _may_be_rounded(array.flatten())
    return pa.types.is_float64(array.type) and bool(pc.any(pc.greater_equal(pc.abs(array), _EXACT)).as_py())


def _json_type(value: Any) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return _LARGE if abs(value) > _EXACT else pa.int64()
        return _DECIMAL if abs(value) < 10**38 else pa.string()
    if isinstance(value, _Fraction | float):
        return pa.string() if isinstance(value, _Fraction) and math.isinf(float(value)) else pa.float64()
    if isinstance(value, list):
        return pa.list_(reduce(widen, map(_json_type, value), pa.null()))
    if isinstance(value, dict):
        return pa.struct([(name, _json_type(one)) for name, one in value.items()])
    return pa.string()


def _json_carrier(type: pa.DataType) -> pa.DataType:
    """Return the type that pyarrow reads directly: text for dates and times."""
    return pa.string() if pa.types.is_temporal(type) else type


def _needs_python(type: pa.DataType) -> bool:
    """Whether a type has parts that pyarrow's JSON reader can't convert, or not by Spark's rules."""
    if pa.types.is_map(type) or pa.types.is_temporal(type) or is_binary(type):
        return True
    return any(_needs_python(type.field(at).type) for at in range(type.num_fields))


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class _InvalidValue(Exception):
    def __init__(self, value: Any, type: pa.DataType, column: str) -> None:
        super().__init__(column)
        self.value, self.type, self.column = value, type, column


def _json_text(value: Any) -> str:
    """Return a value as JSON; fractions keep their digits."""
    if isinstance(value, _Fraction):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json_text(name)}: {_json_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _json_value(value: Any, type: pa.DataType, column: str, exact: bool) -> Any:
    """Convert a JSON value to what pyarrow makes a value of a type from."""
    if value is None:
        return None
    if is_text(type):
        text = value if isinstance(value, str) else _json_text(value)
        if _SURROGATE.search(text):
            raise _InvalidValue(value, type, column)
        return text
    if pa.types.is_struct(type) and isinstance(value, dict):
        named = [(f.name, f.type, f"{column}.{f.name}") for f in type.fields]
        return {name: _json_value(value.get(name), inner, path, exact) for name, inner, path in named}
    if pa.types.is_map(type) and isinstance(value, dict):
        inside = f"{column}.value"
        return [(key, _json_value(item, type.item_type, inside, exact)) for key, item in value.items()]
    if isinstance(type, pa.ListType | pa.LargeListType) and isinstance(value, list):
        return [_json_value(item, type.value_type, f"{column}.element", exact) for item in value]
    try:
        return _json_scalar(value, type, exact)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        raise _InvalidValue(value, type, column) from None


def _json_scalar(value: Any, type: pa.DataType, exact: bool) -> Any:
    if pa.types.is_boolean(type) and isinstance(value, bool):
        return value
    number = isinstance(value, int | decimal.Decimal) and not isinstance(value, bool)
    if pa.types.is_integer(type) and number and value == int(value):
        return pa.scalar(int(value), type).as_py()
    if pa.types.is_floating(type) and (number or value in ("NaN", "Infinity", "-Infinity", "+Infinity")):
        large = isinstance(value, int) and abs(value) > _EXACT
        if exact and (large or (number and math.isinf(float(value)))):
            raise ValueError(value)
        return float(value)
    if pa.types.is_decimal(type) and (number or isinstance(value, str)):
        return pa.scalar(decimal.Decimal(value), type).as_py()
    if pa.types.is_temporal(type) and isinstance(value, str):
        return _parse(pa.array([value]), type)[0].as_py()
    if is_binary(type) and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise TypeError(type)
