"""The schema read from a footer without its row groups is the schema of the whole footer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.parquet import metadata as room
from skipstone.parquet.compact import footer_without_row_groups

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


def same_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Compare with pyarrow; say whether the shell was made at all."""
    monkeypatch.setattr(room, "_MANY_ROW_GROUPS", 0)
    metadata = sk.read_metadata(path)
    assert metadata.arrow_schema.equals(pq.read_schema(path), check_metadata=True)
    return len(footer_without_row_groups(metadata.footer, [], b"")) < len(metadata.footer)


@pytest.mark.parametrize("pairs", [0, 3, 40])
def test_every_type_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: int) -> None:
    path = tmp_path / "t.parquet"
    table = TABLE.replace_schema_metadata({f"key {n}": "v" * n for n in range(pairs)})
    pq.write_table(table, path, row_group_size=1)
    assert same_schema(path, monkeypatch)


def test_files_nobody_here_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    if not CORPUS.exists():
        pytest.skip("the corpus is not here")
    assert sum(same_schema(path, monkeypatch) for path in sorted(CORPUS.glob("*.parquet"))) > 10


def test_many_row_groups_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"c{n}": [1, 2] * 20 for n in range(300)}), path, row_group_size=1)
    metadata = sk.read_metadata(path)
    assert metadata.row_group_count == 40
    assert metadata.arrow_schema.equals(pq.read_schema(path))


@pytest.mark.parametrize("footer", [b"", b"\x00", b"\x15\x02", b"\xff" * 40, b"\x19\xfb" * 9, b"\x1c" * 5000])
def test_odd_bytes_are_left_alone(footer: bytes) -> None:
    assert footer_without_row_groups(footer, [], b"x") is footer
