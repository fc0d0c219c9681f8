"""Catalogs: what is taken for one, and what is said of those that can't be opened."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import OperationalError

import skipstone as sk
from skipstone.errors import ReadError, SkipstoneError, UsageError
from skipstone.iceberg.catalogs import (
    CATALOG_FILE,
    catalog_errors,
    open_catalog,
    option_name,
    reason,
    storage_options,
    table_name,
)


@pytest.mark.parametrize("name", ["a b", "a%20b", "é", "a+b&c=d", "[x]*", "'q'", "a@b:c"])
def test_an_embedded_catalog_is_in_the_directory_that_was_named(name: str, tmp_path: Path) -> None:
    made = open_catalog(tmp_path / name)
    made.create_namespace("db")
    assert [path.name for path in (tmp_path / name).iterdir()] == [CATALOG_FILE]
    assert open_catalog(f"{tmp_path}/{name}").list_namespaces() == [("db",)]


@pytest.mark.parametrize("name", ["a#b", "a?b", "a\nb"])
def test_a_path_that_other_readers_would_cut_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="warehouse path contains") as refused:
        open_catalog(tmp_path / name)
    assert refused.value.path == str(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_what_is_no_warehouse_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / CATALOG_FILE).write_text("garbage" * 1000)
    (tmp_path / "folder" / CATALOG_FILE).mkdir(parents=True)
    for name in ("file", "file/x", "garbage", "folder"):
        with pytest.raises(ReadError, match="can't open a warehouse") as refused:
            open_catalog(tmp_path / name)
        assert refused.value.path == str(tmp_path / name)
        assert refused.value.hint
    with pytest.raises(UsageError, match="needs a local directory"):
        open_catalog("s3://bucket/warehouse")
    for wrong in (5, b"x", ["a"]):
        with pytest.raises(UsageError, match="is not a catalog"):
            open_catalog(wrong)


def test_one_that_somebody_else_is_making_is_opened_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of the catalog were made between a look and the making of them."""
    real = SqlCatalog.create_tables
    races = iter([True])

    def lost(self: SqlCatalog) -> None:
        real(self)
        if next(races, False):
            raise OperationalError("create table", {}, Exception("table iceberg_tables already exists"))

    monkeypatch.setattr(SqlCatalog, "create_tables", lost)
    assert open_catalog(tmp_path).list_namespaces() == []


def test_a_name_is_looked_up_in_pyicebergs_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"sqlite:///{tmp_path}/mine.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__WAREHOUSE", f"file://{tmp_path}")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    opened = open_catalog("mine")
    assert opened.name == "mine"
    assert (tmp_path / "mine.db").exists()
    with pytest.raises(UsageError, match="unknown catalog 'other'") as refused:
        open_catalog("other")
    assert "configured catalogs: mine" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="unknown default catalog"):
        open_catalog()
    with pytest.raises(UsageError, match=r"can't open .*: 'nope' is not a valid"):
        open_catalog({"type": "nope"})


def test_properties_are_taken_as_they_are(tmp_path: Path) -> None:
    properties = {"name": "own", "type": "sql", "uri": f"sqlite:///{tmp_path}/own.db"}
    opened = open_catalog(properties, warehouse="s3://bucket/x")
    assert (opened.name, opened.properties["warehouse"]) == ("own", "s3://bucket/x")
    assert properties["name"] == "own"
    assert open_catalog(opened) is opened


def test_without_pyiceberg_tables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(UsageError, match=r"pip install 'skipstone\[iceberg\]'"):
        open_catalog("x/")


@pytest.mark.parametrize(
    "name", ["t", "", ".t", "db.", "db..t", " .t", 5, None, ("t",), ("db", 5), ["db", ""]]
)
def test_what_is_no_name_is_refused(name: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="invalid table name"):
        table_name(name)
    sk.catalog(tmp_path)
    with pytest.raises(UsageError, match="invalid table name"):
        sk.open(name, catalog=tmp_path)


def test_names_are_dotted() -> None:
    assert table_name("a.b.t") == table_name(("a", "b", "t")) == table_name(["a", "b.t"]) == "a.b.t"


def test_what_a_catalog_says_is_an_error_of_ours() -> None:
    catalog: Any = SimpleNamespace(name="mine")
    with pytest.raises(ReadError) as refused, catalog_errors(catalog, "db.t"):
        raise KeyError("boom\nand more")
    assert (refused.value.path, refused.value.message) == (
        "db.t",
        "catalog mine failed: 'boom\\nand more' (KeyError)",
    )
    assert refused.value.hint == "check the catalog"
    own = UsageError("mine")
    with pytest.raises(SkipstoneError) as kept, catalog_errors(catalog, "db.t"):
        raise own
    assert kept.value is own
    assert reason(ValueError("one\ntwo")) == "one"
    assert reason(ValueError()) == "ValueError"


def test_options_are_those_that_the_kind_of_store_knows() -> None:
    def table(location: str, **properties: Any) -> Any:
        told = {name.replace("__", ".").replace("_", "-"): value for name, value in properties.items()}
        return SimpleNamespace(io=SimpleNamespace(properties=told), location=lambda: location)

    told = {
        "s3__endpoint": "http://host:1",
        "s3__access_key_id": "me",
        "client__access_key_id": "other",
        "client__region": "eu",
        "adls__account_name": "account",
        "s3__session_token": None,
    }
    assert storage_options(table("file:///x", **told)) == {}
    assert storage_options(table("/x", **told), {"a": 1}) == {"a": 1}
    assert storage_options(table("s3://b/x", **told)) == {
        "endpoint": "http://host:1",
        "allow_http": "true",
        "access_key_id": "me",
        "region": "eu",
    }
    assert storage_options(table("abfss://c@a/x", **told)) == {"account_name": "account"}
    given = {"AWS_ENDPOINT_URL": "https://other", "region": "us"}
    assert storage_options(table("s3a://b/x", **told), given) == {
        **given,
        "allow_http": "true",
        "access_key_id": "me",
    }
    assert [option_name(n) for n in ("AWS_TOKEN", "azure_storage_account_key", "timeout")] == [
        "session_token",
        "account_key",
        "timeout",
    ]
