"""Catalogs of tables that are written to."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/ware")
    made.create_namespace("db")
    return made
