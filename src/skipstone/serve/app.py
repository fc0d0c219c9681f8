"""The server's routes: Iceberg's REST catalog protocol under ``/v1``, and a JSON API under ``/api``."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import NoSuchNamespaceError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from skipstone.errors import UsageError
from skipstone.serve import details
from skipstone.serve.access import (
    Limits,
    RateLimit,
    Refusal,
    Right,
    Tokens,
    is_loopback,
    json_text,
    names_of,
)
from skipstone.serve.gate import Answer, Call, Gate, Workers, refusal_of, response_of
from skipstone.serve.lakes import Lakes, Plans, StoredPlan, check_name
from skipstone.serve.openapi import api_document
from skipstone.serve.page import page_routes
from skipstone.serve.questions import explain, files_to_query, plan
from skipstone.serve.records import Log, Metrics
from skipstone.serve.tables import TablePlan, plan_table, read_request
from skipstone.tables import Catalog

if TYPE_CHECKING:
    import uvicorn

_SEPARATOR: Final = "\x1f"
_NAMESPACES: Final = "/v1/namespaces"
_NAMESPACE: Final = "/v1/namespaces/{namespace}"
_TABLES: Final = f"{_NAMESPACE}/tables"
_TABLE: Final = f"{_TABLES}/{{table}}"


class Planner:
    """Answers requests from lakes, tables and stored plans."""

    def __init__(self, lakes: Lakes, tokens: Tokens, limits: Limits, log: Log, rate: RateLimit) -> None:
        self.lakes, self.limits = lakes, limits
        self.plans, self.workers = Plans(limits), Workers(limits)
        self.metrics = Metrics(lambda: len(self.plans))
        self.gate = Gate(tokens, rate, limits, self.workers, log, self.metrics)

    def app(self) -> Starlette:
        """The application."""
        protocol: list[tuple[str, str, Callable[[Call], Any]]] = [
            ("GET", _NAMESPACES, self.list_namespaces),
            ("GET", _NAMESPACE, self.load_namespace),
            ("HEAD", _NAMESPACE, self.load_namespace),
            ("GET", _TABLES, self.list_tables),
            ("HEAD", _TABLE, self.load_table),
            ("GET", _TABLE, self.load_table),
            ("POST", f"{_TABLE}/plan", self.submit_plan),
            ("GET", f"{_TABLE}/plan/{{plan}}", self.fetch_plan),
            ("DELETE", f"{_TABLE}/plan/{{plan}}", self.cancel_plan),
            ("POST", f"{_TABLE}/tasks", self.fetch_tasks),
        ]
        # Clients know paths with a prefix, which this server does not have.
        endpoints = [f"{method} {path.replace('/v1/', '/v1/{prefix}/', 1)}" for method, path, _ in protocol]
        # Clients that can plan on the server do, unless they are configured otherwise.
        defaults = {"scan-planning-mode": "server"}
        config = {"defaults": defaults, "overrides": {}, "endpoints": endpoints}

        async def configure(_: Call) -> Answer:
            return Answer(config)

        own: list[tuple[str, str, Callable[[Call], Any]]] = [
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
        return Starlette(routes=routes, exception_handlers={HTTPException: _unrouted})

    def _route(
        self, method: str, path: str, handler: Callable[[Call], Any], *, public: bool = False
    ) -> Route:
        endpoint = self.gate.endpoint(f"{method} {path}", handler, public=public)
        route = Route(path, endpoint, methods=[method])
        route.methods = {method}  # Starlette adds HEAD to GET
        return route

    # -- catalog -----------------------------------------------------------------------------

    async def list_namespaces(self, call: Call) -> Answer:
        """The namespaces in one, or at the top."""
        parent = tuple(filter(None, call.request.query_params.get("parent", "").split(_SEPARATOR)))
        listed = await call.run(lambda: _in_catalog(lambda: self.lakes.catalog.list_namespaces(parent)))
        return Answer({"namespaces": [list(one) for one in listed if call.caller.may_see(names_of(one))]})

    async def load_namespace(self, call: Call) -> Answer:
        """The properties of a namespace."""
        name = _namespace(call)
        if not call.caller.may_see(names_of(name)):
            raise Refusal(403, "ForbiddenException", f"{call.caller.name} may not read {names_of(name)}")
        properties = await call.run(
            lambda: _in_catalog(lambda: self.lakes.catalog.load_namespace_properties(name))
        )
        if call.request.method == "HEAD":
            return Answer(status=204)
        return Answer({"namespace": list(name), "properties": dict(properties)})

    async def list_tables(self, call: Call) -> Answer:
        """The tables of a namespace that the caller may read."""
        name = _namespace(call)
        tables = await call.run(lambda: _in_catalog(lambda: self.lakes.catalog.list_tables(name)))
        readable = [one for one in tables if call.caller.may("read", names_of(one))]
        return Answer({"identifiers": [{"namespace": list(one[:-1]), "name": one[-1]} for one in readable]})

    async def load_table(self, call: Call) -> Answer:
        """The metadata of a table; without the catalog's settings, which can have credentials."""
        name = _table(call, "read")
        loaded = await call.run(lambda: self.lakes.load(name))
        if call.request.method == "HEAD":
            return Answer(status=204)
        location = json.dumps(loaded.metadata_location)
        metadata = loaded.metadata.model_dump_json()
        return Answer(f'{{"metadata-location":{location},"metadata":{metadata},"config":{{}}}}')

    # -- scan planning -----------------------------------------------------------------------

    async def submit_plan(self, call: Call) -> Answer:
        """Plan a scan; an asynchronous plan has only an id."""
        name = _table(call, "plan")
        request = await call.document(read_request)

        def work() -> TablePlan:
            made = plan_table(self.lakes.table(name), request, self.limits.page)
            self.metrics.planned(len(made), made.of_files)
            return made

        future = self.workers.submit(work)
        after = 0.0 if call.prefers_async() else self.limits.submit_after
        # A client that does not wait gets an id even if the plan is done by now: no race decides.
        if after != 0.0 and await call.wait(future, self.limits.seconds if after is None else after):
            made = future.result()
            stored = self.plans.add(call.caller, name, future) if made.pages > 1 else None
            return _completed(made, stored)
        if after is None:
            future.cancel()
            raise call.late()
        stored = self.plans.add(call.caller, name, future)
        notes = {"table": names_of(name)}
        return Answer({"status": "submitted", "plan-id": stored.id}, notes=notes)

    async def fetch_plan(self, call: Call) -> Answer:
        """The state of an asynchronous plan, or its first page."""
        name = _table(call, "plan")
        stored = self.plans.get(call.caller, name, call.part("plan"))
        if not stored.work.done():
            return Answer({"status": "submitted", "plan-id": stored.id})
        if stored.work.cancelled():
            return Answer({"status": "cancelled"})
        error = stored.work.exception()
        if error is not None:
            assert isinstance(error, Exception)
            refusal, notes = refusal_of(error)
            return Answer({"status": "failed", **refusal.body}, notes=notes)
        made = stored.work.result()
        if not await call.run(lambda: self._is_of(name, made)):
            raise Refusal(404, "NoSuchPlanIdException", "plan belongs to a table that was replaced")
        return _completed(made, stored)

    def _is_of(self, name: tuple[str, ...], made: TablePlan) -> bool:
        return self.lakes.load(name).metadata.table_uuid == made.table_uuid

    async def cancel_plan(self, call: Call) -> Answer:
        """Forget a plan; work that has begun is finished and dropped."""
        self.plans.drop(self.plans.get(call.caller, _table(call, "plan"), call.part("plan")))
        return Answer(status=204)

    async def fetch_tasks(self, call: Call) -> Answer:
        """A further page of a plan."""
        name = _table(call, "plan")
        document: Any = await call.document()
        token = document.get("plan-task") if isinstance(document, dict) else None
        plan_id, _, page = token.rpartition(".") if isinstance(token, str) else ("", "", "")
        try:
            stored = self.plans.get(call.caller, name, plan_id)
            made = stored.work.result(timeout=0) if stored.work.done() else None
        except Refusal:
            made = None
        number = int(page) if page.isdecimal() and len(page) < 10 else 0
        if made is None or not 0 < number < made.pages:
            raise Refusal(404, "NoSuchPlanTaskException", "plan task does not exist or has expired")

        def work() -> str:
            if not self._is_of(name, made):
                raise Refusal(404, "NoSuchPlanTaskException", "plan task belongs to a replaced table")
            return made.page(number)

        return Answer(await call.run(work))

    # -- the JSON API ------------------------------------------------------------------------

    async def list_lakes(self, call: Call) -> Answer:
        """Directories, and whether there are tables."""
        named = [name for name in sorted(self.lakes.directories) if call.caller.may("read", name)]
        return Answer({"lakes": named, "catalog": self.lakes.has_catalog})

    async def list_all_tables(self, call: Call) -> Answer:
        """The tables of all namespaces that the caller may read, up to the limit of files."""

        def work() -> list[str]:
            named = Catalog(self.lakes.catalog).tables() if self.lakes.has_catalog else []
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
            return json_text(ask(open_lake(name), document, self.limits))

        return Answer(await call.run(work), notes=given)

    async def show_metrics(self, _: Call) -> Answer:
        """Metrics for Prometheus."""
        return Answer(self.metrics.text(), media_type="text/plain; version=0.0.4")


def _completed(made: TablePlan, stored: StoredPlan | None) -> Answer:
    state: dict[str, Any] = {"status": "completed"}
    if stored is not None:
        tasks = [f"{stored.id}.{number}" for number in range(1, made.pages)]
        state |= {"plan-id": stored.id, "plan-tasks": tasks}
    # The first page is JSON already.
    body = f"{json_text(state)[:-1]},{made.first[1:]}"
    return Answer(body, notes={"files": len(made), "of_files": made.of_files})


async def _healthy(_: Call) -> Answer:
    return Answer({"status": "ok"})


async def _unrouted(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = {404: "NoSuchEndpointException", 405: "UnsupportedOperationException"}.get(error.status_code)
    refusal = Refusal(error.status_code, kind or "BadRequestException", "no such endpoint or method")
    near = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    allowed = sorted(method for route in near for method in route.methods)
    headers = {"Allow": ", ".join(allowed)} if allowed else {}
    return response_of(Answer(refusal.body, error.status_code, headers=headers))


def _namespace(call: Call) -> tuple[str, ...]:
    name = tuple(call.part("namespace").split(_SEPARATOR))
    check_name(name, "NoSuchNamespaceException")
    return name


def _table(call: Call, right: Any) -> tuple[str, ...]:
    name = (*_namespace(call), call.part("table"))
    call.caller.need(right, names_of(name))
    return name


def _in_catalog(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except NoSuchNamespaceError:
        raise Refusal(404, "NoSuchNamespaceException", "no such namespace") from None


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
