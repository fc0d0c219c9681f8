"""Directories of tables are refused: their files hold rows that were deleted, and rows that were replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import skipstone as sk
from skipstone.errors import ReadError, UsageError
from skipstone.store.store import Store, open_root
from skipstone.write.lakes import open_existing
from skipstone.write.sources import find_sources
from tests.faults._steps import SteppedStore

LOGS = {
    "an Iceberg": ["metadata/v9.metadata.json", "metadata/v10.metadata.json", "metadata/snap-1.avro"],
    "an Iceberg, packed": ["metadata/00001-x.gz.metadata.json", "metadata/00002-y.metadata.json.gz"],
    "an Iceberg, by its hint": ["metadata/version-hint.text"],
    "a Delta": ["_delta_log/00000000000000000000.json"],
    "a Delta, checkpointed": [
        "_delta_log/00000000000000000010.checkpoint.parquet",
        "_delta_log/_last_checkpoint",
    ],
    "a Hudi": [".hoodie/hoodie.properties", ".hoodie/20240101.commit"],
}


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2]}), sink)
    return sink.getvalue().to_pybytes()


BODY = parquet()


def fill(root: Store, *keys: str) -> None:
    for key in keys:
        root.write(key, [BODY if key.endswith(".parquet") and "_delta_log" not in key else b"{}"])


@pytest.fixture(params=["local", "memory", "s3"])
def sandbox(request: Any, tmp_path: Path) -> tuple[Store, Callable[..., sk.Lake]]:
    """A store, and how to open what is in it."""
    if request.param == "local":
        return open_root(tmp_path), lambda key, **more: sk.open(tmp_path / key, **more)
    if request.param == "s3":
        options, uri = request.getfixturevalue("s3"), f"s3://bucket/{tmp_path.name}"
        return open_root(uri, storage_options=options), lambda key, **more: sk.open(
            f"{uri}/{key}", storage_options=options, **more
        )
    bucket = MemoryStore()
    return open_root("", store=bucket), lambda key, **more: sk.open(key, store=bucket, **more)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", LOGS)
def test_a_table_and_all_around_it_is_refused(sandbox: Any, kind: str) -> None:
    root, opens = sandbox
    data = [
        f"db/t/{folder}f.parquet" for folder in ("data/", "data/day=1/h=2/", "data/0101/day=3/", "day=4/")
    ]
    fill(root, *data, *(f"db/t/{key}" for key in LOGS[kind]), "db/lake/f.parquet")
    inside = ["db/t", "db/t/day=4"]
    if "Iceberg" in kind:
        inside += [
            "db/t/data",
            "db/t/data/day=1",
            "db/t/data/day=1/h=2",
            "db/t/data/0101",
            "db/t/data/0101/day=3",
        ]
    named = kind.partition(",")[0]
    for key in inside:
        with pytest.raises(UsageError, match=f"belongs to {named} table") as refused:
            opens(key)
        assert str(refused.value.path).endswith(key)
        assert "including deleted rows" in str(refused.value.hint)
    with pytest.raises(UsageError, match=f"contains {named} table .*db/t"):
        opens("db")
    # Beside a table is no table; who gives a glob, or names a file, says which files.
    assert opens("db/lake").scan().count() == 2
    assert opens("db/t/**/*4/*.parquet").scan().count() == 2
    assert opens("db/t/data/f.parquet").scan().count() == 2
    # Nor are rows taken in from there, or put there.
    for key in inside:
        with pytest.raises(UsageError, match=f"belongs to {named} table"):
            open_existing(root.child(key))
    if root.local:
        for key in ("db", *inside):
            with pytest.raises(UsageError, match=f"{named} table"):
                find_sources(root.path(key), open_root(root.path("new")))


def test_a_link_to_a_part_of_a_table(tmp_path: Path) -> None:
    root = open_root(tmp_path)
    fill(root, "t/_delta_log/0.json", "t/day=1/f.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "t" / "day=1")
    with pytest.raises(UsageError, match="belongs to a Delta table"):
        sk.open(tmp_path / "link")


def test_the_newest_metadata_is_named(tmp_path: Path) -> None:
    root = open_root(tmp_path)
    fill(root, "t/data/f.parquet", *(f"t/{key}" for key in LOGS["an Iceberg"]))
    for key in ("t", "t/data", "."):
        with pytest.raises(UsageError, match=rf"{tmp_path}/t/metadata/v10\.metadata\.json"):
            sk.open(tmp_path / key)


def test_a_partition_of_a_hudi_table_is_known_by_itself(sandbox: Any) -> None:
    root, opens = sandbox
    fill(root, "t/2024/01/f.parquet", "t/2024/01/.hoodie_partition_metadata")
    with pytest.raises(UsageError, match="belongs to a Hudi table"):
        opens("t/2024/01")
    with pytest.raises(UsageError, match="contains a Hudi table"):
        opens("t")


@pytest.mark.parametrize(
    "keys",
    [
        ["metadata/notes.json", "metadata.json"],
        ["x.metadata.json.parquet"],
        ["data/my_metadata/1.metadata.json.parquet", "_delta_logs/0.json", "hoodie/x"],
    ],
)
def test_what_only_looks_like_a_table(sandbox: Any, keys: list[str]) -> None:
    root, opens = sandbox
    fill(root, "lake/data/day=1/f.parquet", *(f"lake/{key}" for key in keys))
    assert opens("lake/data/day=1").scan().count() == 2
    assert opens("lake/data/**/f.parquet").scan().count() == 2


def test_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request for most lakes; one beside ``data``, three beside partitions, whatever lies there."""
    bucket = MemoryStore()
    root = open_root("", store=bucket)
    fill(root, "lake/f.parquet", "t/data/f.parquet", "p/day=1/h=2/f.parquet", "t/data/day=1/h=2/f.parquet")
    fill(root, *(f"metadata/{n}.txt" for n in range(20)))
    asked: list[str] = []
    really = obstore.list_with_delimiter

    def counted(bucket: Any, prefix: Any = None) -> Any:
        asked.append(prefix)
        return really(bucket, prefix)

    monkeypatch.setattr(obstore, "list_with_delimiter", counted)
    costs = {
        "lake": [],
        "t/data": ["t/metadata"],
        "p/day=1/h=2": ["p/.hoodie", "p/_delta_log", "p/metadata"],
        "t/data/day=1": ["t/data/.hoodie", "t/data/_delta_log", "t/data/metadata", "t/metadata"],
    }
    for key, cost in costs.items():
        asked.clear()
        lake = sk.open(key, store=bucket)
        assert sorted(asked) == cost
        asked.clear()
        lake.refresh()
        assert asked == []


def test_a_directory_above_that_can_t_be_listed(tmp_path: Path) -> None:
    """It is taken for no table's: who may read one directory need not be allowed to look around."""
    root = open_root(tmp_path)
    fill(root, "t/data/f.parquet", *(f"t/{key}" for key in LOGS["an Iceberg"]))

    class Closed(SteppedStore):
        def parent(self) -> Any:
            above = self.store.parent()
            return None if above is None else Closed(above, refuse)

        def child(self, key: str) -> Any:
            return Closed(self.store.child(key), self.before)

    def refuse(name: str, _args: Any) -> None:
        raise ReadError("permission denied", path=name)

    assert sk.Lake(Closed(root.child("t/data")), "").scan().count() == 2
