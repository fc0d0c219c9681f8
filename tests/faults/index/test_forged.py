"""An index that lies with right checksums: answers are right, and whatever it says nothing crashes.

Cases run in processes of their own with bounded memory and time, so that a crash is a failure of a case.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from xxhash import xxh3_64_hexdigest

import skipstone as sk
from skipstone.errors import CorruptFileError
from skipstone.index import container as box
from skipstone.index.container import BadIndex
from skipstone.index.manifest import Manifest
from tests.faults.index._forger import WRONG, Arrays, Head, damaged_schema, forge
from tests.faults.index._indexes import QUESTIONS, build, check, manifests

SAMPLE = 25
MANY = 1_000
PER_WORKER = 50
_MEMORY = 4 << 30
_SECONDS = 600


def run(root: Path, folder: Path, seed: str, first: int, count: int) -> list[str]:
    """What went wrong in some cases, a crash included."""
    repository = Path(__file__).parents[3]
    limits = (_MEMORY, _MEMORY)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.faults.index._forger",
            str(root),
            str(folder),
            seed,
            str(first),
            str(count),
        ],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        cwd=repository,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(repository), *sys.path))},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
        check=False,
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    if done.returncode:
        failed.append(f"exit {done.returncode} in {lines[-1:]}: {done.stderr[-2000:]}")
    return failed


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    build(sk.open(root, index_root=folder), sums=["id"], sketches=["id"])
    return folder


def test_forged_segments(root: Path, folder: Path) -> None:
    assert run(root, folder, "sample", 0, SAMPLE) == []


def problems(lake: Any) -> list[str]:
    return [problem.partition(": ")[2] for problem in lake.index.status().problems]


def test_damaged_schemas_are_ignored(root: Path, folder: Path, table: pa.Table) -> None:
    """They were decoded after the index was trusted, when a query needed them."""
    good = {path: path.read_bytes() for path in folder.iterdir()}
    for number in range(24):
        forge(folder, random.Random(number), damaged_schema)
        lake = sk.open(root, index_root=folder)
        used = check(lake, table, QUESTIONS[number % len(QUESTIONS)])
        assert used.covered == 0
        assert problems(lake) == ["schema is damaged: checksum mismatch"]
        assert "ignored: schema is damaged" in lake.scan("id = 5").explain()
        for path, body in good.items():
            path.write_bytes(body)


def test_schemas_that_cannot_be_decoded_are_ignored(
    root: Path, folder: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a right checksum: what pyarrow says of them is said of the index."""

    def no_base64(arrays: Arrays, head: Head, _: random.Random) -> tuple[str, bool]:
        body = arrays[box.COMMON, "kins/data"]
        at = body.tobytes().index(b"ARROW:schema") + 40
        body[at] = ord("~")
        head["schemas"] = [xxh3_64_hexdigest(body.tobytes())]
        return "base64", True

    forge(folder, random.Random(1), no_base64)
    lake = sk.open(root, index_root=folder)
    check(lake, table, QUESTIONS[0])
    (problem,) = problems(lake)
    assert problem.startswith("schema can't be read")
    assert "base64" in problem


def test_pages_that_are_found_wrong_when_they_are_read(root: Path, folder: Path, table: pa.Table) -> None:
    """The query reads them again by the file's own metadata, and the index is not used any more."""

    def longer_page(arrays: Arrays, _: Head, __: random.Random) -> tuple[str, bool]:
        for (_, name), array in arrays.items():
            if name == "page/first_rows":
                array[array == 20] = 30
        return "pages", False

    forge(folder, random.Random(1), longer_page)
    lake = sk.open(root, index_root=folder)
    check(lake, table, QUESTIONS[3])
    (problem,) = problems(lake)
    assert "its page index records" in problem
    assert problem.endswith("(read without the index)")
    assert lake.scan("id = 417").trace().index.covered == 0


def test_an_index_is_not_blamed_for_a_damaged_file(own: Path) -> None:
    lake = sk.open(own)
    path = own / "part-1.parquet"
    stat, body = path.stat(), bytearray(path.read_bytes())
    offset = lake.scan().plan().files.layout(lake.entries[1]).chunk_range(0, 0).start
    body[offset : offset + 40] = bytes(40)
    path.write_bytes(body)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    lake = sk.open(own)
    lake.index.build(engine="local", rebuild=False)
    with pytest.raises(CorruptFileError, match=r"part-1\.parquet"):
        lake.scan("id between 350 and 460 or id = 420").to_arrow()
    assert problems(lake) == []


def test_values_of_other_types_in_a_manifest(root: Path, folder: Path, table: pa.Table) -> None:
    (path,) = manifests(folder)
    body = json.loads(path.read_bytes().partition(b"\n")[2])
    refused = 0
    for place in (body, body["segments"][0], body["spec"]):
        for name, right in place.items():
            for wrong in WRONG:
                place[name] = wrong
                refused += not _decodes(body)
            place[name] = right
    assert refused > 200
    place["sums"] = 7
    path.write_bytes(_encoded(body))
    lake = sk.open(root, index_root=folder)
    assert check(lake, table, QUESTIONS[0]).problems == ("manifest has invalid values",)
    assert lake.index.status().problems == ("manifest has invalid values",)


def _encoded(body: Any) -> bytes:
    text = json.dumps(body)
    digest = xxh3_64_hexdigest(text.encode())
    return f"skipstone index, format {box.FORMAT}, check {digest}\n{text}\n".encode()


def _decodes(body: Any) -> bool:
    try:
        manifest = Manifest.decode(_encoded(body))
    except BadIndex:
        return False
    # What is accepted can be written again.
    return bool(manifest.encode())


@pytest.mark.slow
def test_many_forged_segments(root: Path, folder: Path) -> None:
    starts = range(0, MANY, PER_WORKER)
    assert [problem for first in starts for problem in run(root, folder, "many", first, PER_WORKER)] == []
