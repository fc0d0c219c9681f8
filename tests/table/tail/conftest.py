"""A catalog whose commits can be held back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog


class Gate(SqlCatalog):
    """A catalog whose commits wait, or fail."""

    opens: threading.Event
    failure: Exception | None = None
    """What commits fail with."""
    refusal: BaseException | None = None
    """What reading the table's metadata fails with."""
    waiting: threading.Event

    def commit_table(self, *args: Any, **options: Any) -> Any:
        self.waiting.set()
        assert self.opens.wait(60)
        if self.failure is not None:
            raise self.failure
        return super().commit_table(*args, **options)

    def load_table(self, *args: Any, **options: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        return super().load_table(*args, **options)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate("gate", uri=f"sqlite:///{tmp_path}/gate.db", warehouse=f"file://{tmp_path}/gated")
    made.opens, made.waiting = threading.Event(), threading.Event()
    made.opens.set()
    yield made
    made.opens.set()
