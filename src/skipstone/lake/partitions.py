"""Hive partitions: column values from directory names.

Directory names are unescaped and typed by Spark's rules. Spark 4.3 infers, in this order: ``int``,
``bigint``, a decimal for any other number without a fraction (including ``1e5`` and ``5.``), ``double`` in
Java's syntax (with blanks around it, ``1d``, ``NaN``; not ``nan``), a timestamp only as ``yyyy-MM-dd
HH:mm:ss`` with at most one fractional digit, a date only as ``yyyy-MM-dd``, a time as ``HH:mm:ss`` with up to
six fractional digits, else ``string``. Only times and timestamps are unescaped first. A timestamp is an
instant; Spark reads it in the session's zone, Skipstone in UTC.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import (
    PRESENCE,
    Kind,
    array_keys,
    is_binary,
    is_text,
    key_space,
    storage_type,
    unscaled,
)
from skipstone.core.evidence import Array, ColumnFacts, Evidence, unbounded
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.core.plain import type_name
from skipstone.errors import SchemaError, UsageError


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """Partition columns of N files: one value per column and file."""

    schema: pa.Schema
    values: tuple[pa.Array, ...]
    files: int = 0
    """Number of files, for lakes without partition columns."""

    def __len__(self) -> int:
        return len(self.values[0]) if self.values else self.files

    def facts(self, column: int) -> ColumnFacts:
        """Exact facts of one column per file, since all rows of a file share the value."""
        values = self.values[column]
        space = key_space(values.type)
        if space is PRESENCE:
            return ColumnFacts.absent(values.type, len(values))
        type = values.type
        plain = storage_type(type)
        values = values.cast(pa.large_binary() if is_text(plain) or is_binary(plain) else plain)
        present = np.asarray(values.is_valid())
        if space.kind is Kind.FLOAT:
            nan = np.asarray(pc.is_nan(values.cast(pa.float64())).fill_null(False))
        else:
            nan = np.zeros(len(values), dtype=bool)
        ordered = present & ~nan
        lower, upper = unbounded(type, len(values))
        keys = array_keys(type, values.filter(pa.array(ordered)))
        if isinstance(keys, list):
            indices = pa.array(np.cumsum(ordered) - 1, mask=~ordered)
            lower = upper = pa.array(keys, pa.large_binary()).take(indices)
        else:
            lower[ordered] = upper[ordered] = keys
        return ColumnFacts(type, lower, upper, ordered, ordered, ordered, ~present, nan)

    def evidence(self, rows: Array | None = None) -> Evidence:
        """Facts of every partition column, with the row count per file if available."""
        columns: dict[tuple[str, ...], ColumnFacts] = {
            (name,): self.facts(index) for index, name in enumerate(self.schema.names)
        }
        # An unknown count is not zero, which would mean an empty file.
        return Evidence(np.full(len(self), -1, dtype=np.int64) if rows is None else rows, columns)

    def take(self, files: Array) -> Partitions:
        """The partitions of the chosen files, in that order."""
        return Partitions(self.schema, tuple(_take(column, files) for column in self.values), len(files))


def read_partitions(keys: Sequence[str], *, schema: pa.Schema | None = None, uri: str = "") -> Partitions:
    """Partition columns from file paths relative to the root of the lake.

    A directory ``name=value`` sets the column for all files below it. Types come from ``schema``, or are
    inferred from all values of a column as Spark does; ``uri`` is the root, for messages.
    """
    types = {} if schema is None else {field.name: field.type for field in schema}
    if not types and "=" not in "/".join(keys):
        return Partitions(pa.schema([]), (), len(keys))
    paths = _Paths.of(keys, uri)
    if not paths.segments:
        return Partitions(pa.schema(list(types.items())), tuple(pa.nulls(0, type) for type in types.values()))
    names = paths.names()
    unknown = [name for name in types if name not in names]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is not a partition column",
            path=uri or None,
            hint=f"partition columns are: {', '.join(names) or 'none'}",
        )
    values = tuple(paths.column(index, types.get(name)) for index, name in enumerate(names))
    fields = [pa.field(name, column.type) for name, column in zip(names, values, strict=True)]
    return Partitions(pa.schema(fields), values, len(keys))


@dataclass(frozen=True, slots=True, eq=False)
class _Paths:
    """Partition segments of each distinct directory, and the directory of each file."""

    keys: Sequence[str]
    uri: str
    segments: list[tuple[PartitionSegment, ...]]
    directories: Array

    @classmethod
    def of(cls, keys: Sequence[str], uri: str) -> _Paths:
        # Only paths are processed per file; the rest per directory, of which there are few.
        codes: dict[str, int] = {}
        directories = np.fromiter(
            (codes.setdefault(key.rpartition("/")[0], len(codes)) for key in keys), np.int64, len(keys)
        )
        split = functools.cache(split_segment)
        segments = [
            tuple(segment for part in directory.split("/") if (segment := split(part)) is not None)
            for directory in codes
        ]
        return cls(keys, uri, segments, directories)

    def file(self, directory: int) -> str:
        """A file of the directory, for messages."""
        key = self.keys[int(np.argmax(self.directories == directory))]
        return f"{self.uri.rstrip('/')}/{key}" if self.uri else key

    def names(self) -> tuple[str, ...]:
        """Partition columns, which must be the same in every directory."""
        names = tuple(segment.name for segment in self.segments[0])
        for directory, segments in enumerate(self.segments):
            own = tuple(segment.name for segment in segments)
            if own != names:
                raise SchemaError(
                    f"file is partitioned by {_quoted(own)}, but {self.file(0)} by {_quoted(names)}",
                    path=self.file(directory),
                    hint="use the same partition columns in the same order for all files of a lake",
                )
        seen: dict[str, str] = {}
        for name in names:
            if not name:
                raise SchemaError(
                    "partition has no column name", path=self.file(0), hint="name directories column=value"
                )
            folded = name.casefold()
            if folded in seen:
                raise SchemaError(
                    f"file is partitioned by both {seen[folded]!r} and {name!r}",
                    path=self.file(0),
                    column=name,
                    hint="use partition columns that differ in more than case",
                )
            seen[folded] = name
        return names

    def column(self, index: int, type: pa.DataType | None) -> pa.Array:
        """One value per file."""
        codes: dict[str, int] = {}
        positions = [codes.setdefault(segments[index].raw, len(codes)) for segments in self.segments]
        raws = list(codes)
        name = self.segments[0][index].name
        try:
            values = infer_array(raws) if type is None else parse_array(raws, type)
        except InvalidValue as invalid:
            raise SchemaError(
                f"partition value {value_text(raws[invalid.position])!r} is not a valid {type_name(type)}",
                path=self.file(positions.index(invalid.position)),
                column=name,
                hint="use another type for the column; string accepts any value",
            ) from None
        if values is None:
            raise UsageError(
                f"a partition column can't be of type {type_name(type)}",
                column=name,
                hint="use a type that can be parsed from a string",
            )
        return _take(values, np.array(positions, dtype=np.int64)[self.directories])


def _take(values: pa.Array, indices: Array) -> pa.Array:
    type = values.type
    if pa.types.is_string_view(type) or pa.types.is_binary_view(type):  # pyarrow can't take from views
        plain = pa.large_string() if pa.types.is_string_view(type) else pa.large_binary()
        return _take(values.cast(plain), indices).cast(type)
    return values.take(pa.array(indices, pa.int64()))


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


# -- from strings to values --------------------------------------------------------------------

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INT, _LONG, _DOUBLE, _TEXT, _NOTHING = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.null()
_DAY, _INSTANT, _CLOCK = pa.date32(), pa.timestamp("us", "UTC"), pa.time64("us")
_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# Java parses integers and decimals in the digits of any script, as Python does; doubles only in ASCII.
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_REAL = re.compile(
    r"([+-]?(?:NaN|Infinity))|([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_BLANKS = "".join(map(chr, range(33)))
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_STAMP = re.compile(rf"{_DATE.pattern}[ T]([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})(?:\.([0-9]{{1,9}}))?(.*)")
_SPARK_STAMP = re.compile(r".{10} .{8}(?:\.[0-9])?")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?")
_OFFSET = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?")
_DIGITS = 38
_LONGEST = 255
"""Longest number in characters: the limit of file names, and cheap to parse."""
_NANO = 10**9
_EPOCH = dt.date(1970, 1, 1).toordinal()
_EXACT = decimal.Context(prec=90)


class InvalidValue(Exception):
    """The string at ``position`` is not a value of the column's type."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True, slots=True)
class PartitionSegment:
    """One directory ``name=value``; ``raw`` is the escaped value."""

    name: str
    raw: str


def split_segment(directory: str) -> PartitionSegment | None:
    """Parse ``name=value``; None for an ordinary directory."""
    name, equals, raw = directory.partition("=")
    return PartitionSegment(unescape(name), raw) if equals else None


def unescape(text: str) -> str:
    """Decode ``%XX`` escapes as UTF-8; anything else stays.

    Spark and Hive escape ASCII only and decode each escape as one character; writers that escape all of
    Unicode do it byte by byte. Invalid UTF-8 is decoded as Spark does.
    """
    return _ESCAPED.sub(_unescape, text) if "%" in text else text


def _unescape(match: re.Match[str]) -> str:
    data = bytes.fromhex(match[0].replace("%", ""))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def value_text(raw: str) -> str | None:
    """The unescaped value; None for NULL."""
    return None if raw in ("", _NULL) else unescape(raw)


# -- inference ---------------------------------------------------------------------------------


def infer_array(raws: Sequence[str]) -> pa.Array:
    """Parse values as the type that Spark would infer from all of them."""
    readings = []
    for raw in raws:
        readings.append(_infer(raw))
        if readings[-1][0] is _TEXT:  # one string makes the column a string
            return pa.array([value_text(raw) for raw in raws], _TEXT)
    # By identity, since comparing types is slow and there are few type objects.
    types = {id(type): type for type, _ in readings}.values()
    type = functools.reduce(_wider, types, _NOTHING)
    if type == _TEXT:
        return pa.array([value_text(raw) for raw in raws], type)
    if type == _DOUBLE:
        return pa.array([None if value is None else float(value) for _, value in readings], type)
    if type == _INSTANT:
        readings = [(t, v * DAY * UNITS["us"] if t is _DAY else v) for t, v in readings]
    return _build([value for _, value in readings], type)


def _infer(raw: str) -> tuple[pa.DataType, Any]:
    text = value_text(raw)
    if text is None:
        return _NOTHING, None
    for read in (_infer_number, _infer_stamp, _infer_date, _infer_time):
        typed = read(raw)
        if typed is not None:
            return typed
    return _TEXT, text


def _infer_number(raw: str) -> tuple[pa.DataType, Any] | None:
    if _WHOLE.fullmatch(raw) and len(raw) <= _LONGEST:
        whole = int(raw)
        if -(2**63) <= whole < 2**63:
            return _INT if -(2**31) <= whole < 2**31 else _LONG, whole
    value = _exact(raw)
    if value is not None:
        digits, exponent = value.as_tuple()[1:]
        if isinstance(exponent, int) and exponent >= 0 and len(digits) + exponent <= _DIGITS:
            return _whole_type(len(digits) + exponent), value
    real = _real(raw)
    return None if real is None else (_DOUBLE, real)


@functools.cache
def _whole_type(digits: int) -> pa.DataType:
    return pa.decimal128(digits, 0)


def _infer_stamp(raw: str) -> tuple[pa.DataType, Any] | None:
    text = unescape(raw)
    value = _stamp(_INSTANT, text) if _SPARK_STAMP.fullmatch(text) else None
    return None if value is None else (_INSTANT, value)


def _infer_date(raw: str) -> tuple[pa.DataType, Any] | None:
    value = _days(raw)
    return None if value is None else (_DAY, value)


def _infer_time(raw: str) -> tuple[pa.DataType, Any] | None:
    value = _time(_CLOCK, unescape(raw))
    return None if value is None else (_CLOCK, value)


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Spark's type of a partition column with values of both types."""
    if b in (a, _NOTHING):
        return a
    if a == _NOTHING:
        return b
    both = {a, b}
    if both == {_INT, _LONG}:
        return _LONG
    if both == {_INT, _DOUBLE}:
        return _DOUBLE
    if both == {_DAY, _INSTANT}:
        return _INSTANT
    digits = [_WHOLE_DIGITS.get(t) or (t.precision if pa.types.is_decimal(t) else 0) for t in (a, b)]
    return _whole_type(max(digits)) if all(digits) else _TEXT


_WHOLE_DIGITS = {_INT: 10, _LONG: 20}


# -- types from the caller's schema ------------------------------------------------------------


def parse_array(raws: Sequence[str], type: pa.DataType) -> pa.Array | None:
    """Parse values as ``type``; None if a partition column can't have that type."""
    if pa.types.is_dictionary(type):
        values = parse_array(raws, type.value_type)
        return None if values is None else values.dictionary_encode().cast(type)
    read = _reader(type)
    if read is None:
        return None
    values = []
    for position, raw in enumerate(raws):
        text = value_text(raw)
        value = None if text is None else read(type, text)
        if text is not None and value is None:
            raise InvalidValue(position)
        values.append(value)
    try:
        return _build(values, type)
    except (pa.ArrowInvalid, OverflowError):
        raise InvalidValue(_first_invalid(values, type)) from None


def _first_invalid(values: list[Any], type: pa.DataType) -> int:
    for position, value in enumerate(values):
        try:
            _build([value], type)
        except (pa.ArrowInvalid, OverflowError):
            return position
    raise AssertionError("values that are valid individually are valid together")


def _build(values: list[Any], type: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(type):
        return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)
    if pa.types.is_floating(type):
        return pa.array(values, pa.float64()).cast(type, safe=False)
    return pa.array(values, type)


_Reader = Callable[[pa.DataType, str], Any]


def _reader(type: pa.DataType) -> _Reader | None:
    """The function that parses a string as ``type`` and returns None if it is invalid."""
    for holds, read in _READERS:
        if holds(type):
            return read
    return None


def _whole(_: pa.DataType, text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) and len(text) <= _LONGEST else None


def _decimal(type: pa.DataType, text: str) -> decimal.Decimal | None:
    value = _exact(text)
    if value == 0:
        return decimal.Decimal(0)  # with any exponent
    if value is None:
        return None
    if not -_EXACT.prec < value.adjusted() < _EXACT.prec or len(text) > _LONGEST:
        return None
    whole = unscaled(value, type.scale)
    return None if whole is None else decimal.Decimal(whole).scaleb(-type.scale, _EXACT)


def _exact(text: str) -> decimal.Decimal | None:
    try:
        return decimal.Decimal(text) if _NUMBER.fullmatch(text) else None
    except decimal.InvalidOperation:
        return None  # the exponent is out of range


def _real(text: str) -> float | None:
    match = _REAL.fullmatch(text.strip(_BLANKS))
    if match is None:
        return None
    if match[3] is None:
        return float(match[1] or match[2])
    try:
        return float.fromhex(match[3])
    except OverflowError:
        return float("-inf" if text.strip(_BLANKS).startswith("-") else "inf")


def _any_real(_: pa.DataType, text: str) -> float | None:
    # Writers other than Spark have their own spellings.
    return float(text) if _NOT_FINITE.fullmatch(text) else _real(text)


def _days(text: str) -> int | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return dt.date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH
    except ValueError:
        return None


def _day(type: pa.DataType, text: str) -> int | None:
    days = _days(text)
    return days if days is None or pa.types.is_date32(type) else days * DAY * UNITS["ms"]


def _stamp(type: pa.DataType, text: str) -> int | None:
    """Ticks since the epoch. A string without an offset is in UTC; one with an offset needs a zoned type."""
    match = _STAMP.fullmatch(text)
    days = _days(text[:10])
    if days is None or (match is None and len(text) > 10):
        return None
    seconds, nanos = days * DAY, 0
    if match is not None:
        clock, offset = _clock(*match.groups()[3:7]), _offset(match[8])
        if clock is None or offset is None or (match[8] and type.tz is None):
            return None
        seconds, nanos = seconds - offset + clock // _NANO, clock % _NANO
    return _ticks(seconds * _NANO + nanos, type.unit)


def _time(type: pa.DataType, text: str) -> int | None:
    match = _TIME.fullmatch(text)
    clock = None if match is None else _clock(*match.groups())
    return None if clock is None else _ticks(clock, type.unit)


def _clock(hour: str, minute: str, second: str, fraction: str | None) -> int | None:
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59:
        return None
    whole = int(hour) * 3600 + int(minute) * 60 + int(second)
    return whole * _NANO + int((fraction or "").ljust(9, "0"))


def _offset(text: str) -> int | None:
    """Seconds east of UTC; 0 for an empty string."""
    if text in ("", "Z"):
        return 0
    match = _OFFSET.fullmatch(text)
    if match is None:
        return None
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60
    return -seconds if match[1] == "-" else seconds


def _ticks(nanos: int, unit: str) -> int | None:
    ticks, rest = divmod(nanos, _NANO // UNITS[unit])
    return None if rest else ticks


_READERS: tuple[tuple[Callable[[pa.DataType], bool], _Reader], ...] = (
    (pa.types.is_null, lambda _, __: None),
    (is_text, lambda _, text: text),
    (is_binary, lambda _, text: text.encode()),
    (pa.types.is_boolean, lambda _, text: {"true": True, "false": False}.get(text.lower())),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _any_real),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date, _day),
    (pa.types.is_timestamp, _stamp),
    (pa.types.is_time, _time),
)
