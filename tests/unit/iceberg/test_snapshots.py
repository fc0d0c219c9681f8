"""Which snapshot is meant: times to the millisecond, logs with ties, metadata that points nowhere."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from skipstone.errors import CorruptFileError, UsageError
from skipstone.iceberg.metadata import ancestors, list_snapshots, resolve
from tests.iceberg._maker import Maker


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    made = Maker(tmp_path, [("id", "long")])
    for n in range(3):
        made.append([{"id": n}])
    return made


def metadata(maker: Maker, **changes: Any) -> TableMetadata:
    told = maker.to_json() | {name.replace("_", "-"): value for name, value in changes.items()}
    return TableMetadataUtil.parse_obj(told)


def found(told: TableMetadata, asked: Any) -> int | None:
    snapshot = resolve(told, asked, uri="t").snapshot
    return None if snapshot is None else snapshot.snapshot_id


def test_a_snapshots_own_time_finds_it_to_the_millisecond(maker: Maker) -> None:
    """A third of all milliseconds is a little less as a fraction of a second than it should be."""
    rng = random.Random(1)
    first, second, _ = maker.snapshots
    for _ in range(1000):
        millis = rng.randrange(10**12, 3 * 10**12)
        log = [
            {"timestamp-ms": millis - 5000, "snapshot-id": first},
            {"timestamp-ms": millis, "snapshot-id": second},
        ]
        told = metadata(maker, snapshot_log=log)
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=millis)
        assert found(told, moment) == found(told, moment.isoformat()) == second
        assert found(told, moment - dt.timedelta(microseconds=1)) == first


def test_of_two_at_the_same_time_the_later_one_stands(maker: Maker) -> None:
    first, second, third = maker.snapshots
    log = [{"timestamp-ms": 5000, "snapshot-id": one} for one in (third, first, second)]
    told = metadata(maker, snapshot_log=log)
    moment = dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)
    assert found(told, moment) == second
    assert found(told, moment + dt.timedelta(days=1)) == second


def test_a_log_that_names_an_expired_snapshot_is_no_answer(maker: Maker) -> None:
    log = [{"timestamp-ms": 5000, "snapshot-id": 99}]
    with pytest.raises(UsageError, match="unknown snapshot"):
        resolve(metadata(maker, snapshot_log=log), dt.datetime(2020, 1, 1), uri="t")


def test_numbers_of_every_kind_are_ids(maker: Maker) -> None:
    told = metadata(maker)
    first = next(iter(maker.snapshots))
    for asked in (first, str(first), np.int64(first), list_snapshots(told)[0]):
        assert found(told, asked) == first
    assert found(told, None) == [*maker.snapshots][-1]


@pytest.mark.parametrize("asked", [True, np.True_, 1.0, b"x", object(), [1], "", "x", "9" * 40, "-3"])
def test_everything_else_is_refused(maker: Maker, asked: Any) -> None:
    with pytest.raises(UsageError, match="unknown snapshot") as refused:
        resolve(metadata(maker), asked, uri="t")
    assert refused.value.path == "t"
    assert "main" in (refused.value.hint or "")


def test_metadata_that_points_nowhere_is_no_empty_table(maker: Maker) -> None:
    told = metadata(maker, current_snapshot_id=5, refs={"lost": {"snapshot-id": 6, "type": "branch"}})
    with pytest.raises(CorruptFileError, match="the current snapshot is 5"):
        resolve(told, None, uri="t")
    with pytest.raises(CorruptFileError, match="the branch 'lost' is 6") as refused:
        resolve(told, "lost", uri="t")
    assert (refused.value.path, bool(refused.value.hint)) == ("t", True)


def test_a_snapshot_whose_schema_is_not_known_is_read_with_the_current_one(maker: Maker) -> None:
    first = next(iter(maker.snapshots))
    told = maker.to_json()
    del told["snapshots"][0]["schema-id"]
    pinned = resolve(TableMetadataUtil.parse_obj(told), first, uri="t")
    assert pinned.schema.schema_id == maker.current_schema


def test_ancestors_go_back_as_far_as_they_are_known(maker: Maker) -> None:
    told = metadata(maker)
    ids = [*maker.snapshots]
    current = resolve(told, None, uri="t").snapshot
    assert [one.snapshot_id for one in ancestors(told, current)] == ids[::-1]
    maker.expire(2)
    told = metadata(maker)
    assert [one.snapshot_id for one in ancestors(told, resolve(told, None, uri="t").snapshot)] == ids[:0:-1]
    assert [*ancestors(told, None)] == []
