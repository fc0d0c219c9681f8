"""The headers of chosen pages: do they agree with the page index, and do they need the dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias, final

from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.slice.plan import DICTIONARY_ENCODINGS, Chosen, ChunkPages, LeafPlan
from skipstone.parquet.structs import PageHead
from skipstone.parquet.wire import decode_prefix
from skipstone.store.source import ByteRange

_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_DATA_PAGE_V2: Final = 3
# Nearly all headers are shorter; one with long statistics is read again from the whole page.
_HEADER: Final = 256
WITHOUT_INDEX: Final = "page_index=False reads the column without its page index"

ELSEWHERE: Final = -1
"""The place of pieces that have to be put together."""

# Thrift's compact protocol.
_TRUE, _FALSE, _I32, _I64, _BINARY, _STRUCT = 1, 2, 5, 6, 8, 12
_LONGEST_VARINT: Final = 63


@dataclass(slots=True, eq=False)
class Chunk:
    """The bytes of one leaf in a slice, and how many values they hold.

    ``rows`` is how many rows they must decode to. ``proven`` is false when only decoding can tell whether
    they do, because repeated values have their rows in levels, whatever a page's header says.
    """

    chosen: Chosen | None
    pieces: Sequence[memoryview]
    values: int
    rows: int
    proven: bool
    size: int
    """Bytes of the pieces."""
    place: int
    """Where the pieces begin in the buffer they were read into, if they stand there one after the other."""


@final
class Missing(NamedTuple):
    """What a second round must bring: the dictionary page of ``chunk``, or a whole chunk."""

    plan: LeafPlan
    ranges: list[ByteRange]
    chunk: Chunk | None


class _OddChunk(Exception):
    """Pages that are laid out in a way that only a sequential reader understands."""


def open_leaf(
    metadata: ParquetMetadata, group: int, plan: LeafPlan, bodies: Sequence[memoryview], place: int
) -> Chunk | Missing:
    """Check what the first round brought for a leaf to a place, and say what is still missing."""
    if plan.chosen is None:
        rows, (body,) = metadata.row_group_rows.item(group), bodies
        values = metadata.chunks(plan.leaf)[group].num_values
        return Chunk(None, bodies, values, rows, True, len(body), place)
    try:
        return _open_pages(metadata, group, plan, plan.chosen, bodies, place)
    except _OddChunk:
        return _whole(plan.chunk)


def complete(
    metadata: ParquetMetadata, group: int, missing: Missing, bodies: Sequence[memoryview]
) -> Chunk | Missing:
    """Put together what both rounds brought; a dictionary that is none asks for the whole chunk."""
    chunk = missing.chunk
    if chunk is None:
        return open_leaf(metadata, group, missing.plan, bodies, ELSEWHERE)
    try:
        dictionary = _dictionary(bodies[0], len(bodies[0]))
        pieces, size = [dictionary, *chunk.pieces], chunk.size + len(dictionary)
        return replace(chunk, pieces=pieces, size=size, place=ELSEWHERE)
    except _OddChunk:
        return _whole(missing.plan.chunk)


def _whole(chunk: ChunkPages) -> Missing:
    return Missing(LeafPlan(chunk, None, [chunk.whole]), [chunk.whole], None)


def _open_pages(
    metadata: ParquetMetadata,
    group: int,
    plan: LeafPlan,
    chosen: Chosen,
    bodies: Sequence[memoryview],
    place: int,
) -> Chunk | Missing:
    chunk, leaf = plan.chunk, plan.leaf
    assert chunk.borders is not None
    offsets, sizes, first_rows = chunk.offsets, chunk.sizes, chunk.borders.rows
    flat = metadata.kin.leaves[leaf].max_repetition == 0
    data = bodies[1:] if chunk.fetched else bodies
    values = total = 0
    coded = False
    empty: list[tuple[int, int, int]] = []
    # Page by page, since each header has to be decoded.
    for number, (first, last) in enumerate(plan.spans):
        body, start = data[number], offsets[first]
        for page in range(first, last):
            at, size = offsets[page] - start, sizes[page]
            count, rows, encoding = _data_page(metadata, group, leaf, body, at, size)
            expected = first_rows[page + 1] - first_rows[page]
            if flat and rows is None:
                rows = count
            if rows is not None and (rows != expected or (flat and count != expected)):
                message = f"page {page} holds {rows} rows, its page index says {expected}"
                raise _bad_index(metadata, group, leaf, message)
            if not count:
                empty.append((number, at, size))
            else:
                total += size
            values += count
            coded = coded or encoding in DICTIONARY_ENCODINGS
    if empty:
        data, place = _without(data, empty), ELSEWHERE
    if chunk.fetched and chunk.dictionary is not None:
        start, stop = chunk.dictionary
        if coded:
            dictionary = _dictionary(bodies[0], stop - start)
            data = [dictionary, *data]
            if dictionary is bodies[0]:
                total += stop - start
            else:
                total, place = total + len(dictionary), ELSEWHERE
        elif place != ELSEWHERE:
            place += stop - start
    found = Chunk(chosen, data, values, chosen.held, flat, total, place)
    if not coded or chunk.fetched:
        return found
    if chunk.dictionary is None:
        raise _OddChunk
    return Missing(plan, [chunk.dictionary], found)


def _without(bodies: Sequence[memoryview], empty: list[tuple[int, int, int]]) -> list[memoryview]:
    """The bodies less their pages without values, which pyarrow would take for the end of the chunk."""
    pieces = []
    for place, body in enumerate(bodies):
        last = 0
        for at, size in ((at, size) for owner, at, size in empty if owner == place):
            pieces.append(body[last:at])
            last = at + size
        pieces.append(body[last:])
    return pieces


# Kind, compressed bytes, values (none for what is not a data page), rows if the page counts them, encoding,
# and the bytes of the header itself. A plain tuple, since one is made for every page that is read.
Head: TypeAlias = tuple[int | None, int | None, int | None, int | None, int | None, int]


def _data_page(
    metadata: ParquetMetadata, group: int, leaf: int, body: memoryview, at: int, size: int
) -> tuple[int, int | None, int | None]:
    """Values, rows if the page counts them, and encoding of a data page."""
    found = page_head(body, at, at + size)
    if found is None:
        try:
            found = _thrift_head(body, at, at + size)
        except CorruptFileError as error:
            raise _bad_index(metadata, group, leaf, error.message) from error
    kind, compressed, count, rows, encoding, length = found
    if kind == _DICTIONARY_PAGE:
        raise _OddChunk
    if compressed is None or length + compressed != size:
        message = f"a page of {length} + {compressed} bytes, its page index says {size}"
        raise _bad_index(metadata, group, leaf, message)
    if count is None:
        raise _bad_index(metadata, group, leaf, f"a page of type {kind} where data should be")
    return count, rows, encoding


def page_head(data: memoryview, at: int, stop: int) -> Head | None:  # noqa: C901
    """The header of a page laid out as all writers known do it; None for what only Thrift can judge.

    Field by field without a call, since this is done for every page that is read.
    """
    kind = compressed = values = rows = encoding = None
    depth = field = top = inner = 0
    position = at
    try:
        while True:
            byte = data[position]
            position += 1
            if not byte:
                if not depth:
                    break
                depth -= 1
                field = inner if depth else top
                continue
            step, wire = byte >> 4, byte & 0x0F
            if not step:
                return None
            field += step
            if wire == _STRUCT:
                if depth == 0:
                    top = field
                elif depth == 1:
                    inner = field
                else:
                    return None
                depth += 1
                field = 0
                continue
            if wire in (_TRUE, _FALSE):
                continue
            if wire not in (_I32, _I64, _BINARY):
                return None
            value = shift = 0
            byte = 0x80
            while byte > 0x7F:
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > _LONGEST_VARINT:
                    return None
            if wire == _BINARY:
                position += value
                continue
            if depth > 1:
                continue
            if wire != _I32 or value >> 32:
                return None
            value = value >> 1 ^ -(value & 1)
            if depth == 0:
                if field == 1:
                    kind = value
                elif field == 3:
                    compressed = value
            elif kind == _DATA_PAGE and top == 5:
                if field == 1:
                    values = value
                elif field == 2:
                    encoding = value
            elif kind == _DATA_PAGE_V2 and top == 8:
                if field == 1:
                    values = value
                elif field == 3:
                    rows = value
                elif field == 4:
                    encoding = value
    except IndexError:
        return None
    if position > stop or (values is not None and values < 0):
        return None
    return kind, compressed, values, rows, encoding, position - at


def _thrift_head(body: memoryview, at: int, stop: int) -> Head:
    try:
        head, length = decode_prefix(PageHead, bytes(body[at : min(at + _HEADER, stop)]), "page header")
    except CorruptFileError:
        if stop - at <= _HEADER:
            raise
        head, length = decode_prefix(PageHead, bytes(body[at:stop]), "page header")
    v1, v2 = head.data_page_header, head.data_page_header_v2
    values = rows = encoding = None
    if head.type == _DATA_PAGE and v1 is not None:
        values, encoding = v1.num_values, v1.encoding
    elif head.type == _DATA_PAGE_V2 and v2 is not None:
        values, rows, encoding = v2.num_values, v2.num_rows, v2.encoding
    if values is not None and values < 0:
        values = None
    return head.type, head.compressed_page_size, values, rows, encoding, length


def _dictionary(body: memoryview, held: int) -> memoryview:
    """The dictionary page without what follows it, of so many bytes."""
    try:
        kind, size, _, _, _, length = page_head(body, 0, held) or _thrift_head(body, 0, held)
    except CorruptFileError as error:
        raise _OddChunk from error
    if kind != _DICTIONARY_PAGE or size is None or not 0 <= size <= held - length:
        raise _OddChunk
    return body if length + size == held else body[: length + size]


def _bad_index(metadata: ParquetMetadata, group: int, leaf: int, message: str) -> CorruptFileError:
    return CorruptFileError(
        message,
        path=metadata.path,
        unit=f"row group {group}",
        column=metadata.leaves[leaf].name,
        hint=WITHOUT_INDEX,
    )
