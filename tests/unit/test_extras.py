"""A call that needs a library that is not installed names the extra, and the command that installs it."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import EXTRAS, UsageError, require

ROOT = Path(__file__).parents[2]
ROWS = pa.table({"id": [1, 2]})
CALLS: dict[tuple[str, str], Callable[[sk.Lake], Any]] = {
    ("polars", "scan.to_polars"): lambda lake: lake.scan().to_polars(),
    ("polars", "aggregate.to_polars"): lambda lake: lake.scan().aggregate(sk.count()).to_polars(),
    ("polars", "predicate.to_polars"): lambda _: sk.parse("id = 1").to_polars(),
    ("pandas", "scan.to_pandas"): lambda lake: lake.scan().to_pandas(),
    ("pandas", "aggregate.to_pandas"): lambda lake: lake.scan().aggregate(sk.count()).to_pandas(),
    ("datafusion", "predicate.to_datafusion"): lambda _: sk.parse("id = 1").to_datafusion(),
    ("pyiceberg", "predicate.to_iceberg"): lambda _: sk.parse("id = 1").to_iceberg(),
    ("pyiceberg", "catalog"): lambda lake: sk.catalog(f"{lake.uri}/warehouse"),
    ("pyiceberg", "open"): lambda lake: sk.open("db.t", catalog=f"{lake.uri}/warehouse"),
    ("pyiceberg", "open metadata"): lambda lake: sk.open(f"{lake.uri}/1.metadata.json"),
    ("pyiceberg", "ingest"): lambda lake: sk.ingest(ROWS, "db.t", catalog=f"{lake.uri}/warehouse"),
    ("zstandard", "catalog"): lambda lake: sk.catalog(f"{lake.uri}/warehouse"),
    ("sqlalchemy", "catalog"): lambda lake: sk.catalog(f"{lake.uri}/warehouse"),
    ("pyspark", "spark"): lambda _: sk.spark(),
    ("pyspark", "register"): lambda _: sk.register(None),  # type: ignore[arg-type]
    ("pyspark", "predicate.to_spark"): lambda _: sk.parse("id = 1").to_spark(),
    ("pyspark", "scan.to_spark"): lambda lake: lake.scan().to_spark(),
    ("pyspark", "scan.count"): lambda lake: lake.scan().count(engine="spark"),
    ("pyspark", "aggregate"): lambda lake: (
        lake.scan("id > 1").aggregate(sk.count(), engine="spark").to_arrow()
    ),
    ("pyspark", "index.build"): lambda lake: lake.index.build(engine="spark"),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    root = tmp_path_factory.mktemp("lake")
    pq.write_table(ROWS, root / "a.parquet")
    return sk.open(root)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_missing_library(call: tuple[str, str], lake: sk.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    module = call[0]
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    library, extra = EXTRAS[module]
    with pytest.raises(
        UsageError, match=rf"^{library} is not installed \(run pip install 'skipstone\[{extra}\]'"
    ):
        CALLS[call](lake)


def test_a_name_that_needs_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyiceberg"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "skipstone.tables", raising=False)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    monkeypatch.delitem(sys.modules["skipstone.api"].__dict__, "Catalog", raising=False)
    monkeypatch.delitem(sk.__dict__, "Catalog", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'skipstone\[iceberg\]'"):
        _ = sk.Catalog


def test_extras_install_their_libraries() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for module, (_, extra) in EXTRAS.items():
        needs = [re.split(r"[<>=\[]", need)[0] for need in project["optional-dependencies"][extra]]
        # The SQL catalog of pyiceberg brings SQLAlchemy.
        assert {"sqlalchemy": "pyiceberg"}.get(module, module) in needs


def test_a_library_that_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "duckdb.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "duckdb", raising=False)
    with pytest.raises(UsageError, match=r"^DuckDB can't be imported: No module named 'nowhere_to_be_found'"):
        require("duckdb")
