"""Keyed tables whose partition spec changes between writes, against a dict."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
)

import skipstone as sk
from tests.support.samples import sample
from tests.table._keyed import as_others_read

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("region", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("x", pa.float64()),
        ("v", pa.int64()),
    ]
)
FIELDS: dict[str, tuple[str, Any]] = {
    "by_region": ("region", IdentityTransform()),
    "by_letter": ("region", TruncateTransform(1)),
    "by_bucket": ("id", BucketTransform(3)),
    "by_day": ("day", IdentityTransform()),
    "by_month": ("day", MonthTransform()),
    "by_time": ("at", DayTransform()),
    "by_number": ("x", IdentityTransform()),
}
KEYS = 24
STEPS = 12
FIRST = datetime.date(2024, 1, 30)
Row = dict[str, Any]
WRITES = ("upsert", "append", "delete", "where", "update", "merge", "tail", "transaction", "ingest")
OPERATIONS = (*WRITES, "spec", "spec", "compact", "respec", "drop", "stale")


def row(number: int, random: np.random.Generator) -> Row:
    day = FIRST + datetime.timedelta(int(random.integers(4)))
    return {
        "id": number,
        "region": (None, "eu", "us", "é/ü=1")[int(random.integers(4))],
        "day": None if random.random() < 0.1 else day,
        "at": datetime.datetime.combine(day, datetime.time(int(random.integers(24)))),
        "x": (None, 0.0, 1.5)[int(random.integers(3))],
        "v": int(random.integers(5)),
    }


class Walk:
    """A table, what it must contain, and what has been done."""

    def __init__(self, folder: Path, random: np.random.Generator, *, upgraded: bool) -> None:
        self.folder, self.random = folder, random
        self.rows: dict[int, Row] = {}
        self.names = list(SCHEMA.names)
        self.fields: list[str] = []
        options = {"write.delete.granularity": "file"} if random.random() < 0.5 else {}
        key = {"properties": {**options, "format-version": "1"}} if upgraded else {"key": ["id"]}
        self.table = sk.catalog(folder).create_table("db.t", SCHEMA, **{"properties": options, **key})
        if upgraded:
            self._upgrade()
        self.old = self.other()

    def _upgrade(self) -> None:
        """Removed fields of version 1 stay as void ones, in version 2 as well."""
        for number, fields in enumerate((["by_region", "by_bucket"], ["by_day"], [], ["by_bucket"])):
            self.change(fields)
            new = self.some([3 * number, 3 * number + 1])
            sk.ingest(self.arrow(new), self.table, engine="local", index=False)
            self.put(new)
        with self.table.table.transaction() as upgrade:
            upgrade.upgrade_table_version(2)
        with self.table.table.update_schema() as update:
            update.set_identifier_fields("id")
        self.table = self.other()
        assert len(self.table.specs[self.table.metadata.default_spec_id].fields) > 1

    def other(self) -> sk.Table:
        return sk.open("db.t", catalog=self.folder)

    def arrow(self, rows: Sequence[Row]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), pa.schema([SCHEMA.field(name) for name in self.names]))

    def some(self, ids: Sequence[int]) -> list[Row]:
        return [{k: v for k, v in row(n, self.random).items() if k in self.names} for n in ids]

    def put(self, rows: Sequence[Row]) -> None:
        self.rows |= {one["id"]: one for one in rows}

    def drop_keys(self, ids: Sequence[int]) -> None:
        self.rows = {n: one for n, one in self.rows.items() if n not in ids}

    def change(self, wanted: Sequence[str]) -> None:
        """Partition the table by other fields; files keep their specs."""
        with self.other().table.update_spec() as update:
            for name in self.fields:
                if name not in wanted:
                    update.remove_field(name)
            for name in wanted:
                if name not in self.fields:
                    update.add_field(*FIELDS[name], name)
        self.fields = list(wanted)
        self.table.refresh()

    def do(self, name: str) -> None:
        random, table = self.random, self.table
        ids = random.choice(KEYS, int(random.integers(1, 8)), replace=False).tolist()
        some, low = self.some(ids), int(random.integers(5))
        match name:
            case "upsert":
                table.upsert(self.arrow(some))
                self.put(some)
            case "stale":
                # By an object that knows neither the files nor the specs of the last writes.
                self.old.upsert(self.arrow(some))
                self.put(some)
                self.old, self.table = table, self.other()
            case "append" | "ingest":
                new = [one for one in some if one["id"] not in self.rows]
                if name == "append":
                    table.append(self.arrow(new))
                else:
                    sk.ingest(self.arrow(new), table, engine="local", index=False)
                self.put(new)
            case "delete":
                table.delete(keys=ids)
                self.drop_keys(ids)
            case "where":
                table.delete(f"v = {low} AND id < 12")
                self.drop_keys([n for n, one in self.rows.items() if one["v"] == low and n < 12])
            case "update":
                table.update(f"v >= {low}", {"v": "v + 1"})
                self.rows = {
                    n: {**one, "v": one["v"] + 1} if one["v"] >= low else one for n, one in self.rows.items()
                }
            case "merge":
                table.merge(self.arrow(some), when_not_matched="ignore")
                self.put([one for one in some if one["id"] in self.rows])
            case "tail":
                with table.writer(sync="off", flush_seconds=None) as writer:
                    writer.upsert(self.arrow(some))
                    writer.delete(keys=ids[:1])
                self.put(some)
                self.drop_keys(ids[:1])
            case "transaction":
                with table.transaction() as changes:
                    changes.delete(f"v = {low}")
                    changes.upsert(self.arrow(some))
                self.drop_keys([n for n, one in self.rows.items() if one["v"] == low])
                self.put(some)
            case "spec":
                free = [field for field in FIELDS if FIELDS[field][0] in self.names]
                # pyiceberg refuses two fields of one column by time.
                chosen = random.choice(free, int(random.integers(4)), replace=False).tolist()
                self.change(chosen)
            case "drop":
                used = {FIELDS[field][0] for field in self.fields}
                free = [one for one in ("region", "day", "at", "x") if one in self.names and one not in used]
                if free:
                    self._drop_column(str(random.choice(free)))
            case "compact":
                table.compact(table.plan_compaction(rewrite_all=True), engine="local", threads=1)
            case "respec":
                target = int(random.choice(sorted(table.specs)))
                if self._is_whole(target):
                    plan = table.plan_compaction(target_spec_id=target, rewrite_all=True)
                    table.compact(plan, engine="local", threads=1)

    def _drop_column(self, name: str) -> None:
        """Specs of older files keep its id."""
        with self.other().table.update_schema() as update:
            update.delete_column(name)
        self.names.remove(name)
        self.rows = {n: {k: one[k] for k in self.names} for n, one in self.rows.items()}
        self.table, self.old = self.other(), self.other()

    def _is_whole(self, spec: int) -> bool:
        ids = set(self.table.iceberg_schema.field_ids)
        return all(one.source_id in ids for one in self.table.specs[spec].fields)

    def check(self) -> None:
        fresh = self.other()
        wanted = [one for _, one in sorted(self.rows.items())]
        found = fresh.scan().to_arrow().to_pylist()
        assert sorted(found, key=lambda one: one["id"]) == wanted
        for name, value in (("region", "eu"), ("x", 1.5)):
            if name in self.names:
                where = f"{name} = '{value}'" if isinstance(value, str) else f"{name} = {value}"
                assert fresh.scan(where).count() == sum(one[name] == value for one in wanted)
        self._check_delete_files(fresh)

    def _check_delete_files(self, table: sk.Table) -> None:
        """Each is in the directory of its data files, whose partition it has."""
        data, deletes = table.inventory.everything[0], table.delete_inventory.everything[0]
        keys = {
            path: data.keys[code]
            for path, code in zip(data.paths.to_pylist(), data.partitions.tolist(), strict=True)
        }
        for path, code in zip(deletes.paths.to_pylist(), deletes.partitions.tolist(), strict=True):
            named = pq.read_table(path.removeprefix("file://"), columns=["file_path"])["file_path"]
            live = set(named.to_pylist()) & keys.keys()
            assert {keys[one] for one in live} <= {deletes.keys[code]}
            folders = {one.rpartition("/")[0] for one in named.to_pylist()}
            assert folders == {path.rpartition("/")[0]}


@pytest.mark.parametrize("seed", range(sample("evolved specs")))
def test_writes_between_changes_of_the_spec(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    walk, trace = Walk(tmp_path, random, upgraded=seed % 3 == 1), []
    try:
        for _ in range(STEPS):
            trace.append(str(random.choice(OPERATIONS)))
            walk.do(trace[-1])
            walk.check()
        ours = walk.other().scan().to_arrow()
        for theirs in as_others_read(walk.other()):
            assert sorted(map(str, theirs.to_pylist())) == sorted(map(str, ours.to_pylist()))
    except Exception as error:
        error.add_note(f"seed {seed}, fields {walk.fields}: {trace}")
        raise


def test_all_writes_follow_a_new_field(tmp_path: Path) -> None:
    """Old rows can be changed after a field was added, and after all were removed."""
    walk = Walk(tmp_path, np.random.default_rng(0), upgraded=False)
    for fields in (["by_region"], ["by_region", "by_bucket"], ["by_day", "by_region", "by_bucket"], []):
        walk.change(fields)
        for name in ("upsert", "delete", "where", "update", "merge", "tail", "transaction"):
            walk.do(name)
        walk.check()
    assert {int(spec) for spec in walk.other().inventory.everything[0].specs} >= {3}
