"""The types that a user's tools see: a client program for mypy, and completion for editors."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import jedi
import pytest

import skipstone as sk
from skipstone.parquet.write.layout import PageLayout

PACKAGE = Path(sk.__file__).parent
CLIENT = Path(__file__).with_name("client.py")
ROOT = Path(__file__).parents[2]


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_a_client_program_is_checked() -> None:
    """By ``make types``: each ``assert_type`` holds, each mistake is an error, as is an unused ignore."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert tuple(ROOT / name for name in settings["files"]) == (ROOT / "src" / "skipstone", CLIENT)
    assert settings["strict"]
    assert not settings.keys() & {"exclude", "warn_unused_ignores", "disable_error_code", "ignore_errors"}
    assert all("client" not in one["module"] for one in settings["overrides"])
    source = CLIENT.read_text()
    assert source.count("assert_type(") > 40
    assert source.count("# type: ignore[") > 15


ENGINE = {"engine", "master", "remote", "conf", "threads"}
LAYOUT = {field.name for field in fields(PageLayout)}
SCAN = {field.name for field in fields(sk.ScanOptions)}
CALLS = {
    "sk.open(": {"catalog", "snapshot", "storage_options", "store", "schema", "retry", "index_root"},
    "lake.scan(": {"where", "columns", "limit", "order_by", "snapshot", "options", *SCAN},
    "lake.index.build(": {
        "columns",
        "blooms",
        "pages",
        "values",
        "sums",
        "ids",
        "rebuild",
        "progress",
        *ENGINE,
    },
    "lake.scan('a = 1').aggregate(": {"group_by", "within", "without", "id_column", "use_cached", *ENGINE},
    "lake.scan().explain(": {"analyze", "format", "session", "route"},
    "sk.ingest(": {"data", "path", "catalog", "mode", "where", "evolve", "session", "queries", *LAYOUT},
    "sk.ingest_new(": {"source", "path", "format", "schema", "batch_bytes", *LAYOUT},
    "sk.prune(": {"source", "predicate", *(field.name for field in fields(sk.PruneOptions))},
    "sk.catalog('w').create_table(": {"name", "schema", "partition_by", "sort_by", "location", "properties"},
}


@pytest.fixture(scope="module")
def project() -> jedi.Project:
    return jedi.Project(str(PACKAGE.parent), added_sys_path=[str(PACKAGE.parent)])


@pytest.mark.parametrize("call", CALLS)
def test_an_editor_completes_every_option(call: str, project: jedi.Project) -> None:
    code = f'import skipstone as sk\nlake = sk.open("events")\n{call}'
    completions = {item.name for item in jedi.Script(code, project=project).complete()}
    assert {f"{name}=" for name in CALLS[call]} <= completions


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("sk.", set(sk.__all__)),
        ("lake.", {"scan", "schema", "files", "statistics", "index", "refresh"}),
        ("lake.scan().", {"plan", "explain", "to_arrow", "to_polars", "count", "aggregate", "verify"}),
        ("lake.scan().plan().", {"why", "with_columns", "trace", "tasks", "rows"}),
        ("sk.parse('a = 1').", {"to_sql", "to_arrow", "to_domain", "is_true"}),
    ],
)
def test_an_editor_completes_names(prefix: str, names: set[str], project: jedi.Project) -> None:
    code = f'import skipstone as sk\nlake = sk.open("events")\n{prefix}'
    completions = {item.name for item in jedi.Script(code, project=project).complete()}
    assert names <= completions


def test_an_editor_shows_types_and_defaults(project: jedi.Project) -> None:
    code = 'import skipstone as sk\nsk.open("events").scan('
    (signature,) = jedi.Script(code, project=project).get_signatures()
    shown = {parameter.name: parameter.to_string() for parameter in signature.params}
    assert shown["where"] == "where: PredicateLike=None"
    assert shown["threads"] == "threads: int | None=None"
