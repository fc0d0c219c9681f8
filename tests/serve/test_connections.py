"""What clients can do to a connection, byte by byte over a real socket: everything is refused clearly."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.serve.access import Limits
from skipstone.serve.connection import Connection
from tests.serve._server import Running, make_table, serving, write_tokens

PLAN = "/v1/namespaces/db/tables/events/plan"
SECRET = b"PAR1 what no client may see"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("connections")
    (root / "secret.parquet").write_bytes(SECRET)
    (root / "logs").mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), root / "logs" / "a.parquet")
    make_table(root)
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Running]:
    short = {"header_seconds": 0.3, "body_seconds": 0.2, "send_seconds": 0.4}
    with serving(root / "warehouse", {"logs": str(root / "logs")}, limits=short) as running:
        yield running


def connect(server: Running, buffer: int | None = None) -> socket.socket:
    host, port = server.uri.rpartition("/")[2].split(":")
    client = socket.socket()
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(60)
    client.connect((host, int(port)))
    return client


def read_all(client: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    data = bytearray()
    while True:
        try:
            part = client.recv(1 << 16)
        except ConnectionResetError:
            break
        if not part:
            break
        data += part
    return bytes(data)


def read_one(client: socket.socket) -> bytes:
    """One answer on a connection that stays open."""
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        if end and len(body) == int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            return data
        data += client.recv(1 << 16)


def exchange(server: Running, request: bytes) -> bytes:
    """The bytes of all answers to a request; the server closes the connection."""
    with closing(connect(server)) as client:
        client.sendall(request)
        return read_all(client)


def error_in(answer: bytes) -> tuple[int, str, str]:
    """Status, type and message of the only answer, in the protocol's form."""
    head, _, body = answer.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert int(head.split()[1]) == error["code"]
    assert b"application/json" in head
    return error["code"], error["type"], error["message"]


def request_of(target: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


# -- slow clients --------------------------------------------------------------------------------


def test_slow_headers(server: Running) -> None:
    with closing(connect(server)) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: local")
        assert error_in(read_all(client)) == (
            408,
            "RequestTimeoutException",
            "headers did not arrive within 0.3 seconds",
        )


def test_slow_headers_of_a_second_request(server: Running) -> None:
    with closing(connect(server)) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_one(client).endswith(b'{"status":"ok"}')
        client.sendall(b"GET /health")
        assert error_in(read_all(client))[0] == 408


def test_connections_without_a_request_are_closed(server: Running) -> None:
    with closing(connect(server)) as client:
        assert read_all(client) == b""


def test_slow_bodies(server: Running) -> None:
    head = f"POST {PLAN} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{{"
    code, _, message = error_in(exchange(server, head.encode()))
    assert (code, message) == (408, "body did not arrive within 0.2 seconds")


def test_bodies_that_nobody_waits_for(server: Running) -> None:
    """After an early answer the rest of a body can't keep the connection open."""
    head = f"POST {PLAN} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n{{"
    with closing(connect(server)) as client:
        client.sendall(head.encode())
        assert error_in(read_one(client))[0] == 413
        while server.server.server_state.connections:
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(b"x")
            time.sleep(0.01)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose metadata is larger than what the system buffers for a connection."""
    warehouse = tmp_path_factory.mktemp("large") / "home"
    schema = pa.schema({"id": pa.int64()})
    sk.catalog(f"{warehouse}/").create_table("db.t", schema, properties={"note": "x" * 20_000_000})
    return warehouse


def test_clients_that_do_not_read(large: Path) -> None:
    with serving(large, limits={"send_seconds": 0.4}) as running:
        with closing(connect(running, buffer=4_096)) as client:
            client.sendall(request_of("/v1/namespaces/db/tables/t"))
            state = running.server.server_state
            while not state.total_requests or state.connections:
                time.sleep(0.01)
            # What the system had accepted arrives, and no more.
            assert 0 < len(read_all(client)) < 19_000_000
        with closing(connect(running)) as client:
            client.sendall(request_of("/v1/namespaces/db/tables/t"))
            assert len(read_all(client)) > 20_000_000


def test_too_many_connections(root: Path) -> None:
    with serving(root / "warehouse", limits={"connections": 2}) as running:
        held = [connect(running) for _ in range(2)]
        while len(running.server.server_state.connections) < 2:
            time.sleep(0.01)
        code, kind, message = error_in(exchange(running, request_of("/health")))
        assert (code, kind) == (503, "ServiceUnavailableException")
        assert message == "server has too many connections"
        held += [connect(running) for _ in range(2)]
        while len(running.server.server_state.connections) < 4:
            time.sleep(0.01)
        assert exchange(running, b"") == b""
        for one in held:
            one.close()
        while running.server.server_state.connections:
            time.sleep(0.01)
        assert exchange(running, request_of("/health")).endswith(b'{"status":"ok"}')


# -- what is not HTTP ----------------------------------------------------------------------------

POST = b"POST /api/plan HTTP/1.1\r\nHost: localhost\r\n"
MALFORMED = {
    "noise": b"\x00\x01\x02\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "NUL in the path": b"GET /health\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "space in a header": b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "long header": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"x: y\r\n" * 40_000 + b"\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "no length": POST + b"Content-Length: -1\r\n\r\n{}",
    "bad coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n{}",
    "bad chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_http(server: Running, name: str) -> None:
    code, kind, _ = error_in(exchange(server, MALFORMED[name]))
    assert (code, kind) in ((400, "BadRequestException"), (501, "BadRequestException"))


def test_a_length_and_chunks(server: Running) -> None:
    """Chunks count, and what follows them is the next request; nobody can hide one in a body."""
    head = POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"
    answers = exchange(server, head + b"2\r\n{}\r\n0\r\n\r\n" + request_of("/health"))
    statuses = [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"400", b"200"]
    assert answers.endswith(b'{"status":"ok"}')


# -- paths ---------------------------------------------------------------------------------------

ESCAPES = [
    "/../secret.parquet",
    "/..%2fsecret.parquet",
    "/%2e%2e/secret.parquet",
    "/%252e%252e%252fsecret.parquet",
    "/v1/namespaces/..%2f..%2fsecret.parquet",
    "/v1/namespaces/%2e%2e/tables/secret.parquet",
    "/v1/namespaces/%252e%252e/tables/%252e%252e%252fsecret.parquet",
    "/v1/namespaces/db/tables/..%2f..%2fsecret.parquet",
    "/v1/namespaces/db/tables/..%5c..%5csecret.parquet",
    "/v1/namespaces/db/tables/%00",
    "/v1/namespaces/db/tables/events%00.parquet",
    "/v1/namespaces/db/tables/%2fetc%2fpasswd",
    "/v1/namespaces/%1f/tables/%1f",
    "/v1/namespaces/db%1f..%1f../tables/x",
    "/v1/namespaces/db/tables/%ff%fe",
    "/v1/namespaces/db/tables/%ed%a0%80",
    "/v1/namespaces/db/tables/events/plan/..%2f..%2fsecret",
    "/v1/namespaces/db/tables/events/plan/%00",
    "http://elsewhere/v1/../secret.parquet",
    "//elsewhere/secret.parquet",
]


@pytest.mark.parametrize("target", [*ESCAPES, "{root}/secret.parquet", "file://{root}/secret.parquet"])
def test_paths_lead_nowhere(server: Running, root: Path, target: str) -> None:
    answer = exchange(server, request_of(target.format(root=root)))
    code, kind, _ = error_in(answer)
    assert (code, kind.startswith("NoSuch")) == (404, True)
    assert SECRET not in answer


NAMES = [
    "../logs",
    "logs/../logs",
    "logs\x00",
    "%2e%2e",
    "{root}/logs",
    "file://{root}/logs",
    "logs/a.parquet",
    "Logs",
    " logs",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_not_paths(server: Running, root: Path, name: str) -> None:
    with server.client() as client:
        for kind in ("lake", "table"):
            body = json.dumps({kind: name.format(root=root)})
            answer = client.post("/api/plan", content=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, 404), answer.text


def test_links_that_lead_out(root: Path, tmp_path: Path) -> None:
    """A link in a lake or in a table's directory is refused, whenever it was made."""
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), lake / "a.parquet")
    table = sk.catalog(f"{tmp_path}/home/").create_table("db.t", pa.schema({"id": pa.int64()}))
    table.table.append(pa.table({"id": pa.array([1], pa.int64())}))
    (file,) = (tmp_path / "home").glob("**/data/*.parquet")
    with serving(tmp_path / "home", {"lake": str(lake)}, limits={"fresh_seconds": 0.0}) as running:
        address = "/v1/namespaces/db/tables/t/plan"
        with running.client() as client:
            assert client.post(address, json={}).status_code == 200
            assert client.post("/api/plan", json={"lake": "lake"}).status_code == 200
            for inside in (file, lake / "a.parquet"):
                inside.rename(tmp_path / "moved.parquet")
                inside.symlink_to(tmp_path / "moved.parquet")
            for path, body in (
                (address, {}),
                ("/api/plan", {"lake": "lake"}),
                ("/api/plan", {"table": "db.t"}),
            ):
                answer = client.post(path, json=body)
                assert answer.status_code == 500
                assert answer.json()["error"]["type"] == "ReadError"
                assert "outside its root" in answer.text or "leads out of" in answer.text


# -- pages of other sites ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Host": "localhost:8181"}, True),
        ({"Host": "127.0.0.1"}, True),
        ({"Host": "[::1]:8181"}, True),
        ({"Host": "localhost:8181", "Origin": "http://localhost:8181"}, True),
        ({"Host": "elsewhere.example"}, False),  # its name leads here now
        ({"Host": "localhost.elsewhere.example:8181"}, False),
        ({"Host": "127.0.0.1.elsewhere.example"}, False),
        ({"Host": "[::1"}, False),
        ({"Host": ""}, False),
        ({"Host": "localhost:8181", "Origin": "http://elsewhere.example"}, False),
        ({"Host": "localhost:8181", "Origin": "http://localhost:3000"}, False),
        ({"Host": "localhost:8181", "Origin": "null"}, False),
    ],
    ids=str,
)
def test_a_server_without_tokens_is_for_this_machine(
    server: Running, root: Path, headers: dict[str, str], allowed: bool
) -> None:
    tokens = write_tokens(root / "tokens.json", ana={"*": ["read", "plan"]})
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = (
        f"GET /v1/config HTTP/1.1\r\n{head}Connection: close\r\nAuthorization: Bearer ana\r\n\r\n".encode()
    )
    answer = exchange(server, request)
    if allowed:
        assert answer.startswith(b"HTTP/1.1 200 ")
    else:
        assert error_in(answer)[:2] == (403, "ForbiddenException")
    with serving(root / "warehouse", token_file=str(tokens)) as running:
        assert exchange(running, request).startswith(b"HTTP/1.1 200 ")


# -- slow clients, without a network -------------------------------------------------------------


class Clock:
    """An event loop of timers."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, call: Any, *args: Any) -> Timer:
        self.timers.append(Timer(seconds, call, args))
        return self.timers[-1]

    def run(self) -> None:
        """Let the pending timers end."""
        pending, self.timers = self.timers, []
        for timer in pending:
            if not timer.cancelled:
                timer.call(*timer.args)


class Timer:
    def __init__(self, seconds: float, call: Any, args: tuple[Any, ...]) -> None:
        self.seconds, self.call, self.args, self.cancelled = seconds, call, args, False

    def cancel(self) -> None:
        self.cancelled = True


class Transport:
    """A transport with bytes that the client has not read."""

    def __init__(self) -> None:
        self.unsent, self.aborted, self.sent = 0, False, b""

    def get_extra_info(self, name: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.buffers = high, low

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        """Nothing."""


class Limited(Connection):
    limits = Limits(header_seconds=10.0, send_seconds=30.0)


def connection(server: Running) -> tuple[Limited, Clock, Transport]:
    clock, transport = Clock(), Transport()
    one = Limited(server.server.config, type(server.server.server_state)(), {}, _loop=clock)
    one.connection_made(transport)  # type: ignore[arg-type]
    return one, clock, transport


def test_headers_that_trickle_in(server: Running) -> None:
    """No byte extends the time."""
    one, clock, transport = connection(server)
    for byte in b"GET /health":
        one.data_received(bytes([byte]))
    assert [(timer.seconds, timer.cancelled) for timer in clock.timers] == [(10.0, False)]
    clock.run()
    assert error_in(transport.sent)[0] == 408


@pytest.mark.parametrize(
    ("sizes", "aborted"),
    [
        ([1_000_000, 900_000, 800_000, 700_000], False),
        ([1_000_000, 999_000], True),  # 1,000 bytes in 15 seconds
        ([1_000_000, 1_000_000], True),
        ([1_000_000, 900_000, 890_000], True),
        ([100, 100], True),
    ],
)
def test_slow_readers(server: Running, sizes: list[int], aborted: bool) -> None:
    """Clients that read at least 1,024 bytes per second may take their time."""
    one, clock, transport = connection(server)
    clock.timers.clear()
    one.pause_writing()
    for size in sizes:
        assert not transport.aborted
        transport.unsent = size
        assert [timer.seconds for timer in clock.timers] == [15.0]
        clock.run()
    assert transport.aborted is aborted
    one.resume_writing()
    clock.run()
    assert not clock.timers
