"""The schema read from a footer without its row groups is the schema of the whole footer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import CorruptFileError
from skipstone.parquet.metadata import parse_footer

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpus" / "parquet-testing" / "data"
TABLE = pa.table(
    {
        "i": pa.array([1, 2], pa.int8()),
        "ts": pa.array([1, 2], pa.timestamp("us", "Europe/Paris")),
        "d": pa.array(["a", "b"]).dictionary_encode(),
        "st": pa.array([{"x": 1, "y": ["a"]}, None]),
        "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "dur": pa.array([1, 2], pa.duration("ms")),
        "id": pa.array([b"0" * 16, None], pa.uuid()),
        "näme with spaces": pa.array([1.5, 2.5], pa.float16()),
    }
)


def same_schema(path: Path) -> bool:
    """Compare with pyarrow; say whether the shell was made at all."""
    metadata = sk.read_metadata(path)
    assert metadata.arrow_schema.equals(pq.read_schema(path), check_metadata=True)
    shell = parse_footer(metadata.shell(), "shell", None)
    assert (shell.leaves, shell.writer) == (metadata.leaves, metadata.writer)
    assert shell.key_value_metadata == metadata.key_value_metadata
    return len(metadata.shell()) < len(metadata.footer) and shell.row_group_count == 0


@pytest.mark.parametrize("pairs", [0, 3, 40])
def test_every_type_survives(tmp_path: Path, pairs: int) -> None:
    path = tmp_path / "t.parquet"
    table = TABLE.replace_schema_metadata({f"key {n}": "v" * n for n in range(pairs)})
    pq.write_table(table, path, row_group_size=1)
    assert same_schema(path)


def test_files_nobody_here_wrote() -> None:
    if not CORPUS.exists():
        pytest.skip("the corpus is not here")
    assert sum(same_schema(path) for path in sorted(CORPUS.glob("*.parquet"))) > 10


def test_many_row_groups_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"c{n}": [1, 2] * 20 for n in range(300)}), path, row_group_size=1)
    metadata = sk.read_metadata(path)
    assert metadata.row_group_count == 40
    assert metadata.arrow_schema.equals(pq.read_schema(path))


@pytest.mark.parametrize("footer", [b"", b"\x00", b"\x15\x02", b"\xff" * 40, b"\x19\xfb" * 9, b"\x1c" * 5000])
def test_odd_bytes_are_refused(footer: bytes) -> None:
    with pytest.raises(CorruptFileError):
        parse_footer(footer, "odd", None)


def test_an_unusual_footer_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=1)
    usual = sk.read_metadata(path)
    # The schema's field number spelled out, where writers say that it is one more than the version's.
    assert usual.footer[2] == 0x19
    moved = parse_footer(usual.footer[:2] + b"\x09\x04" + usual.footer[3:], "moved", usual.size)
    assert moved.shell() == moved.footer
    assert moved.arrow_schema.equals(usual.arrow_schema, check_metadata=True)
    assert [c.data_page_offset for c in moved.chunks(0)] == [c.data_page_offset for c in usual.chunks(0)]
    again = parse_footer(moved.footer, "again", usual.size)
    assert again.schema_group is moved.schema_group
    assert again.schema_group is not usual.schema_group
