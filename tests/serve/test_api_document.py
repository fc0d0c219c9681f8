"""The JSON API against its own OpenAPI document: generated requests, right and wrong."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.noop import NoopCatalog
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.serve._server import Running, make_table, serving, write_tokens
from tests.support.samples import sample

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    ignored_auth,
]
TABLES = ["/api/snapshots", "/api/compaction"]
LAKES = [f"/api/{path}" for path in ("plan", "explain", "files-to-query", "layout", "spans", "files", "why")]
PATHS = [*LAKES, *TABLES]
CONDITIONS = [
    "id = 150",
    "id >= 150 and id < 250",
    "id in (1, 2, 3)",
    "ts < '2026-01-02'",
    "s.a is null",
    "key = 'x'",
    "v > 5000",
    "f <> f or n is null",
    "part in (1, 2) and not v < 3",
    "1 = 1",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("api")
    (root / "logs").mkdir()
    for number in range(4):
        ids = range(number * 100, number * 100 + 100)
        times = [datetime.datetime(2026, 1, 1 + number, tzinfo=datetime.UTC)] * 100
        structs = pa.array([{"a": None}] * 100, pa.struct({"a": pa.float32()}))
        table = pa.table({"id": ids, "ts": times, "s": structs})
        pq.write_table(table, root / "logs" / f"{number}.parquet")
    tokens = write_tokens(root / "tokens.json", ana={"*": ["read", "plan"]})
    with serving(make_table(root), {"logs": str(root / "logs")}, token_file=str(tokens)) as running:
        yield running


@pytest.fixture(scope="module")
def document(server: Running) -> Any:
    with server.client("ana") as client:
        return client.get("/api/openapi.json").json()


def test_all_questions_are_described(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    assert {path: [*methods] for path, methods in document["paths"].items()} == {
        "/api/lakes": ["get"],
        "/api/tables": ["get"],
        **{path: ["post"] for path in PATHS},
        "/api/openapi.json": ["get"],
    }
    assert document["security"] == [{"bearer": []}]
    for path in PATHS:
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert ({"table"} if path in TABLES else {"lake", "table"}) <= body["properties"].keys()


def test_the_document_needs_a_token(server: Running) -> None:
    with server.client() as client:
        assert client.get("/api/openapi.json").status_code == 401
    with serving(catalog=NoopCatalog("none")) as running, running.client() as client:
        assert client.get("/api/openapi.json").json()["security"] == []


def narrowed(document: Any) -> Any:
    """The document with names that exist, so that requests get further than the first check."""
    document = copy.deepcopy(document)
    for path in PATHS:
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        properties = content["schema"]["properties"]
        known = {
            "lake": ["logs"],
            "table": ["db.events"],
            "file": ["0.parquet"],
            "column": ["id", "v", "s.a"],
        }
        known |= {"strategy": ["binpack", "zorder"], "snapshot": ["main"], "row": [0], "row_group": [0]}
        properties |= {name: {"enum": values} for name, values in known.items() if name in properties}
        names = {"enum": ["id", "ts", "s", "key", "v", "f", "n", "part"]}
        for name in {"columns", "sort_by"} & properties.keys():
            properties[name] = {"type": "array", "items": names, "maxItems": 4}
        if "where" in properties:
            properties["where"] = {"enum": CONDITIONS}
            properties["dialect"] = {"enum": ["spark", "hive", "trino", "presto", "duckdb"]}
            properties["tz"] = {"enum": ["UTC", "Europe/Berlin", "+02:00"]}
    columns = document["components"]["schemas"]["Domain"]["oneOf"][1]["properties"]["columns"]
    columns["items"]["properties"]["name"] = {"oneOf": [names, {"const": ["s", "a"]}]}
    return document


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", PATHS)
def test_requests_are_answered_as_described(
    server: Running, document: Any, path: str, mode: GenerationMode
) -> None:
    """Nothing fails inside the server; wrong requests are refused, and every answer has its schema."""
    statuses = set[int]()
    schemas = [schemathesis.openapi.from_dict(one) for one in (document, narrowed(document))]
    operations = [schema[path]["POST"] for schema in schemas]
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for operation in operations))

    with requests.Session() as session:
        session.trust_env = False

        @settings(
            max_examples=sample("server, API"),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        @given(case=cases)
        def run(case: schemathesis.Case) -> None:
            headers = {"Authorization": "Bearer ana"}
            answer = case.call_and_validate(
                base_url=server.uri, session=session, headers=headers, checks=CHECKS
            )
            statuses.add(answer.status_code)

        run()
    # Wrong requests include those with a wrong token.
    assert statuses <= {200, 400, 401, 404}
    assert 200 in statuses or mode is GenerationMode.NEGATIVE
    assert 401 not in statuses or mode is GenerationMode.NEGATIVE
