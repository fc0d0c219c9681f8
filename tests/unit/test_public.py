"""The public surface: names, laziness, and what importing costs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

import skipstone as sk
from skipstone import api, errors
from skipstone import typing as sk_typing
from skipstone.compact.options import JobOrder, Strategy
from skipstone.parquet.write.layout import CLUSTERS, CODECS
from skipstone.predicate.sql.types import DIALECTS
from skipstone.spark.routes import Route
from skipstone.write.sources import FORMATS

HEAVY = ("pyspark", "pyiceberg", "polars", "duckdb", "datafusion", "sqlglot", "obstore", "typer", "rich")


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    ).stdout.strip()


def test_all_is_sorted_and_complete() -> None:
    assert sk.__all__ == sorted(sk.__all__)
    assert all(hasattr(sk, name) for name in sk.__all__)
    assert set(sk.__all__) <= set(dir(sk))
    assert run("from skipstone import *; print(prune.__name__)") == "prune"


def test_importing_is_light() -> None:
    loaded = run("import skipstone, sys; print(*sys.modules)").split()
    assert not set(HEAVY) & set(loaded)
    assert "skipstone.api" not in loaded


def test_pruning_loads_no_engine_and_no_sql_parser() -> None:
    code = "import skipstone as sk, sys; sk.prune; sk.col('a') == 1; print(*sys.modules)"
    assert not set(HEAVY) & set(run(code).split())


def test_functions_are_not_shadowed_by_packages() -> None:
    code = (
        "import skipstone.predicate.tree, skipstone.prune.pruner, skipstone.spark.routes, skipstone as sk;"
        "print(callable(sk.predicate), callable(sk.prune), callable(sk.spark))"
    )
    assert run(code) == "True True True"


def test_unknown_names() -> None:
    assert not hasattr(sk, "no_such_name")


def test_all_errors_are_exported() -> None:
    assert set(errors.__all__) <= set(sk.__all__)
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    assert {kind.__name__ for kind in kinds if issubclass(kind, Exception)} == set(errors.__all__)
    assert all(issubclass(getattr(sk, name), sk.SkipstoneError) for name in errors.__all__)
    assert errors.__doc__ is not None
    assert all(f" {name} " in errors.__doc__ or f" {name}\n" in errors.__doc__ for name in errors.__all__)


def test_the_repr_of_an_error_has_its_location() -> None:
    error = sk.SchemaError("types differ", path="a.parquet", column="x", hint="cast one")
    assert repr(error) == "SchemaError('types differ', path='a.parquet', column='x', hint='cast one')"
    assert repr(sk.UsageError("limit is negative")) == "UsageError('limit is negative')"


def test_what_is_exported_is_what_the_type_checker_sees() -> None:
    """Names are listed for users, for the type checker, and for loading."""
    tree = ast.parse(Path(sk.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    checked = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(checked) == sk.__all__
    loaded = {name: f"skipstone.{home}" for name, home in api._HOME_OF.items()}
    assert {name: module for name, module in checked.items() if module != "skipstone.api"} == loaded


def test_names_in_the_reference() -> None:
    """Each public name has one place in docs/api."""
    pages = (Path(__file__).parents[2] / "docs" / "api").glob("*.md")
    text = "\n".join(page.read_text() for page in pages)
    # Three functions share their names with packages, so that the generator needs their modules.
    modules = r"(?:predicate\.coerce\.|prune\.pruner\.|api\.)?"
    shown = re.findall(rf"^::: skipstone\.{modules}(\w+)$", text, re.MULTILINE)
    assert sorted(shown) == sorted([*sk.__all__, "typing"])


def parameters(function: object) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "options"), [(sk.Lake.scan, sk.ScanOptions), (sk.prune, sk.PruneOptions)]
)
def test_options_are_keywords(function: object, options: type) -> None:
    found = parameters(function)
    for field in fields(options):
        assert found[field.name].kind is inspect.Parameter.KEYWORD_ONLY
        # Sizes can be text with a unit, which the options no longer have.
        kind = "SizeLike" if field.name == "memory" else str(field.type).removesuffix(" | None")
        assert found[field.name].annotation == f"{kind} | None"
        assert found[field.name].default is None


def test_both_ingests_have_the_same_options() -> None:
    one, many = parameters(sk.ingest), parameters(sk.ingest_new)
    tables = {"catalog", "mode", "overwrite", "where", "branch", "properties", "data"}
    own = {"source", "format", "schema", "read_options", "batch_bytes", "on_batch"}
    assert set(one) - tables == set(many) - own
    assert all(str(one[name]) == str(many[name]) for name in set(one) & set(many) - {"path"})


def test_names_of_choices_are_those_that_are_checked() -> None:
    assert get_args(sk_typing.ClusterOrder) == CLUSTERS
    assert get_args(sk_typing.Compression) == CODECS
    assert sk_typing.CompactionStrategy == Strategy
    assert sk_typing.JobOrder == JobOrder
    assert get_args(sk_typing.Dialect) == DIALECTS
    assert get_args(sk_typing.SparkRoute) == get_args(Route)
    formats = parameters(sk.ingest_new)["format"].annotation
    assert formats == f"Literal[{', '.join(map(repr, FORMATS))}] | None"
    assert sk_typing.__all__ == sorted(sk_typing.__all__, key=str.lower)


# What goes to pyarrow is pyarrow's, and a plan changes its own fields.
UNTYPED = {"to_pandas", "changed"}


def test_public_signatures_are_typed() -> None:
    """No ``**options: Any``, and no ``Any`` where a union says it."""
    for name in sk.__all__:
        value = getattr(sk, name)
        for function in vars(value).values() if isinstance(value, type) else [value]:
            function = getattr(function, "__func__", function)
            if not inspect.isfunction(function) or function.__name__.startswith("_"):
                continue
            if function.__name__ not in UNTYPED:
                kinds = {str(one): one.annotation for one in parameters(function).values()}
                assert not [one for one, kind in kinds.items() if kind == "Any"], (
                    f"{name}.{function.__name__}"
                )
