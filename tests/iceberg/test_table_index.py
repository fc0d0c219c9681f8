"""The index of a table: it outlives snapshots and schemas, and never changes an answer."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.iceberg.manifests.reading import clear_cache
from skipstone.index.container import COMMON, Container, ContainerWriter, MemoryFile
from skipstone.index.entries import read_entries
from skipstone.lake.files import Files
from skipstone.store.cache import Cache
from tests.iceberg._maker import Maker
from tests.iceberg._watch import watch
from tests.support.samples import sample

Evolve = Callable[[Maker], list[str]]
FOLDER = "_skipstone"


def make(root: Path, seed: Any = 0, **more: Any) -> Maker:
    columns = [("id", "long"), ("n", "int"), ("s", "string"), ("f", "float"), ("p", "string")]
    return Maker(root, columns, [("p", "identity")], seed=seed, **more)


def some(first: int, last: int, **extra: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "n": n % 50 if n % 7 else None,
            "s": f"s{n % 13}",
            "f": float("nan") if n % 11 == 0 else n / 4,
            "p": "abc"[n % 3],
            **{name: value(n) if callable(value) else value for name, value in extra.items()},
        }
        for n in range(first, last)
    ]


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


# -- tables that have changed ------------------------------------------------------------------


def renamed(maker: Maker) -> list[str]:
    maker.evolve_schema(rename={"n": "m", "s": "n"})
    maker.append([row | {"m": row["n"], "n": row["s"]} for row in some(100, 140)])
    return ["m = 3", "n = 's4'", "m is null", "m > 45 and n < 's2'", "n in ('s1', 's9') and p = 'b'"]


def dropped(maker: Maker) -> list[str]:
    maker.evolve_schema(drop=["n", "s"])
    maker.append(some(100, 120))
    maker.evolve_schema(add={"n": "string", "s": "long"})
    maker.append(some(200, 240, n=lambda n: f"new {n % 4}", s=lambda n: n))
    return ["n is null", "n = 'new 2'", "s > 230", "s is null and id < 10", "n <> 'new 1'"]


def widened(maker: Maker) -> list[str]:
    maker.evolve_schema(widen={"n": "long", "f": "double"})
    maker.append(some(100, 140, n=lambda n: n + 2**40, f=0.1))
    return ["n > 1000000", "n = 3", "n < 5", "f = 0.1", "f > 20", "isnan(f)", "n is null", "f <= 1.25"]


def constant(maker: Maker) -> list[str]:
    maker.append(some(100, 140), leave_out=True)
    maker.evolve_spec([("s", "identity"), ("id", "bucket[4]")])
    maker.append(some(200, 240), leave_out=True)
    return ["p = 'b'", "s = 's3'", "p is null", "s = 's3' and p = 'a'", "id = 210", "p <> 'c' and n = 5"]


def defaulted(maker: Maker) -> list[str]:
    maker.evolve_schema(add={"d": "int", "e": "string"}, defaults={"d": 7, "e": "old"})
    maker.append(some(100, 140, d=lambda n: n % 3, e="new"))
    return ["d = 7", "d = 1", "e = 'old' and n = 3", "e <> 'old'", "d is null", "d > 5 and id < 20"]


def deleted(maker: Maker) -> list[str]:
    maker.append(some(100, 140))
    if maker.version == 3:
        vectors: dict[str, list[int]] = {}
        for path, place in maker.places()[::3]:
            vectors.setdefault(path, []).append(place)
        maker.delete_vector(vectors)
    else:
        maker.delete_positions(maker.places()[::5], scope="partition")
        maker.delete_equal([maker.field("n").id], [(3,), (None,)])
    return ["n = 3", "n is null", "id < 20", "p = 'a'", "f > 2", "s = 's1' or id = 15"]


CHANGES: list[tuple[Evolve, int, bool]] = [
    (renamed, 2, True),
    (dropped, 2, True),
    (widened, 2, True),
    (constant, 2, False),
    (defaulted, 3, True),
    (deleted, 2, True),
    (deleted, 3, False),
]
MORE = [
    *((change, version, not before) for change, version, before in CHANGES),
    *((change, 1, before) for change in (renamed, dropped, widened, constant) for before in (False, True)),
]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in MORE]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("change", "version", "before"), [*CHANGES, *SLOW])
def test_the_index_on_and_off_give_the_oracles_rows(
    change: Evolve, version: int, before: bool, tmp_path: Path
) -> None:
    """Also an index that was built before the table changed, and with columns named as they were."""
    maker = make(tmp_path, f"{change.__name__}{version}", format_version=version)
    maker.append(some(0, 60))
    if before:
        sk.open(maker.metadata_location).index.build(
            columns=["id", "n", "s", "f"], blooms=["s"], engine="local"
        )
    questions = change(maker)
    if not before:
        sk.open(maker.metadata_location).index.build(engine="local")
    lake = sk.open(maker.metadata_location)
    assert 0 < lake.index.coverage.covered <= len(lake.files)  # type: ignore[union-attr]
    assert rows(lake.scan().to_arrow()) == rows(maker.table())
    plain = answers(maker, questions)
    for question in questions:
        assert rows(lake.scan(question).to_arrow()) == plain[question], question
        assert rows(lake.scan(question, index=False).to_arrow()) == plain[question], question
    assert not lake.index.coverage.problems  # type: ignore[union-attr]
    lake.index.refresh(engine="local")
    assert not len(lake.index.coverage.unknown)  # type: ignore[union-attr]
    for question in questions:
        assert lake.scan(question).count() == len(plain[question]), question


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("change", "version"), [(change, version) for change, version, _ in CHANGES])
def test_advice_on_tables_that_have_changed(change: Evolve, version: int, tmp_path: Path) -> None:
    maker = make(tmp_path, f"{change.__name__}{version}", format_version=version)
    maker.append(some(0, 60))
    questions = change(maker)
    lake = sk.open(maker.metadata_location)
    total = sum(file.num_rows for file in lake.access.footers(lake.entries))
    for question in questions:
        advice = lake.index.advise([question])
        assert (advice.rows, advice.sampled_rows, advice.refused) == (total, total, ())
        kept = lake.scan(question, bloom_filter=False).plan().trace.rows_kept / total
        if change is deleted:
            assert 1 - advice.skips >= kept, question
        else:
            assert 1 - advice.skips == pytest.approx(kept), question
    advice = lake.index.advise()
    assert {column.name for column in advice.by_column} >= {"id", "f", "p"}
    heads = ["skipstone index build TABLE "] * bool(advice.columns or advice.blooms)
    heads += ["skipstone compact TABLE --strategy "] * bool(advice.layouts)
    assert len(advice.commands) == len(heads) > 0
    assert all(map(str.startswith, advice.commands, heads))


def answers(maker: Maker, questions: list[str]) -> dict[str, list[str]]:
    """What DuckDB makes of the oracle's rows, whose NaN is as large as ours."""
    import duckdb

    with duckdb.connect() as session:
        session.register("t", maker.table())
        return {
            question: rows(session.sql(f"select * from t where {question}").to_arrow_table())
            for question in questions
        }


def test_files_that_are_not_in_the_order_of_their_paths_keep_their_own_facts(tmp_path: Path) -> None:
    """A segment is in path order, a table in the order of its manifests: every file is asked about itself."""
    maker = make(tmp_path, "order")
    for first in range(0, 200, 20):
        maker.append(some(first, first + 20), merge=False)
    lake = sk.open(maker.metadata_location)
    paths = [file.path for file in lake.files]
    assert paths != sorted(paths)
    lake.index.build(engine="local")
    lake = sk.open(maker.metadata_location)
    for n in range(0, 200, 9):
        assert lake.scan(f"id = {n}").to_arrow()["id"].to_pylist() == [n]
    assert lake.scan("n is null").verify().ok


# -- building, looking, dropping ---------------------------------------------------------------


def test_build_status_and_drop(tmp_path: Path) -> None:
    maker = make(tmp_path, "status")
    maker.append(some(0, 60), merge=False)
    lake = sk.open(maker.metadata_location)
    assert lake.index.coverage is None
    report = lake.index.build(engine="local")
    assert (report.indexed, report.already_indexed, report.skipped) == (3, 0, ())
    status = lake.index.status()
    assert (status.files, status.covered, status.stale) == (3, 3, 0)
    folder = tmp_path / FOLDER
    assert [path.name for path in folder.glob("entries-*")] == ["entries-000000000001.skip"]
    maker.append(some(60, 90), merge=False)
    lake = sk.open(maker.metadata_location)
    assert (lake.index.status().covered, lake.index.status().files) == (3, 6)
    lake.index.drop()
    assert not [*folder.glob("*")]
    assert lake.scan("id = 70").count() == 1
    assert sk.open(maker.metadata_location).index.coverage is None


def test_an_index_elsewhere_serves_too(tmp_path: Path) -> None:
    maker = make(tmp_path / "table", "elsewhere")
    maker.append(some(0, 60))
    root = tmp_path / "index"
    sk.open(maker.metadata_location, index_root=root).index.build(engine="local")
    assert not (tmp_path / "table" / FOLDER).exists()
    lake = sk.open(maker.metadata_location, index_root=root)
    assert lake.index.coverage.covered == 3  # type: ignore[union-attr]
    assert lake.pinned._cached is not None
    assert lake.scan("id = 30").count() == 1


def test_a_plan_at_another_snapshot_reuses_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = make(tmp_path, "snapshots")
    first = maker.append(some(0, 30), merge=False)
    maker.evolve_schema(rename={"n": "number"})
    maker.append(some(30, 60), merge=False)
    gone = {one.file.path for one in maker.live()[:2]}
    maker.remove_files(gone)
    maker.append(some(60, 90, number=5), merge=False)
    lake = sk.open(maker.metadata_location)
    lake.index.build(engine="local")
    sizes = {file.path: file.size for file in [*lake.files, *lake.at(first.id).files]}
    reads = watch(monkeypatch)

    def ask(snapshot: Any, question: str) -> set[str]:
        reads.restart()
        lake = sk.open(maker.metadata_location, snapshot=snapshot)
        assert rows(lake.scan(question).to_arrow()) == answers_at(maker, snapshot, question)
        return reads.footers(sizes)

    assert not ask(None, "id > 20 and number is not null")
    shared = {file.path for file in lake.files}
    opened = ask(first.id, "id > 2 and n is not null")
    assert opened <= gone - shared
    lake.index.refresh(engine="local")
    before = ask(maker.metadata_location and first.id, "n = 12")
    assert before <= gone


def answers_at(maker: Maker, snapshot: int | None, question: str) -> list[str]:
    import duckdb

    schema = None if snapshot is None else maker.snapshots[snapshot].schema
    with duckdb.connect() as session:
        session.register("t", maker.table(snapshot, schema))
        return rows(session.sql(f"select * from t where {question}").to_arrow_table())


def test_a_refresh_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = make(tmp_path, "refresh")
    for first in (0, 30):
        maker.append(some(first, first + 30), merge=False)
    sk.open(maker.metadata_location).index.build(engine="local")
    known = {manifest.path for manifest in maker.head().manifests}  # type: ignore[union-attr]
    old = {one.file.path for one in maker.live()}
    reads = watch(monkeypatch)

    def refresh() -> Any:
        reads.restart()
        return sk.open(maker.metadata_location).index.refresh(engine="local")

    report = refresh()
    assert (report.indexed, report.already_indexed) == (0, 6)
    assert not reads.manifests | reads.data
    maker.append(some(60, 90), merge=False)
    report = refresh()
    assert (report.indexed, report.already_indexed) == (3, 6)
    assert reads.manifests == {m.path for m in maker.head().manifests} - known  # type: ignore[union-attr]
    assert reads.data == {one.file.path for one in maker.live()} - old
    # Position deletes change no data file: one manifest is new, and no file is looked at.
    maker.delete_positions(maker.places()[:4], scope="partition", merge=False)
    report = refresh()
    assert (report.indexed, report.already_indexed) == (0, 9)
    assert len(reads.manifests) == 1
    assert not reads.data
    maker.remove_files(old)
    report = refresh()
    assert (report.indexed, report.already_indexed, report.dropped) == (0, 3, 6)
    assert not reads.data


def test_keep_manifests_spares_a_later_process_from_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any other part of an index; what is kept grows with the table."""
    maker = make(tmp_path, "keep")
    for first in (0, 30, 60):
        maker.append(some(first, first + 30), merge=False)
    maker.delete_equal([maker.field("id").id], [(4,)], partitions=[(0, ("b",))])
    reads = watch(monkeypatch)

    def ask(known: int) -> int:
        reads.restart()
        lake = sk.open(maker.metadata_location)
        assert lake.scan("id in (4, 7)").count() == 1
        assert len(maker.head().manifests) - len(reads.manifests) >= known  # type: ignore[union-attr]
        return len(reads.manifests)

    assert ask(0) > 0
    sk.open(maker.metadata_location).keep_manifests()
    assert ask(4) == 0
    maker.append(some(90, 120), merge=False)
    assert ask(4) == 1
    lake = sk.open(maker.metadata_location)
    lake.keep_manifests()
    assert ask(5) == 0
    # Twice the same is written once.
    files = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    lake = sk.open(maker.metadata_location)
    lake.keep_manifests()
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == files
    # Other manifests under the same files: nothing is taken for known that is not.
    maker.rewrite_manifests()
    assert ask(0) > 0


# -- what is kept, damaged -----------------------------------------------------------------------


def entries_file(root: Path) -> Path:
    return max((root / FOLDER).glob("entries-*.skip"))


def deep(maker: Maker) -> list[str]:
    clear_cache()
    lake = sk.open(maker.metadata_location)
    return rows(lake.scan().to_arrow()) + rows(lake.scan("p = 'a' and id < 50").to_arrow())


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Maker, bytes, list[str]]:
    """A table with deletes whose manifests are kept, the file that keeps them, and the right answers."""
    maker = make(tmp_path, "damage")
    for first in (0, 30):
        maker.append(some(first, first + 30), merge=False)
    maker.delete_positions(maker.places()[::6], scope="partition")
    sk.open(maker.metadata_location).keep_manifests()
    return maker, entries_file(tmp_path).read_bytes(), deep(maker)


def _told(kept: Any) -> Any:
    return [
        (one.ranges, None if one.counts is None else one.counts.tolist(), one.entries.to_table().to_pylist())
        for one in kept
    ]


def test_flipped_bits_never_change_what_is_known(kept: tuple[Maker, bytes, list[str]]) -> None:
    maker, body, wanted = kept
    path = entries_file(maker.root)
    lake = sk.open(maker.metadata_location)
    access, version = lake.index.access, lake.pinned.listed_in
    good = [read_entries(access, one, []) for one in (version, "another")]
    assert good[0] is not None
    assert all(one.counts is not None and not one.ranges for one in good[0])
    told = [_told(one) for one in good]
    rng = random.Random(7)
    some_places = rng.sample(range(len(body)), sample("damaged entries"))
    places = {*some_places, *range(0, 64, 8), *range(len(body) - 64, len(body))}
    ignored = 0
    for place in places:
        changed = bytearray(body)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        found = [read_entries(Files(access.store), one, []) for one in (version, "another")]
        ignored += found[1] is None
        # Only what pads the file may change unseen.
        assert all(one is None or _told(one) == wanted for one, wanted in zip(found, told, strict=True)), (
            place
        )
    assert len(places) * 0.7 < ignored
    path.write_bytes(body[:-200] + bytes(100) + body[-100:])
    assert deep(maker) == wanted


def test_forged_entries_are_ignored(kept: tuple[Maker, bytes, list[str]]) -> None:
    """With right checksums of each part: parts that don't belong together, or can't be decoded."""
    maker, _, wanted = kept
    sk.open(maker.metadata_location).index.build(engine="local")
    path = entries_file(maker.root)
    body = path.read_bytes()
    assert len([*path.parent.glob("entries-*")]) == 1
    container = Container.open_alone(path.name, MemoryFile(body), len(body), Cache(0))
    for number in range(sample("forged entries")):
        rng = random.Random(number)
        arrays = {key: container.whole(key).copy() for key in container.arrays()}
        head: dict[str, Any] = {**container.head}
        key = rng.choice(sorted(key for key, array in arrays.items() if array.size))
        match rng.randrange(5):
            case 0:
                raw = arrays[key].view(np.uint8)
                raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            case 1:
                arrays[key] = arrays[key][: rng.randrange(len(arrays[key]))]
            case 2:
                del arrays[key]
            case 3:
                head["digests"] = rng.choice([None, {}, [], {"data": 1, "deletes": 2}, "x"])
            case 4:
                text = rng.choice(["[]", "null", "[[{}]]", "[" * 100_000, "\0", '"x"'])
                arrays[COMMON, "data/manifests"] = np.frombuffer(text.encode(), dtype=np.uint8)
        if rng.random() < 0.5:
            head["version"] = "another"
        writer = ContainerWriter()
        for (column, name), array in arrays.items():
            writer.add(column, name, array)
        path.write_bytes(b"".join(writer.parts(head)[0]))
        clear_cache()
        lake = sk.open(maker.metadata_location)
        problems: list[str] = []
        assert read_entries(lake.index.access, lake.pinned.listed_in, problems) is None
        assert len(problems) == 1
        assert problems[0].startswith(path.name)
        if number % 8 == 0:
            assert deep(maker) == wanted
    index = sk.open(maker.metadata_location).scan("id < 50").trace().index
    assert index is not None
    assert any(problem.startswith(path.name) for problem in index.problems)


@pytest.mark.parametrize("length", [0, 1, 100, -1, -60, "double", "noise", "foreign"])
def test_other_bytes_never_change_an_answer(
    kept: tuple[Maker, bytes, list[str]], length: Any, tmp_path: Path
) -> None:
    maker, body, wanted = kept
    path = entries_file(maker.root)
    if length == "double":
        path.write_bytes(body + body)
    elif length == "noise":
        path.write_bytes(random.Random(1).randbytes(len(body)))
    elif length == "foreign":
        other = make(tmp_path / "other", "other")
        other.append(some(500, 530))
        sk.open(other.metadata_location).keep_manifests()
        path.write_bytes(entries_file(other.root).read_bytes())
    else:
        path.write_bytes(body[:length])
    assert deep(maker) == wanted
    # A new one is written beside, and used.
    sk.open(maker.metadata_location).keep_manifests()
    assert (entries_file(maker.root) != path) == (length != "double")
    assert deep(maker) == wanted


def test_a_good_older_file_is_used_behind_a_damaged_one(
    kept: tuple[Maker, bytes, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, body, wanted = kept
    newer = maker.root / FOLDER / "entries-000000000009.skip"
    newer.write_bytes(body[:-3])
    reads = watch(monkeypatch)
    reads.restart()
    assert deep(maker) == wanted
    assert not reads.manifests
    # Names that are none of ours are left alone, by reading and by dropping.
    other = maker.root / FOLDER / "entries-1.skip"
    other.write_bytes(b"mine")
    sk.open(maker.metadata_location).index.drop()
    assert [path.name for path in (maker.root / FOLDER).iterdir()] == ["entries-1.skip"]


def test_a_file_that_is_deleted_while_it_is_listed_costs_time_only(
    kept: tuple[Maker, bytes, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, _, wanted = kept
    from skipstone.index import entries

    listed = entries._listed

    def swept(access: Any) -> Any:
        found = listed(access)
        entries_file(maker.root).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(entries, "_listed", swept)
    clear_cache()
    lake = sk.open(maker.metadata_location)
    assert lake.pinned._cached is None
    assert rows(lake.scan().to_arrow()) == wanted[: len(maker.rows())]


def test_concurrent_refreshes_leave_a_good_index(tmp_path: Path) -> None:
    maker = make(tmp_path, "concurrent")
    maker.append(some(0, 30), merge=False)
    sk.open(maker.metadata_location).index.build(engine="local")
    maker.append(some(30, 60), merge=False)
    lakes = [sk.open(maker.metadata_location) for _ in range(6)]
    start = threading.Barrier(len(lakes))
    failures: list[BaseException] = []

    def refresh(lake: sk.Table, number: int) -> None:
        start.wait()
        try:
            if number % 2:
                lake.keep_manifests()
            else:
                lake.index.refresh(engine="local")
            assert lake.scan("id = 45").count() == 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=refresh, args=(lake, n)) for n, lake in enumerate(lakes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    lake = sk.open(maker.metadata_location)
    assert lake.index.coverage.covered == 6  # type: ignore[union-attr]
    assert lake.inventory.covered
    assert lake.scan().count() == 60
    assert len([*(tmp_path / FOLDER).glob("entries-*")]) <= 4


def test_an_older_schema_is_not_asked_about_newer_partitions(tmp_path: Path) -> None:
    """Kept manifests know partitions whose values don't fit the schema of an older snapshot."""
    m = Maker(tmp_path / "t", [("k", "int"), ("v", "string")], [("k", "identity")])
    first = m.append([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    m.evolve_schema(widen={"k": "long"})
    m.append([{"k": 2**40, "v": "c"}])
    sk.open(m.metadata_location).index.build(engine="local")
    old = sk.open(m.metadata_location, snapshot=first.id)
    assert sorted(old.scan().to_arrow()["k"].to_pylist()) == [1, 2]
    assert old.plan_files("k = 2").filter_stats == sk.FilterStats()
