"""Requests of the JSON API about a lake: its plan, the explanation of it, and the files to query."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from skipstone.core.domain.documents import from_document
from skipstone.lake.snapshot import FileEntry
from skipstone.predicate import parse, predicate
from skipstone.predicate.tree import Predicate, conjunction
from skipstone.scan.lake import Lake
from skipstone.scan.scan import Scan
from skipstone.serve.access import Limits, Refusal, bad_request

SCAN: Final = {
    "where": str,
    "dialect": str,
    "tz": str,
    "domain": dict,
    "columns": list,
    "limit": int,
    "snapshot": int | str,
}
"""Members of a question about a scan, with their types."""
FILES: Final = {"domain": dict, "columns": list}


def plan(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The rows of each file that can match, as ranges."""
    made = scan_of(lake, document).plan()
    if sum(len(task.rows.runs()[0]) for task in made.tasks) > limits.files:
        raise _too_large(limits)
    tasks = [
        {"path": task.path, "rows": len(task.rows), "proven": len(task.proven), "ranges": task.rows.ranges()}
        for task in made.tasks
    ]
    residual = None if made.residual is None else str(made.residual)
    return {"version": made.version, "rows": made.rows, "residual": residual, "tasks": tasks}


def explain(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:  # noqa: ARG001
    """What a scan skips, and why."""
    explanation: dict[str, Any] = json.loads(scan_of(lake, document).explain(format="json"))
    return explanation


def files_to_query(lake: Lake, document: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The files and row groups that can hold rows of a domain."""
    check(document, FILES)
    if "domain" not in document:
        raise bad_request("body has no domain")
    domain = from_document(document["domain"], lake.query_schema)
    files = lake.files_to_query(document.get("columns"), domain)
    if len(files) > limits.files:
        raise _too_large(limits)
    return {"version": lake.version, "files": [_entry(file) for file in files]}


def scan_of(lake: Lake, document: Mapping[str, Any]) -> Scan:
    """The scan that a question is about."""
    check(document, SCAN)
    parts = [condition(document)]
    if "domain" in document:
        parts.append(predicate(from_document(document["domain"], lake.query_schema)))
    chosen = [part for part in parts if part is not None]
    return lake.scan(
        conjunction(chosen) if chosen else None,
        document.get("columns"),
        document.get("limit"),
        snapshot=document.get("snapshot"),
    )


def condition(document: Mapping[str, Any]) -> Predicate | None:
    """The SQL condition of a question."""
    options = {name: document[name] for name in ("dialect", "tz") if name in document}
    if "where" in document:
        return parse(document["where"], **options)
    if options:
        raise bad_request("dialect and tz belong to where")
    return None


def check(document: Mapping[str, Any], members: Mapping[str, Any]) -> None:
    """Refuse a question with unknown members, or with values of a wrong type."""
    unknown = sorted(document.keys() - members.keys())
    if unknown:
        available = ", ".join(sorted(members)) or "none"
        raise bad_request(f"body has unknown members: {', '.join(unknown)} (available: {available})")
    for name, value in document.items():
        strings = not isinstance(value, list) or all(isinstance(one, str) for one in value)
        flag = isinstance(value, bool) is (members[name] is bool)
        if not isinstance(value, members[name]) or not flag or not strings:
            raise bad_request(f"{name} has the wrong type")


def _entry(file: FileEntry) -> dict[str, Any]:
    partition = {
        name: value if value is None or isinstance(value, bool | int | float | str) else str(value)
        for name, value in file.partition.items()
    }
    groups = None if file.row_groups is None else list(file.row_groups)
    return {
        "path": file.path,
        "bytes": file.size,
        "rows": file.rows,
        "row_groups": groups,
        "partition": partition,
    }


def _too_large(limits: Limits) -> Refusal:
    message = f"answer has more than {limits.files:,} files or ranges of rows; narrow the condition"
    return Refusal(413, "AnswerTooLargeException", message)


MEMBERS: Final[Mapping[Callable[..., Any], Mapping[str, Any]]] = {
    plan: SCAN,
    explain: SCAN,
    files_to_query: FILES,
}
"""The members that each question accepts beside its lake or table."""
