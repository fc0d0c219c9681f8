"""An index matched with a listing: which files it keeps are those that judging them all would keep."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
import skipstone.index.build as build_module
import skipstone.index.coverage as coverage_module
import skipstone.index.draft as draft_module
from skipstone.core.evidence import Evidence, hull
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.judge import judge
from skipstone.index.container import BadIndex
from skipstone.parquet.evidence import row_group_facts

FILES = 37
ASKS = [
    "id = 1234",
    "id = 99999",
    "id between 700 and 905",
    "id in (3, 1803, 3600, 7777)",
    "id < 150 or id > 3500",
    "id > 100 and text = 'w05'",
    "text = 'w33'",
    "text like 'w0%' and id < 400",
    "text >= 'w30' or id = 5",
    "not (id < 3000)",
    "x > 40",
    "x = 3 and id < 1000",
    "x is null",
    "text is not null and id = 250",
    "id <> 5",
    "id is null",
    "id % 2 = 0 and id < 90",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in an order that is not that of their ids; some with NULLs only, one empty."""
    root = tmp_path_factory.mktemp("coverage")
    places = random.Random(4).sample(range(FILES), FILES)
    for number, place in enumerate(places):
        ids = range(place * 100, place * 100 + (0 if number == 11 else 100))
        empty = number in (7, 20)
        table = pa.table(
            {
                "id": pa.array([None if empty else n for n in ids], pa.int64()),
                "text": pa.array([f"w{place:02d}" if n % 5 else None for n in ids], pa.string()),
                "x": pa.array(
                    [None if empty else (float("nan") if n % 97 == 0 else float(n % 43)) for n in ids],
                    pa.float64(),
                ),
            }
        )
        pq.write_table(table, root / f"f{number:02d}.parquet", row_group_size=30 if number % 3 else 100)
    return root


@pytest.fixture(params=[1, 3, 1000], ids=lambda n: f"blocks of {n}")
def lake(request: pytest.FixtureRequest, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """In one segment or several, in blocks of some size."""
    monkeypatch.setattr(draft_module, "BLOCK", request.param)
    monkeypatch.setattr(build_module, "MANY_SEGMENTS", 1 if request.param == 3 else 99)
    lake = sk.open(root, index_root=tmp_path / "index")
    lake.index.build(engine="local")
    for name, value in (("_SMALL", 0), ("_FEW", 0), ("_SHARE", 1)):
        monkeypatch.setattr(coverage_module, name, value)
    return lake


def expected(lake: Any, node: Any, refs: list[ColumnRef]) -> tuple[set[int], set[int]]:
    """Files that may hold a match, and those that hold matches only, judged one by one from their footers."""
    may, all_match = set(), set()
    for number, entry in enumerate(lake.entries):
        footer = lake.access.footer(entry)
        start = np.zeros(1, dtype=np.int64)
        facts = {ref.path: hull(row_group_facts(footer, ref), start) for ref in refs}
        rows = np.array([footer.num_rows], dtype=np.int64)
        judgement = judge(node, Evidence(rows, facts))
        if judgement.bits.true[0]:
            may.add(number)
            if not judgement.bits.false[0] and not judgement.bits.null[0]:
                all_match.add(number)
    return may, all_match


def test_a_sieve_keeps_what_judging_each_file_keeps(lake: Any) -> None:
    for ask in ASKS:
        check_sieve(lake, ask)


def check_sieve(lake: Any, ask: str) -> None:
    node = compile_predicate(sk.parse(ask), lake.query_schema).node
    refs = list({ref.path: ColumnRef(ref.path, ref.type) for ref in node.refs()}.values())
    coverage = lake.index.coverage
    may, whole = expected(lake, node, refs)
    for chosen in (np.arange(FILES), np.arange(0, FILES, 2), np.array([5]), np.zeros(0, dtype=np.int64)):
        sieved = coverage.prune_segments(node, refs, chosen, {})
        kept = [
            number for segment, rows in sieved.kept for number in coverage.files_of(segment, rows).tolist()
        ]
        assert len(kept) == len({*kept}) == sieved.count
        assert {*kept} == may & {*chosen.tolist()}, ask
        assert sieved.units == len(chosen)
        assert sieved.whole == len(whole & {*chosen.tolist()})
        assert sum(drop.units for drop in sieved.drops) == sieved.units - sieved.count
        totals = {n: lake.access.footer(entry).num_rows for n, entry in enumerate(lake.entries)}
        assert sieved.rows == sum(totals[n] for n in kept)
        assert sieved.rows + sieved.rows_dropped == sum(totals[n] for n in chosen.tolist())


def test_answers(lake: Any) -> None:
    for ask in ASKS:
        check_answers(lake, ask)


def check_answers(lake: Any, ask: str) -> None:
    scan = lake.scan(ask)
    assert scan.count() == lake.scan(ask, index=False).count() == lake.scan(ask, skipping=False).count()
    assert scan.trace().index.problems == ()


def test_a_search_is_used(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point in many files judges few of them: the feature the other tests rest on."""
    judged: list[int] = []
    real = coverage_module.judge

    def counting(node: Any, evidence: Any, *more: Any) -> Any:
        judged.append(len(evidence.rows))
        return real(node, evidence, *more)

    monkeypatch.setattr(coverage_module, "judge", counting)
    known = next(n for n in (1234, 1334, 1434) if lake.scan(f"id = {n}", index=False).count())
    assert lake.scan(f"id = {known}").plan().tasks
    # Blocks first, then the files that are left, by segment.
    blocks = sum(-(-len(s) // s.block) for s in lake.index.coverage.segments)
    assert sum(judged) <= blocks + max(s.block for s in lake.index.coverage.segments) + 2 or blocks > 30


def test_where_each_file_is(lake: Any) -> None:
    coverage = lake.index.coverage
    assert coverage.covered == FILES
    for number in range(FILES):
        assert coverage.files_of(int(coverage.owner[number]), coverage.row[[number]]).tolist() == [number]
        assert coverage.metadata(number).path == lake.access.path(lake.entries[number])
    found = coverage.rows_of(np.arange(FILES))
    assert sum(len(rows) for _, rows in found) == FILES
    assert {f.arrow_schema for f in coverage.kinds()} == {lake.access.footer(lake.entries[0]).arrow_schema}


def test_without_a_segment(lake: Any) -> None:
    """What is left serves its own files; with none left every footer is opened."""
    coverage = lake.index.coverage
    total = len(coverage.segments)
    for left in range(total - 1, -1, -1):
        name = lake.index.coverage.segments[0].container.name
        lake.index.distrust(BadIndex("just so", name))
        coverage = lake.index.coverage
        assert len(coverage.segments) == left
        assert any(name in problem and "just so" in problem for problem in coverage.problems)
        for ask in ASKS[:4]:
            assert lake.scan(ask).count() == lake.scan(ask, index=False).count()
    assert coverage.covered == 0


def test_damage_without_a_name_ends_the_whole_index(lake: Any) -> None:
    assert lake.index.coverage.covered == FILES
    lake.index.distrust(BadIndex("who knows"))
    assert lake.index.coverage.covered == 0
    assert lake.scan("id = 5").trace().index.problems
