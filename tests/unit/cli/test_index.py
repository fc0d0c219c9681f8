"""``skipstone index``, and the index in other commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skipstone.cli import index as module
from skipstone.cli.output import Exit
from tests.support.stores import own_files

Run = Callable[..., Any]
LOCAL = ("--engine", "local")


@pytest.fixture
def lake(hive: Path, tmp_path: Path) -> Path:
    """A lake of one's own, without an index."""
    return Path(shutil.copytree(hive, tmp_path / "lake"))


def status(run: Run, lake: Path, *options: object) -> dict[str, Any]:
    done = run("index", "status", lake, "--format", "json", *options)
    assert (done.exit_code, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


class TestBuild:
    def test_text(self, run: Run, lake: Path) -> None:
        done = run("index", "build", lake, *LOCAL)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("indexed 4 files\nread ")
        done = run("index", "build", lake, *LOCAL)
        assert done.stdout.startswith("nothing to do: 4 files already indexed\n")

    def test_json(self, run: Run, lake: Path) -> None:
        told = json.loads(run("index", "build", lake, *LOCAL, "--format", "json").stdout)
        assert (told["lake"], told["location"]) == (str(lake), str(own_files(lake)))
        assert (told["version"], told["indexed"], told["already_indexed"], told["skipped"]) == (1, 4, 0, [])

    def test_choices(self, run: Run, lake: Path) -> None:
        options = ("--columns", "id,price", "--columns", "name", "--blooms", "name", "--no-pages", "--sums")
        done = run("index", "build", lake, *LOCAL, *options, "--sketches", "--ids", "id", "--threads", 2)
        assert (done.exit_code, done.stderr) == (0, "")
        asked = status(run, lake)["options"]
        assert asked == {
            "columns": ["id", "price", "name"],
            "pages": False,
            "blooms": ["name"],
            "own_blooms": True,
            "values": ["id", "price", "name"],
            "sums": ["id", "price"],
            "sketches": ["id", "price", "name"],
            "ids": ["id"],
        }
        run("index", "build", lake, *LOCAL, "--columns", "id", "--no-values", "--no-blooms")
        asked = status(run, lake)["options"]
        assert (asked["columns"], asked["values"], asked["own_blooms"]) == (["id"], [], False)

    def test_rebuild(self, run: Run, lake: Path) -> None:
        run("index", "build", lake, *LOCAL)
        done = run("index", "build", lake, *LOCAL, "--rebuild")
        assert done.stdout.startswith("indexed 4 files\n")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--columns", " , "), "no column named"),
            (("--blooms", ""), "no column named"),
            (("--blooms", "id", "--no-blooms"), "conflicts with --blooms"),
            (("--engine", "spark", "--threads", "2"), "needs --engine local"),
            (("--engine", "local", "--master", "local[2]"), "needs --engine spark"),
            (("--engine", "local", "--conf", "a=b"), "needs --engine spark"),
            (("--master", "local[2]", "--remote", "sc://h"), "use --master or --remote, not both"),
            (("--conf", "secret"), "expected KEY=VALUE"),
            (("--engine", "dask"), "dask"),
        ],
    )
    def test_options_that_make_no_sense(
        self, run: Run, lake: Path, words: Callable[[str], str], options: tuple[str, ...], said: str
    ) -> None:
        done = run("index", "build", lake, *options)
        assert (done.exit_code, done.stdout) == (Exit.USAGE, "")
        assert said in words(done.stderr)
        assert "secret" not in done.stderr

    def test_an_unknown_column(self, run: Run, lake: Path) -> None:
        done = run("index", "build", lake, *LOCAL, "--columns", "nope")
        assert (done.exit_code, done.stdout) == (Exit.PREDICATE, "")
        assert "hint: use one of id, price, name" in done.stderr

    def test_a_file_that_is_no_parquet_is_told(self, run: Run, lake: Path) -> None:
        run("index", "build", lake, *LOCAL)
        (lake / "year=2025" / "kind=a" / "new.parquet").write_text("this is no Parquet file")
        done = run("index", "refresh", lake, *LOCAL)
        assert done.exit_code == 0
        assert "1 file could not be indexed" in done.stdout
        assert "new.parquet: " in done.stdout

    def test_spark_is_asked_for(self, run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the options become; Spark itself is tested elsewhere."""
        seen: dict[str, Any] = {}

        def opened(engine: str, **options: Any) -> Any:
            from skipstone.engine.jobs import LocalEngine

            seen.update(options, engine=engine)
            return LocalEngine()

        monkeypatch.setattr("skipstone.engine.jobs.open_engine", opened)
        done = run("index", "build", lake, "--remote", "sc://host", "--conf", "a=b", "--conf", "c=d=e")
        assert done.exit_code == 0
        conf = {"a": "b", "c": "d=e"}
        assert seen == {
            "engine": "spark",
            "master": None,
            "remote": "sc://host",
            "conf": conf,
            "threads": None,
        }

    def test_hints_name_options(self, run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from skipstone.errors import JobError

        def broken(*_: Any, **__: Any) -> Any:
            raise JobError("Spark can't be started", hint='engine="local" needs no Java')

        monkeypatch.setattr("skipstone.engine.jobs.open_engine", broken)
        done = run("index", "build", lake)
        assert (done.exit_code, done.stdout) == (Exit.OTHER, "")
        assert done.stderr == "error: Spark can't be started; hint: --engine local needs no Java\n"


class TestRefresh:
    def test_what_is_new_and_gone(self, run: Run, lake: Path) -> None:
        run("index", "build", lake, *LOCAL, "--columns", "id")
        (lake / "year=2025" / "kind=a" / "part.parquet").rename(
            lake / "year=2025" / "kind=a" / "other.parquet"
        )
        done = run("index", "refresh", lake, *LOCAL)
        assert done.stdout.startswith("indexed 1 file, 3 already indexed; 1 file deleted or changed\n")
        assert status(run, lake)["options"]["columns"] == ["id"]

    def test_without_an_index(self, run: Run, lake: Path) -> None:
        done = run("index", "refresh", lake, *LOCAL)
        assert (done.exit_code, done.stdout) == (Exit.OTHER, "")
        assert "no index to refresh; hint: build the index first" in done.stderr

    def test_a_damaged_manifest(self, run: Run, lake: Path) -> None:
        run("index", "build", lake, *LOCAL)
        for file in own_files(lake).glob("manifest-*"):
            file.write_bytes(b"?")
        done = run("index", "refresh", lake, *LOCAL)
        assert (done.exit_code, done.stdout) == (Exit.FILE, "")
        assert "manifest is damaged; hint: build the index again" in done.stderr
        done = run("index", "build", lake, *LOCAL)
        assert (done.exit_code, done.stderr) == (0, "")


class TestStatus:
    def test_none(self, run: Run, lake: Path) -> None:
        done = run("index", "status", lake)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.endswith("next: build the index: lake.index.build(), or skipstone index build\n")
        assert status(run, lake)["exists"] is False

    def test_text(self, run: Run, lake: Path) -> None:
        run("index", "build", lake, *LOCAL)
        done = run("index", "status", lake)
        assert "├─ files    ████████████████████  4 of 4 indexed\n" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 100

    def test_another_place(self, run: Run, lake: Path, tmp_path: Path) -> None:
        root = ("--index-root", tmp_path / "elsewhere")
        run("index", "build", lake, *LOCAL, *root)
        assert status(run, lake)["exists"] is False
        assert status(run, lake, *root)["covered"] == 4

    def test_no_lake(self, run: Run, tmp_path: Path) -> None:
        done = run("index", "status", tmp_path / "nothing")
        assert (done.exit_code, done.stdout) == (Exit.FILE, "")


class TestAdvise:
    def test_text(self, run: Run, lake: Path) -> None:
        done = run("index", "advise", lake, "--where", "id = 5", "--where", "name = 'name 3'")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "2 queries" in done.stdout

    def test_without_questions(self, run: Run, lake: Path) -> None:
        told = json.loads(run("index", "advise", lake, "--format", "json", "--sample", 2).stdout)
        assert (told["synthetic"], told["sampled"]) == (True, 2)

    def test_a_log(self, run: Run, lake: Path, tmp_path: Path) -> None:
        log = tmp_path / "log.txt"
        log.write_text('id = 5\nselect * from t where price > 3\n{"where": "id = 7", "count": 4}\nnope = 1\n')
        told = json.loads(run("index", "advise", lake, "--log", log, "--format", "json").stdout)
        assert (told["understood"], len(told["refused"])) == (3, 1)
        done = run("index", "advise", lake, "--log", log, "--where", "id = 5")
        assert done.exit_code == Exit.USAGE
        assert run("index", "advise", lake, "--log", tmp_path / "none").exit_code == Exit.FILE

    def test_wrong_sql(self, run: Run, lake: Path) -> None:
        done = run("index", "advise", lake, "--where", "id =")
        assert (done.exit_code, done.stdout) == (Exit.PREDICATE, "")


class TestDrop:
    def test_nobody_to_ask(self, run: Run, lake: Path, words: Callable[[str], str]) -> None:
        run("index", "build", lake, *LOCAL)
        done = run("index", "drop", lake)
        assert (done.exit_code, done.stdout) == (Exit.USAGE, "")
        assert "use --yes to confirm" in words(done.stderr)
        assert status(run, lake)["covered"] == 4

    def test_yes(self, run: Run, lake: Path) -> None:
        run("index", "build", lake, *LOCAL)
        done = run("index", "drop", lake, "--yes")
        assert (done.exit_code, done.stdout) == (0, f"deleted the index in {own_files(lake)}\n")
        assert status(run, lake)["exists"] is False
        done = run("index", "drop", lake)
        assert (done.exit_code, done.stdout) == (0, f"no index in {own_files(lake)}\n")

    @pytest.mark.parametrize("answer", [True, False])
    def test_asked(self, run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
        run("index", "build", lake, *LOCAL)
        asked: list[str] = []
        monkeypatch.setattr(module, "confirm", lambda question: asked.append(question) or answer)
        done = run("index", "drop", lake)
        assert done.exit_code == 0
        assert asked[0].startswith(f"Delete the index in {own_files(lake)} (4 files, ")
        assert status(run, lake)["exists"] is not answer
        assert ("nothing was deleted" in done.stdout) is not answer

    def test_what_is_not_of_the_index_stays(self, run: Run, lake: Path, tmp_path: Path) -> None:
        root = tmp_path / "elsewhere"
        root.mkdir()
        (root / "mine.txt").write_text("mine")
        run("index", "build", lake, *LOCAL, "--index-root", root)
        assert run("index", "drop", lake, "--index-root", root, "--yes").exit_code == 0
        assert [file.name for file in root.iterdir()] == ["mine.txt"]


class TestOtherCommands:
    WHERE = ("--where", "id = 1390")

    def test_explain(self, run: Run, lake: Path) -> None:
        assert "index" not in run("explain", lake, *self.WHERE).stdout
        run("index", "build", lake, *LOCAL)
        assert "│  index version 1 covers 4 of 4 files\n" in run("explain", lake, *self.WHERE).stdout
        assert "index version" not in run("explain", lake, *self.WHERE, "--no-index").stdout

    def test_another_place(self, run: Run, lake: Path, tmp_path: Path) -> None:
        root = ("--index-root", tmp_path / "elsewhere")
        run("index", "build", lake, *LOCAL, *root)
        told = json.loads(run("explain", lake, *self.WHERE, *root, "--format", "json").stdout)
        assert (told["index"]["version"], told["index"]["covered"]) == (1, 4)

    @pytest.mark.parametrize("options", [(), ("--no-index",)])
    def test_answers_are_the_same(self, run: Run, lake: Path, options: tuple[str, ...]) -> None:
        run("index", "build", lake, *LOCAL)
        assert run("count", lake, *self.WHERE, *options).stdout == "2\n"
        assert run("query", lake, *self.WHERE, "--format", "jsonl", *options).stdout.count("\n") == 2
        assert run("verify", lake, *self.WHERE, *options).exit_code == 0

    def test_no_footer_is_opened(self, run: Run, lake: Path) -> None:
        before = json.loads(run("count", lake, "--where", "id = 5000", "--format", "json").stdout)
        run("index", "build", lake, *LOCAL)
        after = json.loads(run("count", lake, "--where", "id = 5000", "--format", "json").stdout)
        assert (before["requests"], after["requests"]) == (4, 0)

    def test_damage_is_noted(self, run: Run, lake: Path) -> None:
        run("index", "build", lake, *LOCAL)
        for file in own_files(lake).glob("segment-*"):
            file.write_bytes(file.read_bytes()[:-1])
        done = run("explain", lake, *self.WHERE)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "notes: index: segment-" in done.stdout
        assert run("count", lake, *self.WHERE).stdout == "2\n"
