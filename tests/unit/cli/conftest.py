from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from skipstone.cli.main import app

Run = Callable[..., Any]

D = decimal.Decimal
ODD = pa.table(
    {
        "big": pa.array([2**53 + 1, -(2**63), None, 2**63 - 1]),
        "huge": pa.array([2**64 - 1, 0, None, 1], pa.uint64()),
        "float": [float("nan"), float("-inf"), None, 100.0],
        "single": pa.array([0.1, -0.0, None, 1e20], pa.float32()),
        "money": pa.array([D("1.20"), D("-0.00000001"), None, D("123456.5")], pa.decimal128(20, 8)),
        "utc": pa.array([0, 1_767_225_600_123_456, None, -1], pa.timestamp("us", "UTC")),
        "zurich": pa.array(
            [0, 1_767_225_600_123, None, 1_750_000_000_000], pa.timestamp("ms", "Europe/Zurich")
        ),
        "local": pa.array([0, 1_767_225_600_123_456_789, None, 5], pa.timestamp("ns")),
        "day": pa.array([dt.date(2026, 1, 1), dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
        "time": pa.array([dt.time(1, 2, 3, 4), dt.time(0), None, dt.time(23, 59, 59)]),
        "flag": [True, False, None, True],
        "bytes": pa.array([b"\x00\xff", b"", None, b"x" * 40]),
        "fixed": pa.array([b"ab", b"\x00\x00", None, b"zz"], pa.binary(2)),
        "text": ['q"uo,te\r\n', "", None, " 日本 שלום e\u0301 \x1b[31m\t\x7f\\"],
        "kind": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "list": pa.array([[1, None], [], None, [3]], pa.list_(pa.int64())),
        "struct": [{"x": D("1.5"), "y": ["a", 'b"']}, {"x": None, "y": None}, None, {"x": D("2.0"), "y": []}],
        "map": pa.array(
            [[("k", 1.5), ("l", None)], [], None, [("", float("nan"))]], pa.map_(pa.string(), pa.float64())
        ),
        "null": pa.nulls(4),
        'na"me, \x1b[31m 日本 שלום': [1, 2, 3, 4],
    }
)
"""Values that a format may get wrong: the third row is all NULL but for the last column."""


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 rows in 4 row groups of 100, pages of 25: ``id`` sorted, ``mixed`` not, a bloom on ``device``."""
    rows = np.arange(400)
    table = pa.table(
        {
            "id": rows,
            "at": pa.array(rows * 1_000_000 + 1_767_225_600_000_000, pa.timestamp("us", "UTC")),
            "mixed": rows * 7 % 400,
            "device": rows * 7 % 400 * 1_000,
            "name": pa.array([None if i % 10 == 0 else f"n{i:03d}" for i in range(400)]),
            "ratio": np.where(rows % 50 == 0, np.nan, rows / 4),
            "place": pa.array([{"x": i, "tags": [str(i)]} for i in range(400)]),
            "[bold]odd[/bold] :smile:\x1b[31m": rows,
        }
    )
    path = tmp_path_factory.mktemp("cli") / "events.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=100,
        max_rows_per_page=25,
        write_batch_size=25,
        write_page_index=True,
        compression="zstd",
        bloom_filter_options={"device": {"ndv": 100, "fpp": 0.001}},
    )
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the app in this process, 100 columns wide, without colours."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "SKIPSTONE_CATALOG"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*args: object) -> Any:
        return CliRunner().invoke(app, [str(arg) for arg in args])

    return invoke


@pytest.fixture
def words() -> Callable[[str], str]:
    """Text without colours, boxes and line breaks."""
    return lambda text: " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.fixture(scope="session")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,600 rows in 4 files below ``year=…/kind=…``, row groups of 50; ``id`` is sorted within a year."""
    root = tmp_path_factory.mktemp("hive") / "lake"
    rows = np.arange(400)
    for year in (2025, 2026):
        for kind in ("a", "b b"):
            folder = root / f"year={year}" / f"kind={kind}"
            folder.mkdir(parents=True)
            table = pa.table(
                {
                    "id": rows + 1000 * (year - 2025),
                    "price": rows * 1.25,
                    "name": pa.array([f"name {row}" for row in rows]),
                }
            )
            pq.write_table(table, folder / "part.parquet", row_group_size=50, write_page_index=True)
    return root


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One row of each trouble: see ``ODD``."""
    path = tmp_path_factory.mktemp("odd") / "odd.parquet"
    pq.write_table(ODD, path, row_group_size=3)
    return path


@pytest.fixture(scope="session")
def broken_end(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200,000 rows in 20 row groups, and a file after them whose values can't be read."""
    root = tmp_path_factory.mktemp("broken")
    table = pa.table({"id": np.arange(200_000), "text": pa.array(["some text"] * 200_000)})
    pq.write_table(table, root / "a.parquet", row_group_size=10_000)
    pq.write_table(table.slice(0, 10), root / "b.parquet", compression="none")
    metadata = pq.read_metadata(root / "b.parquet").row_group(0)
    last = metadata.column(1)
    with (root / "b.parquet").open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * (last.data_page_offset + last.total_compressed_size - 40 - 4))
    return root
