"""Lakes with an index: one that nobody changes, and ones to be harmed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pyarrow as pa
import pytest

import skipstone as sk
import skipstone.index.coverage as coverage_module
from tests.faults.index._indexes import FILES, build, fault_table, write_file

# sk.prune is a function, which hides the package of its name.
survey_module = importlib.import_module("skipstone.prune.survey")


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake nobody changes, with an index in it that nobody changes either."""
    root = tmp_path_factory.mktemp("indexed")
    for number in range(FILES):
        write_file(root / f"part-{number}.parquet", number)
    build(sk.open(root))
    return root


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return pa.concat_tables([fault_table(n) for n in range(FILES)])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A lake and an index to be changed."""
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(FILES):
        write_file(root / f"part-{number}.parquet", number)
    build(sk.open(root))
    return root


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Planned as a small lake is, and as a large one."""
    if request.param == "large":
        monkeypatch.setattr(coverage_module, "_SMALL", 0)
        monkeypatch.setattr(coverage_module, "_FEW", 0)
        monkeypatch.setattr(coverage_module, "_SHARE", 1)
        monkeypatch.setattr(survey_module, "_MAX_PAGES", 0)
    return str(request.param)
