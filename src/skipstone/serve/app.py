"""The server's routes: Iceberg's REST catalog protocol under ``/v1``, and a JSON API under ``/api``."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from skipstone.errors import UsageError
from skipstone.serve import details
from skipstone.serve.access import Limits, RateLimit, Refusal, Right, Tokens, is_loopback, json_text
from skipstone.serve.gate import Answer, Call, Gate
from skipstone.serve.lakes import Lakes, Plans
from skipstone.serve.openapi import api_document
from skipstone.serve.page import page_routes
from skipstone.serve.questions import explain, files_to_query, plan
from skipstone.serve.records import Log, Metrics
from skipstone.serve.workers import Workers

if TYPE_CHECKING:
    import uvicorn

Endpoint: TypeAlias = tuple[str, str, Callable[[Call], Awaitable[Answer]]]


class Planner:
    """Answers requests from lakes, tables and stored plans."""

    def __init__(self, lakes: Lakes, tokens: Tokens, limits: Limits, log: Log, rate: RateLimit) -> None:
        self.lakes, self.limits = lakes, limits
        self.plans, self.workers = Plans(limits), Workers(limits, shared=tokens.required)
        self.metrics = Metrics(lambda: len(self.plans))
        self.gate = Gate(tokens, rate, limits, self.workers, log, self.metrics)

    def app(self) -> Starlette:
        """The application."""
        protocol, config = self._protocol()

        async def configure(_: Call) -> Answer:
            return Answer(config)

        own: list[Endpoint] = [
            ("GET", "/v1/config", configure),
            ("GET", "/api/lakes", self.list_lakes),
            ("POST", "/api/plan", partial(self.answer, plan)),
            ("POST", "/api/explain", partial(self.answer, explain)),
            ("POST", "/api/files-to-query", partial(self.answer, files_to_query)),
            ("GET", "/api/tables", self.list_all_tables),
            ("POST", "/api/layout", partial(self.answer, details.layout)),
            ("POST", "/api/spans", partial(self.answer, details.spans)),
            ("POST", "/api/files", partial(self.answer, details.files)),
            ("POST", "/api/why", partial(self.answer, details.why)),
            ("POST", "/api/snapshots", partial(self.answer, details.snapshots, right="read")),
            ("POST", "/api/compaction", partial(self.answer, details.compaction)),
            ("GET", "/metrics", self.show_metrics),
        ]

        async def describe(_: Call) -> Answer:
            """This document."""
            return Answer(document)

        own.append(("GET", "/api/openapi.json", describe))
        document = api_document(own, self.limits, tokens=self.gate.tokens.required)
        routes = [self._route(*one) for one in (*own, *protocol)]
        public = [("GET", "/health", _healthy), *page_routes()]
        routes += [self._route(*one, public=True) for one in public]
        # A failure that no route handles has the protocol's form as well.
        app = Starlette(routes=routes, exception_handlers={HTTPException: self.gate.unrouted})
        # A redirect would repeat the host that a client made up.
        app.router.redirect_slashes = False
        return app

    def _protocol(self) -> tuple[list[Endpoint], dict[str, Any]]:
        """The endpoints of the catalog, and what clients are told of them."""
        if not self.lakes.has_catalog:
            return [], {"defaults": {}, "overrides": {}, "endpoints": []}
        # A server of directories runs without pyiceberg.
        from skipstone.serve.protocol import Protocol

        routes = Protocol(self.lakes, self.limits, self.plans, self.metrics).routes()
        # Clients compare the text of endpoints, whose paths have a prefix, which this server does not have.
        endpoints = [
            f"{method} {path.replace('/v1/', '/v1/{prefix}/', 1).replace('{plan}', '{plan-id}')}"
            for method, path, _ in routes
        ]
        # Clients that can plan on the server do, unless they are configured otherwise.
        defaults = {"scan-planning-mode": "server"}
        return routes, {"defaults": defaults, "overrides": {}, "endpoints": endpoints}

    def _route(
        self, method: str, path: str, handler: Callable[[Call], Any], *, public: bool = False
    ) -> Route:
        endpoint = self.gate.endpoint(f"{method} {path}", handler, public=public)
        route = Route(path, endpoint, methods=[method])
        route.methods = {method}  # Starlette adds HEAD to GET
        return route

    # -- the JSON API ------------------------------------------------------------------------

    async def list_lakes(self, call: Call) -> Answer:
        """Directories, and whether there are tables."""
        named = [name for name in sorted(self.lakes.directories) if call.caller.may("read", name)]
        return Answer({"lakes": named, "catalog": self.lakes.has_catalog})

    async def list_all_tables(self, call: Call) -> Answer:
        """The tables of all namespaces that the caller may read, up to the limit of files."""

        if not self.lakes.has_catalog:
            return Answer({"tables": []})
        from skipstone.tables import Catalog

        def work() -> list[str]:
            named = Catalog(self.lakes.catalog).tables()
            return [name for name in named if call.caller.may("read", name)][: self.limits.files]

        return Answer({"tables": await call.run(work)})

    async def answer(self, ask: Callable[..., dict[str, Any]], call: Call, right: Right = "plan") -> Answer:
        """Answer a question about a directory or a table."""
        document: Any = await call.document()
        if not isinstance(document, dict):
            raise Refusal(400, "BadRequestException", "body is not a JSON object")
        given = {kind: document.pop(kind) for kind in ("lake", "table") if kind in document}
        if len(given) != 1 or not isinstance(name := next(iter(given.values())), str):
            raise Refusal(400, "BadRequestException", "body must name either a lake or a table")
        call.caller.need(right, name)

        def work() -> str:
            open_lake = self.lakes.directory if "lake" in given else self.lakes.named_table
            lake = open_lake(name)
            self.limits.check_cost(call.values, len(lake.pinned.entries))
            return json_text(ask(lake, document, self.limits))

        return Answer(await call.run(work), notes=given)

    async def show_metrics(self, _: Call) -> Answer:
        """Metrics for Prometheus."""
        return Answer(self.metrics.text(), media_type="text/plain; version=0.0.4")


async def _healthy(_: Call) -> Answer:
    return Answer({"status": "ok"})


# -- the server --------------------------------------------------------------------------------


def make_server(
    catalog: Any = None,
    directories: Mapping[str, str] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8181,
    token_file: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    limits: Limits | None = None,
    stay_below_root: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    log: Log | None = None,
) -> uvicorn.Server:
    """A server that is ready to run; raises for settings that are not safe.

    Args:
        catalog: A pyiceberg catalog.
        directories: Directories of Parquet files by name.
        host: The address to listen on; without tokens only one of this machine.
        port: The port; 0 for any.
        token_file: The file of tokens and their rights.
        tls_cert: The certificate chain, in PEM.
        tls_key: Its key.
        limits: Limits of requests.
        stay_below_root: Whether links and tables may not lead out of the directories.
        storage_options: Options of object stores.
        log: Where requests are logged; standard error by default.
    """
    import uvicorn

    from skipstone.serve.connection import Connection

    if catalog is None and not directories:
        raise UsageError("server has nothing to serve", hint="use --catalog or --lake NAME=PATH")
    if token_file is None and not is_loopback(host):
        hint = "use --token-file, or --host 127.0.0.1"
        raise UsageError(f"server without tokens can't listen on {host}", hint=hint)
    if (tls_cert is None) is not (tls_key is None):
        raise UsageError("TLS needs a certificate and a key", hint="use --tls-cert and --tls-key together")
    chosen = limits or Limits()
    tokens = Tokens() if token_file is None else Tokens.read(token_file)
    lakes = Lakes(
        catalog, directories or {}, chosen, stay_below_root=stay_below_root, storage_options=storage_options
    )
    planner = Planner(lakes, tokens, chosen, log or Log(), RateLimit(chosen.rate))

    class Limited(Connection):
        limits = chosen

    config = uvicorn.Config(
        planner.app(),
        http=Limited,
        ws="none",
        host=host,
        port=port,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        access_log=False,
        log_level="error",
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"certificate or key can't be read: {error}", path=tls_cert) from None
    return uvicorn.Server(config)


def run(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    """Serve until the process is interrupted; ``ready`` is called once requests are accepted."""
    sockets = _listen(server.config.host, server.config.port)
    start = server.startup

    async def startup(sockets: list[socket.socket] | None = None) -> None:
        await start(sockets)
        if server.started:
            ready()

    server.startup = startup  # type: ignore[method-assign]
    server.run(sockets)


def _listen(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host; raises if one is in use, or none can be opened."""
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            try:
                made = socket.create_server(address[:2], family=family, backlog=2048)
                # asyncio turns Nagle's algorithm off, which delays answers by 40 ms, only where TCP is named.
                sockets.append(socket.socket(family, made.type, socket.IPPROTO_TCP, made.detach()))
            except OSError as error:
                # A name can have an IPv6 address on a machine without it.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
        if missing is not None and not sockets:
            raise missing
    except OSError as error:
        for opened in sockets:
            opened.close()
        if error.errno == errno.EADDRINUSE:
            hint = "stop the program that uses it, or use --port N"
            raise UsageError(f"port {port} of {host} is already in use", hint=hint) from None
        hint = "use another --host or --port"
        raise UsageError(f"server can't listen on {host}, port {port}: {error.strerror}", hint=hint) from None
    return sockets
