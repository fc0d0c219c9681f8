"""Random operations on a keyed table agree with a dict; so do the cases in which stale rows would show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.samples import sample
from tests.table._model import KEYS, check, operations

EACH = 60 if not os.environ.get("SKIPSTONE_CASES") else 250
"""Operations on one table: each commit makes metadata larger. Twenty tables of the full run make a seed."""


@pytest.mark.parametrize("case", range(sample("keyed model")))
def test_random_operations(case: int, tmp_path: Path) -> None:
    check(tmp_path, KEYS[case % len(KEYS)], operations(case, EACH))
