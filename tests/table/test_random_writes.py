"""Random writes through several objects of one table, mostly stale, against a dict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import skipstone as sk
from tests.support.samples import sample

from ._keyed import content, new_table, rows

KEYS = 30
STEPS = 14
OPERATIONS = ("upsert", "append", "delete", "where", "update", "merge", "compact", "tag")


class Model:
    """What the table must contain."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}

    def put(self, table: pa.Table) -> None:
        self.rows |= {row["id"]: row for row in table.to_pylist()}

    def listed(self) -> list[dict[str, Any]]:
        return [row for _, row in sorted(self.rows.items())]


def step(name: str, table: sk.Table, model: Model, random: np.random.Generator) -> None:
    """One write; a stale table is brought up to date by the write itself."""
    ids = random.choice(KEYS, int(random.integers(1, 8)), replace=False).tolist()
    some = rows(ids, v=int(random.integers(3)))
    low = int(random.integers(10 * KEYS))
    match name:
        case "upsert":
            report = table.upsert(some)
            known = [n for n in ids if n in model.rows]
            same = [n for n in known if model.rows[n] == some.to_pylist()[ids.index(n)]]
            counted = (report.inserted, report.updated, report.unchanged)
            assert counted == (len(ids) - len(known), len(known) - len(same), len(same))
            model.put(some)
        case "append":
            if model.rows.keys() & set(ids):
                with pytest.raises(sk.DuplicateKeyError):
                    table.append(some)
            else:
                table.append(some)
                model.put(some)
        case "delete":
            gone = model.rows.keys() & set(ids)
            assert table.delete(keys=ids).deleted == len(gone)
            model.rows = {n: row for n, row in model.rows.items() if n not in gone}
        case "where":
            left = {n: row for n, row in model.rows.items() if not low <= row["v"] < low + 30}
            assert table.delete(f"v >= {low} and v < {low + 30}").deleted == len(model.rows) - len(left)
            model.rows = left
        case "update":
            changed = [row for row in model.rows.values() if row["v"] > low]
            assert table.update(f"v > {low}", {"v": "v + 1"}).updated == len(changed)
            model.rows |= {row["id"]: {**row, "v": row["v"] + 1} for row in changed}
        case "merge":
            table.merge(
                some, when_matched=[("target.v > 100", "delete"), (None, {"v": "source.v + target.v"})]
            )
            for row in some.to_pylist():
                old = model.rows.pop(row["id"], None)
                if old is None or old["v"] <= 100:
                    model.rows[row["id"]] = row if old is None else {**old, "v": row["v"] + old["v"]}
        case "compact":
            table.refresh()
            table.compact(table.plan_compaction(rewrite_all=True), engine="local", threads=1)


@pytest.mark.parametrize("seed", range(sample("keyed writes")))
def test_writes_of_stale_objects(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    options = {"properties": {"write.delete.granularity": "file"}} if seed % 2 else {}
    objects = [new_table(tmp_path, **options), *(sk.open("db.t", catalog=tmp_path) for _ in range(2))]
    if seed % 3 == 0:
        objects[0].index.build(engine="local")
    model, trace, tagged = Model(), [], {}
    for number in range(STEPS):
        name = str(random.choice(OPERATIONS))
        table = objects[int(random.integers(len(objects)))]
        trace.append(f"{name} by {objects.index(table)}")
        if name == "tag" and table.refresh().snapshot is not None:
            table.create_tag(f"t{number}")
            tagged[f"t{number}"] = model.listed()
            continue
        step(name, table, model, random)
        assert content(sk.open("db.t", catalog=tmp_path)) == model.listed(), (seed, trace)
    newest = sk.open("db.t", catalog=tmp_path)
    for name, expected in tagged.items():
        assert content(newest.at(name)) == expected, (seed, name, trace)
        changes = newest.changes(name)
        old, new = ({row["id"]: row for row in some} for some in (expected, model.listed()))
        assert {row["id"] for row in changes.inserted.to_pylist()} == new.keys() - old.keys()
        assert {row["id"] for row in changes.updated.to_pylist()} == {
            n for n in old.keys() & new.keys() if old[n] != new[n]
        }
