"""A small lake for every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults._files import FILES, write_file


@pytest.fixture(scope="session")
def lake_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake nobody changes."""
    root = tmp_path_factory.mktemp("faults")
    for number in range(FILES):
        write_file(root / f"part-{number}.parquet", number)
    return root


@pytest.fixture
def own_lake(tmp_path: Path) -> Path:
    """A lake to be changed by the test."""
    for number in range(FILES):
        write_file(tmp_path / f"part-{number}.parquet", number)
    return tmp_path
