"""Files of ids or row numbers: roaring bitmaps, text, NumPy arrays, Parquet."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.errors import FileError, ReadError, SchemaError

STDIN = Path("-")


def read_ids(path: Path, column: str | None) -> Any:
    """The ids in a file, or on standard input for ``-``, in any of the supported formats.

    Of a Parquet file those of the column of this name, or of its only one.
    """
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise ReadError(error.strerror or str(error), path=str(path)) from None
    for begin, read in _FORMS:
        if data.startswith(begin):
            return read(data, path, column)
    # A 64-bit bitmap begins with a small number in eight bytes.
    return _wide_bitmap(data, path) if b"\x00" in data[:8] else _text(data, path)


def _bitmap(data: bytes, path: Path, _column: str | None) -> Any:
    from pyroaring import BitMap

    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise _unusable(path, f"a roaring bitmap that can't be read: {error}") from None


def _wide_bitmap(data: bytes, path: Path) -> Any:
    from pyroaring import BitMap64

    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError):
        raise _unusable(path, "unknown file format") from None


def _array(data: bytes, path: Path, _column: str | None) -> Any:
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise _unusable(path, f"an array that can't be read: {error}") from None
    if found.ndim != 1 or found.dtype.kind not in "iu":
        shape = "×".join(map(str, found.shape)) or "1"
        raise _unusable(
            path, f"an array of {shape} values of type {found.dtype}, not a list of whole numbers"
        )
    return found


def _parquet(data: bytes, path: Path, column: str | None) -> Any:
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        names = file.schema_arrow.names
        name = column if column in names else names[0] if len(names) == 1 else None
        if name is None:
            wanted = f"none is called {column}" if column else "no --id-column"
            raise SchemaError(
                f"{len(names)} columns, and {wanted}", path=str(path), hint="leave one column in it"
            )
        found = file.read(columns=[name]).column(0).drop_null()
    except pa.ArrowException as error:
        raise _unusable(path, f"a Parquet file that can't be read: {error}") from None
    if not pa.types.is_integer(found.type):
        raise SchemaError(
            f"ids of type {found.type}", path=str(path), column=name, hint="ids are whole numbers"
        )
    return found.to_numpy()


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
        found = re.search(r"invalid value '(.*)'", str(error))
        line = f"a line has {found[1][:40]!r}" if found else "a line is too long"
        raise _unusable(path, f"{line}, which is not an id") from None
    return table.column("id").to_numpy()


def _unusable(path: Path, reason: str) -> FileError:
    hint = (
        "give a roaring bitmap (BitMap or BitMap64, serialised), text with an id per line, "
        "an array as numpy.save writes it, or a Parquet file; ids are whole numbers from 0 on"
    )
    return FileError(reason, path=str(path), hint=hint)


_FORMS: tuple[tuple[bytes, Callable[[bytes, Path, str | None], Any]], ...] = (
    (b"PAR1", _parquet),
    (b"\x93NUMPY", _array),
    # The cookies of 32-bit bitmaps: without runs, and with.
    (b":0\x00\x00", _bitmap),
    (b";0", _bitmap),
)
