"""How many calls it takes to open a lake, and to ask it a question that nobody answers yet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.support.calls import calls


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("calls") / "lake"
    root.mkdir()
    for number in range(100):
        pq.write_table(pa.table({"id": [number]}), root / f"{number}.parquet")
    sk.open(root).index.build(engine="local")
    return root


def test_opening(root: Path) -> None:
    sk.open(root)
    # Six a file, and the rest once.
    assert 600 < calls(lambda: sk.open(root)) <= 1_150


def test_asking(root: Path) -> None:
    lake = sk.open(root)
    lake.scan("id = 1")
    assert 3 <= calls(lambda: lake.scan("id = 2")) <= 30
