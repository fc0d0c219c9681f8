from pathlib import Path

import pyarrow as pa
import pytest

from skipstone.store.local import LocalPlace
from tests.unit.parquet.write._tables import make_events


@pytest.fixture(scope="session")
def events() -> pa.Table:
    return make_events(60_000)


@pytest.fixture
def stage(tmp_path: Path) -> LocalPlace:
    return LocalPlace(str(tmp_path / "stage"))
