"""Python, NumPy and Arrow values as typed constants, and hashable keys for them."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import hashlib
import pickle
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.plain import type_name
from skipstone.errors import PredicateError, TypeMismatchError, shorten

if TYPE_CHECKING:
    from skipstone.typing import KeySetLike


def value_array(values: Iterable[object] | KeySetLike) -> pa.Array:
    """Convert the values of an IN list to one Arrow array."""
    values = _as_arrow(values)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise PredicateError(
            f"isin needs a list of values, not {preview(values)}", hint="wrap the value in a list"
        )
    scalars: list[Any] = [getattr(v, "scalar", v) for v in values]  # unwraps Literal nodes
    scalars = [None if _is_missing(v) else v for v in scalars]
    types = {v.type if isinstance(v, pa.Scalar) else None for v in scalars if v is not None}
    if len(types) == 1 and None not in types and pa.types.is_temporal(only := types.pop()):
        return pa.array(scalars, only)  # as Python values these could lose nanoseconds, or be out of range
    try:
        items = [v.as_py() if isinstance(v, pa.Scalar) else v for v in scalars]
    except (OverflowError, ValueError) as error:
        raise TypeMismatchError(f"IN list mixes types: {error}", hint="use values of one type") from None
    try:
        array = pa.array(items)
    except UnicodeEncodeError:
        raise TypeMismatchError("IN list contains a string that is not valid Unicode") from None
    except (pa.ArrowException, ValueError, OverflowError):
        return _mixed_array(items)
    if pa.types.is_date(array.type) and any(isinstance(v, dt.datetime) for v in items):
        return _mixed_array(items)  # Arrow has cut the times off
    if pa.types.is_timestamp(array.type) and any(map(_has_nanoseconds, items)):
        return pa.array(items, _in_nanoseconds(array.type))
    return array


def drop_nulls(values: pa.Array) -> pa.Array:
    """Drop NULLs; views are copied first, since Arrow can't filter them."""
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return values.drop_null() if values.null_count else values


def exact_array(values: list[Any], type: pa.DataType) -> pa.Array:
    """Convert Python values to an array of a type; raise an error if that would change one."""
    stored = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    if _family(stored) is None:
        some = [None if _is_missing(value) else value for value in values]
        try:
            return pa.array(some, stored)
        except (pa.ArrowException, TypeError):
            return pa.array(some)  # such as UUIDs as text
    if pa.types.is_integer(stored) and all(value.__class__ is int for value in values):
        return pa.array(values, stored)
    found = value_array(values)
    return found if _is_string(found.type) else cast_exactly(found, type)


def cast_exactly(array: pa.Array | pa.ChunkedArray, type: pa.DataType) -> Any:
    """Cast an array; raise an error if that would change a value, apart from rounding to floats."""
    if array.type.equals(type) or pa.types.is_null(array.type) or _is_string(array.type):
        return array.cast(type)
    if _family(type) != _family(array.type):
        raise TypeMismatchError(f"{type_name(array.type)} is not {type_name(type)}")
    # Arrow casts neither integers to narrow decimals nor decimals to integers.
    if pa.types.is_integer(array.type) and pa.types.is_decimal(type):
        array = array.cast(pa.decimal128(20, 0))
    elif pa.types.is_decimal(array.type) and pa.types.is_integer(type):
        array = array.cast(pa.decimal256(76, array.type.scale)).cast(pa.decimal256(76, 0))
    made = array.cast(type)
    # Arrow refuses what does not fit, except for these.
    same = True
    if pa.types.is_floating(type):
        same = pc.is_inf(made).equals(pc.is_inf(array)) if pa.types.is_floating(array.type) else True
    elif pa.types.is_floating(array.type) or pa.types.is_date(type):
        same = made.cast(array.type).equals(array)
    if not same:
        raise TypeMismatchError(f"values of type {type_name(array.type)} would change as {type_name(type)}")
    return made


def _family(type: pa.DataType) -> str | None:
    """The kind of values that are converted into each other; None for types that Arrow converts exactly."""
    if pa.types.is_boolean(type):
        return "boolean"
    if pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type):
        return "number"
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        return "instant"
    return "time" if pa.types.is_time(type) else "duration" if pa.types.is_duration(type) else None


def _is_string(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def _as_arrow(values: Any) -> Any:
    """Arrays of any library and bitmaps as an Arrow array; other values as they are."""
    if isinstance(values, pa.ChunkedArray | pa.Array):
        array = values
    elif isinstance(values, np.ndarray):
        array = values.tolist() if values.dtype == object else _converted(pa.array, values)
    elif type(values).__module__.partition(".")[0] == "pyroaring":
        array = pa.array(np.asarray(values.to_array()))
    elif hasattr(values, "__arrow_c_stream__"):
        array = _converted(pa.chunked_array, values)
    elif hasattr(values, "__arrow_c_array__"):
        array = _converted(pa.array, values)
    else:
        return values
    if isinstance(array, pa.ChunkedArray):
        if pa.types.is_string(array.type) and array.nbytes >= 2**31:
            array = array.cast(pa.large_string())
        array = array.combine_chunks()
    if isinstance(array, pa.Array) and pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array, pa.Array) and pa.types.is_nested(array.type):
        raise TypeMismatchError(
            f"values are of type {type_name(array.type)}", hint="pass one column of the table"
        )
    return array


def _converted(convert: Callable[[Any], Any], values: Any) -> Any:
    try:
        return convert(values)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise TypeMismatchError(
            f"{type(values).__name__} can't be converted to Arrow: {error}", hint="pass one column of values"
        ) from error


def _is_missing(value: object) -> bool:
    """Whether a value is NaT or NA of pandas, which are NULL."""
    return type(value).__name__ in ("NaTType", "NAType")


def _has_nanoseconds(value: object) -> bool:
    """Whether a pandas timestamp is not a whole number of microseconds, to which Arrow would cut it."""
    return bool(getattr(value, "nanosecond", 0))


def _in_nanoseconds(type: pa.DataType) -> pa.DataType:
    return pa.timestamp("ns", type.tz)


def _mixed_array(items: list[object]) -> pa.Array:
    """Widen mixed numbers to one type without loss; raise for any other mix of types."""
    numbers = [v for v in items if v is not None]
    try:
        if all(isinstance(v, (int, decimal.Decimal)) and not isinstance(v, bool) for v in numbers):
            return pa.array([None if v is None else decimal.Decimal(cast("int", v)) for v in items])
        if all(isinstance(v, (int, float, decimal.Decimal)) and not isinstance(v, bool) for v in numbers):
            return pa.array([None if v is None else float(cast("float", v)) for v in items], pa.float64())
    except (pa.ArrowException, ValueError, OverflowError, decimal.DecimalException) as error:
        raise TypeMismatchError(
            f"numbers of an IN list have no common type: {error}", hint="use floats, or split the list"
        ) from None
    kinds = sorted({type(v).__name__ for v in numbers})
    if len(kinds) == 1:
        raise TypeMismatchError(
            f"IN list contains {kinds[0]} values that Arrow can't convert to one type",
            hint="use numbers, strings, dates or times",
        )
    raise TypeMismatchError(f"IN list mixes {', '.join(kinds)}", hint="use values of one type")


def to_scalar(value: object, type: pa.DataType | None) -> pa.Scalar:
    """Convert a value to an Arrow scalar, of ``type`` if specified."""
    if type is None and isinstance(value, dt.time):
        type = pa.time64("us")
    if _is_missing(value):
        value = None
    try:
        if isinstance(value, pa.Scalar):
            scalar = value if type is None else value.cast(type)
            return scalar.value if isinstance(scalar, pa.DictionaryScalar) else scalar
        if type is None and _is_wide(value):
            return pa.scalar(decimal.Decimal(cast("int", value)))
        if type is None and _has_nanoseconds(value):
            type = _in_nanoseconds(pa.scalar(value).type)
        return pa.scalar(value, type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        wanted = "" if type is None else f" of type {type_name(type)}"
        raise TypeMismatchError(
            f"{preview(value)} can't be used as a literal{wanted}",
            hint="use a number, a string, a date or a time",
        ) from error


def _is_wide(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63


def preview(value: object) -> str:
    """Shortened repr of a user's value, safe for any object (Python refuses to print very long integers)."""
    try:
        return shorten(repr(value), 80)
    except Exception:  # noqa: BLE001  (a repr is the user's own code)
        return f"a value of type {type(value).__name__}"


@functools.singledispatch
def structure_key(value: Any) -> object:
    """Hashable key of one field of a node; equal fields have equal keys."""
    if callable(value) and not isinstance(value, types.FunctionType | type):
        return _evaluator_key(value)
    return value if callable(value) else (type(value).__name__, value)


def _evaluator_key(value: Any) -> object:
    """Key of a callable object by its pickle, since expressions of other libraries are not hashable."""
    try:
        return (type(value).__name__, hashlib.blake2b(pickle.dumps(value), digest_size=16).digest())
    except Exception:  # noqa: BLE001  (pickling an arbitrary object can raise anything)
        return (type(value).__name__, id(value))


@structure_key.register
def _(value: tuple) -> object:  # type: ignore[type-arg]
    return tuple(structure_key(item) for item in value)


@structure_key.register
def _(value: pa.DataType) -> object:
    return str(value)


@structure_key.register
def _(value: pa.Scalar) -> object:
    kind, typed = value.type, str(value.type)
    if not value.is_valid:
        return (typed, None)
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return (typed, value.as_py())
    if pa.types.is_floating(kind):
        # All NaN bit patterns are one value, and the two zeros are two.
        return (typed, float(value.as_py()).hex())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return (typed, value.value)  # Python's datetimes lack nanoseconds
    return structure_key(pa.repeat(value, 1))


@structure_key.register
def _(value: pa.Array) -> object:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([value], ["v"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return (str(value.type), len(value), hashlib.blake2b(sink.getvalue(), digest_size=16).digest())
