"""The layout of a lake's files: sizes, order of rows, encodings and bloom filters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from skipstone.core.domain.keys import is_ordered, is_text, storage_type
from skipstone.core.plain import type_name
from skipstone.errors import UsageError, did_you_mean
from skipstone.parquet.write.columns import find_type, leaves_of, stored_schema
from skipstone.parquet.write.partition import PARTITION_HINT

MIB = 1 << 20
CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_LEVELLED = ("zstd", "gzip", "brotli")
CLUSTERS = ("sort", "zorder", "hilbert")
_MOST_AXES = 8


_LEAST_TARGET = MIB
_MOST_FILES = 10_000


def check_target_size(size: int | None, name: str, *, force: bool) -> None:
    """Refuse a target size that is probably in another unit."""
    if size is not None and 0 < size < _LEAST_TARGET and not force:
        problem = f"{name} is {size:,} bytes, which is less than 1 MiB"
        raise UsageError(problem, hint='write a unit, as in "64MB"; force=True or --force accepts tiny files')


def check_file_count(files: float, path: str, *, force: bool) -> None:
    """Refuse to write more files than anyone wants."""
    if files > _MOST_FILES and not force:
        problem = f"about {round(files):,} new files would be written"
        hint = f"use a larger target size; force=True or --force accepts more than {_MOST_FILES:,} files"
        raise UsageError(problem, path=path, hint=hint)


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Layout of files; :meth:`check` checks it against a schema.

    A row group ends at ``row_group_rows``, or at ``row_group_bytes`` in memory, whichever comes first.
    ``dictionary`` names leaf columns; None chooses them from a sample. ``cluster`` is the order of rows by
    ``cluster_by``; with one column every curve is a sort.
    """

    target_file_bytes: int = 128 * MIB
    row_group_rows: int = 1_000_000
    row_group_bytes: int = 256 * MIB
    page_rows: int = 2_000
    compression: str = "zstd"
    compression_level: int | None = None
    dictionary: tuple[str, ...] | None = None
    blooms: tuple[str, ...] = ()
    bloom_fpp: float = 0.01
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    cluster: Literal["sort", "zorder", "hilbert"] = "sort"

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_codec()
        self._check_names()
        if self.cluster not in CLUSTERS:
            hint = did_you_mean(str(self.cluster), CLUSTERS, f"use one of {', '.join(CLUSTERS)}")
            raise UsageError(f"unknown clustering {self.cluster!r}", hint=hint)
        if self.cluster != "sort" and not 1 <= len(self.cluster_by) <= _MOST_AXES:
            problem = f"{self.cluster} does not support {len(self.cluster_by)} columns"
            raise UsageError(problem, hint=f"cluster by one to {_MOST_AXES} columns")

    def _check_sizes(self) -> None:
        for name in ("target_file_bytes", "row_group_rows", "row_group_bytes", "page_rows"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                problem = f"{name} must be a positive integer, got {value!r}"
                raise UsageError(problem, hint=f"omit {name} to use the default")
        if not 0 < self.bloom_fpp < 1:
            problem = f"bloom_fpp must be between 0 and 1, got {self.bloom_fpp!r}"
            raise UsageError(problem, hint="use a fraction such as 0.01")

    def _check_codec(self) -> None:
        if self.compression not in CODECS:
            problem = f"unknown compression {self.compression!r}"
            hint = did_you_mean(str(self.compression), CODECS, f"use one of {', '.join(CODECS)}")
            raise UsageError(problem, hint=hint)
        if self.compression_level is None:
            return
        if self.compression not in _LEVELLED:
            problem = f"compression {self.compression} has no levels"
            raise UsageError(problem, hint=f"omit compression_level, or use {', '.join(_LEVELLED)}")
        least = pa.Codec.minimum_compression_level(self.compression)
        most = pa.Codec.maximum_compression_level(self.compression)
        if not least <= self.compression_level <= most:
            problem = f"{self.compression} has no level {self.compression_level}"
            raise UsageError(problem, hint=f"use a level from {least} to {most}")

    def _check_names(self) -> None:
        for what in ("dictionary", "blooms", "partition_by", "cluster_by"):
            names = getattr(self, what) or ()
            if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
                problem = f"{what} must be a tuple of column names, got {names!r}"
                raise UsageError(problem, hint='pass names such as ("a", "b")')
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise UsageError(f"duplicate column in {what}", column=twice[0], hint="name each column once")
            hidden = [name for name in names if what == "partition_by" and name.startswith(".")]
            if hidden:
                problem = "directories of a partition column whose name starts with a dot are hidden"
                raise UsageError(problem, column=hidden[0], hint="rename the column")
            both = [name for name in names if what != "partition_by" and name in self.partition_by]
            if both:
                problem = f"partition column can't be in {what}"
                raise UsageError(problem, column=both[0], hint=f"remove it from {what}")

    @property
    def curve(self) -> Literal["zorder", "hilbert"] | None:
        """The space-filling curve of the rows; None if they are sorted or not ordered."""
        return None if self.cluster == "sort" or len(self.cluster_by) == 1 else self.cluster

    def check(self, schema: pa.Schema) -> None:
        """Raise an error if a named column does not exist, or if its type does not support the option."""
        for name in self.partition_by:
            if len(schema.get_all_field_indices(name)) != 1 or not _names_folders(schema.field(name).type):
                type = find_type(schema, name)
                raise UsageError(
                    f"{type_name(type)} can't be a partition column", column=name, hint=PARTITION_HINT
                )
        if not set(schema.names) - set(self.partition_by):
            problem = "all columns are partition columns" if len(schema) else "schema has no columns"
            raise UsageError(problem, hint="include at least one other column")
        stored = stored_schema(self.stored_part(schema))
        leaves_of(stored, self.dictionary or ())
        for name in self.cluster_by:
            type = find_type(stored, name)
            if not is_ordered(type):
                hint = "cluster by columns or struct fields of numbers, strings or times"
                raise UsageError(f"{type_name(type)} has no order", column=name, hint=hint)
        for name in self.blooms:
            type = find_type(stored, name)
            if pa.types.is_nested(type) or pa.types.is_boolean(storage_type(type)):
                hint = "use other columns, or a field of a struct"
                raise UsageError(f"bloom filters don't support {type_name(type)}", column=name, hint=hint)

    def stored_part(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that are written to files: all except partition columns."""
        return pa.schema([field for field in schema if field.name not in self.partition_by])


def _names_folders(type: pa.DataType) -> bool:
    type = storage_type(type)
    return bool(is_text(type) or pa.types.is_integer(type) or pa.types.is_date(type))
