"""The OpenAPI document of the JSON API; members of questions are those that are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from inspect import getdoc
from typing import Any, Final

from skipstone import __version__
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
}
_TYPES: Final[Mapping[Any, Any]] = {
    str: _TEXT,
    int: {"type": "integer"},
    int | str: {"type": ["integer", "string"]},
    bool: _FLAG,
    list: _list(_TEXT),
    dict: {"type": "object"},
}
_REQUIRED: Final[Mapping[Any, tuple[str, ...]]] = {files_to_query: ("domain",)}
_MEMBERS: Final = {"domain": {"$ref": "#/components/schemas/Domain"}, "limit": _COUNT}


def api_document(routes: Iterable[Route], limits: Limits, *, tokens: bool) -> dict[str, Any]:
    """The document of those routes that are below ``/api/``."""
    paths: dict[str, Any] = {}
    for method, path, handler in routes:
        if path.startswith("/api/"):
            paths.setdefault(path, {})[method.lower()] = _operation(path, handler, limits)
    security = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Skipstone", "version": __version__},
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
    members = MEMBERS.get(ask)
    if members is None:
        return {"type": "object", "properties": subject, **one}
    for name, kind in members.items():
        subject[name] = _MEMBERS.get(name, _TYPES[kind])
    if "where" in members:
        subject["where"] = {"type": "string", "maxLength": limits.text}
        one["dependentRequired"] = {"dialect": ["where"], "tz": ["where"]}
    return _object(subject, _REQUIRED.get(ask, ()), **one)
