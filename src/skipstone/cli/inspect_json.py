"""An inspection as JSON; keys are stable, new ones may be added."""

from __future__ import annotations

from typing import Any

from skipstone.cli.inspection import Bounds, Column, Inspection, Page, each
from skipstone.cli.types import codec_name, encoding_name, logical_name
from skipstone.prune.clustering import Clustering


def to_json(found: Inspection, *, row_groups: bool = False) -> dict[str, Any]:
    """The whole inspection; ``row_groups`` and ``pages`` are there only when they were asked for."""
    metadata = found.metadata
    stored = [group.total_byte_size for group in metadata.row_groups]
    sizes = [size for size in stored if size is not None]
    document: dict[str, Any] = {
        "path": metadata.path,
        "bytes": metadata.size,
        "footer_bytes": metadata.footer_size,
        "data_bytes": data_bytes(found),
        "uncompressed_bytes": sum(sizes) if len(sizes) == len(stored) else None,
        "rows": metadata.num_rows,
        "row_group_count": metadata.row_group_count,
        "column_count": len(metadata.leaves),
        "created_by": metadata.created_by,
        "codecs": [codec_name(number) for number in codecs(found)],
        "columns": [_column(column) for column in found.columns],
        "read": {"requests": found.requests, "bytes": found.bytes},
        "notes": [{"unit": note.unit, "reason": note.reason} for note in found.notes],
    }
    if row_groups:
        document["row_groups"] = _row_groups(found)
    if found.pages is not None:
        document["pages"] = [_page(page) for page in found.pages]
    return document


def data_bytes(found: Inspection) -> int:
    """Compressed bytes of all column chunks of the file, whichever columns are shown."""
    metadata = found.metadata
    return sum(c.total_compressed_size for leaf in metadata.leaves for c in metadata.chunks(leaf.index))


def codecs(found: Inspection) -> list[int]:
    """The codecs in use in the whole file."""
    metadata = found.metadata
    return sorted({chunk.codec for leaf in metadata.leaves for chunk in metadata.chunks(leaf.index)})


def _column(column: Column) -> dict[str, Any]:
    leaf, coverage = column.leaf, column.coverage
    return {
        "name": leaf.name,
        "path": list(leaf.path),
        "physical_type": leaf.physical.name,
        "logical_type": logical_name(leaf.logical),
        "nullable": not leaf.required,
        "repeated": leaf.max_repetition > 0,
        "bytes": column.bytes,
        "codecs": [codec_name(number) for number in column.codecs],
        "encodings": None if column.encodings is None else [encoding_name(n) for n in column.encodings],
        "row_groups_with": {
            "bounds": coverage.bounds,
            "stated_bounds": coverage.stated,
            "page_index": coverage.page_index,
            "bloom_filter": coverage.bloom,
            "dictionary": coverage.dictionary,
            "dictionary_only": coverage.dictionary_only,
        },
        **_bounds(column.bounds),
        "null_count": column.null_count,
        "nan_count": column.nan_count,
        "clustering": {
            "row_groups": _clustering(column.row_group_clustering),
            "pages": _clustering(column.page_clustering),
        },
    }


def _bounds(bounds: Bounds) -> dict[str, Any]:
    return {
        "min": bounds.min,
        "max": bounds.max,
        "min_exact": bounds.min_exact,
        "max_exact": bounds.max_exact,
    }


def _clustering(found: Clustering | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "units": found.units,
        "layout": found.layout.value,
        "depth": round(found.depth, 4),
        "kept_by_equality": round(found.kept, 6),
        "profile": [round(share, 4) for share in found.profile],
    }


def _row_groups(found: Inspection) -> list[dict[str, Any]]:
    metadata = found.metadata
    bounds = {column.leaf.index: each(column.facts, metadata.row_group_count) for column in found.columns}
    chunks = {column.leaf.index: metadata.chunks(column.leaf.index) for column in found.columns}
    listed = []
    for number in range(metadata.row_group_count):
        columns = {}
        for column in found.columns:
            leaf = column.leaf
            chunk = chunks[leaf.index][number]
            columns[leaf.name] = {
                "bytes": chunk.total_compressed_size,
                "null_count": None if chunk.statistics is None else chunk.statistics.null_count,
                **_bounds(bounds[leaf.index][number]),
            }
        listed.append(
            {
                "row_group": number,
                "first_row": int(metadata.row_group_starts[number]),
                "rows": int(metadata.row_group_rows[number]),
                "columns": columns,
            }
        )
    return listed


def _page(page: Page) -> dict[str, Any]:
    return {
        "row_group": page.row_group,
        "first_row": page.first_row,
        "rows": page.rows,
        "bytes": page.bytes,
        "null_count": page.null_count,
        "nan_count": page.nan_count,
        **_bounds(page.bounds),
    }
