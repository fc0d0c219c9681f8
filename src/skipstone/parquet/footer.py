"""From a file's last bytes to its metadata.

The steps do no I/O: ``locate_footer`` looks at the tail and says where the footer is, ``parse_footer``
makes metadata of its bytes. ``read_footer`` only fetches what the steps ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import CorruptFileError, EncryptedFileError, NotParquetError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.store.ranges import ByteRange
from skipstone.store.source import Source

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
# The footer's length and the magic.
_TRAILER = 8
DEFAULT_TAIL = 64 * 1024
_OTHERS = "open a glob such as 'lake/**/*.parquet' to leave other files out"


def read_footer(source: Source, *, tail: int = DEFAULT_TAIL) -> ParquetMetadata:
    """Read a file's metadata: one request, or two when the footer is longer than ``tail``."""
    end, size = source.tail(max(tail, _TRAILER))
    span = locate_footer(end, size, source.path)
    missing = _missing(span, end, size)
    head = source.read_ranges([missing])[0] if missing else b""
    metadata = parse_footer(_join(span, head, end, size), source.path, size)
    metadata.version = source.version()
    return metadata


def parse_footer(data: bytes, path: str, size: int | None) -> ParquetMetadata:
    """Make metadata of the footer's own bytes, without length and magic; ``size`` is the file's."""
    return ParquetMetadata(data, path, size)


def from_pyarrow(metadata: pq.FileMetaData, path: str = "<pyarrow metadata>") -> ParquetMetadata:
    """Take over metadata that pyarrow has already read; the file's size is not known then."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    data = sink.getvalue().to_pybytes()
    span = locate_footer(data, len(data), path)
    return parse_footer(data[span.start : span.stop], path, None)


def locate_footer(tail: bytes, size: int, path: str) -> ByteRange:
    """Where the footer is in the file, told from the file's last bytes."""
    if size < _TRAILER + len(_MAGIC):
        what = "the file is empty" if size == 0 else f"{size} bytes are too few for a Parquet file"
        raise NotParquetError(what, path=path, hint=_OTHERS)
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise EncryptedFileError(
            "the footer is encrypted", path=path, hint="Skipstone reads no encrypted footers"
        )
    if tail[-4:] != _MAGIC:
        hint = f"it is no Parquet file or was not written to its end; {_OTHERS}"
        raise NotParquetError(f"it ends in {tail[-4:]!r} instead of {_MAGIC!r}", path=path, hint=hint)
    # The head is checked only when it is at hand: elsewhere it would cost a request and prove little.
    if len(tail) == size and tail[:4] != _MAGIC:
        raise NotParquetError(f"it begins with {tail[:4]!r} instead of {_MAGIC!r}", path=path)
    length = int.from_bytes(tail[-8:-4], "little")
    stop = size - _TRAILER
    if length == 0 or length > stop - len(_MAGIC):
        raise CorruptFileError(f"a footer of {length} bytes in a file of {size}", path=path)
    return ByteRange(stop - length, stop)


def _missing(span: ByteRange, tail: bytes, size: int) -> ByteRange | None:
    have = size - len(tail)
    return ByteRange(span.start, min(have, span.stop)) if span.start < have else None


def _join(span: ByteRange, head: bytes, tail: bytes, size: int) -> bytes:
    have = size - len(tail)
    return head + tail[max(span.start - have, 0) : len(tail) - _TRAILER]
