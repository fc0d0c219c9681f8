"""What the page asks as JSON: the library's own answers, bounded, and only about files of the lake."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.serve._server import FILES, Running, make_table, serving, write_tokens

MANY = 400
BOTH = ["read", "plan"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("details")
    make_table(root)
    (root / "many").mkdir()
    point = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    for number in range(MANY):
        # Ranges of id are in order and each overlaps the next by half; one file has NULL only.
        start = number * 10
        ids = [None] * 20 if number == 7 else list(range(start, start + 20))
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "na.me": [f"n{start + at:05}" for at in range(20)],
                "tags": [["a"]] * 20,
                "where": pa.array([{"x": number + 0.5, "y": None}] * 20, point),
            }
        )
        pq.write_table(rows, root / "many" / f"{number:03}.parquet")
    (root / "secret.parquet").write_bytes((root / "many" / "000.parquet").read_bytes())
    return root


@pytest.fixture(scope="module")
def running(root: Path) -> Iterator[Running]:
    rights = {
        "dora": {"*": BOTH},
        "reader": {"*": ["read"]},
        "planner": {"*": ["plan"]},
        "nina": {"other": BOTH},
    }
    tokens = write_tokens(root / "tokens.json", **rights)
    with serving(root / "warehouse", {"many": str(root / "many")}, token_file=str(tokens)) as running:
        yield running


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client("dora") as client:
        yield client


@pytest.fixture(scope="module")
def many(root: Path) -> Any:
    return sk.open(str(root / "many"))


@pytest.fixture(scope="module")
def events(root: Path) -> Any:
    return sk.open("db.events", catalog=str(root / "warehouse"))


def ask(client: httpx.Client, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    given = body if {"lake", "table"} & body.keys() else {"lake": "many", **body}
    answer = client.post(f"/api/{path}", json=given)
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_tables(client: httpx.Client, running: Running) -> None:
    assert client.get("/api/tables").json() == {"tables": ["db.events"]}
    with running.client("nina") as other:
        assert other.get("/api/tables").json() == {"tables": []}


# -- layout --------------------------------------------------------------------------------------


def test_layout_of_a_directory(client: httpx.Client, many: Any) -> None:
    told = ask(client, "layout")
    assert (told["source"], told["files"], told["measured"], told["rows"]) == (
        "footers",
        MANY,
        MANY,
        20 * MANY,
    )
    assert (told["of_columns"], told["unordered"]) == (4, ["tags"])
    columns = {column["name"]: column for column in told["columns"]}
    assert list(columns) == ["id", "na.me", "where.x", "where.y"]
    library = many.layout(["id"], sample=MANY)["id"]
    assert columns["id"]["depth"] == pytest.approx(library.files.depth, abs=1e-3)
    assert columns["id"]["layout"] == library.files.layout.value
    assert columns["id"]["profile"] == pytest.approx(library.files.profile, abs=1e-4)
    assert (columns["id"]["lower"], columns["id"]["upper"]) == ("0", "4009")
    assert (columns["id"]["only_null"], columns["id"]["unbounded"]) == (1, 0)
    assert (columns["na.me"]["lower"], columns["na.me"]["upper"]) == ("'n00000'", "'n04009'")
    assert columns["where.y"]["lower"] is None
    assert ask(client, "layout", columns=["na.me"])["columns"] == [columns["na.me"]]


def test_layout_of_a_table(client: httpx.Client, events: Any, root: Path) -> None:
    told = ask(client, "layout", table="db.events")
    assert (told["source"], told["files"], told["rows"]) == ("index", FILES, 400 * FILES)
    bare = root / "bare"
    catalog = sk.catalog(f"{bare}/")
    table = catalog.create_table("db.events", pa.schema([("v", pa.int64())]))
    for start in (0, 100):
        table.table.append(pa.table({"v": range(start, start + 50)}))
    with serving(bare) as other, other.client() as client:
        told = ask(client, "layout", table="db.events")
        assert (told["source"], told["files"], told["rows"]) == ("manifests", 2, 100)
        assert [told["columns"][0][name] for name in ("depth", "lower", "upper")] == [1.0, "0", "149"]
        first = str(catalog.open("db.events").snapshots()[0].id)
        told = ask(client, "spans", table="db.events", column="v", snapshot=first)
        assert [(band["lower"], band["upper"]) for band in told["bands"]] == [("0", "49")]


def test_a_table_without_snapshots(root: Path) -> None:
    catalog = sk.catalog(f"{root / 'empty'}/")
    catalog.create_table("db.empty", pa.schema([("v", pa.int64())]))
    with serving(root / "empty") as running, running.client() as client:
        told = ask(client, "layout", table="db.empty")
        assert (told["files"], told["columns"][0]["layout"], told["columns"][0]["lower"]) == (
            0,
            "unknown",
            None,
        )
        assert ask(client, "spans", table="db.empty", column="v", where="v = 1")["bands"] == []
        assert ask(client, "files", table="db.empty", where="v = 1")["files"] == []
        assert ask(client, "snapshots", table="db.empty") == {"of_snapshots": 0, "snapshots": []}
        assert ask(client, "compaction", table="db.empty")["groups"] == []
        assert ask(client, "why", 404, table="db.empty", file="x")["error"]["type"] == "NoSuchFileException"


def test_spans_are_merged_into_bands(client: httpx.Client, many: Any) -> None:
    told = ask(client, "spans", column="id", where="id < 95")
    bands = told["bands"]
    assert len(bands) == 160
    assert sum(band["files"] for band in bands) == MANY - 1
    kept = many.scan("id < 95").plan()
    assert sum(band["kept"] for band in bands) == len(kept.tasks) == 9
    assert (bands[0]["lower"], bands[-1]["upper"]) == ("0", "4009")
    assert (bands[0]["low"], bands[-1]["high"]) == (0.0, 1.0)
    # Each value is in two files, where they begin and end.
    assert len(told["overlap"]) == 120
    assert set(told["overlap"]) == {2}
    assert {len(band["cells"]) for band in bands if band["files"] > 1} == {120}
    covered = np.array([[int(share) for share in band["cells"]] for band in bands if band["files"] > 1])
    assert covered.max() == 9
    assert 1 <= (covered > 0).sum(axis=1).min() <= (covered > 0).sum(axis=1).max() <= 3
    assert all("kept" not in band for band in ask(client, "spans", column="id")["bands"])
    only_null = ask(client, "spans", column="where.y")
    assert (only_null["bands"], set(only_null["overlap"])) == ([], {0})


# -- files and reasons ---------------------------------------------------------------------------


def test_files_of_a_plan(client: httpx.Client, many: Any) -> None:
    where = "id BETWEEN 35 AND 200"
    plan = many.scan(where).plan()
    told = ask(client, "files", where=where, show="kept")
    assert [file["file"] for file in told["files"]] == [task.entry.key for task in plan.tasks]
    assert [file["rows"] for file in told["files"]] == [len(task.rows) for task in plan.tasks]
    assert [file["proven"] for file in told["files"]] == [len(task.proven) for task in plan.tasks]
    assert told["residual"] == str(plan.residual)
    assert (told["kept"], told["rows"], told["of_files"]) == (len(plan.tasks), plan.rows, MANY)
    dropped = ask(client, "files", where=where, show="dropped", start=100, count=7)
    assert (dropped["matched"], len(dropped["files"])) == (MANY - len(plan.tasks), 7)
    assert not any(file["kept"] or file["rows"] for file in dropped["files"])
    assert [file["file"] for file in ask(client, "files", match="39")["files"]] == [
        f"{n:03}.parquet" for n in range(MANY) if "39" in f"{n:03}"
    ]


def test_why(client: httpx.Client, many: Any, events: Any) -> None:
    plan = many.scan("id = 42").plan()
    for file in ("004.parquet", "300.parquet"):
        assert ask(client, "why", where="id = 42", file=file) == {
            **plan.why(file).to_json(),
            "file": file,
            "more_steps": 0,
        }
    # Only the index has pages of this table: its statistics are quoted where the file's don't decide.
    where = "part = 1 AND v = 900"
    plan = events.scan(where).plan()
    told = {
        file["file"]: ask(client, "why", table="db.events", where=where, file=file["file"])
        for file in ask(client, "files", table="db.events", where=where)["files"]
    }
    kept = {task.entry.key for task in plan.tasks}
    assert {file for file, why in told.items() if why["kept"]} == kept
    assert all(why["ruled_out"] for file, why in told.items() if file not in kept)
    causes = [step["cause"] for why in told.values() for step in why["steps"] if step["verdict"] == "NONE"]
    assert set(causes) == {"partition", "page"}
    # Without the index at hand, the reason is not that the file came later.
    (other,) = (file for file, why in told.items() if why["steps"][-1]["cause"] == "page")
    assert "the plan used an index" in plan.why(other).notes[-1]


@pytest.mark.parametrize(
    "file", ["../secret.parquet", "{root}/secret.parquet", "/etc/passwd", "", "none.parquet", "00"]
)
def test_only_files_of_the_lake(client: httpx.Client, root: Path, file: str) -> None:
    for where in ({"lake": "many"}, {"table": "db.events"}):
        told = ask(client, "why", 404, **where, file=file.format(root=root))
        assert told["error"] == {
            "message": "lake has no such file",
            "type": "NoSuchFileException",
            "code": 404,
        }


# -- tables --------------------------------------------------------------------------------------


def test_snapshots(client: httpx.Client, events: Any) -> None:
    told = ask(client, "snapshots", table="db.events")
    listed = [*reversed(events.snapshots())]
    assert told["of_snapshots"] == len(listed) == FILES
    assert [one["id"] for one in told["snapshots"]] == [str(one.id) for one in listed]
    assert [one["current"] for one in told["snapshots"]] == [True] + [False] * (FILES - 1)
    assert {one["added_rows"] for one in told["snapshots"]} == {400}


def test_compaction_is_a_dry_run(client: httpx.Client, events: Any, root: Path) -> None:
    told = ask(client, "compaction", table="db.events", where="part = 1", min_input_files=2)
    plan = events.plan_compaction("part = 1", min_input_files=2)
    assert (told["files"], told["expected_files"], told["bytes"]) == (2, 1, plan.bytes_to_read)
    assert (told["matched"], told["of_files"]) == (plan.files_matched, FILES)
    assert told["filter_stats"] == dict.fromkeys(told["filter_stats"], 0)
    (group,) = told["groups"]
    assert (group["name"], group["reasons"], group["rows"]) == ("part=1", {"small": 2}, 800)
    skipped = ask(client, "compaction", table="db.events")
    assert (skipped["groups"], skipped["of_skipped"]) == ([], 4)
    assert len(skipped["skipped"][0]["reason"]) > 10
    all_files = ask(
        client, "compaction", table="db.events", rewrite_all=True, strategy="zorder", sort_by=["v", "n"]
    )
    assert (all_files["files"], all_files["strategy"]) == (FILES, "zorder")
    again = sk.open("db.events", catalog=str(root / "warehouse"))
    assert again.snapshot == events.snapshot


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("layout", {"column": "id"}, "unknown members: column"),
        ("layout", {"columns": ["tags"]}, "column tags has no order"),
        ("layout", {"columns": ["nothing"]}, "nothing"),
        ("layout", {"snapshot": 1}, "a directory has no snapshots"),
        ("spans", {}, "body has no column"),
        ("spans", {"column": "id", "where": "id >"}, ""),
        ("files", {"show": "some"}, "show is not all, kept or dropped"),
        ("files", {"count": 0}, "count is not between 1 and 500"),
        ("files", {"count": 501}, "count is not between 1 and 500"),
        ("files", {"start": -1}, "start is negative"),
        ("files", {"start": True}, "start has the wrong type"),
        ("why", {}, "body has no file"),
        ("why", {"file": "004.parquet", "row_group": 9}, "file has no row group 9"),
        ("snapshots", {}, "a directory has no snapshots"),
        ("compaction", {}, "a directory has no compaction"),
        ("compaction", {"table": "db.events", "rewrite_all": 1}, "rewrite_all has the wrong type"),
        ("compaction", {"table": "db.events", "strategy": "none"}, "strategy"),
        ("compaction", {"table": "db.events", "target_file_size_bytes": 10**30}, "are not between 1 and"),
        ("compaction", {"table": "db.events", "min_input_files": 0}, "are not between 1 and"),
        ("files", {"where": "id = 1", "start": 10**30, "count": 10**30}, "count is not between 1 and 500"),
        ("why", {"file": "004.parquet", "row": 10**30}, "file has no row"),
        ("compaction", {"table": "db.events", "sort_by": [1]}, "sort_by has the wrong type"),
        ("compaction", {"table": "db.events", "where": "nothing = 1"}, "nothing"),
    ],
)
def test_bad_requests(client: httpx.Client, path: str, body: dict[str, Any], message: str) -> None:
    assert message in ask(client, path, 400, **body)["error"]["message"]


def test_rights(running: Running) -> None:
    plans = ["layout", "spans", "files", "why", "compaction"]
    for token, refused in {"reader": plans, "planner": ["snapshots"], "nina": [*plans, "snapshots"]}.items():
        with running.client(token) as client:
            told = {
                path: client.post(f"/api/{path}", json={"table": "db.events"})
                for path in (*plans, "snapshots")
            }
            assert [path for path, answer in told.items() if answer.status_code == 403] == refused
    with running.client() as client:
        assert {client.post(f"/api/{path}", json={}).status_code for path in plans} == {401}


def test_partitions_are_texts_for_people(tmp_path: Path) -> None:
    """A month is 2026-02, not the number of months since 1970, as in plans of compactions."""
    catalog = sk.catalog(f"{tmp_path}/home/")
    schema = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us")})
    table = catalog.create_table("db.t", schema, partition_by=["month(ts)", "id"])
    times = [datetime.datetime(2026, 2, 3), datetime.datetime(2026, 2, 4), None]
    sk.ingest(pa.table({"id": [1, 1, 2], "ts": times}, schema), table, engine="local")
    (tmp_path / "lake" / "p=7").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "lake" / "p=7" / "f.parquet")
    with serving(tmp_path / "home", {"lake": str(tmp_path / "lake")}) as running, running.client() as client:
        files = client.post("/api/files", json={"table": "db.t"}).json()["files"]
        assert sorted((file["partition"] for file in files), key=str) == [
            {"ts_month": "2026-02", "id": "1"},
            {"ts_month": "NULL", "id": "2"},
        ]
        plan = client.post("/api/compaction", json={"table": "db.t", "rewrite_all": True}).json()
        assert "ts_month=2026-02" in str(plan)
        files = client.post("/api/files", json={"lake": "lake"}).json()["files"]
        assert [str(file["partition"]["p"]) for file in files] == ["7"]
