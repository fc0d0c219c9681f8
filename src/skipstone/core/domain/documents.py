"""Column domains as JSON documents, and back."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.domain.domain import ColumnDomain, ColumnHandle, Domain
from skipstone.core.domain.keys import Key, from_key, key_space, storage_type
from skipstone.core.domain.spans import Bound, Marker, Range
from skipstone.core.plain import type_name
from skipstone.errors import NotExpressibleError, PredicateError, TypeMismatchError, UnknownColumnError

_DOMAIN: Final = {"name", "nulls", "nans", "values", "ranges"}
_RANGE: Final = {"low", "high", "low_inclusive", "high_inclusive"}
_DAY: Final = 86_400_000
_MOMENT: Final = re.compile(r"(-?\d{4,}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)?)(Z?)")
_EXAMPLE: Final = 'write {"columns": [{"name": "id", "values": [7]}]}, as ColumnDomain.to_json() does'


def to_document(domain: ColumnDomain) -> dict[str, Any]:
    """A ColumnDomain as values that ``json`` writes."""
    if domain.is_none:
        return {"none": True}
    return {"columns": [_written(column, one) for column, one in domain.items]}


def from_document(document: Any, schema: pa.Schema) -> ColumnDomain:
    """The ColumnDomain of a document; the schema has the types of its columns."""
    if isinstance(document, Mapping) and len(document) == 1 and document.get("none") is True:
        return ColumnDomain.none()
    columns = document.get("columns") if isinstance(document, Mapping) and len(document) == 1 else None
    if not isinstance(columns, list):
        raise PredicateError("domain is neither none nor a list of columns", hint=_EXAMPLE)
    result = ColumnDomain.all()
    for item in columns:
        _check(item, _DOMAIN, "column of a domain")
        handle = _handle(item.get("name"), schema)
        result = result.intersect(ColumnDomain.of({handle: _read(item, handle)}))
    return result


# -- writing -----------------------------------------------------------------------------------


def _written(column: ColumnHandle, domain: Domain) -> dict[str, Any]:
    written: dict[str, Any] = {"name": list(column.path) if column.fields else column.name}
    points = domain.spans.points()
    if points is not None:
        written["values"] = [_json_value(domain.type, key) for key in points]
    else:
        written["ranges"] = [_json_range(one) for one in domain.ranges]
    return written | {"nulls": domain.nulls, "nans": domain.nans}


def _json_range(one: Range) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for name, marker in (("low", one.low), ("high", one.high)):
        if marker.key is not None:
            written[name] = _json_value(marker.type, marker.key)
            written[f"{name}_inclusive"] = marker.bound is Bound.EXACTLY
    return written


def _json_value(type: pa.DataType, key: Key) -> Any:
    if isinstance(key, bytes) and not pa.types.is_decimal(storage_type(type)):
        try:
            return key.decode() if _is_text(type) else key.hex()
        except UnicodeDecodeError:
            # The end of a prefix need not be text.
            raise NotExpressibleError(
                f"domain ends at bytes that are not text: {key!r}", hint="use a range between two strings"
            ) from None
    scalar = from_key(type, key)
    if _is_counted(scalar.type):
        return scalar.value
    if pa.types.is_date64(scalar.type) and scalar.value % _DAY:
        scalar = scalar.cast(pa.timestamp("ms"))  # the end of a range, between two dates
    elif pa.types.is_timestamp(scalar.type) and scalar.type.tz is not None:
        scalar = scalar.cast(pa.timestamp(scalar.type.unit, "UTC"))
    if pa.types.is_temporal(scalar.type) or pa.types.is_decimal(scalar.type):
        return scalar.cast(pa.string()).as_py()
    value = scalar.as_py()
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _is_counted(type: pa.DataType) -> bool:
    """Whether values are written as numbers of the type's unit; Arrow reads no times from text."""
    return bool(pa.types.is_duration(type) or pa.types.is_time(type))


def _is_text(type: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(type) for is_kind in kinds)


# -- reading -----------------------------------------------------------------------------------


def _check(item: Any, names: set[str], what: str) -> None:
    if not isinstance(item, Mapping):
        raise PredicateError(f"{what} is not an object", hint=_EXAMPLE)
    unknown = sorted(map(str, item.keys() - names))
    if unknown:
        hint = f"available members: {', '.join(sorted(names))}"
        raise PredicateError(f"{what} has unknown members: {', '.join(unknown)}", hint=hint)


def _handle(name: Any, schema: pa.Schema) -> ColumnHandle:
    path = [name] if isinstance(name, str) else name
    if not isinstance(path, list) or not path or not all(isinstance(part, str) for part in path):
        raise PredicateError("name of a domain's column is not a string or a list of strings", hint=_EXAMPLE)
    type: pa.DataType = pa.struct(list(schema))
    for part in path:
        at = type.get_field_index(part) if pa.types.is_struct(type) else -1
        if at < 0:
            hint = f"available columns: {', '.join(schema.names)}"
            raise UnknownColumnError("domain has an unknown column", column=".".join(path), hint=hint)
        type = type.field(at).type
    return ColumnHandle(path[0], type, tuple(path[1:]))


def _read(item: Mapping[str, Any], column: ColumnHandle) -> Domain:
    type = column.type
    flags = {name: item.get(name, False) for name in ("nulls", "nans")}
    lists = {name: item.get(name, []) for name in ("values", "ranges")}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise PredicateError("nulls and nans of a domain are true or false", column=str(column))
    if not all(isinstance(one, list) for one in lists.values()):
        raise PredicateError("values and ranges of a domain are lists", column=str(column))
    try:
        key_space(type)
        values = Domain.values(type, pa.array([_value(type, v) for v in lists["values"]], storage_type(type)))
        ranges = Domain.of(type, *(_range(type, one) for one in lists["ranges"]), **flags)
    except (TypeMismatchError, pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        message = f"value of a domain does not fit type {type_name(type)}: {error}"
        raise TypeMismatchError(message, column=str(column), hint="use values of the column's type") from None
    return values | ranges


def _range(type: pa.DataType, item: Any) -> Range:
    _check(item, _RANGE, "range of a domain")
    if not all(isinstance(item.get(f"{end}_inclusive", True), bool) for end in ("low", "high")):
        raise TypeError("low_inclusive and high_inclusive are true or false")
    low, high = Marker.lower_end(type), Marker.upper_end(type)
    if item.get("low") is not None:
        bound = Bound.EXACTLY if item.get("low_inclusive", True) else Bound.ABOVE
        low = _marker(type, item["low"], bound)
    if item.get("high") is not None:
        bound = Bound.EXACTLY if item.get("high_inclusive", True) else Bound.BELOW
        high = _marker(type, item["high"], bound)
    return Range(low, high)


def _marker(type: pa.DataType, item: Any, bound: Bound) -> Marker:
    """The end of a range, which need not be a value of a narrow or fixed-width type."""
    value, storage = _value(type, item), storage_type(type)
    if pa.types.is_floating(storage):
        value = float(value)
        return Marker(type, value, bound) if value == value else Marker.of(type, value, bound)
    if pa.types.is_fixed_size_binary(storage):
        return Marker(type, value, bound)
    return Marker.of(type, value, bound)


def _parsed(type: pa.DataType, text: str) -> pa.Scalar:
    """A date, a timestamp or a decimal from its text."""
    try:
        if not pa.types.is_date64(type):
            return pa.scalar(text).cast(type)
    except pa.ArrowInvalid:
        if pa.types.is_decimal(type):
            raise
    # NumPy knows all years, and times between two dates.
    unit = "D" if pa.types.is_date32(type) else "ms" if pa.types.is_date64(type) else type.unit
    match = _MOMENT.fullmatch(text)
    if match is None or bool(match[2]) != (getattr(type, "tz", None) is not None):
        raise ValueError(text)
    moment = np.datetime64(match[1])
    number = moment.astype(f"datetime64[{unit}]")
    if np.isnat(moment) or number != moment:
        raise ValueError(text)
    return pa.scalar(int(number.astype(np.int64)), pa.int32() if unit == "D" else pa.int64()).cast(type)


def _value(type: pa.DataType, value: Any) -> Any:
    """A JSON value as a value of the column's type; raises if it is of another kind."""
    storage = storage_type(type)
    if isinstance(value, str) and not _is_text(type):
        if pa.types.is_floating(storage) and value in ("inf", "-inf"):
            return float(value)
        if (pa.types.is_temporal(storage) and not _is_counted(storage)) or pa.types.is_decimal(storage):
            return _parsed(storage, value)
        if key_space(type).kind.name == "BYTES":
            return uuid.UUID(value).bytes if type == pa.uuid() and "-" in value else bytes.fromhex(value)
    if value is None or isinstance(value, bool) is not pa.types.is_boolean(storage):
        raise TypeError(f"{value!r}")
    if _is_counted(storage) and isinstance(value, int):
        return pa.scalar(value, pa.int64() if storage.bit_width == 64 else pa.int32()).cast(storage)
    plain = _is_text(type) or pa.types.is_boolean(storage) or isinstance(value, int | float)
    if not plain or isinstance(value, str) is not _is_text(type) or pa.types.is_temporal(storage):
        raise TypeError(f"{value!r}")
    if pa.types.is_integer(storage) and not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value
