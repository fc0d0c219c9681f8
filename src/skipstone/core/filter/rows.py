"""One batch as the predicate sees it: columns by path, with the schema's types, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import storage_type
from skipstone.core.filter.truth import Array
from skipstone.errors import UsageError

Path = tuple[str, ...]

_WIDE = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
    pa.float16(): pa.float32(),
}


# Layouts that values are computed in as they are: by far the most.
_PLAIN = frozenset(
    type.id
    for type in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary()),
        *(pa.large_binary(), pa.date32(), pa.date64(), pa.timestamp("us"), pa.decimal128(1)),
    )
)


@lru_cache(maxsize=256)
def plain_type(type: pa.DataType) -> pa.DataType:
    """The layout that values of ``type`` are computed in: no dictionary, extension, view or half float."""
    type = storage_type(type)
    return _WIDE.get(type, type)


def plain(array: pa.Array) -> pa.Array:
    """``array`` in its plain layout; nothing is copied where it has that already."""
    while array.type.id not in _PLAIN:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = decoded(array)
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            wide = _WIDE.get(array.type)
            return array if wide is None else array.cast(wide)
    return array


def decoded(array: pa.Array) -> pa.Array:
    """A dictionary array as its values; Arrow can't take from views, so those are widened first."""
    return plain(array.dictionary).take(array.indices)


def pick(array: pa.Array, chosen: pa.Array) -> pa.Array:
    """The chosen rows of an array of any type, in that type."""
    if array.type in (pa.string_view(), pa.binary_view()):
        return plain(array).filter(chosen).cast(array.type)
    return array.filter(chosen)


class Rows:
    """The rows of one batch; belongs to one call, so it may remember what it computed."""

    __slots__ = ("_batch", "_memo", "_raw", "_types", "count")

    def __init__(self, batch: pa.RecordBatch, types: Mapping[Path, pa.DataType]) -> None:
        self._batch = batch
        self._types = types
        self._memo: dict[Hashable, pa.Array] = {}
        self._raw: dict[Path, pa.Array] = {}
        self.count: int = batch.num_rows

    def remember(self, key: Hashable, make: Callable[[Rows], pa.Array]) -> pa.Array:
        """The array of this key, made at the first call."""
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = make(self)
        return found

    def raw(self, path: Path) -> pa.Array:
        """A column in the layout it came in, but with the schema's time zone."""
        found = self._raw.get(path)
        if found is None:
            found = self._raw[path] = self._find(path)
        return found

    def column(self, path: Path) -> pa.Array:
        """A column in its plain layout and with the schema's type."""
        found = self._memo.get(path)
        if found is None:
            found = self._memo[path] = self._plain(path)
        return found

    def _plain(self, path: Path) -> pa.Array:
        array, type = plain(self.raw(path)), plain_type(self._types[path])
        if array.type == type or pa.types.is_nested(type):
            return array
        try:
            return array.cast(type)
        except pa.ArrowException as error:
            raise UsageError(
                f"the batch has {array.type} where the schema has {type}: {error}", column=".".join(path)
            ) from error

    def _find(self, path: Path) -> pa.Array:
        hits = self._batch.schema.get_all_field_indices(path[0])
        if len(hits) != 1:
            what = "no such column" if not hits else "several columns of that name"
            raise UsageError(f"the batch has {what}", column=path[0])
        array = self._batch.column(hits[0])
        for name in path[1:]:
            if isinstance(array, pa.ExtensionArray):
                array = array.storage
            at = array.type.get_field_index(name)
            if at < 0:
                raise UsageError("the batch has no such struct field", column=".".join(path))
            array = pc.struct_field(array, [at])  # NULL where the struct is
        own, wanted = array.type, self._types[path]
        unzoned = pa.types.is_timestamp(own) and pa.types.is_timestamp(wanted) and own.tz != wanted.tz
        # A view: the same integers, now read as instants (or in the schema's zone).
        return array.view(pa.timestamp(own.unit, wanted.tz)) if unzoned else array

    def where(self, chosen: Array) -> Rows:
        """Only these rows."""
        return _Some(self, chosen)


class _Some(Rows):
    """Some rows of a batch; a column is cut down when it is first asked for."""

    __slots__ = ("_chosen", "_from")

    def __init__(self, rows: Rows, chosen: Array) -> None:
        super().__init__(rows._batch, rows._types)
        self._from = rows
        self._chosen = pa.array(chosen)
        self.count = int(chosen.sum())

    def _find(self, path: Path) -> pa.Array:
        return pick(self._from.raw(path), self._chosen)
