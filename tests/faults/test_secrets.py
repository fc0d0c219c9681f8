"""Credentials show nowhere: not in pickles, reprs, explanations, errors or the command line's output.

Every value that is secret is one text that can be looked for; whoever adds a place where options are kept
adds it to what is looked at.
"""

from __future__ import annotations

import json
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import skipstone as sk
from skipstone.cli.main import app
from skipstone.errors import ReadError
from skipstone.store.store import open_root

HUSH = "hUsH0123456789abcdefHuSh"
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
DATA = pa.table({"id": range(100), "text": [f"text {n}" for n in range(100)]}, schema=SCHEMA)


@pytest.fixture(scope="module")
def options(s3: dict[str, str]) -> dict[str, str]:
    return {**s3, "aws_secret_access_key": HUSH, "aws_session_token": HUSH}


@pytest.fixture(scope="module")
def directory(options: dict[str, str]) -> str:
    sink = pa.BufferOutputStream()
    pq.write_table(DATA, sink)
    store = open_root("s3://bucket/secrets/lake", storage_options=options)
    store.write("f.parquet", [sink.getvalue().to_pybytes()])
    return store.uri


@pytest.fixture(scope="module")
def properties(options: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    made = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path_factory.mktemp('secrets')}/catalog.db",
        "warehouse": "s3://bucket/secrets/warehouse",
        "s3.endpoint": options["aws_endpoint"],
        "s3.access-key-id": options["aws_access_key_id"],
        "s3.secret-access-key": HUSH,
        "s3.session-token": HUSH,
        "s3.region": "us-east-1",
        "token": HUSH,
    }
    sk.catalog(made).create_table("db.events", SCHEMA).table.append(DATA)
    return made


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that has no settings of its own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")


Lakes = Callable[[str], Any]


@pytest.fixture
def lakes(directory: str, options: dict[str, str], properties: dict[str, str]) -> Lakes:
    opened = {
        "directory": lambda: sk.open(directory, storage_options=options),
        "table": lambda: sk.open("db.events", catalog=properties),
        "metadata": lambda: sk.open(
            sk.open("db.events", catalog=properties).table.metadata_location, storage_options=options
        ),
    }
    return lambda kind: opened[kind]()


KINDS = ("directory", "table", "metadata")


def parts(lake: Any) -> Iterator[Any]:
    """All that a user can get hold of."""
    scan = lake.scan("id > 10 and text like 'text%'")
    plan = scan.plan()
    yield from (lake, scan, plan, *plan.tasks, plan.trace, lake.files, lake.index, lake.index.status())
    yield from (lake.access, lake.access.store, scan.aggregate(sk.count(), sk.sum("id")), lake.statistics())
    yield from (scan.explain(), scan.explain(format="json"), scan.explain(analyze=True, format="html"))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_shows_them(lakes: Lakes, kind: str) -> None:
    for part in parts(lakes(kind)):
        assert HUSH not in f"{part!r} {part}", type(part)


@pytest.mark.parametrize("kind", KINDS)
def test_no_pickle_holds_them(lakes: Lakes, kind: str) -> None:
    pickled = 0
    for part in parts(lakes(kind)):
        try:
            body = pickle.dumps(part)
        except TypeError:  # not made to be pickled: an index holds locks
            continue
        pickled += 1
        assert HUSH.encode() not in body, type(part)
    assert pickled >= 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("bare")
def test_whoever_unpickles_has_credentials_or_is_told_how(
    lakes: Lakes, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no settings but those in the pickle, this process is as good as another."""
    plan = lakes(kind).scan("id > 10").plan()
    body, whole = pickle.dumps(plan), pickle.dumps(sk.with_credentials(plan))
    assert HUSH.encode() in whole
    assert sk.execute(pickle.loads(whole)).to_arrow().num_rows == 89
    told = r"no credentials found .*AWS_PROFILE.* skipstone\.with_credentials"
    with pytest.raises(ReadError, match=told):
        sk.execute(pickle.loads(body)).to_arrow()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    assert sk.execute(pickle.loads(body)).to_arrow().num_rows == 89


def test_errors_and_their_tracebacks(
    options: dict[str, str], properties: dict[str, str], directory: str
) -> None:
    def tried(run: Callable[[], object]) -> str:
        try:
            run()
        except sk.SkipstoneError as error:
            told = "".join(traceback.format_exception(error))
            # The lines of this file are the test's own.
            return "\n".join(line for line in told.splitlines() if not line.startswith("    "))
        raise AssertionError("nothing was refused")

    wrong = {**options, "aws_endpoint": f"http://me:{HUSH}@127.0.0.1:9"}
    failing: list[Callable[[], object]] = [
        lambda: sk.open("s3://no-such-bucket/x", storage_options=options),
        lambda: sk.open(directory, storage_options={**options, "nonsense": HUSH}),
        lambda: sk.open(directory, storage_options={**options, "aws_skip_signature": HUSH}),
        lambda: sk.open(directory, storage_options=wrong, retry=sk.RetryPolicy(attempts=1)),
        lambda: sk.open(f"https://127.0.0.1:9/f.parquet?X-Amz-Signature={HUSH}"),
        lambda: open_root("s3://no-such-bucket/x", storage_options=options).write("f", [b"1"]),
        lambda: sk.open("db.events", catalog={"type": "sql", "uri": f"postgresql://me:{HUSH}@127.0.0.1:9/x"}),
        lambda: sk.open("db.events", catalog={"type": "sql", "uri": f"no//such:{HUSH}"}),
        lambda: sk.open("db.none", catalog=properties),
        lambda: sk.catalog({**properties, "type": "rest", "uri": f"http://me:{HUSH}@127.0.0.1:9"}),
    ]
    for run in failing:
        assert HUSH not in tried(run)


def test_the_command_line(options: dict[str, str], directory: str) -> None:
    given = [part for name, value in options.items() for part in ("--storage-option", f"{name}={value}")]
    runs = (
        ("query", directory, "--where", "id < 3", "--format", "json"),
        ("explain", directory, "--where", "id < 3"),
        ("explain", directory, "--where", "id < 3", "--format", "json"),
        ("inspect", f"{directory}/none.parquet"),
        ("index", "status", directory),
        ("query", "s3://no-such-bucket/x"),
    )
    for run in runs:
        done = CliRunner().invoke(app, [*run, *given])
        assert HUSH not in f"{done.stdout} {done.stderr}", run
        assert done.exception is None or isinstance(done.exception, SystemExit), run
    rows = json.loads(CliRunner().invoke(app, [*runs[0], *given]).stdout)
    assert [row["id"] for row in rows] == [0, 1, 2]
