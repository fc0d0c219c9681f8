"""Real clients against the running server: pyiceberg's RestCatalog and Polars, without any change to them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotIn,
    Or,
    StartsWith,
)

import skipstone as sk
from tests.iceberg._maker import Maker
from tests.serve._server import FILES, ROWS, Running, make_changed, make_table, serving

KEY = hashlib.md5(b"3-17").hexdigest()
OTHER = hashlib.md5(b"6-99").hexdigest()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def server(warehouse: Path) -> Iterator[Running]:
    with serving(warehouse) as running:
        yield running


@pytest.fixture(scope="module")
def planned(server: Running) -> Catalog:
    """Plans on the server, because the server says that it can."""
    catalog = load_catalog("planned", type="rest", uri=server.uri)
    assert catalog.supports_server_side_planning()
    return catalog


@pytest.fixture(scope="module")
def alone(server: Running) -> Catalog:
    """The same catalog with a client that plans by itself."""
    return load_catalog("alone", type="rest", uri=server.uri, **{"scan-planning-mode": "client"})


def test_the_catalog_lists_and_loads(planned: Catalog) -> None:
    assert planned.list_namespaces() == [("db",)]
    assert planned.list_tables("db") == [("db", "events")]
    assert planned.namespace_exists("db")
    assert not planned.namespace_exists("nowhere")
    assert planned.table_exists("db.events")
    assert not planned.table_exists("db.nothing")
    table = planned.load_table("db.events")
    assert table.current_snapshot() is not None
    assert table.scan().to_arrow().num_rows == FILES * ROWS


# A filter, the files that a client alone plans, and those that are left by the index.
CASES: list[tuple[BooleanExpression, int, int]] = [
    (EqualTo("key", KEY), FILES, 1),  # bloom filters
    (In("key", {KEY, OTHER}), FILES, 2),
    (EqualTo("key", "9" * 32), FILES, 0),
    (And(GreaterThanOrEqual("v", 3_550), LessThan("v", 4_000)), FILES, FILES - 1),  # pages
    (And(EqualTo("part", 1), EqualTo("key", KEY)), 2, 0),  # partitions, then bloom filters
    (And(EqualTo("part", 3), EqualTo("key", KEY)), 2, 1),
    (Or(EqualTo("key", KEY), EqualTo("key", OTHER)), FILES, 2),
    (Not(EqualTo("part", 1)), 6, 6),
    (GreaterThan("f", 390.0), FILES, FILES),
    (LessThan("v", 0), 0, 0),
]


@pytest.mark.parametrize(("filter", "by_client", "by_server"), CASES, ids=[str(one[0]) for one in CASES])
def test_fewer_files_and_the_same_rows(
    planned: Catalog, alone: Catalog, filter: BooleanExpression, by_client: int, by_server: int
) -> None:
    mine, others = (catalog.load_table("db.events").scan(row_filter=filter) for catalog in (planned, alone))
    assert len([*others.plan_files()]) == by_client
    assert len([*mine.plan_files()]) == by_server
    order = [(name, "ascending") for name in ("key", "v", "n", "part")]
    assert mine.to_arrow().sort_by(order).drop(["f"]) == others.to_arrow().sort_by(order).drop(["f"])


@pytest.mark.parametrize(
    "filter",
    [
        NotEqualTo("n", 5),
        NotIn("n", {5, 6}),
        IsNull("n"),
        IsNaN("f"),
        GreaterThan("f", -1.0),
        LessThan("f", 1_000.0),
        GreaterThan("n", -1),
        GreaterThan("v", -1),
        StartsWith("key", "0"),
        Not(In("v", {7, 8})),
        And(GreaterThan("v", -1), EqualTo("part", 2)),
    ],
    ids=str,
)
def test_counts_rely_on_residuals(planned: Catalog, alone: Catalog, filter: BooleanExpression) -> None:
    """pyiceberg counts files without a residual from metadata alone."""
    mine, others = (catalog.load_table("db.events").scan(row_filter=filter) for catalog in (planned, alone))
    assert mine.count() == others.count() == mine.to_arrow().num_rows


def test_a_file_whose_rows_all_match_has_no_residual(planned: Catalog) -> None:
    def residuals(filter: BooleanExpression) -> set[str]:
        tasks = planned.load_table("db.events").scan(row_filter=filter).plan_files()
        return {str(task.residual) for task in tasks}

    assert residuals(GreaterThan("v", -1)) == {"AlwaysTrue()"}
    assert residuals(EqualTo("part", 2)) == {"AlwaysTrue()"}
    # Clients differ about NaN and NULL.
    assert residuals(GreaterThan("f", -1.0)) != {"AlwaysTrue()"}
    assert residuals(NotEqualTo("n", -5)) != {"AlwaysTrue()"}


def test_polars_reads_only_the_files_of_the_plan(planned: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    table = planned.load_table("db.events")
    rows = pl.scan_iceberg(table).filter(pl.col("key").is_in([KEY, OTHER])).collect()
    assert sorted(rows["key"].to_list()) == sorted([KEY, OTHER])
    assert pl.scan_iceberg(table).select(pl.len()).collect().item() == FILES * ROWS


def test_polars_asks_the_server(server: Running, planned: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    before = len(server.log())
    query = pl.scan_iceberg(planned.load_table("db.events")).filter(pl.col("key") == KEY)
    assert query.collect().height == 1
    plans = [one for one in server.log()[before:] if one["route"].endswith("/plan")]
    assert [(one["files"], one["of_files"]) for one in plans] == [(1, FILES)]


GONE = [hashlib.md5(b"3-18").hexdigest(), hashlib.md5(b"6-97").hexdigest()]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with deletes, two partition specs and an older snapshot."""
    return make_changed(tmp_path_factory.mktemp("serve"), GONE)


@pytest.fixture(scope="module")
def changed(history: Path) -> Iterator[Running]:
    with serving(history) as running:
        yield running


# Files that a client alone plans, and those that are left by the index, now and before the deletes.
CHANGED: dict[str, tuple[BooleanExpression, pl.Expr, int, int, int, int]] = {
    "bloom": (EqualTo("key", KEY), pl.col("key") == KEY, FILES, 1, 1, 1),
    "bloom, deleted": (EqualTo("key", GONE[0]), pl.col("key") == GONE[0], FILES, 1, 0, 1),
    "bloom, two": (In("key", {KEY, GONE[0]}), pl.col("key").is_in([KEY, GONE[0]]), FILES, 1, 1, 2),
    "pages": (
        And(GreaterThanOrEqual("v", 3_550), LessThan("v", 4_000)),
        pl.col("v").is_between(3_550, 3_999),
        FILES,
        FILES - 1,
        -1,
        -1,
    ),
    "pages of both specs": (
        And(And(GreaterThanOrEqual("v", 3_550), LessThan("v", 4_000)), EqualTo("part", 3)),
        pl.col("v").is_between(3_550, 3_999) & (pl.col("part") == 3),
        2,
        1,
        -1,
        -1,
    ),
}


@pytest.mark.parametrize("client", ["pyiceberg", "Polars"])
@pytest.mark.parametrize("tag", [None, "before"], ids=["now", "before"])
@pytest.mark.parametrize("case", CHANGED)
def test_tables_that_have_changed(
    changed: Running, case: str, tag: str | None, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filter, expression, by_client, by_server, rows_now, rows_before = CHANGED[case]
    alone = load_catalog("alone", type="rest", uri=changed.uri, **{"scan-planning-mode": "client"})
    planned = load_catalog("planned", type="rest", uri=changed.uri)
    table = planned.load_table("db.changed")
    assert len(table.specs()) == 2
    reference = None if tag is None else table.metadata.refs[tag].snapshot_id
    others = alone.load_table("db.changed").scan(row_filter=filter, snapshot_id=reference)
    assert len([*others.plan_files()]) == by_client
    expected = sorted(others.to_arrow()["key"].to_pylist())
    rows = rows_now if tag is None else rows_before
    assert len(expected) == rows or (rows < 0 < len(expected))
    before = len(changed.log())
    if client == "pyiceberg":
        keys = table.scan(row_filter=filter, snapshot_id=reference).to_arrow()["key"].to_pylist()
    else:
        monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        frame = pl.scan_iceberg(table, snapshot_id=reference).filter(expression)
        keys = frame.select("key").collect()["key"].to_list()
    assert sorted(keys) == expected
    plans = [one for one in changed.log()[before:] if one["route"].endswith("/plan")]
    assert {(one["files"], one["of_files"]) for one in plans} == {(by_server, FILES)}


def test_threads_share_a_table(history: Path) -> None:
    """Plans that are made at the same time, of a table that was just opened, are those made one by one."""
    filters: list[dict[str, Any]] = [{"type": "eq", "term": "part", "value": part} for part in range(5)]
    filters += [{"type": "gt", "term": "v", "value": value} for value in range(3_000, 10_000, 1_000)]
    filters += [{"type": "eq", "term": "key", "value": key} for key in (KEY, OTHER, *GONE)]
    filters += [{"type": "is-null", "term": "n"}, {"type": "is-nan", "term": "f"}]

    def plan(client: httpx.Client, filter: dict[str, Any]) -> Any:
        made = client.post("/v1/namespaces/db/tables/changed/plan", json={"filter": filter}).json()
        assert made.pop("plan-id")
        return made

    with serving(history) as running, running.client() as client:
        expected = [plan(client, one) for one in filters]
    assert len({len(one["file-scan-tasks"]) for one in expected}) > 3
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with serving(history) as running, running.client() as client, ThreadPoolExecutor(4) as pool:
            assert [*pool.map(partial(plan, client), filters)] == expected
    finally:
        sys.setswitchinterval(interval)


def test_plans_have_pages(warehouse: Path) -> None:
    with serving(warehouse, limits={"page": 3}) as running:
        table = load_catalog("paged", type="rest", uri=running.uri).load_table("db.events")
        assert len([*table.scan().plan_files()]) == FILES
        assert table.scan(row_filter=GreaterThan("v", 9_000)).to_arrow().num_rows > 0
        tasks = [one for one in running.log() if one["route"].endswith("/tasks")]
    assert len(tasks) == 4  # three pages per plan; the first is in its answer


def test_position_deletes_apply(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [("id", "long"), ("p", "string")], [("p", "identity")], seed="served")
    maker.append([{"id": n, "p": "abc"[n % 3]} for n in range(60)], merge=False)
    maker.delete_positions(maker.places()[:5])
    home = sk.catalog(f"{tmp_path}/home/").iceberg
    home.create_namespace("db")
    home.register_table("db.events", maker.metadata_location)
    wanted = sorted(row["id"] for row in maker.rows())
    with serving(tmp_path / "home") as running:
        table = load_catalog("deletes", type="rest", uri=running.uri).load_table("db.events")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == wanted
        some = table.scan(row_filter=EqualTo("p", "b"))
        assert sorted(some.to_arrow()["id"].to_pylist()) == [n for n in wanted if n % 3 == 1]
        assert sum(len(task.delete_files) for task in table.scan().plan_files()) > 0
        maker.append([{"id": 100, "p": "a"}])
        home.drop_table("db.events")
        home.register_table("db.events", maker.metadata_location)
        # A new snapshot is planned at once.
        assert table.refresh().scan().to_arrow().num_rows == len(wanted) + 1


def test_snapshots(planned: Catalog, alone: Catalog) -> None:
    table = planned.load_table("db.events")
    first = table.snapshots()[0].snapshot_id
    scan = table.scan(row_filter=EqualTo("part", 0), snapshot_id=first)
    assert len([*scan.plan_files()]) == 1
    assert scan.to_arrow().num_rows == ROWS


def test_delete_files_of_all_kinds(tmp_path: Path) -> None:
    """Each file of a page refers to its own delete files; the bodies are as the protocol has them."""
    maker = Maker(
        tmp_path, [("id", "long"), ("p", "string")], [("p", "identity")], seed="kinds", format_version=3
    )
    maker.append([{"id": n, "p": "abc"[n % 3]} for n in range(60)], merge=False)
    path = maker.places()[0][0]
    maker.delete_vector({path: [0, 1]})
    maker.delete_equal([1], [(5,), (7,)])
    home = sk.catalog(f"{tmp_path}/home/").iceberg
    home.create_namespace("db")
    home.register_table("db.events", maker.metadata_location)
    with serving(tmp_path / "home", limits={"page": 2}) as running, running.client() as client:
        address = "/v1/namespaces/db/tables/events"
        plan = client.post(f"{address}/plan", json={}).json()
        rest = client.post(f"{address}/tasks", json={"plan-task": plan["plan-tasks"][0]}).json()
    kinds: dict[str, set[str]] = {}
    for page in (plan, rest):
        for task in page["file-scan-tasks"]:
            mine = [page["delete-files"][at] for at in task.get("delete-file-references", [])]
            kinds[task["data-file"]["file-path"]] = {one["content"] for one in mine}
            for one in mine:
                if one["content"] == "equality-deletes":
                    assert one["equality-ids"] == [1]
                else:
                    assert one["file-format"] == "puffin"
                    assert one["referenced-data-file"] == task["data-file"]["file-path"]
                    assert one["content-offset"] > 0
                    assert one["content-size-in-bytes"] > 0
    assert len(kinds) == 3
    assert {file for file, mine in kinds.items() if "position-deletes" in mine} == {path}
    assert any("equality-deletes" in mine for mine in kinds.values())


# -- partitions that are NULL ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def partly_null(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Tables with a NULL partition value, a partition of a value beside NULL, and floats."""
    warehouse = tmp_path_factory.mktemp("nulls") / "warehouse"
    catalog = sk.catalog(f"{warehouse}/")
    schema = pa.schema({"id": pa.int64(), "c": pa.string(), "d": pa.int32(), "f": pa.float64()})
    rows = pa.table({"id": [1, 2, 3], "c": ["a", None, "b"], "d": [1, 2, None], "f": [1.5, 2.5, 3.5]}, schema)
    for name, by in (("one", ["c"]), ("two", ["c", "d"]), ("buckets", ["bucket(4, id)", "truncate(2, c)"])):
        table = catalog.create_table(f"db.{name}", schema, partition_by=by)
        sk.ingest(rows, table, engine="local")
    with serving(warehouse) as running:
        yield running


NULLS: list[tuple[BooleanExpression, pl.Expr, list[int]]] = [
    (GreaterThan("id", 0), pl.col("id") > 0, [1, 2, 3]),
    (IsNull("c"), pl.col("c").is_null(), [2]),
    (EqualTo("c", "a"), pl.col("c") == "a", [1]),
    (NotEqualTo("c", "a"), pl.col("c") != "a", [3]),
    (IsNull("d"), pl.col("d").is_null(), [3]),
    (LessThan("d", 2), pl.col("d") < 2, [1]),
]


@pytest.mark.parametrize("name", ["one", "two", "buckets"])
@pytest.mark.parametrize(("filter", "expression", "ids"), NULLS, ids=[str(one[0]) for one in NULLS])
def test_partitions_that_are_null(
    partly_null: Running,
    name: str,
    filter: BooleanExpression,
    expression: pl.Expr,
    ids: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pyiceberg's model of a plan has no NULL, so its users get such files without a partition."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    table = load_catalog("planned", type="rest", uri=partly_null.uri).load_table(f"db.{name}")
    assert sorted(table.scan(row_filter=filter).to_arrow()["id"].to_pylist()) == ids
    for reader in ("native", "pyiceberg"):
        frame = pl.scan_iceberg(table, reader_override=reader).filter(expression)  # type: ignore[arg-type]
        assert sorted(frame.collect()["id"].to_list()) == ids
    plans = [one for one in partly_null.log()[-3:] if one["route"].endswith("/plan")]
    assert [one["status"] for one in plans] == [200, 200, 200]


def test_other_clients_read_null_partitions(partly_null: Running) -> None:
    address = "/v1/namespaces/db/tables/two"
    with partly_null.client() as client:
        files = [
            task["data-file"] for task in client.post(f"{address}/plan", json={}).json()["file-scan-tasks"]
        ]
        assert (0, ["a", 1]) in [(file["spec-id"], file["partition"]) for file in files]
        assert [None in file["partition"] for file in files].count(True) == 2
        specs = client.get(address).json()["metadata"]["partition-specs"]
        assert [len(spec["fields"]) for spec in specs] == [2]
        pyiceberg = {"User-Agent": "PyIceberg/0.12.0"}
        answer = client.post(f"{address}/plan", json={}, headers=pyiceberg).json()
        files = [task["data-file"] for task in answer["file-scan-tasks"]]
        assert sorted(file["partition"] for file in files) == [[], [], ["a", 1]]
        (bare,) = {file["spec-id"] for file in files if not file["partition"]}
        specs = client.get(address, headers=pyiceberg).json()["metadata"]["partition-specs"]
        assert {spec["spec-id"]: len(spec["fields"]) for spec in specs} == {0: 2, bare: 0}


def test_partitions_that_a_client_needs_and_cannot_read(tmp_path: Path) -> None:
    """A file that may lack a column has its value from the partition only: without it rows would be wrong."""
    maker = Maker(
        tmp_path,
        [("id", "long"), ("p", "string"), ("q", "string")],
        [("p", "identity"), ("q", "identity")],
        seed="needed",
    )
    home = sk.catalog(f"{tmp_path}/home/").iceberg
    home.create_namespace("db")
    maker.append([{"id": 1, "p": "a", "q": None}], leave_out=True)
    home.register_table("db.t", maker.metadata_location)
    with serving(tmp_path / "home") as running:
        table = load_catalog("planned", type="rest", uri=running.uri).load_table("db.t")
        with pytest.raises(Exception, match=r"value of p beside NULL; set scan-planning-mode=client"):
            table.scan().to_arrow()
        alone = load_catalog("alone", type="rest", uri=running.uri, **{"scan-planning-mode": "client"})
        assert alone.load_table("db.t").scan().to_arrow()["p"].to_pylist() == ["a"]


def test_floats_in_filters_of_text(partly_null: Running) -> None:
    """pyiceberg reads 2.5 in a text as a decimal, and sends it as a text."""
    catalogs = [
        load_catalog("c", type="rest", uri=partly_null.uri, **more)
        for more in ({}, {"scan-planning-mode": "client"})
    ]
    for text, ids in (("f > 2.4", [2, 3]), ("f = 2.5", [2]), ("f in (1.5, 9.25)", [1]), ("f < 0.001", [])):
        for catalog in catalogs:
            rows = catalog.load_table("db.one").scan(row_filter=text).to_arrow()
            assert sorted(rows["id"].to_pylist()) == ids


def test_deletes_name_their_data_file(tmp_path: Path) -> None:
    """A position delete file with deletes of one data file says so, by its manifest's bounds as well."""
    catalog = sk.catalog(f"{tmp_path}/home/")
    table = catalog.create_table("db.k", pa.schema([("id", pa.int64())]), key=["id"])
    for first in (0, 100):
        table.append(pa.table({"id": range(first, first + 100)}))
    table.delete("id < 5")
    table.delete("id in (7, 107)")
    with serving(tmp_path / "home") as running, running.client() as client:
        plan = client.post("/v1/namespaces/db/tables/k/plan", json={}).json()
    named = []
    for task in plan["file-scan-tasks"]:
        for at in task["delete-file-references"]:
            delete = plan["delete-files"][at]
            if "referenced-data-file" in delete:
                assert delete["referenced-data-file"] == task["data-file"]["file-path"]
                named.append(delete["record-count"])
    assert named.count(5) == 1
    assert len(plan["delete-files"]) in (2, 3)
