"""Iceberg's REST catalog protocol: namespaces, tables, and plans of their scans."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.exceptions import NoSuchNamespaceError

from skipstone.serve.access import Limits, Refusal, Right, bad_request, json_text, names_of
from skipstone.serve.gate import Answer, Call, refusal_of
from skipstone.serve.lakes import Lakes, Plans, StoredPlan, check_name
from skipstone.serve.records import Metrics
from skipstone.serve.tables import TablePlan, metadata_json, plan_table, read_request

_SEPARATOR: Final = "\x1f"
_NAMESPACES: Final = "/v1/namespaces"
_NAMESPACE: Final = "/v1/namespaces/{namespace}"
_TABLES: Final = f"{_NAMESPACE}/tables"
_TABLE: Final = f"{_TABLES}/{{table}}"


@dataclass(frozen=True, slots=True)
class Protocol:
    """Answers requests about a catalog."""

    lakes: Lakes
    limits: Limits
    plans: Plans
    metrics: Metrics

    def routes(self) -> list[tuple[str, str, Callable[[Call], Awaitable[Answer]]]]:
        """Method, path and handler of each endpoint."""
        return [
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

    # -- catalog -----------------------------------------------------------------------------

    async def list_namespaces(self, call: Call) -> Answer:
        """The namespaces in one, or at the top."""
        parent = tuple(filter(None, call.request.query_params.get("parent", "").split(_SEPARATOR)))
        _check_page(call)
        if parent:
            _need_sight(call, parent)
        listed = await call.run(lambda: _in_catalog(lambda: self.lakes.catalog.list_namespaces(parent)))
        return Answer({"namespaces": [list(one) for one in listed if call.caller.may_see(names_of(one))]})

    async def load_namespace(self, call: Call) -> Answer:
        """The properties of a namespace."""
        name = _namespace(call)
        _need_sight(call, name)
        properties = await call.run(
            lambda: _in_catalog(lambda: self.lakes.catalog.load_namespace_properties(name))
        )
        if call.request.method == "HEAD":
            return Answer(status=204)
        return Answer({"namespace": list(name), "properties": dict(properties)})

    async def list_tables(self, call: Call) -> Answer:
        """The tables of a namespace that the caller may read."""
        name = _namespace(call)
        _check_page(call)
        _need_sight(call, name)
        tables = await call.run(lambda: _in_catalog(lambda: self.lakes.catalog.list_tables(name)))
        readable = [one for one in tables if call.caller.may("read", names_of(one))]
        return Answer({"identifiers": [{"namespace": list(one[:-1]), "name": one[-1]} for one in readable]})

    async def load_table(self, call: Call) -> Answer:
        """The metadata of a table; without the catalog's settings, which can have credentials."""
        name = _table(call, "read")
        wanted = call.request.query_params.get("snapshots", "all")
        if wanted not in ("all", "refs"):
            raise bad_request("snapshots is not all or refs")
        whole, nulls = wanted == "all", _reads_nulls(call)

        def work() -> str | None:
            loaded = self.lakes.load(name)
            if call.request.method == "HEAD":
                return None
            location = json.dumps(loaded.metadata_location)
            metadata = metadata_json(loaded.metadata, nulls=nulls, every_snapshot=whole)
            return f'{{"metadata-location":{location},"metadata":{metadata},"config":{{}}}}'

        body = await call.run(work)
        return Answer(status=204) if body is None else Answer(body)

    # -- scan planning -----------------------------------------------------------------------

    async def submit_plan(self, call: Call) -> Answer:
        """Plan a scan; an asynchronous plan has only an id."""
        name = _table(call, "plan")
        request, nulls = await call.document(read_request), _reads_nulls(call)

        def work() -> TablePlan:
            table = self.lakes.table(name)
            self.limits.check_cost(call.values, len(table.inventory))
            made = plan_table(table, request, self.limits.page)
            made.first_page(nulls=nulls)  # errors are those of this work
            self.metrics.planned(len(made), made.of_files)
            return made

        after = 0.0 if call.prefers_async() else self.limits.submit_after
        future = call.submit(work, self.limits.seconds if after is None else self.limits.plan_seconds)
        # A client that does not wait gets an id even if the plan is done by now: no race decides.
        if after != 0.0 and await call.wait(future, self.limits.seconds if after is None else after):
            try:
                made = future.result()
            except CancelledError:
                raise call.late() from None
            stored = self.plans.add(call.caller, name, future, is_delivered=made.pages <= 1)
            return _completed(call, made, stored)
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
        error = CancelledError() if stored.work.cancelled() else stored.work.exception()
        if isinstance(error, CancelledError):
            return Answer({"status": "cancelled"})
        if error is not None:
            assert isinstance(error, Exception)
            refusal, notes = refusal_of(error)
            return Answer({"status": "failed", **refusal.body}, notes=notes)
        made = stored.work.result()
        if not await call.run(lambda: self._is_of(name, made)):
            raise Refusal(404, "NoSuchPlanIdException", "plan belongs to a table that was replaced")
        return _completed(call, made, stored)

    def _is_of(self, name: tuple[str, ...], made: TablePlan) -> bool:
        return self.lakes.load(name).metadata.table_uuid == made.table_uuid

    async def cancel_plan(self, call: Call) -> Answer:
        """Forget a plan; work that has begun ends at its next checkpoint."""
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
        except (Refusal, CancelledError):
            made = None
        number = int(page) if page.isdecimal() and len(page) < 10 else 0
        if made is None or not 0 < number < made.pages:
            raise Refusal(404, "NoSuchPlanTaskException", "plan task does not exist or has expired")

        def work() -> str:
            if not self._is_of(name, made):
                raise Refusal(404, "NoSuchPlanTaskException", "plan task belongs to a replaced table")
            return made.page(number, nulls=_reads_nulls(call))

        return Answer(await call.run(work))


def _reads_nulls(call: Call) -> bool:
    """Whether the client can read NULL as a partition value, which pyiceberg's model of a plan lacks."""
    return not call.request.headers.get("user-agent", "").startswith("PyIceberg/")


def _completed(call: Call, made: TablePlan, stored: StoredPlan) -> Answer:
    state: dict[str, Any] = {"status": "completed", "plan-id": stored.id}
    if made.pages > 1:
        state["plan-tasks"] = [f"{stored.id}.{number}" for number in range(1, made.pages)]
    # The first page is JSON already.
    first = made.first_page(nulls=_reads_nulls(call))
    body = f"{json_text(state)[:-1]},{first[1:]}"
    return Answer(body, notes={"files": len(made), "of_files": made.of_files})


def _namespace(call: Call) -> tuple[str, ...]:
    name = tuple(call.part("namespace").split(_SEPARATOR))
    check_name(name, "NoSuchNamespaceException")
    return name


def _table(call: Call, right: Right) -> tuple[str, ...]:
    name = (*_namespace(call), call.part("table"))
    call.caller.need(right, names_of(name))
    return name


def _need_sight(call: Call, namespace: tuple[str, ...]) -> None:
    """Refuse a caller without rights in a namespace, whether it exists or not."""
    name = names_of(namespace)
    if not call.caller.may_see(name):
        raise Refusal(403, "ForbiddenException", f"{call.caller.name} may not read {name}")


def _check_page(call: Call) -> None:
    """Refuse a size that no page has; lists are returned as a whole, which the protocol permits."""
    size = call.request.query_params.get("pageSize")
    if size is not None and (not size.isdecimal() or not size.isascii() or int(size[:20]) < 1):
        raise bad_request("pageSize is not a positive integer")


def _in_catalog(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except NoSuchNamespaceError:
        raise Refusal(404, "NoSuchNamespaceException", "no such namespace") from None
