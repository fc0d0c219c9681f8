from __future__ import annotations

import pytest

from skipstone.core.rows import rowset


@pytest.fixture(params=["runs", "bitmap"])
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Force both representations for any rows."""
    monkeypatch.setattr(rowset, "SCATTERED_RUNS", 1 if request.param == "bitmap" else 2**62)
    monkeypatch.setattr(rowset, "SCATTERED_RUNS_PER_CONTAINER", 0)
    return str(request.param)
