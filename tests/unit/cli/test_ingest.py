"""``skipstone ingest``, ``count --engine`` and ``explain --spark``: what options become, without Spark."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skipstone.cli.ingest import ClusterOrder, Codec, InputFormat
from skipstone.cli.options import ClusterOptions, read_size
from skipstone.cli.output import Exit
from skipstone.cli.progress import Steps
from skipstone.errors import JobError, UsageError
from skipstone.parquet.write.layout import CLUSTERS, CODECS, PageLayout
from skipstone.report.trace import SparkUse
from skipstone.write.report import IngestReport, PipelineReport, Seconds
from skipstone.write.sources import FORMATS

Run = Callable[..., Any]
Words = Callable[[str], str]

REPORT = PipelineReport(
    lake="/lake",
    new=2,
    already_ingested=1,
    changed=("/src/old.csv",),
    batches=(IngestReport("/lake", 10, (100, 120), 2, 1, Seconds(1.0, 2.0, 0.1, 0.5), 64),),
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    root.mkdir()
    (root / "a.csv").write_text("id,name\n1,x\n")
    return root


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What ``sk.ingest_new`` is given; the session is that of no Spark."""
    given: dict[str, Any] = {}

    def ingest_new(source: Any, path: Any, **options: Any) -> PipelineReport:
        given.update(options, source=source, path=path)
        return REPORT

    @contextmanager
    def session(self: ClusterOptions) -> Iterator[Any]:
        given["cluster"] = self.arguments()
        yield "the session"

    monkeypatch.setattr("skipstone.ingest_new", ingest_new, raising=False)
    monkeypatch.setattr(ClusterOptions, "session", session)
    return given


class TestIngest:
    def test_text(self, run: Run, source: Path, seen: dict[str, Any], tmp_path: Path) -> None:
        done = run("ingest", source, tmp_path / "lake")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("ingested 2 files; 1 already ingested\n")
        assert "/src/old.csv" in done.stdout
        assert "10 rows in 2 files" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 100

    def test_json(self, run: Run, source: Path, seen: dict[str, Any], tmp_path: Path) -> None:
        done = run("ingest", source, tmp_path / "lake", "--format", "json")
        told = json.loads(done.stdout)
        assert told == REPORT.to_json()
        assert (told["new"], told["already_ingested"], told["rows"], told["files"], told["bytes"]) == (
            2,
            1,
            10,
            2,
            220,
        )
        assert told["batches"][0]["seconds"]["write"] == 2.0

    def test_defaults_are_left_to_the_library(
        self, run: Run, source: Path, seen: dict[str, Any], tmp_path: Path
    ) -> None:
        run("ingest", source, tmp_path / "lake")
        assert seen == {
            "source": str(source),
            "path": str(tmp_path / "lake"),
            "cluster": "sort",
            "engine": "auto",
            "threads": None,
            "format": None,
            "schema": None,
            "read_options": None,
            "storage_options": None,
            "partition_by": (),
            "cluster_by": (),
            "target_file_bytes": None,
            "force": False,
            "blooms": None,
            "queries": None,
            "index": True,
            "evolve": False,
        }

    def test_choices(self, run: Run, source: Path, seen: dict[str, Any], tmp_path: Path) -> None:
        log = tmp_path / "log.txt"
        log.write_text("id = 1\n")
        done = run(
            "ingest", source, tmp_path / "lake",
            "--input-format", "csv", "--schema", "id long, name string",
            "--read-option", "sep=;", "--read-option", "nullValue=",
            "--partition-by", "day", "--cluster-by", "id,name", "--cluster", "hilbert",
            "--target-file-size", "64MiB", "--page-rows", 1000, "--row-group-rows", 50_000,
            "--compression", "snappy", "--blooms", "device,s.x", "--queries", log,
            "--no-index", "--batch-size", "1GB", "--evolve",
        )  # fmt: skip
        assert (done.exit_code, done.stderr) == (0, "")
        expected = {
            "format": "csv",
            "schema": "id long, name string",
            "read_options": {"sep": ";", "nullValue": ""},
            "partition_by": ["day"],
            "cluster_by": ["id", "name"],
            "cluster": "hilbert",
            "target_file_bytes": 64 * 2**20,
            "force": False,
            "page_rows": 1000,
            "row_group_rows": 50_000,
            "compression": "snappy",
            "blooms": ["device", "s.x"],
            "queries": log,
            "index": False,
            "batch_bytes": 10**9,
            "evolve": True,
        }
        assert {name: seen[name] for name in expected} == expected

    def test_the_cluster(
        self, run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[dict[str, Any]] = []

        def open_spark(**options: Any) -> Any:
            asked.append(options)
            raise JobError("there is no cluster")

        monkeypatch.setattr("skipstone.engine.spark.open_spark", open_spark)
        done = run("ingest", source, tmp_path / "lake", "--master", "spark://h", "--conf", "a=b=c")
        assert (done.exit_code, done.stderr) == (Exit.OTHER, "error: there is no cluster\n")
        assert asked == [{"master": "spark://h", "remote": None, "conf": {"a": "b=c"}}]
        assert not (tmp_path / "lake").exists()

    def test_the_name_of_a_table(
        self, run: Run, source: Path, seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(source.parent)
        done = run("ingest", source, "db.events")
        assert (done.exit_code, done.stdout) == (Exit.OTHER, "")
        assert 'or use "./db.events" for a new directory' in done.stderr
        assert not seen

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--target-file-size", "big"), "invalid size 'big'; use one such as 128MB"),
            (("--target-file-size", "0MB"), "size must be above zero"),
            (("--batch-size", "-1"), "invalid size"),
            (("--cluster-by", " , "), "no column named"),
            (("--blooms", ""), "no column named"),
            (("--cluster", "spiral"), "spiral"),
            (("--compression", "rar"), "rar"),
            (("--input-format", "xml"), "xml"),
            (("--page-rows", "0"), "--page-rows"),
            (("--read-option", "secret"), "expected KEY=VALUE"),
            (("--conf", "secret"), "expected KEY=VALUE"),
            (("--storage-option", "secret"), "expected KEY=VALUE"),
            (("--master", "local[2]", "--remote", "sc://h"), "use --master or --remote, not both"),
        ],
    )
    def test_wrong_usage(
        self, run: Run, source: Path, words: Words, tmp_path: Path, options: tuple[str, ...], said: str
    ) -> None:
        done = run("ingest", source, tmp_path / "lake", *options)
        assert (done.exit_code, done.stdout) == (Exit.USAGE, "")
        assert said in words(done.stderr)
        assert "secret" not in done.stderr

    @pytest.mark.parametrize(
        ("options", "code", "said"),
        [
            (("--cluster", "zorder"), Exit.OTHER, "zorder does not support 0 columns; hint: "),
            (("--cluster-by", "id,id"), Exit.OTHER, "column id: duplicate column in cluster_by"),
            (
                ("--queries", "nowhere.txt"),
                Exit.FILE,
                "nowhere.txt: no such file; hint: pass the path of a query log",
            ),
        ],
    )
    def test_what_is_wrong_is_met_before_spark(
        self, run: Run, source: Path, tmp_path: Path, options: tuple[str, ...], code: Exit, said: str
    ) -> None:
        done = run("ingest", source, tmp_path / "lake", *options)
        assert (done.exit_code, done.stdout) == (code, "")
        assert said in done.stderr
        assert not (tmp_path / "lake").exists()

    def test_sources_that_make_no_sense(self, run: Run, source: Path, tmp_path: Path) -> None:
        lake = tmp_path / "lake"
        assert run("ingest", tmp_path / "nothing", lake).exit_code == Exit.FILE
        done = run("ingest", source, source / "lake")
        assert done.exit_code == Exit.OTHER
        assert "lake is inside its own source; hint: move the lake out of the source" in done.stderr
        (source / "b.json").write_text("{}\n")
        done = run("ingest", source, lake)
        assert done.exit_code == Exit.OTHER
        assert (
            "files have several formats: csv (a.csv), json (b.json); hint: pass --input-format" in done.stderr
        )

    def test_local_threads_on_request(self, run: Run, source: Path, tmp_path: Path) -> None:
        lake = tmp_path / "lake"
        for options, reason in ((("--engine", "local"), "requested"), (("--threads", 1), "threads is set")):
            done = run("ingest", source, lake / reason, "--cluster-by", "id", *options)
            assert (done.exit_code, done.stderr) == (0, "")
            assert f"ran on local threads ({reason})" in done.stdout
        done = run("ingest", source, lake / "requested", "--engine", "local", "--format", "json")
        assert json.loads(done.stdout)["batches"] == []
        done = run("ingest", source, tmp_path / "new", "--engine", "local", "--cluster-by", "idd")
        assert "column idd: unknown column; hint: did you mean id?" in done.stderr
        done = run("ingest", source, lake, "--engine", "local", "--master", "local[2]")
        assert done.exit_code == Exit.USAGE

    def test_a_hint_names_the_other_engine(
        self, run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hint = 'install Java 17 or newer; engine="local" needs neither'

        def broken(**_: Any) -> Any:
            raise UsageError("there is no Java", hint=hint)

        monkeypatch.setattr("skipstone.engine.spark.open_spark", broken)
        done = run("ingest", source, tmp_path / "lake", "--engine", "spark")
        told = "error: there is no Java; hint: install Java 17 or newer; --engine local needs neither\n"
        assert (done.exit_code, done.stderr) == (Exit.OTHER, told)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("128MB", 128_000_000),
        ("64MiB", 64 * 2**20),
        ("1GB", 10**9),
        ("1.5 gib", 3 * 2**29),
        ("2k", 2000),
        ("7B", 7),
        ("1T", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text, "--size") == size


def test_help_tells_the_defaults_of_the_library(run: Run, words: Words) -> None:
    from skipstone.write.sources import BATCH_BYTES

    text = words(run("ingest", "--help").stdout)
    usual = PageLayout()
    for size in (usual.target_file_bytes, BATCH_BYTES):
        power = 3 if size >= 2**30 else 2
        assert f"Default: {size >> 10 * power}{'MG'[power - 2]}iB" in text
    for rows in (usual.row_group_rows, usual.page_rows):
        assert f"Default: {rows:,}." in text
    assert f"Default: {usual.compression}." in text
    assert {str(one) for one in Codec} == set(CODECS)
    assert {str(one) for one in ClusterOrder} == set(CLUSTERS)
    assert {str(one) for one in InputFormat} == set(FORMATS)


class TestCount:
    def test_on_spark(self, run: Run, hive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: dict[str, Any] = {}

        def opened(engine: str, **options: Any) -> Any:
            from skipstone.engine.jobs import LocalEngine

            asked.update(options, engine=engine)
            return LocalEngine()

        monkeypatch.setattr("skipstone.engine.jobs.open_engine", opened)
        where = ("--where", "id < 60 and name like '%9'", "--format", "json")
        local = json.loads(run("count", hive, *where).stdout)
        assert (asked, local["engine"]) == ({}, "local")
        done = run("count", hive, *where, "--engine", "spark", "--master", "local[2]")
        told = json.loads(done.stdout)
        assert asked == {
            "engine": "spark",
            "master": "local[2]",
            "remote": None,
            "conf": None,
            "threads": None,
        }
        assert (told["engine"], told["count"]) == ("spark", local["count"])
        assert told["count"] == 12

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--master", "local"), "needs --engine spark"),
            (("--engine", "local", "--conf", "a=b"), "needs --engine spark"),
            (("--engine", "spark", "--threads", "2"), "needs --engine local"),
        ],
    )
    def test_wrong_usage(
        self, run: Run, hive: Path, words: Words, options: tuple[str, ...], said: str
    ) -> None:
        done = run("count", hive, *options)
        assert (done.exit_code, done.stdout) == (Exit.USAGE, "")
        assert said in words(done.stderr)


class TestExplain:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """Routes that were asked for, of a session that is none."""
        found: list[Any] = []

        @contextmanager
        def session(self: ClusterOptions) -> Iterator[Any]:
            yield self.master

        def route_of(plan: Any, session: Any, route: str, **_: Any) -> Any:
            found.append((session, route))
            return SimpleNamespace(use=SparkUse("slices", "asked for", 3, 100))

        pytest.importorskip("pyspark")
        monkeypatch.setattr(ClusterOptions, "session", session)
        monkeypatch.setattr(importlib.import_module("skipstone.spark.frames"), "route_of", route_of)
        return found

    def test_the_route(self, run: Run, hive: Path, asked: list[Any]) -> None:
        done = run("explain", hive, "--where", "id = 5", "--spark", "--master", "m", "--route", "slices")
        assert (done.exit_code, done.stderr) == (0, "")
        assert ", 3 tasks: asked for\n" in done.stdout
        told = json.loads(run("explain", hive, "--spark", "--format", "json").stdout)
        assert told["spark"] == {"route": "slices", "why": "asked for", "tasks": 3, "bytes": 100}
        assert asked == [("m", "slices"), (None, "auto")]

    def test_without(self, run: Run, hive: Path, asked: list[Any]) -> None:
        told = json.loads(run("explain", hive, "--format", "json").stdout)
        assert (told["spark"], asked) == (None, [])

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--route", "driver"), "needs --spark"),
            (("--spark", "--why", "x"), "can't be combined with --why"),
            (("--master", "local"), "needs --spark"),
            (("--spark", "--route", "train"), "train"),
        ],
    )
    def test_wrong_usage(
        self, run: Run, hive: Path, words: Words, options: tuple[str, ...], said: str
    ) -> None:
        done = run("explain", hive, *options)
        assert (done.exit_code, done.stdout) == (Exit.USAGE, "")
        assert said in words(done.stderr)


def test_the_bar_tells_phase_and_batch() -> None:
    bar = Steps("starting Spark", {"writing": "task"})
    (task,) = bar.shown.tasks
    assert (task.description, task.total) == ("starting Spark", None)
    bar.batch(0, 3, "counting")
    bar.update("writing", 2, 8)
    assert (task.description, task.completed, task.total) == ("batch 1 of 3, writing", 2, 8)
    assert task.fields["said"] == "2 of 8 tasks"
    bar.batch(1, 3, "counting")
    assert (task.description, task.total, task.fields["said"]) == ("batch 2 of 3, counting", None, "")
    bar.batch(0, 1, "counting")
    assert task.description == "counting"
