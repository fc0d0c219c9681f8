from pathlib import Path

import pyarrow as pa
import pytest

from skipstone.store.local import LocalStore
from tests.unit.parquet.write._tables import make_events


@pytest.fixture(scope="session")
def events() -> pa.Table:
    return make_events(60_000)


@pytest.fixture
def stage(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "stage"))
