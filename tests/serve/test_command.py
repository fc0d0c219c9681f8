"""``skipstone serve`` as a process, with and without TLS."""

from __future__ import annotations

import datetime
import ipaddress
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from skipstone.cli.main import app
from tests.serve._server import serving, write_tokens


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), folder / "a.parquet")
    return folder


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_the_command(lake: Path, tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.json", ana={"logs": ["read", "plan"]})
    port = free_port()
    options = ["--lake", f"logs={lake}", "--port", str(port), "--token-file", str(tokens)]
    command = [sys.executable, "-W", "error", "-m", "skipstone.cli", "serve", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == f"serving on http://127.0.0.1:{port}\n"
            headers = {"Authorization": "Bearer ana"}
            # It has said so: requests are accepted.
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False
            ) as client:
                plan = client.post("/api/plan", json={"lake": "logs", "where": "id = 2"}).json()
                assert [Path(task["path"]).name for task in plan["tasks"]] == ["a.parquet"]
        finally:
            process.send_signal(signal.SIGINT)
            log = process.stderr.read()
    assert process.returncode in (0, 130)
    assert '"route": "POST /api/plan", "status": 200' in log
    assert "Traceback" not in log


def test_a_port_in_use(lake: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["serve", "--lake", f"logs={lake}", "--port", str(port)])
    assert done.exit_code == 5
    assert f"port {port} of 127.0.0.1 is already in use" in done.stderr
    assert "serving on" not in done.stderr
    done = CliRunner().invoke(app, ["serve", "--lake", f"logs={lake}", "--host", "127.0.0.999"])
    assert done.exit_code == 5


_WITHOUT_PYICEBERG = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyiceberg":
            raise ModuleNotFoundError(f"No module named {name!r}", name="pyiceberg")
sys.meta_path.insert(0, Missing())
from skipstone.cli.start import run
run()
"""


def test_directories_without_pyiceberg(lake: Path) -> None:
    """The extra ``server`` is enough for directories; a catalog needs the other one."""
    port = free_port()
    base = [sys.executable, "-c", _WITHOUT_PYICEBERG, "serve", "--port", str(port)]
    with subprocess.Popen([*base, "--lake", f"logs={lake}"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("serving on")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                for question in ("plan", "explain", "files", "layout"):
                    answer = client.post(f"/api/{question}", json={"lake": "logs"})
                    assert answer.status_code == 200, answer.text
                assert client.get("/v1/config").json()["endpoints"] == []
                assert client.get("/api/tables").json() == {"tables": []}
                assert client.get("/api/openapi.json").status_code == 200
                assert client.post("/api/plan", json={"table": "db.t"}).status_code == 404
        finally:
            process.send_signal(signal.SIGINT)
            process.stderr.read()
    done = subprocess.run([*base, "--catalog", str(lake)], capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert "pyiceberg is not installed" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "server has nothing to serve"),
        (["--lake", "logs"], "expected KEY=VALUE"),
        (["--lake", "logs={lake}", "--host", "0.0.0.0"], "server without tokens can't listen on 0.0.0.0"),
        (["--lake", "logs={lake}", "--token-file", "{lake}/none"], "token file can't be read"),
        (["--lake", "logs={lake}", "--tls-key", "{lake}/none"], "TLS needs a certificate and a key"),
    ],
)
def test_mistakes(lake: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKIPSTONE_CATALOG", raising=False)
    done = CliRunner().invoke(app, ["serve", *(one.format(lake=lake) for one in options)])
    assert done.exit_code == (2 if "KEY" in message else 5)
    assert message in done.stderr


def test_tls(lake: Path, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "skipstone")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1))
    made = made.not_valid_after(now + datetime.timedelta(days=1)).add_extension(address, critical=False)
    cert = tmp_path / "cert.pem"
    cert.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret = tmp_path / "key.pem"
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with serving(lakes={"logs": str(lake)}, tls_cert=str(cert), tls_key=str(secret)) as running:
        trusted = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=running.uri, verify=trusted, trust_env=False) as client:
            assert client.get("/api/lakes").json() == {"lakes": ["logs"], "catalog": False}


def test_answers_are_sent_at_once() -> None:
    """Without TCP_NODELAY each answer on an open connection waits 40 ms for an acknowledgement."""
    from skipstone.serve.app import _listen

    (listening,) = _listen("127.0.0.1", 0)
    with listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            # asyncio sets the option on these only.
            assert accepted.proto == socket.IPPROTO_TCP
