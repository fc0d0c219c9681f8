"""CAST from text and to text, in Spark's forms."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.filter.series import Checked
from skipstone.core.filter.texts import by_value
from skipstone.core.filter.times import moments
from skipstone.core.filter.truth import Array, bools
from skipstone.core.ir.constants import cast_value
from skipstone.core.ir.operands import CantJudge, Value
from skipstone.core.ir.transforms import UNITS
from skipstone.errors import TypeMismatchError
from skipstone.predicate import tree

_SPACES = "".join(map(chr, (*range(33), 127)))  # what Spark trims: white space and control characters
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NAMED = re.compile(r"[+-]?(inf|infinity)|nan", re.IGNORECASE)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_EXACT = decimal.Context(prec=400)
_LAST_YEAR = 9999


def from_text(cast: tree.Cast, target: pa.DataType) -> Checked | None:
    """Text read as ``target``; each distinct text is read once."""
    if is_text(target):
        return lambda a: (a.cast(target), None)
    if is_binary(target):
        fixed = pa.types.is_fixed_size_binary(target)
        return None if fixed else lambda a: (a.cast(target), None)
    read = _reader(cast, target)
    if read is None:
        return None

    def change(array: pa.Array) -> tuple[pa.Array, Array]:
        made = _plain_days(array) if pa.types.is_date32(target) else None
        if made is None:
            made = by_value(array, read, target)
        return made, bools(made.is_null())

    return change


def _plain_days(array: pa.Array) -> pa.Array | None:
    """Dates that are all written ``YYYY-MM-DD``, by Arrow's own reader."""
    if not pc.all(pc.match_substring_regex(array, r"\A\d{4}-\d{2}-\d{2}\z")).as_py():
        return None
    try:
        return array.cast(pa.date32())
    except pa.ArrowInvalid:
        return None


def _reader(cast: tree.Cast, target: pa.DataType) -> Callable[[str], object] | None:
    if pa.types.is_integer(target):
        return _whole(target)
    if pa.types.is_floating(target):
        return _float(target)
    if pa.types.is_boolean(target):
        return _flag
    if pa.types.is_decimal(target):
        return _decimal(target)
    if pa.types.is_date32(target) or pa.types.is_timestamp(target):
        return lambda text: _moment(text, cast)
    return None


def _whole(target: pa.DataType) -> Callable[[str], object]:
    signed = not pa.types.is_unsigned_integer(target)
    top = 2 ** (target.bit_width - signed)

    def read(text: str) -> int | None:
        text = text.strip(_SPACES)
        number = int(text) if _WHOLE.fullmatch(text) and len(text) < 1_000 else None
        return number if number is not None and -top * signed <= number < top else None

    return read


def _float(target: pa.DataType) -> Callable[[str], object]:
    narrow = pa.types.is_float32(target)

    def read(text: str) -> float | None:
        text = text.strip(_SPACES)
        if _FLOAT.fullmatch(text):
            text = text.rstrip("dDfF")
        elif not _NAMED.fullmatch(text):
            return None
        # Arrow reads the text in one rounding; by way of a double there would be two.
        return pa.scalar(text).cast(target).as_py() if narrow else float(text)

    return read


def _flag(text: str) -> bool | None:
    word = text.strip(_SPACES).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _decimal(target: pa.DataType) -> Callable[[str], object]:
    unit = decimal.Decimal(1).scaleb(-target.scale)

    def read(text: str) -> decimal.Decimal | None:
        text = text.strip(_SPACES)
        if not _NUMBER.fullmatch(text):
            return None
        number = decimal.Decimal(text)
        if number.adjusted() >= target.precision - target.scale and number:
            return None
        rounded = number.quantize(unit, decimal.ROUND_HALF_UP, _EXACT)
        return rounded if rounded.adjusted() < target.precision - target.scale else None

    return read


def _moment(text: str, cast: tree.Cast) -> pa.Scalar | None:
    try:
        return cast_value(Value(pa.scalar(text), cast.zone), cast).scalar
    except (TypeMismatchError, CantJudge):
        return None


# -- to text -----------------------------------------------------------------------------------


def to_text(source: pa.DataType, target: pa.DataType, zone: str) -> Checked | None:
    """Values written as Spark writes them."""
    if pa.types.is_integer(source):
        return lambda a: (a.cast(target), None)
    if pa.types.is_boolean(source):
        return lambda a: (pc.if_else(a, "true", "false").cast(target), None)
    if is_binary(source):
        return lambda a: (a.cast(pa.large_binary()).cast(pa.large_string()).cast(target), None)
    if pa.types.is_date32(source):
        return lambda a: (_days(a).cast(target), None)
    if pa.types.is_timestamp(source) and source.unit != "ns":
        return lambda a: (_stamps(a, zone).cast(target), None)
    return None


def _days(array: pa.Array) -> pa.Array:
    _check_years(array)
    return array.cast(pa.string())


def _stamps(array: pa.Array, zone: str) -> pa.Array:
    """``yyyy-MM-dd HH:mm:ss`` in the session's zone, and as much of a fraction as there is."""
    wall, _ = moments(array, zone)
    per_second = UNITS[array.type.unit]
    nulls = bools(array.is_null())
    seconds = pa.array(wall // per_second, mask=nulls).view(pa.timestamp("s"))
    _check_years(seconds)
    ticks = np.asarray(wall % per_second * (10**6 // per_second))
    written = seconds.cast(pa.string())
    if not ticks.any():
        return written
    digits = pc.utf8_lpad(pa.array(ticks).cast(pa.string()), 6, "0")
    dotted = pc.binary_join_element_wise(pa.array([""] * len(ticks)), pc.utf8_rtrim(digits, "0"), ".")
    return pc.binary_join_element_wise(written, pc.if_else(pa.array(ticks == 0), "", dotted), "")


def _check_years(array: pa.Array) -> None:
    years = pc.min_max(pc.year(array))
    if years["min"].is_valid and (years["min"].as_py() < 0 or years["max"].as_py() > _LAST_YEAR):
        raise pa.ArrowInvalid("a year that is written with more than four digits")
