"""Every file that nobody here wrote parses as pyarrow parses it, or is refused with a clear error."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import FileError
from skipstone.parquet.bloom import bloom_length, bloom_range, parse_bloom
from skipstone.parquet.dictionary import (
    BadDictionary,
    decode_dictionary,
    dictionary_complete,
    dictionary_range,
)
from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.parquet.pageindex import page_index_ranges, parse_page_index
from skipstone.store.source import open_source


def files(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.parquet"))
    assert found
    return found


def test_good_files_match_pyarrow(corpus: Path) -> None:
    for path in files(corpus / "data"):
        ours = read_footer(open_source(path))
        theirs = pq.ParquetFile(path).metadata
        groups = [theirs.row_group(group) for group in range(theirs.num_row_groups)]
        assert ours.num_rows == sum(group.num_rows for group in groups), path
        assert ours.row_group_rows.tolist() == [group.num_rows for group in groups], path
        assert ours.arrow_schema.equals(pq.read_schema(path)), path
        for leaf in ours.leaves:
            column = theirs.schema.column(leaf.index)
            assert leaf.name == column.path, path
            assert leaf.physical.name == column.physical_type, path
            assert leaf.max_definition == column.max_definition_level, path
            assert leaf.max_repetition == column.max_repetition_level, path
            for number, chunk in enumerate(ours.chunks(leaf.index)):
                expected = groups[number].column(leaf.index)
                assert chunk.num_values == expected.num_values, path
                assert chunk.data_page_offset == expected.data_page_offset, path
                stats = expected.statistics
                if stats is not None and stats.has_null_count:
                    assert chunk.statistics is not None, path
                    assert chunk.statistics.null_count == stats.null_count, path


def test_page_indexes_blooms_and_dictionaries(corpus: Path) -> None:
    seen = {"page index": 0, "bloom": 0, "dictionary": 0}
    for path in files(corpus / "data"):
        data = path.read_bytes()
        metadata = read_footer(open_source(data))
        for leaf in metadata.leaves:
            for group in range(metadata.row_group_count):
                columns, offsets = page_index_ranges(metadata, group, leaf.index)
                if offsets is not None:
                    raw = data[columns.start : columns.stop] if columns else None
                    index = parse_page_index(
                        raw, data[offsets.start : offsets.stop], metadata, group, leaf.index
                    )
                    assert index.row_counts.sum() == metadata.row_group_rows[group], path
                    seen["page index"] += 1
                span = bloom_range(metadata, group, leaf.index)
                if span is not None:
                    length = bloom_length(data[span.start : span.stop])
                    parse_bloom(data[span.start : span.start + length])
                    seen["bloom"] += 1
                seen["dictionary"] += compare_dictionary(path, data, metadata, group, leaf.index)
    assert min(seen.values()) > 0, seen


def compare_dictionary(path: Path, data: bytes, metadata: ParquetMetadata, group: int, leaf: int) -> bool:
    """A complete dictionary of a flat column holds just the distinct values that pyarrow reads."""
    span = dictionary_range(metadata, group, leaf)
    if span is None or not dictionary_complete(metadata, group, leaf):
        return False
    column = metadata.leaves[leaf]
    try:
        values = decode_dictionary(data[span.start : span.stop], metadata.chunks(leaf)[group], column)
    except BadDictionary as bad:
        # Checksums of two files are wrong on purpose, and Hadoop's LZ4 framing is not read.
        if "checksum" in bad.reason or "codec 5" in bad.reason:
            return False
        raise
    if len(column.path) > 1 or column.physical.name not in ("INT32", "INT64", "BYTE_ARRAY"):
        return True
    with pq.ParquetFile(path, arrow_extensions_enabled=False) as file:
        array = file.read_row_group(group, columns=[column.path[0]]).column(0).unique().drop_null()
    expected = [value.as_py() for value in array]
    if array.type in (pa.int32(), pa.int64()) or array.type in (pa.binary(), pa.string()):
        raw = [value.encode() if isinstance(value, str) else value for value in expected]
        assert set(raw) == set(values if isinstance(values, list) else values.tolist()), path
    return True


def test_bad_files_are_refused_or_bad_only_inside_their_pages(corpus: Path) -> None:
    refused = {}
    for path in files(corpus / "bad_data"):
        try:
            metadata = read_footer(open_source(path))
            for leaf in metadata.leaves:
                metadata.chunks(leaf.index)
        except FileError as error:
            refused[path] = error.path
    assert all(str(path) == named for path, named in refused.items())
    stems = {path.stem for path in refused}
    assert {"PARQUET-1481", "ARROW-GH-41317", "ARROW-RS-GH-6229-DICTHEADER"} <= stems


def test_newest_statistics(corpus: Path) -> None:
    metadata = read_footer(open_source(corpus / "data" / "floating_orders_nan_count.parquet"))
    assert {leaf.column_order for leaf in metadata.leaves} == {"type_defined", "ieee754_total"}
    counts = [
        chunk.statistics.nan_count
        for leaf in metadata.leaves
        for chunk in metadata.chunks(leaf.index)
        if chunk.statistics is not None
    ]
    assert len(counts) == 30
    assert None not in counts
    assert max(count or 0 for count in counts) > 0


@pytest.mark.parametrize("name", ["unknown-logical-type.parquet"])
def test_a_logical_type_of_the_future(corpus: Path, name: str) -> None:
    kinds = [str(leaf.logical.kind) for leaf in read_footer(open_source(corpus / "data" / name)).leaves]
    assert "unknown" in kinds
