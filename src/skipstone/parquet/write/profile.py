"""Profile a sample of rows to write: bytes per row, useful dictionaries, sizes of bloom filters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone.core.arrays import plain
from skipstone.parquet.write.columns import conform, find_path, leaf_paths, leaves, leaves_of, stored_schema
from skipstone.parquet.write.layout import MIB, PageLayout

# Pages end by rows; this limit is only for pages too large to read for a few rows.
_PAGE_BYTES = 16 * MIB
# Beyond this size pyarrow abandons a dictionary in the middle of a chunk.
_DICTIONARY_BYTES = MIB
# Maximum dictionary values per row of a page: reading one page reads the entire dictionary.
_DICTIONARY_SHARE = 0.5
# Estimates for an empty sample: bytes of a string, elements of a list.
_TEXT_BYTES, _ELEMENTS = 16, 4
# Bytes of a chunk's entries in the footer, and of a page's in the indexes, without long bounds.
_CHUNK_TAIL, _PAGE_TAIL = 220, 40


@dataclass(frozen=True, slots=True)
class Distinct:
    """Counts of a sample: values, distinct values, and values that occur once."""

    values: int
    distinct: int
    singles: int

    def among(self, values: float) -> int:
        """Estimate the number of distinct values among this number of values.

        By Heaps' law; the exponent is the share of single values among the distinct ones. The estimate is
        right for unique, few and skewed values, and too high for evenly spread ones, which is the safe side
        for dictionaries and bloom filters.
        """
        if not self.distinct:
            return 0
        grown = self.distinct * max(values / self.values, 0.0) ** (self.singles / self.distinct)
        return max(int(min(grown, values)), 1)


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a sample; ``bytes_per_row`` counts pages, without the constant parts of a file."""

    bytes_per_row: float
    dictionary: tuple[str, ...]
    distinct: tuple[tuple[str, Distinct], ...]
    """Counts per bloom column."""
    leaves: int

    def tail_bytes(self, layout: PageLayout, rows: int, groups: int) -> float:
        """Estimated bytes after the pages of that many rows: bloom filters, page indexes and footer."""
        each = rows / max(groups, 1)
        blooms = sum(_bloom_bytes(counts.among(each), layout.bloom_fpp) for _, counts in self.distinct)
        pages = rows / layout.page_rows + groups
        return groups * blooms + self.leaves * (groups * _CHUNK_TAIL + pages * _PAGE_TAIL)


def profile(sample: pa.Table, layout: PageLayout) -> Profile:
    """Profile a sample by writing it; rows should be in the order of the files."""
    layout.check(sample.schema)
    schema = stored_schema(layout.stored_part(sample.schema))
    batches = [conform(batch.select(schema.names), schema) for batch in sample.to_batches()]
    table = pa.Table.from_batches(batches, schema)
    paths = leaf_paths(schema)
    counts = _counts(table)
    blooms = tuple((name, counts[_leaf(paths, schema, name)]) for name in layout.blooms)
    if not table.num_rows:
        guess = float(sum(_guess(field.type) for field in schema))
        return Profile(guess, leaves_of(schema, layout.dictionary or ()), blooms, len(paths))
    plain_bytes, _ = _chunk_sizes(table, layout, ())
    chosen: tuple[str, ...]
    if layout.dictionary is not None:
        chosen = leaves_of(schema, layout.dictionary)
    else:
        trial = tuple(path for path, count in zip(paths, counts, strict=True) if count.distinct)
        data, pages = _chunk_sizes(table, layout, trial)
        chosen = tuple(
            path
            for path, count, without, coded, page in zip(paths, counts, plain_bytes, data, pages, strict=True)
            if path in trial and _pays(count, without, coded, page, table.num_rows, layout)
        )
    data, pages = _chunk_sizes(table, layout, chosen)
    per_row = sum(data) / table.num_rows
    # A dictionary is written once per row group.
    per_row += sum(pages) / max(_group_rows(layout, per_row), table.num_rows)
    return Profile(per_row, chosen, blooms, len(paths))


def writer_options(layout: PageLayout, profile: Profile, schema: pa.Schema) -> dict[str, Any]:
    """Return the options of ``pq.ParquetWriter`` for files of a stored ``schema``."""
    # For the largest possible row group: pyarrow folds filters that turn out too large.
    rows = 2 * _group_rows(layout, profile.bytes_per_row)
    options: dict[str, Any] = {
        "schema": schema,
        "version": "2.6",
        "compression": layout.compression,
        "compression_level": layout.compression_level,
        "use_dictionary": list(profile.dictionary) or False,
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "max_rows_per_page": layout.page_rows,
        "data_page_size": _PAGE_BYTES,
        "write_statistics": True,
        "write_page_index": True,
        "write_page_checksum": True,
        "store_schema": False,
        "store_decimal_as_integer": True,
        "bloom_filter_options": {
            ".".join(find_path(schema, name)): {
                # Without sampled values there may be as many as rows.
                "ndv": max(min(counts.among(rows) or rows, layout.row_group_rows), 1),
                "fpp": layout.bloom_fpp,
            }
            for name, counts in profile.distinct
        },
    }
    if layout.cluster_by and layout.curve is None:
        paths = leaf_paths(schema)
        options["sorting_columns"] = [
            pq.SortingColumn(_leaf(paths, schema, name), descending=False, nulls_first=True)
            for name in layout.cluster_by
        ]
    return options


def _leaf(paths: list[str], schema: pa.Schema, name: str) -> int:
    return paths.index(".".join(find_path(schema, name)))


# -- counts and sizes --------------------------------------------------------------------------


def _counts(table: pa.Table) -> list[Distinct]:
    if not table.num_rows:
        return [Distinct(0, 0, 0)] * len(leaf_paths(table.schema))
    whole = (pa.concat_arrays(column.chunks) for column in table.columns)
    return [_count(leaf) for leaf in chain.from_iterable(map(leaves, whole))]


def _count(leaf: pa.Array) -> Distinct:
    values = plain(leaf).drop_null()
    if pa.types.is_null(values.type):
        return Distinct(0, 0, 0)
    counts = np.asarray(pc.value_counts(values).field("counts"))
    return Distinct(len(values), len(counts), int((counts == 1).sum()))


def _chunk_sizes(
    table: pa.Table, layout: PageLayout, dictionary: tuple[str, ...]
) -> tuple[list[int], list[int]]:
    """Bytes of data pages and of dictionary pages, per leaf."""
    sink = pa.BufferOutputStream()
    options = writer_options(layout, Profile(1.0, dictionary, (), 0), table.schema)
    with pq.ParquetWriter(sink, **options) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    chunks = [group.column(at) for at in range(group.num_columns)]
    pages = [
        chunk.data_page_offset - chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
        for chunk in chunks
    ]
    return [c.total_compressed_size - page for c, page in zip(chunks, pages, strict=True)], pages


def _pays(counts: Distinct, without: int, coded: int, page: int, rows: int, layout: PageLayout) -> bool:
    """Whether a dictionary makes a leaf smaller, and one page not much more expensive to read."""
    if not page:
        return False
    group = min(layout.row_group_rows, layout.target_file_bytes * rows / max(coded, 1))
    values = counts.among(counts.values * group / rows)
    per_page = counts.values / rows * layout.page_rows
    grown = page * values / counts.distinct
    small = values <= max(per_page * _DICTIONARY_SHARE, 1) and grown <= _DICTIONARY_BYTES
    return small and coded * group / rows + grown < without * group / rows


def _group_rows(layout: PageLayout, bytes_per_row: float) -> int:
    return max(int(min(layout.row_group_rows, layout.target_file_bytes / max(bytes_per_row, 1e-3))), 1)


def _bloom_bytes(values: int, fpp: float) -> float:
    # The format's formula; rounding up to powers of two adds a third on average.
    return max(-values / math.log1p(-(fpp ** (1 / 8))) * 4 / 3, 48.0)


def _guess(type: pa.DataType) -> float:
    """Estimated bytes of a value."""
    if pa.types.is_struct(type):
        return sum(_guess(field.type) for field in type.fields)
    if pa.types.is_map(type):
        return _ELEMENTS * (_guess(type.key_type) + _guess(type.item_type))
    if pa.types.is_nested(type):
        return _ELEMENTS * _guess(type.value_type)
    try:
        return float(max(type.bit_width / 8, 1 / 8))
    except ValueError:
        return float(_TEXT_BYTES)
