"""Bloom filters that queries would profit by, from a sample of what is to be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.errors import PredicateError
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.order import sort_batch
from skipstone.parquet.write.profile import profile
from skipstone.write.lookups import add_blooms
from skipstone.write.rows import RowSurvey

SAMPLED = 20_000


def survey(rows: int, layout: PageLayout) -> RowSurvey:
    """A sample of ``rows`` rows: ``ts`` and ``id`` never repeat, ``user`` has 100,000 values."""
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "ts": np.arange(SAMPLED) * (rows // SAMPLED),
            "id": rng.choice(rows, SAMPLED, replace=False),
            "hash": [f"{number:016x}" for number in rng.integers(0, 2**62, SAMPLED)],
            "user": rng.integers(0, 100_000, SAMPLED),
            "few": rng.integers(0, 5, SAMPLED),
            "place": [{"city": int(city)} for city in rng.choice(rows, SAMPLED, replace=False)],
        }
    )
    sample = sort_batch(table, layout)
    return RowSurvey(rows, sample, profile(sample, layout), 10)


def blooms(rows: int, queries: Any, **settings: Any) -> tuple[str, ...]:
    layout = PageLayout(**{"cluster_by": ("ts",), "row_group_rows": rows // 40, **settings})
    return add_blooms(survey(rows, layout), layout, queries).blooms


QUERIES = ["id = 456789", "hash = '20ab'", "user = 45678", "few = 3", "ts = 1000", "place.city = 456789"]


def test_where_values_are_many_and_not_sorted() -> None:
    assert blooms(1_000_000, QUERIES) == ("id", "hash", "user", "place.city")


def test_a_value_that_every_row_group_has_needs_no_filter() -> None:
    """A million rows of a row group have most users, though the sample's own parts have few."""
    assert blooms(40_000_000, QUERIES) == ("id", "hash", "place.city")


def test_ranges_and_other_conditions_need_no_filter() -> None:
    assert blooms(1_000_000, ["id > 500", "id is null", "id % 7 = 1", "id = 3 or user = 4"]) == ()


def test_the_more_is_asked_the_more_it_counts() -> None:
    assert blooms(1_000_000, [("id = 456789", 1), ("id > 100", 99)]) == ()
    assert blooms(1_000_000, [("id = 456789", 99), ("id > 100", 1)]) == ("id",)


def test_what_is_asked_for_stays() -> None:
    assert blooms(1_000_000, ["id = 456789"], blooms=("few",)) == ("few", "id")
    assert blooms(1_000_000, ["user = 45678"], partition_by=("user",)) == ()


def test_a_query_log(tmp_path: Path) -> None:
    log = tmp_path / "log.sql"
    log.write_text("select * from t where id = 456789;\nnope = 3\n")
    assert blooms(1_000_000, log) == ("id",)


def test_no_rows_and_no_questions() -> None:
    layout = PageLayout()
    empty = pa.table({"id": pa.array([], pa.int64())})
    assert add_blooms(RowSurvey(0, empty, profile(empty, layout), 1), layout, ["id = 3"]) is layout
    with pytest.raises(PredicateError, match="nope"):
        blooms(1_000_000, ["nope = 3"])
