"""Files without field ids: evidence of a column counts only where reading finds the column."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

import skipstone as sk
from skipstone.errors import SchemaError
from tests.iceberg._maker import Maker

PROPERTY = "schema.name-mapping.default"
NAMES = {"a": 1, "b": 2}


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    made.create_namespace("db")
    return made


def added(catalog: SqlCatalog, root: Path, mapping: Mapping[str, int] | None = NAMES) -> Any:
    """A table of a file that was added as it is, read by a name mapping that is another one since."""
    table = catalog.create_table("db.t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    pq.write_table(pa.table({"a": [1, 2, 3], "b": [4, 5, 6]}), root / "f.parquet")
    table.add_files([str(root / "f.parquet")])
    with table.transaction() as change:
        change.remove_properties(PROPERTY)
        if mapping is not None:
            entries = [{"field-id": id, "names": [name]} for name, id in mapping.items()]
            change.set_properties({PROPERTY: json.dumps(entries)})
    return sk.open("db.t", catalog=catalog)


def counted(lake: Any, *questions: str) -> list[int]:
    found = []
    for where in questions:
        scan = lake.scan(where)
        found.append(scan.count())
        assert scan.to_arrow().num_rows == found[-1]
        assert scan.aggregate(sk.count())["count"] == found[-1]
        assert scan.verify().ok
    return found


QUESTIONS = ("b is null", "b >= 0", "b <= 3", "a >= 4", "a <= 3")
MAPPINGS: list[tuple[Mapping[str, int], list[int]]] = [
    (NAMES, [0, 3, 0, 0, 3]),
    ({"a": 1}, [3, 0, 0, 0, 3]),
    ({"b": 2}, [0, 3, 0, 0, 0]),
    ({}, [3, 0, 0, 0, 0]),
    ({"a": 2, "b": 1}, [0, 3, 3, 3, 0]),
    ({"a": 1, "c": 2}, [3, 0, 0, 0, 3]),
]


@pytest.mark.parametrize(("mapping", "wanted"), MAPPINGS)
@pytest.mark.parametrize("index", [False, True])
def test_metrics_count_where_reading_finds_the_column(
    mapping: Mapping[str, int], wanted: list[int], index: bool, catalog: SqlCatalog, tmp_path: Path
) -> None:
    lake = added(catalog, tmp_path, mapping)
    if index:
        lake.index.build(engine="local")
    assert counted(lake, *QUESTIONS) == wanted
    nulls = wanted[0]
    least = None if nulls else 1 if wanted[2] else 4
    found = lake.scan().aggregate(sk.count("b"), sk.min("b"))
    assert [*found.to_pylist()[0].values()] == [3 - nulls, least]
    told = lake.statistics(["b"])["b"]
    assert (told.null_count, told.lower and told.lower.as_py()) == (nulls, least)


def test_a_mapping_that_iceberg_keeps_plans_without_opening_files(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    lake = added(catalog, tmp_path)
    (tmp_path / "f.parquet").rename(tmp_path / "moved")
    assert [lake.scan(where).count() for where in QUESTIONS] == [0, 3, 0, 0, 3]
    table = lake.table
    with table.update_schema() as change:
        change.rename_column("b", "c")
        change.add_column("d", LongType())
    lake = sk.open("db.t", catalog=catalog)
    assert [lake.scan(where).count() for where in ("c is null", "c >= 0", "a >= 4")] == [0, 3, 0]


def test_an_index_goes_by_the_mapping_that_it_was_built_under(catalog: SqlCatalog, tmp_path: Path) -> None:
    lake = added(catalog, tmp_path)
    lake.index.build(engine="local")
    assert lake.index.status().covered == 1
    wanted = [0, 3, 0, 0, 3]
    assert counted(lake, *QUESTIONS) == wanted
    for mapping, then in MAPPINGS[1:]:
        entries = [{"field-id": id, "names": [name]} for name, id in mapping.items()]
        with catalog.load_table("db.t").transaction() as change:
            change.set_properties({PROPERTY: json.dumps(entries)})
        lake = sk.open("db.t", catalog=catalog)
        assert lake.index.status().covered == 0
        assert counted(lake, *QUESTIONS) == then
    lake.index.refresh(engine="local")
    assert lake.index.status().covered == 1
    assert counted(lake, *QUESTIONS) == then


def test_files_without_ids_are_refused_without_a_mapping(catalog: SqlCatalog, tmp_path: Path) -> None:
    lake = added(catalog, tmp_path, None)
    for where in (None, "b >= 5", "a is not null"):
        with pytest.raises(SchemaError, match="no field ids") as refused:
            lake.scan(where).to_arrow()
        assert refused.value.path == str(tmp_path / "f.parquet")
        assert PROPERTY in (refused.value.hint or "")
    report = lake.index.build(engine="local")
    assert [one.path for one in report.skipped] == [str(tmp_path / "f.parquet")]


# -- other evidence ----------------------------------------------------------------------------

Rows = Sequence[Mapping[str, Any]]
ROWS: Rows = [{"rid": n, "k": n, "p": "ab"[n % 2]} for n in range(8)]
COLUMNS = [("rid", "long"), ("k", "int"), ("p", "string")]


def rids(maker: Maker, where: str | None = None) -> list[int]:
    found = sk.open(maker.metadata_location).scan(where)
    rows: list[int] = sorted(found.to_arrow()["rid"].to_pylist())
    assert found.count() == len(rows)
    return rows


@pytest.mark.parametrize("transform", ["bucket[4]", "truncate[2]"])
def test_partitions_are_evidence_of_columns_that_reading_finds(transform: str, tmp_path: Path) -> None:
    maker = Maker(tmp_path, COLUMNS, [("k", transform)], name_mapping=True)
    maker.append(ROWS, ids=False, metrics="none")
    assert (rids(maker, "k = 3"), rids(maker, "k is null")) == ([3], [])
    maker.map_names({maker.field("k").id: []})
    assert (rids(maker, "k = 3"), rids(maker, "k is null")) == ([], [*range(8)])


def test_identity_partitions_stand_whatever_files_hold(tmp_path: Path) -> None:
    maker = Maker(tmp_path, COLUMNS, [("p", "identity")], name_mapping=True)
    maker.append(ROWS, ids=False)
    maker.map_names({maker.field("p").id: []})
    assert rids(maker, "p = 'a'") == [0, 2, 4, 6]
    assert rids(maker, "p is null") == []
    # Of files with ids too: the column that is stored, and measured, is not what is read.
    files = [replace(file, partition=("z",)) for file in maker.files_of(ROWS)]
    maker.overwrite([], [one.file.path for one in maker.live()])
    maker.commit("append", files, merge=False)
    assert rids(maker, "p = 'z'") == [*range(8)]
    assert rids(maker, "p = 'a'") == []
    maker.delete_equal([maker.field("p").id], [("z",)])
    assert rids(maker) == []


def test_equality_deletes_meet_columns_as_they_are_read(tmp_path: Path) -> None:
    maker = Maker(tmp_path, COLUMNS, name_mapping=True)
    maker.append(ROWS, ids=False)
    maker.delete_equal([maker.field("k").id], [(None,)])
    assert rids(maker) == [*range(8)]
    maker.map_names({maker.field("k").id: []})
    assert rids(maker) == []


def test_equality_deletes_see_partition_values_of_dropped_columns(tmp_path: Path) -> None:
    maker = Maker(tmp_path, COLUMNS, [("p", "identity")])
    maker.append(ROWS, leave_out=True)
    maker.delete_equal([maker.field("p").id], [("a",)])
    maker.evolve_spec([])
    assert rids(maker) == [1, 3, 5, 7]
    maker.evolve_schema(drop=["p"])
    assert rids(maker) == [1, 3, 5, 7]


def test_a_name_that_is_dropped_and_added_again_finds_the_old_column(tmp_path: Path) -> None:
    """As Iceberg keeps mappings: the name goes to the new field, whose values the old file has."""
    maker = Maker(tmp_path, COLUMNS, name_mapping=True)
    maker.append(ROWS, ids=False)
    maker.evolve_schema(drop=["k"])
    maker.evolve_schema(add={"k": "int"})
    maker.append([{"rid": 8, "k": 100, "p": "a"}])
    assert rids(maker, "k < 3") == [0, 1, 2]
    assert rids(maker, "k is null") == []
    maker.evolve_schema(rename={"k": "q"})
    assert rids(maker, "q >= 7") == [7, 8]


def test_a_mapping_with_a_name_for_two_fields_is_refused(catalog: SqlCatalog, tmp_path: Path) -> None:
    lake = added(catalog, tmp_path)
    mapping = [{"field-id": 2, "names": ["b"]}, {"field-id": 1, "names": ["a", "b"]}]
    with catalog.load_table("db.t").transaction() as change:
        change.set_properties({PROPERTY: json.dumps(mapping)})
    with pytest.raises(
        SchemaError, match=r"db\.t, column b: .*name mapping assigns b to two fields, 2 and 1"
    ):
        sk.open("db.t", catalog=catalog)
    with pytest.raises(SchemaError, match="to two fields"):
        lake.refresh()
    assert counted(lake, "b = 4") == [1]
