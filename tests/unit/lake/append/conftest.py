"""Places to append to."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from skipstone.store.place import Place, open_root
from tests.unit.lake.append._jobs import KINDS


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A lake that does not exist yet."""
    return open_root(tmp_path / "lake") if request.param == "local" else open_root("x", store=MemoryStore())
