"""What the files of a lake shall be like: how large, in which order, with what beside the rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from skipstone.core.domain.keys import is_ordered, is_text, storage_type
from skipstone.errors import UsageError
from skipstone.parquet.write.columns import find_type, leaves_of, stored_schema

MIB = 1 << 20
CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_LEVELLED = ("zstd", "gzip", "brotli")
CLUSTERS = ("sort", "zorder", "hilbert")
_MOST_AXES = 8


@dataclass(frozen=True, slots=True)
class PageLayout:
    """How files are laid out; :meth:`check` tells whether a schema can be.

    A row group ends at ``row_group_rows`` or at ``row_group_bytes`` of rows in memory, whichever is first.
    ``dictionary`` names leaf columns; None leaves the choice to a sample. ``cluster`` tells how rows lie
    that are ordered by ``cluster_by``; on one column every curve is a sort.
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
            raise UsageError(f"there is no order {self.cluster!r}", hint=f"give one of {', '.join(CLUSTERS)}")
        if self.cluster != "sort" and not 1 <= len(self.cluster_by) <= _MOST_AXES:
            problem = f"a {self.cluster} order of {len(self.cluster_by)} columns makes no sense"
            raise UsageError(problem, hint=f"name two to {_MOST_AXES} columns to cluster by")

    def _check_sizes(self) -> None:
        for name in ("target_file_bytes", "row_group_rows", "row_group_bytes", "page_rows"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise UsageError(f"{name} is {value!r}", hint="give a whole number above zero")
        if not 0 < self.bloom_fpp < 1:
            hint = "give a share between 0 and 1, such as 0.01"
            raise UsageError(f"bloom_fpp is {self.bloom_fpp!r}", hint=hint)

    def _check_codec(self) -> None:
        if self.compression not in CODECS:
            problem = f"there is no compression {self.compression!r}"
            raise UsageError(problem, hint=f"give one of {', '.join(CODECS)}")
        if self.compression_level is None:
            return
        if self.compression not in _LEVELLED:
            problem = f"the compression {self.compression} has no levels"
            raise UsageError(problem, hint=f"leave the level out, or compress with {', '.join(_LEVELLED)}")
        least = pa.Codec.minimum_compression_level(self.compression)
        most = pa.Codec.maximum_compression_level(self.compression)
        if not least <= self.compression_level <= most:
            problem = f"{self.compression} has no level {self.compression_level}"
            raise UsageError(problem, hint=f"give one from {least} to {most}")

    def _check_names(self) -> None:
        for what in ("dictionary", "blooms", "partition_by", "cluster_by"):
            names = getattr(self, what) or ()
            if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
                raise UsageError(f"{what} is {names!r}", hint="give a tuple of column names")
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise UsageError(f"{what} names it twice", column=twice[0], hint="name each column once")
            both = [name for name in names if what != "partition_by" and name in self.partition_by]
            if both:
                problem = f"the files don't hold a partition column, so {what} can't name it"
                raise UsageError(problem, column=both[0], hint="the folders tell it: leave it out there")

    @property
    def curve(self) -> Literal["zorder", "hilbert"] | None:
        """The curve that rows lie along; None where they are sorted, or not ordered at all."""
        return None if self.cluster == "sort" or len(self.cluster_by) == 1 else self.cluster

    def check(self, schema: pa.Schema) -> None:
        """Raise an error where a named column isn't there, or isn't of a type that can do what is asked."""
        for name in self.partition_by:
            if len(schema.get_all_field_indices(name)) != 1 or not _names_folders(schema.field(name).type):
                type = find_type(schema, name)
                hint = "partition by strings, booleans, whole numbers, dates or decimals"
                raise UsageError(f"a column of {type} can't be partitioned by", column=name, hint=hint)
        if not set(schema.names) - set(self.partition_by):
            problem = "no column is left to write" if len(schema) else "the schema has no columns"
            raise UsageError(problem, hint="leave one column at least that is not partitioned by")
        stored = stored_schema(self.stored_part(schema))
        leaves_of(stored, self.dictionary or ())
        for name in self.cluster_by:
            type = find_type(stored, name)
            if not is_ordered(type):
                hint = "cluster by columns of numbers, text, times or by a field of a struct"
                raise UsageError(f"values of {type} have no order", column=name, hint=hint)
        for name in self.blooms:
            type = find_type(stored, name)
            if pa.types.is_nested(type) or pa.types.is_boolean(storage_type(type)):
                hint = "name other columns, or a field of a struct"
                raise UsageError(f"there is no bloom filter of {type}", column=name, hint=hint)

    def stored_part(self, schema: pa.Schema) -> pa.Schema:
        """The columns that the files hold: all but those that the folders tell."""
        return pa.schema([field for field in schema if field.name not in self.partition_by])


def _names_folders(type: pa.DataType) -> bool:
    type = storage_type(type)
    return bool(
        is_text(type)
        or pa.types.is_boolean(type)
        or pa.types.is_integer(type)
        or pa.types.is_date(type)
        or pa.types.is_decimal(type)
    )
