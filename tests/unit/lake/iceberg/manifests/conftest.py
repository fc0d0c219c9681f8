"""Every test reads anew."""

from __future__ import annotations

import pytest

from skipstone.lake.iceberg.manifests.decode import slicer_of
from skipstone.lake.iceberg.manifests.reading import (
    clear_cache,
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    slicer_of.cache_clear()
    clear_cache()
