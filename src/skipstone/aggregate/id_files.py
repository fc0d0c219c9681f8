"""Reads files of ids or row numbers: roaring bitmaps, text, NumPy arrays, Parquet."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.plain import type_name
from skipstone.errors import FileError, ReadError, SchemaError

STDIN = Path("-")


def read_ids(path: Path, column: str | None) -> Any:
    """Read the ids in a file, or from standard input for ``-``, in any supported format.

    ``column`` selects the column of a Parquet file, unless it has only one.
    """
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise ReadError(error.strerror or str(error), path=str(path)) from None
    for begin, read in _FORMS:
        if data.startswith(begin):
            return read(data, path, column)
    # A 64-bit bitmap begins with a small 64-bit integer.
    return _wide_bitmap(data, path) if b"\x00" in data[:8] else _text(data, path)


def _bitmap(data: bytes, path: Path, _column: str | None) -> Any:
    from pyroaring import BitMap

    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise _unusable(path, f"roaring bitmap can't be deserialized: {error}") from None


def _wide_bitmap(data: bytes, path: Path) -> Any:
    from pyroaring import BitMap64

    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError):
        raise _unusable(path, "unknown file format") from None


def _array(data: bytes, path: Path, _column: str | None) -> Any:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise _unusable(path, f"NumPy array can't be loaded: {error}") from None
    if array.ndim != 1 or array.dtype.kind not in "iu":
        shape = "×".join(map(str, array.shape)) or "1"
        raise _unusable(path, f"NumPy array has {shape} values of type {array.dtype}, not a list of integers")
    return array


def _parquet(data: bytes, path: Path, column: str | None) -> Any:
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        names = file.schema_arrow.names
        name = column if column in names else names[0] if len(names) == 1 else None
        if name is None:
            problem = f"none is named {column}" if column else "--id-column is not set"
            raise SchemaError(
                f"file has {len(names)} columns, and {problem}",
                path=str(path),
                hint="use a file with one column",
            )
        ids = file.read(columns=[name]).column(0).drop_null()
    except pa.ArrowException as error:
        raise _unusable(path, f"Parquet file can't be read: {error}") from None
    if not pa.types.is_integer(ids.type):
        raise SchemaError(
            f"ids have type {type_name(ids.type)}", path=str(path), column=name, hint="use an integer column"
        )
    return ids.to_numpy()


def _text(data: bytes, path: Path) -> Any:
    from pyarrow import csv

    if not data.strip():
        return np.empty(0, np.uint64)
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(column_names=["id"]),
            csv.ParseOptions(delimiter="\x01", quote_char=False),
            csv.ConvertOptions(column_types={"id": pa.uint64()}, null_values=[]),
        )
    except pa.ArrowInvalid as error:
        value = re.search(r"invalid value '(.*)'", str(error))
        line = f"line has {value[1][:40]!r}" if value else "line is too long"
        raise _unusable(path, f"{line}, which is not an id") from None
    return table.column("id").to_numpy()


def _unusable(path: Path, reason: str) -> FileError:
    hint = (
        "use a serialized roaring bitmap (BitMap or BitMap64), text with an id per line, an array written by "
        "numpy.save, or a Parquet file; ids are non-negative integers"
    )
    return FileError(reason, path=str(path), hint=hint)


_FORMS: tuple[tuple[bytes, Callable[[bytes, Path, str | None], Any]], ...] = (
    (b"PAR1", _parquet),
    (b"\x93NUMPY", _array),
    # The cookies of 32-bit bitmaps, without and with runs.
    (b":0\x00\x00", _bitmap),
    (b";0", _bitmap),
)
