"""A compaction never changes the rows of a table: random evolved tables × options × filters.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=compact:12`` runs one of them again.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import skipstone as sk
from skipstone.core.domain.keys import is_ordered
from skipstone.errors import WriteError
from tests.compact._tables import live_keys, registered, rows_of
from tests.iceberg._chains import Chain, random_chain
from tests.property._frame import REPLAY, run_part
from tests.property._predicates import Predicates, is_drawn
from tests.support.samples import sample

PARTS = 1


def draw_options(rng: random.Random, table: sk.Table, columns: list[str]) -> dict[str, Any]:
    """Options of a plan; sizes fit the tiny files of random tables."""
    target = rng.choice([3_000, 8_000, 30_000, 1 << 20])
    options: dict[str, Any] = {
        "target_file_size_bytes": target,
        "force": True,
        "min_input_files": rng.choice([1, 2, 2, 3, 5]),
        "rewrite_all": rng.random() < 0.3,
        "rewrite_job_order": rng.choice(["none", "bytes-asc", "files-desc"]),
        "partial_progress_enabled": rng.random() < 0.3,
        "partial_progress_max_commits": rng.choice([1, 2, 10]),
    }
    if rng.random() < 0.3:
        options["max_file_group_size_bytes"] = target * 2
    if rng.random() < 0.3:
        options["delete_file_threshold"] = rng.choice([1, 2])
    if rng.random() < 0.2:
        options["use_starting_sequence_number"] = False
    if rng.random() < 0.2:
        options["remove_dangling_deletes"] = False
    if columns and rng.random() < 0.5:
        options["strategy"] = rng.choice(["sort", "zorder", "hilbert"])
        options["sort_by"] = rng.sample(columns, rng.randrange(1, min(len(columns), 3) + 1))
    if rng.random() < 0.25:
        options["target_spec_id"] = rng.choice(writable_specs(table))
    return options


def writable_specs(table: sk.Table) -> list[int]:
    """Specs whose partition values can be computed from rows."""
    ids = set(table.iceberg_schema.field_ids)
    usable = [
        number
        for number, spec in table.specs.items()
        if all(one.source_id in ids and "unknown" not in repr(one.transform).lower() for one in spec.fields)
    ]
    return usable or [table.metadata.default_spec_id]


def draw_filter(rng: random.Random, chain: Chain) -> Any:
    if rng.random() < 0.5:
        return None
    return Predicates(rng, chain.made(chain.maker.current_schema), is_drawn).tree()


def run_chain(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    """Compact one table several times."""
    root = folder / seed.replace(":", "-")
    chain = random_chain(seed, root / "table", writable=True, mapped=seed.endswith("3"))
    table = registered(chain.maker.metadata_location, root)
    rng = random.Random(f"{seed}:compact")
    count["cases"] += 1
    if "unknown" in repr(table.metadata.spec()).lower():
        before, plan = rows_of(table), table.plan_compaction(rewrite_all=True)
        if plan.groups:
            with pytest.raises(WriteError, match="pyiceberg can't commit to the table: Invalid source field"):
                table.compact(plan, engine="local")
        assert rows_of(table) == before
        count["refused"] += 1
        return
    count["specs"] += len(table.specs)
    if rng.random() < 0.3:
        table.index.build(engine="local")
    names = [name for name in table.schema.names if is_ordered(table.schema.field(name).type)]
    for number in numbers:
        options, where = draw_options(rng, table, names), draw_filter(rng, chain)
        words = f"SKIPSTONE_REPLAY={seed} round {number}: {options} where {where}\n  " + "\n  ".join(
            chain.words
        )
        try:
            compact_once(table, options, where, rng, count)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{words}") from error
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n{words}") from error


def compact_once(
    table: sk.Table, options: dict[str, Any], where: Any, rng: random.Random, count: Counter[str]
) -> None:
    before, keys, old = rows_of(table), live_keys(table), table.snapshot
    # A snapshot that is named is read with its own schema.
    earlier = None if old is None else rows_of(table, old)
    deletes = len(table.delete_inventory)
    plan = table.plan_compaction(where, **options)
    assert type(plan).from_json(json.dumps(plan.to_json())).hash == plan.hash
    report = table.compact(
        plan, engine="local", checksums=rng.random() < 0.5, memory=rng.choice([None, 20_000])
    )
    assert not report.failures, report
    assert rows_of(table) == before
    assert earlier is None or rows_of(table, old) == earlier
    moved = options.get("target_spec_id")
    if moved is None:
        assert live_keys(table) <= keys
    elif where is None:
        assert {key.spec_id for key in live_keys(table)} <= {moved}
    count["groups"] += report.groups
    count["deleted rows removed"] += bool(report.rows_removed)
    count["delete files dropped"] += bool(report.delete_files_removed)
    count["with deletes"] += bool(deletes)
    count["moved"] += moved is not None and bool(report.groups)
    if not options["rewrite_all"]:
        if moved is not None or "max_file_group_size_bytes" in options:
            # The new files of several groups can share a partition: later runs combine them, and each leaves
            # fewer files.
            options.pop("max_file_group_size_bytes", None)
            for _ in range(5):
                more = table.plan_compaction(where, **options)
                files = table.compact(more, engine="local").files_added
                assert (
                    not more.groups
                    or files < more.files
                    or more.bytes_to_read > files * options["target_file_size_bytes"]
                ), more
            assert rows_of(table) == before
        again = table.plan_compaction(where, **options)
        assert not again.groups, f"second plan is not empty: {again}\nfirst: {plan}\n{report}"
        count["converged"] += bool(report.groups)


def test_rows_stay_the_same(tmp_path: Path) -> None:
    count = run_part("compact", run_chain, tmp_path, 0, sample("compactions"), 3)
    assert count["groups"] > count["cases"]
    assert count["converged"] > 0.2 * count["cases"]
    assert count["with deletes"] > 0.1 * count["cases"]
    assert count["deleted rows removed"] > 0
    assert count["specs"] > 1.3 * count["cases"]


def test_replay(tmp_path: Path) -> None:
    if REPLAY.startswith("compact:"):
        run_chain(REPLAY, tmp_path, range(3), Counter())
