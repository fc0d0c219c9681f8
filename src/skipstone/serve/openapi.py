"""The OpenAPI document of the JSON API; members of questions are those that are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from inspect import getdoc
from typing import Any, Final

from skipstone.serve import details
from skipstone.serve.access import Limits
from skipstone.serve.questions import MEMBERS, files_to_query

Route = tuple[str, str, Callable[..., Any]]

_ERRORS: Final = (400, 401, 403, 404, 408, 413, 429, 500, 503)
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NAME: Final = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_FLAG: Final = {"type": "boolean"}


def _object(
    properties: Mapping[str, Any], required: Iterable[str] | None = None, **more: Any
) -> dict[str, Any]:
    needed = [*(properties if required is None else required)]
    closed = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return closed | ({"required": needed} if needed else {}) | more


def _list(items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


_RANGE: Final = _object({"low": {}, "high": {}, "low_inclusive": _FLAG, "high_inclusive": _FLAG}, ())
_COLUMN: Final = _object(
    {"name": _NAME, "values": _list({}), "ranges": _list(_RANGE), "nulls": _FLAG, "nans": _FLAG}, ["name"]
)
_SCHEMAS: Final = {
    "Domain": {"oneOf": [_object({"none": {"const": True}}), _object({"columns": _list(_COLUMN)})]},
    "Error": _object({"error": _object({"message": _TEXT, "type": _TEXT, "code": {"type": "integer"}})}),
}
_TASK: Final = {
    "path": _TEXT,
    "rows": _COUNT,
    "proven": _COUNT,
    "ranges": _list(_list(_COUNT, minItems=2, maxItems=2)),
}
_FILE: Final = {
    "path": _TEXT,
    "bytes": _COUNT,
    "rows": {"type": ["integer", "null"]},
    "row_groups": {"oneOf": [_list(_COUNT), {"type": "null"}]},
    "partition": {"type": "object"},
}
_MAYBE: Final = {"type": ["string", "null"]}
_SHARE: Final = {"type": "number", "minimum": 0, "maximum": 1}
_BOUNDS: Final = {"version": _TEXT, "source": _TEXT, "files": _COUNT, "measured": _COUNT, "rows": _COUNT}
_OVERVIEW: Final = {
    **dict.fromkeys(("name", "type", "layout"), _TEXT),
    "depth": {"type": "number", "minimum": 0},
    "profile": _list(_SHARE),
    "lower": _MAYBE,
    "upper": _MAYBE,
    "unbounded": _COUNT,
    "only_null": _COUNT,
}
_BAND: Final = _object(
    {
        "file": _TEXT,
        "files": _COUNT,
        "low": _SHARE,
        "high": _SHARE,
        "lower": _MAYBE,
        "upper": _MAYBE,
        "cells": _TEXT,
        "kept": _COUNT,
    },
    ["file", "files", "low", "high", "lower", "upper"],
)
_LISTED: Final = {
    "file": _TEXT,
    **dict.fromkeys(("bytes", "rows", "proven", "more_ranges"), _COUNT),
    "of_rows": {"type": ["integer", "null"]},
    "partition": {"type": "object"},
    "kept": _FLAG,
    "ranges": _TASK["ranges"],
}
_WHY: Final = {
    **dict.fromkeys(("file", "path", "unit", "predicate", "verdict", "conclusion"), _TEXT),
    "rows": {"oneOf": [_list(_COUNT, minItems=2, maxItems=2), {"type": "null"}]},
    "ruled_out": _FLAG,
    "kept": _FLAG,
    "steps": _list({"type": "object"}, maxItems=200),
    "more_steps": _COUNT,
    "notes": _list(_TEXT),
}
_COMPACTION: Final = {
    "snapshot": _MAYBE,
    "strategy": _TEXT,
    **dict.fromkeys(("target_file_size_bytes", "min_input_files", "of_files", "matched", "files"), _COUNT),
    **dict.fromkeys(("expected_files", "bytes", "of_groups", "of_skipped"), _COUNT),
    "filter_stats": {"type": "object"},
    "groups": _list({"type": "object"}),
    "skipped": _list({"type": "object"}),
}
_ANSWERS: Final = {
    "/api/lakes": _object({"lakes": _list(_TEXT), "catalog": _FLAG}),
    "/api/plan": _object(
        {
            "version": _TEXT,
            "rows": _COUNT,
            "residual": {"type": ["string", "null"]},
            "tasks": _list(_object(_TASK)),
        }
    ),
    "/api/explain": {
        "type": "object",
        "properties": {
            "version": _TEXT,
            "files": _COUNT,
            "tasks": _COUNT,
            "rows_total": _COUNT,
            "rows_kept": _COUNT,
            "levels": _list({"type": "object"}),
        },
        "required": ["version", "files", "tasks", "rows_total", "rows_kept", "levels"],
    },
    "/api/files-to-query": _object({"version": _TEXT, "files": _list(_object(_FILE))}),
    "/api/tables": _object({"tables": _list(_TEXT)}),
    "/api/layout": _object(
        {**_BOUNDS, "columns": _list(_object(_OVERVIEW)), "of_columns": _COUNT, "unordered": _list(_TEXT)}
    ),
    "/api/spans": _object({**_BOUNDS, **_OVERVIEW, "overlap": _list(_COUNT), "bands": _list(_BAND)}),
    "/api/files": _object(
        {
            "version": _TEXT,
            "residual": _MAYBE,
            **dict.fromkeys(("of_files", "kept", "rows", "matched"), _COUNT),
            "files": _list(_object(_LISTED), maxItems=500),
        }
    ),
    "/api/why": _object(_WHY),
    "/api/snapshots": _object({"of_snapshots": _COUNT, "snapshots": _list({"type": "object"})}),
    "/api/compaction": _object(_COMPACTION),
}
_TYPES: Final[Mapping[Any, Any]] = {
    str: _TEXT,
    int: {"type": "integer"},
    int | str: {"type": ["integer", "string"]},
    bool: _FLAG,
    list: _list(_TEXT),
    dict: {"type": "object"},
}
_REQUIRED: Final[Mapping[Any, tuple[str, ...]]] = {
    files_to_query: ("domain",),
    details.spans: ("column",),
    details.why: ("file",),
}
# Questions about tables only.
_TABLES: Final = (details.snapshots, details.compaction)
_POSITIVE: Final = {"type": "integer", "minimum": 1, "maximum": 2**53 - 1}
_MEMBERS: Final = {
    "domain": {"$ref": "#/components/schemas/Domain"},
    "limit": _COUNT,
    "show": {"enum": ["all", "kept", "dropped"]},
    "start": _COUNT,
    "count": {"type": "integer", "minimum": 1, "maximum": 500},
    "min_input_files": _POSITIVE,
    "target_file_size_bytes": _POSITIVE,
    "delete_file_threshold": _POSITIVE,
}


def api_document(routes: Iterable[Route], limits: Limits, *, tokens: bool) -> dict[str, Any]:
    """The document of those routes that are below ``/api/``."""
    paths: dict[str, Any] = {}
    for method, path, handler in routes:
        if path.startswith("/api/"):
            paths.setdefault(path, {})[method.lower()] = _operation(path, handler, limits)
    security = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Skipstone", "version": version("skipstone")},
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": security},
        "security": [{"bearer": []}] if tokens else [],
    }


def _operation(path: str, handler: Callable[..., Any], limits: Limits) -> dict[str, Any]:
    ask = handler.args[0] if isinstance(handler, partial) else None
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    answers = {f"{code}": {"description": HTTPStatus(code).phrase, "content": error} for code in _ERRORS}
    answer = {"application/json": {"schema": _ANSWERS.get(path, {"type": "object"})}}
    operation = {
        "summary": (getdoc(ask or handler) or path).partition("\n")[0],
        "responses": {"200": {"description": "The answer", "content": answer}, **answers},
    }
    if ask is not None:
        question = {"application/json": {"schema": _question(ask, limits)}}
        operation["requestBody"] = {"required": True, "content": question}
    return operation


def _question(ask: Callable[..., Any], limits: Limits) -> dict[str, Any]:
    subject: dict[str, Any] = {"lake": _TEXT, "table": _TEXT}
    one: dict[str, Any] = {"oneOf": [{"required": ["lake"]}, {"required": ["table"]}]}
    if ask in _TABLES:
        subject, one = {"table": _TEXT}, {}
    members = {**MEMBERS, **details.MEMBERS}.get(ask)
    if members is None:
        return {"type": "object", "properties": subject, **one}
    for name, kind in members.items():
        subject[name] = _MEMBERS.get(name, _TYPES[kind])
    if "where" in members:
        subject["where"] = {"type": "string", "maxLength": limits.text}
        one["dependentRequired"] = {"dialect": ["where"], "tz": ["where"]}
    required = (*_REQUIRED.get(ask, ()), *(["table"] if ask in _TABLES else []))
    return _object(subject, required, **one)
