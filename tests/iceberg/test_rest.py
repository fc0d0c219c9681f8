"""Tables of a REST catalog: a real server on loopback that knows the few endpoints that readers need."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import skipstone as sk
from skipstone.errors import ReadError, UsageError
from tests.iceberg._maker import Maker


class Server(ThreadingHTTPServer):
    """Serves the tables of one namespace."""

    daemon_threads = True

    def __init__(self, tables: dict[str, Maker]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tables = tables
        self.asked: list[str] = []
        self.config: dict[str, str] = {}

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """The status and the body for a GET; parents are ignored, and tables come in pages."""
        self.asked.append(path)
        match path.strip("/").split("/"):
            case ["v1", "config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case ["v1", "namespaces"]:
                return 200, {"namespaces": [["db"]]}
            case ["v1", "namespaces", "db", "tables"]:
                page = int(query.get("pageToken", ["0"])[0])
                names = [{"namespace": ["db"], "name": name} for name in [*self.tables][page : page + 1]]
                more = {"next-page-token": str(page + 1)} if page + 1 < len(self.tables) else {}
                return 200, {"identifiers": names, **more}
            case ["v1", "namespaces", "db", "tables", name] if name in self.tables:
                return 200, self.table(self.tables[name])
            case ["v1", "namespaces", "db", "tables", "broken"]:
                return 500, _error("the server is tired", "InternalServerError", 500)
            case ["v1", "namespaces", "db", "tables", _]:
                return 404, _error("no such table", "NoSuchTableException", 404)
        return 404, _error("no such namespace", "NoSuchNamespaceException", 404)

    def table(self, maker: Maker) -> dict[str, Any]:
        metadata = json.loads(Path(maker.metadata_location).read_text())
        return {
            "metadata-location": maker.metadata_location,
            "metadata": metadata,
            "config": self.config,
        }


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        status, body = self.server.answer(url.path, parse_qs(url.query))
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _error(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    made = Maker(tmp_path, [("id", "long"), ("p", "string")], [("p", "identity")], seed="rest")
    made.append([{"id": n, "p": "ab"[n % 2]} for n in range(20)], merge=False)
    made.delete_positions(made.places()[:3])
    return made


@contextmanager
def serving(tables: dict[str, Maker]) -> Iterator[Server]:
    with Server(tables) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def server(maker: Maker) -> Iterator[Server]:
    with serving({"events": maker}) as made:
        yield made


def test_a_table_is_opened_and_scanned_through_it(server: Server, maker: Maker) -> None:
    lake = sk.open("db.events", catalog={"type": "rest", "uri": server.uri})
    assert lake.name.endswith("db.events")
    wanted = {row["id"] for row in maker.rows()}
    assert {*lake.scan().to_arrow()["id"].to_pylist()} == wanted
    scan = lake.scan("p = 'a'")
    assert {*scan.to_arrow()["id"].to_pylist()} == {n for n in wanted if n % 2 == 0}
    assert scan.plan().trace.tasks == 1
    assert "/v1/namespaces/db/tables/events" in server.asked


def test_a_refresh_asks_the_server_again(server: Server, maker: Maker) -> None:
    catalog = sk.catalog({"type": "rest", "uri": server.uri})
    assert catalog.tables("db") == ["db.events"]
    lake = catalog.open("db.events")
    lake.index.build(engine="local")
    before, asked = lake.scan().count(), len(server.asked)
    maker.append([{"id": 100, "p": "a"}])
    assert (lake.scan().count(), len(server.asked)) == (before, asked)
    assert lake.index.refresh(engine="local").indexed == 1
    assert lake.scan().count() == before + 1
    assert len(server.asked) > asked
    assert lake.scan(snapshot=lake.snapshots()[0].id).count() == 20


def test_other_tables_of_a_service_are_compared(maker: Maker, tmp_path: Path) -> None:
    left = tmp_path / "data" / "left.parquet"
    left.write_bytes(b"left over")
    others = {name: Maker(tmp_path / name, [("id", "long")]) for name in ("_a", "_b")}
    for one in others.values():
        one.append([{"id": 1}])
    now: dict[str, Any] = {"older_than": "0s", "allow_recent": True}
    with serving({"events": maker, **others}) as server:
        catalog = sk.catalog({"type": "rest", "uri": server.uri})
        assert catalog.tables() == ["db._a", "db._b", "db.events"]
        server.asked.clear()
        assert catalog.open("db.events").remove_orphans(dry_run=True, **now).unchecked == ()
        assert {f"/v1/namespaces/db/tables/{name}" for name in server.tables} <= {*server.asked}
        assert str(left) in catalog.open("db.events").remove_orphans(**now).files
    assert not left.exists()


def test_settings_that_the_server_hands_out_reach_the_store(server: Server) -> None:
    """A REST catalog vends credentials with the table."""
    server.config = {"s3.access-key-id": "handed", "s3.secret-access-key": "out"}
    table = sk.open("db.events", catalog={"type": "rest", "uri": server.uri}).table
    assert table.io.properties["s3.access-key-id"] == "handed"


def test_what_the_server_refuses_is_an_error_with_a_hint(server: Server) -> None:
    catalog = sk.catalog({"type": "rest", "uri": server.uri})
    with pytest.raises(ReadError, match=r"db\.nope: .*no such table \(tables in its namespace: db\.events\)"):
        catalog.open("db.nope")
    with pytest.raises(ReadError, match=r"other\.nope: .*no such table"):
        catalog.open("other.nope")
    with pytest.raises(ReadError, match=r"db\.broken: .*tired"):
        catalog.open("db.broken")
    with pytest.raises(ReadError, match=r"other: .*no such namespace \(available namespaces: db\)"):
        catalog.tables("other")
    server.shutdown()
    server.server_close()
    with pytest.raises(UsageError, match="can't open catalog") as refused:
        sk.catalog({"type": "rest", "uri": server.uri})
    assert refused.value.hint
