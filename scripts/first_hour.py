"""Plays the first hour of a new user: installs Skipstone and runs what README and docs show.

    python scripts/first_hour.py                      every stage, each in a new virtual environment
    python scripts/first_hour.py --stages base,spark  some of them
    python scripts/first_hour.py --work DIR           keep the environments in DIR, and use them again

A stage installs the wheel of this repository with one extra, and runs its pages. Where the extra of a
snippet is not installed, the error has to name it. Pages that write the lake they query have to print what
they show. Each stage also does what new users try on data of their own, within a given time.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OWN_LAKE = ("README.md", "docs/start.md")
"""Pages that write the lake they query, so that their output is known."""
PAGES = (
    *OWN_LAKE,
    *(
        f"docs/{name}.md"
        for name in ("index", "cli", "lakes", "predicates", "pruning", "aggregates", "indexes")
    ),
    *(f"docs/{name}.md" for name in ("iceberg", "ingest", "spark", "troubleshooting")),
)
TABLE_PAGES = tuple(f"docs/{name}.md" for name in ("iceberg", "keyed-tables", "compaction", "maintenance"))
CALLS = {
    "iceberg": [
        "sk.catalog('warehouse/')",
        "sk.open('db.events', catalog='warehouse/')",
        "sk.open('t/metadata/v1.metadata.json')",
        "$ skipstone tables --catalog warehouse/",
        "$ skipstone query db.events --catalog warehouse/",
    ],
    "engines": ["lake.scan().to_polars()"],
    "pandas": ["lake.scan().to_pandas()"],
    "spark": [
        "sk.spark()",
        "lake.scan().to_spark()",
        "lake.index.build(engine='spark')",
        "$ skipstone index build events --engine spark",
        "$ skipstone explain events --spark",
    ],
}
"""Calls that need an extra."""
_LAST = 12
_NEEDS = re.compile(r"skipstone\[(\w+)\]")


@dataclass(frozen=True)
class Stage:
    """An installation, and the pages that belong to it."""

    name: str
    extra: str = ""
    packages: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()


STAGES = (
    Stage("base", pages=PAGES),
    Stage("iceberg", "iceberg", ("ipython",), ("README.md", *TABLE_PAGES, "docs/cli.md")),
    Stage(
        "engines",
        "engines",
        pages=(
            "docs/start.md",
            *(f"docs/{name}.md" for name in ("lakes", "predicates", "aggregates", "engines")),
        ),
    ),
    Stage("pandas", "pandas"),
    Stage("s3", "iceberg", ("moto[server]",), ("docs/minio.md",)),
    Stage("spark", "spark", pages=("docs/ingest.md", "docs/spark.md", "docs/cli.md", "docs/indexes.md")),
)


@dataclass(frozen=True)
class Task:
    """Something that a user tries early on, and how long it may take on an idle machine."""

    name: str
    code: str
    most: float
    """Seconds of a new process."""
    extra: str = ""
    prepare: str = ""


_ODD_COLUMNS = """
import datetime, pathlib, pyarrow as pa, pyarrow.parquet as pq
pathlib.Path("lake").mkdir()
rows = {"id": [1, 2, 3], "at": [datetime.datetime(2026, 1, 1, 12)] * 3, "place": [{"x": 1.5}] * 3}
took = pa.array([datetime.timedelta(minutes=90)] * 3, pa.duration("ms"))
rows = pa.table(rows).append_column("took", took)
pq.write_table(rows, "lake/f.parquet", use_deprecated_int96_timestamps=True)
"""
_SIX_ROWS = 'rows = pa.table({"id": [3, 1, 2, 6, 4, 5]})'
TASKS = (
    Task(
        "ingest 5,000 files of 200 rows",
        """
        import skipstone as sk
        report = sk.ingest_new("tiny", "lake", cluster_by=["id"], partition_by=["day"], engine="local")
        assert (report.rows, report.files) == (1_000_000, 28), report
        """,
        most=3,
        prepare="""
        import pathlib, numpy as np, pyarrow as pa, pyarrow.parquet as pq
        pathlib.Path("tiny").mkdir()
        random = np.random.default_rng(1)
        for number in range(5_000):
            ids = random.integers(0, 1_000_000, 200)
            rows = {"id": ids, "day": ids % 28, "name": [f"name {id % 50}" for id in ids.tolist()]}
            pq.write_table(pa.table(rows), f"tiny/{number:04d}.parquet")
        """,
    ),
    Task(
        "ingest six rows, which need no Spark",
        f"""
        import pyarrow as pa, skipstone as sk
        {_SIX_ROWS}
        report = sk.ingest(rows, "lake", cluster_by=["id"])
        assert report.engine.name == "local" and "use engine spark" in report.engine.reason, report
        """,
        most=2,
        extra="spark",
    ),
    Task(
        "ingest six rows by Spark, with a new session",
        f"""
        import pyarrow as pa, skipstone as sk
        {_SIX_ROWS}
        report = sk.ingest(rows, "lake", cluster_by=["id"], engine="spark")
        assert report.engine.name == "spark", report
        """,
        most=12,
        extra="spark",
    ),
    Task(
        "type the names of results into Python and IPython",
        """
        import code, contextlib, io, pyarrow as pa, skipstone as sk
        try:
            from IPython.lib.pretty import pretty
        except ImportError:
            pretty = repr
        def typed(value):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                code.InteractiveInterpreter({"value": value}).runsource("value")
            return out.getvalue().rstrip("\\n")
        lake = sk.open("lake")
        scan = lake.scan("id > 1")
        table = sk.catalog("wh/").create_table("db.t", pa.schema({"id": pa.int64()}), key=["id"])
        index = lake.index
        results = [index.build(engine="local"), index.status(), index.advise(), lake.statistics()]
        results += [scan.plan(), scan.verify(), scan.aggregate(sk.count())]
        results += [scan.explain(), scan.explain("json")]
        results += [table.upsert(pa.table({"id": [1, 2]})), table.snapshots(), table.maintenance()]
        for result in results:
            text = typed(result)
            assert text == pretty(result) == str(result).rstrip("\\n"), text
            assert "\\\\n" not in text and not text.startswith(type(result).__name__), text
        assert typed(scan.aggregate(sk.count())).split()[:5] == ["function", "answer", "type", "count", "2"]
        table.delete("id = 1")
        assert " 1  main" in str(table.snapshots()), table.snapshots()
        """,
        most=6,
        extra="iceberg",
        prepare=_ODD_COLUMNS,
    ),
    Task(
        "look at nested columns, durations and Spark's timestamps",
        """
        import pathlib, subprocess, sys
        def ask(*words):
            run = [str(pathlib.Path(sys.executable).with_name("skipstone")), *words]
            return subprocess.run(run, capture_output=True, text=True, check=True).stdout
        schema = [line.split() for line in ask("schema", "lake").splitlines()]
        assert ["at", "timestamp[ns,", "UTC]"] in schema and ["x", "double"] in schema, schema
        assert ["took", "duration[ms]"] in schema, schema
        head = ask("head", "lake")
        assert "2026-01-01 12:00:00Z" in head and "01:30:00" in head, head
        """,
        most=3,
        prepare=_ODD_COLUMNS,
    ),
)


@dataclass(frozen=True)
class Step:
    """One thing that a user does, and how it went: ok, needs [extra], skipped, slow, differs or failed."""

    place: str
    code: str
    seconds: float
    outcome: str
    detail: str = ""

    @property
    def good(self) -> bool:
        """Whether it went as documented."""
        return self.outcome not in ("slow", "differs", "failed")


@dataclass(frozen=True)
class Snippet:
    """Code of a page; ``shown`` is the output below it, None if the page shows none."""

    place: str
    code: str
    shown: str | None
    console: bool


def snippets(page: str, blocks: Sequence[tuple[int, str, str]]) -> Iterator[Snippet]:
    """What a page shows, in order: blocks of Python, and each command of a console."""
    for number, (line, language, text) in enumerate(blocks):
        if language == "python":
            below = blocks[number + 1] if number + 1 < len(blocks) else (0, "python", "")
            near = below[0] - line <= text.count("\n") + 3  # no more than an empty line between them
            yield Snippet(
                f"{page}:{line}", text, below[2] if below[1] == "" and near else None, console=False
            )
        elif language == "console":
            for command, shown in _commands(text):
                yield Snippet(f"{page}:{line}", command, shown, console=True)


def _commands(text: str) -> Iterator[tuple[str, str | None]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        if re.match(r"(?:[A-Z_]+=\S+ )*skipstone ", command):
            yield command, output if output.strip() else None


def judged(shown: str | None, printed: str, error: str, extras: Sequence[str]) -> tuple[str, str]:
    """The outcome of a snippet, and its details."""
    if error:
        extra = _NEEDS.search(error)
        if extra is not None and extra[1] not in extras:
            return f"needs [{extra[1]}]", ""
        return "failed", error
    if shown is not None and masked(printed) != masked(shown):
        lines = difflib.unified_diff(
            masked(shown).splitlines(), masked(printed).splitlines(), "shown", "printed", "", "", 1
        )
        return "differs", "\n".join(line.rstrip("\n") for line in lines)
    return "ok", ""


def masked(text: str) -> str:
    """Output without what differs from run to run: the path of the lake, its version, times."""
    text = re.sub(r"^\S*events  ", "events  ", text, flags=re.MULTILINE)
    text = re.sub(r"version \w+", "version", text)
    # The name of a column of times is as far to the right as they are wide.
    return re.sub(r" *(?:[\d.]+ (?:ms|µs|s)|time)\b", " time", text).strip()


def table(steps: Mapping[str, Sequence[Step]]) -> str:
    """The outcomes of each stage by page, with the times."""
    rows = [("stage", "page", "steps", "seconds", "outcome")]
    for stage, done in steps.items():
        places: dict[str, list[Step]] = {}
        for step in done:
            places.setdefault(step.place.partition(":")[0], []).append(step)
        for place, some in places.items():
            outcomes: dict[str, int] = {}
            for step in some:
                outcomes[step.outcome] = outcomes.get(step.outcome, 0) + 1
            shown = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
            rows.append((stage, place, str(len(some)), f"{sum(step.seconds for step in some):.1f}", shown))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]))
        for row in rows
    )


# -- inside an environment -----------------------------------------------------------------------


def play(page: str, extras: Sequence[str], work: Path) -> Iterator[Step]:
    """Run a page's snippets in a new directory; those that need what an earlier one lacked are skipped."""
    from tests.support.docs import blocks

    work.mkdir(parents=True)
    os.chdir(work)
    try:
        names, endpoint = _prepare(page, extras, work)
    except Exception as error:
        yield Step(page, "the files that the page uses", 0.0, "failed", _last_frame(error))
        return
    lacking = False
    for snippet in snippets(page, [*blocks(page)]):
        began = time.perf_counter()
        code = snippet.code.replace("http://localhost:9000", endpoint or "http://localhost:9000")
        printed, error = _run_console(code) if snippet.console else _run_python(code, snippet.place, names)
        seconds = time.perf_counter() - began
        # Without Spark, the frame that pages ingest is an Arrow table.
        foreign = "spark" not in extras and "'pyarrow.lib.Table' object has no attribute 'write'" in error
        if foreign or (lacking and re.match(r"NameError|AttributeError", error)):
            outcome, detail = "skipped", ""
        else:
            outcome, detail = judged(snippet.shown if page in OWN_LAKE else None, printed, error, extras)
        lacking = lacking or outcome.startswith("needs")
        yield Step(snippet.place, _first_line(snippet.code), seconds, outcome, detail)


def call(extras: Sequence[str], work: Path) -> Iterator[Step]:
    """Run the calls that need an extra which is not installed; their errors have to name it."""
    import skipstone as sk
    from tests.support.docs import write_events

    work.mkdir(parents=True)
    os.chdir(work)
    write_events(work)
    (work / "t" / "metadata").mkdir(parents=True)
    (work / "t" / "metadata" / "v1.metadata.json").write_text("{}")
    for extra, codes in CALLS.items():
        for code in codes if extra not in extras else ():
            began = time.perf_counter()
            names = {"sk": sk, "lake": sk.open("events")}
            _, error = _run_console(code[2:]) if code.startswith("$") else _run_python(code, "call", names)
            named = _NEEDS.search(error)
            # Without an error, another extra has brought the library.
            good = not error or (named is not None and named[1] == extra)
            outcome = "failed" if not good else f"names [{extra}]" if error else "ok"
            detail = "" if good else f"expected an error that names skipstone[{extra}], got:\n{error}"
            yield Step("extras", code, time.perf_counter() - began, outcome, detail)


def perform(tasks: Iterable[Task], extras: Sequence[str], work: Path) -> Iterator[Step]:
    """Do what users try on their own data, each task in a new process and directory."""
    for number, task in enumerate(tasks):
        if task.extra and task.extra not in extras:
            continue
        folder = work / str(number)
        folder.mkdir(parents=True)
        seconds, error = 0.0, ""
        for code in (task.prepare, task.code):
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(code)],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            seconds = time.perf_counter() - began
            error = error or (done.stderr if done.returncode else "")
        slow = f"{seconds:.1f} s; at most {task.most:g} s on an idle machine" if seconds > task.most else ""
        outcome = "failed" if error else "slow" if slow else "ok"
        yield Step("own data", task.name, seconds, outcome, error or slow)


def _prepare(page: str, extras: Sequence[str], work: Path) -> tuple[dict[str, Any], str]:
    """The files and names that a page uses without making them, and the endpoint of its object store."""
    from tests.support import docs

    if page in OWN_LAKE:
        return {}, ""
    docs.write_events(work)
    names = docs.namespace(work)
    if "iceberg" in extras and page in (*TABLE_PAGES, "docs/cli.md"):
        docs.write_table()
    if "spark" in extras and page == "docs/ingest.md":
        import skipstone as sk

        names.update(docs.spark_frames(sk.spark(), work))
    if page == "docs/minio.md":
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        os.environ.update(docs.write_bucket(work, endpoint))
        return names, endpoint
    return names, ""


def _run_python(code: str, place: str, names: dict[str, Any]) -> tuple[str, str]:
    import contextlib
    import io

    from tests.support.docs import absolute, run_python

    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            run_python(absolute(code), place, names)
    except Exception as error:
        return printed.getvalue(), _last_frame(error)
    return printed.getvalue(), ""


def _last_frame(error: Exception) -> str:
    return (
        f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-1:])}".rstrip()
    )


def _run_console(command: str) -> tuple[str, str]:
    variables = dict(part.split("=", 1) for part in re.findall(r"^((?:[A-Z_]+=\S+ )*)", command)[0].split())
    words = shlex.split(re.sub(r"^(?:[A-Z_]+=\S+ )*", "", command), comments=True)
    program = Path(sys.executable).with_name(words[0])
    done = subprocess.run(
        [program, *words[1:]], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.stdout, f"exit code {done.returncode}: {done.stderr}" if done.returncode else ""


def _first_line(code: str) -> str:
    lines = [line for line in code.strip().splitlines() if line and not line.startswith(("import ", "from "))]
    return lines[0] if lines else code.strip()


# -- environments --------------------------------------------------------------------------------


def build(work: Path) -> Path:
    """The wheel of this repository."""
    _pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(work / "wheel"), str(ROOT))
    return next((work / "wheel").glob("skipstone-*.whl"))


def install(stage: Stage, wheel: Path, work: Path) -> Path:
    """The Python of a virtual environment with the wheel and a stage's packages."""
    folder = work / stage.name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    _pip(python, "uninstall", "--yes", "skipstone")
    _pip(python, "install", f"{wheel}[{stage.extra}]" if stage.extra else str(wheel), *stage.packages)
    return python


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} failed:\n{done.stderr}")


def _environment(home: Path | None = None) -> dict[str, str]:
    """The variables of this process, without settings of Python and of object stores."""
    own = ("PYTHON", "VIRTUAL_ENV", "AWS_", "GOOGLE_", "AZURE_", "SKIPSTONE_", "SPARK_", "PYICEBERG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**kept, **({"HOME": str(home), "PYTHONPATH": str(ROOT)} if home is not None else {})}


def run_stage(stage: Stage, wheel: Path, work: Path) -> Iterator[Step]:
    """Install a stage and run its pages, each in a process of its own."""
    began = time.perf_counter()
    python = install(stage, wheel, work)
    megabytes = sum(path.stat().st_size for path in (work / stage.name).rglob("*") if path.is_file()) / 1e6
    yield Step(
        "pip install", f"{stage.extra or 'base'}: {megabytes:.0f} MB", time.perf_counter() - began, "ok"
    )
    extras = [stage.extra] if stage.extra else []
    for page in ("extras", "tasks", *stage.pages):
        with tempfile.TemporaryDirectory(dir=work) as folder:
            command = [
                str(python),
                __file__,
                "--page",
                page,
                "--extras",
                ",".join(extras),
                "--work",
                f"{folder}/run",
            ]
            errors = Path(folder) / "errors"
            with (
                errors.open("w") as sink,
                subprocess.Popen(
                    command, env=_environment(Path(folder)), stdout=subprocess.PIPE, stderr=sink, text=True
                ) as process,
            ):
                assert process.stdout is not None
                for line in process.stdout:
                    if line.startswith("\x1e"):
                        yield Step(**json.loads(line[1:]))
            if process.returncode:
                yield Step(page, "the page's process", 0.0, "failed", errors.read_text()[-2000:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages and print what happened; 1 if anything differs from the docs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stages", default=",".join(stage.name for stage in STAGES))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--page", help=argparse.SUPPRESS)
    parser.add_argument("--extras", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.page:
        extras = [name for name in options.extras.split(",") if name]
        if options.page == "extras":
            steps = call(extras, options.work)
        elif options.page == "tasks":
            steps = perform(TASKS, extras, options.work)
        else:
            steps = play(options.page, extras, options.work)
        for step in steps:
            print(f"\x1e{json.dumps(asdict(step))}", flush=True)
        return 0
    chosen = options.stages.split(",")
    unknown = {*chosen} - {stage.name for stage in STAGES}
    if unknown:
        parser.error(f"unknown stage {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        print("building the wheel ...", flush=True)
        wheel, done = build(work.resolve()), {}
        for stage in STAGES:
            if stage.name in chosen:
                done[stage.name] = [*_shown(stage, run_stage(stage, wheel, work.resolve()))]
    print(f"\n{table(done)}")
    bad = [(name, step) for name, steps in done.items() for step in steps if not step.good]
    for name, step in bad:
        print(f"\n{name}: {step.place} {step.outcome}: {step.code}")
        print("\n".join(step.detail.strip().splitlines()[-_LAST:]))
    total = sum(step.seconds for steps in done.values() for step in steps)
    print(f"\n{sum(map(len, done.values()))} steps in {total:.0f} s, {len(bad)} not as documented")
    return 1 if bad else 0


def _shown(stage: Stage, steps: Iterator[Step]) -> Iterator[Step]:
    for step in steps:
        print(
            f"{stage.name:8} {step.place:24} {step.seconds:6.1f} s  {step.outcome:16} {step.code[:80]}",
            flush=True,
        )
        yield step


if __name__ == "__main__":
    sys.exit(main())
