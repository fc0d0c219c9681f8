"""Files other people made: every one that pyarrow reads is sliced to the same rows."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from skipstone.errors import SkipstoneError
from tests.property._slices import Lake, random_rows

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "parquet-testing"
READS = 8


def files(folder: str) -> list[Any]:
    found = sorted((CORPUS / folder).glob("*.parquet")) if CORPUS.exists() else []
    missing = pytest.param(
        None, marks=pytest.mark.skip(reason=f"no corpus at {CORPUS / folder}"), id="absent"
    )
    return [pytest.param(path, id=path.name) for path in found] or [missing]


def slices(lake: Lake, rng: random.Random) -> list[tuple[int, dict[str, Any]]]:
    found = []
    count = len(lake.metadata.arrow_schema)
    for group in range(lake.metadata.row_group_count):
        total = int(lake.metadata.row_group_rows[group])
        for read in range(READS if total else 0):
            fields = rng.sample(range(count), rng.randrange(1, min(count, 8) + 1)) if read else range(count)
            leaves = {leaf for leaf in range(len(lake.metadata.leaves)) if rng.random() < 0.5}
            found.append(
                (
                    group,
                    {
                        "fields": fields,
                        "rows": random_rows(rng, total),
                        "leaves": leaves if read > 4 else None,
                    },
                )
            )
    return found


@pytest.mark.parametrize("path", files("data"))
def test_corpus_files(path: Path) -> None:
    lake = Lake(path.read_bytes(), path.name)
    for group, asked in slices(lake, random.Random(path.name)):
        lake.check(group, indexes=lake.indexes(group), **asked)


@pytest.mark.parametrize("path", files("bad_data"))
def test_bad_corpus_files_are_errors_or_right(path: Path) -> None:
    try:
        lake = Lake(path.read_bytes(), path.name)
        asked_for = slices(lake, random.Random(path.name))
    except SkipstoneError:
        return
    for group, asked in asked_for:
        with contextlib.suppress(SkipstoneError):
            lake.check(group, indexes=lake.indexes(group), **asked)
