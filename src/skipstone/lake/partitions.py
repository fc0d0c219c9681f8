"""Hive partitions: the values that directory names give to every row of the files below them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import PRESENCE, Kind, array_keys, is_binary, is_text, key_space, storage_type
from skipstone.core.evidence import Array, ColumnFacts, Evidence, widest
from skipstone.errors import SchemaError, UsageError
from skipstone.lake.hive import NotFitting, Segment, infer_array, parse_array, split_segment, value_text


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
    segments: list[tuple[Segment, ...]]
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
                f"the partition value {value_text(raws[unfit.place])!r} is no {type}",
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
