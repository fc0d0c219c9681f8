"""Hive partitions: the values that directory names give to every row of the files below them.

The text of a name becomes a typed value by Spark's rules of escaping and inference.
What Spark 4.3 infers, in this order: ``int``, ``bigint``, a decimal for any other number without a fraction
(``1e5`` and ``5.`` are such), ``double`` as Java reads it (blanks around it, ``1d``, ``NaN``; not ``nan``), a
timestamp only as ``yyyy-MM-dd HH:mm:ss`` with at most one more digit, a date only as ``yyyy-MM-dd``, a time
as ``HH:mm:ss`` with up to six more digits, else ``string``. Only times are looked for behind escapes. A
timestamp is an instant; Spark reads it in the session's zone, here UTC counts.
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
from skipstone.core.evidence import Array, ColumnFacts, Evidence, widest
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.errors import SchemaError, UsageError


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """The partition columns of N files: one value per column and file."""

    schema: pa.Schema
    values: tuple[pa.Array, ...]
    files: int = 0
    """How many files there are if they have no partition columns to tell it."""

    def __len__(self) -> int:
        return len(self.values[0]) if self.values else self.files

    def facts(self, column: int) -> ColumnFacts:
        """What is known of one column in each file: everything, since all its rows share one value."""
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
        known = present & ~nan
        lower, upper = widest(type, len(values))
        keys = array_keys(type, values.filter(pa.array(known)))
        if isinstance(keys, list):
            places = pa.array(np.cumsum(known) - 1, mask=~known)
            lower = upper = pa.array(keys, pa.large_binary()).take(places)
        else:
            lower[known] = upper[known] = keys
        return ColumnFacts(type, lower, upper, known, known, known, ~present, nan)

    def evidence(self, rows: Array | None = None) -> Evidence:
        """The facts about every partition column, with the files' row counts where those are known."""
        columns: dict[tuple[str, ...], ColumnFacts] = {
            (name,): self.facts(index) for index, name in enumerate(self.schema.names)
        }
        # An unknown count must not be zero, which would say that the file holds nothing.
        return Evidence(np.full(len(self), -1, dtype=np.int64) if rows is None else rows, columns)

    def take(self, files: Array) -> Partitions:
        """The partitions of the chosen files, in that order."""
        return Partitions(self.schema, tuple(_take(column, files) for column in self.values), len(files))


def read_partitions(keys: Sequence[str], *, schema: pa.Schema | None = None, uri: str = "") -> Partitions:
    """The partition columns that files have by their paths relative to the root of the lake.

    A directory ``name=value`` gives all files below it that value. Types are those that Spark would infer
    from all the values of a name, unless ``schema`` gives them; ``uri`` is the root, for messages.
    """
    given = {} if schema is None else {field.name: field.type for field in schema}
    if not given and "=" not in "/".join(keys):
        return Partitions(pa.schema([]), (), len(keys))
    paths = _Paths.of(keys, uri)
    if not paths.segments:
        return Partitions(pa.schema(list(given.items())), tuple(pa.nulls(0, type) for type in given.values()))
    names = paths.names()
    unknown = [name for name in given if name not in names]
    if unknown:
        raise UsageError(
            f"no directory is a partition by {unknown[0]!r}",
            path=uri or None,
            hint=f"the partition columns are {', '.join(names) or 'none'}",
        )
    values = tuple(paths.column(index, given.get(name)) for index, name in enumerate(names))
    fields = [pa.field(name, column.type) for name, column in zip(names, values, strict=True)]
    return Partitions(pa.schema(fields), values, len(keys))


@dataclass(frozen=True, slots=True, eq=False)
class _Paths:
    """The partitions of each distinct directory, and the directory of each file."""

    keys: Sequence[str]
    uri: str
    segments: list[tuple[PartitionSegment, ...]]
    directories: Array

    @classmethod
    def of(cls, keys: Sequence[str], uri: str) -> _Paths:
        # Many files share few directories: the paths are the one thing looked at file by file.
        codes: dict[str, int] = {}
        directories = np.fromiter(
            (codes.setdefault(key.rpartition("/")[0], len(codes)) for key in keys), np.int64, len(keys)
        )
        split = functools.cache(split_segment)
        segments = [
            tuple(found for part in directory.split("/") if (found := split(part)) is not None)
            for directory in codes
        ]
        return cls(keys, uri, segments, directories)

    def file(self, directory: int) -> str:
        """A file of the directory, to be named in a message."""
        key = self.keys[int(np.argmax(self.directories == directory))]
        return f"{self.uri.rstrip('/')}/{key}" if self.uri else key

    def names(self) -> tuple[str, ...]:
        """The partition columns, the same for every directory."""
        names = tuple(segment.name for segment in self.segments[0])
        for place, segments in enumerate(self.segments):
            own = tuple(segment.name for segment in segments)
            if own != names:
                raise SchemaError(
                    f"partitioned by {_listed(own)}, but {self.file(0)} by {_listed(names)}",
                    path=self.file(place),
                    hint="all files of a lake need the same partition columns in the same order",
                )
        seen: dict[str, str] = {}
        for name in names:
            if not name:
                raise SchemaError(
                    "a partition without a name", path=self.file(0), hint="name directories column=value"
                )
            folded = name.casefold()
            if folded in seen:
                raise SchemaError(
                    f"partitioned by both {seen[folded]!r} and {name!r}",
                    path=self.file(0),
                    column=name,
                    hint="names must differ in more than case",
                )
            seen[folded] = name
        return names

    def column(self, index: int, type: pa.DataType | None) -> pa.Array:
        """One value per file."""
        codes: dict[str, int] = {}
        places = [codes.setdefault(segments[index].raw, len(codes)) for segments in self.segments]
        raws = list(codes)
        name = self.segments[0][index].name
        try:
            values = infer_array(raws) if type is None else parse_array(raws, type)
        except NotFitting as unfit:
            raise SchemaError(
                f"the partition value {value_text(raws[unfit.place])!r} is not a valid {type}",
                path=self.file(places.index(unfit.place)),
                column=name,
                hint="give the column another type, or string to keep any text",
            ) from None
        if values is None:
            raise UsageError(
                f"a partition can't be of type {type}",
                column=name,
                hint="give a type that text can be read as",
            )
        return _take(values, np.array(places, dtype=np.int64)[self.directories])


def _take(values: pa.Array, places: Array) -> pa.Array:
    type = values.type
    if pa.types.is_string_view(type) or pa.types.is_binary_view(type):  # pyarrow can't take from views
        plain = pa.large_string() if pa.types.is_string_view(type) else pa.large_binary()
        return _take(values.cast(plain), places).cast(type)
    return values.take(pa.array(places, pa.int64()))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


# -- from text to values -----------------------------------------------------------------------

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INT, _LONG, _DOUBLE, _TEXT, _NOTHING = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.null()
_DAY, _INSTANT, _CLOCK = pa.date32(), pa.timestamp("us", "UTC"), pa.time64("us")
_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# Java reads integers and decimals in any script's digits, as Python does; doubles only in ours.
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_REAL = re.compile(
    r"([+-]?(?:NaN|Infinity))|([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NO_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_BLANKS = "".join(map(chr, range(33)))
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_STAMP = re.compile(rf"{_DATE.pattern}[ T]([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})(?:\.([0-9]{{1,9}}))?(.*)")
_SPARK_STAMP = re.compile(r".{10} .{8}(?:\.[0-9])?")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?")
_OFFSET = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?")
_DIGITS = 38
_LONGEST = 255
"""Characters of a number: as many as file systems give a name, and few enough to be computed with."""
_NANO = 10**9
_EPOCH = dt.date(1970, 1, 1).toordinal()
_EXACT = decimal.Context(prec=90)


class NotFitting(Exception):
    """A text that is not a value of the wanted type; ``place`` is its position."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


@dataclass(frozen=True, slots=True)
class PartitionSegment:
    """One directory ``name=value``: the name, and the value as it is written there."""

    name: str
    raw: str


def split_segment(directory: str) -> PartitionSegment | None:
    """The partition that a directory stands for; None if it is just a directory."""
    name, equals, raw = directory.partition("=")
    return PartitionSegment(unescape(name), raw) if equals else None


def unescape(text: str) -> str:
    """``text`` with ``%XX`` read as UTF-8 bytes, and left alone where it isn't an escape.

    Spark and Hive escape ASCII only, and read each escape as one character; writers that escape all of
    Unicode do it byte by byte. What isn't UTF-8 is read Spark's way.
    """
    return _ESCAPED.sub(_unescape, text) if "%" in text else text


def _unescape(match: re.Match[str]) -> str:
    data = bytes.fromhex(match[0].replace("%", ""))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def value_text(raw: str) -> str | None:
    """The value as text; None for NULL."""
    return None if raw in ("", _NULL) else unescape(raw)


# -- inference ---------------------------------------------------------------------------------


def infer_array(raws: Sequence[str]) -> pa.Array:
    """The values, of the type that Spark would infer from all of them."""
    readings = []
    for raw in raws:
        readings.append(_infer(raw))
        if readings[-1][0] is _TEXT:  # no other value can change that
            return pa.array([value_text(raw) for raw in raws], _TEXT)
    # There are few type objects, and comparing types is slow.
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
        found = read(raw)
        if found is not None:
            return found
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
    """The type that Spark gives a partition column with values of both types."""
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


# -- types the caller gives --------------------------------------------------------------------


def parse_array(raws: Sequence[str], type: pa.DataType) -> pa.Array | None:
    """The values, read as ``type``; None if a partition can't be of that type."""
    if pa.types.is_dictionary(type):
        values = parse_array(raws, type.value_type)
        return None if values is None else values.dictionary_encode().cast(type)
    read = _reader(type)
    if read is None:
        return None
    values = []
    for place, raw in enumerate(raws):
        text = value_text(raw)
        value = None if text is None else read(type, text)
        if text is not None and value is None:
            raise NotFitting(place)
        values.append(value)
    try:
        return _build(values, type)
    except (pa.ArrowInvalid, OverflowError):
        raise NotFitting(_first_unfit(values, type)) from None


def _first_unfit(values: list[Any], type: pa.DataType) -> int:
    for place, value in enumerate(values):
        try:
            _build([value], type)
        except (pa.ArrowInvalid, OverflowError):
            return place
    raise AssertionError("values that fit one by one fit together")


def _build(values: list[Any], type: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(type):
        return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)
    if pa.types.is_floating(type):
        return pa.array(values, pa.float64()).cast(type, safe=False)
    return pa.array(values, type)


_Reader = Callable[[pa.DataType, str], Any]


def _reader(type: pa.DataType) -> _Reader | None:
    """A function that reads a text as a value of ``type``, or as None where it is none."""
    for holds, read in _READERS:
        if holds(type):
            return read
    return None


def _whole(_: pa.DataType, text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) and len(text) <= _LONGEST else None


def _decimal(type: pa.DataType, text: str) -> decimal.Decimal | None:
    value = _exact(text)
    if value == 0:
        return decimal.Decimal(0)  # whatever its exponent
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
        return None  # the exponent is out of this world


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
    # Other writers than Spark spell these in their own ways.
    return float(text) if _NO_NUMBER.fullmatch(text) else _real(text)


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
    """Ticks since the epoch. Without an offset a text is in UTC; with one it isn't a wall-clock time."""
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
    """Seconds east of UTC; none at all for no text."""
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
