"""The protocol without a client's help: plans in all states, errors, rights, limits, and the JSON API."""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.noop import NoopCatalog

import skipstone as sk
from skipstone.errors import UsageError
from skipstone.serve.access import Caller, Limits, RateLimit, Refusal, Tokens
from skipstone.serve.app import make_server
from skipstone.serve.lakes import Lakes, Plans
from tests.serve._server import FILES, Running, make_table, serving, write_tokens
from tests.support.samples import sample

TABLE = "/v1/namespaces/db/tables/events"
PLAN = f"{TABLE}/plan"
BOTH = ["read", "plan"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def warehouse(root: Path) -> Path:
    return make_table(root)


@pytest.fixture(scope="module")
def logs(root: Path) -> str:
    """A directory of Parquet files."""
    folder = root / "logs"
    folder.mkdir()
    for number in range(4):
        ids = range(number * 100, number * 100 + 100)
        times = [datetime.datetime(2026, 1, 1 + number, tzinfo=datetime.UTC)] * 100
        pq.write_table(pa.table({"id": ids, "ts": times}), folder / f"{number}.parquet")
    return str(folder)


@pytest.fixture(scope="module")
def server(warehouse: Path, logs: str) -> Iterator[Running]:
    with serving(warehouse, {"logs": logs}) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(warehouse: Path, logs: str, root: Path) -> Iterator[Running]:
    tokens = write_tokens(
        root / "tokens.json",
        ana={"db.*": BOTH},
        ben={"db.events": ["read"]},
        cleo={"logs": BOTH},
        dora={"*": BOTH},
    )
    with serving(warehouse, {"logs": logs}, token_file=str(tokens)) as running:
        yield running


def error_of(answer: Any, status: int, kind: str) -> str:
    """The message of an answer in the protocol's error model."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (status, kind)
    return str(error["message"])


# -- plans ---------------------------------------------------------------------------------------


def test_a_plan_in_one_answer(server: Running) -> None:
    with server.client() as client:
        plan = client.post(PLAN, json={"filter": {"type": "eq", "term": "part", "value": 2}}).json()
    assert plan["status"] == "completed"
    assert "plan-tasks" not in plan
    assert plan["plan-id"]
    assert len(plan["file-scan-tasks"]) == 2
    task = plan["file-scan-tasks"][0]
    assert task["residual-filter"] is True
    file = task["data-file"]
    assert (file["content"], file["file-format"], file["partition"]) == ("data", "parquet", [2])
    assert Path(file["file-path"].removeprefix("file://")).stat().st_size == file["file-size-in-bytes"]


def test_asynchronous_plans(server: Running) -> None:
    with server.client() as client:
        submitted = client.post(PLAN, json={}, headers={"Prefer": "respond-async"}).json()
        assert submitted["status"] == "submitted"
        address = f"{PLAN}/{submitted['plan-id']}"
        while (plan := client.get(address).json())["status"] == "submitted":
            time.sleep(0.01)
        assert plan["status"] == "completed"
        assert len(plan["file-scan-tasks"]) == FILES
        assert client.delete(address).status_code == 204
        error_of(client.get(address), 404, "NoSuchPlanIdException")
        error_of(client.delete(address), 404, "NoSuchPlanIdException")


def test_an_asynchronous_plan_that_fails(server: Running) -> None:
    bad = {"filter": {"type": "eq", "term": "nothing", "value": 1}}
    with server.client() as client:
        submitted = client.post(PLAN, json=bad, headers={"Prefer": "respond-async"}).json()
        address = f"{PLAN}/{submitted['plan-id']}"
        while (plan := client.get(address).json())["status"] == "submitted":
            time.sleep(0.01)
    assert plan["status"] == "failed"
    assert plan["error"]["code"] == 400
    assert "unknown column: nothing" in plan["error"]["message"]


def test_pages_are_of_their_plan(warehouse: Path, root: Path) -> None:
    tokens = write_tokens(root / "two.json", ana={"*": BOTH}, eve={"*": BOTH})
    with serving(warehouse, token_file=str(tokens), limits={"page": 3}) as running:
        with running.client("ana") as client:
            plan = client.post(PLAN, json={}).json()
            assert len(plan["file-scan-tasks"]) == 3
            first, second = plan["plan-tasks"]
            pages = [client.post(f"{TABLE}/tasks", json={"plan-task": one}).json() for one in (first, second)]
            assert [len(page["file-scan-tasks"]) for page in pages] == [3, 2]
            every = [
                task["data-file"]["file-path"] for page in (plan, *pages) for task in page["file-scan-tasks"]
            ]
            assert len(set(every)) == FILES
            for wrong in (
                f"{plan['plan-id']}.0",
                f"{plan['plan-id']}.3",
                f"{plan['plan-id']}.x",
                "x.1",
                "",
                7,
            ):
                answer = client.post(f"{TABLE}/tasks", json={"plan-task": wrong})
                error_of(answer, 404, "NoSuchPlanTaskException")
        with running.client("eve") as client:
            answer = client.post(f"{TABLE}/tasks", json={"plan-task": first})
            error_of(answer, 404, "NoSuchPlanTaskException")
            error_of(client.get(f"{PLAN}/{plan['plan-id']}"), 404, "NoSuchPlanIdException")


def test_old_plans_are_dropped(warehouse: Path) -> None:
    with serving(warehouse, limits={"page": 3, "plans": 2}) as running, running.client() as client:
        plans = [client.post(PLAN, json={}).json()["plan-id"] for _ in range(3)]
        assert [client.get(f"{PLAN}/{plan}").status_code for plan in plans] == [404, 200, 200]
        assert "skipstone_open_plans 2\n" in client.get("/metrics").text


def test_plans_of_tables_that_are_gone(tmp_path: Path) -> None:
    """Neither a plan nor its pages outlive their table, even if another one has its name."""
    catalog = sk.catalog(f"{tmp_path}/home/")
    address = "/v1/namespaces/db/tables/t"
    schema = pa.schema({"id": pa.int64()})

    def make() -> None:
        table = catalog.create_table("db.t", schema)
        for number in range(3):
            table.table.append(pa.table({"id": [number]}, schema))

    make()
    with serving(tmp_path / "home", limits={"page": 2}) as running, running.client() as client:
        plan = client.post(f"{address}/plan", json={}).json()
        (task,) = plan["plan-tasks"]
        fetch = f"{address}/plan/{plan['plan-id']}"

        def answers() -> list[Any]:
            return [client.get(fetch), client.post(f"{address}/tasks", json={"plan-task": task})]

        assert [one.status_code for one in answers()] == [200, 200]
        catalog.iceberg.drop_table("db.t")
        for one in (*answers(), client.post(f"{address}/plan", json={}), client.get(address)):
            error_of(one, 404, "NoSuchTableException")
        make()
        of_plan, of_task = answers()
        error_of(of_plan, 404, "NoSuchPlanIdException")
        error_of(of_task, 404, "NoSuchPlanTaskException")
        assert client.delete(fetch).status_code == 204


def test_plans_by_the_path_of_another_table(server: Running, warehouse: Path) -> None:
    """A plan is found only by the path of its table."""
    prefer = {"Prefer": "respond-async"}
    with server.client() as client:
        plan = client.post(PLAN, json={}, headers=prefer).json()["plan-id"]
        other = f"/v1/namespaces/db/tables/others/plan/{plan}"
        error_of(client.get(other), 404, "NoSuchPlanIdException")
        error_of(client.delete(other), 404, "NoSuchPlanIdException")
        error_of(client.get(f"/v1/namespaces/other/tables/events/plan/{plan}"), 404, "NoSuchPlanIdException")
        # It is still there.
        assert client.delete(f"{PLAN}/{plan}").status_code == 204


def test_cancelled_plans(server: Running) -> None:
    with server.client() as client:
        plan = client.post(PLAN, json={}, headers={"Prefer": "respond-async"}).json()["plan-id"]
        assert client.delete(f"{PLAN}/{plan}").status_code == 204
        error_of(client.get(f"{PLAN}/{plan}"), 404, "NoSuchPlanIdException")
        error_of(client.delete(f"{PLAN}/{plan}"), 404, "NoSuchPlanIdException")
        answer = client.post(f"{TABLE}/tasks", json={"plan-task": f"{plan}.1"})
        error_of(answer, 404, "NoSuchPlanTaskException")


def test_expired_plans() -> None:
    now = [0.0]
    plans, ana, table = Plans(Limits(plan_seconds=600.0), lambda: now[0]), Caller("ana", ()), ("db", "t")
    first = plans.add(ana, table, Future())
    now[0] = 600.0
    assert plans.get(ana, table, first.id) is first
    now[0] = 600.1
    with pytest.raises(Refusal, match="plan does not exist or has expired"):
        plans.get(ana, table, first.id)
    assert len(plans) == 1
    # The next plan removes it, and work that has not begun is not started.
    plans.add(ana, table, Future())
    assert len(plans) == 1
    assert first.work.cancelled()


def test_other_media_types_and_methods(server: Running) -> None:
    """Bodies are JSON whatever they are called; other methods are refused in the protocol's form."""
    with server.client() as client:
        for name in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = client.post(PLAN, content=b"{}", headers={"Content-Type": name})
            assert answer.status_code == 200
        for method, path, allowed in (
            ("PUT", PLAN, "POST"),
            ("GET", "/api/plan", "POST"),
            ("POST", TABLE, "GET"),
        ):
            answer = client.request(method, path)
            error_of(answer, 405, "UnsupportedOperationException")
            assert allowed in answer.headers["allow"]


@pytest.mark.parametrize(
    ("request_", "status", "kind", "message"),
    [
        (
            {"filter": {"type": "eq", "term": "x", "value": 1}},
            400,
            "BadRequestException",
            "unknown column: x",
        ),
        ({"filter": {"type": "eq", "term": "v"}}, 400, "BadRequestException", "not a valid plan request"),
        ({"filter": {"type": "like", "term": "v", "value": 1}}, 400, "BadRequestException", "not a valid"),
        (
            {"filter": {"type": "eq", "term": "key", "value": 1}},
            400,
            "BadRequestException",
            "not a value of key",
        ),
        ({"filter": 7}, 400, "BadRequestException", "not a valid plan request"),
        ({"select": ["nothing"]}, 400, "BadRequestException", "unknown column: nothing"),
        ({"snapshot-id": 5}, 404, "NoSuchSnapshotException", "5"),
        ({"snapshot-id": "x"}, 400, "BadRequestException", "snapshot-id"),
        ({"start-snapshot-id": 1, "end-snapshot-id": 2}, 406, "UnsupportedOperationException", "incremental"),
        ([], 400, "BadRequestException", "not a JSON object"),
    ],
    ids=str,
)
def test_bad_plan_requests(server: Running, request_: Any, status: int, kind: str, message: str) -> None:
    with server.client() as client:
        assert message in error_of(client.post(PLAN, json=request_), status, kind)


def test_what_does_not_exist(server: Running) -> None:
    with server.client() as client:
        error_of(client.get("/v1/namespaces/no/tables"), 404, "NoSuchNamespaceException")
        error_of(client.get("/v1/namespaces/db/tables/no"), 404, "NoSuchTableException")
        error_of(client.post("/v1/namespaces/db/tables/no/plan", json={}), 404, "NoSuchTableException")
        error_of(client.get("/v1/views"), 404, "NoSuchEndpointException")
        error_of(client.delete(TABLE), 405, "UnsupportedOperationException")
        assert client.head("/v1/namespaces/db/tables/no").status_code == 404


def test_nothing_outside_is_served(server: Running, root: Path) -> None:
    """Requests never name a path."""
    (root / "secret.parquet").write_bytes(b"PAR1")
    with server.client() as client:
        for name in ("../secret.parquet", str(root), "/etc", "logs/..", "", "%2e%2e"):
            error_of(client.post("/api/plan", json={"lake": name}), 404, "NoSuchLakeException")
            answer = client.post("/api/plan", json={"table": name})
            error_of(answer, 404, "NoSuchTableException")
        for path in (
            "/v1/namespaces/%2e%2e%2f/tables/x",
            "/v1/namespaces/../../etc/passwd",
            "/../etc/passwd",
        ):
            assert client.get(path).status_code == 404


def test_a_table_that_leads_outside_is_refused(tmp_path: Path) -> None:
    catalog = sk.catalog(f"{tmp_path}/home/")
    table = catalog.create_table("db.t", pa.schema({"id": pa.int64()}))
    with serving(tmp_path / "home") as running, running.client() as client:
        plan = client.post("/v1/namespaces/db/tables/t/plan", json={}).json()
        assert plan == {"status": "completed", "plan-id": plan["plan-id"], "file-scan-tasks": []}
    outside = tmp_path / "outside.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), outside)
    table.table.add_files([str(outside)])
    for trusted, status in ((True, 200), (False, 500)):
        with serving(tmp_path / "home", stay_below_root=not trusted) as running, running.client() as client:
            for body in ({}, {"filter": {"type": "eq", "term": "id", "value": 1}}):
                answer = client.post("/v1/namespaces/db/tables/t/plan", json=body)
                assert answer.status_code == status
                if not trusted:
                    assert "outside its root" in error_of(answer, 500, "ReadError")


# -- rights --------------------------------------------------------------------------------------


def test_requests_need_a_token(guarded: Running) -> None:
    for token in (None, "nobody", "ana x"):
        with guarded.client(token) as client:
            for method, path in (("GET", "/v1/config"), ("POST", PLAN), ("GET", TABLE), ("GET", "/metrics")):
                answer = client.request(method, path)
                error_of(answer, 401, "NotAuthorizedException")
                assert answer.headers["www-authenticate"] == "Bearer"
            assert client.get("/health").json() == {"status": "ok"}


def test_rights_by_table(guarded: Running) -> None:
    body = {"lake": "logs"}
    statuses = {}
    for name in ("ana", "ben", "cleo", "dora"):
        with guarded.client(name) as client:
            statuses[name] = [
                client.get("/v1/namespaces/db").status_code,
                client.get(TABLE).status_code,
                client.post(PLAN, json={}).status_code,
                client.post("/api/plan", json=body).status_code,
                # Whether it exists makes no difference.
                client.get("/v1/namespaces/other/tables/t").status_code,
            ]
    assert statuses == {
        "ana": [200, 200, 200, 403, 403],
        "ben": [200, 200, 403, 403, 403],
        "cleo": [403, 403, 403, 200, 403],
        "dora": [200, 200, 200, 200, 404],
    }


def test_lists_have_only_what_may_be_read(guarded: Running) -> None:
    seen = {}
    for name in ("ana", "cleo", "ben"):
        with guarded.client(name) as client:
            namespaces = client.get("/v1/namespaces").json()["namespaces"]
            listed = client.get("/v1/namespaces/db/tables")
            tables = len(listed.json()["identifiers"]) if listed.status_code == 200 else listed.status_code
            seen[name] = len(namespaces), tables, client.get("/api/lakes").json()["lakes"]
    assert seen == {"ana": (1, 1, []), "cleo": (0, 403, ["logs"]), "ben": (1, 1, [])}


def test_namespaces_without_rights_are_as_if_they_did_not_exist(guarded: Running) -> None:
    with guarded.client("cleo") as client:
        for path in (
            "/v1/namespaces/{}",
            "/v1/namespaces/{}/tables",
            "/v1/namespaces?parent={}",
            "/v1/namespaces/{}/tables/events",
        ):
            answers = {}
            for name in ("db", "nosuch"):
                answer = client.get(path.format(name))
                answers[name] = answer.status_code, answer.text.replace(name, "")
            assert answers["db"] == answers["nosuch"]
            assert answers["db"][0] == 403
    with guarded.client("ana") as client:
        assert client.get("/v1/namespaces?parent=db").json() == {"namespaces": []}


def test_requests_without_a_route_are_logged_and_limited(warehouse: Path, root: Path) -> None:
    tokens = write_tokens(root / "rate.json", ana={"*": BOTH})
    limits = {"rate": 0.001}
    with serving(warehouse, token_file=str(tokens), limits=limits) as running, running.client() as client:
        error_of(client.get("/v1/nosuch"), 404, "NoSuchEndpointException")
        error_of(client.get("/v1/other"), 429, "TooManyRequestsException")
        lines = running.log()
        assert [(one["route"], one["status"]) for one in lines] == [("none", 404), ("none", 429)]
    with serving(warehouse) as running, running.client() as client:
        for path in ("/v1/nosuch", "/v1/config/"):
            answer = client.get(path, headers={"Host": "elsewhere.example"})
            error_of(answer, 403, "ForbiddenException")
            assert "location" not in answer.headers
        error_of(client.get("/v1/config/"), 404, "NoSuchEndpointException")
        assert 'skipstone_requests_total{route="none",status="403"} 2' in client.get("/metrics").text


def test_endpoints_are_named_as_in_the_document(server: Running) -> None:
    with server.client() as client:
        endpoints = client.get("/v1/config").json()["endpoints"]
    for method in ("GET", "DELETE"):
        assert (
            f"{method} /v1/{{prefix}}/namespaces/{{namespace}}/tables/{{table}}/plan/{{plan-id}}" in endpoints
        )


def test_parameters_of_lists_and_tables(tmp_path: Path) -> None:
    catalog = sk.catalog(f"{tmp_path}/home/")
    table = catalog.create_table("db.t", pa.schema({"id": pa.int64()}))
    for number in range(3):
        table.table.append(pa.table({"id": pa.array([number], pa.int64())}))
    oldest = table.table.snapshots()[0].snapshot_id
    table.table.manage_snapshots().create_tag(oldest, "first").commit()
    with serving(tmp_path / "home") as running, running.client() as client:
        address = "/v1/namespaces/db/tables/t"
        counts = {}
        for wanted in ("", "?snapshots=all", "?snapshots=refs"):
            metadata = client.get(address + wanted).json()["metadata"]
            counts[wanted] = len(metadata["snapshots"])
            assert {"main", "first"} == metadata["refs"].keys()
        assert counts == {"": 3, "?snapshots=all": 3, "?snapshots=refs": 2}
        message = error_of(client.get(f"{address}?snapshots=AAA"), 400, "BadRequestException")
        assert message == "snapshots is not all or refs"
        for path in ("/v1/namespaces", "/v1/namespaces/db/tables"):
            for size in ("0", "-1", "x", ""):
                answer = client.get(path, params={"pageSize": size})
                assert "pageSize is not a positive" in error_of(answer, 400, "BadRequestException")
            assert client.get(path, params={"pageSize": "1", "pageToken": ""}).status_code == 200


def test_patterns() -> None:
    caller = Caller("x", (("a.b.*", frozenset({"read"})), ("c.t", frozenset({"plan"}))))
    assert caller.may("read", "a.b.t")
    assert not caller.may("read", "a.bt")
    assert not caller.may("plan", "a.b.t")
    assert [caller.may_see(name) for name in ("a", "a.b", "a.b.c", "ab", "c")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"tokens": []}',
        '{"tokens": [{"name": "x"}]}',
        '{"tokens": [{"name": "x", "sha256": "secret", "rights": {"*": ["read"]}}]}',
        json.dumps({"tokens": [{"name": "x", "sha256": "0" * 64, "rights": {"*": ["write"]}}]}),
        json.dumps({"tokens": [{"name": "x", "sha256": "0" * 64, "rights": {"d*b": ["read"]}}]}),
        json.dumps({"tokens": [{"name": "x", "sha256": "0" * 64, "rights": {"db*": ["read"]}}]}),
        json.dumps({"tokens": [{"name": "x", "sha256": "0" * 64, "rights": {"*": ["read"]}}] * 2}),
        "not json",
    ],
)
def test_token_files_that_are_not_understood(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"tokens\.json") as refused:
        Tokens.read(path)
    assert "secret" not in str(refused.value).replace("secrets", "")


def test_unsafe_servers_are_refused(logs: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without tokens"):
        make_server(directories={"logs": logs}, host="0.0.0.0")
    with pytest.raises(UsageError, match="nothing to serve"):
        make_server()
    with pytest.raises(UsageError, match="certificate and a key"):
        make_server(directories={"logs": logs}, tls_cert="x.pem")
    with pytest.raises(UsageError, match="certificate or key can't be read"):
        make_server(directories={"logs": logs}, tls_cert=str(tmp_path / "x"), tls_key=str(tmp_path / "y"))
    with pytest.raises(UsageError, match="lake name"):
        make_server(directories={"../x": logs})
    with pytest.raises(sk.MissingFileError):
        make_server(directories={"logs": str(tmp_path / "nowhere")})


# -- limits --------------------------------------------------------------------------------------


def test_oversize_requests(server: Running) -> None:
    with server.client() as client:
        big = b"[" + b"1," * (1 << 20) + b"1]"
        assert "1,048,576 bytes" in error_of(client.post(PLAN, content=big), 413, "RequestTooLargeException")
        # Chunks without a declared length.
        chunks = (b"1" * 65_536 for _ in range(40))
        error_of(client.post(PLAN, content=chunks), 413, "RequestTooLargeException")
        deep: Any = {"type": "eq", "term": "v", "value": 1}
        for _ in range(200):
            deep = {"type": "not", "child": deep}
        assert "levels deep" in error_of(client.post(PLAN, json={"filter": deep}), 400, "BadRequestException")
        nested = b"[" * 500_000
        error_of(client.post(PLAN, content=nested), 400, "BadRequestException")
        long = {"filter": {"type": "in", "term": "v", "values": list(range(10_001))}}
        assert "10,000 members" in error_of(client.post(PLAN, json=long), 400, "BadRequestException")
        text = {"lake": "logs", "where": "id = 1" + " " * 70_000}
        error_of(client.post("/api/plan", json=text), 400, "BadRequestException")
        # Within the limits.
        allowed: Any = {"type": "eq", "term": "v", "value": 1}
        for _ in range(90):
            allowed = {"type": "and", "left": allowed, "right": {"type": "not-null", "term": "v"}}
        assert client.post(PLAN, json={"filter": allowed}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"a": NaN}', b'{"a": 1e400}', b'{"a": -1e400}', b"9" * 5_000, b"nope"],
    ids=lambda body: str(body[:20]),
)
def test_malformed_bodies(server: Running, body: bytes) -> None:
    with server.client() as client:
        for path in (PLAN, f"{TABLE}/tasks", "/api/plan"):
            assert "not valid JSON" in error_of(client.post(path, content=body), 400, "BadRequestException")


def test_texts_that_are_not_unicode(server: Running) -> None:
    half = b'"\\ud800"'
    with server.client() as client:
        for body in (
            half,
            b"{" + half + b": 1}",
            b'{"lake": "logs", "columns": [' + half + b"]}",
            b'{"select": [' + half + b"]}",
            b'{"filter": {"type": "eq", "term": "key", "value": ' + half + b"}}",
        ):
            for path in (PLAN, f"{TABLE}/tasks", "/api/plan", "/api/explain", "/api/files-to-query"):
                answer = client.post(path, content=body)
                assert "not valid Unicode" in error_of(answer, 400, "BadRequestException")
        whole = client.post(PLAN, json={"filter": {"type": "eq", "term": "key", "value": "\U0001f4a9"}})
        assert whole.json()["file-scan-tasks"] == []


class Slow(NoopCatalog):
    """A catalog that answers only after it is released."""

    name = "slow"

    def __init__(self, inner: Any) -> None:
        self.inner, self.released = inner, threading.Event()

    def load_table(self, name: Any) -> Any:
        assert self.released.wait(60)
        return self.inner.load_table(name)


def test_slow_answers(warehouse: Path) -> None:
    slow = Slow(sk.catalog(f"{warehouse}/").iceberg)
    limits = {"seconds": 0.2, "workers": 1, "queue": 2}
    with serving(catalog=slow, limits=limits) as running, running.client() as client:
        assert "0.2 seconds" in error_of(client.get(TABLE), 503, "ServiceUnavailableException")
        # The first waits on its thread; the next fills the queue, and others are refused.
        prefer = {"Prefer": "respond-async"}
        submitted = client.post(PLAN, json={}, headers=prefer).json()
        assert submitted["status"] == "submitted"
        refused = client.post(PLAN, json={}, headers=prefer)
        assert "busy" in error_of(refused, 503, "ServiceUnavailableException")
        assert refused.headers["retry-after"] == "1"
        address = f"{PLAN}/{submitted['plan-id']}"
        assert client.get(address).json() == submitted
        # A plan that has not begun is cancelled, which makes room.
        assert client.delete(address).status_code == 204
        again = client.post(PLAN, json={}, headers=prefer).json()
        slow.released.set()
        while (plan := client.get(f"{PLAN}/{again['plan-id']}").json())["status"] == "submitted":
            time.sleep(0.01)
        assert len(plan["file-scan-tasks"]) == FILES


def test_long_plans_continue(warehouse: Path) -> None:
    slow = Slow(sk.catalog(f"{warehouse}/").iceberg)
    with serving(catalog=slow, limits={"submit_after": 0.05}) as running, running.client() as client:
        submitted = client.post(PLAN, json={}).json()
        assert submitted["status"] == "submitted"
        slow.released.set()
        while (plan := client.get(f"{PLAN}/{submitted['plan-id']}").json())["status"] == "submitted":
            time.sleep(0.01)
        assert plan["status"] == "completed"


def test_rates() -> None:
    now = [0.0]
    limit = RateLimit(2.0, lambda: now[0])
    for _ in range(4):
        limit.take("a")
    with pytest.raises(Refusal) as refused:
        limit.take("a")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    limit.take("b")
    now[0] = 0.5
    limit.take("a")
    with pytest.raises(Refusal):
        limit.take("a")
    now[0] = 100.0
    for _ in range(4):
        limit.take("a")
    with pytest.raises(Refusal):
        limit.take("a")


def test_too_many_requests(warehouse: Path) -> None:
    with serving(warehouse, limits={"rate": 0.001}) as running, running.client() as client:
        assert client.get("/v1/config").status_code == 200
        answer = client.get("/v1/config")
        error_of(answer, 429, "TooManyRequestsException")
        assert int(answer.headers["retry-after"]) > 100
        assert [(one["status"], one["caller"]) for one in running.log()] == [(200, "anyone"), (429, "anyone")]


# -- what the server records ---------------------------------------------------------------------


def test_logs_and_metrics(warehouse: Path, root: Path) -> None:
    tokens = write_tokens(root / "logged.json", ana={"*": BOTH})
    with serving(warehouse, token_file=str(tokens)) as running, running.client("ana") as client:
        client.post(PLAN, json={"filter": {"type": "eq", "term": "part", "value": 2}})
        client.get("/v1/config", headers={"Authorization": "Bearer wrong-token"})
        text = client.get("/metrics").text
        log = running.log()
    assert [(one["route"], one["status"]) for one in log] == [
        ("POST /v1/namespaces/{namespace}/tables/{table}/plan", 200),
        ("GET /v1/config", 401),
        ("GET /metrics", 200),
    ]
    assert (log[0]["caller"], log[0]["files"], log[0]["of_files"]) == ("ana", 2, FILES)
    assert (log[1].get("caller"), log[1]["error"]) == (None, "NotAuthorizedException")
    assert "wrong-token" not in json.dumps(log)
    assert 'skipstone_requests_total{route="GET /v1/config",status="401"} 1\n' in text
    assert f'skipstone_planned_files_total{{verdict="dropped"}} {FILES - 2}\n' in text
    assert 'skipstone_planned_files_total{verdict="kept"} 2\n' in text


def test_many_at_once(server: Running) -> None:
    answers: list[int] = []

    def ask() -> None:
        with server.client() as client:
            for value in range(5):
                body = {"filter": {"type": "eq", "term": "part", "value": value}}
                answers.append(len(client.post(PLAN, json=body).json()["file-scan-tasks"]))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [0] * 4 + [2] * 16


# -- the JSON API --------------------------------------------------------------------------------


def test_plans_of_directories(server: Running) -> None:
    with server.client() as client:
        plan = client.post("/api/plan", json={"lake": "logs", "where": "id >= 250"}).json()
        assert [Path(task["path"]).name for task in plan["tasks"]] == ["2.parquet", "3.parquet"]
        assert plan["rows"] == sum(task["rows"] for task in plan["tasks"]) == 200
        assert plan["tasks"][1]["proven"] == 100
        assert plan["tasks"][1]["ranges"] == [[0, 100]]
        assert plan["residual"] == "id >= 250"
        limited = client.post("/api/plan", json={"lake": "logs", "limit": 5}).json()
        assert limited["rows"] == 5
        table = client.post("/api/plan", json={"table": "db.events", "where": "part = 1"}).json()
        assert len(table["tasks"]) == 2


def test_explanations(server: Running) -> None:
    with server.client() as client:
        told = client.post("/api/explain", json={"lake": "logs", "where": "id = 7"}).json()
    assert told["tasks"] == 1
    assert told["files"] == 4


def test_files_to_query(server: Running, logs: str) -> None:
    ids = sk.ColumnHandle("id", pa.int64())
    ts = sk.ColumnHandle("ts", pa.timestamp("us", "UTC"))
    early = sk.Range.less_than(ts.type, datetime.datetime(2026, 1, 3, tzinfo=datetime.UTC))
    domain = sk.ColumnDomain.of(
        {ids: sk.Domain.values(ids.type, [150, 350]), ts: sk.Domain.of(ts.type, early)}
    )
    ask = {"lake": "logs", "domain": json.loads(domain.to_json())}
    with server.client() as client:
        files = client.post("/api/files-to-query", json=ask).json()["files"]
        wider = client.post("/api/files-to-query", json={**ask, "columns": ["id"]}).json()["files"]
        plan = client.post("/api/plan", json=ask).json()
    direct = sk.open(logs).files_to_query(None, domain)
    assert [file["path"] for file in files] == [file.path for file in direct]
    assert [(Path(file["path"]).name, file["row_groups"]) for file in files] == [("1.parquet", [0])]
    assert len(wider) == 2
    assert [task["path"] for task in plan["tasks"]] == [file.path for file in direct]


def test_files_to_query_of_a_table(server: Running) -> None:
    domain = {"columns": [{"name": "part", "values": [1], "nulls": True}]}
    ask = {"table": "db.events", "domain": domain}
    with server.client() as client:
        files = client.post("/api/files-to-query", json=ask).json()["files"]
        plan = client.post("/api/plan", json={"table": "db.events", "where": "part = 1"}).json()
        # Without the column there is no condition.
        every = client.post("/api/files-to-query", json={**ask, "columns": ["key"]}).json()["files"]
        none = client.post("/api/files-to-query", json={**ask, "domain": {"none": True}}).json()["files"]
    assert sorted(Path(f["path"]).name for f in files) == sorted(Path(t["path"]).name for t in plan["tasks"])
    assert all(file["row_groups"] for file in files)
    assert len(every) > len(files) == 2
    assert none == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"lake": "logs", "table": "db.events"},
        {"lake": ["logs"]},
        {"lake": "logs", "where": 5},
        {"lake": "logs", "where": "id ="},
        {"lake": "logs", "where": "nothing = 1"},
        {"lake": "logs", "where": "id = 'x'"},
        {"lake": "logs", "limit": -1},
        {"lake": "logs", "limit": True},
        {"lake": "logs", "columns": [1]},
        {"lake": "logs", "columns": 1},
        {"lake": "logs", "domain": {"none": 1}},
        {"lake": "logs", "domain": {"columns": [{"name": "id", "ranges": [{"low": 1, "low_inclusive": 1}]}]}},
        {"lake": "logs", "columns": ["nothing"]},
        {"lake": "logs", "tz": "UTC"},
        {"lake": "logs", "where": "id = 1", "dialect": "nothing"},
        {"lake": "logs", "where": "id = 1", "tz": "nothing"},
        {"lake": "logs", "domain": {}},
        {"lake": "logs", "domain": {"columns": [{"name": "id", "values": ["x"]}]}},
        {"lake": "logs", "snapshot": 1},
        {"lake": "logs", "path": "/etc"},
        {"table": "db.events", "where": "a.b.c = 1"},
    ],
    ids=str,
)
def test_bad_questions(server: Running, body: Any) -> None:
    with server.client() as client:
        for path in ("/api/plan", "/api/explain"):
            error_of(client.post(path, json=body), 400, "BadRequestException")


def test_a_directory_is_listed_again(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"id": [1]}), lake / "a.parquet")
    fresh = {"fresh_seconds": 0.0}
    with serving(lakes={"lake": str(lake)}, limits=fresh) as running, running.client() as client:
        assert len(client.post("/api/plan", json={"lake": "lake"}).json()["tasks"]) == 1
        pq.write_table(pa.table({"id": [2]}), lake / "b.parquet")
        assert len(client.post("/api/plan", json={"lake": "lake"}).json()["tasks"]) == 2
        # There is no catalog.
        error_of(client.get("/v1/namespaces"), 404, "NoSuchEndpointException")


def test_lakes_are_shared_while_one_thread_opens_them_again(logs: str) -> None:
    """A question that takes long keeps no other one waiting, nor does opening a lake again."""
    now, looks = [0.0], list[threading.Thread]()
    opening, go_on = threading.Event(), threading.Event()

    def clock() -> float:
        looks.append(threading.current_thread())
        # The second look is that of the thread that opens the lake.
        if looks[-1] is other and looks.count(other) == 2:
            opening.set()
            assert go_on.wait(60)
        return now[0]

    opened: list[Any] = []
    other = threading.Thread(target=lambda: opened.append(lakes.directory("logs")))
    lakes = Lakes(None, {"logs": logs}, Limits(fresh_seconds=10.0), clock=clock)
    first = lakes.directory("logs")
    assert lakes.directory("logs") is first
    now[0] = 10.1
    other.start()
    assert opening.wait(60)
    assert lakes.directory("logs") is first
    go_on.set()
    other.join()
    assert opened[0] is not first
    assert lakes.directory("logs") is opened[0]


def test_limits_are_checked_by_level() -> None:
    Limits(depth=3).check_document({"a": [1]})
    with pytest.raises(Refusal, match="levels deep"):
        Limits(depth=3).check_document({"a": [[1]]})


# -- anything at all -----------------------------------------------------------------------------

NAMES = """
lake logs where domain columns name id ts values ranges low filter type and or not eq in left right child term
value v key select is-null starts-with snapshot-id plan-task table db.events limit 1=1
"""
WORDS = st.sampled_from(NAMES.split())
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), WORDS, st.text(max_size=5)
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(WORDS, inner, max_size=5),
        st.builds(
            lambda type, term, value: {"type": type, "term": term, "value": value}, WORDS, WORDS, inner
        ),
    ),
    max_leaves=12,
)
BODIES = st.one_of(
    DOCUMENTS,
    st.builds(lambda filter: {"filter": filter}, DOCUMENTS),
    st.builds(lambda rest: {**rest, "lake": "logs"}, st.dictionaries(WORDS, DOCUMENTS, max_size=4)),
    st.builds(
        lambda values, ranges: {
            "lake": "logs",
            "domain": {"columns": [{"name": "id", "values": values, "ranges": ranges}]},
        },
        DOCUMENTS,
        DOCUMENTS,
    ),
)


@settings(max_examples=sample("server, bodies"), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES)
def test_no_body_makes_the_server_fail(server: Running, body: Any) -> None:
    with server.client() as client:
        for path in (PLAN, f"{TABLE}/tasks", "/api/plan", "/api/explain", "/api/files-to-query"):
            answer = client.post(path, json=body)
            assert answer.status_code in (200, 400, 404, 406), (path, answer.text)
