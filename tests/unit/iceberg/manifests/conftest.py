"""Every test reads anew."""

from __future__ import annotations

import pytest

from skipstone.iceberg.manifests.reading import (
    clear_cache,
    slicer_of,
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    slicer_of.cache_clear()
    clear_cache()
