"""Places to append to."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from skipstone.store.store import Store, open_root
from tests.unit.lake.append._jobs import KINDS


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A lake that does not exist yet."""
    return open_root(tmp_path / "lake") if request.param == "local" else open_root("x", store=MemoryStore())
