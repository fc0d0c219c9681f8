"""Every storage option and every variable of S3, Google Cloud and Azure has an effect on the request."""

from __future__ import annotations

import http.server
import json
import os
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from skipstone.cli.main import app
from skipstone.errors import ReadError, SkipstoneError, UsageError
from skipstone.store.options import (
    ALIASES,
    CLIENT_NAMES,
    ICEBERG_NAMES,
    RETRY_NAMES,
    STORE_NAMES,
    Kind,
    canonical_options,
    open_obstore,
    read_duration,
)
from skipstone.store.store import open_root

ROOT = Path(__file__).parents[3]
KEYS = {"access_key_id": "AK", "secret_access_key": "SK", "allow_http": "true"}
LISTING = b"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
CREDENTIALS = {
    "AccessKeyId": "ROLE",
    "SecretAccessKey": "S",
    "Token": "T",
    "Expiration": "2999-01-01T00:00:00Z",
    "Code": "Success",
}


class Request:
    """A request as the server received it."""

    def __init__(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        self.method, self.path = handler.command, handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.authorization = self.headers.get("authorization", "")


class Recorder(http.server.ThreadingHTTPServer):
    """A server that answers as S3, STS and the metadata services do, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Request] = []
        self.answer: tuple[int, bytes] | None = None
        self.url = f"http://127.0.0.1:{self.server_port}"

    def last(self) -> Request:
        return self.requests[-1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that give up close their connection


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(Request(self))
        status, body = self.server.answer or (200, self.body())
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = do_DELETE = do_GET

    def body(self) -> bytes:
        if self.path.startswith(("/creds", "/latest/meta-data/iam/security-credentials/role")):
            return json.dumps(CREDENTIALS).encode()
        if self.path.startswith("/latest"):
            return b"role"
        if self.command == "POST":
            return b"<DeleteResult/>"
        return LISTING


@pytest.fixture(scope="module")
def server() -> Iterator[Recorder]:
    server = Recorder()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Recorder) -> None:
    """No settings in the environment, and none in the home directory."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.answer = None


def ask(options: dict[str, Any], action: str = "list") -> None:
    store = open_root("s3://b/x", storage_options=options)
    if action == "list":
        store.list()
    elif action == "put":
        store.write("f", [b"1"])
    else:
        store.delete(["f"])


Check = Callable[[Request], bool]


def header(name: str, pattern: str) -> Check:
    return lambda request: re.search(pattern, request.headers.get(name, "")) is not None


def signed(pattern: str) -> Check:
    return header("authorization", pattern)


def host(request: Request) -> bool:
    return request.path.startswith("/?list-type")


UNSEEN: Check = lambda request: True  # noqa: E731  (what the server can't see; here: that the store accepts it)

# name, value, what the server sees, action
S3_CASES: dict[str, tuple[str, Check, str]] = {
    "access_key_id": ("OTHER", signed("Credential=OTHER/"), "list"),
    "secret_access_key": ("other", signed("Signature="), "list"),
    "session_token": ("TOKEN", header("x-amz-security-token", "^TOKEN$"), "list"),
    "skip_signature": ("true", lambda request: not request.authorization, "list"),
    "region": ("eu-west-7", signed("/eu-west-7/s3/"), "list"),
    "virtual_hosted_style_request": ("true", host, "list"),
    "request_payer": ("true", header("x-amz-request-payer", "requester"), "list"),
    "unsigned_payload": ("true", header("x-amz-content-sha256", "UNSIGNED"), "put"),
    "checksum_algorithm": ("sha256", header("x-amz-checksum-sha256", "."), "put"),
    "server_side_encryption": ("AES256", header("x-amz-server-side-encryption", "AES256"), "put"),
    "disable_bulk_delete": ("true", lambda request: request.method == "DELETE", "delete"),
    "conditional_put": ("etag", UNSEEN, "put"),
    "copy_if_not_exists": ("multipart", UNSEEN, "put"),
    "disable_tagging": ("true", UNSEEN, "put"),
    "imdsv1_fallback": ("true", UNSEEN, "list"),
    "user_agent": ("me/1", header("user-agent", "^me/1$"), "list"),
    "default_content_type": ("text/x", header("content-type", "^text/x$"), "put"),
    "timeout": ("9s", UNSEEN, "list"),
    "connect_timeout": ("9", UNSEEN, "list"),
    "read_timeout": ("1min 30s", UNSEEN, "list"),
    "pool_idle_timeout": ("9s", UNSEEN, "list"),
    "pool_max_idle_per_host": ("3", UNSEEN, "list"),
    "http1_only": ("true", UNSEEN, "list"),
    "http2_keep_alive_interval": ("9s", UNSEEN, "list"),
    "http2_keep_alive_timeout": ("9s", UNSEEN, "list"),
    "http2_keep_alive_while_idle": ("true", UNSEEN, "list"),
    "randomize_addresses": ("false", UNSEEN, "list"),
    "allow_invalid_certificates": ("true", UNSEEN, "list"),
    "max_retries": ("1", UNSEEN, "list"),
    "retry_timeout": ("5s", UNSEEN, "list"),
    "proxy_excludes": ("example.com", UNSEEN, "list"),
    "role_session_name": ("me", UNSEEN, "list"),
}
# Options that need others, or another server; each has its own test.
S3_ELSEWHERE = {
    *("endpoint", "profile", "allow_http", "proxy_url", "root_certificate", "proxy_ca_certificate"),
    *("http2_only", "role_arn", "web_identity_token_file", "endpoint_url_sts", "metadata_endpoint"),
    *("container_credentials_relative_uri", "container_credentials_full_uri", "s3_express"),
    *("container_authorization_token_file", "sse_kms_key_id", "sse_bucket_key_enabled"),
    "sse_customer_key_base64",
}


def test_every_option_has_a_case() -> None:
    assert S3_CASES.keys() | S3_ELSEWHERE == {*STORE_NAMES["AWS"], *CLIENT_NAMES, *RETRY_NAMES}
    assert not S3_CASES.keys() & S3_ELSEWHERE


@pytest.mark.parametrize("name", S3_CASES)
def test_an_option_and_its_variable(name: str, server: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    value, check, action = S3_CASES[name]
    base = {**KEYS, "endpoint": server.url}
    base.pop(name, None)
    ask({**base, name: value}, action)
    assert check(server.last())
    for spelling in (f"aws_{name}", f"AWS_{name.upper()}"):
        assert canonical_options({spelling: value}, "s3://b") == {name: value}
    if name == "access_key_id":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
        base.pop("secret_access_key")
    elif name in ("secret_access_key", "session_token"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
        base = {"allow_http": "true", "endpoint": server.url}
    elif name == "skip_signature":
        base = {"allow_http": "true", "endpoint": server.url}
    monkeypatch.setenv(f"AWS_{name.upper()}", value)
    ask(base, action)
    assert check(server.last())


@pytest.mark.parametrize(
    ("options", "environment", "check", "action"),
    [
        ({"endpoint_url": "URL"}, {}, signed("Credential=AK/"), "list"),
        ({"endpoint_url_s3": "URL"}, {}, signed("Credential=AK/"), "list"),
        ({}, {"AWS_ENDPOINT": "URL"}, signed("Credential=AK/"), "list"),
        ({}, {"AWS_ENDPOINT_URL": "URL"}, signed("Credential=AK/"), "list"),
        ({}, {"AWS_ENDPOINT_URL_S3": "URL"}, signed("Credential=AK/"), "list"),
        # The one of S3 before the one of all services.
        ({}, {"AWS_ENDPOINT_URL_S3": "URL", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, signed("AK/"), "list"),
        ({"endpoint": "URL"}, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, signed("AK/"), "list"),
        ({"endpoint": "URL"}, {"AWS_REGION": "a-1", "AWS_DEFAULT_REGION": "b-1"}, signed("/a-1/"), "list"),
        ({"endpoint": "URL"}, {"AWS_DEFAULT_REGION": "b-1"}, signed("/b-1/"), "list"),
        ({"endpoint": "URL", "default_region": "c-1"}, {"AWS_REGION": "a-1"}, signed("/c-1/"), "list"),
        ({"endpoint": "URL", "token": "T"}, {}, header("x-amz-security-token", "T"), "list"),
        # Keys that are passed don't go with the token or the anonymity of the environment.
        (
            {"endpoint": "URL"},
            {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "E", "AWS_SESSION_TOKEN": "T"},
            lambda request: (
                "Credential=AK/" in request.authorization and "x-amz-security-token" not in request.headers
            ),
            "list",
        ),
        ({"endpoint": "URL"}, {"AWS_SKIP_SIGNATURE": "true"}, signed("Credential=AK/"), "list"),
        # pyiceberg's names
        ({"s3.endpoint": "URL", "s3.region": "d-1"}, {}, signed("/d-1/"), "list"),
        ({"endpoint": "URL", "s3.anonymous": True}, {}, lambda request: not request.authorization, "list"),
        ({"endpoint": "URL", "s3.request-timeout": 3.5}, {}, UNSEEN, "list"),
        # Options of other stores are left out.
        ({"endpoint": "URL", "azure_storage_account_name": "x", "gcs.oauth2.token": "x"}, {}, UNSEEN, "list"),
        ({"endpoint": "URL", "region": None, "timeout": 9}, {"AWS_REGION": "a-1"}, signed("/a-1/"), "list"),
        (
            {"endpoint": "URL", "sse_kms_key_id": "id", "server_side_encryption": "aws:kms"},
            {"AWS_SSE_BUCKET_KEY_ENABLED": "true"},
            lambda request: (
                request.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "id"
                and request.headers["x-amz-server-side-encryption-bucket-key-enabled"] == "true"
            ),
            "put",
        ),
        (
            {"endpoint": "URL", "server_side_encryption": "sse-c"},
            {"AWS_SSE_CUSTOMER_KEY_BASE64": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="},
            header("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            "put",
        ),
        # A proxy receives the whole URL.
        (
            {"endpoint": "http://bucket.invalid", "proxy_url": "URL"},
            {},
            lambda request: request.path.startswith("http://bucket.invalid/b?list-type"),
            "list",
        ),
        (
            {"endpoint": "http://bucket.invalid"},
            {"AWS_PROXY_URL": "URL"},
            lambda request: request.path.startswith("http://bucket.invalid/b?list-type"),
            "list",
        ),
        (
            {"endpoint": "http://bucket.invalid"},
            {"http_proxy": "URL"},
            lambda request: request.path.startswith("http://bucket.invalid/b?list-type"),
            "list",
        ),
    ],
)
def test_names_precedence_and_proxies(
    options: dict[str, Any],
    environment: dict[str, str],
    check: Check,
    action: str,
    server: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("URL", server.url))
    given = {name: server.url if value == "URL" else value for name, value in options.items()}
    ask({**KEYS, **given}, action)
    assert check(server.last()), server.last().headers
    assert server.last().headers


@pytest.mark.parametrize("places", ["options", "environment"])
@pytest.mark.parametrize(
    "settings",
    [
        {"container_credentials_full_uri": "URL/creds", "container_authorization_token_file": "FILE"},
        {"metadata_endpoint": "URL"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_roles_that_obstore_assumes(
    settings: dict[str, str], places: str, server: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("web")
    options = {"endpoint": server.url, "allow_http": "true"}
    for name, value in settings.items():
        full = value.replace("URL", server.url).replace("FILE", str(tmp_path / "token"))
        if places == "options":
            options[name] = full
        else:
            monkeypatch.setenv(f"AWS_{name.upper()}", full)
    ask(options)
    assert "Credential=ROLE/" in server.last().authorization
    assert server.last().headers["x-amz-security-token"] == "T"


@pytest.mark.parametrize("places", ["options", "environment"])
def test_web_identity(places: str, server: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """obstore exchanges the token over HTTPS only, which this server doesn't offer."""
    (tmp_path / "token").write_text("web")
    settings = {
        "web_identity_token_file": str(tmp_path / "token"),
        "role_arn": "arn:aws:iam::1:role/r",
        "role_session_name": "me",
        "endpoint_url_sts": server.url.replace("http", "https"),
    }
    options = {"endpoint": server.url, "allow_http": "true", "max_retries": 0}
    if places == "environment":
        for name, value in settings.items():
            monkeypatch.setenv(f"AWS_{name.upper()}", value)
    with pytest.raises(ReadError, match="endpoint does not use TLS"):
        ask({**options, **(settings if places == "options" else {})})


# -- wrong values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "options", "problem", "hint"),
    [
        ("s3://b/x", {"regoin": "x"}, "unknown storage option 'regoin'", "did you mean region?"),
        ("s3://b/x", {"aws_secret_key": "x"}, "'aws_secret_key'", "did you mean secret_access_key"),
        ("s3://b/x", {"bucket": "x"}, "unknown storage option 'bucket'", "in the URI"),
        (
            "s3://b/x",
            {"account_name": "x"},
            "unknown storage option 'account_name'",
            "available: access_key_id",
        ),
        ("s3://b/x", {"azure_acount_name": "x"}, "'azure_acount_name'", "available"),
        ("gs://b/x", {"service_acount": "x"}, "'service_acount'", "did you mean service_account"),
        (
            "gs://b/x",
            {"region": "x"},
            "unknown storage option 'region'",
            "available: application_credentials",
        ),
        ("az://c/x", {"acount_key": "x"}, "'acount_key'", "did you mean account_key"),
        ("s3://b/x", {"region": "a", "aws_region": "b"}, "region and aws_region are the same", "pass one"),
        ("s3://b/x", {"allow_http": "maybe"}, "setting allow_http is not true or false", "set allow_http"),
        ("s3://b/x", {"timeout": "soon"}, "setting timeout is not a duration", "500ms, 30s or 2min"),
        ("s3://b/x", {"max_retries": "few"}, "setting max_retries is not a number", "0 for none"),
        ("s3://b/x", {"root_certificate": "/no/such.pem"}, "can't read root_certificate", "PEM file"),
        ("s3://b/x", {"access_key_id": "x"}, "Missing SecretAccessKey", "set AWS_SECRET_ACCESS_KEY"),
        ("s3://b/x", {"secret_access_key": "x"}, "Missing AccessKeyId", "set AWS_ACCESS_KEY_ID"),
        ("az://c/x", {}, "Account must be specified", "set AZURE_STORAGE_ACCOUNT_NAME"),
        ("gs://b/x", {"service_account": "/none"}, "service account file", "GOOGLE_SERVICE_ACCOUNT"),
        ("s3:///x", {}, "bucket is missing", "as in s3://bucket/path"),
        ("s3:/b/x", {}, "one slash", "use s3://b/x"),
        ("s3n://b/x", {}, "unknown URI scheme 's3n'", "use s3://"),
        ("gcs://b/x", {}, "unknown URI scheme 'gcs'", "use gs://"),
        ("ftp://b/x", {}, "unknown URI scheme 'ftp'", "use one of: file, s3, "),
    ],
)
def test_settings_that_are_refused(uri: str, options: dict[str, str], problem: str, hint: str) -> None:
    with pytest.raises((ReadError, UsageError)) as info:
        open_root(uri, storage_options=options)
    assert problem in info.value.message
    assert info.value.hint is not None
    assert hint in info.value.hint
    assert info.value.path is not None


def test_the_endpoint_of_s3_in_the_environment_is_not_preferred_in_silence(
    monkeypatch: pytest.MonkeyPatch, server: Recorder
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL_S3 would override the endpoint"):
        ask({**KEYS, "endpoint": server.url})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("2.5", 2.5), ("500ms", 0.5), ("1min 30s", 90), ("2h", 7200), (3, 3), ("90 sec", 90)],
)
def test_durations(text: Any, seconds: float) -> None:
    assert read_duration(text).total_seconds() == seconds


# -- errors name the setting ---------------------------------------------------------------------

FAILURES = [
    (404, "NoSuchBucket", "x", "bucket does not exist", "bucket name in the URI, and AWS_ENDPOINT_URL"),
    (400, "InvalidBucketName", "x", "bucket does not exist", "bucket name in the URI"),
    (
        301,
        "PermanentRedirect",
        "x",
        "bucket is in another region",
        "AWS_REGION, or region in storage_options",
    ),
    (
        400,
        "AuthorizationHeaderMalformed",
        "the region 'us-east-1' is wrong; expecting 'eu-west-1'",
        "bucket is in another region, eu-west-1",
        "AWS_REGION",
    ),
    (400, "IllegalLocationConstraintException", "x", "bucket is in another region", "AWS_REGION"),
    (403, "InvalidAccessKeyId", "x", "access key ID is unknown", "AWS_ACCESS_KEY_ID, AWS_PROFILE"),
    (403, "SignatureDoesNotMatch", "x", "secret access key does not match", "AWS_SECRET_ACCESS_KEY"),
    (400, "ExpiredToken", "x", "session token is invalid or has expired", "AWS_SESSION_TOKEN"),
    (400, "InvalidToken", "x", "session token is invalid or has expired", "AWS_SESSION_TOKEN"),
    (403, "RequestTimeTooSkewed", "x", "clock of this machine", "set the clock"),
    (403, "AccessDenied", "x", "permission denied", "AWS_PROFILE, or AWS_ACCESS_KEY_ID"),
]


@pytest.mark.parametrize(("status", "code", "text", "message", "hint"), FAILURES)
def test_an_answer_of_s3(
    status: int, code: str, text: str, message: str, hint: str, server: Recorder
) -> None:
    server.answer = (status, f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode())
    for action in ("list", "put"):
        with pytest.raises(SkipstoneError) as info:
            ask({**KEYS, "endpoint": server.url, "max_retries": 0}, action)
        assert message in info.value.message
        assert info.value.hint is not None
        assert hint in info.value.hint
        assert "Error performing" not in str(info.value)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"allow_http": "false"}, "plain HTTP is not allowed", "set AWS_ALLOW_HTTP=true, or allow_http"),
        ({"endpoint": "TLS"}, "endpoint does not use TLS", "http:// in AWS_ENDPOINT_URL"),
        (
            {"endpoint": "http://127.0.0.1:9"},
            "can't connect to http://127.0.0.1:9: connection refused",
            "AWS_ENDPOINT_URL",
        ),
        (
            {"endpoint": "http://no-such-host.invalid"},
            "can't connect to http://no-such-host.invalid",
            "AWS_ENDPOINT_URL",
        ),
        ({"proxy_url": "http://127.0.0.1:9"}, "can't connect to", "AWS_PROXY_URL"),
        ({"endpoint": "SILENT", "timeout": "0.2s"}, "no answer in time", "raise timeout and connect_timeout"),
    ],
)
def test_an_endpoint_that_can_not_be_reached(
    options: dict[str, str], message: str, hint: str, server: Recorder
) -> None:
    import socket
    import time

    silent = socket.create_server(("127.0.0.1", 0))
    places = {
        "TLS": server.url.replace("http", "https"),
        "SILENT": f"http://127.0.0.1:{silent.getsockname()[1]}",
    }
    given = {name: places.get(value, value) for name, value in options.items()}
    began = time.monotonic()
    with silent, pytest.raises(ReadError) as info:
        ask({**KEYS, "endpoint": server.url, "max_retries": "0", **given})
    assert message in info.value.message
    assert info.value.hint is not None
    assert hint in info.value.hint
    assert time.monotonic() - began < 30  # and not the three minutes that obstore waits by default


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Recorder, Path]]:
    """A server with a certificate of its own authority, and that authority's certificate."""
    folder = tmp_path_factory.mktemp("tls")
    server, context = Recorder(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority, chain = certificates(folder)
    context.load_cert_chain(chain)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.url = server.url.replace("http", "https")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server, authority
    server.shutdown()
    server.server_close()


def certificates(folder: Path) -> tuple[Path, Path]:
    """The files of an authority's certificate, and of a key and certificate for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    begin, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("ca", "127.0.0.1")]
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    extensions: list[x509.ExtensionType] = [x509.BasicConstraints(ca=True, path_length=0), address]
    made = [
        x509.CertificateBuilder(names[0], name, key.public_key(), n + 1, begin, end)
        .add_extension(extension, critical=n == 0)
        .sign(keys[0], SHA256())
        .public_bytes(Encoding.PEM)
        for n, (name, key, extension) in enumerate(zip(names, keys, extensions, strict=True))
    ]
    key = keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "ca.pem").write_bytes(made[0])
    (folder / "chain.pem").write_bytes(key + made[1])
    return folder / "ca.pem", folder / "chain.pem"


def test_certificates(tls: tuple[Recorder, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    server, authority = tls
    options = {**KEYS, "endpoint": server.url, "max_retries": 0}
    with pytest.raises(ReadError, match=r"TLS certificate .* not trusted \(UnknownIssuer\)") as info:
        ask(options)
    assert "root_certificate in storage_options, or AWS_CA_BUNDLE," in str(info.value.hint)
    for trust in (str(authority), authority.read_text()):
        ask({**options, "root_certificate": trust})
    ask({**options, "allow_invalid_certificates": True})
    with monkeypatch.context() as patch:
        patch.setenv("AWS_CA_BUNDLE", str(authority))
        ask(options)
        assert len(server.requests) == 4
    with pytest.raises(UsageError, match="can't read root_certificate: No such file"):
        ask({**options, "ca_bundle": f"{authority}.gone"})


# -- Google Cloud and Azure: names, and what obstore makes of them -------------------------------

SERVICE_ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "private_key": "",
        "private_key_id": "",
        "client_email": "me@x",
        "disable_oauth": True,
    }
)
USER = json.dumps({"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t"})
OTHER_CASES: dict[Kind, tuple[str, dict[str, str], dict[str, str]]] = {
    "GOOGLE": (
        "gs://b",
        {},
        {
            "application_credentials": "USER",
            "service_account": "FILE",
            "service_account_key": SERVICE_ACCOUNT,
            "bearer_token": "T",
            "skip_signature": "true",
            "base_url": "http://127.0.0.1:9",
        },
    ),
    "AZURE": (
        "az://c",
        {"account_name": "me"},
        {
            "account_name": "other",
            "account_key": "a2V5",
            "sas_key": "?sv=1&sig=x",
            "token": "T",
            "skip_signature": "true",
            "use_azure_cli": "true",
            "tenant_id": "t",
            "client_id": "c",
            "client_secret": "s",
            "authority_host": "https://login.example",
            "federated_token_file": "FILE",
            "msi_endpoint": "http://127.0.0.1:9",
            "object_id": "o",
            "msi_resource_id": "r",
            "endpoint": "http://127.0.0.1:9",
            "use_emulator": "true",
            "use_fabric_endpoint": "false",
            "encryption_key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
            "disable_tagging": "true",
            "fabric_token_service_url": "http://x",
            "fabric_workload_host": "x",
            "fabric_session_token": "x",
            "fabric_cluster_identifier": "x",
        },
    ),
}
# Needs the other settings of its kind of credential.
NOT_ALONE = {"credential_type"}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("GOOGLE", "AZURE") for name in STORE_NAMES[kind]]
)
def test_an_option_of_other_stores(kind: Kind, name: str, tmp_path: Path) -> None:
    base, needed, values = OTHER_CASES[kind]
    if name in NOT_ALONE:
        return
    (tmp_path / "FILE").write_text(SERVICE_ACCOUNT)
    (tmp_path / "USER").write_text(USER)
    value = str(tmp_path / values[name]) if values[name] in ("FILE", "USER") else values[name]
    prefix = {"GOOGLE": "google_", "AZURE": "azure_"}[kind]
    names = [name, *(other for other, own in ALIASES[kind].items() if own == name)]
    for spelling in (*names, *(f"{prefix}{other}" for other in names), f"{prefix}{name}".upper()):
        assert canonical_options({spelling: value}, base) == {name: value}
    store = open_obstore(base, {**{n: v for n, v in needed.items() if n != name}, name: value}, base)
    assert store.config[name] == value


@pytest.mark.parametrize(
    ("base", "variables"),
    [
        ("az://c", {"AZURE_STORAGE_ACCOUNT_NAME": "me"}),
        ("azure://c", {"AZURE_STORAGE_ACCOUNT_NAME": "me", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=x"}),
        ("abfs://c", {"AZURE_STORAGE_ACCOUNT_NAME": "me", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}),
        ("abfss://c@me.dfs.core.windows.net", {}),
        ("gs://b", {"GOOGLE_SKIP_SIGNATURE": "true"}),
    ],
)
def test_uris_of_other_stores(base: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    open_obstore(base, None, base)


def test_google_reaches_its_endpoint(server: Recorder) -> None:
    options = {"base_url": server.url, "bearer_token": "T", "allow_http": "true"}
    open_root("gs://b/x", storage_options=options).list()
    assert server.last().authorization == "Bearer T"
    server.answer = (401, b"{}")
    with pytest.raises(ReadError, match=r"permission denied \(set GOOGLE_APPLICATION_CREDENTIALS"):
        open_root("gs://b/x", storage_options=options).list()


def test_azure_reaches_its_endpoint(server: Recorder) -> None:
    server.answer = (200, b"<EnumerationResults><Blobs></Blobs><NextMarker/></EnumerationResults>")
    options = {"endpoint": server.url, "account_name": "me", "sas_token": "sv=1&sig=x", "allow_http": "true"}
    open_root("az://c/x", storage_options=options).list()
    assert "sig=x" in server.last().path
    server.answer = (404, b"<Error><Code>ContainerNotFound</Code></Error>")
    with pytest.raises(ReadError, match=r"bucket does not exist .*AZURE_STORAGE_ACCOUNT_NAME"):
        open_root("az://c/x", storage_options=options).list()


def test_pyiceberg_names_are_options() -> None:
    for theirs, (kind, ours) in ICEBERG_NAMES.items():
        uri = {"AWS": "s3://b", "GOOGLE": "gs://b", "AZURE": "az://c"}[kind or "AWS"]
        value = "http://x" if ours in ("endpoint", "base_url") else "9" if "timeout" in ours else "true"
        assert canonical_options({theirs: value}, uri) == {ours: value}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["regoin=x"], "error: s3://b/x: unknown storage option 'regoin'; hint: did you mean region?"),
        (
            ["endpoint=http://127.0.0.1:9"],
            "hint: set AWS_ALLOW_HTTP=true, or allow_http with --storage-option,",
        ),
        (["metadata_endpoint=http://127.0.0.1:9"], "AWS_SECRET_ACCESS_KEY, or pass --storage-option\n"),
    ],
)
def test_commands_say_it_in_their_words(options: list[str], line: str) -> None:
    keys = [f"{name}=x" for name in ("access_key_id", "secret_access_key") if "metadata" not in options[0]]
    passed = [word for option in (*options, *keys, "max_retries=0") for word in ("--storage-option", option)]
    assert line in CliRunner().invoke(app, ["count", "s3://b/x", *passed]).output


# -- documentation -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "page"), [("AWS", "s3"), ("GOOGLE", "gcs"), ("AZURE", "azure")])
def test_every_setting_is_documented(kind: Kind, page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    missing = [name for name in (*STORE_NAMES[kind], *ALIASES[kind]) if f"`{name}`" not in text]
    assert not missing
    client = (ROOT / "docs" / "s3.md").read_text()
    assert not [name for name in (*CLIENT_NAMES, *RETRY_NAMES) if f"`{name}`" not in client]
    assert not [name for name, (own, _) in ICEBERG_NAMES.items() if own == kind and f"`{name}`" not in text]
