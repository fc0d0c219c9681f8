from __future__ import annotations

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
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*args: object) -> Any:
        return CliRunner().invoke(app, [str(arg) for arg in args])

    return invoke


@pytest.fixture
def words() -> Callable[[str], str]:
    """Text without colours, boxes and line breaks."""
    return lambda text: " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())
