"""Every test reads anew."""

from __future__ import annotations

import pytest

from skipstone.iceberg.manifests.decode import slicer_of
from skipstone.iceberg.manifests.reading import (
    clear_cache,
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    slicer_of.cache_clear()
    clear_cache()
