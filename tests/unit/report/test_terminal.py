"""Public objects in a terminal: results show as reports, and nothing as its address or its fields."""

from __future__ import annotations

import code
import importlib
import pkgutil
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.inspection.doctor import diagnose
from skipstone.inspection.file import inspect_file
from skipstone.inspection.lake import LakeSchema, inspect_lake
from skipstone.inspection.snapshots import TableList, list_snapshots
from skipstone.inspection.table import inspect_table
from skipstone.report import Printable, Reported, Traced
from skipstone.report.lines import width_of

ONE_LINE = {"Catalog", "Lake", "LakeIndex", "Pruner", "Scan", "Table", "TailWriter", "Transaction"}
"""What is not a result: showing it can read."""


def classes(base: type) -> set[type]:
    return {base, *(below for one in base.__subclasses__() for below in classes(one))}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An object of every public class that users get from a method, by the name of its class."""
    root = tmp_path_factory.mktemp("terminal")
    found: list[Any] = []
    rows = pa.table({"id": range(100), "name": ["a", None] * 50})
    for day in (1, 2):
        (root / f"lake/day={day}").mkdir(parents=True)
        pq.write_table(rows, root / f"lake/day={day}/f.parquet", row_group_size=10)
    lake, file = sk.open(root / "lake"), str(root / "lake/day=1/f.parquet")
    scan = lake.scan("id = 3")
    found += [lake, lake.index.build(engine="local"), lake.index, lake.index.status()]
    found += [lake.index.advise(["id = 3"]), lake.layout(), lake.statistics(), LakeSchema(lake)]
    found += [
        scan,
        scan.plan(),
        scan.trace(),
        scan.verify(),
        scan.execute(),
        scan.plan().why("day=2/f.parquet"),
    ]
    answer = lake.scan().aggregate(sk.count(), group_by=["name"])
    found += [answer, answer.trace, sk.prune(file, "id = 3"), sk.prune(file, "id = 3").trace]
    found += [sk.Pruner("id = 3"), inspect_file(file, storage_options={}), inspect_lake(lake), diagnose()]
    found += [sk.ingest(rows, root / "out", cluster_by=["id"], engine="local")]
    (root / "new").mkdir()
    pq.write_table(rows, root / "new/f.parquet")
    found += [sk.ingest_new(root / "new", root / "piped", engine="local")]
    found += _table(sk.catalog(root / "warehouse"))
    return {type(one).__name__: one for one in found}


def _table(catalog: sk.Catalog) -> Iterator[Any]:
    """The objects of a keyed table."""
    table = catalog.create_table("db.t", pa.schema({"id": pa.int64(), "x": pa.string()}), key="id")
    yield from (catalog, TableList("", None, ("db.t",)), table, table.upsert(_rows(range(9), "a")))
    table.upsert(_rows([1, 2], "b"))
    snapshots = table.snapshots()
    yield from (snapshots, snapshots[0], list_snapshots(table), inspect_table(table))
    yield from (table.changes(snapshots[0].id, snapshots[1].id), table.maintenance())
    plan = table.plan_compaction(min_input_files=1, rewrite_all=True)
    yield from (plan, table.compact(plan, engine="local"))
    yield from (table.maintain(engine="local"), table.rewrite_manifests(dry_run=True))
    yield table.expire(older_than=datetime(2020, 1, 1, tzinfo=UTC), dry_run=True)
    yield table.remove_orphans(dry_run=True)
    with table.transaction() as transaction:
        yield transaction
    with table.writer() as writer:
        writer.upsert(_rows([3], "c"))
        yield from (writer, table.tail_status())


def _rows(ids: Any, value: str) -> pa.Table:
    return pa.table({"id": list(ids), "x": [value] * len(ids)})


def modules() -> None:
    """Load every module, and with it all classes of results."""
    for one in pkgutil.walk_packages(sk.__path__, "skipstone."):
        if not one.name.endswith("__main__"):
            importlib.import_module(one.name)


def test_every_class_is_tried(shown: dict[str, Any]) -> None:
    modules()
    bases = {Printable, Reported, Traced}
    named = {one.__name__ for one in classes(Printable) - bases if one.__module__.startswith("skipstone.")}
    assert named - set(shown) <= {"OverlayTable", "PlanListing"}  # a table and a plan in another form
    # A class that lists its bases, or that is a dataclass, has its own way to represent itself, unless told.
    for one in classes(Reported) - bases:
        assert one.__dict__["__repr__"] is Printable.__str__, one


def test_results_show_as_reports(shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, one in shown.items():
        text = repr(one)
        assert " object at 0x" not in text, name
        assert "\\n" not in text, name
        assert text == typed(one).rstrip("\n"), name
        if name in ONE_LINE:
            assert text.startswith(f"{name}("), name
            assert "\n" not in text, name
        else:
            assert text == str(one), name
            assert not text.startswith(f"{name}("), name
        if isinstance(one, Printable):
            assert one._repr_html_().startswith('<div class="skst">'), name
            assert all(width_of(line) <= (one.width or 100) for line in str(one).splitlines()), name


def typed(value: object) -> str:
    """What Python prints when someone types a name."""
    out = StringIO()
    with redirect_stdout(out):
        code.InteractiveInterpreter({"value": value}).runsource("value")
    return out.getvalue()


@pytest.mark.parametrize(("width", "wide"), [(80, 80), (120, 120), (20, 40)])
def test_reports_are_as_wide_as_the_terminal(
    shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch, width: int, wide: int
) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", Terminal())
    widest = [
        max(map(width_of, str(shown[name]).splitlines())) for name in ("ScanPlan", "IndexStatus", "Lake")
    ]
    assert max(widest) <= wide
    assert max(widest) > (wide if width < 100 else 100) - 20


def test_an_answer_is_printed(shown: dict[str, Any]) -> None:
    answer = shown["Aggregation"]
    expected = ["name    count", "string  int64", "NULL      100", "a         100"]
    assert str(answer).splitlines()[:4] == repr(answer).splitlines()[:4] == expected


def test_an_answer_that_fails_is_printed_with_its_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "f.parquet")
    answer = sk.open(tmp_path).scan("id < 3").aggregate(sk.sum("id"))
    (tmp_path / "f.parquet").unlink()
    # A debugger asks for it, and must not fail; a script that prints must.
    label, error = repr(answer).splitlines()[:2]
    assert (label, error.partition(":")[0]) == (f"Aggregation({tmp_path}: sum(id))"[:100], "MissingFileError")
    with pytest.raises(sk.MissingFileError):
        str(answer)


@pytest.mark.parametrize("format", ["text", "json", "html"])
def test_explain_shows_lines(shown: dict[str, Any], format: Any) -> None:
    for explained in ("Scan", "Aggregation", "CompactionPlan"):
        text = shown[explained].explain(format=format)
        assert isinstance(text, str)
        assert repr(text) == str(text)
        assert typed(text) == f"{text}\n"
        assert len(text.splitlines()) > 3


def test_what_is_printed_of_a_lake_and_its_parts(shown: dict[str, Any]) -> None:
    assert "2 files indexed" in str(shown["Lake"])
    assert "2 of 2 indexed" in str(shown["LakeIndex"])
    assert "│  2 rows" in str(shown["Scan"]).splitlines()
    assert "db.t" in str(shown["Catalog"]).splitlines()[1]
    assert repr(shown["Catalog"]).endswith("/warehouse', 1 table)")


RAW_TYPE = re.compile(r"\{(?:\w+\.)*type\}")
PARQUET = {"pageindex.py", "schema.py", "metadata.py", "dictionary.py"}
"""Physical types and kinds of pages, by their numbers in the format."""


def test_messages_name_types_as_listings_do() -> None:
    package = Path(sk.__file__).parent
    raw = [
        f"{path.name}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if RAW_TYPE.search(line) and not (path.parent.name == "parquet" and path.name in PARQUET)
    ]
    # A digest, and types of Polars and DuckDB beside each other.
    assert {line.partition(":")[0] for line in raw} <= {"build.py", "routes.py"}, raw
