"""Tables as other writers leave them: packed, older, newer or stranger than ours.

What can't be read is refused with the true reason.
"""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard

import skipstone as sk
from skipstone.errors import CorruptFileError, EncryptedFileError, ReadError, SkipstoneError, WriteError
from skipstone.iceberg.manifests.reading import clear_cache
from skipstone.store.local import LocalStore
from skipstone.store.store import ListedFile
from tests.faults.test_table_faults import ask, make, some, target
from tests.iceberg._maker import Maker

# -- metadata files ------------------------------------------------------------------------------


def metadata_of(maker: Maker) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(maker.metadata_location).read_text())
    return found


def saved(maker: Maker, metadata: Any, name: str = "x.metadata.json") -> str:
    path = Path(maker.metadata_location).with_name(name)
    path.write_text(json.dumps(metadata))
    return str(path)


@pytest.mark.parametrize(
    "name", ["9.gz.metadata.json", "9.metadata.json.gz", "9.zstd.metadata.json", "9.metadata.json"]
)
def test_compressed_metadata_is_known_by_its_bytes(name: str, tmp_path: Path) -> None:
    maker = make(tmp_path)
    plain = Path(maker.metadata_location).read_bytes()
    unsized = zstandard.ZstdCompressor(write_content_size=False)
    for packed in (gzip.compress(plain), zstandard.compress(plain), unsized.compress(plain), plain):
        path = Path(maker.metadata_location).with_name(name)
        path.write_bytes(packed)
        assert ask(str(path)) == ask(maker)
        for damaged in (packed[: len(packed) // 2], packed[:10]):
            path.write_bytes(damaged)
            with pytest.raises(CorruptFileError, match="table metadata is invalid") as refused:
                ask(str(path))
            assert refused.value.path == str(path)


def test_zstd_metadata_of_a_catalog_is_refused_with_a_way_out(tmp_path: Path) -> None:
    table = sk.catalog(tmp_path).create_table("db.t", pa.schema([("id", pa.int64())])).table
    table.append(pa.table({"id": [1, 2]}))
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_bytes(zstandard.compress(path.read_bytes()))
    with pytest.raises(ReadError, match="table metadata is compressed") as refused:
        sk.open("db.t", catalog=tmp_path)
    assert "open the metadata file" in (refused.value.hint or "")
    assert sk.open(str(path)).scan().count() == 2


# -- bombs ---------------------------------------------------------------------------------------

UNPACKED = 96 << 20


def bomb(kind: str) -> Iterator[bytes]:
    packer: Any = zlib.compressobj(6, zlib.DEFLATED, 31)
    if kind == "zstd":
        packer = zstandard.ZstdCompressor(level=1).compressobj()
    for _ in range(UNPACKED >> 24):
        yield packer.compress(b" " * (1 << 24))
    yield packer.flush()


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_metadata_that_unpacks_to_far_more_than_it_is(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "b.metadata.json"
    with path.open("wb") as file:
        file.writelines(bomb(kind))
    assert path.stat().st_size < UNPACKED >> 7
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFileError, match="implausibly many bytes") as refused:
            sk.open(str(path))
        assert tracemalloc.get_traced_memory()[1] < UNPACKED >> 3
    finally:
        tracemalloc.stop()
    assert refused.value.path == str(path)
    assert refused.value.hint


# -- snapshots that name their manifests ---------------------------------------------------------


def embedded(maker: Maker) -> str:
    """The same table, with snapshots that name their manifests themselves."""
    metadata = metadata_of(maker)
    for snapshot in metadata["snapshots"]:
        del snapshot["manifest-list"]
        snapshot["manifests"] = [one.path for one in maker.snapshots[snapshot["snapshot-id"]].manifests]
    return saved(maker, metadata)


def test_snapshots_of_version_1_may_name_their_manifests(tmp_path: Path) -> None:
    columns = [("id", "long"), ("s", "string"), ("p", "string")]
    maker = Maker(tmp_path, columns, [("p", "identity")], format_version=1)
    first = maker.append(some(0, 40))
    maker.evolve_spec([("id", "bucket[3]")])
    maker.append(some(40, 60), merge=False)
    listed, table = sk.open(maker.metadata_location), sk.open(embedded(maker))
    for where in (None, "p = 'a'", "id = 47", "id < 20 and p = 'b'"):
        clear_cache()
        assert ask(embedded(maker), where) == ask(maker, where)
        assert table.plan_files(where).table.equals(listed.plan_files(where).table)
    assert table.at(first.id).scan().count() == 40
    assert pickle.loads(pickle.dumps(table)).scan().count() == 60
    table.index.build(engine="local")
    assert sk.open(embedded(maker)).scan("id = 47").count() == 1
    manifest = Path(first.manifests[0].path)
    manifest.write_bytes(b"x" * 40)
    table.index.drop()
    with pytest.raises(CorruptFileError, match="Avro") as refused:
        ask(embedded(maker))
    assert refused.value.path == str(manifest)


def test_snapshots_of_version_2_must_have_a_list(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="manifest-list"):
        sk.open(embedded(make(tmp_path)))


# -- encryption ----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["list", "manifest", "delete manifest", "vector", "data"])
def test_an_encrypted_table_is_refused_as_that(what: str, tmp_path: Path) -> None:
    maker = make(tmp_path, 3)
    metadata = metadata_of(maker)
    metadata["encryption-keys"] = [{"key-id": "k1", "encrypted-key-metadata": "bm9wZQ=="}]
    metadata["snapshots"][-1]["key-id"] = "k1"
    location = saved(maker, metadata)
    assert len(ask(location)) == 58
    path = target(maker, what)
    size = path.stat().st_size
    if what == "data":
        path.write_bytes(b"PARE" + os.urandom(size - 8) + b"PARE")
    else:
        path.write_bytes(b"AGS1" + os.urandom(size - 4))
    with pytest.raises(EncryptedFileError, match="encrypted") as refused:
        ask(location)
    assert refused.value.path == str(path)
    assert refused.value.hint


# -- statistics ----------------------------------------------------------------------------------

STATISTICS = {
    "snapshot-id": 1,
    "statistics-path": "file:///nowhere.stats",
    "file-size-in-bytes": 413,
    "file-footer-size-in-bytes": 42,
    "blob-metadata": [
        {"type": kind, "snapshot-id": 1, "sequence-number": 1, "fields": [1], "properties": {"ndv": "7"}}
        for kind in ("apache-datasketches-theta-v1", "presto-sum-data-size-bytes-v1", "")
    ],
}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_statistics_of_unknown_kinds_are_ignored(version: int, tmp_path: Path) -> None:
    maker = make(tmp_path, version, deletes=False)
    location = saved(maker, metadata_of(maker) | {"statistics": [STATISTICS]})
    assert len(ask(location)) == 60
    broken = {**STATISTICS, "blob-metadata": [{"type": 5}]}
    with pytest.raises(CorruptFileError, match="blob-metadata"):
        ask(saved(maker, metadata_of(maker) | {"statistics": [broken]}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("route", ["rest", "refresh"])
def test_statistics_of_unknown_kinds_by_a_catalog(route: str, tmp_path: Path) -> None:
    """In processes of their own: what pyiceberg once was made to accept it accepts for good."""
    code = f"""
import json
from pathlib import Path
import pyarrow as pa, skipstone as sk
from tests.faults.test_foreign_tables import STATISTICS, add_statistics, make, metadata_of, saved
root = Path({str(tmp_path)!r})
if {route!r} == "rest":
    from tests.iceberg.test_rest import serving
    maker = make(root, deletes=False)
    maker.metadata_files.append(Path(saved(maker, metadata_of(maker) | {{"statistics": [STATISTICS]}})))
    with serving({{"t": maker}}) as server:
        print(sk.open("db.t", catalog={{"type": "rest", "uri": server.uri}}).scan().count())
else:
    table = sk.catalog(root).create_table("db.t", pa.schema([("id", pa.int64())]))
    table.table.append(pa.table({{"id": range(60)}}))
    add_statistics(table)
    table.refresh()
    print(table.scan().count())
    table.table.append(pa.table({{"id": [99]}}))
    table.refresh()
    assert table.scan().count() == 61
    kept = json.loads(Path(table.table.metadata_location.removeprefix("file://")).read_text())
    assert kept["statistics"] == [STATISTICS], kept["statistics"]
"""
    here = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=here)
    assert ran.stdout == "60\n", ran.stderr


def add_statistics(table: sk.Table) -> None:
    """As if another engine had committed them."""
    path = Path(table.table.metadata_location.removeprefix("file://"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"statistics": [STATISTICS]}))


# -- an index that can't be read -----------------------------------------------------------------


@dataclass(frozen=True)
class ForbiddenStore(LocalStore):
    """A folder of a store that lets nobody list it."""

    asked: list[str] = field(default_factory=list, compare=False)

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        self.asked.append(prefix)
        raise ReadError("permission denied", path=self.uri, hint="check the credentials")

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        raise WriteError("permission denied", path=self.path(key))


@pytest.mark.parametrize("inside", [True, False])
def test_an_index_that_can_not_be_listed_costs_time_only(inside: bool, tmp_path: Path) -> None:
    maker = make(tmp_path)
    wanted = ask(maker, "id < 20")
    if inside:
        # Where a folder is looked for, a file can't be listed either.
        Path(sk.open(maker.metadata_location).index.uri).write_text("no folder")
        table = sk.open(maker.metadata_location)
    else:
        forbidden = ForbiddenStore(str(tmp_path / "elsewhere"))
        table = sk.tables.open_table(maker.metadata_location, index_root=forbidden)
    for index in (False, True):
        scan = table.scan("id < 20", index=index)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == wanted
        assert scan.count() == len(wanted)
    used = table.scan("id < 20").plan().trace.index
    assert used is not None
    assert (used.covered, len(used.problems)) == (0, 1)
    assert "index ignored" in table.scan("id < 20").explain()
    status = table.index.status()
    assert (status.covered, len(status.problems)) == (0, 1)
    if not inside:
        assert status.problems == ("permission denied",)
    table.refresh()
    assert table.at(table.snapshot).scan().count() == 56
    with pytest.raises((ReadError, WriteError)) as refused:
        table.index.build(engine="local")
    assert refused.value.path is not None
    assert refused.value.path.startswith(table.index.uri)


# -- numbers, and other values, that can't be -----------------------------------------------------

ABSURD: tuple[Any, ...] = (
    *(-1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**30),
    *(1.5, True, None, "x", "7", [], {}),
)


def leaves(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The ways to all values in JSON, whole lists and objects too."""
    if path:
        yield path
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(value, (*path, key))


def absurd(metadata: Any) -> Iterator[tuple[str, Any]]:
    for path in leaves(metadata):
        for value in ABSURD:
            made = copy.deepcopy(metadata)
            node = made
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = value
            yield f"{path} = {value!r}", made


def look(location: str) -> SkipstoneError | None:
    """Ask a table all kinds of things; the error if it can't even be opened."""
    try:
        table = sk.open(location)
    except SkipstoneError as error:
        return error
    for act in (
        table.snapshots,
        lambda: table.scan("id < 20 and p = 'a'").to_arrow(),
        lambda: table.at("2026-01-01"),
        lambda: table.at("t"),
        lambda: table.at("nope"),
    ):
        with suppress(SkipstoneError):
            act()
    return None


def absurd_tables(version: int, root: Path, step: int) -> int:
    """How many were tried, of every ``step`` one."""
    maker = make(root, version, deletes=version > 1)
    maker.tag("t")
    count = 0
    for what, metadata in islice(absurd(metadata_of(maker)), version, None, step):
        count += 1
        try:
            refused = look(saved(maker, metadata))
        except Exception as error:
            raise AssertionError(what) from error
        assert refused is None or (refused.path and refused.hint), what
    return count


# Prime to the number of values, so that every value is met in many places.
@pytest.mark.parametrize("version", [1, 2, 3])
def test_absurd_metadata_is_one_clear_error(version: int, tmp_path: Path) -> None:
    assert absurd_tables(version, tmp_path, 19) > 50


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2, 3])
def test_absurd_metadata_everywhere(version: int, tmp_path: Path) -> None:
    assert absurd_tables(version, tmp_path, 1) > 1_000


@pytest.mark.parametrize("millis", [2**63 - 1, -(2**63), 253_402_300_800_000, 1_767_225_600_000_000])
def test_a_time_beyond_all_calendars_is_shown_as_the_last(millis: int, tmp_path: Path) -> None:
    """Such as microseconds for milliseconds: rows are the same, and so is what was current at a time."""
    maker = make(tmp_path)
    metadata = metadata_of(maker)
    metadata["snapshots"][-1]["timestamp-ms"] = metadata["snapshot-log"][-1]["timestamp-ms"] = millis
    table = sk.open(saved(maker, metadata))
    assert table.scan().count() == 56
    newest = next(one for one in table.snapshots() if one.current)
    assert newest.at.year == (9999 if millis > 0 else 1)
    with pytest.raises(SkipstoneError, match="unknown snapshot"):
        table.at("nope")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("snapshots", 0, "timestamp-ms"), "timestamp-ms 9223372036854775808 has more than 64 bits"),
        (("snapshots", 0, "snapshot-id"), "snapshot-id 9223372036854775808 has more than 64 bits"),
        (("refs", "main", "snapshot-id"), "snapshot-id 9223372036854775808 has more than 64 bits"),
        (("snapshots", 0, "sequence-number"), "sequence-number 9223372036854775808 has"),
        (("snapshot-log", 0, "timestamp-ms"), "timestamp-ms 9223372036854775808 has more than 64 bits"),
        (("schemas", 0, "fields", 0, "id"), "field id 9223372036854775808 has more than 32 bits"),
        (("partition-specs", 0, "fields", 0, "source-id"), "source-id 9223372036854775808 has"),
    ],
)
def test_a_number_too_large_for_its_field(path: tuple[Any, ...], words: str, tmp_path: Path) -> None:
    maker = make(tmp_path)
    metadata = metadata_of(maker)
    node = metadata
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = 2**63
    location = saved(maker, metadata)
    with pytest.raises(CorruptFileError, match=words) as refused:
        sk.open(location)
    assert refused.value.path == location
    assert "older metadata file" in (refused.value.hint or "")


def test_ids_that_must_be_there_and_be_one(tmp_path: Path) -> None:
    maker = make(tmp_path, 1, deletes=False)
    metadata = metadata_of(maker)
    with pytest.raises(CorruptFileError, match="no schema has the current-schema-id 7"):
        sk.open(saved(maker, metadata | {"current-schema-id": 7}))
    metadata["schemas"][0]["fields"][1]["id"] = metadata["schemas"][0]["fields"][0]["id"]
    with pytest.raises(CorruptFileError, match="schema 0 has several fields with id 1"):
        sk.open(saved(maker, metadata))
